"""Private choices: of models on held-out rows, and of the best iterate of a descent."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array
from dpglm.data.rows import DataSpec
from dpglm.oracle import choices
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency, PrivacyBudget, Pure, calibrate
from dpglm.privacy.releases import AnyRelease, ScoreRelease
from dpglm.problem import Link, Loss, Problem, Unconstrained, WithOffset
from dpglm.solvers.base import Facts, Method, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.gradient.noisy_gd_method import DescentState, NoisyGDMethod
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import Constant
from dpglm.solvers.uncertainty import frees_intercept

_OF_LOSS_AT_ZERO = 4.0


def largest_at_zero(loss: Loss, data: DataSpec) -> float:
    """Return the largest value of a nonnegative loss at prediction zero, or 1 if that is 0.

    Targets that are numbers need public bounds.

    >>> from dpglm.problem import Squared
    >>> largest_at_zero(Squared(), DataSpec(100, 3, target_low=-2.0, target_high=1.0))
    2.0
    """
    if not loss.nonnegative:
        raise ValueError(f"loss must be nonnegative for a comparison of models, got {loss!r}")
    found = defaults.loss_at_zero(loss, data)
    if not math.isfinite(found):
        ends = data.target_range(loss.target.bounds)
        raise ValueError(f"targets must have public bounds to compare models, got {ends}")
    return found or 1.0


def default_loss_bound(loss: Loss, data: DataSpec) -> float:
    """Return four times the largest loss at prediction zero.

    By Markov's inequality at most a quarter of a useful model's rows reach this bound.
    """
    return _OF_LOSS_AT_ZERO * largest_at_zero(loss, data)


def largest_within(loss: Loss, data: DataSpec, norm_bound: float) -> float:
    """Bound the loss of any row for coefficients of L2 norm at most ``norm_bound``.

    The loss at zero plus the largest prediction times the largest slope.

    >>> from dpglm.problem import Hinge
    >>> largest_within(Hinge(), DataSpec(100, 3, row_norm=2.0), 1.5)
    4.0
    """
    reach = norm_bound * data.augmented_row_norm
    steepest = loss.slope_bound_on(reach, *data.target_range(loss.target.bounds))
    return largest_at_zero(loss, data) + reach * steepest


@final
@dataclass(frozen=True)
class Misclassification:
    """1 for a misclassified row, else 0.

    >>> Misclassification().value(np.array([0.5, -2.0, 0.0]), np.array([1, 1, -1])).tolist()
    [0.0, 1.0, 0.0]
    """

    bound = 1.0

    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the error of each row for linear predictions of shape (n,) or (n, K)."""
        wrong = (z > 0.0) != (y > 0.0) if z.ndim == 1 else z.argmax(axis=1) != y
        return np.asarray(wrong, dtype=np.float64)


@final
@dataclass(frozen=True)
class AbsoluteError:
    """Absolute error of predictions, clipped to the public range of the target.

    >>> from dpglm.problem import IdentityLink
    >>> score = AbsoluteError(IdentityLink(), -1.0, 1.0)
    >>> score.bound, score.value(np.array([5.0, 0.5]), np.array([0.0, 1.0])).tolist()
    (2.0, [1.0, 0.5])
    """

    link: Link
    low: float
    high: float

    @property
    def bound(self) -> float:
        """Largest value."""
        # With a single possible target the error is 0, and any bound holds.
        return self.high - self.low or 1.0

    def value(self, z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the error of each row for linear predictions of shape (n,)."""
        means = np.clip(self.link.inverse(z), self.low, self.high)
        return np.asarray(np.abs(means - y))


PredictionScore: TypeAlias = Misclassification | AbsoluteError
"""A bounded error of predictions, independent of the training loss."""


def score_for(loss: Loss, data: DataSpec) -> PredictionScore:
    """Return the score of a loss: misclassification for classes, absolute error for numbers."""
    if not loss.target.is_number:
        return Misclassification()
    if isinstance(loss, WithOffset):
        raise ValueError("loss must not have an offset where models are compared by means")
    if loss.link is None:
        raise ValueError(f"loss must have a link, as models are compared by means, got {loss!r}")
    return AbsoluteError(loss.link, *data.target_range(loss.target.bounds))


MOST_EPSILON = 50.0
"""Largest epsilon of a choice; a larger one changes nothing."""


@final
@dataclass(frozen=True)
class LeastLoss:
    """The model with the least loss, clipped at ``loss_bound``, by permute-and-flip.

    A ``score`` takes the place of the training loss; its bound is ``loss_bound``.
    """

    loss_bound: float
    epsilon: float
    score: PredictionScore | None = None

    def release(self, data: DataSpec, adjacency: Adjacency) -> ScoreRelease:
        """Describe the release of the choice for rows with the public facts ``data``."""
        return choices.least_loss_release(data, adjacency, self.loss_bound, self.epsilon)

    def choose(self, models: Sequence[Array], oracle: Oracle, declared: AnyRelease) -> Array:
        """Choose a model by a release about held-out rows."""
        score = None if self.score is None else self.score.value
        return models[choices.choose_least_loss(oracle, declared, models, self.loss_bound, score)]


@final
@dataclass(frozen=True)
class LeastLossByNorm:
    """The model with the least clipped loss, by the generalised exponential mechanism.

    Each model has its own loss bound. The zero model competes too; ``loss_at_zero`` bounds its
    loss. ``penalties`` are added to mean losses. ``failure`` is the probability, in (0, 1), that
    the choice misses its accuracy.
    """

    loss_bounds: tuple[float, ...]
    penalties: tuple[float, ...]
    loss_at_zero: float
    epsilon: float
    failure: float

    def release(self, data: DataSpec, adjacency: Adjacency) -> choices.GeneralizedRelease:
        """Describe the release of the choice for rows with the public facts ``data``."""
        return choices.generalized_choice_release(
            data, adjacency, self.loss_bounds, self.epsilon, self.failure
        )

    def choose(self, models: Sequence[Array], oracle: Oracle, declared: AnyRelease) -> Array:
        """Choose a model by a release about held-out rows."""
        chosen = choices.choose_least_generalized(
            oracle, declared, models, self.loss_bounds, self.loss_at_zero, self.penalties
        )
        return [np.zeros_like(models[0]), *models][chosen]


Choice: TypeAlias = LeastLoss | LeastLossByNorm
"""A private choice among trained models, with every setting decided."""


def epsilon_of_choice(budget: PrivacyBudget, adjacency: Adjacency) -> float:
    """Return the largest epsilon, up to ``MOST_EPSILON``, of a choice with the whole budget.

    The budget must be an (epsilon, delta) budget.
    """
    if budget.as_approximate_dp().epsilon >= MOST_EPSILON:
        return MOST_EPSILON
    return 1.0 / calibrate(lambda multiplier: Pure(1.0 / multiplier), budget, adjacency)


_MOST_STEPS = 400
_TRAVEL = 0.7


@final
@dataclass(frozen=True)
class BestIterate(Solver):
    """Noisy gradient descent that returns the iterate with the smallest gradient norm.

    T full-batch steps from zero, then a private choice among all T + 1 iterates by the norm of the
    mean clipped gradient, penalty included. It is meant for smooth losses that are not convex.
    Constraints and penalties without a gradient are refused.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1; by default derived from the budget, at most 400.
    step_size : float, optional
        Step size eta, above 0; by default 1 over the smoothness of the objective.
    clip : float, optional
        Clipping threshold C of a row's gradient, above 0, in units of the prepared rows.
    choice_share : float, default=0.1
        Share of epsilon for the choice, in (0, 1); the choice uses at most epsilon 50.

    Notes
    -----
    Privacy: T Gaussian releases and one choice of pure differential privacy on the same rows,
    composed and calibrated together. All iterates are charged and may be published; gradient
    norms may not. One row changes the norm of a sum of clipped gradients by at most its change of
    the sum.

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
        if not penalty.is_quadratic:
            raise ValueError(
                f"regularizer must be NoPenalty() or L2() for BestIterate, got {penalty!r}"
            )
        epsilon = min(self.choice_share * budget.as_approximate_dp().epsilon, MOST_EPSILON)
        clip = defaults.clip(problem.loss, data) if self.clip is None else self.clip
        bend, step_size = defaults.curvature(problem.loss, data), self.step_size
        if step_size is None:
            # 1 over the smoothness of the objective (the slope bound of a kinked loss).
            curvature = bend * data.augmented_row_norm**2 * data.weight_bound
            step_size = 1.0 / (curvature + penalty.smoothness)
        unit = defaults.slope_unit(problem.loss, data)
        travel = _TRAVEL * unit / bend * facts.mu * data.n_rows / data.row_norm
        n_steps = max(1, math.ceil(min(travel / (clip * step_size), _MOST_STEPS)))
        n_steps = self.n_steps or n_steps
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
        return choices.shortest_gradient_release(
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
        problem, data = self.descent.problem, self.descent.data
        # Gradients of the penalty, in units of a sum over rows.
        penalties = [data.n_rows * problem.regularizer.strong_convexity * w for w in state.iterates]
        if frees_intercept(problem, data):
            for gradient in penalties:
                gradient[-1] = 0.0
        position = choices.choose_shortest_gradient(
            oracle, self.choice, state.iterates, penalties, self.descent.clipping
        )
        chosen = dataclasses.replace(state, chosen=state.iterates[position])
        return chosen, StepInfo(self.n_steps, math.nan)

    def finish(self, state: BestIterateState) -> Outcome:
        assert state.chosen is not None
        return Outcome(state.chosen)
