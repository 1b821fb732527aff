"""Plan and run evaluations of predictions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_list, check_one_of, check_real
from dpglm._words import plain_number
from dpglm.certificate.execution import Expected, PartInput, PartPlan, StudyPart, execute
from dpglm.certificate.statement import PublicFact, size_facts
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.protection import LimitedGroups, Protection
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec, GroupBound
from dpglm.data.split import EVALUATION
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.predictions import predictions_of
from dpglm.evaluation.task import EvaluationTask, Result, tables_of
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan, Solution, calibrated
from dpglm.solvers.composite.tabulation import ScoreTables, Tabulation
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.given import Where, spelled_as
from dpglm.tables.schema import Schema
from dpglm.tabulate.numbers import normal_quantile, proportion_ratio

_NAME = "Evaluation"
_HALF = 0.5


@final
@dataclass(frozen=True, eq=False)
class EvaluationPart(StudyPart):
    """An evaluation of predictions, with the options of ``evaluate``.

    Parameters
    ----------
    task : EvaluationTask
        Kind of predictions.
    levels : sequence, default=()
        Public levels of an attribute, which are evaluated too.
    level : float, default=0.95
        Confidence level of intervals.
    schema : Schema, optional
        Schema of the table that the model of a study is evaluated on; by default rows are targets,
        predictions and attributes.
    column : CategoricalColumn, optional
        The column of the levels in that table.
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

    def _method(self, protection: Protection, noise: float) -> Tabulation | ScoreTables:
        """Return the releases with this noise multiplier."""
        data, mu = _size(protection)
        task = self.task.for_rows(protection.n_rows // self.n_levels, mu)
        return task.method(data, self.n_levels, mu, protection.adjacency, noise)

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

    def _share_noise(self, method: Tabulation | ScoreTables) -> float:
        """Return the noise of a share of rows, which adds up half of the cells."""
        noise = method.coefficient_noise / method.data.n_rows
        return noise / method.tables[0].weight * math.sqrt(self.task.n_added(method)) / 2.0

    def title(self, plan: Plan) -> str:
        return f"an evaluation of {plan.data.n_rows} rows"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        method = tables_of(plan)
        z, tables = normal_quantile(self.level), self.task.tables(method)
        # Means add up all levels.
        every = z * plan.coefficient_noise / plan.data.n_rows * math.sqrt(self.n_levels)
        means = (
            (name, unit * every / tables[table].weight) for name, unit, table in self.task.means
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
        plan, z = solution.plan, normal_quantile(self.level)
        _, mu = _size(plan.protection)
        task = self.task.for_rows(plan.data.n_rows // self.n_levels, mu)
        return task.read(plan, solution.w, self.n_levels, z, chosen)

    def run(self, plan: Plan, given: PartInput) -> Evaluation:
        rows, where = given.rows, given.where
        if where is not None and not isinstance(where, Where):
            where = Where.of(where, rows[0])
            rows = tuple(map(where.rows, rows))
        y, predictions, by = self._arrays(rows, given.model)
        X = self.task.encode(np.asarray(y), np.asarray(predictions))
        X = np.column_stack([self._levels_of(by, len(X)), X])
        every = MatrixRows(X, np.zeros(len(X))).spread(None if where is None else where.counts)

        def prepared(noise: NoiseSource) -> Rows:
            used = every
            if plan.data.groups is not None or given.groups is not None:
                limited = LimitedGroups.planned(
                    given.groups, plan.data, plan.adjacency, every.shape[0]
                )
                used = every.in_groups(given.groups, limited.most, noise)
            return used.prepared(plan.data, None, np.asarray)

        declared = {"row_norm": plan.data.row_norm, **self.task.facts}
        if self.levels:
            declared["levels"] = list(self.levels)
        facts = (
            *size_facts(plan.data, plan.adjacency, chosen=where is not None),
            *(PublicFact(name, value, "declared") for name, value in declared.items()),
        )
        return Evaluation(self, *execute(plan, prepared, _NAME, EVALUATION, facts, given))

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

    def _levels_of(self, by: ArrayLike | None, n_rows: int) -> NDArray[np.intp]:
        if not self.levels:
            if by is not None:
                raise ValueError("by must be None for a plan without levels")
            return np.zeros(n_rows, np.intp)
        found = np.asarray(by)
        if found.shape != (n_rows,):
            raise ValueError(f"by must have shape ({n_rows},), one for each row, got {found.shape}")
        found = spelled_as(found, self.levels)
        codes = np.full(n_rows, len(self.levels), np.intp)
        for place, level in enumerate(self.levels):
            codes[found == level] = place
        return codes


def _size(protection: Protection) -> tuple[DataSpec, float]:
    """Return the public number of rows, and the budget for counts as Gaussian DP."""
    data = DataSpec(protection.n_rows, 1, groups=protection.groups)
    return data, protection.budget.gdp_mu() / protection.adjacency.sum_sensitivity(data.reach(1))


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
    n_rows : int
        Public number of rows, at least 1.
    budget : PrivacyBudget
        ``GaussianDP``, ``ZeroConcentratedDP``, or ``ApproximateDP`` with a delta above 0.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation.
    levels : sequence, optional
        Public levels of an attribute, which are evaluated too.
    level : float, default=0.95
        Confidence level of intervals, in (0, 1).
    groups : GroupBound, optional
        Number of people (groups) that are protected with all of their rows, and the maximum rows
        per group.

    Returns
    -------
    PartPlan
        It can be printed; ``run`` executes it on targets and predictions.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Notes
    -----
    Privacy: Gaussian releases. A row is in one cell of each table, so that its weighted
    contributions to all tables of a release have an L2 norm of at most 1 (a change by
    ``replace_one`` at most 2), and those of a group with k rows at most k. Levels are free,
    because a row has one level.

    Examples
    --------
    >>> from dpglm.evaluation import BinaryTask
    >>> from dpglm.privacy import GaussianDP
    >>> plan = plan_evaluation(BinaryTask((0, 1)), 16000, GaussianDP(0.25))
    >>> [(what, round(half, 3)) for what, half in plan.precision()]
    [('a share of rows', 0.001), ('log loss', 0.007), ..., ('mean prediction', 0.001)]
    """
    relation = Adjacency(check_one_of("adjacency", adjacency, tuple(Adjacency)))
    part = EvaluationPart(task, levels, level)
    return PartPlan(part, part.plan(Protection(relation, budget, n_rows, groups)))
