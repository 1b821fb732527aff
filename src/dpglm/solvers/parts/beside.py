"""The plan of a fit beside something else that is released about the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.accounting.calibrate import calibrate, excess, within_budget
from dpglm.privacy.accounting.fill import largest_share
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget
from dpglm.privacy.events import Composed, Event, Gaussian, canonical
from dpglm.solvers.base import Plan

__all__ = ["MARGIN", "plan_beside"]

MARGIN = 1.0 - 1e-12
"""Of a mu that is divided: what rounding could add up to."""


def plan_beside(
    make: Callable[[PrivacyBudget], Plan],
    spent: Event,
    mu: float,
    budget: PrivacyBudget,
    adjacency: Adjacency,
) -> Plan | None:
    """Plan with what ``spent`` leaves of a budget; None if it leaves nothing.

    ``make`` plans within a budget. Where all is Gaussian it gets exactly ``mu``, what the shares of
    mu squared leave to it; else the largest epsilon with which both together are within the
    budget, by the accounting of the whole.

    Privacy: ``spent`` and the plan's event composed are within the budget.
    """
    gaussian = GaussianAccountant()

    def together(plan: Plan) -> Event:
        return canonical(Composed((spent, plan.event)))

    full = make(budget)
    if gaussian.supports(full.event, adjacency):
        if not gaussian.supports(spent, adjacency):
            # What is no noise may spend less than it was given.
            sigma = calibrate(lambda s: Composed((spent, Gaussian(s))), budget, adjacency)
            mu = gaussian.mu(Gaussian(sigma), adjacency) * MARGIN
        plan = make(GaussianDP(mu))
        if within_budget(together(plan), adjacency, budget):
            return plan
    limit = budget.as_approximate_dp()
    left = (mu / budget.gdp_mu()) ** 2
    return largest_share(
        lambda share: make(ApproximateDP(share * limit.epsilon, limit.delta)),
        lambda plan: excess(together(plan), adjacency, budget),
        start=math.sqrt(left),
        slope=left,
    )
