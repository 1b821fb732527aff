"""Exact noise on a grid: granularity, sensitivity there, and samplers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import Array, check_integer, check_real
from dpglm.privacy.budget import Adjacency

# Every multiple m * 2^k with |m| <= 2^53 is a float64, and 2^(52 + k) does not overflow.
_EXPONENTS = {"least": -1074, "most": 970}
_LEAST_CELLS_LOG2, _GREATEST_CELLS_LOG2 = 0, 32
_CELLS_LOG2 = 24


def granularity_exponent(std: float) -> int:
    """Return the exponent ``k`` of the grid ``2**k`` that suits noise of a standard deviation.

    It is ``floor(log2(std)) - 24``, so that ``std`` is 2^24 to 2^25 cells.

    Parameters
    ----------
    std : float
        Standard deviation of the noise, above 0; from 2^-1050 to below 2^995. Public.

    Examples
    --------
    >>> granularity_exponent(1.0), granularity_exponent(0.75)
    (-24, -25)
    """
    std = check_real("std", std, above=0.0, least=2.0**-1050, below=2.0**995)
    return math.frexp(std)[1] - 1 - _CELLS_LOG2


def grid_sensitivity(size: int, granularity_exponent: int) -> float:
    """Bound the effect of snapping to the grid on the L2 distance between two vectors.

    It is ``sqrt(size) * 2**k``, rounded up.

    Parameters
    ----------
    size : int
        Number of coordinates, at least 0.
    granularity_exponent : int
        ``k``, from -1074 to 970.

    Notes
    -----
    Privacy: add this to the sensitivity of values for ``add_gaussian``. Each coordinate moves by at
    most half a cell on either side (Lemma 2 of ``docs/proofs/exact-gaussian-noise.md``).
    """
    size = check_integer("size", size, least=0)
    k = check_integer("granularity_exponent", granularity_exponent, **_EXPONENTS)
    return math.nextafter(math.ldexp(math.sqrt(size), k), math.inf)


def grid_limit(granularity_exponent: int) -> float:
    """Return the magnitude below which ``add_gaussian`` accepts values: 2^52 cells.

    Parameters
    ----------
    granularity_exponent : int
        ``k``, from -1074 to 970.

    Notes
    -----
    Privacy: an error that depends on private values is itself a release. Whoever knows a
    public bound on the values compares it with this limit before seeing any.
    """
    k = check_integer("granularity_exponent", granularity_exponent, **_EXPONENTS)
    return math.ldexp(1.0, 52 + k)


def cells_per_scale(name: str, scale: float, granularity_exponent: int) -> float:
    """Return ``scale / 2**k``, exactly, after checking that both are in range."""
    k = check_integer("granularity_exponent", granularity_exponent, **_EXPONENTS)
    scale = check_real(name, scale, above=0.0)
    if not _LEAST_CELLS_LOG2 < math.frexp(scale)[1] - k <= _GREATEST_CELLS_LOG2:
        raise ValueError(
            f"{name} must be from 2^{k + _LEAST_CELLS_LOG2} to below "
            f"2^{k + _GREATEST_CELLS_LOG2} for a grid of 2^{k}, got {scale!r}"
        )
    return math.ldexp(scale, -k)


def add_on_grid(
    value: ArrayLike,
    scale: float,
    granularity_exponent: int,
    draw: Callable[[int, float], NDArray[np.int64]],
    name: str = "scale",
) -> Array:
    """Snap values to the grid and add noise in cells: ``draw(size, cells per scale)``.

    Nothing is rounded after the noise was added, so the result is exactly a post-processing of the
    snapped value plus that noise.
    """
    array = np.asarray(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("value must be finite, got NaN or infinity")
    limit = grid_limit(granularity_exponent)
    if array.size and max(array.max(), -array.min()) >= limit:
        raise OverflowError(
            f"value must be below {limit:g} (2^52 cells of 2^{granularity_exponent}) in "
            "magnitude: choose a coarser grid or smaller bounds"
        )
    # Subnormal results of this scaling are far below half a cell, so they still snap to 0.
    with np.errstate(under="ignore"):
        cells = np.asarray(np.rint(np.ldexp(array, -granularity_exponent)).astype(np.int64))
    per_scale = cells_per_scale(name, scale, granularity_exponent)
    noise = draw(cells.size, per_scale) if cells.size else cells
    noisy = cells + noise.reshape(cells.shape)
    return np.asarray(np.ldexp(noisy.astype(np.float64), granularity_exponent))


# The noise that a release needs, with its grid.

_MOST_CELLS = 2.0**32
_LEAST_SCALE, _SCALES_BELOW = 2.0**-1050, 2.0**995


@final
@dataclass(frozen=True)
class NoiseScale:
    """Size of noise, and the grid of multiples of ``2**exponent`` that it lives on.

    ``std`` is the standard deviation of a coordinate of Gaussian noise, or the scale of L2 noise;
    ``inf`` if no noise of that size can be drawn on a grid that holds the sum. Searches for a
    multiplier may pass such sizes; a plan with one is refused (``check_can_be_asked``).
    """

    std: float
    exponent: int

    def times(self, factor: float) -> NoiseScale:
        """Return noise with a multiple of the scale on the same grid, if the grid can hold it."""
        std = factor * self.std
        fits = 1.0 <= std / math.ldexp(1.0, self.exponent) < _MOST_CELLS
        return NoiseScale(std if fits else math.inf, self.exponent)


def noise_scale(
    adjacency: Adjacency, sensitivity: float, noise_multiplier: float, size: int, magnitude: float
) -> NoiseScale:
    """Return the noise for a sum with a norm of at most ``magnitude``, rounding included.

    ``sensitivity`` bounds the distance of two neighbours' sums before snapping. The grid is fine
    compared with the noise, and coarse enough that no sum within the bound exceeds the integers
    that a float64 can hold.

    Privacy: the effect of snapping ``size`` coordinates to the grid is included. The relation's
    factor multiplies it, as the group-privacy proof for sampled replace-one releases requires
    (``accounting.accountant.reduce_event``).
    """
    wanted = noise_multiplier * sensitivity
    if not _LEAST_SCALE <= wanted < _SCALES_BELOW:
        return NoiseScale(math.inf, 0)
    finest = granularity_exponent(wanted)
    exponent = max(finest, math.frexp(magnitude)[1] - 51)
    snapped = sensitivity + adjacency.sum_sensitivity(grid_sensitivity(size, exponent))
    return NoiseScale(snapped, exponent).times(noise_multiplier)


def pure_objective_epsilon(noise_multiplier: float, curvature_ratio: float) -> float:
    """Return the epsilon of the exact minimiser of an objective with an L2 linear term, rounded up.

    ``noise_multiplier`` is the scale of the term over the sensitivity of the gradient sum;
    ``curvature_ratio`` bounds one row's curvature over the strength of the quadratic penalty.

    Theorem 2 of ``docs/proofs/objective-perturbation.md``; compare Chaudhuri, Monteleoni and
    Sarwate, JMLR 2011, Theorem 9.
    """
    return (1.0 / noise_multiplier + math.log1p(curvature_ratio)) * (1.0 + 2.0**-50)


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
    """Draw 64 more bits of each uniform until ``decide`` returns a result.

    ``first`` holds the first bits. ``decide`` is called with the arithmetic, the number of bits so
    far, and the uniforms; the first uniform, which enters a logarithm, is positive.
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


# Independent Bernoulli bits with exactly the given float probability.

_GAPS_PER_BLOCK = 8192


def bernoulli_by_gaps(words: Words, size: int, probability: float) -> NDArray[np.bool_]:
    """Jump from success to success by exact geometric gaps; fast if successes are rare.

    ``size`` is below 2^49, ``probability`` in [2^-64, 1).

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

    def decide(ctx: Any, bits: int, u: Any) -> int | None:
        rate = -ctx.log1p(-ctx.mpf(probability))
        x = -ctx.log(u) / rate
        # The second term covers mpmath's own error in x, the first the bits still to come.
        error = ctx.ldexp(2 / (u * rate) + x, -bits)
        return int(ctx.floor(x)) if abs(x - ctx.nint(x)) > error else None

    for i in np.flatnonzero(~decided):
        gaps[i] = min(refined(words, (int(first[i]),), decide), cap)
    return gaps


# Uniform choices, and coins that each have a probability of their own, from uniform bits.


def uniform_indices(words: Words, draws: int, size: int) -> NDArray[np.int64]:
    """Return the draws below ``size``, from 1 to 2^62; there may be none.

    They are independent and exactly uniform; more than half of the draws are expected.
    """
    mask = np.uint64((1 << (size - 1).bit_length()) - 1)
    drawn = (words(draws) & mask).astype(np.int64)
    return drawn[drawn < size]


def coins(words: Words, size: int, probabilities: Array | float) -> NDArray[np.bool_]:
    """Return ``size`` independent bits that are true with exactly the given probabilities.

    Probabilities in [0, 1] are one for all, or of shape (size,). A bit states whether a uniform, an
    infinite string of random bytes, is below its probability; bytes are drawn until all are
    decided.
    """
    scaled = 256.0 * np.asarray(probabilities)
    digit = np.floor(scaled).astype(np.int16)
    drawn = words(-(-size // 8)).view(np.uint8)[:size]
    heads = drawn < digit
    tied = np.flatnonzero((drawn == digit) & (scaled > digit))
    if tied.size:
        heads[tied] = coins(words, tied.size, np.broadcast_to(scaled - digit, size)[tied])
    return heads


# Laplace noise rounded to integers exactly; proof in docs/proofs/exact-choices-and-l2-noise.md.


def rounded_laplace(words: Words, size: int, scale: float) -> NDArray[np.int64]:
    """Return ``size`` independent exact roundings of Laplace variates.

    They are the nearest integers to ``-+ scale * log(U)``, U uniform, the sign fair; ``scale``, the
    mean absolute value, is in [1, 2^32).

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

    def decide(ctx: Any, bits: int, u: Any) -> int | None:
        x = -scale * ctx.log(u)
        error = scale * ctx.ldexp(2 / u, -bits)
        m = int(ctx.nint(x))
        return m if abs(x - m) < 0.5 - error else None

    for i in np.flatnonzero(~decided):
        m[i] = refined(words, (int(first[i]),), decide)
    # The lowest bit of a word is none of the first bits of its uniform.
    return np.where(drawn & np.uint64(1), m, -m)


# Normal variates and L2 noise rounded to integers exactly, by Box-Muller pairs.
#
# The proofs are in docs/proofs/exact-gaussian-noise.md and exact-choices-and-l2-noise.md.

_PAIRS_PER_BLOCK = 4096


def rounded_gaussian(
    words: Words, size: int, scale: float, length: _Length | None = None
) -> NDArray[np.int64]:
    """Return ``size`` independent exact roundings of ``scale`` times a standard normal.

    ``scale`` is in [1, 2^32). With a ``length`` the variates are multiplied by it, too.

    Box and Muller (1958), "A note on the generation of random normal deviates". The proof
    that the roundings are exact is Theorem 1 of ``docs/proofs/exact-gaussian-noise.md``.
    """
    out = np.empty(size + size % 2, dtype=np.int64)
    step = 2 * _PAIRS_PER_BLOCK
    for start in range(0, out.size, step):
        block = out[start : start + step]
        block[:] = _pairs(words, block.size // 2, scale, length).reshape(-1)
    return out[:size]


def rounded_l2(words: Words, size: int, scale: float) -> NDArray[np.int64]:
    """Return exact roundings of a vector with density proportional to ``exp(-|b| / scale)``.

    It has at least one coordinate; ``scale`` is in [1, 2^32). The vector is ``scale |H| Z``, with H
    and Z independent standard normal vectors of ``size + 1`` and ``size`` coordinates. Z are
    Box-Muller pairs; ``|H|`` is what ``_Length`` draws.

    Theorem 3 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    return rounded_gaussian(words, size, scale, _Length(words, size))


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
        """Arithmetic for refinement."""
        return arithmetic()

    def _estimate(self, uniforms: Array, logs: int) -> tuple[float, float]:
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

    for i in np.flatnonzero(~decided.all(axis=0)):
        context = None if length is None else length.context
        m[:, i] = refined(words, first[:, i].tolist(), decide, context)
    return m
