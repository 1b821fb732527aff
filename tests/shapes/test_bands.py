"""Bands of shapes cover: sampling and privacy noise, whole curves."""

import functools

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.isotonic import isotonic_regression

from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    LinearRegression,
    LogisticRegression,
    PrivatePipeline,
)
from dpglm.datasets import load_adult, load_california_housing
from dpglm.preprocessing import SchemaEncoder
from dpglm.shapes.shape import Errors, half_widths, terms_of, weights_of
from dpglm.tables.additive import Additive
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
# Four standard errors of a share of 0.95 in this many fits.
SLACK = 4.0 * np.sqrt(0.95 * 0.05 / FITS)


def truth():
    coef = np.random.default_rng(7).normal(size=len(SCHEMA.feature_names))
    return {term.name: term.matrix @ coef[term.features] for term in terms_of(SCHEMA)}


def centred(values, shape):
    return values - shape.weights @ values


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
    """Shares of fits with bands that contain the whole true curve, by term."""
    expected = truth()
    hits = dict.fromkeys(expected, 0)
    for model in fits():
        for name, shape in model.shapes(simultaneous=simultaneous).items():
            assert shape.band is not None
            low, high = shape.band[0].T
            own = centred(expected[name], shape)
            hits[name] += bool(((low <= own) & (own <= high)).all())
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
def test_many_levels_have_the_same_errors(is_sparse, monkeypatch):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(30, 12)) * (rng.random((30, 12)) < 0.4)
    root = rng.normal(size=(12, 12))
    covariance = root @ root.T
    weights = np.full(30, 1 / 30)
    given = sparse.csr_array(matrix) if is_sparse else matrix
    joint = half_widths(given, weights, covariance, 0.95, np.inf, False)
    monkeypatch.setattr("dpglm.shapes.shape._MOST_JOINT", 10)
    np.testing.assert_allclose(
        half_widths(given, weights, covariance, 0.95, np.inf, False), joint, rtol=1e-9
    )
    at_once = half_widths(given, weights, covariance, 0.95, np.inf, True)
    assert (at_once > joint).all()


def test_band_of_a_level_without_rows_is_that_of_its_prior():
    rng = np.random.default_rng(0)
    X = {"age": rng.uniform(0, 50, 5000), "region": rng.choice(["north", "south"], 5000)}
    y = (X["age"] / 25.0 - 1.0 + rng.logistic(size=5000) > 0.0).astype(int)
    model = LogisticRegression(classes=[0, 1], inference=True, C=1e6)
    steps = [SchemaEncoder(SCHEMA), model]
    shapes = PrivatePipeline(steps, epsilon=4.0, delta=1e-5, random_state=0).fit(X, y).shapes_
    first, *_, last = shapes["region"].band[0]
    assert last[0] < -2.0
    assert last[1] > 2.0
    assert np.isfinite(last).all()
    assert first[1] - first[0] < 0.7 * (last[1] - last[0])


@pytest.mark.parametrize("direction", [1, -1])
def test_unknown_projected_ends_are_bounded_by_neighbours(direction, monkeypatch):
    (term, *_) = terms_of(SCHEMA)
    weights, size = weights_of(term, None), len(SCHEMA.feature_names)
    values = direction * np.array([-1.0, 0.5, -0.2, 0.4, 1.0])
    values -= values.mean()
    center = np.zeros((1, size))
    center[0, term.features] = np.linalg.lstsq(term.matrix, values, rcond=None)[0]
    half = np.array([0.3, np.inf, 0.3, 0.3, np.inf])
    monkeypatch.setattr("dpglm.shapes.shape.half_widths", lambda *_: half)
    errors = Errors(center, np.eye(size), np.ones(1), True)
    (band,) = errors.band(term, weights, 0.95, True, direction)
    ends = [direction * one for one in (band if direction > 0 else band[:, ::-1]).T]
    assert np.isfinite(ends[0]).all()
    assert np.isfinite(ends[1][:-1]).all()
    assert np.isinf(ends[1][-1])
    rising = direction * values
    for end in ends:
        assert (np.diff(end) >= 0.0).all()
    # A curve that never falls and lies in the known part of the band is still inside.
    truth = np.array([rising[0], -0.1, rising[2], rising[3], 9.0])
    assert ((ends[0] <= truth) & (truth <= ends[1])).all()
    curve = isotonic_regression(rising)
    assert ((ends[0] <= curve + 1e-12) & (curve <= ends[1] + 1e-12)).all()


def test_bands_without_inference_are_marked_as_noise():
    rng = np.random.default_rng(0)
    X = {"age": rng.uniform(0, 100, 1000), "region": rng.choice(["north", "south", "west"], 1000)}
    for solver, words in (
        ("auto", "without sampling error"),
        ("noisy_gd", "No bands: this solver"),
    ):
        regression = LinearRegression(target_bounds=(0, 1), solver=solver)
        model = PrivatePipeline([SchemaEncoder(SCHEMA), regression], epsilon=1.0)
        shapes = model.fit(X, X["age"] / 100).shapes_
        assert words in shapes.band
        assert (shapes["age"].band is not None) == (solver == "auto")
        assert solver != "auto" or np.ptp(shapes["age"].band, axis=-1).min() > 0.0


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
        truth = centred(0.5 * np.abs(knots), each)
        low, high = np.moveaxis(each.band[0], -1, 0)
        points.append(((low <= truth) & (truth <= high)).mean())
        low, high = np.moveaxis(all_of_it.band[0], -1, 0)
        whole.append(((low <= truth) & (truth <= high)).all())
    assert np.mean(points) >= 0.92
    assert np.mean(whole) > 0.95 - SLACK


COLUMNS = {
    "age": {"type": "numeric", "low": 0, "high": 100},
    "pay": {"type": "numeric", "low": 0, "high": 100},
    "region": {"type": "categorical", "categories": ["north", "south", "west"]},
}
FACTS = {"columns": COLUMNS, "provenance": "made up"}


def rows(n=6000):
    """A table, and scores: the same in every run."""
    rng = np.random.default_rng(3)
    X = {
        "age": rng.uniform(0, 100, n),
        "pay": rng.gamma(2.0, 15.0, n).clip(0, 100),
        "region": rng.choice(["north", "south", "west"], n, p=[0.5, 0.4, 0.1]),
    }
    return X, np.sin(X["age"] / 15.0) + 0.02 * X["pay"] - 1.0 * (X["region"] == "west"), rng


def shown_over_real(make, X, y, runs):
    """For each term the band's deviation over that of values, over runs on the same rows."""
    values, reaches = {}, {}
    for seed in range(runs):
        model = make(random_state=seed, epsilon=1.0, delta=1e-5).fit(X, y)
        # Bands of noise alone.
        model.estimator_._error_covariance = None
        for name, shape in model.shapes(simultaneous=False).items():
            values.setdefault(name, []).append(shape.values)
            reaches.setdefault(name, []).append(np.ptp(shape.band, axis=-1) / 2.0 / 1.96)
    return {
        name: np.sqrt(np.mean(np.square(reaches[name])) / np.var(found, axis=0, ddof=1).mean())
        for name, found in values.items()
    }


def covered_by_default(n=12_000, runs=6, monotone=None, forget=False):
    """Share of the values that pointwise bands of default fits cover, averaged over terms."""
    shares = []
    for seed in range(runs):
        rng = np.random.default_rng(50 + seed)
        X = {
            "age": rng.uniform(0, 100, n),
            "pay": rng.gamma(2.0, 15.0, n).clip(0, 100),
            "region": rng.choice(["north", "south", "west"], n, p=[0.5, 0.4, 0.1]),
        }
        z = 0.03 * X["age"] + np.abs(X["pay"] - 50.0) / 25.0 - 1.0 * (X["region"] == "west") - 2.0
        model = AdditiveClassifier(
            FACTS, classes=[0, 1], monotone=monotone, random_state=seed, epsilon=1.0, delta=1e-5
        ).fit(X, (z > rng.logistic(size=n)).astype(int))
        if forget:
            model.estimator_._error_covariance = None
        shapes = model.shapes(simultaneous=False)
        effects = {
            "age": lambda cell: 0.03 * cell,
            "pay": lambda cell: abs(cell - 50.0) / 25.0,
            "region": lambda cell: -1.0 * (cell == "west"),
        }
        for name, shape in shapes.items():
            assert np.isfinite(shape.band).all()
            truth = np.array([effects[name](cell) for cell in shape.points[0]])
            truth = centred(truth, shape)
            low, high = shape.band[0].T
            shares.append(((low <= truth) & (truth <= high)).mean())
    return np.mean(shares)


@pytest.mark.parametrize("monotone", [None, {"age": 1}], ids=["free", "monotone"])
def test_bands_of_default_fits_cover_and_end(monotone):
    assert covered_by_default(monotone=monotone) > 0.9


def test_bands_that_forget_sampling_and_smoothing_miss():
    assert covered_by_default(forget=True) < 0.85


PAIR = (("age", "pay"),)


@pytest.mark.parametrize("interactions", [(), PAIR], ids=["single", "pair"])
@pytest.mark.parametrize("family", ["two", "three", "numbers", "counts"])
def test_noise_bands_equal_spread_of_repeated_fits(family, interactions):
    """Bands that took noise as independent were too narrow or too wide by up to ten times."""
    X, z, rng = rows()
    noise = rng.gumbel(size=(len(z), 3))
    y = {
        "two": (z > rng.logistic(size=len(z))).astype(int),
        "three": (np.stack([0 * z, z, -z], axis=1) + noise).argmax(axis=1),
        "numbers": np.clip(z + rng.normal(size=len(z)), -10.0, 10.0),
        "counts": rng.poisson(np.exp(z)).clip(0, 60),
    }[family]
    make = {
        "two": functools.partial(AdditiveClassifier, FACTS, classes=[0, 1]),
        "three": functools.partial(AdditiveClassifier, FACTS, classes=[0, 1, 2]),
        "numbers": functools.partial(AdditiveRegressor, FACTS, target_bounds=(-10.0, 10.0)),
        "counts": functools.partial(
            AdditiveRegressor, FACTS, loss="poisson", target_bounds=(0.0, 60.0)
        ),
    }[family]
    make = functools.partial(make, interactions=interactions)
    ratios = shown_over_real(make, X, y, runs=12)
    assert all(0.4 < one < 2.7 for one in ratios.values()), ratios
    assert 0.6 < np.exp(np.mean(np.log(list(ratios.values())))) < 2.0, ratios


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("name", ["california", "adult"])
def test_bands_of_noise_on_real_tables(name, epsilon):
    data = load_california_housing() if name == "california" else load_adult()
    kind = AdditiveRegressor if name == "california" else AdditiveClassifier

    def make(**options):
        return kind(data.schema, **{**options, "epsilon": epsilon})

    ratios = shown_over_real(make, data.data, data.target, runs=10)
    assert all(0.3 < one < 4.0 for one in ratios.values()), ratios
    assert 0.6 < np.exp(np.mean(np.log(list(ratios.values())))) < 2.0, ratios


@pytest.mark.parametrize("inference", [True, False])
def test_bands_of_monotone_curves_are_projected_as_these_are(inference):
    X, z, rng = rows(20_000)
    model = AdditiveRegressor(
        FACTS,
        target_bounds=(-10.0, 10.0),
        epsilon=4.0,
        delta=1e-5,
        monotone={"age": 1},
        inference=inference,
        random_state=0,
    ).fit(X, np.clip(z + rng.normal(size=len(z)), -10.0, 10.0))
    shapes = model.shapes_
    (values,), (band,) = shapes["age"].values, shapes["age"].band
    assert (np.diff(values) >= -1e-9).all()
    assert (np.diff(values) < 1e-9).any()  # the curve rises and falls, so that something was pooled
    assert (np.diff(band, axis=0) >= -1e-9).all()
    assert ((band[:, 0] <= values + 1e-9) & (values <= band[:, 1] + 1e-9)).all()
    assert "monotone curves are projected" in shapes.band


def test_projected_bands_cover_monotone_curves():
    """Whatever monotone curve lies in a band still does after both of its ends are projected."""
    (term, *_), rng = terms_of(SCHEMA), np.random.default_rng(5)
    weights, size = weights_of(term, None), len(SCHEMA.feature_names)
    root = rng.normal(size=(size, size))
    truth = np.linspace(-1.0, 1.0, len(weights))
    coef = np.zeros(size)
    coef[term.features] = np.linalg.lstsq(term.matrix, truth, rcond=None)[0]
    hits = 0
    for _ in range(60):
        center = coef + root @ rng.normal(size=size)
        errors = Errors(center[np.newaxis], root @ root.T, np.ones(1), True)
        (plain,) = errors.band(term, weights, 0.95, True, 0)
        (projected,) = errors.band(term, weights, 0.95, True, 1)
        inside = ((plain[:, 0] <= truth) & (truth <= plain[:, 1])).all()
        kept = ((projected[:, 0] <= truth) & (truth <= projected[:, 1])).all()
        assert kept >= inside
        hits += bool(kept)
    assert hits >= 0.9 * 60
