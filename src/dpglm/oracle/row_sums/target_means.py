"""The mean of the targets, weighted, and its release."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["noisy_target_mean", "target_mean_release"]


def target_mean_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism
) -> SumRelease:
    """Declare the release of ``sum w_i (t_i, 1)``, for targets t mapped to [-1, 1].

    Privacy: the contribution bound is ``sqrt(2) data.weight_bound``. In float64.
    """
    return sum_release(
        "sums of targets and weights",
        data,
        adjacency,
        mechanism,
        bound=math.sqrt(2.0) * data.weight_bound,
        coordinates=2,
    )


def noisy_target_mean(
    oracle: Oracle, declared: SumRelease, low: float, high: float
) -> tuple[float, float]:
    """Release the weighted mean of the targets, clipped to [low, high], and its noise.

    The second number is the standard deviation of the noise; the mean keeps that far from the ends.
    """
    middle, half = low / 2.0 + high / 2.0, (high / 2.0 - low / 2.0) or 1.0

    def block_sum(block: Block) -> NDArray[np.float64]:
        xp = namespace(block.norms)
        targets = xp.asarray(block.targets, dtype=xp.float64)
        t = xp.clip((targets - middle) / half, -1.0, 1.0)
        weights = xp.ones_like(t)
        if block.weights is not None:
            weights = xp.asarray(block.weights, dtype=xp.float64)
        sums: NDArray[np.float64] = xp.stack([(weights * t).sum(), weights.sum()])
        return sums

    bound = math.sqrt(2.0) * oracle.rows.spec.weight_bound
    kernel = oracle.over_blocks(AnyArrays(block_sum), 2)
    total, weight = oracle.noisy_sum(declared, kernel, bound)
    weight = max(float(weight), declared.noise_std)
    noise = min(math.sqrt(2.0) * declared.noise_std / weight, 1.0)
    mean = min(max(float(total) / weight, noise - 1.0), 1.0 - noise)
    return middle + half * mean, half * noise
