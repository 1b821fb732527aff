"""Privacy curves of single mechanisms from their definitions, for checks of claims.

They share no formula with the laws of losses in ``privacy/events``, and no claim rests on them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammainccinv, gammaincinv, ndtr

from dpglm._validation import Array
from dpglm.privacy import events
from dpglm.privacy.budget import Adjacency

_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(64))


Curve: TypeAlias = Callable[[Array], Array]
Curves: TypeAlias = tuple[Curve, Curve]
"""Delta of removing and of adding a row, at an array of epsilons of any sign."""


@functools.singledispatch
def curves(event: events.Event, adjacency: Adjacency) -> Curves:
    """Return the hockey-stick divergences of a mechanism, computed from their definition."""
    raise ValueError(f"event must be a mechanism with known curves, got {event!r}")


def bounded_curves(top: float, inside: Callable[[Array], Array]) -> Curves:
    """Return equal curves of a loss in [-top, top], given delta at epsilons in between."""

    def delta(epsilon: Array) -> Array:
        within = inside(np.clip(epsilon, -top, top))
        return np.where(epsilon < -top, -np.expm1(np.minimum(epsilon, 0.0)), within)

    return delta, delta


@curves.register
def _(event: events.Pure, adjacency: Adjacency) -> Curves:
    top = event.epsilon
    return bounded_curves(top, lambda e: -np.expm1(e - top) / (1.0 + math.exp(-top)))


@curves.register
def _(event: events.Laplace, adjacency: Adjacency) -> Curves:
    top = 1.0 / event.noise_multiplier
    return bounded_curves(top, lambda e: -np.expm1(0.5 * (e - top)))


@curves.register
def _(event: events.BoundedRange, adjacency: Adjacency) -> Curves:
    top = event.epsilon
    return bounded_curves(top, lambda e: np.expm1(0.5 * (e - top)) ** 2 / -math.expm1(-top))


def _mu_squared_of_last_iterate(event: events.LastIterate) -> float:
    c = event.contraction
    # (1 - c^t)/(1 + c^t) (1 + c)/(1 - c), the first factor without cancellation for c near 1.
    amplified = math.inf
    if c < 1.0:
        power = -math.expm1(event.steps * math.log(c)) if c > 0.0 else 1.0
        amplified = power / (2.0 - power) * (1.0 + c) / (1.0 - c)
    return min(float(event.steps), amplified) / event.noise_multiplier**2


MU_SQUARED: Mapping[type[events.GaussianMechanism], Callable[[Any], float]] = MappingProxyType(
    {
        events.Gaussian: lambda event: event.noise_multiplier**-2,
        events.LastIterate: _mu_squared_of_last_iterate,
    }
)
"""The square of mu of each Gaussian mechanism, by another formula than its own."""


def _gaussian_curve(mu: float, epsilon: Array) -> Array:
    """Return the delta of a mu-GDP release from its formula.

    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
    Theorem 8.
    """
    upper = ndtr(0.5 * mu - epsilon / mu)
    return np.asarray(upper - np.exp(np.minimum(epsilon, 700.0)) * ndtr(-0.5 * mu - epsilon / mu))


@curves.register
def _(event: events.GaussianMechanism, adjacency: Adjacency) -> Curves:
    delta = functools.partial(_gaussian_curve, MU_SQUARED[type(event)](event) ** 0.5)
    return delta, delta


@curves.register
def _(event: events.PoissonSampled, adjacency: Adjacency) -> Curves:
    # The mixture with weight q against the law without the row, and the other way round.
    rate, plain = event.sampling_rate, curves(event.event, adjacency)[0]

    def amplified(epsilon: Array) -> tuple[NDArray[np.bool_], Array]:
        ratio = np.expm1(np.minimum(epsilon, 700.0)) / rate
        reached = ratio > -1.0
        return reached, np.log1p(np.where(reached, ratio, 0.0))

    def remove(epsilon: Array) -> Array:
        reached, moved = amplified(epsilon)
        return np.where(reached, rate * plain(moved), -np.expm1(np.minimum(epsilon, 0.0)))

    def add(epsilon: Array) -> Array:
        reached, moved = amplified(-epsilon)
        return np.where(reached, rate * np.exp(epsilon + moved) * plain(-moved), 0.0)

    return remove, add


@curves.register
def _(event: events.ProjectedGaussian, adjacency: Adjacency) -> Curves:
    # Mean over mu: delta at mu = 0 plus the integral of ``phi(e/x - x/2) P(mu > x)`` over x.
    half = 0.5 * event.dimension
    unit = math.sqrt(2.0 / event.dimension) / event.noise_multiplier
    quantiles = (gammaincinv(half, 1e-9), gammainccinv(half, 1e-6), gammainccinv(half, 1e-22))
    ends = [0.0, *(unit * math.sqrt(quantile) for quantile in quantiles)]
    cuts = np.concatenate([np.linspace(a, b, 4) for a, b in itertools.pairwise(ends)])
    panels = [(a, b) for a, b in itertools.pairwise(cuts) if a < b]
    nodes = np.concatenate([0.5 * ((b - a) * _NODES + a + b) for a, b in panels])
    weights = np.concatenate([0.5 * (b - a) * _WEIGHTS for a, b in panels])
    weights = weights * gammaincc(half, (nodes / unit) ** 2) / math.sqrt(2.0 * math.pi)

    def delta(epsilon: Array) -> Array:
        inside = np.exp(-0.5 * (epsilon[:, np.newaxis] / nodes - 0.5 * nodes) ** 2)
        return np.asarray(-np.expm1(np.minimum(epsilon, 0.0)) + inside @ weights)

    return delta, delta


@curves.register
def _(event: events.PerturbedObjective, adjacency: Adjacency) -> Curves:
    shift, slope = math.log1p(event.curvature_ratio), 1.0 / event.noise_multiplier

    def line(shift: float, epsilon: Array) -> Array:
        moved = epsilon - shift
        near = 1.0 - 2.0 * np.exp(np.minimum(moved, 700.0)) * ndtr(-slope)
        far = 2.0 * _gaussian_curve(slope, moved)
        return np.where(moved < 0.5 * slope**2, near, far)

    if adjacency is not Adjacency.REPLACE_ONE:
        return lambda e: line(shift, e), lambda e: line(0.0, e)
    # The integral of ``exp(e - t) P(loss > t)`` over t > e, for both orders.
    bend = math.sqrt(3.0)
    step = math.exp(-1.5) - 2.0 * ndtr(-bend)

    def tail(v: Array) -> Array:
        beyond = 2.0 * ndtr(-v) + step * np.exp(np.minimum(2.0 * (3.0 - v * v), 0.0))
        return np.where(v <= 0.0, 1.0, np.where(v < bend, np.exp(-0.5 * v * v), beyond))

    def delta(epsilon: Array) -> Array:
        start = (epsilon - shift) / slope - 0.5 * slope
        first = np.maximum(start, 0.0)
        total = -np.expm1(np.minimum(slope * start, 0.0))
        for low, high in ((first, np.maximum(first, bend)), (np.maximum(first, bend), first + 14)):
            half = 0.5 * (high - low)[:, np.newaxis]
            v = low[:, np.newaxis] + half * (_NODES + 1.0)
            inside = slope * np.exp(slope * (start[:, np.newaxis] - v)) * tail(v)
            total = total + (half * inside) @ _WEIGHTS
        return np.asarray(total)

    return delta, delta
