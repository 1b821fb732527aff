"""Tables of every library are read by the names of their columns, with one result."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpglm
from dpglm.preprocessing import SchemaEncoder
from dpglm.study.running import read_columns
from dpglm.tables.named import named_columns
from dpglm.tables.schema import Schema

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 16, "high": 90, "missing": 50},
        "region": {"type": "categorical", "categories": ["north", "south", ""]},
    },
    "target": {"name": "visits", "type": "count", "high": 100},
    "provenance": "made up",
}
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(16, 90, 60).astype(float),
        "region": RNG.choice(["north", "south"], 60).astype(object),
        "visits": RNG.poisson(1, 60),
    }
)
FRAME.loc[3, "age"] = np.nan
FRAME.loc[4, "region"] = None
ARROW = pa.Table.from_pandas(FRAME)
TABLES = {
    "pyarrow": ARROW,
    "pyarrow, encoded": ARROW.set_column(1, "region", ARROW["region"].dictionary_encode()),
    "pyarrow, whole numbers": ARROW.set_column(0, "age", ARROW["age"].cast(pa.int64())),
    "pyarrow, in chunks": pa.concat_tables([ARROW[:7], ARROW[7:]]),
    "pyarrow, batch": ARROW.to_batches()[0],
    "polars": pl.from_pandas(FRAME),
    "polars, lazy": pl.from_pandas(FRAME).lazy(),
    "mapping": {name: FRAME[name].tolist() for name in FRAME},
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_every_library_are_encoded_alike(name):
    encoder = SchemaEncoder(SCHEMA).fit(TABLES[name])
    np.testing.assert_array_equal(encoder.transform(TABLES[name]), encoder.transform(FRAME))
    np.testing.assert_array_equal(encoder.target(TABLES[name]), FRAME["visits"])


@pytest.mark.parametrize("name", ["pyarrow, encoded", "polars, lazy"])
def test_models_of_tables_take_them(name):
    table = TABLES[name]
    for make in (
        lambda: dpglm.AdditiveRegressor(SCHEMA, random_state=0, epsilon=50.0),
        lambda: dpglm.from_formula("visits ~ age", SCHEMA, random_state=0, epsilon=50.0),
    ):
        model, expected = make().fit(table), make().fit(FRAME)
        np.testing.assert_array_equal(model.predict(table), expected.predict(FRAME))


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="the data lack column 'region'"):
        SchemaEncoder(SCHEMA).fit(ARROW.drop_columns(["region"]))


@pytest.mark.parametrize(
    "table",
    [
        pa.table([[1.0], ["north"], [2.0]], names=["age", "region", "age"]),
        pa.record_batch([[1.0], ["north"], [2.0]], names=["age", "region", "age"]),
        pd.DataFrame([[1.0, "north", 2.0]], columns=["age", "region", "age"]),
        pd.DataFrame([[1.0, "north", 2.0]], columns=["age", "region", "age "]),
    ],
)
def test_two_columns_of_one_name_are_refused(table):
    for act in (
        lambda: SchemaEncoder(SCHEMA).fit_transform(table),
        lambda: dpglm.describe(table, SCHEMA, columns=["age"]),
        lambda: dpglm.AdditiveRegressor(SCHEMA).fit(table, np.zeros(1)),
    ):
        with pytest.raises(ValueError, match="the table must have one column 'age', got 2"):
            act()
    # Columns that are not used may have one name.
    region = {"columns": {"region": SCHEMA["columns"]["region"]}, "provenance": "made up"}
    assert SchemaEncoder(region).fit_transform(table).tolist() == [[1.0, 0.0, 0.0]]


SECRET = 0.987654


@pytest.mark.parametrize(
    "table",
    [
        np.full((3, 3), SECRET),
        [{"age": SECRET}],
        [SECRET, SECRET],
        pd.Series([SECRET]),
        pl.Series([SECRET]),
        pa.array([SECRET]),
        (SECRET,),
        SECRET,
    ],
)
def test_errors_about_non_tables_omit_rows(table):
    for act in (
        lambda: dpglm.describe(table, SCHEMA),
        lambda: dpglm.AdditiveRegressor(SCHEMA).fit(table),
        lambda: read_columns(table, Schema.from_dict(SCHEMA), None),
    ):
        with pytest.raises(ValueError, match=r"table|the data lack|an array must have") as caught:
            act()
        assert "0.98" not in str(caught.value)


def test_misspelt_columns_are_suggested():
    with pytest.raises(ValueError, match=r"column 'agee', .* \(did you mean 'Age'\?\)"):
        named_columns({"Age": [1], "sex": [2]}, ["agee"])
