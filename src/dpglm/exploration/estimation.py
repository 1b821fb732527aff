"""Descriptions: consistent counts, means, quantiles and correlations from released tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from dpglm._validation import Array
from dpglm.exploration.design import COUNTS, NUMBERS, PARTS, PRODUCTS, SQUARES, Design, Key, Pair
from dpglm.tables.described import CountedColumn
from dpglm.tabulate import (
    SHARE,
    Number,
    NumberScale,
    Ranks,
    ReleasedTables,
    Total,
    Whole,
    nearest_counts,
    nearest_table,
    number,
    pooled,
    whole_of,
)

_Numbers: TypeAlias = tuple[Number, ...]
_Table: TypeAlias = tuple[_Numbers, ...]
_Moments: TypeAlias = tuple[float, float, float, float, float]


@final
@dataclass(frozen=True, eq=False)
class ColumnDescription:
    """One column.

    Parameters
    ----------
    column : CountedColumn
        Its cells: categories, or bins of numbers with values below, above and missing.
    counts, shares : tuple of Number
        Rows in each cell, and their share of all rows; in the order of ``labels``.
    z : float
        Half width of intervals in standard deviations.
    mean, spread : Number or None
        Mean and standard deviation (root of the mean squared deviation) of the values that are
        present, clipped to the bounds. None for categories, and if the number of values cannot be
        distinguished from zero.
    quantiles : mapping from float to Number
        Quantiles of the same values; empty without a mean.
    ranks : Ranks or None
        Counts up to each edge, for further quantiles; None without a mean.
    """

    column: CountedColumn
    counts: _Numbers
    shares: _Numbers
    z: float
    mean: Number | None = None
    spread: Number | None = None
    quantiles: Mapping[float, Number] = dataclasses.field(default_factory=dict)
    ranks: Ranks | None = None

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the cells."""
        return self.column.labels

    @property
    def missing(self) -> Number | None:
        """Number of missing values; None if a category counts them."""
        place = self.column.missing
        return None if place is None else self.counts[place]

    def quantile(self, q: float) -> Number:
        """Return the quantile at ``q`` from 0 to 1, at no privacy cost.

        A ValueError says that the column is not numeric, or ``q`` is out of range.
        """
        if self.ranks is None:
            lack = (
                "its number of values cannot be distinguished from zero"
                if self.column.n_bins
                else "it is not numeric"
            )
            raise ValueError(f"column {self.name!r} does not have quantiles: {lack}")
        return self.ranks.quantile(q, self.z)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        cells = zip(self.labels, self.counts, self.shares, strict=True)
        document: dict[str, Any] = {
            "cells": [
                {"cell": label, "count": count.to_dict(), "share": share.to_dict()}
                for label, count, share in cells
            ]
        }
        if self.mean is not None and self.spread is not None:
            document["mean"] = self.mean.to_dict()
            document["standard deviation"] = self.spread.to_dict()
        if self.quantiles:
            document["quantiles"] = {f"{q:g}": one.to_dict() for q, one in self.quantiles.items()}
        return document


@final
@dataclass(frozen=True, eq=False)
class TwoWayTable:
    """Rows in each pair of cells of two columns.

    Parameters
    ----------
    columns : (str, str)
        Names of the columns.
    row_labels, column_labels : tuple of str
        Names of the cells of the first and the second column.
    counts, shares : tuple of tuple of Number
        ``counts[i][j]`` is the number of rows in cell i of the first and cell j of the second
        column; shares are relative to all rows.
    """

    columns: Pair
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    counts: tuple[_Numbers, ...]
    shares: tuple[_Numbers, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "columns": list(self.columns),
            "rows": list(self.row_labels),
            "across": list(self.column_labels),
            "counts": [[one.to_dict() for one in row] for row in self.counts],
            "shares": [[one.to_dict() for one in row] for row in self.shares],
        }


@final
@dataclass(frozen=True, eq=False)
class RowsDescription:
    """A description of all rows, or of those with one level of ``by``.

    Parameters
    ----------
    n_rows : Number
        Number of rows, which some neighbouring relations make public.
    columns : mapping from str to ColumnDescription
        Columns by name.
    two_way : mapping from (str, str) to TwoWayTable
        Two-way tables by the names of their columns.
    correlations : mapping from (str, str) to Number
        Pearson correlations of values clipped to the bounds. They assume that values of one column
        are missing independently of the other column.
    """

    n_rows: Number
    columns: Mapping[str, ColumnDescription]
    two_way: Mapping[Pair, TwoWayTable]
    correlations: Mapping[Pair, Number]

    def __getitem__(self, name: str) -> ColumnDescription:
        """Return a column by name."""
        return self.columns[name]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "n_rows": self.n_rows.to_dict(),
            "columns": {name: one.to_dict() for name, one in self.columns.items()},
            "two_way": [one.to_dict() for one in self.two_way.values()],
            "correlations": [
                {"columns": list(pair), **one.to_dict()} for pair, one in self.correlations.items()
            ],
        }


Counted: TypeAlias = tuple[Array, Array]
"""Counts of a column by level and cell, and the variances of the cells."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles that are shown."""

# A variance is divided by only if it exceeds its noise by this many standard deviations.
_CLEAR = 3.0


def estimated(
    design: Design, released: ReleasedTables[Key], z: float
) -> tuple[RowsDescription, ...]:
    """Return a description of the rows with each level of ``by``, or of all rows.

    Counts are reconciled by least squares: those of a column with those of parts of its cells, and
    totals of all columns with each other, with the sizes of levels and with the number of rows.
    Two-way tables are then moved to the counts of their columns. Intervals are based on these
    estimates, which are linear in the noise. The estimates shown are the nearest that are not
    negative and add up.
    """
    counts = {one.name: _counted(released, one) for one in design.described}
    totals = []
    for level in range(design.n_levels):
        estimates = [
            Total(float(values[level].sum()), float(variances.sum()))
            for values, variances in counts.values()
        ]
        if design.by is not None:
            size = float(released.tables[(COUNTS,)][level])
            estimates.insert(0, Total(size, _variance(released, COUNTS)))
        totals.append(pooled(estimates))
    values = np.array([one.value for one in totals])
    variances = np.array([one.variance for one in totals])
    if released.n_rows is None:
        nearest = np.maximum(values, 0.0)
    else:
        whole = whole_of(values, variances, Total(float(released.n_rows), 0.0))
        totals = [whole.cell(level) for level in range(design.n_levels)]
        nearest = nearest_counts(whole.values, variances, float(released.n_rows))
    return tuple(
        _Level(design, released, level, total, float(size), z).described(counts)
        for level, (total, size) in enumerate(zip(totals, nearest, strict=True))
    )


def _variance(released: ReleasedTables[Key], *key: str) -> float:
    return released.noise[key] ** 2


def _counted(released: ReleasedTables[Key], column: CountedColumn) -> Counted:
    """Return the counts of a column, pooled with those of the parts of its cells."""
    own, variance = released.tables[COUNTS, column.name], _variance(released, COUNTS, column.name)
    if (PARTS, column.name) not in released.tables:
        return own, np.full(column.n_cells, variance)
    divided, parts = column.divided, released.tables[PARTS, column.name]
    # A cell that is not divided has one part; its other parts contain noise only.
    sums = np.where(divided, parts.sum(axis=2), parts[:, :, 0])
    of_sum = np.where(divided, column.n_parts, 1) * _variance(released, PARTS, column.name)
    share = of_sum / (variance + of_sum)
    return share * own + (1.0 - share) * sums, share * variance


@final
@dataclass(frozen=True, eq=False)
class _Level:
    """Rows of one level: their number, and the nearest valid number."""

    design: Design
    released: ReleasedTables[Key]
    level: int
    total: Total
    nearest: float
    z: float

    def _table(self, *key: str) -> Array:
        table: Array = self.released.tables[key][self.level]
        return table

    def described(self, counts: Mapping[str, Counted]) -> RowsDescription:
        wholes, best, columns = {}, {}, {}
        for column in self.design.described:
            values, variances = counts[column.name]
            whole = whole_of(values[self.level], variances, self.total)
            wholes[column.name] = whole
            best[column.name] = nearest_counts(whole.values, variances, self.nearest)
            columns[column.name] = self._column(column, whole, best[column.name])
        n_rows = number(
            self.total.value, self.total.variance, self.z, NumberScale(0.0), estimate=self.nearest
        )
        two_way = {pair: self._two_way(pair, wholes, best) for pair in self.design.two_way}
        related = {pair: self._correlation(pair, wholes) for pair in self.design.correlations}
        return RowsDescription(n_rows, columns, two_way, related)

    @property
    def _size(self) -> float:
        """Number of rows, at least its noise: a denominator."""
        return max(self.total.value, math.sqrt(self.total.variance), 1.0)

    def _count(self, count: float, noise: float, best: float) -> Number:
        most = self.total.value if self.total.variance == 0.0 else math.inf
        return number(count, noise, self.z, NumberScale(0.0, most), estimate=best)

    def _share(self, count: float, noise: float, best: float) -> Number:
        n = self._size
        # Agresti and Coull's estimate: the sampling variance is positive for every share.
        p = (max(count, 0.0) + 0.5 * self.z**2) / (n + self.z**2)
        p = min(p, 1.0)
        return number(
            count / n,
            noise / n**2,
            self.z,
            SHARE,
            estimate=best / max(self.nearest, 1.0),
            sampling_variance=self.released.clustering * p * (1.0 - p) / n,
        )

    def _column(self, column: CountedColumn, whole: Whole, best: Array) -> ColumnDescription:
        counts, shares = [], []
        for place, unit in enumerate(np.eye(column.n_cells)):
            cell, nearest = whole.cell(place), float(best[place])
            counts.append(self._count(cell.value, cell.variance, nearest))
            p = cell.value / self._size
            shares.append(self._share(cell.value, whole.variance(unit - p), nearest))
        found = ColumnDescription(column, tuple(counts), tuple(shares), self.z)
        present = np.ones(column.n_cells)
        present[-1] = 0.0
        if not column.n_bins or float(present @ whole.values) <= _CLEAR * math.sqrt(
            whole.variance(present)
        ):
            # The number of present values cannot be distinguished from zero.
            return found
        ranks = self._ranks(column, whole, best)
        mean, spread = self._mean_and_spread(column, self._moments(column, whole), ranks)
        quantiles = {q: ranks.quantile(q, self.z) for q in QUANTILES}
        return dataclasses.replace(
            found, mean=mean, spread=spread, quantiles=quantiles, ranks=ranks
        )

    def _ranks(self, column: CountedColumn, whole: Whole, best: Array) -> Ranks:
        name, bins = column.name, column.bins
        if (PARTS, name) in self.design.cells:
            raw, variance = self._table(PARTS, name)[bins], _variance(self.released, PARTS, name)
        else:
            raw, variance = whole.values[bins, None], 0.0
        even = np.ones(column.n_parts)
        parts = [
            whole_of(one, even, whole.cell(place)).values
            for place, one in enumerate(raw, bins.start)
        ]
        within = [
            nearest_counts(one, even, total) for one, total in zip(parts, best[bins], strict=True)
        ]
        nearest = np.concatenate([[best[: bins.start].sum()], *within, [best[bins.stop]]])
        known = column.part_edges, whole, bins, np.array(parts), variance, nearest
        return Ranks(*known, self.released.clustering)

    def _moments(self, column: CountedColumn, whole: Whole) -> _Moments:
        """Return the number of values, mean and variance in [-1, 1], and the noise in both."""
        present = np.ones(column.n_cells)
        if column.n_bins:
            name = column.name
            present[-1] = 0.0
            n = _present(whole, present)
            total, squares = (float(self._table(kind, name)) for kind in (NUMBERS, SQUARES))
            noises = [_variance(self.released, kind, name) for kind in (NUMBERS, SQUARES)]
            mean, second = total / n, squares / n + 0.5
            of_count = whole.variance(present)
            slopes = (second - 0.5) - 2.0 * mean**2, -2.0 * mean
            noise = noises[1] + slopes[1] ** 2 * noises[0] + slopes[0] ** 2 * of_count
            of_mean = (noises[0] + mean**2 * of_count) / n**2
            return n, mean, second - mean**2, of_mean, noise / n**2
        # Two categories: moments follow from their counts.
        present[2:] = 0.0
        signs = np.zeros(column.n_cells)
        signs[:2] = -1.0, 1.0
        n = _present(whole, present)
        mean = float(signs @ whole.values) / n
        of_mean = whole.variance(signs - mean * present) / n**2
        return n, mean, 1.0 - mean**2, of_mean, 4.0 * mean**2 * of_mean

    def _mean_and_spread(
        self, column: CountedColumn, moments: _Moments, ranks: Ranks
    ) -> tuple[Number, Number]:
        n, center, squares, mean_noise, noise = moments
        # The variance in [-1, 1] is at most 1 - mean^2: use the plausible mean nearest to 0.
        nearest = max(abs(center) - self.z * math.sqrt(mean_noise), 0.0)
        most = max(1.0 - nearest**2, 0.0)
        variance = min(max(squares, 0.0), most)
        scale = NumberScale(-1.0, 1.0, column.half_range, column.center)
        clustering = self.released.clustering
        sampled = clustering * variance / n
        mean = number(center, mean_noise, self.z, scale, sampling_variance=sampled)
        # The variance of a sample variance is (fourth moment - variance^2) / n.
        middles = (0.5 * (ranks.edges[:-1] + ranks.edges[1:]) - column.center) / column.half_range
        points = np.concatenate([[-1.0], middles, [1.0]]) - center
        counted = ranks.nearest / max(float(ranks.nearest.sum()), 1.0)
        fourth = float(counted @ points**4)
        shown = None
        if column.n_bins and squares <= _CLEAR * math.sqrt(noise):
            # Sums do not tell it from zero: agree with the histogram, within the interval.
            about = float(counted @ (points + center))
            shown = float(counted @ (points + center - about) ** 2)
            shown = min(shown, max(squares + self.z * math.sqrt(noise), 0.0), most)
        squared = number(
            squares,
            noise,
            self.z,
            NumberScale(0.0, most),
            estimate=shown,
            sampling_variance=clustering * max(fourth - variance**2, 0.0) / n,
        )
        return mean, _root(squared, column.half_range)

    def _two_way(
        self, pair: Pair, wholes: Mapping[str, Whole], best: Mapping[str, Array]
    ) -> TwoWayTable:
        one, other = pair
        raw = self._table(COUNTS, one, other)
        variance = _variance(self.released, COUNTS, one, other)
        a, b = wholes[one], wholes[other]
        n_a, n_b = raw.shape
        moved = raw + (a.values - raw.sum(axis=1))[:, None] / n_b
        moved += (b.values - raw.sum(axis=0)) / n_a
        moved -= (self.total.value - raw.sum()) / (n_a * n_b)
        nearest = nearest_table(moved, best[one], best[other])

        def own(whole: Whole) -> tuple[Array, Array]:
            shares = whole.variances / whole.variances.sum()
            return shares, whole.variances * (1.0 - shares)

        (share_a, own_a), (share_b, own_b) = own(a), own(b)
        noise = variance * (1.0 - 1.0 / n_a) * (1.0 - 1.0 / n_b)
        noise = noise + own_a[:, None] / n_b**2 + own_b / n_a**2
        through = share_a[:, None] / n_b + share_b / n_a - 1.0 / (n_a * n_b)
        p = moved / self._size
        of_counts = noise + through**2 * self.total.variance
        of_shares = noise + (through - p) ** 2 * self.total.variance
        encoder = self.design.encoder

        def cells(made: Callable[[float, float, float], Number], variances: Array) -> _Table:
            rows = zip(moved.tolist(), variances.tolist(), nearest.tolist(), strict=True)
            return tuple(tuple(map(made, *of_row)) for of_row in rows)

        numbers = cells(self._count, of_counts), cells(self._share, of_shares)
        return TwoWayTable(pair, encoder[one].labels, encoder[other].labels, *numbers)

    def _correlation(self, pair: Pair, wholes: Mapping[str, Whole]) -> Number:
        encoder = self.design.encoder
        moments = np.array([self._moments(encoder[name], wholes[name]) for name in pair])
        present, means, variances, mean_noises, noises = moments.T
        if (variances <= _CLEAR * np.sqrt(noises)).any():
            # The variance of a column cannot be distinguished from zero.
            return Number(0.0, -1.0, 1.0, -1.0, 1.0)
        n = max(float(present.prod()) / self._size, 1.0)
        product = float(self._table(PRODUCTS, *pair))
        noise = _variance(self.released, PRODUCTS, *pair) / n**2
        spreads = math.sqrt(float(variances.prod()))
        r = (product / n - float(means.prod())) / spreads
        noise += float(means[::-1] ** 2 @ mean_noises)
        noise /= spreads**2
        noise += (0.5 * r) ** 2 * float((noises / variances**2).sum())
        inside = min(max(r, -1.0), 1.0)
        sampled = self.released.clustering * (1.0 - inside**2) ** 2 / n
        return number(r, noise, self.z, NumberScale(-1.0, 1.0), sampling_variance=sampled)


def _present(whole: Whole, present: Array) -> float:
    """Return the number of values, at least the noise in it: a denominator."""
    return max(float(present @ whole.values), math.sqrt(whole.variance(present)), 1.0)


def _root(squared: Number, factor: float) -> Number:
    """Return the square root of a number, in other units."""
    return Number(*(factor * math.sqrt(max(value, 0.0)) for value in vars(squared).values()))
