"""A table of coefficients can be published alone, and every number in it can be read."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest

import dpglm
from dpglm import (
    GammaRegressor,
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegressor,
    PoissonRegressor,
    TweedieRegressor,
)
from dpglm.inference import Estimates, Inference
from dpglm.report import load_model, save_model
from dpglm.report.html import report_page
from tests.inference.planted import given
from tests.inference.test_inference import HIGH, LOW, W, fitted, rows
from tests.inference.test_wald import SCHEMA

VISITS = SCHEMA | {"target": {"name": "visits", "type": "count", "high": 40}}


def with_estimates(params, errors):
    own = fitted(PoissonRegressor, alpha=0.0, target_bounds=(0.0, 7.0)).inference_
    square = np.diag(np.square(errors))
    estimates = dataclasses.replace(
        own.estimates, params=np.array(params), sampling=square, privacy=0.0 * square
    )
    return Inference(estimates, own.certificate, own.scores)


def counts_fit(shape, **options):
    """Fit counts with the means of a model, which are the more skewed, the smaller the shape."""
    return counts_model(shape, **options)[0].inference_


def counts_model(shape, *, n=20_000, **options):
    """Fit as ``counts_fit``; return the model, and the squared lengths of whitened rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 3))
    mean = np.exp(-0.5 + X @ [0.5, -0.5, 0.3])
    y = rng.poisson(mean if shape is None else mean * rng.gamma(shape, 1.0 / shape, n))
    facts = {"target_bounds": (0, 200), "feature_bounds": (-1, 1), "random_state": 0}
    model = PoissonRegressor(alpha=0.0, **(facts | {"inference": True} | options))
    return model.fit(X, y), 1.0 + 3.0 * np.sum(X**2, axis=1)


def test_summary_warns_of_clipped_residuals():
    skewed, right = counts_fit(0.2, epsilon=2.0), counts_fit(None, epsilon=2.0)
    assert "this biases coefficients, mainly the intercept" in str(skewed).replace("\n    ", " ")
    assert "biases" not in str(right)
    found = skewed.estimates.binding
    assert 0.002 < found.clipped < 0.03
    # The share is released in the slack of the last score: one of eight, with more coordinates.
    scores = [one for one in skewed.certificate.releases if one.quantity == "score sum"]
    assert [(one.count, one.coordinates) for one in scores[1:]] == [(7, 4), (1, 10)]


def test_summary_states_share_of_down_weighted_rows():
    model, squares = counts_model(None)
    said = " ".join(str(model.inference_).split())
    assert re.search(r"Limits, from released counts: \d+ % of the rows count less", said)
    found, limits = model.inference_.estimates.binding, model.solution_.plan.method.limits
    # Coordinates whiten rows scaled to one length, in which long rows count less.
    squares = 1.22 * squares
    weights = np.minimum(1.0, np.minimum(limits.clip / squares**0.5, limits.square / squares))
    assert found.long == pytest.approx(np.mean(weights < 1.0), abs=0.05)
    assert found.lost == pytest.approx(np.mean(1.0 - weights), abs=0.03)


def test_summary_states_if_residuals_are_unclipped():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(5000, 2)), rng.integers(0, 2, 5000)
    model = LogisticRegression(C=math.inf, classes=[0, 1], feature_bounds=(-1, 1), random_state=0)
    inference = model.set_params(inference=True).fit(X, y).inference_
    assert "No residual is clipped." in " ".join(str(inference).split())


def test_binding_of_limits_is_kept_in_model_files(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(20_000, 2)), rng.poisson(1.0, 20_000)
    facts = {"target_bounds": (0, 50), "feature_bounds": (-1, 1)}
    model = PoissonRegressor(inference=True, random_state=0, **facts).fit(X, y)
    save_model(model, tmp_path / "model.json")
    kept = load_model(tmp_path / "model.json").inference
    assert kept.estimates.binding == model.inference_.estimates.binding
    assert str(kept) == str(model.inference_)


def columns_of(summary):
    """Return the text under each heading."""
    cells = [row[1:] for row in summary.cells()]
    headings = [one.heading for one in summary.columns]
    return dict(zip(headings, zip(*cells, strict=True), strict=True))


def test_ratios_near_one_are_told_from_it():
    inference = with_estimates([-0.5, 1.3133, 9.73e-06, -5e-08], [0.03, 0.02, 2.36e-06, 1.2e-07])
    shown = columns_of(inference.summary(exponentiate=True))
    assert shown["rate ratio"] == ("0.6065", "3.7184", "1.00000973", "0.999999950")
    assert shown["[0.025"][2:] == ("1.00000510", "0.999999715")
    assert shown["0.975]"][2:] == ("1.00001436", "1.000000185")


def test_ends_of_long_intervals_of_ratios_are_told_from_zero():
    inference = with_estimates([0.0, 5.0, 0.1, 0.2], [0.1, 3.5, 0.1, 0.1])
    low = columns_of(inference.summary(exponentiate=True))["[0.025"][1]
    assert low == "0.156"
    assert math.exp(5.0 - 1.96 * 3.5) == pytest.approx(0.156, abs=0.001)


FIXED, SCIENTIFIC = r"-?\d+(\.\d+)?", r"-?\d(\.\d+)?e[+-]\d+"


@pytest.mark.parametrize(
    ("params", "errors", "notation"),
    [
        ([-0.5, 0.01, 9.73e-06, 1e-7], [0.03, 1e-3, 2.36e-06, 1e-7], FIXED),
        ([-0.5, 0.01, 9.73e-06, 1e-9], [0.03, 1e-3, 2.36e-06, 2e-10], SCIENTIFIC),
        ([1e14, 0.01, 0.0, 3.0], [1e11, 1e-3, 1.0, 0.2], SCIENTIFIC),
    ],
)
def test_estimates_have_one_notation_and_three_error_digits(params, errors, notation):
    shown = columns_of(with_estimates(params, errors).summary())
    for heading in ("coef", "std err", "[0.025", "0.975]"):
        assert all(re.fullmatch(notation, cell) for cell in shown[heading])
    for value, error, coef, spread in zip(
        params, errors, shown["coef"], shown["std err"], strict=True
    ):
        assert float(coef) == pytest.approx(value, abs=0.006 * error)
        assert float(spread) == pytest.approx(error, rel=0.006)


def test_numbers_that_are_not_finite_are_written_too():
    shown = columns_of(
        with_estimates([900.0, 0.0, 1.0, 2.0], [0.1, 0.1, 0.1, 0.1]).summary(exponentiate=True)
    )
    assert shown["rate ratio"][0] == "inf"


COUNTS = {"alpha": 0.0, "target_bounds": (0.0, 40.0)}
WORDS = {
    "negative binomial": (
        NegativeBinomialRegressor(dispersion=0.25, **COUNTS),
        "Negative binomial (dispersion 0.25), log link",
    ),
    "Tweedie": (TweedieRegressor(power=1.3, **COUNTS), "Tweedie (power 1.3), log link"),
    "Poisson": (PoissonRegressor(**COUNTS), "Poisson, log link"),
    "Huber": (
        HuberRegressor(threshold=2.0, alpha=0.0, target_bounds=(-30.0, 50.0)),
        "Huber (threshold 2), identity link",
    ),
    "logistic": (LogisticRegression(C=np.inf, classes=[0, 1]), "Logistic, logit link"),
}


@pytest.mark.parametrize("name", WORDS)
def test_losses_have_their_constants_in_the_users_units(name):
    kind, words = WORDS[name]
    X, y = rows()
    model = kind.__sklearn_clone__().set_params(
        inference="robust", solver=given(W), feature_bounds=(LOW, HIGH)
    )
    said = dict(model.fit(X, y).inference_.summary().facts)
    assert said["Loss"] == words


@pytest.mark.usefixtures("undrawn")
def test_the_page_names_the_loss_as_the_table_does():
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    kind, words = WORDS["negative binomial"]
    model = kind.__sklearn_clone__().set_params(solver=given(W), feature_bounds=(LOW, HIGH))
    page = report_page(model.fit(*rows(), exposure=2.0))
    assert f"NegativeBinomialRegressor ({words}, exposures), fitted with" in page


def test_the_table_names_target_formula_and_exposure(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    regions = VISITS["columns"]["region"]["categories"]
    table = pd.DataFrame({"year": rng.uniform(1990, 2020, 300), "region": rng.choice(regions, 300)})
    table["visits"], table["months"] = rng.poisson(2, 300), rng.uniform(1, 12, 300)
    formula = "visits ~ year + C(region)"
    kind = PoissonRegressor(
        alpha=0.0,
        inference=True,
        solver=given(np.linspace(-1, 1, 5)),
        offset_bounds=(0.0, math.log(12.0)),
    )
    model = dpglm.from_formula(formula, VISITS, kind).fit(table, exposure=table["months"])
    said = dict(model.inference_.summary().facts)
    assert (said["Target"], said["Formula"], said["Exposure"]) == ("visits", formula, "months")
    assert "offsets" not in said["Loss"]
    save_model(model, tmp_path / "model.json")
    assert str(load_model(tmp_path / "model.json").inference) == str(model.inference_)
    unnamed = model.fit(table, exposure=table["months"].to_numpy())
    said = dict(unnamed.inference_.summary().facts)
    assert "Exposure" not in said
    assert said["Loss"] == "Poisson, log link, exposures"


def test_a_series_names_the_target():
    pd = pytest.importorskip("pandas")
    X, y = rows()
    model = LogisticRegression(
        inference=True, classes=[0, 1], solver=given(W), feature_bounds=(LOW, HIGH)
    )
    said = dict(model.fit(X, pd.Series(y, name="ill")).inference_.summary().facts)
    assert (said["Target"], said["Outcome"]) == ("ill", "1, against 0")
    assert "Target" not in dict(model.fit(X, pd.Series(y)).inference_.summary().facts)


def test_the_row_norm_of_a_schema_is_implied_by_it():
    rng = np.random.default_rng(0)
    table = {"year": rng.uniform(1990, 2020, 99), "region": rng.choice(["north", "east"], 99)}
    steps = [dpglm.preprocessing.SchemaEncoder(SCHEMA), LogisticRegression(classes=[0, 1])]
    model = dpglm.PrivatePipeline(steps).fit(table, np.arange(99) % 2)
    assert model.privacy_.fact("row_norm").provenance == "implied"
    assert "row_norm = 1.41421: implied by the other public facts" in str(
        dict(model.privacy_.sections())["Public facts"]
    )
    assert dpglm.certificate.verify(model.privacy_).ok
    steps[1].set_params(row_norm=1.0)
    model = dpglm.PrivatePipeline(steps).fit(table, np.arange(99) % 2)
    assert model.privacy_.fact("row_norm").provenance == "declared"


SPREADS = {
    "squared": (LinearRegression(target_bounds=(-30.0, 60.0)), 9.0, "Residual SD"),
    "gamma": (GammaRegressor(alpha=0.0, target_bounds=(0.01, 900.0)), 0.25, "Dispersion"),
    "Tweedie": (
        TweedieRegressor(power=1.5, alpha=0.0, target_bounds=(0.0, 900.0)), 0.8, "Dispersion",
    ),
    "Tweedie, shrunk": (
        TweedieRegressor(power=1.5, alpha=30.0, target_bounds=(0.0, 900.0)), 0.8, "Dispersion",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPREADS)
def test_estimated_dispersions_are_those_of_the_users_targets(name, tmp_path):
    kind, dispersion, heading = SPREADS[name]
    rng = np.random.default_rng(2)
    n = 40_000
    X = rng.uniform(-1, 1, (n, 2))
    mean = np.exp(2.0 + (0.0 if "shrunk" in name else 0.3) * X[:, 0])
    if name == "squared":
        y = mean + math.sqrt(dispersion) * rng.normal(size=n)
    elif name == "gamma":
        y = mean * rng.gamma(1 / dispersion, dispersion, n)
    else:
        # Sums of a Poisson number of gamma variables, of power 1.5: their shape is 1.
        y = rng.gamma(rng.poisson(2 * np.sqrt(mean) / dispersion) + 0.0, 1.0)
        y *= dispersion * np.sqrt(mean) / 2
    model = kind.__sklearn_clone__().set_params(
        inference=True, feature_bounds=(-1, 1), epsilon=1e4, delta=1e-6
    )
    inference = model.fit(X, y).inference_
    assert inference.dispersion == pytest.approx(dispersion, rel=0.06)
    shown = dict(inference.summary().facts)[heading]
    expected = math.sqrt(dispersion) if heading == "Residual SD" else dispersion
    assert float(shown.partition(",")[0]) == pytest.approx(expected, rel=0.06)
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").inference.dispersion == inference.dispersion


def test_known_dispersions_are_not_estimated():
    X, y = rows()
    model = LogisticRegression(inference=True, classes=[0, 1], feature_bounds=(LOW, HIGH))
    model.set_params(epsilon=50.0, delta=1e-6).fit(X, y)
    assert model.inference_.dispersion is None
    assert isinstance(model.inference_.estimates, Estimates)
