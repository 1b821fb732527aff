"""Convex losses of proportions, labels 0 and 1 among them: logit, probit, complementary log-log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import log_ndtr

from dpglm._validation import namespace
from dpglm.problem.links import (
    EXPONENT_LIMIT,
    ComplementaryLogLogLink,
    FloatArray,
    LogitLink,
    ProbitLink,
    exp_or_inf,
    exp_or_zero,
    exp_with_tangent,
    increasing_root,
    limited_exp,
    product,
    scaled_erfc,
    sigmoid,
)
from dpglm.problem.loss import ConvexScalarLoss, Target

# Below this score u = exp(z) is so small that log(1 - exp(-u)) is z - u/2.
_FAR_BELOW = -20.0

# Where u = exp(z) makes the curvature of -log(1 - exp(-u)) largest.
_MOST_CURVED = 1.860470923


@final
@dataclass(frozen=True)
class Binomial(ConvexScalarLoss):
    """``log(1 + exp(z)) - y z`` for proportions y, with mean ``1 / (1 + exp(-z))``.

    The negative log-likelihood of a share y of successes, per trial: a row of m trials has the
    weight m. At y = 0 and y = 1 it is ``Logistic``. Slope bound 1, smoothness 1/4.

    Examples
    --------
    >>> Binomial().slope([0.0, 0.0], [0.25, 1.0]).tolist()
    [0.25, -0.5]
    """

    target = Target.PROPORTION
    link = LogitLink()
    nonnegative = True
    canonical = True
    dispersion = 1.0

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1 - mean)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return np.logaddexp(0, z) - y * z

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        mean = sigmoid(z)
        mean -= y
        return mean

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return sigmoid(z) * sigmoid(-z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        highest = 1 / (1 + math.exp(-z_bound))
        return max(highest - y_low, y_high - (1 - highest))

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 0.25

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        mean = slope + y
        return np.log(mean) - np.log1p(-mean)


@final
@dataclass(frozen=True)
class Probit(ConvexScalarLoss):
    """``-y log Phi(z) - (1 - y) log Phi(-z)`` for proportions y, with mean ``Phi(z)``.

    The negative log-likelihood, per trial, where a trial succeeds if a standard normal variable is
    below z. The curvature is less than 1; the slope grows like z, so it is unbounded unless z is
    bounded.

    Examples
    --------
    >>> Probit().slope([0.0, -40.0], [1.0, 1.0]).round(3).tolist()
    [-0.798, -40.025]
    """

    target = Target.PROPORTION
    link = ProbitLink()
    nonnegative = True
    dispersion = 1.0

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1 - mean)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return -y * log_ndtr(z) - (1 - y) * log_ndtr(-z)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        result = (1 - y) * _hazard(z)
        result -= y * _hazard(-z)
        return result

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return y * _hazard_slope(-z) + (1 - y) * _hazard_slope(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # The slope grows with z and falls with y.
        if math.isinf(z_bound):
            return math.inf if y_low < 1 or y_high > 0 else 0.0
        high, low = (float(one) for one in _hazard(np.array([z_bound, -z_bound])))
        return max((1 - y_low) * high - y_low * low, y_high * high - (1 - y_high) * low)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # The hazard's slope grows with its argument.
        return float(_hazard_slope(np.array([z_bound]))[0]) if math.isfinite(z_bound) else 1.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        # Beyond 40 a hazard is 0 on one side and more than its argument on the other.
        with np.errstate(divide="ignore", invalid="ignore"):
            low = -40 - np.where(y > 0, np.maximum(-slope, 0) / y, 0)
            high = 40 + np.where(y < 1, np.maximum(slope, 0) / (1 - y), 0)
        return increasing_root(lambda z: self._slope(z, y), slope, low, high)


@final
@dataclass(frozen=True)
class ComplementaryLogLog(ConvexScalarLoss):
    """``-y log(1 - exp(-exp(z))) + (1 - y) exp(z)`` for proportions y.

    The mean is ``1 - exp(-exp(z))``: the chance that a Poisson number with mean ``exp(z)`` is not
    zero, or that an event under proportional hazards has happened within an interval. The slope
    lies between -1 and ``exp(z)``; where it is clipped at c the curvature is at most ``1 + c``.

    Notes
    -----
    Above z = 40 (float32) or 300 (float64) the exponential is replaced by its tangent, as in
    ``Poisson``.

    Examples
    --------
    >>> ComplementaryLogLog().slope([0.0, 0.0], [0.0, 1.0]).round(3).tolist()
    [1.0, -0.582]
    """

    target = Target.PROPORTION
    link = ComplementaryLogLogLink()
    nonnegative = True
    dispersion = 1.0

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1 - mean)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        u = limited_exp(z)
        near = -np.expm1(-np.where(z < _FAR_BELOW, 1, u))
        happened = np.where(z < _FAR_BELOW, u / 2 - z, -np.log(near))
        return y * happened + (1 - y) * exp_with_tangent(z)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        u = limited_exp(z)
        share = _share(u)
        share *= -y
        share += (1 - y) * u
        return share

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        u = limited_exp(z)
        share = _share(u)
        happened = np.maximum(share * (u + share - 1), 0)
        return y * happened + (1 - y) * exp_or_zero(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # The slope grows with z and falls with y.
        most, least = exp_or_inf(z_bound), math.exp(-z_bound)
        high, low = _share_of(most), _share_of(least)
        return max(
            product(1 - y_low, most) - y_low * high,
            y_high * low - (1 - y_high) * least,
        )

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # With u = exp(z), h = u / (exp(u) - 1) the curvature is y h (u + h - 1) + (1 - y) u, which
        # falls with y; its first part grows up to u = _MOST_CURVED.
        u = exp_or_inf(z_bound)
        least = min(u, _MOST_CURVED)
        share = _share_of(least)
        return y_low * share * (least + share - 1) + product(1 - y_low, u)

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        # As (1 - y) u is slope + y h, the curvature is slope + y h (u + h), and
        # h (u + h) = (u / (2 sinh(u/2)))^2 is at most 1.
        return slope_limit + y_high

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return increasing_root(lambda z: self._slope(z, y), slope, -745.0, EXPONENT_LIMIT[8])


def _hazard(z: FloatArray) -> FloatArray:
    """``phi(z) / (1 - Phi(z))``, the hazard rate of a standard normal variable, in a new array."""
    ratio = scaled_erfc(z / math.sqrt(2))
    # It overflows far below 0, where the hazard is 0.
    return math.sqrt(2 / math.pi) / ratio


def _hazard_slope(z: FloatArray) -> FloatArray:
    """Differentiate the hazard h: ``h (h - z)``, within 0 and 1; by its asymptote far above 0."""
    hazard = _hazard(z)
    far = np.maximum(z, 30)
    return np.where(z > 30, 1 - far**-2 + 6 * far**-4, hazard * (hazard - np.minimum(z, 30)))


def _share(u: FloatArray) -> FloatArray:
    """``u / (exp(u) - 1)`` for u of at least 0, in a new array."""
    xp = namespace(u)
    # It is 1 at 0; beyond 80 it is less than 1e-32.
    within: FloatArray = xp.clip(u, 1e-30, 80)
    within /= xp.expm1(within)
    return within


def _share_of(u: float) -> float:
    return float(_share(np.array([u]))[0])
