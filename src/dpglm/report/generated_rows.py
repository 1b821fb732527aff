"""Generated rows and targets with signal of typical strength, and scores of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem import Target

__all__ = ["METRIC", "GeneratedRows"]

METRIC: Mapping[Target, str] = MappingProxyType(
    {
        Target.BINARY: "Area under the ROC curve",
        Target.CLASS: "Accuracy",
        Target.REAL: "R squared",
        Target.COUNT: "Share of the deviance that is explained",
        Target.POSITIVE: "Share of the deviance that is explained",
        Target.PROPORTION: "Square of the correlation of ranks",
    }
)
"""What ``GeneratedRows.score`` returns."""

Floats = NDArray[np.float64]

_N_TEST = 4000
# Typical length of a row against the bound, and the share of its square common to all rows.
_LENGTH, _COMMON = 0.5, 0.5
# The score times these is the log odds of two classes, or what Gumbel noise is added to.
_SLOPE, _SLOPE_OF_CLASSES = 2.6, 5.0
# Standard deviation of numbers, in half ranges of the target.
_SPREAD = 0.4
# Mean of counts and amounts, in units of the largest, and standard deviation of their logarithms.
_MEAN_COUNT, _SPREAD_OF_COUNTS = 0.2, 0.8


@final
@dataclass(frozen=True, eq=False)
class GeneratedRows:
    """A law of rows and targets, with test rows from it.

    Rows are ``mean + directions z`` with z standard normal, of shape (n_features,); scores, of unit
    variance, are ``z @ coefficients``, of shape (n_outputs,).
    """

    data: DataSpec
    target: Target
    mean: Floats
    directions: Floats
    coefficients: Floats
    X_test: Floats
    y_test: NDArray[Any]

    @classmethod
    def draw(cls, data: DataSpec, target: Target, rng: np.random.Generator) -> Self:
        """Draw a law, and rows to measure on."""
        d = data.n_features
        length = _LENGTH * data.row_norm
        variances = 1.0 / np.arange(1.0, d + 1.0)
        std = length * np.sqrt((1.0 - _COMMON) * variances / variances.sum())
        mean = rng.normal(size=d)
        mean *= length * math.sqrt(_COMMON) / np.linalg.norm(mean)
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        coefficients = std[:, np.newaxis] * rng.normal(size=(d, data.n_outputs))
        coefficients /= np.linalg.norm(coefficients, axis=0)
        nothing = np.zeros((0, d)), np.zeros(0)
        law = cls(data, target, mean, std[:, np.newaxis] * turn, coefficients, *nothing)
        return cls(data, target, mean, law.directions, coefficients, *law.sample(_N_TEST, rng))

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Floats, NDArray[Any]]:
        """Draw rows, in the type of the shape, and their targets."""
        data = self.data
        normal = rng.normal(size=(n_rows, data.n_features))
        targets = _TARGETS[self.target](normal @ self.coefficients, data, rng)
        X = normal @ self.directions
        X += self.mean
        np.clip(X, -data.entry_bound, data.entry_bound, out=X)
        return X.astype(data.dtype, copy=False), targets

    def score(self, w: Floats) -> float:
        """Measure coefficients (intercept last, in units of its column) on the test rows."""
        w = w.reshape(self.data.n_columns, -1)
        z = self.X_test @ w[: self.data.n_features]
        if self.data.intercept:
            z = z + self.data.intercept * w[-1]
        return _SCORES[self.target](z, self.y_test)

    @property
    def constant_score(self) -> float:
        """Score of the best constant answer."""
        if self.target is Target.CLASS:
            return float(np.bincount(self.y_test).max() / len(self.y_test))
        return 0.5 if self.target is Target.BINARY else 0.0


def _binary(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    return np.where(rng.logistic(size=len(z)) < _SLOPE * z[:, 0], 1, -1)


def _classes(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    winners: NDArray[np.intp] = (_SLOPE_OF_CLASSES * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return winners


def _numbers(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(data, -1.0, 1.0)
    noisy = (z[:, 0] + rng.normal(size=len(z))) / math.sqrt(2.0)
    return np.clip(0.5 * (low + high + (high - low) * _SPREAD * noisy), low, high)


def _counts(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(data, 0.0, 1.0)
    noisy = (z[:, 0] + rng.normal(size=len(z))) / math.sqrt(2.0)
    logs = _SPREAD_OF_COUNTS * noisy - 0.5 * _SPREAD_OF_COUNTS**2
    return np.clip(_MEAN_COUNT * high * np.exp(logs), low, high)


def _proportions(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(data, 0.0, 1.0)
    noisy = (z[:, 0] + rng.normal(size=len(z))) / math.sqrt(2.0)
    return np.clip(1.0 / (1.0 + np.exp(-_SLOPE * noisy)), low, high)


def _range(data: DataSpec, low: float, high: float) -> tuple[float, float]:
    """Return the declared range of the target, or a default."""
    is_bounded = math.isfinite(data.target_low) and math.isfinite(data.target_high)
    return (data.target_low, data.target_high) if is_bounded else (low, high)


def _area(z: Floats, y: NDArray[Any]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, z[:, 0]))


def _accuracy(z: Floats, y: NDArray[Any]) -> float:
    return float(np.mean(z.argmax(axis=1) == y))


def _r_squared(z: Floats, y: NDArray[Any]) -> float:
    return float(1.0 - np.mean((y - z[:, 0]) ** 2) / np.var(y))


def _deviance(z: Floats, y: NDArray[Any]) -> float:
    from sklearn.metrics import d2_tweedie_score

    # Beyond these a prediction is as wrong as can be.
    return float(d2_tweedie_score(y, np.exp(np.clip(z[:, 0], -30.0, 30.0)), power=1))


def _of_ranks(z: Floats, y: NDArray[Any]) -> float:
    """Score a model of proportions, whatever its link is."""
    from scipy.stats import spearmanr

    if np.ptp(z) == 0.0:
        return 0.0
    correlation = float(spearmanr(z[:, 0], y).statistic)
    return math.copysign(correlation**2, correlation)


_TARGETS: Mapping[Target, Callable[[Floats, DataSpec, np.random.Generator], NDArray[Any]]] = {
    Target.BINARY: _binary,
    Target.CLASS: _classes,
    Target.REAL: _numbers,
    Target.COUNT: _counts,
    Target.POSITIVE: _counts,
    Target.PROPORTION: _proportions,
}
_SCORES: Mapping[Target, Callable[[Floats, NDArray[Any]], float]] = {
    Target.BINARY: _area,
    Target.CLASS: _accuracy,
    Target.REAL: _r_squared,
    Target.COUNT: _deviance,
    Target.POSITIVE: _deviance,
    Target.PROPORTION: _of_ranks,
}
