"""Wald tests count the restrictions that a hypothesis makes, however it is put."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpglm import (
    BinomialRegressor,
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegressor,
    PoissonRegressor,
    PrivatePipeline,
    Ridge,
    TweedieRegressor,
)
from dpglm.inference import Estimates
from dpglm.preprocessing import SchemaEncoder
from dpglm.report import load_model, save_model
from dpglm.tables.encoding import LinearUnits
from tests.inference.planted import given
from tests.inference.test_inference import fitted

REGIONS = ("north", "south", "west", "east")
SCHEMA = {
    "columns": {
        "year": {"type": "numeric", "low": 1990, "high": 2020},
        "region": {"type": "categorical", "categories": list(REGIONS)},
    },
    "provenance": "the questionnaire",
}
COUNTS = {"alpha": 0.0, "target_bounds": (0, 40)}
LOSSES = {
    "logistic": LogisticRegression(C=np.inf, classes=[0, 1]),
    "least squares": LinearRegression(target_bounds=(-10, 10)),
    "ridge": Ridge(alpha=3.0, target_bounds=(-10, 10)),
    "Poisson": PoissonRegressor(**COUNTS),
    "negative binomial": NegativeBinomialRegressor(**COUNTS),
    "Tweedie": TweedieRegressor(**COUNTS),
    "gamma": GammaRegressor(alpha=0.0, target_bounds=(0.01, 40)),
    "logit": BinomialRegressor(),
    "probit": BinomialRegressor(link="probit"),
    "complementary log-log": BinomialRegressor(link="cloglog"),
}


def rows(kind, n=3000):
    rng = np.random.default_rng(5)
    table = {"year": rng.uniform(1990, 2020, n), "region": rng.choice(REGIONS, n)}
    z = 0.02 * (table["year"] - 2005) + 0.2 * (table["region"] == "south")
    if isinstance(kind, LogisticRegression | BinomialRegressor):
        return table, (z + rng.logistic(size=n) > 0).astype(int)
    if isinstance(kind, LinearRegression | Ridge):
        return table, z + rng.normal(size=n)
    return table, rng.poisson(np.exp(z)) + (0.5 if isinstance(kind, GammaRegressor) else 0)


# Noise makes a known effect unknown once in some hundred fits: this noise does not.
@pytest.mark.parametrize("epsilon", [1.0, 3e4])
@pytest.mark.parametrize("name", LOSSES)
def test_test_of_a_column_is_independent_of_its_coding(name, epsilon):
    kind = LOSSES[name]
    steps = [SchemaEncoder(SCHEMA), kind.__sklearn_clone__().set_params(inference="robust")]
    inference = PrivatePipeline(steps, epsilon=epsilon, delta=1e-6).fit(*rows(kind)).inference_
    effects = [place for place, one in enumerate(inference.names) if one.endswith(" vs mean")]
    assert len(effects) == 4
    of_mean = inference.wald_test([inference.names[place] for place in effects])
    for reference in effects:
        others = [place for place in effects if place != reference]
        differences = np.eye(len(inference.names))[others]
        differences[:, reference] = -1.0
        of_reference = inference.wald_test(differences)
        assert of_mean.df == of_reference.df == 3
        assert of_mean.p_value == pytest.approx(of_reference.p_value, rel=1e-6, abs=1e-12)
    single = inference.wald_test([inference.names[effects[1]]])
    assert single.df == 1
    assert single.p_value == pytest.approx(inference.p_values[effects[1]])


def test_repeated_restrictions_are_counted_once():
    inference = fitted().inference_
    once = inference.wald_test(["x0", "x1"], [0.1, 0.2])
    R = np.array([[0.0, 1, 0, 0], [0, 0, 1, 0], [0, 3, 3, 0], [0, 0, 0, 0]])
    again = inference.wald_test(R, [0.1, 0.2, 0.9, 0.0])
    assert again.df == once.df == 2
    assert again.statistic == pytest.approx(once.statistic)
    assert stats.chi2(2).sf(again.statistic) == pytest.approx(again.p_value)


def test_impossible_or_trivial_hypotheses_are_refused():
    kind = LOSSES["logistic"].__sklearn_clone__().set_params(inference=True)
    model = PrivatePipeline([SchemaEncoder(SCHEMA), kind]).fit(*rows(kind))
    inference = model.inference_
    total = np.array([float(name.endswith("vs mean")) for name in inference.names])
    with pytest.raises(ValueError, match="the same in all fits"):
        inference.wald_test(total)
    with pytest.raises(ValueError, match="the same in all fits"):
        inference.wald_test(0.0 * total)
    with pytest.raises(ValueError, match="contradict"):
        inference.wald_test(total, 1.0)
    with pytest.raises(ValueError, match="contradict"):
        fitted().inference_.wald_test(np.ones((2, 4)), [0.0, 1.0])


@pytest.mark.parametrize("r", [[1.0, 2.0, 3.0], [[1.0], [2.0]], np.nan, [0.0, np.inf]])
def test_values_are_finite_and_one_for_each_row(r):
    with pytest.raises(ValueError, match="r must be a finite number, or 2 of them"):
        fitted().inference_.wald_test(["x0", "x1"], r)


def test_an_intercept_that_centres_make_follows_from_the_slopes(tmp_path):
    """Without one of its own, four coefficients have three that are free, in a file as well."""
    model = fitted(solver=given((0.7, -0.4, 0.2)), fit_intercept=False, feature_bounds=(-60, 60))
    save_model(model, tmp_path / "model.json")
    units = LinearUnits.of_columns([1.0, 20.0, 0.0], np.ones(3))
    for inference in (model.inference_, load_model(tmp_path / "model.json").inference):
        moved = inference.in_units(units, ["x0", "x1", "x2"])
        assert moved.names[0] == "intercept"
        assert moved.wald_test(np.eye(4), moved.params).df == 3
        same, own = moved.wald_test(["x0", "x1", "x2"]), inference.wald_test(np.eye(3))
        assert same.df == own.df == 3
        assert same.p_value == pytest.approx(own.p_value)


def test_a_basis_has_a_row_for_each_name():
    zeros = np.zeros((1, 1))
    with pytest.raises(ValueError, match="basis of the shape"):
        Estimates(("x0",), np.zeros(1), zeros, zeros, np.zeros((2, 1)), False)
