"""Every preprocessing step and transformer, also those without releases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    Preprocessor,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.privacy import Adjacency, ApproximateDP, PrivacyBudget
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.accounting.calibrate import excess, largest_share
from dpglm.problem import Problem, Squared
from dpglm.solvers import Plan, Preprocessed, Solver
from dpglm.solvers.base import Facts, Method, Outcome, StepInfo
from experiments.audits.case import (
    ADD_REMOVE,
    BUDGET,
    HUGE,
    RELATIONS,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
    of_plan,
)
from experiments.audits.solvers import AT_ONCE, OPPOSITE

__all__ = ["CASES"]


@final
@dataclass(frozen=True)
class _NoModel(Solver):
    """A model that is not fitted, so that an attack sees the step alone."""

    def decide(self, facts: Facts) -> Plan:
        return facts.plan(_NoMethod(facts.data))


@final
@dataclass(frozen=True)
class _NoMethod(Method[None]):
    data: DataSpec

    algorithm = "none"
    problem = None
    n_steps = 0
    releases = ()
    gradient_evaluations = 0.0
    coefficient_noise = 0.0

    def init(self, seed: int) -> None:
        return None

    def step(self, state: None, oracle: Oracle) -> tuple[None, StepInfo]:
        raise AssertionError("a list of steps must not be empty")

    def finish(self, state: None) -> Outcome:
        return Outcome(np.zeros(self.data.coefficient_shape))


WITHOUT_OPPOSITES = (ZERO_OUT, ADD_REMOVE)


def _filled(planned: Callable[[PrivacyBudget], Plan], budget: PrivacyBudget) -> Plan:
    """Plan for a larger budget where steps that choose at random spend less than they are given."""
    plan, limit = planned(budget), budget.as_approximate_dp()
    if GaussianAccountant().supports(plan.event, plan.adjacency):
        return plan
    over = excess(plan.event, plan.adjacency, limit)
    larger = largest_share(
        lambda share: planned(ApproximateDP(share * limit.epsilon, limit.delta)),
        lambda one: excess(one.event, plan.adjacency, limit),
        start=math.exp(min(-over, math.log(5.0))),
        most=5.0,
    )
    return dataclasses.replace(larger or plan, budget=limit)


def step_cases(
    step: Preprocessor,
    *,
    variant: str = "",
    relations: tuple[Adjacency, ...] = RELATIONS,
    n_rows: int = 4,
    budget: PrivacyBudget = BUDGET,
    why: str = "",
    runs: float = 1.0,
    **neighbours: Any,
) -> list[Case]:
    """Attack a step by itself, with the whole budget."""

    def make(relation: Adjacency) -> Callable[[], Setup]:
        def setup() -> Setup:
            share = None if isinstance(step, RandomProjection) else 1.0 - 1e-9
            solver = Preprocessed([step], _NoModel(), [share])
            data = DataSpec(n_rows=n_rows, n_features=2, row_norm=3.0, intercept=3.0)
            plan = _filled(
                lambda limit: solver.plan(Problem(Squared()), limit, data, relation), budget
            )
            return of_plan(plan, **neighbours)

        return setup

    return [
        Case("preprocessing", type(step).__name__, make(relation), relation, variant, why, runs)
        for relation in relations
    ]


# The radius lies below the middle row, mostly, or above it: which of them depends on one row.
_BETWEEN = ([[0.095, 0.0], [3.0, 0.0]], [1.0, 1.0])
# Twenty rows, which are enough, a hair below all others but the row of interest.
_STEP = ([[2.0, 0.0]] * 20 + [[2.03, 0.0]] * 19, [1.0] * 39)
CASES: list[Case] = [
    *step_cases(Center()),
    *step_cases(Scale(), relations=WITHOUT_OPPOSITES, row=(1.0, 2.0)),
    *step_cases(
        Scale(),
        relations=(REPLACE_ONE,),
        row=(1.0, 2.0),
        replacement=((0.1, 0.2), 1.0),
        why=OPPOSITE,
    ),
    *step_cases(Whiten(), relations=WITHOUT_OPPOSITES),
    *step_cases(Whiten(), relations=(REPLACE_ONE,), replacement=((0.0, HUGE), 1.0), why=OPPOSITE),
    # An erased row is not counted, so a row within every radius is told from it at all of them.
    *step_cases(
        ClipToQuantile(1 / 3),
        relations=WITHOUT_OPPOSITES,
        n_rows=3,
        row=(0.0, 0.0),
        others=_BETWEEN,
    ),
    *step_cases(
        ClipToQuantile(1 / 3),
        relations=(REPLACE_ONE,),
        n_rows=3,
        row=(3.0, 0.0),
        replacement=((0.0, 0.0), 1.0),
        others=_BETWEEN,
        why=OPPOSITE,
    ),
    *step_cases(
        ClipToQuantile(0.5, unbounded=True),
        relations=(ADD_REMOVE,),
        variant="unbounded",
        budget=ApproximateDP(1.0, 1e-2),
        runs=4.0,
        n_rows=40,
        row=(2.0, 0.0),
        others=_STEP,
    ),
    *step_cases(
        ClipToQuantile(0.5, unbounded=True),
        relations=(REPLACE_ONE,),
        variant="unbounded",
        budget=ApproximateDP(1.0, 1e-2),
        runs=4.0,
        n_rows=40,
        row=(2.0, 0.0),
        replacement=((2.03, 0.0), 1.0),
        others=_STEP,
        why=OPPOSITE,
    ),
    *step_cases(InstanceOptimalCenter(), why=AT_ONCE),
    *step_cases(RandomProjection(2), relations=(ZERO_OUT,)),
]
