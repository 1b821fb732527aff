"""Means that are exponentials of scores: near a private mean under large noise, never far off."""

from __future__ import annotations

import numpy as np
import pytest

import dpglm
from dpglm.problem import Gamma, NegativeBinomial, Poisson, Tweedie
from dpglm.report import load_model, save_model

FAMILIES = {
    "poisson": (dpglm.PoissonRegressor, {"alpha": 0}, 0.0, Poisson()),
    "negative binomial": (
        dpglm.NegativeBinomialRegressor,
        {"dispersion": 0.5},
        0.0,
        NegativeBinomial(0.5),
    ),
    "gamma": (dpglm.GammaRegressor, {"alpha": 0}, 1e-3, Gamma()),
    "tweedie": (dpglm.TweedieRegressor, {"alpha": 0}, 0.0, Tweedie(1.5)),
}


def rows(family, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    mean = np.exp(X @ [0.4, -0.6, 0.2])
    match family:
        case "poisson":
            y = rng.poisson(mean)
        case "negative binomial":
            y = rng.poisson(mean * rng.gamma(2.0, 0.5, n))
        case "gamma":
            y = np.maximum(rng.gamma(3.0, mean / 3.0), 1e-3)
        case _:
            y = np.array([rng.gamma(2.0, 0.5, k).sum() for k in rng.poisson(mean)])
    return X, y.astype(float)


def model_for(family, epsilon, seed=0, high=60.0, **options):
    make, settings, low, _ = FAMILIES[family]
    return make(
        target_bounds=(low, high),
        feature_bounds=(-1, 1),
        epsilon=epsilon,
        delta=1e-6,
        random_state=seed,
        **settings,
        **options,
    )


@pytest.mark.filterwarnings("ignore::dpglm.LowSignalWarning")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "epsilon"), [(200, 0.1), (200, 1.0), (2000, 0.1), (2000, 0.3)])
def test_little_budget_gives_about_a_private_mean(family, n, epsilon):
    """That noise of the whole budget is added to; means were a hundred times too large."""
    loss = FAMILIES[family][-1]
    lost, allowed = [], []
    for seed in range(9):
        X, y = rows(family, n, seed)
        model = model_for(family, epsilon, seed).fit(X, y)
        found = model.predict(X)
        assert found.max() < 60.0
        mu = model.solution_.plan.budget.gdp_mu()
        noise = np.random.default_rng(seed).normal() * 60.0 / (mu * n)
        private = np.clip(y.mean() + noise, 60.0 / max(mu * n, 2.0) / 2.0, 60.0)
        for into, mean in ((lost, found), (allowed, np.full(n, private))):
            into.append(float(np.mean(loss.value(np.log(mean), y))))
        at_mean = float(np.mean(loss.value(np.full(n, np.log(y.mean())), y)))
        lost[-1] -= at_mean
        allowed[-1] -= at_mean
    assert np.median(lost) < max(np.median(allowed), 0.05)


@pytest.mark.parametrize("family", FAMILIES)
def test_plenty_of_budget_gives_the_fit_without_privacy(family):
    X, y = rows(family, 4000)
    loss, A = FAMILIES[family][-1], np.column_stack([X, np.ones(4000)])
    w = np.array([0.0, 0.0, 0.0, np.log(y.mean())])
    for _ in range(50):
        z = A @ w
        w = w - np.linalg.solve((A.T * loss.curvature(z, y)) @ A, A.T @ loss.slope(z, y))
    for solver in ("auto", "newton"):
        model = model_for(family, 1e5, solver=solver).fit(X, y)
        np.testing.assert_allclose([*model.coef_, model.intercept_], w, atol=0.01)


def test_no_mean_exceeds_all_targets(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(2000, 3))
    y = rng.poisson(np.exp(2.5 * X[:, 0] + 2.5 * X[:, 1])).clip(0, 8)
    model = model_for("poisson", 1e3, high=8.0).fit(X, y)
    scores = X @ model.coef_ + model.intercept_
    assert scores.max() > np.log(8.0) + 0.5
    found = model.predict(X)
    np.testing.assert_allclose(found, np.exp(np.minimum(scores, np.log(8.0))))
    # Exposures multiply values within the bound.
    exposed = model.predict(X, exposure=np.full(2000, 3.0))
    np.testing.assert_allclose(exposed, 3.0 * found)
    save_model(model, tmp_path / "model.json")
    np.testing.assert_allclose(load_model(tmp_path / "model.json").predict(X), found)
    # Targets that grow with exposures do not bound rates.
    model = model_for("poisson", 1e3, high=8.0).fit(X, y, exposure=np.full(2000, 0.1))
    assert model.predict(X).max() > 8.0
