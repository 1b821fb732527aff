"""A law over containers: the same rows are accepted or refused alike, and nothing is spent."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from dpglm import ArrowRows, LogisticRegression, MappedRows, ParquetRows, PrivacyLedger, Ridge
from dpglm.data.dask import DaskArrays
from dpglm.data.stream import streamed
from dpglm.estimators import _predictor
from dpglm.privacy import ApproximateDP
from dpglm.solvers import NoisyGD

pytestmark = pytest.mark.one_in(3)

N, NAMES = 12, ["a", "b", "c"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(streamed, "_CHUNK_BYTES", 1)


def table(numeric: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = np.asarray(rng.uniform(-0.5, 0.5, (N, 3)))
    y = rng.uniform(0, 1, N) if numeric else np.arange(N) % 2
    return X, y, rng.uniform(0.1, 1, N)


class CannotHoldError(Exception):
    """The container cannot store such values."""


def in_polars(X: Any) -> Any:
    if X.dtype.kind == "c":
        raise CannotHoldError
    return pl.DataFrame({name: X[:, i] for i, name in enumerate(NAMES)})


def in_tensor(X: Any) -> Any:
    if X.dtype.kind not in "biuf" or isinstance(X, np.ma.MaskedArray):
        raise CannotHoldError
    return torch.as_tensor(np.array(X))


def sparse_as(kind: Any) -> Callable[[Any], Any]:
    def make(X: Any) -> Any:
        if X.dtype.kind not in "biuf" or isinstance(X, np.ma.MaskedArray):
            raise CannotHoldError
        return kind(X)

    return make


def frame_of(X: Any) -> pd.DataFrame:
    if isinstance(X, np.ma.MaskedArray):
        raise CannotHoldError
    return pd.DataFrame(X, columns=NAMES)


def strided(X: Any) -> Any:
    wide = np.ma.empty if isinstance(X, np.ma.MaskedArray) else np.empty
    both = wide((2 * len(X), 6), dtype=X.dtype)
    both[::2, ::2] = X
    return both[::2, ::2]


def listed(X: Any) -> Any:
    if isinstance(X, np.ma.MaskedArray) or len(X) == 0:
        raise CannotHoldError
    return X.tolist()


IN_MEMORY: dict[str, Callable[[Any], Any]] = {
    "C": lambda X: X,
    "list": listed,
    "F": lambda X: X.copy(order="F"),
    "strided": strided,
    "pandas": frame_of,
    "pandas, nullable": lambda X: frame_of(X).convert_dtypes(),
    "polars": lambda X: in_polars(np.asarray(frame_of(X))),
    "csr": sparse_as(sparse.csr_array),
    "csc": sparse_as(sparse.csc_matrix),
    "coo": sparse_as(sparse.coo_array),
    "torch": in_tensor,
}


def mapped(folder: Path, X: Any, y: Any, w: Any) -> tuple[Any, ...]:
    if X.dtype.kind == "O" or isinstance(X, np.ma.MaskedArray):
        return (MappedRows(X, y, w),)
    np.save(folder / "X.npy", X)
    return (MappedRows(np.load(folder / "X.npy", mmap_mode="r"), y, w),)


def stored(X: Any, y: Any, w: Any) -> pa.Table:
    if any(isinstance(one, np.ma.MaskedArray) for one in (X, y, w)):
        raise CannotHoldError
    columns = {name: X[:, i] for i, name in enumerate(NAMES)} | {"y": y}
    columns |= {} if w is None else {"w": w}
    if len({np.shape(one) for one in columns.values()}) > 1:
        raise CannotHoldError
    if any(one.dtype.kind == "c" for one in columns.values()):
        raise CannotHoldError
    # Not by pandas, which writes NaN as a value that is missing.
    if any(len({*map(type, one.flat), type(None)}) > 2 for one in columns.values()):
        raise CannotHoldError
    return pa.table(
        {
            name: pa.array(one.tolist() if one.dtype.kind in "OU" else one)
            for name, one in columns.items()
        }
    )


def in_parquet(folder: Path, X: Any, y: Any, w: Any) -> tuple[Any, ...]:
    parquet.write_table(stored(X, y, w), folder / "rows.parquet")
    weight = None if w is None else "w"
    return (ParquetRows(folder / "rows.parquet", "y", sample_weight=weight, dtype="float64"),)


def streamed_from(make: Callable[[Any], Any]) -> Callable[..., tuple[Any, ...]]:
    def rows(folder: Path, X: Any, y: Any, w: Any) -> tuple[Any, ...]:
        table, weight = make(stored(X, y, w)), None if w is None else "w"
        return (ArrowRows(table, "y", sample_weight=weight, dtype="float64"),)

    return rows


def in_duckdb(table: pa.Table) -> Any:
    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("create table stored as select * from given")
    return connection.table("stored")


def in_dask(folder: Path, X: Any, y: Any, w: Any) -> tuple[Any, ...]:
    if len(X) == 0:
        raise CannotHoldError
    y, w = (None if one is None else np.ma.asanyarray(one) for one in (y, w))
    y, w = (one if one is None or np.ma.is_masked(one) else np.asarray(one) for one in (y, w))
    chunked = [None if one is None else da.from_array(one, chunks=5) for one in (X, y, w)]
    return tuple(chunked)


def of_memory(make: Callable[[Any], Any]) -> Callable[..., tuple[Any, ...]]:
    return lambda folder, X, y, w: (make(X), y, w)


CONTAINERS: dict[str, Callable[..., tuple[Any, ...]]] = {
    **{name: of_memory(make) for name, make in IN_MEMORY.items()},
    "mapped": mapped,
    "Parquet": in_parquet,
    "DuckDB": streamed_from(in_duckdb),
    "polars, lazy": streamed_from(lambda table: pl.from_arrow(table).lazy()),  # type: ignore[union-attr]
    "Arrow": streamed_from(lambda table: table),
    "Dask": in_dask,
}


def changed(values: Any, place: Any, value: Any, dtype: Any = None) -> Any:
    values = values.astype(dtype or values.dtype)
    values[place] = value
    return values


_DATES = "must not contain dates|X must have two dimensions of real numbers"


def dates(values: Any) -> Any:
    return (1000 * values).astype(int).astype("datetime64[ms]")


def masked(values: Any, place: Any) -> Any:
    mask = np.zeros(values.shape, bool)
    mask[place] = True
    return np.ma.array(values, mask=mask)


Change = Callable[[Any, Any, Any], tuple[Any, Any, Any]]

ANY_TARGET: dict[str, tuple[Change, str | None]] = {
    "nothing wrong": (lambda X, y, w: (X, y, w), None),
    "no weights": (lambda X, y, w: (X, y, None), None),
    "float32": (lambda X, y, w: (X.astype(np.float32), y, w), None),
    "bool X": (lambda X, y, w: (X > 0, y, w), None),
    "whole numbers": (lambda X, y, w: ((X > 0).astype(np.int8), y, w), None),
    "bool weights": (lambda X, y, w: (X, y, w > 0.2), None),
    "object weights": (lambda X, y, w: (X, y, w.astype(object)), None),
    "nothing masked": (lambda X, y, w: (X, np.ma.array(y), np.ma.array(w)), None),
    "NaN in X": (lambda X, y, w: (changed(X, (7, 1), np.nan), y, w), "X must be finite, got NaN"),
    "inf in X": (
        lambda X, y, w: (changed(X, (7, 1), np.inf), y, w),
        "X must be finite, got infinity",
    ),
    "masked X": (
        lambda X, y, w: (masked(X, (7, 1)), y, w),
        "X must not have masked entries, got 1",
    ),
    "text in X": (lambda X, y, w: (X.astype(str), y, w), "X must|column 'a' has the type"),
    "object X of text": (
        lambda X, y, w: (X.astype(str).astype(object), y, w),
        "X must|column 'a' has the type",
    ),
    "masked y": (lambda X, y, w: (X, masked(y, 7), w), "y must not have masked entries, got 1"),
    "NaN in y": (
        lambda X, y, w: (X, changed(y, 7, np.nan, float), w),
        "y must be finite, but y contains NaN",
    ),
    "None in y": (
        lambda X, y, w: (X, changed(y, 7, None, object), w),
        "y must be finite, but y contains NaN|column 'y', row 8: the value is missing",
    ),
    "short y": (lambda X, y, w: (X, y[:-1], w), r"inconsistent numbers of samples: \[12, 11\]"),
    "two columns of y": (lambda X, y, w: (X, np.column_stack([y, y]), w), "should be a 1d array"),
    "masked weights": (
        lambda X, y, w: (X, y, masked(w, 7)),
        "sample_weight must not have masked entries, got 1",
    ),
    "NaN weight": (lambda X, y, w: (X, y, changed(w, 7, np.nan)), "sample_weight must be finite"),
    "infinite weight": (
        lambda X, y, w: (X, y, changed(w, 7, np.inf)),
        "sample_weight must be finite and at least 0 in every row",
    ),
    "negative weight": (
        lambda X, y, w: (X, y, changed(w, 7, -1e-9)),
        "sample_weight must be finite and at least 0 in every row",
    ),
    # Whether all weights are zero is private: such rows are fitted, but have no score.
    "weights of zero": (lambda X, y, w: (X, y, 0 * w), None),
    "one weight above zero": (lambda X, y, w: (X, y, changed(0 * w, 7, 1.0)), None),
    "text for weights": (
        lambda X, y, w: (X, y, w.astype(str)),
        "sample_weight must contain numbers",
    ),
    "short weights": (
        lambda X, y, w: (X, y, w[:-1]),
        r"sample_weight must have shape \(12,\), got shape \(11,\)",
    ),
    "weights in a column": (
        lambda X, y, w: (X, y, w[:, np.newaxis]),
        r"sample_weight must have shape \(12,\), got shape \(12, 1\)",
    ),
    "dates in X": (lambda X, y, w: (dates(X), y, w), _DATES),
    "durations in X": (lambda X, y, w: (dates(X) - dates(X[:1]), y, w), _DATES),
    "dates as objects in X": (
        lambda X, y, w: (changed(X, (7, 1), datetime.date(2020, 1, 1), object), y, w),
        _DATES,
    ),
    "durations as objects in X": (
        lambda X, y, w: (changed(X, (7, 1), np.timedelta64(1, "D"), object), y, w),
        "must not contain dates|X must have two dimensions of real numbers|X must be a NumPy array",
    ),
    "dates in y": (lambda X, y, w: (X, dates(y), w), "y must not contain dates"),
    "durations in y": (lambda X, y, w: (X, dates(y) - dates(y[:1]), w), "y must not contain dates"),
    "durations for weights": (
        lambda X, y, w: (X, y, dates(w) - dates(w[:1])),
        "sample_weight must not contain dates",
    ),
    "complex X": (
        lambda X, y, w: (X + 0j, y, w),
        "Complex data not supported|X must be a NumPy array of real|two dimensions of real",
    ),
    "no rows": (lambda X, y, w: (X[:0], y[:0], None), r"0 sample\(s\) \(shape=\(0, 3\)\)"),
}
LABELS: dict[str, tuple[Change, str | None]] = {
    "labels in floats": (lambda X, y, w: (X, y.astype(float), w), None),
    "labels of true and false": (lambda X, y, w: (X, y.astype(bool), w), None),
    "labels as objects": (lambda X, y, w: (X, y.astype(object), w), None),
    "unknown label": (
        lambda X, y, w: (X, changed(y, 7, 5), w),
        r"y has labels that are not in classes=\[0, 1\]: \[5\]",
    ),
    "a label between": (
        lambda X, y, w: (X, changed(y, 7, 0.5, float), w),
        r"y has labels that are not in classes=\[0, 1\]: \[0.5\]",
    ),
    "infinite label": (
        lambda X, y, w: (X, changed(y, 7, np.inf, float), w),
        "y must be finite, but y contains infinity",
    ),
    "labels of text": (
        lambda X, y, w: (X, y.astype(str), w),
        r"y has labels of another type than classes=\[0, 1\]",
    ),
}
TARGETS: dict[str, tuple[Change, str | None]] = {
    "infinite target": (
        lambda X, y, w: (X, changed(y, 7, np.inf), w),
        "y must be finite, but y contains infinity",
    ),
    "targets as objects": (lambda X, y, w: (X, y.astype(object), w), None),
    "targets of true and false": (lambda X, y, w: (X, y > 0.5, w), None),
    "targets of text": (lambda X, y, w: (X, y.astype(str), w), "y must contain numbers"),
    "target out of bounds": (lambda X, y, w: (X, changed(y, 7, 1e9), w), None),
}
CASES = [
    *((False, name, *case) for name, case in (ANY_TARGET | LABELS).items()),
    *((True, name, *case) for name, case in (ANY_TARGET | TARGETS).items()),
]
CASE_NAMES = [f"{name}, {'numbers' if numeric else 'labels'}" for numeric, name, *_ in CASES]


def model_for(numeric: bool, ledger: PrivacyLedger | None) -> Any:
    options: dict[str, Any] = {
        "epsilon": 1.0,
        "row_norm": 1.0,
        "weight_bound": 1.0,
        "solver": NoisyGD(n_steps=1),
        "ledger": ledger,
    }
    if numeric:
        return Ridge(target_bounds=(0, 1), **options)
    return LogisticRegression(classes=[0, 1], **options)


def outcome(act: Callable[[], Any]) -> str | None:
    """Return the message of an error, or None without an error."""
    try:
        act()
    except ValueError as error:
        return str(error)
    return None


def check_fit(folder: Path, container: str, numeric: bool, change: Change, match: str | None):
    ledger = PrivacyLedger.create(
        folder / "spent.ledger", data="rows", budget=ApproximateDP(9.0, 1e-3), filter="basic"
    )
    model = model_for(numeric, ledger)

    def fit() -> None:
        model.fit(*CONTAINERS[container](folder, *change(*table(numeric))))

    try:
        said = outcome(fit)
    except CannotHoldError:
        return
    if match is None:
        assert said is None
        assert len(ledger.contents().entries) == 1
    else:
        assert re.search(match, said or "nothing"), said
        assert ledger.contents().entries == ()
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("numeric", "name", "change", "match"), CASES, ids=CASE_NAMES)
def test_fits_of_all_containers_accept_and_refuse_alike(
    tmp_path, container, numeric, name, change, match
):
    check_fit(tmp_path, container, numeric, change, match)


SCORED = {
    "nothing wrong",
    "object weights",
    "NaN in X",
    "masked X",
    "masked y",
    "NaN in y",
    "short y",
    "negative weight",
    "weights of zero",
    "text for weights",
    "no rows",
    "labels in floats",
    "labels of text",
    "infinite label",
    "infinite target",
    "targets of text",
}


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("numeric", [False, True])
def test_scores_of_all_containers_accept_and_refuse_alike(tmp_path, container, numeric):
    X, y, w = table(numeric)
    model = model_for(numeric, None).fit(X, y, w)
    expected = model.score(X, y, w)
    for _, name, change, match in (one for one in CASES if one[0] is numeric):
        if name not in SCORED:
            continue
        folder = tmp_path / name
        folder.mkdir()

        def score(folder=folder, change=change):
            made = CONTAINERS[container](folder, *change(X, y, w))
            return model.score(*made)

        try:
            said = outcome(score)
        except CannotHoldError:
            continue
        if match is None:
            if name == "weights of zero":
                assert re.search("sample_weight must not be zero in every", said or "nothing")
                continue
            assert said is None
            assert score() == pytest.approx(expected)
        else:
            assert re.search(match, said or "nothing"), (name, said)
    # A label that the model does not know is a wrong one.
    if not numeric:
        made = CONTAINERS[container](tmp_path, X, np.full(N, 7), w)
        assert model.score(*made) == 0.0


@pytest.mark.parametrize("container", ["C", "mapped", "torch", "Dask"])
def test_y_in_a_column_is_taken_with_a_warning_everywhere(tmp_path, container):
    X, y, w = table(False)
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        model_for(False, None).fit(*CONTAINERS[container](tmp_path, X, y[:, np.newaxis], w))


def test_the_law_sees_a_container_that_clips_infinite_targets(tmp_path, monkeypatch):
    monkeypatch.setattr(_predictor, "check_not_missing", lambda y: y)
    with pytest.raises(AssertionError):
        check_fit(tmp_path, "mapped", True, *TARGETS["infinite target"])


def with_chunks(lengths: tuple[int, ...], values: np.ndarray) -> Any:
    """A Dask array with wrong chunk lengths."""
    graph = {("wrong", i): part for i, part in enumerate(np.split(values, np.cumsum(lengths)[:-1]))}
    declared = (tuple([N // len(lengths)] * len(lengths)),)
    return da.Array(graph, "wrong", declared, dtype=values.dtype)


@pytest.mark.parametrize("which", ["y", "sample_weight"])
def test_chunks_of_other_lengths_than_declared_spend_nothing(tmp_path, which):
    X, y, w = table(False)
    ledger = PrivacyLedger.create(
        tmp_path / "spent.ledger", data="rows", budget=ApproximateDP(9.0, 1e-3), filter="basic"
    )
    columns = {"y": da.from_array(y, chunks=4), "sample_weight": da.from_array(w, chunks=4)}
    columns[which] = with_chunks((3, 5, 4), {"y": y, "sample_weight": w}[which])
    with pytest.raises(ValueError, match=f"{which} must have chunks as long as it declares"):
        model_for(False, ledger).fit(da.from_array(X, chunks=(4, 3)), **columns)
    assert ledger.contents().entries == ()


def test_rows_in_chunks_of_other_lengths_or_widths_spend_nothing(tmp_path):
    X, y, w = table(False)
    ledger = PrivacyLedger.create(
        tmp_path / "spent.ledger", data="rows", budget=ApproximateDP(9.0, 1e-3), filter="basic"
    )
    chunked = da.from_array(X, chunks=(4, 3))
    columns = [da.from_array(one, chunks=4) for one in (y, w)]
    for change, match in (
        (lambda part: np.vstack([part, part]), "X must have chunks as long as it declares"),
        (lambda part: np.hstack([part, part]), "X must have chunks with as many columns"),
        (lambda part: np.ma.array(part, mask=part > 0), "X must not have masked entries"),
        (lambda part: part.astype(str), "X must have chunks of real numbers"),
    ):
        lying = chunked.map_blocks(change, dtype=float, meta=np.empty((0, 3)))
        with pytest.raises(ValueError, match=match):
            model_for(False, ledger).fit(lying, *columns)
    assert ledger.contents().entries == ()
    assert DaskArrays(chunked, *columns).shape == (N, 3)
