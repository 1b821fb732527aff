"""Delta of single mechanisms as a curve, composed by dp-accounting: a check of Fourier claims."""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammainccinv, gammaincinv, ndtr

from dpglm.certificate.checker.divergences import divergence_delta
from dpglm.privacy.accounting.groups import grouped_delta, pure_group
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    ObjectivePerturbation,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
)
from dpglm.privacy.events.branches import branches

__all__ = ["HockeySticks"]

_Array = NDArray[np.float64]
_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(64))
# Every curve is followed until delta is below this; claims far above it can be checked.
_NEGLIGIBLE = 1e-15
_SMALLEST_DELTA = 1e-9
_MOST_POINTS, _AT_ONCE = 100_000, 4096


@final
@dataclass(frozen=True)
class HockeySticks:
    """Delta of an event from curves of single mechanisms, straight from their definitions.

    Parameters
    ----------
    event : Event
        What was accounted for.
    adjacency : Adjacency
        The relation.

    Notes
    -----
    Shares nothing with ``dpglm.privacy`` but the events: dp-accounting connects the dots of
    each curve and convolves.

    References
    ----------
    Doroshenko et al., "Connect the dots", PETS 2022, Algorithm 1.
    """

    event: Event
    adjacency: Adjacency

    @property
    def name(self) -> str:
        """What computes."""
        return f"hockey sticks (dp-accounting {importlib.metadata.version('dp-accounting')})"

    def resolves(self, delta: float) -> bool:
        """Whether rounding in the curves leaves a claim with this delta to be checked."""
        return delta >= _SMALLEST_DELTA

    def delta(self, epsilon: float) -> float:
        """Delta at an epsilon of at least 0."""
        return max(self._delta(one, epsilon) for one in branches(self.event))

    def _delta(self, branch: Event, epsilon: float) -> float:
        replaced = self.adjacency is Adjacency.REPLACE_ONE
        if replaced and any(isinstance(basic, PoissonSampled) for basic, _ in branch.terms()):
            groups = pure_group(branch, self.adjacency)
            if groups is not None:
                rest, pure = groups
                return grouped_delta(
                    lambda share: self._delta(rest, share),
                    lambda share: min(self._delta(pure, share), divergence_delta(pure, share)),
                    # Both kinds of event in the group have their epsilon for a name.
                    math.fsum(count * one.to_dict()["epsilon"] for one, count in pure.terms()),
                    epsilon,
                )
            # Two steps, each zeroing out one row, each with half the sensitivity.
            single = _composition(branch, 2.0, False).get_delta_for_epsilon(0.5 * epsilon)
            return min(1.0, float((1.0 + math.exp(min(0.5 * epsilon, 700.0))) * single))
        terms = branch.terms()
        if sum(count for _, count in terms) == 1:
            # The curve itself: dots would overstate a curve that ends steeply.
            curve, at = _curve(terms[0][0], 1.0, replaced), np.array([epsilon])
            return float(max(curve.remove(at)[0], curve.add(at)[0], 0.0))
        return float(_composition(branch, 1.0, replaced).get_delta_for_epsilon(epsilon))


@dataclass(frozen=True)
class _Curve:
    """Delta of removing and of adding a row at an array of epsilons, negative ones too."""

    remove: Callable[[_Array], _Array]
    add: Callable[[_Array], _Array]


# One event is asked about at many epsilons.
@functools.lru_cache(maxsize=4)
def _composition(branch: Event, stretch: float, replaced: bool) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    curves = [(_curve(basic, stretch, replaced), count) for basic, count in branch.terms()]
    reaches = [_reach(curve) for curve, _ in curves]
    # Squares of roundings add up as variances do: the quietest of many curves sets no pace.
    squares = sum(
        count * _width(curve, reach) ** 2
        for (curve, count), reach in zip(curves, reaches, strict=True)
    )
    mean = math.sqrt(squares / sum(count for _, count in curves))
    width = max(mean, max(reaches) / _MOST_POINTS)
    composed = pld.identity(value_discretization_interval=width)
    for (curve, count), reach in zip(curves, reaches, strict=True):
        single = pld.PrivacyLossDistribution(
            _dots(curve.remove, reach, width), _dots(curve.add, reach, width)
        )
        composed = composed.compose(single.self_compose(count))
    return composed


def _dots(curve: Callable[[_Array], _Array], reach: float, width: float) -> Any:
    from dp_accounting.pld import pld_pmf

    last = math.ceil(reach / width)
    points = np.arange(-last, last + 1)
    # Curves are means over many nodes for each point.
    losses = np.asarray(width * points, dtype=np.float64)
    pieces = [curve(losses[i : i + _AT_ONCE]) for i in range(0, points.size, _AT_ONCE)]
    deltas = np.minimum.accumulate(np.clip(np.concatenate(pieces), 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots(width, points, deltas)


def _reach(curve: _Curve) -> float:
    reach = 1e-6
    while max(curve.remove(np.array([reach]))[0], curve.add(np.array([reach]))[0]) > _NEGLIGIBLE:
        reach *= 1.25
    return reach


def _width(curve: _Curve, reach: float) -> float:
    """Return a small part of the loss's standard deviation, of which delta at 0 is about 0.4."""
    at_zero = float(max(curve.remove(np.zeros(1))[0], curve.add(np.zeros(1))[0]))
    return min(0.05 * at_zero, 0.01 * reach)


def _gaussian(mu: _Array | float, epsilon: _Array) -> _Array:
    upper = ndtr(0.5 * mu - epsilon / mu)
    return np.asarray(upper - np.exp(np.minimum(epsilon, 700.0)) * ndtr(-0.5 * mu - epsilon / mu))


def _both(curve: Callable[[_Array], _Array]) -> _Curve:
    return _Curve(curve, curve)


def _gaussian_curve(mu: float) -> _Curve:
    return _both(lambda epsilon: _gaussian(mu, epsilon))


def _laplace_curve(scale: float) -> _Curve:
    top = 1.0 / scale

    def delta(epsilon: _Array) -> _Array:
        inside = -np.expm1(0.5 * (np.clip(epsilon, -top, top) - top))
        return np.where(epsilon < -top, -np.expm1(epsilon), inside)

    return _both(delta)


def _pure_curve(top: float) -> _Curve:
    def delta(epsilon: _Array) -> _Array:
        inside = -np.expm1(np.clip(epsilon, -top, top) - top) / (1.0 + math.exp(-top))
        return np.where(epsilon < -top, -np.expm1(epsilon), inside)

    return _both(delta)


def _range_curve(top: float) -> _Curve:
    def delta(epsilon: _Array) -> _Array:
        inside = np.expm1(0.5 * (np.clip(epsilon, -top, top) - top)) ** 2 / -math.expm1(-top)
        return np.where(epsilon < -top, -np.expm1(epsilon), inside)

    return _both(delta)


def _line_curve(shift: float, slope: float) -> Callable[[_Array], _Array]:
    def delta(epsilon: _Array) -> _Array:
        moved = epsilon - shift
        near = 1.0 - 2.0 * np.exp(np.minimum(moved, 700.0)) * ndtr(-slope)
        return np.where(moved < 0.5 * slope**2, near, 2.0 * _gaussian(slope, moved))

    return delta


def _plane_curve(shift: float, slope: float) -> _Curve:
    """Integral of ``exp(e - t) P(loss > t)`` over t > e."""
    bend = math.sqrt(3.0)
    step = math.exp(-1.5) - 2.0 * ndtr(-bend)

    def tail(v: _Array) -> _Array:
        beyond = 2.0 * ndtr(-v) + step * np.exp(np.minimum(2.0 * (3.0 - v * v), 0.0))
        return np.where(v <= 0.0, 1.0, np.where(v < bend, np.exp(-0.5 * v * v), beyond))

    def delta(epsilon: _Array) -> _Array:
        start = (epsilon - shift) / slope - 0.5 * slope
        first = np.maximum(start, 0.0)
        total = -np.expm1(np.minimum(slope * start, 0.0))
        for low, high in ((first, np.maximum(first, bend)), (np.maximum(first, bend), first + 14)):
            half = 0.5 * (high - low)[:, np.newaxis]
            v = low[:, np.newaxis] + half * (_NODES + 1.0)
            inside = slope * np.exp(slope * (start[:, np.newaxis] - v)) * tail(v)
            total = total + (half * inside) @ _WEIGHTS
        return np.asarray(total)

    return _both(delta)


def _projected(dimension: int, multiplier: float) -> Callable[[_Array], _Array]:
    """Mean over mu: delta at mu = 0 plus the integral of ``phi(e/x - x/2) P(mu > x)`` over x."""
    half = 0.5 * dimension
    unit = math.sqrt(2.0 / dimension) / multiplier
    quantiles = (gammaincinv(half, 1e-9), gammainccinv(half, 1e-6), gammainccinv(half, 1e-22))
    ends = [0.0, *(unit * math.sqrt(quantile) for quantile in quantiles)]
    cuts = np.concatenate([np.linspace(a, b, 4) for a, b in itertools.pairwise(ends)])
    panels = [(a, b) for a, b in itertools.pairwise(cuts) if a < b]
    nodes = np.concatenate([0.5 * ((b - a) * _NODES + a + b) for a, b in panels])
    weights = np.concatenate([0.5 * (b - a) * _WEIGHTS for a, b in panels])
    weights = weights * gammaincc(half, (nodes / unit) ** 2) / math.sqrt(2.0 * math.pi)

    def mean(epsilon: _Array) -> _Array:
        inside = np.exp(-0.5 * (epsilon[:, np.newaxis] / nodes - 0.5 * nodes) ** 2)
        return np.asarray(-np.expm1(np.minimum(epsilon, 0.0)) + inside @ weights)

    return mean


def _sampled(rate: float, plain: Callable[[_Array], _Array]) -> _Curve:
    """Delta of the mixture with weight ``rate`` against noise alone, and the other way round."""

    def amplified(epsilon: _Array) -> tuple[NDArray[np.bool_], _Array]:
        ratio = np.expm1(np.minimum(epsilon, 700.0)) / rate
        reached = ratio > -1.0
        return reached, np.log1p(np.where(reached, ratio, 0.0))

    def remove(epsilon: _Array) -> _Array:
        reached, moved = amplified(epsilon)
        return np.where(reached, rate * plain(moved), -np.expm1(np.minimum(epsilon, 0.0)))

    def add(epsilon: _Array) -> _Array:
        reached, moved = amplified(-epsilon)
        return np.where(reached, rate * np.exp(epsilon + moved) * plain(-moved), 0.0)

    return _Curve(remove, add)


def _perturbed(event: ObjectivePerturbation, stretch: float, replaced: bool) -> _Curve:
    shift, slope = math.log1p(event.curvature_ratio), 1.0 / (stretch * event.noise_multiplier)
    if replaced:
        return _plane_curve(shift, slope)
    return _Curve(_line_curve(shift, slope), _line_curve(0.0, slope))


def _poisson_sampled(event: PoissonSampled, stretch: float, replaced: bool) -> _Curve:
    return _sampled(event.sampling_rate, _curve(event.event, stretch, replaced).remove)


def _curve(event: Event, stretch: float, replaced: bool) -> _Curve:
    return _CURVES[type(event)](event, stretch, replaced)


_CURVES: dict[type[Event], Callable[[Any, float, bool], _Curve]] = {
    Gaussian: lambda event, stretch, _: _gaussian_curve(1.0 / (stretch * event.noise_multiplier)),
    LastIterate: lambda event, stretch, _: _gaussian_curve(event.mu / stretch),
    Laplace: lambda event, stretch, _: _laplace_curve(stretch * event.noise_multiplier),
    Pure: lambda event, *_: _pure_curve(event.epsilon),
    BoundedRange: lambda event, *_: _range_curve(event.epsilon),
    ObjectivePerturbation: _perturbed,
    ProjectedGaussian: lambda event, stretch, _: _both(
        _projected(event.dimension, stretch * event.noise_multiplier)
    ),
    PoissonSampled: _poisson_sampled,
}
