"""Candidates that are trained on the same rows, and the division of a budget among them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpglm._json import plain_json
from dpglm.data.spec import DataSpec
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.accounting.calibrate import excess, within_budget
from dpglm.privacy.accounting.fill import largest_share
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget
from dpglm.problem import Problem
from dpglm.selection.choices import Choice
from dpglm.selection.method import SelectionMethod, Training
from dpglm.solvers.base import Plan, Solver

__all__ = [
    "Candidate",
    "are_gaussian",
    "held_out",
    "shared_budget",
    "trainings_of",
]

# Of the share that proofs allow; the search goes on from what is found there.
_START = 0.7


@final
@dataclass(frozen=True)
class Candidate:
    """One way to train a model.

    ``parameters`` are what sets it apart, kept as plain JSON; ``problem`` states what is minimised
    for public facts about the rows.
    """

    parameters: Mapping[str, Any]
    solver: Solver
    problem: Callable[[DataSpec], Problem]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", plain_json(self.parameters))

    def plan(self, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency) -> Plan:
        """Plan the training."""
        return self.solver.plan(self.problem(data), budget, data, adjacency)


def are_gaussian(
    candidates: Iterable[Candidate], budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
) -> bool:
    """Whether every training is Gaussian throughout."""
    plans = (one.plan(budget, data, adjacency) for one in candidates)
    return all(GaussianAccountant().supports(plan.event, adjacency) for plan in plans)


def trainings_of(
    candidates: Iterable[Candidate], budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
) -> tuple[Training, ...]:
    """Plan the training of each candidate on the same rows, each with this budget."""
    return tuple(
        Training(f"candidate {number}", 0, one.plan(budget, data, adjacency))
        for number, one in enumerate(candidates, start=1)
    )


def shared_budget(budget: PrivacyBudget, count: int, *, gaussian: bool) -> PrivacyBudget:
    """Return the budget of one of several trainings on the same rows; Gaussian ones add mu^2."""
    if count == 1:
        return budget
    if gaussian:
        # The margin is what rounding could add up to.
        return GaussianDP(budget.gdp_mu() / math.sqrt(count) * (1.0 - 1e-13))
    limit = budget.as_approximate_dp()
    return ApproximateDP(limit.epsilon / count, limit.delta / count * (1.0 - 1e-13))


def held_out(
    title: str,
    candidates: Sequence[Candidate],
    choice: Choice,
    sizes: tuple[int, ...],
    budget: PrivacyBudget,
    data: DataSpec,
    adjacency: Adjacency,
) -> SelectionMethod:
    """Plan trainings on the first of two parts of the rows, and the choice on the other.

    Privacy: the choice spends the whole budget on its own rows; trainings share it, exactly in
    mu-GDP where they are all Gaussian. Else shares of epsilon and delta add up to the budget (Dwork
    and Roth 2014, Theorem 3.16), but a numerical accountant need not show it: its bound for sampled
    steps beside pure ones can be above the sum of its bounds for each. What counts is what
    accountants show of the whole, so shares shrink until it is within the budget; delta's share
    stays.
    """
    part, count = dataclasses.replace(data, n_rows=sizes[0]), len(candidates)

    def build(shared: PrivacyBudget) -> SelectionMethod:
        trainings = trainings_of(candidates, shared, part, adjacency)
        return SelectionMethod(title, data, adjacency, trainings, sizes, choice)

    gaussian = are_gaussian(candidates, budget, part, adjacency)
    method = build(shared_budget(budget, count, gaussian=gaussian))
    if within_budget(method.event, adjacency, budget):
        return method
    share = shared_budget(budget, count, gaussian=False).as_approximate_dp()
    found = largest_share(
        lambda part: build(ApproximateDP(part * share.epsilon, share.delta)),
        lambda method: excess(method.event, adjacency, budget),
        start=_START,
    )
    if found is None:
        raise ValueError(
            f"budget must allow for {count} trainings on the same rows, got {budget!r}"
        )
    return found
