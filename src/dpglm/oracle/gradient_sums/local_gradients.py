"""The sum of row gradients to which every row has added noise of its own."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import BoundedSum
from dpglm.privacy.noise.scales import NoiseScale, noise_scale

__all__ = ["locally_noised_gradient", "message_noise"]


def message_noise(
    data: DataSpec, adjacency: Adjacency, bound: float, noise_multiplier: float, most_rows: int
) -> NoiseScale:
    """Work out the noise that each row adds to its own clipped gradient.

    Parameters
    ----------
    data : DataSpec
        Public facts of the rows.
    adjacency : Adjacency
        The neighbouring relation.
    bound : float
        Bound on the norm of a message, weight included.
    noise_multiplier : float
        Standard deviation over sensitivity, above 0.
    most_rows : int
        Size of the largest block of rows whose messages are added up.

    Returns
    -------
    NoiseScale
    """
    block = dataclasses.replace(data, n_rows=most_rows)
    scale = noise_scale(
        adjacency,
        bound + sum_rounding(block, adjacency, bound),
        noise_multiplier,
        data.n_coefficients,
        sum_magnitude(block, adjacency, bound),
    )
    # The grid of one message holds the noise of all of them.
    summed = scale.times(math.sqrt(most_rows))
    return scale if math.isfinite(summed.std) else summed


def locally_noised_gradient(
    oracle: Oracle,
    w: NDArray[np.float64],
    clipping: Clipping,
    noise_multiplier: float,
    most_rows: int,
) -> NDArray[np.float64]:
    """Release the mean of the rows' clipped gradients, each with Gaussian noise of its own.

    Parameters
    ----------
    oracle : Oracle
        Answers for one block of rows.
    w : ndarray
        Where gradients are taken; public.
    clipping : Clipping
        Bounds the gradient of each row.
    noise_multiplier : float
        Standard deviation of the noise in one row's message over its sensitivity.
    most_rows : int
        Size of the largest block, for which rounding is bounded.

    Returns
    -------
    ndarray, shape of ``w``
        The noisy sum divided by the public number of rows in the block.

    Notes
    -----
    Privacy: ``Gaussian(noise_multiplier)`` for each row, also against whoever collects the
    messages. Here one noise vector with the law of the sum of their noises is drawn; where
    nobody may see rows, each device has to draw its own.
    """
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    block = dataclasses.replace(spec, n_rows=most_rows)
    bound = clipping.bound * spec.weight_bound
    total = BoundedSum(
        clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w, oracle.map_blocks),
        contribution_bound=bound,
        magnitude=sum_magnitude(block, adjacency, bound),
        rounding=sum_rounding(block, adjacency, bound),
    )
    return oracle.curator.release_local(total, noise_multiplier, spec.n_rows) / spec.n_rows
