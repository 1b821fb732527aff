"""A direction by gradient steps, then the slope and intercept of its scores."""

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
from dpglm.solvers.second_order.newton_raphson import NewtonRaphson
from dpglm.solvers.second_order.newton_raphson_method import NewtonRaphsonState

# Rows times mu that suffice for slope and intercept, and their least and largest share.
_ENOUGH, _LEAST_SHARE, _MOST_SHARE = 150.0, 0.03, 0.1
# Bounds on the slope, in units of the direction's own.
_LEAST_SLOPE, _MOST_SLOPE = 0.1, 1.5
_DIRECTION, _SCALE = "direction", "scale"


@final
@dataclass(frozen=True)
class Calibrated(Solver):
    """The direction of a linear model by another solver, then its scale and intercept.

    A small clipping threshold and few steps keep the ranks of scores, but bias their size.
    A slope and an intercept for the scores correct this. ``NewtonRaphson`` estimates them by
    maximum likelihood, with a part of the budget.

    Parameters
    ----------
    solver : NoisyGD or Preprocessed, default=NoisyGD()
        Finds the direction: ``NoisyGD`` without sampling, alone or after steps of ``Preprocessed``.
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
    >>> plan = Calibrated(NoisyGD(n_steps=10)).plan(
    ...     Problem(Logistic()), ApproximateDP(1.0, 1e-5), data
    ... )
    >>> [(one.quantity, one.count) for one in plan.method.releases][:2]
    [('direction: clipped gradient sum', 10), ('scale: sums of targets and weights', 1)]
    """

    solver: Solver = field(default_factory=NoisyGD)
    share: float | None = None

    def __post_init__(self) -> None:
        base = self.solver.solver if isinstance(self.solver, Preprocessed) else self.solver
        if not isinstance(base, NoisyGD) or base.sampling_rate < 1.0:
            raise ValueError(
                "solver must be NoisyGD without sampling, or this after steps of Preprocessed, got "
                f"{self.solver!r}"
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
            _scores(data),
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


def _scores(data: DataSpec) -> DataSpec:
    """Return the facts of rows with their score over the slopes' norm as the only feature."""
    return dataclasses.replace(
        data,
        n_features=1,
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
        if self.scale.data != _scores(self.direction.data):
            raise ValueError(f"scale must be for scores, got {self.scale.data!r}")

    @property
    def algorithm(self) -> str:
        return f"{self.direction.method.algorithm}, calibrated"

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

    def _map(self, state: Any) -> RowMap:
        """Return the map of rows to scores, in units of the slopes' norm."""
        slopes = self.direction.method.finish(state).w[: self.direction.data.n_features]
        with np.errstate(divide="ignore", invalid="ignore"):
            matrix = slopes[:, np.newaxis] / np.linalg.norm(slopes)
        # After an overflow, or without slopes, all scores are alike.
        matrix = matrix if np.isfinite(matrix).all() else np.zeros_like(matrix)
        return RowMap(np.zeros_like(slopes), matrix)

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

    def finish(self, state: CalibratedState) -> Outcome:
        direction, scale = self.direction.method.finish(state.direction).w, state.scale
        calibration = finished(self.scale.method, scale)
        assert state.map is not None
        assert scale is not None
        # Relative to the direction's own scale: noise must not reverse scores.
        own = float(np.linalg.norm(direction[: self.direction.data.n_features]))
        own, found = own if math.isfinite(own) else 0.0, float(calibration.w[0])
        w = calibration.w.copy()
        w[0] = min(max(found, _LEAST_SLOPE * own), _MOST_SLOPE * own)
        if self.scale.data.intercept:
            # Another slope must not change the prediction at the mean score.
            assert scale.basis is not None
            one = NormalScores.of(scale.basis, np.array([1.0, 0.0]))
            w[1] += (found - w[0]) * one.mean / self.scale.data.intercept
        return Outcome(state.map.pull_back(w, self.direction.data, self.scale.data))
