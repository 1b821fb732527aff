"""Attacks as games: a run on one of two data sets, seen by the attacker."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import Array
from dpglm.audit.report import Observation
from dpglm.data.rows import Rows
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import RandomlyRepeated
from dpglm.privacy.events.compositions import leaves
from dpglm.privacy.noise import NoiseSource, additive, bernoulli
from dpglm.privacy.noise.source import Observer
from dpglm.privacy.releases import AnyRelease, Mechanism
from dpglm.privacy.selection import choices
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

if TYPE_CHECKING:
    from dpglm.audit.neighbours import Neighbours

# The law of one release on one data set, by its declared noise.

_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(64))
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_LEAST = 1e-300


@final
@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """Noise around the exact value, for an attacker who knows all rows.

    Independent Gaussian noise, or with a density proportional to ``exp(-|b| / scale)``.
    """

    mean: Array
    scale: float
    is_gaussian: bool = True

    @property
    def reach(self) -> float:
        """Distance from the mean with a tail probability below 1e-15."""
        # The length of L2 noise has the law Gamma(m, scale).
        return self.scale * (9.0 if self.is_gaussian else 40.0 + 2.0 * self.mean.size)

    def log_densities(self, values: Array) -> Array:
        """Logarithm of the density at each row of ``values``."""
        away, m = values - self.mean.ravel(), self.mean.size
        far: Array = np.sqrt(np.einsum("ij,ij->i", away, away)) / self.scale
        if self.is_gaussian:
            return -0.5 * far**2 - m * math.log(self.scale * math.sqrt(2.0 * math.pi))
        sphere = math.log(2.0) + 0.5 * m * math.log(math.pi) - math.lgamma(0.5 * m)
        return -far - sphere - math.lgamma(m) - m * math.log(self.scale)

    def log_density(self, value: Any) -> float:
        """Logarithm of the density of the released value."""
        return float(self.log_densities(np.reshape(value, (1, -1)))[0])


@final
@dataclass(frozen=True, eq=False)
class ChoiceLaw:
    """A choice: the probability of each candidate, or of each one in runs of these lengths."""

    probabilities: Array
    lengths: NDArray[np.int64] | None = None

    @property
    def masses(self) -> Array:
        """Probability of each candidate, or of each run of them."""
        return self.probabilities if self.lengths is None else self.probabilities * self.lengths

    def log_density(self, value: Any) -> float:
        """Logarithm of the probability of the choice."""
        position = int(value)
        if self.lengths is not None:
            position = int(np.searchsorted(np.cumsum(self.lengths), position, side="right"))
        return math.log(max(float(self.probabilities[position]), _LEAST))


Law: TypeAlias = NoiseLaw | ChoiceLaw | None
"""The law of one release; None if it is unknown, and adds nothing to a likelihood ratio."""


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


def _heads(scores: ArrayLike, sensitivity: float, epsilon: float) -> Array:
    q = np.asarray(scores, dtype=np.float64)
    heads: Array = np.exp(-0.5 * epsilon / sensitivity * (q - q.min()))
    return heads


# Observed runs: all releases, and their laws on the same or other rows.

SECRET = (additive.GaussianLinearTerm, additive.L2LinearTerm)
"""Mechanisms with draws that enter a computation and are never released."""


class OutOfStepError(Exception):
    """A replayed run goes on where the recorded run ends."""


@final
@dataclass(frozen=True, eq=False)
class Released:
    """A release, and its law on the rows of the run (of a sample: as if it contained every row)."""

    value: NDArray[Any]
    law: Law
    sampling_rate: float


@final
class Recording(Observer):
    """Draws from another source, and keeps releases and public random words.

    ``public`` includes the random words of the linear terms of perturbed objectives.
    """

    name = "recorded"

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self.releases: list[Released] = []
        self.public: list[NDArray[np.uint64]] = []

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

    def laws(self, plan: Plan, rows: Any) -> tuple[list[Law], Array]:
        """Replay the run on other rows; return the laws of its releases and the model that follows.

        The list is empty where these rows cannot have released it.
        """
        replay = Replay(self)
        try:
            return replay.laws, run(plan, rows, replay).w
        except (OutOfStepError, PlanMismatchError):
            return [], np.empty(0)


@final
class Replay(Observer):
    """Repeats the releases of a recorded run, and keeps each release's law on the replay's rows.

    Each law is conditional on all releases before it; samples contain every row. Without a
    recording it ends the run when it begins, and keeps its plan and prepared rows.
    """

    name = "replayed"

    def __init__(self, recording: Recording | None = None) -> None:
        self._is_empty = recording is None
        self._public = iter([] if recording is None else recording.public)
        self._releases = iter([] if recording is None else recording.releases)
        self.laws: list[Law] = []

    def begins(self, plan: Plan, rows: Rows) -> None:
        self.plan, self.rows = plan, rows
        if self._is_empty:
            raise OutOfStepError

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
    return None if law is None else law(declared, value)


def _around(value: Any, scale: float, *, is_gaussian: bool = True) -> NoiseLaw:
    return NoiseLaw(np.array(value, dtype=np.float64), scale, is_gaussian)


def _generalized(declared: Any, value: choices.BoundedScores) -> ChoiceLaw:
    mechanism = declared.mechanism
    relation, diameter = declared.adjacency, declared.diameter
    scores, bounds = value
    sensitivities = [relation.sum_sensitivity(one, diameter) for one in bounds]
    scores = choices.generalized_scores(scores, sensitivities, mechanism.epsilon, mechanism.failure)
    return choice_law(scores, 1.0, mechanism.epsilon)


# The law of each mechanism for a release and its value; those of others are unknown.
_LAWS: Mapping[type[Mechanism[Any, Any]], Callable[[Any, Any], Law]] = MappingProxyType(
    {
        choices.ExponentialMechanism: lambda declared, scores: choice_law(
            scores, declared.sensitivity, declared.mechanism.epsilon
        ),
        choices.ExponentialMechanismOverRuns: lambda declared, runs: choice_law(
            runs[0], declared.sensitivity, declared.mechanism.epsilon, runs[1]
        ),
        additive.GaussianNoise: lambda declared, value: _around(value, declared.scale.std),
        choices.GeneralizedExponentialMechanism: _generalized,
        additive.L2Noise: lambda declared, value: _around(
            value, declared.scale.std, is_gaussian=False
        ),
        additive.LocalGaussianNoise: lambda declared, messages: _around(
            messages[0], declared.scale.std * math.sqrt(messages[1])
        ),
        choices.PermuteAndFlip: lambda declared, scores: flip_law(
            scores, declared.sensitivity, declared.mechanism.epsilon
        ),
        additive.ProjectedGaussianNoise: lambda declared, value: _around(value, declared.scale.std),
    }
)


# Log-likelihood of an outcome that is possible on one of the data sets only.
_CERTAIN = 1e6


def pays_for_all(plan: Plan) -> bool:
    """Whether a plan's claim covers every release, not only the returned model."""
    is_secret = any(isinstance(basic, RandomlyRepeated) for basic in leaves(plan.event))
    is_secret |= any(isinstance(one.mechanism, SECRET) for one in plan.method.releases)
    return plan.method.releases_iterates and not is_secret


def play(
    mechanism: Plan | Callable[[Any], ArrayLike],
    neighbours: Neighbours,
    noise: NoiseSource,
    *,
    first: bool,
    sees_all: bool,
) -> Observation:
    """Run once on the first or the second data set; return the observation of the attacker.

    The mechanism is a plan, or a function from rows to an array, which draws its own noise. The
    attacker sees all releases of a plan, or the result only.

    An attacker who sees all releases and knows both data sets can compute their likelihood ratio. A
    run is recorded on one data set and replayed on the other: every release is set to the recorded
    value, so that all later questions are the same, and only its law is noted. With Poisson samples
    of rate q the law is the mixture over whether the row of interest was drawn, for other rows that
    contribute nothing.

    A model that a replay does not reproduce to the last bit was not made from releases alone; that
    settles which data set it was.
    """
    sides = neighbours.first, neighbours.second
    own, other = sides if first else sides[::-1]
    if not isinstance(mechanism, Plan):
        return np.ravel(np.asarray(mechanism(own), dtype=np.float64)), None
    if not sees_all:
        return run(mechanism, own, noise).w.ravel(), None
    recording = Recording(noise)
    w = run(mechanism, own, recording).w
    values = np.concatenate([*(one.value.ravel() for one in recording.releases), w.ravel()])
    laws = [release.law for release in recording.releases]
    if any(release.sampling_rate < 1.0 for release in recording.releases):
        # About a secret sample, so that the law on these rows is another one.
        laws = recording.laws(mechanism, own)[0]
    elsewhere, w_elsewhere = recording.laws(mechanism, other)
    if len(elsewhere) < len(laws) or not np.array_equal(w, w_elsewhere):
        return values, _CERTAIN if first else -_CERTAIN
    pairs = zip(laws, elsewhere, strict=True) if first else zip(elsewhere, laws, strict=True)
    ratios = (
        _log_ratio(release, *pair, mechanism.adjacency)
        for release, pair in zip(recording.releases, pairs, strict=True)
    )
    return values, float(sum(ratios))


def _log_ratio(release: Released, first: Law, second: Law, adjacency: Adjacency) -> float:
    if first is None or second is None:
        return 0.0
    rate, value = release.sampling_rate, release.value
    drawn = first.log_density(value), second.log_density(value)
    if rate == 1.0 or not (isinstance(first, NoiseLaw) and isinstance(second, NoiseLaw)):
        return drawn[0] - drawn[1]
    without = left_out(first, second, adjacency).log_density(value)
    mixed = np.logaddexp(np.log(rate) + np.array(drawn), np.log1p(-rate) + without)
    return float(mixed[0] - mixed[1])


def left_out(first: NoiseLaw, second: NoiseLaw, adjacency: Adjacency) -> NoiseLaw:
    """Return the law of a release about a sample without the row of interest.

    The second data set lacks the row, or has the opposite row in its place; other rows contribute
    nothing.
    """
    if adjacency is not Adjacency.REPLACE_ONE:
        return second
    return dataclasses.replace(second, mean=0.5 * (first.mean + second.mean))
