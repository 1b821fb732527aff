"""Every schema of the datasets is well formed and written for exactly the columns that exist."""

import gzip
import struct
from itertools import pairwise

import pytest

from dpglm.datasets import load_adult, load_california_housing, load_mnist


def _tiny_mnist(folder):
    for part in ("train", "t10k"):
        for name, header in (("images-idx3", (0x803, 2, 28, 28)), ("labels-idx1", (0x801, 2))):
            size = 2 if header[0] == 0x801 else 2 * 28 * 28
            content = struct.pack(f">{len(header)}I", *header) + bytes(size)
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
    return load_mnist(folder)


@pytest.fixture(params=["adult", "california_housing", "mnist"])
def dataset(request, tmp_path):
    if request.param == "adult":
        return load_adult()
    if request.param == "california_housing":
        return load_california_housing()
    return _tiny_mnist(tmp_path)


def test_schema_is_well_formed(dataset):
    schema = dataset.schema
    assert set(schema) == {"columns", "target", "provenance"}
    assert tuple(schema["columns"]) == dataset.feature_names
    for name, fact in schema["columns"].items():
        if fact["type"] == "numeric":
            assert set(fact) - {"scale"} == {"type", "low", "high"}, name
            assert fact["low"] < fact["high"], name
        else:
            assert fact["type"] == "categorical", name
            assert set(fact) == {"type", "categories"}, name
            assert len(set(fact["categories"])) == len(fact["categories"]) >= 2, name
    target = schema["target"]
    assert target["name"] == dataset.target_name
    assert target["type"] in {"binary", "classes", "numeric"}
    if target["type"] == "numeric":
        assert target["low"] < target["high"]
    else:
        assert len(target["classes"]) == len(set(target["classes"])) >= 2
        assert (target["type"] == "binary") == (len(target["classes"]) == 2)


def test_provenance_names_every_numeric_column_of_a_table():
    for dataset in (load_adult(), load_california_housing()):
        provenance = dataset.schema["provenance"]
        for name, fact in dataset.schema["columns"].items():
            if fact["type"] == "numeric":
                assert name in provenance, name


def test_documented_categories_keep_their_documented_order():
    education = load_adult().schema["columns"]["education"]["categories"]
    assert education[:4] == ["Bachelors", "Some-college", "11th", "HS-grad"]
    assert not all(a < b for a, b in pairwise(education))
