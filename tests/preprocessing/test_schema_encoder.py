"""SchemaEncoder as a scikit-learn transformer: pipelines, names, output containers, clones."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from dpglm.preprocessing import SchemaEncoder
from dpglm.tables.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "job": {"type": "categorical", "categories": ["a", "b"]},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up",
    }
)
TABLE = {"age": [25, 100, 0], "job": ["b", "a", "a"], "ill": ["no", "yes", "yes"]}
ENCODED = [[-0.5, 0.0, 1.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]
NAMES = ["age", "job=a", "job=b"]


@pytest.mark.parametrize("schema", [SCHEMA, SCHEMA.to_dict()], ids=["schema", "dict"])
@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pl.DataFrame])
def test_encodes_tables_by_name(schema, kind):
    encoder = SchemaEncoder(schema)
    assert encoder.fit_transform(kind(TABLE)).tolist() == ENCODED
    assert encoder.get_feature_names_out().tolist() == NAMES
    assert encoder.feature_names_in_.tolist() == ["age", "job"]
    assert (encoder.n_features_in_, encoder.schema_) == (2, SCHEMA)
    assert encoder.row_norm_ == np.sqrt(2)


def test_learns_nothing_from_the_rows_it_is_fitted_on():
    other = {"age": [1], "job": ["a"]}
    fitted = SchemaEncoder(SCHEMA).fit(other)
    assert fitted.transform(TABLE).tolist() == ENCODED
    assert SchemaEncoder(SCHEMA).transform(TABLE).tolist() == ENCODED
    assert vars(fitted).keys() == vars(SchemaEncoder(SCHEMA).fit(TABLE)).keys()
    for name, value in vars(SchemaEncoder(SCHEMA).fit(TABLE)).items():
        assert np.array_equal(value, getattr(fitted, name)), name


def test_set_output_gives_named_columns():
    encoder = SchemaEncoder(SCHEMA).set_output(transform="pandas")
    frame = pd.DataFrame(TABLE, index=[7, 8, 9])
    encoded = encoder.fit_transform(frame)
    assert encoded.columns.tolist() == NAMES
    assert encoded.index.tolist() == [7, 8, 9]
    encoded = SchemaEncoder(SCHEMA).set_output(transform="polars").fit_transform(TABLE)
    assert encoded.columns == NAMES


def test_single_precision():
    assert SchemaEncoder(SCHEMA, dtype="float32").fit_transform(TABLE).dtype == np.float32


def test_works_in_a_pipeline_with_other_columns_present():
    pipeline = make_pipeline(SchemaEncoder(SCHEMA), LogisticRegression(C=100.0))
    frame = pd.DataFrame(TABLE)
    pipeline.fit(frame, frame["ill"])
    assert pipeline.predict(frame.drop(columns="ill")).tolist() == TABLE["ill"]
    assert pipeline[:-1].get_feature_names_out().tolist() == NAMES


def test_is_cloned_pickled_and_needs_no_fit():
    encoder = SchemaEncoder(SCHEMA, dtype="float32")
    check_is_fitted(encoder)
    for copy in (clone(encoder), pickle.loads(pickle.dumps(encoder))):
        assert copy.get_params() == {
            "schema": SCHEMA,
            "dtype": "float32",
            "drop": None,
            "formula": None,
        }


def test_errors_name_the_column():
    with pytest.raises(ValueError, match="the data lack column 'job'"):
        SchemaEncoder(SCHEMA).fit({"age": [1]})
    with pytest.raises(ValueError, match="column 'job', row 2: 'c' is not in"):
        SchemaEncoder(SCHEMA).fit_transform({"age": [1, 2], "job": ["a", "c"]})
    with pytest.raises(ValueError, match="schema must be a Schema, its JSON form or a path"):
        SchemaEncoder(3).fit(TABLE)
    with pytest.raises(ValueError, match=r"a schema must have the keys .*; missing: .*prov"):
        SchemaEncoder({"columns": {}}).fit(TABLE)
    with pytest.raises(ValueError, match=r"; missing: \['columns'\], unknown: \['colums'\]"):
        SchemaEncoder({"colums": {}, "provenance": "made up"}).fit(TABLE)


@pytest.mark.parametrize(
    ("drop", "words"),
    [
        ("last", "drop must be one of"),
        (["a"], "drop must be 'first', a mapping"),
        ({"jobs": "a"}, "drop must name columns of the schema"),
        ({"job": "c"}, "drop: 'c' is not among the categories of column 'job'"),
        ({"age": 3}, "drop: column 'age' has no categories and cannot have a reference"),
    ],
)
def test_errors_name_the_parameter(drop, words):
    with pytest.raises(ValueError, match=words):
        SchemaEncoder(SCHEMA, drop=drop).fit(TABLE)
