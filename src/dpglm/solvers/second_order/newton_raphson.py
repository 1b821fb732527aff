"""Newton-Raphson on released scores and Hessians: the maximum likelihood estimate, with noise."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_one_of
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradient_sums.scores import (
    Scores,
    hessian_release,
    length_release,
    score_moment_release,
    score_release,
)
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import (
    noisy_second_moments,
    second_moment_release,
)
from dpglm.oracle.row_sums.target_means import (
    noisy_squared_slope,
    noisy_target_means,
    squared_slope_release,
    target_mean_release,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem, Unconstrained
from dpglm.problem.loss import Target
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.parts.defaults import curvature, slope_unit
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.planning import calibrated
from dpglm.solvers.second_order.likelihood import check_likelihood, constant_model, steadied
from dpglm.solvers.second_order.newton_raphson_settings import (
    LENGTHS,
    SHARES,
    group_reach,
    hessian_noise,
    limits,
    rows_enough,
)
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    check_data,
    constant_column,
    largest_basis_scale,
)
from dpglm.solvers.second_order.quadratic import minimize_quadratic
from dpglm.solvers.uncertainty import Covariance, Uncertainty

__all__ = ["NewtonRaphson", "NewtonRaphsonMethod"]

# Chosen on generated rows by experiments/newton_raphson.py; docs/solvers/newton_raphson.md.
_SCORE_MOMENTS = 0.15
# Gradients with the first matrix and with each of the Hessians but the last, whose are pooled;
# a Hessian for each of them where noise in the last one is less than this share of it.
_APPROACH, _FRESH = (2, 2, 2), (2, 1, 1, 1, 1)
# Gradients that are pooled, of losses whose curvature is bounded and of others.
_POOLED, _POOLED_OF_COUNTS = 4, 8
_LITTLE_NOISE = 0.05
# Where slopes are cut to find their standard deviation, in units of what it is without excess.
_FAR_SLOPE = 16.0
# How far a step may change scores, root mean square: curvature hardly changes over so little.
_LONGEST_STEP = 1.0
# Noise in Hessians relative to them above which there is no interval, and no good step.
_MOST_HESSIAN_NOISE = 1.5


@final
@dataclass(frozen=True)
class NewtonRaphson(Solver):
    """Maximum likelihood by Newton steps with released scores and Hessians.

    The mean of the targets gives a start, second moments of rows scaled to one length give a
    basis in which rows look alike in every direction. There each row's score is weighted by the
    row's length alone. Two steps take the curvature from the start, two each from a first and a
    second released Hessian (with little noise: one each from four), and the last ones, whose
    scores are pooled, from a last Hessian: they serve the estimate and its covariance. For smooth
    convex losses with one output, but not for squared errors.

    Parameters
    ----------
    n_pooled : int, optional
        Number of gradients that are pooled, at least 1, after six that approach. By default 4, or 8
        for counts and other targets whose slopes have no small bound: curvature changes more on
        their way.
    inference : {"model", "robust"}, optional
        Also return the covariance of the estimate, under a right model or under any.

    Notes
    -----
    As rows or budget grow, every row has weight 1, no slope is cut, noise vanishes, and the
    estimate is that of (penalised) maximum likelihood, to second order in the distance of the
    last steps from it.

    With ``g_k`` the m pooled scores, at ``v_k``, and H the last Hessian, the estimate is the
    minimiser of ``<v, H v> / 2 - <mean(H v_k - g_k), v>`` (plus the penalty), so without a penalty
    ``mean(v_k - H^-1 g_k)``: the noise of the ``v_k`` cancels to first order, and that of the
    ``g_k`` is what one release with their whole budget would have. With the score's covariance J
    (H under a right model without a dispersion, the released second moments of scores else), the
    standard deviations s of the noise in the pooled score and t in the diagonal of H, and
    ``u = mean(v_k) - v`` the way that H has moved the estimate, its covariance is
    ``H^-1 (J / n + s^2 I + t^2 (|u|^2 I + u u^T) / 2) H^-1``.

    Privacy: Gaussian releases of sums of targets and weights, of squared slopes where these have
    no bound, of second moments, of scores, of three or five Hessians and, for the robust
    covariance or one with an unknown dispersion, of second moments of scores; accounted exactly.

    References
    ----------
    Avella-Medina, Bradshaw and Loh, "Differentially private inference via noisy optimization",
    Annals of Statistics 51 (2023), section 4: noisy Newton steps and their sandwich covariance.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = NewtonRaphson().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.count) for one in plan.method.releases][2:]
    [('score sum', 6), ('Hessian sum', 2), ('Hessian sum', 1), ('score sum', 4)]
    """

    n_pooled: int | None = None
    inference: Covariance | None = None

    def __post_init__(self) -> None:
        if self.n_pooled is not None:
            check_integer("n_pooled", self.n_pooled, least=1)
        if self.inference is not None:
            check_one_of("inference", self.inference, ("model", "robust"))

    def with_inference(self, covariance: Covariance) -> NewtonRaphson:
        return dataclasses.replace(self, inference=covariance)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        loss = problem.loss
        check_likelihood(problem, data)
        if self.inference is not None:
            _check_inference(problem)
        check_data(data, adjacency)
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.unit_weight)
        clip, slope, bend = limits(mu, data, self.inference)
        shares = dict(SHARES)
        bounded = math.isfinite(
            loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        )
        n_pooled = self.n_pooled or _POOLED_OF_COUNTS
        # Of counts hardly any slope is as large as its bound.
        if bounded and loss.target is not Target.COUNT:
            del shares["slopes"]
            n_pooled = self.n_pooled or _POOLED
        if data.groups is not None and data.groups.rows > 1.0:
            shares["lengths"] = LENGTHS
        if self.inference == "robust" or (self.inference and loss.dispersion is None):
            shares["score moments"] = _SCORE_MOMENTS
        total = sum(shares.values())
        noise = hessian_noise(mu, data)
        approach = _FRESH if noise < _LITTLE_NOISE else _APPROACH
        counts = {
            "approach": sum(approach),
            "first Hessians": len(approach) - 1,
            "final": n_pooled,
        }

        def with_noise(scale: float) -> NewtonRaphsonMethod:
            multipliers = {
                name: scale * math.sqrt(counts.get(name, 1) * total / share)
                for name, share in shares.items()
            }
            return NewtonRaphsonMethod(
                problem=problem,
                data=data,
                adjacency=adjacency,
                clip=clip,
                relative_slope=slope,
                relative_curvature=bend,
                n_pooled=n_pooled,
                first_steps=approach,
                n_first_rows=rows_enough(mu, data, adjacency),
                inference=self.inference,
                target_noise=multipliers["targets"],
                slope_noise=multipliers.get("slopes"),
                moment_noise=multipliers["moments"],
                approach_noise=multipliers["approach"],
                first_hessian_noise=multipliers["first Hessians"],
                hessian_noise=multipliers["Hessian"],
                final_noise=multipliers["final"],
                score_moment_noise=multipliers.get("score moments"),
                length_noise=multipliers.get("lengths"),
            )

        if self.inference is not None and noise > _MOST_HESSIAN_NOISE:
            raise ValueError(
                "budget must be larger, or rows more, or columns fewer, for intervals that cover: "
                f"noise in the Hessian would be {noise:.2g} times as large as the Hessian itself, "
                f"and may be {_MOST_HESSIAN_NOISE:g} times; got {budget!r} for {data.n_rows} rows "
                f"and {data.n_columns} columns"
            )
        return calibrated(with_noise, problem, budget, data, adjacency)


@final
@dataclass(frozen=True, eq=False)
class NewtonRaphsonState:
    """Released values after some steps."""

    step: int
    w: NDArray[np.float64]
    seed: int  # Public: it chooses the first rows.
    scores: Scores | None = None
    basis: Basis | None = None
    matrix: NDArray[np.float64] | None = (
        None  # The Hessian of the current steps, eigenvalues raised.
    )
    pooled: NDArray[np.float64] | None = None  # Sum of ``H v - g`` over the pooled steps.
    visited: NDArray[np.float64] | None = None  # Sum of their v.
    products: NDArray[np.float64] | None = None  # Second moments of scores, likewise.


@final
@dataclass(frozen=True)
class NewtonRaphsonMethod(Method["NewtonRaphsonState"]):
    """Newton-Raphson with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clip: float  # Bound on a weighted row in the basis, sample weight excluded.
    relative_slope: float  # Where slopes are cut, in units of their standard deviation.
    relative_curvature: float  # Where curvature is cut, in units of that at the start.
    first_steps: tuple[int, ...]  # Numbers of steps with the first matrix, and with each Hessian.
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

    algorithm = "Newton-Raphson with pooled scores"

    @property
    def n_steps(self) -> int:
        return sum(self.first_steps) + self.n_pooled

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
        return score_release(self.data, self.adjacency, self.clip, noise, count=count)

    @functools.cached_property
    def first_hessians(self) -> SumRelease:
        """The release of each Hessian but the last."""
        noise, count = GaussianNoise(self.first_hessian_noise), len(self.first_steps) - 1
        return hessian_release(self.data, self.adjacency, self.clip, noise, count=count)

    @functools.cached_property
    def hessian(self) -> SumRelease:
        """The release of the last Hessian."""
        noise = GaussianNoise(self.hessian_noise)
        return hessian_release(self.data, self.adjacency, self.clip, noise)

    @functools.cached_property
    def score_moments(self) -> SumRelease | None:
        """The release of second moments of scores, where there is one."""
        if self.score_moment_noise is None:
            return None
        noise = GaussianNoise(self.score_moment_noise)
        return score_moment_release(self.data, self.adjacency, self.clip, noise)

    @functools.cached_property
    def lengths(self) -> SumRelease | None:
        """The release of the mean length of groups' scores, where there are groups."""
        if self.length_noise is None:
            return None
        return length_release(self.data, self.adjacency, GaussianNoise(self.length_noise))

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        every = (
            self.targets,
            self.squared_slopes,
            self.moments,
            self.lengths,
            self.approach,
            self.first_hessians,
            self.hessian,
            self.final,
            self.score_moments,
        )
        return tuple(one for one in every if one is not None)

    @property
    def gradient_evaluations(self) -> float:
        return float(sum(self.first_steps) * self._n_asked + self.n_pooled * self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        noise = slope_unit(self.problem.loss, self.data) * self._pooled_noise
        scale = largest_basis_scale(self.data, self.moments.noise_std)
        return 2.0 * noise / curvature(self.problem.loss, self.data) * scale

    @property
    def _pooled_noise(self) -> float:
        """Standard deviation of the noise in the mean of the pooled scores, in units of slopes."""
        return self.final.noise_std / (math.sqrt(self.n_pooled) * self.data.n_rows)

    def noise_in(self, state: NewtonRaphsonState) -> NDArray[np.float64]:
        _, privacy = self._covariance(state)
        return np.sqrt(np.diag(privacy))

    def uncertainty(self, state: NewtonRaphsonState) -> Uncertainty | None:
        if self.inference is None:
            return None
        return Uncertainty(state.w, *self._covariance(state), kind=self.inference)

    def _covariance(
        self, state: NewtonRaphsonState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Covariance of the estimate due to sampling and to noise."""
        scores, basis, matrix = state.scores, state.basis, state.matrix
        assert scores is not None
        assert basis is not None
        assert matrix is not None
        assert state.visited is not None
        acted_on = basis.vectors[: n_penalized(self.problem, self.data)]
        strength = self.problem.regularizer.strong_convexity
        inverse = np.linalg.inv(matrix + strength * acted_on.T @ acted_on)
        dispersion = self.problem.loss.dispersion
        if state.products is None:
            spread = (dispersion or 1.0) * matrix
        elif self.inference == "robust":
            spread = state.products
        else:
            spread = float(np.trace(inverse @ state.products)) / len(matrix) * matrix
        way = state.visited / self.n_pooled - basis.inverse @ state.w
        hessian = self.hessian.noise_std * scores.curvature / self._n_asked
        noise = (scores.reach * self._pooled_noise) ** 2 * np.eye(len(way))
        noise += hessian**2 * (way @ way * np.eye(len(way)) + np.outer(way, way)) / 2.0
        back = basis.vectors @ inverse
        return back @ spread @ back.T / self.data.n_rows, back @ noise @ back.T

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
            asked = self.hessian if is_final else self.first_hessians
            hessian = scores.mean_hessian(self._of_first_rows(state, oracle), asked, v)
            noise = asked.noise_std * scores.curvature / self._n_asked
            state = dataclasses.replace(
                state, matrix=steadied(hessian, noise, v, basis.inverse[:, -1])
            )
        matrix = state.matrix
        assert matrix is not None
        declared = self.final if is_final else self.approach
        of_rows = oracle if is_final else self._of_first_rows(state, oracle)
        g = scores.mean_score(of_rows, declared, v)
        pooled, visited, count = matrix @ v - g, v, 1
        if is_final:
            count = state.step - sum(self.first_steps) + 1
            if state.pooled is not None and state.visited is not None:
                pooled, visited = pooled + state.pooled, visited + state.visited
        w = minimize_quadratic(
            matrix,
            pooled / count,
            basis,
            self.problem,
            n_penalized(self.problem, self.data),
            np.zeros_like(v),
        )
        length = float(np.linalg.norm(basis.inverse @ (w - state.w)))
        step_size = 1.0 / max(1.0, length / _LONGEST_STEP)
        w = state.w + step_size * (w - state.w)
        state = dataclasses.replace(state, step=state.step + 1, w=w)
        if is_final:
            state = dataclasses.replace(state, pooled=pooled, visited=visited)
        if state.step == self.n_steps and self.score_moments is not None:
            v = basis.inverse @ w
            noise = self.score_moments.noise_std * (scores.slope * scores.squares_within) ** 2
            products = scores.mean_score_products(oracle, self.score_moments, v)
            noise /= self.data.n_rows
            products = steadied(products, noise, v, basis.inverse[:, -1])
            state = dataclasses.replace(state, products=products)
        asked_rows = self.data.n_rows if is_final else self._n_asked
        noise_norm = declared.noise_std * scores.reach * math.sqrt(columns) / asked_rows
        info = StepInfo(state.step, step_size, float(np.linalg.norm(g)), noise_norm)
        return state, info

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
        mean, without_offset, weight = noisy_target_means(oracle, self.targets, low, high)
        # Slopes and curvature are those of the means that rows have with their offsets.
        _, bend = constant_model(loss, mean, low, high)
        score, _ = constant_model(loss, without_offset, low, high)
        slope = loss.slope_bound_on(math.inf, low, high)
        if self.squared_slopes is not None:
            most = _FAR_SLOPE * math.sqrt(bend * (loss.dispersion or 1.0))
            square = noisy_squared_slope(oracle, self.squared_slopes, score, most, weight)
            # Where the dispersion is known it is one count, by which small means are far exceeded.
            wanted = self.relative_slope * math.sqrt(square) + (loss.dispersion or 0.0)
            slope = min(slope, wanted)
        largest = min(loss.smoothness_on(math.inf, low, high), self.relative_curvature * bend)
        w = state.w.copy()
        if data.intercept > 0.0:
            w[-1] = score / data.intercept
            w = feasible(self.problem, n_penalized(self.problem, data), w, 0.0)
        few = self._of_first_rows(state, oracle)
        moments = noisy_second_moments(few, self.moments, constant_column(data))
        basis = basis_from_moments(moments, self.moments.noise_std, data)
        scores = Scores(basis.vectors, self.clip, slope, largest)
        if self.lengths is not None:
            length, noise = scores.mean_length(oracle, self.lengths, basis.inverse @ w)
            per_unit = self._pooled_noise / (self.clip * data.unit_weight)
            reaches = group_reach(length + noise, per_unit, data, self.inference)
            within, squares_within = (reach / data.reach() for reach in reaches)
            scores = dataclasses.replace(scores, within=within, squares_within=squares_within)
        return dataclasses.replace(
            state,
            w=w,
            scores=scores,
            basis=basis,
            matrix=bend * np.eye(data.n_columns),
        )

    def finish(self, state: NewtonRaphsonState) -> NDArray[np.float64]:
        return state.w


def _check_inference(problem: Problem) -> None:
    """Refuse problems whose minimiser has no normal limit."""
    penalty = problem.regularizer
    if problem.constraint != Unconstrained():
        raise ValueError(f"constraint must be None for inference, got {problem.constraint!r}")
    if penalty.smoothness != penalty.strong_convexity:
        raise ValueError(f"regularizer must be none or L2 for inference, got {penalty!r}")
