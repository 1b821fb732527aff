"""Private Frank-Wolfe on an L1 ball: each step moves towards one signed coordinate."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_real
from dpglm.data.maps import view_spec, viewed
from dpglm.data.rows import LARGEST, SMALLEST, DataSpec, Rows
from dpglm.oracle.choices import choose_coordinate, coordinate_release, entry_bound
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency, ApproximateDP, calibrate
from dpglm.privacy.releases import AnyRelease, ScoreRelease
from dpglm.problem import L1Ball, Unconstrained
from dpglm.solvers.base import Facts, FitMethod, Iterate, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.uncertainty import frees_intercept

# Chosen on validation parts of the training rows of Adult and ACS employment, at epsilon 0.1 to
# 4 and with a tenth to all of the rows; docs/solvers/frank_wolfe.md.
_CLIP_SCALAR, _CLIP_VECTOR = 0.6, math.sqrt(0.5)
_STEPS_FACTOR, _LEAST_STEPS, _MOST_STEPS = 0.35, 60, 600
_PURE_STEPS_FACTOR, _LEAST_PURE_STEPS = 0.3, 10
_RADIUS_FACTOR = 0.44

# Below this epsilon rounding would cost more than the choice (dpglm.privacy.selection.choices).
_LEAST_EPSILON = 2.0**-30


@final
@dataclass(frozen=True)
class FrankWolfe(Solver):
    """Frank-Wolfe on the L1 ball with vertices chosen by the exponential mechanism.

    After T steps at most T coefficients are not zero. The noise grows with the logarithm of the
    number of columns, and with the largest entry of a row in place of its norm: declare
    ``feature_bounds``, or ``DataSpec.entry_bound``.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1.
    radius : float, optional
        Radius of the ball, above 0. Default: that of the problem's ``L1Ball``; without a constraint
        it grows with the square root of the number of steps.
    slope_clip : float, optional
        Clipping threshold of slopes, above 0. Default: 0.6 slope units for one output; 0.7 for each
        of several.

    Notes
    -----
    An intercept that the constraint does not cover shares the ball, in units in which its column is
    as large as the bound on the other entries. So the set that is searched is smaller than the
    problem's.

    Privacy: T choices by the exponential mechanism, each ``BoundedRange(e)``. A row moves every
    entry of the gradient sum by at most ``slope_clip * largest_entry``, because slopes and entries
    are clipped. A budget with a delta of 0 is possible.

    References
    ----------
    Talwar, Thakurta and Zhang, "Nearly optimal private LASSO", NIPS 2015, Algorithm 2 (with
    Laplace noise in place of the exponential mechanism). Cesar and Rogers, "Bounding,
    concentrating, and truncating", ALT 2021, for the composition.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=500, row_norm=5.0, entry_bound=1.0)
    >>> problem = Problem(Logistic(), constraint=L1Ball(3.0))
    >>> plan = FrankWolfe(n_steps=20).plan(problem, ApproximateDP(1.0, 1e-5), data)
    >>> plan.event
    Repeated(event=BoundedRange(epsilon=...), count=20)
    """

    n_steps: int | None = None
    radius: float | None = None
    slope_clip: float | None = None

    def __post_init__(self) -> None:
        check_given(self)
        if self.slope_clip is not None:
            check_real("slope_clip", self.slope_clip, least=SMALLEST, most=LARGEST)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        penalty = problem.regularizer
        if not penalty.is_quadratic:
            raise ValueError(
                f"regularizer must be NoPenalty or L2 for Frank-Wolfe, got {penalty!r}: "
                "an L1 ball takes the place of an L1 penalty"
            )
        steps = self.n_steps or _steps(data, budget.as_approximate_dp(), adjacency)
        fraction = _CLIP_SCALAR if data.n_outputs == 1 else _CLIP_VECTOR
        slope_clip = self.slope_clip or fraction * defaults.slope_unit(problem.loss, data)
        radius, constraint = self.radius, problem.constraint
        if isinstance(constraint, L1Ball):
            if radius is not None and radius > constraint.radius:
                raise ValueError(
                    f"radius must be at most the constraint's {constraint.radius!r}, got {radius!r}"
                )
            radius = radius or constraint.radius
        elif not isinstance(constraint, Unconstrained):
            raise ValueError(
                f"constraint must be an L1Ball or Unconstrained for Frank-Wolfe, got {constraint!r}"
            )
        if radius is None:
            reach = defaults.slope_range(problem.loss, data)
            radius = _RADIUS_FACTOR * math.sqrt(steps) * reach / entry_bound(data)
        method = FrankWolfeMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            steps=steps,
            radius=radius,
            slope_clip=slope_clip,
            choice_epsilon=2.0,
        )
        multiplier = calibrate(lambda sigma: method.with_noise(sigma).event, budget, adjacency)
        method = method.with_noise(multiplier)
        if method.choice_epsilon < _LEAST_EPSILON:
            raise ValueError(
                f"budget must leave an epsilon of at least {_LEAST_EPSILON:g} for each of the "
                f"{steps} steps, got {budget!r}"
            )
        return facts.plan(method)


def _steps(data: DataSpec, budget: ApproximateDP, adjacency: Adjacency) -> int:
    """Choose the number of steps.

    The error of Frank-Wolfe falls as ``1 / T``. That of the choices grows as ``sqrt(T)`` over the
    signal, rows times epsilon, so T goes with its power 2/3; at a delta of 0 it grows as T, so T
    goes with the square root.
    """
    signal = data.n_rows * budget.epsilon / adjacency.sum_sensitivity(data.unit_weight)
    if budget.delta == 0.0:
        wanted, least = _PURE_STEPS_FACTOR * math.sqrt(signal), _LEAST_PURE_STEPS
    else:
        wanted, least = _STEPS_FACTOR * math.cbrt(signal) ** 2, _LEAST_STEPS
    return min(max(least, round(wanted)), _MOST_STEPS)


@final
@dataclass(frozen=True)
class FrankWolfeMethod(FitMethod[Iterate]):
    """Private Frank-Wolfe with every setting decided."""

    steps: int
    radius: float
    slope_clip: float
    choice_epsilon: float

    algorithm = "Frank-Wolfe"

    def with_noise(self, noise_multiplier: float) -> FrankWolfeMethod:
        """Return the same method with noise of this scale over the sensitivity."""
        return dataclasses.replace(self, choice_epsilon=2.0 / noise_multiplier)

    @property
    def n_steps(self) -> int:
        return self.steps

    @functools.cached_property
    def vertices(self) -> ScoreRelease:
        """The release of each vertex."""
        return coordinate_release(
            view_spec(self.data, self._intercept_scale, self.data.n_outputs),
            self.adjacency,
            self.slope_clip,
            self._offset_bound,
            self.choice_epsilon,
            self.steps,
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.vertices,)

    @property
    def coefficient_noise(self) -> float:
        # Step k's vertex has the final weight 2 k / (T (T + 1)), as if each were drawn at random.
        squares = (4.0 * self.steps + 2.0) / (3.0 * self.steps * (self.steps + 1.0))
        return self.radius * math.sqrt(squares / self.data.n_coefficients)

    @property
    def _intercept_scale(self) -> float:
        """Factor on the intercept's column that makes a free one as large as other entries."""
        return (
            entry_bound(self.data) / self.data.intercept
            if frees_intercept(self.problem, self.data)
            else 1.0
        )

    @property
    def _offset_bound(self) -> float:
        return self.data.n_rows * self.problem.regularizer.strong_convexity * self.radius

    def prepare(self, rows: Rows, seed: int) -> Rows:
        return viewed(rows.clip_entries(entry_bound(self.data)), self._intercept_scale)

    def init(self, seed: int) -> Iterate:
        return Iterate(0, np.zeros(self.data.coefficient_shape))

    def step(self, state: Iterate, oracle: Oracle) -> tuple[Iterate, StepInfo]:
        offset = self.data.n_rows * self.problem.regularizer.strong_convexity * state.w
        if frees_intercept(self.problem, self.data):
            offset[-1] = 0.0
        index, sign = choose_coordinate(
            oracle, self.vertices, state.w, self.slope_clip, offset, self._offset_bound
        )
        size = 2.0 / (state.step + 2.0)
        w = (1.0 - size) * state.w
        w.flat[index] += size * sign * self.radius
        return Iterate(state.step + 1, w), StepInfo(state.step + 1, size)

    def finish(self, state: Iterate) -> Outcome:
        w = state.w.copy()
        if frees_intercept(self.problem, self.data):
            w[-1] *= self._intercept_scale
        return Outcome(w)
