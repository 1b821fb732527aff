"""The loss of a network's rows, as far as a plan knows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.problem._functions import FloatArray
from dpglm.problem.loss import Loss, Target

__all__ = ["NetworkLoss"]


@final
@dataclass(frozen=True)
class NetworkLoss(Loss):
    """A loss that only torch can compute, linearised in the parameters, so that its slope is 1.

    The rows of a network's plan are the gradients of its loss; ``name`` says which loss. Nothing
    is claimed about convexity or smoothness.
    """

    name: str

    target = Target.REAL
    link = None
    convex = False
    nonnegative = False

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return z.copy()

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.ones_like(z)

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.zeros_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return math.inf
