"""One pass of stochastic gradient descent in which every row perturbs its own gradient."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import (
    LocalRelease,
    Oracle,
    local_gradient_release,
    locally_noised_gradient,
    part_oracles,
)
from dpglm.privacy import Adjacency, Event, Gaussian, Parallel, calibrate, canonical
from dpglm.privacy.noise.additive import MOST_SENDERS, LocalGaussianNoise
from dpglm.privacy.releases import AnyRelease
from dpglm.problem import Problem
from dpglm.solvers.base import Facts, Method, Outcome, Plan, Solver, StepInfo, check_same
from dpglm.solvers.gradient.noisy_gd_method import Descent, DescentState
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import Last, LinearDecay, Output, Schedule

# Chosen on validation parts of the training rows of Adult and ACS employment, at epsilon 1 to 8.
_BLOCKS = 200
_NOISE_SHARE = 0.4


@final
@dataclass(frozen=True)
class LocalSGD(Solver):
    """One pass over the rows, in blocks; each row adds noise to its own clipped gradient.

    The rows of a random block evaluate their gradients at the same iterate, which then moves along
    the mean of their messages. Every row is used once. The noise in each coefficient is ``sqrt(n)``
    times that of ``NoisyGD``: local privacy is for very many rows, or a large epsilon.

    Parameters
    ----------
    n_blocks : int, optional
        Number of blocks, and of steps, at least 1. Default: 200, or the number of rows if less, or
        as many as keep blocks within 8192 rows.
    schedule : Schedule, default=LinearDecay()
        Factors on the step size.
    step_size, clip, output
        As in ``NoisyGD``.

    Notes
    -----
    Privacy: local. Each message is a Gaussian release about one row, at the same multiplier. Blocks
    are disjoint, so they are accounted for in parallel: a row is charged for one. ``replace_one``
    is local differential privacy; ``zero_out`` compares a message to noise alone. ``add_remove`` is
    refused, since parts would not be disjoint. This is a simulation: rows are in one process, and
    the noises of a block are drawn as one vector with the distribution of their sum.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, section 3.1 (footnote 3: ``sqrt(n)`` times the
    noise). Duchi, Jordan and Wainwright, "Minimax optimal procedures for locally private
    estimation", JASA 2018.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> solver = LocalSGD(n_blocks=2)
    >>> budget = ApproximateDP(4.0, 1e-5)
    >>> plan = solver.plan(Problem(Logistic()), budget, data, Adjacency.REPLACE_ONE)
    >>> plan.event
    Parallel(events=(Gaussian(noise_multiplier=1.08...), Gaussian(noise_multiplier=1.08...)))
    """

    n_blocks: int | None = None
    step_size: float | None = None
    schedule: Schedule = field(default_factory=LinearDecay)
    clip: float | None = None
    output: Output = field(default_factory=Last)

    def __post_init__(self) -> None:
        check_given(self)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        if not adjacency.n_is_public:
            raise ValueError(
                "adjacency must be 'zero_out' or 'replace_one' for LocalSGD, got "
                f"{adjacency.value!r}"
            )
        least = math.ceil(data.n_rows / MOST_SENDERS)
        n_blocks = max(min(_BLOCKS, data.n_rows), least)
        if self.n_blocks is not None:
            if not least <= self.n_blocks <= data.n_rows:
                raise ValueError(
                    f"n_blocks must be {least} to {data.n_rows} for {data.n_rows} rows, so that a "
                    f"block has 1 to {MOST_SENDERS}, got {self.n_blocks}"
                )
            n_blocks = self.n_blocks
        clipping = FlatClipping(defaults.checked_clip(problem.loss, data, self.clip))
        _, step_size = defaults.steps(
            problem,
            data,
            mu=_NOISE_SHARE * facts.mu / math.sqrt(data.n_rows),
            clip=clipping.bound,
            momentum=0.0,
            schedule=self.schedule,
            n_steps=n_blocks,
            step_size=self.step_size,
        )
        sizes = tuple((step_size * self.schedule.factors(n_blocks)).tolist())
        descent = Descent(problem, data, sizes, self.output)
        # Penalties and constraints that do not fit the parameter raise here and not in the run.
        descent.init(0)
        # Equal parts in parallel cost as much as one of them.
        method = LocalSGDMethod(
            problem, descent, adjacency, clipping, calibrate(Gaussian, budget, adjacency)
        )
        return facts.plan(method)


@final
@dataclass(frozen=True)
class LocalSGDMethod(Method[DescentState]):
    """One pass of local stochastic gradient descent with every setting decided.

    Privacy: the blocks are drawn by public randomness. A row sends one message, which depends on
    other rows only through earlier messages; so the run is as private as one message (McSherry,
    SIGMOD 2009, Theorem 4).
    """

    problem: Problem
    descent: Descent
    adjacency: Adjacency
    clipping: FlatClipping
    # Standard deviation of the noise in one row's message over its sensitivity.
    noise_multiplier: float

    algorithm = "local stochastic gradient descent"

    def check(self, plan: Plan) -> None:
        check_same(self, plan)
        check_same(self.descent, plan)

    @property
    def n_steps(self) -> int:
        return len(self.descent.step_sizes)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Sizes of the blocks, as equal as can be."""
        each, rest = divmod(self.descent.data.n_rows, self.n_steps)
        return tuple(each + (block < rest) for block in range(self.n_steps))

    @functools.cached_property
    def messages(self) -> LocalRelease:
        """The release of the messages of each block."""
        noise = LocalGaussianNoise(self.noise_multiplier, self.block_sizes[0])
        data = self.descent.data
        return local_gradient_release(data, self.adjacency, self.clipping, noise, self.n_steps)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.messages,)

    @property
    def mechanisms(self) -> Event:
        return canonical(Parallel((self.messages.event,) * self.n_steps))

    @property
    def gradient_evaluations(self) -> float:
        return float(self.descent.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        return (
            self.messages.noise_std / math.sqrt(self.block_sizes[-1]) * self.descent.noise_growth()
        )

    def init(self, seed: int) -> DescentState:
        return self.descent.init(seed)

    def step(self, state: DescentState, oracle: Oracle) -> tuple[DescentState, StepInfo]:
        if "parts" not in oracle.kept:
            order = np.random.default_rng(state.seed).permutation(self.descent.data.n_rows)
            blocks = np.split(order, np.cumsum(self.block_sizes)[:-1])
            # In ascending order rows are read sequentially from memory.
            oracle.kept["parts"] = part_oracles(oracle, [np.sort(block) for block in blocks])
        part = oracle.kept["parts"][state.step]
        g = locally_noised_gradient(part, self.messages, state.w, self.clipping)
        noise_std = self.messages.noise_std / math.sqrt(part.rows.spec.n_rows)
        return self.descent.step(state, g, noise_std)

    def finish(self, state: DescentState) -> Outcome:
        return Outcome(state.returned)
