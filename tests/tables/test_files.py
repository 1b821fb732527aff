"""CSV and Parquet files: text stays text, heads are read without values, errors name the file."""

import gzip
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpglm.tables.files import SUFFIXES, StorageType, read_table, storage_types, write_table
from tests.tables.test_csv import packed

FRAME = pd.DataFrame({"age": [1, 20], "job": ['a, "b"\nc', ""], "ok": [True, False]})


def write(frame, path):
    if path.suffix in {".parquet", ".pq"}:
        frame.to_parquet(path)
    else:
        text = frame.to_csv(index=False, sep="\t" if ".tsv" in path.name else ",")
        path.write_bytes(packed(path.name, text.encode()))
    return path


class TestRead:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_gives_the_wanted_columns_in_the_order_of_rows(self, tmp_path, suffix):
        path = write(FRAME, tmp_path / f"t{suffix}")
        found = read_table(path, ["job", "age"])
        assert list(found) == ["job", "age"]
        assert np.asarray(found["job"]).tolist() == ['a, "b"\nc', ""]
        assert [int(value) for value in np.asarray(found["age"])] == [1, 20]

    def test_csv_values_are_never_guessed_to_be_anything_but_text(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("a,b\n007,NA\n1e3,2020-01-01\n")
        found = {
            name: np.asarray(values).tolist() for name, values in read_table(path, "ab").items()
        }
        assert found == {"a": ["007", "1e3"], "b": ["NA", "2020-01-01"]}

    def test_parquet_categories_and_nulls_are_plain_values(self, tmp_path):
        frame = pd.DataFrame({"c": pd.Categorical(["x", None, "y"]), "n": [1, None, 2]})
        found = read_table(write(frame, tmp_path / "t.parquet"), ["c", "n"])
        assert np.asarray(found["c"]).tolist() == ["x", None, "y"]
        assert np.isnan(np.asarray(found["n"])[1])

    def test_byte_order_mark_is_not_part_of_a_name(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("age,b\n1,2\n", encoding="utf-8-sig")
        assert np.asarray(read_table(path, ["age"])["age"]).tolist() == ["1"]

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("t.csv", b"", "names no columns"),
            ("t.csv", b"a,b\n", "must have rows"),
            ("t.csv", b"a,a\n1,2\n", "each column must have its own name, but 'a'"),
            ("t.csv", b"b,c\n1,2\n", "there is no column 'a'; the file has 'b', 'c'"),
            ("t.csv", b"a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
            ("t.csv", b"a,b\n\xff,2\n", "(?i:utf-?8).*Save the file as UTF-8"),
            ("t.csv", b"a;b\n1;2\n", "there is no column 'a'.*--separator ';'"),
            ("t.csv", b"\xff,a\n1,2\n", "header is not text in UTF-8"),
            ("t.parquet", b"nothing of the kind", "(?i:parquet)"),
            ("t.xlsx", b"", "must end in .csv, .csv.gz, .*.parquet, .pq"),
        ],
    )
    def test_errors_name_the_file(self, tmp_path, name, content, says):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path / name)) + f": .*{says}"):
            read_table(tmp_path / name, ["a"])

    def test_a_cut_archive_is_an_error(self, tmp_path):
        path = tmp_path / "t.csv.gz"
        path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10_000)[:60])
        with pytest.raises((ValueError, OSError)):
            read_table(path, ["a"])


class TestStorageTypes:
    def test_come_from_the_head_of_a_parquet_file(self, tmp_path):
        table = pa.table(
            {
                "i": [1],
                "f": [1.0],
                "d": pa.array([1], pa.decimal128(3)),
                "s": ["x"],
                "l": pa.array(["x"], pa.large_string()),
                "c": pa.array(["x"]).dictionary_encode(),
                "b": [True],
                "t": pa.array([0], pa.date32()),
                "m": pa.array([0], pa.duration("s")),
                "n": pa.array([None], pa.list_(pa.int8())),
            }
        )
        parquet.write_table(table, tmp_path / "t.parquet")
        kinds = [kind.name for kind in storage_types(tmp_path / "t.parquet").values()]
        assert kinds == ["NUMBER"] * 3 + ["TEXT"] * 3 + ["BOOLEAN", "DATE", "DURATION", "UNKNOWN"]

    @pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
    def test_csv_has_none(self, tmp_path, suffix):
        found = storage_types(write(FRAME, tmp_path / f"t{suffix}"))
        assert found == dict.fromkeys(FRAME, StorageType.UNKNOWN)

    def test_names_may_hold_commas_and_lines(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text('"a, ""b""\nc",d\n1,2\n')
        assert list(storage_types(path)) == ['a, "b"\nc', "d"]


class TestWrite:
    @pytest.mark.parametrize("suffix", [one for one in SUFFIXES if ".zip" not in one])
    def test_file_round_trip(self, tmp_path, suffix):
        path = tmp_path / f"t{suffix}"
        write_table({"label": np.array(["<=1", ">1"]), "p": np.array([0.25, 1.0])}, path)
        found = read_table(path, ["label", "p"])
        assert np.asarray(found["label"]).tolist() == ["<=1", ">1"]
        assert [float(value) for value in np.asarray(found["p"])] == [0.25, 1.0]

    def test_the_name_must_stand_for_a_format(self, tmp_path):
        with pytest.raises(ValueError, match="must end in"):
            write_table({"a": [1]}, tmp_path / "t.txt")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("before", [8, 9, 10])
def test_line_ends_in_cells_survive_the_ends_of_blocks(tmp_path, suffix, before):
    """pyarrow reads blocks of a MiB, and drops a line feed that begins one after a return."""
    cells = ["x" * 9 + "\r\n" + "y" * 13 + "\r\n"] * 80_000
    lines = [f'"{cell}",{place % 2}' for place, cell in enumerate(cells)]
    text = "\r\n".join(["note,y", f"{'z' * before},0", *lines, ""]).encode()
    # Lines have 32 bytes, so that all blocks end alike.
    assert (text[(1 << 20) - 1 : (1 << 20) + 1] == b"\r\n") == (before == 9)
    path = tmp_path / f"t{suffix}"
    path.write_bytes(gzip.compress(text, 1) if suffix.endswith(".gz") else text)
    found = read_table(path, ["note", "y"])
    assert found["note"].to_pylist() == ["z" * before, *cells]
    assert found["y"].to_pylist()[1:] == ["0", "1"] * 40_000


def test_blank_lines_of_one_column_are_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n\n3\n\n5\n")
    assert read_table(path, ["a"])["a"].to_pylist() == ["1", "", "3", "", "5"]
    # As they are written, and read again.
    write_table({"a": pa.array(["1", None, "3"])}, path)
    assert read_table(path, ["a"])["a"].to_pylist() == ["1", "", "3"]
    # Between rows of several columns they are not cells.
    path.write_text("a,b\n1,2\n\n3,4\n\n")
    assert read_table(path, ["a"])["a"].to_pylist() == ["1", "3"]
