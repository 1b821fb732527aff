"""The sum of row gradients to which every row has added noise of its own."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import LocalGaussianNoise, Messages
from dpglm.privacy.releases import Bounded, Release

__all__ = ["LocalRelease", "local_gradient_release", "locally_noised_gradient"]

LocalRelease = Release[Messages, NDArray[np.float64]]


def local_gradient_release(
    data: DataSpec,
    adjacency: Adjacency,
    clipping: Clipping,
    noise: LocalGaussianNoise,
    count: int,
) -> LocalRelease:
    """Declare the release of gradient sums over blocks of rows, each row with its own noise.

    Parameters
    ----------
    data : DataSpec
        Public facts of all rows.
    adjacency : Adjacency
        The neighbouring relation.
    clipping : Clipping
        Bounds each message.
    noise : LocalGaussianNoise
        Its ``most_senders`` is the size of the largest block.
    count : int
        Number of blocks.

    Returns
    -------
    Release
    """
    return gradient_release(
        dataclasses.replace(data, n_rows=noise.most_senders),
        adjacency,
        clipping,
        noise,
        quantity="row gradient with noise of its own",
        count=count,
    )


def locally_noised_gradient(
    oracle: Oracle, declared: LocalRelease, w: NDArray[np.float64], clipping: Clipping
) -> NDArray[np.float64]:
    """Release the mean of the rows' clipped gradients, each with Gaussian noise of its own.

    Parameters
    ----------
    oracle : Oracle
        Answers for one block of rows.
    declared : Release
        Made by ``local_gradient_release``.
    w : ndarray
        Where gradients are taken; public.
    clipping : Clipping
        Bounds the gradient of each row.

    Returns
    -------
    ndarray, shape of ``w``
        The noisy sum divided by the public number of rows in the block.

    Notes
    -----
    Privacy: ``declared.event`` for each row, also against whoever collects the messages. Here
    one noise vector with the law of the sum of their noises is drawn; where nobody may see rows,
    each device has to draw its own.
    """
    spec = oracle.rows.spec
    total = clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w, oracle.map_blocks)
    messages = Bounded(Messages(total, spec.n_rows), clipping.bound * spec.weight_bound)
    return oracle.curator.release(declared, messages) / spec.n_rows
