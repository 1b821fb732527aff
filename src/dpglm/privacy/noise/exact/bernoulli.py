"""Independent Bernoulli bits whose probability is exactly the float given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.noise.exact.refined import CELL, FIRST_BITS, FUNCTION_ERROR, Words, refined

__all__ = ["bernoulli_by_digits", "bernoulli_by_gaps"]

_GAPS_PER_BLOCK = 8192


def bernoulli_by_digits(words: Words, size: int, probability: float) -> NDArray[np.bool_]:
    """Return ``size`` bits: ``U_i < probability`` for uniforms that are infinite strings of bytes.

    Bytes are drawn until each comparison is decided, so the probability, in [0, 1], is exact.
    """
    digit, rest = _next_digit(probability)
    drawn = _bytes(words, size)
    mask = drawn < digit
    undecided = np.flatnonzero(drawn == digit)
    while undecided.size and rest > 0.0:
        digit, rest = _next_digit(rest)
        drawn = _bytes(words, undecided.size)
        mask[undecided] = drawn < digit
        undecided = undecided[drawn == digit]
    return mask


def _next_digit(rest: float) -> tuple[int, float]:
    """First base-256 digit of a number in [0, 1], and what follows it; both exact."""
    digit = math.floor(256.0 * rest)
    return digit, 256.0 * rest - digit


def _bytes(words: Words, count: int) -> NDArray[np.uint8]:
    """Uniform random bytes."""
    return words(-(-count // 8)).view(np.uint8)[:count]


def bernoulli_by_gaps(words: Words, size: int, probability: float) -> NDArray[np.bool_]:
    """Jump from success to success by exact geometric gaps; fast if successes are rare.

    ``size`` is below 2^49, ``probability`` in [2^-64, 1).

    References
    ----------
    Devroye (1986), "Non-Uniform Random Variate Generation", section X.2. The proof that the
    gaps are exact is Theorem 3 of ``docs/proofs/exact-gaussian-noise.md``.
    """
    mask = np.zeros(size, dtype=np.bool_)
    last = -1
    while last < size - 1:
        expected = (size - 1 - last) * probability
        count = min(_GAPS_PER_BLOCK, math.ceil(expected + 4.0 * math.sqrt(expected)) + 4)
        hits = last + np.cumsum(_gaps(words, count, probability, size) + 1)
        mask[hits[hits < size]] = True
        last = int(hits[-1])
    return mask


def _gaps(words: Words, count: int, probability: float, cap: int) -> NDArray[np.int64]:
    """Numbers of failures before each success, those above ``cap`` replaced by ``cap``."""
    first = words(count) >> np.uint64(64 - FIRST_BITS)
    u = first.astype(np.float64) * CELL
    rate = -math.log1p(-probability)
    # u = 0 makes infinities and NaNs below, and a NaN fails the comparisons that decide.
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log(u) / -rate
        error = (3.0 * FUNCTION_ERROR) * x + (2.0 * CELL) / (u * rate)
        decided = (np.abs(x - np.rint(x)) > error) | (x - error > cap)
        gaps = np.minimum(np.floor(x), float(cap)).astype(np.int64)
    for i in np.flatnonzero(~decided):
        gaps[i] = min(_refined_gap(words, probability, int(first[i])), cap)
    return gaps


def _refined_gap(words: Words, probability: float, a: int) -> int:
    """Decide one gap by as many more bits as it takes; ``a`` is the first bits."""

    def decide(ctx: Any, bits: int, u: Any) -> int | None:
        rate = -ctx.log1p(-ctx.mpf(probability))
        x = -ctx.log(u) / rate
        # The second term covers mpmath's own error in x, the first the bits still to come.
        error = ctx.ldexp(2 / (u * rate) + x, -bits)
        return int(ctx.floor(x)) if abs(x - ctx.nint(x)) > error else None

    return refined(words, (a,), decide)
