"""What counts of two classes in ordered cells of scores say: curves, and numbers of them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

__all__ = [
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


def _shares(counts: Floats) -> Floats:
    total = counts.sum()
    shares: Floats = counts / (total if abs(total) > _LEAST else _LEAST)
    return shares


def _upwards(shares: Floats) -> Floats:
    """Sum shares from the highest cell down, kept increasing, from 0 to 1."""
    sums = np.concatenate([[0.0], np.cumsum(shares[::-1])])
    sums[-1] = 1.0
    return np.clip(np.maximum.accumulate(sums), 0.0, 1.0)
