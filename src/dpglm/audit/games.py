"""Attacks as games: a run on one of two data sets, seen by the attacker."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm.audit.neighbours import Neighbours
from dpglm.audit.report import Observation
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import RandomlyRepeated
from dpglm.privacy.events.compositions import leaves
from dpglm.privacy.noise import NoiseSource, bernoulli
from dpglm.privacy.noise.additive import (
    GaussianLinearTerm,
    GaussianNoise,
    L2LinearTerm,
    L2Noise,
    LocalGaussianNoise,
    Messages,
    ProjectedGaussianNoise,
)
from dpglm.privacy.noise.source import Observer
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
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

# The law of one release on one data set, by its declared noise.

_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(64))
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_LEAST = 1e-300


class Law(abc.ABC):
    """The law of one release for an attacker who knows all rows."""

    @abc.abstractmethod
    def log_density(self, value: Any) -> float:
        """Logarithm of the density, or probability, of the released value."""


class DensityLaw(Law):
    """Noise with a density around the exact value."""

    mean: NDArray[np.float64]
    """The exact value."""

    @property
    @abc.abstractmethod
    def reach(self) -> float:
        """Distance from the mean with a tail probability below 1e-15."""

    @abc.abstractmethod
    def log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithm of the density at each row of ``values``."""

    @abc.abstractmethod
    def around(self, mean: NDArray[np.float64]) -> DensityLaw:
        """Return the law of the same noise around another value."""

    @final
    def log_density(self, value: Any) -> float:
        return float(self.log_densities(np.reshape(value, (1, -1)))[0])

    @final
    def distances(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """L2 distance of each row of ``values`` from the mean."""
        away = values - self.mean.ravel()
        lengths: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", away, away))
        return lengths


@final
@dataclass(frozen=True, eq=False)
class GaussianLaw(DensityLaw):
    """Independent Gaussian noise."""

    mean: NDArray[np.float64]
    std: float

    @property
    def reach(self) -> float:
        return 9.0 * self.std

    def around(self, mean: NDArray[np.float64]) -> GaussianLaw:
        return GaussianLaw(mean, self.std)

    def log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        constant = self.mean.size * math.log(self.std * math.sqrt(2.0 * math.pi))
        densities: NDArray[np.float64] = -0.5 * (self.distances(values) / self.std) ** 2 - constant
        return densities


@final
@dataclass(frozen=True, eq=False)
class L2Law(DensityLaw):
    """Noise with a density proportional to ``exp(-|b| / scale)``."""

    mean: NDArray[np.float64]
    scale: float

    @property
    def reach(self) -> float:
        # The length has the law Gamma(m, scale).
        return self.scale * (40.0 + 2.0 * self.mean.size)

    def around(self, mean: NDArray[np.float64]) -> L2Law:
        return L2Law(mean, self.scale)

    def log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        m = self.mean.size
        sphere = math.log(2.0) + 0.5 * m * math.log(math.pi) - math.lgamma(0.5 * m)
        constant = sphere + math.lgamma(m) + m * math.log(self.scale)
        densities: NDArray[np.float64] = -self.distances(values) / self.scale - constant
        return densities


@final
@dataclass(frozen=True, eq=False)
class ChoiceLaw(Law):
    """A choice: the probability of each candidate, or of each one in runs of these lengths."""

    probabilities: NDArray[np.float64]
    lengths: NDArray[np.int64] | None = None

    @property
    def masses(self) -> NDArray[np.float64]:
        """Probability of each candidate, or of each run of them."""
        return self.probabilities if self.lengths is None else self.probabilities * self.lengths

    def log_density(self, value: Any) -> float:
        position = int(value)
        if self.lengths is not None:
            position = int(np.searchsorted(np.cumsum(self.lengths), position, side="right"))
        return math.log(max(float(self.probabilities[position]), _LEAST))


@final
@dataclass(frozen=True)
class UnknownLaw(Law):
    """A release of unknown density, which adds nothing to a likelihood ratio."""

    def log_density(self, value: Any) -> float:
        return 0.0


def choice_law(
    scores: ArrayLike, sensitivity: float, epsilon: float, lengths: ArrayLike | None = None
) -> ChoiceLaw:
    """Return the law of the exponential mechanism; lower scores are better.

    Scores have the shape (candidates,); ``lengths`` says how many candidates share each.
    """
    p = _heads(scores, sensitivity, epsilon)
    if lengths is None:
        return ChoiceLaw(p / p.sum())
    counts = np.asarray(lengths, dtype=np.int64)
    return ChoiceLaw(p / float(p @ counts), counts)


def flip_law(scores: ArrayLike, sensitivity: float, epsilon: float) -> ChoiceLaw:
    """Return the law of permute-and-flip.

    Let every candidate come at a uniform time and be taken with its chance p if none was before.
    Then candidate r is taken with probability ``p[r] int_0^1 prod_{j != r} (1 - t p[j]) dt``; a
    polynomial, which 64 nodes integrate exactly up to degree 127.
    """
    p = _heads(scores, sensitivity, epsilon)
    stay = 1.0 - np.outer(_NODES, p)
    every = np.prod(stay, axis=1)
    found = np.array([_WEIGHTS @ (every / stay[:, r]) for r in range(p.size)]) * p
    return ChoiceLaw(found / found.sum())


def _heads(scores: ArrayLike, sensitivity: float, epsilon: float) -> NDArray[np.float64]:
    q = np.asarray(scores, dtype=np.float64)
    heads: NDArray[np.float64] = np.exp(-0.5 * epsilon / sensitivity * (q - q.min()))
    return heads


# Observed runs: all releases, and their laws on the same or other rows.

SECRET = (GaussianLinearTerm, L2LinearTerm)
"""Mechanisms with draws that enter a computation and are never released."""


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

    ``public`` includes the random words of the linear terms of perturbed objectives.
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
    """Repeats the releases of a recorded run, and keeps each release's law on the replay's rows.

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


# Log-likelihood of an outcome that is possible on one of the data sets only.
_CERTAIN = 1e6


def pays_for_all(plan: Plan) -> bool:
    """Whether a plan's claim covers every release, not only the returned model."""
    is_secret = any(isinstance(basic, RandomlyRepeated) for basic in leaves(plan.event))
    is_secret |= any(isinstance(one.mechanism, SECRET) for one in plan.method.releases)
    return plan.method.releases_iterates and not is_secret


@dataclass(frozen=True, eq=False)
class Game(abc.ABC):
    """A mechanism and two data sets; the attacker sees all releases, or the result only."""

    neighbours: Neighbours
    sees_all: bool
    plan: Plan | None

    @abc.abstractmethod
    def play(self, first: bool, noise: NoiseSource) -> Observation:
        """Run once on the first or the second data set."""


@final
@dataclass(frozen=True, eq=False)
class FunctionGame(Game):
    """A function from rows to an array, which draws its own noise; the array is seen."""

    function: Callable[[Any], ArrayLike]

    def play(self, first: bool, noise: NoiseSource) -> Observation:
        shown = self.function(self.neighbours.first if first else self.neighbours.second)
        return Observation(np.ravel(np.asarray(shown, dtype=np.float64)), None)


@final
@dataclass(frozen=True, eq=False)
class PlanGame(Game):
    """A plan; the attacker sees all its releases, or only the returned model.

    An attacker who sees all releases and knows both data sets can compute their likelihood ratio. A
    run is recorded on one data set and replayed on the other: every release is set to the recorded
    value, so that all later questions are the same, and only its law is noted. With Poisson samples
    of rate q the law is the mixture over whether the row of interest was drawn, for other rows that
    contribute nothing.

    A model that a replay does not reproduce to the last bit was not made from releases alone; that
    settles which data set it was.
    """

    plan: Plan

    def play(self, first: bool, noise: NoiseSource) -> Observation:
        plan, sides = self.plan, (self.neighbours.first, self.neighbours.second)
        own, other = sides if first else sides[::-1]
        if not self.sees_all:
            return Observation(run(plan, own, noise).w.ravel(), None)
        recording = Recording(noise)
        w = run(plan, own, recording).w
        values = np.concatenate([*(one.value.ravel() for one in recording.releases), w.ravel()])
        laws = [release.law for release in recording.releases]
        if recording.is_sampled:
            laws = self.laws(recording, own)[0]
        elsewhere, w_elsewhere = self.laws(recording, other)
        if len(elsewhere) < len(laws) or not np.array_equal(w, w_elsewhere):
            return Observation(values, _CERTAIN if first else -_CERTAIN)
        pairs = zip(laws, elsewhere, strict=True) if first else zip(elsewhere, laws, strict=True)
        ratios = (
            _log_ratio(release, *pair, plan.adjacency)
            for release, pair in zip(recording.releases, pairs, strict=True)
        )
        return Observation(values, float(sum(ratios)))

    def laws(self, recording: Recording, rows: Any) -> tuple[list[Law], NDArray[np.float64]]:
        """Replay a run on other rows; return the laws of its releases and the model that follows.

        The list is empty where these rows cannot have released it.
        """
        replay = Replay(recording)
        try:
            return replay.laws, run(self.plan, rows, replay).w
        except (OutOfStepError, PlanMismatchError):
            return [], np.empty(0)


def _log_ratio(release: Released, first: Law, second: Law, adjacency: Adjacency) -> float:
    rate = release.sampling_rate
    if rate == 1.0 or not (isinstance(first, DensityLaw) and isinstance(second, DensityLaw)):
        return first.log_density(release.value) - second.log_density(release.value)
    without = left_out(first, second, adjacency).log_density(release.value)
    return _mixed(rate, first.log_density(release.value), without) - _mixed(
        rate, second.log_density(release.value), without
    )


def left_out(first: DensityLaw, second: DensityLaw, adjacency: Adjacency) -> DensityLaw:
    """Return the law of a release about a sample without the row of interest.

    The second data set lacks the row, or has the opposite row in its place; other rows contribute
    nothing.
    """
    if adjacency is not Adjacency.REPLACE_ONE:
        return second
    return second.around(0.5 * (first.mean + second.mean))


def _mixed(rate: float, drawn: float, left_out: float) -> float:
    return float(np.logaddexp(np.log(rate) + drawn, np.log1p(-rate) + left_out))
