"""Predictions and scores of blocks of rows, computed where the rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import as_host, like, namespace
from dpglm.data.prepare import ColumnScaling
from dpglm.estimators.linear._targets import check_labels
from dpglm.tables.given import NO_WEIGHT, as_floats, as_weights, check_not_missing

__all__ = [
    "AccuracyTally",
    "ClassLabels",
    "Output",
    "RowPrediction",
    "SquaredErrorTally",
    "accuracy",
    "r_squared",
    "scores",
]

Output: TypeAlias = Callable[[NDArray[np.float64]], NDArray[Any]]
"""A function of linear scores of shape (n,) or (n, n_classes), applied row by row."""


@final
@dataclass(frozen=True, eq=False)
class RowPrediction:
    """A linear model as a function of features, which can be sent to a worker.

    Parameters
    ----------
    coef : ndarray of shape (n_features,) or (n_outputs, n_features)
        Coefficients.
    intercept : float or ndarray of shape (n_outputs,)
        Intercepts.
    scaling : ColumnScaling or None
        Says what columns are clipped to.
    output : callable
        What is made of linear scores; one for each row if there is one output.
    """

    coef: NDArray[np.float64]
    intercept: Any
    scaling: ColumnScaling | None
    output: Output

    def __call__(self, X: Any) -> NDArray[Any]:
        """Predict; scores are computed on the device of X and copied to the host."""
        xp = namespace(X)
        if xp is not np:
            X = xp.asarray(X, dtype=xp.float64)
            X = X if self.scaling is None else self.scaling.clip(X)
            z = as_host(X @ like(X, self.coef.T))
        else:
            X = X if self.scaling is None else self.scaling.clip_matrix(X)
            z = np.asarray(X @ self.coef.T)
        z = z + self.intercept
        return self.output(z.ravel() if z.ndim == 2 and z.shape[1] == 1 else z)


def scores(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return linear scores as they are."""
    return z


@final
@dataclass(frozen=True, eq=False)
class ClassLabels:
    """The label with the highest score.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Labels, sorted.
    """

    classes: NDArray[Any]

    def __call__(self, z: NDArray[np.float64]) -> NDArray[Any]:
        """Return labels; of two classes the second where the score is positive."""
        indices = (z > 0.0).astype(np.intp) if z.ndim == 1 else z.argmax(axis=1)
        labels: NDArray[Any] = self.classes[indices]
        return labels


@final
@dataclass(frozen=True, eq=False)
class AccuracyTally:
    """Total weight of correctly labelled rows, and of all rows, of a part.

    Parameters
    ----------
    predict : RowPrediction
        Predicts labels.
    classes : ndarray of shape (n_classes,)
        All that it may predict.
    """

    predict: RowPrediction
    classes: NDArray[Any]

    def __call__(self, X: Any, y: NDArray[Any], weights: Any) -> tuple[float, float]:
        """Compare labels."""
        y = check_labels(self.classes, y)
        weights = np.ones(len(y)) if weights is None else as_weights(weights, len(y))
        return float(weights[self.predict(X) == y].sum()), float(weights.sum())


def accuracy(parts: Iterable[tuple[float, float]]) -> float:
    """Return the accuracy over all parts."""
    right, total = np.sum(list(parts), axis=0)
    if total == 0.0:
        raise ValueError(NO_WEIGHT)
    return float(right / total)


@final
@dataclass(frozen=True, eq=False)
class SquaredErrorTally:
    """Weight, mean, sum of squares about the mean, and squared error of a part's targets.

    Parameters
    ----------
    predict : RowPrediction
        Predicts targets.
    """

    predict: RowPrediction

    def __call__(self, X: Any, y: NDArray[Any], weights: Any) -> tuple[float, ...]:
        """Add up."""
        y = check_not_missing(as_floats("y", y))
        weights = np.ones(len(y)) if weights is None else as_weights(weights, len(y))
        total = float(weights.sum())
        mean = float(weights @ y) / total if total else 0.0
        errors = y - self.predict(X)
        return total, mean, float(weights @ (y - mean) ** 2), float(weights @ errors**2)


def r_squared(parts: Iterable[tuple[float, ...]]) -> float:
    """Return R squared of the rows of all parts; for constant targets 1 or 0, as scikit-learn."""
    totals, means, squares, errors = np.array(list(parts)).T
    if totals.sum() == 0.0:
        raise ValueError(NO_WEIGHT)
    mean = totals @ means / totals.sum()
    about = float(squares.sum() + totals @ (means - mean) ** 2)
    if about == 0.0:
        return float(errors.sum() == 0.0)
    return float(1.0 - errors.sum() / about)
