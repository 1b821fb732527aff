"""Plan and run evaluations of predictions."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_count, check_list, check_one_of, check_real
from dpglm.certificate.execution import execute
from dpglm.certificate.statement import PublicFact, size_facts
from dpglm.data.groups import LimitedGroups
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec, GroupBound
from dpglm.data.split import EVALUATION
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.task import EvaluationTask
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.tables.given import Where, spelled_as
from dpglm.tabulate.numbers import normal_quantile

_NAME = "Evaluation"


@final
@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """The planned releases of an evaluation.

    Parameters
    ----------
    task : EvaluationTask
        Kind of predictions.
    levels : tuple
        Public levels of an attribute, which are evaluated too; may be empty.
    plan : Plan
        The releases.
    level : float
        Confidence level of intervals.
    chosen : bool, default=False
        Whether a private condition selects rows, so that their number is private.
    """

    task: EvaluationTask
    levels: tuple[Any, ...]
    plan: Plan
    level: float
    chosen: bool = False

    @property
    def n_levels(self) -> int:
        """Number of levels, including one for rows with other values."""
        return len(self.levels) + 1 if self.levels else 1

    def precision(self) -> tuple[tuple[str, float], ...]:
        """Return the expected precision, from public facts.

        Returns
        -------
        tuple of (str, float)
            Names and half widths of intervals with privacy noise only: for a share of rows, with
            half of the rows in each class (accuracy, recall and AUC are similar), and for means
            over all rows.
        """
        tables = self.task.tables(self.plan)
        half = normal_quantile(self.level) * self.plan.coefficient_noise / self.plan.data.n_rows
        # A share adds up half of the cells; means add up all levels.
        first = next(iter(tables.values()))
        share = half / first.weight * math.sqrt(self.task.n_added(self.plan)) / 2.0
        every = half * math.sqrt(self.n_levels)
        means = (
            (name, unit * every / tables[table].weight) for name, unit, table in self.task.means
        )
        return (("a share of rows", share), *means)

    def run(
        self,
        y: ArrayLike,
        predictions: ArrayLike,
        *,
        by: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        where: ArrayLike | Where | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        random_state: int | NoiseSource | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Evaluation:
        """Execute the plan on rows.

        Parameters
        ----------
        y : array_like of shape (n,)
            Targets.
        predictions : array_like of shape (n,) or (n, n_classes)
            Scores or numbers.
        by : array_like of shape (n,), optional
            Attribute of each row, for a plan with levels; other values form a further level.
        groups : array_like of shape (n,), optional
            Person (group) id of each row, for a plan with ``groups``.
        where : array_like of bool of shape (n,), optional
            Which rows count, for a plan with ``chosen=True``.
        ledger, random_state
            See ``evaluate``.
        checkpoint : path-like, optional
            File for the releases. Running the plan again with it returns the same evaluation at no
            further cost.

        Returns
        -------
        Evaluation

        Raises
        ------
        ValueError
            If an argument is invalid; nothing is spent then.
        PlanMismatchError
            If the public number of rows is not the planned one; nothing is spent then.
        LedgerError
            If the ledger refuses the charge; nothing is spent then.
        """
        if self.chosen is not (where is not None):
            raise ValueError("where must be given for a plan with chosen=True, and only then")
        if where is not None and not isinstance(where, Where):
            where = Where.of(where, y)
            y, predictions, by = map(where.rows, (y, predictions, by))
        X = self.task.encode(np.asarray(y), np.asarray(predictions))
        X = np.column_stack([self._levels_of(by, len(X)), X])
        every = MatrixRows(X, np.zeros(len(X))).spread(None if where is None else where.counts)

        def rows(noise: NoiseSource) -> Rows:
            return self._in_groups(every, groups, noise).prepared(self.plan.data, None, np.asarray)

        solution, certificate = execute(
            self.plan,
            rows,
            _NAME,
            EVALUATION,
            self._facts(),
            ledger=ledger,
            random_state=random_state,
            checkpoint=checkpoint,
        )
        return Evaluation(self, solution, certificate)

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

    def _in_groups(self, rows: MatrixRows, groups: Any, noise: NoiseSource) -> MatrixRows:
        """Return the rows in their groups, at most as many of each as planned."""
        data, adjacency = self.plan.data, self.plan.adjacency
        if data.groups is not None or groups is not None:
            limited = LimitedGroups.planned(groups, data, adjacency, rows.shape[0])
            return rows.in_groups(groups, limited.most, noise)
        return rows

    def _facts(self) -> tuple[PublicFact, ...]:
        data = self.plan.data
        declared = {"row_norm": data.row_norm, **self.task.facts}
        if self.levels:
            declared["levels"] = list(self.levels)
        return (
            *size_facts(data, self.plan.adjacency, chosen=self.chosen),
            *(PublicFact(name, value, "declared") for name, value in declared.items()),
        )


def plan_evaluation(
    task: EvaluationTask,
    n_rows: int,
    budget: PrivacyBudget,
    *,
    adjacency: str = "zero_out",
    levels: Sequence[Any] = (),
    level: float = 0.95,
    groups: GroupBound | None = None,
    chosen: bool = False,
) -> EvaluationPlan:
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
    chosen : bool, default=False
        Whether a private condition selects rows (``where`` of ``run``), so that their number is
        private.

    Returns
    -------
    EvaluationPlan

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
    n_rows = check_count("n_rows", n_rows)
    relation = Adjacency(check_one_of("adjacency", adjacency, tuple(Adjacency)))
    level = check_real("level", level, above=0.0, below=1.0)
    if not isinstance(budget, PrivacyBudget):
        raise ValueError(f"budget must be a PrivacyBudget, got {budget!r}")
    found = tuple(np.asarray(check_list("levels", levels)).tolist())
    if any(not isinstance(one, Hashable) for one in found) or len(set(found)) < len(found):
        raise ValueError(f"levels must be different, got {list(found)!r}")
    n_levels = len(found) + 1 if found else 1
    data = DataSpec(n_rows, 1, groups=groups)
    mu = budget.gdp_mu() / relation.sum_sensitivity(data.reach(1))
    task = task.for_rows(n_rows // n_levels, mu)
    return EvaluationPlan(task, found, task.plan(data, n_levels, budget, relation), level, chosen)
