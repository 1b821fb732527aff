"""The rows of a fit, encoded in memory or streamed from Parquet; and those of a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpglm.cli.console import InputError, note
from dpglm.tables.cells import as_cells, as_numbers
from dpglm.tables.files import named_errors, read_table, storage_types
from dpglm.tables.schema import Schema
from dpglm.tables.targets import CountTarget, TargetColumn

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel

__all__ = [
    "STREAMED_BYTES",
    "TrainingRows",
    "columns_of",
    "encoded_target",
    "features_of",
    "read_rows",
]

STREAMED_BYTES = 1 << 28
"""Parquet files from this size on are streamed without being asked to."""

_SUFFIXES = (".parquet", ".pq")


@final
@dataclass(frozen=True)
class TrainingRows:
    """Rows, targets (None where X holds them), exposures and groups, and the data's columns.

    Rows are encoded, or a table for an estimator that encodes it.
    """

    X: Any
    y: Any
    exposure: Any
    trials: Any
    groups: Any
    columns: tuple[str, ...]
    is_streamed: bool

    @property
    def given(self) -> dict[str, Any]:
        """What ``fit`` is given beside rows and targets; streamed rows have their own."""
        if self.is_streamed:
            return {}
        beside = {
            "sample_weight": self.trials,
            "exposure": self.exposure,
            "groups": self.groups,
        }
        return {name: one for name, one in beside.items() if one is not None}

    def used(self, most: int | None) -> tuple[int, int]:
        """Return the numbers of groups, and of the rows of them that are used. Private."""
        from dpglm.data.groups.ids import Groups

        groups = Groups.of(self.groups, len(self.groups))
        sizes = np.bincount(groups.codes, minlength=groups.n_groups)
        return groups.n_groups, int(sizes.sum() if most is None else np.minimum(sizes, most).sum())


def read_rows(
    data: Path,
    schema: Schema,
    *,
    exposure: str | None,
    trials: str | None,
    groups: str | None,
    stream: bool,
    cache: Path | None,
    encode: bool = True,
) -> TrainingRows:
    """Read a table, or prepare for streaming it.

    ``exposure``, ``trials`` and ``groups`` name columns.
    """
    is_parquet = data.is_dir() or data.name.lower().endswith(_SUFFIXES)
    if stream and not is_parquet:
        raise InputError(f"--stream needs Parquet, got {data}: convert the file first")
    if is_parquet and (stream or data.is_dir() or data.stat().st_size >= STREAMED_BYTES):
        from dpglm.data.stream.parquet import ParquetRows

        if trials is not None:
            raise InputError(
                f"--trials {trials}: needs rows in memory, and these are streamed: fit shares of "
                "successes by ParquetRows(..., sample_weight=) in Python"
            )
        rows = ParquetRows(data, schema=schema, exposure=exposure, groups=groups, cache=cache)
        note(f"Streaming {rows.shape[0]} rows from {data}; first, all of them are checked once")
        ids = None if groups is None else rows.group_ids
        return TrainingRows(rows, None, None, None, ids, rows.stored_columns, is_streamed=True)
    others = [name for name in (exposure, trials, groups) if name is not None]
    table = read_table(data, [*schema.column_names, schema.target.name, *others])
    with named_errors(data):
        y, made = encoded_target(schema.target, table, trials)
        del table[schema.target.name]
        exposures = None
        if exposure is not None:
            exposures = {exposure: as_numbers(table.pop(exposure), exposure)}
        ids = None if groups is None else as_cells(table.pop(groups), groups)
        columns = tuple(storage_types(data))
        X = schema.encode(table) if encode else table
        return TrainingRows(X, y, exposures, made, ids, columns, is_streamed=False)


def encoded_target(
    target: TargetColumn, table: Mapping[str, Any], trials: str | None
) -> tuple[Any, Any]:
    """Return the targets of a table and, where its column is named, each row's trials, or None."""
    if trials is None:
        return target.encode(table[target.name]), None
    assert isinstance(target, CountTarget)
    return target.shares(table[target.name], table[trials], trials)


def columns_of(model: LinearModel) -> Sequence[str]:
    """Return the columns of a table that a model needs."""
    if model.schema is not None:
        return model.schema.column_names
    if model.feature_names is None:
        raise ValueError(
            "the model file does not name the columns that the model needs: in Python, fit a "
            "DataFrame or save the model with its schema"
        )
    return model.feature_names


def features_of(model: LinearModel, table: Mapping[str, Any]) -> Any:
    """Return what a model predicts from those columns."""
    if model.schema is not None:
        return table
    return np.column_stack([as_numbers(table[name], f"column {name!r}") for name in table])
