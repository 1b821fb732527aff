"""Amplification by iteration: every condition is necessary, and its gain is used."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.privacy.budget import Adjacency, GaussianDP
from dpglm.privacy.events import Gaussian, LastIterate, Repeated, canonical
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L1,
    L2,
    Box,
    ElasticNetPenalty,
    GroupLasso,
    Hinge,
    Huber,
    L2Ball,
    Logistic,
    NoPenalty,
    OneVsRest,
    Poisson,
    Problem,
    Savage,
    Simplex,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpglm.solvers import (
    Constant,
    LinearDecay,
    NoisyGD,
    RandomIterate,
    Schedule,
    TailAverage,
    UniformAverage,
    run,
)
from dpglm.solvers.gradient.noisy_gd_method import contraction

SPEC = DataSpec(n_rows=50, n_features=3)
PROBLEM = Problem(Logistic(), L2(0.5))
GOOD = {
    "clip": 0.3,
    "momentum": 0.0,
    "schedule": Constant(),
    "step_size": 1.0,
    "n_steps": 40,
}


def planned(problem=PROBLEM, spec=SPEC, adjacency=Adjacency.ZERO_OUT, **settings):
    return NoisyGD(**{**GOOD, **settings}).plan(problem, GaussianDP(1.0), spec, adjacency)


HOLDS = {
    "plain": {},
    "replace one": {"adjacency": Adjacency.REPLACE_ONE},
    "elastic net": {"problem": Problem(Logistic(), ElasticNetPenalty(0.5, 0.5))},
    "on a ball": {"problem": Problem(Logistic(), L2(0.5), L2Ball(0.3))},
    "in a box": {"problem": Problem(Logistic(), L2(0.5), Box(-1.0, 1.0))},
    "Huber": {
        "problem": Problem(Huber(0.2), L2(0.5)),
        "spec": dataclasses.replace(SPEC, target_low=-1.0, target_high=1.0),
    },
    "squared": {
        "problem": Problem(Squared(), L2(0.5)),
        "spec": dataclasses.replace(SPEC, target_low=-1.0, target_high=1.0),
    },
    "smoothed hinge": {"problem": Problem(SmoothedHinge(1.0), L2(0.5))},
    "softmax that is never clipped": {
        "problem": Problem(Softmax(), L2(0.5)),
        "spec": dataclasses.replace(SPEC, n_outputs=3),
        "clip": math.sqrt(2.0) * (1 + 1e-12),
    },
    "a penalized intercept": {
        "problem": dataclasses.replace(PROBLEM, penalize_intercept=True),
        "spec": dataclasses.replace(SPEC, intercept=1.0),
    },
    "the largest step": {"step_size": 8.0},
    "one step of a decaying schedule": {"schedule": LinearDecay(), "n_steps": 1},
}


@dataclass(frozen=True)
class Dip(Schedule):
    """A schedule with equal ends and another middle."""

    def factors(self, n_steps):
        factors = np.full(n_steps, 0.01)
        factors[[0, -1]] = 1.0
        return factors


FAILS = {
    "momentum": {"momentum": 0.1},
    "a Poisson sample": {"sampling_rate": 0.5},
    "an average": {"output": UniformAverage()},
    "a tail": {"output": TailAverage(0.5)},
    "a random iterate": {"output": RandomIterate()},
    "steps that shrink": {"schedule": LinearDecay()},
    "steps that shrink in between": {"schedule": Dip()},
    "a step too large": {"step_size": 8.0 * (1 + 1e-9)},
    "a step too large for the weights": {
        "step_size": 8.0,
        "spec": dataclasses.replace(SPEC, weight_bound=1.01),
    },
    "a step too large for the rows": {
        "step_size": 8.0,
        "spec": dataclasses.replace(SPEC, row_norm=1.01),
    },
    "no penalty": {"problem": Problem(Logistic(), NoPenalty())},
    "L1": {"problem": Problem(Logistic(), L1(0.5))},
    "group lasso": {"problem": Problem(Logistic(), GroupLasso(0.5, ((0, 1), (2,))))},
    "only a ball": {"problem": Problem(Logistic(), NoPenalty(), L2Ball(0.3))},
    # Pitfall 3.
    "a free intercept": {"spec": dataclasses.replace(SPEC, intercept=1.0)},
    "n private": {"adjacency": Adjacency.ADD_REMOVE},
    "float32": {"spec": dataclasses.replace(SPEC, dtype="float32")},
    "automatic clipping": {"automatic_clipping": True},
    "a loss that is not convex": {"problem": Problem(Savage(), L2(0.5))},
    "a loss with a kink": {"problem": Problem(Hinge(), L2(0.5))},
    "a loss that is not smooth": {
        "problem": Problem(Poisson(), L2(0.5)),
        "spec": dataclasses.replace(SPEC, target_low=0.0, target_high=1.0),
    },
    # Song et al. 2021, Theorem 5.3: clipped softmax is not a gradient field.
    "clipped softmax": {
        "problem": Problem(Softmax(), L2(0.5)),
        "spec": dataclasses.replace(SPEC, n_outputs=3),
        "clip": math.sqrt(2.0) * (1 - 1e-6),
    },
    "clipped one against the rest": {
        "problem": Problem(OneVsRest(Logistic(), 3), L2(0.5)),
        "spec": dataclasses.replace(SPEC, n_outputs=3),
        "clip": 1.0,
    },
}


@pytest.mark.parametrize("case", HOLDS.values(), ids=HOLDS)
def test_applies_where_all_conditions_hold(case):
    plan = planned(**case)
    method = plan.method
    assert method.amplified is not None
    penalty = plan.problem.regularizer.strong_convexity
    c = 1.0 / (1.0 + method.step_sizes[0] * penalty)
    assert plan.event == LastIterate(method.noise_multiplier, c, method.n_steps)
    every = Repeated(Gaussian(method.noise_multiplier), method.n_steps)
    assert canonical(method.mechanisms) == canonical(every)
    assert plan.event.mu <= 1.0


@pytest.mark.parametrize("case", FAILS.values(), ids=FAILS)
def test_does_not_apply_where_one_condition_fails(case):
    case = dict(case)
    budget = GaussianDP(1.0)
    settings = {k: v for k, v in case.items() if k not in ("problem", "spec", "adjacency")}
    if "sampling_rate" in settings:
        from dpglm.privacy.budget import ApproximateDP

        budget = ApproximateDP(1.0, 1e-5)
    plan = NoisyGD(**{**GOOD, **settings}).plan(
        case.get("problem", PROBLEM),
        budget,
        case.get("spec", SPEC),
        case.get("adjacency", Adjacency.ZERO_OUT),
    )
    assert plan.method.amplified is None
    assert plan.event == plan.method.mechanisms
    assert plan.method.releases_iterates


def test_function_states_the_same():
    options = {"clipping": FlatClipping(0.3), "step_sizes": (1.0,) * 4, "plain": True}
    assert contraction(PROBLEM, SPEC, Adjacency.ZERO_OUT, **options) is not None
    for change in (
        {"plain": False},
        {"clipping": AutomaticClipping(0.3)},
        {"step_sizes": (1.0, 0.5)},
        {"step_sizes": (1.0, 0.5, 1.0)},
    ):
        assert contraction(PROBLEM, SPEC, Adjacency.ZERO_OUT, **{**options, **change}) is None


def test_the_noise_is_smaller_than_by_composition():
    amplified = planned().method
    composed = planned(problem=Problem(Logistic(), NoPenalty())).method
    assert composed.noise_multiplier == pytest.approx(math.sqrt(40.0))
    c = 1.0 / 1.5
    expected = math.sqrt((1 - c**40) / (1 + c**40) * (1 + c) / (1 - c))
    assert amplified.noise_multiplier == pytest.approx(expected, rel=1e-6)
    assert amplified.noise_multiplier < 0.4 * composed.noise_multiplier
    # The rounding of secret iterates enters, but is far below the noise.
    assert amplified.noise_std == pytest.approx(
        composed.noise_std * amplified.noise_multiplier / composed.noise_multiplier, rel=1e-5
    )
    assert amplified.noise_std > amplified.noise_multiplier * 0.3 / 50


def test_it_does_not_grow_with_the_number_of_steps():
    few, many = (planned(n_steps=t).method.noise_multiplier for t in (100, 10_000))
    assert many == pytest.approx(few, rel=1e-6)


def test_nothing_but_the_last_iterate_is_shown():
    plan = planned(n_steps=5)
    rng = np.random.default_rng(0)
    rows = prepare_rows(rng.uniform(-0.5, 0.5, size=(50, 3)), np.ones(50), SPEC)

    def progress(info):
        raise AssertionError("a secret iterate was shown")

    solution = run(plan, rows, SeededNoise(0), progress)
    assert solution.history == ()
    assert plan.method.releases_iterates is False
    assert not {"history", "w"} & plan.document["method"].keys()


def test_iterates_stay_in_the_ball_at_equal_accuracy():
    # Opposite labels on equal rows: without a ball noise alone would carry iterates far.
    spec = dataclasses.replace(SPEC, n_features=2)
    rows = prepare_rows(np.zeros((50, 2)), np.ones(50), spec)
    plan = NoisyGD(**{**GOOD, "clip": 0.01, "n_steps": 3}).plan(PROBLEM, GaussianDP(0.001), spec)
    radius = plan.method.amplified.radius
    assert radius == pytest.approx(2 * 0.01 / 0.5)
    for seed in range(20):
        assert np.linalg.norm(run(plan, rows, SeededNoise(seed)).w) <= radius * (1 + 1e-12)
    # The minimiser of clipped loss plus penalty has norm at most C / m.
    X = np.zeros((50, 2))
    X[:, 0] = 1.0
    rows = prepare_rows(X, np.ones(50), spec)
    quiet = NoisyGD(**{**GOOD, "clip": 0.01}).plan(PROBLEM, GaussianDP(1e6), spec)
    np.testing.assert_allclose(run(quiet, rows, SeededNoise(0)).w, [0.02, 0.0], atol=1e-6)


@pytest.mark.parametrize("allowed", [Box(0.5, 0.6), Simplex()], ids=repr)
def test_the_ball_does_not_break_the_constraint(allowed):
    # Neither set contains the origin, so the minimiser may lie outside the ball.
    problem = Problem(Logistic(), L2(0.5), allowed)
    plan = NoisyGD(**{**GOOD, "clip": 0.05}).plan(problem, GaussianDP(1e6), SPEC)
    rows = prepare_rows(np.zeros((50, 3)), np.ones(50), SPEC)
    assert allowed.contains(run(plan, rows, SeededNoise(0)).w)
