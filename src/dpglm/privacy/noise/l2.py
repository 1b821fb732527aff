"""Noise for pure differential privacy, exact on floats: L2 (K-norm) and Laplace noise."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm.privacy.noise.exact.laplace import rounded_laplace
from dpglm.privacy.noise.exact.pairs import rounded_l2
from dpglm.privacy.noise.grid import add_on_grid
from dpglm.privacy.noise.source import NoiseSource

__all__ = ["add_l2_noise", "add_laplace"]


def add_l2_noise(
    value: ArrayLike, scale: float, granularity_exponent: int, source: NoiseSource
) -> NDArray[np.float64]:
    """Snap values to the grid ``2**k`` and add exactly rounded L2 noise on that grid.

    The noise ``b`` has a density proportional to ``exp(-|b| / scale)``, with the L2 norm over all m
    numbers of ``value``, whatever its shape. Its norm has the law Gamma(m, scale), its direction is
    uniform and independent; each coordinate has standard deviation ``scale sqrt(m + 1)``, and m = 1
    is Laplace noise. Ranges, and errors that callers rule out, are those of ``add_gaussian``.

    Privacy: exactly a post-processing of the ideal mechanism on the snapped value, hence pure
    ``D / scale``-differential privacy, with D the L2 sensitivity of ``value`` plus
    ``grid_sensitivity(m, k)``.

    References
    ----------
    Hardt and Talwar (2010), "On the geometry of differential privacy". Chaudhuri, Monteleoni
    and Sarwate (2011), "Differentially private empirical risk minimization", Algorithm 1.
    Theorem 3 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    draw = functools.partial(rounded_l2, source.words)
    return add_on_grid(value, scale, granularity_exponent, draw)


def add_laplace(
    value: ArrayLike, scale: float, granularity_exponent: int, source: NoiseSource
) -> NDArray[np.float64]:
    """Snap values to the grid ``2**k`` and add exactly rounded, independent Laplace noise on it.

    ``scale`` is the mean absolute value of the noise; all else as in ``add_l2_noise``.

    Privacy: exactly a post-processing of the ideal Laplace mechanism on the snapped value,
    hence pure ``D / scale``-differential privacy, with D the L1 sensitivity of ``value`` plus
    ``m * 2**k`` for m numbers: each moves by at most half a cell on either side.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), "Calibrating noise to sensitivity in private data
    analysis". Theorem 4 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    draw = functools.partial(rounded_laplace, source.words)
    return add_on_grid(value, scale, granularity_exponent, draw)
