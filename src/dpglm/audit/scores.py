"""Statistics of what an attacker sees, high for the first data set."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LikelihoodRatio", "Linear", "Observation", "Quadratic", "Score", "candidate_scores"]

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]

_RIDGE = 1e-9
# Fewer runs than this for each value do not determine a covariance.
_RUNS_PER_VALUE = 4


@final
@dataclass(frozen=True, eq=False)
class Observation:
    """What one run shows: values, and their log-likelihood ratio by the declared noise."""

    values: NDArray[np.float64]
    log_ratio: float | None


class Score(abc.ABC):
    """A statistic, fixed before the runs that are counted."""

    name: str
    """In reports."""
    is_learned: ClassVar[bool] = True
    """Whether held-out runs taught it."""

    @abc.abstractmethod
    def __call__(self, observations: Sequence[Observation]) -> NDArray[np.float64]:
        """Score each observation; shape (runs,)."""


@final
@dataclass(frozen=True)
class LikelihoodRatio(Score):
    """The log-likelihood ratio by the declared noise: no statistic has more power."""

    name: str = "likelihood ratio of all releases"
    is_learned: ClassVar[bool] = False

    def __call__(self, observations: Sequence[Observation]) -> NDArray[np.float64]:
        return np.array([one.log_ratio for one in observations], dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class Linear(Score):
    """A direction that separates the runs on two data sets."""

    direction: NDArray[np.float64]
    name: str = "learned direction"

    def __call__(self, observations: Sequence[Observation]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = _values(observations) @ self.direction
        return scores


@final
@dataclass(frozen=True, eq=False)
class Quadratic(Score):
    """The log-likelihood ratio of two normal laws of scaled values: sees variances too."""

    scale: NDArray[np.float64]
    means: Pair
    precisions: Pair
    name: str = "learned normal laws"

    def __call__(self, observations: Sequence[Observation]) -> NDArray[np.float64]:
        values = _values(observations) / self.scale
        far = [
            np.einsum("ij,jk,ik->i", values - mean, precision, values - mean)
            for mean, precision in zip(self.means, self.precisions, strict=True)
        ]
        scores: NDArray[np.float64] = far[1] - far[0]
        return scores


def candidate_scores(
    first: Sequence[Observation], second: Sequence[Observation]
) -> tuple[Score, ...]:
    """Learn statistics from held-out runs; the linear one is Fisher's discriminant."""
    scores: list[Score] = [] if first[0].log_ratio is None else [LikelihoodRatio()]
    a, b = _values(first), _values(second)
    together = np.concatenate([a, b])
    scale = together.std(axis=0)
    scale[scale == 0.0] = 1.0
    a, b = a / scale, b / scale
    means: Pair = (a.mean(axis=0), b.mean(axis=0))
    within = (a - means[0]).T @ (a - means[0]) + (b - means[1]).T @ (b - means[1])
    within /= len(together)
    ridge = _RIDGE * np.eye(scale.size)
    is_determined = len(together) >= _RUNS_PER_VALUE * scale.size
    pooled = within + ridge if is_determined else np.diag(within.diagonal()) + ridge
    scores.append(Linear(np.linalg.solve(pooled, means[0] - means[1]) / scale))
    if is_determined:
        scores.append(Quadratic(scale, means, (_precision(a, ridge), _precision(b, ridge))))
    return tuple(scores)


def _values(observations: Sequence[Observation]) -> NDArray[np.float64]:
    return np.array([one.values for one in observations], dtype=np.float64)


def _precision(values: Floats, ridge: Floats) -> Floats:
    """Inverse covariance of rows of values."""
    centred = values - values.mean(axis=0)
    return np.asarray(np.linalg.inv(centred.T @ centred / len(values) + ridge), dtype=np.float64)
