"""Bands of shapes cover: sampling and privacy noise, whole curves."""

import functools

import numpy as np
import pytest
from scipy import sparse, stats

from dpglm import AdditiveClassifier, LinearRegression, PrivatePipeline
from dpglm.preprocessing import SchemaEncoder
from dpglm.shapes.bands import half_widths
from dpglm.shapes.terms import public_weights, terms_of
from dpglm.tables.additive.settings import Additive
from dpglm.tables.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "region": {"type": "categorical", "categories": ["north", "south", "west"]},
        },
        "provenance": "made up",
    }
).with_additive(Additive(segments=4, reach=1.0))
FITS = 80
# Four standard errors of a share of 0.95 in so many fits.
SLACK = 4.0 * np.sqrt(0.95 * 0.05 / FITS)


def truth():
    coef = np.random.default_rng(7).normal(size=len(SCHEMA.feature_names))
    for term in terms_of(SCHEMA):
        values = term.matrix @ coef[term.features]
        yield term.name, values - public_weights(term.axes) @ values


@functools.cache
def fits():
    coef = np.random.default_rng(7).normal(size=len(SCHEMA.feature_names))
    models = []
    for seed in range(FITS):
        rng = np.random.default_rng(100 + seed)
        X = {
            "age": rng.uniform(0, 100, 1000),
            "region": rng.choice(["north", "south", "west"], 1000),
        }
        y = SCHEMA.encode(X) @ coef + rng.uniform(-1.0, 1.0, 1000)
        regression = LinearRegression(target_bounds=(-6.0, 6.0), inference=True)
        model = PrivatePipeline(
            [SchemaEncoder(SCHEMA), regression], epsilon=4.0, delta=1e-5, random_state=seed
        )
        models.append(model.fit(X, y))
    return models


def covered(simultaneous):
    """Shares of fits whose bands hold the whole true curve, by term."""
    expected = dict(truth())
    hits = dict.fromkeys(expected, 0)
    for model in fits():
        for name, shape in model.shapes(simultaneous=simultaneous).items():
            assert shape.half_width is not None
            hits[name] += bool((np.abs(shape.values[0] - expected[name]) <= shape.half_width).all())
    return {name: count / FITS for name, count in hits.items()}


def test_simultaneous_bands_cover_whole_curves():
    shares = covered(True)
    assert min(shares.values()) > 0.95 - SLACK, shares


def test_bands_of_single_points_do_not():
    # Which shows that the test above would see a band that is too narrow.
    assert covered(False)["age"] < 0.95 - SLACK


def test_simultaneous_quantiles_are_those_of_independent_values():
    # Without centring, the largest of n independent normal values has a known quantile.
    n = 7
    found = half_widths(np.eye(n), np.zeros(n), np.eye(n), 0.95, np.inf, True)
    np.testing.assert_allclose(found, stats.norm.ppf(0.5 + 0.5 * 0.95 ** (1 / n)), rtol=0.01)
    wide = half_widths(np.eye(n), np.zeros(n), np.eye(n), 0.95, 5.0, True)
    assert (wide > 1.2 * found).all()


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_many_levels_have_the_same_errors(is_sparse, is_diagonal, monkeypatch):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(30, 12)) * (rng.random((30, 12)) < 0.4)
    root = rng.normal(size=(12, 12))
    covariance = np.diag(root @ root.T).copy() if is_diagonal else root @ root.T
    weights = np.full(30, 1 / 30)
    given = sparse.csr_array(matrix) if is_sparse else matrix
    joint = half_widths(given, weights, covariance, 0.95, np.inf, False)
    monkeypatch.setattr("dpglm.shapes.bands._MOST_JOINT", 10)
    np.testing.assert_allclose(
        half_widths(given, weights, covariance, 0.95, np.inf, False), joint, rtol=1e-9
    )
    at_once = half_widths(given, weights, covariance, 0.95, np.inf, True)
    assert (at_once > joint).all()


def test_without_inference_bands_are_of_noise_and_say_so():
    rng = np.random.default_rng(0)
    X = {"age": rng.uniform(0, 100, 1000), "region": rng.choice(["north", "south", "west"], 1000)}
    model = PrivatePipeline(
        [SchemaEncoder(SCHEMA), LinearRegression(target_bounds=(0, 1))], epsilon=1.0
    ).fit(X, X["age"] / 100)
    assert "no confidence bands" in model.shapes_.band
    assert model.shapes_["age"].half_width.min() > 0.0


@pytest.mark.slow
def test_bands_hold_at_the_ends_of_columns_where_few_rows_are():
    facts = {
        "columns": {
            "even": {"type": "numeric", "low": 0, "high": 10},
            "bell": {"type": "numeric", "low": -3, "high": 3},
            "level": {"type": "categorical", "categories": list("wxyz")},
        },
        "target": {"name": "y", "type": "binary", "classes": [0, 1]},
        "provenance": "made up",
    }
    points, whole = [], []
    for seed in range(FITS):
        rng = np.random.default_rng(seed)
        X = {"even": rng.uniform(0, 10, 20_000), "bell": rng.normal(size=20_000).clip(-3, 3)}
        X["level"] = rng.choice(list("wxyz"), 20_000)
        score = 0.2 * np.abs(X["even"] - 5.0) + 0.5 * np.abs(X["bell"]) - 1.0
        y = (rng.random(20_000) < 1.0 / (1.0 + np.exp(-score))).astype(int)
        model = AdditiveClassifier(facts, epsilon=0.3, delta=1e-5, random_state=seed)
        model.set_params(inference=True).fit(X, y)
        each, all_of_it = (model.shapes(simultaneous=one)["bell"] for one in (False, True))
        (knots,) = each.points
        assert len(knots) % 2 == 1
        errors = each.values[0] - 0.5 * np.abs(knots)
        errors -= errors.mean()
        points.append((np.abs(errors) <= each.half_width).mean())
        whole.append((np.abs(errors) <= all_of_it.half_width).all())
    assert np.mean(points) >= 0.92
    assert np.mean(whole) > 0.95 - SLACK
