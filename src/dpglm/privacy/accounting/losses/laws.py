"""Distribution of the privacy loss of one mechanism, given by its two tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

__all__ = [
    "REACH",
    "Array",
    "LossLaw",
    "Tails",
    "add_law",
    "bounded_range_law",
    "gaussian_law",
    "laplace_law",
    "pure_law",
    "remove_law",
    "sampled_loss",
    "sampled_position",
]

Array = NDArray[np.float64]
Tails = tuple[Array, Array]
# Standard deviations of noise beyond which losses count as infinite: Phi(-13) is about 6e-39.
REACH = 13.0
# Grids end a little above a greatest loss that has mass, wherever rounding puts their points.
_ABOVE = 1.0 + 1e-12


@dataclass(frozen=True)
class LossLaw:
    """Privacy loss ``log(P/Q)`` of one mechanism and how often the mechanism runs.

    Parameters
    ----------
    tails : callable
        ``P(loss > t)`` and ``Q(loss > t)`` for an array of t.
    low, high : float
        Where the grid may end: mass below ``low`` is rounded up, mass above ``high`` counts
        as an infinite loss.
    count : int
        At least 1.
    roundings : int, default=4
        The tails are right to so many units of roundoff.
    nothing : float, default=0.0
        Probability of a loss of exactly 0 on top, which the tails leave out; the other losses
        are then above 0.
    hidden : float, default=0.0
        What was taken off ``P(loss > t)``: the roundings are of the tail with it.
    """

    tails: Callable[[Array], Tails]
    low: float
    high: float
    count: int
    roundings: int = 4
    nothing: float = 0.0
    hidden: float = 0.0


def gaussian_law(mu: float) -> LossLaw:
    """P is ``N(mu, 1)``, Q is ``N(0, 1)``."""
    half = 0.5 * mu * mu
    return LossLaw(
        tails=lambda t: (ndtr((half - t) / mu), ndtr((-half - t) / mu)),
        low=half - REACH * mu,
        high=half + REACH * mu,
        count=1,
    )


def laplace_law(scale: float, count: int) -> LossLaw:
    """P is Laplace noise of this scale around 0, Q around 1."""
    top = 1.0 / scale

    def tails(t: Array) -> Tails:
        p = 1.0 - 0.5 * np.exp(0.5 * np.minimum(t - top, 0.0))
        q = 0.5 * np.exp(-0.5 * np.maximum(t + top, 0.0))
        return _within(top, t, p), _within(top, t, q)

    return LossLaw(tails, low=-top, high=_ABOVE * top, count=count)


def pure_law(epsilon: float, count: int) -> LossLaw:
    """P and Q are the two answers of randomised response: the loss is plus or minus epsilon."""

    def tails(t: Array) -> Tails:
        p, q = float(expit(epsilon)), float(expit(-epsilon))
        return _within(epsilon, t, p), _within(epsilon, t, q)

    return LossLaw(tails, low=-epsilon, high=_ABOVE * epsilon, count=count)


def bounded_range_law(epsilon: float, count: int) -> LossLaw:
    """Loss of the pair of distributions that dominates every choice of bounded range.

    Notes
    -----
    Privacy: let the losses lie in ``[t - epsilon, t]``. Under P, ``Q/P = exp(-loss)`` has mean
    1, and delta at e is the mean of its convex function ``(1 - exp(e) Q/P)+``: largest if the
    loss is t, with probability ``(exp(epsilon) - exp(t)) / (exp(epsilon) - 1)``, or
    ``t - epsilon``. The largest delta over t is that of ``t = (e + epsilon) / 2``:
    ``delta(e) = (exp(epsilon/2) - exp(e/2))^2 / (exp(epsilon) - 1)`` for |e| <= epsilon. It
    falls and is convex in exp(e), so there is a pair with exactly this delta, which dominates
    all of them, adaptively composed too. Its tails are ``-exp(-e) delta'(e)`` under Q and
    ``delta(e)`` plus ``exp(e)`` times that under P.

    References
    ----------
    Dong, Durfee and Rogers, "Optimal differential privacy composition for exponential
    mechanisms", ICML 2020 (the two losses). Zhu, Dong and Wang, "Optimal accounting of
    differential privacy via characteristic function", AISTATS 2022, Proposition 9 (a pair for
    each such delta) and Theorem 10 (composition).
    """

    # Both are divided by exp(epsilon), so that nothing overflows.
    def tails(t: Array) -> Tails:
        inside = np.clip(t, -epsilon, epsilon)
        p = np.expm1(0.5 * (inside - epsilon)) / np.expm1(-epsilon)
        return p, np.exp(-0.5 * (inside + epsilon)) * p

    return LossLaw(tails, low=-epsilon, high=_ABOVE * epsilon, count=count)


def remove_law(rate: float, sigma: float, count: int) -> LossLaw:
    """P is ``(1-q) N(0, s^2) + q N(1, s^2)``, Q is ``N(0, s^2)``; the loss grows with x."""

    def tails(t: Array) -> Tails:
        x = sampled_position(t, rate, sigma)
        q = ndtr(-x / sigma)
        return (1.0 - rate) * q + rate * ndtr((1.0 - x) / sigma), q

    return LossLaw(
        tails,
        low=sampled_loss(-REACH * sigma, rate, sigma),
        high=sampled_loss(1.0 + REACH * sigma, rate, sigma),
        count=count,
    )


def add_law(rate: float, sigma: float, count: int) -> LossLaw:
    """P is ``N(0, s^2)``, Q is ``(1-q) N(0, s^2) + q N(1, s^2)``; the loss falls with x."""

    def tails(t: Array) -> Tails:
        x = sampled_position(-t, rate, sigma)
        p = ndtr(x / sigma)
        return p, (1.0 - rate) * p + rate * ndtr((x - 1.0) / sigma)

    return LossLaw(
        tails,
        low=-sampled_loss(1.0 + REACH * sigma, rate, sigma),
        high=-sampled_loss(-REACH * sigma, rate, sigma),
        count=count,
    )


def sampled_loss(x: float, rate: float, sigma: float) -> float:
    """Loss of removing a row at x."""
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


def _within(top: float, t: Array, tail: Array | float) -> Array:
    """Tail of a loss that is between minus and plus top, given what it is in between."""
    return np.where(t < -top, 1.0, np.where(t < top, tail, 0.0))
