"""Newton-Raphson where rows say little: rare columns, columns without rows, classes apart."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dpglm import BinomialRegressor, GammaRegressor, LogisticRegression, PoissonRegressor
from dpglm.solvers.second_order.newton_raphson_method import NewtonRaphsonMethod

N = 10_000
KINDS = {
    "logistic": LogisticRegression(C=np.inf, classes=[0, 1], feature_bounds=(0, 1)),
    "poisson": PoissonRegressor(alpha=0.0, target_bounds=(0, 60), feature_bounds=(0, 1)),
    "gamma": GammaRegressor(alpha=0.0, target_bounds=(1e-3, 60), feature_bounds=(0, 1)),
}


def fitted(name, shares=(1.0, 1.0, 0.0), slopes=(1.0, -1.0, 0.0), seed=0, n=N, **options):
    """Fit columns that are 0 but in a share of the rows; those of all rows are uniform."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.uniform(size=n) if p == 1.0 else rng.uniform(size=n) < p for p in shares]
    )
    mean = np.exp(z := X @ np.array(slopes))
    drawn = {
        "logistic": lambda: (z + rng.logistic(size=n) > 0).astype(int),
        "poisson": lambda: rng.poisson(mean),
        "gamma": lambda: np.maximum(mean * rng.gamma(2.0, 0.5, n), 1e-3),
    }
    model = KINDS[name].__sklearn_clone__()
    options = {"epsilon": 1.0, "inference": True, "random_state": seed} | options
    return model.set_params(**options).fit(X, drawn[name]()).inference_


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_known_of_a_column_without_rows(name):
    inference = fitted(name)
    assert np.isinf(inference.standard_errors).tolist() == [False] * 3 + [True]
    assert inference.p_values[3] == 1.0
    assert inference.privacy_shares[3] == 1.0
    assert inference.conf_int()[3].tolist() == [-np.inf, np.inf]
    # Tests leave it out, means of rows without it do not depend on it.
    joint, others = inference.wald_test(["x1", "x2"]), inference.wald_test(["x1"])
    assert joint.df == others.df == 1
    assert joint.p_value == pytest.approx(others.p_value, rel=0.5)
    assert inference.wald_test(["x2"]).df == 0
    assert inference.wald_test(["x2"]).p_value == 1.0
    low, high = inference.prediction_interval([[0.5, 0.5, 0.0]])[0]
    assert high - low < 0.2 * high
    assert "Cannot be estimated at this budget: 'x2'" in str(inference)


def test_a_covariance_that_takes_the_hessian_to_be_seen_is_found(monkeypatch):
    """Planted: half of the columns without rows would be significant."""

    def rejections():
        return np.mean([fitted("poisson", seed=seed).p_values[3] < 0.05 for seed in range(12)])

    assert rejections() <= 1.0 / 12.0
    monkeypatch.setattr(NewtonRaphsonMethod, "_doubt", lambda self, state: None)
    assert rejections() > 0.25


def test_a_repeated_column_is_not_told_from_the_first():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=N)
    y = (x - 0.5 + rng.logistic(size=N) > 0).astype(int)
    model = KINDS["logistic"].__sklearn_clone__().set_params(inference=True, random_state=0)
    inference = model.fit(np.column_stack([x, x]), y).inference_
    assert np.isinf(inference.standard_errors).tolist() == [False, True, True]
    together = inference.wald_test([0.0, 1.0, 1.0])
    assert together.p_value < 0.001


def rare_reference(seed, n_levels=8, n=20_000, **options):
    """Fit a factor whose reference level 0.64 % of the rows have, beside ten other columns."""
    rng = np.random.default_rng(seed)
    shares = [0.0064, *np.full(n_levels - 1, 0.9936 / (n_levels - 1))]
    levels = rng.choice(n_levels, size=n, p=shares)
    X = np.column_stack(
        [levels[:, np.newaxis] == np.arange(1, n_levels), rng.uniform(-1, 1, size=(n, 10))]
    ).astype(float)
    z = 1.0 * (levels > 0) - 1.5 + 0.5 * X[:, n_levels - 1]
    y = (rng.uniform(size=n) < -np.expm1(-np.exp(z))).astype(float)
    options = {"inference": True, "random_state": seed, "feature_bounds": (-1, 1)} | options
    return BinomialRegressor(link="cloglog", **options).fit(X, y).inference_


@pytest.mark.parametrize("seed", range(4))
def test_effects_relative_to_a_rare_level_are_unknown(seed):
    inference = rare_reference(seed)
    unknown = np.isinf(inference.standard_errors)
    assert unknown[:8].all()
    assert not unknown[8:].any()
    # Levels but the reference are told from each other.
    factor = [f"x{place}" for place in range(7)]
    assert inference.wald_test(factor).df == 6
    apart = np.zeros(18)
    apart[[1, 2]] = 1.0, -1.0
    assert inference.wald_test(apart).df == 1


def test_effects_relative_to_a_rare_level_cover_with_budget():
    inference = rare_reference(0, epsilon=20.0)
    low, high = inference.conf_int(0.999).T
    assert np.isfinite(high - low).all()
    truth = np.array([-1.5, *np.ones(7), 0.5, *np.zeros(9)])
    assert ((low <= truth) & (truth <= high)).all()


def test_classes_that_are_apart_have_no_intervals():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N, 2))
    model = KINDS["logistic"].__sklearn_clone__().set_params(inference=True, random_state=0)
    inference = model.fit(X, (X[:, 0] > X[:, 1]).astype(int)).inference_
    assert np.isinf(inference.standard_errors).all()
    assert "No coefficient can be estimated" in str(inference)


def rare_outcome(seed, level, n=40_000, d=30):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    y = (X @ np.linspace(-0.6, 0.6, d) + level + rng.logistic(size=n) > 0).astype(int)
    model = LogisticRegression(C=np.inf, classes=[0, 1], feature_bounds=(-1, 1), inference=True)
    return model.set_params(random_state=seed), X, y


@pytest.mark.parametrize("seed", range(3))
def test_noisy_approach_leaves_intervals(seed):
    """The first pooled scores are far from the rest, which are enough for intervals."""
    model, X, y = rare_outcome(seed, -4.0)
    assert 0.015 < y.mean() < 0.04
    inference = model.fit(X, y).inference_
    known = np.isfinite(inference.standard_errors)
    assert known.mean() > 0.8
    truth = np.array([-4.0, *np.linspace(-0.6, 0.6, 30)])
    low, high = inference.conf_int(0.999).T
    assert ((low <= truth) & (truth <= high))[known].all()


def test_plan_says_how_rare_a_class_may_be():
    model, X, y = rare_outcome(0, -4.0)
    (said,) = model.plan(40_000, 30).cautions()
    least = float(re.search(r"about ([\d.]+) % of the rows", said)[1])
    assert 1.0 < least < 4.0
    assert model.set_params(inference=False).plan(40_000, 30).cautions() == ()
    assert model.set_params(inference=True, epsilon=8.0).plan(400_000, 30).cautions() == ()
    # As it says: of one that is far rarer fits find nothing.
    model, X, y = rare_outcome(3, -6.0)
    assert y.mean() < 0.005
    assert np.isinf(model.fit(X, y).inference_.standard_errors).all()


@pytest.mark.parametrize("slope", [9.0, 12.0])
def test_strong_effects_are_reached_with_much_budget(slope):
    inference = fitted("logistic", (1.0, 1.0), (slope, -slope), n=20_000, epsilon=100.0)
    assert np.abs(inference.params - [0.0, slope, -slope]).max() < 3.5 * 0.25
    assert (inference.standard_errors < 0.4).all()


@pytest.mark.slow
def test_errors_of_rare_columns_are_as_large_as_they_are_said_to_be(monkeypatch):
    """A row counts less than its Hessian says where it is weighed down for its length."""
    shares, slopes = (0.5, 0.02, 0.01), (0.5, 1.0, 1.0)

    def ratio():
        fits = [
            fitted("logistic", shares, slopes, seed, n=20_000, epsilon=3.0) for seed in range(60)
        ]
        errors = np.array([one.params for one in fits]) - np.array([0.0, *slopes])
        return np.median([one.standard_errors for one in fits], axis=0) / np.sqrt(
            np.mean(errors**2, axis=0)
        )

    assert ratio() == pytest.approx(np.ones(4), rel=0.25)
    # Planted: the variance of scores without their weights.
    sound = NewtonRaphsonMethod._with_hessian

    def unweighted(self, *args):
        state = sound(self, *args)
        return (
            state
            if state.variance is None
            else type(state)(**{**vars(state), "variance": state.matrix})
        )

    monkeypatch.setattr(NewtonRaphsonMethod, "_with_hessian", unweighted)
    assert ratio().max() > 1.3
