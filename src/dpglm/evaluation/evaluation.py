"""Evaluation: how good predictions are, what one noisy release says of it, and what it cost."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from dpglm._validation import check_real
from dpglm._words import card, plain_number, rounded_up
from dpglm.certificate.certificate import Certificate
from dpglm.evaluation.binary import BinaryResult, CalibrationBin
from dpglm.evaluation.classes import ClassesResult
from dpglm.evaluation.regression import RegressionResult
from dpglm.evaluation.task import Released
from dpglm.exploration.description import ends_of, in_units
from dpglm.exploration.results import Number, normal_quantile
from dpglm.solvers.base import Solution

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpglm.evaluation.planning import EvaluationPlan


# Numbers of an evaluation in order, and in words.

Result: TypeAlias = BinaryResult | ClassesResult | RegressionResult
"""What an evaluation says of all rows, or of those of one group."""
_NAMES = {
    "auc": "AUC",
    "ks": "KS distance",
    "lift": "lift of the top tenth",
    "d2": "D\N{SUPERSCRIPT TWO}",
    "brier": "Brier score",
    "f1": "F1",
    "r2": "R\N{SUPERSCRIPT TWO}",
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "bias": "mean error",
}


def named(measure: str) -> str:
    """Return what a measure is called, with its threshold if it has one."""
    what, at, threshold = measure.partition(" at ")
    return _NAMES.get(what, what.replace("_", " ")) + at + threshold


def numbers_of(rows: Result, thresholds: tuple[float, ...]) -> dict[str, Number]:
    """Return all numbers of a result, those of decisions at each threshold."""
    found = {name: measure() for name, measure in rows.measures.items()}
    if isinstance(rows, BinaryResult):
        for threshold in thresholds:
            at = "" if thresholds == (rows.usual_threshold,) else f" at {threshold:g}"
            found |= {f"{name}{at}": number for name, number in rows.at(threshold).items()}
    return found


def plain_numbers(rows: Result, thresholds: tuple[float, ...]) -> dict[str, Any]:
    """Return all numbers as plain values."""
    return {name: one.to_dict() for name, one in numbers_of(rows, thresholds).items()}


def in_words(number: Number) -> str:
    """Write an estimate with its intervals: of sampling and noise, and of noise alone."""

    def pair(low: float | None, high: float | None) -> str:
        return f"[{_short(low)}, {_short(high)}]"

    return (
        f"{_short(number.estimate):>8}  "
        f"{pair(number.population_low, number.population_high)}  "
        f"{pair(number.low, number.high)}"
    )


def _short(value: float | None) -> str:
    return "" if value is None else plain_number(value, 4)


def written(number: Number) -> str:
    """Write an estimate with the digits that its interval for a population leaves meaningful."""
    width = (number.population_high or 0.0) - (number.population_low or 0.0)
    return in_units(number.estimate, width)


def of_rows(number: Number) -> str:
    """Write the interval for these rows."""
    return " to ".join(ends_of(number.low, number.high))


def population(number: Number) -> str:
    """Write the interval for a population; nothing for a number that has none."""
    return " to ".join(ends_of(number.population_low, number.population_high))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What one noisy release says of predictions; made by ``evaluate``.

    Parameters
    ----------
    plan : EvaluationPlan
        What was planned, and carried out.
    solution : dpglm.solvers.Solution
        What was released: all tables, weights and noise included.
    privacy_ : dpglm.report.Certificate
        The guarantee, what it rests on, and what was spent.

    Notes
    -----
    Numbers of all rows are attributes, those at a threshold methods; ``measures`` lists what there
    is for the task. ``conf_int`` gives intervals, ``all_rows`` and ``groups`` the results in full.

    Privacy: all that is shown is computed from the release and public facts, and may be published.
    """

    plan: EvaluationPlan
    solution: Solution
    privacy_: Certificate

    @functools.cached_property
    def _results(self) -> tuple[Result, ...]:
        z = normal_quantile(self.plan.level)
        released = Released(
            self.plan.plan, self.solution.w, self.plan.n_levels, z, self.plan.chosen
        )
        found: tuple[Result, ...] = self.plan.task.results(released)
        return found

    @property
    def all_rows(self) -> Result:
        """What it says of all rows."""
        return self._results[-1]

    @property
    def groups(self) -> Mapping[Any, Result]:
        """What it says of the rows of each level of ``by``; rows of none are under None."""
        if not self.plan.levels:
            return {}
        return dict(zip((*self.plan.levels, None), self._results[:-1], strict=True))

    @property
    def measures(self) -> dict[str, Number]:
        """All numbers that need no threshold, for all rows."""
        return {name: measure() for name, measure in self.all_rows.measures.items()}

    def number(self, name: str, threshold: float | None = None) -> Number:
        """Return an estimate with its intervals.

        Parameters
        ----------
        name : str
            One of ``measures``, or, for two classes, of what ``at`` returns.
        threshold : float, optional
            For the latter; by default 0.5 for probabilities, and 0 for other scores.

        Returns
        -------
        Number

        Raises
        ------
        ValueError
            If there is no such number; the message lists all.
        """
        rows = self.all_rows
        if name in rows.measures:
            return rows.measures[name]()
        decided = rows.at(threshold) if isinstance(rows, BinaryResult) else {}
        if name not in decided:
            raise ValueError(f"name must be one of {[*rows.measures, *decided]}, got {name!r}")
        return decided[name]

    @property
    def auc(self) -> float:
        """Area under the ROC curve; of several classes the mean of one versus the rest."""
        return self.number("auc").estimate

    @property
    def brier(self) -> float:
        """Mean squared error of probabilities, over classes added up where there are several."""
        return self.number("brier").estimate

    @property
    def log_loss(self) -> float:
        """Mean log loss; of each row at most ``LARGEST_LOSS``."""
        return self.number("log_loss").estimate

    @property
    def r2(self) -> float:
        """Share of the targets' variance that is explained."""
        return self.number("r2").estimate

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return self.number("mse").estimate

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return self.number("mae").estimate

    def accuracy(self, threshold: float | None = None) -> float:
        """Return the accuracy of decisions (at a threshold, where there are two classes)."""
        return self.number("accuracy", threshold).estimate

    def precision(self, threshold: float | None = None) -> float:
        """Return the precision of decisions at a threshold (two classes)."""
        return self.number("precision", threshold).estimate

    def recall(self, threshold: float | None = None) -> float:
        """Return the recall of decisions at a threshold (two classes)."""
        return self.number("recall", threshold).estimate

    def conf_int(
        self, name: str, level: float | None = None, *, of: str = "population"
    ) -> tuple[float, float]:
        """Return a confidence interval.

        Parameters
        ----------
        name : str
            As for ``number``.
        level : float, optional
            In (0, 1); by default that of the evaluation.
        of : {"population", "rows"}, default="population"
            Of what the rows are a sample of, so that the interval covers sampling and noise; or
            of the number that these rows have, so that it covers noise alone.

        Returns
        -------
        low, high : float

        Raises
        ------
        ValueError
            If there is no such number, or another argument is out of range.
        """
        if of not in ("population", "rows"):
            raise ValueError(f"of must be 'population' or 'rows', got {of!r}")
        one = (self if level is None else self.with_level(level)).number(name)
        if of == "rows" or one.population_low is None or one.population_high is None:
            return one.low, one.high
        return one.population_low, one.population_high

    def with_level(self, level: float) -> Evaluation:
        """Return the same evaluation with intervals of another level; it costs nothing.

        Parameters
        ----------
        level : float
            In (0, 1).

        Returns
        -------
        Evaluation
        """
        check_real("level", level, above=0.0, below=1.0)
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, level=level))

    def _binary(self, what: str) -> BinaryResult:
        rows: Result = self.all_rows
        if not isinstance(rows, BinaryResult):
            raise ValueError(f"{what} is for two classes, and these are not")
        return rows

    def roc_curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return false and true positive rates, and thresholds (``BinaryResult.roc_curve``)."""
        return self._binary("roc_curve").roc_curve()

    def calibration_curve(self) -> tuple[CalibrationBin, ...]:
        """Return cells of scores and their share of positives (two classes)."""
        return self._binary("calibration_curve").calibration_curve()

    def confusion_matrix(self, threshold: float | None = None) -> NDArray[np.float64]:
        """Return noisy counts of rows of each class (rows) that are called each (columns).

        Parameters
        ----------
        threshold : float, optional
            Of decisions between two classes; by default as for ``number``.

        Returns
        -------
        ndarray of shape (n_classes, n_classes)

        Raises
        ------
        ValueError
            If there are no classes.
        """
        rows: Result = self.all_rows
        if isinstance(rows, ClassesResult):
            return rows.confusion_matrix
        return self._binary("confusion_matrix").confusion_matrix(threshold)

    def plot_roc(self) -> Any:
        """Draw the ROC curve of two classes, with a band, or that of each of several.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        ValueError
            If there are no classes.
        """
        return self._drawn("classes" if isinstance(self.all_rows, ClassesResult) else "roc")

    def plot_calibration(self) -> Any:
        """Draw the share of positives in cells of scores; returns and raises as ``plot_roc``."""
        return self._drawn("calibration")

    def plot_thresholds(self) -> Any:
        """Draw accuracy, precision and recall by threshold; returns and raises as ``plot_roc``."""
        return self._drawn("thresholds")

    def plot_residuals(self) -> Any:
        """Draw quantiles of residuals of numbers; returns and raises as ``plot_roc``."""
        return self._drawn("residuals")

    def _drawn(self, name: str) -> Any:
        from dpglm.evaluation.picture import draw_one

        return draw_one(name, self.all_rows, self.plan.level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: level, budget spent, and every number with its intervals."""
        document: dict[str, Any] = {
            "level": self.plan.level,
            "epsilon": self.privacy_.epsilon,
            "delta": self.privacy_.delta,
            "adjacency": self.privacy_.adjacency.value,
            "all_rows": plain_numbers(self.all_rows, self.plan.thresholds),
        }
        if self.plan.levels:
            document["groups"] = [
                {"level": level} | plain_numbers(one, self.plan.thresholds)
                for level, one in self.groups.items()
            ]
        return document

    def _title(self) -> str:
        n_rows = self.plan.plan.data.n_rows
        rows = f"{n_rows} rows" if self.privacy_.adjacency.n_is_public else "rows"
        rows = f"some of {rows}" if self.plan.chosen else rows
        spent = (
            f"epsilon {rounded_up(self.privacy_.epsilon)}, delta {rounded_up(self.privacy_.delta)}"
        )
        return f"Private evaluation of {rows}: {spent}, relation {self.privacy_.adjacency.value}"

    def summary(self) -> str:
        """Return the evaluation as text for a terminal."""
        level = f"{100.0 * self.plan.level:g} %"
        lines = [
            self._title(),
            f"In brackets: intervals ({level}) of sampling and privacy noise; of noise alone.",
        ]
        every = [("all rows" if self.plan.levels else "", self.all_rows)]
        for label, one in self.groups.items():
            # What cannot be told from no rows is not shown.
            if one.rows.low > 0.0:
                every.append(("other rows" if label is None else str(label), one))
        for name, one in every:
            count = plain_number(round(one.rows.estimate))
            lines += ["", *([f"== {name}: {count} rows"] if name else [])]
            lines += [
                f"  {what:26}{in_words(number)}"
                for what, number in numbers_of(one, self.plan.thresholds).items()
            ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _repr_html_(self) -> str:
        return card(
            self._title(),
            [
                (name, in_words(number))
                for name, number in numbers_of(self.all_rows, self.plan.thresholds).items()
            ],
            warnings=self.privacy_.caveats(),
        )
