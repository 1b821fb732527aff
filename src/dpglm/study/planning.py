"""The plan of a study: the budget of each part, and every setting, before a row is read."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from dpglm._calls import checked
from dpglm._words import card, plain_number, rounded_up
from dpglm.certificate.execution import Expected, PartPlan, StudyPart
from dpglm.data.protection import (
    EVALUATION,
    EXPLORATION,
    MODEL,
    Protection,
    Split,
    composed_event,
    in_order,
    side_of,
    size_of_part,
)
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import accountant_for, within_budget
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget, weak
from dpglm.privacy.events import Composed, Event
from dpglm.solvers.base import Plan
from dpglm.solvers.parts.defaults import MARGIN, plan_beside
from dpglm.tables.schema import Schema

# Weight of the part that comes first.
_FIRST = 10.0


@final
class Purpose(enum.StrEnum):
    """The part of a study that gets most of the budget.

    Attributes
    ----------
    MODEL
        The model is as accurate, and its intervals are as short, as the budget allows.
    EVALUATION
        The evaluation is as precise as the budget allows; half of the rows are held out.
    EXPLORATION
        Counts and quantiles are as precise as the budget allows.
    BALANCED
        All parts have the same weight.
    """

    MODEL = "model"
    EVALUATION = "evaluation"
    EXPLORATION = "exploration"
    BALANCED = "balanced"

    @property
    def test_share(self) -> float:
        """Default share of the rows that is held out."""
        return 0.5 if self is Purpose.EVALUATION else 0.2


def exploration_share(explored: float, others: float, purpose: Purpose) -> float:
    """Return the exploration's share of mu squared, in (0, 1).

    Model and evaluation use disjoint rows, so each of them gets the rest. ``explored`` and
    ``others`` are ratios of noise variance to sampling variance with the whole budget: of the
    exploration, and summed over the other parts. A share s of mu squared multiplies the variance of
    an estimate by ``1 + r / s``. In a balanced study the sum of these factors is least at
    ``sqrt(explored) / (sqrt(explored) + sqrt(others))``. A part that comes first has ten times the
    weight, and the other parts get at most the share that makes noise and sampling equal.

    >>> exploration_share(0.01, 0.09, Purpose.BALANCED)
    0.25
    >>> exploration_share(0.01, 0.09, Purpose.MODEL)
    0.01
    >>> round(exploration_share(0.01, 0.09, Purpose.EXPLORATION), 12)
    0.91
    """

    def least(one: float, other: float) -> float:
        """Return the s that minimises ``one / s + other / (1 - s)``."""
        return math.sqrt(one) / (math.sqrt(one) + math.sqrt(other))

    if purpose is Purpose.BALANCED:
        return least(explored, others)
    if purpose is Purpose.EXPLORATION:
        return max(least(_FIRST * explored, others), 1.0 - others)
    return min(least(explored, _FIRST * others), explored)


@checked
@final
@dataclass(frozen=True, eq=False)
class StudyPlan:
    """The releases of a study, and the precision to expect.

    Parameters
    ----------
    title : str or None
        Title of the study.
    schema : Schema
        The public facts about the table.
    protection : Protection
        The neighbouring relation, the total budget and the public sizes.
    split : Split or None
        The split of the rows between model and evaluation; None without an evaluation.
    planned : mapping from str to PartPlan
        The parts by name, in the order in which they run.
    exploration_share : float
        Share of mu squared of the exploration; each other part gets the rest.
    groups : str or None
        Column with the person id of each row, where persons are protected.

    Raises
    ------
    ValueError
        If all parts together exceed the budget, or rows of a protected person could be in two
        parts.

    Notes
    -----
    Privacy: ``event`` is within the budget. Nothing in a plan depends on rows.
    """

    title: str | None
    schema: Schema
    protection: Protection
    split: Split | None
    planned: Mapping[str, PartPlan]
    exploration_share: float
    groups: str | None = None

    def __post_init__(self) -> None:
        persons = None if self.split is None else self.split.persons
        if self.groups is not None and self.split is not None and persons != self.groups:
            raise ValueError(
                f"split must be by the protected persons, {self.groups!r}, got {persons!r}"
            )
        if not within_budget(self.event, self.protection.adjacency, self.protection.budget):
            raise ValueError(
                f"budget must cover all parts together, got {self.protection.budget!r}, which "
                f"{self.event!r} exceeds under {self.protection.adjacency.value}"
            )

    @property
    def exploration(self) -> PartPlan | None:
        """The planned exploration."""
        return self.planned.get(EXPLORATION)

    @property
    def model(self) -> PartPlan | None:
        """The planned model."""
        return self.planned.get(MODEL)

    @property
    def evaluation(self) -> PartPlan | None:
        """The planned evaluation."""
        return self.planned.get(EVALUATION)

    @property
    def parts(self) -> Iterator[tuple[str, PartPlan]]:
        """The parts by name, in the order in which they run."""
        yield from self.planned.items()

    @functools.cached_property
    def event(self) -> Event:
        """The event of all parts together."""
        events = {name: part.plan.event for name, part in self.parts}
        return composed_event(events, self.split, self.protection.adjacency)

    @property
    def delta(self) -> float:
        """The budget's delta, or the default one where the budget has none."""
        return self.protection.delta

    @functools.cached_property
    def epsilon(self) -> float:
        """The cost of all parts together, at ``delta``."""
        return self._epsilon(self.event)

    def _epsilon(self, event: Event) -> float:
        adjacency = self.protection.adjacency
        return accountant_for(event, adjacency).epsilon(event, adjacency, self.delta)

    def rows_of(self, name: str) -> int:
        """Return the number of rows that a part is planned for."""
        return size_of_part(name, self.protection.n_rows, self.split)

    def expected(self) -> tuple[Expected, ...]:
        """Return the precision to expect of each part, from public facts alone.

        Returns
        -------
        tuple of Expected
        """
        return tuple(one for _, part in self.parts for one in part.expected())

    def costs(self) -> tuple[tuple[str, int, float], ...]:
        """Return the cost of each part alone.

        Returns
        -------
        tuple of (str, int, float)
            Name, number of rows, and epsilon at ``delta``.
        """
        return tuple(
            (name, self.rows_of(name), self._epsilon(part.plan.event)) for name, part in self.parts
        )

    def cautions(self) -> tuple[str, ...]:
        """Return the weaknesses of the guarantee; often empty."""
        return weak(self.epsilon, self.delta, self.protection.n_units)

    def __str__(self) -> str:
        cost = f"epsilon {rounded_up(self.epsilon)} at delta {rounded_up(self.delta)}"
        stated = self.protection
        lines = [f"A study of {stated.sizes}: {cost}, {stated.adjacency.value}"]
        lines += [
            f"  {name}: {rows} rows, epsilon {rounded_up(epsilon)} alone"
            for name, rows, epsilon in self.costs()
        ]
        lines += [f"  {one.part}: {one.quantity}: {one.precision}" for one in self.expected()]
        lines += [f"  Caution: {one}" for one in self.cautions()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return card(
            "Plan of a study",
            [
                ("rows", plain_number(self.protection.n_rows)),
                ("epsilon", rounded_up(self.epsilon)),
                ("delta", rounded_up(self.delta)),
                ("relation", self.protection.adjacency.value),
            ],
            sections=[
                (
                    name,
                    [f"{one.quantity}: {one.precision}" for one in part.expected()],
                )
                for name, part in self.parts
            ],
            warnings=self.cautions(),
        )


def plan_study(
    title: str | None,
    schema: Schema,
    declared: Mapping[str, StudyPart],
    split: Split | None,
    protection: Protection,
    purpose: Purpose,
    groups: str | None = None,
) -> StudyPlan:
    """Divide the budget between the declared parts, and plan each of them.

    Gaussian parts get exactly their shares of mu squared. A model with other releases gets the
    largest epsilon that the accounting of the whole allows. Ratios of noise to sampling with the
    whole budget decide the shares, where there is something to divide.
    """
    budget, adjacency = protection.budget, protection.adjacency
    mu = budget.gdp_mu() * MARGIN

    def of_part(name: str, within: PrivacyBudget) -> Protection:
        totals = protection.n_rows, protection.n_units
        return protection.of_part(within, *(size_of_part(name, n, split) for n in totals))

    def planned(name: str, within: PrivacyBudget) -> Plan:
        return declared[name].plan(of_part(name, within))

    def of_mu(mu: float) -> PrivacyBudget:
        """Return the budget of mu at the delta of the whole, for the part's certificate."""
        delta = budget.to_dict().get("delta")
        if delta is None or gdp.epsilon(delta, mu) == 0.0:  # Delta alone exceeds the budget.
            return GaussianDP(mu)
        return ApproximateDP(gdp.epsilon(delta, mu), delta)

    if len(declared) == 1:
        ((only, part),) = declared.items()
        alone = PartPlan(part, planned(only, budget))
        share = float(side_of(only) is None)
        return StudyPlan(title, schema, protection, split, {only: alone}, share, groups)
    whole = [name for name in in_order(declared) if side_of(name) is None]
    share = float(bool(whole))
    roots: dict[str, float] = {}
    if whole:
        ratios = {
            name: one.noise_to_sampling(of_part(name, budget)) for name, one in declared.items()
        }
        # The sum of ratios over shares is least for shares that are proportional to roots.
        roots = {name: math.sqrt(ratios.pop(name) or 1.0) for name in whole}
        if ratios:
            share = exploration_share(sum(roots.values()) ** 2, sum(ratios.values()), purpose)
    found: dict[str, Plan] = {}
    for name, root in roots.items():
        own = share * root / sum(roots.values())
        found[name] = planned(name, of_mu(math.sqrt(own) * mu))
    spent = Composed(tuple(plan.event for plan in found.values()))
    rest = math.sqrt(1.0 - share) * mu
    if MODEL in declared:

        def made(within: PrivacyBudget) -> Plan:
            if isinstance(within, GaussianDP) and within != budget:
                within = of_mu(within.mu)
            return planned(MODEL, within)

        plan = plan_beside(made, spent, rest, budget, adjacency)
        if plan is None:
            raise ValueError(f"budget must leave something to the model, got {budget!r}")
        found[MODEL] = plan
    if EVALUATION in declared:
        found[EVALUATION] = planned(EVALUATION, of_mu(rest))
    ordered = {name: PartPlan(declared[name], found[name]) for name in in_order(found)}
    return StudyPlan(title, schema, protection, split, ordered, share, groups)
