"""A claim recomputed: in closed form, by its accountant, and by an independent one."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

from scipy.special import erfcx

from dpglm.certificate.checker.divergences import divergence_delta
from dpglm.certificate.checker.hockey_sticks import HockeySticks
from dpglm.certificate.checker.repetitions import composed_tries, price_of_tries
from dpglm.exceptions import TooCostlyError
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.convolution.fourier import FourierAccountant
from dpglm.privacy.accounting.reduction import least_epsilon
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    DisjointParts,
    Event,
    GaussianMechanism,
    RandomlyRepeated,
    canonical,
)
from dpglm.privacy.events.branches import branches, has_parts, leaves

__all__ = ["Recomputation", "closed_form_delta", "gaussian_mu", "recompute"]

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
    # exp(epsilon) Phi(-x) with x = below + mu, of which neither factor need be a float.
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
        known = composed_tries(event)
        if known is not None:
            own = _smallest_epsilon(known, delta)
            yield Recomputation("Renyi divergences", own, known(epsilon), _NUMERICAL)
        return
    mu = gaussian_mu(event)
    if mu is not None:
        own = _smallest_epsilon(lambda value: closed_form_delta(value, mu), delta)
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
    # Of many exponential mechanisms Renyi divergences show more than their losses one by one.
    by_divergences = functools.partial(divergence_delta, event)
    shown = by_divergences(epsilon) <= delta * (1.0 + _NUMERICAL)
    if shown and delta > 0.0:
        own = _smallest_epsilon(by_divergences, delta)
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
    own = _smallest_epsilon(sticks.delta, delta)
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
        # What a grid adds falls as the square of its width: three times as much is not to come.
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
    own = _smallest_epsilon(single, delta / mean)
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
    for basic, count in canonical(event).terms():
        if isinstance(basic, GaussianMechanism):
            total += count * basic.mu_squared()
            continue
        # A row is in one of several disjoint parts.
        inner = basic.events if isinstance(basic, DisjointParts) else ()
        parts = [gaussian_mu(one) for one in inner] or [None]
        known = [mu for mu in parts if mu is not None]
        if len(known) < len(parts):
            return None
        total += count * max(known) ** 2
    return math.sqrt(total)


def _smallest_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    if delta_at(0.0) <= delta:
        return 0.0
    return least_epsilon(delta_at, delta, (0.0, 1.0), 1e6) if delta > 0.0 else math.inf
