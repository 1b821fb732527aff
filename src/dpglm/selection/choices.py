"""Private choice of one of several models on rows held out for it."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.choices.loss_choices import (
    GeneralizedRelease,
    choose_least_generalized,
    choose_least_loss,
    generalized_choice_release,
    least_loss_release,
)
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Pure
from dpglm.privacy.releases import AnyRelease, ScoreRelease

__all__ = ["MOST_EPSILON", "Choice", "LeastLoss", "LeastLossByNorm", "epsilon_of_choice"]

MOST_EPSILON = 50.0
"""Largest epsilon of a choice: odds of e^50 leave nothing to gain."""


class Choice(abc.ABC):
    """A private choice among trained models, with every setting decided."""

    @abc.abstractmethod
    def release(self, data: DataSpec, adjacency: Adjacency) -> AnyRelease:
        """Describe what the choice releases about rows with the public facts ``data``."""

    @abc.abstractmethod
    def choose(
        self, models: Sequence[NDArray[np.float64]], oracle: Oracle, declared: AnyRelease
    ) -> NDArray[np.float64]:
        """Choose a model by a release about rows that none of them was trained on."""


@final
@dataclass(frozen=True)
class LeastLoss(Choice):
    """The model with the least loss, clipped at ``loss_bound``, by permute-and-flip."""

    loss_bound: float
    epsilon: float

    def release(self, data: DataSpec, adjacency: Adjacency) -> ScoreRelease:
        return least_loss_release(data, adjacency, self.loss_bound, self.epsilon)

    def choose(
        self, models: Sequence[NDArray[np.float64]], oracle: Oracle, declared: AnyRelease
    ) -> NDArray[np.float64]:
        return models[choose_least_loss(oracle, declared, models, self.loss_bound)]


@final
@dataclass(frozen=True)
class LeastLossByNorm(Choice):
    """The model with the least clipped loss, or zero, by the generalised exponential mechanism.

    Each model has a loss bound of its own; ``loss_at_zero`` bounds the loss of the zero model,
    which competes as well. ``penalties`` are added to the models' mean losses. ``failure``:
    probability with which the choice may miss its accuracy, in (0, 1).
    """

    loss_bounds: tuple[float, ...]
    penalties: tuple[float, ...]
    loss_at_zero: float
    epsilon: float
    failure: float

    def release(self, data: DataSpec, adjacency: Adjacency) -> GeneralizedRelease:
        return generalized_choice_release(
            data, adjacency, self.loss_bounds, self.epsilon, self.failure
        )

    def choose(
        self, models: Sequence[NDArray[np.float64]], oracle: Oracle, declared: AnyRelease
    ) -> NDArray[np.float64]:
        chosen = choose_least_generalized(
            oracle, declared, models, self.loss_bounds, self.loss_at_zero, self.penalties
        )
        return [np.zeros_like(models[0]), *models][chosen]


def epsilon_of_choice(budget: PrivacyBudget, adjacency: Adjacency) -> float:
    """Return the largest epsilon of a choice that is the only release about some rows.

    At most ``MOST_EPSILON``; a release of pure differential privacy with it is within the budget,
    which must be given as (epsilon, delta).
    """
    if budget.as_approximate_dp().epsilon >= MOST_EPSILON:
        return MOST_EPSILON
    return 1.0 / calibrate(lambda multiplier: Pure(1.0 / multiplier), budget, adjacency)
