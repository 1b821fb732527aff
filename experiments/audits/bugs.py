"""Planted bugs, of other libraries and in every part, that the campaign must catch."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.audit import Claim, Neighbours
from dpglm.data.memory import ArrayRows
from dpglm.data.rows import DataSpec
from dpglm.oracle import clipping, gradients
from dpglm.privacy import ApproximateDP, NegativeBinomialNumber, gdp
from dpglm.privacy.noise import SeededNoise, SystemNoise, add_gaussian, additive
from dpglm.privacy.noise.additive import (
    GaussianLinearTerm,
    GaussianNoise,
    L2LinearTerm,
    SecretNoise,
)
from dpglm.privacy.releases import Curator
from dpglm.privacy.selection import choices as selections
from dpglm.problem import Logistic, Problem, Squared
from dpglm.solvers import (
    NoisyGD,
)
from dpglm.solvers.minimizer.strongly_convex import PlannedObjective
from experiments.audits import selectors, solvers, steps
from experiments.audits.case import (
    BUDGET,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
    of_plan,
)
from experiments.audits.estimators import CASES as ESTIMATORS
from experiments.audits.solvers import LOGISTIC, STEPS, UNIT

__all__ = ["CASES"]

Under = Callable[[], AbstractContextManager[Any]]
# No plan can be made for a budget that it exceeds, so bugs that do are given a larger one.
GENEROUS = ApproximateDP(1e4, 0.1)
SOUND = [*solvers.CASES, *steps.CASES, *selectors.CASES, *ESTIMATORS]


def sound(subject: str, variant: str = "", relation: Any = ZERO_OUT) -> Case:
    """Find a line of the campaign."""
    return next(
        case
        for case in SOUND
        if (case.subject, case.variant, case.relation) == (subject, variant, relation)
    )


def listed(name: str, bug: str, *cases: Case, runs: float = 1.0) -> list[Case]:
    """Plant a bug of ``tests.planted.PLANTED`` in some subjects."""
    return [
        dataclasses.replace(case, bug=bug, planted_bug=name, why="", runs=runs) for case in cases
    ]


def within(bug: str, under: Under, case: Case, runs: float = 1.0) -> Case:
    """Plant another bug."""

    def make() -> Setup:
        setup = case.make()

        @contextlib.contextmanager
        def both() -> Iterator[None]:
            with setup.under(), under():
                yield

        return dataclasses.replace(setup, under=both)

    return dataclasses.replace(case, make=make, bug=bug, why="", runs=runs)


def made(
    bug: str, subject: str, make: Callable[[], Setup], relation: Any = ZERO_OUT, runs: float = 1.0
) -> Case:
    """Attack a wrong mechanism with the claim of the right one."""
    return Case("bugs", subject, make, relation, bug=bug, runs=runs)


def in_noise(change: Callable[[Any], Any]) -> Under:
    """Replace the way in which Gaussian noise is added."""
    return lambda: mock.patch.object(additive, "add_gaussian", change(additive.add_gaussian))


def repeated(add: Any) -> Any:
    """Use the key of the first draw of a run in all others."""
    drawn: list[Any] = []

    def changed(value: Any, std: float, k: int, source: Any) -> Any:
        # Every other call is the first of a run of two steps.
        if len(drawn) % 2 == 0:
            drawn.append(add(np.zeros_like(value), std, k, source))
        else:
            drawn.append(drawn[-1])
        return value + drawn[-1]

    return changed


def tenth_of_the_linear_term(kind: type[GaussianLinearTerm | L2LinearTerm]) -> Under:
    """Shrink the noise of a perturbed objective."""
    original = kind.draw

    def changed(*arguments: Any) -> SecretNoise:
        secret = original(*arguments)
        return SecretNoise(0.1 * secret.value, secret.rounding)

    return lambda: mock.patch.object(kind, "draw", changed)


@contextlib.contextmanager
def too_short() -> Iterator[None]:
    """Take the least slope of a row for the length of all of them."""
    with (
        mock.patch.object(clipping, "_lengths", lambda slopes: np.abs(slopes).min(axis=1)),
        mock.patch.object(gradients, "compiled_rule", return_value=None),
    ):
        yield


def everybody(curator: Curator, size: int, rate: float) -> NDArray[np.bool_]:
    """Let every row into every sample."""
    return np.ones(size, dtype=bool)


def best(scores: Any, *_: Any) -> int:
    """Choose without noise: the last of the best."""
    return len(scores) - 1 - int(np.argmin(scores[::-1]))


def four_steps_for_one() -> Setup:
    """Noise and claim of one step; four are taken."""
    one = dataclasses.replace(STEPS, n_steps=1).plan(LOGISTIC, BUDGET, UNIT)
    four = dataclasses.replace(STEPS, n_steps=4).plan(LOGISTIC, BUDGET, UNIT)
    method = dataclasses.replace(four.method, noise=one.method.noise)
    setup = of_plan(dataclasses.replace(four, method=method, budget=GENEROUS))
    return dataclasses.replace(setup, claim=Claim.of(one))


def iterates_for_the_last() -> Setup:
    """Pay for the last iterate and show all of them."""
    plan = plan_of(dataclasses.replace(solvers.CONTRACTION, n_steps=12), solvers.STRONGLY_CONVEX)
    method = dataclasses.replace(plan.method, last_only=False)
    shown = dataclasses.replace(plan, method=method, budget=GENEROUS)
    return dataclasses.replace(of_plan(shown), claim=Claim.of(plan))


def unpaid_curvature() -> Setup:
    """Leave the logarithm out of the cost of a perturbed minimiser with L2 noise."""
    with mock.patch.object(PlannedObjective, "curvature_ratio", 1e-12):
        return solvers.where_slope_and_curvature_are_worst(10.0)


def faded() -> Setup:
    """Give the second step a fifth of the noise that its event claims."""
    plan = sound("d2p2").make().target
    method = dataclasses.replace(plan.method, noise_factors=(1.0, 0.2))
    setup = of_plan(dataclasses.replace(plan, method=method, budget=GENEROUS))
    return dataclasses.replace(setup, claim=Claim.of(plan))


def long_row() -> Setup:
    """Make a row a thousand times as long as promised, as if rows were trusted."""
    setup = sound("frank_wolfe").make()
    assert setup.neighbours is not None
    setup.neighbours[0].first._X[0] = 1e3
    return setup


def best_of_many() -> Setup:
    """Claim the cost of one try for the best of a random number of tries."""
    tries = NegativeBinomialNumber(0.02)
    claim = Claim(gdp.epsilon(1e-2, 1.0), 1e-2, 1.0)
    # Seeded: quick tests run this attack.
    normal, numbers = np.random.default_rng(1).normal, SeededNoise(1)

    def release(mean: float) -> list[float]:
        return [float(normal(mean, 1.0, tries.draw(numbers)).max())]

    return Setup(release, [Neighbours("means", 1.0, 0.0)], claim=claim)


def sampled_by_a_limit_theorem() -> Setup:
    """One sampled release with the claim of the central limit theorem."""
    rate, noise = 0.05, 0.5
    mu = rate * math.sqrt(math.expm1(1.0 / noise**2))
    data = DataSpec(n_rows=3, n_features=1)
    plan = NoisyGD(n_steps=1, step_size=1e-3, clip=0.25, sampling_rate=rate).plan(
        LOGISTIC, BUDGET, data
    )
    pairs = of_plan(plan).neighbours
    rule = clipping.FlatClipping(0.25)
    declared = gradients.gradient_release(
        data, ZERO_OUT, rule, GaussianNoise(noise), sampling_rate=rate
    )

    def release(rows: Any) -> list[float]:
        oracle = gradients.Oracle(rows, Logistic(), Curator(ZERO_OUT, SystemNoise()))
        total = 3 * rate * oracle.noisy_gradient(declared, np.zeros(1), rule)[0]
        # The theorem errs in the tails: only events that are very rare under noise alone count.
        return [float(-total > 3.3 * noise * rule.bound)]

    return Setup(release, pairs, claim=Claim(gdp.epsilon(1e-3, mu), 1e-3, mu))


def one_byte_of_entropy() -> Setup:
    """Noise from one of 256 seeds; an attacker can try all of them."""
    claim = Claim(gdp.epsilon(1e-2, 2.0), 1e-2, 2.0)
    table = np.array([add_gaussian([0.0], 0.5, -25, SeededNoise(seed))[0] for seed in range(256)])

    def release(value: float) -> list[float]:
        seed = int(SystemNoise().words(1)[0] % np.uint64(256))
        noisy = add_gaussian([value], 0.5, -25, SeededNoise(seed))[0]
        return [float(np.isin(noisy - 1.0, table))]

    return Setup(release, [Neighbours("values", 1.0, 0.0)], claim=claim)


RNG = np.random.default_rng()
SQUARES = DataSpec(n_rows=3, n_features=2, target_low=0.0, target_high=1.0)
REPEATED = NoisyGD(n_steps=2, step_size=0.5, clip=5.0, momentum=0.0)
OF_ONE_STEP = dataclasses.replace(STEPS, n_steps=1)


def plan_of(
    solver: Any, problem: Any = LOGISTIC, data: DataSpec = UNIT, relation: Any = ZERO_OUT
) -> Any:
    return solver.plan(problem, BUDGET, data, relation)


GD = sound("noisy_gd", "every iterate")
CASES: list[Case] = [
    *listed(
        "half_noise",
        "half the noise",
        GD,
        sound("newton"),
        sound("frank_wolfe"),
        sound("pure_gd"),
        sound("pure_gd", "a Poisson sample"),
        sound("output_perturbation"),
        sound("d2p2"),
        sound("Center"),
        sound("ClipToQuantile"),
        sound("LogisticRegression", "Poisson samples"),
    ),
    *listed(
        "half_noise",
        "half the noise",
        sound("newton_raphson", "a row that all others contradict"),
        runs=0.5,
    ),
    *listed(
        "half_noise",
        "half the noise",
        sound("BestIterate", "the choice"),
        sound("PrivateGridSearchCV", "held out"),
        sound("sufficient_statistics"),
        runs=4.0,
    ),
    within(
        "a tenth of the linear term",
        tenth_of_the_linear_term(GaussianLinearTerm),
        sound("objective_perturbation"),
    ),
    within(
        "a tenth of the linear term",
        tenth_of_the_linear_term(L2LinearTerm),
        sound("objective_perturbation", "L2 noise"),
    ),
    made(
        "curvature that is not charged",
        "objective_perturbation",
        unpaid_curvature,
    ),
    *listed(
        "no_clipping",
        "no clipping",
        GD,
        sound("noisy_gd", "three classes, softmax"),
        sound("accelerated_mirror_descent"),
        sound("Center"),
    ),
    *listed(
        "wrong_relation",
        "noise of an erased row for a replaced one",
        sound("noisy_gd", "every iterate", REPLACE_ONE),
        sound("frank_wolfe", "", REPLACE_ONE),
        sound("Center", "", REPLACE_ONE),
        sound("LogisticRegression", "with an intercept", REPLACE_ONE),
    ),
    *listed("fixed_seed", "a fixed seed", GD, sound("pure_gd")),
    *listed(
        "forgotten_event",
        "a forgotten event",
        GD,
        sound("newton"),
        runs=3.0,
    ),
    *listed("unnoised_step_size", "a step size without noise", GD),
    *listed(
        "intercept_without_noise",
        "an intercept without noise",
        sound("LogisticRegression", "with an intercept"),
    ),
    *listed(
        "noise_reused_across_classes",
        "one noise for all classes",
        sound("noisy_gd", "three classes, softmax"),
        sound("LogisticRegression", "three classes"),
    ),
    within(
        "one noise for all steps",
        in_noise(repeated),
        made("", "noisy_gd", lambda: of_plan(plan_of(REPEATED, Problem(Squared()), SQUARES))),
    ),
    made("four steps for the price of one", "noisy_gd", four_steps_for_one),
    made("all iterates for the price of the last", "noisy_gd", iterates_for_the_last),
    within(
        "every row in every sample",
        lambda: mock.patch.object(Curator, "sample", everybody),
        made(
            "",
            "noisy_gd",
            lambda: of_plan(plan_of(dataclasses.replace(STEPS, sampling_rate=0.2))),
        ),
    ),
    made(
        "the central limit theorem under sampling",
        "noisy_gd",
        sampled_by_a_limit_theorem,
        runs=50.0,
    ),
    within(
        "the least of a row's slopes as their length",
        too_short,
        sound("noisy_gd", "three classes, softmax"),
    ),
    within(
        "noise divided by the number of rows twice",
        in_noise(lambda add: lambda v, std, k, source: add(v, std / 3.0, k, source)),
        sound("noisy_gd", "every iterate"),
    ),
    within(
        "a row that is longer than its bound",
        lambda: mock.patch.object(ArrayRows, "clip_entries", lambda self, bound: self),
        made("", "frank_wolfe", long_row),
    ),
    within(
        "a choice without noise",
        lambda: mock.patch.object(selections, "permute_and_flip", best),
        sound("PrivateGridSearchCV", "held out"),
        runs=4.0,
    ),
    within(
        "a score without noise",
        in_noise(lambda _: lambda value, *rest: np.array(value)),
        sound("PrivateGridSearchCV", "repeated", REPLACE_ONE),
    ),
    made("the cost of repetition forgotten", "RandomlyRepeated", best_of_many, runs=8.0),
    within(
        "a quarter of the noise",
        in_noise(lambda add: lambda v, std, k, source: add(v, 0.25 * std, k, source)),
        sound("random_intercepts"),
        runs=0.5,
    ),
    within(
        "a mean without noise",
        in_noise(lambda add: lambda v, std, k, source: add(v, 1e-6 * std, k, source)),
        sound("Center"),
    ),
    made("noise that fades, accounted as constant", "d2p2", faded),
    made("one byte of entropy", "add_gaussian", one_byte_of_entropy),
    made(
        "noise of floating point",
        "NumPy's normal numbers",
        lambda: selectors.last_bits(lambda v: v + RNG.normal()),
    ),
]
