"""Two classes: score histograms of the negative and the positive rows, and all they say."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.evaluation.cells import (
    LARGEST_LOSS,
    LEAST_FINE,
    fine_cells,
    n_cells_for,
    n_fine_for,
    score_edges,
)
from dpglm.evaluation.curves import (
    area_under_roc,
    at_cut,
    largest_gap,
    precision_recall_points,
    roc_points,
)
from dpglm.evaluation.estimates import SHARE, Noisy
from dpglm.evaluation.task import Released, Task, class_codes, class_list, in_range, known, weighted
from dpglm.exploration.numbers import Number, Scale
from dpglm.oracle.row_sums.tabulated import Cells
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.score_tables import Refined, ScoreTables, plan_score_tables

__all__ = ["BinaryResult", "BinaryTask", "CalibrationBin"]

Floats: TypeAlias = NDArray[np.float64]

_LABEL, _SCORE, _LOSS, _BRIER = 1, 2, 3, 4
# Standard deviations of noise above which a fine cell is certain to hold rows.
_CLEAR = 3.0
# Part of what the order within cells is worth that is taken for an error of that estimate.
_UNSURE = 0.125
_HISTOGRAM_SHARE, _LOSS_SHARE, _BRIER_SHARE = 0.8, 0.1, 0.1


@final
@dataclass(frozen=True)
class BinaryTask(Task):
    """Scores of two classes.

    Parameters
    ----------
    classes : tuple
        The negative and the positive class.
    thresholds : tuple of float, default=(0.5,)
        Scores in (0, 1) at which decisions are of interest: cells begin there, so that no cell
        holds decisions of both kinds.
    probabilities : bool, default=True
        Whether scores are probabilities, so that calibration, Brier score and log loss are meant.
    n_fine : int
        Number of fine cells of scores; plans set it.
    """

    classes: tuple[Any, ...]
    thresholds: tuple[float, ...] = (0.5,)
    probabilities: bool = True
    n_fine: int = LEAST_FINE

    def __post_init__(self) -> None:
        classes = class_list(self.classes)
        if len(classes) != 2:
            raise ValueError(f"classes must be two, got {list(classes)!r}")
        object.__setattr__(self, "classes", classes)
        for one in self.thresholds:
            check_real("thresholds", one, above=0.0, below=1.0)
        object.__setattr__(self, "thresholds", tuple(sorted(set(map(float, self.thresholds)))))

    def for_rows(self, n_rows: int, mu: float) -> Self:
        return dataclasses.replace(self, n_fine=n_fine_for(n_rows, mu))

    @functools.cached_property
    def edges(self) -> tuple[float, ...]:
        """Inner ends of fine cells."""
        return score_edges(self.n_fine, self.thresholds)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"classes": list(self.classes)}

    def plan(self, n_rows: int, n_levels: int, budget: PrivacyBudget, adjacency: Adjacency) -> Plan:
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(1.0)
        n_cells = n_cells_for(n_rows // n_levels, mu)
        size = len(self.edges) + 1
        cuts = tuple(int(np.searchsorted(self.edges, t, side="right")) for t in self.thresholds)
        refined = Refined(_LABEL, _SCORE, size, n_cells, cuts)
        histogram = Cells((0, _LABEL, _SCORE), (n_levels, 2, refined.merged_size))
        tables: tuple[Cells, ...] = (histogram,)
        if self.probabilities:
            tables = (
                weighted(histogram, _HISTOGRAM_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_LOSS,)), _LOSS_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_BRIER,)), _BRIER_SHARE),
            )
        data = known(DataSpec(n_rows, 1), 5, max(size, n_levels))
        return plan_score_tables(data, budget, adjacency, (refined,), tables)

    def encode(self, y: NDArray[Any], predictions: Floats) -> Floats:
        label = class_codes(y, self.classes)
        score = in_range("scores", predictions, 0.0, 1.0, "(n,)", 1)
        right = np.where(label == 1, score, 1.0 - score)
        with np.errstate(divide="ignore"):
            loss = np.minimum(-np.log(right), LARGEST_LOSS)
        return np.column_stack(
            [
                label,
                fine_cells(score, self.edges),
                2.0 * loss / LARGEST_LOSS - 1.0,
                2.0 * (1.0 - right) ** 2 - 1.0,
            ]
        )

    def results(self, released: Released) -> tuple[BinaryResult, ...]:
        method = released.plan.method
        assert isinstance(method, ScoreTables)
        (lookup,), (fine,) = (
            method.lookups(released.values),
            method.fine_counts(released.values),
        )
        tables = method.table_values(released.values)
        noise = [method.coefficient_noise / table.weight for table in method.tables]
        # A cell that begins at no fine one holds no row.
        there = np.unique(lookup)
        ends = np.array([0.0, *self.edges])[np.searchsorted(lookup, there)]
        means, spread = _within(lookup, there, fine, method.fine_noise, self.edges)
        histogram = tables[0][:, :, there]
        n_rows = released.n_rows
        if n_rows is not None:
            histogram = histogram + (n_rows - histogram.sum()) / histogram.size
        sums = [table * 1.0 for table in tables[1:]]

        def result(chosen: slice, total: int | None) -> BinaryResult:
            n_added = len(range(released.n_levels)[chosen])
            counts = histogram[chosen].sum(axis=0)
            values = [*counts.ravel(), *(one[chosen].sum() for one in sums)]
            stds = math.sqrt(n_added) * np.repeat(noise, [counts.size] + [1] * len(sums))
            noisy = Noisy.of(np.array(values), stds, slice(0, counts.size), total)
            return BinaryResult(self.classes, noisy, ends, means, spread, released.z)

        groups = [result(slice(g, g + 1), None) for g in range(released.n_levels)]
        everything = result(slice(None), n_rows)
        return (everything,) if released.n_levels == 1 else (*groups, everything)


def _within(
    lookup: NDArray[np.intp],
    there: NDArray[np.intp],
    fine: Floats,
    noise_std: float,
    edges: Sequence[float],
) -> tuple[Floats, Floats]:
    """Return each cell's mean score and how spread its scores are, from noisy fine counts."""
    bounds, place = np.array([0.0, *edges, 1.0]), np.searchsorted(there, lookup)
    # Fine cells that could be empty count as such.
    clear = np.where(fine > _CLEAR * noise_std, fine, 0.0)
    rows = clear.sum(axis=0) + 1e-9
    means = np.bincount(place, rows * 0.5 * (bounds[1:] + bounds[:-1])) / np.bincount(place, rows)
    totals = np.maximum(fine.sum(axis=1, keepdims=True), 1.0)
    whole = np.maximum(np.bincount(place, (fine / totals).sum(axis=0)), 1e-9)
    shares = np.minimum((clear / totals).sum(axis=0) / whole[place], 1.0)
    spread = np.maximum(1.0 - np.bincount(place, shares**3), 0.0)
    return np.asarray(means, np.float64), np.asarray(spread, np.float64)


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
        scores are probabilities, sums of log losses and of squared errors.
    ends : ndarray of shape (n_cells,)
        Lower ends of cells.
    means : ndarray of shape (n_cells,)
        Mean score of each cell, approximately.
    spread : ndarray of shape (n_cells,)
        How spread its scores are: 0 if they are one, 1 if they all differ, approximately.
    z : float
        Half width of intervals in standard deviations.
    """

    classes: tuple[Any, ...]
    noisy: Noisy
    ends: Floats
    means: Floats
    spread: Floats
    z: float

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
            "ks": functools.partial(self._of_counts, largest_gap),
        }
        if self.probabilities:
            found |= {"log_loss": self._log_loss, "brier": self._brier}
        return found

    def at(self, threshold: float = 0.5) -> dict[str, Number]:
        """Return what decisions at a threshold are worth.

        Parameters
        ----------
        threshold : float, default=0.5
            Rows with scores from here on are called positive; the nearest end of a cell is taken,
            which is the threshold itself if it was declared.

        Returns
        -------
        dict of Number
            ``accuracy``, ``balanced_accuracy``, ``recall``, ``specificity``, ``precision``, ``f1``
            and ``selected``, the share that is called positive.
        """
        cut = self._cut(check_real("threshold", threshold, least=0.0, most=1.0))

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

    def _cut(self, threshold: float) -> int:
        return int(np.abs(np.array([*self.ends, 1.0]) - threshold).argmin())

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
        coarse, fine = (
            area_under_roc(self.negatives, self.positives, spread) for spread in (0.0, self.spread)
        )
        n_cells = len(self.ends)
        return self.noisy.number(
            lambda v: area_under_roc(v[:n_cells], v[n_cells : 2 * n_cells], self.spread),
            self.z,
            SHARE,
            approximation=_UNSURE * (fine - coarse),
        )

    def _prevalence(self) -> Number:
        return self._of_counts(lambda low, high: _ratio(high.sum(), low.sum() + high.sum()))

    def _log_loss(self) -> Number:
        means = np.clip(self.means, math.exp(-LARGEST_LOSS), 1.0 - math.exp(-LARGEST_LOSS))
        losses = np.concatenate([-np.log1p(-means), -np.log(means)])
        return self._mean(-2, losses, LARGEST_LOSS)

    def _brier(self) -> Number:
        losses = np.concatenate([self.means**2, (1.0 - self.means) ** 2])
        return self._mean(-1, losses, 1.0)

    def _mean(self, place: int, typical: Floats, largest: float) -> Number:
        """Return the mean of what rows add to a sum, as a share of ``largest`` on [-1, 1]."""
        self._need_probabilities("a mean loss")
        n_cells = 2 * len(self.ends)

        def mean(values: Floats) -> float:
            rows = max(float(values[:n_cells].sum()), 1.0)
            return 0.5 * largest * (1.0 + float(values[place]) / rows)

        counts = np.maximum(self.noisy.values[:n_cells], 0.0)
        rows = max(counts.sum(), 1.0)
        spread = float(counts @ typical**2) / rows - (float(counts @ typical) / rows) ** 2
        return self.noisy.number(mean, self.z, Scale(0.0, largest), sampled=spread / rows)

    def _need_probabilities(self, what: str) -> None:
        if not self.probabilities:
            raise ValueError(f"{what} needs scores that are probabilities, and these are not")


def _ratio(part: float, whole: float) -> float:
    return part / whole if abs(whole) > 1e-9 else math.nan
