"""Sums over the rows of a block: over all of them, or over those of each group."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import finite, namespace, weighted
from dpglm.data.groups import segment_sums
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, clipped_slopes, gradient_release
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import LocalGaussianNoise, Messages
from dpglm.privacy.releases import Bounded, Release, SumMechanism, SumRelease
from dpglm.problem.loss import Loss

RUN_ROWS = 1024
"""Rows that are added up before other runs' are, so that rounding is bounded."""


def sum_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i``, of shape (size,), or (groups, size) for a block of groups."""
    if block.starts is not None:
        return segment_sums(rows, factors, block.starts)
    xp = namespace(rows)
    total = xp.zeros(rows.shape[1], dtype=rows.dtype, device=rows.device)
    for start in range(0, rows.shape[0], RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        total = total + factors[run] @ rows[run]
    return total


def products_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i rows_i^T``, of shape (size, size), or one for each group."""
    xp, size = namespace(rows), rows.shape[1]
    roots = xp.sqrt(factors)[:, None]

    def products(start: int, stop: int) -> Any:
        # A product of a matrix with its own transpose costs half as much as another.
        scaled = rows[start:stop] * roots[start:stop]
        return scaled.T @ scaled

    if block.starts is not None:
        found: NDArray[np.float64] = np.empty((len(block.starts) - 1, size, size))
        for place, (start, stop) in enumerate(itertools.pairwise(block.starts)):
            found[place] = products(start, stop)
        return found
    total = xp.zeros((size, size), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        total += products(start, start + RUN_ROWS)
    return total


def crossed_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i^T``, of shape (K, size), or one for each group."""
    xp = namespace(rows)
    if block.starts is not None:
        return xp.stack([sum_of(block, column, rows) for column in factors.T], axis=1)
    total = xp.zeros((factors.shape[1], rows.shape[1]), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        total += factors[run].T @ rows[run]
    return total


# The bounded sum of differences of row gradients between two public points, and its release.


def clipped_difference_sum(
    rows: Rows,
    loss: Loss,
    clipping: Clipping,
    bound: float,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum over rows of the clipped gradient at ``w`` minus that at ``anchor``, clipped. Private.

    ``clipping`` bounds each of the two gradients of a row, ``bound`` their difference. Both
    gradients are multiples of the row (for K outputs: outer products with it), and so is their
    difference: all three clips rescale slopes.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in L2 norm, whatever its
    values and whatever ``w`` and ``anchor`` are: the last clip acts on the computed difference, so
    nothing rests on the smoothness of the loss or on the rounding of slopes. Slopes that
    overflowed count as zero.
    """
    difference_clipping = FlatClipping(bound)

    def block_sum(block: Block) -> NDArray[np.float64]:
        # Overflow is harmless: infinite values are zeroed before they are clipped.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = clipped_slopes(block, loss, clipping, w)
            slopes -= clipped_slopes(block, loss, clipping, anchor)
            slopes = difference_clipping.scale(finite(slopes), block.norms)
            slopes = weighted(slopes, block.weights)
        return block.weighted_sum(slopes)

    return rows.sum(AnyArrays(block_sum), map_blocks)


def difference_release(
    data: DataSpec,
    adjacency: Adjacency,
    bound: float,
    mechanism: SumMechanism,
    count: int = 1,
    sampling_rate: float = 1.0,
) -> SumRelease:
    """Declare the release of sums of differences of clipped gradients, each clipped to ``bound``.

    Privacy: noise is proportional to ``bound``, so the event does not depend on it; where
    ``bound`` is a function of earlier releases (such as the distance of the two parameters),
    composition is adaptive, which both exact Gaussian accounting and privacy loss distributions
    allow.
    """
    return sum_release(
        "gradient difference sum",
        data,
        adjacency,
        mechanism,
        bound=bound * data.weight_bound,
        coordinates=data.n_coefficients,
        count=count,
        sampling_rate=sampling_rate,
    )


def noisy_difference(
    oracle: Oracle,
    declared: SumRelease,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    clipping: Clipping,
    bound: float,
) -> NDArray[np.float64]:
    """Release the mean of ``clipped_difference_sum`` at two public parameters.

    Declared by ``difference_release`` with this ``bound``; the divisor is the public expected
    number of rows.
    """

    def kernel(rows: Rows) -> NDArray[np.float64]:
        return clipped_difference_sum(
            rows, oracle.loss, clipping, bound, w, anchor, oracle.map_blocks
        )

    return oracle.noisy_mean(declared, kernel, bound * oracle.rows.spec.weight_bound)


# The sum of row gradients to which every row has added noise of its own.

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
    noise vector with the law of the sum of their noises is drawn. Without a trusted aggregator,
    each device has to draw its own.
    """
    spec = oracle.rows.spec
    total = clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w, oracle.map_blocks)
    messages = Bounded(Messages(total, spec.n_rows), clipping.bound * spec.weight_bound)
    return oracle.curator.release(declared, messages) / spec.n_rows
