"""Parquet as rows: the feature columns, the files that are read, and refusals."""

import datetime
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import parquet

from dpglm.data.collection import Preparation
from dpglm.data.rows import DataSpec
from dpglm.data.stream import arrow
from dpglm.data.stream.arrow import ParquetRows
from dpglm.tables.schema import Schema

N = 100
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "smoker": {"type": "categorical", "categories": ["no", "yes"]},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up for tests",
    }
)


def itself(y):
    return y


def is_yes(y):
    return np.where(y == "yes", 1.0, -1.0)


def features(rows, targets=itself, **options):
    spec = DataSpec(
        n_rows=rows.shape[0], n_features=rows.shape[1], row_norm=1e4, dtype=rows.dtype, **options
    )
    blocks = list(rows.prepared(Preparation(spec, None, targets)).blocks())
    return (
        np.concatenate([block.features() for block in blocks]),
        np.concatenate([block.targets for block in blocks]),
    )


def written(path, columns, **options):
    parquet.write_table(pa.table(columns), path, **options)
    return path


def test_all_kinds_of_numbers_are_features(tmp_path):
    lists = np.arange(3.0 * N).reshape(N, 3)
    columns = {
        "whole": np.arange(N),
        "target": np.arange(N) % 2,
        "half": np.arange(N, dtype=np.float16),
        "truth": np.arange(N) % 3 == 0,
        "money": pa.array(np.arange(N)).cast(pa.decimal128(21, 2)),
        "list": pa.FixedSizeListArray.from_arrays(lists.ravel(), 3),
    }
    path = written(tmp_path / "all.parquet", columns, row_group_size=7)
    rows = ParquetRows(path, "target", dtype="float64")
    assert rows.shape == (N, 7)
    assert rows.feature_names is None
    X, y = features(rows)
    step = np.arange(N)
    np.testing.assert_array_equal(X, np.column_stack([step, step, step % 3 == 0, step, lists]))
    np.testing.assert_array_equal(y, step % 2)
    few = ParquetRows(path, "target", columns=["truth", "whole"])
    assert few.feature_names == ("truth", "whole")
    assert (few.dtype, few.columns) == ("float32", tuple(columns))
    np.testing.assert_array_equal(features(few)[0], np.column_stack([step % 3 == 0, step]))


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    for name, first in (("b.parquet", 20), ("a/z.pq", 0), ("c.parquet", 30), ("_d.parquet", 99)):
        (tmp_path / "a").mkdir(exist_ok=True)
        written(tmp_path / name, {"x": np.arange(first, first + 10), "y": np.zeros(10)})
    (tmp_path / "notes.txt").write_text("not a table")
    X, _ = features(ParquetRows(tmp_path, "y"))
    assert X[:, 0].tolist() == [*range(10), *range(20, 40)]


def test_a_schema_encodes_as_it_does_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "ill": rng.choice(["yes", "no"], N),
            "smoker": pd.Categorical(rng.choice(["no", "yes"], N)),
            "age": rng.uniform(-10, 120, N),
        }
    )
    frame.to_parquet(tmp_path / "people.parquet", row_group_size=9)
    rows = ParquetRows(tmp_path / "people.parquet", schema=SCHEMA, dtype="float64")
    assert rows.shape == (N, 3)
    X, y = features(rows, is_yes)
    np.testing.assert_array_equal(X, SCHEMA.encode(frame))
    np.testing.assert_array_equal(y, is_yes(frame["ill"].to_numpy()))


def test_text_that_a_schema_does_not_list_is_found_where_it_is(tmp_path):
    columns = {"ill": ["no"] * N, "smoker": ["no"] * 80 + ["maybe"] + ["no"] * 19, "age": [1] * N}
    path = written(tmp_path / "people.parquet", columns, row_group_size=50)
    with pytest.raises(ValueError, match="from row 51 on: column 'smoker', row 31: 'maybe'"):
        features(ParquetRows(path, schema=SCHEMA), is_yes)


@pytest.mark.parametrize("column", ["x", "list", "inner", "y", "w"])
def test_a_missing_value_is_found_where_it_is(tmp_path, column):
    whole = [[1.0, 2.0]] * N
    columns = {name: [1.0] * N for name in ("x", "y", "w")} | {"list": whole, "inner": whole}
    if column == "inner":
        columns["inner"] = [*whole[:70], [1.0, None], *whole[71:]]
    else:
        columns[column] = [*columns[column][:70], None, *columns[column][71:]]
    lists = {name: pa.array(columns[name], pa.list_(pa.float32(), 2)) for name in ("list", "inner")}
    path = written(tmp_path / "gap.parquet", columns | lists, row_group_size=40)
    with pytest.raises(ValueError, match=f"gap.parquet, from row 41 on: column '{column}'"):
        features(ParquetRows(path, "y", sample_weight="w"))


def test_row_groups_without_a_wanted_row_are_not_read(tmp_path, monkeypatch):
    path = written(tmp_path / "x.parquet", {"x": np.arange(N), "y": np.zeros(N)}, row_group_size=10)
    collection = ParquetRows(path, "y")
    rows = collection.prepared(
        Preparation(DataSpec(N, 1, row_norm=1e4, dtype="float32"), None, itself)
    )
    read = []
    numbers = arrow._numbers

    def counted(batch, name, dtype):
        read.append(name)
        return numbers(batch, name, dtype)

    monkeypatch.setattr(arrow, "_numbers", counted)
    wanted = np.array([3, 4, 39, 80, 81])
    taken = rows.take(wanted)
    assert read == ["x"] * 3
    assert np.concatenate([b.features() for b in taken.blocks()])[:, 0].tolist() == wanted.tolist()
    with pytest.raises(ValueError, match=r"in their order only.*give cache="):
        rows.take(wanted[::-1])
    cached = ParquetRows(path, "y", cache=tmp_path)
    rows = cached.prepared(Preparation(DataSpec(N, 1, row_norm=1e4, dtype="float32"), None, itself))
    (block,) = rows.take(wanted[::-1]).blocks()
    assert block.features()[:, 0].tolist() == wanted[::-1].tolist()


def test_files_and_columns_without_rows_are_refused(tmp_path):
    columns = {"x": [1.0], "y": [0], "text": ["a"], "list": [[1.0]], "when": [datetime.date.min]}
    path = written(tmp_path / "x.parquet", columns)
    for options, message in (
        ({}, "target must be the name"),
        ({"target": "z"}, "there is no column 'z'; the file has 'x', 'y'"),
        ({"target": "y"}, "column 'text' has the type string, but features must be numbers"),
        ({"target": "y", "columns": ["list"]}, "lists of numbers of one fixed length"),
        ({"target": "y", "columns": ["when"]}, "column 'when' must not contain dates"),
        ({"target": "y", "columns": []}, "columns must name at least one"),
        ({"target": "y", "columns": ["x", "x"]}, "'x' is repeated"),
        ({"target": "y", "columns": ["y"]}, "'y' is repeated"),
        ({"target": "y", "schema": SCHEMA}, "must be None where a schema= is given"),
        ({"schema": SCHEMA}, "there is no column 'age'"),
        ({"target": "y", "dtype": "float16"}, "dtype must be one of"),
        ({"target": "y", "columns": ["x"], "cache": tmp_path / "no"}, "cache must be an existing"),
    ):
        with pytest.raises(ValueError, match=message):
            ParquetRows(path, **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"must contain a \.parquet"):
        ParquetRows(tmp_path / "empty", "y")
    (tmp_path / "empty" / "a.parquet").write_bytes(b"PAR1 is not all that it takes")
    with pytest.raises(ValueError, match=r"a\.parquet: "):
        ParquetRows(tmp_path / "empty", "y")
    with pytest.raises(FileNotFoundError):
        ParquetRows(tmp_path / "nothing.parquet", "y")


def test_files_of_different_widths_are_refused(tmp_path):
    for name, width in (("a.parquet", 2), ("b.parquet", 3)):
        lists = pa.FixedSizeListArray.from_arrays(np.zeros(width * 5), width)
        written(tmp_path / name, {"x": lists, "y": np.zeros(5)})
    with pytest.raises(ValueError, match=r"b\.parquet: column 'x' is not of the length"):
        ParquetRows(tmp_path, "y")


def test_error_names_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'dpglm\[parquet\]'"):
        ParquetRows(tmp_path / "x.parquet", "y")


HIDDEN = (
    ".ipynb_checkpoints/part-checkpoint.parquet",
    "_temporary/0/part.parquet",
    ".Trash/part.parquet",
    "deep/.hidden/deeper/part.parquet",
    "deep/_draft.parquet",
    ".part.parquet",
)


def test_pitfall_34_hidden_folders_hold_no_rows(tmp_path):
    """A row counts once: files of notebooks, jobs and file managers are left out at any depth."""
    folder = tmp_path / ".home" / "_data"
    for place, name in enumerate(("part.parquet", "deep/part.parquet", *HIDDEN)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        written(folder / name, {"x": np.full(5, float(place)), "y": np.arange(5) % 2})
    rows = ParquetRows(folder, "y")
    assert rows.shape == (10, 1)
    assert sorted(features(rows)[0].ravel()) == [0.0] * 5 + [1.0] * 5
    assert pa.dataset.dataset(folder, format="parquet").count_rows() == 10


def test_files_that_cannot_be_opened_are_not_left_out(tmp_path):
    written(tmp_path / "part.parquet", {"x": [1.0], "y": [0]})
    (tmp_path / "more.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        ParquetRows(tmp_path, "y")


@pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json"])
def test_folders_of_tables_with_versions_are_refused(tmp_path, mark):
    written(tmp_path / "part.parquet", {"x": [1.0], "y": [0]})
    (tmp_path / mark).parent.mkdir()
    (tmp_path / mark).touch()
    with pytest.raises(ValueError, match="rows of earlier versions"):
        ParquetRows(tmp_path, "y")


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_files_under_two_names_are_refused(tmp_path, link):
    first = written(tmp_path / "part.parquet", {"x": [1.0], "y": [0]})
    getattr(tmp_path / "again.parquet", link)(first)
    with pytest.raises(ValueError, match=r"again\.parquet and part\.parquet must be different"):
        ParquetRows(tmp_path, "y")


def test_folders_named_after_values_are_columns(tmp_path):
    partitions = {"year": ["2023", "2023", "2024"], "town": ["a b/ü", None, "z"]}
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [0, 1, 0], **partitions})
    parquet.write_to_dataset(table, tmp_path, partition_cols=["year", "town"])
    schema = Schema.from_dict(
        {
            "columns": {
                "x": {"type": "numeric", "low": 0, "high": 10},
                "year": {"type": "numeric", "low": 2020, "high": 2030},
                "town": {"type": "categorical", "categories": ["a b/ü", "z", ""]},
            },
            "target": {"name": "y", "type": "binary", "classes": [0, 1]},
            "provenance": "made up for tests",
        }
    )
    rows = ParquetRows(tmp_path, schema=schema)
    X, y = features(rows, lambda y: 2.0 * y - 1.0)
    order = np.argsort(X[:, 0])
    expected = schema.encode(table.select(["x", "year", "town"]))
    np.testing.assert_allclose(X[order], expected, rtol=1e-6)
    assert y[order].tolist() == [-1.0, 1.0, -1.0]
    assert rows.columns == ("x", "y", "year", "town")
    assert sorted(ParquetRows(tmp_path, "y", columns=["x"], groups="year").group_ids) == [
        "2023",
        "2023",
        "2024",
    ]
    # Without a schema they are text, which is said; in one folder's file they are not there.
    with pytest.raises(ValueError, match="column 'year' has the type string"):
        ParquetRows(tmp_path, "y")
    (tmp_path / "more.parquet").write_bytes(next(tmp_path.rglob("*.parquet")).read_bytes())
    with pytest.raises(ValueError, match=r"more\.parquet: there is no column 'year'"):
        ParquetRows(tmp_path, schema=schema)


def test_columns_in_file_and_folder_are_those_of_the_file(tmp_path):
    (tmp_path / "x=7").mkdir()
    written(tmp_path / "x=7" / "part.parquet", {"x": [1.0, 2.0], "y": [0, 1]})
    assert features(ParquetRows(tmp_path, "y"))[0].ravel().tolist() == [1.0, 2.0]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([[1.0], [2.0], [0]], names=["x", "x", "y"])
    parquet.write_table(table, tmp_path / "part.parquet")
    with pytest.raises(ValueError, match=r"part\.parquet: each column must have its own name"):
        ParquetRows(tmp_path, "y")
