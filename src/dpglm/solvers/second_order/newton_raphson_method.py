"""The steps of Newton-Raphson: their releases and updates."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from dpglm._words import plain_number
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import constant_column, noisy_second_moments, second_moment_release
from dpglm.oracle.scores import (
    ClippedScores,
    hessian_release,
    length_release,
    limit_release,
    score_moment_release,
    score_release,
)
from dpglm.oracle.targets import (
    noisy_squared_slope,
    noisy_target_means,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.problem.loss import Target
from dpglm.solvers.base import Method, Outcome, StepInfo, present
from dpglm.solvers.parts.algebra import inverted, solved
from dpglm.solvers.parts.defaults import feasible, n_penalized
from dpglm.solvers.second_order.likelihood import (
    NormalScores,
    at_least,
    constant_model,
    declare,
    farthest_slope,
    is_quadratic,
    means_of_sizes,
    minimize_quadratic,
    stabilized,
    target_releases,
)
from dpglm.solvers.second_order.newton_raphson_settings import Limits, group_reach
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    constant_direction,
    measured_squares,
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

# Root-mean-square change of scores within which pooled steps share one Hessian, and the p-value
# below which they do not.
_NEAR, _LEAST_P_VALUE = 1.0, 1e-4
_IMMATERIAL = 0.25  # In standard deviations of a score.
# Share of the rarer class down to which plans add no caution.
_RAREST = 5e-3
# Clipping threshold of slopes when their standard deviation is released, in units of that of the
# constant model.
_FAR_SLOPE = 16.0
_REQUIRED = frozenset({"targets", "moments", "approach", "first Hessians", "Hessian", "final"})


@final
@dataclass(frozen=True, eq=False)
class NewtonRaphsonState:
    """Released values after some steps."""

    step: int
    w: NDArray[np.float64]
    seed: int  # Public: it chooses the first rows.
    moved: float = 2.0  # Root-mean-square change of scores in the last step.
    scores: ClippedScores | None = None
    basis: Basis | None = None
    squares: NDArray[np.float64] | None = None  # Mean squares of rows in its coordinates.
    # The Hessian of the current steps, as released and stabilised; variance of scores.
    seen: NDArray[np.float64] | None = None
    matrix: NDArray[np.float64] | None = None
    variance: NDArray[np.float64] | None = None
    # Noise on the diagonal of the covariance of scores, without the dispersion.
    variance_noise: float = 0.0
    # Points of the last scores, these scores, and the number of the first that is pooled.
    visited: tuple[NDArray[np.float64], ...] = ()
    found: tuple[NDArray[np.float64], ...] = ()
    first: int = 0
    settled: bool = True  # Whether one Hessian describes these scores.
    products: NDArray[np.float64] | None = None  # Second moments of scores, stabilised.
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
    longest_step: float  # Largest root-mean-square change of scores in a step.
    n_first_rows: int | None  # Number of rows in all but the last steps; None for all rows.
    n_pooled: int  # Number of last steps, with pooled scores.
    inference: Covariance | None
    noises: tuple[tuple[str, float], ...]  # Noise multiplier of each release.

    algorithm = "Newton-Raphson with pooled scores"

    @property
    def n_steps(self) -> int:
        return sum(self.first_steps) + self.n_pooled

    @functools.cached_property
    def declared(self) -> Mapping[str, SumRelease]:
        """The releases by name, in the order in which they are asked.

        Some fits only have those of sizes and slopes (targets without bounds), lengths (groups),
        score moments and limits (intervals).
        """
        data, adjacency, at = self.data, self.adjacency, self.limits

        def scores(noise: GaussianNoise, count: int) -> SumRelease:
            return score_release(data, adjacency, at.clip, noise, count=count)

        def hessians(noise: GaussianNoise, **options: Any) -> SumRelease:
            return hessian_release(data, adjacency, at.clip, at.square, noise, **options)

        partial, n_first = functools.partial, len(self.first_steps)
        makers = target_releases(self.problem, data, adjacency) | {
            "moments": partial(second_moment_release, data, adjacency),
            "lengths": partial(length_release, data, adjacency),
            "approach": partial(scores, count=sum(self.first_steps)),
            "first Hessians": partial(hessians, count=n_first - 1),
            "Hessian": partial(hessians, with_variance=self.inference == "model"),
            "final": partial(scores, count=self.n_pooled),
            "score moments": partial(score_moment_release, data, adjacency, at.clip),
            "limits": partial(limit_release, data, adjacency),
        }
        return declare(makers, dict(self.noises), _REQUIRED)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self.declared.values())

    @property
    def gradient_evaluations(self) -> float:
        return float(sum(self.first_steps) * self._n_asked + self.n_pooled * self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        # For scores with a standard deviation of 1.
        loss, data = self.problem.loss, self.data
        bend, _ = NormalScores.expected(loss, data).clipped(loss, data, math.inf)
        slope = loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        if "slopes" in self.declared:
            dispersion = loss.dispersion
            in_square = _FAR_SLOPE**2 * self.declared["slopes"].noise_std / data.n_rows
            square = bend * (dispersion or 1.0) * (1.0 + in_square)
            slope = min(slope, self.limits.slope * math.sqrt(square) + (dispersion or 0.0))
        scale = usual_basis_scale(data, self.declared["moments"].noise_std)
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
        # Where noise alone makes first steps as long as allowed, the fit does not converge.
        slope = loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        noise = (
            self.declared["approach"].noise_std * slope * math.sqrt(data.n_columns) / self._n_asked
        )
        enough = shares[noise <= self.longest_step * data.typical_weight * bends]
        if len(enough) and enough[0] == _RAREST:
            return ""
        least = plain_number(100.0 * (enough[0] if len(enough) else 0.5), 2)
        return (
            f"intervals need a rarer class of at least about {least} % of the rows: with a rarer "
            "one the fit may find nothing and still spend the budget"
        )

    @property
    def _pooled_noise(self) -> float:
        """Standard deviation of the noise in the mean of the pooled scores, in units of slopes."""
        return self.declared["final"].noise_std / (math.sqrt(self.n_pooled) * self.data.n_rows)

    def _doubt(self, state: NewtonRaphsonState) -> Doubt:
        """Return the noise in the Hessian, and in the covariance of scores."""
        scores, basis, seen = present(state.scores), present(state.basis), present(state.seen)
        in_variance = state.variance_noise / self.data.n_rows
        if self.inference == "model":
            in_variance *= self._scale(state)
        found = seen + self._curvature(state)[1] if state.settled else np.zeros_like(seen)
        noise = self._noise_of_hessian(scores)
        return Doubt.of(self._least_curvature(state), found, noise, in_variance, basis.vectors)

    def _noise_of_hessian(self, scores: ClippedScores) -> float:
        """Return the standard deviation of the noise in the diagonal of the last Hessian."""
        return self.declared["Hessian"].noise_std * scores.curvature / self._n_asked

    def _least_curvature(self, state: NewtonRaphsonState) -> Curvature:
        """Return a lower bound on the curvature, given its noise."""
        assert state.seen is not None
        assert state.scores is not None
        matrix, penalty = self._curvature(state)
        noise = self._noise_of_hessian(state.scores)
        return Curvature.from_noisy(matrix, state.seen + penalty, noise)

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
        """Return the covariance of the estimate from sampling, and from noise."""
        scores, basis, matrix = present(state.scores), present(state.basis), present(state.matrix)
        curved = self._curvature(state)[0]
        if self.inference is not None:
            curved = self._least_curvature(state).least
        inverse = inverted(curved)
        if self.inference == "robust":
            assert state.products is not None
            spread = state.products
        else:
            # Without intervals the variance of scores is taken to be their curvature.
            variance = matrix if state.variance is None else state.variance
            spread = self._scale(state) * variance
        kept = state.visited[state.first :]
        way = np.mean(kept, axis=0) - basis.inverse @ state.w
        back = basis.vectors @ inverse
        noise = self._noise_of_change(scores, way, 1.0 / len(kept))
        return back @ spread @ back.T / self.data.n_rows, back @ noise @ back.T

    def _noise_of_change(
        self, scores: ClippedScores, way: NDArray[np.float64], n_scores: float
    ) -> NDArray[np.float64]:
        """Return the covariance of the noise in this many scores and in the Hessian times a way."""
        one = np.eye(len(way))
        score = scores.reach * self.declared["final"].noise_std / self.data.n_rows
        hessian = self._noise_of_hessian(scores)
        found: NDArray[np.float64] = n_scores * score**2 * one
        return found + hessian**2 * (way @ way * one + np.outer(way, way)) / 2.0

    def _first_kept(self, state: NewtonRaphsonState) -> int | None:
        """Return the number of the first of the last scores that one Hessian describes.

        With a noisy approach the first of them are too far away. None if fewer than half would be
        left.
        """
        squares, visited = present(state.squares), state.visited
        steps = np.square(np.diff(visited, axis=0)) @ squares
        for first in range(self.n_pooled // 2 + 1):
            later = range(first + 1, self.n_pooled)
            near = (steps[first:] <= _NEAR**2).all()
            if near and all(self._changes_as_due(state, first, one) for one in later):
                return first
        return None

    def _changes_as_due(self, state: NewtonRaphsonState, first: int, later: int) -> bool:
        """Check that scores change between two pooled steps as the Hessian predicts.

        Up to noise and a share of the sampling error. Otherwise the Hessian varies too much between
        these steps, or more of it was clipped than of the scores.
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
        return float(chdtrc(len(gap), statistic)) > _LEAST_P_VALUE

    def _scale(self, state: NewtonRaphsonState) -> float:
        """Return the dispersion of a right model, estimated, known or 1."""
        return self._dispersion(state) or self.problem.loss.dispersion or 1.0

    def _dispersion(self, state: NewtonRaphsonState) -> float | None:
        """Return the estimated dispersion of a right model, if scores were released for it."""
        if state.products is None or self.inference == "robust":
            return None
        assert state.variance is not None
        # Average over the directions that the penalty leaves free.
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
        scores, basis = present(state.scores), present(state.basis)
        v, columns = basis.inverse @ state.w, self.data.n_columns
        is_final = state.step >= sum(self.first_steps)
        if state.step in np.cumsum(self.first_steps):
            state = self._with_hessian(state, scores, basis, oracle)
        matrix = present(state.matrix)
        declared = self.declared["final"] if is_final else self.declared["approach"]
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
        if state.step == self.n_steps and "score moments" in self.declared:
            v, at = basis.inverse @ w, self._squared(scores)
            products = at.mean_score_products(oracle, self.declared["score moments"], v)
            noise = self.declared["score moments"].noise_std * (at.slope * at.squares_within) ** 2
            noise /= self.data.n_rows
            products = stabilized(products, noise, v, basis.inverse[:, -1])
            state = dataclasses.replace(state, products=products)
            if self.inference == "robust":
                state = dataclasses.replace(state, variance_noise=noise)
        if state.step == self.n_steps and "limits" in self.declared:
            met, errors = scores.limits_met(oracle, self.declared["limits"], basis.inverse @ w)
            if "slopes" not in self.declared:
                # Slopes are clipped at their own bound, so clipping changes nothing.
                met[-1] = errors[-1] = 0.0
            binding = Binding.of(met / state.weight, errors / state.weight)
            state = dataclasses.replace(state, binding=binding)
        asked_rows = self.data.n_rows if is_final else self._n_asked
        noise_norm = declared.noise_std * scores.reach * math.sqrt(columns) / asked_rows
        info = StepInfo(state.step, step_size, float(np.linalg.norm(g)), noise_norm)
        return state, info

    def _squared(self, scores: ClippedScores) -> ClippedScores:
        """Return the limits of scores in a sum of squares, where long slopes cost more noise."""
        if "slopes" not in self.declared:
            return scores
        share = self.limits.squared_slope / self.limits.slope
        return dataclasses.replace(scores, slope=min(share, 1.0) * scores.slope)

    def _with_hessian(
        self, state: NewtonRaphsonState, scores: ClippedScores, basis: Basis, oracle: Oracle
    ) -> NewtonRaphsonState:
        """Release the Hessian at w, the last one with the variance of scores if needed."""
        v, level = basis.inverse @ state.w, basis.inverse[:, -1]
        is_last = state.step == sum(self.first_steps)
        asked = self.declared["Hessian"] if is_last else self.declared["first Hessians"]
        few = self._of_first_rows(state, oracle)
        noise = asked.noise_std * scores.curvature / self._n_asked
        if not (is_last and self.inference == "model"):
            seen = scores.mean_hessian(few, asked, v)
            matrix = stabilized(seen, noise, v, level)
            if not is_last:
                assert state.matrix is not None
                matrix = at_least(matrix, 0.5 * state.matrix)
            return dataclasses.replace(state, seen=seen, matrix=matrix)
        seen, variance = scores.mean_hessian_and_variance(few, asked, v)
        return dataclasses.replace(
            state,
            seen=seen,
            matrix=stabilized(seen, noise, v, level),
            variance=stabilized(variance, 2.0 * noise, v, level),
            variance_noise=2.0 * noise,
        )

    @property
    def _n_asked(self) -> int:
        """Number of rows in all but the last scores."""
        return self.n_first_rows or self.data.n_rows

    def _of_first_rows(self, state: NewtonRaphsonState, oracle: Oracle) -> Oracle:
        """Return the oracle of the random rows in all but the last scores."""
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
        if "sizes" not in self.declared:
            top = high
            mean, without_offset, weight = noisy_target_means(
                oracle, self.declared["targets"], low, high
            )
        else:
            mean, without_offset, weight, top = means_of_sizes(oracle, self.declared, loss)
        # Slopes and curvature are at means that include the offsets.
        _, bend = constant_model(loss, mean, low, high)
        score, _ = constant_model(loss, without_offset, low, high)
        slope = loss.slope_bound_on(math.inf, low, high)
        if "slopes" in self.declared:
            most = farthest_slope(loss, _FAR_SLOPE, score, bend, top)
            square = noisy_squared_slope(oracle, self.declared["slopes"], score, most, weight)
            # A known dispersion is one count, which exceeds small means by far.
            wanted = self.limits.slope * math.sqrt(square) + (loss.dispersion or 0.0)
            slope = min(slope, wanted)
        largest = min(loss.smoothness_on(math.inf, low, high), self.limits.curvature * bend)
        few = self._of_first_rows(state, oracle)
        moments = noisy_second_moments(few, self.declared["moments"], constant_column(data))
        basis = basis_from_moments(moments, self.declared["moments"].noise_std, data)
        w = score * constant_direction(moments, self.declared["moments"].noise_std, basis, data)
        w = feasible(self.problem, n_penalized(self.problem, data), w, 0.0)
        scores = ClippedScores(basis.vectors, self.limits.clip, self.limits.square, slope, largest)
        if "lengths" in self.declared:
            length, noise = scores.mean_length(oracle, self.declared["lengths"], basis.inverse @ w)
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
            squares=measured_squares(moments, self.declared["moments"].noise_std, data),
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
