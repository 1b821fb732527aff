"""An evaluation before there are rows: its tables, their noise, and what to expect."""

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
from dpglm.evaluation.task import Task
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
    """What an evaluation will release, decided before a row is seen.

    Parameters
    ----------
    task : Task
        What is evaluated.
    levels : tuple
        Public levels by which rows are told apart; none for all rows together.
    plan : Plan
        The releases that execute it.
    level : float
        Level of intervals.
    chosen : bool, default=False
        Whether rows count by a private condition, so that their number is private.
    """

    task: Task
    levels: tuple[Any, ...]
    plan: Plan
    level: float
    chosen: bool = False

    @property
    def n_levels(self) -> int:
        """Number of groups of rows: one for each level and one for the rows of none."""
        return len(self.levels) + 1 if self.levels else 1

    def precision(self) -> tuple[tuple[str, float], ...]:
        """Say how precise the result will be, from public facts alone.

        Returns
        -------
        tuple of (str, float)
            What, and the expected half width of its interval, of privacy noise alone: for shares of
            rows, which accuracy, recall and areas under curves resemble, with half of the rows in
            each class; and for means over all rows.
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
            Scores, or numbers.
        by : array_like of shape (n,), optional
            The level of each row; what is none of the plan's levels is one of its own.
        groups : array_like of shape (n,), optional
            Whose each row is, for a plan with ``groups``, which limits the rows of each.
        where : array_like of bool of shape (n,), optional
            Which rows count, for a plan with ``chosen=True``.
        ledger, random_state
            As for ``evaluate``.
        checkpoint : path-like, optional
            File that keeps what was released: run again with it, the same plan returns the same
            evaluation and spends nothing twice.

        Returns
        -------
        Evaluation

        Raises
        ------
        ValueError
            If an argument is wrong; nothing is released or spent then.
        PlanMismatchError
            If the number of rows is public and not the planned one; nothing is released or spent.
        LedgerError
            If the ledger refuses; nothing is released or spent then.
        """
        if self.chosen is not (where is not None):
            raise ValueError("where must be given for a plan with chosen=True, and only then")
        if where is not None and not isinstance(where, Where):
            where = Where.of(where, y)
            y, predictions, by = map(where.rows, (y, predictions, by))
        X = self.task.encode(np.asarray(y), np.asarray(predictions))
        X = np.column_stack([self._group_of(by, len(X)), X])
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

    def _group_of(self, by: ArrayLike | None, n_rows: int) -> NDArray[np.intp]:
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
        """Put rows into their groups, as many of each as planned; all rows without groups."""
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
    task: Task,
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
    task : Task
        ``BinaryTask``, ``ClassesTask`` or ``RegressionTask``; ``task_of`` makes it of a model.
    n_rows : int
        Public number of rows, at least 1.
    budget : PrivacyBudget
        What may be spent: ``GaussianDP``, ``ZeroConcentratedDP``, or ``ApproximateDP`` with a delta
        above 0.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation.
    levels : sequence, optional
        Public levels of an attribute, by which rows are evaluated as well.
    level : float, default=0.95
        Level of intervals, in (0, 1).
    groups : GroupBound, optional
        Number of groups whose rows are protected together, and the most rows that one has.
    chosen : bool, default=False
        Whether rows count by a private condition (``where`` of ``run``); their number is private.

    Returns
    -------
    EvaluationPlan

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it, the value and what is allowed.

    Notes
    -----
    Privacy: Gaussian releases, in each of which a row is in one cell of each table, so that its
    contribution to all tables together has a length of at most 1, weights included;
    ``replace_one`` moves it by up to twice that. Levels cost nothing: a row has one. A group of at
    most k rows contributes at most k.

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
