"""Uniforms of which the first bits are known, and more are drawn until they decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELL", "FIRST_BITS", "FUNCTION_ERROR", "HALF", "Words", "arithmetic", "refined"]

T = TypeVar("T")

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

HALF = 0.5 - 2.0**-50
"""Distance from an integer below which it is the nearest, with room for rounding the test."""


def arithmetic() -> Any:
    """Return mpmath in a context of its own: its global precision is shared between threads."""
    import mpmath

    return mpmath.MPContext()


def refined(
    words: Words, first: Sequence[int], decide: Callable[..., T | None], ctx: Any = None
) -> T:
    """Draw 64 more bits of each uniform until ``decide`` returns something.

    ``first`` are their first bits. It is called with the arithmetic, the number of bits so far, and
    the uniforms, of which the first, whose logarithm is taken, is above 0.
    """
    ctx = arithmetic() if ctx is None else ctx
    uniforms, bits = list(first), FIRST_BITS
    while True:
        uniforms = [
            a << 64 | word for a, word in zip(uniforms, words(len(first)).tolist(), strict=True)
        ]
        bits += 64
        if uniforms[0] == 0:
            continue
        ctx.prec = bits + 64
        found = decide(ctx, bits, *(ctx.ldexp(a, -bits) for a in uniforms))
        if found is not None:
            return found
