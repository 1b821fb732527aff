"""Output perturbation: a certified minimiser of a strongly convex objective, plus noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

from dpglm._validation import check_kind
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.objective import minimizer_release, noisy_minimizer
from dpglm.privacy import Gaussian, calibrate
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import L2Ball, Unconstrained
from dpglm.solvers.base import Facts, Outcome, Plan, StepInfo
from dpglm.solvers.minimizer import strongly_convex
from dpglm.solvers.parts.defaults import slope_unit
from dpglm.solvers.uncertainty import Floats

# Radius that stands in for a ball's, in units of slope over curvature and row norm: chosen on
# validation parts of the training rows of Adult and ACS employment, then frozen.
_RADIUS = 4.0
_TOLERANCE, _LARGEST_TOLERANCE = 1e-3, 0.1


@final
@dataclass(frozen=True)
class OutputPerturbation(strongly_convex.MinimizerSolver):
    """Gaussian noise on the minimiser of the mean clipped loss plus penalty plus quadratic.

    The quadratic ``strength/2 |w|^2`` acts on all coefficients, the intercept included. The
    minimiser is computed until a certificate bounds its distance from the exact one. The time of a
    fit depends on the rows.

    Parameters
    ----------
    strength, clip, intercept_scale : float, optional
        As in ``ObjectivePerturbation``. The default strength is that of Arora et al. with exact
        accounting in place of their closed form. An L2 ball as constraint lowers the largest
        gradient. With several outputs the clip must never bind, and by default is that gradient.

    Notes
    -----
    Privacy: ``Gaussian(noise_multiplier)`` for the minimiser; under add_remove the number of rows
    is released first, by another ``Gaussian(20 noise_multiplier)``. Erasing a row moves the
    computed minimiser by at most ``C v / m + 2 tolerance``, for a weight v and an m-strongly convex
    sum (Bousquet and Elisseeff, JMLR 2002, Theorem 22). ``docs/solvers/output_perturbation.md`` has
    the proof and the default strength.

    References
    ----------
    Arora, Bassily, Guzmán, Menart and Ullah 2022, Algorithm 3 (which adds noise to the exact
    minimiser, and allows that none exists), Theorems 3 and 5; Jain and Thakurta, ICML 2014;
    Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 1 (with noise for pure DP).

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = OutputPerturbation().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.event
    Gaussian(noise_multiplier=3.73...)
    """

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        what = "an L2Ball or none for output perturbation"
        check_kind("constraint", problem.constraint, Unconstrained | L2Ball, what)

        multiplier = calibrate(
            lambda sigma: strongly_convex.with_count(Gaussian(sigma), sigma, adjacency),
            budget,
            adjacency,
        )
        planned = strongly_convex.plan_objective(
            problem, data, adjacency, problem.loss, self.clip, self.intercept_scale
        )
        moved = multiplier * adjacency.sum_sensitivity(planned.clip * data.weight_bound)
        # The noise in a mean gradient decides the strength that is best, for the ball or a guess.
        noise, q = moved / data.n_rows, planned.curvature
        ball = problem.constraint.norm_bound(1)
        unit = slope_unit(problem.loss, planned.data) * planned.data.augmented_row_norm
        radius = _RADIUS * unit / q if math.isinf(ball) else ball
        strength = float((2.0 * q) ** (1 / 3) * (noise / radius) ** (2 / 3))
        if math.isfinite(ball):
            lipschitz = math.sqrt(2.0 * planned.clip * noise) / ball
            # The excess risk of each from noise and penalty.
            if_smooth = 0.5 * q * (noise / strength) ** 2 + 0.5 * strength * ball**2
            if_lipschitz = planned.clip * noise / lipschitz + 0.5 * lipschitz * ball**2
            strength = strength if if_smooth <= if_lipschitz else lipschitz
        planned = strongly_convex.with_strength(planned, self.strength, data.n_rows * strength)
        planned, counted = strongly_convex.counted_rows(planned, multiplier)
        method = OutputPerturbationMethod(
            problem=problem,
            objective=planned,
            counted=counted,
            original=data,
            tolerance=planned.tolerance(_TOLERANCE, _LARGEST_TOLERANCE),
            noise_multiplier=multiplier,
        )
        return facts.plan(method)


@final
@dataclass(frozen=True)
class OutputPerturbationMethod(strongly_convex.MinimizerMethod):
    """Output perturbation with every setting decided."""

    tolerance: float  # Bound on the distance of the computed minimiser to the exact one.
    noise_multiplier: float

    algorithm = "output perturbation"

    def check(self, plan: Plan) -> None:
        is_counted = not plan.adjacency.n_is_public
        self.check_objective(plan, plan.problem.loss, is_counted=is_counted)

    @property
    def _contribution(self) -> float:
        return self.objective.movement + 2.0 * self.tolerance

    @functools.cached_property
    def minimizer(self) -> SumRelease:
        """The release of the minimiser."""
        return minimizer_release(
            "minimiser",
            self.objective.adjacency,
            GaussianNoise(self.noise_multiplier),
            bound=self._contribution,
            coordinates=self.original.n_coefficients,
            norm=self.objective.norm,
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (*self.counts, self.minimizer)

    @property
    def gradient_evaluations(self) -> float:
        return float(strongly_convex.TYPICAL_PASSES * self.original.n_rows)

    @property
    def coefficient_noise(self) -> float:
        return self.minimizer.noise_std

    def step(self, state: Floats, oracle: Oracle) -> tuple[Floats, StepInfo]:
        share = 1.0 if self.counted is None else self.counted.share(oracle)
        w = noisy_minimizer(
            oracle.curator,
            self.minimizer,
            [self.objective.build(oracle.rows, share=share)],
            tolerance=self.tolerance,
            bound=self._contribution,
            norm=self.objective.norm,
        )
        return self.objective.unscaled(w), StepInfo(1, 1.0)

    def finish(self, state: Floats) -> Outcome:
        return Outcome(state)
