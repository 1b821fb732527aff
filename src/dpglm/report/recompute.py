"""A claim recomputed: a closed form and an accountant that share nothing with the claim's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

from dpglm.privacy.events import Event, Gaussian, LastIterate, canonical
from dpglm.privacy.fourier import FourierAccountant
from dpglm.privacy.unit import Adjacency

__all__ = ["Recomputation", "closed_form_delta", "gaussian_mu", "recompute"]

# Numerical accountants round up, each in its own way, so they agree to this only.
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
    upper = 0.5 * math.erfc((epsilon / mu - 0.5 * mu) / math.sqrt(2.0))
    lower = 0.5 * math.erfc((epsilon / mu + 0.5 * mu) / math.sqrt(2.0))
    if lower == 0.0:
        return upper
    return max(0.0, upper - math.exp(epsilon + math.log(lower)))


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
    """
    mu = gaussian_mu(event)
    if mu is not None:
        own = _smallest_epsilon(lambda value: closed_form_delta(value, mu) <= delta)
        yield Recomputation("closed form", own, closed_form_delta(epsilon, mu), _EXACT)
    fourier = FourierAccountant()
    if fourier.supports(event, adjacency):
        yield Recomputation(
            f"{fourier.name} ({fourier.version})",
            fourier.epsilon(event, adjacency, delta),
            fourier.delta(event, adjacency, epsilon),
            _NUMERICAL,
        )


def gaussian_mu(event: Event) -> float | None:
    """Return the event's mu from the definitions, or None if not all of it is Gaussian.

    References
    ----------
    Dong, Roth and Su, JRSS B 2022, Corollary 2. Bok, Su and Altschuler, ICML 2024, Theorem 4.1.
    """
    total = 0.0
    for basic, count in canonical(event).terms():
        square = _MU_SQUARED.get(type(basic))
        if square is None:
            return None
        total += count * square(basic)
    return math.sqrt(total)


def _last_iterate_mu_squared(event: LastIterate) -> float:
    c, t = event.contraction, event.steps
    # (1 - c^t)/(1 + c^t) (1 + c)/(1 - c), the first factor without cancellation for c near 1.
    amplified = math.inf
    if c < 1.0:
        power = -math.expm1(t * math.log(c)) if c > 0.0 else 1.0
        amplified = power / (2.0 - power) * (1.0 + c) / (1.0 - c)
    return min(float(t), amplified) / event.noise_multiplier**2


_MU_SQUARED: dict[type[Event], Callable[[Any], float]] = {
    Gaussian: lambda event: event.noise_multiplier**-2,
    LastIterate: _last_iterate_mu_squared,
}


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
