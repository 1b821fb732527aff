"""Plan and run evaluations of predictions."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm._validation import check_list, check_real, in_one_line
from dpglm._words import plain_number
from dpglm.certificate.certificate import Certificate, PublicFact
from dpglm.certificate.execution import Expected, PartInput, PartPlan, StudyPart, proportion_ratio
from dpglm.certificate.statement import LABELS
from dpglm.data.collection import MatrixRows
from dpglm.data.rows import DataSpec, GroupBound, Protection
from dpglm.data.split import EVALUATION, MODEL
from dpglm.evaluation.binary import BinaryTask
from dpglm.evaluation.classes import ClassesTask
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.regression import RegressionTask
from dpglm.evaluation.task import EvaluationTask, Result, positions, tables_of
from dpglm.exploration.design import run_tables
from dpglm.privacy.budget import Adjacency, PrivacyBudget
from dpglm.solvers.base import Plan, calibrated
from dpglm.solvers.composite.tabulation import Tabulation
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema
from dpglm.tabulate import normal_quantile

_HALF = 0.5


@checked
def task_of(
    model: Any, thresholds: Sequence[float] | None = None, target_bounds: Any = None
) -> EvaluationTask:
    """Return the task for the predictions of a fitted model.

    Parameters
    ----------
    model, thresholds, target_bounds
        See ``evaluate``.

    Raises
    ------
    ValueError
        If a classifier does not have scores, or numeric targets do not have bounds.
    """
    classes = getattr(model, "classes_", None)
    given = None if thresholds is None else tuple(thresholds)
    if (labels := _labels(model)) is not None:
        return BinaryTask(labels, given)
    if classes is None:
        bounds = getattr(model, "target_bounds", None) if target_bounds is None else target_bounds
        if bounds is None or np.shape(bounds) != (2,):
            raise ValueError(
                "target_bounds must be a pair of public bounds on the targets of a regressor, got "
                f"{in_one_line(bounds)}"
            )
        return RegressionTask(float(bounds[0]), float(bounds[1]))
    if len(classes) == 2:
        return BinaryTask(tuple(classes), given, has_probabilities(model))
    if not has_probabilities(model):
        raise ValueError(
            f"model must have predict_proba to be evaluated on {len(classes)} classes, and "
            f"{type(model).__name__} does not: give dpglm.evaluate_predictions scores in [0, 1], "
            "such as scipy.special.softmax(model.decision_function(X), axis=1); ignore their "
            "log loss"
        )
    return ClassesTask(tuple(classes))


def predictions_of(
    model: Any, X: Any, offset: Any = None, exposure: Any = None
) -> NDArray[np.float64]:
    """Return the scores of a classifier or the predictions of a regressor. Private.

    Parameters
    ----------
    model, X, offset, exposure
        See ``evaluate``. Rows on a cluster are predicted there.

    Returns
    -------
    ndarray of shape (n,) or (n, n_classes)
        For two classes the probability of the second one, or decision values without
        probabilities.
    """
    classes = getattr(model, "classes_", None)
    first = next(iter(X.values()), X) if isinstance(X, Mapping) else X
    shape = getattr(first, "shape", None) or (operator.length_hint(first, 1),)
    if shape[0] == 0:
        # Whether a private condition selects any row is private: models refuse an empty table.
        return np.zeros(0 if classes is None or len(classes) == 2 else (0, len(classes)))
    given = {"offset": offset, "exposure": exposure}
    given = {name: one for name, one in given.items() if one is not None}
    if classes is None:
        if not hasattr(model, "predict"):
            raise ValueError(f"model must have predict, got {in_one_line(model)}")
        found, are_shares = model.predict(X, **given), _labels(model) is not None
    elif given:
        raise ValueError("offset and exposure must be None for a classifier")
    else:
        are_shares = has_probabilities(model)
        found = model.predict_proba(X) if are_shares else model.decision_function(X)
    found = found.compute() if callable(getattr(found, "compute", None)) else found
    scores = np.asarray(found, dtype=np.float64)
    if are_shares and classes is not None and len(classes) == 2:
        scores = scores[:, 1]
    return np.clip(scores, 0.0, 1.0) if are_shares else scores


def has_probabilities(model: Any) -> bool:
    """Return whether a classifier, fitted or not, has probabilities."""
    # Model files have the method whether their loss has probabilities or not.
    return bool(
        getattr(model, "has_probabilities", callable(getattr(model, "predict_proba", None)))
    )


def certificate_of(model: Any) -> Certificate | None:
    """Return the certificate of a fitted model of dpglm or of a model file."""
    found = getattr(model, "privacy_", getattr(model, "certificate", None))
    return found if isinstance(found, Certificate) else None


def _labels(model: Any) -> tuple[Any, Any] | None:
    """Return the two labels of a regressor of labels, which predicts probabilities."""
    certificate = certificate_of(model)
    fact = None if certificate is None else certificate.fact(LABELS)
    return None if fact is None else (fact.value[0], fact.value[1])


@final
@dataclass(frozen=True, eq=False)
class EvaluationPart(StudyPart):
    """An evaluation of predictions, with the options of ``evaluate``.

    In a study ``schema`` describes the table that the model is evaluated on, and ``column`` has the
    levels; otherwise rows are targets, predictions and attributes.
    """

    task: EvaluationTask
    levels: Sequence[Any] = ()
    level: float = 0.95
    schema: Schema | None = None
    column: CategoricalColumn | None = None

    def __post_init__(self) -> None:
        check_real("level", self.level, above=0.0, below=1.0)
        found = tuple(np.asarray(check_list("levels", self.levels)).tolist())
        if any(not isinstance(one, Hashable) for one in found) or len(set(found)) < len(found):
            raise ValueError(f"levels must be different, got {list(found)!r}")
        object.__setattr__(self, "levels", found)

    @property
    def n_levels(self) -> int:
        """Number of levels, including one for rows with other values."""
        return len(self.levels) + 1 if self.levels else 1

    def _method(self, protection: Protection, noise: float) -> Tabulation:
        """Return the releases with this noise multiplier."""
        data = DataSpec(protection.n_rows, 1, groups=protection.groups)
        # The budget for counts as Gaussian DP.
        mu = protection.budget.gdp_mu() / protection.adjacency.sum_sensitivity(data.reach(1))
        return self.task.method(data, self.n_levels, mu, protection.adjacency, noise)

    def plan(self, protection: Protection) -> Plan:
        method = self._method(protection, 1.0)
        return calibrated(
            lambda noise: dataclasses.replace(method, noise_multiplier=noise),
            method.data,
            protection.budget,
            protection.adjacency,
        )

    def noise_to_sampling(self, protection: Protection) -> float:
        method = self._method(protection, 1.0 / protection.budget.gdp_mu())
        return proportion_ratio(self._share_noise(method), protection.n_rows, _HALF)

    def _share_noise(self, method: Tabulation) -> float:
        """Return the noise of a share of rows, which adds up half of the cells."""
        noise = method.coefficient_noise / method.data.n_rows
        return noise / method.tables[0].weight * math.sqrt(self.task.n_added(method)) / 2.0

    def title(self, plan: Plan) -> str:
        return f"an evaluation of {plan.data.n_rows} rows"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        method = tables_of(plan)
        z, shares = normal_quantile(self.level), self.task.shares
        # Means add up all levels.
        every = z * plan.coefficient_noise / plan.data.n_rows * math.sqrt(self.n_levels)
        means = (
            (name, unit * every / math.sqrt(shares[table])) for name, unit, table in self.task.means
        )
        return (("a share of rows", z * self._share_noise(method)), *means)

    def expected(self, plan: Plan) -> tuple[Expected, ...]:
        (share, reach), *means = self.precision(plan)
        sampling = normal_quantile(self.level) * _HALF / math.sqrt(plan.data.n_rows)
        both = plain_number(math.hypot(reach, sampling), 2)
        found = [(share, f"± {plain_number(reach, 2)} of noise, ± {both} with sampling, at most")]
        found += [(name, f"± {plain_number(width, 2)} of noise") for name, width in means]
        return tuple(Expected(EVALUATION, *one) for one in found)

    def results(self, solution: Solution, chosen: bool) -> tuple[Result, ...]:
        """Return a result for each level, if there are several, and one for all rows."""
        z = normal_quantile(self.level)
        return self.task.read(solution.plan, solution.w, self.n_levels, z, chosen)

    def run(self, plan: Plan, given: PartInput) -> Evaluation:
        rows, where = given.rows, given.where
        if self.schema is None:
            rows = given.arguments("targets, predictions and, with levels, attributes", 2, 3)
        if where is not None and not isinstance(where, Where):
            where = Where.of(where, rows[0])
            rows = tuple(map(where.rows, rows))
        model = given.earlier.get(MODEL)
        y, predictions, by = self._arrays(rows, model)
        X = self.task.encode(np.asarray(y), np.asarray(predictions))
        places = np.zeros(len(X), np.intp)
        if self.levels:
            found = np.asarray(by)
            if found.shape != (len(X),):
                raise ValueError(
                    f"by must have shape ({len(X)},), one for each row, got {found.shape}"
                )
            places = positions(found, self.levels)
        elif by is not None:
            raise ValueError("by must be None for a plan without levels")
        X = np.column_stack([places, X])
        every = MatrixRows(X, np.zeros(len(X))).spread(None if where is None else where.counts)
        declared = dict(self.task.facts)
        if self.levels:
            declared["levels"] = list(self.levels)
        fixed = where is None and plan.adjacency.rows_are_public(plan.data.unit)
        if not fixed and certificate_of(model) is None:
            # Other rows shift these, and code of others may round a row by its position.
            declared["predictions"] = "functions of their row alone, to the last bit"
        facts = (
            # The norm of a row of the tables, not of the caller's rows.
            PublicFact("row_norm", plan.data.row_norm, "implied"),
            *(PublicFact(name, value, "declared") for name, value in declared.items()),
        )
        n_rows = every.shape[0]
        made = run_tables(plan, lambda: every, n_rows, given, "Evaluation", EVALUATION, facts)
        return Evaluation(self, *made)

    def _arrays(self, rows: tuple[Any, ...], model: Any) -> tuple[Any, Any, Any]:
        """Return targets, predictions and attributes, given as such or as a table and a model."""
        if self.schema is None:
            y, predictions, *attribute = rows
            return y, predictions, *(attribute or [None])
        (table,), column, by = rows, self.column, None
        if column is not None:
            by = np.asarray(column.categories)[column.read(table[column.name])]
        # Means of counts may overflow; they are clipped.
        predictions = np.nan_to_num(predictions_of(model, table))
        return self.schema.encode_target(table[self.schema.target.name]), predictions, by


@checked
def plan_evaluation(
    task: EvaluationTask,
    n_rows: int,
    budget: PrivacyBudget,
    *,
    adjacency: str = "zero_out",
    levels: Sequence[Any] = (),
    level: float = 0.95,
    groups: GroupBound | None = None,
) -> PartPlan:
    """Plan an evaluation from public facts.

    Parameters
    ----------
    task : EvaluationTask
        ``BinaryTask``, ``ClassesTask`` or ``RegressionTask``; for a model, ``task_of(model)``.
    n_rows, budget, adjacency, groups
        See ``plan_description``.
    levels : sequence, optional
        Public levels of an attribute, which are evaluated too.
    level : float, default=0.95
        Confidence level of intervals, in (0, 1).

    Returns
    -------
    PartPlan
        It can be printed; ``run`` executes it on targets and predictions.

    Notes
    -----
    Privacy: Gaussian releases. A row is in one cell of each table, so that its weighted
    contributions to all tables of a release have an L2 norm of at most 1 (a change by
    ``replace_one`` at most 2), and those of a group with k rows at most k. Levels are free,
    because a row has one level.
    """
    part = EvaluationPart(task, levels, level)
    return PartPlan(part, part.plan(Protection(Adjacency(adjacency), budget, n_rows, groups)))
