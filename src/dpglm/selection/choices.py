"""Private choice among models on held-out rows, by a bounded loss or error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array
from dpglm.data.rows import DataSpec
from dpglm.oracle.choices import (
    GeneralizedRelease,
    choose_least_generalized,
    choose_least_loss,
    generalized_choice_release,
    least_loss_release,
)
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency, PrivacyBudget, Pure, calibrate
from dpglm.privacy.releases import AnyRelease, ScoreRelease
from dpglm.problem import Link, Loss, Target, WithOffset

_OF_LOSS_AT_ZERO = 4.0


def largest_at_zero(loss: Loss, data: DataSpec) -> float:
    """Return the largest value of a nonnegative loss at prediction zero.

    Targets that are numbers need public bounds: the larger of the losses at both ends, or 1 if
    that is 0.

    >>> from dpglm.problem import Squared
    >>> largest_at_zero(Squared(), DataSpec(100, 3, target_low=-2.0, target_high=1.0))
    2.0
    """
    if not loss.nonnegative:
        raise ValueError(f"loss must be nonnegative for a comparison of models, got {loss!r}")
    if loss.target is Target.CLASS:
        n = data.n_outputs
        return float(loss.value(np.zeros((n, n)), np.arange(n)).max())
    ends = data.target_range(loss.target.bounds)
    if not all(map(math.isfinite, ends)):
        raise ValueError(f"targets must have public bounds to compare models, got {ends}")
    return float(loss.value(np.zeros(2), np.array(ends)).max()) or 1.0


def default_loss_bound(loss: Loss, data: DataSpec) -> float:
    """Return four times the largest loss at prediction zero.

    A useful model has a mean loss below that at zero, so by Markov's inequality at most a quarter
    of its rows reach this bound.
    """
    return _OF_LOSS_AT_ZERO * largest_at_zero(loss, data)


def largest_within(loss: Loss, data: DataSpec, norm_bound: float) -> float:
    """Bound the loss of any row for coefficients of L2 norm at most ``norm_bound``.

    The loss at zero plus the largest prediction times the largest slope.

    >>> from dpglm.problem import Hinge
    >>> largest_within(Hinge(), DataSpec(100, 3, row_norm=2.0), 1.5)
    4.0
    """
    reach = norm_bound * data.augmented_row_norm
    steepest = loss.slope_bound_on(reach, *data.target_range(loss.target.bounds))
    return largest_at_zero(loss, data) + reach * steepest


@final
@dataclass(frozen=True)
class Misclassification:
    """1 for a misclassified row, else 0.

    >>> Misclassification().value(np.array([0.5, -2.0, 0.0]), np.array([1, 1, -1])).tolist()
    [0.0, 1.0, 0.0]
    """

    bound = 1.0

    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the error of each row for linear predictions of shape (n,) or (n, K)."""
        wrong = (z > 0.0) != (y > 0.0) if z.ndim == 1 else z.argmax(axis=1) != y
        return np.asarray(wrong, dtype=np.float64)


@final
@dataclass(frozen=True)
class AbsoluteError:
    """Absolute error of predictions, clipped to the public range of the target.

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
        """Largest value."""
        # With a single possible target the error is 0, and any bound holds.
        return self.high - self.low or 1.0

    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the error of each row for linear predictions of shape (n,)."""
        means = np.clip(self.link.inverse(z), self.low, self.high)
        return np.asarray(np.abs(means - y))


PredictionScore: TypeAlias = Misclassification | AbsoluteError
"""A bounded error of predictions, independent of the training loss."""


def score_for(loss: Loss, data: DataSpec) -> PredictionScore:
    """Return the score of a loss: misclassification for classes, absolute error for numbers."""
    if not loss.target.is_number:
        return Misclassification()
    if isinstance(loss, WithOffset):
        raise ValueError("loss must not have an offset where models are compared by means")
    if loss.link is None:
        raise ValueError(f"loss must have a link, as models are compared by means, got {loss!r}")
    return AbsoluteError(loss.link, *data.target_range(loss.target.bounds))


MOST_EPSILON = 50.0
"""Largest epsilon of a choice; a larger one changes nothing."""


@final
@dataclass(frozen=True)
class LeastLoss:
    """The model with the least loss, clipped at ``loss_bound``, by permute-and-flip.

    A ``score`` takes the place of the training loss; its bound is ``loss_bound``.
    """

    loss_bound: float
    epsilon: float
    score: PredictionScore | None = None

    def release(self, data: DataSpec, adjacency: Adjacency) -> ScoreRelease:
        """Describe the release of the choice for rows with the public facts ``data``."""
        return least_loss_release(data, adjacency, self.loss_bound, self.epsilon)

    def choose(self, models: Sequence[Array], oracle: Oracle, declared: AnyRelease) -> Array:
        """Choose a model by a release about held-out rows."""
        return models[choose_least_loss(oracle, declared, models, self.loss_bound, self.score)]


@final
@dataclass(frozen=True)
class LeastLossByNorm:
    """The model with the least clipped loss, by the generalised exponential mechanism.

    Each model has its own loss bound. The zero model competes too; ``loss_at_zero`` bounds its
    loss. ``penalties`` are added to mean losses. ``failure`` is the probability, in (0, 1), that
    the choice misses its accuracy.
    """

    loss_bounds: tuple[float, ...]
    penalties: tuple[float, ...]
    loss_at_zero: float
    epsilon: float
    failure: float

    def release(self, data: DataSpec, adjacency: Adjacency) -> GeneralizedRelease:
        """Describe the release of the choice for rows with the public facts ``data``."""
        return generalized_choice_release(
            data, adjacency, self.loss_bounds, self.epsilon, self.failure
        )

    def choose(self, models: Sequence[Array], oracle: Oracle, declared: AnyRelease) -> Array:
        """Choose a model by a release about held-out rows."""
        chosen = choose_least_generalized(
            oracle, declared, models, self.loss_bounds, self.loss_at_zero, self.penalties
        )
        return [np.zeros_like(models[0]), *models][chosen]


Choice: TypeAlias = LeastLoss | LeastLossByNorm
"""A private choice among trained models, with every setting decided."""


def epsilon_of_choice(budget: PrivacyBudget, adjacency: Adjacency) -> float:
    """Return the largest epsilon, up to ``MOST_EPSILON``, of a choice with the whole budget.

    The budget must be an (epsilon, delta) budget.
    """
    if budget.as_approximate_dp().epsilon >= MOST_EPSILON:
        return MOST_EPSILON
    return 1.0 / calibrate(lambda multiplier: Pure(1.0 / multiplier), budget, adjacency)
