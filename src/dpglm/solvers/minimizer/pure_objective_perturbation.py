"""Objective perturbation with L2 noise: the form of it that costs no delta."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.counts import shrinking_share
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.objective.certified import pure_minimizer_noise, pure_noisy_minimizer
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Composed, Event, Pure, Repeated
from dpglm.privacy.noise import granularity_exponent, grid_sensitivity
from dpglm.privacy.noise.scales import pure_objective_epsilon
from dpglm.privacy.releases import Release
from dpglm.solvers.base import Method, StepInfo
from dpglm.solvers.minimizer.strongly_convex import PlannedObjective, with_strength
from dpglm.solvers.parts.defaults import slope_unit
from dpglm.solvers.parts.feasible import n_penalized
from dpglm.solvers.parts.shrinkage import is_neutral, shrunk

__all__ = [
    "PURE_INTERCEPT",
    "PURE_MINIMISER",
    "PureObjectivePerturbationMethod",
    "PureObjectivePerturbationState",
    "pure_method",
]

PURE_MINIMISER = "minimiser of an objective with L2 noise"
"""What is released, in words; what else is released makes up for its error only."""

PURE_INTERCEPT = 0.5
"""Factor on the intercept column: above 1/4, as strengths are larger and classes may be rare."""

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen: the
# share of epsilon that the curvature takes, and the most of it at any epsilon.
_CURVATURE_SHARE, _LARGEST_RATIO = 0.12, 10.0
# Noise in the prediction of a row, in units of slope over curvature, if rows lie in all
# directions alike.
_NOISE = 0.08
# The error of the minimisers is covered by noise that is paid for with 1/50 of that of b.
_ERROR_MULTIPLIER = 50.0
_TOLERANCE, _LARGEST_TOLERANCE = 1e-6, 0.005
# Where rounding hides more than this of what a row does, the strength grows by this factor, up to
# this part of what rows in all directions alike hold each coefficient with.
_REACHED, _GROWTH, _LARGEST_PART = 0.001, 2.0, 0.05
_TYPICAL_PASSES = 30


def pure_method(
    planned: PlannedObjective,
    data: DataSpec,
    budget: PrivacyBudget,
    n_objectives: int,
    strength: float | None,
) -> PureObjectivePerturbationMethod:
    """Decide strength, noise and tolerance for a budget with a delta of 0.

    Parameters
    ----------
    planned : PlannedObjective
        All else, decided.
    data : DataSpec
        Public facts of the rows as they are given.
    budget : PrivacyBudget
        What may be spent.
    n_objectives : int
        1, or the number of classes.
    strength : float, optional
        Given strength of the added quadratic, relative to the mean loss.

    Returns
    -------
    PureObjectivePerturbationMethod

    Raises
    ------
    ValueError
        If the curvature alone costs more than the budget, or rounding hides too much of what a
        row does.
    """
    if strength is not None:
        method, reached = _without_tolerance(
            with_strength(planned, strength, 0.0), data, budget, n_objectives
        )
    else:
        epsilon = budget.as_approximate_dp().epsilon / n_objectives
        share = min(_CURVATURE_SHARE * epsilon, math.log1p(_LARGEST_RATIO))
        of_row = data.weight_bound * planned.curvature
        wanted = max(of_row / math.expm1(share), _bearable(planned, data, epsilon))
        most = _LARGEST_PART * of_row * data.n_rows / data.n_columns
        while True:
            method, reached = _without_tolerance(
                with_strength(planned, None, wanted), data, budget, n_objectives
            )
            wanted *= _GROWTH
            if reached <= _REACHED * method.objective.movement or wanted > most:
                break
    tolerance = method.objective.checked_tolerance(reached, _TOLERANCE, _LARGEST_TOLERANCE)
    return dataclasses.replace(method, tolerance=tolerance)


def _without_tolerance(
    planned: PlannedObjective, data: DataSpec, budget: PrivacyBudget, n_objectives: int
) -> tuple[PureObjectivePerturbationMethod, float]:
    """Decide noise and radius, and say which tolerance can be promised."""
    if not planned.adjacency.n_is_public:
        # Theorem 3 of the proofs asks for no fewer than columns.
        most = max(planned.most_rows, planned.data.n_columns)
        planned = dataclasses.replace(planned, most_rows=most)
    noise_multiplier = calibrate(
        lambda sigma: _event(sigma, planned.curvature_ratio, n_objectives),
        budget,
        planned.adjacency,
    )
    method = PureObjectivePerturbationMethod(
        objective=planned,
        original=data,
        n_objectives=n_objectives,
        radius=0.0,
        tolerance=0.0,
        noise_multiplier=noise_multiplier,
    )
    # Hardly any minimiser is beyond what is possible for a typical b; one that is, is projected.
    typical = method.scale * (data.n_columns + 10.0 * math.sqrt(data.n_columns) + 40.0)
    longest = dataclasses.replace(planned, linear_norm=typical)
    radius = max(longest.norm, planned.movement)
    return dataclasses.replace(method, radius=radius), planned.reach_within(2.0 * radius)


@final
@dataclass(frozen=True, eq=False)
class PureObjectivePerturbationState:
    """The released minimiser, for the intercept column that was used; zero before the only step."""

    w: NDArray[np.float64]


@final
@dataclass(frozen=True)
class PureObjectivePerturbationMethod(Method["PureObjectivePerturbationState"]):
    """Objective perturbation with L2 noise, with every setting decided.

    Parameters
    ----------
    objective : PlannedObjective
        What is minimised, linear term apart.
    original : DataSpec
        Facts of the rows as they are given.
    n_objectives : int
        1, or the number of classes.
    radius : float
        Of the ball onto which each minimiser is projected.
    tolerance : float
        Bound on the distance of each computed minimiser to the exact one, for the rounded b and
        after projection.
    noise_multiplier : float
        Scale of b over the relation's sensitivity of the gradient sum.

    Notes
    -----
    Privacy: ``docs/proofs/objective-perturbation.md``, Theorem 2 for the exact minimiser (Theorem 3
    where the number of rows is private) and Lemma 5 for what is computed. No bound on b, on a
    minimiser or on a private number of rows is supposed anywhere.
    """

    objective: PlannedObjective
    original: DataSpec
    n_objectives: int
    radius: float
    tolerance: float
    noise_multiplier: float

    algorithm = "objective perturbation with L2 noise"

    @property
    def n_steps(self) -> int:
        return 1

    @property
    def gradient_bound(self) -> float:
        """Bound on what one row adds to the gradient of one objective."""
        return self.objective.clip * self.original.weight_bound

    @property
    def scale(self) -> float:
        """Scale s of b, whose density is proportional to ``exp(-|b| / s)``."""
        sensitivity = self.objective.adjacency.sum_sensitivity(self.gradient_bound)
        return self.noise_multiplier * sensitivity * (1.0 + 2.0**-50)

    @property
    def error(self) -> float:
        """Bound on the distance between all exact minimisers and all computed ones, projected."""
        grid = grid_sensitivity(self.original.n_columns, granularity_exponent(self.scale))
        distance = self.tolerance + grid / self.objective.strength
        return math.sqrt(self.n_objectives) * distance * (1.0 + 1e-9)

    @property
    def norm(self) -> float:
        """Public bound on the norm of all projected minimisers together."""
        return math.sqrt(self.n_objectives) * self.radius

    @property
    def error_epsilon(self) -> float:
        """What the noise that covers the error costs."""
        return _error_epsilon(self.noise_multiplier)

    @property
    def releases(self) -> tuple[Release, ...]:
        epsilon = pure_objective_epsilon(self.noise_multiplier, self.objective.curvature_ratio)
        covering = pure_minimizer_noise(
            self.objective.adjacency,
            2.0 * self.error,
            self.error_epsilon,
            self.original.n_coefficients,
            self.norm,
        )
        return (
            Release(
                PURE_MINIMISER,
                Pure(epsilon),
                self.n_objectives,
                self.gradient_bound,
                1.0 / epsilon,
                self.scale,
                self.original.n_columns,
            ),
            Release(
                "error of a minimiser, with L2 noise",
                Pure(self.error_epsilon),
                1,
                2.0 * self.error,
                1.0 / self.error_epsilon,
                covering.std,
                self.original.n_coefficients,
            ),
        )

    @property
    def gradient_evaluations(self) -> float:
        # The rows decide how many; this is what well-behaved ones take.
        return float(_TYPICAL_PASSES * self.original.n_rows * self.n_objectives)

    @property
    def coefficient_noise(self) -> float:
        return self.scale * math.sqrt(self.original.n_columns + 1.0) / self.objective.strength

    @property
    def even_noise(self) -> float:
        """Standard deviation of the noise in each coefficient, if rows lie in all directions alike.

        Flat directions of other rows have more of it, and keep what is found from being shrunk.
        """
        held = self.objective.strength + _held_by_rows(self.objective, self.original)
        return self.scale * math.sqrt(self.original.n_columns + 1.0) / held

    def init(self, seed: int) -> PureObjectivePerturbationState:
        return PureObjectivePerturbationState(np.zeros(self.original.coefficient_shape))

    def step(
        self, state: PureObjectivePerturbationState, oracle: Oracle
    ) -> tuple[PureObjectivePerturbationState, StepInfo]:
        counted = not oracle.curator.adjacency.n_is_public
        n_rows, most = oracle.rows.n_rows, self.objective.most_rows
        share = shrinking_share(n_rows, most) if counted else 1.0
        classes = range(self.n_objectives) if self.n_objectives > 1 else [None]
        objectives = []
        for positive_class in classes:
            b = oracle.curator.objective_noise(
                self.objective.data.coefficient_shape,
                self.gradient_bound,
                self.noise_multiplier,
                self.objective.curvature_ratio,
                True,
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
        w = pure_noisy_minimizer(
            oracle.curator,
            objectives,
            tolerance=self.tolerance,
            contribution_bound=2.0 * self.error,
            epsilon=self.error_epsilon,
            norm=self.norm,
        )
        return PureObjectivePerturbationState(w), StepInfo(1, 1.0)

    def finish(self, state: PureObjectivePerturbationState) -> NDArray[np.float64]:
        w, problem = state.w, self.objective.problem
        if is_neutral(self.objective.loss, self.original):
            own_intercept = n_penalized(problem, self.original) < self.original.n_columns
            w = shrunk(w, np.zeros_like(w), self.even_noise, own_intercept=own_intercept)
        return self.objective.unscaled(w)


def _bearable(planned: PlannedObjective, data: DataSpec, epsilon: float) -> float:
    """Strength, relative to the sum of losses, at which noise in predictions is bearable.

    Notes
    -----
    A vector of length ``s d`` in a random direction moves predictions of rows of length R by
    ``s R sqrt(d) / (strength + n q / (2 d))``: rows in all directions alike have the curvature
    ``n q / d`` in each, and half of them are clipped. Real rows lie in fewer directions, and hold
    these faster.
    """
    norm, columns = planned.data.augmented_row_norm, data.n_columns
    scale = planned.adjacency.sum_sensitivity(planned.clip * data.weight_bound) / epsilon
    bearable = _NOISE * slope_unit(planned.loss, planned.data) * norm / planned.curvature
    wanted = scale * math.sqrt(columns) / bearable
    return wanted - _held_by_rows(planned, data)


def _held_by_rows(planned: PlannedObjective, data: DataSpec) -> float:
    """Curvature of the sum of losses in each direction: rows are alike in all, half are clipped."""
    return 0.5 * data.n_rows * planned.curvature / data.n_columns


def _error_epsilon(noise_multiplier: float) -> float:
    return 1.0 / (_ERROR_MULTIPLIER * noise_multiplier)


def _event(noise_multiplier: float, curvature_ratio: float, n_objectives: int) -> Event:
    one = Pure(pure_objective_epsilon(noise_multiplier, curvature_ratio))
    return Composed((Repeated(one, n_objectives), Pure(_error_epsilon(noise_multiplier))))
