"""Objective perturbation: the minimiser of an objective with a random linear term."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_kind
from dpglm.data.rows import DataSpec
from dpglm.oracle.counts import shrinking_share
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.objective import minimizer_release, noisy_linear_term, noisy_minimizer
from dpglm.privacy import Composed, Event, PrivacyBudget, Repeated, calibrate
from dpglm.privacy.noise import additive, grid_sensitivity
from dpglm.privacy.releases import AnyRelease, Release, SumRelease
from dpglm.problem import ConvexScalarLoss, OneVsRest, Unconstrained
from dpglm.problem.loss import Loss
from dpglm.solvers.base import Facts, Outcome, Plan, StepInfo
from dpglm.solvers.minimizer import strongly_convex
from dpglm.solvers.parts.defaults import is_neutral, shrunk
from dpglm.solvers.uncertainty import Floats, frees_intercept

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen: the
# share of epsilon that the curvature takes, and the most of it at any epsilon.
_CURVATURE_SHARE, _LARGEST_RATIO = 0.22, 10.0
# The error of the minimisers is covered by noise with a share of 1/900 of mu squared.
_ERROR_MULTIPLIER = 30.0
# The error with L2 noise is covered by noise that costs 1/50 of that of b.
_PURE_ERROR_MULTIPLIER = 50.0
_TOLERANCE, _LARGEST_TOLERANCE, _PURE_LARGEST_TOLERANCE = 1e-6, 0.01, 0.005


@final
@dataclass(frozen=True)
class ObjectivePerturbation(strongly_convex.MinimizerSolver):
    """The minimiser of clipped losses plus a quadratic and a random linear term.

    The objective is ``sum of clipped losses + n penalty + n strength/2 |w|^2 + <b, w>``; the random
    b makes its minimiser private. It is Gaussian, or L2 noise for budgets with a delta of 0.
    ``OneVsRest`` losses give one objective, with a b of its own, for each class. The penalty must
    be a ridge or none, without constraint. The time of a fit depends on the rows.

    Parameters
    ----------
    strength : float, optional
        Strength of the added quadratic, at least 0; above 0 unless the problem's own penalty is
        strongly convex in all coefficients, the intercept included. By default the difference
        between that penalty and the strength for which the curvature term takes 0.22 of epsilon.
        With a delta of 0 it takes 0.12, or less if noise or rounding need more strength.
    clip : float, optional
        Bound C on a row's gradient, above 0; each row's loss continues along its tangent beyond it.
        At most the loss's largest slope times the row norm, and half of that by default.
    intercept_scale : float, optional
        Factor on the intercept column, from 1e-3 to 1e3. By default 1/4, with a delta of 0 1/2; 1,
        and then no other value is allowed, if the penalty acts on the intercept.

    Notes
    -----
    Privacy: each exact minimiser is charged as ``PerturbedObjective(noise_multiplier,
    curvature_ratio)``, or as ``Pure(D / s + log(1 + ratio))`` with a delta of 0. The ratio is a
    row's curvature, with the SQUARE of the row norm, over the strength. Released is a computed
    minimiser; noise far below that of b covers its error. With n private, the number of rows is
    released first; with a delta of 0, Theorem 3 replaces that.
    ``docs/proofs/objective-perturbation.md`` has the proofs,
    ``docs/solvers/objective_perturbation.md`` the algorithm.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 2; Kifer, Smith and Thakurta, COLT
    2012 (the proof of its calibration has a gap); Iyengar et al., IEEE S&P 2019, Algorithm 1
    (approximate minima); Redberg, Koskela and Wang, NeurIPS 2023, Theorem 3.2.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = ObjectivePerturbation().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.event.events[0]
    PerturbedObjective(noise_multiplier=4..., curvature_ratio=0.246...)
    """

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        loss, n_objectives = _binary(problem.loss)
        penalty = problem.regularizer
        if not penalty.is_quadratic:
            raise ValueError(f"regularizer must be L2 or NoPenalty, got {penalty!r}")
        check_kind("constraint", problem.constraint, Unconstrained, "Unconstrained")
        pure = budget.as_approximate_dp().delta == 0.0
        free = strongly_convex.PURE_INTERCEPT if pure else strongly_convex.INTERCEPT
        planned = strongly_convex.plan_objective(
            problem, data, adjacency, loss, self.clip, self.intercept_scale, free
        )
        plan_method = _plan_pure if pure else _plan_gaussian
        method = plan_method(planned, data, budget, n_objectives, self.strength)
        return facts.plan(method)


@final
@dataclass(frozen=True)
class ObjectivePerturbationMethod(strongly_convex.MinimizerMethod):
    """Objective perturbation with every setting decided.

    Privacy: ``docs/proofs/objective-perturbation.md``; for L2 noise Theorem 2 for the exact
    minimiser (Theorem 3 if the number of rows is private) and Lemma 5 for the computed one. They
    need no bound on b, on a minimiser or on a private number of rows.
    """

    n_objectives: int  # 1, or the number of classes.
    radius: float
    # Bound on the distance of each computed minimiser to the exact one, for the rounded b; with L2
    # noise after projection.
    tolerance: float
    noise_multiplier: float  # Scale of b over the relation's sensitivity of the gradient sum.
    pure: bool

    @property
    def algorithm(self) -> str:
        return f"objective perturbation{' with L2 noise' if self.pure else ''}"

    def with_multiplier(self, multiplier: float) -> ObjectivePerturbationMethod:
        """Return the same method with noise of this scale over the sensitivity."""
        return dataclasses.replace(self, noise_multiplier=multiplier)

    def check(self, plan: Plan) -> None:
        least = plan.data.n_columns
        if not plan.adjacency.n_is_public and self.pure and self.objective.most_rows < least:
            raise ValueError(f"most_rows must be at least {least}, got {self.objective.most_rows}")
        loss, n_objectives = _binary(plan.problem.loss)
        if self.n_objectives != n_objectives:
            raise ValueError(f"n_objectives must be {n_objectives}, got {self.n_objectives}")
        is_counted = not (self.pure or plan.adjacency.n_is_public)
        self.check_objective(plan, loss, is_counted=is_counted)

    @functools.cached_property
    def linear_term(self) -> Release[tuple[int, ...], additive.SecretNoise]:
        """The random linear term of each objective, which covers its exact minimiser."""
        kind = additive.L2LinearTerm if self.pure else additive.GaussianLinearTerm
        return Release(
            "minimiser of a perturbed objective",
            kind(self.noise_multiplier, self.objective.curvature_ratio),
            self.objective.adjacency,
            self.objective.clip * self.original.weight_bound,
            self.original.n_columns,
            self.n_objectives,
        )

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of b."""
        return self.linear_term.noise_std

    @property
    def error(self) -> float:
        """Bound on the distance between all exact minimisers and all computed ones."""
        grid = grid_sensitivity(self.original.n_columns, self.linear_term.scale.exponent)
        distance = self.tolerance + grid / self.objective.strength
        return math.sqrt(self.n_objectives) * distance * (1.0 + 1e-9)

    @property
    def norm(self) -> float:
        """Public bound on the norm of all projected minimisers together."""
        return math.sqrt(self.n_objectives) * self.radius

    @functools.cached_property
    def covering(self) -> SumRelease:
        """The release of the computed minimisers, with noise that covers their error."""
        return minimizer_release(
            "error of a minimiser",
            self.objective.adjacency,
            _error_noise(self.noise_multiplier, self.pure),
            bound=2.0 * self.error,
            coordinates=self.original.n_coefficients,
            norm=self.norm,
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (*self.counts, self.linear_term, self.covering)

    @property
    def gradient_evaluations(self) -> float:
        return float(strongly_convex.TYPICAL_PASSES * self.original.n_rows * self.n_objectives)

    @property
    def coefficient_noise(self) -> float:
        return self.std / self.objective.strength

    def step(self, state: Floats, oracle: Oracle) -> tuple[Floats, StepInfo]:
        # The share with which each row counts, if their number is private.
        share = 1.0
        if self.counted is not None:
            share = self.counted.share(oracle)
        elif not self.objective.adjacency.n_is_public:
            share = shrinking_share(oracle.rows.n_rows, self.objective.most_rows)
        classes = range(self.n_objectives) if self.n_objectives > 1 else [None]
        shape = self.objective.data.coefficient_shape
        objectives = [
            self.objective.build(
                oracle.rows,
                linear=noisy_linear_term(oracle.curator, self.linear_term, shape),
                positive_class=positive_class,
                share=share,
            )
            for positive_class in classes
        ]
        w = noisy_minimizer(
            oracle.curator,
            self.covering,
            objectives,
            tolerance=self.tolerance,
            bound=2.0 * self.error,
            norm=self.norm,
            every_linear_term=self.pure,
        )
        return w, StepInfo(1, 1.0)

    def finish(self, state: Floats) -> Outcome:
        w, problem = state, self.objective.problem
        if self.pure and is_neutral(self.objective.loss, self.original):
            own_intercept = frees_intercept(problem, self.original)
            # The noise for rows alike in all directions. Flat directions of other rows have more of
            # it, so results with them are shrunk less.
            curved = self.objective.strength + strongly_convex.row_curvature(
                self.objective, self.original
            )
            w = shrunk(w, np.zeros_like(w), self.std / curved, own_intercept=own_intercept)
        return Outcome(self.objective.unscaled(w))


def _plan_gaussian(
    planned: strongly_convex.PlannedObjective,
    data: DataSpec,
    budget: PrivacyBudget,
    n_objectives: int,
    strength: float | None,
) -> ObjectivePerturbationMethod:
    """Decide strength, noise and tolerance for a Gaussian linear term."""
    epsilon = budget.as_approximate_dp().epsilon
    share = min(_CURVATURE_SHARE * epsilon / n_objectives, math.log1p(_LARGEST_RATIO))
    wanted = data.weight_bound * planned.curvature / math.expm1(share)
    planned = strongly_convex.with_strength(planned, strength, wanted)
    noise = _calibrated(planned, budget, n_objectives, pure=False)
    planned, counted = strongly_convex.counted_rows(planned, noise)
    method = ObjectivePerturbationMethod(
        planned.problem, planned, counted, data, n_objectives, 0.0, 0.0, noise, pure=False
    )
    longest = method.std * (math.sqrt(data.n_columns) + 20.0)
    planned = dataclasses.replace(planned, linear_norm=longest)
    return dataclasses.replace(
        method,
        objective=planned,
        radius=planned.norm * (1.0 + 1e-9),
        tolerance=planned.tolerance(_TOLERANCE, _LARGEST_TOLERANCE),
    )


def _plan_pure(
    planned: strongly_convex.PlannedObjective,
    data: DataSpec,
    budget: PrivacyBudget,
    n_objectives: int,
    strength: float | None,
) -> ObjectivePerturbationMethod:
    """Decide strength, noise and tolerance for a linear term of L2 noise.

    Raises ValueError if the curvature alone exceeds the budget, or rounding is too large.
    """
    epsilon = budget.as_approximate_dp().epsilon / n_objectives
    if not planned.adjacency.n_is_public:
        # Theorem 3 of the proofs needs at least as many rows as columns.
        most = max(planned.most_rows, planned.data.n_columns)
        planned = dataclasses.replace(planned, most_rows=most)
    size = data.n_columns + 10.0 * math.sqrt(data.n_columns) + 40.0

    def tried(wanted: float) -> tuple[ObjectivePerturbationMethod, float]:
        """Decide noise and radius, and return the tolerance that can be promised."""
        strong = strongly_convex.with_strength(planned, strength, wanted)
        noise = _calibrated(strong, budget, n_objectives, pure=True)
        method = ObjectivePerturbationMethod(
            strong.problem, strong, None, data, n_objectives, 0.0, 0.0, noise, pure=True
        )
        # The largest norm for a typical b; the rare minimiser beyond it is projected.
        longest = dataclasses.replace(strong, linear_norm=method.linear_term.scale.std * size)
        radius = max(longest.norm, strong.movement)
        return dataclasses.replace(method, radius=radius), strong.reach_within(2.0 * radius)

    first, *larger = strongly_convex.wanted_strengths(planned, data, epsilon, strength)
    method, reached = tried(first)
    for wanted in larger:
        if reached <= strongly_convex.REACHED * method.objective.movement:
            break
        method, reached = tried(wanted)
    tolerance = method.objective.tolerance(_TOLERANCE, _PURE_LARGEST_TOLERANCE, reached)
    return dataclasses.replace(method, tolerance=tolerance)


def _calibrated(
    planned: strongly_convex.PlannedObjective,
    budget: PrivacyBudget,
    n_objectives: int,
    *,
    pure: bool,
) -> float:
    """Find the noise multiplier for which linear terms, their error and the count fit."""
    kind = additive.L2LinearTerm if pure else additive.GaussianLinearTerm
    ratio, adjacency = planned.curvature_ratio, planned.adjacency

    def event(sigma: float) -> Event:
        minimisers = Composed(
            (Repeated(kind(sigma, ratio).event, n_objectives), _error_noise(sigma, pure).event)
        )
        return minimisers if pure else strongly_convex.with_count(minimisers, sigma, adjacency)

    return calibrate(event, budget, adjacency)


def _error_noise(noise_multiplier: float, pure: bool) -> additive.GaussianNoise | additive.L2Noise:
    if pure:
        return additive.L2Noise(1.0 / (_PURE_ERROR_MULTIPLIER * noise_multiplier))
    return additive.GaussianNoise(_ERROR_MULTIPLIER * noise_multiplier)


def _binary(loss: Loss) -> tuple[Loss, int]:
    """Return the loss of one objective, and the number of objectives."""
    binary, n_objectives = (loss.loss, loss.n_classes) if isinstance(loss, OneVsRest) else (loss, 1)
    if not isinstance(binary, ConvexScalarLoss):
        raise ValueError(
            "loss must be convex with one output for objective perturbation, or OneVsRest of such "
            f"a loss (in an estimator: multi_class='ovr'), got {loss!r}"
        )
    return binary, n_objectives
