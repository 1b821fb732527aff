"""Normal variates and L2 noise rounded to integers exactly, by Box-Muller pairs.

The proofs are in docs/proofs/exact-gaussian-noise.md and exact-choices-and-l2-noise.md.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.noise.exact.refined import (
    CELL,
    FIRST_BITS,
    FUNCTION_ERROR,
    HALF,
    Words,
    arithmetic,
    refined,
)

__all__ = ["rounded_gaussian", "rounded_l2"]

_PAIRS_PER_BLOCK = 4096


def rounded_gaussian(words: Words, size: int, scale: float) -> NDArray[np.int64]:
    """Return ``size`` independent exact roundings of ``scale`` times a standard normal.

    ``scale`` is in [1, 2^32).

    References
    ----------
    Box and Muller (1958), "A note on the generation of random normal deviates". The proof
    that the roundings are exact is Theorem 1 of ``docs/proofs/exact-gaussian-noise.md``.
    """
    return _rounded(words, size, scale, None)


def rounded_l2(words: Words, size: int, scale: float) -> NDArray[np.int64]:
    """Return exact roundings of a vector with density proportional to ``exp(-|b| / scale)``.

    It has at least one coordinate; ``scale`` is in [1, 2^32). The vector is ``scale |H| Z``, with H
    and Z independent standard normal vectors of ``size + 1`` and ``size`` coordinates. Z are
    Box-Muller pairs; ``|H|`` is what ``_Length`` draws.

    References
    ----------
    Theorem 3 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    return _rounded(words, size, scale, _Length(words, size))


@final
class _Length:
    """The length of a standard normal vector with one coordinate more than the noise.

    Half of its square is ``sum_j -log W_j``, plus ``-log(U) cos(2 pi V)^2`` if one coordinate
    is left over. All coordinates of the noise share it, so its bits are kept, and more are
    drawn when a coordinate needs them. ``estimate`` is from the first bits; ``error`` bounds its
    relative error, other than by the last square root.
    """

    def __init__(self, words: Words, size: int) -> None:
        self._words = words
        self._left_over = size % 2 == 0
        self._bits = FIRST_BITS
        # Uniforms that enter by their logarithm: U, if there is one, and all W. Then V.
        logs = (size + 1) // 2 + self._left_over
        first = words(logs + self._left_over) >> np.uint64(64 - FIRST_BITS)
        self._radial = first[:logs].tolist()
        self._angle = first[logs:].tolist()
        self._refined: tuple[int, Any, Any] = (0, None, None)
        self.estimate, self.error = self._estimate(first.astype(np.float64) * CELL, logs)

    @cached_property
    def context(self) -> Any:
        """Arithmetic for all that is refined."""
        return arithmetic()

    def _estimate(self, uniforms: NDArray[np.float64], logs: int) -> tuple[float, float]:
        """Length and relative error in float64; NaN if a uniform is 0 so far."""
        radial = uniforms[:logs]
        with np.errstate(divide="ignore", invalid="ignore"):
            exponentials = -np.log(radial)
            total = math.fsum(exponentials)
            error = (6.0 * FUNCTION_ERROR) * total + (2.0 * CELL) * float(np.sum(1.0 / radial))
            if self._left_over:
                cosine = np.cos((2.0 * math.pi) * uniforms[logs])
                exponentials[0] *= cosine * cosine
                total = math.fsum(exponentials)
        return math.sqrt(2.0 * total), error / total

    def refined(self, bits: int) -> tuple[Any, Any]:
        """Length and relative error from at least ``bits`` bits of every uniform."""
        if self._refined[0] < bits:
            while self._bits < bits or 0 in self._radial:
                self._radial = self._with_more_bits(self._radial)
                self._angle = self._with_more_bits(self._angle)
                self._bits += 64
            self._refined = (self._bits, *self._evaluate())
        return self._refined[1:]

    def _with_more_bits(self, uniforms: list[int]) -> list[int]:
        more = self._words(len(uniforms)).tolist()
        return [a << 64 | word for a, word in zip(uniforms, more, strict=True)]

    def _evaluate(self) -> tuple[Any, Any]:
        """Length and relative error from all bits there are."""
        ctx = self.context
        ctx.prec = self._bits + 64
        whole = 1 << self._bits
        product = ctx.mpf(1)
        for a in self._radial[self._left_over :]:
            product *= ctx.ldexp(a, -self._bits)
        half_square = -ctx.log(product)
        for b in self._angle:
            cosine = ctx.cos(2 * ctx.pi * ctx.ldexp(b, -self._bits))
            half_square -= ctx.log(ctx.ldexp(self._radial[0], -self._bits)) * cosine**2
        cells = sum(whole // a + 1 for a in self._radial)
        return ctx.sqrt(2 * half_square), ctx.ldexp(9 * cells, -self._bits) / half_square


def _rounded(words: Words, size: int, scale: float, length: _Length | None) -> NDArray[np.int64]:
    """Return exact roundings of ``scale`` times standard normal variates, and times a length."""
    out = np.empty(size + size % 2, dtype=np.int64)
    step = 2 * _PAIRS_PER_BLOCK
    for start in range(0, out.size, step):
        block = out[start : start + step]
        block[:] = _pairs(words, block.size // 2, scale, length).reshape(-1)
    return out[:size]


def _pairs(words: Words, count: int, scale: float, length: _Length | None) -> NDArray[np.int64]:
    """Both coordinates of ``count`` exactly rounded pairs, shape (2, count)."""
    first = words(2 * count).reshape(2, count) >> np.uint64(64 - FIRST_BITS)
    u, v = first.astype(np.float64) * CELL
    length_now, uncertainty = (1.0, 0.0) if length is None else (length.estimate, length.error)
    amplitude = scale * length_now
    x = np.empty((2, count))
    # A uniform of 0 makes infinities and NaNs, and a NaN fails the comparison that decides.
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.sqrt(-2.0 * np.log(u))
        angle = (2.0 * math.pi) * v
        np.cos(angle, out=x[0])
        np.sin(angle, out=x[1])
        x *= amplitude * r
        error = amplitude * ((4.0 * FUNCTION_ERROR + uncertainty) * r + (3.0 * CELL) / (u * r))
        nearest = np.rint(x)
        decided = np.abs(x - nearest) <= HALF - error
        m = nearest.astype(np.int64)
    for i in np.flatnonzero(~decided.all(axis=0)):
        m[:, i] = _refined_pair(words, scale, length, int(first[0, i]), int(first[1, i]))
    return m


def _refined_pair(
    words: Words, scale: float, length: _Length | None, a: int, b: int
) -> tuple[int, int]:
    """Decide one pair by as many more bits as it takes; ``a`` and ``b`` are the first bits."""

    def decide(ctx: Any, bits: int, u: Any, v: Any) -> tuple[int, int] | None:
        estimate, relative = (1, 0) if length is None else length.refined(bits)
        ctx.prec = bits + 64
        r = ctx.sqrt(-2 * ctx.log(u))
        angle = 2 * ctx.pi * v
        amplitude = scale * estimate
        x = (amplitude * r * ctx.cos(angle), amplitude * r * ctx.sin(angle))
        error = amplitude * (ctx.ldexp(4 / (u * r) + 8 * r, -bits) + relative * r)
        m = (int(ctx.nint(x[0])), int(ctx.nint(x[1])))
        near = all(abs(value - k) < 0.5 - error for value, k in zip(x, m, strict=True))
        return m if near else None

    return refined(words, (a, b), decide, None if length is None else length.context)
