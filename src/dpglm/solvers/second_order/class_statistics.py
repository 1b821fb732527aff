"""Least squares of classes' codes from released second moments."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.code_moments import (
    code_length,
    code_moment_release,
    noisy_code_moments,
)
from dpglm.oracle.row_sums.moments import noisy_second_moments, second_moment_release
from dpglm.oracle.row_sums.weighted_moments import MomentSums, View
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.solvers.base import Method, StepInfo
from dpglm.solvers.noise_covariance import NoiseCovariance
from dpglm.solvers.parts.feasible import n_penalized
from dpglm.solvers.second_order.least_squares.equations import (
    HUGE,
    LEVEL,
    MOST_SQUARES,
    Coordinates,
    centered_coordinates,
    shrunk_slopes,
    slopes_of,
)
from dpglm.solvers.second_order.preconditioner import constant_column, usual_basis_scale
from dpglm.solvers.second_order.quadratic import is_quadratic, minimize_quadratic

__all__ = ["ClassStatisticsMethod"]


@final
@dataclass(frozen=True, eq=False)
class ClassStatisticsState:
    """What was released so far, and what follows from it."""

    step: int
    coordinates: Coordinates | None
    w: NDArray[np.float64]
    noise: NoiseCovariance | None


@final
@dataclass(frozen=True)
class ClassStatisticsMethod(Method["ClassStatisticsState"]):
    """Sufficient statistics of several classes, with every setting decided.

    Two releases: second moments of rows scaled to one length, which give centred coordinates; and,
    in these, the normal equations of all classes together.
    """

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clip: float
    matrix_share: float  # Of the normal equations' release; products with codes have the rest.
    noise_multipliers: tuple[float, float]

    algorithm = "sufficient statistics"

    @property
    def n_steps(self) -> int:
        return len(self.noise_multipliers)

    @functools.cached_property
    def _releases(self) -> tuple[SumRelease, SumRelease]:
        first, second = (GaussianNoise(one) for one in self.noise_multipliers)
        return (
            second_moment_release(self.data, self.adjacency, first),
            code_moment_release(self.data, self.adjacency, second, self.matrix_share),
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return self._releases

    @property
    def gradient_evaluations(self) -> float:
        return float(self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        data, (first, second) = self.data, self._releases
        longest = (1.0 + LEVEL) * min(self.clip, MOST_SQUARES) * data.n_features
        noise = second.noise_std * math.sqrt(longest / (1.0 - self.matrix_share)) / data.n_rows
        scale = usual_basis_scale(data, first.noise_std)
        held = 1.0 + self.problem.regularizer.strong_convexity * scale**2
        return noise * code_length(data.n_outputs) * scale / held

    def noise_in(self, state: ClassStatisticsState) -> NoiseCovariance | None:
        return state.noise if is_quadratic(self.problem) else None

    def init(self, seed: int) -> ClassStatisticsState:
        return ClassStatisticsState(0, None, np.zeros(self.data.coefficient_shape), None)

    def step(
        self, state: ClassStatisticsState, oracle: Oracle
    ) -> tuple[ClassStatisticsState, StepInfo]:
        declared, number = self._releases[state.step], state.step + 1
        if state.coordinates is None:
            moments = noisy_second_moments(oracle, declared, constant_column(self.data))
            at = centered_coordinates(
                np.clip(moments, -HUGE, HUGE), min(declared.noise_std, HUGE), self.data, self.clip
            )
            after = dataclasses.replace(state, coordinates=at)
        else:
            at = state.coordinates
            view = View(at.basis.vectors, at.cap, at.level, 0.0, np.zeros(self.data.n_columns), 1.0)
            sums = noisy_code_moments(oracle, declared, view, self.matrix_share)
            after = self._with_solution(state, at, view, sums.bounded(HUGE))
        return dataclasses.replace(after, step=number), StepInfo(number, float(number == 2))

    def finish(self, state: ClassStatisticsState) -> NDArray[np.float64]:
        return state.w

    def _with_solution(
        self, state: ClassStatisticsState, at: Coordinates, view: View, sums: MomentSums
    ) -> ClassStatisticsState:
        """Shrink slopes by what noise there is, all classes alike, and minimise."""
        data, d = self.data, self.data.n_features
        weight = data.n_rows * data.weight_bound
        slopes = slopes_of(sums, view, weight)
        variance = code_length(data.n_outputs) ** 2 / data.n_outputs
        mean = np.zeros(data.n_outputs)
        if view.level > 0.0:
            mean = sums.vector[-1] / (view.level * slopes.weight)
            mean = np.clip(mean, -1.0 / data.n_outputs, 1.0 - 1.0 / data.n_outputs)
        # Noise in the matrix meets slopes that explain no more than the variance there is.
        noise = math.hypot(
            sums.vector_noise,
            sums.matrix_noise * math.sqrt(0.5 * variance),
            slopes.mean_noise * float(np.sqrt(np.mean(mean**2))),
        )
        g = sums.vector[:d] - slopes.weight * np.outer(slopes.mean, mean)
        fit = shrunk_slopes(slopes.matrix, g, noise, variance, weight)
        size = data.n_columns
        matrix, vector = np.zeros((size, size)), np.zeros((size, data.n_outputs))
        if view.level > 0.0:
            predicts_mean = np.append(slopes.mean, view.level)
            matrix = slopes.weight * np.outer(predicts_mean, predicts_mean)
            vector = slopes.weight * np.outer(predicts_mean, mean)
        matrix[:d, :d] += fit.matrix
        vector[:d] += fit.g
        penalized = n_penalized(self.problem, data)
        w = minimize_quadratic(
            matrix / data.n_rows,
            vector / data.n_rows,
            at.basis,
            self.problem,
            penalized,
            np.zeros(data.coefficient_shape),
        )
        acted_on = at.basis.vectors[:penalized]
        strength = self.problem.regularizer.strong_convexity * data.n_rows
        back = at.basis.vectors @ np.linalg.inv(matrix + strength * acted_on.T @ acted_on)
        in_matrix = 0.5 * (sums.matrix_noise * at.basis.inverse @ w) ** 2
        squares = sums.vector_noise**2 + in_matrix.sum(axis=0) + (slopes.mean_noise * mean) ** 2
        found = NoiseCovariance(back @ back.T, squares)
        if not (np.isfinite(w).all() and found.is_finite):
            return state
        return dataclasses.replace(state, w=w, noise=found)
