"""Quantiles of a column from counts in parts of its bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.exploration.consistency import Whole
from dpglm.exploration.numbers import Number

__all__ = ["Ranks"]

_Floats: TypeAlias = NDArray[np.float64]

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
