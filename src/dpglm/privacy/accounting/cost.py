"""The cost of an event, and whether it is within a budget."""

from __future__ import annotations

import functools

from dpglm.privacy.accounting.accountant import check_parallel_parts
from dpglm.privacy.accounting.accountants import Accountant, GaussianAccountant, accountant_for
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Event
from dpglm.privacy.events.compositions import branches


def within_budget(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> bool:
    """Whether the cost of an event is within a budget.

    Parameters
    ----------
    event : Event
        The event.
    adjacency : Adjacency
        The relation of its noise multipliers.
    budget : PrivacyBudget
        The budget. Only Gaussian events can be compared with mu-GDP or zCDP.

    Returns
    -------
    bool
        True only if an accountant proves it.

    Raises
    ------
    ValueError
        If the event is not all Gaussian and the budget is not (epsilon, delta), or if it has
        disjoint parts of the rows under add/remove.
    """
    check_parallel_parts(event, adjacency)
    # Branch by branch in canonical form, exactly as calibration did.
    return all(_within(one, adjacency, budget) for one in branches(event))


def _within(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> bool:
    exact = GaussianAccountant()
    if exact.supports(event, adjacency):
        return budget.allows_mu(exact.mu(event, adjacency))
    limit = budget.as_approximate_dp()
    accountant = accountant_for(event, adjacency)
    return delta_of(accountant, event, adjacency, limit.epsilon) <= limit.delta


def spent(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> dict[str, float | str]:
    """Return the cost of an event in the budget's currency, with the accountant.

    Parameters
    ----------
    event, adjacency, budget
        See ``within_budget``.

    Returns
    -------
    dict
        ``epsilon`` and ``delta`` (at the budget's delta), or ``mu``, or ``rho``; and
        ``accountant`` and ``version``. Numbers are rounded up.

    Raises
    ------
    ValueError
        See ``within_budget``.

    Examples
    --------
    >>> from dpglm.privacy.budget import ZeroConcentratedDP
    >>> from dpglm.privacy.events import Gaussian
    >>> spent(Gaussian(2.0), Adjacency.ZERO_OUT, ZeroConcentratedDP(1.0))["accountant"]
    'gaussian'
    """
    accountant = accountant_for(event, adjacency)
    signature = {"accountant": accountant.name, "version": accountant.version}
    exact = GaussianAccountant()
    if exact.supports(event, adjacency):
        return {**budget.statement_for_mu(exact.mu(event, adjacency)), **signature}
    limit = budget.as_approximate_dp()
    epsilon = accountant.epsilon(event, adjacency, limit.delta)
    return {"epsilon": epsilon, "delta": limit.delta, **signature}


@functools.lru_cache(maxsize=1024)
def delta_of(accountant: Accountant, event: Event, adjacency: Adjacency, epsilon: float) -> float:
    """Return an accountant's delta, cached: a plan repeats the last query of the search."""
    return accountant.delta(event, adjacency, epsilon)
