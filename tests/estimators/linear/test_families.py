"""Regressors of families: without noise they are the maximum-likelihood fits of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, sparse, stats
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor as KnownGamma
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import PoissonRegressor as KnownPoisson
from sklearn.linear_model import QuantileRegressor as KnownQuantiles
from sklearn.linear_model import TweedieRegressor as KnownTweedie

from dpglm import (
    BinomialRegressor,
    GammaRegressor,
    GaussianDP,
    GeneralizedLinearRegressor,
    NegativeBinomialRegressor,
    NoisyGD,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
    certificate,
)
from dpglm.data.stream.stored import MappedRows
from dpglm.problem import Gamma, Pinball, Poisson, Tweedie
from dpglm.report import load_model, save_model
from dpglm.solvers import Constant

N = 400
QUIET = {
    "budget": GaussianDP(1e7),
    "row_norm": 2.0,
    "solver": NoisyGD(n_steps=600, step_size=1.0, clip=50.0, schedule=Constant()),
}


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N, 3))
    return rng, X, X @ [0.6, -0.8, 0.3] + 0.4


def maximum_likelihood(X, negative_log_likelihood):
    """Minimise a sum over rows, as a function of their scores."""
    A = np.column_stack([X, np.ones(len(X))])
    found = optimize.minimize(
        lambda w: negative_log_likelihood(A @ w) / len(X), np.zeros(4), tol=1e-12
    )
    return found.x


def close(model, w, atol=2e-4):
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), w, atol=atol)


def test_negative_binomial_is_the_maximum_likelihood_fit():
    rng, X, z = rows()
    y = rng.negative_binomial(1 / 0.5, 1 / (1 + 0.5 * np.exp(z)))
    w = maximum_likelihood(
        X, lambda z: -stats.nbinom.logpmf(y, 1 / 0.5, 1 / (1 + 0.5 * np.exp(z))).sum()
    )
    model = NegativeBinomialRegressor(dispersion=0.5, target_bounds=(0, 40), **QUIET)
    slow = NoisyGD(n_steps=3000, step_size=10.0, clip=50.0, schedule=Constant())
    assert y.max() <= 40
    close(model.set_params(solver=slow).fit(X, y), w)


@pytest.mark.parametrize(
    ("link", "probability"),
    [
        ("logit", lambda z: 1 / (1 + np.exp(-z))),
        ("probit", stats.norm.cdf),
        ("cloglog", lambda z: -np.expm1(-np.exp(z))),
    ],
)
@pytest.mark.parametrize("most", [1, 6])
def test_binomial_is_the_maximum_likelihood_fit(link, probability, most):
    rng, X, z = rows()
    trials = rng.integers(1, most + 1, N)
    k = rng.binomial(trials, probability(z))
    w = maximum_likelihood(X, lambda z: -stats.binom.logpmf(k, trials, probability(z)).sum())
    model = BinomialRegressor(link=link, weight_bound=float(most), **QUIET)
    step = NoisyGD(n_steps=1500, step_size=1.0 / most, clip=50.0, schedule=Constant())
    model.set_params(solver=step).fit(X, k / trials, sample_weight=trials)
    close(model, w)
    scores = X @ w[:3] + w[3]
    np.testing.assert_allclose(model.predict(X), probability(scores), atol=1e-3)


def test_binomial_of_labels_is_logistic_regression():
    rng, X, z = rows()
    y = rng.random(N) < 1 / (1 + np.exp(-z))
    known = LogisticRegression(C=1 / (0.1 * N), tol=1e-10).fit(X, y)
    model = BinomialRegressor(alpha=0.1, **QUIET).fit(X, y.astype(float))
    close(model, np.append(known.coef_, known.intercept_))


@pytest.mark.parametrize("quantile", [0.2, 0.5])
@pytest.mark.parametrize("alpha", [0.0, 0.03])
def test_quantiles_are_scikit_learn_s(quantile, alpha):
    rng, X, z = rows()
    y = z + rng.normal(size=N)
    known = KnownQuantiles(quantile=quantile, alpha=alpha).fit(X, y)
    # Subgradients jump, so the steps decay.
    solver = NoisyGD(n_steps=4000, step_size=0.5, clip=50.0)
    model = QuantileRegressor(quantile=quantile, alpha=alpha, target_bounds=(-5, 5), **QUIET)
    model.set_params(solver=solver).fit(X, y)
    close(model, np.append(known.coef_, known.intercept_), atol=0.02)


def test_the_ends_of_tweedie_s_powers_are_poisson_and_gamma():
    bounds = {"target_bounds": (0.5, 8.0), "row_norm": 1.0}
    for power, same, loss in (
        (1.0, PoissonRegressor(), Poisson(dispersion=None)),
        (2, GammaRegressor(), Gamma()),
    ):
        own, other = (
            model.set_params(alpha=0.3, **bounds).plan(100, 3)
            for model in (TweedieRegressor(power=power), same)
        )
        assert own.problem.loss == loss
        assert own.problem.regularizer == other.problem.regularizer
        assert own.data == other.data
    between = TweedieRegressor(power=1.2, alpha=0.3, **bounds).plan(100, 3)
    assert between.problem.loss == Tweedie(1.2)
    assert between.problem.regularizer.strength == pytest.approx(0.3 / 8.0**0.8)


def test_generic_regressor_accepts_them():
    for loss in (Gamma(), Tweedie(1.2), Pinball(0.3), Poisson()):
        plan = GeneralizedLinearRegressor(loss=loss, target_bounds=(0.5, 8.0), row_norm=1.0).plan(
            100, 3
        )
        scale = 3.75 if isinstance(loss, Pinball) else 8.0
        assert plan.problem.loss == loss.for_scaled_targets(scale)
        assert plan.data.target_high == pytest.approx(1.0)


def test_proportions_have_bounds_of_their_own_and_no_others():
    _, X, _ = rows()
    y = np.full(N, 0.5)
    model = BinomialRegressor(row_norm=1.0, solver=NoisyGD(n_steps=2)).fit(X, y)
    assert model.privacy_.fact("target_bounds").value == [0.0, 1.0]
    assert model.privacy_.fact("target_bounds").provenance == "declared"
    y[3] = 2.0
    with pytest.raises(ValueError, match="give the proportions y / trials"):
        model.fit(X, y)
    # Declared bounds clip, as in every regressor.
    model.set_params(target_bounds=(0.0, 1.0)).fit(X, y)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("known", "private"),
    [
        (KnownGamma(alpha=0.1), GammaRegressor()),
        (KnownPoisson(alpha=0.1), PoissonRegressor()),
        (KnownTweedie(power=1.4, alpha=0.1, link="log"), TweedieRegressor(power=1.4)),
    ],
    ids=repr,
)
def test_penalties_equal_scikit_learn_on_scaled_columns(known, private, layout):
    rng, X, z = rows()
    scale = np.array([1.0, 10.0, 0.1])
    y = np.clip(np.exp(z) * rng.gamma(4.0, 0.25, N), 0.01, 20.0)
    known = clone(known).set_params(tol=1e-10, max_iter=1000).fit(X, y)
    options = {**QUIET, "alpha": 0.1, "target_bounds": (0.01, 20.0)}
    of_rows = clone(private).set_params(**options).fit(layout(X), y)
    np.testing.assert_allclose(of_rows.coef_, known.coef_, atol=2e-3)
    np.testing.assert_allclose(of_rows.intercept_, known.intercept_, atol=2e-3)
    of_columns = clone(private).set_params(**options, feature_bounds=(-scale, scale))
    found = of_columns.fit(layout(X * scale), y)
    np.testing.assert_allclose(found.coef_ * scale, known.coef_, atol=2e-3)


@pytest.mark.parametrize("container", ["matrix", "mapped"])
@pytest.mark.parametrize(
    "model",
    [
        PoissonRegressor(target_bounds=(0.0, 8.0)),
        NegativeBinomialRegressor(target_bounds=(0.0, 8.0)),
        TweedieRegressor(target_bounds=(0.0, 8.0)),
        GammaRegressor(target_bounds=(0.1, 8.0)),
        BinomialRegressor(target_bounds=(0.0, 1.0)),
    ],
    ids=repr,
)
def test_negative_values_are_errors_as_in_a_schema(model, container):
    _, X, _ = rows()
    y = np.full(N, 0.5)
    y[3] = -1.0
    model = clone(model).set_params(row_norm=1.0, solver=NoisyGD(n_steps=2))
    given = (X, y) if container == "matrix" else (MappedRows(X, y),)
    with pytest.raises(ValueError, match=r"y must be numbers .*, got -1 in row 4"):
        model.fit(*given)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    "model",
    [
        GammaRegressor(target_bounds=(0.1, 8.0)),
        TweedieRegressor(target_bounds=(0.0, 8.0)),
        NegativeBinomialRegressor(target_bounds=(0.0, 8.0)),
        BinomialRegressor(link="cloglog"),
        BinomialRegressor(),
        QuantileRegressor(alpha=0.0, target_bounds=(0.0, 8.0)),
    ],
    ids=repr,
)
def test_certificates_and_files(model, tmp_path):
    rng, X, _ = rows()
    y = rng.uniform(0, 1, N)
    model.set_params(row_norm=1.8).fit(X, y)
    verdict = certificate.verify(model.privacy_)
    assert verdict.ok, verdict
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert not loaded.has_probabilities
    assert loaded.classes_ is None


def test_text_is_not_a_target_bound():
    _, X, _ = rows()
    with pytest.raises(ValueError, match=r"target_bounds must be a pair .* got \('0', 5\)"):
        PoissonRegressor(target_bounds=("0", 5), row_norm=1.0).fit(X, np.ones(N))


@pytest.mark.parametrize("power", [1.0, 1.01])
def test_the_scale_of_a_tweedie_variance_is_estimated(power):
    """At power 1 the variance was taken to be the mean, like that of counts."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    mean, excess = np.exp(X @ [0.5, -0.3] + 1.0), 3.0
    y = excess * rng.poisson(mean / excess)
    model = TweedieRegressor(
        power=power,
        alpha=0.0,
        inference=True,
        feature_bounds=(-1, 1),
        target_bounds=(0, 60),
        # At 1e3 noise in the variance alone moves standard errors by 4 %.
        epsilon=1e6,
    ).fit(X, y)
    A = np.column_stack([np.ones(len(X)), X])
    expected = np.sqrt(np.diag(np.linalg.inv((A.T * mean) @ A)) * excess)
    np.testing.assert_allclose(model.inference_.standard_errors, expected, rtol=0.05)


def test_counts_have_the_variance_of_their_mean():
    loss = PoissonRegressor(target_bounds=(0, 20), row_norm=1.0).plan(100, 2).problem.loss
    assert loss.dispersion == 1.0 / 20.0


@pytest.mark.parametrize(
    ("n", "epsilon", "most"), [(2000, 1.0, 6.0), (10_000, 1.0, 3.0), (3000, 1e4, 0.3)]
)
def test_default_quantiles_become_those_without_privacy(n, epsilon, most):
    """Errors in standard errors: neither shrunk to a tenth where rows are few, nor never sharp."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, 2))
    y = X @ [1.0, -2.0] + rng.normal(size=n)
    model = QuantileRegressor(
        quantile=0.9,
        alpha=0.0,
        target_bounds=(-8, 8),
        feature_bounds=(-1, 1),
        epsilon=epsilon,
        delta=1e-6,
        random_state=0,
    ).fit(X, y)
    error = np.sqrt(0.09 / n) / 0.175
    if epsilon < 1e4:
        expected = np.array([1.0, -2.0, 1.2816])
    else:
        known = KnownQuantiles(quantile=0.9, alpha=0.0).fit(X, y)
        expected = np.array([*known.coef_, known.intercept_])
    found = np.array([*model.coef_, model.intercept_])
    assert np.abs((found - expected) / (error * np.array([3**0.5, 3**0.5, 1.0]))).max() < most
