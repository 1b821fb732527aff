"""The schema: its JSON form, and the row-local, bounded encoding."""

import copy
import json
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm.datasets import load_adult, load_california_housing
from dpglm.tables.schema import Schema
from tests.slowly import together

PLAIN = {
    "columns": {
        "age": {"type": "numeric", "low": 20, "high": 60},
        "job": {"type": "categorical", "categories": ["a", "b", ""]},
        "size": {"type": "numeric", "low": -1.5, "high": 0.5, "missing": 0},
        "room": {"type": "categorical", "categories": [1, 2], "other": 2},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "the questionnaire",
}
TABLE = {
    "age": [30, 99, 20],
    "job": ["b", "a", None],
    "size": [0.5, None, -9.0],
    "room": ["1", "7", 2],
    "ill": ["no", "yes", "no"],
}
ENCODED = [
    [-0.5, 0, 1, 0, 1.0, 1, 0],
    [1.0, 1, 0, 0, 0.5, 0, 1],
    [-1.0, 0, 0, 1, -1.0, 0, 1],
]


def changed(path, value):
    """PLAIN with the entry at a path replaced, or removed if the value is ``...``."""
    document = copy.deepcopy(PLAIN)
    *way, last = path.split("/")
    where = document
    for key in way:
        where = where[key]
    if value is ...:
        del where[last]
    else:
        where[last] = value
    return document


@pytest.fixture
def schema():
    return Schema.from_dict(PLAIN)


class TestJson:
    def test_is_read_and_written_back(self, schema, tmp_path):
        assert schema.to_dict() == PLAIN
        (tmp_path / "s.json").write_text(json.dumps(PLAIN))
        assert Schema.from_json(tmp_path / "s.json") == schema
        assert pickle.loads(pickle.dumps(schema)) == copy.deepcopy(schema) == schema

    @pytest.mark.parametrize("load", [load_adult, load_california_housing])
    def test_shipped_schemas_are_read(self, load):
        data = load()
        schema = Schema.from_dict(data.schema)
        assert schema.column_names == data.feature_names
        assert schema.to_dict() == data.schema
        assert len(schema.encode(data.data)) == len(schema.encode_target(data.target))

    def test_fields_left_open_in_a_template_are_ignored(self, schema):
        document = changed(
            "columns/age", {"type": "numeric", "low": 20, "high": 60, "categories": []}
        )
        document["columns"]["job"] |= {"low": None, "high": None}
        document["target"] |= {"low": None, "high": None}
        document["how to fill this in"] = ["..."]
        assert Schema.from_dict(document) == schema

    @together(
        ("path", "value", "says"),
        [
            ("columns", ..., "keys columns, provenance"),
            ("extra", 1, "keys"),
            ("columns", [], '"columns" must be an object'),
            ("columns", {}, "at least one column"),
            ("columns/age", 3, "column 'age': must be a JSON object, got 3"),
            ("columns/age", {}, "column 'age': is not filled in: give low and high"),
            ("columns/age", {"type": None, "missing": 0}, "column 'age': is not filled in"),
            ("columns/age", {"type": "date"}, "low and high must be filled in for the type 'date'"),
            ("columns/age/type", [1], "column 'age': type must be one of"),
            ("columns/age", {"type": "duration", "low": 0, "high": 1, "unit": [1]}, "unit must be"),
            ("columns/age/type", "number", "type must be one of .'categorical', 'numeric'."),
            ("columns/age/low", None, "low must be filled in for the type 'numeric'"),
            ("columns/age", {"type": "numeric", "low": 0, "hihg": 9}, "'numeric', got low, hihg$"),
            ("columns/age/low", 60, '"low" must be less than "high", got 60 and 60'),
            ("columns/age/low", float("nan"), "low must be a finite number"),
            ("columns/age/low", "20", "low must be a finite number"),
            ("columns/age/lo", 3, "unknown: .'lo'."),
            ("columns/age/categories", ["a"], "unknown: .'categories'."),
            (
                "columns/job/categories",
                [],
                "categories must be filled in for the type 'categorical'",
            ),
            ("columns/job/categories", "ab", '"categories" must be a list'),
            ("columns/job/categories", ["a"], '"categories" must list at least two'),
            ("columns/job/categories", ["a", "b", "a"], "'a' occurs twice"),
            ("columns/job/categories", ["a", ["b"]], '"categories" must list at least two'),
            ("columns/room/other", 3, "other must be one of the categories, got 3"),
            ("target", "ill", 'the target: must be an object with the "name"'),
            ("target/name", None, 'the target: must be an object with the "name"'),
            ("target/name", "age", "each column must have its own name, but 'age'"),
            ("target/type", "category", "binary, classes, numeric, count, got"),
            ("target/classes", ["a", "b", "c"], '"classes" must list two for the type "binary"'),
            ("target", {"name": "y", "type": "binary"}, "classes must be filled in .*, got none"),
            ("target/classes", ["a", ""], "classes must not list"),
            ("provenance", " ", '"provenance" is not filled in'),
            ("provenance", None, '"provenance" must be text'),
            ("columns/job=a", {"type": "numeric", "low": 0, "high": 1}, "each feature must have"),
        ],
    )
    def test_errors_name_the_column_and_the_cure(self, path, value, says):
        with pytest.raises(ValueError, match=says):
            Schema.from_dict(changed(path, value))

    def test_all_columns_with_problems_are_named_at_once(self):
        document = changed("columns/age/type", "number")
        document["columns"]["room"] = {"type": "categorical"}
        document["target"]["type"] = "number"
        with pytest.raises(ValueError, match=r"(?s)column 'age'.*column 'room'.*the target"):
            Schema.from_dict(document)

    def test_a_long_list_of_problems_is_cut(self):
        columns = {f"c{i}": {"type": None} for i in range(50)}
        with pytest.raises(ValueError, match=r"\(50 in all\)") as caught:
            Schema.from_dict(PLAIN | {"columns": columns})
        assert len(str(caught.value)) < 1500

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("{", "s.json is not a JSON file"),
            ("[]", "s.json: a schema must be a JSON object"),
            ('{"columns": {"a": 1, "a": 2}}', "columns must have each key once, but 'a'"),
        ],
    )
    def test_errors_of_a_file_name_it(self, tmp_path, text, says):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + f".*{says}"):
            Schema.from_json(tmp_path / "s.json")

    @pytest.mark.parametrize("not_a_schema", [None, 3, "text", ["columns"]])
    def test_other_values_are_refused(self, not_a_schema):
        with pytest.raises(ValueError, match="must be a JSON object"):
            Schema.from_dict(not_a_schema)


class TestEncode:
    @pytest.mark.parametrize(
        "table",
        [
            TABLE,
            {name: np.array(values, dtype=object) for name, values in TABLE.items()},
            pd.DataFrame(TABLE),
            pd.DataFrame(TABLE)[["room", "ill", "size", "job", "age"]],
            pd.DataFrame(TABLE).astype({"job": "category"}),
            pl.DataFrame(TABLE, strict=False),
            pd.DataFrame(TABLE).drop(columns="ill").to_numpy(),
        ],
        ids=["lists", "arrays", "pandas", "other order", "pandas category", "polars", "matrix"],
    )
    def test_follows_the_schema_for_every_kind_of_table(self, schema, table):
        encoded = schema.encode(table)
        assert encoded.dtype == np.float64
        assert encoded.tolist() == ENCODED

    def test_single_precision(self, schema):
        encoded = schema.encode(TABLE, "float32")
        assert encoded.dtype == np.float32
        assert encoded.tolist() == ENCODED
        with pytest.raises(ValueError, match="dtype must be one of"):
            schema.encode(TABLE, "int8")

    def test_names_identify_features(self, schema):
        assert schema.feature_names == (
            *("age", "job=a", "job=b", "job=", "size", "room=1", "room=2"),
        )

    def test_a_missing_column_is_named(self, schema):
        with pytest.raises(ValueError, match="the data lack columns 'job', 'room', which"):
            schema.encode({"age": [1], "size": [1]})
        with pytest.raises(ValueError, match="the data lack column 'job'"):
            schema.check_columns(pd.DataFrame(TABLE).drop(columns="job"))

    @pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 3)])
    def test_an_array_must_have_the_schemas_columns(self, schema, shape):
        with pytest.raises(ValueError, match=r"shape \(n, 4\)"):
            schema.encode(np.zeros(shape))

    def test_columns_must_be_of_one_length(self, schema):
        with pytest.raises(ValueError, match="column 'size' has 2 rows, but 'age' has 3"):
            schema.encode(TABLE | {"size": [1, 2]})

    @pytest.mark.parametrize(
        ("column", "cell", "says"),
        [
            ("age", "old", "column 'age', row 2: 'old' is not a number"),
            ("age", None, "column 'age', row 2: the value is missing"),
            ("age", np.inf, "column 'age', row 2: the value is infinite"),
            ("job", "c", "column 'job', row 2: 'c' is not in .* \"other\": CATEGORY"),
        ],
    )
    def test_a_bad_cell_is_named_with_its_cure(self, schema, column, cell, says):
        table = copy.deepcopy(TABLE)
        table[column][1] = cell
        with pytest.raises(ValueError, match=says):
            schema.encode(table)

    def test_no_rows_give_no_rows(self, schema):
        assert schema.encode({name: [] for name in TABLE}).shape == (0, 7)


cells = st.fixed_dictionaries(
    {
        "age": st.floats(allow_nan=False, allow_infinity=False),
        "job": st.sampled_from(["a", "b", "", None]),
        "size": st.none() | st.floats(-1e300, 1e300),
        "room": st.sampled_from([1, 2, "1", "x", None]),
    }
)


class TestPrivacy:
    @given(rows=st.lists(cells, min_size=1, max_size=6), dtype=st.sampled_from(["<f8", "<f4"]))
    def test_each_row_is_encoded_by_itself_and_within_the_norm(self, rows, dtype):
        schema = Schema.from_dict(PLAIN)
        name = np.dtype(dtype).name
        encoded = schema.encode({key: [row[key] for row in rows] for key in rows[0]}, name)
        alone = [schema.encode({key: [row[key]] for key in row}, name)[0] for row in rows]
        assert encoded.tolist() == [row.tolist() for row in alone]
        norms = np.linalg.norm(encoded.astype(np.float64), axis=1)
        assert (norms <= schema.row_norm * (1 + 1e-15)).all()

    def test_norm_is_root_of_number_of_columns_and_attained(self, schema):
        corner = {"age": [60], "job": ["a"], "size": [-1.5], "room": [1]}
        assert schema.row_norm == 2.0 == np.linalg.norm(schema.encode(corner))

    def test_the_checks_see_an_encoding_that_learns_or_does_not_clip(self):
        """The two properties above fail for the usual scaling of a column."""
        ages = np.array([30.0, 99.0, 20.0])
        learned = (ages - ages.mean()) / ages.std()
        assert learned[0] != 0.0 == (ages[:1] - ages[:1].mean())[0]
        unclipped = (ages - 40.0) / 20.0
        assert np.abs(unclipped).max() > 1.0


class TestTarget:
    @pytest.mark.parametrize(
        ("entry", "cells", "targets", "parameters", "default"),
        [
            (
                {"type": "binary", "classes": ["no", "yes"]},
                ["yes", " no", "yes"],
                ["yes", "no", "yes"],
                {"classes": ["no", "yes"]},
                "logistic",
            ),
            (
                {"type": "classes", "classes": [3, 1, 2]},
                ["1", 3, 2.0],
                [1, 3, 2],
                {"classes": [3, 1, 2]},
                "logistic",
            ),
            (
                {"type": "binary", "classes": [False, True]},
                ["true", False, 1],
                [True, False, True],
                {"classes": [False, True]},
                "logistic",
            ),
            (
                {"type": "numeric", "low": -1, "high": 5},
                ["3.5", 7, -2],
                [3.5, 5, -1],
                {"target_bounds": (-1, 5)},
                "ridge",
            ),
            (
                {"type": "count", "high": 10},
                ["3", 12, 0],
                [3, 10, 0],
                {"target_bounds": (0, 10)},
                "poisson",
            ),
        ],
        ids=["binary", "classes", "truth", "numeric", "count"],
    )
    def test_is_checked_and_brought_into_bounds(self, entry, cells, targets, parameters, default):
        schema = Schema.from_dict(PLAIN | {"target": {"name": "y"} | entry})
        values = np.array(cells, dtype=object)
        assert schema.encode_target(values).tolist() == targets
        assert schema.target.estimator_parameters() == parameters
        assert schema.target.default_estimator == default
        assert schema.target.n_classes == (len(parameters.get("classes", ())) or None)
        assert Schema.from_dict(schema.to_dict()) == schema

    @pytest.mark.parametrize(
        ("entry", "cell", "says"),
        [
            ({"type": "binary", "classes": ["no", "yes"]}, "maybe", "'maybe' is not in"),
            ({"type": "binary", "classes": ["no", "yes"]}, None, "missing. .*where=, False"),
            ({"type": "numeric", "low": 0, "high": 1}, "", "the value is missing"),
            ({"type": "numeric", "low": 0, "high": 1}, np.inf, "infinite"),
            ({"type": "count", "high": 3}, -1, "-1 is not a count"),
            ({"type": "count", "high": 3}, 1.5, "1.5 is not a count"),
        ],
        ids=repr,
    )
    def test_a_bad_cell_is_named(self, entry, cell, says):
        schema = Schema.from_dict(PLAIN | {"target": {"name": "y"} | entry})
        values = np.empty(1, dtype=object)
        values[0] = cell
        with pytest.raises(ValueError, match=f"target 'y', row 1: .*{says}|{says}"):
            schema.encode_target(values)


def test_units_are_kept() -> None:
    facts = {
        "columns": {"age": {"type": "numeric", "low": 0, "high": 99, "unit": "years"}},
        "target": {"name": "pay", "type": "numeric", "low": 0, "high": 9, "unit": "dollars"},
        "provenance": "made up",
    }
    schema = Schema.from_dict(facts)
    assert schema.to_dict() == facts
    assert schema.target.unit == "dollars"
    facts["columns"]["age"]["unit"] = 3  # type: ignore[index]
    with pytest.raises(ValueError, match="unit must be text"):
        Schema.from_dict(facts)
