"""A study with every setting decided, before a row is seen."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from dpglm._words import card, plain_number, rounded_up
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.calibrate import within_budget
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget, default_delta, weak
from dpglm.privacy.events import Composed, Event, canonical
from dpglm.solvers.base import Plan
from dpglm.solvers.parts.defaults import MARGIN, plan_beside
from dpglm.study.division import Persons, Purpose, Split, exploration_share
from dpglm.study.parts import EVALUATION, EXPLORATION, MODEL, DeclaredPart, Expected, PlannedPart
from dpglm.tables.schema import Schema

__all__ = ["StudyPlan", "plan_study", "sizes_in_words", "whole_event"]


def sizes_in_words(n_rows: int, n_units: int, unit: Unit) -> str:
    """Say how many rows there are, and whose, where persons are protected."""
    return f"{n_rows} rows" + ("" if unit is Unit.ROW else f" of {n_units} persons")


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
    persons : Persons or None
        Those whose rows are protected together, where these are not single rows.

    Raises
    ------
    ValueError
        If all parts together are not within the budget, or rows of persons who are protected could
        be in two parts.

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
    persons: Persons | None = None

    def __post_init__(self) -> None:
        whose = None if self.split is None else self.split.persons
        if self.persons is not None and self.split is not None and whose != self.persons.column:
            raise ValueError(
                f"split must be by the persons who are protected, {self.persons.column!r}, got "
                f"{whose!r}"
            )
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

    @property
    def unit(self) -> Unit:
        """What is protected: rows, or persons with all of theirs."""
        return Unit.ROW if self.persons is None else Unit.GROUP

    @property
    def n_units(self) -> int:
        """The public number of rows, or of persons where these are protected."""
        return self.n_rows if self.persons is None else self.persons.n_groups

    @property
    def sizes(self) -> str:
        """The numbers of rows and persons in words."""
        return sizes_in_words(self.n_rows, self.n_units, self.unit)

    @functools.cached_property
    def event(self) -> Event:
        """What the whole costs."""
        events = {name: part.plan.event for name, part in self.parts}
        return whole_event(events, self.split, self.adjacency)

    @property
    def delta(self) -> float:
        """The budget's delta, or the usual one for so many rows, or persons, where it has none."""
        found: float = self.budget.to_dict().get("delta", default_delta(self.n_units))
        return found

    @functools.cached_property
    def epsilon(self) -> float:
        """What the whole costs, at ``delta``."""
        return accountant_for(self.event, self.adjacency).epsilon(
            self.event, self.adjacency, self.delta
        )

    def rows_of(self, name: str) -> int:
        """Return how many rows a part is planned for."""
        return _sizes(self.n_rows, self.split)[name]

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
        lines = [f"A study of {self.sizes}: {cost}, {self.adjacency.value}"]
        lines += [
            f"  {name}: {rows} rows, epsilon {rounded_up(epsilon)} by itself"
            for name, rows, epsilon in self.costs()
        ]
        lines += [f"  {one.part}: {one.quantity}: {one.precision}" for one in self.expected()]
        lines += [f"  Caution: {one}" for one in self.cautions()]
        return "\n".join(lines)

    def cautions(self) -> tuple[str, ...]:
        """Say what makes the promise weak, before anything is spent; empty if nothing does."""
        return weak(self.epsilon, self.delta, self.n_units)

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
    persons: Persons | None = None,
) -> StudyPlan:
    """Divide a budget between the declared parts, and plan each of them.

    Parts that are Gaussian get exactly their shares of mu squared; a model whose releases are not
    gets the largest epsilon that the accounting of the whole allows.
    """
    mu = budget.gdp_mu() * MARGIN
    rows = _sizes(n_rows, split)
    whose = {} if persons is None else _sizes(persons.n_groups, split)

    def planned(name: str, within: PrivacyBudget) -> PlannedPart:
        own = None if persons is None else persons.of_part(whose[name])
        return declared[name].plan_within(schema, adjacency, rows[name], within, own)

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
        persons,
    )


def _sizes(n_units: int, split: Split | None) -> dict[str, int]:
    """Return how many rows, or persons, each part is planned for."""
    learning, evaluating = (n_units, 0) if split is None else split.sizes(n_units)
    return {EXPLORATION: n_units, MODEL: learning, EVALUATION: evaluating}


def _share_of_exploration(ratios: Mapping[str, float], purpose: Purpose) -> float:
    others = [ratio for name, ratio in ratios.items() if name != EXPLORATION]
    if EXPLORATION not in ratios:
        return 0.0
    return exploration_share(ratios[EXPLORATION], sum(others), purpose) if others else 1.0
