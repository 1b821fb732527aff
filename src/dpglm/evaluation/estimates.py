"""Score cells of two classes: keys, merged cells, ROC curves and recalibration."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from dpglm._validation import Array
from dpglm.solvers.composite.tabulation import FoundCells, Refined
from dpglm.tabulate import SHARE, Noisy, Number, Parts, by_class

Keys: TypeAlias = NDArray[np.int64]
LARGEST_LOSS = 8.0
"""Log losses are clipped to this, the loss of a probability of 0.0003."""
LOG_ODDS = 10.0
"""Log odds are clipped to this in calibration, those of a probability of 0.00005."""
LEAST_FINE, _MOST_FINE, _FINE = 160, 1280, 8.0
_FEWEST, _MOST, _CELLS = 4, 16, 1.3
# Cells in each round of the search: for one column, and for all columns together.
_SEARCHED, _ALL_SEARCHED, _LEAST_SEARCHED = 1024, 16_384, 128
# Bits of the significand that keys omit: keys keep 12 digits of a score.
_LEFT_OUT = 12
# Number of keys from one power of 2 to the next.
_OCTAVE = 2 ** (52 - _LEFT_OUT)
# Ends of the first round's cells: probabilities, and magnitudes of decision values.
_LEAST_PROBABILITY, _LEAST_VALUE, _LARGEST_VALUE = 2.0**-32, 2.0**-20, 2.0**20
# A fine cell with this many times its equal share contains equal or very close scores.
_OVER_FULL = 4.0
# Largest mean position within a cell, which ranges from -1 to 1; steps and limits of tilts.
_FARTHEST, _TILTS, _MOST_BENT, _LEAST_SPREAD = 0.9, 8, 20.0, 0.01


def _bits(values: Array) -> Keys:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> _LEFT_OUT


def _floats(bits: Keys) -> Array:
    return (np.asarray(bits, dtype=np.int64) << _LEFT_OUT).view(np.float64)


_MIDDLE = int(_bits(np.array([0.5]))[0])


def keys_of(scores: Array, probabilities: bool) -> Keys:
    """Return integers in the order of the scores; scores that agree in 12 digits have equal keys.

    Keys are the bits of floats without the last 12. Those of probabilities are relative to the
    nearer of 0 and 1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if probabilities:
        low = scores <= 0.5
        nearer = _bits(np.where(low, scores, 1.0 - scores)) - _MIDDLE
        return np.where(low, nearer, -nearer)
    size = _bits(np.abs(scores))
    return np.where(scores < 0.0, -size, size)


def scores_of(keys: Keys, probabilities: bool) -> Array:
    """Return the scores of keys; keys beyond all scores have the largest score."""
    keys = np.asarray(keys, dtype=np.int64)
    if probabilities:
        nearer = _floats(np.maximum(_MIDDLE - np.abs(keys), 0))
        return np.where(keys <= 0, nearer, 1.0 - nearer)
    return np.copysign(_floats(np.minimum(np.abs(keys), _largest(False))), keys)


def _largest(probabilities: bool) -> int:
    if probabilities:
        return _MIDDLE
    return int(_bits(np.array([np.finfo(np.float64).max]))[0])


def n_fine_for(n_rows: int, mu: float) -> int:
    """Return the number of fine cells for a number of rows under mu-GDP.

    With F fine cells the noise in the number of rows below a score is about sqrt(F) / mu.
    """
    return int(min(max(n_rows * mu / _FINE, LEAST_FINE), _MOST_FINE))


def n_cells_for(n_rows: int, mu: float) -> int:
    """Return the number of merged cells for a number of rows under mu-GDP.

    With B cells the area under the curve has an error of order B^-4 and noise of variance
    B / (n mu)^2. The optimal B is of order (n mu)^(2/9); 1.3 (n mu)^(1/4) was chosen for n mu from
    100 to 15,000 (``experiments.evaluation --develop``).
    """
    return int(min(max(round(_CELLS * (n_rows * mu) ** 0.25), _FEWEST), _MOST))


def refined_column(
    label: int,
    column: int,
    n_fine: int,
    n_cells: int,
    *,
    probabilities: bool,
    thresholds: Sequence[float] = (),
    n_columns: int = 1,
    position: int | None = None,
) -> Refined:
    """Return the search for the cells of one of ``n_columns`` columns of keys."""
    if probabilities:
        nearest, farthest = 0, -int(keys_of(np.array([_LEAST_PROBABILITY]), True)[0])
        usual = (0, 4 * _OCTAVE)
    else:
        ends = keys_of(np.array([_LEAST_VALUE, 1.0, _LARGEST_VALUE]), False)
        nearest, middle, farthest = ends.tolist()
        usual = (middle, 8 * _OCTAVE)
    searched = max(min(_SEARCHED, _ALL_SEARCHED // n_columns), _LEAST_SEARCHED)
    cuts = np.unique(keys_of(np.array(thresholds, np.float64), probabilities)).tolist()
    span = (nearest, farthest, _largest(probabilities))
    return Refined(label, column, n_fine, n_cells, searched, span, usual, tuple(cuts), position)


@final
@dataclass(frozen=True, eq=False)
class MergedCells:
    """Merged cells of scores, and the shares of rows in the fine cells within them; public."""

    found: FoundCells
    probabilities: bool
    shares: Array

    def tilted(self, positions: Array) -> Self:
        """Return the cells with shares that have these mean positions within merged cells.

        Exponential tilting minimizes the relative entropy of the change.
        """
        middles, wanted = self.found.middles, np.clip(positions, -_FARTHEST, _FARTHEST)
        bend = np.zeros(len(self.there))
        for _ in range(_TILTS):
            moved = self._bent(bend, middles)
            mean = moved.mean(middles)
            spread = moved.mean((middles - mean[self.place]) ** 2)
            step = (wanted - mean) / np.maximum(spread, _LEAST_SPREAD)
            bend = np.clip(bend + np.clip(step, -2.0, 2.0), -_MOST_BENT, _MOST_BENT)
        return self._bent(bend, middles)

    def _bent(self, bend: Array, middles: Array) -> Self:
        shares = self.found.shares * np.exp(bend[self.place] * middles)
        whole = np.bincount(self.place, self.found.shares) / np.bincount(self.place, shares)
        return dataclasses.replace(self, shares=shares * whole[self.place])

    @property
    def there(self) -> NDArray[np.intp]:
        """Merged cells that contain fine cells."""
        return self.found.there

    @property
    def place(self) -> NDArray[np.intp]:
        """Position of the merged cell of each fine cell within ``there``."""
        return self.found.place

    @functools.cached_property
    def ends(self) -> Array:
        """Lower end of each merged cell; that of the first is the least score."""
        first = np.searchsorted(self.place, np.arange(len(self.there)))
        ends = scores_of(self.found.grid.bounds[first], self.probabilities)
        ends[0] = 0.0 if self.probabilities else -np.inf
        return ends

    @functools.cached_property
    def scores(self) -> Array:
        """Middle score of each fine cell."""
        lows, highs = self.found.grid.bounds[:-1], self.found.grid.bounds[1:] - 1
        return scores_of(lows + (highs - lows) // 2, self.probabilities)

    @functools.cached_property
    def log_odds(self) -> Array:
        """Log odds of the scores, clipped to ``LOG_ODDS``."""
        return np.clip(logit(self.scores), -LOG_ODDS, LOG_ODDS)

    def mean(self, values: Array) -> Array:
        """Return the mean of values of fine cells over the rows of each merged cell."""
        weights = self.shares
        return np.bincount(self.place, weights * values) / np.bincount(self.place, weights)

    @functools.cached_property
    def _parts(self) -> Array:
        """Share of its merged cell in each fine cell, averaged over both classes."""
        totals = np.maximum(self.found.counts.sum(axis=1, keepdims=True), 1.0)
        clear = np.where(self.found.clear, np.maximum(self.found.counts, 0.0), 0.0)
        masses = (clear / totals).sum(axis=0)
        whole = np.bincount(self.place, (self.found.counts / totals).sum(axis=0))
        whole = np.maximum(np.maximum(whole, np.bincount(self.place, masses)), 1e-9)
        parts: Array = masses / whole[self.place]
        return parts

    @functools.cached_property
    def _over_full(self) -> NDArray[np.bool_]:
        """Whether the scores of a fine cell are equal, or too close for the search to separate."""
        least = _OVER_FULL * self.found.counts.sum() / len(self.place)
        found: NDArray[np.bool_] = self.found.clear & (self.found.counts.sum(axis=0) > least)
        return found

    @functools.cached_property
    def spread(self) -> Array:
        """Spread of the scores of each merged cell: 0 if all are equal, 1 if all differ.

        It is 1 - sum a^3 over the shares a of over-full fine cells.
        """
        shared = np.where(self._over_full, self._parts, 0.0) ** 3
        return np.asarray(np.maximum(1.0 - np.bincount(self.place, shared), 0.0), np.float64)

    @functools.cached_property
    def unknown(self) -> Array:
        """Share of the pairs of each merged cell with unknown order.

        It is sum a^2 over the shares a of over-full fine cells with more than one key.
        """
        loose = np.where(self._over_full & ~self.found.grid.single, self._parts, 0.0) ** 2
        return np.asarray(np.minimum(np.bincount(self.place, loose), 1.0), np.float64)


_MOST_STEPS, _LONGEST_STEP, _CLOSE = 40, 2.0, 1e-9
# Information that is added to each direction, in rows, so that matrices are not singular.
_LEAST_INFORMATION = 1e-6
_LEAST_SHARE = 1e-6
_LEAST_DEVIATION = 1e-3
_LEAST = 1e-12
# A cell with less spread contains mainly one score.
_ONE_SCORE = 0.5


def area_under_roc(negatives: Array, positives: Array, spread: Array | float = 1.0) -> float:
    """Return the area under the ROC curve from noisy counts in cells of increasing scores.

    Pairs in different cells are counted. Pairs within a cell count by half, plus a correction for
    their order: if the share of positives, with both classes weighted equally, is linear in the
    rank of the score with slope g, pairs in a cell of mass D add g D^3 / 3. The correction reduces
    the error of B cells from order B^-2 to B^-4. Slopes are those of isotonic shares, which
    decrease if high scores belong to negatives.

    ``spread`` is 1 for a cell with different scores, and 1 - sum s^3 if shares s of it have equal
    scores.
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


def change_of_area(negatives: Array, positives: Array, spread: Array) -> float:
    """Return the change of the area if neighbouring cells are joined, averaged over both ways.

    It is large if class shares within cells differ from an interpolation between neighbours.
    """
    whole, joined = area_under_roc(negatives, positives, spread), []
    masses = np.abs(_shares(negatives)) + np.abs(_shares(positives)) + _LEAST
    # Cells with one score are not joined.
    apart = np.minimum(spread[1:], spread[:-1]) < _ONE_SCORE
    for first in (0, 1):
        second = np.arange(1, len(spread)) % 2 != first
        starts = np.flatnonzero([True, *(apart | second)])
        sums = [np.add.reduceat(one, starts) for one in (negatives, positives, masses)]
        shared = np.add.reduceat((1.0 - spread) * masses**3, starts) / sums[2] ** 3
        joined.append(area_under_roc(sums[0], sums[1], np.clip(1.0 - shared, 0.0, 1.0)))
    return abs(whole - 0.5 * sum(joined))


def order_variance(negatives: Array, positives: Array, spread: Array | float = 1.0) -> float:
    """Return the variance of the area over random orders of the rows within cells.

    For each cell it is that of the Mann-Whitney statistic, n0 n1 (n0 + n1 + 1) / 12 (Annals of
    Mathematical Statistics 1947), times ``spread`` (Kendall's correction for ties).
    """
    low, high = np.maximum(negatives, 0.0), np.maximum(positives, 0.0)
    pairs = max(low.sum(), 1.0) * max(high.sum(), 1.0)
    ranked = low * high * (low + high + 1.0) * spread
    return float(ranked.sum()) / (12.0 * float(pairs) ** 2)


def unknown_order(negatives: Array, positives: Array, unknown: Array) -> float:
    """Return the largest change of the area by pairs with unknown order."""
    pairs = np.maximum(_shares(negatives), 0.0) * np.maximum(_shares(positives), 0.0)
    return 0.5 * float(pairs @ unknown)


def roc_points(negatives: Array, positives: Array) -> tuple[Array, Array]:
    """Return false and true positive rates at each cell's lower end, from 0 to 1, increasing."""
    return _upwards(_shares(negatives)), _upwards(_shares(positives))


def precision_recall_points(negatives: Array, positives: Array) -> tuple[Array, Array]:
    """Return precision and recall at each cell's lower end, from the highest cell down."""
    wrong = _upwards(_shares(negatives)) * max(negatives.sum(), 0.0)
    right = _upwards(_shares(positives)) * max(positives.sum(), 0.0)
    found = wrong + right
    precision = np.divide(right, found, out=np.ones_like(found), where=found > _LEAST)
    return precision, _upwards(_shares(positives))


def at_cut(negatives: Array, positives: Array, cut: int) -> tuple[float, float, float, float]:
    """Return true negatives, false positives, false negatives and true positives.

    Rows in cells from ``cut`` on are predicted positive.
    """
    return (
        float(negatives[:cut].sum()),
        float(negatives[cut:].sum()),
        float(positives[:cut].sum()),
        float(positives[cut:].sum()),
    )


def largest_gap(negatives: Array, positives: Array, first: Array | float = 0.0) -> float:
    """Return the largest difference of true and false positive rate at an end of a cell.

    With ``first`` also within cells, if this share of the negatives of a cell has the least scores.
    """
    p, q = _shares(positives), _shares(negatives)
    gaps = np.cumsum(q - p)
    inside = gaps - (q - p) + q * first
    return float(max(gaps[:-1].max(initial=0.0), inside.max(initial=0.0)))


@final
@dataclass(frozen=True, eq=False)
class Recalibration:
    """Logistic regression of the class on log odds, from counts in merged cells.

    Scores of a merged cell are distributed over its fine cells by their shares. Log odds are
    clipped to their quantiles ``outer`` and 1 - ``outer``.
    """

    cells: MergedCells
    outer: float = 0.0

    @functools.cached_property
    def log_odds(self) -> Array:
        """Log odds of fine cells."""
        upto = np.cumsum(self.cells.shares) / self.cells.shares.sum()
        ends = np.searchsorted(upto, [self.outer, 1.0 - self.outer])
        low, high = self.cells.log_odds[np.minimum(ends, len(upto) - 1)]
        return np.clip(self.cells.log_odds, low, high)

    def intercept(self, rows: Array, positives: float, predicted: float) -> float:
        """Return the shift of all log odds for which predictions add up to the positives.

        ``predicted`` is the sum of the predictions without the shift.
        """
        share = float(rows.sum())
        shift, (start, _) = 0.0, self._responses(self.log_odds)
        for _ in range(_MOST_STEPS):
            means, slopes = self._responses(self.log_odds + shift)
            missing = positives - predicted - float(rows @ (means - start))
            step = missing / max(float(rows @ slopes), _LEAST_INFORMATION * max(share, 1.0))
            shift += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
            if abs(step) < _CLOSE:
                break
        return shift

    def steepness(self, rows: Array) -> float:
        """Return the derivative of the mean prediction with respect to the shift."""
        _, slopes = self._responses(self.log_odds)
        return float(rows @ slopes) / max(float(rows.sum()), 1.0)

    def slope(self, negatives: Array, positives: Array) -> float:
        """Return the coefficient of the log odds, next to an intercept.

        It solves the score equations of the counts, with the mean log odds of each merged cell.
        """
        rows = negatives + positives
        positions, deviation = self._positions(rows)
        return float(self._fit(rows, positives, positions)[1]) / deviation

    def unseen(self, negatives: Array, positives: Array) -> float:
        """Return the variance of the slope of the rows given the counts.

        It is the inverse information of the counts minus that of the rows.
        """
        rows = negatives + positives
        positions, deviation = self._positions(rows)
        fitted = self._fit(rows, positives, positions)
        rows = np.maximum(rows, 0.0)
        middle = self.cells.mean(positions)
        means = expit(fitted[0] + fitted[1] * positions)
        information, slopes = self._information(rows, means, positions)
        moments = [float(rows @ self.cells.mean(slopes * positions**k)) for k in range(3)]
        whole = np.array([moments[:2], moments[1:]])
        response = self.cells.mean(means)
        design = np.stack([np.ones_like(middle), middle])
        squares = design * (rows * response * (1.0 - response)) @ design.T
        inverse = np.linalg.inv(information)
        counted = (inverse @ squares @ inverse.T)[1, 1]
        known = np.linalg.inv(_regularized(whole, rows))[1, 1]
        return max(float(counted - known), 0.0) / deviation**2

    def _responses(self, scores: Array) -> tuple[Array, Array]:
        """Return the mean response in each merged cell, and its slope."""
        means = expit(scores)
        return self.cells.mean(means), self.cells.mean(means * (1.0 - means))

    def _positions(self, rows: Array) -> tuple[Array, float]:
        """Return the standardized log odds of fine cells, and their standard deviation."""
        weights = np.maximum(rows, 0.0)
        weights = weights / max(float(weights.sum()), 1e-300)
        odds = self.log_odds
        center = float(weights @ self.cells.mean(odds))
        spread = float(weights @ self.cells.mean((odds - center) ** 2))
        deviation = max(math.sqrt(max(spread, 0.0)), _LEAST_DEVIATION)
        return (odds - center) / deviation, deviation

    def _information(self, rows: Array, means: Array, positions: Array) -> tuple[Array, Array]:
        slopes = means * (1.0 - means)
        middle = self.cells.mean(positions)
        pulls = [rows * self.cells.mean(slopes), rows * self.cells.mean(slopes * positions)]
        found = np.array([[one.sum() for one in pulls], [float(middle @ one) for one in pulls]])
        return _regularized(found, rows), slopes

    def _fit(self, rows: Array, positives: Array, positions: Array) -> Array:
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


def _regularized(information: Array, rows: Array) -> Array:
    """Return an information matrix that is not singular."""
    least = _LEAST_INFORMATION * max(float(rows.sum()), 1.0)
    found: Array = information + least * np.eye(2)
    return found


def _shares(counts: Array) -> Array:
    total = counts.sum()
    shares: Array = counts / (total if abs(total) > _LEAST else _LEAST)
    return shares


def _upwards(shares: Array) -> Array:
    """Return increasing sums of shares from the highest cell down, from 0 to 1."""
    sums = np.concatenate([[0.0], np.cumsum(shares[::-1])])
    sums[-1] = 1.0
    return np.clip(np.maximum.accumulate(sums), 0.0, 1.0)


# Error of the correction for the order within B cells, relative to it and times B^2: it is of the
# next order, and was largest for scores that separate classes well.
_UNSURE = 7.5
# Error relative to the change by half as many cells: a third for an error of order B^-2.
_OF_CHANGE = 0.7


def area_number(noisy: Noisy, cells: MergedCells, z: float) -> Number:
    """Return the area under the ROC curve from counts in cells.

    Its intervals contain the area for every order of the scores that the search left unordered.
    """
    return known_area(noisy, cells, z).widened(unknown_order(*noisy.by_class, cells.unknown), SHARE)


def known_area(noisy: Noisy, cells: MergedCells, z: float) -> Number:
    """Return the area if the scores that the search left unordered are equal."""

    def area(values: Parts, spread: Array | float = cells.spread) -> float:
        return area_under_roc(*by_class(values), spread)

    order = area(noisy.values) - area(noisy.values, 0.0)
    return noisy.number(
        area,
        z,
        SHARE,
        approximation=max(
            _UNSURE * abs(order) / noisy.counts.shape[1] ** 2,
            _OF_CHANGE * change_of_area(*noisy.by_class, cells.spread),
        ),
        unseen=order_variance(*noisy.by_class, cells.spread),
    )
