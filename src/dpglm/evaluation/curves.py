"""What counts of two classes in ordered cells of scores say: curves, and recalibration."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from dpglm.evaluation.cells import MergedCells

__all__ = [
    "Positions",
    "Recalibration",
    "area_under_roc",
    "at_cut",
    "change_of_area",
    "largest_gap",
    "order_variance",
    "precision_recall_points",
    "roc_points",
    "unknown_order",
]

Floats: TypeAlias = NDArray[np.float64]

_MOST_STEPS, _LONGEST_STEP, _CLOSE = 40, 2.0, 1e-9
# Where information is lacking: part of a row that each direction has in any case.
_LEAST_INFORMATION = 1e-6
_LEAST_SHARE = 1e-6
_LEAST_DEVIATION = 1e-3
_LEAST = 1e-12
# Cells less spread than this hold one score, and little else.
_ONE_SCORE = 0.5


def area_under_roc(negatives: Floats, positives: Floats, spread: Floats | float = 1.0) -> float:
    """Return the area under the ROC curve, from noisy counts in cells of increasing scores.

    Pairs in different cells are counted, and those within a cell by half and what their order is
    worth: if the share r of the positives among rows of both classes, weighted alike, is linear in
    the rank m of a score, with slope g, pairs in a cell of mass D add g D^3 / 3. Without that term
    the error of B cells is of order B^-2, with it B^-4. Slopes are those of the isotonic shares,
    falling ones where high scores are of negatives.

    ``spread`` is 1 where a cell's scores all differ. Where parts s of it share a score, whose order
    is worth nothing, it is 1 - sum s^3.
    """
    p, q = _shares(positives), _shares(negatives)
    below = np.cumsum(q) - q
    area = float(p @ (below + 0.5 * q))
    rising = area >= 0.5
    mass = np.maximum(0.5 * (p + q), 0.0)
    there = mass > _LEAST
    if np.count_nonzero(there) < 3:
        return area
    share = np.clip(0.5 * p[there] / mass[there], 0.0, 1.0)
    share = isotonic_regression(share, weights=mass[there], increasing=rising).x
    middle = (np.cumsum(mass) - 0.5 * mass)[there]
    slopes = np.gradient(share, middle)
    return area + float(slopes @ (mass**3 * spread)[there]) / 3.0


def change_of_area(negatives: Floats, positives: Floats, spread: Floats) -> float:
    """Return how much the area differs from that of cells that are joined two by two.

    The mean of both ways to join them. It is large where the shares of classes within cells are
    not what the shares of their neighbours suggest.
    """
    whole, joined = area_under_roc(negatives, positives, spread), []
    masses = np.abs(_shares(negatives)) + np.abs(_shares(positives)) + _LEAST
    # Cells of one score have no order to find.
    apart = np.minimum(spread[1:], spread[:-1]) < _ONE_SCORE
    for first in (0, 1):
        second = np.arange(1, len(spread)) % 2 != first
        starts = np.flatnonzero([True, *(apart | second)])
        sums = [np.add.reduceat(one, starts) for one in (negatives, positives, masses)]
        shared = np.add.reduceat((1.0 - spread) * masses**3, starts) / sums[2] ** 3
        joined.append(area_under_roc(sums[0], sums[1], np.clip(1.0 - shared, 0.0, 1.0)))
    return abs(whole - 0.5 * sum(joined))


def order_variance(negatives: Floats, positives: Floats, spread: Floats | float = 1.0) -> float:
    """Return the variance of the area over the orders that rows may have within their cells.

    That of Mann and Whitney's statistic in each cell, n0 n1 (n0 + n1 + 1) / 12 of so many pairs,
    times ``spread`` where scores are shared (Annals of Mathematical Statistics 1947, with Kendall's
    correction for ties).
    """
    low, high = np.maximum(negatives, 0.0), np.maximum(positives, 0.0)
    pairs = max(low.sum(), 1.0) * max(high.sum(), 1.0)
    ranked = low * high * (low + high + 1.0) * spread
    return float(ranked.sum()) / (12.0 * float(pairs) ** 2)


def unknown_order(negatives: Floats, positives: Floats, unknown: Floats) -> float:
    """Return the most that an unknown order of a share of each cell's pairs adds to the area."""
    pairs = np.maximum(_shares(negatives), 0.0) * np.maximum(_shares(positives), 0.0)
    return 0.5 * float(pairs @ unknown)


def roc_points(negatives: Floats, positives: Floats) -> tuple[Floats, Floats]:
    """Return false and true positive rates at each cell's lower end, from 0 to 1, increasing."""
    return _upwards(_shares(negatives)), _upwards(_shares(positives))


def precision_recall_points(negatives: Floats, positives: Floats) -> tuple[Floats, Floats]:
    """Return precision and recall at each cell's lower end, from the highest cell down."""
    wrong = _upwards(_shares(negatives)) * max(negatives.sum(), 0.0)
    right = _upwards(_shares(positives)) * max(positives.sum(), 0.0)
    found = wrong + right
    precision = np.divide(right, found, out=np.ones_like(found), where=found > _LEAST)
    return precision, _upwards(_shares(positives))


def at_cut(negatives: Floats, positives: Floats, cut: int) -> tuple[float, float, float, float]:
    """Return true negatives, false positives, false negatives and true positives.

    Rows in cells from ``cut`` on are called positive.
    """
    return (
        float(negatives[:cut].sum()),
        float(negatives[cut:].sum()),
        float(positives[:cut].sum()),
        float(positives[cut:].sum()),
    )


def largest_gap(negatives: Floats, positives: Floats, first: Floats | float = 0.0) -> float:
    """Return the largest difference of true and false positive rate at an end of a cell.

    With ``first``, or within one, of which this part of the negatives has the least scores.
    """
    p, q = _shares(positives), _shares(negatives)
    gaps = np.cumsum(q - p)
    inside = gaps - (q - p) + q * first
    return float(max(gaps[:-1].max(initial=0.0), inside.max(initial=0.0)))


@final
@dataclass(frozen=True, eq=False)
class Positions:
    """Sums of rows' positions within merged cells, and their noise, for public counts of rows.

    Noisy means of them are drawn to 0, which fine cells expect, as far as noise explains them.
    """

    sums: Floats
    noise: Floats
    rows: Floats

    @classmethod
    def none(cls) -> Self:
        """Return those of scores that have none."""
        return cls(np.empty(0), np.empty(0), np.empty(0))

    @classmethod
    def of(cls, sums: Floats, rows: Floats, noise_std: float, away: float) -> Self:
        """Make them from noisy sums; means are ``away`` from 0, in standard deviations."""
        part = away**2 / (away**2 + (noise_std / rows) ** 2)
        return cls(sums * part, noise_std * part, rows)


@final
@dataclass(frozen=True, eq=False)
class Recalibration:
    """Logistic regression of the class on log odds, of which counts in merged cells are known.

    The scores of a merged cell are distributed over its fine cells as their counts say.

    Log odds beyond the quantiles of ``outer`` and 1 - ``outer`` count as these.
    """

    cells: MergedCells
    outer: float = 0.0

    @functools.cached_property
    def log_odds(self) -> Floats:
        """Log odds of fine cells."""
        upto = np.cumsum(self.cells.shares) / self.cells.shares.sum()
        ends = np.searchsorted(upto, [self.outer, 1.0 - self.outer])
        low, high = self.cells.log_odds[np.minimum(ends, len(upto) - 1)]
        return np.clip(self.cells.log_odds, low, high)

    def intercept(self, rows: Floats, positives: float, predicted: float) -> float:
        """Return the shift of all log odds that makes predictions add up to the positives.

        ``predicted`` is the sum of the predictions without it.
        """
        share = float(rows.sum())
        shift = 0.0
        for _ in range(_MOST_STEPS):
            means, slopes = self._responses(self.log_odds + shift)
            start, _ = self._responses(self.log_odds)
            missing = positives - predicted - float(rows @ (means - start))
            step = missing / max(float(rows @ slopes), _LEAST_INFORMATION * max(share, 1.0))
            shift += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
            if abs(step) < _CLOSE:
                break
        return shift

    def steepness(self, rows: Floats) -> float:
        """Return how fast the mean prediction rises with the shift, for counts of rows."""
        _, slopes = self._responses(self.log_odds)
        return float(rows @ slopes) / max(float(rows.sum()), 1.0)

    def slope(self, negatives: Floats, positives: Floats) -> float:
        """Return the factor of log odds that fits best, with an intercept of its own.

        Solves the score equations of the counts, with each merged cell's mean log odds.
        """
        rows = negatives + positives
        positions, deviation = self._positions(rows)
        return float(self._fit(rows, positives, positions)[1]) / deviation

    def unseen(self, negatives: Floats, positives: Floats) -> float:
        """Return the variance of what the rows' own slope has and the counts do not say.

        The inverse information of the counts less that of the rows.
        """
        rows = negatives + positives
        positions, deviation = self._positions(rows)
        fitted = self._fit(rows, positives, positions)
        rows = np.maximum(rows, 0.0)
        middle = self.cells.mean(positions)
        means = expit(fitted[0] + fitted[1] * positions)
        information, slopes = self._information(rows, means, positions)
        whole = np.array(
            [
                [float(rows @ self.cells.mean(slopes * positions**k)) for k in (i, i + 1)]
                for i in (0, 1)
            ]
        )
        response = self.cells.mean(means)
        design = np.stack([np.ones_like(middle), middle])
        squares = design * (rows * response * (1.0 - response)) @ design.T
        inverse = np.linalg.inv(information)
        counted = (inverse @ squares @ inverse.T)[1, 1]
        known = np.linalg.inv(_steadied(whole, rows))[1, 1]
        return max(float(counted - known), 0.0) / deviation**2

    def _responses(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return the mean response in each merged cell, and its slope."""
        means = expit(scores)
        return self.cells.mean(means), self.cells.mean(means * (1.0 - means))

    def _positions(self, rows: Floats) -> tuple[Floats, float]:
        """Return the log odds of fine cells in standard deviations from their mean."""
        weights = np.maximum(rows, 0.0)
        weights = weights / max(float(weights.sum()), 1e-300)
        odds = self.log_odds
        center = float(weights @ self.cells.mean(odds))
        spread = float(weights @ self.cells.mean((odds - center) ** 2))
        deviation = max(math.sqrt(max(spread, 0.0)), _LEAST_DEVIATION)
        return (odds - center) / deviation, deviation

    def _information(self, rows: Floats, means: Floats, positions: Floats) -> tuple[Floats, Floats]:
        slopes = means * (1.0 - means)
        middle = self.cells.mean(positions)
        pulls = [rows * self.cells.mean(slopes), rows * self.cells.mean(slopes * positions)]
        found = np.array([[one.sum() for one in pulls], [float(middle @ one) for one in pulls]])
        return _steadied(found, rows), slopes

    def _fit(self, rows: Floats, positives: Floats, positions: Floats) -> Floats:
        there, middle = np.maximum(rows, 0.0), self.cells.mean(positions)
        share = float(positives.sum()) / max(float(rows.sum()), 1.0)
        start = float(logit(min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)))
        fitted = np.array([start, 0.0])
        for _ in range(_MOST_STEPS):
            means = expit(fitted[0] + fitted[1] * positions)
            missing = positives - rows * self.cells.mean(means)
            score = np.array([missing.sum(), float(middle @ missing)])
            information, _ = self._information(there, means, positions)
            step = np.linalg.solve(information, score)
            longest = float(np.abs(step).max())
            fitted = fitted + step * min(1.0, _LONGEST_STEP / max(longest, 1e-300))
            if longest < _CLOSE:
                break
        return fitted


def _steadied(information: Floats, rows: Floats) -> Floats:
    """Add a little, so that it has an inverse whatever the rows are."""
    least = _LEAST_INFORMATION * max(float(rows.sum()), 1.0)
    found: Floats = information + least * np.eye(2)
    return found


def _shares(counts: Floats) -> Floats:
    total = counts.sum()
    shares: Floats = counts / (total if abs(total) > _LEAST else _LEAST)
    return shares


def _upwards(shares: Floats) -> Floats:
    """Sum shares from the highest cell down, kept increasing, from 0 to 1."""
    sums = np.concatenate([[0.0], np.cumsum(shares[::-1])])
    sums[-1] = 1.0
    return np.clip(np.maximum.accumulate(sums), 0.0, 1.0)
