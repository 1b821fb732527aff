"""A direction, by Newton or gradient steps, then the slope and intercept of its scores."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from dpglm._validation import check_real
from dpglm.data.maps import RowMap
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.budget import GaussianDP
from dpglm.problem import Problem
from dpglm.solvers.base import (
    Composite,
    Facts,
    FitStage,
    Outcome,
    Plan,
    Solver,
    StepInfo,
    check_same,
    finished,
)
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts import defaults
from dpglm.solvers.second_order.likelihood import NormalScores
from dpglm.solvers.second_order.newton import Newton, NewtonMethod
from dpglm.solvers.second_order.newton_raphson import NewtonRaphson
from dpglm.solvers.second_order.newton_raphson_method import NewtonRaphsonState
from dpglm.solvers.uncertainty import Floats, NoiseCovariance

# Winsorize scores at this many standard deviations.
_MOST_SCORE = 6.0
# Rows times mu that suffice for slope and intercept, and their least and largest share.
_ENOUGH, _LEAST_SHARE, _MOST_SHARE = 150.0, 0.03, 0.1
# Bounds on the slope, in units of the direction's own.
_LEAST_SLOPE, _MOST_SLOPE = 0.1, 1.5
_DIRECTION, _SCALE = "direction", "scale"


@final
@dataclass(frozen=True)
class Calibrated(Solver):
    """The direction of a linear model by another solver, then its scale and intercept.

    A small clipping threshold reduces noise and keeps the ranks of scores, but biases their size.
    A slope and an intercept for the scores correct this. ``NewtonRaphson`` estimates them by
    maximum likelihood, with a part of the budget.

    Parameters
    ----------
    solver : Newton, NoisyGD or Preprocessed, default=Newton()
        Finds the direction; ``NoisyGD`` without sampling.
    share : float, optional
        Share of the budget (of mu squared) for slope and intercept, in (0, 1). By default enough
        for good estimates, at least 0.03; if that exceeds 0.1, the plan is that of ``solver``.

    Notes
    -----
    For likelihoods with one output. With several, or if a constraint, or a penalty beyond L2 with
    ``C = 1``, fixes the length of the parameter, the plan is that of ``solver``.

    Privacy: the releases of both fits, composed. The direction is released before the rows' scores
    are computed; each score depends on its own row alone, and is clipped at a public bound, for any
    direction. ``docs/solvers/calibrated.md`` has the bounds.

    References
    ----------
    Platt, "Probabilistic outputs for support vector machines", Advances in Large Margin Classifiers
    (1999): a slope and an intercept for the scores of a classifier.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20, intercept=1.0)
    >>> solver = Calibrated(Newton(clip=0.2, n_steps=10))
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.count) for one in plan.method.releases][:2]
    [('direction: normalised second-moment sum', 1), ('direction: preconditioned gradient sum', 10)]
    """

    solver: Solver = field(default_factory=Newton)
    share: float | None = None

    def __post_init__(self) -> None:
        base = self.solver.solver if isinstance(self.solver, Preprocessed) else self.solver
        sampled = isinstance(base, NoisyGD) and base.sampling_rate < 1.0
        if sampled or not isinstance(base, Newton | NoisyGD):
            raise ValueError(
                "solver must be Newton, NoisyGD without sampling, or one of them after steps of "
                f"Preprocessed, got {self.solver!r}"
            )
        if self.share is not None:
            check_real("share", self.share, above=0.0, below=1.0)

    def decide(self, facts: Facts) -> Plan:
        problem, data = facts.problem, facts.data
        share = self.share
        if share is None:
            needed = (_ENOUGH / (facts.mu * data.typical_weight * data.n_rows)) ** 2
            # Calibration would not help if it needed more.
            share = max(needed, _LEAST_SHARE) if needed <= _MOST_SHARE else None
        if data.n_outputs > 1 or share is None or not defaults.is_weakly_regularized(problem, data):
            return self.solver.decide(facts)
        mu = facts.budget.gdp_mu() * defaults.MARGIN
        scale = NewtonRaphson().plan(
            Problem(problem.loss),
            GaussianDP(math.sqrt(share) * mu),
            _scores(data, _MOST_SCORE if isinstance(self.solver, Newton) else data.row_norm),
            facts.adjacency,
        )
        direction = defaults.plan_beside(
            lambda within: self.solver.plan(problem, within, data, facts.adjacency),
            scale.event,
            math.sqrt(1.0 - share) * mu,
            facts.budget,
            facts.adjacency,
        )
        assert direction is not None
        return facts.plan(CalibratedMethod(problem, direction, scale))


def _scores(data: DataSpec, reach: float) -> DataSpec:
    """Return the facts of rows that have their score as the only feature.

    In standard deviations if they are known, else in units of the coefficients' norm.
    """
    return dataclasses.replace(
        data,
        n_features=1,
        row_norm=reach,
        entry_bound=math.inf,
        intercept=1.0 if data.intercept else 0.0,
        dtype="float64",
        sparse=False,
    )


@final
@dataclass(frozen=True, eq=False)
class CalibratedState:
    """The direction's state, and then that of slope and intercept."""

    seed: int
    step: int
    direction: Any
    map: RowMap | None = None
    scale: NewtonRaphsonState | None = None


@final
@dataclass(frozen=True)
class CalibratedMethod(Composite["CalibratedState"]):
    """The methods of a direction and of a scale, with every setting decided."""

    problem: Problem
    direction: Plan
    scale: Plan  # For rows with their score as the only feature.

    def __post_init__(self) -> None:
        reach = _MOST_SCORE if self._newton else self.direction.data.row_norm
        if self.scale.data != _scores(self.direction.data, reach):
            raise ValueError(f"scale must be for scores, got {self.scale.data!r}")

    @property
    def algorithm(self) -> str:
        return f"{self.direction.method.algorithm}, calibrated"

    @property
    def _newton(self) -> NewtonMethod | None:
        """The direction's method if it is Newton's, for which the spread of scores is known."""
        method = self.direction.method
        return method if isinstance(method, NewtonMethod) else None

    def check(self, plan: Plan) -> None:
        check_same(self.direction, plan, ["data", "adjacency"])
        check_same(self.direction.method, plan, ["problem"])
        check_same(self.scale, plan, ["adjacency"])

    @property
    def stages(self) -> tuple[FitStage, ...]:
        return FitStage.of(_DIRECTION, self.direction), FitStage.of(_SCALE, self.scale)

    @property
    def estimates_errors(self) -> bool:
        return self.direction.method.estimates_errors

    @property
    def coefficient_noise(self) -> float:
        return self.direction.coefficient_noise

    def init(self, seed: int) -> CalibratedState:
        return CalibratedState(seed, 0, self.direction.method.init(defaults.stage_seed(seed, 0)))

    def step(self, state: CalibratedState, oracle: Oracle) -> tuple[CalibratedState, StepInfo]:
        number = state.step + 1
        if number <= self.direction.n_steps:
            direction, info = self.direction.method.step(state.direction, oracle)
            state = dataclasses.replace(state, step=number, direction=direction)
            if number == self.direction.n_steps:
                begun = self.scale.method.init(defaults.stage_seed(state.seed, 1))
                state = dataclasses.replace(state, map=self._map(direction), scale=begun)
        else:
            scale, info = self.scale.method.step(state.scale, self._of_scores(state, oracle))
            state = dataclasses.replace(state, step=number, scale=scale)
        return state, dataclasses.replace(info, step=number)

    def _found(self, state: Any) -> Floats:
        """Return the direction: the parameter, Newton's before it is shrunk."""
        return state.w if self._newton else self.direction.method.finish(state).w

    def _map(self, state: Any) -> RowMap:
        """Return the map of rows to scores: Newton's about 0, in standard deviations."""
        data, w = self.direction.data, self._found(state)
        slopes = w[: data.n_features]
        center, squares = np.zeros_like(slopes), float(slopes @ slopes)
        if self._newton and data.intercept and squares > 0.0:
            mean = NormalScores.of(state.basis, w).mean
            center = (mean - data.intercept * w[-1]) / squares * slopes
        with np.errstate(divide="ignore", invalid="ignore"):
            matrix = slopes[:, np.newaxis] / self._unit(state)
        if not (np.isfinite(matrix).all() and np.isfinite(center).all()):
            # After an overflow all scores are alike.
            return RowMap(np.zeros_like(slopes), np.zeros((data.n_features, 1)))
        return RowMap(center, matrix)

    def _of_scores(self, state: CalibratedState, oracle: Oracle) -> Oracle:
        """Return the oracle of rows that have their score as the only feature."""
        if "scores" not in oracle.kept:
            assert state.map is not None
            row_by_row = not oracle.places_are_fixed
            rows = state.map.apply(oracle.rows, self.scale.data, row_by_row)
            rows = self.scale.method.prepare(rows, defaults.stage_seed(state.seed, 1))
            oracle.kept["scores"] = dataclasses.replace(oracle, rows=rows)
        of_scores: Oracle = oracle.kept["scores"]
        return of_scores

    def _unit(self, state: Any) -> float:
        """Return the standard deviation of the scores, or else the length of the slopes; or 0."""
        w = self._found(state)
        if self._newton:
            unit = NormalScores.of(state.basis, w).spread
        else:
            unit = float(np.linalg.norm(w[: self.direction.data.n_features]))
        return unit if np.isfinite(unit) else 0.0

    def finish(self, state: CalibratedState) -> Outcome:
        direction, scale = self.direction.method.finish(state.direction), state.scale
        calibration = finished(self.scale.method, scale)
        assert state.map is not None
        assert scale is not None
        # Relative to the direction's own scale: noise must not reverse scores.
        own, found = self._unit(state.direction), float(calibration.w[0])
        w = calibration.w.copy()
        w[0] = min(max(found, _LEAST_SLOPE * own), _MOST_SLOPE * own)
        if self.scale.data.intercept:
            # Another slope must not change the prediction at the mean score.
            assert scale.basis is not None
            one = NormalScores.of(scale.basis, np.array([1.0, 0.0]))
            w[1] += (found - w[0]) * one.mean / self.scale.data.intercept
        d = self.direction.data.n_features
        w = state.map.pull_back(w, self.direction.data, self.scale.data)
        precision = direction.precision
        if precision is not None:
            precision = precision / defaults.relative_length(w[:d], direction.w[:d]) ** 2
        noise = self._noise(state, w[:d], calibration.noise_covariance)
        response = direction.response
        if response is not None:
            grown = defaults.relative_length(w[:d], self._found(state.direction)[:d])
            response = dataclasses.replace(response, share=grown)
        row = direction.products
        return Outcome(w, noise, precision=precision, response=response, products=row)

    def _noise(
        self, state: CalibratedState, slopes: Floats, of_scale: NoiseCovariance | None
    ) -> NoiseCovariance | None:
        """Return the covariance of the noise in the coefficients, where it is known."""
        method, data = self._newton, self.direction.data
        found = None if method is None else method.noise_before_shrinkage(state.direction)
        if found is None or of_scale is None or (unit := self._unit(state.direction)) == 0.0:
            return None
        assert state.map is not None
        w, basis = state.direction.w, state.direction.basis
        # Calibration compensates for noise in the length of the scores and in their mean, whatever
        # the direction is.
        mean = defaults.mean_prediction(len(w), basis.inverse)
        kept = np.eye(len(w))
        kept[-1] -= mean
        level = basis.inverse[:, -1]
        across = basis.inverse.T @ (basis.inverse @ w - level * (mean @ w))
        kept -= np.outer(kept @ w, across) / unit**2
        grown = defaults.relative_length(slopes, w[: data.n_features])
        back = state.map.pulling_matrix(data, self.scale.data)
        both = found.mapped(grown * kept).columns + of_scale.mapped(back).columns
        known = NoiseCovariance(both)
        return known if known.is_finite else None
