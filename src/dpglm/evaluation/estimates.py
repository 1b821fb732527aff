"""Numbers computed from noisy values, with intervals by the delta method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.evaluation.cells import MergedCells
from dpglm.evaluation.curves import (
    area_under_roc,
    change_of_area,
    order_variance,
    unknown_order,
)
from dpglm.exploration.numbers import Number, Scale, number

__all__ = ["SHARE", "Noisy", "area_number", "known_area", "unknown_area"]

Floats: TypeAlias = NDArray[np.float64]

SHARE = Scale(0.0, 1.0)

# Part of what the order within B cells is worth that is taken for an error of that estimate, times
# B^2: the error is of the next order, and was so large where scores tell classes best apart.
_UNSURE = 7.5
# Part of what half as many cells change that is taken for the error: a third if it falls as B^-2.
_OF_CHANGE = 0.7


@final
@dataclass(frozen=True, eq=False)
class Noisy:
    """Values with independent errors of two kinds, but for what is known of the sum of some.

    Parameters
    ----------
    values : ndarray of shape (n,)
        What was released.
    noise : ndarray of shape (n,)
        Standard deviation of the noise in each.
    sampling : ndarray of shape (n,)
        Variance of each over samples of rows, whose number varies, too: for counts the count. Of
        numbers that do not change if all values double, that is the variance for a given number.
    known_sum : ndarray of bool of shape (n,)
        Which values add up to a public number, to which they have been brought by equal shares.
    clustering : float, default=1.0
        Bound on the factor by which rows that belong together raise variances over samples: of k
        rows that are alike it is k, as the variance of a sum of k numbers is at most k times the
        sum of their variances.
    """

    values: Floats
    noise: Floats
    sampling: Floats
    known_sum: NDArray[np.bool_]
    clustering: float = 1.0

    @classmethod
    def of(
        cls,
        values: Floats,
        noise: Floats,
        counts: slice,
        n_rows: int | None,
        clustering: float = 1.0,
    ) -> Noisy:
        """Bring counts to their sum, where it is public; other values have no sampling variance."""
        values, known = values.copy(), np.zeros(len(values), np.bool_)
        if n_rows is not None:
            known[counts] = True
            values[counts] += (n_rows - values[counts].sum()) / known.sum()
        sampling = np.zeros(len(values))
        sampling[counts] = np.maximum(values[counts], 0.0)
        return cls(values, noise, sampling, known, clustering)

    def total(self, n_counts: int, z: float) -> Number:
        """Return the number of rows that the first values count."""
        noise = 0.0 if self.known_sum.any() else float((self.noise[:n_counts] ** 2).sum())
        return number(float(self.values[:n_counts].sum()), noise, z, Scale(low=0.0))

    def number(
        self,
        function: Callable[[Floats], float],
        z: float,
        scale: Scale = SHARE,
        sampled: float | None = None,
        approximation: float = 0.0,
        unseen: float = 0.0,
    ) -> Number:
        """Return a function of the values, which is smooth, with its intervals.

        ``sampled`` is its sampling variance, where that of the values does not say it;
        ``approximation`` the size of an error that the function itself may have; ``unseen`` the
        variance of what the rows have and their cells do not say, of which a population has none.
        """
        center = float(function(self.values))
        slopes = self._slopes(function)
        noisy = slopes.copy()
        if self.known_sum.any():
            noisy[self.known_sum] -= noisy[self.known_sum].mean()
        variance = float(((noisy * self.noise) ** 2).sum()) + approximation**2
        sampled = float(slopes**2 @ self.sampling) if sampled is None else sampled
        sampled, unseen = self.clustering * sampled, self.clustering * unseen
        if not math.isfinite(center + variance + sampled):
            return Number(math.nan, scale.low, scale.high, scale.low, scale.high)
        # The interval for a population is of the sum of both.
        sampled = max(sampled - unseen, 0.0)
        return number(center, variance + unseen, z, scale, sampling_variance=sampled)

    def _slopes(self, function: Callable[[Floats], float]) -> Floats:
        steps = 1e-5 * np.maximum(np.abs(self.values), 1.0 + np.abs(self.values).max())
        slopes = np.empty(len(self.values))
        for place, step in enumerate(steps):
            up, down = self.values.copy(), self.values.copy()
            up[place] += step
            down[place] -= step
            slopes[place] = (function(up) - function(down)) / (2.0 * step)
        return slopes


def area_number(noisy: Noisy, cells: MergedCells, z: float) -> Number:
    """Return the area, of counts of negatives and of positives in merged cells.

    Its intervals hold every order of the scores that the search could not tell apart.
    """
    return known_area(noisy, cells, z).widened(unknown_area(noisy, cells), SHARE)


def unknown_area(noisy: Noisy, cells: MergedCells) -> float:
    """Return the most that the area is off by orders that are not known."""
    n_cells = len(cells.there)
    return unknown_order(noisy.values[:n_cells], noisy.values[n_cells : 2 * n_cells], cells.unknown)


def known_area(noisy: Noisy, cells: MergedCells, z: float) -> Number:
    """Return the area where scores that the search could not tell apart are one."""
    n_cells = len(cells.there)

    def area(values: Floats, spread: Floats | float = cells.spread) -> float:
        return area_under_roc(values[:n_cells], values[n_cells : 2 * n_cells], spread)

    low, high = noisy.values[:n_cells], noisy.values[n_cells : 2 * n_cells]
    order = area(noisy.values) - area(noisy.values, 0.0)
    return noisy.number(
        area,
        z,
        SHARE,
        approximation=max(
            _UNSURE * abs(order) / n_cells**2, _OF_CHANGE * change_of_area(low, high, cells.spread)
        ),
        unseen=order_variance(low, high, cells.spread),
    )
