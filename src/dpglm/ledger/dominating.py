"""The Gaussian release that dominates an event."""

from __future__ import annotations

import math

from scipy.special import log_expit, ndtri_exp

from dpglm.privacy.accounting.accountant import check_parallel_parts
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Composed, Event, Mechanism, Repeated
from dpglm.privacy.events.branches import branches

__all__ = ["dominating_mu"]

_ROUNDING = 1.0 + 1e-12


def dominating_mu(event: Event, adjacency: Adjacency) -> float:
    """Return a mu, rounded up, for which an event is mu-GDP.

    Exact where all is Gaussian; else the root of the sum of squares, an epsilon-DP part counted
    with ``2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``. Of parts on disjoint rows, the largest.

    >>> from dpglm.privacy.events import Pure
    >>> round(dominating_mu(Pure(0.1), Adjacency.ZERO_OUT), 5)
    0.12531
    """
    check_parallel_parts(event, adjacency)
    return max(_mu(one, adjacency) for one in branches(event))


def _mu(event: Event, adjacency: Adjacency) -> float:
    """Bound the mu of a composition without parallel parts."""
    squares: list[float] = []
    gaussian: list[Event] = []
    for basic, count in event.terms():
        epsilon = basic.pure_epsilon if isinstance(basic, Mechanism) else None
        if epsilon is not None:
            squares.append(count * _mu_of_pure(float(epsilon)) ** 2)
        else:
            gaussian.append(Repeated(basic, count))
    rest, accountant = Composed(tuple(gaussian)), GaussianAccountant()
    if not accountant.supports(rest, adjacency):
        raise ValueError(
            "event must be Gaussian or epsilon-DP throughout for a ledger that adds up mu^2; a "
            f"ledger with filter 'renyi' or 'basic' takes others; got {rest!r}"
        )
    if not squares:
        return accountant.mu(rest, adjacency)
    return math.sqrt(math.fsum([*squares, accountant.mu(rest, adjacency) ** 2])) * _ROUNDING


def _mu_of_pure(epsilon: float) -> float:
    # ndtri_exp loses digits, but none that matter, where its argument is close to log(1/2).
    return -2.0 * float(ndtri_exp(log_expit(-epsilon))) * _ROUNDING + 1e-14
