"""Observed runs: all releases, and their laws on the same or other rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm.audit.laws import GaussianLaw, L2Law, Law, UnknownLaw, choice_law, flip_law
from dpglm.privacy.noise import NoiseSource, bernoulli
from dpglm.privacy.noise.additive import (
    GaussianNoise,
    L2Noise,
    LocalGaussianNoise,
    Messages,
    ProjectedGaussianNoise,
)
from dpglm.privacy.noise.linear_terms import GaussianLinearTerm, L2LinearTerm
from dpglm.privacy.observer import Observer
from dpglm.privacy.releases import AnyRelease, Mechanism
from dpglm.privacy.selection.choices import generalized_scores
from dpglm.privacy.selection.mechanisms import (
    BoundedScores,
    ExponentialMechanism,
    ExponentialMechanismOverRuns,
    GeneralizedExponentialMechanism,
    PermuteAndFlip,
    Runs,
)

__all__ = ["SECRET", "OutOfStepError", "Recording", "Released", "Replay"]

SECRET = (GaussianLinearTerm, L2LinearTerm)
"""Mechanisms whose draws enter a computation and are never shown."""


class OutOfStepError(Exception):
    """A replay asked for a release that the recorded run does not have."""


@final
@dataclass(frozen=True, eq=False)
class Released:
    """A release, and its law on the rows of the run (of a sample: as if it contained every row)."""

    value: NDArray[Any]
    law: Law
    sampling_rate: float


@final
class Recording(NoiseSource, Observer):
    """Draws from another source, and keeps releases and public random words.

    ``public`` includes the words from which linear terms of perturbed objectives were drawn.
    """

    name: ClassVar[str] = "recorded"
    is_private: ClassVar[bool] = False

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self.releases: list[Released] = []
        self.public: list[NDArray[np.uint64]] = []

    @property
    def observer(self) -> Observer:
        return self

    def begins(self, plan: Any, rows: Any) -> None:
        """Ignore which plan runs."""

    def words(self, count: int) -> NDArray[np.uint64]:
        self.public.append(self._source.words(count))
        return self.public[-1]

    def answer(self, declared: AnyRelease, value: Any) -> Any:
        if isinstance(declared.mechanism, SECRET):
            return declared.mechanism.draw(declared, value, self)
        law = _law(declared, value)
        answer = declared.mechanism.draw(declared, value, self._source)
        self.releases.append(Released(np.array(answer), law, declared.sampling_rate))
        return answer

    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        return bernoulli(self._source, n_rows, sampling_rate)

    @property
    def is_sampled(self) -> bool:
        """Whether a release was about a secret sample, so that its law here is not known."""
        return any(release.sampling_rate < 1.0 for release in self.releases)


@final
class Replay(NoiseSource, Observer):
    """Releases what a recorded run released, and keeps each release's law on the replay's rows.

    Each law is conditional on all releases before it; samples contain every row.
    """

    name: ClassVar[str] = "replayed"
    is_private: ClassVar[bool] = False

    def __init__(self, recording: Recording) -> None:
        self._public = iter(recording.public)
        self._releases = iter(recording.releases)
        self.laws: list[Law] = []

    @property
    def observer(self) -> Observer:
        return self

    def begins(self, plan: Any, rows: Any) -> None:
        """Ignore which plan runs."""

    def words(self, count: int) -> NDArray[np.uint64]:
        words = next(self._public, None)
        if words is None or words.size != count:
            raise OutOfStepError
        return words

    def answer(self, declared: AnyRelease, value: Any) -> Any:
        if isinstance(declared.mechanism, SECRET):
            return declared.mechanism.draw(declared, value, self)
        release = next(self._releases, None)
        if release is None:
            raise OutOfStepError
        self.laws.append(_law(declared, value))
        # Methods may change arrays that they are given.
        return release.value.copy() if release.value.ndim else release.value.item()

    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        return np.ones(n_rows, dtype=bool)


def _law(declared: AnyRelease, value: Any) -> Law:
    law = _LAWS.get(type(declared.mechanism))
    return UnknownLaw() if law is None else law(declared, value)


def _gaussian(declared: AnyRelease, value: Any) -> Law:
    return GaussianLaw(np.array(value, dtype=np.float64), declared.noise_scale)


def _local(declared: AnyRelease, value: Messages) -> Law:
    std = declared.noise_scale * math.sqrt(value.senders)
    return GaussianLaw(np.array(value.total, dtype=np.float64), std)


def _l2(declared: AnyRelease, value: Any) -> Law:
    return L2Law(np.array(value, dtype=np.float64), declared.noise_scale)


def _generalized(declared: Any, value: BoundedScores) -> Law:
    mechanism = declared.mechanism
    relation, diameter = declared.adjacency, declared.diameter
    bounds = [relation.sum_sensitivity(one, diameter) for one in value.contribution_bounds]
    scores = generalized_scores(value.scores, bounds, mechanism.epsilon, mechanism.failure)
    return choice_law(scores, 1.0, mechanism.epsilon)


def _in_runs(declared: Any, value: Runs) -> Law:
    epsilon = declared.mechanism.epsilon
    return choice_law(value.scores, declared.sensitivity, epsilon, value.lengths)


def _exponential(declared: Any, value: Any) -> Law:
    return choice_law(value, declared.sensitivity, declared.mechanism.epsilon)


def _permute_and_flip(declared: Any, value: Any) -> Law:
    return flip_law(value, declared.sensitivity, declared.mechanism.epsilon)


# The law of each mechanism; those of others are unknown.
_LAWS: Mapping[type[Mechanism[Any, Any]], Callable[[AnyRelease, Any], Law]] = MappingProxyType(
    {
        ExponentialMechanism: _exponential,
        ExponentialMechanismOverRuns: _in_runs,
        GaussianNoise: _gaussian,
        GeneralizedExponentialMechanism: _generalized,
        L2Noise: _l2,
        LocalGaussianNoise: _local,
        PermuteAndFlip: _permute_and_flip,
        ProjectedGaussianNoise: _gaussian,
    }
)
