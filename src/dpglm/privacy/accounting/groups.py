"""Pure releases beside sampled ones under replace-one: two groups, composed as pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy.optimize import minimize_scalar

from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    Composed,
    Event,
    Mechanism,
    PoissonSampled,
    Repeated,
    canonical,
)

__all__ = ["grouped_delta", "grouped_epsilon", "pure_group"]

_FINE: Any = {"maxiter": 30, "xatol": 1e-3}
_SMALLEST = math.log(1e-6)


def pure_group(event: Event, adjacency: Adjacency) -> tuple[Event, Event] | None:
    """Split off what is charged twice where a claim goes by way of the erased row.

    Returns everything else, and events whose epsilon comes from no noise multiplier; None unless
    the relation is replace-one, and there are both these and sampled releases.

    Privacy: *if the pure events together are (e, d)-DP, and all others (e', d')-DP, each group
    by itself under replace-one, then everything is (e + e', d + d')-DP, in whatever order it is
    asked and chosen.* Proof: fix neighbours D and D'. The i-th pure event is dominated by a pair
    ``(P_i, Q_i)`` that is fixed by its epsilon, so by Blackwell's theorem its output, given the
    past, is made by a randomised map from a draw of P_i (for D) or Q_i (for D'). Let all these
    draws be made first: together they are (e, d)-DP. Given them, and whatever they are, what
    follows is an adaptive composition of the other events, which is (e', d')-DP, and maps that
    do not depend on which of D and D' it is. Sequential composition of the two (Dwork and Roth
    2014, Theorem B.1) gives the sum. So does any split of epsilon and delta that is fixed in
    advance, and the least of them bounds a function of the event alone.

    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Theorem B.1.
    """
    terms = canonical(event).terms()
    sampled = any(isinstance(basic, PoissonSampled) for basic, _ in terms)
    if adjacency is not Adjacency.REPLACE_ONE or not sampled:
        return None
    pure: list[Event] = []
    rest: list[Event] = []
    for basic, count in terms:
        charged_twice = isinstance(basic, Mechanism) and basic.quieter(2.0) is basic
        group = pure if charged_twice else rest
        group.append(Repeated(basic, count))
    if not pure:
        return None
    return canonical(Composed(tuple(rest))), canonical(Composed(tuple(pure)))


def grouped_delta(
    rest: Callable[[float], float], pure: Callable[[float], float], top: float, epsilon: float
) -> float:
    """Bound delta of two groups at an epsilon by the least sum found over its splits.

    Above ``top`` delta of the pure group is 0.
    """

    def total(share: float) -> float:
        return min(1.0, rest(epsilon - share) + pure(share))

    best = [total(min(top, epsilon)), total(0.0)]
    if epsilon > 0.0:
        # One of the shares may be tiny, so both are looked for on a logarithmic scale.
        shares: tuple[Callable[[float], float], ...] = (
            lambda log_share: total(epsilon * math.exp(log_share)),
            lambda log_share: total(epsilon * -math.expm1(log_share)),
        )
        best += [_least(one) for one in shares]
    return min(best)


def grouped_epsilon(
    rest: Callable[[float], float], pure: Callable[[float], float], delta: float
) -> float:
    """Bound epsilon of two groups at a delta, given epsilon of each as a function of delta."""

    def total(share: float) -> float:
        return rest((1.0 - share) * delta) + pure(share * delta)

    found = minimize_scalar(
        lambda log_share: total(math.exp(log_share)),
        bounds=(math.log(1e-3), math.log(0.999)),
        method="bounded",
        options=_FINE,
    )
    return min(total(0.0), float(found.fun))


def _least(function: Callable[[float], float]) -> float:
    """Look for the least value of a positive function of the logarithm of a share."""
    found = minimize_scalar(
        lambda log_share: math.log(max(function(log_share), 1e-300)),
        bounds=(_SMALLEST, math.log(0.5)),
        method="bounded",
        options=_FINE,
    )
    return function(float(found.x))
