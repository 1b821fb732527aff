"""Exact private choices of a point on a line: the exponential mechanism in runs, first above."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_integer, check_real
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.noise.exact.choice import coins, uniform_indices
from dpglm.privacy.noise.exact.laplace import rounded_laplace
from dpglm.privacy.selection.choices import _probabilities

__all__ = ["exponential_mechanism_in_runs", "first_above"]

MOST_CANDIDATES = 2**52
_EPSILONS = (2.0**-30, 2.0**30)
# What rounding can add to an exponent that is cut at 700, and to exp.
_ROUNDING = 2.0**-39
_GREATEST_EXPONENT = 699.0
_PROPOSALS = 16


def exponential_mechanism_in_runs(
    scores: ArrayLike,
    lengths: ArrayLike,
    sensitivity: float,
    epsilon: float,
    source: NoiseSource,
) -> int:
    """Choose one of very many candidates that have equal scores in long runs, by its position.

    Exactly the law of ``exponential_mechanism`` on the scores repeated. Lengths of runs, of shape
    (k,), are at least 1 and together at most 2^52.

    Privacy: as for ``exponential_mechanism``, ``epsilon``-bounded range. Where runs begin may
    depend on private data, as only the candidate leaves, and the set of candidates is public.

    A run is proposed with a whole number of tickets just above its weight, and kept with a
    chance that is a ratio of whole numbers, so nothing is rounded on the way.

    References
    ----------
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
    """Return about the first position at which growing counts, private integers, reach a threshold.

    It is that for which the count, plus noise of its own, reaches the threshold plus noise before
    any other does; ``k - 1`` where none does. ``epsilon`` is from 2^-30 to 2^30.

    Privacy: pure ``epsilon``-differential privacy for one row more or less, which is in all of
    the nested sets from some position on. Nothing about the counts is released but the position,
    and their number need not be bounded by anything private: that is what makes thresholds
    without an upper bound possible. Proof, and the floating-point side, in
    ``docs/proofs/private-quantiles.md``.

    References
    ----------
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
    missing = np.clip(missing, 0, math.floor(_GREATEST_EXPONENT / rate))
    above = np.flatnonzero(coins(source.words, np.exp(-rate * missing)))
    return int(above[0]) if above.size else f.size - 1


def _uniform_below(source: NoiseSource, size: int) -> int:
    """Uniform integer from 0 to ``size - 1``, of any size."""
    n_bits = (size - 1).bit_length()
    while True:
        words: NDArray[np.uint64] = source.words(-(-n_bits // 64))
        drawn = int.from_bytes(words.astype("<u8").tobytes(), "little") & ((1 << n_bits) - 1)
        if drawn < size:
            return drawn
