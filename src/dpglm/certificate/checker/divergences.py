"""Delta of exponential mechanisms and Gaussian releases from their Renyi divergences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.events import BoundedRange, Event, Gaussian, LastIterate
from dpglm.privacy.events.branches import branches

__all__ = ["DIVERGENCE", "ORDERS", "delta_of", "divergence_delta"]

ORDERS = 1.0 + np.geomspace(1e-3, 1e7, 20_001)


def divergence_delta(event: Event, epsilon: float) -> float:
    """Bound delta by Renyi divergences of many orders.

    1 if the event has a part that is neither Gaussian nor an exponential mechanism.
    """
    return max(_delta(one, epsilon) for one in branches(event))


def _delta(event: Event, epsilon: float) -> float:
    terms = event.terms()
    if not terms:
        return 0.0
    if any(type(basic) not in DIVERGENCE for basic, _ in terms):
        return 1.0
    total = sum(count * DIVERGENCE[type(basic)](basic) for basic, count in terms)
    return delta_of(np.asarray(total), epsilon)


def delta_of(divergence: NDArray[np.float64], epsilon: float) -> float:
    """Bound delta at epsilon by the Renyi divergence of each of ``ORDERS``.

    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
    Proposition 12.
    """
    logs = (ORDERS - 1.0) * (divergence - epsilon + np.log1p(-1.0 / ORDERS)) - np.log(ORDERS)
    return math.exp(min(0.0, float(np.min(logs))))


DIVERGENCE: dict[type[Event], Callable[[Any], NDArray[np.float64]]] = {
    Gaussian: lambda event: 0.5 * ORDERS * event.noise_multiplier**-2,
    LastIterate: lambda event: 0.5 * ORDERS * event.mu**2,
    BoundedRange: lambda event: np.minimum(0.125 * ORDERS * event.epsilon**2, event.epsilon),
}
