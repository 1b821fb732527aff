"""Robust non-convex losses for binary labels: bounded slope, and a wrong label costs little."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import namespace
from dpglm.problem.links import FloatArray, LogitLink, TangentLink, sigmoid
from dpglm.problem.loss import Loss, Target


@final
@dataclass(frozen=True)
class Savage(Loss):
    """``1 / (1 + exp(m))^2`` of the margin ``m = y z``; values in (0, 1).

    Slope bound 8/27, smoothness 0.15406. It is the Brier score of the probability ``1 / (1 +
    exp(-z))``: ``z`` is the log odds of +1, where [1]_ has half of them.

    References
    ----------
    .. [1] H. Masnadi-Shirazi and N. Vasconcelos, "On the Design of Loss Functions for
       Classification", NIPS 2008. Private non-convex descent on such losses:
       S. Song et al., "Evading the Curse of Dimensionality in Unconstrained Private GLMs",
       AISTATS 2021, section 4 and Theorem 4.1.

    Examples
    --------
    >>> Savage().value([0.0, -1e4], [1, 1]).tolist()
    [0.25, 1.0]
    """

    target = Target.BINARY
    link = LogitLink()
    convex = False
    nonnegative = True

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        u = sigmoid(-y * z)
        u *= u
        return u

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        g, u = _probabilities(y * z)
        g *= u
        g *= u
        g *= y
        g *= -2
        return g

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        p, u = _probabilities(y * z)
        return 2 * u * u * p * (2 - 3 * u)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # 2 u^2 (1 - u) grows up to u = 2/3.
        u = min(1 / (1 + math.exp(-z_bound)), 2 / 3)
        return 2 * u * u * (1 - u)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # 2 u^2 (1 - u) (2 - 3 u) is largest at this root of 12 u^2 - 15 u + 4; its negative
        # part, down to -0.1202, stays below the 1/8 it has at u = 1/2, which is always in range.
        lowest = 1 - 1 / (1 + math.exp(-z_bound))
        u = max(lowest, (15 - math.sqrt(33)) / 24)
        return 2 * u * u * (1 - u) * (2 - 3 * u)


# Where m (2 atan(m) - 1) = 1 (m < 0), and where the curvature below is largest.
_TANGENT_STEEPEST = -0.5132473179249821
_TANGENT_MOST_CURVED = 0.12097933962379218


@final
@dataclass(frozen=True)
class Tangent(Loss):
    """``(2 atan(m) - 1)^2`` of the margin ``m = y z``; values in [0, (pi + 1)^2).

    Slope bound 6.1686, smoothness 8.4847. It is 0 at ``m = tan(1/2)`` and grows again, to
    4.59, on rows that are classified "too" well. The probability of +1 is
    ``atan(z) + 1/2``, cut to [0, 1] (``TangentLink``).

    References
    ----------
    .. [1] H. Masnadi-Shirazi, V. Mahadevan, N. Vasconcelos, "On the Design of Robust
       Classifiers for Computer Vision", CVPR 2010.
    """

    target = Target.BINARY
    link = TangentLink()
    convex = False
    nonnegative = True

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        a: FloatArray = 2 * np.arctan(y * z) - 1
        a *= a
        return a

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        m = y * z
        result: FloatArray = 4 * y * (2 * namespace(m).arctan(m) - 1) / (1 + m * m)
        return result

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        m = y * z
        q = 1 / (1 + m * m)
        result: FloatArray = 8 * (1 - m * (2 * np.arctan(m) - 1)) * q * q
        return result

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        m = max(-z_bound, _TANGENT_STEEPEST)
        return 4 * (1 - 2 * math.atan(m)) / (1 + m * m)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        # Grows from 8 at m = 0 to its peak; elsewhere its absolute value stays below 8.
        m = min(z_bound, _TANGENT_MOST_CURVED)
        return 8 * (1 - m * (2 * math.atan(m) - 1)) / (1 + m * m) ** 2


@checked
@final
@dataclass(frozen=True)
class Tempered(Loss):
    """The logistic loss with its logarithm tempered, which bounds it: values in (0, 1/(1 - t)).

    With ``p = 1 / (1 + exp(-m))`` the probability of the true label, ``u = 1 - p`` and
    temperature t, it is ``(1 - p^(1-t)) / (1 - t) - (1 - p^(2-t) - u^(2-t)) / (2 - t)``, and
    its derivative in the margin ``-(u^2 p^(1-t) + p u^(2-t))``. ``t = 0`` is the Savage loss;
    ``t -> 1`` is the logistic loss. ``z`` is the log odds of +1. The constants are found
    numerically and rounded up by 1e-9.

    Parameters
    ----------
    temperature : float, default 0.5
        In [0, 1). Smaller is more robust.

    References
    ----------
    .. [1] E. Amid, M. K. Warmuth, R. Anil, T. Koren, "Robust Bi-Tempered Logistic Loss Based on
       Bregman Divergences", NeurIPS 2019, with ``t1 = temperature`` and ``t2 = 1``.

    Examples
    --------
    >>> Tempered(0.5).value([-1e4], [1]).tolist()
    [2.0]
    >>> bool(np.isclose(Tempered(0.0).slope([1.0], [1]), Savage().slope([1.0], [1])).all())
    True
    """

    temperature: float = 0.5

    target = Target.BINARY
    link = LogitLink()
    convex = False
    nonnegative = True

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < 1:
            raise ValueError(f"temperature must lie in [0, 1), got {self.temperature!r}")

    def _value(self, z: FloatArray, y: FloatArray) -> FloatArray:
        t = self.temperature
        p, u = _probabilities(y * z)
        result: FloatArray = (1 - p ** (1 - t)) / (1 - t)
        result -= (1 - p ** (2 - t) - u ** (2 - t)) / (2 - t)
        # The two terms cancel on well classified rows, where rounding could leave -1e-17.
        np.maximum(result, 0, out=result)
        return result

    def _slope(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return -y * _tempered_steepness(y * z, self.temperature)

    def _curvature(self, z: FloatArray, y: FloatArray) -> FloatArray:
        return _tempered_curvature(y * z, self.temperature)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return _tempered_slope_bound(self.temperature, z_bound)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return _tempered_smoothness(self.temperature, z_bound)


@functools.lru_cache
def _tempered_slope_bound(t: float, z_bound: float) -> float:
    # Between these margins lie the peaks of the two terms; outside both fall away.
    low, high = math.log((1 - t) / 2), -math.log(2 - t)
    return _largest_absolute(
        functools.partial(_tempered_steepness, t=t), max(low, -z_bound), max(high, -z_bound)
    )


@functools.lru_cache
def _tempered_smoothness(t: float, z_bound: float) -> float:
    # Beyond |m| = 20 it is below 0.02, while at m = 0, which is in range, it is 2^(t - 3).
    reach = min(z_bound, 20.0)
    return _largest_absolute(functools.partial(_tempered_curvature, t=t), -reach, reach)


def _tempered_steepness(m: FloatArray, t: float) -> FloatArray:
    p, u = _probabilities(m)
    return u * u * p ** (1 - t) + p * u ** (2 - t)


def _tempered_curvature(m: FloatArray, t: float) -> FloatArray:
    p, u = _probabilities(m)
    result: FloatArray = u * u * p ** (1 - t) * (2 * p - (1 - t) * u)
    result += p * u ** (2 - t) * ((2 - t) * p - u)
    return result


def _probabilities(m: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities ``1 / (1 + exp(-m))`` of the true label and ``1 / (1 + exp(m))`` of the other.

    From one exponential and without cancellation; margins above 80, where the second is below
    1e-34, count as 80, which keeps every factor finite in float32.
    """
    xp = namespace(m)
    p: FloatArray = xp.minimum(m, 80)
    with np.errstate(under="ignore"):
        xp.exp(p, out=p)
        u: FloatArray = 1 + p
        xp.reciprocal(u, out=u)
        p *= u
    return p, u


def _largest_absolute(
    function: Callable[[FloatArray], FloatArray], low: float, high: float
) -> float:
    """Maximise ``|function|`` on [low, high] by ever finer grids, rounded up by 1e-9 of itself."""
    largest = 0.0
    for _ in range(4):
        grid = np.linspace(low, high, 2001)
        values = np.abs(function(grid))
        best = int(np.argmax(values))
        largest = float(values[best])
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, grid.size - 1)])
    return largest * (1 + 1e-9)
