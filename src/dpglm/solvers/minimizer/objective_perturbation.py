"""Objective perturbation: the minimiser of an objective with a random linear term."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.counts import CountedRows
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.objective.certified import minimizer_noise, noisy_minimizer
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Composed, Event, Gaussian, Repeated
from dpglm.privacy.events import compositions as events
from dpglm.privacy.noise import granularity_exponent, grid_sensitivity
from dpglm.privacy.releases import Release
from dpglm.problem import ConvexScalarLoss, OneVsRest, Problem, Unconstrained
from dpglm.problem.loss import Loss
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.minimizer.pure_objective_perturbation import PURE_INTERCEPT, pure_method
from dpglm.solvers.minimizer.strongly_convex import (
    COUNT_MULTIPLIER,
    PlannedObjective,
    check_settings,
    counted_rows,
    plan_objective,
    with_strength,
)

__all__ = ["ObjectivePerturbation", "ObjectivePerturbationMethod"]

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen: the
# share of epsilon that the curvature takes, and the most of it at any epsilon.
_CURVATURE_SHARE, _LARGEST_RATIO = 0.22, 10.0
# The error of the minimisers is covered by noise that is paid for with 1/900 of mu squared.
_ERROR_MULTIPLIER = 30.0
_TOLERANCE, _LARGEST_TOLERANCE = 1e-6, 0.01
_TYPICAL_PASSES = 30


@final
@dataclass(frozen=True)
class ObjectivePerturbation(Solver):
    """The minimiser of clipped losses plus a quadratic and a random linear term.

    The objective is ``sum of clipped losses + n penalty + n strength/2 |w|^2 + <b, w>``; b is what
    makes its minimiser private. It is Gaussian, or L2 noise for budgets with a delta of 0.
    ``OneVsRest`` losses give one objective, with a b of its own, for each class.

    Parameters
    ----------
    strength : float, optional
        Strength of the added quadratic, at least 0; above 0 unless the problem's own penalty is
        strongly convex in all coefficients, the intercept included. By default what that penalty
        lacks of the strength at which the curvature term takes 0.22 of epsilon. With a delta of
        0 it takes 0.12, or less where noise or rounding ask for more strength.
    clip : float, optional
        Bound C on a row's gradient, above 0; each row's loss goes on along its tangent beyond
        it. The loss's largest slope times the row norm takes its place if that is less. By
        default half of that.
    intercept_scale : float, optional
        Factor on the intercept column, from 1e-3 to 1e3. By default 1/4, with a delta of 0 1/2; 1,
        and then no other value is allowed, where the penalty acts on the intercept.

    Notes
    -----
    The penalty must be a ridge or none, without constraint. Losses need a slope that is bounded
    or clipped, and a bounded curvature where it is not clipped. Clipped losses have a kink in
    their slope, so the map from minimisers to b is bi-Lipschitz and differentiable almost
    everywhere, which is enough for the change of variables (Federer 1969, Theorem 3.2.5).

    Privacy, delta above 0: the exact minimiser is paid for by
    ``ObjectivePerturbation(noise_multiplier, curvature_ratio)``, once for each class: given a
    class, rows are binary, and each row's gradient and curvature are bounded as they are for two
    classes. The ratio is a row's
    curvature ``weight * curvature * |x|^2``, with the SQUARE of the row norm, over the strength
    in all coefficients (``privacy.events.ObjectivePerturbation`` has the proof). What is released
    is not that minimiser but a computed one, from a b rounded to a grid. Given the exact
    minimiser and the rows, b is known, so the computed one is a function of these; it differs by
    at most ``tolerance + rounding / strength`` (strong convexity) for each class on both data
    sets, and Gaussian noise for twice that, composed with the first event, covers it. That noise
    is far below what b does.

    With n private the sum has no mean: n in the penalties is the public stand-in. The number of
    rows is then released first, by another ``Gaussian(20 noise_multiplier)``; given it, rows that
    are far more than 16 times the stand-in count with a share below 1, so that rounding is bounded
    however many there are. A row that counts for less has smaller slopes and less curvature, in
    its own direction still, so the event stays as it is. The tolerance is promised for
    ``|b| <= std (sqrt(d) + 20)``, which fails with probability below 1e-86. How long a fit takes
    depends on the rows.

    Privacy, delta 0: b has a density proportional to ``exp(-|b| / s)``, and each exact minimiser
    costs ``Pure(D / s + log(1 + ratio))``, with D the relation's sensitivity of the gradient sum.
    Its error is covered by L2 noise in the same way, after projection onto a public ball, and for
    EVERY b: certificates are checked in the run (``docs/proofs/objective-perturbation.md``,
    Theorem 2 and Lemma 5).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 2; Kifer, Smith and Thakurta, COLT
    2012 (whose calibration has a gap in its proof); Iyengar et al., IEEE S&P 2019, Algorithm 1
    (approximate minima); Redberg, Koskela and Wang, NeurIPS 2023, Theorem 3.2.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = ObjectivePerturbation().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.event.events[0]
    ObjectivePerturbation(noise_multiplier=4..., curvature_ratio=0.246...)
    """

    strength: float | None = None
    clip: float | None = None
    intercept_scale: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.strength, self.clip, self.intercept_scale)

    def needs_float64(self, budget: PrivacyBudget) -> bool:
        return True

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        loss, n_objectives = _binary(problem.loss)
        penalty = problem.regularizer
        if penalty.smoothness != penalty.strong_convexity:
            raise ValueError(f"regularizer must be L2 or NoPenalty, got {penalty!r}")
        if not isinstance(problem.constraint, Unconstrained):
            raise ValueError(f"constraint must be Unconstrained, got {problem.constraint!r}")
        limit = budget.as_approximate_dp()
        epsilon = limit.epsilon
        settings = (self.clip, self.intercept_scale)
        if limit.delta == 0.0:
            planned = plan_objective(problem, data, adjacency, loss, *settings, PURE_INTERCEPT)
            pure = pure_method(planned, data, budget, n_objectives, self.strength)
            return Plan(problem, data, budget, adjacency, pure)
        planned = plan_objective(problem, data, adjacency, loss, *settings)
        share = min(_CURVATURE_SHARE * epsilon / n_objectives, math.log1p(_LARGEST_RATIO))
        wanted = data.weight_bound * planned.curvature / math.expm1(share)
        planned = with_strength(planned, self.strength, wanted)
        method = ObjectivePerturbationMethod(
            objective=planned,
            counted=None,
            original=data,
            n_objectives=n_objectives,
            tolerance=0.0,
            noise_multiplier=1.0,
        )
        noise_multiplier = calibrate(
            lambda sigma: _event(sigma, planned.curvature_ratio, n_objectives, adjacency),
            budget,
            adjacency,
        )
        planned, counted = counted_rows(planned, noise_multiplier)
        method = dataclasses.replace(method, noise_multiplier=noise_multiplier)
        longest = method.std * (math.sqrt(data.n_columns) + 20.0)
        planned = dataclasses.replace(planned, linear_norm=longest)
        method = dataclasses.replace(
            method,
            objective=planned,
            counted=counted,
            tolerance=planned.tolerance(_TOLERANCE, _LARGEST_TOLERANCE),
        )
        return Plan(problem, data, budget, adjacency, method)


@final
@dataclass(frozen=True, eq=False)
class ObjectivePerturbationState:
    """The released minimiser; zero before the only step."""

    w: NDArray[np.float64]


@final
@dataclass(frozen=True)
class ObjectivePerturbationMethod(Method["ObjectivePerturbationState"]):
    """Objective perturbation with every setting decided.

    Parameters
    ----------
    objective : PlannedObjective
        What is minimised, linear term apart.
    counted : CountedRows, optional
        How the number of rows is found first, where it is private.
    original : DataSpec
        Facts of the rows as they are given.
    n_objectives : int
        1, or the number of classes.
    tolerance : float
        Bound on the distance of each computed minimiser to the exact one, for the rounded b.
    noise_multiplier : float
        Standard deviation of b over the relation's sensitivity of the gradient sum.
    """

    objective: PlannedObjective
    counted: CountedRows | None
    original: DataSpec
    n_objectives: int
    tolerance: float
    noise_multiplier: float

    algorithm = "objective perturbation"

    def check(self, plan: Plan) -> None:
        if self.original != plan.data or (self.counted is None) != plan.adjacency.n_is_public:
            raise ValueError(
                f"original and counted must be for {plan.data!r}, got {self.original!r}"
            )
        loss, n_objectives = _binary(plan.problem.loss)
        if self.n_objectives != n_objectives:
            raise ValueError(f"n_objectives must be {n_objectives}, got {self.n_objectives}")
        self.objective.check(plan, loss)

    @property
    def n_steps(self) -> int:
        return 1

    @property
    def gradient_bound(self) -> float:
        """Bound on what one row adds to the gradient of one objective."""
        return self.objective.clip * self.original.weight_bound

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of b."""
        return self.noise_multiplier * self.objective.adjacency.sum_sensitivity(self.gradient_bound)

    @property
    def error(self) -> float:
        """Bound on the distance between all exact minimisers and all computed ones."""
        grid = grid_sensitivity(self.original.n_columns, granularity_exponent(self.std))
        distance = self.tolerance + grid / self.objective.strength
        return math.sqrt(self.n_objectives) * distance * (1.0 + 1e-9)

    @property
    def norm(self) -> float:
        """Public bound on the norm of all minimisers together."""
        return math.sqrt(self.n_objectives) * self.objective.norm * (1.0 + 1e-9)

    @property
    def releases(self) -> tuple[Release, ...]:
        multiplier = _ERROR_MULTIPLIER * self.noise_multiplier
        ratio = self.objective.curvature_ratio
        scale = minimizer_noise(
            self.objective.adjacency,
            2.0 * self.error,
            multiplier,
            self.original.n_coefficients,
            self.norm,
        )
        counted = () if self.counted is None else (self.counted.release,)
        return (
            *counted,
            Release(
                "minimiser of a perturbed objective",
                events.ObjectivePerturbation(self.noise_multiplier, ratio),
                self.n_objectives,
                self.gradient_bound,
                self.noise_multiplier,
                self.std,
                self.original.n_columns,
            ),
            Release(
                "error of a minimiser",
                Gaussian(multiplier),
                1,
                2.0 * self.error,
                multiplier,
                scale.std,
                self.original.n_coefficients,
            ),
        )

    @property
    def gradient_evaluations(self) -> float:
        # The rows decide how many; this is what well-behaved ones take.
        return float(_TYPICAL_PASSES * self.original.n_rows * self.n_objectives)

    @property
    def coefficient_noise(self) -> float:
        return self.std / self.objective.strength

    def init(self, seed: int) -> ObjectivePerturbationState:
        return ObjectivePerturbationState(np.zeros(self.original.coefficient_shape))

    def step(
        self, state: ObjectivePerturbationState, oracle: Oracle
    ) -> tuple[ObjectivePerturbationState, StepInfo]:
        share = 1.0 if self.counted is None else self.counted.share(oracle)
        classes = range(self.n_objectives) if self.n_objectives > 1 else [None]
        objectives = []
        for positive_class in classes:
            b = oracle.curator.objective_noise(
                self.objective.data.coefficient_shape,
                self.gradient_bound,
                self.noise_multiplier,
                self.objective.curvature_ratio,
            )
            objectives.append(
                self.objective.build(
                    oracle.rows,
                    oracle.map_blocks,
                    linear=b.value,
                    positive_class=positive_class,
                    share=share,
                )
            )
        w = noisy_minimizer(
            oracle.curator,
            objectives,
            tolerance=self.tolerance,
            contribution_bound=2.0 * self.error,
            noise_multiplier=_ERROR_MULTIPLIER * self.noise_multiplier,
            norm=self.norm,
        )
        return ObjectivePerturbationState(self.objective.unscaled(w)), StepInfo(1, 1.0)

    def finish(self, state: ObjectivePerturbationState) -> NDArray[np.float64]:
        return state.w


def _event(
    noise_multiplier: float, curvature_ratio: float, n_objectives: int, adjacency: Adjacency
) -> Event:
    one = events.ObjectivePerturbation(noise_multiplier, curvature_ratio)
    error = Gaussian(_ERROR_MULTIPLIER * noise_multiplier)
    minimisers = Composed((Repeated(one, n_objectives), error))
    if adjacency.n_is_public:
        return minimisers
    return Composed((Gaussian(COUNT_MULTIPLIER * noise_multiplier), minimisers))


def _binary(loss: Loss) -> tuple[Loss, int]:
    """Find the loss of one objective, and the number of objectives."""
    binary, n_objectives = (loss.loss, loss.n_classes) if isinstance(loss, OneVsRest) else (loss, 1)
    if not isinstance(binary, ConvexScalarLoss):
        raise ValueError(
            "loss must be convex with one output for objective perturbation, or OneVsRest of such "
            f"a loss (in an estimator: multi_class='ovr'), got {loss!r}"
        )
    return binary, n_objectives
