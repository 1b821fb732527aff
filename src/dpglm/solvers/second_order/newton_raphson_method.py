"""The steps of Newton-Raphson: what each releases, and what follows from it."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from dpglm._words import plain_number
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import noisy_second_moments, second_moment_release
from dpglm.oracle.scores import (
    Scores,
    hessian_release,
    length_release,
    limit_release,
    score_moment_release,
    score_release,
)
from dpglm.oracle.targets import (
    noisy_squared_slope,
    noisy_target_means,
    squared_slope_release,
    target_mean_release,
    target_size_release,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.problem.loss import Target
from dpglm.solvers.base import Method, Outcome, StepInfo
from dpglm.solvers.parts.algebra import inverted, solved
from dpglm.solvers.parts.defaults import feasible, n_penalized
from dpglm.solvers.second_order.likelihood import (
    NormalScores,
    at_least,
    constant_model,
    farthest_slope,
    is_quadratic,
    means_of_sizes,
    minimize_quadratic,
    steadied,
)
from dpglm.solvers.second_order.newton_raphson_settings import Limits, group_reach
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    constant_column,
    constant_direction,
    seen_squares,
    usual_basis_scale,
)
from dpglm.solvers.uncertainty import (
    Binding,
    Covariance,
    Curvature,
    Doubt,
    NoiseCovariance,
    Uncertainty,
)

__all__ = ["NewtonRaphsonMethod"]

# How far pooled steps may change scores, root mean square, as one Hessian serves all of them; and
# a chance below which it is taken not to.
_NEAR, _HARDLY_CHANCE = 1.0, 1e-4
_IMMATERIAL = 0.25  # Of the standard deviation of a score.
# Share of a class up to which a plan says nothing of it.
_RAREST = 5e-3
# Where slopes are cut to find their standard deviation, in units of what it is without excess.
_FAR_SLOPE = 16.0


@final
@dataclass(frozen=True, eq=False)
class NewtonRaphsonState:
    """Released values after some steps."""

    step: int
    w: NDArray[np.float64]
    seed: int  # Public: it chooses the first rows.
    moved: float = 2.0  # How far the last step changed scores, root mean square.
    scores: Scores | None = None
    basis: Basis | None = None
    squares: NDArray[np.float64] | None = None  # Of rows along its coordinates.
    # The Hessian of the current steps, as it was released and steadied; variance of scores.
    seen: NDArray[np.float64] | None = None
    matrix: NDArray[np.float64] | None = None
    variance: NDArray[np.float64] | None = None
    # In what stands for the covariance of scores, on its diagonal, but for the dispersion.
    variance_noise: float = 0.0
    # Where the last scores were asked, the scores, and from which on they are pooled in the end.
    visited: tuple[NDArray[np.float64], ...] = ()
    found: tuple[NDArray[np.float64], ...] = ()
    first: int = 0
    settled: bool = True  # Whether these are the scores of one Hessian.
    products: NDArray[np.float64] | None = None  # Second moments of scores, likewise.
    weight: float = 1.0  # Sum of the weights.
    binding: Binding | None = None


@final
@dataclass(frozen=True)
class NewtonRaphsonMethod(Method["NewtonRaphsonState"]):
    """Newton-Raphson with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    limits: Limits
    first_steps: tuple[int, ...]  # Numbers of steps with the first matrix, and with each Hessian.
    longest_step: float  # How far a step may change scores, root mean square.
    # Number of rows that all but the last steps ask, where that is less than all.
    n_first_rows: int | None
    n_pooled: int  # Number of last steps, whose scores are pooled.
    inference: Covariance | None
    target_noise: float
    slope_noise: float | None
    moment_noise: float
    approach_noise: float
    first_hessian_noise: float
    hessian_noise: float
    final_noise: float
    score_moment_noise: float | None
    length_noise: float | None = None  # Of rows in groups only.
    limit_noise: float | None = None  # With intervals only.
    size_noise: float | None = None  # Of targets without an upper bound only.

    algorithm = "Newton-Raphson with pooled scores"

    @property
    def n_steps(self) -> int:
        return sum(self.first_steps) + self.n_pooled

    @functools.cached_property
    def sizes(self) -> SumRelease | None:
        """The release of the counts of targets by size, where these have no bound."""
        if self.size_noise is None:
            return None
        return target_size_release(
            self.data,
            self.adjacency,
            GaussianNoise(self.size_noise),
            has_offset=self.problem.loss.offset_bound > 0.0,
        )

    @functools.cached_property
    def targets(self) -> SumRelease:
        """The release of the sums of targets and weights."""
        return target_mean_release(
            self.data,
            self.adjacency,
            GaussianNoise(self.target_noise),
            has_offset=self.problem.loss.offset_bound > 0.0,
        )

    @functools.cached_property
    def squared_slopes(self) -> SumRelease | None:
        """The release of the mean of squared slopes, where these have no bound."""
        if self.slope_noise is None:
            return None
        return squared_slope_release(self.data, self.adjacency, GaussianNoise(self.slope_noise))

    @functools.cached_property
    def moments(self) -> SumRelease:
        """The release of second moments."""
        return second_moment_release(self.data, self.adjacency, GaussianNoise(self.moment_noise))

    @functools.cached_property
    def approach(self) -> SumRelease:
        """The release of each of the first scores."""
        return self._scores(self.approach_noise, sum(self.first_steps))

    @functools.cached_property
    def final(self) -> SumRelease:
        """The release of each of the pooled scores."""
        return self._scores(self.final_noise, self.n_pooled)

    def _scores(self, multiplier: float, count: int) -> SumRelease:
        noise = GaussianNoise(multiplier)
        return score_release(self.data, self.adjacency, self.limits.clip, noise, count=count)

    @functools.cached_property
    def first_hessians(self) -> SumRelease:
        """The release of each Hessian but the last."""
        return self._hessians(self.first_hessian_noise, count=len(self.first_steps) - 1)

    @functools.cached_property
    def hessian(self) -> SumRelease:
        """The release of the last Hessian, with the variance of scores that a right model has."""
        return self._hessians(self.hessian_noise, with_variance=self.inference == "model")

    def _hessians(self, multiplier: float, **options: Any) -> SumRelease:
        noise, at = GaussianNoise(multiplier), self.limits
        return hessian_release(self.data, self.adjacency, at.clip, at.square, noise, **options)

    @functools.cached_property
    def score_moments(self) -> SumRelease | None:
        """The release of second moments of scores, where there is one."""
        if self.score_moment_noise is None:
            return None
        noise = GaussianNoise(self.score_moment_noise)
        return score_moment_release(self.data, self.adjacency, self.limits.clip, noise)

    @functools.cached_property
    def lengths(self) -> SumRelease | None:
        """The release of the mean length of groups' scores, where there are groups."""
        if self.length_noise is None:
            return None
        return length_release(self.data, self.adjacency, GaussianNoise(self.length_noise))

    @functools.cached_property
    def limits_met(self) -> SumRelease | None:
        """The release of how many rows the limits bind on, with intervals."""
        if self.limit_noise is None:
            return None
        return limit_release(self.data, self.adjacency, GaussianNoise(self.limit_noise))

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        every = (
            self.sizes,
            self.targets,
            self.squared_slopes,
            self.moments,
            self.lengths,
            self.approach,
            self.first_hessians,
            self.hessian,
            self.final,
            self.score_moments,
            self.limits_met,
        )
        return tuple(one for one in every if one is not None)

    @property
    def gradient_evaluations(self) -> float:
        return float(sum(self.first_steps) * self._n_asked + self.n_pooled * self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        # As if scores of rows had the standard deviation 1.
        loss, data = self.problem.loss, self.data
        bend, _ = NormalScores.expected(loss, data).clipped(loss, data, math.inf)
        slope = loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        if self.squared_slopes is not None:
            dispersion = loss.dispersion
            in_square = _FAR_SLOPE**2 * self.squared_slopes.noise_std / data.n_rows
            square = bend * (dispersion or 1.0) * (1.0 + in_square)
            slope = min(slope, self.limits.slope * math.sqrt(square) + (dispersion or 0.0))
        scale = usual_basis_scale(data, self.moments.noise_std)
        held = data.typical_weight * bend
        held += self.problem.regularizer.strong_convexity * scale**2
        return slope * self._pooled_noise * scale / held if held > 0.0 else math.inf

    @property
    def needs(self) -> str:
        loss, data = self.problem.loss, self.data
        if self.inference is None or loss.target is not Target.BINARY:
            return ""
        shares = np.geomspace(_RAREST, 0.5)
        bends = np.array([constant_model(loss, 2.0 * one - 1.0, -1.0, 1.0)[1] for one in shares])
        # Noise alone would make first steps as long as they may be, so that none arrives.
        slope = loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        noise = self.approach.noise_std * slope * math.sqrt(data.n_columns) / self._n_asked
        enough = shares[noise <= self.longest_step * data.typical_weight * bends]
        if len(enough) and enough[0] == _RAREST:
            return ""
        least = plain_number(100.0 * (enough[0] if len(enough) else 0.5), 2)
        return (
            f"intervals need a rarer class of about {least} % of the rows or more: of one that is "
            "rarer the fit may find nothing, and the budget would be spent"
        )

    @property
    def _pooled_noise(self) -> float:
        """Standard deviation of the noise in the mean of the pooled scores, in units of slopes."""
        return self.final.noise_std / (math.sqrt(self.n_pooled) * self.data.n_rows)

    def _doubt(self, state: NewtonRaphsonState) -> Doubt:
        """Return what noise hides of the Hessian, and of the covariance of scores."""
        scores, basis, seen = state.scores, state.basis, state.seen
        assert scores is not None
        assert basis is not None
        assert seen is not None
        in_variance = state.variance_noise / self.data.n_rows
        if self.inference == "model":
            in_variance *= self._scale(state)
        found = seen + self._curvature(state)[1] if state.settled else np.zeros_like(seen)
        noise = self._noise_of_hessian(scores)
        return Doubt.of(self._least_curvature(state), found, noise, in_variance, basis.vectors)

    def _noise_of_hessian(self, scores: Scores) -> float:
        """Return the standard deviation of the noise in the diagonal of the last Hessian."""
        return self.hessian.noise_std * scores.curvature / self._n_asked

    def _least_curvature(self, state: NewtonRaphsonState) -> Curvature:
        """Return the curvature that noise surely leaves."""
        assert state.seen is not None
        assert state.scores is not None
        matrix, penalty = self._curvature(state)
        noise = self._noise_of_hessian(state.scores)
        return Curvature.seen_through(matrix, state.seen + penalty, noise)

    def _curvature(
        self, state: NewtonRaphsonState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the objective's curvature in the basis, and the penalty's part of it."""
        assert state.basis is not None
        assert state.matrix is not None
        acted_on = state.basis.vectors[: n_penalized(self.problem, self.data)]
        penalty = self.problem.regularizer.strong_convexity * acted_on.T @ acted_on
        return state.matrix + penalty, penalty

    def _covariance(
        self, state: NewtonRaphsonState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Covariance of the estimate due to sampling and to noise."""
        scores, basis, matrix = state.scores, state.basis, state.matrix
        assert scores is not None
        assert basis is not None
        assert matrix is not None
        curved = self._curvature(state)[0]
        if self.inference is not None:
            curved = self._least_curvature(state).least
        inverse = inverted(curved)
        if self.inference == "robust":
            assert state.products is not None
            spread = state.products
        else:
            # Without intervals scores are taken to vary as much as their curvature says.
            variance = matrix if state.variance is None else state.variance
            spread = self._scale(state) * variance
        kept = state.visited[state.first :]
        way = np.mean(kept, axis=0) - basis.inverse @ state.w
        back = basis.vectors @ inverse
        noise = self._noise_of_change(scores, way, 1.0 / len(kept))
        return back @ spread @ back.T / self.data.n_rows, back @ noise @ back.T

    def _noise_of_change(
        self, scores: Scores, way: NDArray[np.float64], n_scores: float
    ) -> NDArray[np.float64]:
        """Covariance of the noise in so many scores and in the Hessian times a way."""
        one = np.eye(len(way))
        score = scores.reach * self.final.noise_std / self.data.n_rows
        hessian = self._noise_of_hessian(scores)
        found: NDArray[np.float64] = n_scores * score**2 * one
        return found + hessian**2 * (way @ way * one + np.outer(way, way)) / 2.0

    def _first_kept(self, state: NewtonRaphsonState) -> int | None:
        """Return from which of the last scores on they are those of one Hessian.

        Where the approach was noisy, the first of them were asked too far away: those that are left
        are fewer, and have more noise. None where these would be less than half.
        """
        squares, visited = state.squares, state.visited
        assert squares is not None
        steps = np.square(np.diff(visited, axis=0)) @ squares
        for first in range(self.n_pooled // 2 + 1):
            later = range(first + 1, self.n_pooled)
            near = (steps[first:] <= _NEAR**2).all()
            if near and all(self._changes_as_due(state, first, one) for one in later):
                return first
        return None

    def _changes_as_due(self, state: NewtonRaphsonState, first: int, later: int) -> bool:
        """Whether scores have changed between two pooled steps as the Hessian says.

        But for noise, and a share of what sampling makes of them. Where they have not, the Hessian
        is not that of these steps: it changes too much on their way, or more of it was cut than of
        the scores.
        """
        assert state.scores is not None
        assert state.matrix is not None
        way = state.visited[later] - state.visited[first]
        gap = state.found[later] - state.found[first] - state.matrix @ way
        if not way.any():
            return True
        due = self._noise_of_change(state.scores, way, 2.0)
        due += _IMMATERIAL**2 * state.matrix / self.data.n_rows
        statistic = float(gap @ solved(due, gap))
        return float(chdtrc(len(gap), statistic)) > _HARDLY_CHANCE

    def _scale(self, state: NewtonRaphsonState) -> float:
        """Dispersion of a right model, estimated, known or 1."""
        return self._dispersion(state) or self.problem.loss.dispersion or 1.0

    def _dispersion(self, state: NewtonRaphsonState) -> float | None:
        """Dispersion of a right model, where scores were asked for it."""
        if state.products is None or self.inference == "robust":
            return None
        assert state.variance is not None
        # Of scores in all directions, as far as a penalty leaves them free.
        inverse = inverted(self._curvature(state)[0])
        return float(np.vdot(inverse, state.products) / np.vdot(inverse, state.variance))

    def init(self, seed: int) -> NewtonRaphsonState:
        zero = np.zeros(self.data.coefficient_shape)
        penalized = n_penalized(self.problem, self.data)
        return NewtonRaphsonState(0, feasible(self.problem, penalized, zero, 1.0), seed)

    def step(
        self, state: NewtonRaphsonState, oracle: Oracle
    ) -> tuple[NewtonRaphsonState, StepInfo]:
        if state.scores is None:
            state = self._started(state, oracle)
        scores, basis = state.scores, state.basis
        assert scores is not None
        assert basis is not None
        v, columns = basis.inverse @ state.w, self.data.n_columns
        is_final = state.step >= sum(self.first_steps)
        if state.step in np.cumsum(self.first_steps):
            state = self._with_hessian(state, scores, basis, oracle)
        matrix = state.matrix
        assert matrix is not None
        declared = self.final if is_final else self.approach
        of_rows = oracle if is_final else self._of_first_rows(state, oracle)
        g = scores.mean_score(of_rows, declared, v)
        pooled = matrix @ v - g
        if not is_final:
            far = np.square(0.5 * state.moved) * (matrix @ matrix)
            noise = np.square(declared.noise_std * scores.reach / self._n_asked)
            pooled = matrix @ v - solved(far + noise * np.eye(columns), far @ g)
        else:
            state = dataclasses.replace(state, visited=(*state.visited, v), found=(*state.found, g))
            if len(state.visited) == self.n_pooled and self.inference is not None:
                first = self._first_kept(state)
                state = dataclasses.replace(state, first=first or 0, settled=first is not None)
            kept = slice(state.first, None)
            pooled = matrix @ np.mean(state.visited[kept], axis=0)
            pooled -= np.mean(state.found[kept], axis=0)
        w = minimize_quadratic(
            matrix,
            pooled,
            basis,
            self.problem,
            n_penalized(self.problem, self.data),
            np.zeros_like(v),
        )
        length = float(np.linalg.norm(basis.inverse @ (w - state.w)))
        step_size = 1.0 / max(1.0, length / self.longest_step)
        w = state.w + step_size * (w - state.w)
        moved = min(length, self.longest_step)
        state = dataclasses.replace(state, step=state.step + 1, w=w, moved=moved)
        if state.step == self.n_steps:
            assert state.squares is not None
            near = float(state.squares @ (basis.inverse @ w - v) ** 2) <= _NEAR**2
            settled = state.settled and near and step_size == 1.0
            state = dataclasses.replace(state, settled=settled)
        if state.step == self.n_steps and self.score_moments is not None:
            v, at = basis.inverse @ w, self._squared(scores)
            products = at.mean_score_products(oracle, self.score_moments, v)
            noise = self.score_moments.noise_std * (at.slope * at.squares_within) ** 2
            noise /= self.data.n_rows
            products = steadied(products, noise, v, basis.inverse[:, -1])
            state = dataclasses.replace(state, products=products)
            if self.inference == "robust":
                state = dataclasses.replace(state, variance_noise=noise)
        if state.step == self.n_steps and self.limits_met is not None:
            met, errors = scores.limits_met(oracle, self.limits_met, basis.inverse @ w)
            if self.squared_slopes is None:
                # Slopes are cut at their own bound, which some reach: nothing is lost.
                met[-1] = errors[-1] = 0.0
            binding = Binding.of(met / state.weight, errors / state.weight)
            state = dataclasses.replace(state, binding=binding)
        asked_rows = self.data.n_rows if is_final else self._n_asked
        noise_norm = declared.noise_std * scores.reach * math.sqrt(columns) / asked_rows
        info = StepInfo(state.step, step_size, float(np.linalg.norm(g)), noise_norm)
        return state, info

    def _squared(self, scores: Scores) -> Scores:
        """Return how scores enter a sum of their squares, whose noise grows with that of slopes."""
        if self.squared_slopes is None:
            return scores
        share = self.limits.squared_slope / self.limits.slope
        return dataclasses.replace(scores, slope=min(share, 1.0) * scores.slope)

    def _with_hessian(
        self, state: NewtonRaphsonState, scores: Scores, basis: Basis, oracle: Oracle
    ) -> NewtonRaphsonState:
        """Release the Hessian at w, the last one with the variance of scores if it is wanted."""
        v, level = basis.inverse @ state.w, basis.inverse[:, -1]
        is_last = state.step == sum(self.first_steps)
        asked = self.hessian if is_last else self.first_hessians
        few = self._of_first_rows(state, oracle)
        noise = asked.noise_std * scores.curvature / self._n_asked
        if not (is_last and self.inference == "model"):
            seen = scores.mean_hessian(few, asked, v)
            matrix = steadied(seen, noise, v, level)
            if not is_last:
                assert state.matrix is not None
                matrix = at_least(matrix, 0.5 * state.matrix)
            return dataclasses.replace(state, seen=seen, matrix=matrix)
        seen, variance = scores.mean_hessian_and_variance(few, asked, v)
        return dataclasses.replace(
            state,
            seen=seen,
            matrix=steadied(seen, noise, v, level),
            variance=steadied(variance, 2.0 * noise, v, level),
            variance_noise=2.0 * noise,
        )

    @property
    def _n_asked(self) -> int:
        """Number of rows that all but the last scores ask."""
        return self.n_first_rows or self.data.n_rows

    def _of_first_rows(self, state: NewtonRaphsonState, oracle: Oracle) -> Oracle:
        """Return the oracle that all but the last scores ask, of rows that chance chose."""
        if self.n_first_rows is None:
            return oracle
        if "first" not in oracle.kept:
            rng = np.random.default_rng(state.seed)
            chosen = rng.choice(oracle.rows.n_rows, self.n_first_rows, replace=False, shuffle=False)
            oracle.kept["first"] = oracle.part(np.sort(chosen))
        first: Oracle = oracle.kept["first"]
        return first

    def _started(self, state: NewtonRaphsonState, oracle: Oracle) -> NewtonRaphsonState:
        """Release the mean of the targets and second moments; start at the constant model."""
        loss, data = self.problem.loss, self.data
        low, high = data.target_range(loss.target.bounds)
        if self.sizes is None:
            top = high
            mean, without_offset, weight = noisy_target_means(oracle, self.targets, low, high)
        else:
            mean, without_offset, weight, top = means_of_sizes(
                oracle, self.sizes, self.targets, loss
            )
        # Slopes and curvature are those of the means that rows have with their offsets.
        _, bend = constant_model(loss, mean, low, high)
        score, _ = constant_model(loss, without_offset, low, high)
        slope = loss.slope_bound_on(math.inf, low, high)
        if self.squared_slopes is not None:
            most = farthest_slope(loss, _FAR_SLOPE, score, bend, top)
            square = noisy_squared_slope(oracle, self.squared_slopes, score, most, weight)
            # Where the dispersion is known it is one count, by which small means are far exceeded.
            wanted = self.limits.slope * math.sqrt(square) + (loss.dispersion or 0.0)
            slope = min(slope, wanted)
        largest = min(loss.smoothness_on(math.inf, low, high), self.limits.curvature * bend)
        few = self._of_first_rows(state, oracle)
        moments = noisy_second_moments(few, self.moments, constant_column(data))
        basis = basis_from_moments(moments, self.moments.noise_std, data)
        w = score * constant_direction(moments, self.moments.noise_std, basis, data)
        w = feasible(self.problem, n_penalized(self.problem, data), w, 0.0)
        scores = Scores(basis.vectors, self.limits.clip, self.limits.square, slope, largest)
        if self.lengths is not None:
            length, noise = scores.mean_length(oracle, self.lengths, basis.inverse @ w)
            per_unit = self._pooled_noise / (self.limits.clip * data.unit_weight)
            reaches = group_reach(length + noise, per_unit, data, self.inference)
            within, squares_within = (reach / data.reach() for reach in reaches)
            scores = dataclasses.replace(scores, within=within, squares_within=squares_within)
        return dataclasses.replace(
            state,
            w=w,
            weight=weight,
            scores=scores,
            basis=basis,
            squares=seen_squares(moments, self.moments.noise_std, data),
            matrix=weight / data.n_rows * bend * np.eye(data.n_columns),
        )

    def finish(self, state: NewtonRaphsonState) -> Outcome:
        assert state.basis is not None
        sampling, privacy = self._covariance(state)
        noise, uncertainty, precision = None, None, None
        if is_quadratic(self.problem):
            noise = NoiseCovariance(privacy).mapped(state.basis.inverse)
            if noise.is_finite:
                # The last step was no longer than this, however small the curvature is.
                noise = noise.at_most(self.longest_step**2).mapped(state.basis.vectors)
            else:
                noise = None
        if self.inference is not None:
            uncertainty = Uncertainty(
                state.w,
                sampling,
                privacy,
                kind=self.inference,
                doubt=self._doubt(state),
                dispersion=self._dispersion(state),
                binding=state.binding,
            )
        if np.isfinite(sampling + privacy).all():
            precision = np.asarray(np.linalg.pinv(sampling + privacy, hermitian=True))
        return Outcome(state.w, noise, uncertainty=uncertainty, precision=precision)
