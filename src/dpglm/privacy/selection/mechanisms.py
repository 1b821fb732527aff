"""Private choices among candidates, with their privacy events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.privacy.events import BoundedRange, Event, Pure
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.releases import Mechanism, Release
from dpglm.privacy.selection.choices import (
    exponential_mechanism,
    exponential_mechanism_in_runs,
    first_above,
    generalized_exponential_mechanism,
    permute_and_flip,
)

_Scores = NDArray[np.float64]
V = TypeVar("V")


@dataclass(frozen=True)
class _Choice(Mechanism[V, int]):
    """A choice with parameter ``epsilon``; the scores, including the winner's, stay private.

    Privacy: ``BoundedRange(epsilon)``, which composes better, if ``has_bounded_range``, else
    ``Pure(epsilon)``.
    """

    algorithm: ClassVar[str]
    has_bounded_range: ClassVar[bool]

    epsilon: float

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon) if self.has_bounded_range else Pure(self.epsilon)

    @property
    def multiplier(self) -> float:
        return (2.0 if self.has_bounded_range else 1.0) / self.epsilon

    @property
    def in_words(self) -> str:
        return f"{self.algorithm}, epsilon {self.epsilon:.4g}"


@final
@dataclass(frozen=True)
class PermuteAndFlip(_Choice[_Scores]):
    """Choice of a candidate with a small score by permute-and-flip.

    Half of the bound on a score's move suffices where all scores move to the same side
    (``dpglm.privacy.selection.choices``).
    """

    algorithm = "permute-and-flip"
    has_bounded_range = False

    def draw(self, release: Release[_Scores, int], value: _Scores, source: NoiseSource) -> int:
        return permute_and_flip(value, release.sensitivity, self.epsilon, source)


@final
@dataclass(frozen=True)
class ExponentialMechanism(_Choice[_Scores]):
    """Choice of a candidate with a small score by the exponential mechanism."""

    algorithm = "exponential mechanism"
    has_bounded_range = True

    def draw(self, release: Release[_Scores, int], value: _Scores, source: NoiseSource) -> int:
        return exponential_mechanism(value, release.sensitivity, self.epsilon, source)


@final
@dataclass(frozen=True, eq=False, repr=False)
class BoundedScores:
    """Private scores of shape (candidates,), lower is better, each with its own public bound.

    A contribution bound limits the change of the score when one row is erased, rounding included;
    it is 0 for at most one of them. All scores have the same diameter.
    """

    scores: _Scores
    contribution_bounds: _Scores


@final
@dataclass(frozen=True)
class GeneralizedExponentialMechanism(_Choice[BoundedScores]):
    """Choice of a candidate with a small score where each score has its own sensitivity.

    ``failure`` is the probability, in (0, 1), with which the choice may miss its accuracy.

    References
    ----------
    Raskhodnikova and Smith, FOCS 2016, section 4; ``generalized_scores`` has the formula.
    """

    algorithm = "generalised exponential mechanism"
    has_bounded_range = True

    failure: float

    def __post_init__(self) -> None:
        check_real("failure", self.failure, above=0.0, below=1.0)

    def draw(
        self, release: Release[BoundedScores, int], value: BoundedScores, source: NoiseSource
    ) -> int:
        sensitivities = [
            release.adjacency.sum_sensitivity(bound, release.diameter)
            for bound in value.contribution_bounds
        ]
        return generalized_exponential_mechanism(
            value.scores, sensitivities, self.epsilon, self.failure, source
        )


@final
@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """Very many candidates in runs of equal scores, both of shape (runs,). Private.

    Only the sum of the integer lengths is public.
    """

    scores: _Scores
    lengths: NDArray[np.int64]


@final
@dataclass(frozen=True)
class ExponentialMechanismOverRuns(_Choice[Runs]):
    """The exponential mechanism on very many candidates, in runs of equal scores."""

    algorithm = "exponential mechanism"
    has_bounded_range = True

    def draw(self, release: Release[Runs, int], value: Runs, source: NoiseSource) -> int:
        return exponential_mechanism_in_runs(
            value.scores, value.lengths, release.sensitivity, self.epsilon, source
        )


@final
@dataclass(frozen=True)
class AboveThreshold(_Choice[NDArray[np.int64]]):
    """About which of growing counts of rows is the first to reach a public threshold.

    A replaced row is one row less and then one row more. The last candidate is chosen where no
    count seems to reach the threshold.
    """

    algorithm = "above-threshold"
    has_bounded_range = False

    threshold: int

    def draw(
        self,
        release: Release[NDArray[np.int64], int],
        value: NDArray[np.int64],
        source: NoiseSource,
    ) -> int:
        each = self.epsilon / release.sensitivity
        return first_above(value, self.threshold, each, source)
