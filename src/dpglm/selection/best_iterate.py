"""Noisy gradient descent with a private choice of the best iterate, for non-convex losses."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

from dpglm._validation import Array
from dpglm.data.rows import DataSpec
from dpglm.oracle.choices import choose_shortest_gradient, shortest_gradient_release
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.releases import AnyRelease, ScoreRelease
from dpglm.problem import Problem, Unconstrained
from dpglm.selection.choices import MOST_EPSILON
from dpglm.solvers.base import Facts, Method, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.gradient.noisy_gd_method import DescentState, NoisyGDMethod
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import Constant

_MOST_STEPS = 400
_TRAVEL = 0.7


@final
@dataclass(frozen=True)
class BestIterate(Solver):
    """Noisy gradient descent that returns the iterate with the smallest gradient norm.

    T full-batch steps ``w <- w - eta g`` from zero, with the noisy mean clipped gradient ``g``;
    then a private choice among all T + 1 iterates by the norm of the mean clipped gradient,
    penalty included. It is meant for smooth losses that are not convex.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1; by default derived from the budget, at most 400.
    step_size : float, optional
        Step size eta, above 0; by default 1 over the smoothness of the objective.
    clip : float, optional
        Clip norm C of a row's gradient, above 0, in units of the prepared rows.
    choice_share : float, default=0.1
        Share of epsilon for the choice, in (0, 1); the choice uses at most epsilon 50.

    Notes
    -----
    Privacy: T Gaussian releases and one choice of pure differential privacy on the same rows,
    composed and calibrated together. All iterates are charged and may be published; gradient
    norms may not.

    One row changes the norm of a sum of clipped gradients by at most its change of the sum.
    Constraints and penalties without a gradient are refused, since the gradient norm ignores them.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, the algorithm of Theorem 4.1 (its noise
    ``Lap(4 L / n)`` lacks the epsilon), with fewer steps by default:
    ``dpglm.papers.Song2021NonConvex`` has those that bound the gradient; McKenna and Sheldon 2020,
    for permute-and-flip.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Savage
    >>> solver = BestIterate(n_steps=50)
    >>> plan = solver.plan(Problem(Savage()), ApproximateDP(1.0, 1e-5), DataSpec(10_000, 20))
    >>> plan.event
    Composed(events=(Repeated(event=Gaussian(noise_multiplier=...), count=50), Pure(epsilon=0.1)))
    """

    n_steps: int | None = None
    step_size: float | None = None
    clip: float | None = None
    choice_share: float = 0.1

    def __post_init__(self) -> None:
        check_given(self)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        if problem.constraint != Unconstrained():
            raise ValueError(
                f"constraint must be Unconstrained() for BestIterate, got {problem.constraint!r}"
            )
        penalty = problem.regularizer
        if not penalty.smoothness == penalty.strong_convexity:
            raise ValueError(
                f"regularizer must be NoPenalty() or L2() for BestIterate, got {penalty!r}"
            )
        epsilon = min(self.choice_share * budget.as_approximate_dp().epsilon, MOST_EPSILON)
        clip = defaults.clip(problem.loss, data) if self.clip is None else self.clip
        step_size = _step_size(problem, data) if self.step_size is None else self.step_size
        mu = facts.mu
        n_steps = self.n_steps or _n_steps(problem, data, mu, clip * step_size)
        descent = NoisyGD(n_steps, step_size, Constant(), clip, momentum=0.0)
        steps = descent.plan(problem, budget, data, adjacency).method
        assert isinstance(steps, NoisyGDMethod)
        # Every iterate is released.
        method = BestIterateMethod(problem, dataclasses.replace(steps, last_only=False), epsilon)
        return facts.calibrated(method.with_noise)


@final
@dataclass(frozen=True, eq=False)
class BestIterateState:
    """All iterates so far, the state of the descent, and the final choice."""

    iterates: tuple[Array, ...]
    descent: DescentState
    chosen: Array | None = None


@final
@dataclass(frozen=True)
class BestIterateMethod(Method["BestIterateState"]):
    """The planned method; ``descent`` is full-batch and charges every iterate."""

    problem: Problem
    descent: NoisyGDMethod
    choice_epsilon: float

    algorithm = "noisy gradient descent, then the choice of an iterate"

    def with_noise(self, noise_multiplier: float) -> BestIterateMethod:
        """Return the method with another noise multiplier of gradient sums."""
        return dataclasses.replace(self, descent=self.descent.with_multiplier(noise_multiplier))

    def __post_init__(self) -> None:
        if self.descent.last_only:
            raise ValueError("descent must charge every iterate, since any of them may be chosen")

    def check(self, plan: Plan) -> None:
        self.descent.check(plan)

    @property
    def n_steps(self) -> int:
        return self.descent.n_steps + 1

    @functools.cached_property
    def choice(self) -> ScoreRelease:
        """The release of the choice."""
        descent = self.descent
        return shortest_gradient_release(
            descent.data, descent.adjacency, descent.clipping, self.choice_epsilon
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (*self.descent.releases, self.choice)

    @property
    def gradient_evaluations(self) -> float:
        norms = (self.descent.n_steps + 1) * self.descent.data.n_rows
        return self.descent.gradient_evaluations + norms

    @property
    def coefficient_noise(self) -> float:
        return self.descent.coefficient_noise

    def init(self, seed: int) -> BestIterateState:
        start = self.descent.init(seed)
        return BestIterateState((start.w,), start)

    def step(self, state: BestIterateState, oracle: Oracle) -> tuple[BestIterateState, StepInfo]:
        if len(state.iterates) <= self.descent.n_steps:
            descent, info = self.descent.step(state.descent, oracle)
            return BestIterateState((*state.iterates, descent.w), descent), info
        position = choose_shortest_gradient(
            oracle,
            self.choice,
            state.iterates,
            [self._penalty_gradient(w) for w in state.iterates],
            self.descent.clipping,
        )
        chosen = dataclasses.replace(state, chosen=state.iterates[position])
        return chosen, StepInfo(self.n_steps, math.nan)

    def _penalty_gradient(self, w: Array) -> Array:
        """Return the gradient of the penalty, in units of a sum over rows."""
        problem, data = self.descent.problem, self.descent.data
        gradient = data.n_rows * problem.regularizer.strong_convexity * w
        if data.intercept > 0.0 and not problem.penalize_intercept:
            gradient[-1] = 0.0
        return gradient

    def finish(self, state: BestIterateState) -> Outcome:
        assert state.chosen is not None
        return Outcome(state.chosen)


def _step_size(problem: Problem, data: DataSpec) -> float:
    """Return 1 over the smoothness of the objective (the slope bound of a kinked loss)."""
    curvature = (
        defaults.curvature(problem.loss, data) * data.augmented_row_norm**2 * data.weight_bound
    )
    return 1.0 / (curvature + problem.regularizer.smoothness)


def _n_steps(problem: Problem, data: DataSpec, mu: float, travel_of_step: float) -> int:
    """Return the default number of steps; see ``dpglm.solvers.parts.defaults.steps``."""
    unit = defaults.slope_unit(problem.loss, data)
    travel = (
        _TRAVEL * unit / defaults.curvature(problem.loss, data) * mu * data.n_rows / data.row_norm
    )
    return min(max(1, math.ceil(travel / travel_of_step)), _MOST_STEPS)
