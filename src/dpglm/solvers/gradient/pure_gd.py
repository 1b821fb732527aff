"""Gradient descent with L2 noise: pure differential privacy."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradient_sums.pure_gradients import pure_noisy_gradient
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Pure
from dpglm.privacy.noise.scales import l2_noise_scale
from dpglm.privacy.releases import Release
from dpglm.problem import Problem
from dpglm.problem.loss import Loss
from dpglm.solvers.base import Method, Plan, Solver, StepInfo, check_same
from dpglm.solvers.gradient.descent import Descent, DescentState, clipping_for
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.feasible import n_penalized
from dpglm.solvers.parts.outputs import Last, Output
from dpglm.solvers.parts.schedules import Constant, LinearDecay, Schedule
from dpglm.solvers.parts.shrinkage import is_neutral, shrunk

__all__ = ["PureGD", "PureGDMethod"]

# Chosen on validation parts of the training rows of Adult and ACS employment, at epsilon 0.1 to 5.
_NOISE_SCALAR, _NOISE_VECTOR = 0.2, 0.15
_LARGER_STEPS = 2.0
_LEAST_STEPS, _MOST_STEPS = 5, 200


@final
@dataclass(frozen=True)
class PureGD(Solver):
    """Full-batch gradient descent with L2 noise, for budgets with a delta of 0.

    Each step is ``w <- project(prox(w - eta g))`` with the mean clipped gradient g plus noise
    with a density proportional to ``exp(-|b| / s)``; it starts at zero.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1.
    step_size : float, optional
        Size of the first step, above 0; later ones follow ``schedule``.
    schedule : Schedule, default=LinearDecay()
        Factors on the step size.
    clip : float, optional
        Clip norm C of a row's gradient, above 0, in units of the prepared rows.
    output : Output, default=Last()
        Which iterate, or average of iterates, is returned.

    Notes
    -----
    With a delta of 0 each step costs ``epsilon / T``, so noise grows with T; and its standard
    deviation in each coordinate is ``s sqrt(m + 1)`` for m coefficients. So there are few steps
    by default, and few columns are better. ``ObjectivePerturbation`` is better for the problems
    that it takes, and ``NoisyGD`` where a delta above 0 will do. What is returned is shrunk
    towards the start where it is no longer than noise alone would make it
    (``dpglm.solvers.parts.shrinkage``).

    Privacy: T releases, each ``Pure(e)``, exactly; with a delta above 0 their composition is
    accounted for numerically.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
    JMLR 2011, for the noise; the opponent ("Gamma noise") in Song, Steinke, Thakkar and Thakurta
    2021, section 6.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = PureGD(n_steps=10).plan(Problem(Logistic()), ApproximateDP(1.0, 0.0), data)
    >>> plan.event
    Repeated(event=Pure(epsilon=0.0999...), count=10)
    """

    n_steps: int | None = None
    step_size: float | None = None
    schedule: Schedule = field(default_factory=LinearDecay)
    clip: float | None = None
    output: Output = field(default_factory=Last)

    def __post_init__(self) -> None:
        if self.n_steps is not None:
            check_integer("n_steps", self.n_steps, least=1)
        if self.step_size is not None:
            check_real("step_size", self.step_size, above=0.0)
        if self.clip is not None:
            check_real("clip", self.clip, above=0.0)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        clipping = clipping_for(problem.loss, data, self.clip)
        epsilon = budget.as_approximate_dp().epsilon
        signal = data.n_rows * epsilon / adjacency.sum_sensitivity(data.weight_bound)
        n_steps, step_size = self._steps(problem.loss, data, signal, clipping.bound)
        sizes = tuple((step_size * self.schedule.factors(n_steps)).tolist())
        descent = Descent(problem, data, sizes, self.output)
        # Penalties and constraints that do not fit the parameter fail here, not in the run.
        descent.init(0)
        method = PureGDMethod(descent, adjacency, clipping, step_epsilon=1.0)
        noise_multiplier = calibrate(
            lambda sigma: method.with_noise(sigma).event, budget, adjacency
        )
        return Plan(problem, data, budget, adjacency, method.with_noise(noise_multiplier))

    def _steps(self, loss: Loss, data: DataSpec, signal: float, clip: float) -> tuple[int, float]:
        """Choose steps and first step size, for rows times epsilon over the relation's factor.

        Notes
        -----
        As in ``dpglm.solvers.parts.defaults.steps``, but noise in a coefficient is about ``travel
        sqrt(T (m + 1)) / signal``, so that fewer steps may travel further. Steps are as large
        as is stable, twice as large as those with momentum, and T is what travels just so far.
        """
        unit = defaults.slope_unit(loss, data)
        curvature = loss.smoothness_on(math.inf, *data.target_range(loss.target.bounds))
        reach = unit / curvature if math.isfinite(curvature) else 1.0
        noise = _NOISE_SCALAR if data.n_outputs == 1 else _NOISE_VECTOR
        travel = noise * reach * signal / (data.row_norm * math.sqrt(data.n_coefficients + 1.0))
        _, stable = defaults.steps(
            loss,
            data,
            mu=math.inf,
            clip=clip,
            momentum=0.0,
            schedule=Constant(),
            n_steps=1,
            step_size=None,
        )
        largest = _LARGER_STEPS * stable
        wanted = math.cbrt(2.0 * travel / (clip * (self.step_size or largest))) ** 2
        n_steps = self.n_steps or min(max(_LEAST_STEPS, math.ceil(wanted)), _MOST_STEPS)
        factors = math.sqrt(n_steps) * float(self.schedule.factors(n_steps).sum())
        return n_steps, self.step_size or min(largest, travel / (clip * factors))


@final
@dataclass(frozen=True)
class PureGDMethod(Method["DescentState"]):
    """Gradient descent with L2 noise, with every setting decided.

    Parameters
    ----------
    descent : Descent
        What is done with noisy gradients.
    adjacency : Adjacency
        The neighbouring relation.
    clipping : FlatClipping
        Bounds each row's gradient.
    step_epsilon : float
        What each step costs.
    """

    descent: Descent
    adjacency: Adjacency
    clipping: FlatClipping
    step_epsilon: float

    algorithm = "gradient descent with L2 noise"

    def with_noise(self, noise_multiplier: float) -> PureGDMethod:
        """Return the same method with noise of this scale over the sensitivity."""
        return dataclasses.replace(self, step_epsilon=1.0 / noise_multiplier)

    def check(self, plan: Plan) -> None:
        check_same(self, plan)
        check_same(self.descent, plan)

    @property
    def n_steps(self) -> int:
        return len(self.descent.step_sizes)

    @property
    def releases(self) -> tuple[Release, ...]:
        return (
            Release(
                "clipped gradient sum with L2 noise",
                Pure(self.step_epsilon),
                self.n_steps,
                self.clipping.bound * self.descent.data.weight_bound,
                1.0 / self.step_epsilon,
                self._scale,
                self.descent.data.n_coefficients,
            ),
        )

    @property
    def _scale(self) -> float:
        """Scale s of the noise in a gradient sum."""
        data = self.descent.data
        bound = self.clipping.bound * data.weight_bound
        return l2_noise_scale(
            self.adjacency,
            bound + sum_rounding(data, self.adjacency, bound),
            self.step_epsilon,
            data.n_coefficients,
            sum_magnitude(data, self.adjacency, bound),
        ).std

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient."""
        data = self.descent.data
        return self._scale * math.sqrt(data.n_coefficients + 1.0) / data.n_rows

    @property
    def gradient_evaluations(self) -> float:
        return float(self.n_steps * self.descent.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        return self.noise_std * self.descent.noise_growth

    def init(self, seed: int) -> DescentState:
        return self.descent.init(seed)

    def step(self, state: DescentState, oracle: Oracle) -> tuple[DescentState, StepInfo]:
        g = pure_noisy_gradient(oracle, state.w, self.clipping, self.step_epsilon)
        return self.descent.step(state, g, self.noise_std)

    def finish(self, state: DescentState) -> NDArray[np.float64]:
        problem, data = self.descent.problem, self.descent.data
        if not is_neutral(problem.loss, data):
            return state.returned
        own_intercept = n_penalized(problem, data) < data.n_columns
        start, noise = self.init(0).w, self.coefficient_noise
        return shrunk(state.returned, start, noise, own_intercept=own_intercept)
