"""Delta of exponential mechanisms and Gaussian releases from their Renyi divergences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.events import BoundedRange, Event, Gaussian, LastIterate
from dpglm.privacy.events.branches import branches

__all__ = ["divergence_delta"]

_ORDERS = 1.0 + np.geomspace(1e-3, 1e7, 20_001)


def divergence_delta(event: Event, epsilon: float) -> float:
    """Bound delta by Renyi divergences of many orders.

    1 if the event has a part that is neither Gaussian nor an exponential mechanism.
    """
    return max(_delta(one, epsilon) for one in branches(event))


def _delta(event: Event, epsilon: float) -> float:
    terms = event.terms()
    if not terms:
        return 0.0
    if any(type(basic) not in _DIVERGENCE for basic, _ in terms):
        return 1.0
    divergence = sum(count * _DIVERGENCE[type(basic)](basic) for basic, count in terms)
    logs = (_ORDERS - 1.0) * (divergence - epsilon + np.log1p(-1.0 / _ORDERS)) - np.log(_ORDERS)
    return math.exp(min(0.0, float(np.min(logs))))


_DIVERGENCE: dict[type[Event], Callable[[Any], NDArray[np.float64]]] = {
    Gaussian: lambda event: 0.5 * _ORDERS * event.noise_multiplier**-2,
    LastIterate: lambda event: 0.5 * _ORDERS * event.mu**2,
    BoundedRange: lambda event: np.minimum(0.125 * _ORDERS * event.epsilon**2, event.epsilon),
}
