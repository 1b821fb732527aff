"""Normal variates rounded to integers exactly; proof in docs/proofs/exact-gaussian-noise.md."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELL", "FIRST_BITS", "FUNCTION_ERROR", "Words", "rounded_gaussian"]

Words = Callable[[int], NDArray[np.uint64]]
"""``words(count)`` returns that many independent uniform 64-bit words."""

FIRST_BITS = 53
"""Bits of a uniform that the fast path knows: as many as convert to float64 exactly."""

CELL = 2.0**-FIRST_BITS
"""Width of the interval in which those bits place the uniform."""

FUNCTION_ERROR = 2.0**-48
"""Assumed error of log and log1p (relative) and of cos and sin (absolute): 16 units of 2^-52.

NumPy and the libm it calls document at most 4; the tests measure it.
"""

_PAIRS_PER_BLOCK = 4096


def rounded_gaussian(words: Words, size: int, scale: float) -> NDArray[np.int64]:
    """Return ``size`` independent exact roundings of ``scale`` times a standard normal.

    ``scale`` is in [1, 2^32).

    References
    ----------
    Box and Muller (1958), "A note on the generation of random normal deviates". The proof
    that the roundings are exact is Theorem 1 of ``docs/proofs/exact-gaussian-noise.md``.
    """
    out = np.empty(size + size % 2, dtype=np.int64)
    step = 2 * _PAIRS_PER_BLOCK
    for start in range(0, out.size, step):
        block = out[start : start + step]
        block[:] = _pairs(words, block.size // 2, scale).reshape(-1)
    return out[:size]


def _pairs(words: Words, count: int, scale: float) -> NDArray[np.int64]:
    """Both coordinates of ``count`` exactly rounded Box-Muller pairs, shape (2, count)."""
    first = words(2 * count).reshape(2, count) >> np.uint64(64 - FIRST_BITS)
    u, v = first.astype(np.float64) * CELL
    x = np.empty((2, count))
    # u = 0 makes infinities and NaNs below, and a NaN fails the comparison that decides.
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.sqrt(-2.0 * np.log(u))
        angle = (2.0 * math.pi) * v
        np.cos(angle, out=x[0])
        np.sin(angle, out=x[1])
        x *= scale * r
        error = (3.0 * scale * FUNCTION_ERROR) * r + (3.0 * scale * CELL) / (u * r)
        nearest = np.rint(x)
        decided = np.abs(x - nearest) <= 0.5 - error
        m = nearest.astype(np.int64)
    for i in np.flatnonzero(~decided.all(axis=0)):
        m[:, i] = _refined_pair(words, scale, int(first[0, i]), int(first[1, i]))
    return m


def _refined_pair(words: Words, scale: float, a: int, b: int) -> tuple[int, int]:
    """Decide one pair by as many more bits as it takes; ``a`` and ``b`` are the first bits."""
    import mpmath

    # A context of its own: the precision of mpmath's global one is shared between threads.
    ctx = mpmath.MPContext()
    bits = FIRST_BITS
    while True:
        more = words(2)
        a, b, bits = a << 64 | int(more[0]), b << 64 | int(more[1]), bits + 64
        if a == 0:
            continue
        ctx.prec = bits + 64
        u, v = ctx.ldexp(a, -bits), ctx.ldexp(b, -bits)
        r = ctx.sqrt(-2 * ctx.log(u))
        angle = 2 * ctx.pi * v
        x = (scale * r * ctx.cos(angle), scale * r * ctx.sin(angle))
        error = scale * ctx.ldexp(4 / (u * r) + 8 * r, -bits)
        m = (int(ctx.nint(x[0])), int(ctx.nint(x[1])))
        if all(abs(value - k) < 0.5 - error for value, k in zip(x, m, strict=True)):
            return m
