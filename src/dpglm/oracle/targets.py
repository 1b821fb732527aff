"""Bounded sums over targets and over single columns, and counts of them by size."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np

from dpglm._validation import Array, finite, like, namespace
from dpglm.data.rows import AnyArrays, Block, DataSpec, Kernel
from dpglm.oracle.counts import counted
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import RUN_ROWS, beside_constant, float_weights, sum_of, sum_over_rows
from dpglm.oracle.rounding import RowSum, norm_margin
from dpglm.privacy.releases import SumRelease
from dpglm.problem.loss import Loss


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
        """Bound on how far two rows' contributions oppose each other, see ``RowSum``.

        Privacy: the inner product of two contributions of weight 1 is at least ``mean t t' +
        weight``, with t and t' in [-1, 1].
        """
        return max(0.0, self.mean - self.weight)


@final
@dataclass(frozen=True, eq=False)
class TargetSums:
    """Released sums over targets, with the standard deviations of the noise."""

    total: float  # Of weighted targets in half ranges around the middle of their bounds.
    total_noise: float
    weight: float
    weight_noise: float
    counts: Array
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

    def block_sum(block: Block) -> Array:
        xp = namespace(block.targets)
        t = (xp.asarray(block.targets, dtype=xp.float64) - middle) / half
        t = xp.clip(t, -1.0, 1.0)
        weights = xp.ones_like(t) * float_weights(block)
        sums = xp.stack([xp.sum(weights * t), xp.sum(weights)])
        factors = [margin * math.sqrt(shares.mean), margin * math.sqrt(shares.weight)]
        sums = sums * xp.asarray(factors, dtype=xp.float64, device=sums.device)
        if not side:
            return cast("Array", sums)
        bins = xp.clip(xp.floor((t + 1.0) * (0.5 * side * side)), 0.0, side * side - 1.0)
        rows = xp.floor(bins / side)
        columns = bins - side * rows
        # Weighted counts of pairs of indices below ``side``, as a product of indicators.
        indices = xp.arange(side, dtype=xp.float64, device=rows.device)
        counts = xp.zeros((side, side), dtype=xp.float64, device=rows.device)
        for start in range(0, rows.shape[0], RUN_ROWS):
            run = slice(start, start + RUN_ROWS)
            high = xp.asarray(rows[run, None] == indices, dtype=xp.float64)
            low = xp.asarray(columns[run, None] == indices, dtype=xp.float64)
            counts = counts + high.T @ (low * weights[run, None])
        counts = counts * (margin * math.sqrt(shares.counts))
        return cast("Array", xp.concat([sums, xp.reshape(counts, (-1,))]))

    return AnyArrays(block_sum)


def target_sum(shares: TargetShares) -> RowSum:
    """Sum of ``target_sums``."""
    return RowSum(
        "target sum, weight and counts" if shares.side else "target sum and weight",
        2 + shares.side**2,
        directions=1,
        opposition=shares.opposition,
    )


def noisy_target_sums(oracle: Oracle, declared: SumRelease, shares: TargetShares) -> TargetSums:
    """Release the sum, the weight and the counts of targets."""
    spec = oracle.rows.spec
    values = target_sum(shares).noisy(oracle, declared, target_sums(spec, shares))
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


# Weighted means of the targets and of squared slopes, counts of targets by size; releases.

SIZES = "counts of targets by size"
"""Name of the release of ``noisy_target_sizes``."""
N_SIZES = 64
"""Size k is for targets above ``2^-(k+1)`` of a public bound, up to ``2^-k`` of it."""


def target_mean_sum(*, has_offset: bool) -> RowSum:
    """Sum of ``w_i (t_i, 1)``, or of ``w_i (t_i, u_i, 1)`` with offsets.

    t is the target mapped to [-1, 1], and u the same without the offset.

    Privacy: the inner product of two contributions of weight 1 is ``t t' + 1 >= 0``, or ``t t' +
    u u' + 1 >= -1``.
    """
    size = 3 if has_offset else 2
    return RowSum(
        "sums of targets and weights",
        size,
        math.sqrt(size),
        directions=1,
        opposition=1.0 / 3.0 if has_offset else 0.0,
    )


def noisy_target_means(
    oracle: Oracle, declared: SumRelease, low: float, *highs: float
) -> tuple[float, float, float]:
    """Release weighted means of the targets, clipped to [low, high], and the sum of weights.

    The first mean is that of the targets, the second that of targets without offsets; each may have
    a ``high`` of its own. They keep a standard deviation of noise away from the ends.
    """
    loss = oracle.loss  # Not the oracle with its rows: kernels travel to workers.
    n_kinds = declared.coordinates - 1
    ranges = [(low / 2.0 + high / 2.0, (high / 2.0 - low / 2.0) or 1.0) for high in highs]
    ranges = (ranges * n_kinds)[:n_kinds]

    def within(block: Block) -> Any:
        targets = float_targets(block)
        xp = namespace(targets)
        found = [
            xp.clip((kind - middle) / half, -1.0, 1.0)
            for kind, (middle, half) in zip(_kinds(loss, targets, n_kinds), ranges, strict=True)
        ]
        return xp.stack([*found, xp.ones_like(found[0])], axis=1)

    sums = target_mean_sum(has_offset=n_kinds == 2)
    *totals, weight = sums.noisy(oracle, declared, sum_over_rows(within)).tolist()
    weight = max(weight, declared.noise_std)
    noise = min(math.sqrt(2.0) * declared.noise_std / weight, 1.0)
    means = [
        middle + half * min(max(t / weight, noise - 1.0), 1.0 - noise)
        for t, (middle, half) in zip(totals, ranges, strict=True)
    ]
    return means[0], means[-1], weight


def target_size_sum(*, has_offset: bool) -> RowSum:
    """Weights of targets by size, of one or two kinds.

    Privacy: a row adds its weight to at most one size of each kind. No count is negative.
    """
    n_kinds = 1 + has_offset
    return RowSum(SIZES, n_kinds * N_SIZES, math.sqrt(n_kinds), directions=1, opposition=0.0)


def noisy_target_sizes(oracle: Oracle, declared: SumRelease, high: float) -> Array:
    """Release the weight of the targets of each size, largest first: shape (kinds, ``N_SIZES``).

    Sizes are those of magnitudes, at most ``high``. Zeros, and targets below the last size, are not
    counted. The second kind are targets without offsets.
    """
    loss = oracle.loss  # Not the oracle with its rows: kernels travel to workers.
    n_kinds = declared.coordinates // N_SIZES

    def sizes(block: Block) -> Any:
        targets = float_targets(block)
        xp = namespace(targets)
        found = []
        for kind in _kinds(loss, targets, n_kinds):
            below = xp.clip(xp.abs(kind) / high, 0.0, 1.0)
            ends = [2.0**-k for k in range(N_SIZES + 1)]
            found += [(below > low) & (below <= top) for top, low in itertools.pairwise(ends)]
        return xp.asarray(xp.stack(found, axis=1), dtype=xp.float64)

    counts = target_size_sum(has_offset=n_kinds == 2).noisy(oracle, declared, sum_over_rows(sizes))
    return counts.reshape(n_kinds, N_SIZES)


def _kinds(loss: Loss, targets: Array, count: int) -> list[Array]:
    """Return targets, and for two kinds those without offsets. Private."""
    # Offsets that are all zero are a column, too.
    kinds = [targets if targets.ndim == 1 else targets[:, 0]]
    return kinds if count == 1 else [*kinds, loss.targets_without_offset(targets)]


SQUARED_SLOPES = RowSum("squared slopes of the constant model", 1, directions=1, opposition=0.0)
"""A number from 0 to 1, times the weight, for each row."""


def noisy_squared_slope(
    oracle: Oracle, declared: SumRelease, score: float, most: float, weight: float
) -> float:
    """Release the weighted mean of ``min(|l'(score, y)|, most)^2``; ``weight`` is their sum.

    It is at least the noise's standard deviation.

    Privacy: in units of ``most^2`` a row contributes at most its weight.
    """
    loss = oracle.loss

    def squares(block: Block) -> Any:
        targets = float_targets(block)
        scores = namespace(targets).full_like(
            targets if targets.ndim == 1 else targets[:, 0], score
        )
        cut = namespace(targets).clip(finite(loss.slope(scores, targets)) / most, -1.0, 1.0)
        return (cut * cut)[:, None]

    total = SQUARED_SLOPES.noisy(oracle, declared, sum_over_rows(squares))
    return most**2 * min(max(float(total[0]), declared.noise_std) / weight, 1.0)


SLOPES = RowSum("clipped slopes", 1, directions=1)
"""A number from -1 to 1, times the weight, for each row."""


def noisy_mean_slope(oracle: Oracle, declared: SumRelease, w: Array, most: float) -> float:
    """Release the sum of slopes at ``w``, clipped at ``most`` and weighted, over the public n.

    Privacy: in units of ``most`` a row contributes at most its weight, for any ``w``.
    """
    loss = oracle.loss

    def cut(block: Block) -> Any:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = finite(loss.slope(block.predict(w), float_targets(block)))
            xp = namespace(slopes)
            shares = finite(xp.asarray(slopes, dtype=xp.float64) / most)
        return xp.clip(shares, -1.0, 1.0)[:, None]

    total = SLOPES.noisy(oracle, declared, sum_over_rows(cut))
    return most * float(total[0]) / oracle.rows.spec.n_rows


def float_targets(block: Block) -> Array:
    """Return a block's targets, as the loss wants them, in float64. Private."""
    xp = namespace(block.norms)
    targets: Array = xp.asarray(block.targets, dtype=xp.float64)
    return targets


# Sums of columns.


def column_sum(data: DataSpec) -> RowSum:
    """Return the sum of the entries of a row, of their squares, and of a constant.

    Privacy: entries are clipped to [-1, 1], so ``|x^2| <= |x| <= R``, the bound on rows, and a
    contribution of weight 1 has at most the squared norm ``2 R^2 + 1``. With ``t = x x'`` of an
    entry, the inner product of two is ``sum (t + t^2) + 1``. As ``t + t^2 >= -1/4`` and ``sum t >=
    -R^2``, it is at least ``1 - min(d / 4, R^2)``.
    """
    d, square = data.n_features, data.row_norm**2
    most = 2.0 * square + 1.0
    against = max(min(0.25 * d, square) - 1.0, 0.0) / most
    return RowSum("sums of columns", 2 * d + 1, math.sqrt(most), opposition=min(against, 1.0))


def noisy_columns(oracle: Oracle, declared: SumRelease) -> Array:
    """Release the sums of all columns, of their squares, and the weight of all rows."""
    spec, d = oracle.rows.spec, oracle.rows.spec.n_features

    def entries(block: Block) -> Any:
        rows = beside_constant(block, 1.0)
        xp = namespace(rows)
        rows[:, :d] = xp.clip(rows[:, :d], -1.0, 1.0)
        return xp.concat([rows[:, :d], rows[:, :d] ** 2, rows[:, d:]], axis=1)

    return column_sum(spec).noisy(oracle, declared, sum_over_rows(entries))


# Noisy counts of each column's entries by their distance from a public center.

N_NEAR = 10
"""Level k is for distances above ``2^-(k+1)`` of a unit, up to ``2^-k``; the first has all above,
the last all below."""


def near_sum(data: DataSpec) -> RowSum:
    """Return the sum of ``noisy_near_counts``.

    Privacy: a row adds its weight to one cell of each column, whatever the centers are; no count is
    negative.
    """
    size, most = 2 * N_NEAR * data.n_features, math.sqrt(data.n_features)
    return RowSum("counts of entries near their mean", size, most, directions=1, opposition=0.0)


def noisy_near_counts(oracle: Oracle, declared: SumRelease, centers: Array, unit: float) -> Array:
    """Release the weight of the rows at each distance, above and below: (N_NEAR, 2, n_features)."""
    spec = oracle.rows.spec

    def block_sum(block: Block) -> Array:
        x = beside_constant(block, 0.0)
        xp = namespace(x)
        x = (x - like(x, centers)) / unit
        far, is_above = xp.abs(x), x > 0.0
        weights = xp.ones_like(far[:, 0]) * float_weights(block)
        counts = []
        for k in range(N_NEAR):
            inside = far <= (2.0**-k if k else math.inf)
            inside = inside & (far > (2.0 ** -(k + 1) if k < N_NEAR - 1 else -1.0))
            for side in (is_above, ~is_above):
                cells = xp.asarray(inside & side, dtype=xp.float64)
                counts.append(sum_of(block, weights, cells))
        return cast("Array", xp.concat(counts, axis=-1))

    values = near_sum(spec).noisy(oracle, declared, AnyArrays(block_sum, apart=True))
    return values.reshape(N_NEAR, 2, spec.n_features)


# Noisy histograms of the orders of magnitude of each column's entries.

LEVELS = 40
"""Level l is for entries above ``2^-(l+1)`` of the row norm, up to ``2^-l`` of it."""


def magnitude_sum(data: DataSpec) -> RowSum:
    """Histograms of magnitudes, one for each column.

    Privacy: a row adds 1 to at most one level of each column, whatever its values are; no count is
    negative. Sums of whole numbers are exact. A row counts once, or not at all (``counted``).
    """
    return RowSum(
        "counts of magnitudes",
        data.n_features * LEVELS,
        math.sqrt(data.n_features),
        weighted=False,
        directions=1,
        opposition=0.0,
    )


def noisy_magnitudes(oracle: Oracle, declared: SumRelease) -> Array:
    """Release the histogram of each column's orders of magnitude, of shape (n_features, 40).

    Zeros, and entries too small for the last level, are not counted.
    """
    spec = oracle.rows.spec
    size = spec.n_features * LEVELS
    first = np.arange(spec.n_features) * LEVELS

    def block_counts(block: Block) -> Array:
        X = block.features()
        levels = -np.frexp(np.abs(X) / X.dtype.type(spec.row_norm))[1].astype(np.int64)
        seen = (X != 0) & (levels < LEVELS) & (counted(block) > 0.0)[:, np.newaxis]
        places = (first + np.maximum(levels, 0))[seen]
        return np.bincount(places, minlength=size).astype(np.float64)

    noisy = magnitude_sum(spec).noisy(oracle, declared, block_counts)
    return noisy.reshape(spec.n_features, LEVELS)
