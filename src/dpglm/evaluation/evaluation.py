"""Evaluation: the result of a private evaluation."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from dpglm._calls import checked
from dpglm._validation import check_real
from dpglm._words import card, plain_number, rounded_up
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.statement import WHERE
from dpglm.evaluation.binary import BinaryResult, CalibrationBin
from dpglm.evaluation.task import Result
from dpglm.solvers.uncertainty import Solution
from dpglm.tabulate import Number, with_both_intervals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpglm.evaluation.planning import EvaluationPart

_SAME_THRESHOLD = 1e-3
"""Thresholds this close are not told apart."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of a private evaluation; made by ``evaluate``.

    Parameters
    ----------
    part : EvaluationPart
        The task, the levels and the confidence level.
    solution : dpglm.solvers.Solution
        The released tables, weights and noise included.
    privacy_ : dpglm.report.Certificate
        The guarantee, its assumptions, and the budget spent.
    by : str, default="level"
        Name of the attribute of ``by_level``, where it is known.

    Notes
    -----
    Attributes are metrics of all rows, and methods are metrics at a threshold; ``measures`` lists
    those of the task. ``conf_int`` returns intervals. ``all_rows`` and ``by_level`` are complete
    results.

    Privacy: all values are computed from the release and public facts, and may be published.
    """

    part: EvaluationPart
    solution: Solution
    privacy_: Certificate
    by: str = "level"

    @property
    def level(self) -> float:
        """Confidence level of intervals."""
        return self.part.level

    @property
    def _chosen(self) -> bool:
        """Whether a private condition selected the rows, so that their number is private."""
        return self.privacy_.fact(WHERE) is not None

    @functools.cached_property
    def _results(self) -> tuple[Result, ...]:
        return self.part.results(self.solution, self._chosen)

    @property
    def all_rows(self) -> Result:
        """The result for all rows: ``BinaryResult``, ``ClassesResult`` or ``RegressionResult``."""
        return self._results[-1]

    @property
    def by_level(self) -> Mapping[Any, Result]:
        """Results for the rows of each level of ``by``; None is the key of all other rows."""
        if not self.part.levels:
            return {}
        return dict(zip((*self.part.levels, None), self._results[:-1], strict=True))

    @property
    def measures(self) -> dict[str, Number]:
        """All metrics without a threshold, for all rows."""
        return {name: measure() for name, measure in self.all_rows.measures.items()}

    @checked
    def number(self, name: str, threshold: float | None = None) -> Number:
        """Return a metric of all rows with its intervals.

        Parameters
        ----------
        name : str
            One of ``measures``, or, for two classes, of the names that ``at`` returns.
        threshold : float, optional
            For the latter; by default 0.5 for probabilities, and 0 for other scores. The nearest
            boundary of a cell is used, which is the threshold itself if it was declared:
            ``all_rows.threshold_used(threshold)``. A warning is given if it is another one.

        Returns
        -------
        Number

        Raises
        ------
        ValueError
            If the metric does not exist; the message lists all.
        """
        rows = self.all_rows
        if threshold is not None and isinstance(rows, BinaryResult):
            used = rows.threshold_used(threshold)
            if abs(used - threshold) > _SAME_THRESHOLD and name in rows.at():
                warnings.warn(
                    f"the threshold {used:.4g} was used in place of {threshold:g}, which was not "
                    "declared (thresholds=)",
                    stacklevel=3,
                )
        return rows.number(name, threshold)

    @property
    def auc(self) -> float:
        """Area under the ROC curve; for several classes the mean of one versus the rest."""
        return self.number("auc").estimate

    @property
    def brier(self) -> float:
        """Mean squared error of probabilities; for several classes the sum over classes."""
        return self.number("brier").estimate

    @property
    def log_loss(self) -> float:
        """Mean log loss, clipped to ``LARGEST_LOSS`` for each row."""
        return self.number("log_loss").estimate

    @property
    def r2(self) -> float:
        """Explained share of the variance of the targets."""
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
        """Return the accuracy (for two classes, at a threshold)."""
        return self.number("accuracy", threshold).estimate

    def precision(self, threshold: float | None = None) -> float:
        """Return the precision at a threshold (two classes)."""
        return self.number("precision", threshold).estimate

    def recall(self, threshold: float | None = None) -> float:
        """Return the recall at a threshold (two classes)."""
        return self.number("recall", threshold).estimate

    @checked
    def conf_int(
        self, name: str, level: float | None = None, *, of: str = "population"
    ) -> tuple[float, float]:
        """Return a confidence interval.

        Parameters
        ----------
        name : str
            A metric, as in ``number``.
        level : float, optional
            Confidence level in (0, 1); by default that of the evaluation.
        of : {"population", "rows"}, default="population"
            "population": the value in the population of the rows, with sampling error and noise.
            "rows": the value in these rows, with noise only.

        Returns
        -------
        low, high : float

        Raises
        ------
        ValueError
            If the metric does not exist, or an argument is out of range.
        """
        if of not in ("population", "rows"):
            raise ValueError(f"of must be 'population' or 'rows', got {of!r}")
        one = (self if level is None else self.with_level(level)).number(name)
        if of == "rows" or one.population_low is None or one.population_high is None:
            return one.low, one.high
        return one.population_low, one.population_high

    def with_level(self, level: float) -> Evaluation:
        """Return the same evaluation with another confidence level, at no privacy cost.

        Parameters
        ----------
        level : float
            Confidence level in (0, 1).

        Returns
        -------
        Evaluation
        """
        check_real("level", level, above=0.0, below=1.0)
        return dataclasses.replace(self, part=dataclasses.replace(self.part, level=level))

    def _binary(self, what: str) -> BinaryResult:
        rows = self.all_rows
        if not isinstance(rows, BinaryResult):
            raise ValueError(f"{what} requires two classes, and this evaluation has others")
        return rows

    def roc_curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return false and true positive rates, and thresholds (``BinaryResult.roc_curve``)."""
        return self._binary("roc_curve").roc_curve()

    def calibration_curve(self) -> tuple[CalibrationBin, ...]:
        """Return cells of scores and their shares of positive rows (two classes)."""
        return self._binary("calibration_curve").calibration_curve()

    def confusion_matrix(self, threshold: float | None = None) -> NDArray[np.float64]:
        """Return noisy counts of rows by true class (rows) and predicted class (columns).

        Parameters
        ----------
        threshold : float, optional
            Threshold of decisions between two classes, with the default of ``number``.

        Returns
        -------
        ndarray of shape (n_classes, n_classes)

        Raises
        ------
        ValueError
            If the targets are numbers.
        """
        return self.all_rows.confusion_matrix(threshold)

    def plot_roc(self) -> Any:
        """Draw the ROC curve of two classes with a band, or one curve for each of several classes.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        ValueError
            If the targets are numbers.
        """
        return self._drawn("classes" if "classes" in self.all_rows.task.pictures else "roc")

    def plot_calibration(self) -> Any:
        """Draw the share of positive rows against scores; see ``plot_roc``."""
        return self._drawn("calibration")

    def plot_thresholds(self) -> Any:
        """Draw accuracy, precision and recall by threshold; see ``plot_roc``."""
        return self._drawn("thresholds")

    def plot_residuals(self) -> Any:
        """Draw quantiles of the residuals of predicted numbers; see ``plot_roc``."""
        return self._drawn("residuals")

    def _drawn(self, name: str) -> Any:
        from dpglm.evaluation.picture import draw_one

        return draw_one(name, self.all_rows, self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: level, budget spent, and every number with its intervals."""
        document: dict[str, Any] = {
            "level": self.level,
            "epsilon": self.privacy_.epsilon,
            "delta": self.privacy_.delta,
            "adjacency": self.privacy_.adjacency.value,
            "all_rows": _plain(self.all_rows),
        }
        if self.part.levels:
            document["by_level"] = [
                {"value": value} | _plain(one) for value, one in self.by_level.items()
            ]
        return document

    def _title(self) -> str:
        n_rows = self.solution.plan.data.n_rows
        rows = f"{n_rows} rows" if self.privacy_.adjacency.n_is_public else "rows"
        rows = f"some of {rows}" if self._chosen else rows
        spent = (
            f"epsilon {rounded_up(self.privacy_.epsilon)}, delta {rounded_up(self.privacy_.delta)}"
        )
        return f"Private evaluation of {rows}: {spent}, relation {self.privacy_.adjacency.value}"

    def summary(self) -> str:
        """Return the evaluation as text for a terminal."""
        level = f"{100.0 * self.level:g} %"
        intervals = f"Intervals ({level}): with sampling error and noise, then with noise only."
        lines = [self._title(), intervals]
        every = [("all rows" if self.part.levels else "", self.all_rows)]
        for label, one in self.by_level.items():
            # Metrics of levels that may be empty are noise.
            if one.rows.low > 0.0:
                every.append(("other rows" if label is None else str(label), one))
        for name, one in every:
            count = plain_number(round(one.rows.estimate))
            lines += ["", *([f"== {name}: {count} rows"] if name else [])]
            lines += [f"  {label:26}{text}" for label, text in _texts(one)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _repr_html_(self) -> str:
        texts = list(_texts(self.all_rows))
        return card(self._title(), texts, warnings=self.privacy_.caveats())


def _plain(rows: Result) -> dict[str, Any]:
    return {one.name: one.number.to_dict() for one in rows.shown()}


def _texts(rows: Result) -> Iterator[tuple[str, str]]:
    return ((one.label, with_both_intervals(one.number)) for one in rows.shown())
