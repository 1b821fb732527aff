"""Accuracy and R squared of blocks of rows, computed where the rows are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prediction import RowPrediction
from dpglm.estimators.linear._targets import TargetNumbers, check_labels
from dpglm.tables.given import NO_WEIGHT, as_weights

__all__ = ["AccuracyTally", "SquaredErrorTally", "accuracy", "r_squared"]


@final
@dataclass(frozen=True, eq=False)
class AccuracyTally:
    """Total weight of correctly labelled rows, and of all rows, of a block."""

    predict: RowPrediction
    classes: NDArray[Any]

    def __call__(self, X: Any, y: NDArray[Any], weights: Any) -> tuple[float, float]:
        y = check_labels(self.classes, y)
        weights = np.ones(len(y)) if weights is None else as_weights(weights, len(y))
        return float(weights[self.predict(X) == y].sum()), float(weights.sum())


def accuracy(parts: Iterable[tuple[float, float]]) -> float:
    """Return the accuracy over all blocks."""
    right, total = np.sum(list(parts), axis=0)
    if total == 0.0:
        raise ValueError(NO_WEIGHT)
    return float(right / total)


@final
@dataclass(frozen=True, eq=False)
class SquaredErrorTally:
    """Weight, mean, sum of squares about the mean, and squared error of a block's targets."""

    predict: RowPrediction
    numbers: TargetNumbers

    def __call__(self, X: Any, y: NDArray[Any], weights: Any) -> tuple[float, ...]:
        y, offset = (y, 0.0) if y.ndim == 1 else (y[:, 0], y[:, 1])
        y = self.numbers(y)
        weights = np.ones(len(y)) if weights is None else as_weights(weights, len(y))
        total = float(weights.sum())
        mean = float(weights @ y) / total if total else 0.0
        errors = y - self.predict(X, offset)
        return total, mean, float(weights @ (y - mean) ** 2), float(weights @ errors**2)


def r_squared(parts: Iterable[tuple[float, ...]]) -> float:
    """Return R squared over all blocks; for constant targets 1 or 0, as scikit-learn."""
    totals, means, squares, errors = np.array(list(parts)).T
    if totals.sum() == 0.0:
        raise ValueError(NO_WEIGHT)
    mean = totals @ means / totals.sum()
    about = float(squares.sum() + totals @ (means - mean) ** 2)
    if about == 0.0:
        return float(errors.sum() == 0.0)
    return float(1.0 - errors.sum() / about)
