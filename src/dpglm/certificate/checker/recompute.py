"""A claim recomputed: by closed forms, its accountant, and one that shares nothing with it."""

from __future__ import annotations

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
from dpglm.privacy.accounting.convolution.fourier import FourierAccountant
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    Event,
    GaussianMechanism,
    Parallel,
    ProjectedGaussian,
    RandomlyRepeated,
    canonical,
)
from dpglm.privacy.events.branches import branches, has_parallel_parts, leaves

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
    if has_parallel_parts(event):
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
            own = _smallest_epsilon(lambda value: known(value) <= delta)
            yield Recomputation("Renyi divergences", own, known(epsilon), _NUMERICAL)
        return
    mu = gaussian_mu(event)
    if mu is not None:
        own = _smallest_epsilon(lambda value: closed_form_delta(value, mu) <= delta)
        yield Recomputation("closed form", own, closed_form_delta(epsilon, mu), _EXACT)
        return
    fourier = FourierAccountant()
    if not fourier.supports(event, adjacency):
        return
    own = fourier.epsilon(event, adjacency, delta)
    # Of many exponential mechanisms Renyi divergences show more than their losses one by one.
    others = divergence_delta(event, epsilon)
    others_epsilon = math.inf
    if delta > 0.0:
        others_epsilon = _smallest_epsilon(lambda value: divergence_delta(event, value) <= delta)
    projected = any(isinstance(basic, ProjectedGaussian) for basic in leaves(event))
    yield Recomputation(
        f"{fourier.name} ({fourier.version})",
        min(others_epsilon, own),
        min(others, fourier.delta(event, adjacency, epsilon)),
        _COARSE if projected else _NUMERICAL,
    )
    if math.isinf(own):
        # Losses so large that nothing can be shown of them.
        return
    sticks = _fine_enough(event, adjacency, epsilon, delta)
    if sticks.resolves(delta):
        own = _smallest_epsilon(lambda value: sticks.delta(value) <= delta)
        yield Recomputation(
            sticks.name,
            min(others_epsilon, own),
            min(others, sticks.delta(epsilon)),
            _COARSE,
        )


def _fine_enough(event: Event, adjacency: Adjacency, epsilon: float, delta: float) -> HockeySticks:
    """Refine a grid until it shows the claim, or would be too large, or is fine whatever comes."""
    found = HockeySticks(event, adjacency)
    if not found.resolves(delta):
        return found
    for fineness in _FINENESS:
        if found.delta(epsilon) <= delta * (1.0 + _COARSE):
            break
        finer = HockeySticks(event, adjacency, fineness)
        try:
            finer.delta(epsilon)
        except TooCostlyError:
            break
        found = finer
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
    own = _smallest_epsilon(lambda value: single(value) <= delta / mean)
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
        parts = (
            [gaussian_mu(one) for one in basic.events] if isinstance(basic, Parallel) else [None]
        )
        known = [mu for mu in parts if mu is not None]
        if len(known) < len(parts):
            return None
        total += count * max(known) ** 2
    return math.sqrt(total)


def _smallest_epsilon(is_enough: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    while not is_enough(high):
        if high > 1e6:
            return math.inf
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
