"""Every solver of the registry, under every relation that it takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from dpglm.audit import Claim
from dpglm.data.rows import DataSpec
from dpglm.papers import dpsgd_f_theoretical
from dpglm.privacy import Adjacency, ApproximateDP, PrivacyBudget
from dpglm.privacy.noise import SystemNoise
from dpglm.problem import L2, L1Ball, Logistic, Problem, Softmax, Sparsemax, Squared
from dpglm.solvers import (
    D2P2,
    SOLVERS,
    SVRG,
    AcceleratedMirrorDescent,
    Auto,
    Calibrated,
    Constant,
    FrankWolfe,
    JohnsonLindenstrauss,
    LocalSGD,
    Newton,
    NewtonRaphson,
    NoisyGD,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    Plan,
    Prototypes,
    RandomIntercepts,
    Solver,
    SufficientStatistics,
    SVRGPlusPlus,
    TailAverage,
    dpsgd_f,
    pure_gd,
    run,
)
from experiments.audits.case import (
    ADD_REMOVE,
    BUDGET,
    PURE,
    RELATIONS,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
    of_plan,
    pair,
)

__all__ = [
    "AT_ONCE",
    "CASES",
    "OPPOSITE",
    "SAMPLED",
    "STEPS",
    "where_slope_and_curvature_are_worst",
]

LOGISTIC, SQUARED = Problem(Logistic()), Problem(Squared())
UNIT = DataSpec(n_rows=3, n_features=2)
ONE_COLUMN = DataSpec(n_rows=3, n_features=1)
WITH_INTERCEPT = DataSpec(n_rows=3, n_features=2, intercept=1.0)
THREE_CLASSES = DataSpec(n_rows=3, n_features=2, n_outputs=3)
BOUNDED = DataSpec(n_rows=3, n_features=1, target_low=-1.0, target_high=1.0)
LONG = DataSpec(n_rows=3, n_features=2, row_norm=10.0)
CONTRADICTED = DataSpec(n_rows=100, n_features=1)
LEAST_SQUARES = DataSpec(3, 2, row_norm=10.0, target_low=-1.0, target_high=1.0)
STEPS = NoisyGD(n_steps=2, step_size=1e-3, clip=0.25, momentum=0.0)
"""Few small steps: slopes stay beyond the clip, so each step shows all that it may."""
CONTRACTION = dataclasses.replace(STEPS, step_size=0.8, n_steps=5, schedule=Constant())
STRONGLY_CONVEX = Problem(Logistic(), L2(1.0))
OPPOSITE = "Two rows are never opposite: replacing one changes a sum by less than 2 bounds."
ONLY_ANCHORS = (
    "Clipped gradients are equal at all iterates, so the budget for their differences is not used."
)
IN_A_SUM = (
    "The claim is for an observer of one message. The attack observes a sum, with the noise of all."
)
AT_ONCE = "No row changes medians, radius, mean and gradients by their bounds at the same time."
UNREACHED = "The claim covers a curvature and a position of the minimiser that no row attains."
ROUNDABOUT = (
    "A row attains the bound on scores, but not that on Hessians. Two rows are never opposite."
)
IN_ONE_DIRECTION = (
    "A row changes one direction, and L2 noise in six dimensions rarely points along it."
)
ONE_POINT = (
    "The privacy loss is largest at one point. The attack counts results in a window around it."
)
SEVERAL = "The claim adds up epsilons, but several noise draws are rarely all at their worst."
SAMPLED = (
    "Sampling leaves the row out of most steps, and bounds on error rates are loose with few runs."
)


def solver_cases(
    name: str,
    solver: Solver,
    problem: Problem = LOGISTIC,
    data: DataSpec = UNIT,
    *,
    relations: tuple[Adjacency, ...] = RELATIONS,
    budget: PrivacyBudget = BUDGET,
    variant: str = "",
    why: str = "",
    runs: float = 1.0,
    setup: Callable[..., Setup] = of_plan,
    **neighbours: Any,
) -> list[Case]:
    """Make one case for each relation."""

    def make(relation: Adjacency) -> Callable[[], Setup]:
        return lambda: setup(solver.plan(problem, budget, data, relation), **neighbours)

    return [
        Case("solvers", name, make(relation), relation, variant, why, runs)
        for relation in relations
    ]


def returned(plan: Plan, **rest: Any) -> Setup:
    """Attack the returned model, as nothing else is released."""
    return dataclasses.replace(of_plan(plan, **rest), release="model")


def exact(plan: Plan) -> Setup:
    """Compare the laws of the only release."""
    return Setup(plan, attack="exact")


def in_one_run(plan: Plan) -> Setup:
    """Guess at many rows of interest in a single run."""
    return Setup(plan, attack="one run")


def where_slope_and_curvature_are_worst(ratio: float) -> Setup:
    """Look whether a perturbed minimiser is just beyond where the slope of the row is clipped.

    There its curvature counts in full, and its slope as well: without the row the linear term is
    one clip long, with it zero. ``ratio`` is the row's curvature over the strength.
    """
    clip, data = 0.5, dataclasses.replace(BOUNDED, n_rows=1, target_low=-9.0, target_high=9.0)
    solver = ObjectivePerturbation(clip=clip, strength=1.0 / ratio)
    plan = solver.plan(SQUARED, PURE, data)
    low = clip * ratio
    high = low + plan.coefficient_noise / (1.0 + ratio)

    def seen(rows: Any) -> list[float]:
        (w,) = run(plan, rows, SystemNoise()).w
        return [float(low < w < high)]

    return Setup(seen, pair(plan, [1.0], clip + clip * ratio), claim=Claim.of(plan))


ONE_STEP = dataclasses.replace(STEPS, n_steps=1)
CHOSEN: list[Case] = [
    *solver_cases("noisy_gd", STEPS, variant="every iterate", runs=4.0),
    *solver_cases(
        "noisy_gd", ONE_STEP, data=ONE_COLUMN, variant="exact laws of one step", setup=exact
    ),
    *solver_cases(
        "noisy_gd",
        ONE_STEP,
        data=DataSpec(n_rows=1000, n_features=1000),
        relations=(ZERO_OUT,),
        budget=ApproximateDP(8.0, 1e-9),
        variant="one run with 1000 canaries",
        setup=in_one_run,
        why="A run with canaries gives a weaker bound than many runs that differ in one row.",
    ),
    *solver_cases(
        "noisy_gd",
        CONTRACTION,
        STRONGLY_CONVEX,
        variant="the last iterate of a contraction",
        relations=(ZERO_OUT, REPLACE_ONE),
        setup=returned,
    ),
    *solver_cases(
        "noisy_gd",
        dataclasses.replace(STEPS, sampling_rate=0.7),
        variant="Poisson samples",
        why=SAMPLED,
    ),
    *solver_cases(
        "noisy_gd",
        dataclasses.replace(STEPS, momentum=0.9, output=TailAverage(0.5), automatic_clipping=True),
        relations=(ZERO_OUT,),
        variant="momentum, averaging, automatic clipping",
    ),
    *solver_cases(
        "noisy_gd",
        dataclasses.replace(STEPS, shrink=True, compare=True),
        relations=(ZERO_OUT, REPLACE_ONE),
        variant="shrunk and compared",
    ),
    *solver_cases(
        "noisy_gd",
        STEPS,
        data=WITH_INTERCEPT,
        row=(0.0, 0.0),
        variant="seen through its intercept alone",
        relations=(ZERO_OUT,),
    ),
    *solver_cases(
        "noisy_gd",
        dataclasses.replace(STEPS, clip=0.5),
        Problem(Softmax()),
        THREE_CLASSES,
        variant="three classes, softmax",
    ),
    *solver_cases(
        "noisy_gd",
        dataclasses.replace(STEPS, clip=0.5),
        Problem(Sparsemax()),
        THREE_CLASSES,
        variant="three classes, sparsemax",
        relations=(ZERO_OUT,),
    ),
    *solver_cases(
        "auto",
        Auto(),
        SQUARED,
        LEAST_SQUARES,
        variant="least squares",
        relations=(ZERO_OUT, ADD_REMOVE),
    ),
    *solver_cases(
        "auto", Auto(), budget=PURE, data=ONE_COLUMN, variant="delta 0", relations=(ZERO_OUT,)
    ),
    *solver_cases(
        "noisy_sgd", NoisySGD(n_steps=3, sampling_rate=0.5, step_size=1e-3, clip=0.25), why=SAMPLED
    ),
    *solver_cases(
        "accelerated_mirror_descent", AcceleratedMirrorDescent(n_steps=2, step_size=1e-3, clip=0.25)
    ),
    *solver_cases(
        "d2p2",
        D2P2(dimension=3, n_steps=2, noise_levels=2, step_size=1e-4, clip=0.25, normalize=False),
    ),
    *solver_cases(
        "johnson_lindenstrauss", JohnsonLindenstrauss(dimension=2, gradient_descent=STEPS)
    ),
    *solver_cases(
        "local_sgd",
        LocalSGD(n_blocks=3, step_size=1e-3, clip=0.25),
        relations=(ZERO_OUT, REPLACE_ONE),
        variant="messages seen one by one",
    ),
    *solver_cases(
        "local_sgd",
        LocalSGD(n_blocks=1, step_size=1e-3, clip=0.25),
        relations=(ZERO_OUT,),
        variant="three messages in a sum",
        why=IN_A_SUM,
    ),
    *solver_cases("newton", Newton(n_steps=2), data=LONG),
    *solver_cases(
        "newton",
        Newton(n_steps=2),
        SQUARED,
        dataclasses.replace(LEAST_SQUARES, n_rows=1000, intercept=1.0),
        variant="squared errors",
        why=AT_ONCE,
    ),
    *solver_cases(
        "calibrated",
        Calibrated(NoisyGD(n_steps=2), share=0.5),
        data=dataclasses.replace(LONG, intercept=10.0),
        why=ROUNDABOUT,
    ),
    # The others teach it to be wrong about this row, which is as long as is not weighted down.
    *solver_cases(
        "newton_raphson",
        NewtonRaphson(),
        data=CONTRADICTED,
        row=(1.0,),
        others=([[0.8]] * 99, [-1.0] * 99),
        variant="a row that all others contradict",
        why=ROUNDABOUT,
        runs=0.5,
    ),
    *solver_cases(
        "newton_raphson",
        NewtonRaphson(inference="model"),
        data=CONTRADICTED,
        row=(1.0,),
        others=([[0.8]] * 99, [-1.0] * 99),
        variant="intervals",
        relations=(ZERO_OUT,),
        why=ROUNDABOUT,
        runs=0.5,
    ),
    # The row of interest has a level that no other row has.
    *solver_cases(
        "random_intercepts",
        RandomIntercepts(((1, 3),), "model"),
        data=DataSpec(100, 3, row_norm=math.sqrt(2.0), intercept=1.0),
        row=(1.0, 1.0, 0.0),
        others=([[0.8, 0.0, 1.0]] * 99, [-1.0] * 99),
        why=ROUNDABOUT,
        runs=0.5,
    ),
    *solver_cases(
        "sufficient_statistics", SufficientStatistics(), SQUARED, LEAST_SQUARES, why=OPPOSITE
    ),
    *solver_cases(
        "sufficient_statistics",
        SufficientStatistics(inference="model"),
        SQUARED,
        LEAST_SQUARES,
        variant="intervals",
        relations=(ZERO_OUT,),
        why=OPPOSITE,
    ),
    *solver_cases(
        "prototypes",
        Prototypes(),
        Problem(Sparsemax()),
        dataclasses.replace(THREE_CLASSES, n_features=1),
        variant="three classes",
    ),
    *solver_cases(
        "prototypes",
        Prototypes(),
        Problem(Sparsemax()),
        dataclasses.replace(THREE_CLASSES, n_features=1),
        budget=PURE,
        variant="three classes, delta 0",
        why=IN_ONE_DIRECTION,
    ),
    *solver_cases(
        "frank_wolfe",
        FrankWolfe(n_steps=4, slope_clip=0.25),
        Problem(Logistic(), constraint=L1Ball(1e-3)),
        ONE_COLUMN,
    ),
    *solver_cases(
        "pure_gd", pure_gd(n_steps=1, step_size=1e-3, clip=0.25), data=ONE_COLUMN, budget=PURE
    ),
    *solver_cases(
        "pure_gd",
        pure_gd(n_steps=1, step_size=1e-3, clip=0.25),
        data=ONE_COLUMN,
        budget=PURE,
        variant="exact laws of one step",
        setup=exact,
    ),
    *solver_cases(
        "pure_gd",
        pure_gd(n_steps=3, step_size=1e-3, clip=0.25),
        budget=PURE,
        variant="three steps, two columns",
        why=SEVERAL,
        relations=(ZERO_OUT,),
    ),
    *solver_cases(
        "pure_gd",
        dataclasses.replace(
            pure_gd(n_steps=1, step_size=1e-3, clip=0.25), sampling_rate=0.7, shrink=False
        ),
        data=ONE_COLUMN,
        budget=PURE,
        variant="a Poisson sample",
        runs=2.0,
    ),
    *solver_cases(
        "output_perturbation",
        OutputPerturbation(clip=0.5, strength=0.2),
        SQUARED,
        dataclasses.replace(LEAST_SQUARES, row_norm=1.0, target_low=-40.0, target_high=40.0),
        target=40.0,
    ),
    *solver_cases(
        "objective_perturbation",
        ObjectivePerturbation(clip=0.5, strength=30.0),
        SQUARED,
        dataclasses.replace(BOUNDED, target_low=-40.0, target_high=40.0),
        target=40.0,
        setup=returned,
        why=UNREACHED,
    ),
    *solver_cases(
        "objective_perturbation",
        ObjectivePerturbation(clip=0.5, strength=30.0),
        SQUARED,
        dataclasses.replace(BOUNDED, target_low=-40.0, target_high=40.0),
        budget=PURE,
        target=40.0,
        variant="L2 noise",
        setup=returned,
        why=UNREACHED,
    ),
    Case(
        "solvers",
        "objective_perturbation",
        lambda: where_slope_and_curvature_are_worst(1.0),
        variant="L2 noise, slope and curvature at their worst",
        why=ONE_POINT,
        runs=2.0,
    ),
    *solver_cases(
        "svrg", SVRG(n_epochs=2, inner_steps=1, clip=0.25, step_size=1e-3), variant="anchors"
    ),
    *solver_cases(
        "svrg",
        SVRG(
            n_epochs=2,
            inner_steps=3,
            clip=100.0,
            step_size=0.02,
            sampling_rate=1.0,
            anchor_share=0.02,
        ),
        SQUARED,
        BOUNDED,
        row=(1.0,),
        target=0.5,
        relations=(ZERO_OUT, ADD_REMOVE),
        variant="differences",
    ),
    *solver_cases(
        "svrg",
        SVRG(
            n_epochs=1,
            inner_steps=3,
            clip=100.0,
            step_size=0.02,
            sampling_rate=0.5,
            anchor_share=0.02,
        ),
        SQUARED,
        BOUNDED,
        row=(1.0,),
        target=0.5,
        relations=(ZERO_OUT,),
        variant="differences of Poisson samples",
        why=SAMPLED,
    ),
    *solver_cases(
        "svrg_plus_plus",
        SVRGPlusPlus(n_epochs=1, inner_steps=2, clip=0.25, step_size=1e-3),
        variant="anchors",
        why=ONLY_ANCHORS,
    ),
    *solver_cases(
        "svrg_plus_plus",
        SVRGPlusPlus(
            n_epochs=2,
            inner_steps=3,
            clip=100.0,
            step_size=0.02,
            sampling_rate=1.0,
            anchor_share=0.02,
        ),
        SQUARED,
        BOUNDED,
        row=(1.0,),
        target=0.5,
        relations=(ZERO_OUT,),
        variant="differences",
    ),
    *solver_cases("dpsgd_f", dpsgd_f(STEPS, share=0.3), data=WITH_INTERCEPT, why=OPPOSITE),
    *solver_cases(
        "dpsgd_f",
        dpsgd_f_theoretical(STEPS),
        data=WITH_INTERCEPT,
        variant="its theoretical form",
        why=AT_ONCE,
    ),
]
# A new solver is attacked with its default settings.
CASES = [
    *CHOSEN,
    *(
        case
        for name in SOLVERS.keys() - {case.subject for case in CHOSEN}
        for case in solver_cases(name, SOLVERS[name]())
    ),
]
