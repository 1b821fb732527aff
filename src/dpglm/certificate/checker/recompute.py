"""A claim recomputed: closed forms and accountants that share nothing with the claim's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

from scipy.special import erfcx

from dpglm.certificate.checker.divergences import divergence_delta
from dpglm.certificate.checker.hockey_sticks import HockeySticks
from dpglm.certificate.checker.repetitions import composed_tries, price_of_tries
from dpglm.privacy.accounting.accountants import (
    FourierAccountant,
    GaussianAccountant,
    MixtureAccountant,
    PLDAccountant,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    Event,
    Gaussian,
    LastIterate,
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


@final
@dataclass(frozen=True)
class Recomputation:
    """What an independent accountant says about the recorded event.

    Parameters
    ----------
    accountant : str
        What computed it.
    epsilon : float
        Epsilon at the certificate's delta.
    delta : float
        Delta at the certificate's epsilon.
    tolerance : float
        Relative excess of delta over the certificate's that rounding explains.
    """

    accountant: str
    epsilon: float
    delta: float
    tolerance: float


def closed_form_delta(epsilon: float, mu: float) -> float:
    """Delta of a mu-GDP release at epsilon, straight from the formula.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float
        At least 0.

    Returns
    -------
    float
        ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``.

    Notes
    -----
    Shares nothing with ``dpglm.privacy.gdp``. The difference cancels at most about six digits
    for an epsilon of at least 0.001 and a delta of at least 1e-18.

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
    Theorem 8.

    Examples
    --------
    >>> round(closed_form_delta(1.0, 1.0), 6)
    0.126937
    """
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
    """Ask every independent accountant that knows the event.

    Parameters
    ----------
    event : Event
        What was accounted for.
    adjacency : Adjacency
        The relation.
    epsilon, delta : float
        The claim.

    Yields
    ------
    Recomputation

    Raises
    ------
    ValueError
        If no accountant knows what is released about one of several disjoint parts.
    """
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
    fourier = FourierAccountant()
    if not fourier.supports(event, adjacency):
        return
    # Of many exponential mechanisms Renyi divergences show more than their losses one by one.
    divergence_epsilon = math.inf
    if delta > 0.0:
        divergence_epsilon = _smallest_epsilon(
            lambda value: divergence_delta(event, value) <= delta
        )
    others = divergence_delta(event, epsilon)
    own = fourier.epsilon(event, adjacency, delta)
    projected = any(isinstance(basic, ProjectedGaussian) for basic in leaves(event))
    yield Recomputation(
        f"{fourier.name} ({fourier.version})",
        min(divergence_epsilon, own),
        min(others, fourier.delta(event, adjacency, epsilon)),
        _COARSE if projected else _NUMERICAL,
    )
    sticks = HockeySticks(event, adjacency)
    if math.isinf(own):
        # Losses so large that nothing can be shown of them.
        return
    if sticks.resolves(delta) and not any(one.supports(event, adjacency) for one in _OTHERS):
        own = _smallest_epsilon(lambda value: sticks.delta(value) <= delta)
        yield Recomputation(
            sticks.name,
            min(divergence_epsilon, own),
            min(others, sticks.delta(epsilon)),
            _COARSE,
        )


def _recompute_best(
    event: RandomlyRepeated, adjacency: Adjacency, epsilon: float, delta: float
) -> Recomputation:
    mus = [gaussian_mu(one) for one in event.events]
    known = [mu for mu in mus if mu is not None]
    exact = len(known) == len(mus)
    fourier = FourierAccountant()

    def single(at: float) -> float:
        if exact:
            return closed_form_delta(at, max(known))
        return max(fourier.delta(one, adjacency, at) for one in event.events)

    ratio, mean = price_of_tries(event.repetitions, single)
    if exact:
        own = _smallest_epsilon(lambda value: single(value) <= delta / mean)
    else:
        own = max(fourier.epsilon(one, adjacency, delta / mean) for one in event.events)
    return Recomputation(
        f"best of tries ({'closed form' if exact else fourier.name})",
        own + ratio,
        mean * single(epsilon - ratio) if epsilon >= ratio else 1.0,
        10.0 * _EXACT if exact else _NUMERICAL,
    )


def gaussian_mu(event: Event) -> float | None:
    """Return the event's mu from the definitions, or None if not all of it is Gaussian.

    References
    ----------
    Dong, Roth and Su, JRSS B 2022, Corollary 2. Bok, Su and Altschuler, ICML 2024, Theorem 4.1.
    """
    total = 0.0
    for basic, count in canonical(event).terms():
        square = _MU_SQUARED[type(basic)](basic) if type(basic) in _MU_SQUARED else None
        if square is None:
            return None
        total += count * square
    return math.sqrt(total)


def _largest_part(event: Parallel) -> float | None:
    """Square of the largest mu of disjoint parts: a row is in one of them."""
    mus = [gaussian_mu(part) for part in event.events]
    known = [mu for mu in mus if mu is not None]
    return max(known) ** 2 if len(known) == len(mus) else None


def _last_iterate_mu_squared(event: LastIterate) -> float:
    c, t = event.contraction, event.steps
    # (1 - c^t)/(1 + c^t) (1 + c)/(1 - c), the first factor without cancellation for c near 1.
    amplified = math.inf
    if c < 1.0:
        power = -math.expm1(t * math.log(c)) if c > 0.0 else 1.0
        amplified = power / (2.0 - power) * (1.0 + c) / (1.0 - c)
    return min(float(t), amplified) / event.noise_multiplier**2


_MU_SQUARED: dict[type[Event], Callable[[Any], float | None]] = {
    Gaussian: lambda event: event.noise_multiplier**-2,
    LastIterate: _last_iterate_mu_squared,
    Parallel: _largest_part,
}

# Claims of these are checked by the Fourier accountant; its own claims need another check.
_OTHERS = (GaussianAccountant(), MixtureAccountant(), PLDAccountant())


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
