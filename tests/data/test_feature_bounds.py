"""Bounds of columns mean one thing however they are written, or are refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm import (
    LinearRegression,
    LogisticRegression,
    NoisyGD,
    PrivatePipeline,
    Ridge,
)
from dpglm.exceptions import EqualBoundsWarning
from dpglm.preprocessing import Center
from dpglm.tables import encoding as feature_bounds
from dpglm.tables.encoding import check_feature_bounds, read_feature_bounds

pd = pytest.importorskip("pandas")

NUMBERS = st.floats(-100.0, 100.0, allow_nan=False).map(lambda value: round(value, 3))
PAIRS = st.lists(
    st.tuples(NUMBERS, NUMBERS).map(lambda pair: tuple(sorted(pair))), min_size=1, max_size=5
)


def spellings(pairs, names):
    """Ways of writing bounds, which must be read alike or be refused."""
    low, high = (np.array(side) for side in zip(*pairs, strict=True))
    yield "by name", dict(zip(names, pairs, strict=True))
    yield "by name, in another order", dict(list(zip(names, pairs, strict=True))[::-1])
    yield "by name, as lists", {name: list(pair) for name, pair in zip(names, pairs, strict=True)}
    yield "by number", dict(enumerate(pairs))
    yield "two arrays", (low, high)
    yield "two arrays in a list", [low, high]
    yield "two series", (pd.Series(low), pd.Series(high))
    yield "two lists", (low.tolist(), high.tolist())
    yield "two rows", np.stack([low, high])
    yield "pairs", list(pairs)
    yield "pairs as lists", [list(pair) for pair in pairs]
    yield "pairs as a tuple", tuple(pairs)
    yield "pairs as rows", np.column_stack([low, high])


def readings(pairs, read=read_feature_bounds):
    """How each spelling is read; None where it is refused."""
    names = [f"c{column}" for column in range(len(pairs))]
    for way, bounds in spellings(pairs, names):
        try:
            scaling = read(bounds, len(pairs), names)
        except ValueError as error:
            # For two columns only; the other refused cases must be accepted.
            yield way, None if "can be read as" in str(error) else error
        else:
            yield way, list(zip(scaling.low, scaling.high, strict=True))


def are_one(found, pairs):
    return all(reading in (None, pairs) for _, reading in found)


@given(PAIRS)
def test_all_ways_of_writing_bounds_are_read_alike(pairs):
    found = list(readings(pairs))
    assert are_one(found, pairs)
    refused = {way for way, reading in found if reading is None}
    square = np.array(pairs)
    if len(pairs) != 2 or np.array_equal(square, square.T):
        assert not refused
    else:
        of_pairs = {"pairs", "pairs as lists", "pairs as a tuple", "pairs as rows"}
        assert refused == of_pairs | {"two lists", "two rows"}


def as_before(bounds, n_features, names):
    """Planted: whatever has two parts is low and high, and mappings are read by position."""
    parts = list(bounds.values()) if isinstance(bounds, dict) else bounds
    parts = parts if len(parts) == 2 else np.transpose(parts)
    return feature_bounds.column_scaling(tuple(parts), n_features)


def test_bounds_that_are_read_by_position_are_found_out():
    pairs = [(0.0, 1.0), (0.0, 1.0)]
    with pytest.raises(AssertionError):
        assert are_one(readings(pairs, as_before), pairs)
    three = [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)]
    assert not are_one(readings(three, as_before), three)


@pytest.mark.parametrize("bounds", [[(0, 1), (0, 1)], ((0, 1), (0, 1)), np.array([[0, 1], [0, 1]])])
def test_pairs_of_two_columns_are_not_read_as_low_and_high(bounds):
    # Both columns were held to one value.
    for read in (
        lambda: read_feature_bounds(bounds, 2),
        lambda: LogisticRegression(feature_bounds=bounds).plan(100, 2),
        lambda: Ridge(feature_bounds=bounds, target_bounds=(0, 1)).fit(np.zeros((9, 2)), [0.0] * 9),
    ):
        with pytest.raises(ValueError, match=r"\(lows, highs\) or as one.*write \{0: \(low"):
            read()
    by_number = read_feature_bounds({0: (0, 1), 1: (0, 1)}, 2)
    assert (by_number.low.tolist(), by_number.high.tolist()) == ([0, 0], [1, 1])


@pytest.mark.parametrize("bounds", [(-1, 1), (-1.0, [1.0, 1.0]), ([-1], [1]), [[-1, 1], [1, 3]]])
def test_unambiguous_input_is_read(bounds):
    scaling = read_feature_bounds(bounds, 2)
    assert (scaling.low <= scaling.high).all()
    assert scaling.low.shape == scaling.high.shape == (2,)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"a": (0, 1)}, r"one \(low, high\) for each column; without bounds: \['b'\]"),
        ({"a": (0, 1), "c": (0, 1)}, r"without bounds: \['b'\]; not in X: \['c'\]"),
        ({"a": (0, 1), "b": 3}, r"feature_bounds\['b'\] must be a pair .* got 3"),
        ({"a": (0, 1), "b": (0, 1, 2)}, r"feature_bounds\['b'\] must be a pair"),
        ({"a": (0, 1), "b": ("x", 1)}, r"feature_bounds\['b'\] must be a pair"),
        ({"a": (0, 1), "b": (2, 1)}, "low <= high in every column, got 2.0 and 1.0 for column 'b'"),
        ({"a": (0, 1), "b": (0, np.inf)}, "got 0.0 and inf for column 'b'"),
        ({"a": (0, 1), "b": (0, np.nan)}, "got 0.0 and nan for column 'b'"),
        ({"a": (0, 1), "b": (0, 1e-20)}, "at least 1e-15 apart, or equal, .* for column 'b'"),
        ({"a": (0, 1), 1: (0, 1)}, r"without bounds: \['b'\]; not in X: \[1\]"),
        ({0: (0, 1)}, r"without bounds: \[1\]"),
        ({}, r"without bounds: \[0, 1\]"),
        ([(0, 1), (0, 1), (0, 1)], "a sequence of 2 such pairs"),
        ((0, 1, 2), "must be a mapping"),
        ({0, 1}, "must be a mapping"),
        (3.0, "must be a mapping"),
        ("ab", "must be a mapping"),
        (zip([0, 0], [1, 1], strict=True), "must be a mapping"),
        ((None, 1), "got nan and 1.0 for column 'a'"),
        (("low", 1), "must be a mapping"),
        (("0", 1), "must be a mapping"),
        ({"a": (0, 1), "b": ("0", 5)}, r"feature_bounds\['b'\] must be a pair .* got \('0', 5\)"),
        ([(0, "1"), (0, 1)], "must be a mapping"),
        ((np.array(["0", "0"]), np.array(["1", "1"])), "must be a mapping"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, zip) else repr(value),
)
def test_bad_bounds_are_named(bounds, message):
    with pytest.raises(ValueError, match=message):
        read_feature_bounds(bounds, 2, ["a", "b"])


def test_names_need_names():
    with pytest.raises(ValueError, match=r"must have the numbers 0 to 1 .* got \['a', 'b'\]"):
        read_feature_bounds({"a": (0, 1), "b": (0, 1)}, 2)
    check_feature_bounds({"a": (0, 1), "b": (0, 1)}, 2)
    with pytest.raises(ValueError, match="each of 3 columns, got 2"):
        check_feature_bounds({"a": (0, 1), "b": (0, 1)}, 3)


def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.uniform(18, 90, 400), "pay": rng.uniform(0, 9000, 400)})


BY_NAME = {"pay": (0, 9000), "age": (18, 90)}


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")
def test_estimators_read_bounds_by_the_names_of_columns():
    X = table()
    y = (X["age"] > 50).astype(int)
    options = {"solver": NoisyGD(n_steps=3), "classes": [0, 1], "random_state": 1}
    lows_and_highs = (np.array([18, 0]), np.array([90, 9000]))
    by_position = LogisticRegression(feature_bounds=lows_and_highs, **options).fit(X, y)
    model = LogisticRegression(feature_bounds=BY_NAME, **options).fit(X, y)
    np.testing.assert_array_equal(model.coef_, by_position.coef_)
    assert model.feature_bounds_.tolist() == [[18, 0], [90, 9000]]
    swapped = LogisticRegression(feature_bounds=BY_NAME, **options).fit(X[["pay", "age"]], y)
    assert swapped.feature_bounds_.tolist() == [[0, 18], [9000, 90]]
    assert model.plan(400, 2) == by_position.plan(400, 2)
    with pytest.raises(ValueError, match="where X lacks column names"):
        model.fit(X.to_numpy(), y)
    np.testing.assert_array_equal(model.predict(X), by_position.predict(X))


def test_pipelines_read_bounds_by_the_names_of_columns():
    X = table()
    ridge = Ridge(feature_bounds=BY_NAME, target_bounds=(0, 100))
    pipeline = PrivatePipeline([Center(), ridge], random_state=0).fit(X, X["age"])
    assert pipeline.estimator_.feature_bounds_.tolist() == [[18, 0], [90, 9000]]


def test_columns_of_one_value_are_warned_of():
    X, y = table(), np.zeros(400)
    options = {"solver": NoisyGD(n_steps=3), "random_state": 1}
    held = {"age": (5, 5), "pay": (0, 9000)}
    model = LinearRegression(feature_bounds=held, target_bounds=(0, 1), **options)
    message = "feature_bounds has low equal to high for column 'age': "
    with pytest.warns(EqualBoundsWarning, match=message) as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    model.set_params(feature_bounds=BY_NAME, target_bounds=(1, 1))
    message = r"target_bounds has low equal to high, 1\.0: every target takes this value"
    with pytest.warns(EqualBoundsWarning, match=message) as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", EqualBoundsWarning)
        model.set_params(target_bounds=(0, 1)).fit(X, y)


def test_sparse_columns_without_zero_are_named():
    sparse = pytest.importorskip("scipy.sparse")
    X = sparse.csr_array(np.eye(4))
    bounds = {0: (0, 1), 1: (0, 1), 2: (0.5, 1), 3: (0, 1)}
    model = LogisticRegression(feature_bounds=bounds, classes=[0, 1])
    with pytest.raises(ValueError, match=r"sparse X.*got 0\.5 to 1\.0 for column 3"):
        model.fit(X, [0, 1, 0, 1])
