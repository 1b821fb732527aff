"""What a description says of the rows: columns, pairs of columns, groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dpglm._validation import check_real
from dpglm.exploration.design import Pair
from dpglm.tables.described import CountedColumn

# Least squares for counts that must add up, and the nearest ones that are not negative.

_Floats: TypeAlias = NDArray[np.float64]
_MOST_ROUNDS, _CLOSE = 500, 1e-9


@final
@dataclass(frozen=True, eq=False)
class Total:
    """An estimate of one number, and its variance; a variance of 0 says that it is known."""

    value: float
    variance: float


def pooled(estimates: list[Total]) -> Total:
    """Combine independent estimates of one number by their precisions.

    >>> pooled([Total(1.0, 1.0), Total(4.0, 2.0)])
    Total(value=2.0, variance=0.6666666666666666)
    """
    precisions = np.array([1.0 / one.variance for one in estimates])
    values = np.array([one.value for one in estimates])
    variance = float(1.0 / precisions.sum())
    return Total(float(variance * (precisions @ values)), variance)


@final
@dataclass(frozen=True, eq=False)
class Whole:
    """Parts of a whole by least squares: independent estimates, moved so that they add up.

    ``values`` are the moved estimates, ``variances`` those before. The whole is estimated from
    these parts and from others, or known.

    With v the variances, S their sum and T the whole, each part moves by the share v / S of what
    is lacking. What parts deviate from their shares is independent of their sum, and so of the
    whole: hence ``variance``.
    """

    values: _Floats
    variances: _Floats
    whole: Total

    def variance(self, coefficients: ArrayLike) -> float:
        """Return the variance of a weighted sum of the parts."""
        c, v = np.asarray(coefficients, np.float64), self.variances
        through = float(c @ v) / float(v.sum())
        deviations = float(c @ (c * v)) - through * float(c @ v)
        return max(deviations, 0.0) + through**2 * self.whole.variance

    def cell(self, place: int) -> Total:
        """Return one part."""
        return Total(float(self.values[place]), self.variance(np.eye(len(self.values))[place]))


def whole_of(estimates: _Floats, variances: _Floats, whole: Total) -> Whole:
    """Move independent estimates as little as possible so that they add up to a whole."""
    lacking = whole.value - estimates.sum()
    return Whole(estimates + variances / variances.sum() * lacking, variances, whole)


def nearest_counts(estimates: _Floats, variances: _Floats, total: float) -> _Floats:
    """Return the nearest numbers that add up to a total of at least 0, none below 0.

    Distances are counted in standard deviations. They are ``max(x - t v, 0)``, with t found
    exactly.

    >>> nearest_counts(np.array([6.0, 5.0, -3.0]), np.ones(3), 9.0)
    array([5., 4., 0.])
    """
    if total <= 0.0:
        return np.zeros_like(estimates)
    # The threshold of each part, in the order in which parts vanish as t grows.
    order = np.argsort(-estimates / variances, kind="stable")
    sums, weights = np.cumsum(estimates[order]), np.cumsum(variances[order])
    thresholds = (sums - total) / weights
    last = np.flatnonzero(estimates[order] / variances[order] > thresholds)[-1]
    nearest: _Floats = np.maximum(estimates - thresholds[last] * variances, 0.0)
    return nearest


def nearest_table(estimates: _Floats, rows: _Floats, columns: _Floats) -> _Floats:
    """Return the nearest table with the given sums, of equal total, and no cell below 0.

    By Dykstra's alternating projections (Boyle and Dykstra, "A method for finding projections onto
    the intersection of convex sets in Hilbert spaces", 1986).
    """
    x, by_rows, by_columns = estimates, np.zeros_like(estimates), np.zeros_like(estimates)
    ones_of_rows, ones_of_columns = np.ones(x.shape[1]), np.ones(x.shape[0])
    scale = _CLOSE * max(float(rows.sum()), 1.0)
    for _ in range(_MOST_ROUNDS):
        before = x + by_rows
        y = np.array(
            [nearest_counts(r, ones_of_rows, t) for r, t in zip(before, rows, strict=True)]
        )
        by_rows = before - y
        before = y + by_columns
        x = np.array(
            [nearest_counts(c, ones_of_columns, t) for c, t in zip(before.T, columns, strict=True)]
        ).T
        by_columns = before - x
        if np.abs(x.sum(axis=1) - rows).max() <= scale:
            break
    return x


# Numbers that were learned from private rows, with their intervals.


@final
@dataclass(frozen=True)
class Number:
    """An estimate with two intervals.

    Parameters
    ----------
    estimate : float
        What the rows say, as far as noise lets them; within the range that is possible, and
        consistent with other numbers.
    low, high : float
        Interval for what the table itself says: of privacy noise alone.
    population_low, population_high : float or None
        Interval for what the table is a sample of: of noise and of sampling together, for rows
        drawn independently. None for numbers of rows, which a population has none of.

    Notes
    -----
    Both are at the level of the description, one number at a time.
    """

    estimate: float
    low: float
    high: float
    population_low: float | None = None
    population_high: float | None = None

    def widened(self, reach: float, scale: Scale) -> Number:
        """Return it with both intervals longer by ``reach`` on either side, within a scale."""

        def moved(end: float | None, by: float) -> float | None:
            return None if end is None else scale.shown(end + by)

        return Number(
            self.estimate,
            scale.shown(self.low - reach),
            scale.shown(self.high + reach),
            moved(self.population_low, -reach),
            moved(self.population_high, reach),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; those of a population only where there are any, NaN as None."""
        there = {name: value for name, value in vars(self).items() if value is not None}
        return {name: one if math.isfinite(one) else None for name, one in there.items()}


@final
@dataclass(frozen=True)
class Scale:
    """The values that a number can have; it is shown times ``factor`` plus ``shift``."""

    low: float = -math.inf
    high: float = math.inf
    factor: float = 1.0
    shift: float = 0.0

    def shown(self, value: float) -> float:
        """Bring a value into range, and into the units in which it is shown."""
        return self.shift + self.factor * min(max(value, self.low), self.high)


def check_quantiles(name: str, values: Sequence[float]) -> tuple[float, float]:
    """Return two quantiles from 0 to 1 in ascending order; a ValueError names them otherwise."""
    if len(values) != 2:
        raise ValueError(f"{name} must be two quantiles, got {values!r}")
    low, high = (check_real(name, value, least=0.0, most=1.0) for value in values)
    if low >= high:
        raise ValueError(f"{name} must be in ascending order, got {values!r}")
    return low, high


def normal_quantile(level: float) -> float:
    """Return how many standard deviations an interval of a level reaches on either side."""
    # Never 0, by which half widths could not be divided.
    return max(float(ndtri(0.5 + 0.5 * level)), 1e-12)


def number(
    center: float,
    noise_variance: float,
    z: float,
    scale: Scale = Scale(),
    *,
    estimate: float | None = None,
    sampling_variance: float | None = None,
) -> Number:
    """Make a number from an unbiased estimate, its variances, and a consistent estimate.

    Intervals are around ``center``, brought into the range so that none is empty, cut to the range,
    and stretched to hold ``estimate``.
    """
    center = min(max(center, scale.low), scale.high)
    best = center if estimate is None else estimate
    shown = scale.shown(best)

    def interval(variance: float) -> tuple[float, float]:
        reach = z * math.sqrt(variance)
        ends = scale.shown(center - reach), scale.shown(center + reach)
        return min(*ends, shown), max(*ends, shown)

    if sampling_variance is None:
        return Number(shown, *interval(noise_variance))
    both = interval(noise_variance + sampling_variance)
    return Number(shown, *interval(noise_variance), *both)


# Quantiles of a column from counts in parts of its bins.

_LEAST = 1e-9


@final
@dataclass(frozen=True, eq=False)
class Ranks:
    """Counts of a column's numbers up to each edge of its parts.

    Parameters
    ----------
    edges : ndarray of shape (m + 1,)
        Edges of the parts of all bins.
    cells : Whole
        Counts in the column's cells; the last is that of missing values.
    bins : slice
        Where the bins are among them.
    parts : ndarray of shape (n_bins, n_parts)
        Counts in the parts of each bin, which add up to the bin's.
    part_variance : float
        Variance of a part before it was made to add up.
    nearest : ndarray of shape (m + 2,)
        The nearest counts that are not negative: at or below the low bound, in each part, above.
    clustering : float, default=1.0
        Factor on variances over samples, for rows that belong together.
    """

    edges: _Floats
    cells: Whole
    bins: slice
    parts: _Floats
    part_variance: float
    nearest: _Floats
    clustering: float = 1.0

    def quantile(self, q: float, z: float) -> Number:
        """Return a quantile of the values that are not missing, with those outside at the bounds.

        Of the cells that may hold it, which are those where no test of a width of z standard
        deviations speaks against either end, the interval holds all. The cell that does hold it is
        among them unless one of the two tests of its own ends errs.
        """
        q = check_real("q", q, least=0.0, most=1.0)
        excess, noise, present = self._excess(q)
        sampling = self.clustering * max(present, 1.0) * q * (1.0 - q)
        table = self._within(excess, z * np.sqrt(noise))
        both = self._within(excess, z * np.sqrt(noise + sampling))
        best = self._estimate(q)
        return Number(
            best,
            *(min(table[0], best), max(table[1], best)),
            *(min(both[0], best), max(both[1], best)),
        )

    def _excess(self, q: float) -> tuple[_Floats, _Floats, float]:
        """Return by how much the counts up to each edge exceed the rank, and their variances."""
        n_bins, n_parts = self.parts.shape
        whole = self.cells
        # Up to an edge count all cells before its bin, and of that bin as many parts.
        bins, parts = np.divmod(np.arange(n_bins * n_parts + 1), n_parts)
        c = np.zeros((len(bins), len(whole.values)))
        c[:, : self.bins.start] = 1.0
        for place in range(n_bins):
            c[:, self.bins.start + place] = np.clip(bins - place + parts / n_parts, 0.0, 1.0)
        here = np.append(self.parts, np.zeros((1, n_parts)), axis=0)
        even = np.append(whole.values[self.bins], 0.0) / n_parts
        within = np.array(
            [here[b, :p].sum() - p * even[b] for b, p in zip(bins, parts, strict=True)]
        )
        present = np.ones(len(whole.values))
        present[-1] = 0.0
        c -= q * present
        v, total = whole.variances, float(whole.variances.sum())
        through = c @ v / total
        noise = np.maximum(c**2 @ v - through * (c @ v), 0.0) + through**2 * whole.whole.variance
        noise += self.part_variance * parts * (1.0 - parts / n_parts)
        return c @ whole.values + within, noise, float(present @ whole.values)

    def _within(self, excess: _Floats, reach: _Floats) -> tuple[float, float]:
        # The cell up to the low bound, each part, the cell above the high one.
        begins_below = np.append(True, excess - reach <= 0.0)
        ends_above = np.append(excess + reach >= 0.0, True)
        held = np.flatnonzero(begins_below & ends_above)
        edges = np.concatenate([self.edges[:1], self.edges, self.edges[-1:]])
        return float(edges[held[0]]), float(edges[held[-1] + 1])

    def _estimate(self, q: float) -> float:
        counts = np.cumsum(self.nearest)
        rank = q * counts[-1]
        place = int(np.searchsorted(counts, rank * (1.0 - _LEAST), side="left"))
        place = min(place, len(counts) - 1)
        if place == 0:
            return float(self.edges[0])
        if place > len(self.edges) - 1:
            return float(self.edges[-1])
        size = max(self.nearest[place], _LEAST)
        share = min(max((rank - counts[place - 1]) / size, 0.0), 1.0)
        low, high = self.edges[place - 1 : place + 1]
        return float(low + share * (high - low))


_Numbers = tuple[Number, ...]


@final
@dataclass(frozen=True, eq=False)
class ColumnDescription:
    """One column.

    Parameters
    ----------
    column : CountedColumn
        Its cells: levels, or bins of numbers with what is below, above and missing.
    counts, shares : tuple of Number
        Rows in each cell, and their share of all rows; as ``labels``.
    mean, spread : Number or None
        Mean, and standard deviation (root of the mean squared deviation), of the values that are
        present, clipped to the bounds; None for categories, and where the values cannot be
        distinguished from none.
    quantiles : mapping from float to Number
        Quantiles of the values that are present, clipped to the bounds; empty where there is no
        mean.
    ranks : Ranks or None
        Counts up to each edge, from which any other quantile follows; None where there is no mean.
    z : float
        Half width of intervals in standard deviations.
    """

    column: CountedColumn
    counts: _Numbers
    shares: _Numbers
    mean: Number | None
    spread: Number | None
    quantiles: Mapping[float, Number]
    ranks: Ranks | None
    z: float

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        """What the cells are called."""
        return self.column.labels

    @property
    def missing(self) -> Number | None:
        """Number of missing values; None where a level of its own says it."""
        place = self.column.missing
        return None if place is None else self.counts[place]

    def quantile(self, q: float) -> Number:
        """Return any quantile: it costs nothing more.

        Parameters
        ----------
        q : float
            From 0 to 1.

        Returns
        -------
        Number

        Raises
        ------
        ValueError
            If the column is not numeric, or ``q`` is out of range.
        """
        if self.ranks is None:
            lacks = "values that noise does not hide" if self.column.n_bins else "numbers"
            raise ValueError(f"column {self.name!r} has no {lacks}, and so no quantiles")
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
        Their names.
    row_labels, column_labels : tuple of str
        Cells of the first and of the second column.
    counts, shares : tuple of tuple of Number
        Rows in cell i of the first and j of the second column, as ``counts[i][j]``, and their share
        of all rows.
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
class GroupDescription:
    """All rows, or those of one level of the column ``by``.

    Parameters
    ----------
    n_rows : Number
        Number of rows; known where the relation makes it public.
    columns : mapping from str to ColumnDescription
        By name.
    two_way : mapping from (str, str) to TwoWayTable
        Tables of two columns.
    correlations : mapping from (str, str) to Number
        Pearson's, of values clipped to the bounds. Of values that are missing in one column it is
        supposed that they are missing irrespective of the other.
    """

    n_rows: Number
    columns: Mapping[str, ColumnDescription]
    two_way: Mapping[Pair, TwoWayTable]
    correlations: Mapping[Pair, Number]

    def __getitem__(self, name: str) -> ColumnDescription:
        """Return a column by its name."""
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
