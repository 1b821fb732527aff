"""A law over tables: every container gives the same fit, and refuses the same cells alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi as sqlite
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from dpglm import (
    ArrowRows,
    LogisticRegression,
    ParquetRows,
    PrivacyLedger,
    PrivatePipeline,
    SparkRows,
)
from dpglm.data import Query
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import ApproximateDP
from dpglm.solvers import NoisyGD
from dpglm.tables.files import read_table, write_table
from dpglm.tables.schema import Schema
from tests.data.spark.local import session

N = 60
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "pay": {"type": "numeric", "low": 0, "high": 10, "missing": 5},
            "city": {"type": "categorical", "categories": ["north", "süd", ""]},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up for tests",
    }
)
Cells = dict[str, list[Any]]


def cells() -> Cells:
    rng = np.random.default_rng(0)
    pay = rng.uniform(0, 10, N).round(2).tolist()
    city = rng.choice(["north", "süd"], N).tolist()
    pay[3], city[4] = None, None
    return {
        "unused": ["x"] * N,
        "age": rng.uniform(0, 110, N).round(1).tolist(),
        "pay": pay,
        "city": city,
        "ill": rng.choice(["no", "yes"], N).tolist(),
    }


def csv(folder: Path, table: Cells) -> Any:
    write_table(
        {name: ["" if one is None else str(one) for one in all_] for name, all_ in table.items()},
        folder / "rows.csv",
    )
    return read_table(folder / "rows.csv", [*SCHEMA.column_names, "ill"])


def in_parquet(folder: Path, table: Cells) -> Path:
    parquet.write_table(pa.table(table), folder / "rows.parquet", row_group_size=25)
    return folder / "rows.parquet"


def in_duckdb(folder: Path, table: Cells) -> Any:
    stored = pa.table(table)
    connection = duckdb.connect(folder / "rows.duckdb")
    connection.register("given", stored)
    connection.execute("create table people as select * from given")
    return connection


def in_sqlite(folder: Path, table: Cells) -> Query:
    def connect() -> Any:
        return sqlite.connect(str(folder / "rows.sqlite"))

    with connect() as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("people", pa.table(table))
        connection.commit()
    return Query(connect, "select * from people")


def address(folder: Path, table: Cells) -> str:
    in_duckdb(folder, table).close()
    return f"duckdb:{folder}/rows.duckdb?table=people"


def rows_of(source: Any) -> ArrowRows:
    return ArrowRows(source, schema=SCHEMA, dtype="float64")


TABLES: dict[str, Callable[[Path, Cells], Any]] = {
    "memory": lambda folder, table: table,
    "pandas": lambda folder, table: pd.DataFrame(table),
    "polars": lambda folder, table: pl.DataFrame(table),
    "polars, lazy": lambda folder, table: rows_of(pl.LazyFrame(table)),
    "CSV": csv,
    "Parquet": lambda folder, table: ParquetRows(
        in_parquet(folder, table), schema=SCHEMA, dtype="float64"
    ),
    "DuckDB": lambda folder, table: rows_of(in_duckdb(folder, table).table("people")),
    "DuckDB, query": lambda folder, table: rows_of(
        Query(in_duckdb(folder, table).cursor, "select * from people;")
    ),
    "address": lambda folder, table: rows_of(address(folder, table)),
    "SQLite": lambda folder, table: rows_of(in_sqlite(folder, table)),
    "Arrow dataset": lambda folder, table: rows_of(dataset.dataset(in_parquet(folder, table))),
    "Arrow table": lambda folder, table: rows_of(pa.table(table)),
    "a function": lambda folder, table: rows_of(lambda: pa.table(table).to_reader(7)),
    "Dask": lambda folder, table: dd.from_pandas(pd.DataFrame(table), npartitions=2),
    "Spark": lambda folder, table: SparkRows(
        session().createDataFrame(pa.table(table)), schema=SCHEMA, dtype="float64"
    ),
}
# Starting Java takes seconds.
CASES = [pytest.param(one, marks=pytest.mark.slow) if one == "Spark" else one for one in TABLES]


def model(ledger: PrivacyLedger | None = None) -> PrivatePipeline:
    return PrivatePipeline(
        [
            SchemaEncoder(SCHEMA),
            LogisticRegression(classes=["no", "yes"], solver=NoisyGD(n_steps=2)),
        ],
        epsilon=1.0,
        random_state=0,
        ledger=ledger,
    )


@pytest.fixture(scope="module")
def expected() -> Any:
    return model().fit(cells())


@pytest.mark.parametrize("container", CASES)
def test_fits_of_all_tables_are_the_same(tmp_path, container, expected):
    table = TABLES[container](tmp_path, cells())
    fitted = model().fit(table)
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(np.asarray(fitted.predict(table)), expected.predict(cells()))


WRONG: dict[str, tuple[str, Any, str]] = {
    "a missing number": ("age", None, "the value is missing"),
    "a text for a number": ("age", "old", "'old' is not a number"),
    "an unknown category": ("city", "west", "'west' is not in the schema's list"),
    "an unknown class": ("ill", "maybe", "'maybe' is not in the schema's list"),
    "a missing class": ("ill", None, "the value is missing"),
}


@pytest.mark.parametrize("container", CASES)
@pytest.mark.parametrize("wrong", WRONG)
def test_all_tables_refuse_the_same_cells(tmp_path, container, wrong):
    name, cell, said = WRONG[wrong]
    table = cells()
    table[name][7] = cell
    if isinstance(cell, str) and name == "age":
        # Containers with types have a column of texts then.
        table[name] = [str(one) for one in table[name]]
    ledger = PrivacyLedger.create(
        tmp_path / "spent.ledger", data="rows", budget=ApproximateDP(9.0, 1e-3), filter="basic"
    )
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        model(ledger).fit(TABLES[container](tmp_path, table))
    assert re.search(f"'{name}'|the target", str(error.value))
    assert "row 8" in str(error.value)
    assert ledger.contents().entries == ()


def test_the_law_sees_a_container_with_rows_in_another_order(expected):
    turned = {name: column[::-1] for name, column in cells().items() if name != "ill"}
    fitted = model().fit(rows_of(pa.table(turned | {"ill": cells()["ill"]})))
    assert abs(fitted.coef_ - expected.coef_).max() > 1e-6
