"""Selectors, searches, and the ways to choose that everything is made of."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm import LogisticRegression, PrivateGridSearchCV, PrivateRandomizedSearchCV
from dpglm.audit import Claim, Neighbours
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency, Composed, GaussianAccountant, gdp
from dpglm.privacy.noise import SystemNoise, add_gaussian, granularity_exponent
from dpglm.privacy.noise.additive import add_l2_noise, add_laplace
from dpglm.privacy.releases import AnyRelease
from dpglm.privacy.selection.choices import (
    exponential_mechanism,
    exponential_mechanism_in_runs,
    first_above,
    generalized_exponential_mechanism,
    permute_and_flip,
)
from dpglm.problem import Problem, Squared
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch, method
from dpglm.solvers import Constant, Facts, Method, NoisyGD, Outcome, Plan, Solver, StepInfo
from experiments.audits.case import (
    BUDGET,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
    of_plan,
)
from experiments.audits.solvers import LOGISTIC, STEPS

__all__ = ["CASES", "last_bits"]

WITH_N = (ZERO_OUT, REPLACE_ONE)
IN_SECRET = "The number of repetitions and the models of the others are not released."
ONE_SIDED = (
    "A row changes the scores of all models in one direction. The claim covers opposite directions."
)


def parts(*numbers: list[int]) -> Callable[[], AbstractContextManager[Any]]:
    """Let the public randomness that divides the rows fall this way."""
    arrays = tuple(np.array(part) for part in numbers)
    return lambda: mock.patch.object(method, "partition", return_value=arrays)


@final
@dataclass(frozen=True)
class Fixed(Solver):
    """Returns a parameter that does not depend on rows, so a search shows its choice alone."""

    value: float

    def decide(self, facts: Facts) -> Plan:
        return facts.plan(FixedMethod(facts.problem, facts.data, self.value))


@final
@dataclass(frozen=True)
class FixedMethod(Method[None]):
    """What ``Fixed`` plans."""

    problem: Problem
    data: DataSpec
    value: float

    @property
    def n_steps(self) -> int:
        return 1

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return ()

    @property
    def gradient_evaluations(self) -> float:
        return 0.0

    @property
    def coefficient_noise(self) -> float:
        return 0.0

    def init(self, seed: int) -> None:
        return None

    def step(self, state: None, oracle: Oracle) -> tuple[None, StepInfo]:
        return None, StepInfo(1, math.nan)

    def finish(self, state: None) -> Outcome:
        return Outcome(np.full(self.data.coefficient_shape, self.value))


def selector_cases(
    subject: str,
    plan: Callable[[Adjacency], Plan],
    variant: str,
    relations: tuple[Adjacency, ...] = WITH_N,
    why: str = "",
    under: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    change: Callable[[Setup], Setup] = lambda setup: setup,
    runs: float = 1.0,
    **neighbours: Any,
) -> list[Case]:
    """Make one case for each relation."""

    def make(relation: Adjacency) -> Setup:
        setup = dataclasses.replace(of_plan(plan(relation), **neighbours), under=under)
        return change(setup)

    return [
        Case("selection", subject, functools.partial(make, relation), relation, variant, why, runs)
        for relation in relations
    ]


def for_training(setup: Setup) -> Setup:
    """Claim the cost for training rows, which is Gaussian throughout."""
    plan = setup.target
    events = tuple(one.plan.event for one in plan.method.trainings if one.part == 0)
    delta = BUDGET.delta
    mu = GaussianAccountant().mu(Composed(events), plan.adjacency)
    return dataclasses.replace(setup, claim=Claim(gdp.epsilon(delta, mu), delta, mu))


def planned(solver: Solver, data: DataSpec, problem: Problem = LOGISTIC) -> Callable[..., Plan]:
    return lambda relation: solver.plan(problem, BUDGET, data, relation)


FAR = NoisyGD(n_steps=1, step_size=1e9, clip=0.25, momentum=0.0, schedule=Constant())
"""One step beyond all losses: models are right about a row, or as wrong as can be."""
GRID = {"solver": [Fixed(1.0), Fixed(-1.0)]}
# Without the row of interest both models make as many mistakes.
TIED = ([[1.0], [-1.0], [1.0], [-1.0]], [1.0, 1.0, -1.0, -1.0])


def search(kind: str, **options: Any) -> Callable[[Adjacency], Plan]:
    """Plan a search in which only the choice reads rows."""

    def plan(relation: Adjacency) -> Plan:
        model = LogisticRegression(
            adjacency=relation.value, row_norm=1.0, fit_intercept=False, classes=[0, 1]
        )
        limit = {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta, **options}
        found = (
            PrivateGridSearchCV(model, GRID, **limit)
            if kind == "grid"
            else PrivateRandomizedSearchCV(model, GRID, n_iter=2, random_state=0, **limit)
        )
        return found.plan(5, 1)

    return plan


SEARCHES = [
    case
    for subject, kind in (("PrivateGridSearchCV", "grid"), ("PrivateRandomizedSearchCV", "random"))
    for variant, options, under in (
        ("held out", {"method": "held_out"}, parts([1, 2, 3, 4], [0])),
        ("repeated", {"repetitions": 4.0}, contextlib.nullcontext),
    )
    for case in selector_cases(
        subject,
        search(kind, **options),
        variant,
        why=IN_SECRET,
        row=(1.0,),
        replacement=((1.0,), -1.0),
        others=TIED,
        under=under,
    )
]

DRAWS = 8.0
"""A single choice is cheap, so more of them are counted."""


def choice_case(
    subject: str,
    choose: Callable[[NDArray[Any]], int],
    first: list[float],
    second: list[float],
    epsilon: float = 2.0,
    why: str = "",
) -> Case:
    """Attack one choice between scores, or counts, that move by 1."""
    pair = Neighbours("scores", np.array(first), np.array(second))
    claim = Claim(epsilon, 0.0)
    return Case(
        "choices and noise",
        subject,
        lambda: Setup(choose, [pair], claim=claim),
        why=why,
        runs=DRAWS,
    )


def noise_case(
    subject: str, add: Callable[..., Any], size: int, claim: Claim, scale: float
) -> Case:
    """Attack noise on a vector that moves by 1 along its first coordinate."""
    moved = np.eye(1, size)[0]

    def release(value: NDArray[np.float64]) -> Any:
        noisy = add(value, scale, granularity_exponent(scale), NOISE)
        # The most informative outcome for noise of either kind.
        return [noisy[0], np.linalg.norm(noisy) - np.linalg.norm(noisy - moved)]

    pair = Neighbours("vectors", moved, np.zeros(size))
    variant = f"{size} coordinates" if size > 1 else "one coordinate"
    return Case(
        "choices and noise",
        subject,
        lambda: Setup(release, [pair], claim=claim),
        variant=variant,
        runs=DRAWS,
    )


def last_bits(add: Callable[[float], Any]) -> Setup:
    """Look at the last bits of a noisy number (Mironov, CCS 2012)."""
    claim = Claim(gdp.epsilon(1e-2, 1.0), 1e-2, 1.0)

    def release(value: float) -> list[float]:
        # Sums with 1 are multiples of 2^-53; small numbers by themselves are mostly not.
        return [float(np.ldexp(add(value), 53) % 1.0 != 0.0)]

    return Setup(release, [Neighbours("values", 0.0, 1.0)], claim=claim)


NOISE = SystemNoise()
# Many scores grow and one falls: the total weight of the law moves too.
MANY = 12
CHOICES = [
    choice_case(
        "permute_and_flip", lambda q: permute_and_flip(q, 1.0, 2.0, NOISE), [0.0, 2.0], [1.0, 1.0]
    ),
    choice_case(
        "exponential_mechanism",
        lambda q: exponential_mechanism(q, 1.0, 2.0, NOISE),
        [*[0.0] * MANY, 1.0],
        [*[1.0] * MANY, 0.0],
    ),
    choice_case(
        "exponential_mechanism_in_runs",
        lambda q: exponential_mechanism_in_runs(q, [MANY, 1], 1.0, 2.0, NOISE),
        [0.0, 1.0],
        [1.0, 0.0],
    ),
    choice_case(
        "generalized_exponential_mechanism",
        lambda q: generalized_exponential_mechanism(q, [1.0] * q.size, 2.0, 0.1, NOISE),
        [*[0.0] * MANY, 2.0],
        [*[1.0] * MANY, 1.0],
        why="Scores change by half of the range that the claim covers.",
    ),
    choice_case("first_above", lambda f: first_above(f, 5, 1.0, NOISE), [6, 20], [5, 20], 1.0),
    noise_case("add_gaussian", add_gaussian, 1, Claim(gdp.epsilon(1e-2, 2.0), 1e-2, 2.0), 0.5),
    noise_case("add_gaussian", add_gaussian, 3, Claim(gdp.epsilon(1e-2, 2.0), 1e-2, 2.0), 0.5),
    Case(
        "choices and noise",
        "add_gaussian",
        lambda: last_bits(lambda value: add_gaussian(value, 1.0, -24, NOISE)),
        variant="its last bits",
        why="Values on a grid have equal last bits, so these reveal nothing.",
        runs=DRAWS,
    ),
    noise_case("add_l2_noise", add_l2_noise, 1, Claim(2.0, 0.0), 0.5),
    noise_case("add_l2_noise", add_l2_noise, 3, Claim(2.0, 0.0), 0.5),
    noise_case("add_laplace", add_laplace, 1, Claim(2.0, 0.0), 0.5),
]

CASES: list[Case] = [
    *selector_cases(
        "BestIterate",
        planned(BestIterate(n_steps=2, step_size=1e-3, clip=0.25), DataSpec(3, 1)),
        "iterates",
    ),
    *selector_cases(
        "BestIterate",
        planned(
            BestIterate(n_steps=1, step_size=1e3, clip=0.25, choice_share=0.9),
            DataSpec(4, 1, target_low=-1.0, target_high=1.0),
            Problem(Squared()),
        ),
        "the choice",
        row=(1.0,),
        target=0.5,
        others=([[-1.0], [-1.0], [0.0]], [1.0, 1.0, 0.0]),
    ),
    *selector_cases(
        "ConfidenceBoosting",
        planned(ConfidenceBoosting(STEPS, n_models=2), DataSpec(3, 1)),
        "a row that trains",
        under=parts([0], [1], [2]),
        change=for_training,
    ),
    *selector_cases(
        "ConfidenceBoosting",
        planned(ConfidenceBoosting(FAR, n_models=4), DataSpec(5, 1)),
        "a row that chooses",
        under=parts([1], [2], [3], [4], [0]),
    ),
    *selector_cases(
        "NormGridSearch",
        planned(NormGridSearch(STEPS, (1.0, 2.0)), DataSpec(3, 1)),
        "a row that trains",
        under=parts([0, 1], [2]),
        change=for_training,
    ),
    *selector_cases(
        "NormGridSearch",
        planned(NormGridSearch(FAR, (1e3, 1e4), choice_fraction=0.8), DataSpec(10, 1)),
        "a row that chooses",
        why=ONE_SIDED,
        under=parts([8, 9], list(range(8))),
        row=(1.0,),
        target=-1.0,
        replacement=((1.0,), 1.0),
        others=([[1.0]] * 9, [1.0] * 9),
    ),
    *SEARCHES,
    *CHOICES,
]
