"""Noisy gradient descent: full batch or Poisson-sampled, with momentum, prox and projection."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import Literal, final

from dpglm._validation import check_bools
from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.privacy.noise.additive import GaussianNoise, L2Noise
from dpglm.solvers.base import Facts, Plan, Solver
from dpglm.solvers.gradient.noisy_gd_method import NoisyGDMethod, StartComparison, l2_steps
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import Last, LinearDecay, Output, Schedule

# Below this mu times rows per column, data damp little of the noise.
_DAMPED = 5.0
# Bound on differences of losses, in units of slope squared over curvature: about the change of a
# loss over the range in which slopes change.
_COMPARISON_CLIP, _COMPARISON_CLIP_NONCONVEX = 0.25, 1.0
# Noise in a mean difference, in these units, that is small enough, and the largest share of the
# budget for it. With unbounded slopes targets may vary by a small part of their range.
_COMPARISON_NOISE, _MOST_COMPARISON_SHARE = 1e-3, 0.02
_COMPARISON_NOISE_UNBOUNDED, _MOST_COMPARISON_SHARE_UNBOUNDED = 5e-4, 0.05


@final
@dataclass(frozen=True)
class NoisyGD(Solver):
    """Gradient descent on clipped gradients with Gaussian noise.

    Settings left at None are decided by ``dpglm.solvers.parts.defaults`` from public facts.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1.
    step_size : float, optional
        Size of the first step, above 0; later ones follow ``schedule``.
    schedule : Schedule, default=LinearDecay(0.3)
        Factors on the step size.
    clip : float, optional
        Clipping threshold C of a row's gradient, above 0, in units of the prepared rows.
    automatic_clipping : bool, default=False
        Normalise gradients to ``C g / (|g| + 0.01 C)`` rather than clip them at C.
    momentum : float, default=0.9
        Weight of earlier gradients in a step, in [0, 1).
    sampling_rate : float, default=1.0
        Probability with which each row enters each batch, in (0, 1]; 1 is the full batch.
    output : Output, default=Last()
        The returned iterate, or average of iterates.
    shrink : bool, default=False
        Whether to shrink a result with a norm near that of noise alone towards its start, if
        ``mu n`` is below five times the columns, so that data damp little of the noise.
    compare : bool, default=False
        Whether a small part of the budget, at most 2 % of mu squared (5 % if slopes are unbounded),
        goes to a noisy comparison of the result with its start by their clipped losses. A result
        that does not seem better is shrunk towards the start.
    noise : {"gaussian", "l2"}, optional
        Distribution of the noise in gradients. By default Gaussian, and L2 noise, with a density
        proportional to ``exp(-|b| / s)``, if the budget has a delta of 0.

    Notes
    -----
    Privacy: T releases, Gaussian or ``Pure(e)``, Poisson-sampled below rate 1, and one of the
    comparison. ``docs/solvers/noisy_gd.md`` has the algorithm, the accounting, and the conditions
    under which only the last iterate is charged.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Algorithm 1. L2 noise: Chaudhuri, Monteleoni and
    Sarwate, "Differentially private empirical risk minimization", JMLR 2011.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
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
        check_given(self)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        loss, factor = problem.loss, adjacency.sum_sensitivity(data.unit_weight)
        clip = defaults.checked_clip(loss, data, self.clip)
        pure = self.noise == "l2"
        if self.noise is None and not self.compare:
            pure = budget.is_pure
        mu = math.inf if pure else budget.gdp_mu() / factor
        comparison = None
        if self.compare:
            largest = _COMPARISON_CLIP if loss.convex else _COMPARISON_CLIP_NONCONVEX
            enough, most = _COMPARISON_NOISE, _MOST_COMPARISON_SHARE
            if not defaults.has_bounded_slopes(loss, data):
                enough, most = _COMPARISON_NOISE_UNBOUNDED, _MOST_COMPARISON_SHARE_UNBOUNDED
            scale = defaults.slope_unit(loss, data) ** 2 / defaults.curvature(loss, data)
            bound = largest * scale
            share = min((largest / (enough * mu * data.n_rows)) ** 2, most)
            noise = GaussianNoise(1.0 / (math.sqrt(share) * budget.gdp_mu()))
            comparison = StartComparison(bound, noise)
            mu *= math.sqrt(1.0 - share)
        decide = functools.partial(defaults.steps, mu=mu)
        if pure:
            signal = data.n_rows * budget.as_approximate_dp().epsilon / factor
            decide = functools.partial(l2_steps, signal=signal)
        n_steps, step_size = decide(
            problem,
            data,
            clip=clip,
            momentum=self.momentum,
            schedule=self.schedule,
            n_steps=self.n_steps,
            step_size=self.step_size,
        )
        few = pure or mu * data.n_rows < _DAMPED * data.n_columns
        method = NoisyGDMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            clipping=AutomaticClipping(clip) if self.automatic_clipping else FlatClipping(clip),
            step_sizes=tuple((step_size * self.schedule.factors(n_steps)).tolist()),
            momentum=self.momentum,
            sampling_rate=self.sampling_rate,
            output=self.output,
            noise=L2Noise(1.0) if pure else GaussianNoise(1.0),
            shrink=self.shrink and few,
            comparison=comparison,
        )
        method = dataclasses.replace(method, last_only=method.contraction is not None)
        return facts.calibrated(method.with_multiplier)


def pure_gd(
    n_steps: int | None = None,
    step_size: float | None = None,
    schedule: Schedule | None = None,
    clip: float | None = None,
    output: Output | None = None,
) -> NoisyGD:
    """Return gradient descent with L2 noise, for budgets with a delta of 0.

    Momentum is 0. A result with a norm near that of noise is shrunk towards the start.

    Parameters
    ----------
    n_steps, step_size, clip, output : optional
        As in ``NoisyGD``.
    schedule : Schedule, optional
        By default ``LinearDecay()``.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
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


# Chosen on validation parts of the training rows of Adult and ACS employment: half of it costs
# accuracy at epsilon 4, twice of it gains nothing.
_RATE = 1.1


@final
@dataclass(frozen=True)
class NoisySGD(Solver):
    """``NoisyGD`` with more and cheaper steps, on Poisson samples of the rows.

    Parameters
    ----------
    n_steps : int, default=500
        Number of steps T, at least 1.
    sampling_rate : float, optional
        Probability with which each row enters each batch, in (0, 1]. By default ``min(1, 1.1
        sqrt(mu / T))`` with the budget's mu; the noise multiplier is then about ``1.1 /
        sqrt(mu)``.
    schedule : Schedule, default=LinearDecay()
        Factors on the step size.
    step_size, clip, automatic_clipping, momentum, output
        As in ``NoisyGD``.

    Notes
    -----
    Privacy: T Poisson-sampled Gaussian releases, accounted by privacy-loss distributions, which
    needs an (epsilon, delta) budget. ``docs/solvers/noisy_sgd.md`` derives the default rate.

    References
    ----------
    Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1, with
    Poisson samples.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = NoisySGD().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> round(plan.method.sampling_rate, 4), round(plan.method.noise_multiplier, 2)
    (0.0255, 2.3...)
    """

    n_steps: int = 500
    sampling_rate: float | None = None
    step_size: float | None = None
    schedule: Schedule = field(default_factory=LinearDecay)
    clip: float | None = None
    automatic_clipping: bool = False
    momentum: float = 0.9
    output: Output = field(default_factory=Last)

    def __post_init__(self) -> None:
        check_bools(self)
        check_given(self)
        self._with_rate(1.0)

    def decide(self, facts: Facts) -> Plan:
        rate = self.sampling_rate
        if rate is None:
            rate = min(1.0, _RATE * math.sqrt(facts.budget.gdp_mu() / self.n_steps))
        return self._with_rate(rate).decide(facts)

    def _with_rate(self, rate: float) -> NoisyGD:
        return NoisyGD(**{**vars(self), "sampling_rate": rate})
