"""Delta of exponential mechanisms and Gaussian releases from their Renyi divergences."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar

from dpglm.exceptions import TooCostlyError
from dpglm.privacy.accounting.accountant import grouped_delta, pure_group
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.curves import Curves, curves
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    LastIterate,
    MechanismEvent,
    PoissonSampled,
    Repeated,
)
from dpglm.privacy.events.base import Array
from dpglm.privacy.events.compositions import branches

ORDERS = 1.0 + np.geomspace(1e-3, 1e7, 20_001)


def divergence_delta(event: Event, epsilon: float) -> float:
    """Bound delta by Renyi divergences of many orders.

    1 if the event has a part that is neither Gaussian nor an exponential mechanism.
    """
    found = [0.0]
    for terms in filter(None, (one.terms for one in branches(event))):
        if any(type(basic) not in DIVERGENCE for basic, _ in terms):
            return 1.0
        total = sum(count * DIVERGENCE[type(basic)](basic) for basic, count in terms)
        found.append(delta_of(np.asarray(total), epsilon))
    return max(found)


def delta_of(divergence: Array, epsilon: float) -> float:
    """Bound delta at epsilon by the Renyi divergence of each of ``ORDERS``.

    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
    Proposition 12.
    """
    logs = (ORDERS - 1.0) * (divergence - epsilon + np.log1p(-1.0 / ORDERS)) - np.log(ORDERS)
    return math.exp(min(0.0, float(np.min(logs))))


DIVERGENCE: dict[type[Event], Callable[[Any], Array]] = {
    Gaussian: lambda event: 0.5 * ORDERS * event.noise_multiplier**-2,
    LastIterate: lambda event: 0.5 * ORDERS * event.mu**2,
    BoundedRange: lambda event: np.minimum(0.125 * ORDERS * event.epsilon**2, event.epsilon),
}


# Delta of compositions at values that dp-accounting's rounding hides: the same dots, tilted.

# Tilted mass outside a window, and the most points in it.
_LOG_OUTSIDE, _MOST_DOTS = math.log(1e-12), 4_000_000


Dots: TypeAlias = tuple[NDArray[np.int64], Array, float]
"""A law of privacy losses with a hockey-stick curve through or above given points.

Points of a grid, where losses are, their masses, and the mass of infinite losses.
"""


def dots_through(points: NDArray[np.int64], width: float, forward: Array, backward: Array) -> Dots:
    """Connect dots at points from 0 on, of the curve and of that of the opposite order.

    Between points a curve is linear in ``exp(t)``. The mass at ``-t`` is ``exp(-t)`` times that at
    t in the opposite order: so all are made of differences of small numbers, and no digits are
    lost.
    """
    gaps, parts = width * np.diff(points), []
    for deltas in (forward, backward):
        falls = -np.diff(deltas)
        to_above = np.append(falls[1:] / np.expm1(gaps[1:]), 0.0)
        parts.append(np.maximum(falls / -np.expm1(-gaps) - to_above, 0.0))
    up, down = parts[0], parts[1] * np.exp(-width * points[1:])
    infinite = float(forward[-1])
    zero = max(0.0, 1.0 - float(np.sum(up)) - float(np.sum(down)) - infinite)
    masses = np.concatenate((down[::-1], [zero], up))
    some = masses > 0.0
    return np.concatenate((-points[:0:-1], points))[some], masses[some], infinite


def tilted_delta(laws: Sequence[tuple[Dots, int]], width: float, epsilon: float) -> float:
    """Compose laws with their counts, and return delta at an epsilon.

    Masses are multiplied by ``exp(theta loss)`` near the saddle point, so that rounding is relative
    to delta. Raises TooCostlyError if the grid would be too large.
    """
    losses = [width * points for (points, _, _), _ in laws]

    def cumulant(theta: float) -> float:
        total = 0.0
        for at, ((_, masses, _), count) in zip(losses, laws, strict=True):
            exponents = theta * at
            peak = float(exponents.max())
            total += count * (peak + math.log(float(masses @ np.exp(exponents - peak))))
        return total

    theta = _best(lambda theta: cumulant(theta) - theta * epsilon, width)[0]
    at_theta = cumulant(theta)
    # Chernoff bounds on both sides of the tilted sum.
    above = _best(lambda s: (cumulant(theta + s) - at_theta - _LOG_OUTSIDE) / s, width)[1]
    below = _best(lambda s: (cumulant(theta - s) - at_theta - _LOG_OUTSIDE) / s, width)[1]
    first, last = math.floor(-below / width), math.ceil(max(above, epsilon) / width) + 1
    if last - first > _MOST_DOTS:
        raise TooCostlyError(f"a grid of {last - first:.3g} points is too costly to compose on")
    size = next_fast_len(last - first + 1, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for at, ((points, masses, _), count) in zip(losses, laws, strict=True):
        exponents = theta * at
        weights = masses * np.exp(exponents - exponents.max())
        wrapped = np.bincount(points % size, weights / weights.sum(), minlength=size)
        spectrum *= rfft(wrapped) ** count
    masses = np.roll(irfft(spectrum, size), -(first % size))
    beyond = width * (first + np.arange(size)) - epsilon
    masses, beyond = masses[beyond > 0.0], beyond[beyond > 0.0]
    finite = float(np.sum(masses * np.exp(-theta * beyond) * -np.expm1(-beyond)))
    infinite = math.fsum(count * infinite for (_, _, infinite), count in laws)
    return math.exp(min(at_theta - theta * epsilon, 700.0)) * finite + infinite


def _best(function: Callable[[float], float], width: float) -> tuple[float, float]:
    """Where a function of a positive number with one minimum is least, and its value there."""
    found = minimize_scalar(
        lambda log: function(math.exp(log)),
        bounds=(math.log(1e-6), math.log(50.0 / width)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(float(found.x)), float(found.fun)


# Privacy curves of single mechanisms, composed by dp-accounting: a check of all claims.

# Every curve is followed until delta is below this; claims far above it can be checked.
_NEGLIGIBLE, _NEGLIGIBLE_TILTED = 1e-18, 1e-30
_SMALLEST_DELTA, _SMALLEST_TILTED = 1e-9, 1e-18
# Width of the grid over the root mean square of a loss, and points of one curve.
_FRACTION, _MOST_POINTS, _AT_ONCE = 0.03, 100_000, 4096
# Adjacent points on each side of zero.
_EVEN = 2000
# Points of all curves and all compositions together, some 100 bytes each.
_MOST_WORK = 12_000_000


@final
@dataclass(frozen=True)
class HockeySticks:
    """Delta of an event from privacy curves of single mechanisms, computed from their definitions.

    The grid is ``fineness`` times finer than the default. dp-accounting connects the dots of
    ``dpglm.privacy.curves`` and convolves; if ``tilted``, for small deltas, ``tilted_delta`` does.
    """

    event: Event
    adjacency: Adjacency
    fineness: int = 1
    tilted: bool = False

    @property
    def name(self) -> str:
        """Name of the method."""
        if self.tilted:
            return "hockey sticks, tilted"
        return f"hockey sticks (dp-accounting {importlib.metadata.version('dp-accounting')})"

    def resolves(self, delta: float) -> bool:
        """Whether rounding leaves a claim with this delta to be checked."""
        return delta >= (_SMALLEST_TILTED if self.tilted else _SMALLEST_DELTA)

    def delta(self, epsilon: float) -> float:
        """Delta at an epsilon of at least 0."""
        return max(self._delta(one, epsilon) for one in branches(self.event))

    def _delta(self, branch: Event, epsilon: float) -> float:
        replaced = self.adjacency is Adjacency.REPLACE_ONE
        if replaced and any(isinstance(basic, PoissonSampled) for basic, _ in branch.terms):
            groups = pure_group(branch, self.adjacency)
            if groups is not None:
                rest, pure = groups
                return grouped_delta(
                    lambda share: self._delta(rest, share),
                    lambda share: min(self._delta(pure, share), divergence_delta(pure, share)),
                    # Events of this group are named by their epsilon.
                    math.fsum(count * one.to_dict()["epsilon"] for one, count in pure.terms),
                    epsilon,
                )
            # Two steps, each zeroing out one row, each with half the sensitivity.
            quieter = Composed(
                tuple(Repeated(one.quieter(2.0), count) for one, count in _mechanisms(branch))
            )
            half = self._plain(quieter, Adjacency.ZERO_OUT, 0.5 * epsilon)
            return min(1.0, float((1.0 + math.exp(min(0.5 * epsilon, 700.0))) * half))
        return self._plain(branch, self.adjacency, epsilon)

    def _plain(self, branch: Event, adjacency: Adjacency, epsilon: float) -> float:
        terms = _mechanisms(branch)
        if sum(count for _, count in terms) == 1:
            # The curve itself: dots would overstate a curve that ends steeply.
            only, at = curves(terms[0][0], adjacency), np.array([epsilon])
            return float(np.max([0.0, *(one(at)[0] for one in only)]))
        # The loss of pure releases ends at their total, although a grid may place the last one
        # there.
        tops = [(one.pure_epsilon, count) for one, count in terms]
        finite = [float(top * count) for top, count in tops if top is not None]
        if len(finite) == len(tops) and math.fsum(finite) <= epsilon * (1.0 + 1e-12):
            return 0.0
        if self.tilted:
            width, orders = _tilted(branch, adjacency, self.fineness)
            return max(tilted_delta(laws, width, epsilon) for laws in orders)
        composed = _composition(branch, adjacency, self.fineness)
        return float(composed.get_delta_for_epsilon(epsilon))


def _mechanisms(branch: Event) -> list[tuple[MechanismEvent, int]]:
    """Return the mechanisms of an event, with their counts."""
    found = []
    for basic, count in branch.terms:
        if not isinstance(basic, MechanismEvent):
            raise ValueError(f"event must consist of mechanisms, got {basic!r}")
        found.append((basic, count))
    return found


def _grid(
    branch: Event, adjacency: Adjacency, fineness: int, least: float
) -> tuple[float, list[tuple[Curves, int, float]]]:
    """Return the width of a grid for all curves, and each with its count and how far it goes.

    A curve is followed until it is at most ``least``.
    """
    found = [(curves(one, adjacency), count) for one, count in _mechanisms(branch)]
    reaches = [_reach(curve, least) for curve, _ in found]
    # Squares of roundings add up as variances do: the quietest curve does not set the width. A mean
    # square is about twice the integral of ``(1 + t) delta(t)``, for each sign.
    squares = []
    for (curve, count), reach in zip(found, reaches, strict=True):
        t = np.append(0.0, np.geomspace(1e-12 * reach, reach, 400))
        remove, add = curve
        both = (1.0 + t) * remove(t) + np.exp(-t) * add(t)
        squares.append(2.0 * count * max(float(np.trapezoid(both, t)), 1e-300))
    spread = math.sqrt(math.fsum(squares))
    mean = spread / math.sqrt(sum(count for _, count in found))
    width = max(_FRACTION * mean, max(reaches) / _MOST_POINTS) / fineness
    # Much of a loss may sit at its maximum: put the largest on the grid.
    atom = max(one.largest_atom for one, _ in _mechanisms(branch))
    width = atom / math.ceil(atom / width) if atom >= width else width
    work = math.fsum(2.0 * (reach + 20.0 * spread) / width for reach in reaches)
    if work > _MOST_WORK:
        raise TooCostlyError(
            f"{len(found)} laws of privacy losses on grids of {work:.3g} points together are "
            f"too costly to compose, at most {_MOST_WORK:.3g} are"
        )
    return width, [(*one, reach) for one, reach in zip(found, reaches, strict=True)]


# One event is asked about at many epsilons.
@functools.lru_cache(maxsize=4)
def _composition(branch: Event, adjacency: Adjacency, fineness: int) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    width, found = _grid(branch, adjacency, fineness, _NEGLIGIBLE)
    composed = pld.identity(value_discretization_interval=width)
    for curve, count, reach in found:
        remove, add = curve
        single = pld.PrivacyLossDistribution(
            _dots(remove, reach, width), None if add is remove else _dots(add, reach, width)
        )
        composed = composed.compose(single.self_compose(count))
    return composed


@functools.lru_cache(maxsize=4)
def _tilted(
    branch: Event, adjacency: Adjacency, fineness: int
) -> tuple[float, tuple[list[tuple[Dots, int]], ...]]:
    """Return the width of a grid, and for both orders of the data sets all laws on it."""
    width, followed = _grid(branch, adjacency, fineness, _NEGLIGIBLE_TILTED)
    orders: tuple[list[tuple[Dots, int]], ...] = ([], [])
    for curve, count, reach in followed:
        points = _points(math.ceil(reach / width))
        points = points[points >= 0]
        removing, adding = (_along(one, width * points) for one in curve)
        for found, (one, other) in zip(
            orders, ((removing, adding), (adding, removing)), strict=True
        ):
            found.append((dots_through(points, width, one, other), count))
    return width, orders


def _dots(curve: Callable[[Array], Array], reach: float, width: float) -> Any:
    from dp_accounting.pld import pld_pmf

    points = _points(math.ceil(reach / width))
    return pld_pmf.create_pmf_pessimistic_connect_dots(width, points, _along(curve, width * points))


def _along(curve: Callable[[Array], Array], losses: Array) -> Array:
    """Follow a curve, not at all losses at once, as it may be a mean over many nodes for each."""
    pieces = [curve(losses[i : i + _AT_ONCE]) for i in range(0, losses.size, _AT_ONCE)]
    return np.minimum.accumulate(np.clip(np.concatenate(pieces), 0.0, 1.0))


def _points(last: int) -> Any:
    """Dots: every point near zero, further out ever fewer, as only their ratio matters there."""
    near = np.arange(min(_EVEN, last) + 1)
    powers = np.arange(max(0.0, math.log(last / _EVEN)) / math.log1p(1.0 / _EVEN) + 1.0)
    far = np.floor(_EVEN * (1.0 + 1.0 / _EVEN) ** powers).astype(np.int64)
    outward = np.unique(np.concatenate((near, far[far <= last], [last])))
    return np.concatenate((-outward[:0:-1], outward))


def _reach(curves: Curves, least: float) -> float:
    reach = 1e-12
    while max(one(np.array([reach]))[0] for one in curves) > least:
        reach *= 1.25
    return reach
