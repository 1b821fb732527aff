"""A small table, and parts of a study that note which rows they were given."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpglm.certificate.execution import StudyPart
from dpglm.study import Split, Study
from dpglm.study.planning import ModelPart, model_of
from dpglm.tables.schema import Schema

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
    "provenance": "generated",
}
PARTS = ("exploration", "model", "evaluation")


def table(n_rows=600, seed=0):
    """Ages differ, so that they identify rows."""
    rng = np.random.default_rng(seed)
    age = rng.permutation(np.linspace(0.0, 100.0, n_rows))
    sex = rng.choice(["f", "m"], n_rows)
    ill = (age + 20.0 * rng.normal(size=n_rows) > 50.0).astype(int)
    return {"age": age, "sex": sex, "ill": ill}


@dataclass(frozen=True)
class Noting(StudyPart):
    """A part that notes the ages of its rows, and may be interrupted, or be given others."""

    inner: StudyPart
    seen: list[Any] = field(default_factory=list, compare=False)
    interrupted: list[bool] = field(default_factory=list, compare=False)

    def plan(self, protection):
        return self.inner.plan(protection)

    def noise_to_sampling(self, protection):
        return self.inner.noise_to_sampling(protection)

    def title(self, plan):
        return self.inner.title(plan)

    def precision(self, plan):
        return self.inner.precision(plan)

    def expected(self, plan):
        return self.inner.expected(plan)

    def run(self, plan, given):
        self.seen.append(np.sort(given.rows[0]["age"]))
        if self.interrupted:
            raise KeyboardInterrupt
        return self.inner.run(plan, given)


def learning(**settings):
    schema = Schema.from_dict(SCHEMA)
    return ModelPart(model_of(schema, None, None, settings), schema)


def study(test_share=0.25, inner=None, **options):
    """Three fits of noted rows, in the places of the parts of a study."""
    parts = {name: Noting(learning() if inner is None else inner) for name in PARTS}
    made = Study(SCHEMA, delta=1e-5, parts=parts, split=Split(test_share), **options)
    return made, parts


def without(made, name):
    """Return a study without a part."""
    parts = {key: part for key, part in made.parts.items() if key != name}
    split = None if name == "evaluation" else made.split
    return dataclasses.replace(made, parts=parts, split=split)
