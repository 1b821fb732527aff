"""Projected descent along noisy gradients without momentum, whatever noise is in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem import Problem
from dpglm.solvers.base import StepInfo
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.outputs import Output

__all__ = ["Descent", "DescentState"]


@final
@dataclass(frozen=True, eq=False)
class DescentState:
    """Iterate after some steps, and the weighted sum of the iterates so far."""

    step: int
    w: NDArray[np.float64]
    returned: NDArray[np.float64]
    weights: NDArray[np.float64]


@final
@dataclass(frozen=True)
class Descent:
    """Steps ``w <- project(prox(w - eta g))`` from zero, for noisy mean gradients g."""

    problem: Problem
    data: DataSpec
    step_sizes: tuple[float, ...]
    output: Output

    def init(self, seed: int) -> DescentState:
        """Start at the feasible point next to zero."""
        zero = np.zeros(self.data.coefficient_shape)
        weights = self.output.weights(len(self.step_sizes), seed * 2.0**-64)
        return DescentState(0, self._feasible(zero, 0.0), zero, weights)

    def step(
        self, state: DescentState, g: NDArray[np.float64], noise_std: float
    ) -> tuple[DescentState, StepInfo]:
        """Take a step along a released gradient with noise of this size in each coordinate."""
        eta = self.step_sizes[state.step]
        w = self._feasible(state.w - eta * g, eta)
        returned = state.returned + state.weights[state.step] * w
        noise_norm = noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        return DescentState(state.step + 1, w, returned, state.weights), info

    def _feasible(self, w: NDArray[np.float64], eta: float) -> NDArray[np.float64]:
        return feasible(self.problem, n_penalized(self.problem, self.data), w, eta)

    @property
    def noise_growth(self) -> float:
        """Standard deviation of what is returned, for noise of 1 in each gradient."""
        strong = self.problem.regularizer.strong_convexity
        # Variances of the iterate and of what is returned, and their covariance.
        iterate = returned = covariance = 0.0
        weights = self.output.weights(len(self.step_sizes), 0.5)
        for eta, weight in zip(self.step_sizes, weights.tolist(), strict=True):
            shrink = 1.0 / (1.0 + eta * strong)
            iterate = shrink**2 * (iterate + eta**2)
            covariance *= shrink
            returned += 2.0 * weight * covariance + weight**2 * iterate
            covariance += weight * iterate
        return math.sqrt(returned)
