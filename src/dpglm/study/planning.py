"""A study with every setting decided, before a row is seen."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from dpglm._html import card
from dpglm._words import plain_number, rounded_up
from dpglm.certificate.cautions import weak
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.calibrate import within_budget
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget, default_delta
from dpglm.privacy.events import Composed, Event, canonical
from dpglm.solvers.base import Plan
from dpglm.solvers.parts.beside import MARGIN, plan_beside
from dpglm.study.division import Purpose, exploration_share
from dpglm.study.parts.part import (
    EVALUATION,
    EXPLORATION,
    MODEL,
    DeclaredPart,
    Expected,
    PlannedPart,
)
from dpglm.study.split import Split
from dpglm.tables.schema import Schema

__all__ = ["StudyPlan", "plan_study", "whole_event"]


def whole_event(parts: Mapping[str, Event], split: Split | None, adjacency: Adjacency) -> Event:
    """Return what a study costs: all rows are explored, and then each pays in its own part.

    Without an evaluation there is no split, and the model learns from all rows.
    """
    explored = parts.get(EXPLORATION, Composed(()))
    learned = parts.get(MODEL, Composed(()))
    if split is None:
        return canonical(Composed((explored, learned)))
    return canonical(
        Composed((explored, split.event(learned, parts.get(EVALUATION, Composed(())), adjacency)))
    )


@final
@dataclass(frozen=True, eq=False)
class StudyPlan:
    """What a study will release, and how precise its results will be.

    Parameters
    ----------
    title : str or None
        What the study is called.
    schema : Schema
        The public facts about the table.
    n_rows : int
        Public number of rows.
    budget : PrivacyBudget
        What all parts together may spend.
    adjacency : Adjacency
        The neighbouring relation.
    split : Split or None
        How the rows are divided between learning and evaluating; None where nothing is evaluated.
    exploration, model, evaluation : PlannedPart or None
        The parts; None for what the study does not do.
    exploration_share : float
        Share of mu squared that the exploration gets; each of the others gets the rest.

    Raises
    ------
    ValueError
        If all parts together are not within the budget.

    Notes
    -----
    Privacy: ``event`` is within ``budget``: there is no other plan. Nothing in it depends on rows.
    """

    title: str | None
    schema: Schema
    n_rows: int
    budget: PrivacyBudget
    adjacency: Adjacency
    split: Split | None
    exploration: PlannedPart | None
    model: PlannedPart | None
    evaluation: PlannedPart | None
    exploration_share: float

    def __post_init__(self) -> None:
        if not within_budget(self.event, self.adjacency, self.budget):
            raise ValueError(
                f"budget must be at least what all parts cost together, got {self.budget!r}, which "
                f"{self.event!r} exceeds under {self.adjacency.value}"
            )

    @property
    def parts(self) -> Iterator[tuple[str, PlannedPart]]:
        """The parts by name, in the order in which they run."""
        for name in (EXPLORATION, MODEL, EVALUATION):
            part: PlannedPart | None = getattr(self, name)
            if part is not None:
                yield name, part

    @functools.cached_property
    def event(self) -> Event:
        """What the whole costs."""
        events = {name: part.plan.event for name, part in self.parts}
        return whole_event(events, self.split, self.adjacency)

    @property
    def delta(self) -> float:
        """The budget's delta, or the usual one for so many rows where it has none."""
        found: float = self.budget.to_dict().get("delta", default_delta(self.n_rows))
        return found

    @functools.cached_property
    def epsilon(self) -> float:
        """What the whole costs, at ``delta``."""
        return accountant_for(self.event, self.adjacency).epsilon(
            self.event, self.adjacency, self.delta
        )

    def rows_of(self, name: str) -> int:
        """Return how many rows a part is planned for."""
        if self.split is None or name == EXPLORATION:
            return self.n_rows
        learning, evaluating = self.split.sizes(self.n_rows)
        return evaluating if name == EVALUATION else learning

    def expected(self) -> tuple[Expected, ...]:
        """Say how precise each part's results will be, from public facts alone.

        Returns
        -------
        tuple of Expected
        """
        return tuple(one for _, part in self.parts for one in part.expected())

    def costs(self) -> tuple[tuple[str, int, float], ...]:
        """List what each part costs by itself.

        Returns
        -------
        tuple of (str, int, float)
            Its name, its number of rows, and its epsilon at ``delta``.
        """
        found = []
        for name, part in self.parts:
            event = part.plan.event
            accountant = accountant_for(event, self.adjacency)
            epsilon = accountant.epsilon(event, self.adjacency, self.delta)
            found.append((name, self.rows_of(name), epsilon))
        return tuple(found)

    def __str__(self) -> str:
        cost = f"epsilon {rounded_up(self.epsilon)} at delta {rounded_up(self.delta)}"
        lines = [f"A study of {self.n_rows} rows: {cost}, {self.adjacency.value}"]
        lines += [
            f"  {name}: {rows} rows, epsilon {rounded_up(epsilon)} by itself"
            for name, rows, epsilon in self.costs()
        ]
        lines += [f"  {one.part}: {one.quantity}: {one.precision}" for one in self.expected()]
        lines += [f"  Caution: {one}" for one in self.cautions()]
        return "\n".join(lines)

    def cautions(self) -> tuple[str, ...]:
        """Say what makes the promise weak, before anything is spent; empty if nothing does."""
        return weak(self.epsilon, self.delta, self.n_rows)

    def _repr_html_(self) -> str:
        return card(
            "Plan of a study",
            [
                ("rows", plain_number(self.n_rows)),
                ("epsilon", rounded_up(self.epsilon)),
                ("delta", rounded_up(self.delta)),
                ("relation", self.adjacency.value),
            ],
            sections=[
                (name, [f"{one.quantity}: {one.precision}" for one in part.expected()])
                for name, part in self.parts
            ],
            warnings=self.cautions(),
        )


def plan_study(
    title: str | None,
    schema: Schema,
    declared: Mapping[str, DeclaredPart],
    split: Split | None,
    n_rows: int,
    budget: PrivacyBudget,
    adjacency: Adjacency,
    purpose: Purpose,
) -> StudyPlan:
    """Divide a budget between the declared parts, and plan each of them.

    Parts that are Gaussian get exactly their shares of mu squared; a model whose releases are not
    gets the largest epsilon that the accounting of the whole allows.
    """
    mu = budget.gdp_mu() * MARGIN
    learning, evaluating = (n_rows, 0) if split is None else split.sizes(n_rows)
    rows = {EXPLORATION: n_rows, MODEL: learning, EVALUATION: evaluating}

    def planned(name: str, within: PrivacyBudget) -> PlannedPart:
        return declared[name].plan_within(schema, adjacency, rows[name], within)

    def part_of(mu: float) -> PrivacyBudget:
        """Return a part's budget at the delta of the whole, so that its certificate says that."""
        delta = budget.to_dict().get("delta")
        if delta is None or gdp.epsilon(delta, mu) == 0.0:  # where delta alone is more than that
            return GaussianDP(mu)
        return ApproximateDP(gdp.epsilon(delta, mu), delta)

    share = _share_of_exploration(
        {name: planned(name, budget).noise_to_sampling for name in declared}, purpose
    )
    found: dict[str, PlannedPart | None] = dict.fromkeys(rows)
    spent: Event = Composed(())
    if EXPLORATION in declared:
        found[EXPLORATION] = explored = planned(EXPLORATION, part_of(math.sqrt(share) * mu))
        spent = explored.plan.event
    rest = math.sqrt(1.0 - share) * mu
    if MODEL in declared:

        def made(within: PrivacyBudget) -> Plan:
            return planned(MODEL, within).plan

        plan = plan_beside(made, spent, rest, budget, adjacency)
        if plan is None:
            raise ValueError(f"budget must leave something to the model, got {budget!r}")
        same = isinstance(plan.budget, GaussianDP)
        found[MODEL] = planned(MODEL, part_of(plan.budget.gdp_mu()) if same else plan.budget)
    if EVALUATION in declared:
        found[EVALUATION] = planned(EVALUATION, part_of(rest))
    return StudyPlan(
        title,
        schema,
        n_rows,
        budget,
        adjacency,
        split,
        found[EXPLORATION],
        found[MODEL],
        found[EVALUATION],
        share,
    )


def _share_of_exploration(ratios: Mapping[str, float], purpose: Purpose) -> float:
    others = [ratio for name, ratio in ratios.items() if name != EXPLORATION]
    if EXPLORATION not in ratios:
        return 0.0
    return exploration_share(ratios[EXPLORATION], sum(others), purpose) if others else 1.0
