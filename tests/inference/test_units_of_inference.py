"""Intervals are per unit of the user's columns, and where they cannot be the summary says so."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.pipeline import make_pipeline

from dpglm import (
    LogisticRegression,
    ParquetRows,
    PrivateGridSearchCV,
    PrivatePipeline,
)
from dpglm.preprocessing import SchemaEncoder
from dpglm.report import load_model, save_model
from dpglm.report.page import coefficient_table
from dpglm.solvers import Auto
from dpglm.tables.schema import Schema

N = 3000
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 16, "high": 90},
            "region": {
                "type": "categorical",
                "categories": ["north", "south", "west"],
                "reference": "north",
            },
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "the questionnaire",
    }
)
NAMES = ("intercept", "age", "region=south vs north", "region=west vs north")
OPTIONS = {"inference": True, "C": np.inf}
FREE = {"epsilon": 1e5, "delta": 1e-6, "random_state": 0}


def table():
    rng = np.random.default_rng(2)
    age, region = rng.uniform(16, 90, N), rng.choice(["north", "south", "west"], N)
    z = 0.03 * (age - 50) + 0.7 * (region == "south")
    ill = np.where(rng.logistic(size=N) < z, "yes", "no")
    return {"age": age, "region": region, "ill": ill}


def told():
    return {"row_norm": SCHEMA.row_norm, **SCHEMA.target.estimator_parameters()}


@pytest.fixture(scope="module")
def of_pipeline():
    steps = [SchemaEncoder(SCHEMA), LogisticRegression(**OPTIONS, classes=["no", "yes"])]
    return PrivatePipeline(steps, **FREE).fit(table())


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    parquet.write_table(pa.table(table()), path)
    rows = ParquetRows(path, schema=SCHEMA, dtype="float64")
    return LogisticRegression(**OPTIONS, **told(), **FREE).fit(rows)


def test_rows_that_carry_a_schema_have_effects_of_the_table(streamed, of_pipeline):
    """They had effects per half range of x0, x1, ..."""
    inference, known = streamed.inference_, of_pipeline.inference_
    assert inference.names == known.names == NAMES
    np.testing.assert_allclose(inference.params, known.params, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(inference.covariance, known.covariance, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(
        inference.prediction_interval(SCHEMA.encode(table())),
        known.prediction_interval(table()),
        rtol=1e-6,
    )
    assert "of the columns of the fit" not in str(inference)


def test_files_and_reports_map_them_once(streamed, tmp_path):
    inference = streamed.inference_
    save_model(streamed, tmp_path / "model.json")
    read = load_model(tmp_path / "model.json").inference
    shown = coefficient_table(streamed).inference
    for one in (read, shown):
        assert one.names == NAMES
        np.testing.assert_allclose(one.params, inference.params)
        np.testing.assert_allclose(one.covariance, inference.covariance)


def test_scikit_learn_pipeline_states_the_units(of_pipeline):
    data = table()
    encoder = SchemaEncoder(SCHEMA)
    known = {
        "prior_scales": SCHEMA.encoding.prior_scales,
        "solver": Auto(indicators=SCHEMA.encoding.indicators),
    }
    model = make_pipeline(encoder, LogisticRegression(**OPTIONS, **told(), **FREE, **known))
    inference = model.fit(data, data["ill"])[-1].inference_
    assert inference.names[1] == "x0"
    said = " ".join(str(inference).split())
    assert "Coefficients are per unit of the columns of the fit." in said
    assert "in_units(encoder.units())" in said
    mapped = inference.in_units(encoder.units())
    assert mapped.names == NAMES
    np.testing.assert_allclose(mapped.params, of_pipeline.inference_.params, rtol=1e-6, atol=1e-8)
    assert "of the columns of the fit" not in str(mapped)
    assert mapped.of_features.names == inference.names


def test_error_names_the_inference_option():
    data = table()
    X = SCHEMA.encode(data)
    model = LogisticRegression(**told())
    with pytest.raises(AttributeError, match="not fitted yet"):
        _ = model.inference_
    model.set_params(inference=True).fit(X, data["ill"])
    assert hasattr(model, "inference_")
    model.set_params(inference=False).fit(X, data["ill"])
    with pytest.raises(AttributeError, match="requires a fit with inference=True"):
        _ = model.inference_
    pipeline = PrivatePipeline([SchemaEncoder(SCHEMA), LogisticRegression(classes=["no", "yes"])])
    with pytest.raises(AttributeError, match="requires a fit with inference=True"):
        _ = pipeline.fit(data).inference_


@pytest.mark.parametrize("method", ["repeated", "held_out"])
def test_search_states_that_intervals_would_not_cover(method):
    data = table()
    search = PrivateGridSearchCV(
        LogisticRegression(inference=True, **told()), {"C": [0.1, 1.0]}, method=method
    )
    with pytest.raises(ValueError, match=r"inference must be False .* would not cover"):
        search.fit(SCHEMA.encode(data), data["ill"])
