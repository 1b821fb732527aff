"""Two classes: score histograms of the negative and the positive rows, and metrics from them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dpglm._calls import checked
from dpglm._validation import Array, check_real
from dpglm.evaluation.estimates import (
    LARGEST_LOSS,
    MergedCells,
    Recalibration,
    area_number,
    at_cut,
    gap_number,
    keys_of,
    n_cells_for,
    n_fine_for,
    precision_recall_points,
    refined_column,
    roc_points,
)
from dpglm.evaluation.task import (
    PROBABILITIES,
    SCORES,
    EvaluationTask,
    Metric,
    Result,
    class_codes,
    class_list,
    finite,
    in_range,
    mean_of,
    metric,
    ratio,
    ratio_number,
)
from dpglm.oracle.counts import Cells
from dpglm.solvers.composite.tabulation import KEY_UNIT, FoundCells, Refined, Tabulation
from dpglm.tabulate import SHARE, Noisy, Number, NumberScale, Parts, ReleasedTables, by_class

Decided: TypeAlias = Callable[[float, float, float, float], float]
"""A metric as a function of true negatives, false positives, false negatives, true positives."""

_LABEL, _SCORE, _LOSS, _BRIER, _PREDICTED, _POSITION = 1, 2, 3, 4, 5, 6
# Tables of probabilities with their shares of the squared budget; other scores have the first only.
_SHARES = {"scores": 0.7, "log_loss": 0.1, "brier": 0.1, "prediction": 0.05, "position": 0.05}
# Variance of a mean position within a cell that may be anywhere from -1 to 1.
_POSITION_VARIANCE = 1.0 / 3.0
# The least change of the false positive rate per change of the true one, for slopes of curves.
_STEEPEST = 1e-3
# Relative error of sums of rows.
_CLOSE = 1e-9
# The smallest class share that enters logarithms.
_LEAST_SHARE = 1e-6


@checked
@final
@dataclass(frozen=True)
class BinaryTask(EvaluationTask):
    """Scores of two classes.

    Parameters
    ----------
    classes : tuple
        The negative and the positive class.
    thresholds : tuple of float, optional
        Thresholds of decisions. Cells begin there, so that a cell contains decisions of one kind
        only. By default 0.5 for probabilities, and 0 for other scores.
    probabilities : bool, default=True
        Whether scores are probabilities, which have calibration, Brier score and log loss. Other
        scores are any finite numbers.
    """

    classes: tuple[Any, ...]
    thresholds: tuple[float, ...] | None = None
    probabilities: bool = True

    def __post_init__(self) -> None:
        classes = class_list(self.classes)
        if len(classes) != 2:
            raise ValueError(f"classes must be two, got {list(classes)!r}")
        object.__setattr__(self, "classes", classes)
        given = (self.default_threshold,) if self.thresholds is None else self.thresholds
        ends = {"above": 0.0, "below": 1.0} if self.probabilities else {}
        found = {check_real("thresholds", one, **ends) for one in given}
        object.__setattr__(self, "thresholds", tuple(sorted(found)))

    @property
    def default_threshold(self) -> float:
        """Threshold of decisions unless another is given."""
        return 0.5 if self.probabilities else 0.0

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(one for one in METRICS if self.probabilities or one.of == SCORES)

    @property
    def pictures(self) -> tuple[str, ...]:
        return ("roc", *(["calibration"] if self.probabilities else []), "thresholds")

    @property
    def means(self) -> tuple[tuple[str, float, str], ...]:
        if not self.probabilities:
            return ()
        return (
            ("log loss", 0.5 * LARGEST_LOSS, "log_loss"),
            ("Brier score", 0.5, "brier"),
            ("mean prediction", 0.5, "prediction"),
        )

    width = 7

    @property
    def shares(self) -> Mapping[str, float]:
        return _SHARES if self.probabilities else {"scores": 1.0}

    def refined(self, n_rows: int, mu: float) -> tuple[Refined, ...]:
        found = refined_column(
            _LABEL,
            _SCORE,
            n_fine_for(n_rows, mu),
            n_cells_for(n_rows, mu),
            probabilities=self.probabilities,
            thresholds=self.thresholds or (),
            position=_POSITION if self.probabilities else None,
        )
        return (found,)

    def cells(self, n_levels: int, refined: Sequence[Refined]) -> Iterable[Cells]:
        (size,) = (one.merged_size for one in refined)
        yield Cells((0, _LABEL, _SCORE), (n_levels, 2, size))
        if self.probabilities:
            for place in (_LOSS, _BRIER, _PREDICTED):
                yield Cells((0,), (n_levels,), values=(place,))
            yield Cells((_SCORE,), (size,), values=(_POSITION,))

    def n_added(self, method: Tabulation) -> int:
        (refined,) = method.refined
        # Heavy cells, which are few, are left out.
        used = refined.n_cells + len(refined.cuts)
        return method.tables[0].size // refined.merged_size * used

    def encode(self, y: NDArray[Any], predictions: Array) -> Array:
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

    def results(
        self, released: ReleasedTables[str], found: Sequence[FoundCells], n_levels: int, z: float
    ) -> tuple[BinaryResult, ...]:
        cells = MergedCells(found[0], self.probabilities, found[0].shares)
        tables = dict(released.tables)
        histogram = tables["scores"][:, :, cells.there]
        if released.n_rows is not None:
            histogram = histogram + (released.n_rows - histogram.sum()) / histogram.size
        tables["scores"] = histogram
        near = cells, cells
        if self.probabilities:
            rows = np.maximum(histogram.sum(axis=(0, 1)), 1.0)
            # Mean positions have the expectation 0 and the noise of their sums.
            position = tables.pop("position")[cells.there] / rows
            noise = (released.noise["position"] / rows) ** 2
            kept = _POSITION_VARIANCE / (_POSITION_VARIANCE + noise)
            position, error = kept * position, np.sqrt(kept * noise)
            near = cells.tilted(position + error), cells.tilted(position - error)
            cells = cells.tilted(position)
        released = dataclasses.replace(released, tables=tables)
        sums = [name for name in tables if name != "scores"]
        return tuple(
            BinaryResult(self, rows.noisy("scores", *sums), cells, near, z)
            for rows in released.levels(n_levels)
        )


@final
@dataclass(frozen=True)
class CalibrationBin:
    """A cell of scores with its share of positive rows.

    Parameters
    ----------
    low, high : float
        Ends of the cell.
    mean_score : float
        Approximate mean score of its rows.
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
class BinaryResult(Result):
    """Metrics of scores of two classes.

    Parameters
    ----------
    task : BinaryTask
        Classes and thresholds.
    noisy : Noisy
        ``counts`` of shape (2, n_cells): negative and positive rows in cells of increasing scores.
        For probabilities also sums of log losses, squared errors and predictions, each rescaled to
        [-1, 1].
    cells : MergedCells
        The cells, and the fine cells within them, with the released mean positions.
    near : tuple of MergedCells
        The same with mean positions one standard error higher, and lower.
    z : float
        Half width of intervals in standard deviations.
    """

    task: BinaryTask
    noisy: Noisy
    cells: MergedCells
    near: tuple[MergedCells, MergedCells]
    z: float

    @property
    def rows(self) -> Number:
        return self.noisy.total(self.z)

    @property
    def ends(self) -> Array:
        """Lower ends of cells, of shape (n_cells,)."""
        return self.cells.ends

    @functools.cached_property
    def means(self) -> Array:
        """Approximate mean score of each cell, of shape (n_cells,)."""
        return self.cells.mean(self.cells.scores)

    def roc_curve(self) -> tuple[Array, Array, Array]:
        """Return the ROC curve at the ends of cells.

        Returns
        -------
        false_positive_rates, true_positive_rates : ndarray of shape (n_cells + 1,)
            Increasing, from 0 to 1.
        thresholds : ndarray of shape (n_cells + 1,)
            Thresholds of decisions; the first is infinite, as in scikit-learn.
        """
        false, true = roc_points(*self.noisy.by_class)
        return false, true, np.array([math.inf, *self.ends[::-1]])

    def roc_band(self) -> tuple[Number, ...]:
        """Return the true positive rate at each false positive rate of the ROC curve.

        Returns
        -------
        tuple of Number
            One for each point of ``roc_curve``, with pointwise intervals. The error of the false
            positive rate enters through the slope of the curve.
        """
        false, true = roc_points(*self.noisy.by_class)
        # Slopes of the chord between a point's neighbours, which is nowhere vertical.
        run = np.maximum(false[2:] - false[:-2], _STEEPEST * np.diff(true[[0, -1]]))
        slopes = np.concatenate([[0.0], (true[2:] - true[:-2]) / run, [0.0]])

        def height(low: Array, high: Array, point: int) -> float:
            cut = len(low) - point
            across, up = ratio(low[cut:].sum(), low.sum()), ratio(high[cut:].sum(), high.sum())
            return up - float(slopes[point]) * (across - float(false[point]))

        return tuple(
            self._of_counts(functools.partial(height, point=point)) for point in range(len(false))
        )

    def confusion_matrix(self, threshold: float | None = None) -> Array:
        return np.array(at_cut(*self.noisy.by_class, self._cut(threshold))).reshape(2, 2)

    def precision_recall_curve(self) -> tuple[Array, Array, Array]:
        """Return precision, recall and thresholds at the ends of cells, from the highest down."""
        precision, recall = precision_recall_points(*self.noisy.by_class)
        return precision, recall, np.array([math.inf, *self.ends[::-1]])

    def calibration_curve(self) -> tuple[CalibrationBin, ...]:
        """Return cells with their shares of positive rows; ValueError without probabilities.

        Cells that may be empty are left out.
        """
        if not self.task.probabilities:
            raise ValueError("a calibration curve needs scores that are probabilities")
        found = []
        for place in self._with_rows.tolist():

            def share(low: Array, high: Array, place: int = place) -> float:
                return ratio(high[place], low[place] + high[place])

            def mass(low: Array, high: Array, place: int = place) -> float:
                return ratio(low[place] + high[place], low.sum() + high.sum())

            end = self.ends[place + 1] if place + 1 < len(self.ends) else 1.0
            numbers = self._of_counts(share), self._of_counts(mass)
            found.append(CalibrationBin(self.ends[place], end, self.means[place], *numbers))
        return tuple(found)

    @property
    def _with_rows(self) -> NDArray[np.intp]:
        """The cells that are unlikely to be empty."""
        std = math.sqrt(2.0) * float(self.noisy.noise["counts"])
        return np.flatnonzero(self.noisy.counts.sum(axis=0) > self.z * std)

    @property
    def range_of_scores(self) -> tuple[float, float]:
        """Least and largest mean score of the cells that are unlikely to be empty."""
        means = self.means[self._with_rows] if len(self._with_rows) else self.means
        return float(means.min()), float(means.max())

    def lift(self, share: float = 0.1) -> Number:
        """Return the share of positives among the rows with the highest scores, over that of all.

        Parameters
        ----------
        share : float, default=0.1
            Share of rows with the highest scores, in (0, 1].
        """
        share = check_real("share", share, above=0.0, most=1.0)

        def ratio_of(part: float) -> Number:
            return ratio_number(
                self.noisy,
                lambda values: self._top(*by_class(values), share, part),
                lambda values: share * float(values["counts"][1].sum()),
                self.z,
                NumberScale(0.0, 1.0 / share),
            )

        return ratio_of(0.0).joined(ratio_of(1.0))

    def _top(self, negatives: Array, positives: Array, share: float, part: float) -> float:
        """Return the number of positives among a share of the rows with the highest scores.

        The share ends within a cell, where positives are spread evenly. If the share of positives
        is monotone, the change by their order there is at most that by joining the smaller part of
        the cell to its neighbour; ``part`` of it is added.
        """
        rows = np.maximum(negatives + positives, 0.0)
        wanted = share * float(rows.sum())
        above = np.append(np.cumsum(rows[::-1])[::-1], 0.0)
        place = int(np.flatnonzero(above[:-1] >= wanted * (1.0 - _CLOSE))[-1])
        inside = min((wanted - above[place + 1]) / max(rows[place], 1.0), 1.0)
        top = float(positives[place + 1 :].sum() + inside * positives[place])
        last = place == len(rows) - 1
        lower = last or (inside >= 0.5 and place > 0)
        other = max(place - 1, 0) if lower else place + 1
        joined = rows[place] * min(max(positives[other] / max(rows[other], 1.0), 0.0), 1.0)
        change = (1.0 - inside if lower else -inside) * (positives[place] - joined)
        most = max(wanted, top)
        return float(min(top + part * change * self.cells.spread[place], most))

    @checked
    def decided(self, function: Decided, threshold: float | None) -> Number:
        """Return a function of the confusion matrix at a threshold."""
        cut = self._cut(threshold)
        return self._of_counts(lambda low, high: function(*at_cut(low, high, cut)))

    def threshold_used(self, threshold: float | None = None) -> float:
        """Return the threshold of ``at`` and ``number``: the boundary of a cell nearest to it."""
        return self._boundaries[self._cut(threshold)]

    def _cut(self, threshold: float | None) -> int:
        """Return the cell with the lower end nearest to a threshold."""
        at = self.task.default_threshold if threshold is None else threshold
        ends = {"least": 0.0, "most": 1.0} if self.task.probabilities else {}
        at = check_real("threshold", at, **ends)
        return int(np.abs(np.array(self._boundaries) - at).argmin())

    @property
    def _boundaries(self) -> list[float]:
        """The lower ends of cells, and the end of the last one."""
        return [*map(float, self.ends), 1.0 if self.task.probabilities else math.inf]

    def _of_counts(
        self, function: Callable[[Array, Array], float], scale: NumberScale = SHARE
    ) -> Number:
        """Return a function of the counts of negative and positive rows."""
        return self.noisy.number(lambda values: function(*by_class(values)), self.z, scale)

    def prevalence(self) -> Number:
        """Return the share of positive rows."""
        return self._of_counts(lambda low, high: ratio(high.sum(), low.sum() + high.sum()))

    def auc(self) -> Number:
        """Return the area under the ROC curve."""
        return area_number(self.noisy, self.cells, self.z)

    def ks(self) -> Number:
        """Return the largest gap between the rates; intervals allow for gaps within cells."""
        return gap_number(self.noisy, self.cells, self.z)

    def log_loss(self) -> Number:
        """Return the mean log loss."""
        return self._mean("log_loss", self._typical_losses, LARGEST_LOSS)

    def brier(self) -> Number:
        """Return the mean squared error of probabilities."""
        return self._mean("brier", np.stack([self.means**2, (1.0 - self.means) ** 2]), 1.0)

    def mean_prediction(self) -> Number:
        """Return the mean prediction."""
        rows = np.maximum(self.noisy.counts.sum(axis=0), 0.0)
        total = max(float(rows.sum()), 1.0)
        squares = float(rows @ self.cells.mean(self.cells.scores**2)) / total
        variance = max(squares - (float(rows @ self.means) / total) ** 2, 0.0)
        return self.noisy.number(
            lambda values: mean_of(values, "prediction", 1.0), self.z, sampled=variance / total
        )

    def calibration_intercept(self) -> Number:
        """Return the shift of all log odds that makes the mean prediction right."""
        predicted = mean_of(self.noisy.values, "prediction", 1.0)
        return self._recalibration.intercept(predicted, self.z)

    def calibration_slope(self) -> Number:
        """Return the coefficient of the log odds in a logistic regression of the class on them.

        An interval without an end contains all slopes beyond the other end.
        """
        return self._recalibration.slope(self.z)

    @property
    def _recalibration(self) -> Recalibration:
        return Recalibration(self.noisy, self.cells, self.near)

    def d2(self) -> Number:
        """Return the share of the log loss of a constant prediction that is explained."""

        def entropy(counts: Array) -> tuple[float, float]:
            share = float(counts[1].sum()) / max(float(counts.sum()), 1.0)
            share = min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)
            return share, float(-xlogy(share, share) - xlogy(1.0 - share, 1.0 - share))

        def explained(values: Parts) -> float:
            return 1.0 - mean_of(values, "log_loss", LARGEST_LOSS) / entropy(values["counts"])[1]

        share, most = entropy(self.noisy.counts)
        loss = 1.0 - explained(self.noisy.values)
        # Influence of a row through the loss and through the best constant.
        positive = np.array([[0.0], [1.0]])
        influence = loss * math.log((1.0 - share) / share) * positive - self._typical_losses
        sampled = self._sampling_variance(influence / most)
        return self.noisy.number(explained, self.z, NumberScale(high=1.0), sampled=sampled)

    @property
    def _typical_losses(self) -> Array:
        """Log losses of negative and positive rows at the mean scores of their cells."""
        means = np.clip(self.means, math.exp(-LARGEST_LOSS), 1.0 - math.exp(-LARGEST_LOSS))
        return np.stack([-np.log1p(-means), -np.log(means)])

    def _mean(self, name: str, typical: Array, largest: float) -> Number:
        return self.noisy.number(
            lambda values: mean_of(values, name, largest),
            self.z,
            NumberScale(0.0, largest),
            sampled=self._sampling_variance(typical),
        )

    def _sampling_variance(self, typical: Array) -> float:
        """Return the sampling variance of a mean with these values in the cells."""
        counts = np.maximum(self.noisy.counts, 0.0)
        rows = max(float(counts.sum()), 1.0)
        mean = float((counts * typical).sum()) / rows
        return (float((counts * typical**2).sum()) / rows - mean**2) / rows


def _at(name: str, function: Decided, *, label: str = "", **shown: Any) -> Metric:
    """Return a metric of decisions at a threshold."""

    def value(result: BinaryResult, threshold: float | None) -> Number:
        return result.decided(function, threshold)

    label = label or name.replace("_", " ")
    return Metric(name, label, SCORES, value, at_threshold=True, **shown)


METRICS = (
    metric(SCORES, BinaryResult.prevalence, headline=True, by_level=True),
    metric(SCORES, BinaryResult.auc, "AUC", headline=True, by_level=True, better=1),
    metric(SCORES, BinaryResult.ks, "KS distance", better=1),
    metric(SCORES, BinaryResult.lift, "lift of the top tenth", headline=True, better=1),
    metric(PROBABILITIES, BinaryResult.log_loss, better=-1),
    metric(PROBABILITIES, BinaryResult.d2, "D\N{SUPERSCRIPT TWO}", better=1),
    metric(PROBABILITIES, BinaryResult.brier, "Brier score", better=-1),
    metric(PROBABILITIES, BinaryResult.mean_prediction, headline=True, by_level=True),
    metric(PROBABILITIES, BinaryResult.calibration_intercept, headline=True),
    metric(PROBABILITIES, BinaryResult.calibration_slope, headline=True),
    _at("accuracy", lambda tn, fp, fn, tp: ratio(tn + tp, tn + fp + fn + tp), better=1),
    _at(
        "balanced_accuracy",
        lambda tn, fp, fn, tp: 0.5 * (ratio(tn, tn + fp) + ratio(tp, tp + fn)),
        better=1,
    ),
    _at("recall", lambda tn, fp, fn, tp: ratio(tp, tp + fn), by_level=True, better=1),
    _at("specificity", lambda tn, fp, fn, tp: ratio(tn, tn + fp), by_level=True, better=1),
    _at("precision", lambda tn, fp, fn, tp: ratio(tp, tp + fp), better=1),
    _at("f1", lambda tn, fp, fn, tp: ratio(2.0 * tp, 2.0 * tp + fp + fn), label="F1", better=1),
    _at(
        "selected",
        lambda tn, fp, fn, tp: ratio(fp + tp, tn + fp + fn + tp),
        label="predicted positive",
        by_level=True,
    ),
)
"""Metrics of two classes."""
