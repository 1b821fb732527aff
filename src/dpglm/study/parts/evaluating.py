"""The part of a study that evaluates its model on rows held out."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dpglm._words import plain_number
from dpglm.evaluation import (
    BinaryTask,
    ClassesTask,
    EvaluationPlan,
    RegressionTask,
    plan_evaluation,
    predictions_of,
)
from dpglm.evaluation.predictions import has_probabilities
from dpglm.evaluation.task import Task
from dpglm.exploration.numbers import normal_quantile
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.study.division import ratio_of_share
from dpglm.study.parts.learning import Learning
from dpglm.study.parts.part import EVALUATION, Columns, DeclaredPart, Expected, PlannedPart
from dpglm.study.persons import Persons
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema

__all__ = ["Evaluating", "PlannedEvaluation"]

_HALF = 0.5


@final
@dataclass(frozen=True)
class Evaluating(DeclaredPart):
    """How the model of a study is to be evaluated; see ``Study.evaluate``."""

    learning: Learning
    thresholds: tuple[float, ...] | None = None
    by: str | None = None
    level: float = 0.95

    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedEvaluation:
        column = None if self.by is None else _categories(self.by, schema)
        plan = plan_evaluation(
            self._task(schema, self.learning.model(schema, adjacency)),
            n_rows,
            budget,
            adjacency=adjacency.value,
            levels=() if column is None else column.categories,
            level=self.level,
            groups=None if persons is None else persons.bound,
        )
        return PlannedEvaluation(plan, schema, column)

    def _task(self, schema: Schema, model: Any) -> Task:
        known = schema.target.estimator_parameters()
        if "target_bounds" in known:
            self._check_no_thresholds("numbers")
            low, high = known["target_bounds"]
            return RegressionTask(float(low), float(high))
        # As fitted classifiers have them.
        classes = tuple(np.unique(known["classes"]).tolist())
        if len(classes) == 2:
            # Of a regressor of two labels the means are probabilities.
            has_them = has_probabilities(model) or not is_classifier(model)
            return BinaryTask(classes, self.thresholds, has_them)
        self._check_no_thresholds(f"{len(classes)} classes")
        if not has_probabilities(model):
            raise ValueError(
                f"a model of {len(classes)} classes must have probabilities to be evaluated, and "
                f"{type(model).__name__} has none"
            )
        return ClassesTask(classes)

    def _check_no_thresholds(self, target: str) -> None:
        if self.thresholds is not None:
            raise ValueError(
                f"thresholds are for a target of two classes, and this one has {target}"
            )


def _categories(name: Any, schema: Schema) -> CategoricalColumn:
    found = {one.name: one for one in schema.columns if isinstance(one, CategoricalColumn)}
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"by must name a column of categories, one of {list(found)}, got {name!r}")
    return found[name]


@final
@dataclass(frozen=True, eq=False)
class PlannedEvaluation(PlannedPart):
    """An evaluation that is planned."""

    evaluation: EvaluationPlan
    schema: Schema
    by: CategoricalColumn | None

    @property
    def plan(self) -> Plan:
        return self.evaluation.plan

    @property
    def noise_to_sampling(self) -> float:
        (_, reach), *_ = self.evaluation.precision()
        z = normal_quantile(self.evaluation.level)
        return ratio_of_share(reach / z, self.plan.data.n_rows, _HALF)

    def expected(self) -> tuple[Expected, ...]:
        (share, reach), *means = self.evaluation.precision()
        z, n_rows = normal_quantile(self.evaluation.level), self.plan.data.n_rows
        both = plain_number(math.hypot(reach, z * _HALF / math.sqrt(n_rows)), 2)
        said = [(share, f"± {plain_number(reach, 2)} of noise, ± {both} with sampling, at most")]
        said += [(name, f"± {plain_number(width, 2)} of noise") for name, width in means]
        return tuple(Expected(EVALUATION, *one) for one in said)

    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        groups: NDArray[Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Any:
        chosen = None if where is None else Where(where)
        table = table if chosen is None else chosen.rows(table)
        return dataclasses.replace(self.evaluation, chosen=chosen is not None).run(
            self.schema.encode_target(table[self.schema.target.name]),
            # The mean of a count may be beyond what floats hold, and is clipped in any case.
            np.nan_to_num(predictions_of(model, table)),
            by=self._levels(table),
            groups=groups,
            where=chosen,
            random_state=noise,
            checkpoint=checkpoint,
        )

    def _levels(self, table: Columns) -> NDArray[Any] | None:
        """Return each row's category as the schema spells it."""
        if self.by is None:
            return None
        return np.asarray(self.by.categories)[self.by.read(table[self.by.name])]
