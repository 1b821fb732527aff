"""The distribution of a privacy loss, given by its two tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = [
    "REACH",
    "Array",
    "ChiSquare",
    "LossLaw",
    "Tails",
    "bounded_law",
    "gaussian_law",
    "sampled_loss",
    "sampled_position",
]

Array = NDArray[np.float64]
Tails = tuple[Array, Array]
# Standard deviations of noise beyond which losses count as infinite: Phi(-13) is about 6e-39.
REACH = 13.0


@dataclass(frozen=True)
class LossLaw:
    """Privacy loss ``log(P/Q)`` of one mechanism.

    ``tails`` gives ``P(loss > t)`` and ``Q(loss > t)`` for an array of t, right to so many
    ``roundings`` in units of roundoff. A grid may end at ``low``, below which mass is rounded up,
    and at ``high``, above which it counts as an infinite loss. With the probability ``nothing``,
    which the tails leave out, the loss is exactly 0, and the other losses are then above 0.
    ``hidden`` was taken off ``P(loss > t)``: the roundings are of the tail with it.
    """

    tails: Callable[[Array], Tails]
    low: float
    high: float
    roundings: int = 4
    nothing: float = 0.0
    hidden: float = 0.0


@dataclass(frozen=True)
class ChiSquare:
    """Law of ``scale`` times a chi-square variable with so many degrees of freedom."""

    scale: float
    degrees: int


def gaussian_law(mu: float) -> LossLaw:
    """P is ``N(mu, 1)``, Q is ``N(0, 1)``."""
    half = 0.5 * mu * mu
    return LossLaw(
        tails=lambda t: (ndtr((half - t) / mu), ndtr((-half - t) / mu)),
        low=half - REACH * mu,
        high=half + REACH * mu,
    )


def bounded_law(
    top: float, tails: Callable[[Array], tuple[Array | float, Array | float]]
) -> LossLaw:
    """Law of a loss between minus and plus ``top``, given its tails in between."""

    def within(t: Array) -> Tails:
        p, q = tails(t)
        return (
            np.where(t < -top, 1.0, np.where(t < top, p, 0.0)),
            np.where(t < -top, 1.0, np.where(t < top, q, 0.0)),
        )

    # The grid ends a little above the greatest loss, wherever rounding puts its points.
    return LossLaw(within, low=-top, high=(1.0 + 1e-12) * top)


def sampled_loss(x: float, rate: float, sigma: float) -> float:
    """Loss of removing a row at x, of ``(1-q) N(0, s^2) + q N(1, s^2)`` against ``N(0, s^2)``."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / sigma**2))


def sampled_position(t: Array, rate: float, sigma: float) -> Array:
    """Where the loss of removing is t; minus infinity for losses that are never reached."""
    # log((exp(t) - 1 + q) / q), by one form that is accurate near 0 and one that never overflows.
    near = np.maximum(np.expm1(np.minimum(t, 1.0)) / rate, -1.0)
    far = np.maximum(t, 1.0)
    with np.errstate(divide="ignore"):
        logarithm = np.where(
            t < 1.0, np.log1p(near), far - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-far))
        )
    return np.asarray(sigma**2 * logarithm + 0.5)
