"""Accelerated mirror descent: the rate of the theorem, one noisy gradient a step, the defect."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import Gaussian, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L2,
    Box,
    Hinge,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Poisson,
    Problem,
    Savage,
    Simplex,
    Softmax,
    Squared,
    Unconstrained,
)
from dpglm.solvers import AcceleratedMirrorDescent, run
from dpglm.solvers.gradient.accelerated_mirror_descent import mirror_map_for
from tests.audit.attack import mu_at_least, one_row, planted_noise, released_sums
from tests.solvers.gradient.test_variance_reduction import chi_square_rejects, make
from tests.solvers.parts.test_mirror_maps import divergence

D = 6
SETS = [L2Ball(0.8), L1Ball(0.8), Simplex(0.8), Unconstrained()]
FREE = [False, True]


def augmented(n=80, intercept=1.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, D)) / math.sqrt(D)
    y = np.where(X @ np.linspace(6.0, -6.0, D) + rng.logistic(size=n) > 0.5, 1, -1)
    spec = DataSpec(n, D, intercept=intercept)
    full = np.column_stack([X, np.full(n, intercept)]) if intercept else X
    return full, y, spec, prepare_rows(X, y, spec)


def optimum(value, dimension, allowed, head):
    """Least value on a set, by SLSQP with positive and negative parts."""
    radius = getattr(allowed, "radius", math.inf)

    def whole(parts):
        return np.concatenate([parts[:head] - parts[head : 2 * head], parts[2 * head :]])

    constraints = {
        L2Ball: [{"type": "ineq", "fun": lambda p: radius**2 - np.sum(whole(p)[:head] ** 2)}],
        L1Ball: [{"type": "ineq", "fun": lambda p: radius - p[: 2 * head].sum()}],
        Simplex: [{"type": "eq", "fun": lambda p: p[:head].sum() - radius}],
        Unconstrained: [],
    }[type(allowed)]
    top = 0.0 if isinstance(allowed, Simplex) else None
    bounds = [(0, None)] * head + [(0, top)] * head + [(None, None)] * (dimension - head)
    found = minimize(
        lambda parts: value(whole(parts)),
        np.full(dimension + head, 0.01 if top is None else 0.8 / head),
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return found.fun, whole(found.x)


@pytest.mark.parametrize("whole", FREE)
@pytest.mark.parametrize("allowed", SETS, ids=repr)
def test_without_noise_it_converges_as_the_theorem_says(allowed, whole):
    X, y, spec, rows = augmented()
    penalty = L2(0.05) if isinstance(allowed, Unconstrained) else NoPenalty()
    problem = Problem(Logistic(), penalty, allowed, penalize_intercept=whole)
    head = D + whole

    def value(w):
        return float(Logistic().value(X @ w, y).mean()) + penalty.value(w[:head])

    best, where = optimum(value, D + 1, allowed, head)
    eta = 1.0 / (0.25 * spec.augmented_row_norm**2)
    geometry = mirror_map_for(problem)
    start = geometry.start((head,))
    distance = divergence(geometry, where[:head], start) + 0.5 * float(np.sum(where[head:] ** 2))
    gaps = []
    for steps in (1, 3, 10, 30, 100, 300):
        solver = AcceleratedMirrorDescent(n_steps=steps, step_size=eta, clip=10.0)
        plan = solver.plan(problem, GaussianDP(1.0), spec)
        with released_sums():
            w = run(plan, rows, SeededNoise(0)).w
        assert allowed.contains(w[:head])
        gaps.append(value(w) - best)
        assert -1e-7 <= gaps[-1] <= 4.0 * distance / (eta * (steps + 1) ** 2) + 1e-7
    assert gaps[-1] <= 1e-2 * gaps[0]


def test_acceleration_beats_plain_steps_of_the_same_size():
    X, y, spec, rows = augmented()
    best, _ = optimum(lambda w: float(Logistic().value(X @ w, y).mean()), D + 1, Unconstrained(), D)
    eta, w = 1.0 / (0.25 * spec.augmented_row_norm**2), np.zeros(D + 1)
    for _ in range(150):
        w = w - eta * X.T @ Logistic().slope(X @ w, y) / len(X)
    plain = float(Logistic().value(X @ w, y).mean()) - best
    solver = AcceleratedMirrorDescent(n_steps=150, step_size=eta, clip=10.0)
    with released_sums():
        fast = run(solver.plan(Problem(Logistic()), GaussianDP(1.0), spec), rows, SeededNoise(0)).w
    assert float(Logistic().value(X @ fast, y).mean()) - best < 0.1 * plain


@pytest.mark.parametrize("layout", [("csr", "float64"), ("dense", "float32")], ids=str)
@pytest.mark.parametrize(
    ("loss", "n_outputs"), [(Logistic(), 1), (Squared(), 1), (Softmax(), 3)], ids=repr
)
def test_layouts_and_outputs_agree(layout, loss, n_outputs):
    found = []
    for kind in (("dense", "float64"), layout):
        _, _, spec, rows = make(loss, n_outputs, *kind)
        problem = Problem(loss, constraint=L1Ball(1.0))
        solver = AcceleratedMirrorDescent(n_steps=20, clip=0.5)
        with released_sums():
            plan = solver.plan(problem, GaussianDP(1.0), spec)
            found.append(run(plan, rows, SeededNoise(0)).w)
    assert np.abs(found[0]).max() > 0.05
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)


# Privacy.


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("budget", [GaussianDP(0.7), ApproximateDP(1.0, 1e-5)], ids=repr)
def test_it_is_t_gaussian_releases_accounted_exactly(adjacency, budget):
    _, _, spec, rows = augmented()
    plan = AcceleratedMirrorDescent(n_steps=9).plan(Problem(Logistic()), budget, spec, adjacency)
    sigma = plan.method.noise_multiplier
    assert plan.event == Repeated(Gaussian(sigma), 9)
    mu = budget.gdp_mu()
    assert sigma == pytest.approx(3.0 / mu, rel=1e-8)
    run(plan, rows, SeededNoise(0))
    assert plan.method.gradient_evaluations == 9 * spec.n_rows


def half_noise(add):
    return lambda value, std, k, source: add(value, std / 2.0, k, source)


@pytest.mark.parametrize("penalty", [NoPenalty(), L2(0.3)], ids=repr)
def test_coefficient_noise_equals_observed_noise(penalty):
    d = 30_000
    spec = DataSpec(n_rows=5, n_features=d, intercept=1.0)
    rows = prepare_rows(np.zeros((5, d)), np.ones(5), spec)
    solver = AcceleratedMirrorDescent(n_steps=12, step_size=0.7, clip=0.3)
    plan = solver.plan(Problem(Logistic(), penalty), ApproximateDP(1.0, 1e-5), spec)
    w = run(plan, rows, SeededNoise(1)).w[:-1]
    assert not chi_square_rejects(w, plan.coefficient_noise)
    assert chi_square_rejects(w, 1.04 * plan.coefficient_noise)
    assert chi_square_rejects(w, 0.96 * plan.coefficient_noise)
    with planted_noise(half_noise):
        shown = run(plan, rows, SeededNoise(1)).w[:-1]
    assert chi_square_rejects(shown, plan.coefficient_noise)


def output_attack(plan, runs):
    """Guess from the result: at T = 1 a linear function of the one release."""
    first = one_row(plan.data, np.array([1e6, 0.0]), 1.0)
    second = one_row(plan.data, np.array([1e6, 0.0]), 1.0, present=False)
    a, b = (
        np.array([run(plan, rows, SeededNoise(seed)).w[0] for seed in range(start, start + runs)])
        for rows, start in ((first, 0), (second, runs))
    )
    middle = 0.5 * plan.method.step_sizes[0] * plan.method.clip / plan.data.n_rows
    return mu_at_least(a > middle, b > middle)


def one_step():
    solver = AcceleratedMirrorDescent(n_steps=1, clip=0.25, step_size=0.1)
    return solver.plan(Problem(Logistic()), GaussianDP(2.0), DataSpec(3, 2, row_norm=1.0))


def test_output_of_one_step_attains_claim():
    assert 1.4 <= output_attack(one_step(), 400) <= 2.0
    with planted_noise(half_noise):
        assert output_attack(one_step(), 150) > 2.0


def printed(X, y, steps, noise, seed, radius=0.8, smooth=0.25):
    """Wang, Ye and Xu's Algorithm 3 on an L2 ball, as printed."""
    rng = np.random.default_rng(seed)
    ball = L2Ball(radius)
    v = z = np.zeros(X.shape[1])
    for k in range(steps):
        alpha = (k + 2.0) / (4.0 * smooth)
        r = 1.0 / (2.0 * alpha * smooth)
        x = r * z + (1.0 - r) * v
        g = X.T @ Logistic().slope(X @ x, y) / len(X)
        v = ball.project(x - g / smooth)
        z = ball.project(z - alpha * (g + noise * rng.normal(size=g.shape)))
    return v


def test_printed_single_step_returns_exact_gradient_unlike_ours():
    X, y, spec, rows = augmented(intercept=0.0)
    other = y.copy()
    other[0] = -other[0]
    shown = [printed(X, y, 1, 1e3, seed) for seed in range(3)]
    np.testing.assert_array_equal(shown[0], shown[1])
    # Whoever knows all other rows reads the first one's label off the output, with certainty.
    np.testing.assert_array_equal(shown[0], shown[2])
    assert not np.array_equal(printed(X, other, 1, 1e3, 0), shown[0])
    # With more steps the last gradient is still exact given the point where it is taken.
    assert not np.array_equal(printed(X, y, 2, 1e3, 0), printed(X, y, 2, 1e3, 1))
    problem = Problem(Logistic(), constraint=L2Ball(0.8))
    plan = AcceleratedMirrorDescent(n_steps=1).plan(problem, GaussianDP(1.0), spec)
    ours = [run(plan, rows, SeededNoise(seed)).w for seed in range(3)]
    assert len({w.tobytes() for w in ours}) == 3
    assert plan.event == Gaussian(plan.method.noise_multiplier)
    assert plan.method.noise_multiplier == pytest.approx(1.0)


def test_every_noisy_gradient_is_used_and_no_other():
    _, _, spec, rows = augmented()
    solver = AcceleratedMirrorDescent(n_steps=5, step_size=0.5, clip=10.0)
    plan = solver.plan(Problem(Logistic()), GaussianDP(1.0), spec)
    released = []

    def keeping(add):
        def kept(*args):
            released.append(add(*args))
            return released[-1]

        return kept

    with planted_noise(keeping):
        w = run(plan, rows, SeededNoise(0)).w
    z = v = np.zeros(D + 1)
    for k, noisy in enumerate(released):
        r = 2.0 / (k + 2.0)
        z = z - 0.5 / r * noisy / spec.n_rows
        v = r * z + (1.0 - r) * v
    assert len(released) == 5
    np.testing.assert_allclose(w, v, atol=1e-9)


# Settings.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_steps", 0),
        ("n_steps", 1.5),
        ("step_size", 0.0),
        ("step_size", math.inf),
        ("clip", -1.0),
        ("clip", math.nan),
    ],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        AcceleratedMirrorDescent(**{name: value})


@pytest.mark.parametrize("loss", [Hinge(), Poisson(), Savage()], ids=repr)
def test_losses_that_are_not_smooth_and_convex_are_refused(loss):
    _, _, spec, _ = make(loss)
    with pytest.raises(ValueError, match="loss must be convex with a bounded second derivative"):
        AcceleratedMirrorDescent().plan(Problem(loss), GaussianDP(1.0), spec)


def test_problems_without_a_geometry_are_refused():
    _, _, spec, _ = make()
    for problem, name in (
        (Problem(Logistic(), constraint=Box(0.0, 1.0)), "constraint"),
        (Problem(Logistic(), L2(0.1), L1Ball(1.0)), "regularizer"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            AcceleratedMirrorDescent().plan(problem, GaussianDP(1.0), spec)


@pytest.mark.parametrize("clip", [1e-17, 1e17])
def test_clips_beyond_the_range_of_floats_are_refused(clip):
    solver = AcceleratedMirrorDescent(clip=clip)
    with pytest.raises(ValueError, match="clip"):
        solver.plan(Problem(Logistic()), GaussianDP(1.0), DataSpec(100, 3))


@pytest.mark.parametrize("allowed", SETS, ids=repr)
def test_defaults_are_sane_functions_of_public_facts(allowed):
    problem = Problem(Logistic(), constraint=allowed)
    for n, d, epsilon in itertools.product((1, 1000, 10**7), (1, 100, 10**5), (0.01, 10.0)):
        budget, spec = ApproximateDP(epsilon, 1e-6), DataSpec(n, d)
        method = AcceleratedMirrorDescent().plan(problem, budget, spec).method
        assert 10 <= method.n_steps <= 400
        assert 0.0 < method.step_sizes[0] < math.inf
        assert 0.0 < method.coefficient_noise < math.inf


def test_steps_follow_the_width_of_the_set():
    # Theorem 5.4: T grows with n and epsilon, and where the set is thinner in noise's directions.
    def steps(allowed, n=10**5, d=100, epsilon=1.0):
        budget, spec = ApproximateDP(epsilon, 1e-6), DataSpec(n, d)
        problem = Problem(Logistic(), constraint=allowed)
        return AcceleratedMirrorDescent().plan(problem, budget, spec).n_steps

    assert steps(L1Ball(1.0)) > 2 * steps(L2Ball(1.0))
    assert steps(L2Ball(4.0)) == pytest.approx(2 * steps(L2Ball(1.0)), abs=2)
    assert steps(L2Ball(1.0), n=4 * 10**5) == pytest.approx(2 * steps(L2Ball(1.0)), abs=2)
    assert steps(L2Ball(1.0), epsilon=0.3) < steps(L2Ball(1.0)) < steps(L2Ball(1.0), epsilon=3.0)
