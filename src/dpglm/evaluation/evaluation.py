"""Evaluation: the result of a private evaluation."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from dpglm._calls import checked
from dpglm._validation import check_one_of
from dpglm._words import card, plain_number
from dpglm.certificate.certificate import Certificate
from dpglm.evaluation.binary import BinaryResult, CalibrationBin
from dpglm.evaluation.task import Result
from dpglm.solvers.uncertainty import Solution
from dpglm.tabulate import Number, TabulatedResult, with_both_intervals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpglm.evaluation.planning import EvaluationPart

_MOST_LEVELS = 12
_SAME_THRESHOLD = 1e-3
"""Thresholds this close are not told apart."""


def _metric(name: str, doc: str) -> Any:
    """Return a property: the estimate of a metric of all rows."""
    return property(lambda found: found.number(name).estimate, doc=doc)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(TabulatedResult):
    """The result of a private evaluation; made by ``evaluate``.

    Parameters
    ----------
    part : EvaluationPart
        The task, the levels and the confidence level.
    solution : dpglm.solvers.Solution
        The released tables, weights and noise included.
    privacy_ : dpglm.certificate.Certificate
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

    _kind = "evaluation"
    _intervals = ": with sampling error and noise, then with noise only."

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
    def likely_levels(self) -> dict[str, Result]:
        """Results by name of the levels that are unlikely to be empty; other results are noise."""
        names = ("other rows" if label is None else str(label) for label in self.by_level)
        every = zip(names, self.by_level.values(), strict=True)
        return {name: one for name, one in every if one.rows.low > 0.0}

    @property
    def measures(self) -> dict[str, Number]:
        """All metrics without a threshold, for all rows."""
        return {one.name: one.number for one in self.all_rows.shown(())}

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

        Raises
        ------
        ValueError
            If the metric does not exist; the message lists all.
        """
        rows = self.all_rows
        if threshold is not None and isinstance(rows, BinaryResult):
            used = rows.threshold_used(threshold)
            decisions = {one.name for one in rows.task.metrics if one.at_threshold}
            if abs(used - threshold) > _SAME_THRESHOLD and name in decisions:
                warnings.warn(
                    f"the threshold {used:.4g} was used in place of {threshold:g}, which was not "
                    "declared (thresholds=)",
                    stacklevel=3,
                )
        return rows.number(name, threshold)

    auc = _metric("auc", "Area under the ROC curve; the mean over classes of one versus the rest.")
    brier = _metric("brier", "Mean squared error of probabilities, added up over several classes.")
    log_loss = _metric("log_loss", "Mean log loss, clipped to ``LARGEST_LOSS`` for each row.")
    r2 = _metric("r2", "Explained share of the variance of the targets.")
    mse = _metric("mse", "Mean squared error.")
    mae = _metric("mae", "Mean absolute error.")

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
        """Return the ends of a confidence interval, which may be infinite.

        Parameters
        ----------
        name : str
            A metric, as in ``number``.
        level : float, optional
            Confidence level in (0, 1); by default that of the evaluation.
        of : {"population", "rows"}, default="population"
            "population": the value in the population of the rows, with sampling error and noise.
            "rows": the value in these rows, with noise only.

        Raises
        ------
        ValueError
            If the metric does not exist, or an argument is out of range.
        """
        check_one_of("of", of, ("population", "rows"))
        one = (self if level is None else self.with_level(level)).number(name)
        if of == "rows" or one.population_low is None or one.population_high is None:
            return one.low, one.high
        return one.population_low, one.population_high

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

        Two classes are decided at ``threshold``, as in ``number``; a ValueError for numbers.
        """
        return self.all_rows.confusion_matrix(threshold)

    def plot_roc(self) -> Any:
        """Draw the ROC curve of two classes with a band, or one curve for each of several classes.

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
        document = self._guarantee() | {"all_rows": _plain(self.all_rows)}
        if self.part.levels:
            document["by_level"] = [
                {"value": value} | _plain(one) for value, one in self.by_level.items()
            ]
        return document

    def _lines(self) -> Iterator[str]:
        found = {"all rows": self.all_rows} | self.likely_levels
        for name, one in list(found.items())[: _MOST_LEVELS + 1]:
            of_level = one is not self.all_rows
            texts = (f"  {label:26}{text}" for label, text in _texts(one, of_level))
            head = f"== {name}: {plain_number(round(one.rows.estimate))} rows"
            yield from ("", *([head] if self.part.levels else []), *texts)
        if len(found) > _MOST_LEVELS + 1:
            more = len(found) - _MOST_LEVELS - 1
            yield from ("", f"{more} more levels are in by_level, to_dict and the report.")
        if len(found) <= len(self.by_level):
            yield from ("", "Levels that may be empty are not shown.")

    def _repr_html_(self) -> str:
        texts = list(_texts(self.all_rows))
        return card(self._title(), texts, warnings=self.privacy_.caveats())


def _plain(rows: Result) -> dict[str, Any]:
    return {one.name: one.number.to_dict() for one in rows.shown()}


def _texts(rows: Result, of_level: bool = False) -> Iterator[tuple[str, str]]:
    for one in rows.shown():
        if one.metric.by_level or not of_level:
            yield one.label, with_both_intervals(one.number)
