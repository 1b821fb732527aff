"""Means of targets that are clipped at several bounds, of which a small mean needs a small one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.oracle.row_sums.target_means import targets_and_weights
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["clipped_target_release", "noisy_clipped_targets"]


def clipped_target_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism, *, count: int
) -> SumRelease:
    """Declare what ``noisy_clipped_targets`` releases for so many bounds.

    Privacy: a row contributes as many numbers within [0, 1], times its weight: the contribution
    bound is ``sqrt(count) data.weight_bound``, and none is negative. In float64.
    """
    return sum_release(
        "sums of clipped targets",
        data,
        adjacency,
        mechanism,
        bound=math.sqrt(count) * data.weight_bound,
        coordinates=count,
        directions=1,
        opposition=0.0,
    )


def noisy_clipped_targets(
    oracle: Oracle, declared: SumRelease, bounds: Sequence[float]
) -> NDArray[np.float64]:
    """Release the means of ``w_i min(y_i / b, 1)`` for bounds b above 0 and targets of at least 0.

    Offsets are taken out of targets, as far as they can be. ``clipped_target_release`` declares it.
    """
    loss = oracle.loss  # Not the oracle with its rows: kernels travel to workers.

    def block_sum(block: Block) -> NDArray[np.float64]:
        targets, weights = targets_and_weights(block)
        xp = namespace(targets)
        kept = targets if targets.ndim == 1 else loss.targets_without_offset(targets)
        sums = [(weights * xp.clip(kept / bound, 0.0, 1.0)).sum() for bound in bounds]
        stacked: NDArray[np.float64] = xp.stack(sums)
        return stacked

    bound = math.sqrt(declared.coordinates) * oracle.rows.spec.weight_bound
    kernel = oracle.over_blocks(AnyArrays(block_sum), declared.coordinates)
    return oracle.noisy_mean(declared, kernel, bound)
