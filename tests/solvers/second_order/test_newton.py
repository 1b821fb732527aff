"""Newton: exact solutions where noise is small, sane where it is not, all as declared."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats
from sklearn.metrics import roc_auc_score

import dpglm
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.datasets import load_adult
from dpglm.oracle import projection as preconditioned
from dpglm.oracle.clipping import BalancedClipping, FlatClipping
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.targets import noisy_mean_slope
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import (
    L1,
    L2,
    GroupLasso,
    Hinge,
    Huber,
    L2Ball,
    Logistic,
    NoPenalty,
    Poisson,
    Problem,
    Savage,
    Simplex,
    Softmax,
    Squared,
)
from dpglm.solvers import Newton, NoisyGD, run
from dpglm.solvers.parts.defaults import slope_unit
from dpglm.solvers.second_order.likelihood import NormalScores
from dpglm.solvers.second_order.newton import NewtonMethod
from dpglm.tables.schema import Schema
from experiments.additive import generated
from tests.slowly import some_quickly

SPEC = DataSpec(600, 3, intercept=1.0)
NEARLY_FREE = GaussianDP(1e7)
PATIENT = {"n_steps": 150, "clip": 50.0}


def make_data(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d)) / math.sqrt(d)
    z = 3.0 * X @ np.linspace(1.0, -1.0, d) + 0.5
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)


def solve(X, y, spec, problem=None, budget=NEARLY_FREE, adjacency=Adjacency.ZERO_OUT, **settings):
    solver = Newton(**settings)
    plan = solver.plan(problem or Problem(Logistic()), budget, spec, adjacency)
    return run(plan, prepare_rows(X, y, spec), SeededNoise(0)).w


# 1. Where privacy is nearly free, the exact solution.


def gradient_norm(w, X, y, spec, penalty):
    A = np.column_stack([X, np.full(len(X), spec.intercept)])
    slopes = -y / (1.0 + np.exp(y * (A @ w)))
    return np.linalg.norm(A.T @ slopes / len(X) + penalty * w)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_logistic_regression_on_badly_scaled_columns(dtype, adjacency):
    # Scales 1 to 1/300, rotated: gradient descent would need thousands of steps.
    X, y = make_data()
    X = (
        X
        @ np.diag([1.0, 0.1, 1 / 300])
        @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    )
    spec = dataclasses.replace(SPEC, dtype=dtype)
    settings = {"n_steps": 60, "clip": 50.0}
    w = solve(X.astype(dtype), y, spec, adjacency=adjacency, **settings)
    assert gradient_norm(w, X, y, spec, 0.0) < 1e-5
    plan = NoisyGD(n_steps=60, clip=50.0).plan(Problem(Logistic()), NEARLY_FREE, spec)
    descent = run(plan, prepare_rows(X.astype(dtype), y, spec), SeededNoise(0)).w
    A = np.column_stack([X, np.ones(600)])
    losses = [np.logaddexp(0, -y * (A @ one)).mean() for one in (w, descent)]
    assert losses[1] - losses[0] > 0.003


def test_penalties_and_constraints_of_the_problem():
    X, y = make_data()
    w = solve(X, y, SPEC, Problem(Logistic(), L2(0.1), penalize_intercept=True), **PATIENT)
    assert gradient_norm(w, X, y, SPEC, 0.1) < 1e-5
    w = solve(X, y, SPEC, Problem(Logistic(), NoPenalty(), L2Ball(0.5)), **PATIENT)
    assert np.linalg.norm(w[:3]) == pytest.approx(0.5, abs=1e-9)
    w = solve(X, y, SPEC, Problem(Logistic(), L1(0.05)), **PATIENT)
    assert (w[:3] == 0.0).sum() == 2


def test_default_clip_and_steps_grow_with_budget():
    methods = [
        Newton()
        .plan(Problem(Logistic()), GaussianDP(mu), dataclasses.replace(SPEC, n_rows=n))
        .method
        for n, mu in ((10, 0.01), (1000, 0.1), (1000, 1.0), (10**6, 1.0))
    ]
    clips = [method.clip for method in methods]
    assert clips == sorted(clips)
    assert clips[0] == 0.15 * 2.0
    assert clips[-1] > 50.0
    assert [method.n_steps for method in methods][:1] == [10]
    assert [method.n_steps for method in methods][2:] == [60, 400]


# 2. Where it is not, finite; edges; real rows.


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 6), (5, 40), (30, 3)])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Softmax(), Hinge(), Poisson()], ids=repr)
def test_edges_are_defined(adjacency, n, d, loss):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(n, d))
    X[:, 0] = 1.0
    several = loss == Softmax()
    spec = DataSpec(
        n, d, n_outputs=4 if several else 1, intercept=1.0, target_low=0.0, target_high=1.0
    )
    y = np.zeros(n, dtype=int) if several else np.ones(n)
    for mu in (1e-3, 1e2):
        w = solve(X, y, spec, Problem(loss), GaussianDP(mu), adjacency)
        assert w.shape == spec.coefficient_shape
        assert np.isfinite(w).all()


def test_adult_at_epsilon_a_tenth():
    # Validation part of the training rows.
    adult = load_adult()
    schema = Schema.from_dict(adult.schema)
    X = schema.encode({name: column[adult.train] for name, column in adult.data.items()})
    y = schema.encode_target(adult.target[adult.train])
    fit = np.arange(len(X)) % 5 != 0
    model = dpglm.LogisticRegression(
        epsilon=0.1,
        delta=1e-5,
        solver="newton",
        row_norm=schema.row_norm,
        classes=schema.target.classes,
        random_state=0,
    ).fit(X[fit].astype(np.float32), y[fit])
    assert roc_auc_score(y[~fit] == model.classes_[1], model.decision_function(X[~fit])) > 0.87


# 3. Releases are as declared, and nothing else is used.


def test_rows_in_single_precision_give_the_same_result(monkeypatch):
    X, y = make_data()
    double = solve(X, y, SPEC, budget=GaussianDP(1.0))
    monkeypatch.setattr(preconditioned, "_MANY_ENTRIES", 1)
    single = solve(X, y, SPEC, budget=GaussianDP(1.0))
    assert not np.array_equal(single, double)
    np.testing.assert_allclose(single, double, rtol=2e-3)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("first_share", "n_steps"), [(0.2, 7), (0.5, 1)])
def test_accounting_is_exact(adjacency, first_share, n_steps):
    solver = Newton(first_share=first_share, n_steps=n_steps)
    plan = solver.plan(Problem(Logistic()), ApproximateDP(0.7, 1e-6), SPEC, adjacency)
    first, rest = plan.method.releases
    squares = [first.noise_multiplier**-2, n_steps * rest.noise_multiplier**-2]
    assert squares[0] == pytest.approx(first_share * sum(squares))
    # Balle and Wang (2018), Theorem 8, by SciPy's normal law.
    mu = math.sqrt(sum(squares))
    delta = stats.norm.cdf(mu / 2 - 0.7 / mu) - math.exp(0.7) * stats.norm.cdf(-mu / 2 - 0.7 / mu)
    assert delta == pytest.approx(1e-6, rel=1e-6)


def test_history_noise_equals_gradient_noise():
    spec = DataSpec(5, 400)
    rows = prepare_rows(np.ones((5, 400)), np.ones(5), spec, weights=np.zeros(5))
    plan = Newton(n_steps=10).plan(Problem(Logistic()), GaussianDP(1.0), spec)
    history = run(plan, rows, SeededNoise(0)).history
    ratios = [info.gradient_norm / info.noise_norm for info in history]
    np.testing.assert_allclose(ratios, 1.0, atol=0.1)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("n_steps", "least"), [(1, 0.9), (20, 0.05)])
def test_coefficient_noise_is_that_of_isotropic_rows(n_steps, least):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(3000, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    spec = DataSpec(3000, 10)
    plan = Newton(n_steps=n_steps).plan(Problem(Logistic()), GaussianDP(1.0), spec)
    rows = prepare_rows(X, rng.choice([-1.0, 1.0], 3000), spec)
    solutions = [run(plan, rows, SeededNoise(seed)) for seed in range(30)]
    spread = float(np.sqrt(np.var([one.w for one in solutions], axis=0).mean()))
    expected = float(np.sqrt(np.mean([one.coefficient_noise**2 for one in solutions])))
    assert least * expected < spread < 1.1 * expected
    assert expected < 1.2 * plan.coefficient_noise


def test_noise_of_a_rare_column_is_told_apart():
    """A column that one row in five hundred shows gets more noise, and the solution says so."""
    rng = np.random.default_rng(8)
    X = np.column_stack([rng.choice([-0.7, 0.7], 4000), 0.7 * (np.arange(4000) % 500 == 0)])
    spec = DataSpec(4000, 2)
    plan = Newton().plan(Problem(Logistic()), GaussianDP(0.3), spec)
    # With a clear signal nothing is shrunk.
    y = np.where(3.0 * X[:, 0] > rng.logistic(size=4000), 1.0, -1.0)
    rows = prepare_rows(X, y, spec)
    solutions = [run(plan, rows, SeededNoise(seed)) for seed in range(30)]
    spread = np.std([one.w for one in solutions], axis=0)
    expected = np.mean([one.coefficient_noise for one in solutions], axis=0)
    assert expected[1] > 3.0 * expected[0]
    assert (spread < 1.3 * expected).all()
    # A plan cannot know which column is rare.
    assert 0.4 < plan.coefficient_noise / expected[0] < 2.5


def test_noise_of_slopes_moves_the_intercept_of_a_rare_class():
    """Where it was taken along the intercept alone, half of the noise was reported."""
    rng = np.random.default_rng(9)
    X = rng.uniform(-1.0, 1.0, size=(5000, 5)) / math.sqrt(5.0)
    z = X @ np.linspace(-4.0, 4.0, 5) + rng.logistic(size=5000)
    y = np.where(z > np.quantile(z, 0.94), 1.0, -1.0)
    spec = DataSpec(5000, 5, intercept=1.0)
    plan = Newton().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), spec)
    rows = prepare_rows(X, y, spec)
    solutions = [run(plan, rows, SeededNoise(seed)) for seed in range(40)]
    spread = np.std([one.w for one in solutions], axis=0, ddof=1)
    said = np.sqrt(np.mean([one.coefficient_noise**2 for one in solutions], axis=0))
    assert 0.85 < said[-1] / spread[-1] < 1.5
    assert 0.85 < np.mean(said[:-1] / spread[:-1]) < 1.5


# 4. Settings.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_steps", 0),
        ("n_steps", 1.5),
        ("step_size", 0.0),
        ("clip", 0.0),
        ("clip", math.inf),
        ("first_share", 0.0),
        ("first_share", 1.0),
    ],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        Newton(**{name: value})


def test_problems_that_do_not_fit_are_refused():
    def plan(problem, spec=SPEC, **settings):
        return Newton(**settings).plan(problem, GaussianDP(1.0), spec)

    with pytest.raises(ValueError, match=r"loss must be convex.*Savage"):
        plan(Problem(Savage()))
    with pytest.raises(ValueError, match="n_features must be at most 1000"):
        plan(Problem(Logistic()), dataclasses.replace(SPEC, n_features=5000))
    with pytest.raises(ValueError, match="groups name feature 8"):
        plan(Problem(Logistic(), GroupLasso(1.0, ((8,),))))
    with pytest.raises(ValueError, match="clip must be 1e-15"):
        plan(Problem(Logistic()), clip=1e-20)


def test_a_start_outside_the_constraint_is_moved_inside():
    method = Newton().plan(Problem(Logistic(), constraint=Simplex()), GaussianDP(1.0), SPEC).method
    np.testing.assert_allclose(method.init(0).w, [1 / 3, 1 / 3, 1 / 3, 0.0])


@pytest.mark.parametrize(("loss", "curvature"), [(Logistic(), 0.25), (Huber(0.5), 1.0)], ids=repr)
def test_steps_have_units_of_curvature_and_weights(loss, curvature):
    """A heavier half doubles curvature in the basis; a bound that no row reaches does nothing."""
    X, y = make_data()
    for weights, mean in ((None, 1.0), (np.repeat([1.0, 3.0], 300), 2.0)):
        spec = dataclasses.replace(SPEC, weight_bound=5.0)
        plan = Newton().plan(Problem(loss), NEARLY_FREE, spec)
        rows = prepare_rows(X, y, spec, weights=weights)
        oracle = Oracle(rows, loss, Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
        state, _ = plan.method.step(plan.method.init(0), oracle)
        assert state.curvature == pytest.approx(mean * curvature, rel=1e-3)


def test_log_links_start_at_a_private_mean():
    """Coefficients of means that are a hundredth of their bound are found; they were near zero."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(5000, 2))
    y = rng.poisson(np.exp(X @ [0.8, -0.4])).astype(float)
    for solver in ("newton", "calibrated"):
        model = dpglm.PoissonRegressor(
            alpha=0, solver=solver, target_bounds=(0, 100), feature_bounds=(-1, 1), epsilon=1e3
        ).fit(X, y)
        np.testing.assert_allclose(model.coef_, [0.8, -0.4], atol=0.05)


def test_parameter_information_is_about_right():
    """Rows are drawn anew in every run, as it counts their sampling and the noise."""
    spec, claimed, found = DataSpec(2000, 3, row_norm=2.0, intercept=2.0), [], []
    plan = Newton().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), spec)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, size=(2000, 3))
        y = np.where(X @ [0.8, -0.5, 0.2] + rng.logistic(size=2000) > 0.0, 1.0, -1.0)
        solution = run(plan, prepare_rows(X, y, spec), SeededNoise(seed))
        found.append(solution.w)
        claimed.append(np.diag(np.linalg.inv(solution.precision)))
    ratio = np.mean(claimed, axis=0) / np.var(found, axis=0, ddof=1)
    assert (ratio > 0.4).all()
    assert (ratio < 2.5).all()


def response_of(solver, mu, deviation):
    """Response of a fit of 20,000 rows with normal residuals."""
    rng, n, d = np.random.default_rng(0), 20_000, 40
    X = rng.choice([-1.0, 1.0], size=(n, d)) / math.sqrt(d)
    y = np.clip(X @ np.linspace(0.5, -0.5, d) + deviation * rng.normal(size=n), -1.0, 1.0)
    spec = DataSpec(n, d, intercept=1.0, target_low=-1.0, target_high=1.0)
    plan = solver.plan(Problem(Squared()), GaussianDP(mu), spec)
    return run(plan, prepare_rows(X, y, spec), SeededNoise(0)).response


@pytest.mark.parametrize("deviation", [0.2, 0.4])
@pytest.mark.parametrize("mu", [0.2, 10.0])
def test_measured_curvature_is_share_of_unclipped_rows(mu, deviation):
    response = response_of(Newton(clip=0.3), mu, deviation)
    wanted = math.erf(0.3 / deviation / math.sqrt(2.0))
    # Noise stays in the changes between steps where it dominates them.
    assert response.curvature == pytest.approx(wanted, abs=0.03 if mu > 1.0 else 0.08)
    # No less than the mean squared slope of the clipped rows.
    normal = np.random.default_rng(1).normal(size=20_000)
    square = np.mean(np.clip(deviation * normal, -0.3, 0.3) ** 2)
    assert square <= response.dispersion * response.curvature <= 2.0 * square


@pytest.mark.parametrize("n_steps", [1, 2])
def test_curvature_of_few_steps_is_not_at_its_least(n_steps):
    # The least is that of residuals with the largest deviation: 0.24.
    assert response_of(Newton(n_steps, clip=0.3), 1.0, 0.2).curvature > 0.4


def test_residuals_deviate_by_their_range_at_most():
    assert response_of(Newton(clip=10.0), 1.0, 0.2).dispersion < 1.1


@pytest.mark.parametrize("mean", [-6.0, 0.0, 3.0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("reach", some_quickly([0.05, 0.3, 0.7, math.inf], 2))
def test_means_of_clipped_slopes_equal_integrals(mean, spread, reach):
    """Forty Gauss-Hermite nodes were off by up to 60 %."""

    def integral(of, *jumps):
        ends = np.sort(
            np.clip([-8.0, *jumps, *((np.arange(-30.0, 31.0) - mean) / spread), 8.0], -8, 8)
        )
        pieces = itertools.pairwise(ends)
        return sum(integrate.quad(of, a, b)[0] for a, b in pieces if b > a)

    def factor(p):
        return min(reach / max(p, 1.0 - p), 1.0)

    def bend(t):
        p = special.expit(mean + spread * t)
        return stats.norm.pdf(t) * p * (1.0 - p) * factor(p)

    def square(t):
        p = special.expit(mean + spread * t)
        return stats.norm.pdf(t) * p * (1.0 - p) * factor(p) ** 2

    jumps = [(one * special.logit(reach) - mean) / spread for one in (-1, 1) if reach < 1.0]
    found = NormalScores(mean, spread).clipped(Logistic(), DataSpec(10, 1, intercept=1.0), reach)
    assert found == pytest.approx((integral(bend, *jumps), integral(square, *jumps)), rel=1e-3)


@pytest.mark.parametrize("mean", [-2.0, 0.0])
@pytest.mark.parametrize("reach", [0.05, 0.3, 0.7])
def test_means_of_balanced_slopes_equal_integrals(mean, reach):
    spread, square = 1.5, 0.0
    t, one = np.linspace(-8.0, 8.0, 4001), np.ones(4001)
    shares = stats.norm.pdf(t) * (t[1] - t[0])
    z = mean + spread * t
    p = special.expit(z)
    for y, probability in ((one, p), (-one, 1.0 - p)):
        slopes = Logistic().slope(z, y)
        scaled = BalancedClipping(reach).scale(slopes.copy(), one)
        assert np.abs(scaled).max() <= reach * (1.0 + 1e-12)
        square += shares @ (probability * scaled**2)
        bend = shares @ (scaled / slopes * p * (1.0 - p))
    scores = NormalScores(mean, spread)
    found = scores.clipped(Logistic(), DataSpec(10, 1, intercept=1.0), reach)
    assert found == pytest.approx((bend, square), rel=1e-3)


def test_balanced_slopes_have_mean_zero_in_a_right_model():
    z = np.linspace(-5.0, 5.0, 21)
    p, norms = special.expit(z), np.geomspace(0.1, 100.0, 21)
    for clipping, is_zero in ((BalancedClipping(0.3), True), (FlatClipping(0.3), False)):
        ups, downs = (
            clipping.scale(Logistic().slope(z, np.full(21, y)), norms.copy()) for y in (1.0, -1.0)
        )
        assert (np.abs(p * ups + (1.0 - p) * downs).max() < 1e-15) == is_zero


def test_noise_in_directions_of_few_rows_does_not_shrink_predictions(monkeypatch):
    table, first = generated("skewed, number"), slice(16_000)
    rows, target = table.rows(first), table.target[first]

    def score(seed):
        solver = Newton(clip=0.45)
        budget = {"epsilon": 0.3, "delta": 1e-5, "random_state": seed}
        model = table.additive(segments=6, solver=solver, **budget)
        return model.fit(rows, target).score(rows, target)

    assert min(map(score, range(4))) > 0.34
    # Planted: noise counts as much in each direction of the basis.
    monkeypatch.setattr(NewtonMethod, "_of_predictions", lambda _, state: state.basis.inverse)
    assert score(1) < 0.2


@pytest.mark.parametrize("loss", [Logistic(), Softmax(), Poisson()], ids=str)
def test_shrinkage_keeps_signal_that_exceeds_the_damped_noise(loss):
    # Noise that steps damp was taken as undamped, and a tenth of the signal was left.
    rng, n, d, outputs = np.random.default_rng(0), 10_000, 10, 3 if loss == Softmax() else 1
    X = rng.normal(size=(n, d))
    z = X @ rng.normal(size=(d, outputs)) / math.sqrt(d)
    if loss == Softmax():
        y, bounds = (z + rng.gumbel(size=z.shape)).argmax(axis=1), {}
    elif loss == Poisson():
        z *= 0.5
        y, bounds = (
            rng.poisson(np.exp(z[:, 0])).clip(0, 20),
            {"target_low": 0.0, "target_high": 20.0},
        )
    else:
        y, bounds = np.where(z[:, 0] > rng.logistic(size=n), 1.0, -1.0), {}
    data = DataSpec(n, d, outputs, row_norm=math.sqrt(d), intercept=math.sqrt(d), **bounds)
    rows = prepare_rows(X, y, data)
    plan, slopes = Newton().plan(Problem(loss), ApproximateDP(0.1, 1e-5), data), []
    z = z - z.mean(axis=1, keepdims=True) if outputs > 1 else z
    for seed in range(4):
        scores = X @ run(plan, rows, SeededNoise(seed)).w[:d].reshape(d, -1)
        slopes.append(float((z * scores).sum() / (z**2).sum()))
    # Flat clipping of softmax drives scores apart.
    assert 0.5 < np.mean(slopes) < 2.0, slopes


@pytest.mark.parametrize("reach", [0.02, 0.15, 0.3, 1.0])
def test_means_of_clipped_residuals_have_their_closed_form(reach):
    data = DataSpec(10, 1, intercept=1.0, target_low=1.0, target_high=5.0)
    unit, ratio = slope_unit(Squared(), data), reach / 0.2
    kept = special.erf(ratio / math.sqrt(2.0))
    square = kept - 2.0 * ratio * stats.norm.pdf(ratio) + ratio**2 * (1.0 - kept)
    bend, found = NormalScores(0.3, 2.0).clipped(Squared(), data, reach * unit)
    assert bend == pytest.approx(kept, rel=1e-3)
    assert found == pytest.approx((0.2 * unit) ** 2 * square, rel=1e-3)
    means = NormalScores(0.3, 2.0).curvature(Squared(), data, np.array([reach * unit]))
    assert means[1:, 0] == pytest.approx([0.0, means[0, 0]])


SKEWED = DataSpec(20_000, 10, intercept=1.0, target_low=-1.0, target_high=6.0)


def bias_of_mean(seed, epsilon=1.0):
    """Return the mean error of predictions, and the corrected one's claimed noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (20_000, 10)) / math.sqrt(10.0)
    y = (X @ np.linspace(-1.0, 1.0, 10) + rng.exponential(size=20_000) - 1.0).clip(-1.0, 6.0)
    plan = Newton(clip=0.15).plan(Problem(Squared()), ApproximateDP(epsilon, 1e-5), SKEWED)
    solution = run(plan, prepare_rows(X, y, SKEWED), SeededNoise(seed))
    row = np.append(X.mean(axis=0), 1.0)
    return row @ solution.w - y.mean(), row @ solution.noise_covariance.columns @ row


def test_clipped_residuals_do_not_bias_the_mean_prediction(monkeypatch):
    biases, variances = np.array([bias_of_mean(seed) for seed in range(12)]).T
    assert abs(biases).max() < 0.06
    assert np.var(biases) < 2.0 * np.mean(variances)
    # Planted: the mean of the residuals says nothing.
    monkeypatch.setattr(
        "dpglm.solvers.second_order.newton.noisy_mean_slope",
        lambda *given: 0.0 * noisy_mean_slope(*given),
    )
    planted = [bias_of_mean(seed)[0] for seed in range(6)]
    assert min(map(abs, planted)) > 0.1


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_residuals_are_paid_for(adjacency):
    budget = ApproximateDP(1.0, 1e-5)
    plan = Newton().plan(Problem(Squared()), budget, SKEWED, adjacency)
    squares = {one.quantity: one.count / one.noise_multiplier**2 for one in plan.method.releases}
    assert squares["clipped slopes"] > 0.0
    assert sum(squares.values()) == pytest.approx(budget.gdp_mu() ** 2, rel=1e-6)
    # Noise of more than a fiftieth of the bound would say nothing.
    few = Newton().plan(Problem(Squared()), ApproximateDP(0.05, 1e-5), SKEWED, adjacency)
    assert "clipped slopes" not in {one.quantity for one in few.method.releases}
