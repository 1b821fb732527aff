"""Noisy stochastic gradient descent: noisy gradient descent on Poisson samples of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

from dpglm._validation import check_bools, check_count, check_real
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.solvers.base import Plan, Solver
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts.outputs import Last, Output
from dpglm.solvers.parts.schedules import LinearDecay, Schedule

__all__ = ["NoisySGD"]

# Chosen on validation parts of the training rows of Adult and ACS employment: half of it costs
# accuracy at epsilon 4, twice of it gains nothing.
_RATE = 1.1


@final
@dataclass(frozen=True)
class NoisySGD(Solver):
    """Gradient descent on clipped gradients of Poisson samples, with Gaussian noise.

    ``NoisyGD`` with its steps and its clip, but more and cheaper steps: each row enters each
    batch with probability ``sampling_rate``, independently.

    Parameters
    ----------
    n_steps : int, default=500
        Number of steps T, at least 1.
    sampling_rate : float, optional
        Probability q with which each row enters each batch, in (0, 1]. By default
        ``min(1, 1.1 sqrt(mu / T))`` with the budget's mu.
    schedule : Schedule, default=LinearDecay()
        Factors on the step size.
    step_size, clip, automatic_clipping, momentum, output
        As for ``NoisyGD``.

    Notes
    -----
    While the noise multiplier is well above 1, it is about ``q sqrt(T) / mu``, so the noise in a
    mean gradient does not depend on q: smaller batches cost time only, or rather save it. Near 1
    that ends, and noise grows as batches shrink. The default rate is just on the cheap side:
    the multiplier is about ``1.1 / sqrt(mu)``, and a run computes ``1.1 sqrt(mu T) n`` row
    gradients.

    Privacy: T Poisson-sampled Gaussian releases, accounted by privacy-loss distributions, which
    needs an (epsilon, delta) budget. The rate depends on the budget and T alone.

    References
    ----------
    Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1, with
    Poisson samples.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
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
        check_count("n_steps", self.n_steps)
        if self.sampling_rate is not None:
            check_real("sampling_rate", self.sampling_rate, above=0.0, most=1.0)
        self._with_rate(1.0)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        rate = self.sampling_rate
        if rate is None:
            rate = min(1.0, _RATE * math.sqrt(budget.gdp_mu() / self.n_steps))
        return self._with_rate(rate).plan(problem, budget, data, adjacency)

    def _with_rate(self, rate: float) -> NoisyGD:
        return NoisyGD(
            n_steps=self.n_steps,
            step_size=self.step_size,
            schedule=self.schedule,
            clip=self.clip,
            automatic_clipping=self.automatic_clipping,
            momentum=self.momentum,
            sampling_rate=rate,
            output=self.output,
        )
