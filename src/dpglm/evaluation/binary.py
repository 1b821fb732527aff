"""Two classes: score histograms of the negative and the positive rows, and their release."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.evaluation.estimates import (
    LARGEST_LOSS,
    LEAST_FINE,
    SHARE,
    MergedCells,
    Noisy,
    Positions,
    Recalibration,
    area_number,
    at_cut,
    keys_of,
    largest_gap,
    n_cells_for,
    n_fine_for,
    precision_recall_points,
    refined_column,
    roc_points,
)
from dpglm.evaluation.task import (
    Released,
    Task,
    class_codes,
    class_list,
    finite,
    in_range,
    known,
    weighted,
)
from dpglm.exploration.results import Number, Scale
from dpglm.oracle.counts import Cells
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import KEY_UNIT, ScoreTables, plan_score_tables

# What score histograms of the negative and the positive rows say, with intervals.

Floats: TypeAlias = NDArray[np.float64]

# The least that false positive rates may differ where true ones differ by 1, in slopes of curves.
_STEEPEST = 1e-3
# Share of the rows at either end whose scores are least known.
_OUTER = 0.01
# Where sums stand behind the counts.
_LOSS_AT, _BRIER_AT, _PREDICTED_AT = -3, -2, -1
# The rarest class of which a share of the log loss is asked.
_LEAST_SHARE = 1e-6


def usual_threshold(probabilities: bool) -> float:
    """Return the score from which on rows are called positive unless another is given."""
    return 0.5 if probabilities else 0.0


@final
@dataclass(frozen=True)
class CalibrationBin:
    """A cell of scores, and how many of its rows are positive.

    Parameters
    ----------
    low, high : float
        Its ends.
    mean_score : float
        Mean score of its rows, approximately.
    positives : Number
        Share of its rows that are positive.
    share : Number
        Share of all rows.
    """

    low: float
    high: float
    mean_score: float
    positives: Number
    share: Number


@final
@dataclass(frozen=True, eq=False, repr=False)
class BinaryResult:
    """How well scores tell two classes apart, as far as the released tables say.

    Parameters
    ----------
    classes : tuple
        The negative and the positive class.
    noisy : Noisy
        Counts of the negative, then the positive rows in cells of increasing scores; then, where
        scores are probabilities, sums of positions in each cell, then of log losses, of squared
        errors and of predictions.
    cells : MergedCells
        These cells, and what fine cells say of each.
    rows_in : ndarray of shape (n_cells,)
        Number of rows of all groups in each cell, which sums of positions are divided by.
    z : float
        Half width of intervals in standard deviations.
    """

    classes: tuple[Any, ...]
    noisy: Noisy
    cells: MergedCells
    rows_in: Floats
    z: float

    @property
    def ends(self) -> Floats:
        """Lower ends of cells, of shape (n_cells,)."""
        return self.cells.ends

    @functools.cached_property
    def means(self) -> Floats:
        """Mean score of each cell, approximately, of shape (n_cells,)."""
        return self._tilted(self.noisy.values).mean(self.cells.scores)

    def _tilted(self, values: Floats) -> MergedCells:
        """Return the cells with shares of their rows that have the mean positions found."""
        if not self.probabilities:
            return self.cells
        n_cells = len(self.ends)
        return self.cells.tilted(values[2 * n_cells : 3 * n_cells] / self.rows_in)

    @property
    def usual_threshold(self) -> float:
        """Threshold of decisions unless another is given: 0.5 of probabilities, else 0."""
        return usual_threshold(self.probabilities)

    @property
    def negatives(self) -> Floats:
        """Noisy counts of negative rows in the cells."""
        return self.noisy.values[: len(self.ends)]

    @property
    def positives(self) -> Floats:
        """Noisy counts of positive rows in the cells."""
        return self.noisy.values[len(self.ends) : 2 * len(self.ends)]

    @property
    def probabilities(self) -> bool:
        """Whether scores are probabilities."""
        return len(self.noisy.values) > 2 * len(self.ends)

    @property
    def measures(self) -> Mapping[str, Callable[[], Number]]:
        """What can be asked without a threshold, by name."""
        found: dict[str, Callable[[], Number]] = {
            "prevalence": self._prevalence,
            "auc": self._auc,
            "ks": self._ks,
            "lift": self.lift,
        }
        if self.probabilities:
            found |= {
                "log_loss": self._log_loss,
                "d2": self._d2,
                "brier": self._brier,
                "mean_prediction": self._mean_prediction,
                "calibration_intercept": self._calibration_intercept,
                "calibration_slope": self._calibration_slope,
            }
        return found

    def at(self, threshold: float | None = None) -> dict[str, Number]:
        """Return what decisions at a threshold are worth.

        Parameters
        ----------
        threshold : float, optional
            Rows with scores from here on are called positive; the nearest end of a cell is taken,
            which is the threshold itself if it was declared. By default ``usual_threshold``.

        Returns
        -------
        dict of Number
            ``accuracy``, ``balanced_accuracy``, ``recall``, ``specificity``, ``precision``, ``f1``
            and ``selected``, the share that is called positive.
        """
        cut = self._cut(threshold)

        def number(function: Callable[[float, float, float, float], float]) -> Number:
            return self._of_counts(lambda low, high: function(*at_cut(low, high, cut)))

        return {
            "accuracy": number(lambda tn, fp, fn, tp: _ratio(tn + tp, tn + fp + fn + tp)),
            "balanced_accuracy": number(
                lambda tn, fp, fn, tp: 0.5 * (_ratio(tn, tn + fp) + _ratio(tp, tp + fn))
            ),
            "recall": number(lambda tn, fp, fn, tp: _ratio(tp, tp + fn)),
            "specificity": number(lambda tn, fp, fn, tp: _ratio(tn, tn + fp)),
            "precision": number(lambda tn, fp, fn, tp: _ratio(tp, tp + fp)),
            "f1": number(lambda tn, fp, fn, tp: _ratio(2.0 * tp, 2.0 * tp + fp + fn)),
            "selected": number(lambda tn, fp, fn, tp: _ratio(fp + tp, tn + fp + fn + tp)),
        }

    def roc_curve(self) -> tuple[Floats, Floats, Floats]:
        """Return the ROC curve at the ends of cells.

        Returns
        -------
        false_positive_rates, true_positive_rates : ndarray of shape (n_cells + 1,)
            Increasing, from 0 to 1.
        thresholds : ndarray of shape (n_cells + 1,)
            Scores from which rows are called positive; infinite for the first, as scikit-learn's.
        """
        false, true = roc_points(self.negatives, self.positives)
        return false, true, np.array([math.inf, *self.ends[::-1]])

    def roc_band(self) -> tuple[Number, ...]:
        """Return the true positive rate at each false positive rate of the ROC curve.

        Returns
        -------
        tuple of Number
            One for each point of ``roc_curve``; each interval is for that point alone. Both rates
            are estimates: to the error of the one the curve's slope adds that of the other.
        """
        false, true = roc_points(self.negatives, self.positives)
        # Of the curve through a point's neighbours, which is nowhere vertical.
        run = np.maximum(false[2:] - false[:-2], _STEEPEST * np.diff(true[[0, -1]]))
        slopes = np.concatenate([[0.0], (true[2:] - true[:-2]) / run, [0.0]])

        def rates(low: Floats, high: Floats, point: int) -> tuple[float, float]:
            cut = len(low) - point
            return _ratio(low[cut:].sum(), low.sum()), _ratio(high[cut:].sum(), high.sum())

        def reached(low: Floats, high: Floats, point: int) -> float:
            across, up = rates(low, high, point)
            return up - float(slopes[point]) * (across - float(false[point]))

        return tuple(
            self._of_counts(functools.partial(reached, point=point)) for point in range(len(false))
        )

    def confusion_matrix(self, threshold: float | None = None) -> Floats:
        """Return noisy counts of rows of each class (rows) that are called each (columns)."""
        cut = self._cut(threshold)
        return np.array(at_cut(self.negatives, self.positives, cut)).reshape(2, 2)

    def precision_recall_curve(self) -> tuple[Floats, Floats, Floats]:
        """Return precision, recall and thresholds at the ends of cells, from the highest down."""
        precision, recall = precision_recall_points(self.negatives, self.positives)
        return precision, recall, np.array([math.inf, *self.ends[::-1]])

    def calibration_curve(self) -> tuple[CalibrationBin, ...]:
        """Return cells with the share of positive rows in each; ValueError without probabilities.

        Cells whose number of rows cannot be told from noise are left out.
        """
        self._need_probabilities("a calibration curve")
        n_cells, rows = len(self.ends), self.negatives + self.positives
        clear = rows > self.z * math.sqrt(2.0) * self.noisy.noise[0]
        found = []
        for place in np.flatnonzero(clear).tolist():

            def share(values: Floats, place: int = place) -> float:
                low, high = values[place], values[n_cells + place]
                return _ratio(high, low + high)

            def mass(values: Floats, place: int = place) -> float:
                return _ratio(values[place] + values[n_cells + place], values[: 2 * n_cells].sum())

            found.append(
                CalibrationBin(
                    self.ends[place],
                    self.ends[place + 1] if place + 1 < n_cells else 1.0,
                    self.means[place],
                    self.noisy.number(share, self.z),
                    self.noisy.number(mass, self.z),
                )
            )
        return tuple(found)

    @property
    def rows(self) -> Number:
        """Number of rows; an interval for a population is none of its."""
        return self.noisy.total(2 * len(self.ends), self.z)

    def lift(self, share: float = 0.1) -> Number:
        """Return how many times as many positives the rows with the highest scores hold.

        Parameters
        ----------
        share : float, default=0.1
            Share of rows with the highest scores, in (0, 1].
        """
        share = check_real("share", share, above=0.0, most=1.0)

        def gained(low: Floats, high: Floats) -> float:
            false, true = roc_points(low, high)
            base = _ratio(high.sum(), low.sum() + high.sum())
            called = (1.0 - base) * false + base * true
            reached: float = np.interp(share, called, true).item()
            return reached / share

        return self._of_counts(gained, Scale(low=0.0))

    def _cut(self, threshold: float | None) -> int:
        at = self.usual_threshold if threshold is None else threshold
        ends = {"least": 0.0, "most": 1.0} if self.probabilities else {}
        at = check_real("threshold", at, **ends)
        return int(np.abs(np.array([*self.ends, 1.0 if ends else math.inf]) - at).argmin())

    def _of_counts(
        self, function: Callable[[Floats, Floats], float], scale: Scale = SHARE
    ) -> Number:
        n_cells = len(self.ends)
        return self.noisy.number(
            lambda values: function(values[:n_cells], values[n_cells : 2 * n_cells]),
            self.z,
            scale,
        )

    def _auc(self) -> Number:
        return area_number(self.noisy, self.cells, self.z)

    def _ks(self) -> Number:
        """Return the largest gap at an end of a cell; a cell of unknown order may hold a larger."""
        found = self._of_counts(largest_gap)
        inside = largest_gap(self.negatives, self.positives, np.sqrt(self.cells.unknown))
        within = inside - largest_gap(self.negatives, self.positives)
        return dataclasses.replace(
            found,
            high=SHARE.shown(found.high + within),
            population_high=SHARE.shown((found.population_high or 0.0) + within),
        )

    def _prevalence(self) -> Number:
        return self._of_counts(lambda low, high: _ratio(high.sum(), low.sum() + high.sum()))

    @property
    def _typical_losses(self) -> Floats:
        """Log losses of rows at the mean scores of their cells."""
        means = np.clip(self.means, math.exp(-LARGEST_LOSS), 1.0 - math.exp(-LARGEST_LOSS))
        return np.concatenate([-np.log1p(-means), -np.log(means)])

    def _log_loss(self) -> Number:
        return self._mean(_LOSS_AT, self._typical_losses, LARGEST_LOSS)

    def _brier(self) -> Number:
        return self._mean(_BRIER_AT, np.concatenate([self.means**2, (1.0 - self.means) ** 2]), 1.0)

    def _mean_prediction(self) -> Number:
        rows = np.maximum(self._rows, 0.0)
        total = max(float(rows.sum()), 1.0)
        cells = self._tilted(self.noisy.values)
        squares = float(rows @ cells.mean(cells.scores**2)) / total
        variance = max(squares - (float(rows @ self.means) / total) ** 2, 0.0)
        return self.noisy.number(
            lambda values: self._mean_of(values, _PREDICTED_AT, 1.0),
            self.z,
            sampled=variance / total,
        )

    @property
    def _rows(self) -> Floats:
        return self.negatives + self.positives

    def _calibration_intercept(self) -> Number:
        """Return what is to be added to the log odds for the mean prediction to be right."""
        n_cells = len(self.ends)
        fit = Recalibration(self._tilted(self.noisy.values))
        steepness = fit.steepness(np.maximum(self._rows, 0.0))

        def shift(values: Floats) -> float:
            low, high = values[:n_cells], values[n_cells : 2 * n_cells]
            rows = low + high
            predicted = self._mean_of(values, _PREDICTED_AT, 1.0) * float(rows.sum())
            return fit.intercept(rows, float(high.sum()), predicted)

        missed = np.concatenate([-self.means, 1.0 - self.means])
        return self.noisy.number(
            shift, self.z, Scale(), sampled=self._spread_of(missed) / max(steepness, 1e-6) ** 2
        )

    def _calibration_slope(self) -> Number:
        """Return the factor of the log odds in a logistic regression of the class on them.

        How scores are distributed within cells is known roughly. What the mean positions of rows
        in their cells changed, and what the outermost scores do, is taken for the error.
        """
        n_cells = len(self.ends)

        def slope(values: Floats) -> float:
            fit = Recalibration(self._tilted(values))
            return fit.slope(values[:n_cells], values[n_cells : 2 * n_cells])

        fit = Recalibration(self._tilted(self.noisy.values))
        found = fit.slope(self.negatives, self.positives)
        others = (
            Recalibration(self.cells),
            Recalibration(self._tilted(self.noisy.values), _OUTER),
        )
        changes = [one.slope(self.negatives, self.positives) - found for one in others]
        return self.noisy.number(
            slope,
            self.z,
            Scale(),
            approximation=math.hypot(*changes),
            unseen=fit.unseen(self.negatives, self.positives),
        )

    def _d2(self) -> Number:
        """Return the share of a constant answer's log loss that is explained."""
        n_cells = len(self.ends)

        def entropy(values: Floats) -> tuple[float, float]:
            share = values[n_cells : 2 * n_cells].sum() / max(values[: 2 * n_cells].sum(), 1.0)
            share = min(max(float(share), _LEAST_SHARE), 1.0 - _LEAST_SHARE)
            return share, float(-xlogy(share, share) - xlogy(1.0 - share, 1.0 - share))

        def explained(values: Floats) -> float:
            return 1.0 - self._mean_of(values, _LOSS_AT, LARGEST_LOSS) / entropy(values)[1]

        (share, most), loss = entropy(self.noisy.values), 1.0 - explained(self.noisy.values)
        positive = np.repeat([0.0, 1.0], n_cells)
        # What a row changes, through the loss and through the best constant.
        pull = loss * math.log((1.0 - share) / share) * positive - self._typical_losses
        return self.noisy.number(
            explained, self.z, Scale(high=1.0), sampled=self._spread_of(pull / most)
        )

    def _mean_of(self, values: Floats, place: int, largest: float) -> float:
        """Return the mean of what rows add to a sum, as a share of ``largest`` on [-1, 1]."""
        rows = max(float(values[: 2 * len(self.ends)].sum()), 1.0)
        return 0.5 * largest * (1.0 + float(values[place]) / rows)

    def _mean(self, place: int, typical: Floats, largest: float) -> Number:
        self._need_probabilities("a mean loss")
        return self.noisy.number(
            lambda values: self._mean_of(values, place, largest),
            self.z,
            Scale(0.0, largest),
            sampled=self._spread_of(typical),
        )

    def _spread_of(self, typical: Floats) -> float:
        """Return the sampling variance of a mean over rows, of which these are in the cells."""
        counts = np.maximum(self.noisy.values[: 2 * len(self.ends)], 0.0)
        rows = max(float(counts.sum()), 1.0)
        mean = float(counts @ typical) / rows
        return (float(counts @ typical**2) / rows - mean**2) / rows

    def _need_probabilities(self, what: str) -> None:
        if not self.probabilities:
            raise ValueError(f"{what} needs scores that are probabilities, and these are not")


def _ratio(part: float, whole: float) -> float:
    return part / whole if abs(whole) > 1e-9 else math.nan


_LABEL, _SCORE, _LOSS, _BRIER, _PREDICTED, _POSITION = 1, 2, 3, 4, 5, 6
_HISTOGRAM_SHARE, _LOSS_SHARE, _BRIER_SHARE = 0.7, 0.1, 0.1
_PREDICTED_SHARE, _POSITION_SHARE = 0.05, 0.05
# Standard deviation of a mean position within a cell that is expected.
_AWAY = 0.3


@final
@dataclass(frozen=True)
class BinaryTask(Task):
    """Scores of two classes.

    Parameters
    ----------
    classes : tuple
        The negative and the positive class.
    thresholds : tuple of float, optional
        Scores at which decisions are of interest: cells begin there, so that no cell holds
        decisions of both kinds. By default 0.5 for probabilities, and 0 for other scores.
    probabilities : bool, default=True
        Whether scores are probabilities, so that calibration, Brier score and log loss are meant;
        other scores are any finite numbers.
    n_fine : int
        Number of fine cells of scores; plans set it.
    """

    classes: tuple[Any, ...]
    thresholds: tuple[float, ...] | None = None
    probabilities: bool = True
    n_fine: int = LEAST_FINE

    def __post_init__(self) -> None:
        classes = class_list(self.classes)
        if len(classes) != 2:
            raise ValueError(f"classes must be two, got {list(classes)!r}")
        object.__setattr__(self, "classes", classes)
        given = (
            (usual_threshold(self.probabilities),) if self.thresholds is None else self.thresholds
        )
        ends = {"above": 0.0, "below": 1.0} if self.probabilities else {}
        found = {check_real("thresholds", one, **ends) for one in given}
        object.__setattr__(self, "thresholds", tuple(sorted(found)))

    def for_rows(self, n_rows: int, mu: float) -> Self:
        return dataclasses.replace(self, n_fine=n_fine_for(n_rows, mu))

    @property
    def means(self) -> tuple[tuple[str, float, int], ...]:
        return (
            ("log loss", 0.5 * LARGEST_LOSS, 1),
            ("Brier score", 0.5, 2),
            ("mean prediction", 0.5, 3),
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"classes": list(self.classes)}

    def plan(
        self, data: DataSpec, n_levels: int, budget: PrivacyBudget, adjacency: Adjacency
    ) -> Plan:
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.reach(1))
        n_cells = n_cells_for(data.n_rows // n_levels, mu)
        refined = refined_column(
            _LABEL,
            _SCORE,
            self.n_fine,
            n_cells,
            probabilities=self.probabilities,
            thresholds=self.thresholds or (),
            position=_POSITION if self.probabilities else None,
        )
        histogram = Cells((0, _LABEL, _SCORE), (n_levels, 2, refined.merged_size))
        tables: tuple[Cells, ...] = (histogram,)
        if self.probabilities:
            tables = (
                weighted(histogram, _HISTOGRAM_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_LOSS,)), _LOSS_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_BRIER,)), _BRIER_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_PREDICTED,)), _PREDICTED_SHARE),
                weighted(
                    Cells((_SCORE,), (refined.merged_size,), values=(_POSITION,)), _POSITION_SHARE
                ),
            )
        data = known(data, 7, max(KEY_UNIT * refined.span[2], n_levels))
        return plan_score_tables(data, budget, adjacency, (refined,), tables)

    def n_added(self, plan: Plan) -> int:
        method = plan.method
        assert isinstance(method, ScoreTables)
        (refined,) = method.refined
        # Heavy cells, which are few, are left out.
        used = refined.n_cells + len(refined.cuts)
        return method.tables[0].size // refined.merged_size * used

    def encode(self, y: NDArray[Any], predictions: Floats) -> Floats:
        label = class_codes(y, self.classes)
        if not self.probabilities:
            score = finite("scores", predictions)
            losses = np.zeros((4, len(score)))
        else:
            remedy = ": give probabilities=False for scores of any size"
            score = in_range("scores", predictions, 0.0, 1.0, "(n,)", 1, remedy)
            right = np.where(label == 1, score, 1.0 - score)
            with np.errstate(divide="ignore"):
                loss = np.minimum(-np.log(right), LARGEST_LOSS)
            sums = [loss / LARGEST_LOSS, (1.0 - right) ** 2, score, np.full(len(score), 0.5)]
            losses = 2.0 * np.stack(sums) - 1.0
        return np.column_stack([label, KEY_UNIT * keys_of(score, self.probabilities), *losses])

    def results(self, released: Released) -> tuple[BinaryResult, ...]:
        method = released.plan.method
        assert isinstance(method, ScoreTables)
        (found,) = method.found(released.values)
        cells = MergedCells.of(found, self.probabilities)
        tables = method.table_values(released.values)
        noise = [method.coefficient_noise / table.weight for table in method.tables]
        histogram = tables[0][:, :, cells.there]
        n_rows = released.n_rows
        if n_rows is not None:
            histogram = histogram + (n_rows - histogram.sum()) / histogram.size
        sums, positions = tables[1:4], Positions.none()
        if self.probabilities:
            rows = np.maximum(histogram.sum(axis=(0, 1)), 1.0)
            positions = Positions.of(tables[4][cells.there], rows, noise[4], _AWAY)

        def result(chosen: slice, total: int | None) -> BinaryResult:
            n_added = len(range(released.n_levels)[chosen])
            counts = histogram[chosen].sum(axis=0)
            values = [*counts.ravel(), *positions.sums, *(one[chosen].sum() for one in sums)]
            stds = math.sqrt(n_added) * np.repeat(noise[:4], [counts.size] + [1] * len(sums))
            stds = np.insert(stds, counts.size, positions.noise)
            noisy = Noisy.of(
                np.array(values), stds, slice(0, counts.size), total, released.clustering
            )
            return BinaryResult(self.classes, noisy, cells, positions.rows, released.z)

        groups = [result(slice(g, g + 1), None) for g in range(released.n_levels)]
        everything = result(slice(None), n_rows)
        return (everything,) if released.n_levels == 1 else (*groups, everything)
