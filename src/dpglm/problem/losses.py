"""Convex losses of two classes and of real targets: logistic, squared, Huber, pinball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real, namespace
from dpglm.problem.links import FloatArray, IdentityLink, LogitLink, sigmoid
from dpglm.problem.loss import ConvexScalarLoss, Target


@final
@dataclass(frozen=True)
class Logistic(ConvexScalarLoss):
    """``log(1 + exp(-y z))``: z is the log odds of +1.

    Slope bound 1, smoothness 1/4.

    Examples
    --------
    >>> Logistic().slope([0.0, 1e4], [1, -1]).tolist()
    [-0.5, 1.0]
    >>> Logistic().smoothness
    0.25
    """

    target = Target.BINARY
    link = LogitLink()
    nonnegative = True
    dispersion = 1.0
    canonical = True

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1 - mean)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return np.logaddexp(0, -y * z)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        xp = namespace(z)
        g: FloatArray = y * z
        # Overflow to inf gives the right limit 0, to full relative precision on the way.
        with np.errstate(over="ignore", under="ignore"):
            xp.exp(g, out=g)
            xp.subtract(-1, g, out=g)
            xp.divide(y, g, out=g)
        return g

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return sigmoid(z) * sigmoid(-z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1 / (1 + math.exp(-z_bound))

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 0.25

    def _smoothness_below(self, limit: float, z_bound: float, y_low: float, y_high: float) -> float:
        # The curvature is u (1 - u) where u = |slope| runs over [lowest, highest].
        highest = 1 / (1 + math.exp(-z_bound))
        lowest = 1 - highest
        if limit < lowest:
            return 0.0
        u = min(0.5, highest, limit)
        return u * (1 - u)

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        u = -slope * y
        result: FloatArray = y * (np.log1p(-u) - np.log(u))
        return result


@final
@dataclass(frozen=True)
class Squared(ConvexScalarLoss):
    """``(z - y)^2 / 2``: smoothness 1, no slope bound unless z and y are bounded.

    Examples
    --------
    >>> Squared().slope_bound_on(1.0, y_low=0.0, y_high=5.0)
    6.0
    """

    target = Target.REAL
    link = IdentityLink()
    nonnegative = True
    canonical = True

    def variance(self, mean: FloatArray) -> FloatArray:
        return np.ones_like(mean)

    def for_scaled_targets(self, scale: float) -> Squared:
        return self

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        r: FloatArray = z - y
        r *= r
        r *= 0.5
        return r

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return z - y

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return np.ones_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return z_bound + max(-y_low, y_high)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y + slope


@final
@dataclass(frozen=True)
class Huber(ConvexScalarLoss):
    """``r^2 / 2`` for ``|r| <= threshold``, continued linearly, with ``r = z - y``.

    Slope bound ``threshold``, smoothness 1. It is the clipped squared loss.

    Parameters
    ----------
    threshold : float, default 1.35
        Positive, in the units of the target.

    Examples
    --------
    >>> Huber(threshold=2.0).value([1.0, 10.0], [0.0, 0.0]).tolist()
    [0.5, 18.0]
    """

    threshold: float = 1.35

    target = Target.REAL
    link = IdentityLink()
    nonnegative = True

    def __post_init__(self) -> None:
        check_real("threshold", self.threshold, above=0.0)

    def for_scaled_targets(self, scale: float) -> Huber:
        return Huber(self.threshold / scale)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        r = z - y
        s = np.clip(r, -self.threshold, self.threshold)
        return s * (r - s / 2)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        r: FloatArray = z - y
        namespace(z).clip(r, -self.threshold, self.threshold, out=r)
        return r

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        inside: NDArray[np.bool_] = np.abs(z - y) <= self.threshold
        return inside.astype(z.dtype)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return min(self.threshold, z_bound + max(-y_low, y_high))

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        smallest_residual = max(0.0, y_low - z_bound, -z_bound - y_high)
        return 1.0 if smallest_residual <= self.threshold else 0.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y + slope


@final
@dataclass(frozen=True)
class Pinball(ConvexScalarLoss):
    """``q (y - z)`` below the target and ``(1 - q) (z - y)`` above it: z is the q-th quantile.

    Slope bound ``max(q, 1 - q)``; not smooth where the prediction is the target.

    Parameters
    ----------
    quantile : float, default 0.5
        Between 0 and 1, both excluded; 0.5 is half the absolute error.

    References
    ----------
    .. [1] R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 46, 1978.

    Examples
    --------
    >>> Pinball(0.9).value([0.0, 2.0], [1.0, 1.0]).round(2).tolist()
    [0.9, 0.1]
    """

    quantile: float = 0.5

    target = Target.REAL
    link = IdentityLink()
    nonnegative = True

    def __post_init__(self) -> None:
        check_real("quantile", self.quantile, above=0.0, below=1.0)

    def for_scaled_targets(self, scale: float) -> Pinball:
        return self

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        r = z - y
        return np.maximum((1 - self.quantile) * r, -self.quantile * r)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        xp = namespace(z)
        r = z - y
        slope: FloatArray = xp.astype(r > 0, z.dtype)
        slope *= 1 - self.quantile
        slope -= self.quantile * xp.astype(r < 0, z.dtype)
        return slope

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return np.zeros_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        below = self.quantile if -z_bound < y_high else 0.0
        above = 1 - self.quantile if z_bound > y_low else 0.0
        return max(below, above)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        jumps = z_bound > 0 and -z_bound <= y_high and y_low <= z_bound
        return math.inf if jumps else 0.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y.copy()


# Losses of linear support vector classifiers: the hinge, squared and smoothed.


@final
@dataclass(frozen=True)
class Hinge(ConvexScalarLoss):
    """``max(0, 1 - y z)``: slope bound 1, not smooth where the margin ``y z`` is 1.

    Examples
    --------
    >>> Hinge().slope([0.0, 2.0], [1, 1]).tolist()
    [-1.0, -0.0]
    """

    target = Target.BINARY
    link = None
    nonnegative = True

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return np.maximum(1 - y * z, 0)

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return -y * (y * z < 1)

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return np.zeros_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 0.0 if z_bound < 1 else math.inf

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y.copy()


@final
@dataclass(frozen=True)
class SquaredHinge(ConvexScalarLoss):
    """``max(0, 1 - y z)^2``, scikit-learn's ``squared_hinge``: smoothness 2, no slope bound.

    Examples
    --------
    >>> SquaredHinge().slope_bound_on(3.0, -1, 1)
    8.0
    """

    target = Target.BINARY
    link = None
    nonnegative = True

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = np.maximum(1 - y * z, 0)
        result *= result
        return result

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = namespace(z).maximum(1 - y * z, 0)
        result *= -2 * y
        return result

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return 2 * (y * z <= 1).astype(z.dtype)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 2 * (1 + z_bound)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 2.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y + slope / 2


@final
@dataclass(frozen=True)
class SmoothedHinge(ConvexScalarLoss):
    """The hinge with its kink replaced by a parabola on margins ``1 - width <= y z <= 1``.

    ``max(0, 1 - m)^2 / (2 width)`` there, ``1 - m - width / 2`` below. Slope bound 1,
    smoothness ``1 / width``; ``width = 1`` is the smooth hinge of [1]_.

    Parameters
    ----------
    width : float, default 1.0
        Positive, in units of the margin.

    References
    ----------
    .. [1] J. Rennie, "Smooth Hinge Classification", 2005; with a width: S. Shalev-Shwartz and
       T. Zhang, "Stochastic Dual Coordinate Ascent Methods", JMLR 14, 2013.

    Examples
    --------
    >>> SmoothedHinge(width=0.5).slope([0.0, 0.75, 2.0], [1, 1, 1]).tolist()
    [-1.0, -0.5, -0.0]
    """

    width: float = 1.0

    target = Target.BINARY
    link = None
    nonnegative = True

    def __post_init__(self) -> None:
        check_real("width", self.width, above=0.0)

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        r = 1 - y * z
        s = np.clip(r, 0, self.width)
        return s * (r - s / 2) / self.width

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        s: FloatArray = 1 - y * z
        namespace(z).clip(s, 0, self.width, out=s)
        s *= y
        s /= -self.width
        return s

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        r = 1 - y * z
        result: FloatArray = ((r >= 0) & (r <= self.width)).astype(z.dtype)
        result /= self.width
        return result

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return min(1.0, (1 + z_bound) / self.width)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1 / self.width if 1 - self.width <= z_bound else 0.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y * (1 + self.width * slope * y)
