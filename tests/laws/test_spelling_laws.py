"""A law of spellings: names that look alike are one, in every container, for every kind of name."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import dpglm
from dpglm import AdditiveClassifier, LogisticRegression, ParquetRows, describe
from dpglm.cli.rows import read_rows
from dpglm.data import groups as ids_module
from dpglm.data.dask import groups_of_partitions
from dpglm.data.groups import Groups
from dpglm.exceptions import NearIdsWarning
from dpglm.preprocessing import SchemaEncoder
from dpglm.tables import cells as cells_module
from dpglm.tables.files import read_table
from dpglm.tables.schema import Schema
from tests.slowly import together

ALIKE: dict[str, tuple[Any, ...]] = {
    "blanks": ("P1", "P1 ", " P1", "P1\t"),
    "composed letters": tuple(unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD")),
    "numbers in text": ("17", "17.0", " 17", "17.00", "1.7e+1", "17"),
    "large numbers in text": ("10000000000000000", "1e+16", "1E+16"),
    "fractions in text": ("0.5", "0.50"),
}
APART: dict[str, tuple[str, ...]] = {
    "zero padding": ("17", "017"),
    "case": ("p1", "P1"),
    "another letter": ("Zoe", "Zoë"),
    "hexadecimal": ("1e10", "10e9"),
    "digits of other scripts": ("17", "١٧"),
    "inner blanks": ("P 1", "P1"),
}


def as_string_dtype(texts: list[str]) -> Any:
    return np.array(texts, dtype=np.dtypes.StringDType())


IN_MEMORY: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "NumPy": np.asarray,
    "NumPy, objects": lambda texts: np.array(texts, dtype=object),
    "NumPy, StringDType": as_string_dtype,
    "NumPy, bytes": lambda texts: np.array([one.encode() for one in texts]),
    "pandas": pd.Series,
    "pandas, category": lambda texts: pd.Series(texts, dtype="category"),
    "polars": pl.Series,
    "polars, categorical": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "pyarrow": pa.array,
    "pyarrow, chunked": lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
    "pyarrow, encoded": lambda texts: pa.array(texts).dictionary_encode(),
    "column": lambda texts: np.array(texts, dtype=object)[:, np.newaxis],
}


def found_in(container, kind):
    texts = list((ALIKE | APART)[kind])
    found = Groups.of(IN_MEMORY[container]([*texts, "other"]), len(texts) + 1)
    return found.n_groups == (2 if kind in ALIKE else len(texts) + 1)


@pytest.mark.filterwarnings("ignore::dpglm.NearIdsWarning")
@together("container", IN_MEMORY)
@together("kind", [*ALIKE, *APART])
def test_pitfall_35_ids_of_one_person_are_one_group(container, kind):
    assert found_in(container, kind)


def _in_parquet(folder: Path, texts: list[str]) -> Any:
    rows = {"x": np.zeros(len(texts)), "y": np.arange(len(texts)) % 2, "who": texts}
    parquet.write_table(pa.table(rows), folder / "rows.parquet")
    return ParquetRows(folder / "rows.parquet", "y", columns=["x"], groups="who").group_ids


def _in_csv(folder: Path, texts: list[str]) -> Any:
    csv.write_csv(pa.table({"who": texts}), folder / "rows.csv")
    return read_table(folder / "rows.csv", ["who"])["who"]


def _in_folders(folder: Path, texts: list[str]) -> Any:
    for place, text in enumerate(texts):
        part = folder / "rows" / f"who={text}" / f"{place}.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"x": [0.0], "y": [place % 2]}), part)
    return ParquetRows(folder / "rows", "y", columns=["x"], groups="who").group_ids


@pytest.mark.filterwarnings("ignore::dpglm.NearIdsWarning")
@pytest.mark.parametrize("stored", [_in_parquet, _in_csv, _in_folders])
@pytest.mark.parametrize("kind", [*ALIKE, *APART])
def test_ids_in_files_are_compared_as_in_memory(tmp_path, stored, kind):
    texts = list((ALIKE | APART)[kind])
    found = Groups.of(stored(tmp_path, [*texts, "other"]), len(texts) + 1)
    assert found.n_groups == (2 if kind in ALIKE else len(texts) + 1)


@pytest.mark.filterwarnings("ignore::dpglm.NearIdsWarning")
@pytest.mark.parametrize("kind", [*ALIKE, *APART])
def test_ids_in_partitions_are_compared_as_in_memory(kind):
    texts = np.array([*(ALIKE | APART)[kind], "other"], dtype=object)
    together = da.from_array(texts, chunks=len(texts))
    _, n_groups = groups_of_partitions([len(texts)], together, None)
    assert n_groups == (2 if kind in ALIKE else len(texts))
    apart = da.from_array(texts, chunks=1)
    if kind in ALIKE:
        with pytest.raises(ValueError, match="all their rows in one partition"):
            groups_of_partitions([1] * len(texts), apart, None)
    else:
        _, n_groups = groups_of_partitions([1] * len(texts), apart, None)
        assert n_groups == len(texts)


@pytest.mark.parametrize("kind", ["zero padding", "case"])
def test_ids_that_may_be_one_person_are_warned_about(kind):
    texts = np.array(APART[kind], dtype=object)
    with pytest.warns(NearIdsWarning, match="spell each id in one way"):
        Groups.of(texts, 2)
    with pytest.warns(NearIdsWarning, match="spell each id in one way"):
        groups_of_partitions([1, 1], da.from_array(texts, chunks=1), None)


@pytest.mark.parametrize(
    "ids", [["p1", "p2", "10", "100"], ["A-1", "A-10"], [7, 70], [0.5, 5.0], ["0", "00x1", "1"]]
)
def test_ids_that_differ_otherwise_are_not_warned_about(ids, recwarn):
    Groups.of(ids, len(ids))
    assert not [one for one in recwarn if issubclass(one.category, NearIdsWarning)]


def test_pitfall_35_ids_compared_as_raw_text_are_found(monkeypatch):
    monkeypatch.setattr(ids_module, "normal", str)
    for kind in ("blanks", "composed letters"):
        assert not found_in("pandas", kind)


NFC, NFD = (unicodedata.normalize(form, "größe") for form in ("NFC", "NFD"))
LABELS = [unicodedata.normalize("NFC", one) for one in ("é", "ü")]
COLUMNS = {
    NFC: {"type": "numeric", "low": 0, "high": 10},
    "kind": {"type": "categorical", "categories": [*LABELS, "z"], "reference": "z"},
}
SCHEMA = {
    "columns": COLUMNS,
    "target": {"name": f"ja {NFC}", "type": "binary", "classes": LABELS},
    "provenance": "made up",
}
N = 40


def spelled(form: str, blank: str = "") -> dict[str, Any]:
    """A table with names and texts in one Unicode form."""
    rng = np.random.default_rng(0)
    texts = [unicodedata.normalize(form, one) + blank for one in (*LABELS, "z")]
    names = [unicodedata.normalize(form, one) + blank for one in (NFC, f"ja {NFC}")]
    return {
        names[0]: rng.uniform(0, 10, N),
        "kind": [texts[one] for one in rng.integers(0, 3, N)],
        names[1]: [texts[one] for one in rng.integers(0, 2, N)],
        "who" + blank: [f"{texts[one]}{one}" for one in np.sort(rng.integers(0, 3, N))],
    }


def _file(suffix: str, write: Callable[[Any, Path], Any]) -> Callable[[Path, Any], Any]:
    def stored(folder: Path, table: Any) -> Any:
        write(pa.table(table), folder / f"rows{suffix}")
        return folder / f"rows{suffix}"

    return stored


TABLES: dict[str, Callable[[Path, Any], Any]] = {
    "mapping": lambda folder, table: table,
    "StringDType": lambda folder, table: {
        name: as_string_dtype(one) if isinstance(one, list) else one for name, one in table.items()
    },
    "pandas": lambda folder, table: pd.DataFrame(table),
    "polars": lambda folder, table: pl.DataFrame(table),
    "polars, lazy": lambda folder, table: pl.DataFrame(table).lazy(),
    "pyarrow": lambda folder, table: pa.table(table),
    "pyarrow, batch": lambda folder, table: pa.RecordBatch.from_pydict(table),
}
FILES = {
    "CSV": _file(".csv", csv.write_csv),
    "Parquet": _file(".parquet", parquet.write_table),
}
DASK = {"Dask": lambda folder, table: dd.from_pandas(pd.DataFrame(table), npartitions=2)}
SPELLINGS = [("NFC", ""), ("NFD", ""), ("NFD", " "), ("NFC", " ")]


@pytest.mark.parametrize(("form", "blank"), SPELLINGS)
@pytest.mark.parametrize("container", TABLES)
def test_names_and_categories_are_found_however_spelled(tmp_path, container, form, blank):
    encoder = SchemaEncoder(SCHEMA)
    expected, table = spelled("NFC"), TABLES[container](tmp_path, spelled(form, blank))
    np.testing.assert_array_equal(encoder.fit_transform(table), encoder.fit_transform(expected))
    assert encoder.target(table).tolist() == encoder.target(expected).tolist()


@pytest.mark.parametrize("container", [*TABLES, *FILES, *DASK])
def test_descriptions_and_fits_find_names_however_spelled(tmp_path, container):
    made = (TABLES | FILES | DASK)[container]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    one = made(tmp_path / "first", spelled("NFC"))
    # Both differences at once; encoders above and files below are given each by itself.
    other = made(tmp_path / "second", spelled("NFD", " "))
    options: dict[str, Any] = {"epsilon": 1.0, "random_state": 0}
    if container not in DASK:
        options |= {"groups": "who", "max_rows_per_group": 30}
    first, second = (describe(each, SCHEMA, **options) for each in (one, other))
    np.testing.assert_array_equal(first.solution.w, second.solution.w)
    if container == "CSV":
        return
    models = [
        AdditiveClassifier(SCHEMA, epsilon=1.0, random_state=0).fit(each) for each in (one, other)
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize(("form", "blank"), SPELLINGS)
@pytest.mark.parametrize("container", FILES)
def test_files_of_the_command_line_find_names_however_spelled(tmp_path, container, form, blank):
    path = FILES[container](tmp_path, spelled(form, blank))
    schema = Schema.from_dict(SCHEMA)
    rows = read_rows(
        path, schema, exposure=None, trials=None, groups="who", stream=False, cache=None
    )
    expected = spelled("NFC")
    np.testing.assert_allclose(rows.X, schema.encode(expected))
    assert rows.y.tolist() == schema.encode_target(expected[f"ja {NFC}"]).tolist()
    assert Groups.of(rows.groups, N).n_groups == 3


@pytest.mark.parametrize("where", ["categories", "other", "reference", "class_weight", "bounds"])
def test_public_facts_may_be_spelled_either_way(where):
    accented = unicodedata.normalize("NFD", "é")
    if where == "class_weight":
        y = np.array(LABELS * 20)
        weights = [{accented: 2.0}, {LABELS[0]: 2.0}]
        fits = [
            LogisticRegression(
                classes=LABELS, row_norm=1.0, class_weight=one, random_state=0, weight_bound=1.0
            ).fit(np.ones((N, 1)), y)
            for one in weights
        ]
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    elif where == "bounds":
        frame = pd.DataFrame({NFD: np.linspace(0, 1, N)})
        y = np.arange(N) % 2
        model = LogisticRegression(classes=[0, 1], feature_bounds={NFC: (0, 1)}, random_state=0)
        assert model.fit(frame, y).feature_bounds_.tolist() == [[0.0], [1.0]]
    else:
        categories = [*LABELS, "z"]
        entry = {"type": "categorical", "categories": categories}
        if where == "categories":
            entry["categories"] = [accented, *categories[1:]]
        else:
            entry[where] = accented
        schema = SCHEMA | {"columns": COLUMNS | {"kind": entry}}
        encoded = SchemaEncoder(schema).fit_transform(spelled("NFC"))
        entry["categories" if where == "categories" else where] = (
            categories if where == "categories" else LABELS[0]
        )
        np.testing.assert_array_equal(encoded, SchemaEncoder(schema).fit_transform(spelled("NFC")))


@pytest.mark.parametrize("of_schema", ["NFC", "NFD"])
@pytest.mark.parametrize("of_formula", ["NFC", "NFD"])
@pytest.mark.parametrize("of_table", ["NFC", "NFD"])
def test_formulas_name_columns_however_spelled(of_schema, of_formula, of_table):
    def in_form(form: str, text: str) -> str:
        return unicodedata.normalize(form, text)

    schema = {
        "columns": {
            in_form(of_schema, "größe"): {"type": "numeric", "low": 0, "high": 10},
            "kind": {"type": "categorical", "categories": [in_form(of_schema, "é"), "z"]},
        },
        "target": {"name": in_form(of_schema, "höhe"), "type": "numeric", "low": 0, "high": 1},
        "provenance": "made up",
    }
    table = {
        in_form(of_table, "größe"): np.linspace(0, 10, N),
        "kind": [in_form(of_table, "é"), "z"] * (N // 2),
        in_form(of_table, "höhe"): np.linspace(0, 1, N),
    }
    formula = in_form(of_formula, "höhe ~ größe + C(kind)")
    model = dpglm.from_formula(formula, schema, epsilon=1e6, random_state=0).fit(table)
    assert model.predict(table) == pytest.approx(np.linspace(0, 1, N), abs=0.05)


@pytest.mark.parametrize("kind", ["U", "object", "StringDType"])
@pytest.mark.parametrize("declared", [True, False])
def test_labels_are_those_of_the_classes_however_spelled(kind, declared):
    composed, apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    labels = [composed, "b", apart, "b"] * 10
    made = {"U": np.asarray, "object": lambda y: np.array(y, dtype=object)}
    y = made.get(kind, as_string_dtype)(labels)
    X = np.where(np.array(labels) == "b", 1.0, -1.0)[:, np.newaxis]
    classes = ["b", composed] if declared else None
    model = LogisticRegression(classes=classes, row_norm=1.0, epsilon=50.0, random_state=0)
    if declared:
        model.fit(X, y)
    else:
        with pytest.warns(dpglm.PublicInformationWarning):
            model.fit(X, y)
    assert len(model.classes_) == 2
    assert model.score(X, y) == 1.0
    plain = np.array([composed if one == apart else one for one in labels])
    options = {"epsilon": 1.0, "random_state": 0, "levels": ["b", composed]}
    found, expected = (dpglm.evaluate(model, X, one, by=one, **options) for one in (y, plain))
    np.testing.assert_array_equal(found.solution.w, expected.solution.w)


def test_law_notices_categories_compared_as_raw_text(tmp_path, monkeypatch):
    monkeypatch.setattr(cells_module, "normal", str)
    with pytest.raises((AssertionError, ValueError)):
        test_names_and_categories_are_found_however_spelled(tmp_path, "pandas", "NFD", "")
