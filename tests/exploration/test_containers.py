"""The same numbers from every kind of table."""

import numpy as np
import pytest

from dpglm import ParquetRows
from dpglm.exploration import describe
from dpglm.exploration.design import open_table
from dpglm.tables.files import write_table


def released(table, schema, **options):
    return describe(table, schema, epsilon=0.5, random_state=0, **options).solution.w


@pytest.fixture(scope="module")
def expected(table, schema):
    return released(table, schema)


def test_data_frames(table, schema, expected):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    np.testing.assert_allclose(released(pandas.DataFrame(table), schema), expected, atol=1e-8)
    frame = polars.DataFrame({name: list(cells) for name, cells in table.items()}, strict=False)
    np.testing.assert_allclose(released(frame, schema), expected, atol=1e-8)


@pytest.fixture
def folder(table, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "rows").mkdir()
    for part, rows in enumerate((slice(0, 1000), slice(1000, None))):
        cells = {name: column[rows].tolist() for name, column in table.items()}
        write_table(cells, tmp_path / "rows" / f"part-{part}.parquet")
    return tmp_path / "rows"


def test_parquet_by_blocks(schema, folder, expected):
    np.testing.assert_allclose(released(folder, schema), expected, atol=1e-8)
    rows = ParquetRows(folder, target="visits", columns=["age"])
    np.testing.assert_allclose(released(rows, schema), expected, atol=1e-8)
    assert open_table(folder, ["age"]).n_rows == 3000
    with pytest.raises(ValueError, match="there is no column 'income'"):
        released(_without_visits(folder), schema)


def _without_visits(folder):
    write_table({"age": [1.0]}, folder.parent / "few.parquet")
    return folder.parent / "few.parquet"


def test_text_files(table, schema, tmp_path, expected):
    pytest.importorskip("pyarrow")
    # In CSV only an empty cell can stand for a missing value.
    text = {
        name: ["" if cell is None or cell != cell else str(cell) for cell in column.tolist()]
        for name, column in table.items()
    }
    write_table(text, tmp_path / "people.csv")
    np.testing.assert_allclose(released(tmp_path / "people.csv", schema), expected, atol=1e-8)


def test_frames_of_dask(table, schema, expected):
    pandas = pytest.importorskip("pandas")
    dask = pytest.importorskip("dask.dataframe")
    frame = dask.from_pandas(pandas.DataFrame(table), npartitions=3)
    np.testing.assert_allclose(released(frame, schema), expected, atol=1e-8)
    with pytest.raises(ValueError, match="the data lack column 'visits'"):
        released(frame.drop(columns="visits"), schema)
