"""California housing as shipped equals the published data."""

import gzip
import hashlib
import sys
from importlib import resources

import numpy as np
import pytest

from dpglm.datasets import load_california_housing, split_by_index


@pytest.fixture(scope="module")
def housing():
    return load_california_housing()


def test_file_is_the_one_that_its_licence_file_describes():
    folder = resources.files("dpglm.datasets") / "files"
    content = gzip.decompress((folder / "california_housing.csv.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() in (folder / "LICENSES.md").read_text()


def test_reproduces_the_regression_of_the_publication(housing):
    """The least squares fit that Pace and Barry print with the data, to its four decimals."""
    column = dict(zip(housing.feature_names, housing.data.T, strict=True))
    income = column["MedInc"]
    design = np.column_stack(
        [
            np.ones_like(income),
            income,
            income**2,
            income**3,
            np.log(column["HouseAge"]),
            np.log(column["AveRooms"] / column["AveOccup"]),
            np.log(column["AveBedrms"] / column["AveOccup"]),
            np.log(column["AveOccup"]),
            np.log(column["Population"] / column["AveOccup"]),
        ]
    )
    coef = np.linalg.lstsq(design, np.log(housing.target * 1e5), rcond=None)[0]
    printed = [11.4939, 0.4790, -0.0166, -0.0002, 0.1570, -0.8582, 0.8043, -0.4077, 0.0477]
    assert coef == pytest.approx(printed, abs=5.1e-5)


def test_shape_units_and_order(housing):
    assert housing.data.shape == (20640, 8)
    assert housing.data.dtype == housing.target.dtype == np.float64
    assert np.isfinite(housing.data).all()
    assert housing.data[:, 4].mean() == pytest.approx(1425.5, abs=0.05)
    assert housing.data[0] == pytest.approx(
        [8.3252, 41.0, 880 / 126, 129 / 126, 322.0, 322 / 126, 37.88, -122.23], rel=1e-15
    )
    assert housing.target[0] == 4.526


def test_target_is_within_its_declared_bounds(housing):
    fact = housing.schema["target"]
    assert fact["low"] <= housing.target.min() <= housing.target.max() <= fact["high"]


def test_declared_bounds_clip_few_values(housing):
    for values, (name, fact) in zip(housing.data.T, housing.schema["columns"].items(), strict=True):
        outside = np.mean((values < fact["low"]) | (values > fact["high"]))
        assert outside < 0.01, name


def test_split_follows_the_public_rule(housing):
    train, test = split_by_index(20640)
    assert np.array_equal(housing.train, train)
    assert np.array_equal(housing.test, test)


def test_frame_holds_the_same_table(housing):
    frame = load_california_housing(as_frame=True)
    assert tuple(frame.data.columns) == housing.feature_names
    assert tuple(frame.schema["columns"]) == housing.feature_names
    assert np.array_equal(frame.data.to_numpy(), housing.data)


def test_frame_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"load_california_housing\(as_frame=True\) needs pandas"):
        load_california_housing(as_frame=True)
