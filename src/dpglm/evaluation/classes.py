"""More than two classes: confusion, ranks of the right class, and one curve for each class."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dpglm._validation import check_integer
from dpglm.data.spec import DataSpec
from dpglm.evaluation.estimates import (
    LARGEST_LOSS,
    LEAST_FINE,
    SHARE,
    MergedCells,
    Noisy,
    area_number,
    keys_of,
    known_area,
    n_cells_for,
    n_fine_for,
    refined_column,
    roc_points,
    unknown_area,
)
from dpglm.evaluation.task import Released, Task, class_codes, class_list, in_range, known, weighted
from dpglm.exploration.results import Number, Scale
from dpglm.oracle.counts import Cells
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import KEY_UNIT, ScoreTables, plan_score_tables

__all__ = ["ClassesResult", "ClassesTask"]

Floats: TypeAlias = NDArray[np.float64]

_LABEL, _PREDICTED, _RANK, _LOSS, _BRIER, _FIRST = 1, 2, 3, 4, 5, 6
_CONFUSION_SHARE, _RANK_SHARE, _LOSS_SHARE, _BRIER_SHARE, _CURVE_SHARE = 0.4, 0.05, 0.1, 0.05, 0.4
# The most that squared errors of all classes' probabilities add up to, where these add up to 1.
_LARGEST_BRIER = 2.0
# Of classes of which one has nearly all rows.
_LEAST_ENTROPY = 1e-6


@final
@dataclass(frozen=True)
class ClassesTask(Task):
    """Probabilities of three classes or more.

    Parameters
    ----------
    classes : tuple
        All of them, in the order of the columns of probabilities.
    n_fine : int
        Number of fine cells of scores; plans set it.
    """

    classes: tuple[Any, ...]
    n_fine: int = LEAST_FINE

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", class_list(self.classes))

    def for_rows(self, n_rows: int, mu: float) -> Self:
        return dataclasses.replace(self, n_fine=n_fine_for(n_rows, mu * self._curve_share))

    @property
    def _curve_share(self) -> float:
        """Share of mu that one class's curve gets."""
        return math.sqrt(_CURVE_SHARE / len(self.classes))

    @property
    def means(self) -> tuple[tuple[str, float, int], ...]:
        return ("log loss", 0.5 * LARGEST_LOSS, 2), ("Brier score", 0.5 * _LARGEST_BRIER, 3)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"classes": list(self.classes)}

    def plan(
        self, data: DataSpec, n_levels: int, budget: PrivacyBudget, adjacency: Adjacency
    ) -> Plan:
        n_classes = len(self.classes)
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.reach(1))
        n_cells = n_cells_for(data.n_rows // n_levels, mu * self._curve_share)
        refined = tuple(
            refined_column(
                _FIRST + 2 * k,
                _FIRST + 2 * k + 1,
                self.n_fine,
                n_cells,
                probabilities=True,
                n_columns=n_classes,
            )
            for k in range(n_classes)
        )
        groups = (n_levels,)
        tables = (
            weighted(Cells((0, 1, 2), (*groups, n_classes, n_classes)), _CONFUSION_SHARE),
            weighted(Cells((0, _RANK), (*groups, n_classes)), _RANK_SHARE),
            weighted(Cells((0,), groups, values=(_LOSS,)), _LOSS_SHARE),
            weighted(Cells((0,), groups, values=(_BRIER,)), _BRIER_SHARE),
            *(
                weighted(
                    Cells((0, one.label, one.column), (*groups, 2, one.merged_size)),
                    _CURVE_SHARE / n_classes,
                )
                for one in refined
            ),
        )
        data = known(
            data, _FIRST + 2 * n_classes, max(KEY_UNIT * refined[0].span[2], n_levels, n_classes)
        )
        return plan_score_tables(data, budget, adjacency, refined, tables)

    def encode(self, y: NDArray[Any], predictions: Floats) -> Floats:
        n_classes = len(self.classes)
        label = class_codes(y, self.classes)
        score = in_range("scores", predictions, 0.0, 1.0, f"(n, {n_classes})", 2)
        if score.shape[1] != n_classes:
            raise ValueError(f"scores must have shape (n, {n_classes}), got {score.shape}")
        every = np.arange(len(label))
        right = score[every, label]
        with np.errstate(divide="ignore"):
            loss = np.minimum(-np.log(right), LARGEST_LOSS)
        hit = label[:, np.newaxis] == np.arange(n_classes)
        squares = np.minimum(((score - hit) ** 2).sum(axis=1), _LARGEST_BRIER)
        curves = np.stack([hit, KEY_UNIT * keys_of(score, True)], axis=2).reshape(len(label), -1)
        return np.column_stack(
            [
                label,
                score.argmax(axis=1),
                (score > right[:, np.newaxis]).sum(axis=1),
                2.0 * loss / LARGEST_LOSS - 1.0,
                2.0 * squares / _LARGEST_BRIER - 1.0,
                curves,
            ]
        )

    def results(self, released: Released) -> tuple[ClassesResult, ...]:
        method = released.plan.method
        assert isinstance(method, ScoreTables)
        tables = method.table_values(released.values)
        noise = [method.coefficient_noise / table.weight for table in method.tables]
        found = [MergedCells.of(one, True) for one in method.found(released.values)]

        def result(chosen: slice, total: int | None) -> ClassesResult:
            scale = math.sqrt(len(range(released.n_levels)[chosen]))

            def noisy(place: int, values: Floats, *sums: int) -> Noisy:
                spread = [noise[place]] * values.size + [noise[one] for one in sums]
                added = [tables[one][chosen].sum() for one in sums]
                every = np.array([*values.ravel(), *added])
                return Noisy.of(
                    every,
                    scale * np.array(spread),
                    slice(0, values.size),
                    total,
                    released.clustering,
                )

            curves = []
            for place, cells in enumerate(found, start=4):
                counts = tables[place][chosen].sum(axis=0)
                curves.append((noisy(place, counts[:, cells.there]), cells))
            return ClassesResult(
                self.classes,
                noisy(0, tables[0][chosen].sum(axis=0), 2, 3),
                noisy(1, tables[1][chosen].sum(axis=0)),
                tuple(curves),
                released.z,
            )

        groups = [result(slice(g, g + 1), None) for g in range(released.n_levels)]
        everything = result(slice(None), released.n_rows)
        return (everything,) if released.n_levels == 1 else (*groups, everything)


@final
@dataclass(frozen=True, eq=False, repr=False)
class ClassesResult:
    """How well probabilities tell several classes apart, as far as the released tables say.

    Parameters
    ----------
    classes : tuple
        The classes.
    confusion : Noisy
        Counts of rows by class and predicted class, row by row; then sums of log losses and of
        squared errors.
    ranks : Noisy
        Counts of rows by how many classes had a higher probability than the right one.
    curves : tuple of (Noisy, MergedCells)
        For each class, counts of the others' and of its own rows in cells of its probability, and
        these cells.
    z : float
        Half width of intervals in standard deviations.
    """

    classes: tuple[Any, ...]
    confusion: Noisy
    ranks: Noisy
    curves: tuple[tuple[Noisy, MergedCells], ...]
    z: float

    @property
    def confusion_matrix(self) -> Floats:
        """Noisy counts of rows of each class (rows) that were predicted as each (columns)."""
        return self._matrix(self.confusion.values)

    @property
    def rows(self) -> Number:
        """Number of rows; an interval for a population is none of its."""
        return self.confusion.total(len(self.classes) ** 2, self.z)

    def _matrix(self, values: Floats) -> Floats:
        n_classes = len(self.classes)
        return values[: n_classes**2].reshape(n_classes, n_classes)

    @property
    def measures(self) -> Mapping[str, Callable[[], Number]]:
        """What can be asked, by name."""
        return {
            "accuracy": self._accuracy,
            "balanced_accuracy": self._balanced_accuracy,
            "auc": self._auc,
            "log_loss": functools.partial(self._mean, -2, LARGEST_LOSS),
            "d2": self._d2,
            "brier": functools.partial(self._mean, -1, _LARGEST_BRIER),
        }

    def top_k(self, k: int) -> Number:
        """Return the share of rows whose class is among the ``k`` most probable."""
        k = check_integer("k", k, least=1)
        return self.ranks.number(lambda values: values[:k].sum() / _total(values), self.z)

    def of_class(self, label: Any) -> dict[str, Number]:
        """Return ``recall``, ``precision`` and one-versus-rest ``auc`` of a class, and its share.

        A ValueError lists the classes if there is none of that label.
        """
        place = self._place(label)

        def of_matrix(function: Callable[[Floats], float]) -> Number:
            return self.confusion.number(lambda values: function(self._matrix(values)), self.z)

        return {
            "share": of_matrix(lambda m: m[place].sum() / _total(m)),
            "recall": of_matrix(lambda m: m[place, place] / _total(m[place])),
            "precision": of_matrix(lambda m: m[place, place] / _total(m[:, place])),
            "auc": area_number(*self.curves[place], self.z),
        }

    def roc_curve(self, label: Any) -> tuple[Floats, Floats]:
        """Return false and true positive rates of one class versus the rest, at ends of cells.

        Both increase from 0 to 1. A ValueError lists the classes if there is none of that label.
        """
        counts = self.curves[self._place(label)][0].values.reshape(2, -1)
        return roc_points(*counts)

    def _place(self, label: Any) -> int:
        if label not in self.classes:
            raise ValueError(f"label must be one of {list(self.classes)!r}, got {label!r}")
        return self.classes.index(label)

    def _accuracy(self) -> Number:
        return self.confusion.number(
            lambda values: np.trace(self._matrix(values)) / _total(self._matrix(values)), self.z
        )

    def _balanced_accuracy(self) -> Number:
        def mean_recall(values: Floats) -> float:
            matrix = self._matrix(values)
            return float(np.mean([row[k] / _total(row) for k, row in enumerate(matrix)]))

        return self.confusion.number(mean_recall, self.z)

    def _auc(self) -> Number:
        """Return the mean area of one class versus the rest, over classes.

        Rows are in all curves, whose sampling errors are then not independent: the interval for a
        population takes them to be equal, which is the most that they can be.
        """
        areas = [known_area(*curve, self.z) for curve in self.curves]
        unknown = float(np.mean([unknown_area(*curve) for curve in self.curves]))
        mean = float(np.mean([one.estimate for one in areas]))
        half = math.hypot(*(0.5 * (one.high - one.low) for one in areas)) / len(areas)
        most = float(
            np.mean(
                [
                    0.5 * ((one.population_high or 1.0) - (one.population_low or 0.0))
                    for one in areas
                ]
            )
        )
        found = Number(mean, mean - half, mean + half, mean - most, mean + most)
        return found.widened(unknown, SHARE)

    def _mean_of(self, values: Floats, place: int, largest: float) -> float:
        rows = _total(values[: len(self.classes) ** 2])
        return 0.5 * largest * (1.0 + float(values[place]) / rows)

    def _bounded_variance(self, mean: float, largest: float) -> float:
        """Return the most that a mean of numbers from 0 to ``largest`` varies over samples."""
        # Bhatia and Davis, American Mathematical Monthly 2000.
        at = min(max(mean, 0.0), largest)
        return at * (largest - at) / _total(self.confusion.values[: len(self.classes) ** 2])

    def _mean(self, place: int, largest: float) -> Number:
        return self.confusion.number(
            lambda values: self._mean_of(values, place, largest),
            self.z,
            Scale(0.0, largest),
            sampled=self._bounded_variance(
                self._mean_of(self.confusion.values, place, largest), largest
            ),
        )

    def _d2(self) -> Number:
        """Return the share of a constant answer's log loss that is explained."""

        def entropy(values: Floats) -> float:
            shares = np.clip(self._matrix(values).sum(axis=1), 0.0, None)
            return max(float(entr(shares / _total(shares)).sum()), _LEAST_ENTROPY)

        def explained(values: Floats) -> float:
            return 1.0 - self._mean_of(values, -2, LARGEST_LOSS) / entropy(values)

        loss, most = (
            self._mean_of(self.confusion.values, -2, LARGEST_LOSS),
            entropy(self.confusion.values),
        )
        # The constant's loss varies far less than the most that the model's may.
        sampled = self._bounded_variance(loss, LARGEST_LOSS) / most**2
        return self.confusion.number(explained, self.z, Scale(high=1.0), sampled=sampled)


def _total(values: Floats) -> float:
    return max(float(values.sum()), 1.0)
