"""Newton-Raphson with little information: rare columns, columns without rows, classes apart."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpglm import BinomialRegressor, GammaRegressor, LogisticRegression, PoissonRegressor
from dpglm.solvers.second_order import newton_raphson_settings, posterior
from dpglm.solvers.second_order.newton_raphson_method import NewtonRaphsonMethod
from tests.planted import kept_noise
from tests.slowly import first_quickly

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


def test_column_without_rows_keeps_its_prior():
    inference = fitted("logistic")
    assert inference.of_prior == ("x2",)
    low, high = inference.conf_int()[3]
    assert low < 0.0 < high
    assert high - low > 10.0
    # Tests and means of rows without it do not depend on it.
    joint, others = inference.wald_test(["x1", "x2"]), inference.wald_test(["x1"])
    assert joint.p_value < 1e-9
    assert others.p_value < 1e-9
    low, high = inference.prediction_interval([[0.5, 0.5, 0.0]])[0]
    assert high - low < 0.2 * high


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_column_without_rows_is_rarely_significant(name, monkeypatch):
    """Planted: without the error of the Hessian it often is."""

    def rejections(runs):
        return np.mean([fitted(name, seed=seed).p_values[3] < 0.05 for seed in range(runs)])

    assert rejections(20) <= 0.1
    monkeypatch.setattr(
        posterior.NoisyMatrix, "error_of", lambda self, spread: np.zeros_like(spread)
    )
    monkeypatch.setattr(posterior, "_OWN_ROUNDS", 0)
    assert rejections(20) >= 0.2


def test_repeated_column_is_not_told_from_the_first():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=N)
    y = (x - 0.5 + rng.logistic(size=N) > 0).astype(int)
    model = KINDS["logistic"].__sklearn_clone__().set_params(inference=True, random_state=0)
    inference = model.fit(np.column_stack([x, x]), y).inference_
    assert inference.of_prior == ("x0", "x1")
    assert inference.wald_test([0.0, 1.0, 1.0]).p_value < 0.001


def rare_reference(seed, n_levels=8, n=10_000, **options):
    """Fit a factor with a reference level of 0.64 % of the rows, and ten other columns."""
    rng = np.random.default_rng(seed)
    shares = [0.0064, *np.full(n_levels - 1, 0.9936 / (n_levels - 1))]
    levels = rng.choice(n_levels, size=n, p=shares)
    X = np.column_stack(
        [levels[:, np.newaxis] == np.arange(1, n_levels), rng.uniform(-1, 1, size=(n, 10))]
    ).astype(float)
    z = 1.0 * (levels > 0) - 1.5 + 0.5 * X[:, n_levels - 1]
    y = (rng.uniform(size=n) < -np.expm1(-np.exp(z))).astype(float)
    options = {"epsilon": 2.0, "random_state": seed} | options
    model = BinomialRegressor(link="cloglog", inference=True, feature_bounds=(-1, 1), **options)
    return model.fit(X, y).inference_


@pytest.mark.parametrize("runs", first_quickly(60, 300))
def test_effects_relative_to_a_rare_level_cover(runs):
    """They share the error of the reference: a fit covers all or none, so many are needed."""
    truth, factor = np.array([-1.5, *np.ones(7), 0.5, *np.zeros(9)]), [f"x{k}" for k in range(7)]
    covered = []
    for seed in range(runs):
        inference = rare_reference(seed)
        low, high = inference.conf_int().T
        assert np.isfinite(high - low).all()
        covered.append((low <= truth) & (truth <= high))
        # The levels but the reference do not differ.
        apart = np.zeros(18)
        apart[[1, 2]] = 1.0, -1.0
        assert inference.wald_test(apart).p_value > 1e-4
        assert inference.wald_test(factor).df == 7
    assert np.mean(covered) >= 0.93
    assert np.mean(np.array(covered)[:, :8]) >= 0.9


def test_effects_relative_to_a_rare_level_cover_with_budget():
    inference = rare_reference(0, epsilon=20.0)
    low, high = inference.conf_int(0.999).T
    assert np.isfinite(high - low).all()
    truth = np.array([-1.5, *np.ones(7), 0.5, *np.zeros(9)])
    assert ((low <= truth) & (truth <= high)).all()


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_separable_classes_are_reported(epsilon):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N, 2))
    model = KINDS["logistic"].__sklearn_clone__().set_params(inference=True, random_state=0)
    y = (X[:, 0] > X[:, 1]).astype(int)
    inference = model.set_params(epsilon=epsilon).fit(X, y).inference_
    assert ("x0", "x1") in (inference.of_prior, inference.beyond_prior)
    said = "may be nearly separable" in " ".join(str(inference).split())
    assert said == bool(inference.beyond_prior)
    assert fitted("logistic").beyond_prior == ()


def rare_outcome(seed, level, n=40_000, d=30):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    y = (X @ np.linspace(-0.6, 0.6, d) + level + rng.logistic(size=n) > 0).astype(int)
    model = LogisticRegression(C=np.inf, classes=[0, 1], feature_bounds=(-1, 1), inference=True)
    return model.set_params(random_state=seed), X, y


@pytest.mark.parametrize("level", [-4.0, -6.0])
def test_rare_outcomes_have_intervals_that_cover(level):
    truth, covered = np.array([level, *np.linspace(-0.6, 0.6, 30)]), []
    for seed in range(3):
        model, X, y = rare_outcome(seed, level)
        assert y.mean() < 0.04
        low, high = model.fit(X, y).inference_.conf_int().T
        assert np.isfinite(high - low).all()
        covered.append((low <= truth) & (truth <= high))
    assert np.mean(covered) >= 0.93


@pytest.mark.parametrize("slope", [9.0, 12.0])
def test_strong_effects_are_reached_with_much_budget(slope):
    inference = fitted("logistic", (1.0, 1.0), (slope, -slope), n=20_000, epsilon=100.0)
    assert np.abs(inference.params - [0.0, slope, -slope]).max() < 3.5 * 0.25
    assert (inference.standard_errors < 0.4).all()


@pytest.mark.parametrize("runs", first_quickly(60, 300))
def test_rare_columns_have_no_fits_far_off(runs, monkeypatch):
    """Planted: steps that follow one noisy score each, by a Hessian that keeps its noise."""
    shares, slopes = (0.5, 0.02, 0.01), (0.5, 1.0, 1.0)
    truth = np.array([0.0, *slopes])

    def far_and_covered():
        fits = [fitted("logistic", shares, slopes, seed, n=20_000) for seed in range(runs)]
        errors = np.abs([one.params - truth for one in fits])
        reported = np.array([one.standard_errors for one in fits])
        return (errors > 4.0 * reported).mean(), (errors < 1.96 * reported).mean(axis=0)

    far, covered = far_and_covered()
    assert far <= 0.002
    assert covered.min() >= 0.88
    assert 0.93 <= covered.mean() <= 0.97
    sound = NewtonRaphsonMethod._approached
    monkeypatch.setattr(
        NewtonRaphsonMethod,
        "_approached",
        lambda self, state, *rest: sound(
            self, dataclasses.replace(state, ahead=state.prior), *rest
        ),
    )
    monkeypatch.setattr(posterior, "noisy_hessian", kept_noise)
    assert far_and_covered()[0] > 0.005


def test_numbers_keep_their_precision_next_to_many_levels(monkeypatch):
    """Planted: a Hessian that keeps its noise."""
    truth = np.array([1.0, -0.5, 0.3])

    def errors():
        rng, found = np.random.default_rng(0), []
        for seed in range(3):
            numbers = rng.uniform(-1, 1, size=(10_000, 3))
            levels = rng.integers(100, size=(10_000, 1)) == np.arange(1, 100)
            y = (numbers @ truth + rng.logistic(size=10_000) > 0).astype(int)
            model = LogisticRegression(C=np.inf, classes=[0, 1], row_norm=2.0, inference=True)
            model.set_params(epsilon=2.0, random_state=seed)
            fit = model.fit(np.hstack([numbers, levels]), y)
            deviations = fit.inference_.standard_errors[1:4]
            assert (np.abs(fit.coef_[0, :3] - truth) < 4.0 * deviations).all()
            found.append(deviations)
        return np.median(found)

    assert errors() < 0.5
    monkeypatch.setattr(posterior, "noisy_hessian", kept_noise)
    assert errors() > 0.8


def test_strong_effects_of_many_columns_are_covered(monkeypatch):
    """Planted: the Hessian along the parameter is estimated like that of other directions."""
    truth = np.linspace(-1.5, 1.5, 40)

    def covered():
        found = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            X = rng.uniform(-1, 1, size=(15_000, 40))
            y = (X @ truth + rng.logistic(size=len(X)) > 0).astype(int)
            model = LogisticRegression(C=np.inf, classes=[0, 1], feature_bounds=(-1, 1))
            model.set_params(epsilon=1.0, random_state=seed, inference=True)
            low, high = model.fit(X, y).inference_.conf_int()[1:].T
            found.append((low <= truth) & (truth <= high))
        return np.mean(found)

    assert covered() >= 0.91
    sound = posterior.noisy_hessian
    monkeypatch.setattr(posterior, "noisy_hessian", lambda *args: sound(*args[:3]))
    assert covered() < 0.85


def test_rare_levels_do_not_lengthen_other_intervals(monkeypatch):
    """Planted: limits above the mean length, which few long rows make."""
    rng = np.random.default_rng(0)
    sizes = 1.0 / np.arange(1, 61)
    levels = rng.choice(60, size=20_000, p=sizes / sizes.sum())[:, np.newaxis] == np.arange(1, 60)
    X = np.hstack([rng.uniform(-1, 1, size=(20_000, 3)), levels])
    y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(int)

    def median_error():
        model = LogisticRegression(C=np.inf, classes=[0, 1], row_norm=2.0, inference=True)
        model.set_params(epsilon=1.0, random_state=0)
        return np.median(model.fit(X, y).inference_.standard_errors)

    found = median_error()
    monkeypatch.setattr(newton_raphson_settings, "LEAST_LENGTH", 1.5)
    assert median_error() > 1.1 * found


@pytest.mark.slow
def test_errors_of_rare_columns_equal_reported_errors(monkeypatch):
    """A row counts less than its Hessian says where it is weighed down for its length."""
    shares, slopes = (0.5, 0.02, 0.01), (0.5, 1.0, 1.0)

    def ratio():
        fits = [
            fitted("logistic", shares, slopes, seed, n=20_000, epsilon=3.0) for seed in range(60)
        ]
        errors = np.abs([one.params - np.array([0.0, *slopes]) for one in fits])
        reported = np.array([one.standard_errors for one in fits])
        far.append((errors > 4.0 * reported).mean(axis=0).max())
        return np.median(reported, axis=0) / np.sqrt(np.mean(errors**2, axis=0))

    far = []
    assert ratio() == pytest.approx(np.ones(4), rel=0.25)
    assert far[0] == 0.0
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
