"""Bounded sums over targets: their sum, their weight and their counts in bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import norm_margin, sum_release
from dpglm.oracle.row_sums.moments import float_weights
from dpglm.oracle.unit_sums import RUN_ROWS
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["TargetShares", "TargetSums", "noisy_target_sums", "target_release", "target_sums"]


@final
@dataclass(frozen=True)
class TargetShares:
    """How one release of targets is divided; the shares sum to at most 1."""

    mean: float
    weight: float
    counts: float
    side: int  # There are side^2 bins; 0 for none.

    @property
    def opposition(self) -> float:
        """Bound on how far two rows' contributions oppose each other, see ``sum_release``.

        Privacy: the inner product of two contributions of weight 1 is at least ``mean t t' +
        weight``, with t and t' in [-1, 1].
        """
        return max(0.0, self.mean - self.weight)


@final
@dataclass(frozen=True, eq=False)
class TargetSums:
    """What was released of the targets, with the standard deviations of the noise."""

    total: float  # Of weighted targets in half ranges around the middle of their bounds.
    total_noise: float
    weight: float
    weight_noise: float
    counts: NDArray[np.float64]
    count_noise: float


def target_sums(spec: DataSpec, shares: TargetShares) -> Kernel:
    """Return the kernel that sums ``(t, 1, one-hot bin of t)`` by shares, weighted.

    t is the target, clipped to its (finite) bounds, in half ranges around their middle, so that
    it is in [-1, 1].

    Privacy: the three parts of a row are no longer than 1, so with the square roots of their
    shares as factors a row contributes at most ``spec.weight_bound`` in L2 norm.
    """
    middle = 0.5 * spec.target_low + 0.5 * spec.target_high
    half = 0.5 * spec.target_high - 0.5 * spec.target_low or 1.0
    side = shares.side
    margin = norm_margin(2)

    def block_sum(block: Block) -> NDArray[np.float64]:
        xp = namespace(block.targets)
        t = (xp.asarray(block.targets, dtype=xp.float64) - middle) / half
        t = xp.clip(t, -1.0, 1.0)
        weights = xp.ones_like(t) * float_weights(block)
        sums = xp.stack([xp.sum(weights * t), xp.sum(weights)])
        factors = [margin * math.sqrt(shares.mean), margin * math.sqrt(shares.weight)]
        sums = sums * xp.asarray(factors, dtype=xp.float64, device=sums.device)
        if not side:
            return cast("NDArray[np.float64]", sums)
        bins = xp.clip(xp.floor((t + 1.0) * (0.5 * side * side)), 0.0, side * side - 1.0)
        rows = xp.floor(bins / side)
        counts = _crossed(xp, rows, bins - side * rows, weights, side)
        counts = counts * (margin * math.sqrt(shares.counts))
        return cast("NDArray[np.float64]", xp.concat([sums, xp.reshape(counts, (-1,))]))

    return AnyArrays(block_sum)


def target_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism, shares: TargetShares
) -> SumRelease:
    """Declare the release that ``noisy_target_sums`` makes.

    Privacy: the contribution bound is ``data.weight_bound``, and ``TargetShares.opposition`` bounds
    inner products. Sums are taken in float64 over
    blocks no longer than ``sum_rounding`` assumes, counts in runs of 1024 rows.
    """
    return sum_release(
        "target sum, weight and counts" if shares.side else "target sum and weight",
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=2 + shares.side**2,
        directions=1,
        opposition=shares.opposition,
    )


def noisy_target_sums(oracle: Oracle, declared: SumRelease, shares: TargetShares) -> TargetSums:
    """Release the sum, the weight and the counts of targets."""
    spec = oracle.rows.spec
    total = oracle.over_blocks(target_sums(spec, shares), declared.coordinates)
    values = oracle.noisy_sum(declared, total, spec.weight_bound)
    noise = declared.noise_std

    def over(share: float) -> float:
        return math.sqrt(share) if share > 0.0 else 1.0

    return TargetSums(
        float(values[0]) / over(shares.mean),
        noise / over(shares.mean),
        float(values[1]) / over(shares.weight),
        noise / over(shares.weight),
        values[2:] / over(shares.counts),
        noise / over(shares.counts),
    )


def _crossed(xp: Any, rows: Any, columns: Any, weights: Any, side: int) -> Any:
    """Weighted counts of pairs of indices below ``side``, as a product of indicators."""
    indices = xp.arange(side, dtype=xp.float64, device=rows.device)
    total = xp.zeros((side, side), dtype=xp.float64, device=rows.device)
    for start in range(0, rows.shape[0], RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        high = xp.asarray(rows[run, None] == indices, dtype=xp.float64)
        low = xp.asarray(columns[run, None] == indices, dtype=xp.float64)
        total = total + high.T @ (low * weights[run, None])
    return total
