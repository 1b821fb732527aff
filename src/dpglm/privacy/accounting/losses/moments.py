"""Moment generating functions of privacy losses, on vertical lines of the complex plane."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from dpglm.privacy.accounting.losses.laws import Array
from dpglm.privacy.accounting.losses.mixture_laws import PLANE_BEND, PLANE_DECAY, PLANE_STEP

__all__ = [
    "Complex",
    "GaussianMoments",
    "LineMoments",
    "Moments",
    "PlaneMoments",
    "ProjectedMoments",
]

Complex = NDArray[np.complex128]

_ROOT_2PI = math.sqrt(2.0 * math.pi)
# exp(36^2 / 2) is still a float, with room for what multiplies it.
_LARGEST_TILT = 36.0
# Units of roundoff that erfcx is off, over 32; its authors promise 1e-13.
_ERFCX = 64.0
# As many complex numbers fit well into memory.
_TABLE = 2**18


class Moments(abc.ABC):
    """``E exp(z loss)`` of all runs of one mechanism together, for complex z."""

    @property
    @abc.abstractmethod
    def limit(self) -> float:
        """The real parts of z that can be asked for are between 0 and this."""

    @abc.abstractmethod
    def logarithm(self, z: Complex) -> tuple[Complex, Array]:
        """Return a logarithm of the moment, and how many units of roundoff it is off.

        Those that come from the size of the logarithm itself are left out.
        """

    @abc.abstractmethod
    def log_bound(self, theta: float, t: float) -> float:
        """Bound the logarithm of the modulus at ``theta + i t`` and at every larger t."""


@final
@dataclass(frozen=True)
class GaussianMoments(Moments):
    """The loss of a mu-GDP release, ``N(mu^2/2, mu^2)``."""

    mu: float

    @property
    def limit(self) -> float:
        return math.inf

    def logarithm(self, z: Complex) -> tuple[Complex, Array]:
        return np.asarray(0.5 * self.mu**2 * (z + z * z)), np.full(z.shape, 4.0)

    def log_bound(self, theta: float, t: float) -> float:
        return 0.5 * self.mu**2 * (theta + theta * theta - t * t)


@final
@dataclass(frozen=True)
class ProjectedMoments(Moments):
    """The same with ``mu^2 = sum_j scales[j] chi2_j``, chi-squares with ``degrees[j]`` degrees.

    Notes
    -----
    ``E exp((z + z^2) mu^2 / 2)`` is the product of ``(1 - scale (z + z^2))^(-degrees/2)``. Real
    and imaginary part of each base grow with |Im z|.
    """

    scales: tuple[float, ...]
    degrees: tuple[int, ...]

    @property
    def limit(self) -> float:
        # The positive root of scale (x + x^2) = 1, without cancellation.
        largest = max(self.scales)
        return 2.0 / (largest + math.sqrt(largest**2 + 4.0 * largest))

    def logarithm(self, z: Complex) -> tuple[Complex, Array]:
        scales, powers = np.array(self.scales)[:, np.newaxis], -0.5 * np.array(self.degrees)
        pieces = np.array_split(z + z * z, -(-z.size * powers.size // _TABLE))
        logarithm = np.concatenate([powers @ np.log1p(-scales * piece) for piece in pieces])
        return logarithm, np.full(z.shape, 4.0 + 4.0 * sum(self.degrees))

    def log_bound(self, theta: float, t: float) -> float:
        scales, powers = np.array(self.scales), -0.5 * np.array(self.degrees)
        real = 1.0 - scales * (theta + theta * theta - t * t)
        modulus = np.hypot(real, scales * (t * (1.0 + 2.0 * theta)))
        return float(np.sum(powers * np.log(modulus)))


@final
@dataclass(frozen=True)
class LineMoments(Moments):
    """Loss ``shift + slope^2/2 + slope |u|``, u standard normal: see ``line_law``.

    Notes
    -----
    ``E exp(w |u|) = erfcx(-w / sqrt(2))``. Integrating by parts, its modulus is at most that
    of 1/w times the variation of ``2 phi(v) exp(v Re w)`` over v > 0, which has one maximum.
    """

    shift: float
    slope: float
    count: int

    @property
    def limit(self) -> float:
        return _LARGEST_TILT / self.slope

    def logarithm(self, z: Complex) -> tuple[Complex, Array]:
        w = self.slope * z
        moment = erfcx(-math.sqrt(0.5) * w)
        # The two terms of erfcx on this side of the plane.
        size = 2.0 * np.abs(np.exp(0.5 * w * w)) + 1.0
        return _powered(self, z, moment, size)

    def log_bound(self, theta: float, t: float) -> float:
        tilt = self.slope * theta
        variation = 4.0 / _ROOT_2PI * math.exp(0.5 * tilt * tilt)
        return self.count * _log_smooth(self.shift, self.slope, theta, t, variation)


@final
@dataclass(frozen=True)
class PlaneMoments(Moments):
    """Loss ``shift + slope^2/2 + slope V`` with the V of ``plane_law``.

    Notes
    -----
    The density of V has three pieces, ``v exp(-v^2/2)`` before the bend and
    ``2 phi(v) + step 4 v exp(-2 (v^2 - 3))`` after it. Times ``exp(v Re w)`` each has one
    maximum, which bounds the variation.
    """

    shift: float
    slope: float
    count: int

    @property
    def limit(self) -> float:
        return _LARGEST_TILT / self.slope

    def logarithm(self, z: Complex) -> tuple[Complex, Array]:
        w = self.slope * z
        a, decay = PLANE_BEND, PLANE_DECAY
        bridge = PLANE_STEP * math.exp(0.5 * decay * a * a)
        parts = (
            *_steep(w, 0.0, 1.0, 1.0),
            *_steep(w, a, 1.0, -1.0),
            2.0 / _ROOT_2PI * _normal(w, a, 1.0),
            *_steep(w, a, decay, bridge),
        )
        # What erfcx is off is bounded by its two terms, as for the line.
        size = 2.0 * np.abs(w * np.exp(0.5 * w * w)) + sum(np.abs(part) for part in parts)
        return _powered(self, z, np.asarray(sum(parts)), size)

    def log_bound(self, theta: float, t: float) -> float:
        tilt, a, decay = self.slope * theta, PLANE_BEND, PLANE_DECAY
        first = min(0.5 * (tilt + math.sqrt(tilt * tilt + 4.0)), a)
        second = max(a, tilt)
        third = max(0.5 * (tilt + math.sqrt(tilt * tilt + 4.0 * decay)) / decay, a)
        heights = (
            first * math.exp(first * (tilt - 0.5 * first)),
            2.0 / _ROOT_2PI * math.exp(second * (tilt - 0.5 * second)),
            PLANE_STEP * decay * third * math.exp(third * tilt - 0.5 * decay * (third**2 - a * a)),
        )
        return self.count * _log_smooth(self.shift, self.slope, theta, t, 2.0 * sum(heights))


def _powered(
    moments: LineMoments | PlaneMoments, z: Complex, moment: Complex, size: Array
) -> tuple[Complex, Array]:
    """From the moment of the random part of one loss to the logarithm for all losses."""
    constant = moments.shift + 0.5 * moments.slope**2
    logarithm = moments.count * (np.log(moment) + z * constant)
    return np.asarray(logarithm), np.asarray(_ERFCX * moments.count * size / np.abs(moment))


def _log_smooth(shift: float, slope: float, theta: float, t: float, variation: float) -> float:
    """Bound for a loss whose tilted density has this variation."""
    return theta * (shift + 0.5 * slope * slope) + math.log(variation / (slope * t))


def _normal(w: Complex, v: float, decay: float) -> Complex:
    """Integral of ``exp(w x - decay x^2/2)`` from v on."""
    root = math.sqrt(2.0 * decay)
    front = math.sqrt(0.5 * math.pi / decay) * np.exp(w * v - 0.5 * decay * v * v)
    return np.asarray(front * erfcx((decay * v - w) / root))


def _steep(w: Complex, v: float, decay: float, factor: float) -> tuple[Complex, Complex]:
    """Two parts of ``factor`` times the integral of ``decay x exp(w x - decay x^2/2)`` from v."""
    edge = factor * np.exp(w * v - 0.5 * decay * v * v)
    return np.asarray(edge), np.asarray(factor * w * _normal(w, v, decay))
