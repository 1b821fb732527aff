"""Distribution of the privacy loss of one mechanism, given by its two tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["Array", "LossLaw", "add_law", "gaussian_law", "laplace_law", "remove_law"]

Array = NDArray[np.float64]
# Standard deviations of noise beyond which losses count as infinite: Phi(-13) is about 6e-39.
_REACH = 13.0


@dataclass(frozen=True)
class LossLaw:
    """Privacy loss ``log(P/Q)`` of one mechanism and how often the mechanism runs.

    Parameters
    ----------
    tail_p, tail_q : callable
        ``P(loss > t)`` and ``Q(loss > t)`` for an array of t.
    low, high : float
        Where the grid may end: mass below ``low`` is rounded up, mass above ``high`` counts
        as an infinite loss.
    count : int
        At least 1.
    """

    tail_p: Callable[[Array], Array]
    tail_q: Callable[[Array], Array]
    low: float
    high: float
    count: int


def gaussian_law(mu: float) -> LossLaw:
    """P is ``N(mu, 1)``, Q is ``N(0, 1)``."""
    half = 0.5 * mu * mu
    return LossLaw(
        tail_p=lambda t: ndtr((half - t) / mu),
        tail_q=lambda t: ndtr((-half - t) / mu),
        low=half - _REACH * mu,
        high=half + _REACH * mu,
        count=1,
    )


def laplace_law(scale: float, count: int) -> LossLaw:
    """P is Laplace noise of this scale around 0, Q around 1."""
    top = 1.0 / scale

    def tail_p(t: Array) -> Array:
        inside = 1.0 - 0.5 * np.exp(0.5 * np.minimum(t - top, 0.0))
        return np.where(t < -top, 1.0, np.where(t < top, inside, 0.0))

    def tail_q(t: Array) -> Array:
        inside = 0.5 * np.exp(-0.5 * np.maximum(t + top, 0.0))
        return np.where(t < -top, 1.0, np.where(t < top, inside, 0.0))

    return LossLaw(tail_p, tail_q, low=-top, high=top, count=count)


def remove_law(rate: float, sigma: float, count: int) -> LossLaw:
    """P is ``(1-q) N(0, s^2) + q N(1, s^2)``, Q is ``N(0, s^2)``; the loss grows with x."""

    def tail_p(t: Array) -> Array:
        x = _position(t, rate, sigma)
        return (1.0 - rate) * ndtr(-x / sigma) + rate * ndtr((1.0 - x) / sigma)

    return LossLaw(
        tail_p,
        tail_q=lambda t: ndtr(-_position(t, rate, sigma) / sigma),
        low=_loss(-_REACH * sigma, rate, sigma),
        high=_loss(1.0 + _REACH * sigma, rate, sigma),
        count=count,
    )


def add_law(rate: float, sigma: float, count: int) -> LossLaw:
    """P is ``N(0, s^2)``, Q is ``(1-q) N(0, s^2) + q N(1, s^2)``; the loss falls with x."""

    def tail_q(t: Array) -> Array:
        x = _position(-t, rate, sigma)
        return (1.0 - rate) * ndtr(x / sigma) + rate * ndtr((x - 1.0) / sigma)

    return LossLaw(
        tail_p=lambda t: ndtr(_position(-t, rate, sigma) / sigma),
        tail_q=tail_q,
        low=-_loss(1.0 + _REACH * sigma, rate, sigma),
        high=-_loss(-_REACH * sigma, rate, sigma),
        count=count,
    )


def _loss(x: float, rate: float, sigma: float) -> float:
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / sigma**2))


def _position(t: Array, rate: float, sigma: float) -> Array:
    """Where the loss of removing is t; minus infinity for losses that are never reached."""
    # log((exp(t) - 1 + q) / q), by one form that is accurate near 0 and one that never overflows.
    near = np.maximum(np.expm1(np.minimum(t, 1.0)) / rate, -1.0)
    far = np.maximum(t, 1.0)
    with np.errstate(divide="ignore"):
        logarithm = np.where(
            t < 1.0, np.log1p(near), far - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-far))
        )
    return np.asarray(sigma**2 * logarithm + 0.5)
