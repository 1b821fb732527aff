"""Sufficient statistics: least squares where noise is small, sane where it is not, as declared."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.optimize import minimize
from sklearn import linear_model

import dpglm
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.datasets import load_california_housing
from dpglm.oracle.moments import rows_in_basis
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, Box, GroupLasso, L1Ball, L2Ball, Logistic, Problem, Squared
from dpglm.solvers import SufficientStatistics, run
from dpglm.solvers.second_order import sufficient_statistics_method as solver_module
from tests.audit.attack import scripted_releases
from tests.slowly import first_quickly

SPEC = DataSpec(400, 3, intercept=1.0, target_low=-1.0, target_high=3.0)
NEARLY_FREE = GaussianDP(1e6)


def make_data(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d)) / math.sqrt(d)
    y = X @ np.linspace(1.0, -1.0, d) + 0.5 + 0.2 * rng.normal(size=n)
    return X, np.clip(y, -1.0, 3.0)


def solve(
    X,
    y,
    spec,
    problem=None,
    budget=NEARLY_FREE,
    adjacency=Adjacency.ZERO_OUT,
    seed=0,
    **settings,
):
    solver = SufficientStatistics(**settings)
    plan = solver.plan(problem or Problem(Squared()), budget, spec, adjacency)
    return run(plan, prepare_rows(X, y, spec), SeededNoise(seed)).w


# 1. Where privacy is nearly free, the exact solution.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("intercept", [0.0, 1.0, 7.0])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_least_squares(dtype, intercept, adjacency):
    X, y = make_data()
    spec = dataclasses.replace(SPEC, dtype=dtype, intercept=intercept)
    w = solve(X.astype(dtype), y, spec, adjacency=adjacency, clip=20.0)
    A = np.column_stack([X, np.full(len(X), intercept)]) if intercept else X
    np.testing.assert_allclose(w, np.linalg.lstsq(A, y, rcond=None)[0], atol=2e-4)


@pytest.mark.parametrize("kind", ["float32", "csr"])
@pytest.mark.parametrize(
    ("private", "known"),
    [
        (dpglm.LinearRegression, linear_model.LinearRegression()),
        (dpglm.Ridge, linear_model.Ridge(alpha=20.0)),
        (dpglm.Lasso, linear_model.Lasso(alpha=0.05, tol=1e-10)),
        (dpglm.ElasticNet, linear_model.ElasticNet(alpha=0.1, l1_ratio=0.3, tol=1e-10)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_estimators_find_scikit_learn_s_coefficients(private, known, kind):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(300, 3))
    y = np.clip(X @ [1.0, -2.0, 0.5] + 3.5 + 0.3 * rng.normal(size=300), 0.0, 7.0)
    known.fit(X, y)
    names = {"alpha", "l1_ratio"} & set(known.get_params())
    model = private(
        epsilon=1e6,
        delta=1e-2,
        row_norm=2.0,
        target_bounds=(0.0, 7.0),
        solver=SufficientStatistics(clip=20.0),
        random_state=0,
        **{name: known.get_params()[name] for name in names},
    ).fit(sparse.csr_array(X) if kind == "csr" else X.astype(kind), y)
    np.testing.assert_allclose(model.coef_, known.coef_, atol=2e-3)
    assert model.intercept_ == pytest.approx(known.intercept_, abs=2e-3)


@pytest.mark.parametrize("constraint", [L2Ball(0.4), L1Ball(0.4), Box(-0.1, 0.3)], ids=repr)
@pytest.mark.parametrize("penalize_intercept", [False, True])
def test_constraints_and_penalties_of_the_problem(constraint, penalize_intercept):
    X, y = make_data()
    problem = Problem(Squared(), L2(0.1), constraint, penalize_intercept)
    w = solve(X, y, SPEC, problem, clip=20.0)
    acted_on = 4 if penalize_intercept else 3
    assert constraint.contains(w[:acted_on])
    A = np.column_stack([X, np.ones(400)])

    def objective(w):
        w = np.concatenate([constraint.project(w[:acted_on]), w[acted_on:]])
        return ((A @ w - y) ** 2).mean() / 2.0 + 0.05 * (w[:acted_on] ** 2).sum()

    found = minimize(objective, w, method="Powell", options={"ftol": 1e-12, "xtol": 1e-9})
    assert objective(w) - found.fun < 1e-5


def test_default_clip_grows_towards_least_squares():
    clips = [
        SufficientStatistics().plan(Problem(Squared()), budget, spec).method.clip
        for spec, budget in (
            (dataclasses.replace(SPEC, n_rows=n), GaussianDP(mu))
            for n, mu in ((1, 0.01), (1000, 0.1), (1000, 1.0), (10**6, 1.0))
        )
    ]
    assert clips == sorted(clips)
    assert clips[0] == 1.0
    assert clips[-1] > 50.0


# 2. Where it is not, finite and within the constraint; edges.


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 6), (2, 1), (5, 40), (30, 3)])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_edges_are_defined(adjacency, n, d, intercept):
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, size=(n, d)), rng.uniform(-1, 3, size=n)
    X[:, 0] = 1.0
    spec = DataSpec(n, d, intercept=intercept, target_low=-1.0, target_high=3.0)
    for mu, clip in ((1e-3, None), (1e-3, 1e-9), (1.0, None), (1e3, None)):
        budget = GaussianDP(mu)
        w = solve(X, y, spec, budget=budget, adjacency=adjacency, clip=clip)
        assert w.shape == spec.coefficient_shape
        assert np.isfinite(w).all()
    assert np.linalg.norm(solve(X, y, spec, Problem(Squared(), L2(1e6)), budget)[:d]) < 1e-2


def test_constant_columns_and_constant_targets():
    X = np.full((400, 3), 0.25)
    for value in (0.0, 2.0):
        spec = dataclasses.replace(SPEC, target_low=value, target_high=value)
        w = solve(X, np.full(400, value), spec, budget=GaussianDP(5.0))
        predictions = np.column_stack([X, np.ones(400)]) @ w
        np.testing.assert_allclose(predictions, value, atol=0.2)


def test_indefinite_matrices_are_mended():
    X, y = make_data(n=20, d=10)
    spec = dataclasses.replace(SPEC, n_rows=20, n_features=10, intercept=0.0)
    plan = SufficientStatistics().plan(Problem(Squared()), GaussianDP(0.5), spec)
    negative = []
    original = np.linalg.eigh
    for seed in range(20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                np.linalg, "eigh", lambda m: negative.append(original(m)[0][0]) or original(m)
            )
            w = run(plan, prepare_rows(X, y, spec), SeededNoise(seed)).w
        # Shrinkage keeps predictions in the range of the targets, up to a small factor.
        assert np.abs(X @ w).max() < 20.0
    assert sum(value < 0.0 for value in negative) > 15


def test_better_than_a_constant_on_california_housing():
    # Validation part of the training rows.
    data = load_california_housing()
    X, y = data.data[data.train], data.target[data.train]
    columns = data.schema["columns"].values()
    bounds = tuple([column[end] for column in columns] for end in ("low", "high"))
    model = dpglm.LinearRegression(
        epsilon=1.0,
        delta=1e-5,
        solver="sufficient_statistics",
        feature_bounds=bounds,
        target_bounds=(0.0, 5.00001),
        random_state=0,
    ).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.6


# 3. Releases are as declared, and nothing else is used.


def results_of_the_same_releases():
    """Run on two data sets with the same released values; return the exact values, and w."""
    plan = SufficientStatistics().plan(Problem(Squared()), GaussianDP(1.0), SPEC)
    for seed in (0, 1):
        with scripted_releases(5, 10.0) as seen:
            rows = prepare_rows(*make_data(seed=seed), SPEC)
            w = run(plan, rows, SeededNoise(seed)).w
        yield seen[2][0], w


def test_a_smallest_eigenvalue_without_noise_is_refuted(monkeypatch):
    # AdaSSP's third release, with its noise forgotten.
    original = solver_module.noisy_weighted_moments

    def leaking(oracle, declared, view, shares):
        sums = original(oracle, declared, view, shares)
        (block,) = oracle.rows.blocks()
        rows = rows_in_basis(block, oracle.rows.spec, view.vectors, row_by_row=False)
        smallest = np.linalg.eigvalsh(rows.T @ rows)[0]
        return dataclasses.replace(sums, matrix=sums.matrix + smallest * np.eye(rows.shape[1]))

    monkeypatch.setattr(solver_module, "noisy_weighted_moments", leaking)
    (_, w_one), (_, w_two) = results_of_the_same_releases()
    assert not np.array_equal(w_one, w_two)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("first_share", [0.2, 0.5])
def test_accounting_is_exact(adjacency, first_share):
    budget = ApproximateDP(0.7, 1e-6)
    solver = SufficientStatistics(first_share=first_share)
    spec = dataclasses.replace(SPEC, n_rows=4000)
    method = solver.plan(Problem(Squared()), budget, spec, adjacency).method
    targets, first, *rest = (math.sqrt(one.count) / one.noise_multiplier for one in method.releases)
    assert [one.count for one in method.releases] == [1, 1, 1, 1, 8]
    assert first**2 == pytest.approx(first_share * (first**2 + np.square(rest).sum()))
    # Balle and Wang (2018), Theorem 8, by SciPy's normal law.
    mu = math.hypot(targets, first, *rest)
    delta = stats.norm.cdf(mu / 2 - 0.7 / mu) - math.exp(0.7) * stats.norm.cdf(-mu / 2 - 0.7 / mu)
    assert delta == pytest.approx(1e-6, rel=1e-6)


def test_coefficient_noise_is_upper_estimate_for_isotropic_rows():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(3000, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    spec = DataSpec(3000, 10, target_low=-1.0, target_high=1.0)
    plan = SufficientStatistics().plan(Problem(Squared()), GaussianDP(1.0), spec)
    rows = prepare_rows(X, np.clip(3.0 * X[:, 0], -1.0, 1.0), spec)
    solutions = [run(plan, rows, SeededNoise(seed)) for seed in range(30)]
    expected = float(np.sqrt(np.mean([one.coefficient_noise**2 for one in solutions])))
    assert 0.1 * plan.coefficient_noise < expected < 1.2 * plan.coefficient_noise


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("inference", [None, "model"])
def test_reported_noise_is_the_noise_of_common_and_rare_columns(intercept, inference):
    # The first column is 1 in one row of fifty; the last two are correlated.
    rng = np.random.default_rng(7)
    n, d = 8000, 5
    X = rng.uniform(-1, 1, size=(n, d))
    X[:, 0] = rng.random(n) < 0.02
    X[:, 4] = 0.8 * X[:, 3] + 0.2 * X[:, 4]
    y = np.clip(X @ [0.3, 0.2, -0.2, 0.3, -0.1] + 0.1 * intercept + 0.2 * rng.normal(size=n), -1, 1)
    end = math.sqrt(d) if intercept else 0.0
    spec = DataSpec(n, d, row_norm=math.sqrt(d), intercept=end, target_low=-1.0, target_high=1.0)
    solver = SufficientStatistics(inference=inference)
    plan = solver.plan(Problem(Squared()), GaussianDP(0.75), spec)
    rows = prepare_rows(X, y, spec)
    solutions = [run(plan, rows, SeededNoise(seed)) for seed in range(240)]
    spread = np.std([one.w for one in solutions], axis=0)
    reported = np.sqrt(np.mean([one.coefficient_noise**2 for one in solutions], axis=0))
    np.testing.assert_array_less(0.8, reported / spread)
    np.testing.assert_array_less(reported[1:] / spread[1:], 1.25)
    # Scores count rows of the rare column in full, the released matrix does not: the ratios are
    # 1.5 and 1.7, and above 2 with more rows and less budget.
    assert reported[0] < (1.25 if inference else 2.5) * spread[0]
    # A rare column has several times the noise of a common one.
    assert spread[0] > 3.0 * spread[1]


def test_a_rare_column_costs_the_others_little():
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, size=(20_000, 5))
        X[:, 0] = rng.random(len(X)) < 0.02
        y = np.clip(X @ [0.3, 0.2, -0.2, 0.3, -0.1] + 0.2 * rng.normal(size=len(X)), -1, 1)
        model = dpglm.LinearRegression(
            epsilon=1.0,
            delta=1e-6,
            feature_bounds=(-1, 1),
            target_bounds=(-1, 1),
            inference=True,
            random_state=seed,
        ).fit(X, y)
        without_privacy = 0.2 / np.sqrt(len(X) * np.var(X[:, 1:], axis=0))
        ratios.append(model.inference_.standard_errors[2:] / without_privacy)
    assert np.median(ratios) < 1.35


# 4. Never worse than the neutral model, and least squares in the limit.


def mean_squared_errors(n, d, epsilon, runs, *, intercept, mean=0.0, spread=0.3, signal=0.0):
    """Squared errors on fresh rows, over those of a private mean (or zero), averaged."""
    rng = np.random.default_rng(8)
    budget = ApproximateDP(epsilon, n**-2.0)
    end = math.sqrt(d) if intercept else 0.0
    spec = DataSpec(n, d, row_norm=math.sqrt(d), intercept=end, target_low=-1.0, target_high=1.0)
    plan = SufficientStatistics().plan(Problem(Squared()), budget, spec)
    ours, neutral = [], []
    for seed in range(runs):
        X = rng.uniform(-1, 1, size=(2 * n, d))
        v = rng.normal(size=d)
        score = X @ v / np.linalg.norm(v) * math.sqrt(3.0)
        noise = rng.normal(size=2 * n)
        y = mean + spread * (math.sqrt(signal) * score + math.sqrt(1.0 - signal) * noise)
        y = np.clip(y, -1.0, 1.0)
        w = run(plan, prepare_rows(X[:n], y[:n], spec), SeededNoise(seed)).w
        fresh = np.column_stack([X[n:], np.full(n, end)]) if intercept else X[n:]
        ours.append(np.mean((fresh @ w - y[n:]) ** 2))
        guesses = np.zeros(1)
        if intercept:
            guesses = rng.normal(y[:n].mean(), 1.0 / (n * budget.gdp_mu()), size=50)
        neutral.append(np.mean((np.clip(guesses, -1, 1)[:, None] - y[n:]) ** 2))
    return np.mean(ours) / np.mean(neutral)


# Rows, columns, and settings of the targets.
NEUTRAL = [
    (155, 33, {"intercept": False, "signal": 0.5}),
    (155, 33, {"intercept": True, "signal": 0.5}),
    (300, 20, {"intercept": False}),
    (300, 20, {"intercept": True, "mean": 0.8, "spread": 0.02, "signal": 0.5}),
    (100, 5, {"intercept": True, "mean": 0.5, "spread": 0.005}),
    (1000, 5, {"intercept": True, "mean": -0.9, "spread": 0.05}),
]


@pytest.mark.parametrize("epsilon", first_quickly(0.63, 1.0, 4.0))
@pytest.mark.parametrize(("n", "d", "targets"), NEUTRAL, ids=str)
def test_no_worse_than_a_private_mean(n, d, targets, epsilon):
    assert mean_squared_errors(n, d, epsilon, 30, **targets) < 1.02


def test_without_shrinkage_it_would_be_worse(monkeypatch):
    setting = {"intercept": False, "signal": 0.5}
    monkeypatch.setattr(
        solver_module,
        "shrunk_slopes",
        lambda matrix, g, *rest: (np.linalg.solve(matrix, g), matrix, g),
    )
    assert mean_squared_errors(155, 33, 0.63, 30, **setting) > 1.02


def test_where_slopes_would_be_noise_all_is_spent_on_the_mean():
    spec = DataSpec(300, 20, intercept=1.0, target_low=0.0, target_high=1.0)
    few, enough = (
        SufficientStatistics().plan(Problem(Squared()), GaussianDP(mu), spec).method
        for mu in (0.14, 0.16)
    )
    assert len(few.releases) == 1
    assert len(enough.releases) == 5
    # The share for slopes grows from nothing.
    assert enough.releases[0].noise_multiplier < 1.2 * few.releases[0].noise_multiplier


def test_signals_are_found():
    settings = {"intercept": True, "mean": 0.5, "spread": 0.1, "signal": 0.8}
    found = [mean_squared_errors(1000, 5, epsilon, 10, **settings) for epsilon in (0.3, 1.0, 4.0)]
    assert found[0] > found[1] > found[2]
    assert found[1] < 0.3
    assert found[2] < 0.21


def test_the_default_becomes_least_squares():
    rng = np.random.default_rng(9)
    n, d, end = 20_000, 10, math.sqrt(10)
    spec = DataSpec(n, d, row_norm=end, intercept=end, target_low=-1.0, target_high=1.0)
    X = np.clip(0.35 * rng.normal(size=(n, d)), -1, 1)
    X[:, 1] = np.clip(0.7 * X[:, 0] + 0.7 * X[:, 1], -1, 1)
    y = np.clip(0.1 + X @ np.linspace(-0.2, 0.2, d) + 0.1 * rng.normal(size=n), -1, 1)
    rows, A = prepare_rows(X, y, spec), np.column_stack([X, np.full(n, end)])
    exact = np.linalg.lstsq(A, y, rcond=None)[0]
    errors = 0.1 * np.sqrt(np.diag(np.linalg.inv(A.T @ A)))
    # Of noise alone: root mean squares over standard errors.
    most = {1.0: 1.1, 10.0: 0.4, 100.0: 0.3}
    for epsilon, bound in most.items():
        plan = SufficientStatistics().plan(Problem(Squared()), ApproximateDP(epsilon, 1e-5), spec)
        found = [(run(plan, rows, SeededNoise(seed)).w - exact) / errors for seed in range(5)]
        assert np.sqrt(np.mean(np.square(found))) < bound


def behind_least_squares(epsilon, **settings):
    """R2 of least squares less ours, on rows with few large ones that decide a wrong model."""
    rng = np.random.default_rng(10)
    n, d = 16_000, 5
    X = np.clip(np.exp(rng.normal(size=(n, d))) / 20.0 - 0.5, -1.0, 1.0)
    columns = (X - X.mean(axis=0)) / X.std(axis=0)
    z = columns.sum(axis=1) / math.sqrt(d)
    y = np.clip(0.25 * (np.tanh(z) + 0.3 * np.minimum(z**2, 4.0) + rng.normal(size=n)), -1, 1)
    end = math.sqrt(d)
    spec = DataSpec(n, d, row_norm=end, intercept=end, target_low=-1.0, target_high=1.0)
    A = np.column_stack([X, np.full(n, end)])
    best = np.linalg.lstsq(A, y, rcond=None)[0]
    budget = ApproximateDP(epsilon, 1e-5)
    ours = [solve(X, y, spec, budget=budget, seed=seed, **settings) for seed in range(3)]
    errors = [np.mean((A @ w - y) ** 2) - np.mean((A @ best - y) ** 2) for w in ours]
    return np.mean(errors) / np.var(y)


def test_long_rows_are_not_weighed_down_where_a_model_is_wrong():
    assert behind_least_squares(4.0) < 0.001
    assert behind_least_squares(1.0) < 0.003
    assert behind_least_squares(4.0, inference="model") < 0.001


def far_errors(epsilon, kind):
    """Estimates less those of least squares, over standard errors, where few errors are large.

    Targets are 1 in a few per cent of the rows and 0 else, or lognormal within wide bounds.
    """
    rng = np.random.default_rng(11)
    n, d, end = 20_000, 4, 2.0
    X = rng.uniform(-1, 1, size=(n, d))
    if kind == "rare":
        low, high = 0.0, 1.0
        y = (rng.random(n) < 0.05 + X @ [0.02, -0.02, 0.0, 0.01]) * 1.0
    else:
        low, high = -25.0, 25.0
        y = np.clip(X @ [0.5, -0.5, 0.0, 0.3] + np.exp(rng.normal(size=n)) / 2.16, low, high)
    spec = DataSpec(n, d, row_norm=end, intercept=end, target_low=low, target_high=high)
    A = np.column_stack([X, np.full(n, end)])
    best = np.linalg.lstsq(A, y, rcond=None)[0]
    errors = np.std(y - A @ best) * np.sqrt(np.diag(np.linalg.inv(A.T @ A)))
    budget = ApproximateDP(epsilon, 1e-5)
    return (
        np.mean([solve(X, y, spec, budget=budget, seed=k) for k in range(5)], 0) - best
    ) / errors


@pytest.mark.parametrize(("kind", "most"), [("rare", (2.0, 0.4)), ("lognormal", (5.0, 0.8))])
def test_residuals_far_from_all_others_count_as_budgets_grow(kind, most):
    for epsilon, bound in zip((1.0, 10.0), most, strict=True):
        assert np.abs(far_errors(epsilon, kind)).max() < bound


def test_residuals_cut_at_some_deviations_would_be_seen(monkeypatch):
    monkeypatch.setattr(solver_module, "first_empty", lambda shells, counts, noise: 0.0)
    monkeypatch.setattr(solver_module, "_SMALL", 0.0)
    assert np.abs(far_errors(1.0, "rare")).max() > 4.0


@pytest.mark.parametrize("inference", ["model", "robust"])
def test_moment_noise_is_that_of_the_plan(inference):
    def planned(spec, budget):
        solver = SufficientStatistics(inference=inference)
        return solver.plan(Problem(Squared()), budget, spec).method

    method = planned(SPEC, GaussianDP(3.0))
    last = solver_module._FINAL[inference].matrix
    # Three columns of mean square 1 and a level of a third; the largest of the noise's
    # eigenvalues is about the square root of twice the size times those of its diagonal.
    noise = 4.0 * method.releases[-1].noise_std / math.sqrt(last) * math.sqrt(8.0) / 400
    assert method.moment_noise == pytest.approx(noise)
    few, more = GaussianDP(1.0), dataclasses.replace(SPEC, n_rows=4000)
    assert planned(more, few).moment_noise < 0.15 * planned(SPEC, few).moment_noise


# 5. Settings.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first_share", 0.0),
        ("first_share", 1.0),
        ("clip", 0.0),
        ("clip", math.inf),
        ("inference", "exact"),
    ],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        SufficientStatistics(**{name: value})


def test_problems_that_do_not_fit_are_refused():
    def plan(problem=None, spec=SPEC, **settings):
        solver = SufficientStatistics(**settings)
        return solver.plan(problem or Problem(Squared()), GaussianDP(1.0), spec)

    with pytest.raises(ValueError, match=r"loss must be Squared\(\).*Logistic"):
        plan(Problem(Logistic()))
    with pytest.raises(ValueError, match="target_low and target_high must be finite"):
        plan(spec=dataclasses.replace(SPEC, target_high=math.inf))
    with pytest.raises(ValueError, match="n_features must be at most 1000"):
        plan(spec=dataclasses.replace(SPEC, n_features=5000))
    coarse = dataclasses.replace(SPEC, dtype="float32")
    with pytest.raises(ValueError, match="dtype must be 'float64'"):
        SufficientStatistics().plan(
            Problem(Squared()), GaussianDP(1.0), coarse, Adjacency.ADD_REMOVE
        )
    with pytest.raises(ValueError, match="groups name feature 8"):
        plan(Problem(Squared(), GroupLasso(1.0, ((8,),))))
    with pytest.raises(ValueError, match="clip must be 1e-15"):
        plan(clip=1e-20)


def test_uninformative_column_does_not_cost_the_others():
    # Noise in its coefficient is hundreds of times that in the first, and has little effect.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(5000, 3)) * [1.0, 0.1, 0.01]
    y = X @ [1.0, 5.0, 0.0] + 0.1 * rng.normal(size=5000)
    scores = [
        dpglm.Ridge(
            epsilon=1.0,
            solver="sufficient_statistics",
            feature_bounds=(-1, 1),
            target_bounds=(-2, 2),
            random_state=seed,
        )
        .fit(X, y)
        .score(X, y)
        for seed in range(20)
    ]
    assert min(scores) > 0.95
