"""The reported noise of a coefficient is that of repeated fits, in the units of the table."""

import numpy as np
import pytest
from scipy import special

from dpglm import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    PrivatePipeline,
    Ridge,
)
from dpglm.preprocessing import SchemaEncoder
from dpglm.report.page import coefficient_table
from dpglm.solvers import NoiseCovariance
from dpglm.tables.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 16, "high": 90},
            "income": {"type": "numeric", "low": 1, "high": 100},
            "region": {"type": "categorical", "categories": ["north", "south", "west"]},
            "sex": {"type": "categorical", "categories": ["f", "m"]},
        },
        "provenance": "made up",
    }
)
REAL = {"target_bounds": (-10.0, 10.0)}
MODELS = {
    "logistic": LogisticRegression(classes=[0, 1]),
    "logistic without penalty": LogisticRegression(classes=[0, 1], C=np.inf),
    "logistic by newton": LogisticRegression(classes=[0, 1], solver="newton"),
    "softmax": LogisticRegression(classes=[0, 1, 2]),
    "poisson": PoissonRegressor(alpha=0.0, target_bounds=(0.0, 60.0)),
    "poisson with penalty": PoissonRegressor(target_bounds=(0.0, 60.0)),
    "gamma": GammaRegressor(alpha=0.0, target_bounds=(0.001, 50.0)),
    "linear": LinearRegression(**REAL),
    "ridge": Ridge(**REAL),
}
RUNS = 15


def table(n=5000):
    rng = np.random.default_rng(0)
    X = {
        "age": rng.uniform(16, 90, n),
        "income": rng.gamma(2.0, 15.0, n).clip(1, 100),
        "region": rng.choice(["north", "south", "west"], n, p=[0.5, 0.4, 0.1]),
        "sex": rng.choice(["f", "m"], n),
    }
    z = 0.02 * (X["age"] - 50.0) + 0.01 * X["income"] - 1.0
    z += 0.5 * (X["region"] == "west") - 0.4 * (X["sex"] == "m")
    return X, z, rng


def targets(name, z, rng):
    if name == "softmax":
        return (np.stack([0 * z, z, -z], axis=1) + rng.gumbel(size=(len(z), 3))).argmax(axis=1)
    if name.startswith("logistic"):
        return (rng.random(len(z)) < special.expit(z)).astype(int)
    if name.startswith("poisson"):
        return rng.poisson(np.exp(z))
    if name == "gamma":
        return (np.exp(z) * rng.gamma(2.0, 0.5, len(z))).clip(0.001)
    return z + rng.normal(size=len(z))


@pytest.mark.parametrize("reference", [None, pytest.param("first", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_noise_equals_spread_of_repeated_fits(name, reference):
    """Indicators of all levels share a shift that no difference of them has.

    With noise taken as independent, differences would have 50 to 280 times their noise.
    """
    X, z, rng = table()
    y = targets(name, z, rng)
    shown, values = [], []
    for seed in range(RUNS):
        steps = [SchemaEncoder(SCHEMA, drop=reference), MODELS[name]]
        model = PrivatePipeline(steps, epsilon=1.0, delta=1e-6, random_state=seed).fit(X, y)
        effects = coefficient_table(model)
        shown.append(effects.noise)
        values.append(np.column_stack([effects.values, effects.intercepts]))
    ratios = np.sqrt(np.mean(np.square(shown), axis=0)) / np.std(values, axis=0, ddof=1)
    # Chance moves a ratio by a sixth.
    assert (ratios > 0.5).all(), ratios
    assert (ratios < 2.7).all(), ratios
    assert 0.7 < np.exp(np.log(ratios).mean()) < 2.0, ratios


def test_covariance_of_differences():
    # The sum of all indicators less the intercept is not identified.
    shared = np.array([1.0, 1.0, 1.0, -1.0])
    noise = NoiseCovariance(0.01 * np.eye(4) + 100.0 * np.outer(shared, shared), np.array([1.0, 4]))
    apart = noise.mapped(np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]))
    np.testing.assert_allclose(apart.deviations, 0.02**0.5 * np.array([[1, 2], [1, 2]]), rtol=1e-6)
    assert (noise.deviations > 9.0).all()
    assert (noise.at_most(1.0).deviations < 1.0 + 1e-9).all(axis=0)[0]
    assert noise.is_finite
    assert not NoiseCovariance(np.full((2, 2), np.inf)).is_finite
