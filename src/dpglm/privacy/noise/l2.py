"""Noise for pure differential privacy, exact on floats: L2 (K-norm) and Laplace noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm.privacy.noise.exact.l2 import rounded_l2
from dpglm.privacy.noise.exact.laplace import rounded_laplace
from dpglm.privacy.noise.grid import cells_per_scale, snapped_cells, value_of_cells
from dpglm.privacy.noise.source import NoiseSource

__all__ = ["add_l2_noise", "add_laplace"]


def add_l2_noise(
    value: ArrayLike, scale: float, granularity_exponent: int, source: NoiseSource
) -> NDArray[np.float64]:
    """Snap values to a grid and add exactly rounded L2 noise on that grid.

    Parameters
    ----------
    value : array_like of float64
        What to release, below ``grid_limit(granularity_exponent)`` in magnitude; of any
        shape, one vector of m numbers as far as noise goes.
    scale : float
        ``s``: the noise ``b`` has a density proportional to ``exp(-|b| / s)``, with the L2
        norm over all m numbers. From ``2**k`` to below ``2**(k + 32)``.
    granularity_exponent : int
        ``k``; the grid is the multiples of ``2**k``. ``granularity_exponent(scale)`` suits.
    source : NoiseSource
        Where the noise comes from.

    Returns
    -------
    ndarray of float64, shape of ``value``
        Multiples of ``2**k``.

    Raises
    ------
    ValueError
        If a value is not finite, or another argument is out of range.
    OverflowError
        If a value is 2^52 cells or more in magnitude.

    Notes
    -----
    The norm of the noise has the law Gamma(m, s), with mean ``m s``; its direction is uniform
    and independent of it. Each coordinate has standard deviation ``s sqrt(m + 1)``; m = 1 is
    Laplace noise.

    Privacy: exactly a post-processing of the ideal mechanism on the snapped value, hence pure
    ``D / s``-differential privacy, with D the L2 sensitivity of ``value`` plus
    ``grid_sensitivity(m, k)``. The two errors on ``value`` depend on private data, so callers
    rule them out beforehand (``grid_limit``).

    References
    ----------
    Hardt and Talwar (2010), "On the geometry of differential privacy". Chaudhuri, Monteleoni
    and Sarwate (2011), "Differentially private empirical risk minimization", Algorithm 1.
    Theorem 3 of ``docs/proofs/exact-choices-and-l2-noise.md``.

    Examples
    --------
    >>> from dpglm.privacy.noise import SeededNoise
    >>> noisy = add_l2_noise([0.1, 2.0], 1.0, -24, SeededNoise(0))
    >>> noisy * 2**24 % 1
    array([0., 0.])
    """
    cells = snapped_cells(value, granularity_exponent)
    scale = cells_per_scale("scale", scale, granularity_exponent)
    noise = rounded_l2(source.words, cells.size, scale) if cells.size else cells.reshape(-1)
    return value_of_cells(cells + noise.reshape(cells.shape), granularity_exponent)


def add_laplace(
    value: ArrayLike, scale: float, granularity_exponent: int, source: NoiseSource
) -> NDArray[np.float64]:
    """Snap values to a grid and add exactly rounded, independent Laplace noise on that grid.

    Parameters
    ----------
    value : array_like of float64
        What to release, below ``grid_limit(granularity_exponent)`` in magnitude.
    scale : float
        Mean absolute value of the noise, from ``2**k`` to below ``2**(k + 32)``.
    granularity_exponent : int
        ``k``; the grid is the multiples of ``2**k``. ``granularity_exponent(scale)`` suits.
    source : NoiseSource
        Where the noise comes from.

    Returns
    -------
    ndarray of float64, shape of ``value``
        Multiples of ``2**k``.

    Raises
    ------
    ValueError
        If a value is not finite, or another argument is out of range.
    OverflowError
        If a value is 2^52 cells or more in magnitude.

    Notes
    -----
    Privacy: exactly a post-processing of the ideal Laplace mechanism on the snapped value,
    hence pure ``D / scale``-differential privacy, with D the L1 sensitivity of ``value`` plus
    ``m * 2**k`` for m numbers: each moves by at most half a cell on either side. Errors as for
    ``add_l2_noise``.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), "Calibrating noise to sensitivity in private data
    analysis". Theorem 4 of ``docs/proofs/exact-choices-and-l2-noise.md``.

    Examples
    --------
    >>> from dpglm.privacy.noise import SeededNoise
    >>> noisy = add_laplace([0.1, 2.0], 1.0, -24, SeededNoise(0))
    >>> noisy * 2**24 % 1
    array([0., 0.])
    """
    cells = snapped_cells(value, granularity_exponent)
    scale = cells_per_scale("scale", scale, granularity_exponent)
    noise = rounded_laplace(source.words, cells.size, scale)
    return value_of_cells(cells + noise.reshape(cells.shape), granularity_exponent)
