"""The papers' settings: their formulas, their conditions, and noise that they do not decide."""

from __future__ import annotations

import dataclasses
import html
import json
import math

import numpy as np
import pytest
from scipy import stats

from dpglm import LogisticRegression
from dpglm.certificate import Certificate
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, GroupBound
from dpglm.guidance import guidance
from dpglm.papers import (
    Arora2022Lipschitz,
    Arora2022Smooth,
    Song2021,
    Song2021NonConvex,
    Wang2017NonConvex,
    Wang2017PolyakLojasiewicz,
)
from dpglm.papers.theorems import constants
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, ZeroConcentratedDP, gdp
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.events import LastIterate, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L1,
    L2,
    Box,
    ElasticNetPenalty,
    GroupLasso,
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    Poisson,
    Problem,
    Savage,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredHinge,
    Tangent,
)
from dpglm.solvers import JohnsonLindenstrauss, Plan, RandomIterate, Theorem, UniformAverage, run
from dpglm.solvers.base import Facts

pytestmark = pytest.mark.one_in(3)

BUDGET = ApproximateDP(0.5, 1e-6)
MU = BUDGET.gdp_mu()
DATA = DataSpec(n_rows=1000, n_features=5, target_low=-1.0, target_high=1.0)
BALL = L2Ball(2.0)
ALL = [
    (Song2021(), Problem(Logistic())),
    (Arora2022Smooth(), Problem(Squared(), constraint=BALL)),
    (Arora2022Lipschitz(), Problem(Hinge(), constraint=BALL)),
    (Wang2017PolyakLojasiewicz(), Problem(Logistic(), L2(0.1))),
    (Wang2017NonConvex(), Problem(Savage())),
]
NAMES = [type(solver).__name__ for solver, _ in ALL]


def decided(solver, problem, data=DATA, budget=BUDGET, adjacency=Adjacency.ZERO_OUT):
    return solver.plan(problem, budget, data, adjacency).method


# 1. The theorems' formulas, computed again from their text.


@pytest.mark.parametrize(("radius", "n"), [(2.0, 1000), (0.01, 1000), (30.0, 60)])
def test_theorem_1_of_arora2022(radius, n):
    # Least squares on unit rows, |y| <= 1: H = 1, |Y|^2 = 1/2 (the loss at zero), G = B + 1.
    data = dataclasses.replace(DATA, n_rows=n)
    method = decided(Arora2022Smooth(), Problem(Squared(), constraint=L2Ball(radius)), data)
    G, T, d = radius + 1.0, n, 5
    sigma = G * math.sqrt(T) / (MU * n)
    limits = (
        radius / (math.sqrt(T) * math.sqrt(1.0) * math.sqrt(0.5)),
        radius / (math.sqrt(T) * sigma * math.sqrt(d)),
        1.0 / 4.0,
    )
    assert method.clipping.bound == pytest.approx(G)
    assert method.n_steps == T
    assert set(method.step_sizes) == {method.step_sizes[0]}
    assert method.step_sizes[0] == pytest.approx(min(limits))
    assert method.noise_std == pytest.approx(sigma, rel=1e-4)
    assert method.output == UniformAverage()
    assert method.momentum == 0.0


def test_every_term_of_theorem_1_can_bind():
    # So that the test above is not blind to any of them.
    def step(radius, n, budget):
        problem = Problem(Squared(), constraint=L2Ball(radius))
        return decided(Arora2022Smooth(), problem, dataclasses.replace(DATA, n_rows=n), budget)

    large = GaussianDP(1e6)
    assert step(2.0, 1000, BUDGET).step_sizes[0] < step(2.0, 1000, large).step_sizes[0]
    # Nearly no noise: B / (sqrt(T) sqrt(H) |Y|), then the smoothness.
    assert step(2.0, 1000, large).step_sizes[0] == pytest.approx(2.0 / math.sqrt(500.0))
    assert step(200.0, 1000, large).step_sizes[0] == 0.25


def test_the_step_size_of_theorem_1_has_the_units_of_a_step_size():
    # Targets and weights k times as large leave steps alone; the printed root, which spans |Y|
    # too, would not.
    solver = Arora2022Smooth()
    large = GaussianDP(1e6)
    one = decided(solver, Problem(Squared(), constraint=L2Ball(2.0)), DATA, large)
    tall = dataclasses.replace(DATA, target_low=-9.0, target_high=9.0)
    nine = decided(solver, Problem(Squared(), constraint=L2Ball(18.0)), tall, large)
    assert nine.step_sizes[0] == pytest.approx(one.step_sizes[0])

    def printed(radius, zero_loss):
        return radius / (math.sqrt(1000.0) * math.sqrt(math.sqrt(zero_loss)))

    assert printed(18.0, 40.5) == pytest.approx(3.0 * printed(2.0, 0.5))


@pytest.mark.parametrize(
    "loss", [Squared(), Logistic(), SquaredHinge(), SmoothedHinge(0.5), Huber(0.3)], ids=repr
)
def test_gradients_are_within_lemma_2_of_arora2022(loss):
    for radius in (0.1, 1.0, 10.0):
        for norm in (0.1, 1.0, 10.0):
            data = dataclasses.replace(DATA, row_norm=norm)
            problem = Problem(loss, constraint=L2Ball(radius))
            bound = decided(Arora2022Smooth(), problem, data).clipping.bound
            at_zero = math.sqrt(float(loss.value(np.zeros(2), np.array([-1.0, 1.0])).max()))
            H = loss.smoothness
            assert bound <= 2 * at_zero * math.sqrt(H) * norm + 2 * H * radius * norm**2


@pytest.mark.parametrize("rank", [1, 3, 100])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_steps_of_song2021_without_smoothness(rank, adjacency):
    # The bound's two parts are equal: G^2 / T = r s^2, so T = (n mu / factor)^2 / r.
    data = dataclasses.replace(DATA, n_features=500)
    method = decided(Song2021(rank=rank, norm=3.0), Problem(Hinge()), data, adjacency=adjacency)
    s = adjacency.sum_sensitivity(1.0) / (MU * 1000)
    T = min(2000, math.ceil(1.0 / (rank * s**2)))
    assert method.n_steps == T
    assert method.step_sizes[0] == pytest.approx(3.0 / math.sqrt(T * (1.0 + rank * T * s**2)))
    assert method.clipping.bound == 1.0


def test_steps_of_song2021_with_smoothness():
    # T = H B / (s sqrt(r)) and eta = 1/H, up to rounding T up.
    data = dataclasses.replace(DATA, n_rows=100, n_features=500)
    method = decided(Song2021(rank=4, norm=3.0), Problem(Logistic()), data)
    s = 1.0 / (MU * 100)
    assert method.n_steps == math.ceil(0.25 * 3.0 / (2.0 * s))
    assert method.step_sizes[0] == pytest.approx(min(4.0, 3.0 / (2.0 * s * method.n_steps)))


def bound(eta, T, reach, gradient, directions, s):
    return reach**2 / (2 * eta * T) + eta * (gradient**2 + directions * T * s**2) / 2


@pytest.mark.parametrize("loss", [Hinge(), Logistic()], ids=repr)
@pytest.mark.parametrize("n_steps", [1, 10, 1000, None])
@pytest.mark.parametrize("n_rows", [50, 1000, 10_000])
def test_no_other_step_size_has_a_better_bound(loss, n_steps, n_rows):
    data = dataclasses.replace(DATA, n_rows=n_rows, n_features=500)
    H = loss.smoothness
    for solver, problem, directions in (
        (Song2021(rank=4, norm=3.0, n_steps=n_steps), Problem(loss), 4),
        (Arora2022Lipschitz(n_steps=n_steps), Problem(loss, constraint=L2Ball(3.0)), 500),
    ):
        method = decided(solver, problem, data)
        T, G = method.n_steps, method.clipping.bound
        s = G / (MU * n_rows)

        def best(eta, T=T, G=G, s=s, directions=directions):
            rough = bound(eta, T, 3.0, G, directions, s)
            return min(rough, bound(eta, T, 3.0, 0.0, directions, s)) if eta * H <= 1 else rough

        grid = np.geomspace(1e-6, 1e3, 3001)
        eta = method.step_sizes[0] * (1 - 1e-12)
        assert best(eta) <= 1.0001 * min(best(other) for other in grid)


def test_song2021_depends_on_rank_and_not_on_dimension():
    def settings(d, rank):
        data = dataclasses.replace(DATA, n_features=d)
        method = decided(Song2021(rank=rank, norm=1.0), Problem(Logistic()), data)
        return method.n_steps, method.step_sizes[0]

    assert settings(50, 10) == settings(5000, 10)
    assert settings(50, 10) != settings(50, 20)
    # Without a rank, and beyond the number of columns, it is the number of columns.
    assert settings(50, None) == settings(50, 50) == settings(50, 10**6)


def test_the_intercept_and_further_outputs_add_to_the_rank():
    problem = Problem(Hinge())

    def steps(data, problem=problem):
        return decided(Song2021(rank=7, norm=1.0), problem, data).n_steps

    flat = dataclasses.replace(DATA, n_rows=100, n_features=50)
    eight = decided(Song2021(rank=8, norm=1.0), problem, flat).n_steps
    # The hinge's steps depend on the rank alone, not on the length of rows.
    assert steps(dataclasses.replace(flat, intercept=1.0)) == eight
    three = dataclasses.replace(flat, n_outputs=3, target_low=-math.inf, target_high=math.inf)
    method = decided(Song2021(rank=7, norm=1.0), Problem(Softmax()), three)
    s = math.sqrt(2.0) / (MU * 100)
    assert method.n_steps == math.ceil(min(2.0 / (21 * s**2), 0.5 / (s * math.sqrt(21))))


def test_song2021_with_a_clip_is_corollary_5_2():
    # The clip takes the Lipschitz constant's place, so that losses without one are taken, too.
    method = decided(Song2021(clip=0.2, norm=1.0), Problem(Squared()))
    assert method.clipping.bound == 0.2
    assert method.noise_std == pytest.approx(
        0.2 * math.sqrt(method.n_steps) / (MU * 1000), rel=1e-4
    )
    # A clip that cannot bind is the loss's own bound.
    assert decided(Song2021(clip=5.0), Problem(Logistic())).clipping.bound == 1.0


def test_steps_of_song2021_for_losses_that_are_not_convex():
    rows = dataclasses.replace(DATA, n_features=50)
    loss = Savage()
    H, G = loss.smoothness, loss.slope_bound
    at_zero = float(loss.value(np.zeros(1), np.ones(1))[0])
    s = G / (MU * 1000)
    for rank in (3, 50):
        plan = Song2021NonConvex(rank).plan(Problem(loss), BUDGET, rows)
        T = math.ceil(math.sqrt(2 * H * at_zero / rank) / s)
        assert plan.n_steps == T + 1 == plan.theorem.n_steps
        assert plan.method.descent.step_sizes[0] == pytest.approx(1.0 / H)
        assert plan.method.descent.clipping.bound == pytest.approx(G)
    # The printed number of steps is far larger, and noise dominates the gradients.
    assert H * at_zero / s**2 > 30 * T


def test_theorem_6_2_of_wang2017():
    strength, n, d = 0.1, 1000, 5
    method = decided(Wang2017PolyakLojasiewicz(), Problem(Logistic(), L2(strength)))
    condition = (0.25 + strength) / strength
    assert method.n_steps == math.ceil(condition * math.log((MU * n) ** 2 / d))
    assert set(method.step_sizes) == {4.0}
    # It may release the last iterate alone, so the noise does not grow with T.
    assert type(method.event) is LastIterate
    assert method.noise_multiplier < 0.9 * math.sqrt(method.n_steps) / MU


def test_a_prox_step_is_a_gradient_step_on_loss_and_ridge():
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(2, 5))
    penalty, H = L2(0.1), 0.25
    stepped = penalty.prox(w - g / H, 1.0 / H)
    np.testing.assert_allclose(stepped, w - (g + 0.1 * w) / (H + 0.1))


def test_theorem_6_3_of_wang2017():
    method = decided(Wang2017NonConvex(), Problem(Logistic()))
    s = 1.0 / (MU * 1000)
    # The terms 2 H log(2) / T and d T s^2 are equal.
    assert method.n_steps == math.ceil(math.sqrt(2 * 0.25 * math.log(2.0) / 5) / s)
    assert set(method.step_sizes) == {4.0}
    assert method.output == RandomIterate()
    assert method.event == Repeated(method.event.event, method.n_steps)


def test_theorem_6_3_bounds_the_gradient_of_a_random_iterate():
    rng = np.random.default_rng(1)
    X = rng.choice([-1.0, 1.0], size=(400, 4)) / 2.0
    y = np.where(X @ [3.0, -2.0, 1.0, 0.0] + rng.normal(size=400) > 0, 1.0, -1.0)
    data = DataSpec(n_rows=400, n_features=4)
    plan = Wang2017NonConvex().plan(Problem(Savage()), BUDGET, data)
    rows = prepare_rows(X, y, data)
    squares = []
    for seed in range(20):
        w = run(plan, rows, SeededNoise(seed)).w
        squares.append(np.sum((X.T @ Savage().slope(X @ w, y) / 400) ** 2))
    T, H = plan.n_steps, Savage().smoothness
    zero = float(Savage().value([0.0], [1.0])[0])
    assert np.mean(squares) <= 2 * H * zero / T + (1 + 1 / T) * 4 * plan.method.noise_std**2


# 2. Privacy is NoisyGD's: exactly the budget, whatever the papers' closed forms say.


@pytest.mark.parametrize(("solver", "problem"), ALL, ids=NAMES)
@pytest.mark.parametrize(
    "budget", [ApproximateDP(10.0, 1e-5), GaussianDP(0.3), ZeroConcentratedDP(0.1)], ids=repr
)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_whole_budget_is_spent_and_no_more(solver, problem, budget, adjacency):
    plan = solver.plan(problem, budget, DATA, adjacency)
    assert within_budget(plan.event, adjacency, budget)
    less = plan.method.with_multiplier(plan.method.noise_multiplier * (1 - 1e-6))
    assert not within_budget(less.event, adjacency, budget)


@pytest.mark.parametrize(("solver", "problem"), ALL, ids=NAMES)
def test_the_clip_is_the_largest_gradient_within_the_constraint(solver, problem):
    method = decided(solver, problem)
    rng = np.random.default_rng(2)
    largest = 0.0
    for _ in range(200):
        w = rng.normal(size=5)
        w *= rng.choice([0.0, 1.0, 2.0]) / np.linalg.norm(w)
        X = np.vstack([w / max(np.linalg.norm(w), 1e-9), -w / max(np.linalg.norm(w), 1e-9)])
        X = np.vstack([X, X, rng.normal(size=(2, 5))])
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        y = np.array([1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
        slopes = np.abs(problem.loss.slope(X @ w, y)) * np.linalg.norm(X, axis=1)
        largest = max(largest, float(slopes.max()))
    assert largest <= method.clipping.bound * (1 + 1e-12)
    # Half of it would clip, and with half the noise it would not be private.
    assert largest > 0.5 * method.clipping.bound


def printed_epsilon(closed_form, epsilon, delta=1e-5, T=100, n=1000):
    """Cost of T gradients of sensitivity 2/n with the printed standard deviation."""
    sigma = closed_form(epsilon, delta, T, n)
    return gdp.epsilon(delta, math.sqrt(T) * 2.0 / n / sigma)


def song_sigma(epsilon, delta, T, n):
    return math.sqrt(2 * T * math.log(1 / delta)) / (n * epsilon)


def arora_sigma(epsilon, delta, T, n):
    return math.sqrt(8 * T * math.log(1 / delta)) / (n * epsilon)


def test_song2021_variance_is_too_small_and_ours_suffices():
    assert printed_epsilon(song_sigma, 1.0) > 1.6
    plan = Song2021().plan(
        Problem(Logistic()), ApproximateDP(1.0, 1e-5), DATA, Adjacency.REPLACE_ONE
    )
    assert plan.privacy()["epsilon"] <= 1.0
    sigma = song_sigma(1.0, 1e-5, plan.n_steps, 1000)
    assert plan.method.noise_std > 1.5 * sigma


def test_arora2022_variance_is_too_small_above_epsilon_8():
    assert printed_epsilon(arora_sigma, 7.0) < 7.0
    assert printed_epsilon(arora_sigma, 10.0) > 10.4
    problem = Problem(Squared(), constraint=BALL)
    plan = Arora2022Smooth().plan(problem, ApproximateDP(10.0, 1e-5), DATA, Adjacency.REPLACE_ONE)
    assert plan.privacy()["epsilon"] <= 10.0


@pytest.mark.parametrize("c", [2.0, 8.0, 100.0])
def test_no_constant_suffices_in_wang2017_for_every_epsilon(c):
    def sigma(epsilon, delta, T, n):
        return math.sqrt(c * T * math.log(1 / delta)) / (n * epsilon)

    assert any(printed_epsilon(sigma, epsilon) > 1.05 * epsilon for epsilon in (1.0, 10.0, 500.0))
    problem = Problem(Logistic(), L2(0.1))
    for epsilon in (1.0, 10.0, 500.0):
        budget = ApproximateDP(epsilon, 1e-5)
        plan = Wang2017PolyakLojasiewicz().plan(problem, budget, DATA)
        assert plan.privacy()["epsilon"] <= epsilon


# 3. Conditions of the theorems, and settings.

REFUSED = [
    (Song2021(), Problem(Savage()), {}, "loss must be convex"),
    (Song2021(), Problem(Squared()), {}, "loss must have bounded slopes"),
    (Song2021(), Problem(Poisson()), {}, "loss must have bounded slopes"),
    (Song2021(), Problem(Logistic(), constraint=BALL), {}, "constraint must be Unconstrained"),
    (Song2021(), Problem(Logistic(), constraint=Box(0, math.inf)), {}, "constraint must be"),
    (Song2021(), Problem(Logistic(), L1(0.1)), {}, "regularizer must be NoPenalty or L2"),
    (Song2021(), Problem(Logistic(), ElasticNetPenalty(0.1, 0.5)), {}, "regularizer must be"),
    (Song2021(), Problem(Logistic(), GroupLasso(0.1, ((0,),))), {}, "regularizer must be"),
    (
        Song2021(clip=0.1),
        Problem(Softmax()),
        {"n_outputs": 3, "target_low": -math.inf, "target_high": math.inf},
        "clip must be None",
    ),
    (Arora2022Smooth(), Problem(Squared()), {}, "constraint must be bounded"),
    (Arora2022Smooth(), Problem(Squared(), constraint=Box(0, math.inf)), {}, "constraint must"),
    (Arora2022Smooth(), Problem(Hinge(), constraint=BALL), {}, "loss must be smooth"),
    (Arora2022Smooth(), Problem(Poisson(), constraint=BALL), {"target_low": 0.0}, "loss must be"),
    (Arora2022Smooth(), Problem(Savage(), constraint=BALL), {}, "loss must be convex"),
    (Arora2022Smooth(), Problem(Squared(), L1(0.1), BALL), {}, "regularizer must be"),
    (
        Arora2022Smooth(),
        Problem(Squared(), constraint=BALL),
        {"intercept": 1.0},
        "penalize_intercept must be True",
    ),
    (
        Arora2022Smooth(),
        Problem(Squared(), constraint=BALL),
        {"target_low": -math.inf},
        "must have bounded slopes",
    ),
    (
        Arora2022Smooth(),
        Problem(Huber(0.5), constraint=BALL),
        {"target_low": -math.inf},
        "target_low and target_high must be finite",
    ),
    (Arora2022Lipschitz(), Problem(Hinge()), {}, "constraint must be bounded"),
    (Arora2022Lipschitz(), Problem(Tangent(), constraint=BALL), {}, "loss must be convex"),
    (Arora2022Lipschitz(), Problem(Hinge(), L1(0.1), BALL), {}, "regularizer must be"),
    (Wang2017PolyakLojasiewicz(), Problem(Logistic()), {}, "growth must be given"),
    (Wang2017PolyakLojasiewicz(), Problem(Savage(), L2(0.1)), {}, "growth must be given"),
    (
        Wang2017PolyakLojasiewicz(),
        Problem(Logistic(), L2(0.1)),
        {"intercept": 1.0},
        "growth must be given",
    ),
    (Wang2017PolyakLojasiewicz(), Problem(Hinge(), L2(0.1)), {}, "loss must be smooth"),
    (Wang2017PolyakLojasiewicz(), Problem(Squared(), L2(0.1)), {}, "bounded slopes"),
    (Wang2017PolyakLojasiewicz(), Problem(Logistic(), L2(0.1), BALL), {}, "constraint must be"),
    (
        Wang2017PolyakLojasiewicz(),
        Problem(Logistic(), ElasticNetPenalty(0.1, 0.5)),
        {"n_rows": 1},
        "regularizer must be",
    ),
    (Wang2017NonConvex(), Problem(Hinge()), {}, "loss must be smooth"),
    (Wang2017NonConvex(), Problem(Savage(), constraint=BALL), {}, "constraint must be"),
    (Wang2017NonConvex(), Problem(Savage(), L1(0.1)), {}, "regularizer must be"),
]


@pytest.mark.parametrize(
    ("solver", "problem", "changes", "message"),
    REFUSED,
    ids=[f"{type(case[0]).__name__}-{i}" for i, case in enumerate(REFUSED)],
)
def test_problems_outside_the_theorem_are_refused(solver, problem, changes, message):
    with pytest.raises(ValueError, match=message):
        decided(solver, problem, dataclasses.replace(DATA, **changes))


def test_growth_may_be_given():
    method = decided(Wang2017PolyakLojasiewicz(growth=0.01), Problem(Logistic()))
    assert method.n_steps == math.ceil(25.0 * math.log((MU * 1000) ** 2 / 5))


@pytest.mark.parametrize("constraint", [BALL, L1Ball(2.0), Box(-0.5, 0.5)], ids=repr)
def test_other_bounded_sets_count_by_their_largest_norm(constraint):
    method = decided(Arora2022Smooth(), Problem(Squared(), constraint=constraint))
    assert method.clipping.bound == pytest.approx(constraint.norm_bound(5) + 1.0)


@pytest.mark.parametrize(("solver", "problem"), ALL, ids=NAMES)
def test_steps_may_be_given_and_are_limited_otherwise(solver, problem):
    given = dataclasses.replace(solver, n_steps=2345)
    assert decided(given, problem).n_steps == 2345
    huge = dataclasses.replace(DATA, n_rows=10**8)
    assert decided(solver, problem, huge).n_steps <= 2000
    tiny = dataclasses.replace(DATA, n_rows=1)
    assert decided(solver, problem, tiny).n_steps >= 1


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((type(solver), "n_steps", 0) for solver, _ in ALL),
        *((type(solver), "n_steps", 1.5) for solver, _ in ALL),
        (Song2021, "rank", 0),
        (Song2021, "norm", 0.0),
        (Song2021, "clip", -1.0),
        (Wang2017PolyakLojasiewicz, "growth", 0.0),
    ],
)
def test_settings_are_checked(kind, name, value):
    with pytest.raises(ValueError, match=f"{name} must be .* got {value!r}"):
        kind(**{name: value})


@pytest.mark.parametrize("facts", [{"weight_bound": 3.0}, {"groups": GroupBound(50, 16.0)}])
@pytest.mark.parametrize(("solver", "problem"), ALL, ids=NAMES)
def test_settings_contain_the_noise_of_a_step(solver, problem, facts):
    data = dataclasses.replace(DATA, **facts)
    plan = solver.plan(problem, BUDGET, data)
    gradients = next(one for one in plan.method.releases if "gradient" in one.quantity)
    known = constants(Facts(problem, BUDGET, data, Adjacency.ZERO_OUT)).noise_of_one_step
    of_a_step = known * math.sqrt(gradients.count)
    if not isinstance(plan.event, LastIterate):
        assert gradients.noise_std / data.n_rows == pytest.approx(of_a_step, rel=1e-3)


@pytest.mark.parametrize(("solver", "problem"), ALL, ids=NAMES)
def test_units_of_the_rows_do_not_matter(solver, problem):
    # Rows k times as long: weights, and so radii, by 1/k; steps by 1/k^2. Without a penalty.
    problem = dataclasses.replace(problem, regularizer=L2(0.0))
    if isinstance(solver, Wang2017PolyakLojasiewicz):
        solver = Wang2017PolyakLojasiewicz(growth=0.1)
    longer = dataclasses.replace(DATA, row_norm=4.0)
    one = decided(solver, problem)
    if problem.constraint == BALL:
        problem = dataclasses.replace(problem, constraint=L2Ball(0.5))
    if isinstance(solver, Wang2017PolyakLojasiewicz):
        solver = Wang2017PolyakLojasiewicz(growth=1.6)
    four = decided(solver, problem, longer)
    assert four.n_steps == one.n_steps
    assert four.step_sizes[0] == pytest.approx(one.step_sizes[0] / 16.0)


def test_an_estimator_takes_them():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(500, 3)) @ np.diag([1.0, 1.0, 0.0])
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(
        epsilon=5.0, classes=[0, 1], row_norm=1.5, solver=Song2021(rank=2), random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.85
    bounded = LogisticRegression(
        epsilon=5.0,
        classes=[0, 1],
        row_norm=1.5,
        solver=Arora2022Smooth(),
        constraint=L2Ball(5.0),
        penalize_intercept=True,
        random_state=0,
    ).fit(X, y)
    assert bounded.score(X, y) > 0.85


# Printed settings that cannot be followed.


def test_theorem_2_step_uses_embedded_columns_and_double_ball():
    # Noise acts on the k columns of embedded rows, and iterates are in a ball of radius 2 B. With
    # sqrt(d) and B, as printed, the step is too small, and the bound has the dimension in it.
    n, d, k, B = 400, 10_000, 16, 0.5
    data = DataSpec(n, d, target_low=-1.0, target_high=1.0)
    solver = JohnsonLindenstrauss(k, gradient_descent=Arora2022Smooth())
    plan = solver.plan(Problem(Squared(), constraint=L2Ball(B)), BUDGET, data)
    method = plan.method.inner.method
    sigma = method.gradients.noise_std / n
    right, printed = 2 * B / (sigma * math.sqrt(k * n)), B / (sigma * math.sqrt(d * n))
    assert plan.n_steps == n
    assert method.step_sizes[0] == pytest.approx(right, rel=1e-3)

    def bound(eta):
        return (2 * B) ** 2 / (2 * eta * n) + eta * k * sigma**2 / 2

    assert bound(right) == pytest.approx(2 * B * sigma * math.sqrt(k / n))
    assert bound(printed) > 0.99 * math.sqrt(d / k) * bound(right)


def test_wang2017_inequality_4_needs_steps_below_1_over_24_l():
    def left(eta_l, m_mu_over_l, m):
        first = 1.0 / (eta_l * (1.0 - 8.0 * eta_l) * m_mu_over_l)
        return first + 8.0 * eta_l * (m + 1) / (m * (1.0 - 8.0 * eta_l))

    # As printed: up to 1/(12 L), with m as large as one likes.
    for eta_l in np.linspace(1 / 24, 1 / 12, 20):
        assert left(eta_l, 1e12, 10**12) > 0.5
    # Below it can be met, with the least m at 1/(48 L): 192 times the condition number.
    assert left(1 / 48, 193.0, 10**6) < 0.5
    for eta_l in np.linspace(1e-4, 1 / 24, 200):
        assert left(eta_l, 191.9, 10**9) > 0.5


@pytest.mark.parametrize("n", [10**6, 10**7, 10**9])
def test_theorem_4_1_of_song2021_bounds_no_gradient(n):
    # Rows e_j, losses that are quadratic as far as iterates go, so L(w) = |w - a|^2 / (2 r), and
    # beta = 1/r. With eta = 1/beta a step leads to where the gradient is minus the noise, from
    # anywhere.
    r, at_start, epsilon, delta, gamma, lipschitz = 64, 2e-4, 1.0, 1e-5, 0.1, 1.0
    log = math.log(1.0 / delta)
    T = n**2 * epsilon**2 * at_start / (r * 2.0 * lipschitz**2 * log)
    variance = 2.0 * lipschitz**2 * T * log / (n * epsilon) ** 2
    # The noise of the steps that are asked for does not fall with n, and slopes stay within L.
    assert variance == pytest.approx(at_start / r)
    assert 8.0 * r * math.sqrt(variance) < lipschitz
    # With probability 1/2 none of T gradients is shorter (union bound), and the first is not.
    later = math.sqrt(variance * stats.chi2.ppf(0.5 / T, r))
    shortest = min(later, math.sqrt(2.0 * at_start / r))
    claimed = lipschitz / (epsilon * n) * math.sqrt(r * log * math.log(T / gamma))
    assert shortest == pytest.approx(0.0025)
    assert shortest > 15.0 * (n / 10**6) * claimed


# 6. A plan says whether the theorem's number of steps is run.


@pytest.mark.parametrize("n", [500, 2000, 8000, 32_000])
def test_plan_states_if_theorem_needs_more_steps(n):
    data = DataSpec(n_rows=n, n_features=10)
    plan = Song2021(rank=4).plan(Problem(Hinge()), BUDGET, data)
    needed = math.ceil((MU * n) ** 2 / 4)
    assert plan.theorem.name == "song2021, Theorem 3.1"
    assert plan.theorem.n_steps == pytest.approx(needed, abs=1)
    assert plan.n_steps == min(2000, plan.theorem.n_steps)
    (said,) = plan.theorems
    assert ("not claimed" in said) == (plan.theorem.n_steps > 2000)
    assert ("are those of" in said) == (plan.theorem.n_steps <= 2000)


def test_the_theorem_is_run_where_its_steps_are_given():
    data = dataclasses.replace(DATA, n_rows=5000)
    problem = Problem(Squared(), constraint=BALL)
    capped, full = (
        Arora2022Smooth(n_steps).plan(problem, BUDGET, data) for n_steps in (None, 5000)
    )
    assert (capped.n_steps, capped.theorem.n_steps, full.n_steps) == (2000, 5000, 5000)
    assert "needs 5000 steps; 2000 are run, so it is not claimed" in capped.theorems[0]
    assert "are those of" in full.theorems[0]


@pytest.mark.parametrize(("solver", "problem"), ALL, ids=NAMES)
def test_every_setting_names_its_theorem(solver, problem):
    plan = solver.plan(problem, BUDGET, DATA)
    assert plan.theorems == (plan.theorem.in_words(plan.n_steps),)
    assert Plan.from_document(json.loads(json.dumps(plan.document))) == plan
    few = dataclasses.replace(solver, n_steps=1).plan(problem, BUDGET, DATA)
    assert ("not claimed" in few.theorems[0]) == (few.theorem.n_steps > 1)


def test_certificate_and_expectation_state_it(tmp_path):
    model = LogisticRegression(
        epsilon=1.0, classes=[0, 1], row_norm=1.0, solver=Song2021(n_steps=2), random_state=0
    ).fit(np.eye(6), [0, 1] * 3)
    (said,) = model.solution_.plan.theorems
    model.privacy_.to_json(tmp_path / "certificate.json")
    assert said in Certificate.from_json(tmp_path / "certificate.json").statement()
    for page in (model.privacy_._repr_html_(), model.solution_.plan._repr_html_()):
        assert html.escape(said) in page
    assert said in str(guidance(model.solution_.plan))
    usual = LogisticRegression(epsilon=1.0, classes=[0, 1], row_norm=1.0).plan(6, 6)
    assert usual.theorems == ()
    assert "theorem" not in str(guidance(usual))


@pytest.mark.parametrize(
    "name", ["perfectly private", "a, Theorem 1 and more", "аrora2022, Theorem 1", ""]
)
def test_a_theorem_has_no_room_for_other_claims(name):
    with pytest.raises(ValueError, match="name must be a paper and a theorem's number"):
        Theorem(name, 1)
