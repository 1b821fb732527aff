"""Models from formulas: fits, names, and later uses."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import dpglm
from dpglm import LogisticRegression, PrivateGridSearchCV, PrivatePipeline
from dpglm.data.stream.arrow import ParquetRows
from dpglm.preprocessing import SchemaEncoder
from dpglm.report import load_model, save_model
from dpglm.report.page import coefficient_table
from dpglm.tables.schema import Schema

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 16, "high": 90},
        "sex": {"type": "categorical", "categories": ["female", "male"]},
        "spare": {"type": "numeric", "low": 0, "high": 1},
    },
    "target": {"name": "y", "type": "numeric", "low": -20, "high": 20},
    "provenance": "made up",
}
FORMULA = "y ~ I(age / 10) * sex + np.log(age)"
TRUTH = {
    "I(age / 10)": 0.5,
    "sex[T.male]": -1.0,
    "np.log(age)": 2.0,
    "I(age / 10):sex[T.male]": 0.25,
}
BASE = -6.0


def table_of(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    age, male = rng.uniform(16, 90, n), rng.random(n) < 0.5
    mean = BASE + 0.05 * age - male + 2.0 * np.log(age) + 0.025 * age * male
    sex = np.where(male, "male", "female")
    return {"age": age, "sex": sex, "y": mean + 0.1 * rng.normal(size=n)}


def schema_with(target):
    return SCHEMA | {"target": {"name": "y"} | target}


BINARY = schema_with({"type": "binary", "classes": ["no", "yes"]})


@pytest.fixture(scope="module")
def table():
    return table_of()


@pytest.fixture(scope="module")
def model(table):
    return dpglm.from_formula(FORMULA, SCHEMA, epsilon=1e4, random_state=0).fit(table)


def test_effects_are_those_of_the_formulas_columns(model):
    shown = coefficient_table(model)
    assert dict(zip(shown.features, shown.values[0], strict=True)) == pytest.approx(TRUTH, abs=0.1)
    assert shown.intercepts[0] == pytest.approx(BASE, abs=0.3)
    assert model.coefficient_names().tolist() == list(TRUTH)


def test_tables_are_scored_with_and_without_target(model, table):
    held_out = table_of(50, seed=1)
    features = {name: held_out[name] for name in ("age", "sex")}
    predicted = model.predict(pd.DataFrame(features))
    np.testing.assert_array_equal(model.predict(pl.DataFrame(held_out)), predicted)
    np.testing.assert_allclose(predicted, held_out["y"], atol=0.6)
    assert model.score(held_out) == model.score(features, held_out["y"]) > 0.99
    with pytest.raises(ValueError, match="y must be given, or X must have the target's column"):
        model.score(features)


def test_is_a_pipeline_of_known_parts(table):
    model = dpglm.from_formula(FORMULA, SCHEMA, epsilon=2.0, n_rows=20_000)
    encoder, estimator = (step for _, step in model._named())
    assert isinstance(model, PrivatePipeline)
    assert (model.epsilon, model.n_rows, encoder.formula) == (2.0, 20_000, FORMULA)
    assert (estimator.target_bounds, estimator.fit_intercept) == ((-20, 20), True)
    plan = model.plan(20_000)
    assert plan == model.plan(20_000, 4)
    assert plan.document == clone(model).fit(table).solution_.plan.document
    assert plan.data.row_norm == pytest.approx(math.sqrt(2.5))


def test_the_certificate_has_the_schema_and_its_formula(model, tmp_path):
    schema = Schema.from_dict(SCHEMA).with_formula(FORMULA)
    assert Schema.from_dict(model.privacy_.fact("schema").value) == schema
    # So that the last step alone can be saved and shown, too.
    save_model(model.estimator_, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").schema == schema
    assert coefficient_table(model.estimator_).features == coefficient_table(model).features


@pytest.mark.parametrize(
    ("target", "kind", "parameters"),
    [
        ({"type": "binary", "classes": ["no", "yes"]}, "LogisticRegression", {"C": math.inf}),
        ({"type": "numeric", "low": 0, "high": 9}, "LinearRegression", {"target_bounds": (0, 9)}),
        ({"type": "count", "high": 9}, "PoissonRegressor", {"alpha": 0.0}),
    ],
)
def test_the_targets_type_chooses_a_model_without_penalty(target, kind, parameters):
    model = dpglm.from_formula("~ age", schema_with(target))
    ((_, estimator),) = model._named()[1:]
    assert type(estimator).__name__ == kind
    assert parameters.items() <= estimator.get_params().items()


def test_estimators_and_their_parameters_can_be_given():
    model = dpglm.from_formula(
        "y ~ age", BINARY, LogisticRegression(C=3.0), epsilon=0.5, solver="newton"
    )
    ((_, estimator),) = model._named()[1:]
    assert (estimator.C, estimator.solver, estimator.classes) == (3.0, "newton", ["no", "yes"])
    with pytest.raises(ValueError, match="cannot predict the target 'y'"):
        dpglm.from_formula("y ~ age", SCHEMA, LogisticRegression())
    with pytest.raises(ValueError, match="estimator must be a linear model of dpglm"):
        dpglm.from_formula("y ~ age", SCHEMA, "ridge")
    with pytest.raises(ValueError, match="unheard_of"):
        dpglm.from_formula("y ~ age", SCHEMA, unheard_of=1)
    with pytest.raises(ValueError, match=r"term 'center\(age\)'.*would learn"):
        dpglm.from_formula("y ~ center(age)", SCHEMA)


def test_without_an_intercept(table):
    model = dpglm.from_formula("y ~ 0 + sex", SCHEMA, epsilon=1e4, random_state=0).fit(table)
    assert model.intercept_ == 0.0
    means = [table["y"][table["sex"] == one].mean() for one in ("female", "male")]
    np.testing.assert_allclose(coefficient_table(model).values[0], means, atol=0.05)


def test_model_files_hold_the_formula_and_predict_tables(model, tmp_path):
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.schema.formula == FORMULA
    held_out = table_of(50, seed=1)
    np.testing.assert_array_equal(loaded.predict(held_out), model.predict(held_out))


def test_streams_parquet(table, tmp_path):
    pytest.importorskip("pyarrow")
    pd.DataFrame(table).to_parquet(tmp_path / "rows.parquet")
    schema = Schema.from_dict(SCHEMA).with_formula(FORMULA)
    rows = ParquetRows(tmp_path / "rows.parquet", schema=schema, dtype="float64")
    estimator = dpglm.LinearRegression(
        epsilon=1e4, random_state=0, row_norm=schema.row_norm, target_bounds=(-20, 20)
    )
    shown = coefficient_table(estimator.fit(rows))
    assert dict(zip(shown.features, shown.values[0], strict=True)) == pytest.approx(TRUTH, abs=0.1)


def test_searches_over_a_formula_model(table):
    labels = np.where(table["y"] > 6.0, "yes", "no")
    model = dpglm.from_formula("~ age + sex", BINARY, LogisticRegression())
    search = PrivateGridSearchCV(model, {"logisticregression__C": [0.1, 1.0]}, epsilon=1.0)
    search.fit({"age": table["age"], "sex": table["sex"]}, labels)
    assert coefficient_table(search).features == ("age", "sex[T.male]")


def test_pipelines_take_targets_from_described_tables(table):
    steps = [
        SchemaEncoder(SCHEMA, formula="~ age"),
        dpglm.LinearRegression(target_bounds=(-20, 20)),
    ]
    options = {"epsilon": 5.0, "random_state": 0}
    own = PrivatePipeline(steps, **options).fit(table)
    given = PrivatePipeline(steps, **options).fit(table, table["y"])
    np.testing.assert_array_equal(own.coef_, given.coef_)
