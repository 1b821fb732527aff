"""The grid on which values and their noise are added without rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import Array, check_integer, check_real
from dpglm.privacy.adjacency import Adjacency

# Every multiple m * 2^k with |m| <= 2^53 is a float64, and 2^(52 + k) does not overflow.
_LEAST_EXPONENT, _GREATEST_EXPONENT = -1074, 970
_LEAST_CELLS_LOG2, _GREATEST_CELLS_LOG2 = 0, 32
_CELLS_LOG2 = 24


def granularity_exponent(std: float) -> int:
    """Exponent ``k`` of the grid ``2**k`` that suits noise of a standard deviation.

    Parameters
    ----------
    std : float
        Standard deviation of the noise, above 0; from 2^-1050 to below 2^995.

    Returns
    -------
    int
        ``floor(log2(std)) - 24``, so that ``std`` is 2^24 to 2^25 cells.

    Raises
    ------
    ValueError
        If ``std`` is out of range.

    Notes
    -----
    Privacy: depends on the public ``std`` only.

    Examples
    --------
    >>> granularity_exponent(1.0), granularity_exponent(0.75)
    (-24, -25)
    """
    std = check_real("std", std, above=0.0, least=2.0**-1050, below=2.0**995)
    return math.frexp(std)[1] - 1 - _CELLS_LOG2


def grid_sensitivity(size: int, granularity_exponent: int) -> float:
    """Bound the effect of snapping to the grid on the L2 distance between two vectors.

    Parameters
    ----------
    size : int
        Number of coordinates, at least 0.
    granularity_exponent : int
        ``k``, from -1074 to 970.

    Returns
    -------
    float
        ``sqrt(size) * 2**k``, rounded up.

    Notes
    -----
    Privacy: add this to the sensitivity of values for ``add_gaussian``. Each coordinate moves by at
    most half a cell on either side.

    References
    ----------
    Lemma 2 of ``docs/proofs/exact-gaussian-noise.md``.

    Examples
    --------
    >>> round(grid_sensitivity(16, -2), 12)
    1.0
    """
    size = check_integer("size", size, least=0)
    return math.nextafter(math.ldexp(math.sqrt(size), _exponent(granularity_exponent)), math.inf)


def grid_limit(granularity_exponent: int) -> float:
    """Magnitude below which ``add_gaussian`` accepts values: 2^52 cells.

    Parameters
    ----------
    granularity_exponent : int
        ``k``, from -1074 to 970.

    Returns
    -------
    float
        ``2**(52 + k)``.

    Notes
    -----
    Privacy: an error that depends on private values is itself a release. Whoever knows a
    public bound on the values compares it with this limit before seeing any.

    Examples
    --------
    >>> grid_limit(-52)
    1.0
    """
    return math.ldexp(1.0, 52 + _exponent(granularity_exponent))


def cells_per_scale(name: str, scale: float, granularity_exponent: int) -> float:
    """Return ``scale / 2**k``, exactly, after checking that both are in range."""
    k = _exponent(granularity_exponent)
    scale = check_real(name, scale, above=0.0)
    if not _LEAST_CELLS_LOG2 < math.frexp(scale)[1] - k <= _GREATEST_CELLS_LOG2:
        raise ValueError(
            f"{name} must be from 2^{k + _LEAST_CELLS_LOG2} to below "
            f"2^{k + _GREATEST_CELLS_LOG2} for a grid of 2^{k}, got {scale!r}"
        )
    return math.ldexp(scale, -k)


def snapped_cells(value: ArrayLike, granularity_exponent: int) -> NDArray[np.int64]:
    """Nearest cells of the grid, after checking that all values are in range."""
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
        return np.asarray(np.rint(np.ldexp(array, -granularity_exponent)).astype(np.int64))


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
    cells = snapped_cells(value, granularity_exponent)
    per_scale = cells_per_scale(name, scale, granularity_exponent)
    noise = draw(cells.size, per_scale) if cells.size else cells
    noisy = cells + noise.reshape(cells.shape)
    return np.asarray(np.ldexp(noisy.astype(np.float64), granularity_exponent))


def _exponent(granularity_exponent: int) -> int:
    """Check the exponent of a grid."""
    k = check_integer("granularity_exponent", granularity_exponent, least=_LEAST_EXPONENT)
    if k > _GREATEST_EXPONENT:
        raise ValueError(
            f"granularity_exponent must be at most {_GREATEST_EXPONENT}, got {granularity_exponent}"
        )
    return k


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
        return _on_grid(factor * self.std, self.exponent)


def _on_grid(std: float, exponent: int) -> NoiseScale:
    fits = 1.0 <= std / math.ldexp(1.0, exponent) < _MOST_CELLS
    return NoiseScale(std if fits else math.inf, exponent)


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
    return _on_grid(noise_multiplier * snapped, exponent)


def pure_objective_epsilon(noise_multiplier: float, curvature_ratio: float) -> float:
    """Return the epsilon of the exact minimiser of an objective with an L2 linear term, rounded up.

    ``noise_multiplier`` is the scale of the term over the sensitivity of the gradient sum;
    ``curvature_ratio`` bounds one row's curvature over the strength of the quadratic penalty.

    Theorem 2 of ``docs/proofs/objective-perturbation.md``; compare Chaudhuri, Monteleoni and
    Sarwate, JMLR 2011, Theorem 9.
    """
    return (1.0 / noise_multiplier + math.log1p(curvature_ratio)) * (1.0 + 2.0**-50)
