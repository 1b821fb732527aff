"""Losses of linear support vector classifiers: the hinge, squared and smoothed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm._validation import check_real
from dpglm.problem._functions import FloatArray
from dpglm.problem.loss import ConvexScalarLoss, Target

__all__ = ["Hinge", "SmoothedHinge", "SquaredHinge"]


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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.maximum(1 - y * z, 0)

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return -y * (y * z < 1)

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        result: FloatArray = np.maximum(1 - y * z, 0)
        result *= result
        return result

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        result: FloatArray = namespace(z).maximum(1 - y * z, 0)
        result *= -2 * y
        return result

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
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

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        r = 1 - y * z
        s = np.clip(r, 0, self.width)
        return s * (r - s / 2) / self.width

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        s: FloatArray = 1 - y * z
        namespace(z).clip(s, 0, self.width, out=s)
        s *= y
        s /= -self.width
        return s

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
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
