"""Private choices among candidates, as values: each says which event pays for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.privacy.events import BoundedRange, Event, Pure
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.releases import Mechanism, Release
from dpglm.privacy.selection.choices import (
    exponential_mechanism,
    generalized_exponential_mechanism,
    permute_and_flip,
)
from dpglm.privacy.selection.rank_choices import exponential_mechanism_in_runs, first_above

__all__ = [
    "AboveThreshold",
    "BoundedScores",
    "ExponentialMechanism",
    "ExponentialMechanismOverRuns",
    "GeneralizedExponentialMechanism",
    "PermuteAndFlip",
    "Runs",
]

_Scores = NDArray[np.float64]


@final
@dataclass(frozen=True)
class PermuteAndFlip(Mechanism[_Scores, int]):
    """Choice of a candidate with a small score by permute-and-flip.

    Parameters
    ----------
    epsilon : float
        What the choice costs.

    Notes
    -----
    Privacy: ``Pure(epsilon)``. Scores are not released, nor is that of the choice. Half of the
    bound on a score's move will do where all scores move to the same side
    (``dpglm.privacy.selection.choices``).
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, above=0.0)

    @property
    def event(self) -> Event:
        return Pure(self.epsilon)

    @property
    def multiplier(self) -> float:
        return 1.0 / self.epsilon

    @property
    def in_words(self) -> str:
        return f"permute-and-flip, epsilon {self.epsilon:.4g}"

    def draw(self, release: Release[_Scores, int], value: _Scores, source: NoiseSource) -> int:
        return permute_and_flip(value, release.sensitivity, self.epsilon, source)


@final
@dataclass(frozen=True)
class ExponentialMechanism(Mechanism[_Scores, int]):
    """Choice of a candidate with a small score by the exponential mechanism.

    Parameters
    ----------
    epsilon : float
        What the choice costs.

    Notes
    -----
    Privacy: ``BoundedRange(epsilon)``, which composes better than ``Pure(epsilon)``.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, above=0.0)

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @property
    def multiplier(self) -> float:
        return 2.0 / self.epsilon

    @property
    def in_words(self) -> str:
        return f"exponential mechanism, epsilon {self.epsilon:.4g}"

    def draw(self, release: Release[_Scores, int], value: _Scores, source: NoiseSource) -> int:
        return exponential_mechanism(value, release.sensitivity, self.epsilon, source)


@final
@dataclass(frozen=True, eq=False, repr=False)
class BoundedScores:
    """Scores of candidates, each with a bound of its own. Private.

    Parameters
    ----------
    scores : ndarray of float64, shape (candidates,)
        Finite, lower is better.
    contribution_bounds : ndarray of float64, shape (candidates,)
        For each score a bound on how far erasing one row moves it, rounding included; 0 for at
        most one of them. Public.
    """

    scores: _Scores
    contribution_bounds: _Scores


@final
@dataclass(frozen=True)
class GeneralizedExponentialMechanism(Mechanism[BoundedScores, int]):
    """Choice of a candidate with a small score where each score has its own sensitivity.

    Parameters
    ----------
    epsilon : float
        What the choice costs.
    failure : float
        Probability with which the choice may miss its accuracy, in (0, 1).

    Notes
    -----
    Privacy: ``BoundedRange(epsilon)``.

    References
    ----------
    Raskhodnikova and Smith, FOCS 2016, section 4, as corrected in docs/errata.md.
    """

    epsilon: float
    failure: float

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, above=0.0)
        check_real("failure", self.failure, above=0.0, below=1.0)

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @property
    def multiplier(self) -> float:
        return 2.0 / self.epsilon

    @property
    def in_words(self) -> str:
        return f"generalised exponential mechanism, epsilon {self.epsilon:.4g}"

    def draw(
        self, release: Release[BoundedScores, int], value: BoundedScores, source: NoiseSource
    ) -> int:
        sensitivities = [
            release.adjacency.sum_sensitivity(bound) for bound in value.contribution_bounds
        ]
        return generalized_exponential_mechanism(
            value.scores, sensitivities, self.epsilon, self.failure, source
        )


@final
@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """Very many candidates, in runs of equal scores. Private.

    Parameters
    ----------
    scores : ndarray of float64, shape (runs,)
        Finite, lower is better.
    lengths : ndarray of int64, shape (runs,)
        How many candidates are in each run; only their sum is public.
    """

    scores: _Scores
    lengths: NDArray[np.int64]


@final
@dataclass(frozen=True)
class ExponentialMechanismOverRuns(Mechanism[Runs, int]):
    """The exponential mechanism on very many candidates, in runs of equal scores.

    Parameters
    ----------
    epsilon : float
        What the choice costs.

    Notes
    -----
    Privacy: ``BoundedRange(epsilon)``.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, above=0.0)

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @property
    def multiplier(self) -> float:
        return 2.0 / self.epsilon

    @property
    def in_words(self) -> str:
        return f"exponential mechanism, epsilon {self.epsilon:.4g}"

    def draw(self, release: Release[Runs, int], value: Runs, source: NoiseSource) -> int:
        return exponential_mechanism_in_runs(
            value.scores, value.lengths, release.sensitivity, self.epsilon, source
        )


@final
@dataclass(frozen=True)
class AboveThreshold(Mechanism[NDArray[np.int64], int]):
    """About which of growing counts of rows is the first to reach a public threshold.

    Parameters
    ----------
    epsilon : float
        What the choice costs.
    threshold : int
        Public.

    Notes
    -----
    Privacy: ``Pure(epsilon)``. A replaced row is one row less and then one row more. The last
    candidate is chosen where no count seems to reach the threshold.
    """

    epsilon: float
    threshold: int

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, above=0.0)

    @property
    def event(self) -> Event:
        return Pure(self.epsilon)

    @property
    def multiplier(self) -> float:
        return 1.0 / self.epsilon

    @property
    def in_words(self) -> str:
        return f"above-threshold, epsilon {self.epsilon:.4g}"

    def draw(
        self,
        release: Release[NDArray[np.int64], int],
        value: NDArray[np.int64],
        source: NoiseSource,
    ) -> int:
        each = self.epsilon / release.sensitivity
        return first_above(value, self.threshold, each, source)
