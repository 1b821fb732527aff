"""A claim recomputed: in closed form, by its accountant, and by an independent one."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfcx

from dpglm._validation import Array
from dpglm.certificate.divergences import (
    DIVERGENCE,
    ORDERS,
    HockeySticks,
    delta_of,
    divergence_delta,
)
from dpglm.exceptions import TooCostlyError
from dpglm.privacy.accounting.accountant import least_epsilon
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.fourier import FourierAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.curves import MU_SQUARED
from dpglm.privacy.events import (
    DisjointParts,
    Event,
    GaussianMechanism,
    Laplace,
    Pure,
    RandomlyRepeated,
    canonical,
)
from dpglm.privacy.events.compositions import branches, has_parts, leaves
from dpglm.privacy.selection.repetitions import NegativeBinomialNumber, PoissonNumber, Repetitions

# The cost of recomputing a claim, from its public event alone.

# Each law is put on grids for both orders of the data sets, tilted and transformed several times.
_MOST_LAWS = 48


def check_cost(event: Event) -> None:
    """Refuse events of more than 48 different mechanisms, before anything is computed.

    They are counted over all choices of one part from each parallel event. Grids that would be too
    large are refused by the accountants that plan them.
    """

    def count(one: Event) -> int:
        terms = [basic for branch in branches(one) for basic, _ in branch.terms]
        return sum(
            sum(map(count, basic.events)) if isinstance(basic, RandomlyRepeated) else 1
            for basic in terms
        )

    laws = count(event)
    if laws > _MOST_LAWS:
        raise TooCostlyError(
            f"{laws} laws of privacy losses would have to be composed, at most {_MOST_LAWS} are"
        )


# Random repetitions recomputed: from delta of a single try, or by Renyi divergences.


def price_of_tries(law: Repetitions, delta: Callable[[float], float]) -> tuple[float, float]:
    """Return (ratio, mean): the best of the tries is ``(e + ratio, mean delta(e))``-DP for every e.

    ``delta`` bounds that of any one try at an epsilon of at least 0.
    """
    return _LOG_RATIO[type(law)](law, delta), _MEAN[type(law)](law)


def _divergence(event: Event) -> Array | None:
    """Return the divergence of an event without disjoint parts of the rows; None if unknown."""
    total = np.zeros_like(ORDERS)
    for basic, count in canonical(event).terms:
        one = _DIVERGENCE[type(basic)](basic) if type(basic) in _DIVERGENCE else None
        if one is None:
            return None
        total += count * one
    return total


def _best_divergence(event: RandomlyRepeated) -> Array | None:
    found = [_divergence(one) for one in event.events]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    single = np.max(known, axis=0)
    ratio, mean = price_of_tries(event.repetitions, lambda epsilon: delta_of(single, epsilon))
    excess = ORDERS - 1.0
    moment = math.log(mean) + excess * (single + ratio)
    # Without any try the result is the same for both data sets.
    none = math.exp(-mean) if isinstance(event.repetitions, PoissonNumber) else 0.0
    return np.asarray(np.logaddexp(moment, math.log(none) if none else -math.inf) / excess)


def _two_losses(upper: Array, lower: Array) -> Array:
    return np.asarray(np.logaddexp(upper, lower) / (ORDERS - 1.0))


_DIVERGENCE: dict[type[Event], Callable[[Any], Array | None]] = {
    **DIVERGENCE,
    Pure: lambda event: _two_losses(
        (ORDERS - 1.0) * event.epsilon - math.log1p(math.exp(-event.epsilon)),
        -(ORDERS - 1.0) * event.epsilon - float(np.logaddexp(0.0, event.epsilon)),
    ),
    Laplace: lambda event: _two_losses(
        np.log(ORDERS / (2.0 * ORDERS - 1.0)) + (ORDERS - 1.0) / event.noise_multiplier,
        np.log((ORDERS - 1.0) / (2.0 * ORDERS - 1.0)) - ORDERS / event.noise_multiplier,
    ),
    RandomlyRepeated: _best_divergence,
}


def _negative_binomial_ratio(law: NegativeBinomialNumber, delta: Callable[[float], float]) -> float:
    def log_ratio(a: float) -> float:
        missed = delta(a)
        corner = (1.0 - missed) / (1.0 + math.exp(a))
        pairs = ((0.0, missed), (corner, 1.0 - corner))
        # Chances that a try is worse than some result, and the binomial's successes are over.
        mixed = [[law.success + (1.0 - law.success) * s for s in pair] for pair in pairs]
        return (law.shape + 1) * max(math.log(larger / less) for less, larger in mixed)

    high = 1.0
    while delta(high) > 0.1 * law.success * high:
        high *= 2.0
    best = minimize_scalar(log_ratio, bounds=(0.0, high), method="bounded", options=_FINE)
    return float(best.fun)


_FINE: Any = {"xatol": 1e-10}
_LOG_RATIO: dict[type[Any], Callable[[Any, Callable[[float], float]], float]] = {
    NegativeBinomialNumber: _negative_binomial_ratio,
    PoissonNumber: lambda law, delta: law.rate * delta(0.0),
}
_MEAN: dict[type[Any], Callable[[Any], float]] = {
    # The number of failures, given that there are some.
    NegativeBinomialNumber: lambda law: (
        law.shape
        * (1.0 - law.success)
        / law.success
        / -math.expm1(law.shape * math.log(law.success))
    ),
    PoissonNumber: lambda law: law.rate,
}


# Numerical accountants round up, each in its own way, so they agree to this only: most of all
# where a random mu is spread over nodes. A fiftieth of delta is about a thousandth of epsilon.
_COARSE = 2e-2
_NUMERICAL = 2e-3
_EXACT = 1e-6
_FINENESS = (2, 4, 8, 16, 64)


@final
@dataclass(frozen=True)
class Recomputation:
    """An independent accountant's epsilon at the certificate's delta, and delta at its epsilon.

    ``tolerance`` is the relative excess of delta that rounding explains.
    """

    accountant: str
    epsilon: float
    delta: float
    tolerance: float


def closed_form_delta(epsilon: float, mu: float) -> float:
    """Return ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, delta of mu-GDP."""
    if mu == 0.0:
        return 0.0
    below = epsilon / mu - 0.5 * mu
    upper = 0.5 * math.erfc(below / math.sqrt(2.0))
    # exp(epsilon) Phi(-x) with x = below + mu, where neither factor need be a float.
    lower = 0.5 * float(erfcx((below + mu) / math.sqrt(2.0))) * math.exp(-0.5 * below**2)
    return max(0.0, upper - lower)


def recompute(
    event: Event, adjacency: Adjacency, epsilon: float, delta: float
) -> Iterator[Recomputation]:
    """Ask every independent accountant that knows the event."""
    if has_parts(event):
        for part in branches(event):
            found = list(recompute(part, adjacency, epsilon, delta))
            if not found:
                raise ValueError(f"no independent accountant knows {part!r}")
            yield from found
        return
    only = canonical(event)
    if isinstance(only, RandomlyRepeated):
        yield _recompute_best(only, adjacency, epsilon, delta)
        return
    if any(isinstance(basic, RandomlyRepeated) for basic in leaves(event)):
        divergence = _divergence(event)
        if divergence is not None:
            own = least_epsilon(lambda value: delta_of(divergence, value), delta)
            there = delta_of(divergence, epsilon)
            yield Recomputation("Renyi divergences", own, there, _NUMERICAL)
        return
    mu = gaussian_mu(event)
    if mu is not None:
        own = least_epsilon(lambda value: closed_form_delta(value, mu), delta)
        yield Recomputation("closed form", own, closed_form_delta(epsilon, mu), _EXACT)
        return
    accountant = accountant_for(event, adjacency)
    own = accountant.epsilon(event, adjacency, delta)
    yield Recomputation(
        f"{accountant.name} ({accountant.version})",
        own,
        accountant.delta(event, adjacency, epsilon),
        _NUMERICAL,
    )
    if math.isinf(own):
        # Losses so large that nothing can be shown of them.
        return
    checked = _recompute_independently(event, adjacency, epsilon, delta)
    if checked is not None:
        yield checked


def _recompute_independently(
    event: Event, adjacency: Adjacency, epsilon: float, delta: float
) -> Recomputation | None:
    """Recompute by methods independent of the claim's accountant; the cheapest that suffices."""
    # For many exponential mechanisms Renyi divergences are tighter than single losses.
    by_divergences = functools.partial(divergence_delta, event)
    shown = by_divergences(epsilon) <= delta * (1.0 + _NUMERICAL)
    if shown and delta > 0.0:
        own = least_epsilon(by_divergences, delta)
        return Recomputation("Renyi divergences", own, by_divergences(epsilon), _NUMERICAL)
    sticks = HockeySticks(event, adjacency)
    if not sticks.resolves(delta):
        sticks = dataclasses.replace(sticks, tilted=True)
        if not sticks.resolves(delta):
            return None
    try:
        sticks = _fine_enough(sticks, epsilon, delta)
    except TooCostlyError:
        # So small a delta is confirmed where that is not too much work.
        if sticks.tilted:
            return None
        raise
    own = least_epsilon(sticks.delta, delta)
    return Recomputation(sticks.name, own, sticks.delta(epsilon), _COARSE)


def _fine_enough(found: HockeySticks, epsilon: float, delta: float) -> HockeySticks:
    """Refine a grid until it proves the claim, is too large, or is as fine as any."""
    bound, most = found.delta(epsilon), delta * (1.0 + _COARSE)
    for fineness in _FINENESS:
        if bound <= most:
            break
        finer = dataclasses.replace(found, fineness=fineness)
        try:
            before, bound = bound, finer.delta(epsilon)
        except TooCostlyError:
            break
        found = finer
        # The error is quadratic in the width: further refinement gains less than the last step.
        if bound - (before - bound) > most:
            break
    return found


def _recompute_best(
    event: RandomlyRepeated, adjacency: Adjacency, epsilon: float, delta: float
) -> Recomputation:
    mus = [gaussian_mu(one) for one in event.events]
    known = [mu for mu in mus if mu is not None]
    exact = len(known) == len(mus)
    # The law of tries asks for one delta over their mean.
    sticks = [HockeySticks(one, adjacency, 2) for one in event.events]
    resolved = all(one.resolves(delta / event.repetitions.mean) for one in sticks)
    fourier = FourierAccountant()

    @functools.cache
    def single(at: float) -> float:
        if exact:
            return closed_form_delta(at, max(known))
        if resolved:
            return max(one.delta(at) for one in sticks)
        return max(fourier.delta(one, adjacency, at) for one in event.events)

    ratio, mean = price_of_tries(event.repetitions, single)
    own = least_epsilon(single, delta / mean)
    way = "closed form" if exact else sticks[0].name if resolved else fourier.name
    return Recomputation(
        f"best of tries ({way})",
        own + ratio,
        mean * single(epsilon - ratio) if epsilon >= ratio else 1.0,
        10.0 * _EXACT if exact else _COARSE,
    )


def gaussian_mu(event: Event) -> float | None:
    """Return the event's mu from the definitions, or None if not all of it is Gaussian.

    Dong, Roth and Su, JRSS B 2022, Corollary 2. Bok, Su and Altschuler, ICML 2024, Theorem 4.1.
    """
    total = 0.0
    for basic, count in canonical(event).terms:
        if isinstance(basic, GaussianMechanism):
            total += count * MU_SQUARED[type(basic)](basic)
            continue
        # A row is in one of several disjoint parts.
        inner = basic.events if isinstance(basic, DisjointParts) else ()
        parts = [gaussian_mu(one) for one in inner] or [None]
        known = [mu for mu in parts if mu is not None]
        if len(known) < len(parts):
            return None
        total += count * max(known) ** 2
    return math.sqrt(total)
