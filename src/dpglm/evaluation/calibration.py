"""How predicted probabilities are to be corrected: a logistic regression on their log odds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from dpglm.evaluation.cells import MergedCells

__all__ = ["Positions", "Recalibration"]

Floats: TypeAlias = NDArray[np.float64]

_MOST_STEPS, _LONGEST_STEP, _CLOSE = 60, 2.0, 1e-11
# Where information is lacking: part of a row that each direction has in any case.
_LEAST_INFORMATION = 1e-6
_LEAST_SHARE = 1e-6
_LEAST_DEVIATION = 1e-3


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
    """

    cells: MergedCells

    def intercept(self, rows: Floats, positives: float, predicted: float) -> float:
        """Return the shift of all log odds that makes predictions add up to the positives.

        ``predicted`` is the sum of the predictions without it.
        """
        share = float(rows.sum())
        shift = 0.0
        for _ in range(_MOST_STEPS):
            means, slopes = self._responses(self.cells.log_odds + shift)
            start, _ = self._responses(self.cells.log_odds)
            missing = positives - predicted - float(rows @ (means - start))
            step = missing / max(float(rows @ slopes), _LEAST_INFORMATION * max(share, 1.0))
            shift += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
            if abs(step) < _CLOSE:
                break
        return shift

    def steepness(self, rows: Floats) -> float:
        """Return how fast the mean prediction rises with the shift, for counts of rows."""
        _, slopes = self._responses(self.cells.log_odds)
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
        odds = self.cells.log_odds
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
