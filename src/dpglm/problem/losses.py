"""Convex losses of classes and of real targets: logistic, softmax, squared, Huber, pinball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._arrays import namespace
from dpglm._validation import check_real
from dpglm.problem._checks import class_inputs
from dpglm.problem._functions import (
    FloatArray,
    sigmoid,
    softmax_by_class,
)
from dpglm.problem.links import IdentityLink, LogitLink, SoftmaxLink
from dpglm.problem.loss import ConvexScalarLoss, Loss, Target

__all__ = [
    "ConvexScalarLoss",
    "Huber",
    "Logistic",
    "Loss",
    "Pinball",
    "Softmax",
    "Squared",
    "SquaredCodes",
    "Target",
]


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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.logaddexp(0, -y * z)

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        xp = namespace(z)
        g: FloatArray = y * z
        # Overflow to inf gives the right limit 0, to full relative precision on the way.
        with np.errstate(over="ignore", under="ignore"):
            xp.exp(g, out=g)
            xp.subtract(-1, g, out=g)
            xp.divide(y, g, out=g)
        return g

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return sigmoid(z) * sigmoid(-z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1 / (1 + math.exp(-z_bound))

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 0.25

    def _smoothness_below(
        self, slope_limit: float, z_bound: float, y_low: float, y_high: float
    ) -> float:
        # The curvature is u (1 - u) where u = |slope| runs over [lowest, highest].
        highest = 1 / (1 + math.exp(-z_bound))
        lowest = 1 - highest
        if slope_limit < lowest:
            return 0.0
        u = min(0.5, highest, slope_limit)
        return u * (1 - u)

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        u = -slope * y
        result: FloatArray = y * (np.log1p(-u) - np.log(u))
        return result


@final
@dataclass(frozen=True)
class Softmax(Loss):
    """Multinomial logistic loss ``log sum_k exp(z_k) - z_y`` for z of shape (n, K), K >= 2.

    Slope bound sqrt(2) (the limit where all the mass is on one wrong class), smoothness 1/2.
    Targets are integers 0, ..., K - 1.

    Notes
    -----
    ``z_bound`` bounds the L2 norm of a row of z. As K is not a part of the loss, the constants
    hold for every K: ``slope_bound_on`` is the upper bound ``min(sqrt(2), 1 + z_bound / 2)``
    (at z = 0 the norm is ``sqrt(1 - 1/K)``, and the slope is 1/2-Lipschitz), ``smoothness_on``
    is attained for K = 2.

    Privacy: the row gradient, a K x d matrix, has Frobenius norm up to ``sqrt(2) |x|``, not
    ``|x|``. Rescaled to a clip norm it is, for K >= 3, not the gradient of any function [1]_,
    so results that need a (convex) objective do not hold for a softmax that is really clipped.

    References
    ----------
    .. [1] S. Song, T. Steinke, O. Thakkar, A. Thakurta, "Evading the Curse of Dimensionality in
       Unconstrained Private GLMs", AISTATS 2021, Theorem 5.3.

    Examples
    --------
    >>> Softmax().slope([[0.0, 0.0]], [1]).tolist()
    [[0.5, -0.5]]
    """

    target = Target.CLASS
    link = SoftmaxLink()
    convex = True
    nonnegative = True
    dispersion = 1.0
    canonical = True

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        s = np.array(z.T, order="C")
        s -= s.max(axis=0)
        own = s[y, np.arange(y.size)]
        np.exp(s, out=s)
        result: FloatArray = np.log(s.sum(axis=0)) - own
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        p = softmax_by_class(z)
        p[y, namespace(z).arange(len(y), device=y.device)] -= 1
        return p.T

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        p = softmax_by_class(z)
        p -= p * p
        return p.T

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return min(math.sqrt(2), 1 + z_bound / 2)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 0.5

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        return class_inputs(z, y)


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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        r: FloatArray = z - y
        r *= r
        r *= 0.5
        return r

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        result: FloatArray = z - y
        return result

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.ones_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return z_bound + max(-y_low, y_high)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def slope_inverse(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return y + slope


@final
@dataclass(frozen=True)
class SquaredCodes(Loss):
    """``|z - c_y|^2 / 2`` for z of shape (n, K), K >= 2: least squares of the classes' codes.

    The code ``c_y`` is 1 at the class y and 0 elsewhere, less ``1/K`` everywhere, so that scores of
    zero are the same for all classes. Least-squares coefficients are those of any other code that
    tells the class from the rest, up to a factor and an intercept.

    Notes
    -----
    ``z_bound`` bounds the L2 norm of a row of z. ``slope_bound_on`` is the upper bound
    ``z_bound + 1``, for every K: codes have the length ``sqrt(1 - 1/K)``. Smoothness 1.

    Privacy: a code is shorter than 1 whatever K is, so that what a row adds to
    ``sum x c_y^T`` is shorter than the row.

    Examples
    --------
    >>> SquaredCodes().slope([[0.0, 0.0]], [1]).tolist()
    [[0.5, -0.5]]
    """

    target = Target.CLASS
    link = None
    convex = True
    nonnegative = True
    of_codes = True

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        r = self._slope(z, y)
        result: FloatArray = 0.5 * (r * r).sum(axis=1)
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        slope: FloatArray = z + 1.0 / z.shape[1]
        slope[namespace(z).arange(len(y), device=y.device), y] -= 1.0
        return slope

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.ones_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return z_bound + 1.0

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        return class_inputs(z, y)


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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        r = z - y
        s = np.clip(r, -self.threshold, self.threshold)
        result: FloatArray = s * (r - s / 2)
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        r: FloatArray = z - y
        namespace(z).clip(r, -self.threshold, self.threshold, out=r)
        return r

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        r = z - y
        result: FloatArray = np.maximum((1 - self.quantile) * r, -self.quantile * r)
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        xp = namespace(z)
        r = z - y
        slope: FloatArray = xp.astype(r > 0, z.dtype)
        slope *= 1 - self.quantile
        slope -= self.quantile * xp.astype(r < 0, z.dtype)
        return slope

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
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
