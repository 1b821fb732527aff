"""``weighting="none"``: every row counts fully, so a wrong model has the usual target."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression as Usual
from sklearn.linear_model import LogisticRegression as UsualClasses

from dpglm import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from dpglm.guidance import guidance
from dpglm.privacy import GaussianDP

N = 20_000


def rows():
    """A skewed column with an effect that is not straight."""
    rng = np.random.default_rng(0)
    x = np.minimum(rng.lognormal(0.0, 1.0, N), 20.0)
    X = np.column_stack([x, rng.uniform(-1.0, 1.0, N)])
    return X, np.log1p(x) + 0.5 * X[:, 1], rng


def numbers(weighting, mu, seed=0):
    X, mean, rng = rows()
    y = np.clip(mean + 0.5 * rng.normal(size=N), -5.0, 8.0)
    model = LinearRegression(
        feature_bounds={0: (0.0, 20.0), 1: (-1.0, 1.0)},
        target_bounds=(-5.0, 8.0),
        inference="robust",
        weighting=weighting,
        budget=GaussianDP(mu),
        random_state=seed,
    ).fit(X, y)
    return model.inference_, Usual().fit(X, y).coef_


def classes(weighting, mu):
    X, mean, rng = rows()
    y = (mean - 1.0 + rng.logistic(size=N) > 0.0).astype(int)
    model = LogisticRegression(
        C=np.inf,
        classes=[0, 1],
        feature_bounds={0: (0.0, 20.0), 1: (-1.0, 1.0)},
        inference="robust",
        weighting=weighting,
        budget=GaussianDP(mu),
        random_state=0,
    ).fit(X, y)
    return model.inference_, UsualClasses(C=np.inf, max_iter=1000).fit(X, y).coef_[0]


@pytest.mark.parametrize("fitted", [numbers, classes])
def test_full_weights_have_the_usual_target(fitted):
    inference, usual = fitted("none", 50.0)
    assert np.abs(inference.params[1:] - usual).max() < 0.02 * np.abs(usual).min()
    assert "All rows count fully." in " ".join(str(inference.summary()).split())


def test_default_weights_state_their_other_target():
    fits = [numbers("auto", 0.1, seed) for seed in range(20)]
    inference, usual = fits[0]
    assert np.mean([one.params[1] for one, _ in fits]) > 1.1 * usual[0]
    said = " ".join(str(inference.summary()).split())
    assert "rows count less because their norm is large" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", [True, "robust"])
def test_default_covers_the_population_or_warns(kind):
    covered, warned = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = np.minimum(rng.lognormal(0.0, 1.0, 40_000), 20.0)
        X = np.column_stack([x, rng.uniform(-1.0, 1.0, len(x))])
        mean = np.log1p(x) + 0.5 * X[:, 1]
        y = (mean - 1.0 + rng.logistic(size=len(x)) > 0.0).astype(int)
        inference = (
            LogisticRegression(
                C=np.inf,
                classes=[0, 1],
                feature_bounds={0: (0.0, 20.0), 1: (-1.0, 1.0)},
                inference=kind,
                epsilon=1.0,
                random_state=seed,
            )
            .fit(X, y)
            .inference_
        )
        usual = UsualClasses(C=np.inf, max_iter=1000).fit(X, y).coef_[0, 0]
        low, high = inference.conf_int()[1]
        covered.append(low <= usual <= high)
        said = " ".join(str(inference.summary()).split())
        share = inference.scores.estimates.binding.long
        warned.append("may not cover coefficients of the whole population" in said and share > 0.01)
    # Under a model that is assumed to be right the note is needed; robust limits cover.
    assert all(warned) if kind is True else np.mean(covered) >= 0.9
    assert (np.mean(covered) >= 0.9) == (kind == "robust")


@pytest.mark.parametrize("fitted", [numbers, classes])
def test_default_weights_are_full_with_a_large_budget(fitted):
    inference, usual = fitted("auto", 50.0)
    assert np.abs(inference.params[1:] - usual).max() < 0.02 * np.abs(usual).min()


def spread(fitted, weighting):
    """Standard deviations of the noise in slopes of even columns, and the plan."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (N, 5))
    score = X @ np.linspace(1.0, -0.5, 5)
    if fitted is numbers:
        model = LinearRegression(target_bounds=(-5.0, 5.0))
        y = np.clip(score + rng.normal(size=N), -5.0, 5.0)
    else:
        model = LogisticRegression(C=np.inf, classes=[0, 1])
        y = (score > rng.logistic(size=N)).astype(int)
    model.set_params(
        feature_bounds=(-1.0, 1.0), inference=True, weighting=weighting, random_state=0
    )
    model.fit(X, y)
    noise = np.sqrt(np.diag(model.inference_.estimates.privacy)[1:])
    return np.median(noise), model.solution_.plan


@pytest.mark.parametrize("fitted", [numbers, classes])
def test_price_of_full_weights_is_known_beforehand(fitted):
    (usual, default), (full, plan) = spread(fitted, "auto"), spread(fitted, "none")
    price = plan.method.price_of_full_weights
    assert 1.2 < price < 6.0
    assert 0.7 * price < full / usual < 1.5 * price
    assert f"make it {price:.2g} times that of the default" in str(guidance(plan))
    assert default.method.price_of_full_weights == 1.0
    assert "Full weights" not in str(guidance(default))


@pytest.mark.parametrize("make", [PoissonRegressor, Ridge])
def test_weights_have_no_price_where_penalties_leave_no_noise(make):
    model = make(alpha=1e300, row_norm=1e-15, fit_intercept=False, target_bounds=(0.0, 5.0))
    plan = model.set_params(epsilon=1.0, inference=True).plan(1, 1)
    assert plan.method.price_of_full_weights == 1.0
