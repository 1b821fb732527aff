"""Random repetitions recomputed: from delta of a single try, or by Renyi divergences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dpglm.certificate.checker.divergences import DIVERGENCE, ORDERS, delta_of
from dpglm.privacy.events import Event, Laplace, Pure, RandomlyRepeated, canonical
from dpglm.privacy.selection.repetitions import NegativeBinomial, PoissonNumber, Repetitions

__all__ = ["composed_tries", "price_of_tries"]

_Array = NDArray[np.float64]


def price_of_tries(law: Repetitions, delta: Callable[[float], float]) -> tuple[float, float]:
    """Return (ratio, mean): the best of the tries is ``(e + ratio, mean delta(e))``-DP for every e.

    ``delta`` bounds that of any one try at an epsilon of at least 0.
    """
    return _LOG_RATIO[type(law)](law, delta), _MEAN[type(law)](law)


def composed_tries(event: Event) -> Callable[[float], float] | None:
    """Bound delta of random repetitions composed with other releases, as a function of epsilon.

    The event has no disjoint parts of the rows; None if a divergence of some part is unknown.
    """
    divergence = _divergence(event)
    return None if divergence is None else lambda epsilon: delta_of(divergence, epsilon)


def _divergence(event: Event) -> _Array | None:
    total = np.zeros_like(ORDERS)
    for basic, count in canonical(event).terms():
        one = _DIVERGENCE[type(basic)](basic) if type(basic) in _DIVERGENCE else None
        if one is None:
            return None
        total += count * one
    return total


def _best_divergence(event: RandomlyRepeated) -> _Array | None:
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


def _two_losses(upper: _Array, lower: _Array) -> _Array:
    return np.asarray(np.logaddexp(upper, lower) / (ORDERS - 1.0))


_DIVERGENCE: dict[type[Event], Callable[[Any], _Array | None]] = {
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


def _negative_binomial_ratio(law: NegativeBinomial, delta: Callable[[float], float]) -> float:
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


def _negative_binomial_mean(law: NegativeBinomial) -> float:
    failures = law.shape * (1.0 - law.success) / law.success
    return failures / -math.expm1(law.shape * math.log(law.success))


_FINE: Any = {"xatol": 1e-10}
_LOG_RATIO: dict[type[Repetitions], Callable[[Any, Callable[[float], float]], float]] = {
    NegativeBinomial: _negative_binomial_ratio,
    PoissonNumber: lambda law, delta: law.rate * delta(0.0),
}
_MEAN: dict[type[Repetitions], Callable[[Any], float]] = {
    NegativeBinomial: _negative_binomial_mean,
    PoissonNumber: lambda law: law.rate,
}
