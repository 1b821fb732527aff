"""Noisy counts that add up: least squares, the nearest valid counts, and quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_real
from dpglm.tabulate.numbers import Number

_Floats: TypeAlias = NDArray[np.float64]
_MOST_ROUNDS, _CLOSE, _LEAST = 500, 1e-9, 1e-9


@final
@dataclass(frozen=True, eq=False)
class Total:
    """An estimate of one number and its variance, which is 0 for a known number."""

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
    """Least squares estimates of parts that add up to a whole.

    ``values`` are the adjusted estimates, ``variances`` those before. The whole is known, or
    estimated from these parts and from others.

    With variances v, their sum S and the whole T, each part moves by the share v / S of the
    difference between T and the sum of the parts. Deviations of the parts from their shares are
    independent of their sum and of the whole, which gives ``variance``.
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
    """Adjust independent estimates by least squares so that they add up to a whole."""
    lacking = whole.value - estimates.sum()
    return Whole(estimates + variances / variances.sum() * lacking, variances, whole)


def nearest_counts(estimates: _Floats, variances: _Floats, total: float) -> _Floats:
    """Return the nearest nonnegative numbers that add up to a total.

    Distances are in standard deviations. The result is ``max(x - t v, 0)`` for an exact t.

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
    """Return the nearest nonnegative table with the given row and column sums.

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


@final
@dataclass(frozen=True, eq=False)
class Ranks:
    """Counts of the numbers of a column up to each edge of its parts.

    Parameters
    ----------
    edges : ndarray of shape (m + 1,)
        Edges of the parts of all bins.
    cells : Whole
        Counts in the column's cells; the last is that of missing values.
    bins : slice
        Positions of the bins among the cells.
    parts : ndarray of shape (n_bins, n_parts)
        Counts in the parts of each bin, which add up to the count of the bin.
    part_variance : float
        Variance of a part before adjustment.
    nearest : ndarray of shape (m + 2,)
        The nearest counts that are not negative: at or below the low bound, in each part, above.
    clustering : float, default=1.0
        Factor on sampling variances for similar rows of a person.
    """

    edges: _Floats
    cells: Whole
    bins: slice
    parts: _Floats
    part_variance: float
    nearest: _Floats
    clustering: float = 1.0

    def quantile(self, q: float, z: float) -> Number:
        """Return a quantile of the present values, clipped to the bounds.

        The interval contains all cells that may contain the quantile: those with neither end
        rejected by a test at z standard deviations. It misses the quantile only if one of the two
        tests for the ends of the true cell errs.
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
        """Return the counts up to each edge minus the rank, and their variances."""
        n_bins, n_parts = self.parts.shape
        whole = self.cells
        # Coefficients of whole cells before an edge, and of the parts of its bin.
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
