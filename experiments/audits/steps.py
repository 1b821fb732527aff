"""Every preprocessing step, every transformer, and what releases nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpglm import PrivateTransformer
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

WITHOUT_OPPOSITES = (ZERO_OUT, ADD_REMOVE)


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
    """Attack a step by itself, as ``PrivateTransformer`` runs it: with the whole budget."""

    def make(relation: Adjacency) -> Callable[[], Setup]:
        def setup() -> Setup:
            transformer = PrivateTransformer(
                [step], budget=budget, adjacency=relation.value, n_rows=n_rows, row_norm=3.0
            )
            return of_plan(transformer.plan(n_rows, 2), **neighbours)

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
    *step_cases(
        ClipToQuantile(1 / 3), relations=(ZERO_OUT,), n_rows=3, row=(3.0, 0.0), others=_BETWEEN
    ),
    *step_cases(
        ClipToQuantile(1 / 3), relations=(ADD_REMOVE,), n_rows=3, row=(0.0, 0.0), others=_BETWEEN
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
