"""CSV files in other dialects: separators, decimal commas, encodings, compression."""

import gzip
import io
import json
import zipfile

import numpy as np
import pyarrow as pa
import pytest

from dpglm import describe
from dpglm.tables.files import Dialect, read_table, storage_types, write_table
from dpglm.tables.schema import Schema
from tests.cli.conftest import files, frame, run  # noqa: F401
from tests.slowly import together

CELLS = {"Größe": ["1.234,5", "0,25", ""], "Stadt": ["Köln", "Łódź", "a;b"], "y": ["a", "b", "a"]}


def text(separator=";", end="\n"):
    def quoted(cell):
        return f'"{cell}"' if separator in cell else cell

    rows = [CELLS, *zip(*CELLS.values(), strict=True)]
    return "".join(separator.join(map(quoted, row)) + end for row in rows)


def packed(name, content):
    if name.endswith(".gz"):
        return gzip.compress(content)
    if name.endswith(".zst"):
        return pa.compress(content, "zstd", asbytes=True)
    if name.endswith(".zip"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("rows.csv", content)
        return stream.getvalue()
    return content


def check(path, dialect):
    found = read_table(path, list(CELLS), dialect, ["Größe"])
    assert list(storage_types(path, dialect)) == list(CELLS)
    assert [str(one) for one in found["Größe"]] == ["1234.5", "0.25", ""]
    assert found["Stadt"].to_pylist() == CELLS["Stadt"]


NUMBERS = {"decimal": ",", "thousands": "."}


@together("ending", ["", ".gz", ".zst", ".zip"])
@together("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "iso8859-2"])
@together("end", ["\n", "\r\n"])
@together("first", ["", "sep=;", '"sep=;"'])
def test_all_dialects_give_the_same_cells(tmp_path, ending, encoding, end, first):
    content = ((first + end if first else "") + text(end=end)).encode(encoding)
    path = tmp_path / f"rows.csv{ending}"
    path.write_bytes(packed(path.name, content))
    stated = None if first else ";"
    read_as = "utf-8" if encoding == "utf-8-sig" else encoding
    check(path, Dialect(separator=stated, encoding=read_as, **NUMBERS))


def test_names_with_tsv_have_tabulators(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text(text("\t"), encoding="utf-8")
    check(path, Dialect(**NUMBERS))
    write_table({"a": [1, 2], "b": ["x", "y"]}, tmp_path / "out.tsv.gz")
    assert gzip.decompress((tmp_path / "out.tsv.gz").read_bytes()) == b'"a"\t"b"\n1\t"x"\n2\t"y"\n'
    with pytest.raises(ValueError, match="cannot be written to an archive"):
        write_table({"a": [1]}, tmp_path / "out.csv.zip")


def test_utf_8_mark_before_latin_1_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "Stadt;x\nKöln;1\n".encode("latin-1"))
    dialect = Dialect(separator=";", encoding="latin-1")
    assert read_table(path, ["Stadt"], dialect)["Stadt"].to_pylist() == ["Köln"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_blocks_may_end_anywhere(tmp_path, monkeypatch, size):
    monkeypatch.setattr("dpglm.tables.files._AT_ONCE", size)
    path = tmp_path / "rows.csv"
    path.write_bytes(text(end="\r\n").encode("utf-16"))
    check(path, Dialect(separator=";", encoding="utf-16", **NUMBERS))


class TestNumbers:
    @pytest.mark.parametrize(
        ("cell", "number"),
        [
            ("1,5", 1.5),
            ("-1.234.567,25", -1234567.25),
            ("1234,5", 1234.5),
            (" 7 ", 7.0),
            (",5", 0.5),
            ("1e3", 1000.0),
            ("1,5E-2", 0.015),
            ("nan", np.nan),
        ],
    )
    def test_cells_are_read_in_the_stated_form(self, cell, number):
        found = Dialect(**NUMBERS).numbers([cell], "pay")
        np.testing.assert_equal(float(found[0]), number)

    @pytest.mark.parametrize(
        "cell", ["1.5", "1,234.5", "1.23.456", "1,2,3", "1 234", "12.3456", "1_0"]
    )
    def test_cells_in_another_form_are_refused(self, cell):
        with pytest.raises(
            ValueError, match=r"column 'pay', row 2: .* is not a number with decimals"
        ):
            Dialect(**NUMBERS).numbers(["1", cell], "pay")

    def test_numbers_of_the_usual_form_are_not_touched(self):
        cells = ["1.5", "x"]
        assert Dialect(separator=";").numbers(cells, "pay") is cells


@pytest.mark.parametrize(
    "wrong",
    [
        {"separator": ";;"},
        {"separator": '"'},
        {"decimal": ";"},
        {"thousands": "x"},
        {"decimal": ",", "thousands": ","},
        {"encoding": "none"},
    ],
)
def test_impossible_dialects_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))[:5]}|thousands"):
        Dialect(**wrong)


SCHEMA = {
    "columns": {
        "Größe": {"low": 0, "high": 2000, "missing": 0},
        "Stadt": {"categories": ["Köln", "Łódź", "a;b"]},
    },
    "target": {"name": "y", "classes": ["a", "b"]},
    "provenance": "made up",
}


class TestCauses:
    """A dialect that is not stated is named as the cause."""

    def error(self, tmp_path, content, **dialect):
        (tmp_path / "rows.csv").write_bytes(content)
        schema = Schema.from_dict(SCHEMA | ({"csv": dialect} if dialect else {}))
        with pytest.raises(ValueError, match=r"Größe|rows") as error:
            describe(tmp_path / "rows.csv", schema, epsilon=1.0, random_state=0)
        return str(error.value)

    def test_a_separator(self, tmp_path):
        assert "--separator ';'" in self.error(tmp_path, text().encode())
        assert "--separator 'tab'" in self.error(tmp_path, text("\t").encode())

    def test_an_encoding(self, tmp_path):
        content = text().encode("iso8859-2")
        assert "--encoding latin-1" in self.error(tmp_path, content, separator=";")
        cells = content.replace("Größe".encode("iso8859-2"), "Größe".encode())
        assert "--encoding latin-1" in self.error(tmp_path, cells, separator=";")
        said = self.error(tmp_path, text().encode(), separator=";", encoding="ascii")
        assert "not text in the stated encoding, ascii" in said

    def test_a_decimal_comma(self, tmp_path):
        content = text().replace("1.234,5", "1,5").encode()
        assert "--decimal ','" in self.error(tmp_path, content, separator=";")

    def test_a_separator_of_thousands(self, tmp_path):
        said = self.error(tmp_path, text().encode(), separator=";", decimal=",")
        assert "--thousands" in said
        assert "row 1" in said

    def test_an_archive_of_several_files(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "rows.csv.zip", "w") as archive:
            archive.writestr("a.csv", "a\n1\n")
            archive.writestr("b.csv", "a\n1\n")
        with pytest.raises(ValueError, match="must contain one file, got 2"):
            storage_types(tmp_path / "rows.csv.zip")
        (tmp_path / "rows.csv.zip").write_bytes(b"no archive")
        with pytest.raises(ValueError, match=r"rows\.csv\.zip.*not a zip file"):
            storage_types(tmp_path / "rows.csv.zip")


def test_a_schema_keeps_the_dialect():
    schema = Schema.from_dict(SCHEMA | {"csv": {"separator": ";", **NUMBERS}})
    assert schema.to_dict()["csv"] == {"separator": ";", **NUMBERS}
    assert Schema.from_dict(schema.to_dict()) == schema
    with pytest.raises(ValueError, match='"csv"'):
        Schema.from_dict(SCHEMA | {"csv": {"separators": ";"}})


def european(frame):  # noqa: F811
    """A table as Excel writes it in Germany."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 3650, len(frame))
    dates = [str(np.datetime64("2015-01-01") + int(one)) for one in days]
    lines = ["sep=;", "Größe;Raucher;seit;krank"]
    for age, smoker, day, ill in zip(
        frame["age"], frame["smoker"], dates, frame["ill"], strict=True
    ):
        year, month, number = day.split("-")
        cell = f"{1000 + age / 3:,.2f}".translate(str.maketrans(",.", ".,"))
        lines.append(f"{cell};{'jäh' if smoker == 'yes' else 'nö'};{number}.{month}.{year};{ill}")
    return "\r\n".join(lines) + "\r\n"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
def test_a_file_of_excel_becomes_a_model(run, files, frame, encoding):  # noqa: F811
    """From `dpglm schema` to a model, with no work by hand but bounds and provenance."""
    (files / "rows.csv").write_bytes(european(frame).encode(encoding))
    form = ["--decimal", ",", "--thousands", "."]
    form += ["--encoding", "latin-1"] if encoding == "latin-1" else []
    (files / "plain.csv").write_bytes((files / "rows.csv").read_bytes().partition(b"\n")[2])
    done = run("schema", "plain.csv", "--target", "krank", *form)
    assert done.exit_code == 2
    assert "--separator ';'" in " ".join(done.stderr.split())
    done = run("schema", "rows.csv", "--target", "krank", *form, "-o", "form.json")
    assert done.exit_code == 0, done.stderr
    filled = json.loads((files / "form.json").read_text(encoding="utf-8"))
    filled["columns"]["Größe"] |= {"low": 1000, "high": 1040}
    filled["columns"]["Raucher"] |= {"categories": ["jäh", "nö"]}
    filled["columns"]["seit"] |= {"low": "2015-01-01", "high": "2024-12-31"}
    filled["target"] |= {"classes": ["no", "yes"]}
    filled["provenance"] = "questionnaire"
    (files / "form.json").write_text(json.dumps(filled))
    options = ("--schema", "form.json", "--epsilon", 5)
    done = run("fit", "rows.csv", *options, "--model", "model.json")
    assert done.exit_code == 0, done.stderr
    done = run("predict", "rows.csv", "--model", "model.json", "-o", "out.csv")
    assert done.exit_code == 0, done.stderr
    predicted = read_table(files / "out.csv", ["prediction"])["prediction"].to_pylist()
    assert np.mean(np.array(predicted) == frame["ill"]) > 0.75
    for command in (
        ["describe", "rows.csv", *options],
        ["evaluate", "rows.csv", "--model", "model.json", "--epsilon", 5],
    ):
        done = run(*command)
        assert done.exit_code == 0, done.stderr
