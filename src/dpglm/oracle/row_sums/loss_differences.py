"""The bounded sum of loss differences between two public parameters, and its release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import SERIAL, Block, BlockMap, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease
from dpglm.problem.loss import Loss

__all__ = ["clipped_loss_difference_sum", "loss_difference_release", "noisy_loss_difference"]


def clipped_loss_difference_sum(
    rows: Rows,
    loss: Loss,
    bound: float,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum over rows of the loss at ``w`` minus that at ``anchor``, clipped; shape (1,). Private.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in absolute value, whatever
    its values and whatever ``w`` and ``anchor`` are: the clip acts on the computed difference, and
    one that is not a number counts as the bound.
    """

    def block_sum(block: Block) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            after = loss.value(block.predict(w), block.targets)
            before = loss.value(block.predict(anchor), block.targets)
            differences = np.subtract(after, before, dtype=np.float64)
        # A comparison with NaN is false.
        clipped = np.where(differences <= bound, np.maximum(differences, -bound), bound)
        if block.weights is not None:
            clipped *= block.weights
        return np.array([clipped.sum()])

    return rows.sum(block_sum, map_blocks, (1,))


def loss_difference_release(
    data: DataSpec, adjacency: Adjacency, bound: float, mechanism: SumMechanism
) -> SumRelease:
    """Declare the release of a sum of loss differences, each clipped to [-bound, bound].

    Privacy: values are added in float64, so ``sum_rounding`` holds for their sum, whatever the
    rows were stored as.
    """
    return sum_release(
        "clipped loss difference sum",
        data,
        adjacency,
        mechanism,
        bound=bound * data.weight_bound,
        coordinates=1,
    )


def noisy_loss_difference(
    oracle: Oracle,
    declared: SumRelease,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    bound: float,
) -> float:
    """Release the sum of clipped loss differences; negative where ``w`` seems better."""

    def kernel(rows: Rows) -> NDArray[np.float64]:
        return clipped_loss_difference_sum(rows, oracle.loss, bound, w, anchor, oracle.map_blocks)

    return float(oracle.noisy_sum(declared, kernel, bound * oracle.rows.spec.weight_bound)[0])
