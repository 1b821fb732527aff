"""Whatever JSON-like argument a public door is given, it ends in a result or in a plain message."""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpglm
from dpglm.exceptions import PlanMismatchError
from dpglm.solvers.composite.tabulation import Grid
from dpglm.study.reading import read_study
from tests.laws.json_arguments import JSON, SCHEMA, TABLE, doors, parameters_of

OF_MODELS = ("", ".fit", ".plan", ".predict")
DOORS = (
    "describe", "from_formula", "evaluate_predictions", "evaluate", "Study", "Study.explore",
    "Study.fit", "Study.effects", "Study.evaluate", "Study.plan", "read_study", "load_model",
    "PrivacyLedger", "ParquetRows", "AdditiveClassifier",
    "AdditiveClassifier.fit",
    *(f"{kind}{method}" for kind in ("LogisticRegression", "Ridge", "PoissonRegressor")
      for method in OF_MODELS),
)  # fmt: skip


@functools.cache
def opened() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return all doors with arguments that they accept; models are fitted once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: (call, accepted) for name, call, accepted in doors()}


SIGNATURES = {
    "Study.explore": dpglm.Study.explore,
    "Study.fit": dpglm.Study.fit,
    "Study.effects": dpglm.Study.effects,
    "Study.evaluate": dpglm.Study.evaluate,
    "LogisticRegression": dpglm.LogisticRegression,
    "Ridge": dpglm.Ridge,
    "PoissonRegressor": dpglm.PoissonRegressor,
    "AdditiveClassifier": dpglm.AdditiveClassifier,
}


def raw_error(call: Callable[..., Any], arguments: dict[str, Any], name: str) -> Exception | None:
    """Return the exception of a call, unless it is an error of ours about an argument."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**arguments)
    except (ValueError, OSError, ImportError, PlanMismatchError):
        return None
    except TypeError as error:
        # As in scikit-learn for cells that are not numbers.
        return None if str(error).startswith(f"{name} must ") else error
    except Exception as error:  # noqa: BLE001 - a user would get it raw
        return error
    return None


@pytest.mark.parametrize("door", DOORS)
def test_wrong_argument_ends_in_an_error_of_ours(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some values are the names of files that a fit may write.
    monkeypatch.chdir(tmp_path)
    # Most of the time of evaluations goes here, where no argument arrives.
    monkeypatch.setattr(Grid, "believed", lambda grid, *counts: grid.expected)
    call, accepted = opened()[door]
    names = [one for one in parameters_of(SIGNATURES.get(door, call)) if one != "self"]
    assert names
    raw = [
        (name, value, error)
        for name in names
        for value in JSON
        if (error := raw_error(call, accepted | {name: value}, name)) is not None
    ]
    assert raw == []


def test_law_finds_a_raw_error() -> None:
    assert set(opened()) == set(DOORS)
    assert isinstance(raw_error(lambda one: one[0], {"one": 1}, "one"), TypeError)
    assert isinstance(raw_error(lambda one: {}[one], {"one": "a"}, "one"), KeyError)


X = np.column_stack([TABLE["age"], np.ones(200)])
KNOWN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
ROWS = [dict(zip(TABLE, cells, strict=True)) for cells in zip(*TABLE.values(), strict=True)]
BATCH = pa.RecordBatch.from_pydict(TABLE)


def logistic(rows: Any, labels: Any = TABLE["ill"]) -> Any:
    model = dpglm.LogisticRegression(row_norm=200.0, classes=["no", "yes"], **KNOWN)
    return model.fit(rows, labels)


def described(table: Any) -> Any:
    return dpglm.describe(table, SCHEMA, **KNOWN)


def studied(table: Any) -> Any:
    return dpglm.Study(SCHEMA, **KNOWN).explore().run(table)


def additive(table: Any) -> Any:
    return dpglm.AdditiveClassifier(SCHEMA, **KNOWN).fit(table)


def test_labels_of_numpys_string_type_are_text() -> None:
    labels = TABLE["ill"].astype(np.dtypes.StringDType())
    assert logistic(X, labels).predict(X[:2]).tolist() <= ["yes", "yes"]


@pytest.mark.parametrize("door", [described, studied, additive])
def test_record_batches_and_lazy_frames_are_tables(door: Callable[[Any], Any]) -> None:
    import polars as pl

    door(BATCH)
    door(pl.DataFrame(TABLE).lazy())


@pytest.mark.parametrize("door", [described, studied, additive])
def test_list_of_rows_is_refused_with_a_remedy(door: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"got a list of rows: give pandas\.DataFrame\(rows\)"):
        door(ROWS)


@pytest.mark.parametrize("door", [described, studied])
def test_table_without_rows_is_refused(door: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="n_rows must be an integer of at least 1, got 0"):
        door({name: cells[:0] for name, cells in TABLE.items()})


def test_lazy_frame_is_not_a_matrix() -> None:
    import polars as pl

    with pytest.raises(ValueError, match=r"X must be rows in memory.*X\.collect\(\)"):
        logistic(pl.DataFrame({"a": TABLE["age"]}).lazy())


@pytest.mark.skipif(os.name != "posix", reason="has no named pipes")
def test_named_pipe_and_very_long_cell_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="must be a regular file"):
        described(tmp_path / "pipe.csv")
    text = "age,g,ill\n1,a,no\n2," + "b" * (3 << 20) + ",yes\n"
    (tmp_path / "long.csv").write_text(text)
    with pytest.raises(ValueError, match="A cell is longer than 1 MiB"):
        described(tmp_path / "long.csv")


STUDY = 'schema = "schema.json"\nepsilon = 1.0\n[explore]\n{0}\n[fit]\n[evaluate]\n{1}\n'


@pytest.mark.parametrize(
    ("explore", "evaluate", "says"),
    [
        ("bins = 10", "", "bins must map names"),
        ("columns = 1", "", "columns must be a list"),
        ("two_way = [1]", "", "two_way must be a list"),
        ("", "thresholds = 0.5", "thresholds must be a list, got 0.5"),
        ("", 'by = ["g"]', "by must name a categorical column"),
    ],
)
def test_wrong_value_in_a_study_file_is_named(
    tmp_path: Path, explore: str, evaluate: str, says: str
) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "study.toml").write_text(STUDY.format(explore, evaluate))
    with pytest.raises(ValueError, match=says):
        read_study(tmp_path / "study.toml").plan(200)


def test_study_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    text = STUDY.format("", "").encode("utf-8-sig")
    (tmp_path / "study.toml").write_bytes(text)
    assert list(read_study(tmp_path / "study.toml").parts) == ["exploration", "model", "evaluation"]
