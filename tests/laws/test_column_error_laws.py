"""Every error about a column of a named table names the column."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import Normalizer, OneHotEncoder

from dpglm import LogisticRegression, PrivatePipeline
from dpglm.preprocessing import Center, SchemaEncoder
from dpglm.solvers import NoisyGD
from dpglm.tables import cells as finite

N = 12
# Without quotes and backslashes, which a message may have to escape.
NAMES = st.lists(
    st.text(st.characters(categories=["L", "N", "Zs", "Sm"]), min_size=1, max_size=8),
    min_size=3,
    max_size=3,
    unique=True,
)


def frame(names):
    return pd.DataFrame(np.random.default_rng(0).uniform(0.1, 1.0, (N, 3)), columns=names)


def labels():
    return np.arange(N) % 2


def classifier(**settings):
    return LogisticRegression(
        **{"classes": [0, 1], "row_norm": 2.0, "solver": NoisyGD(n_steps=2), **settings}
    )


def with_cell(X, column, value):
    X = X.astype(object) if isinstance(value, str) else X.copy()
    X.iloc[4, column] = value
    return X


def in_fit(X, column, value):
    classifier().fit(with_cell(X, column, value), labels())


def in_fit_of_polars(X, column, value):
    rows = {name: pl.Series(X[name]) for name in X.columns}
    name = X.columns[column]
    rows[name] = pl.Series([*X[name][:4], value, *X[name][5:]], strict=False, dtype=pl.Float64)
    classifier().fit(pl.DataFrame(rows), labels())


def in_prediction(X, column, value):
    classifier().fit(X, labels()).predict(with_cell(X, column, value))


def in_private_step(X, column, value):
    PrivatePipeline([Center(), classifier()]).fit(with_cell(X, column, value), labels())


def in_fixed_step(X, column, value):
    model = PrivatePipeline([Normalizer(), classifier()])
    model.fit(X, labels()).predict(with_cell(X, column, value))


def in_columns(X, column, value):
    step = ColumnTransformer([("part", Normalizer(), [X.columns[column]])])
    PrivatePipeline([step, classifier()]).fit(with_cell(X, column, value), labels())


def in_remainder(X, column, value):
    step = ColumnTransformer([], remainder="passthrough")
    PrivatePipeline([step, classifier()]).fit(with_cell(X, column, value), labels())


def in_schema(X, column, value):
    columns = {name: {"type": "numeric", "low": 0, "high": 1} for name in X.columns}
    SchemaEncoder(
        {
            "columns": columns,
            "target": {"name": "a target", "type": "binary", "classes": [0, 1]},
            "provenance": "made up",
        }
    ).fit(X).transform(with_cell(X, column, value))


READERS = [
    in_fit,
    in_fit_of_polars,
    in_prediction,
    in_private_step,
    in_fixed_step,
    in_columns,
    in_remainder,
    in_schema,
]


def complaint(reader, names, column, value):
    with pytest.raises((ValueError, TypeError)) as caught:
        reader(frame(names), column, value)
    return str(caught.value)


def check_named(reader, names, column, value):
    text = complaint(reader, names, column, value)
    # Columns that steps make are named after their source: 'part__age'.
    # Schemas compose characters.
    spellings = {names[column], unicodedata.normalize("NFC", names[column])}
    ends = "|".join(re.escape(repr(one)[1:]) for one in spellings)
    assert re.search(rf"column '(\w+__)?({ends})", text), text
    assert "row 5" in text, text
    assert "\n" not in text
    assert "HistGradient" not in text


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=12)
@given(names=NAMES, column=st.integers(0, 2), value=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_cell_that_is_not_finite_is_found_by_name(reader, names, column, value):
    check_named(reader, names, column, value)


@pytest.mark.parametrize("reader", [one for one in READERS if one is not in_fit_of_polars])
@settings(max_examples=8)
@given(names=NAMES, column=st.integers(0, 2), value=st.sampled_from(["much", "", "1_"]))
def test_non_numeric_cell_is_found_by_name(reader, names, column, value):
    check_named(reader, names, column, value)


@settings(max_examples=12)
@given(names=NAMES, column=st.integers(0, 2), nested=st.booleans())
def test_an_unknown_category_is_found_by_name(names, column, nested):
    step = OneHotEncoder(categories=[["a", "b"]] * 3)
    if nested:
        step = ColumnTransformer([("part", step, names)])
    X = pd.DataFrame("a", index=range(N), columns=names)
    model = PrivatePipeline([step, classifier()]).fit(X, labels())
    X.iloc[4, column] = "c"
    with pytest.raises(ValueError, match="unknown categories") as caught:
        model.predict(X)
    assert f"column {names[column]!r}" in str(caught.value)


WRONG_BOUNDS = {
    "the wrong way round": (1.0, 0.0),
    "not finite": (0.0, np.inf),
    "too close": (0.0, 1e-300),
    "no pair": 3.0,
    "no numbers": ("a", "b"),
}


@pytest.mark.parametrize("wrong", WRONG_BOUNDS.values(), ids=WRONG_BOUNDS)
@settings(max_examples=8)
@given(names=NAMES, column=st.integers(0, 2), private_step=st.booleans())
def test_wrong_bounds_of_a_column_are_found_by_name(wrong, names, column, private_step):
    bounds = dict.fromkeys(names, (0.0, 1.0)) | {names[column]: wrong}
    model = classifier(row_norm=None, feature_bounds=bounds)
    if private_step:
        model = PrivatePipeline([Center(), model])
    with pytest.raises(ValueError, match="feature_bounds") as caught:
        model.fit(frame(names), labels())
    assert repr(names[column]) in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=12)
@given(names=NAMES, column=st.integers(0, 2))
def test_a_column_that_is_not_there_is_named(names, column):
    X = frame(names)
    lacking = X.drop(columns=names[column])
    plain = classifier().fit(X, labels())
    step = ColumnTransformer([("part", "passthrough", names)])
    whole = PrivatePipeline([step, classifier()]).fit(X, labels())
    for call in (plain.predict, whole.predict):
        with pytest.raises(ValueError, match=r"missing|not columns") as caught:
            call(lacking)
        assert any(one in str(caught.value) for one in (names[column], repr(names[column])))


def test_a_name_that_is_lost_on_the_way_is_found_out(monkeypatch):
    # The planted bug: columns are called by their numbers, names or not.
    monkeypatch.setattr(finite, "column_in_words", lambda names, column: f"column {column + 1}")
    monkeypatch.setattr(
        "dpglm.tables.given.column_in_words", lambda names, column: f"column {column + 1}"
    )
    for reader in (in_fit, in_prediction, in_private_step, in_fixed_step, in_remainder):
        with pytest.raises(AssertionError):
            check_named(reader, ["age", "pay", "kids"], 1, np.nan)
