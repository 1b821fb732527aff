"""Several classes: confusion matrix, ranks of the true class, and one curve for each class."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dpglm._calls import checked
from dpglm._validation import Array, check_integer
from dpglm.evaluation.estimates import (
    LARGEST_LOSS,
    MergedCells,
    area_error,
    area_number,
    keys_of,
    known_area,
    n_cells_for,
    n_fine_for,
    refined_column,
    roc_points,
    unknown_order,
)
from dpglm.evaluation.task import (
    CLASSES,
    EvaluationTask,
    Metric,
    Result,
    class_codes,
    class_list,
    in_range,
    mean_of,
    metric,
)
from dpglm.oracle.counts import Cells
from dpglm.problem.links import over_classes
from dpglm.solvers.composite.tabulation import KEY_UNIT, FoundCells, Refined
from dpglm.tabulate import SHARE, Noisy, Number, NumberScale, Parts, ReleasedTables

_RANK, _LOSS, _BRIER, _FIRST = 3, 4, 5, 6
# Shares of the squared budget; the last one is that of all curves together.
_SHARES = {"confusion": 0.4, "ranks": 0.05, "log_loss": 0.1, "brier": 0.05}
_CURVE_SHARE = 0.4
# The largest sum over classes of squared errors of probabilities that add up to 1.
_LARGEST_BRIER = 2.0
# The smallest entropy of class shares that is divided by.
_LEAST_ENTROPY = 1e-6
_LABELS = {"auc": "AUC"}


@checked
@final
@dataclass(frozen=True)
class ClassesTask(EvaluationTask):
    """Probabilities of three classes or more.

    Parameters
    ----------
    classes : tuple
        All classes, in the order of the columns of probabilities.
    """

    classes: tuple[Any, ...]
    pictures = ("classes",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", class_list(self.classes))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return METRICS

    @property
    def means(self) -> tuple[tuple[str, float, str], ...]:
        return (
            ("log loss", 0.5 * LARGEST_LOSS, "log_loss"),
            ("Brier score", 0.5 * _LARGEST_BRIER, "brier"),
        )

    @property
    def shares(self) -> Mapping[str, float]:
        share = _CURVE_SHARE / len(self.classes)
        return {**_SHARES, **{f"curve {k}": share for k in range(len(self.classes))}}

    @property
    def width(self) -> int:
        return _FIRST + 2 * len(self.classes)

    def refined(self, n_rows: int, mu: float) -> tuple[Refined, ...]:
        n_classes = len(self.classes)
        mu *= math.sqrt(_CURVE_SHARE / n_classes)
        sizes = n_fine_for(n_rows, mu), n_cells_for(n_rows, mu)
        return tuple(
            refined_column(place, place + 1, *sizes, probabilities=True, n_columns=n_classes)
            for place in range(_FIRST, self.width, 2)
        )

    def cells(self, n_levels: int, refined: Sequence[Refined]) -> Iterable[Cells]:
        n_classes = len(self.classes)
        return (
            Cells((0, 1, 2), (n_levels, n_classes, n_classes)),
            Cells((0, _RANK), (n_levels, n_classes)),
            Cells((0,), (n_levels,), values=(_LOSS,)),
            Cells((0,), (n_levels,), values=(_BRIER,)),
            *(Cells((0, one.label, one.column), (n_levels, 2, one.merged_size)) for one in refined),
        )

    def encode(self, y: NDArray[Any], predictions: Array) -> Array:
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
        squares = np.minimum(over_classes(((score - hit) ** 2).T), _LARGEST_BRIER)
        curves = np.stack([hit, KEY_UNIT * keys_of(score, True)], axis=2)
        return np.column_stack(
            [
                label,
                score.argmax(axis=1),
                (score > right[:, np.newaxis]).sum(axis=1),
                2.0 * loss / LARGEST_LOSS - 1.0,
                2.0 * squares / _LARGEST_BRIER - 1.0,
                curves.reshape(len(label), 2 * n_classes),
            ]
        )

    def results(
        self, released: ReleasedTables[str], found: Sequence[FoundCells], n_levels: int, z: float
    ) -> tuple[ClassesResult, ...]:
        names = [name for name in self.shares if name not in _SHARES]
        merged = [MergedCells(one, True, one.shares) for one in found]
        tables = dict(released.tables)
        for name, one in zip(names, merged, strict=True):
            tables[name] = tables[name][:, :, one.there]
        return tuple(
            ClassesResult(
                self,
                rows.noisy("confusion", "log_loss", "brier"),
                rows.noisy("ranks"),
                tuple(zip(map(rows.noisy, names), merged, strict=True)),
                z,
            )
            for rows in dataclasses.replace(released, tables=tables).levels(n_levels)
        )


@final
@dataclass(frozen=True, eq=False, repr=False)
class ClassesResult(Result):
    """Metrics of probabilities of several classes.

    Parameters
    ----------
    task : ClassesTask
        The classes.
    confusion : Noisy
        ``counts`` of shape (n_classes, n_classes): rows by true and predicted class; and sums of
        log losses and squared errors, each rescaled to [-1, 1].
    ranks : Noisy
        ``counts`` of rows by the number of classes with a higher probability than the true one.
    curves : tuple of (Noisy, MergedCells)
        For each class, ``counts`` of the rows of other classes and of its own in cells of its
        probability, and these cells.
    z : float
        Half width of intervals in standard deviations.
    """

    task: ClassesTask
    confusion: Noisy
    ranks: Noisy
    curves: tuple[tuple[Noisy, MergedCells], ...]
    z: float

    @property
    def rows(self) -> Number:
        return self.confusion.total(self.z)

    def confusion_matrix(self, threshold: float | None = None) -> Array:
        return self.confusion.counts

    def by_class(self, most: int) -> Mapping[Any, Mapping[str, Number]]:
        return {
            label: {_LABELS.get(name, name): one for name, one in self.of_class(label).items()}
            for label in self.classes[:most]
        }

    def top_k(self, k: int) -> Number:
        """Return the share of rows with the true class among the ``k`` most probable ones."""
        k = check_integer("k", k, least=1)
        return self.ranks.number(
            lambda values: values["counts"][:k].sum() / _total(values["counts"]), self.z
        )

    def of_class(self, label: Any) -> dict[str, Number]:
        """Return ``recall``, ``precision`` and one-versus-rest ``auc`` of a class, and its share.

        A ValueError lists the classes if there is none of that label.
        """
        place = self._place(label)

        def of_matrix(function: Callable[[Array], float]) -> Number:
            return self.confusion.number(lambda values: function(values["counts"]), self.z)

        return {
            "share": of_matrix(lambda m: m[place].sum() / _total(m)),
            "recall": of_matrix(lambda m: m[place, place] / _total(m[place])),
            "precision": of_matrix(lambda m: m[place, place] / _total(m[:, place])),
            "auc": area_number(*self.curves[place], self.z),
        }

    def roc_curve(self, label: Any) -> tuple[Array, Array]:
        """Return false and true positive rates of one class versus the rest, at ends of cells.

        Both increase from 0 to 1. A ValueError lists the classes if there is none of that label.
        """
        return roc_points(*self.curves[self._place(label)][0].by_class)

    def _place(self, label: Any) -> int:
        if label not in self.classes:
            raise ValueError(f"label must be one of {list(self.classes)!r}, got {label!r}")
        return self.classes.index(label)

    def accuracy(self) -> Number:
        """Return the share of rows with the true class as the most probable one."""
        return self.confusion.number(
            lambda values: np.trace(values["counts"]) / _total(values["counts"]), self.z
        )

    def balanced_accuracy(self) -> Number:
        """Return the mean recall of the classes."""

        def mean_recall(values: Parts) -> float:
            return float(np.mean([row[k] / _total(row) for k, row in enumerate(values["counts"])]))

        return self.confusion.number(mean_recall, self.z)

    def auc(self) -> Number:
        """Return the mean over classes of the area of one class versus the rest.

        Curves have independent noise. They share their rows, so that their sampling errors are
        dependent, and corrections for the order within cells err alike: of these, the mean over
        classes is used, an upper bound.
        """
        areas = [known_area(*curve, self.z, NumberScale(), 0.0) for curve in self.curves]
        error = self.z * float(np.mean([area_error(*curve) for curve in self.curves]))
        unknown = [unknown_order(*noisy.by_class, cells.unknown) for noisy, cells in self.curves]
        mean = SHARE.shown(float(np.mean([one.estimate for one in areas])))
        half = math.hypot(*(0.5 * (one.high - one.low) for one in areas)) / len(areas)
        ends = [(one.population_low or 0.0, one.population_high or 0.0) for one in areas]
        most = float(np.mean([0.5 * (high - low) for low, high in ends]))
        half, most = math.hypot(half, error), math.hypot(most, error)
        found = Number(mean, mean - half, mean + half, mean - most, mean + most)
        return found.widened(float(np.mean(unknown)), SHARE)

    def log_loss(self) -> Number:
        """Return the mean log loss."""
        return self._mean("log_loss", LARGEST_LOSS)

    def brier(self) -> Number:
        """Return the mean squared error of probabilities, added up over classes."""
        return self._mean("brier", _LARGEST_BRIER)

    def d2(self) -> Number:
        """Return the share of the log loss of a constant prediction that is explained."""

        def entropy(values: Parts) -> float:
            shares = np.clip(values["counts"].sum(axis=1), 0.0, None)
            return max(float(entr(shares / _total(shares)).sum()), _LEAST_ENTROPY)

        def explained(values: Parts) -> float:
            return 1.0 - mean_of(values, "log_loss", LARGEST_LOSS) / entropy(values)

        values = self.confusion.values
        # The loss of the constant varies far less than the bound on that of the model.
        loss = mean_of(values, "log_loss", LARGEST_LOSS)
        sampled = self._bounded_variance(loss, LARGEST_LOSS) / entropy(values) ** 2
        return self.confusion.number(explained, self.z, NumberScale(high=1.0), sampled=sampled)

    def _bounded_variance(self, mean: float, largest: float) -> float:
        """Return the largest sampling variance of a mean of numbers from 0 to ``largest``."""
        # Bhatia and Davis, American Mathematical Monthly 2000.
        at = min(max(mean, 0.0), largest)
        return at * (largest - at) / _total(self.confusion.counts)

    def _mean(self, name: str, largest: float) -> Number:
        mean = mean_of(self.confusion.values, name, largest)
        return self.confusion.number(
            lambda values: mean_of(values, name, largest),
            self.z,
            NumberScale(0.0, largest),
            sampled=self._bounded_variance(mean, largest),
        )


def _total(counts: Array) -> float:
    return max(float(counts.sum()), 1.0)


METRICS = (
    metric(CLASSES, ClassesResult.accuracy, by_level=True, better=1),
    metric(CLASSES, ClassesResult.balanced_accuracy, headline=True, by_level=True, better=1),
    metric(CLASSES, ClassesResult.auc, "AUC", headline=True, by_level=True, better=1),
    metric(CLASSES, ClassesResult.log_loss, headline=True, by_level=True, better=-1),
    metric(CLASSES, ClassesResult.d2, "D\N{SUPERSCRIPT TWO}", better=1),
    metric(CLASSES, ClassesResult.brier, "Brier score", better=-1),
)
"""Metrics of several classes."""
