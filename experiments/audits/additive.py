"""Additive models: fits of their features under each relation, and features that mix rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpglm
from dpglm.preprocessing import SplineEncoder
from dpglm.privacy import Adjacency
from dpglm.solvers import Newton
from dpglm.tables.additive import Additive
from dpglm.tables.schema import Schema
from experiments.audits.case import BUDGET, RELATIONS, REPLACE_ONE, ZERO_OUT, Case, Setup, of_plan
from experiments.audits.local import local_case

__all__ = ["BUGS", "CASES", "MAPS"]

COLUMNS: Mapping[str, Any] = {
    "age": {"type": "numeric", "low": 0, "high": 100},
    "sex": {"type": "categorical", "categories": ["f", "m"]},
}
PAIRS = (("age", "sex"),)
TARGETS: Mapping[str, Any] = {
    "AdditiveClassifier": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "AdditiveRegressor": {"name": "cost", "type": "numeric", "low": 0.0, "high": 1.0},
}
FAR = {"age": [100.0], "sex": ["m"]}
"""The row with the features of largest norm: the end of a curve."""
OTHER = {"age": [0.0], "sex": ["f"]}
CLOSER = "Rows of a table are never opposite: replacing one changes a sum by less than 2 bounds."


def case(name: str, relation: Adjacency = ZERO_OUT) -> Case:
    """Attack two steps of the usual method, on a person who is at the far end of everything."""

    def make() -> Setup:
        schema = {"columns": COLUMNS, "target": TARGETS[name], "provenance": "made up"}
        model = getattr(dpglm, name)(
            schema,
            interactions=PAIRS,
            segments=2,
            pair_segments=1,
            solver=Newton(n_steps=2),
            epsilon=BUDGET.epsilon,
            delta=BUDGET.delta,
            adjacency=relation.value,
            n_rows=4,
        )
        encoded = Schema.from_dict(schema).with_additive(Additive(2, 1.0, PAIRS, 1))
        rows = [encoded.encode(one)[0].tolist() for one in (FAR, OTHER)]
        return of_plan(model.plan(4), rows[0], replacement=(rows[1], 1.0))

    why = CLOSER if relation is REPLACE_ONE else ""
    return Case("estimators", name, make, relation, "curves and an interaction", why)


def _features(X: NDArray[np.float64], columns: Mapping[str, Any] = COLUMNS) -> NDArray[Any]:
    schema = {"columns": columns, "provenance": "made up"}
    table = {"age": X[:, 0], "sex": np.where(X[:, 1] > 0.0, "m", "f")}
    return np.asarray(SplineEncoder(schema, interactions=PAIRS).fit_transform(table))


def _knots_of_rows(X: NDArray[np.float64]) -> NDArray[Any]:
    knots = np.unique(np.quantile(np.clip(X[:, 0], 0.1, 99.0), [0.25, 0.5, 0.75]))
    return _features(X, {**COLUMNS, "age": {**COLUMNS["age"], "knots": knots.tolist()}})


MAPS = [local_case("SplineEncoder", _features)]
CASES: list[Case] = [
    *(case("AdditiveClassifier", relation) for relation in RELATIONS),
    case("AdditiveRegressor"),
    *MAPS,
]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise"),
    local_case("SplineEncoder", _knots_of_rows, "knots at quantiles of the rows"),
]
