"""Laplace noise rounded to integers exactly; proof in docs/proofs/exact-choices-and-l2-noise.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.noise.exact.refined import (
    CELL,
    FIRST_BITS,
    FUNCTION_ERROR,
    HALF,
    Words,
    refined,
)

__all__ = ["rounded_laplace"]


def rounded_laplace(words: Words, size: int, scale: float) -> NDArray[np.int64]:
    """Return ``size`` independent exact roundings of Laplace variates.

    They are the nearest integers to ``-+ scale * log(U)``, U uniform, the sign fair; ``scale``, the
    mean absolute value, is in [1, 2^32).

    References
    ----------
    Theorem 4 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    drawn = words(size)
    first = drawn >> np.uint64(64 - FIRST_BITS)
    u = first.astype(np.float64) * CELL
    # u = 0 makes infinities and NaNs below, and a NaN fails the comparison that decides.
    with np.errstate(divide="ignore", invalid="ignore"):
        x = -scale * np.log(u)
        error = (2.0 * FUNCTION_ERROR) * x + (2.0 * scale * CELL) / u
        nearest = np.rint(x)
        decided = np.abs(x - nearest) <= HALF - error
        m = nearest.astype(np.int64)
    for i in np.flatnonzero(~decided):
        m[i] = _refined(words, scale, int(first[i]))
    # The lowest bit of a word is none of the first bits of its uniform.
    return np.where(drawn & np.uint64(1), m, -m)


def _refined(words: Words, scale: float, a: int) -> int:
    """Decide one magnitude by as many more bits as it takes; ``a`` is the first bits."""

    def decide(ctx: Any, bits: int, u: Any) -> int | None:
        x = -scale * ctx.log(u)
        error = scale * ctx.ldexp(2 / u, -bits)
        m = int(ctx.nint(x))
        return m if abs(x - m) < 0.5 - error else None

    return refined(words, (a,), decide)
