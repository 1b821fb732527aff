"""The steps of sufficient statistics: what each releases, and what follows from it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import noisy_second_moments, second_moment_release
from dpglm.oracle.row_sums.targets import TargetShares, noisy_target_sums, target_release
from dpglm.oracle.row_sums.weighted_moments import (
    MomentShares,
    MomentSums,
    View,
    noisy_weighted_moments,
    weighted_moment_release,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.solvers.base import Method, StepInfo
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.second_order.least_squares import (
    HUGE,
    Coordinates,
    Estimate,
    Observation,
    Slopes,
    Targets,
    centered_coordinates,
    pooled,
    shrunk_slopes,
    slopes_of,
    targets_of,
)
from dpglm.solvers.second_order.preconditioner import Basis, constant_column
from dpglm.solvers.second_order.quadratic import minimize_quadratic
from dpglm.solvers.uncertainty import Covariance, Uncertainty

__all__ = ["SECOND", "SufficientStatisticsMethod"]

# ``python -m experiments.least_squares`` measures what these do; docs/solvers has its tables.
SECOND = MomentShares(0.5, 0.42, 0.08)
"""How the release of the normal equations is divided."""
_THIRD: Mapping[Covariance | None, MomentShares] = {
    None: MomentShares(0.0, 0.86, 0.14, "none"),
    "model": MomentShares(0.12, 0.76, 0.12, "score"),
    "robust": MomentShares(0.38, 0.54, 0.08, "squared score"),
}
_REACH: Mapping[Covariance | None, float] = {None: 2.5, "model": 3.0, "robust": 3.0}
_LEAST_VARIANCE = 0.05


@final
@dataclass(frozen=True, eq=False)
class FirstFit:
    """The normal equations with targets around their mean, and their solution."""

    view: View
    sums: MomentSums
    slopes: Slopes
    v: NDArray[np.float64]  # All coordinates, the constant one last.
    mean: float  # Of the predictions, less the view's center.
    variance: float  # Of what is left by this fit.
    matrix_noise: float  # In each entry of the matrix times v.
    reach: float  # Bound on residuals that are not clipped.


@final
@dataclass(frozen=True, eq=False)
class SufficientStatisticsState:
    """What was released so far, and what follows from it."""

    step: int
    targets: Targets | None
    coordinates: Coordinates | None
    first: FirstFit | None
    w: NDArray[np.float64]
    noise: NDArray[np.float64]
    intervals: Uncertainty | None


@final
@dataclass(frozen=True)
class SufficientStatisticsMethod(Method["SufficientStatisticsState"]):
    """Sufficient statistics with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    target_shares: TargetShares
    clip: float
    slack: float  # Factor on how far targets may be from most others, at least 1.
    inference: Covariance | None
    noise_multipliers: tuple[float, ...]  # One of the targets only, or of all four releases.

    algorithm = "sufficient statistics"

    @property
    def n_steps(self) -> int:
        return len(self.noise_multipliers)

    @functools.cached_property
    def _releases(self) -> tuple[SumRelease, ...]:
        data, adjacency = self.data, self.adjacency
        noises = [GaussianNoise(one) for one in self.noise_multipliers]
        targets = target_release(data, adjacency, noises[0], self.target_shares)
        if len(noises) == 1:
            return (targets,)
        return (
            targets,
            second_moment_release(data, adjacency, noises[1]),
            weighted_moment_release(data, adjacency, noises[2], SECOND),
            weighted_moment_release(data, adjacency, noises[3], _THIRD[self.inference]),
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return self._releases

    @property
    def gradient_evaluations(self) -> float:
        return float(self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        data, last = self.data, self._releases[-1]
        reach = 0.5 * data.target_high - 0.5 * data.target_low or 1.0
        if self.n_steps == 1:
            noise = last.noise_std / math.sqrt(self.target_shares.mean)
            return noise * reach / data.n_rows / data.intercept
        noise = last.noise_std * math.sqrt(self.clip / _THIRD[self.inference].vector)
        return noise * reach / data.n_rows * data.n_columns / data.row_norm

    def noise_in(self, state: SufficientStatisticsState) -> NDArray[np.float64]:
        return state.noise

    def uncertainty(self, state: SufficientStatisticsState) -> Uncertainty | None:
        return state.intervals

    def init(self, seed: int) -> SufficientStatisticsState:
        zero = np.zeros(self.data.n_columns)
        return SufficientStatisticsState(0, None, None, None, zero, zero, None)

    def step(
        self, state: SufficientStatisticsState, oracle: Oracle
    ) -> tuple[SufficientStatisticsState, StepInfo]:
        declared = self._releases[state.step]
        if state.step == 0:
            found = noisy_target_sums(oracle, declared, self.target_shares)
            after = self._with_targets(state, targets_of(found, self.data, self.slack))
        elif state.step == 1:
            moments = noisy_second_moments(oracle, declared, constant_column(self.data))
            coordinates = centered_coordinates(
                _bounded(moments), min(declared.noise_std, HUGE), self.data, self.clip
            )
            after = dataclasses.replace(state, coordinates=coordinates)
        elif state.step == 2:
            view = self._first_view(state)
            sums = noisy_weighted_moments(oracle, declared, view, SECOND)
            after = self._with_first_fit(state, view, sums)
        else:
            view = self._second_view(state)
            sums = noisy_weighted_moments(oracle, declared, view, _THIRD[self.inference])
            after = self._with_solution(state, view, sums)
        step = state.step + 1
        return dataclasses.replace(after, step=step), StepInfo(step, float(step == self.n_steps))

    def finish(self, state: SufficientStatisticsState) -> NDArray[np.float64]:
        return state.w

    @property
    def _penalized(self) -> int:
        return n_penalized(self.problem, self.data)

    def _with_targets(
        self, state: SufficientStatisticsState, targets: Targets
    ) -> SufficientStatisticsState:
        """Predict the mean, with an intercept; zero otherwise."""
        w, noise = np.zeros((2, self.data.n_columns))
        if self.data.intercept > 0.0:
            w[-1] = targets.mean.value / self.data.intercept
            noise[-1] = targets.mean.noise / self.data.intercept
        w = feasible(self.problem, self._penalized, w, 0.0)
        return dataclasses.replace(state, targets=targets, w=w, noise=noise)

    def _first_view(self, state: SufficientStatisticsState) -> View:
        targets, at = state.targets, state.coordinates
        assert targets is not None
        assert at is not None
        # Without an intercept a shift of the target cannot be undone.
        center = 0.5 * targets.low + 0.5 * targets.high if at.level > 0.0 else 0.0
        reach = max(targets.high - center, center - targets.low) or 1.0
        zero = np.zeros(self.data.n_columns)
        return View(at.basis.vectors, at.cap, at.level, center, zero, reach)

    def _with_first_fit(
        self, state: SufficientStatisticsState, view: View, sums: MomentSums
    ) -> SufficientStatisticsState:
        targets = state.targets
        assert targets is not None
        sums = sums.bounded(HUGE)
        weight = targets.weight
        slopes = slopes_of(sums, view, weight)
        in_variance = sums.squares_noise / weight
        variance = min(max(sums.squares / weight, in_variance), view.reach**2)
        mean = Observation(0.0, 0.0)
        if view.level > 0.0:
            mean = pooled((targets.mean.less(view.center), slopes.level_of(sums, view, 0.0)))
        # Noise in the matrix meets slopes that explain no more than the variance there is.
        in_matrix = sums.matrix_noise * math.sqrt(0.5 * variance)
        noise = math.hypot(sums.vector_noise, in_matrix, slopes.mean_noise * mean.value)
        g = sums.vector[: self.data.n_features] - slopes.weight * mean.value * slopes.mean
        fit = shrunk_slopes(slopes.matrix, g, noise, variance, weight)
        v = fit.v
        if view.level > 0.0:
            v = np.append(v, (mean.value - slopes.mean @ fit.v) / view.level)
        in_product = sums.matrix_noise * float(np.linalg.norm(v)) * math.sqrt(0.5)
        explained = mean.value**2 + float(fit.v @ slopes.matrix @ fit.v) / weight
        left = max(variance - explained, _LEAST_VARIANCE * variance, 0.5 * in_variance)
        reach = _REACH[self.inference] * self.slack * math.sqrt(left) + 2.0 * mean.noise
        width = self.data.target_high - self.data.target_low
        reach = min(reach, 2.0 * self.slack * view.reach, width or 1.0)
        first = FirstFit(view, sums, slopes, v, mean.value, left, in_product, reach)
        return dataclasses.replace(state, first=first)

    def _second_view(self, state: SufficientStatisticsState) -> View:
        assert state.first is not None
        return dataclasses.replace(state.first.view, v=state.first.v, reach=state.first.reach)

    def _with_solution(
        self, state: SufficientStatisticsState, view: View, sums: MomentSums
    ) -> SufficientStatisticsState:
        first, targets, at = state.first, state.targets, state.coordinates
        assert first is not None
        assert targets is not None
        assert at is not None
        sums = sums.bounded(HUGE)
        score, share = self._score(first, sums)
        if self.inference is not None:
            intervals = self._intervals(first, sums, score, share, at.basis, targets.weight)
            noise = np.sqrt(np.diag(intervals.privacy))
            return dataclasses.replace(state, w=intervals.center, noise=noise, intervals=intervals)
        d, slopes, v = self.data.n_features, first.slopes, first.v[: self.data.n_features]
        mean = Observation(0.0, 0.0)
        if view.level > 0.0:
            # What noise in the mean of the rows makes of means that slopes are taken from.
            moved = slopes.mean_noise * float(np.linalg.norm(v)) / slopes.weight
            mean = pooled(
                (
                    targets.mean.less(view.center, moved),
                    slopes.level_of(first.sums, first.view, 0.0).less(0.0, moved),
                    slopes.level_of(sums, view, first.mean),
                )
            )
        shift = mean.value - first.mean
        g = slopes.matrix @ v + score[:d] - slopes.weight * shift * slopes.mean
        in_score = math.hypot(
            share * math.hypot(first.sums.vector_noise, first.matrix_noise),
            (1.0 - share) * sums.vector_noise,
            slopes.mean_noise * shift,
        )
        fit = shrunk_slopes(slopes.matrix, g, in_score, first.variance, targets.weight)
        w = self._minimizer(fit, mean.value, view, slopes, at.basis)
        deviations = self._deviations(fit, mean.noise, first, sums, share, at)
        if not (np.isfinite(w).all() and np.isfinite(deviations).all()):
            return state
        return dataclasses.replace(state, w=w, noise=deviations)

    def _score(self, first: FirstFit, sums: MomentSums) -> tuple[NDArray[np.float64], float]:
        """Average both looks at the score at the first fit, and say the first's share.

        The score that follows from the normal equations has noise from their matrix, too.
        """
        normal = first.sums
        follows = normal.vector - normal.matrix @ first.v
        one, other = math.hypot(normal.vector_noise, first.matrix_noise), sums.vector_noise
        share = other**2 / (one**2 + other**2)
        return share * follows + (1.0 - share) * sums.vector, share

    def _score_noise(
        self, v: NDArray[np.float64], first: FirstFit, sums: MomentSums, share: float
    ) -> NDArray[np.float64]:
        """Covariance of the noise in the normal equations that ``v`` solves.

        Their residual at the exact solution is ``share e + (1 - share) e' - E q``, e and e' the
        noise in both vectors, E that in the matrix and q what it was multiplied by. E has deviation
        s on its diagonal and ``s / sqrt(2)`` beside it, so E q has covariance
        ``s^2 (|q|^2 I + q q^T) / 2``.
        """
        q = share * first.v + v - first.v
        normal = first.sums
        even = (share * normal.vector_noise) ** 2 + ((1.0 - share) * sums.vector_noise) ** 2
        half = 0.5 * normal.matrix_noise**2
        covariance = (even + half * float(q @ q)) * np.eye(len(q)) + half * np.outer(q, q)
        return np.asarray(covariance)

    def _penalty(self, basis: Basis) -> NDArray[np.float64]:
        """Hessian of the penalty in the basis, as far as it is quadratic."""
        acted_on = basis.vectors[: self._penalized]
        strength = self.problem.regularizer.strong_convexity * self.data.n_rows
        return np.asarray(strength * acted_on.T @ acted_on)

    def _minimizer(
        self, fit: Estimate, mean: float, view: View, slopes: Slopes, basis: Basis
    ) -> NDArray[np.float64]:
        """Return the parameter that minimises what is known of the loss, and the penalty."""
        data, d = self.data, self.data.n_features
        constant = np.zeros(data.n_columns)
        matrix, vector = np.zeros((data.n_columns,) * 2), np.zeros(data.n_columns)
        if view.level > 0.0:
            constant[-1] = view.center / data.intercept
            mean = min(max(mean, data.target_low - view.center), data.target_high - view.center)
            predicts_mean = np.append(slopes.mean, view.level)
            matrix = slopes.weight * np.outer(predicts_mean, predicts_mean)
            vector = slopes.weight * mean * predicts_mean
        matrix[:d, :d] += fit.matrix
        vector[:d] += fit.g
        return minimize_quadratic(
            matrix / data.n_rows,
            vector / data.n_rows,
            basis,
            self.problem,
            self._penalized,
            constant,
        )

    def _deviations(
        self,
        fit: Estimate,
        in_mean: float,
        first: FirstFit,
        sums: MomentSums,
        share: float,
        at: Coordinates,
    ) -> NDArray[np.float64]:
        """Return standard deviations of the noise in the parameter, by the delta method."""
        d, slopes = self.data.n_features, first.slopes
        v = first.v.copy()
        v[:d] = fit.v
        inverse = np.linalg.inv(fit.matrix + self._penalty(at.basis)[:d, :d])
        noise = inverse @ self._score_noise(v, first, sums, share)[:d, :d] @ inverse
        if at.level > 0.0:
            # The level is what the mean leaves, so that slopes move it.
            moves = np.vstack([np.eye(d), -slopes.mean / at.level])
            noise = moves @ noise @ moves.T
            noise[-1, -1] += (in_mean / at.level) ** 2
        squares = np.einsum("ij,jk,ik->i", at.basis.vectors, noise, at.basis.vectors)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def _intervals(
        self,
        first: FirstFit,
        sums: MomentSums,
        score: NDArray[np.float64],
        share: float,
        basis: Basis,
        weight: float,
    ) -> Uncertainty:
        """One Newton step from the first fit, and its covariance by the delta method."""
        normal, data = first.sums, self.data
        constant = np.zeros(data.n_columns)
        if first.view.level > 0.0:
            constant[-1] = first.view.center / data.intercept
        strength = self.problem.regularizer.strong_convexity * data.n_rows
        begin = constant + basis.vectors @ first.v
        pull = strength * basis.vectors[: self._penalized].T @ begin[: self._penalized]
        values, directions = np.linalg.eigh(normal.matrix + self._penalty(basis))
        size = len(values)
        least = 0.5 * normal.matrix_noise * math.sqrt(size)
        inverse = (directions / np.maximum(values, least)) @ directions.T
        step = inverse @ (score - pull)
        v = first.v + step
        freedom = max(data.n_rows - size, 1)
        spread, in_spread = sums.matrix, sums.matrix_noise
        relative = 2.0 / freedom
        if self.inference == "model":
            explained = float(step @ normal.matrix @ step)
            variance = max(sums.squares - max(explained, 0.0), sums.squares_noise) / weight
            variance *= data.n_rows / freedom
            spread, in_spread = variance * spread, variance * in_spread
            relative += (sums.squares_noise / weight / variance) ** 2
        seen, along = np.linalg.eigh(spread)
        spread = (along * np.maximum(seen, 0.0)) @ along.T
        noise = self._score_noise(v, first, sums, share)
        back = basis.vectors @ inverse
        sampling, privacy = back @ spread @ back.T, back @ noise @ back.T
        # Noise in the estimates of variances, by which their distribution is that of Student's t.
        total = np.diag(sampling) + np.diag(privacy)
        lengths = (back**2).sum(axis=1)
        turned = back @ (spread + noise) @ inverse
        in_inverse = lengths * (turned**2).sum(axis=1) + (back * turned).sum(axis=1) ** 2
        variances = (in_spread * lengths) ** 2 + relative * np.diag(sampling) ** 2
        variances += 2.0 * normal.matrix_noise**2 * in_inverse
        freedoms = 2.0 * total**2 / np.maximum(variances, np.finfo(np.float64).tiny)
        assert self.inference is not None
        return Uncertainty(
            constant + basis.vectors @ v,
            sampling,
            privacy,
            max(float(freedoms.min()), 1.0),
            self.inference,
        )


def _bounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return released values with none so large that products of a few overflow."""
    return np.clip(values, -HUGE, HUGE)
