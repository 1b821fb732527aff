"""The steps of Newton-Raphson: their releases and updates."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import constant_column, noisy_second_moments, second_moment_sum
from dpglm.oracle.scores import (
    LENGTHS,
    ClippedScores,
    curvature_sum,
    score_product_sum,
    score_with_limits,
    sum_of_scores,
)
from dpglm.oracle.targets import near_sum, noisy_near_counts
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import FitMethod, Outcome, StepInfo, present
from dpglm.solvers.second_order import likelihood, posterior
from dpglm.solvers.second_order.newton_raphson_settings import Limits, group_reach
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    Columns,
    basis_from_moments,
    centers_of,
    constant_direction,
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
    inverted,
    n_penalized,
    solved,
)

_DRIFT = 2.0  # In standard deviations of its noise.
# Clipping threshold of slopes when their deviation is released, in units of the constant model's;
# chosen by ``python -m experiments.newton_raphson``.
_FAR_SLOPE = 16.0
_REQUIRED = frozenset({"targets", "moments", "approach", "first Hessians", "Hessian"})


@final
@dataclass(frozen=True, eq=False)
class NewtonRaphsonState:
    """Released values after some steps."""

    step: int
    w: Floats
    seed: int  # Public: it chooses the first rows.
    moved: float = 2.0  # Root-mean-square change of scores in the last step.
    scores: ClippedScores | None = None
    basis: Basis | None = None
    matrix: Floats | None = None  # The Hessian of the current steps, stabilised.
    variance: Floats | None = None  # Of scores, under a right model.
    # With intervals: second moments in the basis, the Hessian, the prior, and the last point with
    # its score and the variance of its noise.
    moments: posterior.NoisyMatrix | None = None
    hessian: posterior.NoisyMatrix | None = None
    prior: posterior.Prior | None = None
    ahead: posterior.Prior | None = None  # Prior of the way from w.
    columns: Floats | None = None  # From coordinates to standardised columns.
    shown: Floats | None = None  # Removes effects of hidden columns with too little curvature.
    last: tuple[Floats, Floats, float] | None = None
    # Points of the last scores, and these scores.
    visited: tuple[Floats, ...] = ()
    found: tuple[Floats, ...] = ()
    products: Floats | None = None  # Second moments of scores, stabilised.
    weight: float = 1.0  # Sum of the weights.
    binding: Binding | None = None


@final
@dataclass(frozen=True)
class NewtonRaphsonMethod(FitMethod["NewtonRaphsonState"]):
    """Newton-Raphson with every setting decided."""

    limits: Limits
    first_steps: tuple[int, ...]  # Numbers of steps with the first matrix, and with each Hessian.
    longest_step: float  # Largest root-mean-square change of scores in a step.
    n_first_rows: int | None  # Number of rows in all but the last steps; None for all rows.
    n_pooled: int  # Number of last steps, with pooled scores.
    inference: Covariance | None
    noises: tuple[tuple[str, float], ...]  # Noise multiplier of each release.
    prior_scales: tuple[float, ...] | None = None  # As those of ``NewtonRaphson``.
    full_weights: bool = False
    indicators: tuple[tuple[int, int, float], ...] = ()  # With an intercept only.

    algorithm = "Newton-Raphson with pooled scores"

    @property
    def n_steps(self) -> int:
        return sum(self.first_steps) + self.n_pooled

    @functools.cached_property
    def declared(self) -> Mapping[str, SumRelease]:
        """The releases by name, in the order in which they are asked.

        Some fits only have those of sizes and slopes (targets without bounds), lengths (groups),
        and score moments. With intervals the last score has counts of limits in its slack.
        """
        at, facts = self.limits, (self.data, self.adjacency)
        data, hessians = self.data, curvature_sum(self.data, at.clip, at.square)
        has_last = self.inference is not None
        with_variance = self.inference == "model"
        hessian = curvature_sum(data, at.clip, at.square, with_variance=with_variance)
        scores = sum_of_scores(data, at.clip).release
        partial, n_first = functools.partial, len(self.first_steps)
        makers = likelihood.target_releases(self.problem, *facts) | {
            "columns": lambda noise: second_moment_sum(data).release(*facts, noise),
            "near": lambda noise: near_sum(data).release(*facts, noise),
            "moments": partial(second_moment_sum(data).release, *facts),
            "lengths": partial(LENGTHS.release, *facts),
            "approach": partial(scores, *facts, count=sum(self.first_steps)),
            "first Hessians": partial(hessians.release, *facts, count=n_first - 1),
            "Hessian": partial(hessian.release, *facts),
            "final": partial(scores, *facts, count=self.n_pooled - has_last),
            "last": lambda noise: score_with_limits(data, at.clip).release(*facts, noise),
            "score moments": lambda noise: score_product_sum(data, at.clip).release(*facts, noise),
        }
        required = _REQUIRED | {"last" if has_last else "final"}
        return likelihood.declare(makers, dict(self.noises), required)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self.declared.values())

    @property
    def gradient_evaluations(self) -> float:
        return float(sum(self.first_steps) * self._n_asked + self.n_pooled * self.data.n_rows)

    @property
    def estimates_errors(self) -> bool:
        return likelihood.is_quadratic(self.problem)

    @property
    def coefficient_noise(self) -> float:
        # For scores with a standard deviation of 1.
        loss, data = self.problem.loss, self.data
        bend, _ = likelihood.NormalScores.expected(loss, data).clipped(loss, data, math.inf)
        slope = loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        if "slopes" in self.declared:
            dispersion = loss.dispersion
            in_square = _FAR_SLOPE**2 * self.declared["slopes"].noise_std / data.n_rows
            square = bend * (dispersion or 1.0) * (1.0 + in_square)
            slope = min(slope, self.limits.slope * math.sqrt(square) + (dispersion or 0.0))
        scale = usual_basis_scale(data, self.declared["moments"].noise_std)
        if self.full_weights:
            # The longest row, of columns at their bounds, is within the limits.
            slope *= (data.row_norm * scale + 1.0) / self.limits.longest
        else:
            # Rows of the mean length count less if they are longer than the limits.
            bend *= min(self.limits.longest / math.sqrt(data.n_columns), 1.0)
        held = data.typical_weight * bend
        held += self.problem.regularizer.strong_convexity * scale**2
        return slope * self._pooled_noise * scale / held if held > 0.0 else math.inf

    @property
    def price_of_full_weights(self) -> float:
        default = dataclasses.replace(self, full_weights=False).coefficient_noise
        return self.coefficient_noise / default if default > 0.0 else 1.0

    @property
    def _pooled_noise(self) -> float:
        """Standard deviation of the noise in the mean of the pooled scores, in units of slopes."""
        last = self.declared.get("last") or self.declared["final"]
        return last.noise_std / (math.sqrt(self.n_pooled) * self.data.n_rows)

    def _noise_of_hessian(self, scores: ClippedScores) -> float:
        """Return the standard deviation of the noise in the diagonal of the last Hessian."""
        return self.declared["Hessian"].noise_std * scores.curvature / self._n_asked

    def _curvature(self, state: NewtonRaphsonState) -> tuple[Floats, Floats]:
        """Return the objective's curvature in the basis, and the penalty's part of it."""
        acted_on = present(state.basis).vectors[: n_penalized(self.problem, self.data)]
        penalty = self.problem.regularizer.strong_convexity * acted_on.T @ acted_on
        return present(state.matrix) + penalty, penalty

    def _covariance(self, state: NewtonRaphsonState) -> tuple[Floats, Floats]:
        """Return the covariance of the estimate from sampling, and from noise."""
        scores, basis = present(state.scores), present(state.basis)
        if self.inference is not None:
            found = self._posterior(state)
            back = basis.vectors @ found.gain
            sampling = back @ self._sampling(state) @ back.T
            return sampling, basis.vectors @ found.covariance @ basis.vectors.T - sampling
        way = np.mean(state.visited, axis=0) - basis.inverse @ state.w
        back = basis.vectors @ inverted(self._curvature(state)[0])
        # The noise in the mean of the scores, and in the Hessian times the way.
        score = scores.reach * self.declared["final"].noise_std / self.data.n_rows
        hessian, one = self._noise_of_hessian(scores), np.eye(len(way))
        noise = 0.5 * hessian**2 * (way @ way * one + np.outer(way, way))
        noise += score**2 / len(state.visited) * one
        return back @ self._sampling(state) @ back.T, back @ noise @ back.T

    def _sampling(self, state: NewtonRaphsonState) -> Floats:
        """Return the covariance of the mean score over rows from sampling."""
        if self.inference == "robust" and state.products is not None:
            return state.products / self.data.n_rows
        # Without a release of its own, the variance of scores is taken to be their curvature.
        variance = present(state.matrix if state.variance is None else state.variance)
        scale = self._dispersion(state) or self.problem.loss.dispersion or 1.0
        return scale * variance / self.data.n_rows

    def _posterior(self, state: NewtonRaphsonState) -> posterior.Posterior:
        """Return the belief about the parameter in the basis, from the pooled scores.

        If the Hessian fits the pooled points, ``H v - g`` is the same at all of them up to noise.
        A first point with a value unlike that of later ones, along the way to them, is left
        out, and half of the points stay. A difference that stays is counted as an error.
        """
        (total, penalty), hessian = self._curvature(state), present(state.hessian)
        shown, visited, first = present(state.shown), np.array(state.visited), 0
        pooled = visited @ shown.T @ hessian.mean - np.array(state.found)
        noise = self.declared["last"].noise_std * present(state.scores).reach / self.data.n_rows
        noise *= noise
        error = self._sampling(state)
        while first < len(visited) - 1:
            along = total @ (visited[first + 1 :].mean(axis=0) - visited[first])
            along /= max(float(np.linalg.norm(along)), 1e-300)
            drift = float(along @ (pooled[first + 1 :].mean(axis=0) - pooled[first]))
            if drift**2 <= _DRIFT**2 * noise * (1.0 + 1.0 / (len(visited) - first - 1)):
                break
            if first >= self.n_pooled // 2:
                error = error + drift**2 * np.outer(along, along)
                break
            first += 1
        error = error + noise / (len(visited) - first) * np.eye(len(total))
        center, mean = visited[first:].mean(axis=0), pooled[first:].mean(axis=0)
        return present(state.prior).updated(hessian, penalty, error, mean, center, shown)

    def _approached(
        self, state: NewtonRaphsonState, g: Floats, noise: float
    ) -> tuple[Floats, NewtonRaphsonState]:
        """Return the change of the parameter in the basis that all scores so far suggest.

        A step of size s changes a logistic or log link's curvature by exp(s) - 1, relatively, which
        leaves an error along the step and as much in all other directions together. The matrix of
        the first steps is not the Hessian, so their scores are dropped.
        """
        (_, penalty), fresh = self._curvature(state), state.step in (0, self.first_steps[0])
        slope = g + penalty @ present(state.basis).inverse @ state.w
        prior = present(state.prior if fresh else state.ahead)
        found = prior.updated(present(state.hessian), penalty, noise * np.eye(len(g)), -slope)
        way = found.mean
        length = math.sqrt(max(float(way @ present(state.moments).mean @ way), 0.0))
        missed = math.expm1(min(length, self.longest_step)) ** 2
        left = found.covariance + missed * np.outer(way, way)
        left += missed * length**2 / len(way) * np.eye(len(way))
        return way, dataclasses.replace(state, ahead=dataclasses.replace(prior, declared=left))

    def _dispersion(self, state: NewtonRaphsonState) -> float | None:
        """Return the estimated dispersion of a right model, if scores were released for it."""
        if state.products is None or self.inference == "robust":
            return None
        return float(np.trace(state.products) / max(np.trace(present(state.variance)), 1e-300))

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
        v = basis.inverse @ state.w
        is_final = state.step >= sum(self.first_steps)
        if state.step in np.cumsum(self.first_steps):
            state = self._with_hessian(state, oracle)
        is_last = self.inference is not None and state.step + 1 == self.n_steps
        declared = self.declared["last" if is_last else "final" if is_final else "approach"]
        noise_std = declared.noise_std * scores.reach
        noise_std /= self.data.n_rows if is_final else self._n_asked
        if is_last:
            g, state = self._ask_last(state, oracle, v)
        else:
            rows = oracle if is_final else self._of_first_rows(state, oracle)
            g = scores.mean_score(rows, declared, v)
        if is_final:
            state = dataclasses.replace(state, visited=(*state.visited, v), found=(*state.found, g))
        if self.inference is None:
            w = self._next(state, v, g, noise_std**2, is_final=is_final)
            length = float(np.linalg.norm(basis.inverse @ (w - state.w)))
        else:
            state = self._with_secant(state, v, g, noise_std**2)
            if is_final:
                way = self._posterior(state).mean - v
            else:
                way, state = self._approached(state, g, noise_std**2)
            w = state.w + basis.vectors @ way
            length = math.sqrt(max(float(way @ present(state.moments).mean @ way), 0.0))
        step_size = 1.0 / max(1.0, length / self.longest_step)
        w = state.w + step_size * (w - state.w)
        state = dataclasses.replace(state, step=state.step + 1, w=w, moved=step_size * length)
        if state.step == self.n_steps and "score moments" in self.declared:
            v, at = basis.inverse @ w, scores
            products = at.mean_score_products(oracle, self.declared["score moments"], v)
            noise = self.declared["score moments"].noise_std * (at.slope * at.squares_within) ** 2
            noise /= self.data.n_rows
            products = likelihood.stabilized(products, noise, v, basis.inverse[:, -1])
            state = dataclasses.replace(state, products=products)
        if state.step == self.n_steps and self.inference is not None:
            state = dataclasses.replace(state, w=basis.vectors @ self._posterior(state).mean)
        noise_norm = noise_std * math.sqrt(self.data.n_columns)
        return state, StepInfo(state.step, step_size, float(np.linalg.norm(g)), noise_norm)

    def _ask_last(
        self, state: NewtonRaphsonState, oracle: Oracle, v: Floats
    ) -> tuple[Floats, NewtonRaphsonState]:
        """Release the last score, and the shares of rows on which limits bind."""
        # Without this release slopes are clipped at their own bound, which changes nothing.
        cuts_slopes = "slopes" in self.declared
        g, met, errors = present(state.scores).mean_score_and_limits(
            oracle, self.declared["last"], v, present(state.columns), cuts_slopes=cuts_slopes
        )
        noise = self.declared["targets"].noise_std
        weight = likelihood.known_weight(state.weight, noise, self.data, self.adjacency)
        binding = Binding.of(
            met, errors, *weight, full_weights=self.full_weights, cuts_slopes=cuts_slopes
        )
        return g, dataclasses.replace(state, binding=binding)

    def _next(
        self, state: NewtonRaphsonState, v: Floats, g: Floats, noise: float, *, is_final: bool
    ) -> Floats:
        """Return the parameter after a step without intervals."""
        matrix, basis = present(state.matrix), present(state.basis)
        if is_final:
            pooled = matrix @ np.mean(state.visited, axis=0) - np.mean(state.found, axis=0)
        else:
            far = np.square(0.5 * state.moved) * (matrix @ matrix)
            pooled = matrix @ v - solved(far + noise * np.eye(len(v)), far @ g)
        penalized, zero = n_penalized(self.problem, self.data), np.zeros_like(v)
        return likelihood.minimize_quadratic(matrix, pooled, basis, self.problem, penalized, zero)

    def _with_secant(
        self, state: NewtonRaphsonState, v: Floats, g: Floats, noise: float
    ) -> NewtonRaphsonState:
        """Correct the Hessian by the change of the score since the last step."""
        if state.last is not None:
            before, score, other = state.last
            hessian = present(state.hessian).with_secant(v - before, g - score, noise + other)
            state = dataclasses.replace(state, hessian=hessian, matrix=hessian.mean)
        return dataclasses.replace(state, last=(v, g, noise))

    def _with_hessian(self, state: NewtonRaphsonState, oracle: Oracle) -> NewtonRaphsonState:
        """Release the Hessian at w, the last one with the variance of scores if needed."""
        scores, basis = present(state.scores), present(state.basis)
        v, level = basis.inverse @ state.w, basis.inverse[:, -1]
        is_last = state.step == sum(self.first_steps)
        asked = self.declared["Hessian"] if is_last else self.declared["first Hessians"]
        few = self._of_first_rows(state, oracle)
        with_variance = is_last and self.inference == "model"
        noise = asked.noise_std * scores.curvature / self._n_asked
        seen, *rest = scores.mean_curvatures(few, asked, v, with_variance=with_variance)
        if self.inference is None:
            matrix = likelihood.stabilized(seen, noise, v, level)
            if not is_last:
                matrix = likelihood.at_least(matrix, 0.5 * present(state.matrix))
            return dataclasses.replace(state, matrix=matrix)
        indicators, last = self.indicators, self.data.intercept
        seen, kept = with_products_of_indicators(seen, basis, indicators, last)
        known = np.linalg.qr(np.column_stack([level, v] if last > 0.0 else [v]))[0]
        for one in rest:
            own, _ = with_products_of_indicators(one, basis, indicators, last)
            variance = posterior.noisy_hessian(own, 2.0 * noise, kept, known).mean
            state = dataclasses.replace(state, variance=variance)
        hessian = posterior.noisy_hessian(seen, noise, kept, known)
        state = dataclasses.replace(state, hessian=hessian, matrix=hessian.mean, last=None)
        shown = present(state.prior).shown(self._curvature(state)[0], noise)
        return dataclasses.replace(state, shown=shown)

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
        found = likelihood.measured_constant(oracle, self.declared, loss, _FAR_SLOPE)
        score, bend, weight, square = found
        slope = loss.slope_bound_on(math.inf, low, high)
        if square is not None:
            # A known dispersion is one count, which exceeds small means by far.
            slope = min(slope, self.limits.slope * math.sqrt(square) + (loss.dispersion or 0.0))
        largest = min(loss.smoothness_on(math.inf, low, high), self.limits.curvature * bend)
        moments, noise, by = self._moments(self._of_first_rows(state, oracle))
        basis, own, of_columns = basis_from_moments(moments, noise, data), None, None
        if self.inference is not None:
            basis, own, of_columns = self._coordinates(moments, noise, is_own=by is None)
        w = score * constant_direction(moments, noise, basis, data)
        if by is not None:
            w, basis = by.parameter(w, data), by.basis(basis, data)
        if self.full_weights:
            # So that no row is longer than the limits.
            factor = self.limits.longest / basis.longest(data)
            basis = Basis(factor * basis.vectors, basis.inverse / factor)
            own = None if own is None else own.scaled(factor**2)
        w = feasible(self.problem, n_penalized(self.problem, data), w, 0.0)
        scores = ClippedScores(basis.vectors, self.limits.clip, self.limits.square, slope, largest)
        if "lengths" in self.declared:
            length, noise = scores.mean_length(oracle, self.declared["lengths"], basis.inverse @ w)
            per_unit = self._pooled_noise / (self.limits.clip * data.unit_weight)
            reaches = group_reach(length + noise, per_unit, data, self.inference)
            within, squares_within = (reach / data.reach() for reach in reaches)
            scores = dataclasses.replace(scores, within=within, squares_within=squares_within)
        bend *= weight / data.n_rows
        state = dataclasses.replace(state, w=w, weight=weight, scores=scores, basis=basis)
        if own is None or of_columns is None:
            return dataclasses.replace(state, matrix=bend * np.eye(data.n_columns))
        scales, levels = self.prior_scales, self.indicators
        prior, columns = prior_of_columns(basis, *of_columns, by, scales, data, levels)
        state = dataclasses.replace(state, moments=own, prior=prior, columns=columns)
        return dataclasses.replace(state, hessian=own.scaled(bend), matrix=bend * own.mean)

    def _moments(self, oracle: Oracle) -> tuple[Floats, float, Columns | None]:
        """Release second moments; return them, their noise, and columns with the right bounds."""
        data, last = self.data, self.declared["moments"]
        constant = constant_column(data)
        if "columns" not in self.declared:
            return noisy_second_moments(oracle, last, constant), last.noise_std, None
        first, near = self.declared["columns"], self.declared["near"]
        found = noisy_second_moments(oracle, first, constant)
        centers = centers_of(found, first.noise_std, data)
        counts = noisy_near_counts(oracle, near, *centers)
        by = Columns.of(found, first.noise_std, counts, near.noise_std, data)
        moments = noisy_second_moments(oracle, last, constant, by.standardising)
        if by.standardising is not None:
            return moments, last.noise_std, by
        return *pooled_moments(found, first.noise_std, moments, last.noise_std), None

    def _coordinates(
        self, moments: Floats, noise: float, *, is_own: bool
    ) -> tuple[Basis, posterior.NoisyMatrix, tuple[Floats, Floats, float]]:
        """Return a basis, second moments, and means and variances with their noise, from moments.

        Moments are those of the columns themselves, or of standardised ones.
        """
        data = self.data
        constant, size = constant_column(data), data.n_columns
        if is_own:
            same = Basis(np.eye(len(moments)), np.eye(len(moments)))
            moments, _ = with_products_of_indicators(moments, same, self.indicators, constant)
        found = posterior.column_moments(moments, noise)
        total = float(found.mean[-1, -1])
        unit, square = constant**2 / total, np.ix_(range(size), range(size))
        vectors, inverse, own = posterior.whitened(
            posterior.NoisyMatrix(found.mean[square], found.variances[square]), noise
        )
        ends = np.ones(size)
        if data.intercept > 0.0:
            ends[-1] = constant / data.intercept
        root = math.sqrt(unit)
        basis = Basis(ends[:, np.newaxis] * vectors / root, root * inverse / ends)
        features = slice(data.n_features)
        variances = unit * (np.diag(found.mean) - found.mean[-1] ** 2 / total)[features]
        means = found.mean[-1, features] * constant / total
        return basis, own, (means, variances, unit * noise)

    def finish(self, state: NewtonRaphsonState) -> Outcome:
        basis, (sampling, privacy) = present(state.basis), self._covariance(state)
        noise, uncertainty, precision = None, None, None
        if likelihood.is_quadratic(self.problem):
            own = NoiseCovariance(privacy).mapped(basis.inverse)
            if own.is_finite:
                # The last step was no longer than this, however small the curvature is.
                noise = own.at_most(self.longest_step**2).mapped(basis.vectors)
        if self.inference is not None:
            uncertainty = Uncertainty(
                state.w,
                sampling,
                privacy,
                kind=self.inference,
                dispersion=self._dispersion(state),
                binding=state.binding,
                prior=basis.vectors @ present(state.prior).declared @ basis.vectors.T,
            )
        if np.isfinite(sampling + privacy).all():
            precision = np.asarray(np.linalg.pinv(sampling + privacy, hermitian=True))
        known = None if self.inference or precision is None else self._known(state)
        row = basis.inverse[:, -1] @ basis.inverse
        found = Outcome(state.w, noise, uncertainty=uncertainty, products=row)
        return dataclasses.replace(found, precision=precision, known=known)

    def _known(self, state: NewtonRaphsonState) -> Floats:
        """Return the share of a true parameter that steps reach if noise raised the curvature.

        The norm of a symmetric matrix of normal entries is at most about sqrt(2 n) times the
        standard deviation of its diagonal (Wigner). Each step leaves at most the ratio of this
        noise to the curvature; one step of the approach and the pooled scores count.
        """
        basis, (curvature, _) = present(state.basis), self._curvature(state)
        values, turn = np.linalg.eigh(curvature)
        noise = math.sqrt(2.0 * len(values)) * self._noise_of_hessian(present(state.scores))
        kept = turn * (1.0 - np.clip(noise / values, 0.0, 1.0) ** 2)
        return np.asarray(basis.vectors @ kept @ turn.T @ basis.inverse)
