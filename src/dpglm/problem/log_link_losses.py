"""Convex losses with a log link, for counts and amounts: Poisson, gamma, Tweedie and their kin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_real, namespace
from dpglm.problem.links import (
    EXPONENT_LIMIT,
    FloatArray,
    LogLink,
    exp_or_inf,
    exp_or_zero,
    exp_with_tangent,
    increasing_root,
    limited_exp,
    product,
    sigmoid,
)
from dpglm.problem.loss import ConvexScalarLoss, Target


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

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        largest = slope_limit + y_high
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
    the targets are.

    Notes
    -----
    Below z = -40 (float32) or -300 (float64) the exponential is replaced by its tangent, as in
    ``Poisson``.

    Examples
    --------
    >>> Gamma().slope([0.0], [3.0]).tolist()
    [-2.0]
    >>> Gamma().smoothness_below(2.0, z_bound=float("inf"), y_low=0.0, y_high=10.0)
    3.0
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

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        return 1 + slope_limit

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return np.log(y) - np.log1p(-slope)


@final
@dataclass(frozen=True)
class Tweedie(ConvexScalarLoss):
    """``exp((2 - p) z) / (2 - p) + y exp(-(p - 1) z) / (p - 1)`` for targets of at least 0.

    Half the deviance of Tweedie's family with power p between 1 (Poisson) and 2 (gamma), up to a
    constant: sums of a Poisson number of gamma variables, such as yearly claims. The mean is
    ``exp(z)``, the variance proportional to its p-th power. Neither slope nor curvature is bounded
    unless z is.

    Parameters
    ----------
    power : float, default 1.5
        Between 1 and 2, both excluded: use ``Poisson`` and ``Gamma`` there.

    Notes
    -----
    Where an exponent exceeds 40 (float32) or 300 (float64), its exponential is replaced by its
    tangent, as in ``Poisson``.

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

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        # With a = exp((2 - p) z) the curvature is a - (p - 1) slope. At a given slope z grows with
        # y, so the largest y counts; along z the curvature is convex, so an end of the slopes does.
        if math.isinf(y_high) or math.isinf(slope_limit):
            return math.inf
        if y_high == 0.0:
            return (2 - self.power) * slope_limit
        ends = np.array([-slope_limit, slope_limit])
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

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        # With t = alpha m / (1 + alpha m) it is t (1/alpha - slope), and (1 - t) (y + slope).
        return min(1 / self.alpha, y_high) + slope_limit

    def _share(self, z: float) -> float:
        """``alpha m / (1 + alpha m)`` at the score z."""
        return 1 / (1 + exp_or_inf(-z - math.log(self.alpha)))

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        # The slope is (m - y) / (1 + alpha m).
        result: FloatArray = np.log(slope + y) - np.log1p(-self.alpha * slope)
        return result
