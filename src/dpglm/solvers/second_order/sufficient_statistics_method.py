"""The steps of sufficient statistics: their releases and updates."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from dpglm.oracle.gradients import Oracle
from dpglm.oracle.linear import (
    SHELL_COUNTS,
    LinearView,
    MomentShares,
    ScoreShares,
    Shells,
    moment_sum,
    noisy_score_sums,
    noisy_shell_counts,
    noisy_weighted_moments,
    score_moment_sum,
)
from dpglm.oracle.moments import constant_column, noisy_second_moments, second_moment_sum
from dpglm.oracle.targets import (
    TargetShares,
    near_sum,
    noisy_near_counts,
    noisy_target_sums,
    target_sum,
)
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import FitMethod, Outcome, StepInfo, present
from dpglm.solvers.second_order.least_squares import (
    BY_CHANCE,
    HUGE,
    LEVEL,
    MOST_SQUARES,
    RATIO,
    UNSURE,
    Coordinates,
    FirstFit,
    Fit,
    NoisyValue,
    PooledScores,
    Targets,
    centered_coordinates,
    first_empty,
    intervals,
    shrunk_slopes,
    slopes_of,
    targets_of,
    with_biased,
)
from dpglm.solvers.second_order.likelihood import USUAL_ERROR, is_quadratic, minimize_quadratic
from dpglm.solvers.second_order.newton_raphson_settings import LARGE, MEDIUM, NEGLIGIBLE
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    Columns,
    centers_of,
    pooled_moments,
    prior_of_columns,
    usual_basis_scale,
    with_products_of_indicators,
)
from dpglm.solvers.uncertainty import (
    Binding,
    Covariance,
    Floats,
    NoiseCovariance,
    Uncertainty,
    feasible,
    n_penalized,
    solved,
)

# Chosen by ``python -m experiments.least_squares``; docs/solvers has its tables.
_EQUATIONS = MomentShares(1.0 - LARGE - LARGE, LARGE, LARGE)
_SCORE = MomentShares(0.0, 1.0 - MEDIUM, MEDIUM)
_FINAL: Mapping[Covariance, ScoreShares] = {
    "model": ScoreShares(LARGE + MEDIUM, 1.0 - LARGE - 2.0 * MEDIUM, MEDIUM),
    "robust": ScoreShares(LARGE + MEDIUM, 1.0 - 2.0 * (LARGE + MEDIUM), MEDIUM, LARGE),
}
"""Division of the release that intervals follow from; its matrix comes from no other release."""
_REACH = 2.5  # Standard deviations of residuals that are not clipped.
# Share that noise adds to squared errors: up to the first few scores are clipped, for all counts;
# beyond the second, without intervals, counts do not widen the bound.
_SMALL, _LARGE = 0.01, 0.5


@final
@dataclass(frozen=True, eq=False)
class SufficientStatisticsState:
    """The results of the releases so far."""

    step: int
    targets: Targets | None
    coordinates: Coordinates | None
    first: FirstFit | None
    scores: PooledScores | None
    extent: float  # Bound on residuals in standard deviations.
    view: LinearView | None  # View of the last scores, if intervals follow from them.
    w: Floats
    noise: Floats  # Its covariance.
    intervals: Uncertainty | None
    moments: tuple[Floats, float] | None = None  # Moments of columns, with their noise.
    columns: Columns | None = None


_State: TypeAlias = SufficientStatisticsState


@final
@dataclass(frozen=True)
class SufficientStatisticsMethod(FitMethod["SufficientStatisticsState"]):
    """Sufficient statistics with every setting decided."""

    target_shares: TargetShares
    clip: float
    score_clip: float  # With intervals the largest, where no clip is set.
    slack: float  # Factor on how far targets may be from most others, at least 1.
    inference: Covariance | None
    noise_multipliers: tuple[float, ...]  # One of the targets only, or of all releases.
    n_scores: int  # How often the last one is made.
    prior_scales: tuple[float, ...] | None = None
    full_weights: bool = False
    indicators: tuple[tuple[int, int, float], ...] = ()

    algorithm = "sufficient statistics"

    @property
    def n_steps(self) -> int:
        return sum(one.count for one in self._releases)

    @functools.cached_property
    def _releases(self) -> tuple[SumRelease, ...]:
        data, adjacency = self.data, self.adjacency
        noises = [GaussianNoise(one) for one in self.noise_multipliers]
        targets = target_sum(self.target_shares).release(data, adjacency, noises[0])
        if len(noises) == 1:
            return (targets,)
        moments, equations = second_moment_sum(data), moment_sum(data, _EQUATIONS)
        *columns, of_moments, of_equations, of_counts = noises[1:-1]
        sums = (moments, near_sum(data))
        first = (
            targets,
            *(
                one.release(data, adjacency, noise)
                for one, noise in zip(sums, columns, strict=False)
            ),
            moments.release(data, adjacency, of_moments),
            equations.release(data, adjacency, of_equations),
        )
        if self.inference is None:
            last = moment_sum(data, _SCORE).release(
                data, adjacency, noises[-1], count=self.n_scores
            )
        else:
            final = score_moment_sum(data, _FINAL[self.inference])
            last = final.release(data, adjacency, noises[-1])
        return (*first, SHELL_COUNTS.release(data, adjacency, of_counts), last)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return self._releases

    @property
    def gradient_evaluations(self) -> float:
        return float(self.n_scores * self.data.n_rows)

    @property
    def estimates_errors(self) -> bool:
        return is_quadratic(self.problem) and len(self.noise_multipliers) > 1

    @property
    def coefficient_noise(self) -> float:
        data, last = self.data, self._releases[-1]
        reach = 0.5 * data.target_high - 0.5 * data.target_low or 1.0
        if len(self._releases) == 1:
            noise = last.noise_std / math.sqrt(self.target_shares.mean)
            return noise * reach / data.n_rows / data.intercept
        share = self._score_share
        squares = MOST_SQUARES if self.full_weights else min(self.score_clip, MOST_SQUARES)
        longest = (1.0 + LEVEL) * squares * data.n_features
        extent = max(_REACH * self.slack, self._bound_for(_SMALL) / math.sqrt(longest))
        if self.inference is not None:
            # Weighted scores are clipped, and few rows have both a large weight and a large score.
            extent *= data.typical_weight / data.weight_bound
        reach *= 2.0 if self.full_weights else min(extent * USUAL_ERROR, 2.0)
        noise = last.noise_std * math.sqrt(longest / share) * reach / data.n_rows
        scale = usual_basis_scale(data, self._releases[1].noise_std)
        return noise * scale / (1.0 + self.problem.regularizer.strong_convexity * scale**2)

    @property
    def _score_share(self) -> float:
        """Share of the last releases, in units of one of them, that goes to scores."""
        if self.inference is None:
            return _SCORE.vector * self.n_scores
        return _FINAL[self.inference].vector

    def _bound_for(self, added: float) -> float:
        """Return the bound on scores for noise that adds this share, for unit variance."""
        n_rows, noise = self.data.n_rows, self._releases[-1].noise_std
        bound = math.sqrt(added * self._score_share * n_rows) / noise
        if self.inference == "robust":
            # Noise in products grows with the square of the bound, and lengthens intervals.
            square = math.sqrt(added / UNSURE * _FINAL["robust"].products) * n_rows / noise
            bound = min(bound, math.sqrt(square / self.data.unit_weight))
        return bound

    @property
    def moment_noise(self) -> float:
        """Relative noise in the second moments of the last release.

        For rows capped at ``clip``; the largest eigenvalue of noise is about ``sqrt(2 n_columns)``
        times its diagonal.
        """
        assert self.inference is not None
        data, last = self.data, self._releases[-1]
        longest = data.n_features * self.clip * (1.0 + LEVEL)
        noise = longest * last.noise_std / math.sqrt(_FINAL[self.inference].matrix)
        return noise * math.sqrt(2.0 * data.n_columns) / data.n_rows

    @property
    def price_of_full_weights(self) -> float:
        default = dataclasses.replace(self, full_weights=False).coefficient_noise
        return self.coefficient_noise / default if default > 0.0 else 1.0

    @property
    def estimand(self) -> str:
        if self.inference is None or self.full_weights:
            return ""
        bound = self.data.weight_bound
        shrunk = (
            ""
            if bound == 1.0
            else f" This is for rows of weight {bound:g}; in those of weight w, C is multiplied by "
            f"sqrt({bound:g} / w). Scores are clipped with their weights, so both limits shrink "
            "the weights of few rows only."
        )
        return (
            "Rows with a norm above C count by the factor (C / norm)^2, to limit the noise in "
            f"second moments: C = {math.sqrt(self.score_clip):.3g} times the root mean square, in "
            f"coordinates with mean 0 and variance 1.{shrunk}"
        )

    def init(self, seed: int) -> _State:
        size = self.data.n_columns
        zero, noise = np.zeros(size), np.zeros((size, size))
        return _State(0, None, None, None, None, _REACH * self.slack, None, zero, noise, None)

    def step(self, state: _State, oracle: Oracle) -> tuple[_State, StepInfo]:
        declared = self._releases[min(state.step, len(self._releases) - 1)]
        first = [self._ask_targets, self._ask_moments, self._ask_equations, self._ask_counts]
        if self.inference is not None:
            first[1:1] = [self._ask_columns, self._ask_near]
        last = self._ask_score if self.inference is None else self._ask_intervals
        ask = first[state.step] if state.step < len(first) else last
        after, step = ask(state, oracle, declared), state.step + 1
        return dataclasses.replace(after, step=step), StepInfo(step, float(step == self.n_steps))

    def finish(self, state: _State) -> Outcome:
        noise = NoiseCovariance(state.noise)
        known, precision, row = is_quadratic(self.problem) and noise.is_finite, None, None
        if state.intervals is not None:
            # The prediction for the mean row has the least error.
            row = solved(state.intervals.covariance, np.eye(len(state.w))[-1])
        if known and state.scores is not None and state.scores.precision:
            first, at = present(state.first), present(state.coordinates)
            errors = self._covariance(first, state.scores, at, state.scores.fit.variance)
            precision = np.asarray(np.linalg.pinv(errors, hermitian=True))
            row = precision[-1]
        found = Outcome(state.w, noise if known else None, uncertainty=state.intervals)
        return dataclasses.replace(found, precision=precision, products=row)

    @property
    def _penalized(self) -> int:
        return n_penalized(self.problem, self.data)

    def _ask_targets(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Release the targets, and predict their mean, with an intercept; zero otherwise."""
        sums = noisy_target_sums(oracle, declared, self.target_shares)
        targets = targets_of(sums, self.data, self.adjacency, self.slack)
        w, noise = np.zeros_like(state.w), np.zeros_like(state.noise)
        if self.data.intercept > 0.0:
            w[-1] = targets.mean.value / self.data.intercept
            noise[-1, -1] = (targets.mean.noise / self.data.intercept) ** 2
        w = feasible(self.problem, self._penalized, w, 0.0)
        return dataclasses.replace(state, targets=targets, w=w, noise=noise)

    def _ask_columns(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Release second moments of columns within their declared bounds."""
        moments = _bounded(noisy_second_moments(oracle, declared, constant_column(self.data)))
        return dataclasses.replace(state, moments=(moments, min(declared.noise_std, HUGE)))

    def _ask_near(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Count entries near the means of columns, and find the bounds that columns need."""
        moments, noise = present(state.moments)
        centers = centers_of(moments, noise, self.data)
        counts = _bounded(noisy_near_counts(oracle, declared, *centers))
        columns = Columns.of(moments, noise, counts, declared.noise_std, self.data)
        return dataclasses.replace(state, columns=columns)

    def _ask_moments(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Release second moments, and find centred coordinates."""
        data, noise = self.data, min(declared.noise_std, HUGE)
        by = None if state.columns is None else state.columns.standardising
        moments = _bounded(noisy_second_moments(oracle, declared, constant_column(data), by))
        if state.moments is not None and by is None:
            moments, noise = pooled_moments(*state.moments, moments, noise)
        at = centered_coordinates(moments, noise, data, self.clip)
        at = at if by is None else at.of_rows(present(state.columns), data)
        return dataclasses.replace(state, coordinates=at)

    def _ask_equations(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Release the normal equations, and solve them."""
        targets, at = present(state.targets), present(state.coordinates)
        # Without an intercept a shift of the target cannot be undone.
        center = 0.5 * targets.low + 0.5 * targets.high if at.level > 0.0 else 0.0
        reach = max(targets.high - center, center - targets.low) or 1.0
        zero = np.zeros(self.data.n_columns)
        view = LinearView(at.basis.vectors, at.cap, at.level, center, zero, reach)
        sums = noisy_weighted_moments(oracle, declared, view, _EQUATIONS).bounded(HUGE)
        weight = targets.weight
        slopes = slopes_of(sums, view, weight)
        in_variance = sums.squares_noise / weight
        variance = min(max(sums.squares / weight, in_variance), view.reach**2)
        mean = NoisyValue(0.0, 0.0)
        if view.level > 0.0:
            mean = with_biased(targets.mean.less(view.center), [slopes.level_of(sums, view, 0.0)])
        # Slopes, which multiply noise in the matrix, explain at most the variance.
        in_matrix = sums.matrix_noise * math.sqrt(0.5 * variance)
        noise = math.hypot(sums.vector_noise, in_matrix, slopes.mean_noise * mean.value)
        g = sums.vector[: self.data.n_features] - slopes.weight * mean.value * slopes.mean
        v, _, _ = shrunk_slopes(slopes.matrix, g, noise, variance, weight)
        explained = mean.value**2 + float(v @ slopes.matrix @ v) / weight
        left = max(variance - explained, NEGLIGIBLE * variance, 0.5 * in_variance)
        reach = state.extent * math.sqrt(left) + 2.0 * mean.noise
        width = self.data.target_high - self.data.target_low
        reach = min(reach, 2.0 * self.slack * view.reach, width or 1.0)
        v = slopes.beside_level(v, mean.value, view.level)
        first = FirstFit(view, sums, slopes, variance, Fit(v, mean, left, reach))
        return dataclasses.replace(state, first=first, scores=PooledScores.none(first))

    def _ask_counts(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Bound scores where their counts vanish, or further where noise is small anyway."""
        first, at = present(state.first), present(state.coordinates)
        # Without intervals scores are clipped by their own norm, and rows are not weighted.
        cap = at.capped(self.score_clip) if self.inference and not self.full_weights else at.most
        view = dataclasses.replace(first.view, cap=cap, v=first.fit.v)
        # Shells of scores over the weight bound, from their root mean square on.
        usual = math.sqrt((at.mean_square + at.level**2) * first.fit.variance)
        shells = Shells(usual / max(self.data.weight_bound, 1.0), RATIO)
        counts = _bounded(noisy_shell_counts(oracle, declared, view, shells))
        fit, deviation = first.fit, math.sqrt(first.fit.variance)
        # Weighted scores have heavier tails; experiments/survey.py measures the shell's effect.
        bound = first_empty(shells, counts, declared.noise_std)
        if self.inference is not None and self.data.weight_bound > 1.0:
            bound *= RATIO
        width = self.data.target_high - self.data.target_low or 1.0
        longest_score = width * math.sqrt(at.most + at.level**2)
        least = math.inf if self.full_weights else deviation * self._bound_for(_SMALL)
        bound = min(max(bound, least), longest_score)
        if self.inference is not None:
            view = dataclasses.replace(view, reach=bound / math.sqrt(view.longest))
            return dataclasses.replace(state, view=view)
        bound = min(bound, deviation * self._bound_for(_LARGE))
        reach = bound / math.sqrt(at.capped(self.score_clip) + at.level**2)
        fit = dataclasses.replace(fit, reach=max(fit.reach, reach))
        first, extent = dataclasses.replace(first, fit=fit), max(state.extent, reach / deviation)
        scores = PooledScores.none(first)
        return dataclasses.replace(state, first=first, scores=scores, extent=extent)

    def _ask_score(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Release a score at the estimate from all scores so far, and update it."""
        first, scores = present(state.first), present(state.scores)
        targets, at = present(state.targets), present(state.coordinates)
        cap, fit = at.capped(self.score_clip), scores.fit
        view = dataclasses.replace(first.view, cap=cap, v=fit.v, reach=fit.reach)
        sums = noisy_weighted_moments(oracle, declared, view, _SCORE).bounded(HUGE)
        scores = scores.and_one(first, targets, view, sums, state.extent, BY_CHANCE / self.n_scores)
        state = dataclasses.replace(state, scores=scores)
        if state.step + 1 < self.n_steps or not scores.precision:
            return state
        w = self._minimizer(first, scores, at.basis)
        noise = self._covariance(first, scores, at)
        if not (np.isfinite(w).all() and np.isfinite(noise).all()):
            return state
        return dataclasses.replace(state, w=w, noise=noise)

    def _ask_intervals(self, state: _State, oracle: Oracle, declared: SumRelease) -> _State:
        """Take a step from the first fit, without shrinkage."""
        assert self.inference is not None
        kind, view, first = self.inference, present(state.view), present(state.first)
        targets, at = present(state.targets), present(state.coordinates)
        prior, columns = prior_of_columns(
            at.basis, *at.columns, state.columns, self.prior_scales, self.data
        )
        prior = prior.scaled(max(first.variance - first.fit.mean.value**2, first.fit.variance))
        sums, met, errors = noisy_score_sums(oracle, declared, view, _FINAL[kind], columns)
        sums = sums.bounded(HUGE)
        weight = targets.weight, targets.weight_noise
        binding = Binding.of(met, errors, *weight, full_weights=self.full_weights)
        matrix, kept = with_products_of_indicators(
            sums.matrix, at.basis, self.indicators, self.data.intercept
        )
        sums = dataclasses.replace(sums, matrix=matrix)
        found = intervals(view, sums, at, prior, weight[0], self.data, self._penalty, kind, kept)
        found = dataclasses.replace(found, binding=binding)
        return dataclasses.replace(state, w=found.center, noise=found.privacy, intervals=found)

    @property
    def _penalty(self) -> Floats:
        """Diagonal of the penalty's Hessian, times the number of rows."""
        strengths = np.zeros(self.data.n_columns)
        strengths[: self._penalized] = self.problem.regularizer.strong_convexity
        return strengths * self.data.n_rows

    def _minimizer(self, first: FirstFit, scores: PooledScores, basis: Basis) -> Floats:
        """Return the parameter that minimises the estimated loss, and the penalty."""
        data, d = self.data, self.data.n_features
        view, slopes = first.view, first.slopes
        constant = np.zeros(data.n_columns)
        matrix, vector = np.zeros((data.n_columns,) * 2), np.zeros(data.n_columns)
        if view.level > 0.0:
            constant[-1] = view.center / data.intercept
            low, high = data.target_low - view.center, data.target_high - view.center
            predicts_mean = np.append(slopes.mean, view.level)
            matrix = slopes.weight * np.outer(predicts_mean, predicts_mean)
            vector = slopes.weight * min(max(scores.fit.mean.value, low), high) * predicts_mean
        matrix[:d, :d] += scores.matrix
        vector[:d] += scores.g
        matrix, vector = matrix / data.n_rows, vector / data.n_rows
        return minimize_quadratic(matrix, vector, basis, self.problem, self._penalized, constant)

    def _covariance(
        self, first: FirstFit, scores: PooledScores, at: Coordinates, variance: float = 0.0
    ) -> Floats:
        """Return the covariance of the parameter, by the delta method.

        That of noise, and of the sampling of rows with this variance of residuals.
        """
        d, slopes, vectors = self.data.n_features, first.slopes, at.basis.vectors
        bend = vectors.T @ (self._penalty[:, np.newaxis] * vectors)
        inverse = np.linalg.inv(scores.matrix + bend[:d, :d])
        noise = inverse @ (scores.noise(first) + variance * slopes.matrix) @ inverse
        if at.level > 0.0:
            # The level is the mean less the slopes' part, so slopes move it.
            moves = np.vstack([np.eye(d), -slopes.mean / at.level])
            noise = moves @ noise @ moves.T
            of_mean = scores.fit.mean.noise**2 + variance / slopes.weight
            noise[-1, -1] += of_mean / at.level**2
        return np.asarray(vectors @ noise @ vectors.T)


def _bounded(values: Floats) -> Floats:
    """Clip released values so that products of a few do not overflow."""
    return np.clip(values, -HUGE, HUGE)
