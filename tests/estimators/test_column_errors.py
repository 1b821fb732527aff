"""An error about a column names it, and says nothing that would leak: a law over containers."""

from __future__ import annotations

import functools

import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from dpglm import LogisticRegression, PrivatePipeline
from dpglm.data.stream.arrow import ParquetRows
from dpglm.data.stream.stored import MappedRows
from dpglm.preprocessing import Center
from dpglm.report import load_model, save_model
from dpglm.solvers import NoisyGD
from dpglm.tables.cells import check_finite

NAMES = ["age", "pay", "years"]
N = 40
MISPLACED = ("HistGradient", "imputer transformer", "SimpleImputer", "https://")


def rows():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(N, 3))
    return X, (X[:, 0] > 0.0).astype(int)


def classifier(**settings):
    return LogisticRegression(
        classes=[0, 1], row_norm=2.0, n_rows=N, solver=NoisyGD(n_steps=2), **settings
    )


def frame(X):
    return pd.DataFrame(X, columns=NAMES)


def with_cell(value):
    """Rows as objects, with one of another type."""
    cells = frame(rows()[0]).astype(object)
    cells.loc[4, "pay"] = value
    return cells


def in_parquet(X, folder):
    frame(X).assign(y=rows()[1]).to_parquet(folder / "rows.parquet")
    return ParquetRows(folder / "rows.parquet", columns=NAMES, target="y")


NAMED = {
    "pandas": lambda X, folder: (frame(X), rows()[1]),
    "pandas of float32": lambda X, folder: (frame(X).astype(np.float32), rows()[1]),
    "polars": lambda X, folder: (pl.DataFrame(frame(X)), rows()[1]),
    "dask": lambda X, folder: (
        dask.dataframe.from_pandas(frame(X), npartitions=2),
        dask.dataframe.from_pandas(pd.Series(rows()[1]), npartitions=2),
    ),
    "parquet": lambda X, folder: (in_parquet(X, folder),),
}


def refusal(call, *arguments):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert not any(words in text for words in MISPLACED)
    return text


class TestACellThatIsNoFiniteNumber:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("container", NAMED.values(), ids=NAMED)
    def test_is_named_by_its_column_in_a_fit_and_a_prediction(self, container, value, tmp_path):
        X, _ = rows()
        model = classifier().fit(*container(X, tmp_path))
        X[4, 1] = value
        broken = container(X, tmp_path)
        for text in (
            refusal(classifier().fit, *broken),
            refusal(lambda: np.asarray(model.predict(broken[0]))),
            refusal(model.score, *broken),
        ):
            assert "X must be finite, got" in text or "the value is missing. Replace" in text
            assert "column 'pay'" in text
            # Partitions of Dask do not know how many rows come before them.
            assert "row 5" in text or "dask" in type(broken[0]).__module__
            assert ("An imputer" in text) == np.isnan(value)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_is_named_by_pipelines_and_by_model_files(self, value, tmp_path):
        X, y = rows()
        whole = PrivatePipeline([Center(), classifier().set_params(n_rows=None)], n_rows=N)
        whole.fit(frame(X), y)
        save_model(classifier().fit(frame(X), y), tmp_path / "model.json")
        model = load_model(tmp_path / "model.json")
        X[4, 1] = value
        fit = functools.partial(clone(whole).fit, y=y)
        for call in (fit, whole.predict, model.predict, model.predict_proba):
            assert "row 5, column 'pay'" in refusal(call, frame(X))

    @pytest.mark.parametrize("missing", [None, pd.NA, pd.NaT, ""], ids=repr)
    def test_object_table_value_counts_as_missing(self, missing):
        text = refusal(classifier().fit, with_cell(missing), rows()[1])
        assert text.startswith("X must be finite, got NaN in row 5, column 'pay'. Replace missing")

    @pytest.mark.parametrize("cell", ["much", {"a": 1}, [1, 2], b"x", 10**400], ids=type)
    def test_non_number_is_named_too(self, cell):
        cells = with_cell(0.0)
        cells.at[4, "pay"] = cell
        text = refusal(classifier().fit, cells, rows()[1])
        assert text.startswith("X must contain numbers: row 5, column 'pay': ")
        assert "column 2" in refusal(classifier().fit, cells.to_numpy(), rows()[1])

    def test_array_is_named_by_its_place(self):
        X, y = rows()
        X[4, 1] = np.nan
        for given in (X, np.asfortranarray(X), X.astype(np.float32), X.tolist(), MappedRows(X, y)):
            arguments = (given,) if isinstance(given, MappedRows) else (given, y)
            assert "got NaN in row 5, column 2." in refusal(classifier().fit, *arguments)

    def test_is_found_behind_finite_sums_that_overflow(self):
        X = np.full((4, 2), 1e308)
        assert check_finite(X) is X
        X[3, 1] = np.inf
        with pytest.raises(ValueError, match="got infinity in row 4, column 2"):
            check_finite(X)
