"""The sum of clipped row gradients, released with L2 noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.curator import BoundedSum

__all__ = ["pure_noisy_gradient"]


def pure_noisy_gradient(
    oracle: Oracle, w: NDArray[np.float64], clipping: Clipping, epsilon: float
) -> NDArray[np.float64]:
    """Release the mean clipped gradient of all rows with L2 noise.

    Parameters
    ----------
    oracle : Oracle
        Answers for the rows.
    w : ndarray
        Where gradients are taken; public.
    clipping : Clipping
        Bounds the gradient of each row.
    epsilon : float
        What the release costs.

    Returns
    -------
    ndarray, shape of ``w``
        The noisy sum divided by the public number of rows.

    Notes
    -----
    Privacy: one ``Pure(epsilon)``.
    """
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    bound = clipping.bound * spec.weight_bound
    total = BoundedSum(
        clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w, oracle.map_blocks),
        contribution_bound=bound,
        magnitude=sum_magnitude(spec, adjacency, bound),
        rounding=sum_rounding(spec, adjacency, bound),
    )
    return oracle.curator.release_l2(total, epsilon) / spec.n_rows
