"""Delta of compositions at values that dp-accounting's rounding hides: the same dots, tilted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar

from dpglm.exceptions import TooCostlyError
from dpglm.privacy.events.losses import Array

__all__ = ["Dots", "tilted_delta"]

# Tilted mass outside a window, and the most points in it.
_LOG_OUTSIDE, _MOST_POINTS = math.log(1e-12), 4_000_000


@final
@dataclass(frozen=True)
class Dots:
    """A law of privacy losses whose hockey-stick curve goes through dots, and is above it between.

    Losses are ``points`` times the width of a grid; ``infinite`` is the mass of infinite losses.
    """

    points: NDArray[np.int64]
    masses: Array
    infinite: float

    @classmethod
    def through(
        cls, points: NDArray[np.int64], width: float, forward: Array, backward: Array
    ) -> Dots:
        """Connect dots at points from 0 on, of the curve and of that of the opposite order.

        The mass at ``-t`` is ``exp(-t)`` times that at t in the opposite order: so all are made of
        differences of small numbers, and no digits are lost.
        """
        up, down = _masses(points, width, forward), _masses(points, width, backward)
        down = down * np.exp(-width * points[1:])
        infinite = float(forward[-1])
        zero = max(0.0, 1.0 - float(np.sum(up)) - float(np.sum(down)) - infinite)
        masses = np.concatenate((down[::-1], [zero], up))
        some = masses > 0.0
        return cls(np.concatenate((-points[:0:-1], points))[some], masses[some], infinite)


def tilted_delta(laws: Sequence[tuple[Dots, int]], width: float, epsilon: float) -> float:
    """Compose laws, each so many times, and return delta at an epsilon.

    Masses are multiplied by ``exp(theta loss)`` near the saddle point, so that rounding is relative
    to delta. Raises TooCostlyError if the grid would be too large.
    """
    losses = [width * one.points for one, _ in laws]

    def cumulant(theta: float) -> float:
        total = 0.0
        for at, (one, count) in zip(losses, laws, strict=True):
            exponents = theta * at
            peak = float(exponents.max())
            total += count * (peak + math.log(float(one.masses @ np.exp(exponents - peak))))
        return total

    theta = _best(lambda theta: cumulant(theta) - theta * epsilon, width)[0]
    at_theta = cumulant(theta)
    # Chernoff bounds on both sides of the tilted sum.
    above = _best(lambda s: (cumulant(theta + s) - at_theta - _LOG_OUTSIDE) / s, width)[1]
    below = _best(lambda s: (cumulant(theta - s) - at_theta - _LOG_OUTSIDE) / s, width)[1]
    first, last = math.floor(-below / width), math.ceil(max(above, epsilon) / width) + 1
    if last - first > _MOST_POINTS:
        raise TooCostlyError(f"a grid of {last - first:.3g} points is too costly to compose on")
    size = next_fast_len(last - first + 1, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for at, (one, count) in zip(losses, laws, strict=True):
        exponents = theta * at
        weights = one.masses * np.exp(exponents - exponents.max())
        wrapped = np.bincount(one.points % size, weights / weights.sum(), minlength=size)
        spectrum *= rfft(wrapped) ** count
    masses = np.roll(irfft(spectrum, size), -(first % size))
    beyond = width * (first + np.arange(size)) - epsilon
    masses, beyond = masses[beyond > 0.0], beyond[beyond > 0.0]
    finite = float(np.sum(masses * np.exp(-theta * beyond) * -np.expm1(-beyond)))
    infinite = math.fsum(count * one.infinite for one, count in laws)
    return math.exp(min(at_theta - theta * epsilon, 700.0)) * finite + infinite


def _masses(points: NDArray[np.int64], width: float, deltas: Array) -> Array:
    """Masses at all points but the first: between them the curve is linear in ``exp(t)``."""
    gaps, falls = width * np.diff(points), -np.diff(deltas)
    from_below = falls / -np.expm1(-gaps)
    to_above = np.append(falls[1:] / np.expm1(gaps[1:]), 0.0)
    return np.asarray(np.maximum(from_below - to_above, 0.0))


def _best(function: Callable[[float], float], width: float) -> tuple[float, float]:
    """Where a function of a positive number with one minimum is least, and its value there."""
    found = minimize_scalar(
        lambda log: function(math.exp(log)),
        bounds=(math.log(1e-6), math.log(50.0 / width)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(float(found.x)), float(found.fun)
