"""Random intercepts: exact algebra, accuracy, coverage, planted errors, and accounting."""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import integrate, sparse, stats
from sklearn.metrics import roc_auc_score

from dpglm import LogisticRegression, PoissonRegressor
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L1, Gamma, Logistic, Problem, Squared
from dpglm.solvers import RandomIntercepts, run
from dpglm.solvers.second_order import random_intercepts as module
from dpglm.solvers.second_order.posterior import Posterior
from dpglm.solvers.second_order.structured import (
    LevelPosterior,
    Structured,
    curvature_of_levels,
)
from tests.planted import kept_noise

RNG = np.random.default_rng(3)


def structured(size=9, n_fixed=2, extra=1):
    """Return a Hessian and an error covariance with common sides."""
    diagonal = np.concatenate([np.zeros(n_fixed), RNG.uniform(1.0, 3.0, size - n_fixed)])
    units = np.eye(size)[:, :n_fixed]
    crossed = np.vstack([np.zeros((n_fixed, n_fixed)), 0.2 * RNG.normal(size=(size - n_fixed, 2))])
    more = np.vstack([np.zeros((n_fixed, extra)), RNG.normal(size=(size - n_fixed, extra))])
    sides, one = np.hstack([units, crossed, more]), np.eye(n_fixed)
    core = np.zeros((sides.shape[1],) * 2)
    core[:n_fixed, :n_fixed] = 5.0 * one
    core[:n_fixed, n_fixed : 2 * n_fixed] = core[n_fixed : 2 * n_fixed, :n_fixed] = one
    core[-extra:, -extra:] = 0.1 * np.eye(extra)
    error = Structured(0.5 * diagonal + 1.0, sides, 0.5 * core)
    return Structured(diagonal, sides, core), error


def test_a_level_of_one_row_stops_no_fit():
    """The curvature of all rows together vanished in these, and its logarithm is needed."""
    spec = DataSpec(100, 3, row_norm=math.sqrt(2.0), intercept=1.0)
    solver, budget = RandomIntercepts(((1, 3),), "model"), ApproximateDP(4.0, 1e-2)
    plan = solver.plan(Problem(Logistic()), budget, spec)
    X, y = np.array([[1.0, 1.0, 0.0]] + [[0.8, 0.0, 1.0]] * 99), np.array([1.0] + [-1.0] * 99)
    for seed in (32, 51, 114, 136):
        found = run(plan, prepare_rows(X, y, spec), SeededNoise(seed))
        assert np.isfinite(found.w).all()
        assert np.isfinite(found.uncertainty.covariance).all()


def test_structured_algebra_is_that_of_dense_matrices():
    _, matrix = structured()
    dense, x = matrix.dense, RNG.normal(size=(9, 2))
    inverse, log_determinant = matrix.inverted()
    np.testing.assert_allclose(inverse.dense, np.linalg.inv(dense), atol=1e-12)
    assert log_determinant == pytest.approx(np.linalg.slogdet(dense)[1])
    np.testing.assert_allclose(matrix.times(x), dense @ x)
    np.testing.assert_allclose(matrix.times(x[:, 0]), dense @ x[:, 0])
    np.testing.assert_allclose(matrix.entries, np.diag(dense))
    np.testing.assert_allclose(
        Structured.mean([matrix, inverse]).dense, (dense + inverse.dense) / 2
    )


def test_level_posterior_is_the_dense_one():
    hessian, error = structured()
    pooled, fixed = RNG.normal(size=9), np.array([[4.0, 1.0], [1.0, 9.0]])
    for variances in (RNG.uniform(0.1, 2.0, 7), np.zeros(7)):
        prior = np.zeros((9, 9))
        prior[:2, :2], prior[2:, 2:] = fixed, np.diag(variances)
        found = LevelPosterior(hessian, error, pooled)
        mean, covariance = found.at(fixed, variances)
        dense = Posterior.of(prior, hessian.dense, error.dense, pooled)
        np.testing.assert_allclose(mean, dense.mean, atol=1e-10)
        np.testing.assert_allclose(covariance.dense, dense.covariance, atol=1e-10)
        np.testing.assert_allclose(covariance.columns(2), dense.covariance[:, :2], atol=1e-10)
        spread = error.dense + hessian.dense @ prior @ hessian.dense
        exact = stats.multivariate_normal.logpdf(pooled, cov=spread)
        constant = 4.5 * math.log(2.0 * math.pi)
        assert found.likelihood(fixed, variances) == pytest.approx(exact + constant)


@pytest.mark.parametrize("seen", [-3.0, 0.0, 2.0, 30.0])
def test_curvature_of_levels_is_the_posterior_mean(seen):
    noise, mean = 1.5, 4.0

    def moment(power):
        def density(h):
            return h**power * math.exp(-h / mean - 0.5 * ((seen - h) / noise) ** 2)

        return integrate.quad(density, 0.0, 80.0, points=[max(seen, 0.1)])[0]

    means, variances = curvature_of_levels(np.array([seen]), noise, mean)
    expected = moment(1) / moment(0)
    assert means[0] == pytest.approx(expected, rel=1e-6)
    assert variances[0] == pytest.approx(moment(2) / moment(0) - expected**2, rel=1e-5)


def test_curvature_of_equal_levels_is_their_mean():
    seen = 4.0 + 3.0 * np.random.default_rng(0).normal(size=2000)
    means, variances = curvature_of_levels(seen, 3.0, 4.0)
    np.testing.assert_allclose(means, 4.0, atol=1.0)
    assert variances.max() < 1.0


def drawn(seed, n=20_000, sizes=(50,), numbers=1, positive=0.5, scales=(0.5,), power=1.0):
    """Return rows with Zipf factors after even numbers, labels, and the levels' effects."""
    rng = np.random.default_rng([seed, n, sum(sizes)])
    X = rng.uniform(-1.0, 1.0, (n, numbers))
    eta, effects, blocks = X @ np.linspace(1.0, 0.5, numbers), [], [sparse.csr_array(X)]
    for size, scale in zip(sizes, scales, strict=True):
        shares = 1.0 / np.arange(1, size + 1) ** power
        codes = rng.choice(size, n, p=shares / shares.sum())
        effects.append(scale * rng.normal(size=size))
        eta = eta + effects[-1][codes]
        ones = sparse.csr_array((np.ones(n), (np.arange(n), codes)), shape=(n, size))
        blocks.append(ones)
    noisy = eta + rng.logistic(size=n)
    y = (noisy > np.quantile(noisy, 1.0 - positive)).astype(int)
    return sparse.csr_array(sparse.hstack(blocks)), y, effects


def blocks_of(sizes, numbers=1):
    ends = np.cumsum([numbers, *sizes]).tolist()
    return tuple(itertools.pairwise(ends))


def model_of(sizes, seed, epsilon=1.0, numbers=1, **options):
    return LogisticRegression(
        C=math.inf,
        classes=[0, 1],
        delta=1e-5,
        epsilon=epsilon,
        random_state=seed,
        row_norm=math.sqrt(numbers + len(sizes)),
        solver=RandomIntercepts(blocks_of(sizes, numbers)),
        **options,
    )


def quietly(fit, *arguments):
    """Fit without the warnings of seeded and repeated fits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*arguments)


def measured(seeds, epsilon):
    """Return error and coverage of 50 levels, and whether the scale's interval is right."""
    errors, covered, right = [], [], []
    for seed in seeds:
        X, y, (effects,) = drawn(seed)
        inference = quietly(model_of((50,), seed, epsilon, inference=True).fit, X, y).inference_
        gaps = inference.params[2:] - effects
        # The intercept is the mean of the labels' quantile.
        gaps -= gaps.mean()
        errors.append(np.sqrt(np.mean(gaps**2)))
        covered.append(np.mean(np.abs(gaps) <= 1.96 * inference.standard_errors[2:]))
        ((_, low, high),) = inference.variance_components.values()
        right.append(low <= 0.5 <= high)
    return np.mean(errors), np.mean(covered), np.mean(right)


@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 0.20), (8.0, 0.165)])
def test_zipf_levels_are_accurate_and_covered(epsilon, most):
    error, covered, right = measured(range(4), epsilon)
    assert error <= most
    assert 0.90 <= covered <= 0.99
    assert right >= 0.75


def test_intervals_without_the_noise_do_not_cover(monkeypatch):
    original = module.RandomInterceptsMethod._error

    def blind(self, state, covariance, way, noise):
        return original(self, state, covariance, way, 1e-3 * noise)

    honest = measured(range(3), 0.3)[1]
    monkeypatch.setattr(module.RandomInterceptsMethod, "_error", blind)
    assert measured(range(3), 0.3)[1] < 0.87 < 0.9 < honest


def test_levels_without_effect_do_no_harm():
    sizes = (60, 300)
    X, y, _ = drawn(0, 30_000, sizes, 3, 0.03, (0.5, 0.0), 0.7)
    train, test = slice(0, 20_000), slice(20_000, None)
    model = quietly(model_of(sizes, 0, numbers=3).fit, X[train], y[train])
    chances = model.predict_proba(X)[:, 1]
    plain = LogisticRegression(
        C=math.inf, classes=[0, 1], delta=1e-5, epsilon=1.0, random_state=0, row_norm=math.sqrt(3)
    )
    without = quietly(plain.fit, X[train, :3], y[train]).predict_proba(X[test, :3])[:, 1]
    assert roc_auc_score(y[test], chances[test]) >= roc_auc_score(y[test], without) - 0.003
    assert chances[train].mean() == pytest.approx(y[train].mean(), rel=0.15)
    assert np.std(model.coef_[0, 63:]) < 0.1


def stays(seed, n=24_000, wards=300):
    """Return stays with rare diagnoses after numbers, labels, and the fixed effects."""
    rng = np.random.default_rng(seed)
    shares = [0.22, 0.18, 0.15, 0.12, 0.1, 0.08, 0.06, 0.04, 0.025, 0.015, 0.007, 0.003]
    diagnosis = np.eye(12)[rng.choice(12, n, p=shares)][:, 1:]
    sex, emergency, missing = (rng.random((n, 3)) < [0.48, 0.4, 0.06]).astype(float).T
    age, crp = rng.normal(0.0, 0.4, n), rng.normal(0.15 * emergency, 0.3)
    X = np.column_stack([age, sex, emergency, diagnosis, missing, crp]).clip(-1.0, 1.0)
    of_diagnosis = [0.1, -0.1, 0.3, 0.2, -0.2, 0.4, 0.1, 0.6, 0.5, 0.8, 1.0]
    effects = np.array([0.6, 0.2, 0.35, *of_diagnosis, 0.25, 0.6])
    ward = rng.choice(wards, n, p=rng.dirichlet(np.ones(wards)))
    eta = X @ effects - 2.8 + 0.34 * rng.normal(size=wards)[ward]
    ones = sparse.csr_array((np.ones(n), (np.arange(n), ward)), shape=(n, wards))
    return sparse.csr_array(sparse.hstack([X, ones])), eta + rng.logistic(size=n) > 0.0, effects


def beside_wards(fits):
    """Return coverage, errors of `sex` relative to those without wards, and intercepts."""
    covered, longer, intercepts = [], [], []
    for seed in range(fits):
        X, y, effects = stays(seed)
        model = model_of((300,), seed, numbers=len(effects), inference=True)
        inference = quietly(model.fit, X, y.astype(int)).inference_
        plain = model_of((300,), seed, numbers=len(effects), inference=True)
        plain.set_params(solver="auto")
        without = quietly(plain.fit, X[:, : len(effects)], y.astype(int)).inference_
        errors = inference.standard_errors[: len(effects) + 1]
        gaps = inference.params[1 : len(effects) + 1] - effects
        covered.append(np.abs(gaps) <= 1.96 * errors[1:])
        longer.append(errors[2] / without.standard_errors[2])
        intercepts.append(inference.params[0])
    return np.mean(covered), np.array(longer), np.array(intercepts)


@pytest.mark.parametrize("fits", [3, 20])
def test_rare_columns_beside_wards_are_estimated(fits, monkeypatch):
    """Planted: a Hessian that keeps its noise, and an approach without memory."""
    covered, longer, intercepts = beside_wards(fits)
    assert covered >= 0.9
    assert np.median(longer) <= 1.5
    assert longer.max() <= 4.0
    assert np.abs(intercepts + 2.8).max() < 1.0
    with monkeypatch.context() as planted:
        planted.setattr(
            module, "whitened_hessian", lambda seen, noise, like: kept_noise(seen, noise)
        )
        assert np.median(beside_wards(fits)[1]) > 2.0
    if fits == 20:
        sound = module.RandomInterceptsMethod._ahead

        def forgetful(self, state):
            return sound(self, dataclasses.replace(state, visited=()))

        monkeypatch.setattr(module.RandomInterceptsMethod, "_ahead", forgetful)
        assert beside_wards(fits)[1].max() > 4.0


def test_counts_have_random_intercepts():
    rng = np.random.default_rng(0)
    codes, effects = rng.integers(0, 30, 8000), 0.4 * rng.normal(size=30)
    y = np.minimum(rng.poisson(np.exp(0.5 + effects[codes])), 30)
    model = PoissonRegressor(
        alpha=0.0,
        delta=1e-5,
        epsilon=2.0,
        inference=True,
        random_state=0,
        row_norm=1.0,
        solver=RandomIntercepts(((0, 30),)),
        target_bounds=(0, 30),
    )
    inference = quietly(model.fit, np.eye(30)[codes], y).inference_
    gaps = inference.params[1:] - effects
    gaps -= gaps.mean()
    assert np.sqrt(np.mean(gaps**2)) < 0.15
    assert np.mean(np.abs(gaps) <= 1.96 * inference.standard_errors[1:]) > 0.8


def test_levels_without_rows_keep_the_prior():
    X, y, _ = drawn(1)
    X = sparse.csr_array(sparse.hstack([X, np.zeros((len(y), 2))]))
    model = model_of((52,), 0, inference=True)
    inference = quietly(model.fit, X, y).inference_
    assert np.abs(model.coef_[0, -2:]).max() < 0.2
    assert set(inference.names[-2:]) <= set(inference.of_prior)
    assert np.isfinite(inference.standard_errors).all()
    scale = math.sqrt(inference.estimates.prior[-1, -1])
    assert inference.standard_errors[-1] == pytest.approx(scale, rel=0.2)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_budget_is_that_of_the_releases(adjacency):
    from dp_accounting.pld import privacy_loss_distribution as pld

    data = DataSpec(5000, 12, intercept=1.0)
    solver = RandomIntercepts(((2, 7), (7, 12)), "model")
    plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data, adjacency)
    square = sum(one.count * (one.sensitivity / one.noise_std) ** 2 for one in plan.method.releases)
    exact = pld.from_gaussian_mechanism(1.0 / math.sqrt(square), value_discretization_interval=1e-4)
    assert 0.98 <= exact.get_epsilon_for_delta(1e-5) <= 1.001


@pytest.mark.parametrize(
    ("changes", "problem", "says"),
    [
        ({}, Problem(Gamma()), "loss"),
        ({}, Problem(Squared()), r"write C\(ward\)"),
        ({}, Problem(Logistic(), L1(0.1)), "regularizer must be none or L2"),
        ({"intercept": 0.0}, Problem(Logistic()), "fit_intercept must be True"),
        ({"n_features": 5}, Problem(Logistic()), "pooled must be increasing blocks"),
        ({"n_features": 400}, Problem(Logistic()), "at most 300 besides pooled levels"),
    ],
)
def test_random_intercepts_refuse_before_any_row(changes, problem, says):
    data = dataclasses.replace(
        DataSpec(1000, 6, intercept=1.0, target_low=0.1, target_high=9.0), **changes
    )
    with pytest.raises(ValueError, match=says):
        RandomIntercepts(((1, 6),)).plan(problem, GaussianDP(1.0), data)


def test_random_intercepts_refuse_the_robust_covariance():
    with pytest.raises(ValueError, match="inference must be True or False for pooled factors"):
        RandomIntercepts(((0, 2),)).with_inference("robust")
