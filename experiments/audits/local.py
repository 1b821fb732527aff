"""Maps of rows that release nothing: each row of the result must depend on its own row alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import RBFSampler

from dpglm.audit import Neighbours
from dpglm.preprocessing import RowMap, SchemaEncoder
from examples.oriented_gradients import OrientedGradients
from experiments.audits.case import HUGE, Case, Setup

__all__ = ["BUGS", "CASES"]

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 17, "high": 90},
        "work": {"type": "categorical", "categories": ["private", "state"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
    "provenance": "made up",
}
Transform = Callable[[NDArray[np.float64]], NDArray[Any]]


FORMULA = "~ work * bs(age, df=5) + np.log(age) + I(age > 40)"


def _encoded(X: NDArray[np.float64], formula: str | None = None) -> NDArray[Any]:
    works = np.where(X[:, 1] > 0.0, "private", "state")
    table = {"age": X[:, 0], "work": works}
    return np.asarray(SchemaEncoder(SCHEMA, formula=formula).fit(table).transform(table))


MAPS: dict[str, Transform] = {
    "OrientedGradients": lambda X: OrientedGradients((4, 4), cells=(2,)).fit_transform(X),
    "RBFSampler": lambda X: RBFSampler(n_components=16, random_state=0).fit_transform(X),
    "RowMap": lambda X: RowMap(np.ones(16), np.eye(16, 3)).transform(X, row_by_row=True),
    "SchemaEncoder": _encoded,
    "from_formula": lambda X: _encoded(X, FORMULA),
}


def _tables() -> tuple[Neighbours, ...]:
    """Make tables that differ in one row, wherever it stands."""
    rng = np.random.default_rng(0)
    pairs = []
    for position, row in itertools.product(range(5), (HUGE, -HUGE, 0.0, 1e-30)):
        one = rng.uniform(-1.0, 1.0, size=(5, 16))
        other = one.copy()
        other[position] = row
        pairs.append(Neighbours("one row", one, other))
    return tuple(pairs)


def local_case(name: str, transform: Transform, bug: str = "") -> Case:
    """Compare all rows but one."""
    return Case(
        "fixed maps",
        name,
        lambda: Setup(transform, _tables(), attack="comparison"),
        bug=bug,
    )


def _centred(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return X - X.mean(axis=0)


CASES = [local_case(name, transform) for name, transform in MAPS.items()]
BUGS = [local_case("StandardScaler", _centred, "the mean of all rows taken from each")]
