"""Noisy gradient descent: full batch or Poisson-sampled, with momentum, prox and projection."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bools, check_integer, check_real
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.clipping import AutomaticClipping, Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.oracle.row_sums.loss_differences import loss_difference_release, noisy_loss_difference
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, is_pure
from dpglm.privacy.events import Composed, Event, LastIterate
from dpglm.privacy.noise import grid_sensitivity
from dpglm.privacy.noise.additive import GaussianNoise, L2Noise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import L2Ball, Problem
from dpglm.problem.loss import Loss
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.gradient.amplification import Contraction, contraction
from dpglm.solvers.gradient.l2_steps import l2_steps
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.outputs import Last, Output
from dpglm.solvers.parts.schedules import LinearDecay, Schedule
from dpglm.solvers.parts.shrinkage import is_neutral, share_of_comparison, shrunk

__all__ = ["NoisyGD", "NoisyGDMethod", "pure_gd"]

# Below so much budget times rows for each column, data damp little of the noise.
_DAMPED = 5.0
# Bound on differences of losses, in units of slope squared over curvature, about what a loss
# changes by over the range in which slopes change. Where it flattens all of that must be seen.
_COMPARISON_CLIP, _COMPARISON_CLIP_NONCONVEX = 0.25, 1.0
# Noise in a mean difference, in these units, that is small enough.
_COMPARISON_NOISE, _MOST_COMPARISON_SHARE = 5e-4, 0.05


@final
@dataclass(frozen=True)
class NoisyGD(Solver):
    """Gradient descent on clipped gradients with Gaussian noise.

    Each step is ``v <- m v + (1 - m) g``, ``w <- project(prox(w - eta v))`` with the noisy mean
    clipped gradient ``g``; it starts at zero. Settings left at None are decided by
    ``dpglm.solvers.parts.defaults`` from public facts.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1.
    step_size : float, optional
        Size of the first step, above 0; later ones follow ``schedule``.
    schedule : Schedule, default=LinearDecay(0.3)
        Factors on the step size.
    clip : float, optional
        Clip norm C of a row's gradient, above 0, in units of the prepared rows.
    automatic_clipping : bool, default=False
        Normalise gradients to ``C g / (|g| + 0.01 C)`` rather than clip them at C.
    momentum : float, default=0.9
        The m above, in [0, 1).
    sampling_rate : float, default=1.0
        Probability q with which each row enters each batch, in (0, 1]; 1 is the full batch.
    output : Output, default=Last()
        Which iterate, or average of iterates, is returned.
    shrink : bool, default=False
        Whether a result hardly longer than noise alone would make it is shrunk towards its
        start (``dpglm.solvers.parts.shrinkage``), where ``mu n`` is below five times the columns,
        so that data damp little of the noise.
    noise : {"gaussian", "l2"}, optional
        Law of the noise in gradients. By default Gaussian, and L2 noise, with a density
        proportional to ``exp(-|b| / s)``, where the budget has a delta of 0.
    compare : bool, default=False
        Whether part of the budget, at most 5 % of mu squared and less for many rows, goes to a
        noisy comparison of the result with its start by their clipped losses. A result that does
        not seem better is shrunk towards the start.

    Notes
    -----
    Privacy: full batch is T Gaussian releases, accounted exactly; with ``sampling_rate`` below
    1 they are Poisson-sampled, accounted by privacy-loss distributions. The comparison is one
    more Gaussian release, of one number. With no momentum, the
    full batch, the last iterate returned and a strongly convex, smooth objective, the smaller
    bound for releasing only the last iterate is used (``dpglm.solvers.gradient.amplification``).

    With L2 noise there are T releases, each ``Pure(e)``, exactly, amplified by sampling
    (``dpglm.privacy.events.poisson_sampled``). Each costs ``epsilon / T`` where
    delta is 0, so noise grows with T, and its standard deviation in each coordinate is
    ``s sqrt(m + 1)`` for m coefficients: so there are few steps by default, and few columns are
    better. ``ObjectivePerturbation`` is better there for the problems that it takes.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Algorithm 1; Arora et al. 2022, Algorithm 1 (which
    prints the loss where the gradient is meant); Wang, Ye and Xu 2017, Algorithm 4. L2 noise:
    Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
    JMLR 2011.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> solver = NoisyGD(n_steps=100, clip=1.0)
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.event
    Repeated(event=Gaussian(noise_multiplier=37.3...), count=100)
    """

    n_steps: int | None = None
    step_size: float | None = None
    schedule: Schedule = field(default_factory=lambda: LinearDecay(0.3))
    clip: float | None = None
    automatic_clipping: bool = False
    momentum: float = 0.9
    sampling_rate: float = 1.0
    output: Output = field(default_factory=Last)
    shrink: bool = False
    compare: bool = False
    noise: Literal["gaussian", "l2"] | None = None

    def __post_init__(self) -> None:
        check_bools(self)
        if self.noise not in (None, "gaussian", "l2"):
            raise ValueError(f"noise must be 'gaussian', 'l2' or None, got {self.noise!r}")
        if self.noise == "l2" and self.compare:
            raise ValueError("noise must be 'gaussian' with compare, got 'l2'")
        if self.n_steps is not None:
            check_integer("n_steps", self.n_steps, least=1)
        if self.step_size is not None:
            check_real("step_size", self.step_size, above=0.0)
        if self.clip is not None:
            check_real("clip", self.clip, above=0.0)
        check_real("momentum", self.momentum, least=0.0, below=1.0)
        check_real("sampling_rate", self.sampling_rate, above=0.0, most=1.0)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        clip = defaults.clip(problem.loss, data) if self.clip is None else self.clip
        clipping: Clipping = (
            AutomaticClipping(clip) if self.automatic_clipping else FlatClipping(clip)
        )
        ratio = clip / data.augmented_row_norm
        if not SMALLEST <= ratio <= LARGEST:
            raise ValueError(
                f"clip must be {SMALLEST:g} to {LARGEST:g} times the row norm "
                f"{data.augmented_row_norm!r}, got {clip!r}"
            )
        if self._is_l2(budget):
            return self._plan_l2(problem, budget, data, adjacency, clipping)
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.weight_bound)
        comparison = None
        if self.compare:
            bound, share = _comparison(problem.loss, data, mu)
            noise = GaussianNoise(1.0 / (math.sqrt(share) * budget.gdp_mu()))
            comparison = Comparison(bound, noise)
            mu *= math.sqrt(1.0 - share)
        n_steps, step_size = defaults.steps(
            problem.loss,
            data,
            mu=mu,
            clip=clip,
            momentum=self.momentum,
            schedule=self.schedule,
            n_steps=self.n_steps,
            step_size=self.step_size,
        )
        method = NoisyGDMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            clipping=clipping,
            step_sizes=tuple((step_size * self.schedule.factors(n_steps)).tolist()),
            momentum=self.momentum,
            sampling_rate=self.sampling_rate,
            output=self.output,
            noise=GaussianNoise(1.0),
            shrink=self.shrink and mu * data.n_rows < _DAMPED * data.n_columns,
            comparison=comparison,
        )
        # Penalties and constraints that do not fit the parameter fail here, not in the run.
        method.init(0)
        method = dataclasses.replace(method, last_only=method.contraction is not None)
        noise_multiplier = calibrate(
            lambda sigma: method.with_multiplier(sigma).event, budget, adjacency
        )
        return Plan(problem, data, budget, adjacency, method.with_multiplier(noise_multiplier))

    def _is_l2(self, budget: PrivacyBudget) -> bool:
        if self.noise is None and not self.compare:
            return is_pure(budget)
        return self.noise == "l2"

    def _plan_l2(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency,
        clipping: Clipping,
    ) -> Plan:
        epsilon = budget.as_approximate_dp().epsilon
        signal = data.n_rows * epsilon / adjacency.sum_sensitivity(data.weight_bound)
        n_steps, step_size = l2_steps(
            problem.loss,
            data,
            signal=signal,
            clip=clipping.bound,
            momentum=self.momentum,
            schedule=self.schedule,
            n_steps=self.n_steps,
            step_size=self.step_size,
        )
        method = NoisyGDMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            clipping=clipping,
            step_sizes=tuple((step_size * self.schedule.factors(n_steps)).tolist()),
            momentum=self.momentum,
            sampling_rate=self.sampling_rate,
            output=self.output,
            noise=L2Noise(1.0),
            shrink=self.shrink,
        )
        # Penalties and constraints that do not fit the parameter fail here, not in the run.
        method.init(0)
        noise_multiplier = calibrate(
            lambda sigma: method.with_multiplier(sigma).event, budget, adjacency
        )
        return Plan(problem, data, budget, adjacency, method.with_multiplier(noise_multiplier))


def pure_gd(
    n_steps: int | None = None,
    step_size: float | None = None,
    schedule: Schedule | None = None,
    clip: float | None = None,
    output: Output | None = None,
) -> NoisyGD:
    """Return gradient descent with L2 noise, for budgets with a delta of 0.

    Without momentum; what is returned is shrunk towards the start where it is no longer than
    noise alone would make it.

    Parameters
    ----------
    n_steps, step_size, clip : optional
        As for ``NoisyGD``.
    schedule : Schedule, optional
        By default ``LinearDecay()``.
    output : Output, optional
        By default ``Last()``.

    Returns
    -------
    NoisyGD

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = pure_gd(n_steps=10).plan(Problem(Logistic()), ApproximateDP(1.0, 0.0), data)
    >>> plan.event
    Repeated(event=Pure(epsilon=0.0999...), count=10)
    """
    return NoisyGD(
        n_steps=n_steps,
        step_size=step_size,
        schedule=LinearDecay() if schedule is None else schedule,
        clip=clip,
        momentum=0.0,
        output=Last() if output is None else output,
        shrink=True,
        noise="l2",
    )


def _comparison(loss: Loss, data: DataSpec, mu: float) -> tuple[float, float]:
    """Bound on differences of losses, and the share of the budget for their sum."""
    clip = _COMPARISON_CLIP if loss.convex else _COMPARISON_CLIP_NONCONVEX
    scale = defaults.slope_unit(loss, data) ** 2 / defaults.curvature(loss, data)
    enough = (clip / (_COMPARISON_NOISE * mu * data.n_rows)) ** 2
    return clip * scale, min(enough, _MOST_COMPARISON_SHARE)


@final
@dataclass(frozen=True)
class Comparison:
    """How the result is compared with the start."""

    bound: float
    noise: GaussianNoise

    def release(self, data: DataSpec, adjacency: Adjacency) -> SumRelease:
        """Declare the release of the sum of differences."""
        return loss_difference_release(data, adjacency, self.bound, self.noise)


@final
@dataclass(frozen=True, eq=False)
class NoisyGDState:
    """Iterate and velocity, weighted sum of the iterates so far, share of it that is returned."""

    step: int
    w: NDArray[np.float64]
    velocity: NDArray[np.float64]
    returned: NDArray[np.float64]
    weights: NDArray[np.float64]
    share: float = 1.0


@final
@dataclass(frozen=True)
class NoisyGDMethod(Method["NoisyGDState"]):
    """Noisy gradient descent with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clipping: Clipping
    step_sizes: tuple[float, ...]
    momentum: float
    sampling_rate: float
    output: Output
    noise: GaussianNoise | L2Noise
    # Whether all iterates but the last stay secret, which is what amplification by iteration asks
    # for.
    last_only: bool = False
    shrink: bool = False
    comparison: Comparison | None = None

    @property
    def algorithm(self) -> str:
        pure = isinstance(self.noise, L2Noise)
        return "gradient descent with L2 noise" if pure else "noisy gradient descent"

    def __post_init__(self) -> None:
        if self.last_only and self.contraction is None:
            raise ValueError(
                "last_only must be False where a condition of amplification by iteration does not "
                "hold, got True"
            )

    @functools.cached_property
    def contraction(self) -> Contraction | None:
        """What makes amplification by iteration hold; None where a condition does not."""
        return contraction(
            self.problem,
            self.data,
            self.adjacency,
            clipping=self.clipping,
            step_sizes=self.step_sizes,
            plain=self.momentum == 0.0
            and self.sampling_rate == 1.0
            and self.output == Last()
            and isinstance(self.noise, GaussianNoise),
        )

    @property
    def amplified(self) -> Contraction | None:
        """The contraction, where privacy rests on it."""
        return self.contraction if self.last_only else None

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the sensitivity of a gradient sum."""
        return self.noise.multiplier

    def with_multiplier(self, multiplier: float) -> NoisyGDMethod:
        """Return the same method with noise of this scale over the sensitivity."""
        return dataclasses.replace(self, noise=self.noise.with_multiplier(multiplier))

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        if self.comparison is None:
            return (self.gradients,)
        return self.gradients, self.comparison.release(self.data, self.adjacency)

    @functools.cached_property
    def gradients(self) -> SumRelease:
        """The release of each gradient sum."""
        release = functools.partial(
            gradient_release,
            self.data,
            self.adjacency,
            self.clipping,
            self.noise,
            count=self.n_steps,
            sampling_rate=self.sampling_rate,
        )
        if self.amplified is None:
            return release()
        # The snapping of secret iterates moves the next step's input as well; twice that leaves
        # room for the finer grid's choice once this is added.
        secret = release(extra_rounding=self.amplified.rounding).scale
        grid = grid_sensitivity(self.data.n_coefficients, secret.exponent)
        return release(extra_rounding=self.amplified.rounding + 2.0 * grid)

    @property
    def event(self) -> Event:
        if self.amplified is None:
            return super().event
        last = LastIterate(self.noise.multiplier, self.amplified.factor, self.n_steps)
        others = tuple(release.event for release in self.releases[1:])
        return Composed((last, *others)) if others else last

    @property
    def releases_iterates(self) -> bool:
        return self.amplified is None

    @property
    def gradient_evaluations(self) -> float:
        compared = 0 if self.comparison is None else self.data.n_rows
        return self.n_steps * self.sampling_rate * self.data.n_rows + compared

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient."""
        return self.gradients.noise_std / (self.sampling_rate * self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        # The recursion is linear in the noise: carry the covariance of (w, v, returned).
        covariance = np.zeros((3, 3))
        m, strong = self.momentum, self.problem.regularizer.strong_convexity
        for eta, weight in zip(
            self.step_sizes, self.output.weights(self.n_steps, 0.5), strict=True
        ):
            shrink = 1.0 / (1.0 + eta * strong)
            transition = np.array(
                [
                    [shrink, -shrink * eta * m, 0.0],
                    [0.0, m, 0.0],
                    [weight * shrink, -weight * shrink * eta * m, 1.0],
                ]
            )
            entry = (1.0 - m) * np.array([-shrink * eta, 1.0, -weight * shrink * eta])
            covariance = transition @ covariance @ transition.T + np.outer(entry, entry)
        return self.noise_std * math.sqrt(covariance[2, 2])

    def init(self, seed: int) -> NoisyGDState:
        zero = np.zeros(self.data.coefficient_shape)
        weights = self.output.weights(self.n_steps, seed * 2.0**-64)
        return NoisyGDState(0, self._onto_feasible(zero, 0.0), zero, zero, weights)

    def step(self, state: NoisyGDState, oracle: Oracle) -> tuple[NoisyGDState, StepInfo]:
        g = oracle.noisy_gradient(self.gradients, state.w, self.clipping)
        eta = self.step_sizes[state.step]
        v = self.momentum * state.velocity + (1.0 - self.momentum) * g
        w = self._onto_feasible(state.w - eta * v, eta)
        returned = state.returned + state.weights[state.step] * w
        noise_norm = self.noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        state = NoisyGDState(state.step + 1, w, v, returned, state.weights)
        if self.comparison is not None and state.step == self.n_steps:
            state = dataclasses.replace(state, share=self._compared(returned, oracle))
        return state, info

    def _compared(self, w: NDArray[np.float64], oracle: Oracle) -> float:
        """Share of the way from the start to ``w`` that a paid comparison leaves."""
        assert self.comparison is not None
        declared, bound = self.comparison.release(self.data, self.adjacency), self.comparison.bound
        worse = noisy_loss_difference(oracle, declared, w, self.init(0).w, bound)
        return share_of_comparison(worse, declared.noise_std)

    def _onto_feasible(self, w: NDArray[np.float64], eta: float) -> NDArray[np.float64]:
        w = feasible(self.problem, n_penalized(self.problem, self.data), w, eta)
        if self.amplified is None:
            return w
        # Amplification asks for penalties on all coefficients, so none is free.
        return L2Ball(self.amplified.radius).project(w).astype(np.float64, copy=False)

    def finish(self, state: NoisyGDState) -> NDArray[np.float64]:
        start, w = self.init(0).w, state.returned
        if self.shrink and is_neutral(self.problem.loss, self.data):
            own_intercept = n_penalized(self.problem, self.data) < self.data.n_columns
            w = shrunk(w, start, self.coefficient_noise, own_intercept=own_intercept)
        return w if state.share == 1.0 else start + state.share * (w - start)
