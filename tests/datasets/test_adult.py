"""Adult as shipped is Adult as published."""

import gzip
import hashlib
import sys
from importlib import resources

import numpy as np
import pytest

from dpglm.datasets import load_adult

# Figures of UCI's adult.names: rows and rows above 50000 dollars, in adult.data and adult.test.
PARTS = {"train": (32561, 7841), "test": (16281, 3846)}
# Unknown values per part, as counted in many publications.
UNKNOWN = {
    "train": {"workclass": 1836, "occupation": 1843, "native-country": 583},
    "test": {"workclass": 963, "occupation": 966, "native-country": 274},
}


@pytest.fixture(scope="module")
def adult():
    return load_adult()


def test_file_is_the_one_that_its_licence_file_describes():
    folder = resources.files("dpglm.datasets") / "files"
    content = gzip.decompress((folder / "adult.csv.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() in (folder / "LICENSES.md").read_text()


@pytest.mark.parametrize("part", ["train", "test"])
def test_parts_are_those_of_uci(adult, part):
    rows = getattr(adult, part)
    n_rows, n_rich = PARTS[part]
    assert len(rows) == n_rows
    assert np.count_nonzero(adult.target[rows] == ">50K") == n_rich
    for name, values in adult.data.items():
        unknown = np.count_nonzero(values[rows].astype(str) == "?")
        assert unknown == UNKNOWN[part].get(name, 0), name


def test_parts_are_disjoint_and_together_all_rows(adult):
    assert np.array_equal(np.concatenate([adult.train, adult.test]), np.arange(48842))


def test_first_row_of_each_part(adult):
    def row(i):
        return [adult.data[name][i] for name in ("age", "workclass", "fnlwgt", "hours-per-week")]

    assert row(adult.train[0]) == [39, "State-gov", 77516, 40]
    assert row(adult.test[0]) == [25, "Private", 226802, 40]


def test_columns(adult):
    assert adult.feature_names == tuple(adult.data) == tuple(adult.schema["columns"])
    assert len(adult.feature_names) == 14
    assert "income" not in adult.data
    assert adult.target_name == "income"
    numeric = {name for name, values in adult.data.items() if values.dtype == np.int64}
    assert numeric == {
        name for name, fact in adult.schema["columns"].items() if fact["type"] == "numeric"
    }
    assert all(len(values) == len(adult.target) == 48842 for values in adult.data.values())


def test_schema_covers_every_value(adult):
    for name, fact in adult.schema["columns"].items():
        values = adult.data[name]
        if fact["type"] == "numeric":
            assert fact["low"] <= values.min() <= values.max() <= fact["high"], name
        else:
            assert set(np.unique(values)) <= set(fact["categories"]), name
    assert set(np.unique(adult.target)) == set(adult.schema["target"]["classes"])


def test_frame_holds_the_same_table(adult):
    frame = load_adult(as_frame=True)
    assert list(frame.data.columns) == list(adult.feature_names)
    for name, values in adult.data.items():
        assert (frame.data[name].to_numpy() == values).all()
    assert np.array_equal(frame.target, adult.target)


def test_frame_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"load_adult\(as_frame=True\) needs pandas"):
        load_adult(as_frame=True)


def test_source_and_licence_are_stated(adult):
    assert "10.24432/C5XW20" in adult.source
    assert "CC BY 4.0" in adult.licence
    assert "not from the rows" in adult.schema["provenance"]


def test_repr_shows_no_rows(adult):
    assert repr(adult) == (
        "Dataset(name='adult', n_rows=48842, n_features=14, target_name='income')"
    )
