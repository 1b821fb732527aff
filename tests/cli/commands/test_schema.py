"""`dpglm schema`: a form made from names and storage types alone."""

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from dpglm.cli.commands.models import template
from dpglm.tables import files as tables
from dpglm.tables.files import StorageType
from dpglm.tables.schema import HELP_KEY, Schema

FIRST = pd.DataFrame(
    {
        "age": [17, 90],
        "job": ["cook", "Ärztin"],
        "paid": [1.5, 2.5],
        "ok": [True, False],
        "ill": ["yes", "no"],
    }
)
# Other values, other extremes, other lists, other sizes; the same header and types.
OTHER = pd.DataFrame(
    {
        "age": [-5, 10**9, 3],
        "job": ["", "a,b\nc", '"'],
        "paid": [np.nan, np.inf, -1e300],
        "ok": [True] * 3,
        "ill": ["maybe"] * 3,
    }
)
# In CSV even the looks of the types may differ.
NUMBERS = pd.DataFrame({name: [0, 1, 2] for name in FIRST})


def form(run, path, frame, *options):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    done = run("schema", path, "--target", "ill", *options)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_form_depends_on_header_and_types_only(run, tmp_path):
    parquet, text = tmp_path / "t.parquet", tmp_path / "t.csv"
    assert form(run, parquet, FIRST) == form(run, parquet, OTHER)
    assert form(run, text, FIRST) == form(run, text, OTHER) == form(run, text, NUMBERS)


def test_undecodable_values_do_not_change_form_of_csv(run, tmp_path):
    path = tmp_path / "t.csv"
    expected = form(run, path, FIRST)
    path.write_bytes(b"age,job,paid,ok,ill\n\xff\xfe,\x00,,,,,,,\n")
    assert run("schema", path, "--target", "ill").stdout == expected


def test_the_check_above_sees_types_guessed_from_values(run, tmp_path, monkeypatch):
    def guessing(self, path):
        found = arrow_csv.read_csv(io.BytesIO(path.read_bytes()))
        return tuple((field.name, field.type) for field in found.schema)

    monkeypatch.setattr(tables.Csv, "types", guessing)
    path = tmp_path / "t.csv"
    assert form(run, path, FIRST) != form(run, path, NUMBERS)


def test_parquet_types_are_filled_in_and_nothing_else(run, tmp_path):
    document = json.loads(form(run, tmp_path / "t.parquet", FIRST))
    open_number = {"type": "numeric", "low": None, "high": None}
    assert document["columns"] == {
        "age": open_number,
        "job": {"type": "categorical", "categories": []},
        "paid": open_number,
        "ok": {"type": "categorical", "categories": [False, True]},
    }
    assert document["target"] == {"name": "ill", "type": "classes", "classes": []}
    assert document["provenance"] == ""


def test_csv_leaves_the_types_open(run, tmp_path):
    document = json.loads(form(run, tmp_path / "t.csv", FIRST))
    anything = {"type": None, "low": None, "high": None, "categories": []}
    assert document["columns"] == dict.fromkeys(["age", "job", "paid", "ok"], anything)
    assert document["target"] == {
        "name": "ill",
        "type": None,
        "classes": [],
        "low": None,
        "high": None,
    }


@pytest.mark.parametrize("kind", StorageType)
def test_only_a_filled_form_is_a_schema(kind):
    document = template({"x": kind, "y": kind}, "y")
    with pytest.raises(ValueError, match=r"filled in"):
        Schema.from_dict(document)
    document["columns"]["x"] = document["columns"]["x"] | {"type": "numeric", "low": 0, "high": 1}
    document["columns"]["x"].pop("categories", None)
    document["target"] = document["target"] | {"type": "binary", "classes": [0, 1]}
    document["provenance"] = "known"
    assert Schema.from_dict(document).column_names == ("x",)


def test_the_form_explains_itself(run, tmp_path):
    document = json.loads(form(run, tmp_path / "t.csv", FIRST))
    text = " ".join(document[HELP_KEY])
    for word in ("numeric", "categorical", "binary", "classes", "count", "missing", "other"):
        assert word in text


def test_columns_without_a_name_are_left_out():
    document = template({"": StorageType.UNKNOWN, "y": StorageType.TEXT}, "y")
    assert document["columns"] == {}


def test_is_written_to_a_file_and_not_over_one(run, fails, tmp_path):
    text, out = tmp_path / "t.csv", tmp_path / "new" / "schema.json"
    printed = form(run, text, FIRST)
    assert form(run, text, FIRST, "-o", out) == ""
    assert out.read_text() == printed
    out.write_text("mine")
    again = ("schema", text, "--target", "ill", "-o", out)
    assert "exists already" in fails(run(*again))
    assert out.read_text() == "mine"
    assert run(*again, "--force").exit_code == 0
    assert out.read_text() == printed


def test_the_target_must_be_a_column(run, fails, files):
    message = fails(run("schema", "people.csv", "--target", "sick", "-o", "s.json"))
    assert "--target sick: not a column of people.csv; choose among age, smoker, ill, id" in message
    assert not (files / "s.json").exists()


def test_values_need_not_even_be_readable(run, tmp_path):
    """A Parquet file without its column data still has its header."""
    path = tmp_path / "t.parquet"
    expected = form(run, path, FIRST)
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(b"PAR1" + bytes(len(content) - size - 4) + content[-size:])
    with pytest.raises((OSError, pa.ArrowInvalid)):
        pd.read_parquet(path)
    assert run("schema", path, "--target", "ill").stdout == expected
