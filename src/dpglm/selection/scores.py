"""Scores by which models are compared: a bounded error of each prediction."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem import Link, Loss, WithOffset

__all__ = ["AbsoluteError", "Errors", "Score", "score_for"]


class Score(abc.ABC):
    """An error of predictions, whatever loss the models were trained with."""

    @property
    @abc.abstractmethod
    def bound(self) -> float:
        """Largest value."""

    @abc.abstractmethod
    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the loss of each row for linear predictions of shape (n,) or (n, K)."""


@final
@dataclass(frozen=True)
class Errors(Score):
    """Misclassification: 1 for a row whose label is wrong, else 0.

    Examples
    --------
    >>> Errors().value(np.array([0.5, -2.0, 0.0]), np.array([1, 1, -1])).tolist()
    [0.0, 1.0, 0.0]
    """

    bound = 1.0

    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        wrong = (z > 0.0) != (y > 0.0) if z.ndim == 1 else z.argmax(axis=1) != y
        return np.asarray(wrong, dtype=np.float64)


@final
@dataclass(frozen=True)
class AbsoluteError(Score):
    """Absolute error of predictions, clipped to the public range of the target.

    Examples
    --------
    >>> from dpglm.problem import IdentityLink
    >>> score = AbsoluteError(IdentityLink(), -1.0, 1.0)
    >>> score.bound, score.value(np.array([5.0, 0.5]), np.array([0.0, 1.0])).tolist()
    (2.0, [1.0, 0.5])
    """

    link: Link
    low: float
    high: float

    @property
    def bound(self) -> float:
        # Where there is one possible target only, any bound will do.
        return self.high - self.low or 1.0

    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        means = np.clip(self.link.inverse(z), self.low, self.high)
        return np.asarray(np.abs(means - y))


def score_for(loss: Loss, data: DataSpec) -> Score:
    """Return the score of a loss: misclassification for classes, absolute error for numbers."""
    if not loss.target.is_number:
        return Errors()
    if isinstance(loss, WithOffset):
        raise ValueError("loss must have no offset where models are compared by means")
    if loss.link is None:
        raise ValueError(f"loss must have a link, as models are compared by means, got {loss!r}")
    return AbsoluteError(loss.link, *data.target_range(loss.target.bounds))
