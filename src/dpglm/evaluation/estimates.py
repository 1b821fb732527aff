"""Score cells of two classes: keys, merged cells, ROC curves and recalibration."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, log_ndtr, logit, ndtr

from dpglm._validation import Array
from dpglm.evaluation.task import solved
from dpglm.inference.comparisons import largest_errors, root_of
from dpglm.solvers.composite.tabulation import FoundCells, Refined
from dpglm.tabulate import SHARE, Noisy, Number, NumberScale, by_class, nearest_counts

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

    @functools.cached_property
    def gathered(self) -> Self:
        """The cells with all rows of a merged cell at their mean position."""
        middles, least = self.found.middles, np.full(len(self.there), np.inf)
        away = np.abs(middles - self.mean(middles)[self.place])
        np.minimum.at(least, self.place, away)
        return dataclasses.replace(self, shares=(away <= least[self.place]).astype(np.float64))

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
# Shifts that are tested; and slopes, per standard deviation of the log odds.
_TESTS = 81
_SLOPES = np.sinh(np.linspace(-math.asinh(64.0), math.asinh(64.0), _TESTS))
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
    _, slopes = _rising(p[there], mass[there], rising)
    return area + float(slopes @ (mass**3 * spread)[there]) / 3.0


def _rising(positives: Array, mass: Array, rising: bool) -> tuple[Array, Array]:
    """Return isotonic shares of positives in cells, and their slopes by mass."""
    share = np.clip(0.5 * positives / mass, 0.0, 1.0)
    share = isotonic_regression(share, weights=mass, increasing=rising).x
    return share, np.gradient(share, np.cumsum(mass) - 0.5 * mass)


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


def gap_number(noisy: Noisy, cells: MergedCells, z: float) -> Number:
    """Return the largest gap between the rates at any score, the KS distance.

    It is at least the gap at each end of a cell: the lower end is the largest of simultaneous lower
    ends. It is at most the gap near its true place: the upper end is the largest of the upper ends
    of single cells, with the increase of the gap within the cell. In these rows the gap also
    fluctuates there: the largest value of a Brownian bridge with variance v exceeds ``x`` with
    probability ``exp(-2 x^2 / v)``.
    """
    counts, totals = noisy.counts, np.maximum(noisy.counts.sum(axis=1), 1.0)[:, np.newaxis]
    below = np.tril(np.ones((counts.shape[1],) * 2))[:-1]
    rates = counts / totals @ below.T
    slopes = (below - rates[..., np.newaxis]) / totals[..., np.newaxis]
    slopes = np.concatenate([slopes[0], -slopes[1]], axis=1)
    moved = slopes - slopes.mean(axis=1, keepdims=True) if noisy.known_sum else slopes
    noise = float(noisy.noise["counts"]) ** 2 * moved @ moved.T
    rows = noisy.clustering * np.maximum(counts, 0.0)
    sampled = slopes * rows.ravel() @ slopes.T
    gaps = rates[0] - rates[1]
    ends, inside = np.pad(gaps, 1), gap_increases(*noisy.by_class) * cells.spread
    inside += np.maximum(ends[:-1], ends[1:])
    inside += largest_gap(*noisy.by_class, np.sqrt(cells.unknown))
    inside -= largest_gap(*noisy.by_class)
    bridge = -0.5 * float(log_ndtr(-z)) * (rows / totals**2).sum(axis=0) * cells.spread
    found = [max(float(gaps.max(initial=0.0)), 0.0)]
    for covariance, squares in ((noise, bridge), (noise + sampled, 0.0)):
        errors = np.sqrt(np.diag(covariance))
        units = np.maximum(errors, _LEAST)
        root = root_of(covariance / np.outer(units, units))
        joint = float(np.quantile(largest_errors(root, np.inf), 2.0 * ndtr(z) - 1.0))
        errors_of_cells = np.maximum(*(np.pad(errors, one) for one in ((1, 0), (0, 1))))
        highest = inside + np.sqrt((z * errors_of_cells) ** 2 + squares)
        found += [float((gaps - joint * errors).max(initial=0.0)), float(highest.max())]
    return Number(*map(SHARE.shown, found))


def gap_increases(negatives: Array, positives: Array) -> Array:
    """Return the increase of the gap of the rates within each cell, over that at both its ends.

    The share of positives, with both classes weighted equally, is taken as linear in the rank of
    the score within a cell, as in ``area_under_roc``.
    """
    p, q = _shares(positives), _shares(negatives)
    mass = np.maximum(0.5 * (p + q), 0.0)
    there, found = mass > _LEAST, np.maximum(q, 0.0)
    if np.count_nonzero(there) < 3:
        return found
    mass = mass[there]
    share, slopes = _rising(p[there], mass, True)
    bend = np.maximum(slopes * mass, _LEAST)
    place = np.clip(0.5 + (0.5 - share) / bend, 0.0, 1.0)
    chord = 2.0 * mass * (1.0 - 2.0 * share)
    peak = chord * place + 2.0 * mass * bend * place * (1.0 - place)
    found[there] = peak - np.maximum(chord, 0.0)
    return np.maximum(found, 0.0)


@final
@dataclass(frozen=True, eq=False)
class Recalibration:
    """Tests of the calibration: scores of a logistic regression of the class on log odds.

    Rows of a merged cell are distributed over its fine cells by their shares. ``near`` are the
    cells with mean positions one standard error higher and lower.
    """

    noisy: Noisy
    cells: MergedCells
    near: tuple[MergedCells, MergedCells]

    @functools.cached_property
    def _rows(self) -> Array:
        """The nearest numbers of rows that are not negative."""
        rows = self.noisy.counts.sum(axis=0)
        return nearest_counts(rows, np.ones_like(rows), self.noisy.n_rows)

    @functools.cached_property
    def _odds(self) -> tuple[Array, float]:
        """Standardized log odds of fine cells, and their standard deviation."""
        odds, mean = self.cells.log_odds, self.cells.mean
        center = float(self._rows @ mean(odds)) / self.noisy.n_rows
        spread = float(self._rows @ mean((odds - center) ** 2)) / self.noisy.n_rows
        deviation = max(math.sqrt(spread), _LEAST_DEVIATION)
        return (odds - center) / deviation, deviation

    def intercept(self, predicted: float, z: float) -> Number:
        """Return the shift of all log odds for which predictions add up to the positives.

        ``predicted`` is the mean prediction without the shift.
        """
        start, rows = expit(self.cells.log_odds), self.noisy.counts.sum(axis=0)
        positive = np.array([[0.0], [1.0]])
        missing = float(self.noisy.counts[1].sum()) - predicted * float(rows.sum())

        def test(shift: float) -> tuple[float, float, float]:
            means = expit(self.cells.log_odds + shift)
            change = self.cells.mean(means - start)
            errors = positive - self.cells.mean(means)
            squares = errors**2 + self.cells.mean(means**2) - self.cells.mean(means) ** 2
            counts = np.maximum(self.noisy.counts, 0.0)
            # The mean prediction depends on half of the counts and of its own sum.
            slopes = {"counts": positive - change - 0.5, "prediction": np.array(-0.5)}
            noise, _ = self.noisy.variances(slopes)
            noise += self._of_positions(lambda cells: rows * cells.mean(means - start))
            sampled = self.noisy.clustering * float((counts * squares).sum())
            return missing - float(rows @ change), noise, noise + sampled

        ends = np.linspace(-2.0 * LOG_ODDS, 2.0 * LOG_ODDS, _TESTS)
        return solved(test, ends, z, NumberScale())

    def slope(self, z: float) -> Number:
        """Return the coefficient of the log odds, next to an intercept.

        Each slope is tested with the intercept that fits it best. Its score is the efficient one:
        small errors of the intercept do not change it.
        """
        odds, deviation = self._odds
        rows, middle = self.noisy.counts.sum(axis=0), self.cells.mean(odds)
        within = (odds - middle[self.cells.place]) ** 2

        def test(slope: float) -> tuple[float, float, float]:
            means = expit(self._intercept(slope * odds) + slope * odds)
            curves = means * (1.0 - means)
            pulls = self._rows * self.cells.mean(curves)
            center = float(self._rows @ self.cells.mean(curves * odds)) / max(
                float(pulls.sum()), _LEAST_INFORMATION * self.noisy.n_rows
            )
            response = self.cells.mean(means)
            weights, missing = middle - center, self.noisy.counts[1] - rows * response
            slopes = np.stack([-weights * response, weights * (1.0 - response)])
            noise, sampled = self.noisy.variances({"counts": slopes})
            noise += self._of_positions(
                lambda cells: cells.mean(odds) * missing - weights * self._rows * cells.mean(means)
            )
            unseen = self.noisy.clustering * float(self._rows @ self.cells.mean(curves * within))
            return float(weights @ missing), noise + unseen, noise + max(sampled, unseen)

        found = solved(test, _SLOPES, z, NumberScale())
        return Number(*(one / deviation for one in vars(found).values()))

    def _intercept(self, scores: Array) -> float:
        """Return the intercept for which predictions add up to the positives."""
        positives, total = float(self.noisy.counts[1].sum()), self.noisy.n_rows
        share = min(max(positives / total, _LEAST_SHARE), 1.0 - _LEAST_SHARE)
        intercept = float(logit(share))
        for _ in range(_MOST_STEPS):
            means = expit(intercept + scores)
            missing = share * total - float(self._rows @ self.cells.mean(means))
            slope = float(self._rows @ self.cells.mean(means * (1.0 - means)))
            step = missing / max(slope, _LEAST_INFORMATION * total)
            intercept += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
            if abs(step) < _CLOSE:
                break
        return intercept

    def _of_positions(self, function: Callable[[MergedCells], Array]) -> float:
        """Return the variance of a sum over merged cells by the places of the rows within them.

        Mean positions have independent errors. Next to a mean position, rows may be less spread
        than in ``cells`` down to all of them at one place, or more: the sum is taken as uniform.
        """
        high, low = map(function, self.near)
        change = float((function(self.cells.gathered) - function(self.cells)).sum())
        return float(((0.5 * (high - low)) ** 2).sum()) + change**2 / 3.0


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
    found = known_area(noisy, cells, z, SHARE, area_error(noisy, cells))
    return found.widened(unknown_order(*noisy.by_class, cells.unknown), SHARE)


def area_error(noisy: Noisy, cells: MergedCells) -> float:
    """Return the size of the error of the correction for the order within cells."""
    order = area_under_roc(*noisy.by_class, cells.spread) - area_under_roc(*noisy.by_class, 0.0)
    return max(
        _UNSURE * abs(order) / len(cells.there) ** 2,
        _OF_CHANGE * change_of_area(*noisy.by_class, cells.spread),
    )


def known_area(
    noisy: Noisy, cells: MergedCells, z: float, scale: NumberScale, error: float
) -> Number:
    """Return the area if the scores that the search left unordered are equal."""
    return noisy.number(
        lambda values: area_under_roc(*by_class(values), cells.spread),
        z,
        scale,
        approximation=error,
        unseen=order_variance(*noisy.by_class, cells.spread),
    )
