"""Weighted means of the targets and of squared slopes, counts of targets by size; releases."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, namespace
from dpglm.data.rows import AnyArrays, Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease
from dpglm.problem.loss import Loss

__all__ = [
    "N_SIZES",
    "SIZES",
    "noisy_squared_slope",
    "noisy_target_means",
    "noisy_target_sizes",
    "squared_slope_release",
    "target_mean_release",
    "target_size_release",
    "targets_and_weights",
]

SIZES = "counts of targets by size"
"""Name of the release of ``noisy_target_sizes``."""
N_SIZES = 64
"""Size k is for targets above ``2^-(k+1)`` of a public bound, up to ``2^-k`` of it."""


def target_mean_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism, *, has_offset: bool
) -> SumRelease:
    """Declare the release of ``sum w_i (t_i, 1)``, for targets t mapped to [-1, 1].

    Of rows with offsets it is that of ``sum w_i (t_i, u_i, 1)``, u being t without the offset.

    Privacy: the contribution bound is ``sqrt(2) data.weight_bound``, or sqrt(3) times it. The
    inner product of two contributions of weight 1 is ``t t' + 1 >= 0``, or ``t t' + u u' + 1 >=
    -1``. In float64.
    """
    coordinates = 3 if has_offset else 2
    return sum_release(
        "sums of targets and weights",
        data,
        adjacency,
        mechanism,
        bound=math.sqrt(coordinates) * data.weight_bound,
        coordinates=coordinates,
        directions=1,
        opposition=1.0 / 3.0 if has_offset else 0.0,
    )


def noisy_target_means(
    oracle: Oracle, declared: SumRelease, low: float, *highs: float
) -> tuple[float, float, float]:
    """Release weighted means of the targets, clipped to [low, high], and the sum of weights.

    The first mean is that of the targets, the second of what they would be without offsets; each
    may have a ``high`` of its own. They keep a standard deviation of noise away from the ends.
    """
    loss = oracle.loss  # Not the oracle with its rows: kernels travel to workers.
    n_kinds = declared.coordinates - 1
    ranges = [(low / 2.0 + high / 2.0, (high / 2.0 - low / 2.0) or 1.0) for high in highs]
    ranges = (ranges * n_kinds)[:n_kinds]

    def block_sum(block: Block) -> NDArray[np.float64]:
        targets, weights = targets_and_weights(block)
        xp = namespace(targets)
        within = [
            xp.clip((kind - middle) / half, -1.0, 1.0)
            for kind, (middle, half) in zip(_kinds(loss, targets, n_kinds), ranges, strict=True)
        ]
        sums: NDArray[np.float64] = xp.stack(
            [*((weights * t).sum() for t in within), weights.sum()]
        )
        return sums

    bound = math.sqrt(declared.coordinates) * oracle.rows.spec.weight_bound
    kernel = oracle.over_blocks(AnyArrays(block_sum), declared.coordinates)
    *totals, weight = oracle.noisy_sum(declared, kernel, bound).tolist()
    weight = max(weight, declared.noise_std)
    noise = min(math.sqrt(2.0) * declared.noise_std / weight, 1.0)
    means = [
        middle + half * min(max(t / weight, noise - 1.0), 1.0 - noise)
        for t, (middle, half) in zip(totals, ranges, strict=True)
    ]
    return means[0], means[-1], weight


def target_size_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism, *, has_offset: bool
) -> SumRelease:
    """Declare what ``noisy_target_sizes`` releases.

    Privacy: a row adds its weight to at most one size, whatever its target is, and to at most one
    more of targets without offsets: the contribution bound is ``data.weight_bound``, or sqrt(2)
    times it. No count is negative. In float64.
    """
    kinds = 2 if has_offset else 1
    return sum_release(
        SIZES,
        data,
        adjacency,
        mechanism,
        bound=math.sqrt(kinds) * data.weight_bound,
        coordinates=kinds * N_SIZES,
        directions=1,
        opposition=0.0,
    )


def noisy_target_sizes(oracle: Oracle, declared: SumRelease, high: float) -> NDArray[np.float64]:
    """Release the weight of the targets of each size, largest first: shape (kinds, ``N_SIZES``).

    A size is that of the magnitude, at most ``high``; zeros, and what is too small for the last
    size, are not counted. The second kind is what targets would be without offsets.
    """
    loss = oracle.loss  # Not the oracle with its rows: kernels travel to workers.
    n_kinds = declared.coordinates // N_SIZES

    def block_sum(block: Block) -> NDArray[np.float64]:
        targets, weights = targets_and_weights(block)
        xp = namespace(targets)
        sums = []
        for kind in _kinds(loss, targets, n_kinds):
            below = xp.clip(xp.abs(kind) / high, 0.0, 1.0)
            for k in range(N_SIZES):
                counted = (below > 2.0 ** -(k + 1)) & (below <= 2.0**-k)
                sums.append((weights * counted).sum())
        stacked: NDArray[np.float64] = xp.stack(sums)
        return stacked

    bound = math.sqrt(n_kinds) * oracle.rows.spec.weight_bound
    kernel = oracle.over_blocks(AnyArrays(block_sum), declared.coordinates)
    return oracle.noisy_sum(declared, kernel, bound).reshape(n_kinds, N_SIZES)


def _kinds(loss: Loss, targets: NDArray[np.float64], count: int) -> list[NDArray[np.float64]]:
    """Return targets and, of two kinds, what they would be without offsets. Private."""
    # Offsets that are all zero are a column, too.
    kinds = [targets if targets.ndim == 1 else targets[:, 0]]
    return kinds if count == 1 else [*kinds, loss.targets_without_offset(targets)]


def squared_slope_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism
) -> SumRelease:
    """Declare what ``noisy_squared_slope`` releases.

    Privacy: a number from 0 to ``data.weight_bound``.
    """
    return sum_release(
        "squared slopes of the constant model",
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=1,
        directions=1,
        opposition=0.0,
    )


def noisy_squared_slope(
    oracle: Oracle, declared: SumRelease, score: float, most: float, weight: float
) -> float:
    """Release the weighted mean of ``min(|l'(score, y)|, most)^2``; ``weight`` is their sum.

    It is at least the noise's standard deviation.

    Privacy: in units of ``most^2`` a row contributes at most its weight.
    """
    loss = oracle.loss

    def block_sum(block: Block) -> NDArray[np.float64]:
        targets, weights = targets_and_weights(block)
        xp = namespace(targets)
        slopes = finite(loss.slope(xp.full_like(weights, score), targets))
        cut = xp.clip(slopes / most, -1.0, 1.0)
        sums: NDArray[np.float64] = (weights * cut * cut).sum()[None]
        return sums

    kernel = oracle.over_blocks(AnyArrays(block_sum), 1)
    total = oracle.noisy_sum(declared, kernel, oracle.rows.spec.weight_bound)
    return most**2 * min(max(float(total[0]), declared.noise_std) / weight, 1.0)


def targets_and_weights(block: Block) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a block's targets, as the loss wants them, and weights, in float64. Private."""
    xp = namespace(block.norms)
    targets = xp.asarray(block.targets, dtype=xp.float64)
    if block.weights is None:
        return targets, xp.ones_like(block.norms, dtype=xp.float64)
    return targets, xp.asarray(block.weights, dtype=xp.float64)
