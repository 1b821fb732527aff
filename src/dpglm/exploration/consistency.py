"""Least squares for counts that must add up, and the nearest ones that are not negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Total", "Whole", "nearest_counts", "nearest_table", "pooled", "whole_of"]

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
