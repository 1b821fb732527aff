"""The bounded sum of rows around a public point, and its release as a noisy mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Block
from dpglm.oracle.choices.distances import centered_rows, row_lengths
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.curator import BoundedSum

__all__ = ["noisy_clipped_mean"]


def noisy_clipped_mean(
    oracle: Oracle, center: NDArray[np.float64], radius: float, noise_multiplier: float
) -> NDArray[np.float64]:
    """Release the mean of the rows, those far from a point moved towards it.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    center : ndarray of shape (n_features,)
        The point; public.
    radius : float
        Rows further away are moved to this distance; public, above 0.
    noise_multiplier : float
        Noise standard deviation over the sensitivity of the sum.

    Returns
    -------
    ndarray of shape (n_features,)

    Notes
    -----
    Privacy: one ``Gaussian(noise_multiplier)`` about the sum of ``(x - center) / radius``, each
    scaled down to length 1 with a margin for what its computed length can err; so a row
    contributes at most 1 whatever the center and the radius are. Computed in float64, in blocks
    no longer than those that ``sum_rounding`` counts on. Weights are left out.
    """
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    margin = 1.0 - 4.0 * (spec.n_features + 16) * float(np.finfo(np.float64).eps)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z = centered_rows(block, center)
        z *= (margin / np.maximum(row_lengths(z), radius))[:, np.newaxis]
        total: NDArray[np.float64] = z.sum(axis=0)
        return total

    total = BoundedSum(
        oracle.rows.sum(block_sum, oracle.map_blocks, (spec.n_features,)),
        contribution_bound=1.0,
        magnitude=sum_magnitude(spec, adjacency, 1.0),
        rounding=sum_rounding(spec, adjacency, 1.0),
    )
    mean = oracle.curator.release_gaussian(total, noise_multiplier) / spec.n_rows
    return np.asarray(center + radius * mean)
