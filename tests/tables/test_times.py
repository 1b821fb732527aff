"""Dates, times and durations as columns of a schema, in every container."""

import datetime
import re

import adbc_driver_sqlite.dbapi as sqlite
import dask.array as da
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from dpglm import ArrowRows, LogisticRegression, MappedRows, ParquetRows, PrivatePipeline, describe
from dpglm.data import Query
from dpglm.preprocessing import SchemaEncoder
from dpglm.tables.columns import CategoricalColumn, NumericColumn
from dpglm.tables.files import read_table, write_table
from dpglm.tables.schema import Schema
from dpglm.tables.times import date_text, days_of

ENTRY = {"type": "date", "low": "2015-01-01", "high": "2024-12-31"}
DAYS = [datetime.date(2016, 2, 29), datetime.date(2020, 7, 1), datetime.date(2030, 1, 1)]


def schema_of(**columns):
    target = {"name": "ill", "type": "binary", "classes": ["no", "yes"]}
    return Schema.from_dict({"columns": columns, "target": target, "provenance": "made up"})


def in_sqlite(folder, table):
    def connect():
        return sqlite.connect(str(folder / "rows.sqlite"))

    with connect() as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("t", table)
        connection.commit()
    return Query(connect, "select * from t")


def in_duckdb(table):
    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("create table t as select * from given")
    return connection.table("t")


def in_file(folder, table):
    parquet.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def text_of(folder, table):
    columns = {name: [str(one) for one in table[name].to_pylist()] for name in table.column_names}
    write_table(columns, folder / "rows.csv")
    return read_table(folder / "rows.csv", table.column_names)


TABLES = {
    "lists": lambda folder, table: table.to_pydict(),
    "NumPy": lambda folder, table: {n: table[n].to_numpy() for n in table.column_names},
    "pandas": lambda folder, table: table.to_pandas(),
    "pandas, timestamps": lambda folder, table: table.to_pandas(date_as_object=False),
    "polars": lambda folder, table: pl.from_arrow(table),
    "CSV": text_of,
    "Arrow": lambda folder, table: table,
    "Dask": lambda folder, table: dd.from_pandas(table.to_pandas(), npartitions=1),
}
STREAMS = {
    "Parquet": in_file,
    "DuckDB": lambda folder, table: in_duckdb(table),
    "SQLite": in_sqlite,
    "polars, lazy": lambda folder, table: pl.from_arrow(table).lazy(),
    "Arrow dataset": lambda folder, table: table,
}
CELLS = {
    "dates": (DAYS, [DAYS[0].isoformat(), "2020-07-01", "2024-12-31"]),
    "times": (
        [
            datetime.datetime(2016, 2, 29, 13, 30),
            datetime.datetime(2020, 7, 1),
            datetime.datetime(2030, 1, 1),
        ],
        ["2016-02-29T13:30", "2020-07-01", "2024-12-31"],
    ),
    "times in another zone": (
        [
            datetime.datetime(
                2016, 2, 29, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=2))
            ),
            datetime.datetime(2020, 7, 1, tzinfo=datetime.UTC),
            datetime.datetime(2020, 7, 2, tzinfo=datetime.UTC),
        ],
        ["2016-02-29T11:00", "2020-07-01", "2020-07-02"],
    ),
}


def table_of(cells):
    if isinstance(cells[0], datetime.datetime):
        zone = "UTC" if cells[0].tzinfo else None
        kind = pa.timestamp("us", zone)
    else:
        kind = pa.date32()
    when = pa.array(cells, kind)
    return pa.table({"when": when, "ill": ["no", "yes", "yes"]})


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("container", [*TABLES, *STREAMS])
def test_dates_are_the_same_days_in_all_containers(tmp_path, container, cells):
    given_cells, days = CELLS[cells]
    schema, table = schema_of(when=ENTRY), table_of(given_cells)
    low, high = days_of(ENTRY["low"]), days_of(ENTRY["high"])
    expected = [2.0 * (days_of(day) - low) / (high - low) - 1.0 for day in days]
    if container in STREAMS:
        source = STREAMS[container](tmp_path, table)
        rows = ArrowRows(source, schema=schema, dtype="float64")
        found = next(iter(rows.parts(lambda X, y, w: X)))
    else:
        frame = TABLES[container](tmp_path, table)
        found = (
            frame.map_partitions(schema.encode, meta=np.zeros((0, 1))).compute()
            if container == "Dask"
            else (schema.encode(frame))
        )
    np.testing.assert_allclose(np.asarray(found)[:, 0], expected, rtol=0, atol=1e-12)


SPANS = [datetime.timedelta(hours=36), datetime.timedelta(minutes=90), datetime.timedelta(0)]


@pytest.mark.parametrize("container", ["lists", "NumPy", "pandas", "polars", "CSV", "Arrow"])
def test_durations_are_the_same_hours_in_all_containers(tmp_path, container):
    entry = {"type": "duration", "low": 0, "high": 48, "unit": "hours"}
    table = pa.table({"took": pa.array(SPANS, pa.duration("us"))})
    found = schema_of(took=entry).encode(TABLES[container](tmp_path, table))
    np.testing.assert_allclose(found[:, 0], [0.5, -0.9375, -1.0], atol=1e-12)


def test_intervals_and_times_of_day_are_durations():
    entry = {"type": "duration", "low": 0, "high": 48, "unit": "hours"}
    found = in_duckdb(pa.table({"took": pa.array(SPANS[:2], pa.duration("us")), "ill": ["no"] * 2}))
    rows = ArrowRows(found, schema=schema_of(took=entry), dtype="float64")
    np.testing.assert_allclose(next(iter(rows.parts(lambda X, y, w: X)))[:, 0], [0.5, -0.9375])
    clock = {"took": [datetime.time(12, 30), "12:30"]}
    np.testing.assert_allclose(schema_of(took=entry).encode(clock)[:, 0], 12.5 / 24 - 1)


class TestCells:
    schema = schema_of(when=ENTRY)

    @pytest.mark.parametrize(
        ("text", "day"),
        [
            ("2020-07-01", "2020-07-01"),
            (" 01.07.2020 ", "2020-07-01"),
            ("1.7.2020 6:00", "2020-07-01T06:00"),
            ("2020-07-01T06:00:30.5Z", "2020-07-01T06:00:30.500000"),
            ("2020-07-01 02:00+02:00", "2020-07-01"),
            ("2020-07-01 02:00-0330", "2020-07-01T05:30"),
        ],
    )
    def test_texts_have_one_meaning(self, text, day):
        assert days_of(text) == days_of(day)
        np.testing.assert_array_equal(*(self.schema.encode({"when": [one]}) for one in (text, day)))

    @pytest.mark.parametrize(
        "cell",
        [
            "07/01/2020",
            "2020",
            18444,
            18444.5,
            "2020-13-01",
            "31.02.2020",
            True,
            "2020-07-01 25:00",
        ],
    )
    def test_other_cells_are_refused_by_row_and_column(self, cell):
        with pytest.raises(ValueError, match=r"column 'when', row 2: .* is not a date .*format"):
            self.schema.encode({"when": ["2020-07-01", cell]})

    def test_a_stated_format_is_the_only_one(self):
        schema = schema_of(when={**ENTRY, "format": "%m/%d/%Y"})
        assert schema.encode({"when": ["07/01/2020"]}) == self.schema.encode(
            {"when": ["2020-07-01"]}
        )
        with pytest.raises(ValueError, match="is not a date"):
            schema.encode({"when": ["2020-07-01"]})

    @pytest.mark.parametrize("gap", [None, "", np.datetime64("NaT"), pd.NaT, np.nan])
    def test_missing_dates_need_a_date_in_the_schema(self, gap):
        with pytest.raises(ValueError, match="column 'when', row 2: the value is missing"):
            self.schema.encode({"when": ["2020-07-01", gap]})
        schema = schema_of(when={**ENTRY, "missing": "2020-01-01"})
        expected = schema.encode({"when": ["2020-01-01"]})
        np.testing.assert_array_equal(schema.encode({"when": [gap]}), expected)

    @given(st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)))
    def test_dates_of_schemas_are_read_as_they_were_written(self, moment):
        assert days_of(date_text(days_of(moment.isoformat()))) == days_of(moment.isoformat())


class TestParts:
    def test_parts_are_those_of_the_calendar(self):
        parts = {"month": "categorical", "weekday": "categorical", "hour": "categorical"}
        schema = schema_of(when={**ENTRY, "parts": parts})
        rng = np.random.default_rng(0)
        cells = [
            datetime.datetime(1960, 1, 1) + datetime.timedelta(minutes=int(one))
            for one in rng.integers(0, 10**8, 300)
        ]
        X = schema.encode({"when": cells})
        names = np.array(schema.feature_names)
        for row, moment in zip(X, cells, strict=True):
            chosen = set(names[1:][row[1:] == 1.0])
            assert chosen == {
                f"when_month={moment:%B}",
                f"when_weekday={moment:%A}",
                f"when_hour={moment.hour}",
            }

    @pytest.mark.parametrize(
        "form", ["categorical", "cyclic", {"type": "cyclic", "reference": "May"}]
    )
    def test_rows_stay_within_the_declared_norm(self, form):
        schema = schema_of(when={**ENTRY, "parts": {"month": form, "weekday": "cyclic"}})
        cells = {
            "when": [f"20{year}-{month:02}-15" for year in (10, 15, 30) for month in range(1, 13)]
        }
        norms = np.linalg.norm(schema.encode(cells), axis=1)
        assert norms.max() <= schema.row_norm
        if form == "cyclic":
            assert schema.row_norm == pytest.approx(3**0.5)
        assert Schema.from_dict(schema.to_dict()) == schema

    def test_cyclic_effects_are_differences_of_scores(self):
        schema = schema_of(when={**ENTRY, "parts": {"month": "cyclic"}})
        w = np.array([0.3, 1.0, -2.0])
        cells = {"when": [f"2020-{month:02}-01" for month in range(1, 13)]}
        X = schema.encode(cells)
        scores = X[:, 1:] @ w[1:]
        effects = dict(zip(schema.units.names, schema.units.matrix @ [*w, 0.0], strict=False))
        for name, score in zip(("January", "June", "December"), scores[[0, 5, 11]], strict=True):
            assert effects[f"when_month={name} vs mean"] == pytest.approx(score - scores.mean())

    def test_an_unclipped_date_has_its_own_parts(self):
        schema = schema_of(when={**ENTRY, "parts": {"weekday": "categorical"}})
        found = schema.encode({"when": ["2030-01-01"]})[0]
        assert found[0] == 1.0
        assert schema.feature_names[1 + int(found[1:].argmax())] == "when_weekday=Tuesday"

    def test_formulas_and_references_name_parts(self):
        pytest.importorskip("formulaic")
        schema = schema_of(when={**ENTRY, "parts": {"weekday": "categorical"}})
        schema = schema.with_reference({"when_weekday": "Sunday"})
        assert Schema.from_dict(schema.to_dict()) == schema
        found = schema.with_formula("~ when + C(when_weekday)")
        assert "C(when_weekday)[T.Monday]" in found.feature_names
        assert found.column_names == ("when",)
        assert found.encode({"when": ["2020-07-01"]}).shape == (1, 7)


class TestMissing:
    schema = schema_of(pay={"low": 0, "high": 10, "missing": {"value": 4, "indicator": True}})

    def test_indicator_marks_missing_cells(self):
        assert self.schema.feature_names == ("pay", "pay_missing=yes")
        found = self.schema.encode({"pay": [4, None, "", 99, float("nan")]})
        np.testing.assert_allclose(found[:, 0], [-0.2, -0.2, -0.2, 1, -0.2])
        np.testing.assert_array_equal(found[:, 1], [-0.5, 0.5, 0.5, -0.5, 0.5])
        assert Schema.from_dict(self.schema.to_dict()) == self.schema
        assert self.schema.column_names == ("pay",)

    def test_a_value_alone_is_the_number_itself(self):
        entry = {"type": "numeric", "low": 0, "high": 10, "missing": {"value": 4}}
        assert schema_of(pay=entry) == schema_of(pay={**entry, "missing": 4})

    @pytest.mark.parametrize(
        "missing", [{"indicator": True}, {"value": 0, "flag": 1}, {"value": 0, "indicator": 1}]
    )
    def test_other_objects_are_refused(self, missing):
        with pytest.raises(ValueError, match='"missing" must be a number, or'):
            schema_of(pay={"low": 0, "high": 10, "missing": missing})

    def test_formulas_have_the_indicator(self):
        pytest.importorskip("formulaic")
        found = self.schema.with_formula("~ pay + C(pay_missing)")
        other = self.schema.with_formula("~ pay + is.na(pay)")
        cells = {"pay": [1, None, 3]}
        for one in (found, other):
            assert len(np.unique(one.encode(cells)[:, 1])) == 2

    def test_missing_dates_have_an_indicator(self):
        schema = schema_of(when={**ENTRY, "missing": {"value": "2020-01-01", "indicator": True}})
        assert schema.encode({"when": ["2020-07-01", None]})[:, 1].tolist() == [-0.5, 0.5]
        assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({**ENTRY, "low": "2015"}, '"low" must be a date'),
        ({**ENTRY, "low": ["2015-01-01"]}, "got ['2015-01-01']"),
        ({**ENTRY, "low": "2025-01-01"}, '"low" must be less than "high"'),
        ({**ENTRY, "parts": {"year": "cyclic"}}, "parts must be"),
        ({**ENTRY, "parts": {"month": "linear"}}, "month must be"),
        ({**ENTRY, "parts": ["month"]}, '"parts" must be an object'),
        ({"type": "numeric", "low": 0, "high": 1, "parts": {}}, '"parts" is for columns of type'),
        ({"type": "numeric", "low": 0, "high": 1, "format": "%Y"}, '"format" is for columns of'),
        ({"type": "duration", "low": 0, "high": 1, "unit": "years"}, "unit must be"),
        ({"type": "numeric", "low": 0, "high": 1, "time": "date"}, "unknown: ['time']"),
    ],
)
def test_wrong_entries_are_refused(entry, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        schema_of(when=entry)


def test_an_entry_without_a_type_has_the_type_of_its_facts():
    schema = schema_of(
        age={"type": None, "low": 0, "high": 9, "categories": []},
        city={"type": None, "low": None, "high": None, "categories": ["a", "b"]},
        when={"low": "2015-01-01", "high": "2016-01-01"},
    )
    assert [type(one) for one in schema.columns] == [
        NumericColumn,
        CategoricalColumn,
        NumericColumn,
    ]
    assert schema.columns[2].time == "date"
    with pytest.raises(ValueError, match="column 'x'"):
        schema_of(x={"type": None, "low": 0, "high": 1, "categories": ["a", "b"]})


def frames():
    days = np.array(DAYS, "M8[D]")
    return {
        "NumPy": days[:, None],
        "NumPy, durations": (days - days[0])[:, None],
        "lists": [[one] for one in DAYS],
        "pandas": pd.DataFrame({"when": days.astype("M8[ns]")}),
        "pandas, objects": pd.DataFrame({"when": DAYS}),
        "polars": pl.DataFrame({"when": DAYS}),
        "polars, times": pl.DataFrame({"when": [datetime.datetime(2020, 1, 1)] * 3}),
        "polars, durations": pl.DataFrame({"when": SPANS}),
        "polars, times of day": pl.DataFrame({"when": [datetime.time(3)] * 3}),
        "Dask": da.from_array(days[:, None]),
    }


@pytest.mark.parametrize("container", list(frames()))
def test_dates_without_a_schema_are_refused_by_one_message(container):
    X, y = frames()[container], [0, 1, 1]
    if container == "Dask":
        y = da.from_array(np.array(y))
    model = LogisticRegression(classes=[0, 1], row_norm=1.0, epsilon=1.0, random_state=0)
    with pytest.raises(ValueError, match="must not contain dates, times or durations without a"):
        model.fit(X, y)


@pytest.mark.parametrize(
    "make",
    [in_duckdb, lambda table: pl.from_arrow(table).lazy(), lambda table: table],
    ids=["DuckDB", "polars", "Arrow"],
)
@pytest.mark.parametrize("cells", [DAYS, SPANS])
def test_streams_without_a_schema_refuse_dates(make, cells):
    table = pa.table({"when": cells, "y": [0, 1, 1][: len(cells)]})
    with pytest.raises(ValueError, match="must not contain dates, times or durations without a"):
        ArrowRows(make(table), "y")


def test_mapped_and_numeric_columns_refuse_dates(tmp_path):
    days = np.array(DAYS, "M8[D]")
    with pytest.raises(ValueError, match="must not contain dates"):
        MappedRows(days[:, None], [0, 1, 1])
    schema = schema_of(when={"type": "numeric", "low": 0, "high": 1})
    for cells in (days, DAYS, pl.Series(DAYS), pa.array(DAYS)):
        with pytest.raises(ValueError, match=r"column 'when'.* must not contain dates"):
            schema.encode({"when": cells})


def test_descriptions_and_fits_take_dates(tmp_path):
    rng = np.random.default_rng(0)
    days = np.datetime64("2015-01-01") + rng.integers(0, 3652, 4000).astype("m8[D]")
    ill = np.where(days > np.datetime64("2020-01-01"), "yes", "no")
    table = {"when": days, "ill": ill}
    schema = schema_of(when={**ENTRY, "parts": {"weekday": "cyclic"}})
    seen = describe(table, schema, epsilon=5.0, random_state=0)
    middle = seen["when"].quantile(0.5).estimate
    assert abs(middle - days_of("2020-01-01")) < 60
    assert seen["when"].labels[1] == "exactly 2015-01-01"
    assert re.fullmatch(r"2015-01-01 to 201\d-\d\d-\d\d", seen["when"].labels[2])
    narrower = seen.schema(bounds=(0.01, 0.99))
    assert Schema.from_dict(narrower.to_dict()) == narrower
    model = PrivatePipeline(
        [SchemaEncoder(schema), LogisticRegression(classes=["no", "yes"])],
        epsilon=5.0,
        random_state=0,
    ).fit(table)
    assert model.score(table, ill) > 0.9
    parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    rows = ParquetRows(tmp_path / "rows.parquet", schema=schema)
    again = describe(rows, schema, epsilon=5.0, random_state=0)
    assert again["when"].quantile(0.5).estimate == pytest.approx(middle)
