"""Convex losses of families with a mean: proportions, counts and amounts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import log_ndtr

from dpglm._validation import check_real, namespace
from dpglm.problem.links import (
    EXPONENT_LIMIT,
    ComplementaryLogLogLink,
    FloatArray,
    LogitLink,
    LogLink,
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


# Losses with a log link.


@final
@dataclass(frozen=True)
class Poisson(ConvexScalarLoss):
    """``exp(z) - y z`` for targets of at least 0, with mean ``exp(z)``.

    Neither slope nor curvature is bounded unless z is. Where the slope is clipped at c the
    curvature ``exp(z) = slope + y`` is at most ``c + y``, so the clipped loss is smooth for
    bounded targets.

    Parameters
    ----------
    dispersion : float or None, default 1.0
        Variance of a target over its mean, positive: 1 for counts, 1/s for counts divided by s;
        None where it is not known (quasi-Poisson). Neither the loss nor its constants depend on it.

    Notes
    -----
    Above z = 40 (float32) or 300 (float64) the exponential is replaced by its tangent, which
    keeps every result finite and the loss convex, so that an extreme row is clipped like any
    other instead of turning into inf or NaN. The link is constant there. The declared
    constants are those of the exact exponential and remain upper bounds.

    Examples
    --------
    >>> Poisson().slope([0.0], [3.0]).tolist()
    [-2.0]
    >>> Poisson().smoothness_below(2.0, z_bound=float("inf"), y_low=0.0, y_high=10.0)
    12.0
    """

    dispersion: float | None = 1.0

    target = Target.COUNT
    link = LogLink()
    nonnegative = False
    canonical = True

    def __post_init__(self) -> None:
        if self.dispersion is not None:
            check_real("dispersion", self.dispersion, above=0.0)

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean.copy()

    def for_scaled_targets(self, scale: float) -> Poisson:
        return self if self.dispersion is None else Poisson(self.dispersion / scale)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return exp_with_tangent(z) - y * z

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        e = limited_exp(z)
        e -= y
        return e

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return exp_or_zero(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return max(exp_or_inf(z_bound) - y_low, y_high - math.exp(-z_bound))

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return exp_or_inf(z_bound)

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        largest = limit + y_high
        return largest if largest >= math.exp(-z_bound) else 0.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return np.log(slope + y)


@final
@dataclass(frozen=True)
class Gamma(ConvexScalarLoss):
    """``z + y exp(-z)`` for targets above 0, with mean ``exp(z)``: half the gamma deviance.

    Up to a constant; the variance of a target is proportional to the square of its mean. The
    slope ``1 - y exp(-z)`` is at most 1 and is unbounded below unless z is bounded; the curvature
    is ``1 - slope``, so the loss clipped at slope c is smooth with ``1 + c``, whatever
    the targets are. Below z = -40 (float32) or -300 (float64) the exponential is replaced by its
    tangent, as in ``Poisson``.

    Examples
    --------
    >>> Gamma().slope([0.0], [3.0]).tolist()
    [-2.0]
    """

    target = Target.POSITIVE
    link = LogLink()
    nonnegative = False

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * mean

    def for_scaled_targets(self, scale: float) -> Gamma:
        return self

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return z + y * exp_with_tangent(-z)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        e = limited_exp(-z)
        e *= -y
        e += 1
        return e

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        e = exp_or_zero(-z)
        e *= y
        return e

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return max(1 - y_low * math.exp(-z_bound), product(y_high, exp_or_inf(z_bound)) - 1)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return product(y_high, exp_or_inf(z_bound))

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        return 1 + limit

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return np.log(y) - np.log1p(-slope)


@final
@dataclass(frozen=True)
class Tweedie(ConvexScalarLoss):
    """``exp((2 - p) z) / (2 - p) + y exp(-(p - 1) z) / (p - 1)`` for targets of at least 0.

    Half the deviance of Tweedie's family with power p between 1 (Poisson) and 2 (gamma), up to a
    constant: sums of a Poisson number of gamma variables, such as yearly claims. The mean is
    ``exp(z)``, the variance proportional to its p-th power. Neither slope nor curvature is bounded
    unless z is. Large exponentials are replaced by their tangents, as in ``Poisson``.

    Parameters
    ----------
    power : float, default 1.5
        Between 1 and 2, both excluded: use ``Poisson`` and ``Gamma`` there.

    Examples
    --------
    >>> Tweedie(1.5).slope([0.0], [3.0]).tolist()
    [-2.0]
    """

    power: float = 1.5

    target = Target.COUNT
    link = LogLink()
    nonnegative = True

    def __post_init__(self) -> None:
        check_real("power", self.power, above=1.0, below=2.0)

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean**self.power

    def for_scaled_targets(self, scale: float) -> Tweedie:
        return self

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        up, down = 2 - self.power, self.power - 1
        result: FloatArray = exp_with_tangent(up * z) / up
        result += y * exp_with_tangent(-down * z) / down
        return result

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        e = limited_exp((2 - self.power) * z)
        e -= y * limited_exp((1 - self.power) * z)
        return e

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        up, down = 2 - self.power, self.power - 1
        result: FloatArray = up * exp_or_zero(up * z)
        result += down * y * exp_or_zero(-down * z)
        return result

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # The slope grows with z and falls with y.
        up, down = (2 - self.power) * z_bound, (self.power - 1) * z_bound
        return max(
            exp_or_inf(up) - y_low * math.exp(-down),
            product(y_high, exp_or_inf(down)) - math.exp(-up),
        )

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # The curvature is convex in z, so it is largest at one of the ends; it grows with y.
        up, down = 2 - self.power, self.power - 1
        return max(
            up * exp_or_inf(up * side) + down * product(y_high, exp_or_inf(-down * side))
            for side in (z_bound, -z_bound)
        )

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        # With a = exp((2 - p) z) the curvature is a - (p - 1) slope. At a given slope z grows with
        # y, so the largest y counts; along z the curvature is convex, so an end of the slopes does.
        if math.isinf(y_high) or math.isinf(limit):
            return math.inf
        if y_high == 0.0:
            return (2 - self.power) * limit
        ends = np.array([-limit, limit])
        z = self.slope_inverse(ends, np.full(2, y_high))
        largest = np.exp((2 - self.power) * z) - (self.power - 1) * ends
        return float(largest.max()) * (1 + 1e-9)

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        reach = EXPONENT_LIMIT[8] / min(2 - self.power, self.power - 1)
        return increasing_root(lambda z: self._slope(z, y), slope, -reach, reach)


@final
@dataclass(frozen=True)
class NegativeBinomial(ConvexScalarLoss):
    """``(y + 1/alpha) log(1 + alpha exp(z)) - y z`` for counts, with mean ``exp(z)``.

    The negative log-likelihood of counts that vary more than Poisson ones, up to a constant: the
    variance at mean m is ``m + alpha m^2`` (known as NB2). The slope
    ``(exp(z) - y) / (1 + alpha exp(z))`` lies between -y and ``1/alpha``, so it is bounded for
    bounded targets, and the curvature is at most ``(y + 1/alpha) / 4``.

    Parameters
    ----------
    alpha : float, default 1.0
        Declared, not fitted: 0 would be ``Poisson``; positive.
    dispersion : float, default 1.0
        Variance of a target over ``m + alpha m^2``, positive: 1 for counts; counts divided by s
        have 1/s, with s times their alpha. Neither the loss nor its constants depend on it.

    References
    ----------
    .. [1] A. C. Cameron and P. K. Trivedi, "Regression Analysis of Count Data", 2nd edition, 2013,
       section 3.3.

    Examples
    --------
    >>> NegativeBinomial(0.5).slope_bound_on(float("inf"), y_low=0.0, y_high=1.0)
    2.0
    """

    alpha: float = 1.0
    dispersion: float = 1.0

    target = Target.COUNT
    link = LogLink()

    def __post_init__(self) -> None:
        check_real("alpha", self.alpha, above=0.0)
        check_real("dispersion", self.dispersion, above=0.0)

    @property
    def constants(self) -> Mapping[str, float]:
        return {"dispersion": self.alpha}

    @property
    def nonnegative(self) -> bool:
        # (1 + alpha m) / m exceeds alpha and comes as near to it as one likes.
        return self.alpha >= 1.0

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean + self.alpha * mean * mean

    def for_scaled_targets(self, scale: float) -> NegativeBinomial:
        return NegativeBinomial(self.alpha * scale, self.dispersion / scale)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = (y + 1 / self.alpha) * np.logaddexp(0, z + math.log(self.alpha))
        result -= y * z
        return result

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        # Without the sum z + log(alpha), with a rounding error that grows with the logarithm.
        xp = namespace(z)
        share: FloatArray = xp.negative(z)
        with np.errstate(over="ignore", under="ignore"):
            xp.exp(share, out=share)
            share /= self.alpha
            share += 1
            xp.reciprocal(share, out=share)
        share *= y + 1 / self.alpha
        share -= y
        return share

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        u = z + math.log(self.alpha)
        result: FloatArray = sigmoid(u) * sigmoid(-u)
        result *= y + 1 / self.alpha
        return result

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # The slope grows with z and falls with y.
        high, low = self._share(z_bound), self._share(-z_bound)
        return max(
            high / self.alpha - product(y_low, 1 - high),
            product(y_high, 1 - low) - low / self.alpha,
        )

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        steepest = -math.log(self.alpha)
        share = self._share(min(max(steepest, -z_bound), z_bound))
        return product(y_high + 1 / self.alpha, share * (1 - share))

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        # With t = alpha m / (1 + alpha m) it is t (1/alpha - slope), and (1 - t) (y + slope).
        return min(1 / self.alpha, y_high) + limit

    def _share(self, z: float) -> float:
        """``alpha m / (1 + alpha m)`` at the score z."""
        return 1 / (1 + exp_or_inf(-z - math.log(self.alpha)))

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        # The slope is (m - y) / (1 + alpha m).
        result: FloatArray = np.log(slope + y) - np.log1p(-self.alpha * slope)
        return result


class _OfProportions(ConvexScalarLoss):
    """A loss of proportions, labels 0 and 1 among them."""

    target = Target.PROPORTION
    nonnegative = True
    dispersion = 1.0

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1 - mean)


@final
@dataclass(frozen=True)
class Binomial(_OfProportions):
    """``log(1 + exp(z)) - y z`` for proportions y, with mean ``1 / (1 + exp(-z))``.

    The negative log-likelihood of a share y of successes, per trial: a row of m trials has the
    weight m. At y = 0 and y = 1 it is ``Logistic``. Slope bound 1, smoothness 1/4.

    Examples
    --------
    >>> Binomial().slope([0.0, 0.0], [0.25, 1.0]).tolist()
    [0.25, -0.5]
    """

    link = LogitLink()
    canonical = True

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
class Probit(_OfProportions):
    """``-y log Phi(z) - (1 - y) log Phi(-z)`` for proportions y, with mean ``Phi(z)``.

    The negative log-likelihood, per trial, where a trial succeeds if a standard normal variable is
    below z. The curvature is less than 1; the slope grows like z, so it is unbounded unless z is
    bounded.

    Examples
    --------
    >>> Probit().slope([0.0, -40.0], [1.0, 1.0]).round(3).tolist()
    [-0.798, -40.025]
    """

    link = ProbitLink()

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
class ComplementaryLogLog(_OfProportions):
    """``-y log(1 - exp(-exp(z))) + (1 - y) exp(z)`` for proportions y.

    The mean is ``1 - exp(-exp(z))``: the chance that a Poisson number with mean ``exp(z)`` is not
    zero, or that an event under proportional hazards has happened within an interval. The slope
    lies between -1 and ``exp(z)``; where it is clipped at c the curvature is at most ``1 + c``.
    Large exponentials are replaced by their tangents, as in ``Poisson``.

    Examples
    --------
    >>> ComplementaryLogLog().slope([0.0, 0.0], [0.0, 1.0]).round(3).tolist()
    [1.0, -0.582]
    """

    link = ComplementaryLogLogLink()

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

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        # As (1 - y) u is slope + y h, the curvature is slope + y h (u + h), and
        # h (u + h) = (u / (2 sinh(u/2)))^2 is at most 1.
        return limit + y_high

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
