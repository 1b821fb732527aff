"""Streams of Arrow as rows: read again at each pass, and recognised."""

import dataclasses

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from dpglm import (
    ArrowRows,
    LogisticRegression,
    ParquetRows,
    PoissonRegressor,
    PrivacyLedger,
    Study,
    describe,
    evaluate,
)
from dpglm.data import Query
from dpglm.data.stream import batches, streamed
from dpglm.data.stream.batches import open_batches
from dpglm.exceptions import RowsChangedError
from dpglm.privacy import ApproximateDP
from dpglm.solvers import NoisyGD
from dpglm.tables.databases import Address
from dpglm.tables.schema import Schema

N = 1000
FACTS = {"classes": [0, 1], "row_norm": 2.0, "epsilon": 1.0, "random_state": 0}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("dpglm.data.stream.batches._FEWEST", 64)
    monkeypatch.setattr("dpglm.data.stream.batches._RUN_CELLS", 0)
    monkeypatch.setattr(streamed, "_CHUNK_BYTES", 128 * 2 * 8)


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    columns = {"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 1, n), "y": rng.integers(0, 2, n)}
    return pa.table({**columns, "who": np.arange(n) // 2})


class Passes:
    """A source that yields tables in turn, one for each pass; the last one from then on."""

    def __init__(self, *tables):
        self.tables, self.n = tables, 0

    def __call__(self):
        self.n += 1
        return self.tables[min(self.n, len(self.tables)) - 1].to_reader(37)


def ledger_in(folder):
    return PrivacyLedger.create(
        folder / "spent.ledger", data="rows", budget=ApproximateDP(9.0, 1e-3), filter="basic"
    )


def test_rows_are_those_of_memory():
    given = table()
    rows = ArrowRows(Passes(given), "y", columns=["a", "b"], dtype="float64")
    X = np.column_stack([given["a"], given["b"]])
    found = [
        np.concatenate(parts) for parts in zip(*rows.parts(lambda X, y, w: (X, y)), strict=True)
    ]
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], given["y"])
    np.testing.assert_array_equal(rows["who"], given["who"])
    assert rows.columns == ("a", "b", "y", "who")


def swapped(given, one, other):
    order = np.arange(N)
    order[[one, other]] = other, one
    return given.take(order)


def with_cell(given, name, row, value):
    cells = given[name].to_numpy().copy()
    cells[row] = value
    return given.set_column(given.schema.get_field_index(name), name, pa.array(cells))


CHANGED = {
    "a cell": lambda given: with_cell(given, "a", 700, 0.123),
    "the order": lambda given: swapped(given, 3, 900),
    "one row less": lambda given: given.slice(0, N - 1),
    "one row more": lambda given: pa.concat_tables([given, given.slice(0, 1)]),
    "no rows": lambda given: given.slice(0, 0),
}


# The first two passes find the number of rows, and check all rows before anything is spent.
@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("after", [2, 3, 4])
def test_fit_ends_when_a_later_pass_returns_other_rows(tmp_path, change, after):
    given, ledger = table(), ledger_in(tmp_path)
    source = Passes(*[given] * after, CHANGED[change](given))
    rows = ArrowRows(source, "y", columns=["a", "b"])
    facts = FACTS | {"random_state": None}
    model = LogisticRegression(**facts, solver=NoisyGD(n_steps=5), ledger=ledger)
    with pytest.raises(RowsChangedError, match="rows changed while they were in use"):
        model.fit(rows)
    assert len(ledger.contents().entries) == 1
    assert source.n == after + 1
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("change", ["one row less", "one row more", "no rows"])
def test_fit_of_another_number_of_rows_spends_nothing(tmp_path, change):
    given, ledger = table(), ledger_in(tmp_path)
    rows = ArrowRows(Passes(given, CHANGED[change](given)), "y", columns=["a", "b"])
    facts = FACTS | {"random_state": None}
    with pytest.raises(RowsChangedError, match="there were 1000 rows"):
        LogisticRegression(**facts, ledger=ledger).fit(rows)
    assert ledger.contents().entries == ()


def test_unchanged_rows_are_fitted_in_any_batches(tmp_path):
    class Cut(Passes):
        def __call__(self):
            self.n += 1
            return self.tables[0].to_reader(11 * self.n)

    rows = ArrowRows(Cut(table()), "y", columns=["a", "b"])
    found = LogisticRegression(**FACTS, solver=NoisyGD(n_steps=5)).fit(rows).coef_
    whole = ArrowRows(table(), "y", columns=["a", "b"])
    np.testing.assert_array_equal(
        found, LogisticRegression(**FACTS, solver=NoisyGD(n_steps=5)).fit(whole).coef_
    )


def test_encodings_of_one_stream_are_told_apart():
    rows = ArrowRows(table(), "y", columns=["a"])
    for high in range(1, 30):
        schema = Schema.from_dict(
            {
                "columns": {"a": {"low": -1, "high": high}},
                "target": {"name": "y", "classes": [0, 1]},
                "provenance": "made up",
            }
        )
        # Each is freed before the next is made, which may take its place in memory.
        assert len(ArrowRows(rows.table, schema=schema).apply(lambda X: X[:, 0])) == N


def test_targets_are_compared_between_passes():
    given = table()
    rows = ArrowRows(Passes(given, given, with_cell(given, "y", 5, 7)), "y", columns=["a"])
    assert len(list(rows.parts(lambda X, y, w: 0))) > 0
    with pytest.raises(RowsChangedError, match="rows 1 to 64 are others"):
        list(rows.parts(lambda X, y, w: 0))


# The ids are read before the rows: rows of another order would get the ids of others.
@pytest.mark.parametrize("change", ["the order", "one row less"])
def test_ids_and_rows_of_different_passes_belong_together(change):
    given = table()
    rows = ArrowRows(Passes(given, given, CHANGED[change](given)), "y", columns=["a"], groups="who")
    model = LogisticRegression(**FACTS, max_rows_per_group=2, solver=NoisyGD(n_steps=2))
    with pytest.raises(RowsChangedError):
        model.fit(rows, groups=rows.group_ids)


def test_columns_and_rows_of_different_passes_belong_together():
    given = table()
    model = LogisticRegression(**FACTS).fit(ArrowRows(given, "y", columns=["a"]))
    turned = given.take(np.arange(N)[::-1])
    rows = ArrowRows(Passes(given, given, turned), "y", columns=["a"])
    with pytest.raises(RowsChangedError):
        evaluate(model, rows, "y", epsilon=1.0, random_state=0)


@pytest.mark.parametrize("kind", [pa.int64(), pa.bool_(), pa.float64(), pa.string()])
def test_missing_cells_of_a_column_are_no_change(monkeypatch, kind):
    """Passes cut a run of rows in different places, and only some parts have missing cells."""
    monkeypatch.setattr(batches, "_FEWEST", N)
    monkeypatch.setattr(batches, "_COLUMN_ROWS", 100)
    given = [None if i == 450 else i % 2 for i in range(N)]
    column = pa.array(given, pa.int64()).cast(kind)
    rows = ArrowRows(table().append_column("z", column), "y", columns=["a"])
    assert len(rows["z"]) == N
    LogisticRegression(**FACTS, solver=NoisyGD(n_steps=1)).fit(rows)


def test_rows_with_exposures_are_predicted_after_a_fit():
    given = table().append_column("e", pa.array(np.linspace(1.0, 2.0, N)))
    rows = ArrowRows(given, "y", columns=["a"], exposure="e", dtype="float64")
    fitted = PoissonRegressor(target_bounds=(0, 1), row_norm=2.0, epsilon=1.0, random_state=0).fit(
        rows
    )
    rates = np.exp(given["a"].to_numpy() * fitted.coef_[0] + fitted.intercept_)
    np.testing.assert_allclose(fitted.predict(rows), rates * given["e"].to_numpy())


def test_unwatched_rows_are_used_though_they_changed(monkeypatch):
    monkeypatch.setattr(batches.Seen, "compare", lambda self, kind, run, digest: None)
    given = table()
    source = Passes(given, given, CHANGED["a cell"](given))
    rows = ArrowRows(source, "y", columns=["a", "b"])
    LogisticRegression(**FACTS, solver=NoisyGD(n_steps=5)).fit(rows)


def test_queries_without_an_order_are_found():
    connection = duckdb.connect()
    connection.execute("create table t as select range as a, range % 2 as y from range(1000)")
    query = Query(connection.cursor, "select * from t order by random()")
    rows = ArrowRows(query, "y")
    model = LogisticRegression(**FACTS, feature_bounds=(0, 1000), solver=NoisyGD(n_steps=2))
    model.set_params(row_norm=None)
    with pytest.raises(RowsChangedError, match="ORDER BY"):
        model.fit(rows)


def test_only_declared_columns_are_read():
    stream = open_batches(table())
    (part,) = stream.parts
    asked = []

    def read(names, *others):
        asked.append(names)
        return part.read(names, *others)

    parts = (dataclasses.replace(part, read=read),)
    rows = ArrowRows(dataclasses.replace(stream, parts=parts), "y", columns=["b"])
    LogisticRegression(**FACTS, solver=NoisyGD(n_steps=2)).fit(rows)
    assert asked[0] == ["b", "y"]
    assert asked[1:] == [["b"]] * 2


def test_folders_of_partitions_give_their_columns(tmp_path):
    for year in (2024, 2025):
        (tmp_path / str(year)).mkdir()
        parquet.write_table(table(50, year), tmp_path / str(year) / "part.parquet")
        (tmp_path / "named" / f"year={year}").mkdir(parents=True)
        parquet.write_table(table(50, year), tmp_path / "named" / f"year={year}" / "part.parquet")
    schema = Schema.from_dict(
        {
            "columns": {"year": {"low": 2020, "high": 2030}, "a": {"low": -1, "high": 1}},
            "target": {"name": "y", "classes": [0, 1]},
            "provenance": "made up",
        }
    )
    by_place = dataset.dataset(
        [str(tmp_path / f"{year}" / "part.parquet") for year in (2024, 2025)],
        partitioning=dataset.partitioning(field_names=["year"]),
        partition_base_dir=str(tmp_path),
    )
    sources = [by_place, dataset.dataset(tmp_path / "named", partitioning="hive")]
    found = [ArrowRows(one, schema=schema) for one in sources]
    found += [ParquetRows(tmp_path / "named", schema=schema)]
    X = [np.concatenate(list(one.parts(lambda X, y, w: X))) for one in found]
    np.testing.assert_allclose(X[0][:, 0], np.repeat([-0.2, 0.0], 50), atol=1e-7)
    for other in X[1:]:
        np.testing.assert_array_equal(X[0], other)


@pytest.mark.parametrize("make", [lambda: table().to_reader(), lambda: 3, lambda: [[1.0]]])
def test_sources_that_cannot_be_read_again_are_refused(make):
    with pytest.raises(ValueError, match="source must"):
        ArrowRows(make(), "y")


def test_database_errors_name_the_query(tmp_path):
    with pytest.raises(ValueError, match=r"the query cannot be run: .*missing"):
        ArrowRows(Query(duckdb.connect, "select * from missing"), "y")
    with pytest.raises(ValueError, match="does not exist"):
        ArrowRows(f"sqlite:{tmp_path}/none.sqlite?table=t", "y")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["duckdb:x.duckdb", "sqlite:x?table=", "duckdb:x?table=a&query=b"])
def test_addresses_without_a_table_are_refused(text):
    with pytest.raises(ValueError, match=r"\?table=NAME or \?query=SQL"):
        Address.of(text)


def test_address_omits_the_password():
    found = Address.of("postgresql://me:secret@host:1/db?sslmode=require&table=a.b")
    assert found is not None
    assert (found.place, found.sql) == (
        "//me:secret@host:1/db?sslmode=require",
        'select * from "a"."b"',
    )
    assert "secret" not in str(found)
    assert Address.of("people.csv") is None


def test_errors_name_row_and_column():
    given = with_cell(table(), "a", 700, np.nan)
    with pytest.raises(ValueError, match="NaN in row 701, column 'a'"):
        LogisticRegression(**FACTS).fit(ArrowRows(given, "y", columns=["a"]))


def test_describe_study_and_evaluate_take_streams(tmp_path):
    columns = {name: {"type": "numeric", "low": -1, "high": 1} for name in "ab"}
    target = {"name": "y", "type": "binary", "classes": [0, 1]}
    schema = Schema.from_dict({"columns": columns, "target": target, "provenance": "made up"})
    given = table().select(["a", "b", "y"])
    frame = given.to_pandas()
    both = [
        describe(one, schema, epsilon=1.0, random_state=0).solution.w
        for one in (frame, ArrowRows(Passes(given), schema=schema))
    ]
    np.testing.assert_allclose(*both, atol=1e-9)
    study = Study(schema, epsilon=3.0).explore().fit("logistic").evaluate()
    both = [
        study.run(one, random_state=0).model.coef_
        for one in (frame, ArrowRows(Passes(given), schema=schema))
    ]
    np.testing.assert_allclose(*both, atol=1e-9)
