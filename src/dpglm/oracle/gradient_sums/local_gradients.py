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
    """Declare gradient sums over ``count`` blocks of rows, each row with its own noise.

    ``noise.most_senders`` is the size of the largest block.
    """
    if data.groups is not None:
        raise ValueError(
            "groups must be None for 'local_sgd', where every row is protected by its own noise"
        )
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
    """Release the mean of one block's clipped gradients, each with Gaussian noise of its own.

    Privacy: ``declared.event`` for each row, also against whoever collects the messages. Here one
    noise vector with the law of the sum of their noises is drawn; where nobody may see rows, each
    device has to draw its own.
    """
    spec = oracle.rows.spec
    total = clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w, oracle.map_blocks)
    messages = Bounded(Messages(total, spec.n_rows), clipping.bound * spec.weight_bound)
    return oracle.curator.release(declared, messages) / spec.n_rows
