"""Declared bounds of counts and amounts may be too wide: noise depends on the targets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpglm
from dpglm.solvers.second_order import likelihood as starts
from tests.slowly import slowly

N, TIMES = 6000, (1.0, 10.0, 100.0, 1000.0, 1e6)
RNG = np.random.default_rng(5)
X = RNG.uniform(-1.0, 1.0, size=(N, 3))
MEAN = np.exp(X @ [1.0, -0.5, 0.0] + 0.5)
SHAPE = np.array([1.0, -0.5, 0.0, 0.5])
# Model, targets and their least bound.
FAMILIES = {
    "poisson": (dpglm.PoissonRegressor(alpha=0.0), RNG.poisson(MEAN), 0.0),
    "gamma": (dpglm.GammaRegressor(alpha=0.0), RNG.gamma(2.0, MEAN / 2.0), 1e-3),
    "tweedie": (
        dpglm.TweedieRegressor(alpha=0.0),
        np.array([RNG.gamma(2.0, 0.5, k).sum() for k in RNG.poisson(MEAN)]),
        0.0,
    ),
    "negative binomial": (
        dpglm.NegativeBinomialRegressor(alpha=0.0),
        RNG.negative_binomial(2.0, 2.0 / (2.0 + MEAN)),
        0.0,
    ),
    "quasi-poisson": (
        dpglm.GeneralizedLinearRegressor(loss=dpglm.problem.Poisson(dispersion=None)),
        2.0 * RNG.poisson(MEAN / 2.0),
        0.0,
    ),
}
SOLVERS = ("newton", "newton_raphson")


def error(family, times, **options):
    """Return the root mean square error of coefficients over a few fits."""
    model, y, low = FAMILIES[family]
    bounds = (low, 20.0 * times)
    options = {"epsilon": 2.0, "feature_bounds": (-1, 1), "target_bounds": bounds} | options
    errors = []
    for seed in range(5):
        model = model.__sklearn_clone__().set_params(random_state=seed, **options)
        fitted = model.fit(X, y)
        errors.append(np.append(fitted.coef_, fitted.intercept_) - SHAPE)
    return float(np.sqrt(np.mean(np.square(errors))))


# Each family and each solver once; the other pairs repeat their evidence.
PAIRS = list(zip(FAMILIES, itertools.cycle(SOLVERS), strict=False))
OTHERS = [pair for pair in itertools.product(FAMILIES, SOLVERS) if pair not in PAIRS]


@pytest.mark.parametrize(("family", "solver"), [*PAIRS, *slowly(OTHERS)])
def test_wide_bounds_of_targets_cost_next_to_nothing(family, solver):
    first, *wider = (error(family, times, solver=solver) for times in TIMES)
    assert first < 0.12
    assert max(wider) < 1.6 * first + 0.02


@pytest.mark.parametrize("family", ["poisson", "tweedie"])
def test_wide_bounds_cost_nothing_without_an_intercept(family):
    first, wide = (
        error(family, times, fit_intercept=False, solver="newton_raphson") for times in (1.0, 1e4)
    )
    assert wide < 1.6 * first + 0.02


def test_planted_means_at_the_declared_bound_are_found(monkeypatch):
    sizes = starts.noisy_target_sizes
    none = lambda *given: [np.zeros_like(one) for one in sizes(*given)]  # noqa: E731
    monkeypatch.setattr(starts, "noisy_target_sizes", none)
    monkeypatch.setattr(starts, "_USUAL_PROBABILITY", 1.0)
    assert error("tweedie", 1000.0) > 2.0 * error("tweedie", 1.0)


@pytest.mark.parametrize("times", [1.0, 1000.0])
def test_additive_models_take_wide_bounds(times):
    schema = {
        "columns": {f"x{j}": {"type": "numeric", "low": -1, "high": 1} for j in range(3)},
        "target": {"name": "y", "type": "count", "high": 20.0 * times},
        "provenance": "public",
    }
    table = {f"x{j}": X[:, j] for j in range(3)}
    y = FAMILIES["poisson"][1]
    model = dpglm.AdditiveRegressor(schema, epsilon=2.0, random_state=0).fit(table, y)
    logs = np.log(model.predict(table) / MEAN)
    assert np.sqrt(np.mean(logs**2)) < 0.15


def test_wide_bounds_of_numbers_cost_additive_models_nothing():
    y = X[:, 0] + 2.0 + RNG.normal(0.0, 0.5, N)
    schema = {
        "columns": {f"x{j}": {"type": "numeric", "low": -1, "high": 1} for j in range(3)},
        "provenance": "public",
    }
    table = {f"x{j}": X[:, j] for j in range(3)}
    for times in TIMES:
        bounds = (-5.0 * times, 5.0 * times)
        model = dpglm.AdditiveRegressor(schema, target_bounds=bounds, random_state=0)
        predicted = model.fit(table, y).predict(table)
        assert np.std(predicted - X[:, 0]) < 0.1
        assert predicted.mean() == pytest.approx(2.0, abs=0.1)


def test_wide_tables_of_counts_take_wide_bounds():
    """Descent, which had more than 300 columns, started from the declared bound."""
    rng = np.random.default_rng(0)
    extra = rng.uniform(-1.0, 1.0, size=(N, 310))
    y = FAMILIES["poisson"][1]
    model = dpglm.PoissonRegressor(
        alpha=0.0, epsilon=8.0, feature_bounds=(-1, 1), target_bounds=(0, 1e5), random_state=0
    )
    predicted = model.fit(np.hstack([X, extra]), y).predict(np.hstack([X, extra]))
    assert predicted.mean() == pytest.approx(y.mean(), rel=0.15)
