"""From one noisy vector to consistent counts, means, quantiles and correlations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.exploration.design import COUNTS, NUMBERS, PARTS, PRODUCTS, SQUARES, Design, Pair
from dpglm.exploration.results import (
    ColumnDescription,
    GroupDescription,
    Number,
    Ranks,
    Scale,
    Total,
    TwoWayTable,
    Whole,
    nearest_counts,
    nearest_table,
    number,
    pooled,
    whole_of,
)
from dpglm.tables.described import CountedColumn

__all__ = ["QUANTILES", "estimated"]

_Floats: TypeAlias = NDArray[np.float64]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are shown."""

_SHARE = Scale(0.0, 1.0)
# A variance this many standard deviations above 0 may be divided by.
_CLEAR = 3.0


def estimated(
    design: Design,
    released: _Floats,
    noise_std: float,
    n_rows: int | None,
    z: float,
    clustering: float = 1.0,
) -> tuple[GroupDescription, ...]:
    """Describe each group from what was released; ``n_rows`` is None where it is private.

    Counts are reconciled by least squares: the counts of a column with those of their parts, the
    totals of all columns with each other, with the sizes of groups and with the number of rows.
    Tables of two columns are then moved to the columns' counts. Intervals rest on these estimates,
    which are linear in the noise; the numbers shown are the nearest that are not negative and add
    up. ``clustering`` bounds the factor by which rows that belong together raise variances of
    sampling.
    """
    reader = _Reader(design, released, noise_std, clustering)
    counts = {column.name: reader.counts(column) for column in design.described}
    totals = [
        pooled(
            [
                *([reader.size(g)] if design.by is not None else []),
                *(
                    Total(float(values[g].sum()), float(variances.sum()))
                    for values, variances in counts.values()
                ),
            ]
        )
        for g in range(design.n_levels)
    ]
    values = np.array([one.value for one in totals])
    variances = np.array([one.variance for one in totals])
    if n_rows is None:
        known = [*totals]
        nearest = np.maximum(values, 0.0)
    else:
        groups = whole_of(values, variances, Total(float(n_rows), 0.0))
        known = [groups.cell(g) for g in range(design.n_levels)]
        nearest = nearest_counts(groups.values, variances, float(n_rows))
    return tuple(
        _Group(reader, g, known[g], float(nearest[g]), z).described(counts)
        for g in range(design.n_levels)
    )


@final
@dataclass(frozen=True, eq=False)
class _Reader:
    """Parts of a released vector."""

    design: Design
    released: _Floats
    noise_std: float
    clustering: float

    def of(self, *key: str) -> _Floats:
        return self.design.read(self.released, *key)

    def variance(self, *key: str) -> float:
        return self.design.variance(self.noise_std, *key)

    def size(self, group: int) -> Total:
        return Total(float(self.of(COUNTS)[group]), self.variance(COUNTS))

    def counts(self, column: CountedColumn) -> tuple[_Floats, _Floats]:
        """Return counts of shape (groups, cells), pooled with those of parts, and variances."""
        own, variance = self.of(COUNTS, column.name), self.variance(COUNTS, column.name)
        if not self.design.has(PARTS, column.name):
            return own, np.full(column.n_cells, variance)
        divided = column.divided
        parts, of_part = self.of(PARTS, column.name), self.variance(PARTS, column.name)
        # A cell that is not divided has one part, and what is in the others is noise.
        sums = np.where(divided, parts.sum(axis=2), parts[:, :, 0])
        of_sum = np.where(divided, column.n_parts, 1) * of_part
        share = of_sum / (variance + of_sum)
        return share * own + (1.0 - share) * sums, share * variance


@final
@dataclass(frozen=True, eq=False)
class _Moments:
    """Mean and variance of x, within [-1, 1], and what the noise in them consists of.

    ``noise`` and ``slopes`` are the variance of the count of values, of the sum of x and of that
    of x^2, and how the variance of x follows from each.
    """

    present: float
    mean: float
    variance: float
    mean_noise: float
    variance_noise: float


@final
@dataclass(frozen=True, eq=False)
class _Group:
    """One group while it is described."""

    reader: _Reader
    place: int
    total: Total
    nearest: float
    z: float

    def described(self, counts: dict[str, tuple[_Floats, _Floats]]) -> GroupDescription:
        wholes, best, columns = {}, {}, {}
        for column in self.reader.design.described:
            values, variances = counts[column.name]
            whole = whole_of(values[self.place], variances, self.total)
            wholes[column.name] = whole
            best[column.name] = nearest_counts(whole.values, variances, self.nearest)
            columns[column.name] = self._column(column, whole, best[column.name])
        n_rows = number(
            self.total.value,
            self.total.variance,
            self.z,
            Scale(0.0),
            estimate=self.nearest,
        )
        design = self.reader.design
        two_way = {pair: self._two_way(pair, wholes, best) for pair in design.two_way}
        related = {pair: self._correlation(pair, wholes) for pair in design.correlations}
        return GroupDescription(n_rows, columns, two_way, related)

    @property
    def _size(self) -> float:
        """Number of rows to divide by."""
        return max(self.total.value, math.sqrt(self.total.variance), 1.0)

    def _share(self, count: float, noise: float, best: float) -> Number:
        n = self._size
        # Agresti and Coull's: no share is so sure that sampling adds nothing.
        p = (max(count, 0.0) + 0.5 * self.z**2) / (n + self.z**2)
        p = min(p, 1.0)
        return number(
            count / n,
            noise / n**2,
            self.z,
            _SHARE,
            estimate=best / max(self.nearest, 1.0),
            sampling_variance=self.reader.clustering * p * (1.0 - p) / n,
        )

    def _column(self, column: CountedColumn, whole: Whole, best: _Floats) -> ColumnDescription:
        counts, shares = [], []
        for place, unit in enumerate(np.eye(column.n_cells)):
            cell = whole.cell(place)
            counts.append(
                number(cell.value, cell.variance, self.z, self._range, estimate=float(best[place]))
            )
            p = cell.value / self._size
            shares.append(self._share(cell.value, whole.variance(unit - p), float(best[place])))
        if not column.n_bins:
            return ColumnDescription(
                column, tuple(counts), tuple(shares), None, None, {}, None, self.z
            )
        values = np.ones(column.n_cells)
        values[-1] = 0.0
        if float(values @ whole.values) <= _CLEAR * math.sqrt(whole.variance(values)):
            # All may be missing: the noise hides whether there are values to take the mean of.
            return ColumnDescription(
                column, tuple(counts), tuple(shares), None, None, {}, None, self.z
            )
        ranks = self._ranks(column, whole, best)
        mean, spread = self._mean_and_spread(column, self._moments(column, whole), ranks)
        return ColumnDescription(
            column,
            tuple(counts),
            tuple(shares),
            mean,
            spread,
            {q: ranks.quantile(q, self.z) for q in QUANTILES},
            ranks,
            self.z,
        )

    @property
    def _range(self) -> Scale:
        return Scale(0.0, self.total.value if self.total.variance == 0.0 else math.inf)

    def _ranks(self, column: CountedColumn, whole: Whole, best: _Floats) -> Ranks:
        name, bins = column.name, column.bins
        if self.reader.design.has(PARTS, name):
            parts, variance = self.reader.of(PARTS, name), self.reader.variance(PARTS, name)
            raw = parts[self.place, bins]
        else:
            raw, variance = whole.values[bins, None], 0.0
        even = np.ones(column.n_parts)
        moved = np.array(
            [
                whole_of(one, even, whole.cell(place)).values
                for place, one in enumerate(raw, bins.start)
            ]
        )
        nearest = [
            nearest_counts(one, even, total) for one, total in zip(moved, best[bins], strict=True)
        ]
        below, above = best[: bins.start].sum(), best[bins.stop]
        return Ranks(
            column.part_edges,
            whole,
            bins,
            moved,
            variance,
            np.concatenate([[below], *nearest, [above]]),
            self.reader.clustering,
        )

    def _moments(self, column: CountedColumn, whole: Whole) -> _Moments:
        present = np.ones(column.n_cells)
        if column.n_bins:
            name = column.name
            present[-1] = 0.0
            n = max(float(present @ whole.values), self._least(whole, present))
            total = float(self.reader.of(NUMBERS, name)[self.place])
            squares = float(self.reader.of(SQUARES, name)[self.place])
            noises = self.reader.variance(NUMBERS, name), self.reader.variance(SQUARES, name)
            mean, second = total / n, squares / n + 0.5
            of_count = whole.variance(present)
            slopes = (second - 0.5) - 2.0 * mean**2, -2.0 * mean
            noise = noises[1] + slopes[1] ** 2 * noises[0] + slopes[0] ** 2 * of_count
            return _Moments(
                n,
                mean,
                second - mean**2,
                (noises[0] + mean**2 * of_count) / n**2,
                noise / n**2,
            )
        # Of two levels, all follows from their counts.
        present[2:] = 0.0
        signs = np.zeros(column.n_cells)
        signs[:2] = -1.0, 1.0
        n = max(float(present @ whole.values), self._least(whole, present))
        mean = float(signs @ whole.values) / n
        of_mean = whole.variance(signs - mean * present) / n**2
        return _Moments(n, mean, 1.0 - mean**2, of_mean, 4.0 * mean**2 * of_mean)

    @staticmethod
    def _least(whole: Whole, present: _Floats) -> float:
        """Return the least number of values to divide by: the noise in it."""
        return max(math.sqrt(whole.variance(present)), 1.0)

    def _mean_and_spread(
        self, column: CountedColumn, moments: _Moments, ranks: Ranks
    ) -> tuple[Number, Number]:
        n = moments.present
        # A number within [-1, 1] varies most around 0: the mean nearest to it that may be right.
        nearest = max(abs(moments.mean) - self.z * math.sqrt(moments.mean_noise), 0.0)
        most = max(1.0 - nearest**2, 0.0)
        variance = min(max(moments.variance, 0.0), most)
        scale = Scale(-1.0, 1.0, column.half_range, column.center)
        clustering = self.reader.clustering
        sampled = clustering * variance / n
        mean = number(moments.mean, moments.mean_noise, self.z, scale, sampling_variance=sampled)
        # The variance of a sample variance is (fourth moment - variance^2) / n.
        middles = (0.5 * (ranks.edges[:-1] + ranks.edges[1:]) - column.center) / column.half_range
        points = np.concatenate([[-1.0], middles, [1.0]]) - moments.mean
        fourth = float(ranks.nearest @ points**4) / max(float(ranks.nearest.sum()), 1.0)
        squared = number(
            moments.variance,
            moments.variance_noise,
            self.z,
            Scale(0.0, most),
            sampling_variance=clustering * max(fourth - variance**2, 0.0) / n,
        )
        return mean, _root(squared, column.half_range)

    def _two_way(
        self, pair: Pair, wholes: dict[str, Whole], best: dict[str, _Floats]
    ) -> TwoWayTable:
        one, other = pair
        raw = self.reader.of(COUNTS, one, other)[self.place]
        variance = self.reader.variance(COUNTS, one, other)
        a, b = wholes[one], wholes[other]
        n_a, n_b = raw.shape
        moved = raw + (a.values - raw.sum(axis=1))[:, None] / n_b
        moved += (b.values - raw.sum(axis=0)) / n_a
        moved -= (self.total.value - raw.sum()) / (n_a * n_b)
        nearest = nearest_table(moved, best[one], best[other])

        def own(whole: Whole) -> tuple[_Floats, _Floats]:
            shares = whole.variances / whole.variances.sum()
            return shares, whole.variances * (1.0 - shares)

        (share_a, own_a), (share_b, own_b) = own(a), own(b)
        noise = variance * (1.0 - 1.0 / n_a) * (1.0 - 1.0 / n_b)
        noise = noise + own_a[:, None] / n_b**2 + own_b / n_a**2
        through = share_a[:, None] / n_b + share_b / n_a - 1.0 / (n_a * n_b)
        p = moved / self._size
        of_counts = noise + through**2 * self.total.variance
        of_shares = noise + (through - p) ** 2 * self.total.variance
        encoder = self.reader.design.encoder
        return TwoWayTable(
            pair,
            encoder[one].labels,
            encoder[other].labels,
            tuple(
                tuple(
                    number(m, v, self.z, self._range, estimate=float(e))
                    for m, v, e in zip(*of_row, strict=True)
                )
                for of_row in zip(moved.tolist(), of_counts.tolist(), nearest, strict=True)
            ),
            tuple(
                tuple(self._share(m, v, float(e)) for m, v, e in zip(*of_row, strict=True))
                for of_row in zip(moved.tolist(), of_shares.tolist(), nearest, strict=True)
            ),
        )

    def _correlation(self, pair: Pair, wholes: dict[str, Whole]) -> Number:
        encoder = self.reader.design.encoder
        a, b = (self._moments(encoder[name], wholes[name]) for name in pair)
        for one in (a, b):
            if one.variance <= _CLEAR * math.sqrt(one.variance_noise):
                # Nobody can say: the noise hides how much the column varies.
                return Number(0.0, -1.0, 1.0, -1.0, 1.0)
        n = max(a.present * b.present / self._size, 1.0)
        product = float(self.reader.of(PRODUCTS, *pair)[self.place])
        noise = self.reader.variance(PRODUCTS, *pair) / n**2
        covariance, spreads = product / n - a.mean * b.mean, math.sqrt(a.variance * b.variance)
        r = covariance / spreads
        noise += b.mean**2 * a.mean_noise + a.mean**2 * b.mean_noise
        noise /= spreads**2
        noise += (0.5 * r) ** 2 * (
            a.variance_noise / a.variance**2 + b.variance_noise / b.variance**2
        )
        inside = min(max(r, -1.0), 1.0)
        sampled = self.reader.clustering * (1.0 - inside**2) ** 2 / n
        return number(r, noise, self.z, Scale(-1.0, 1.0), sampling_variance=sampled)


def _root(squared: Number, factor: float) -> Number:
    """Take the root of every part of a number."""
    return Number(*(factor * math.sqrt(max(value, 0.0)) for value in vars(squared).values()))
