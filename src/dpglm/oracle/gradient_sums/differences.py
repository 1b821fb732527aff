"""The bounded sum of differences of row gradients between two public points, and its release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, weighted
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_slopes
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease
from dpglm.problem.loss import Loss

__all__ = ["clipped_difference_sum", "difference_release", "noisy_difference"]


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
        # Overflow is harmless: what is not finite is zeroed before it is clipped.
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
