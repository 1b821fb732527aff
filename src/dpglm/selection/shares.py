"""Division of a budget among several trainings on the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpglm.privacy.accounting.calibrate import excess, within_budget
from dpglm.privacy.accounting.fill import largest_share
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget
from dpglm.selection.method import SelectionMethod

__all__ = ["shared_budget", "within_shares"]

# Of the share that proofs allow; the search goes on from what is found there.
_START = 0.7


def shared_budget(budget: PrivacyBudget, count: int, *, gaussian: bool) -> PrivacyBudget:
    """Return the budget of one of several trainings on the same rows; Gaussian ones add mu^2."""
    if count == 1:
        return budget
    if gaussian:
        # The margin is what rounding could add up to.
        return GaussianDP(budget.gdp_mu() / math.sqrt(count) * (1.0 - 1e-13))
    limit = budget.as_approximate_dp()
    return ApproximateDP(limit.epsilon / count, limit.delta / count * (1.0 - 1e-13))


def within_shares(
    build: Callable[[PrivacyBudget], SelectionMethod],
    budget: PrivacyBudget,
    adjacency: Adjacency,
    count: int,
    *,
    gaussian: bool,
) -> SelectionMethod:
    """Plan trainings with such shares of a budget that all of them together are within it.

    Privacy: shares of epsilon and delta add up to the budget (Dwork and Roth 2014, Theorem 3.16),
    but a numerical accountant need not show it: its bound for sampled steps beside pure ones can
    be above the sum of its bounds for each. What counts is what accountants show of the whole,
    so shares shrink until it is within the budget; delta's share stays.
    """
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
