"""Shapes: they add up to the score, edits change predictions, tables are complete."""

import csv

import numpy as np
import pytest

from dpglm import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    PrivatePipeline,
    Ridge,
)
from dpglm.certificate import verify
from dpglm.preprocessing import SchemaEncoder
from dpglm.report import load_model, save_model
from dpglm.shapes.picture import scale_in_words
from dpglm.shapes.shape import Shape, terms_of
from dpglm.solvers import NoisyGD
from dpglm.tables.additive import Additive
from dpglm.tables.additive_terms import CategoricalAxis
from dpglm.tables.schema import Schema

CURVES = Additive(segments=4, reach=1.0, interactions=(("dose", "region"),), pair_segments=2)
COLUMNS = {
    "age": {"type": "numeric", "low": 0, "high": 100},
    "dose": {"type": "numeric", "low": 0, "high": 1000, "scale": "log", "missing": 0},
    "region": {"type": "categorical", "categories": ["north", "south", "west"]},
}
FACTS = {"columns": COLUMNS, "provenance": "made up"}
SCHEMA = Schema.from_dict(FACTS).with_additive(CURVES)


def table(n=3000):
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 1000, n)
    dose[::7] = np.nan
    region = rng.choice(["north", "south", "west"], n)
    return {"age": rng.uniform(0, 100, n), "dose": dose, "region": region}


def fitted(schema=SCHEMA, n_classes=2, **options):
    X = table()
    score = np.sin(X["age"] / 20.0) + (X["region"] == "west")
    y = np.digitize(score, [0.5, 1.2][: n_classes - 1])
    model = LogisticRegression(classes=range(n_classes), **options)
    return PrivatePipeline([SchemaEncoder(schema), model], epsilon=50.0, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def model():
    return fitted()


def added_up(shapes, X, output=0):
    scores = np.full(len(X["age"]), shapes.intercept[output])
    for shape in shapes.values():
        shares = [axis.weights(X[axis.name]).toarray() for axis in shape.axes]
        both = np.einsum("ni,nj->nij", *shares) if len(shares) == 2 else shares[0]
        scores += (both * shape.values[output]).reshape(len(scores), -1).sum(axis=1)
    return scores


@pytest.mark.parametrize("schema", [SCHEMA, Schema.from_dict(FACTS)], ids=["additive", "linear"])
def test_shapes_add_up_to_the_score(schema):
    X = {name: column[:500] for name, column in table().items()}
    model = fitted(schema)
    np.testing.assert_allclose(added_up(model.shapes_, X), model.decision_function(X), atol=1e-9)


def test_shapes_of_each_class_add_up():
    X, model = table(), fitted(n_classes=3)
    scores = model.decision_function(X)
    for output in range(3):
        np.testing.assert_allclose(added_up(model.shapes_, X, output), scores[:, output], atol=1e-9)
    assert model.shapes_["age"].outputs == ("0", "1", "2")


def test_values_are_centred_over_rows(model):
    for shape in model.shapes_.values():
        assert abs((shape.weights * shape.values[0]).sum()) < 1e-9
        assert shape.weights.sum() == pytest.approx(1.0)
        assert shape.weights.min() >= 0.0
    assert model.shapes_.are_of_rows
    assert "mean over rows" in scale_in_words(model.shapes_, common=False)
    assert model.shapes_["dose"].points[0][-1] is None
    assert list(model.shapes_) == ["age", "dose", "region", "dose x region"]


@pytest.mark.parametrize("schema", [SCHEMA, Schema.from_dict(FACTS)], ids=["additive", "linear"])
def test_weights_are_shares_of_rows(schema, tmp_path):
    X, rng = table(), np.random.default_rng(1)
    X["age"] = 100.0 * rng.beta(2, 5, 3000)
    X["region"] = rng.choice(["north", "south", "west"], 3000, p=[0.8, 0.17, 0.03])
    last = LinearRegression(target_bounds=(0, 1), inference=True)
    model = PrivatePipeline([SchemaEncoder(schema), last], epsilon=50.0, random_state=0)
    model.fit(X, X["age"] / 100.0)
    save_model(model, tmp_path / "model.json")
    read = load_model(tmp_path / "model.json").shapes_
    for name, shape in model.shapes_.items():
        np.testing.assert_allclose(read[name].weights, shape.weights)
        np.testing.assert_allclose(read[name].band, shape.band)
        if len(shape.axes) == 1:
            shares = np.asarray(shape.axes[0].weights(X[name]).mean(axis=0)).ravel()
            assert abs(shares @ shape.values[0]) < 0.01
    np.testing.assert_allclose(read["region"].weights, [0.8, 0.17, 0.03], atol=0.02)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("make", [LogisticRegression, PoissonRegressor])
def test_rows_count_alike_however_large_their_curvature_is(make, inference):
    # Indicators of all levels add up to the constant, so errors do not determine their means.
    X, rng = table(20_000), np.random.default_rng(1)
    X["region"] = rng.choice(["north", "south", "west"], 20_000, p=[0.8, 0.15, 0.05])
    facts = {"classes": [0, 1]} if make is LogisticRegression else {"target_bounds": (0, 1)}
    last = make(inference=inference, **facts)
    steps = [SchemaEncoder(Schema.from_dict(FACTS)), last]
    model = PrivatePipeline(steps, epsilon=3.0, delta=1e-5, random_state=0)
    chances = np.where(X["region"] == "north", 0.01, 0.5)
    shape = model.fit(X, (rng.random(20_000) < chances).astype(int)).shapes_["region"]
    np.testing.assert_allclose(shape.weights, [0.8, 0.15, 0.05], atol=0.02)


def test_shapes_of_several_classes_have_mean_zero_over_rows():
    shapes = fitted(n_classes=3).shapes_
    assert shapes.are_of_rows
    np.testing.assert_allclose(shapes["region"].weights, 1.0 / 3.0, atol=0.03)
    assert shapes["dose"].weights[-1] == pytest.approx(1.0 / 7.0, abs=0.05)


def test_without_released_means_all_values_count_alike():
    shapes = fitted(solver=NoisyGD()).shapes_
    np.testing.assert_allclose(shapes["region"].weights, 1.0 / 3.0)
    np.testing.assert_allclose(shapes["dose"].weights, [0.2, 0.2, 0.2, 0.2, 0.2, 0.0])
    assert "mean over its knots or levels" in scale_in_words(shapes, common=False)


def test_importance_is_the_deviation(model):
    largest = model.shapes_.by_importance
    assert largest[0].term in ("age", "region")
    age = model.shapes_["age"]
    assert age.importance == pytest.approx(np.sqrt(age.weights @ age.values[0] ** 2))


def test_formula_with_three_columns_in_a_term_has_no_shapes():
    schema = Schema.from_dict({**FACTS, "formula": "age * dose * C(region)"})
    X = table()
    pipeline = PrivatePipeline([SchemaEncoder(schema), Ridge(target_bounds=(0, 1))], epsilon=9.0)
    pipeline.fit(X, X["age"] / 100.0)
    with pytest.raises(ValueError, match="one or two columns"):
        pipeline.shapes()
    assert not hasattr(pipeline, "shapes_")


def test_points_become_predictions(model):
    X = {"age": [0.0, 25.0, 60.0, 200.0], "dose": [5.0] * 4, "region": ["west"] * 4}
    edited = model.with_shape("age", {0: -1.0, 50: 0.0, 100: 3.0})
    moved = edited.decision_function(X)
    np.testing.assert_allclose(np.diff(moved), [0.5, 1.1, 2.4], atol=1e-9)
    # All other terms, and the mean effect of age, are as before.
    age, wanted = edited.shapes_["age"], np.array([-1.0, -0.5, 0.0, 1.5, 3.0])
    np.testing.assert_allclose(age.values[0], wanted - age.weights @ wanted, atol=1e-9)
    for name in ("dose", "region", "dose x region"):
        np.testing.assert_allclose(
            edited.shapes_[name].values, model.shapes_[name].values, atol=1e-9
        )


def test_levels_and_missing_values_are_edited_alone(model):
    before = model.shapes_["region"].values[0]
    edited = model.with_shape("region", {"west": 2.0})
    after = edited.shapes_["region"].values[0]
    np.testing.assert_allclose(after[1] - after[0], before[1] - before[0], atol=1e-9)
    np.testing.assert_allclose(after[2] - after[0], 2.0 - before[0], atol=1e-9)
    dose = model.with_shape("dose", {None: 1.5}).shapes_["dose"].values[0]
    before = model.shapes_["dose"].values[0]
    np.testing.assert_allclose(np.diff(dose[:-1]), np.diff(before[:-1]), atol=1e-9)
    assert dose[-1] - dose[0] == pytest.approx(1.5 - before[0])


def test_monotone_flat_and_zero(model):
    age = model.shapes_["age"]
    rising = model.with_shape("age", age.monotone(1)).shapes_["age"].values[0]
    assert (np.diff(rising) >= -1e-12).all()
    assert (np.diff(age.monotone(-1).values[0]) <= 0.0).all()
    assert np.ptp(age.flattened(25, 75).values[0][1:4]) == 0.0
    X = table(100)
    without = model.with_shape("dose x region", model.shapes_["dose x region"].flattened())
    np.testing.assert_allclose(without.shapes_["dose x region"].values, 0.0, atol=1e-9)
    other = {**X, "age": np.full(100, 3.0)}
    flat = model.with_shape("age", age.flattened())
    np.testing.assert_allclose(flat.decision_function(X), flat.decision_function(other))


def test_edits_leave_the_fitted_model_alone(model):
    before = model.coef_.copy(), model.intercept_.copy()
    model.with_shape("age", {0: 5.0})
    np.testing.assert_array_equal(model.coef_, before[0])
    np.testing.assert_array_equal(model.intercept_, before[1])


def test_certificate_lists_edits(model, tmp_path):
    once = model.with_shape("age", model.shapes_["age"].monotone(1))
    twice = once.with_shape("region", {"west": 0.0}).with_shape("age", {0: 1.0})
    assert twice.privacy_.fact("edited_shapes").value.keys() == {"age", "region"}
    assert "never falls, then through" in twice.privacy_.statement()
    assert model.privacy_.fact("edited_shapes") is None
    assert all(check.passed for check in verify(twice.privacy_).checks)
    save_model(twice, tmp_path / "model.json")
    X = table(50)
    np.testing.assert_array_equal(
        load_model(tmp_path / "model.json").decision_function(X), twice.decision_function(X)
    )
    assert twice.shapes_["age"].edit
    assert twice.shapes_["age"].band is None


def test_an_edited_model_has_no_intervals():
    model = fitted(inference=True, C=np.inf)
    assert model.shapes_["age"].band is not None
    edited = model.with_shape("age", {0: 0.0})
    with pytest.raises(AttributeError):
        edited.inference_  # noqa: B018
    assert model.inference_ is not None


@pytest.mark.parametrize(
    ("term", "shape", "words"),
    [
        ("age", {200: 1.0}, "points"),
        ("age", {}, "points must map"),
        ("region", {"east": 1.0}, "levels of column 'region'"),
        ("dose x region", {0: 1.0}, "one column"),
    ],
)
def test_edits_that_mean_nothing_are_refused(model, term, shape, words):
    with pytest.raises(ValueError, match=words):
        model.with_shape(term, shape)


def test_shapes_of_other_terms_are_refused(model):
    with pytest.raises(ValueError, match="must be of 'dose'"):
        model.with_shape("dose", model.shapes_["age"])
    with pytest.raises(ValueError, match="term must be one of"):
        model.with_shape("weight", {0: 1.0})
    with pytest.raises(ValueError, match="needs one numeric or ordered column"):
        model.shapes_["region"].monotone(1)
    with pytest.raises(ValueError, match="between"):
        model.shapes_["age"].flattened(1, 2)


def test_the_table_is_all_of_the_model(model, tmp_path):
    frame = model.shapes_table()
    assert len(frame) == 5 + 6 + 3 + 4 * 3
    model.shapes_.to_csv(tmp_path / "shapes.csv")
    rows = list(csv.DictReader((tmp_path / "shapes.csv").read_text().splitlines()))
    ages = {float(row["value"]): float(row["effect"]) for row in rows if row["term"] == "age"}
    edited = model.with_shape("age", {0: 9.0}).with_shape("age", ages)
    X = table(50)
    # Back to where it was, up to the mean that the edit had moved to the intercept.
    gap = edited.decision_function(X) - model.decision_function(X)
    np.testing.assert_allclose(gap, gap[0], atol=1e-9)


def test_tables_of_many_levels_read_their_points_once(monkeypatch):
    entry = {"type": "categorical", "categories": [f"z{i}" for i in range(100)]}
    schema = Schema.from_dict({"columns": {"z": entry}, "provenance": "made up"})
    (term,) = terms_of(schema.with_additive(Additive(segments=1, reach=1.0)))
    shape = Shape(term.axes, ("y",), np.zeros((1, 100)), np.full(100, 0.01))
    asked = []
    cells = CategoricalAxis.grid
    monkeypatch.setattr(CategoricalAxis, "grid", lambda *given: asked.append(1) or cells(*given))
    assert len(shape.to_dict()["value"]) == 100
    assert len(asked) == 1
