"""How often the entries of each column are of which order of magnitude, with noise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Block
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.curator import BoundedSum

__all__ = ["LEVELS", "magnitude_bound", "noisy_magnitudes"]

LEVELS = 40
"""Level l is for entries above ``2^-(l+1)`` of the row norm, up to ``2^-l`` of it."""


def magnitude_bound(n_features: int) -> float:
    """Bound the L2 norm of a row's contribution: one level for each column."""
    return math.sqrt(n_features)


def noisy_magnitudes(oracle: Oracle, noise_multiplier: float) -> NDArray[np.float64]:
    """Release how many entries of each column are of each order of magnitude.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    noise_multiplier : float
        Noise standard deviation over the sensitivity of all counts together.

    Returns
    -------
    ndarray of shape (n_features, 40)
        Zeros, and entries too small for the last level, are counted nowhere.

    Notes
    -----
    Privacy: one ``Gaussian(noise_multiplier)``; a row adds 1 to at most one level of each
    column, so it contributes at most ``sqrt(n_features)``, whatever its values are. Sums of
    whole numbers are exact. Weights are left out.
    """
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    size = spec.n_features * LEVELS
    first = np.arange(spec.n_features) * LEVELS

    def block_counts(block: Block) -> NDArray[np.float64]:
        X = block.features()
        levels = -np.frexp(np.abs(X) / X.dtype.type(spec.row_norm))[1].astype(np.int64)
        counted = (X != 0) & (levels < LEVELS)
        places = (first + np.maximum(levels, 0))[counted]
        return np.bincount(places, minlength=size).astype(np.float64)

    bound = magnitude_bound(spec.n_features)
    total = BoundedSum(
        oracle.rows.sum(block_counts, oracle.map_blocks, (size,)),
        contribution_bound=bound,
        magnitude=sum_magnitude(spec, adjacency, bound),
        rounding=sum_rounding(spec, adjacency, bound),
    )
    noisy = oracle.curator.release_gaussian(total, noise_multiplier)
    return noisy.reshape(spec.n_features, LEVELS)
