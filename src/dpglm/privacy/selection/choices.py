"""Exact private choices among candidates with scores, as functions and as mechanisms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import Array, check_integer, check_real
from dpglm.privacy.events import BoundedRange, Event, Pure
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.noise.exact import coins, rounded_laplace, uniform_indices
from dpglm.privacy.releases import Mechanism, Release

# No exponent goes beyond this, so that every probability is a normal float64.
_GREATEST_EXPONENT = 700.0

# Bounds on rounding errors of epsilon: the first for exponents and exp, the second for the rate.
_ROUNDING = 2.0**-39
_RATE_ROUNDING = 2.0**-48

# Bounds on rounding errors of generalized scores: the first is divided by epsilon.
_SCORE_ROUNDING = 2.0**-36
_SCALE_ROUNDING = 2.0**-48

# Within these ranges nothing below overflows or underflows where it matters.
_EPSILONS = (2.0**-30, 2.0**30)
_SENSITIVITIES = (2.0**-500, 2.0**500)
_FIRST_PROPOSALS, _MOST_PROPOSALS = 64, 65536


def exponential_mechanism(
    scores: ArrayLike, sensitivity: float, epsilon: float, source: NoiseSource
) -> int:
    """Choose a candidate with probability falling exponentially in its score.

    Candidate r is chosen with probability exactly ``p[r] / sum(p)``, where ``p[r]`` is the float64
    computed for ``exp(-min(epsilon' (q[r] - min(q)) / (2 sensitivity), 700))`` and ``epsilon'`` is
    ``epsilon`` less about 2e-12, for rounding. Scores q, of shape (k,), are finite, and lower is
    better; ``sensitivity``, from 2^-500 to 2^500, bounds the change of any one computed score
    between neighbours; ``epsilon`` is from 2^-30 to 2^30.

    Privacy: ``epsilon``-bounded range (the logarithms of the probability ratios of all candidates
    lie in one interval of length ``epsilon``, which contains 0), hence pure
    ``epsilon``-differential privacy. Rounding errors in this function are covered; those of the
    scores belong into ``sensitivity``, which is about the computed floats.

    Adding one number to all scores changes nothing. So it suffices that for any two neighbours the
    changes ``q'[r] - q[r]`` of all candidates lie in one interval of length ``2 sensitivity``.
    Scores that all increase or all decrease by at most D, such as sums over rows of losses in [0,
    D] when one row is erased, may be passed with ``sensitivity = D / 2``.

    The choice is as private as the scores until it is released. Its running time depends on the
    scores. Errors depend on them too: callers must prevent scores that are not finite.

    McSherry and Talwar (2007), "Mechanism design via differential privacy". Durfee and Rogers
    (2019), "Practical differentially private top-k selection with pay-what-you-get
    composition", for bounded range. Theorem 1 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    p = _probabilities(scores, sensitivity, epsilon)
    draws = _FIRST_PROPOSALS
    while True:
        proposed = uniform_indices(source.words, draws, p.size)
        accepted = proposed[coins(source.words, proposed.size, p[proposed])]
        if accepted.size:
            return int(accepted[0])
        draws = min(2 * draws, _MOST_PROPOSALS)


def permute_and_flip(
    scores: ArrayLike, sensitivity: float, epsilon: float, source: NoiseSource
) -> int:
    """Choose a candidate by permute-and-flip, never worse than the exponential mechanism.

    The choice is uniform among the candidates with heads; the coins are independent, with exactly
    the probabilities ``p[r]`` of ``exponential_mechanism``.

    Privacy: pure ``epsilon``-differential privacy, with the same remarks on ``sensitivity``,
    one-sided scores and rounding as ``exponential_mechanism``. Bounded range is not claimed.

    The law is that of flipping the coins in random order until the first heads, and that of the
    least score after subtracting independent exponential variates of mean ``2 sensitivity /
    epsilon``.

    McKenna and Sheldon (2020), "Permute-and-flip: a new mechanism for differentially private
    selection". Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang (2021), "The
    permute-and-flip mechanism is identical to report-noisy-max with exponential noise".
    Theorem 2 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    p = _probabilities(scores, sensitivity, epsilon)
    heads = np.flatnonzero(coins(source.words, p.size, p))
    while True:
        chosen = uniform_indices(source.words, 1, heads.size)
        if chosen.size:
            return int(heads[chosen[0]])


def generalized_scores(
    scores: ArrayLike, sensitivities: ArrayLike, epsilon: float, failure: float
) -> Array:
    """Turn scores (k,) of different public sensitivities into scores of sensitivity 1.

    ``s[j] = max_k ((q[j] + t D[j]) - (q[k] + t D[k])) / (D[j] + D[k])`` with
    ``t = 2 log(k / failure) / epsilon``, clipped at ``1400 / epsilon`` and reduced by a bound on
    rounding errors; at least 0, and 0 up to rounding for the best candidate. Sensitivities are from
    2^-500 to 2^500, or 0 for at most one score; ``failure`` is from 2^-900 to below 1.

    Privacy: nothing is released here. The computed scores have sensitivity 1 under the relation of
    ``sensitivities``, rounding included: ``q[j] - q[k]`` changes by at most ``D[j] + D[k]``, and
    maxima and clipping do not increase changes. One-sided scores bring no advantage here.

    The exponential mechanism on these scores chooses, except with probability ``failure``, a
    candidate with ``q <= min_j (q[j] + 4 D[j] log(k / failure) / epsilon)``.

    Raskhodnikova and Smith (2015), "Efficient Lipschitz extensions for high-dimensional graph
    statistics and node private degree distributions". Arora et al. (2022), Algorithm 4 and
    Appendix C.1. Lemma 3 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    q = _finite("scores", scores)
    d = _finite("sensitivities", sensitivities)
    least, most = _SENSITIVITIES
    if d.shape != q.shape:
        raise ValueError(f"sensitivities must have the shape {q.shape} of scores, got {d.shape}")
    if np.count_nonzero(d == 0.0) > 1 or ((d != 0.0) & ~((least <= d) & (d <= most))).any():
        raise ValueError(
            f"sensitivities must be from {least:g} to {most:g}, or 0 for at most one of them, "
            f"got {d}"
        )
    epsilon = check_real("epsilon", epsilon, least=_EPSILONS[0], most=_EPSILONS[1])
    failure = check_real("failure", failure, least=2.0**-900, below=1.0)
    penalty = 2.0 * math.log(q.size / failure) / epsilon
    worst = np.zeros(q.size)
    # Differences too large for a float64 become infinite, and are cut below.
    with np.errstate(over="ignore", under="ignore"):
        for k in range(q.size):
            # Public numbers are added up first, so their rounding is the same for neighbours.
            margin = (q - q[k]) + penalty * (d - d[k])
            total = d + d[k]
            # The total is 0 only for j = k, where the margin is 0.
            np.maximum(worst, margin / np.where(total > 0.0, total, 1.0), out=worst)
    cut = np.minimum(worst, 2.0 * _GREATEST_EXPONENT / epsilon)
    return np.asarray(cut / (1.0 + _SCORE_ROUNDING / epsilon + _SCALE_ROUNDING))


def generalized_exponential_mechanism(
    scores: ArrayLike, sensitivities: ArrayLike, epsilon: float, failure: float, source: NoiseSource
) -> int:
    """Choose by ``exponential_mechanism`` on ``generalized_scores``, which have sensitivity 1.

    Privacy: ``epsilon``-bounded range, hence pure ``epsilon``-differential privacy.
    """
    comparable = generalized_scores(scores, sensitivities, epsilon, failure)
    return exponential_mechanism(comparable, 1.0, epsilon, source)


def _probabilities(scores: ArrayLike, sensitivity: float, epsilon: float) -> Array:
    """Chances of acceptance, 1 for the best candidate; all mechanisms use these and no other."""
    q = _finite("scores", scores)
    least, most = _SENSITIVITIES
    sensitivity = check_real("sensitivity", sensitivity, least=least, most=most)
    epsilon = check_real("epsilon", epsilon, least=_EPSILONS[0], most=_EPSILONS[1])
    rate = (epsilon * (1.0 - _RATE_ROUNDING) - _ROUNDING) / (2.0 * sensitivity)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.exp(-np.minimum(rate * (q - q.min()), _GREATEST_EXPONENT)))


def _finite(name: str, values: ArrayLike) -> Array:
    """Vector of finite float64, at least one."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a vector of at least one number, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


# Exact private choices of a point on a line: the exponential mechanism in runs, first above.

MOST_CANDIDATES = 2**52
_GREATEST_RANK_EXPONENT = 699.0
_PROPOSALS = 16


def exponential_mechanism_in_runs(
    scores: ArrayLike, lengths: ArrayLike, sensitivity: float, epsilon: float, source: NoiseSource
) -> int:
    """Choose one of very many candidates, in long runs of equal scores, by its position.

    Exactly the law of ``exponential_mechanism`` on the repeated scores. Lengths of runs, of shape
    (k,), are at least 1 and together at most 2^52.

    Privacy: ``epsilon``-bounded range, as in ``exponential_mechanism``. The starts of runs may
    depend on private data, because only the candidate is released, and the set of candidates is
    public.

    A run is proposed with an integer number of tickets just above its weight, and accepted with a
    probability that is a ratio of integers, so nothing is rounded.

    Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC
    2011, Algorithm 2, for quantiles in this way.
    """
    p = _probabilities(scores, sensitivity, epsilon)
    sizes = np.asarray(lengths)
    if sizes.shape != p.shape or sizes.dtype.kind != "i" or (sizes < 1).any():
        raise ValueError(f"lengths must be {p.size} integers of at least 1, got {lengths!r}")
    starts = np.cumsum(sizes) - sizes
    if starts[-1] + sizes[-1] > MOST_CANDIDATES:
        raise ValueError(f"lengths must be at most 2^52 together, got {starts[-1] + sizes[-1]}")
    masses = sizes.astype(np.float64) * p
    # All tickets together are below 2^61; the scale is a power of two, so it is exact.
    bits = 59 - p.size.bit_length()
    scale = math.ldexp(1.0, bits - math.frexp(float(masses.max()))[1])
    with np.errstate(under="ignore"):
        tickets = np.floor(masses * scale * (1.0 + 2.0**-50)).astype(np.int64) + 1
    ends = np.cumsum(tickets)
    while True:
        for ticket in uniform_indices(source.words, _PROPOSALS, int(ends[-1])):
            run = int(np.searchsorted(ends, ticket, side="right"))
            weight = Fraction(float(p[run])) * int(sizes[run]) * Fraction(scale)
            chance = weight / int(tickets[run])
            if _uniform_below(source, chance.denominator) < chance.numerator:
                return int(starts[run]) + _uniform_below(source, int(sizes[run]))


def first_above(counts: ArrayLike, threshold: int, epsilon: float, source: NoiseSource) -> int:
    """Return approximately the first position where growing private counts reach a threshold.

    The position is the first where the count plus its own noise reaches the threshold plus noise;
    ``k - 1`` if there is none. ``epsilon`` is from 2^-30 to 2^30.

    Privacy: pure ``epsilon``-differential privacy for adding or removing a row, which is in all of
    the nested sets from some position on. Only the position is released, and the counts need no
    public bound, so that thresholds without an upper bound are possible. The proof, including
    floating point, is in ``docs/proofs/private-quantiles.md``.

    Durfee, "Unbounded differentially private quantile and maximum estimation", NeurIPS 2023.
    """
    f = np.asarray(counts)
    if f.ndim != 1 or not f.size or f.dtype.kind != "i" or (np.diff(f) < 0).any():
        raise ValueError("counts must be integers that never fall, at least one")
    threshold = check_integer("threshold", threshold, least=0)
    epsilon = check_real("epsilon", epsilon, least=_EPSILONS[0], most=_EPSILONS[1])
    # Laplace noise needs a scale of at least 1; more of it than epsilon asks for does no harm.
    scale = 1.0 / min(epsilon, 1.0) * (1.0 + 2.0**-48)
    missing = (threshold - f) + rounded_laplace(source.words, 1, scale)
    rate = epsilon * (1.0 - 2.0**-48) - _ROUNDING
    # Cut before it is multiplied, so that chances are either equal or clearly apart.
    missing = np.clip(missing, 0, math.floor(_GREATEST_RANK_EXPONENT / rate))
    above = np.flatnonzero(coins(source.words, missing.size, np.exp(-rate * missing)))
    return int(above[0]) if above.size else f.size - 1


def _uniform_below(source: NoiseSource, size: int) -> int:
    """Uniform integer from 0 to ``size - 1``, of any size."""
    n_bits = (size - 1).bit_length()
    while True:
        words: NDArray[np.uint64] = source.words(-(-n_bits // 64))
        drawn = int.from_bytes(words.astype("<u8").tobytes(), "little") & ((1 << n_bits) - 1)
        if drawn < size:
            return drawn


# Mechanisms of choices, with their privacy events.

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
class PermuteAndFlip(_Choice[Array]):
    """Choice of a candidate with a small score by permute-and-flip.

    Half of the bound on a score's move suffices where all scores move to the same side
    (``dpglm.privacy.selection.choices``).
    """

    algorithm = "permute-and-flip"
    has_bounded_range = False

    def draw(self, release: Release[Array, int], value: Array, source: NoiseSource) -> int:
        return permute_and_flip(value, release.sensitivity, self.epsilon, source)


@final
@dataclass(frozen=True)
class ExponentialMechanism(_Choice[Array]):
    """Choice of a candidate with a small score by the exponential mechanism."""

    algorithm = "exponential mechanism"
    has_bounded_range = True

    def draw(self, release: Release[Array, int], value: Array, source: NoiseSource) -> int:
        return exponential_mechanism(value, release.sensitivity, self.epsilon, source)


BoundedScores: TypeAlias = tuple[Array, Array]
"""Private scores of shape (candidates,), lower is better, and the public bound of each.

A bound limits the change of the score when one row is erased, rounding included; it is 0 for at
most one of them. All scores have the same diameter.
"""


@final
@dataclass(frozen=True)
class GeneralizedExponentialMechanism(_Choice[BoundedScores]):
    """Choice of a candidate with a small score where each score has its own sensitivity.

    ``failure`` is the probability, in (0, 1), with which the choice may miss its accuracy.

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
        scores, bounds = value
        sensitivities = [
            release.adjacency.sum_sensitivity(bound, release.diameter) for bound in bounds
        ]
        return generalized_exponential_mechanism(
            scores, sensitivities, self.epsilon, self.failure, source
        )


Runs: TypeAlias = tuple[Array, NDArray[np.int64]]
"""Scores and lengths of runs of equal scores, each of shape (runs,); their total is public."""


@final
@dataclass(frozen=True)
class ExponentialMechanismOverRuns(_Choice[Runs]):
    """The exponential mechanism on very many candidates, in runs of equal scores."""

    algorithm = "exponential mechanism"
    has_bounded_range = True

    def draw(self, release: Release[Runs, int], value: Runs, source: NoiseSource) -> int:
        return exponential_mechanism_in_runs(*value, release.sensitivity, self.epsilon, source)


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
