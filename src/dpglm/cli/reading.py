"""The rows of a fit: encoded in memory, or streamed from Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from dpglm.cli.console import InputError, note
from dpglm.tables.files import named_errors, read_table, storage_types
from dpglm.tables.schema import Schema

__all__ = ["STREAMED_BYTES", "TrainingRows", "read_rows"]

STREAMED_BYTES = 1 << 28
"""Parquet files from this size on are streamed without being asked to."""

_SUFFIXES = (".parquet", ".pq")


@final
@dataclass(frozen=True)
class TrainingRows:
    """Encoded rows and targets (None where X holds them), and all column names of the data."""

    X: Any
    y: Any
    columns: tuple[str, ...]
    is_streamed: bool


def read_rows(data: Path, schema: Schema, *, stream: bool, cache: Path | None) -> TrainingRows:
    """Read a table, or prepare for streaming it."""
    is_parquet = data.is_dir() or data.name.lower().endswith(_SUFFIXES)
    if stream and not is_parquet:
        raise InputError(f"--stream needs Parquet, got {data}: convert the file first")
    if is_parquet and (stream or data.is_dir() or data.stat().st_size >= STREAMED_BYTES):
        from dpglm.data.stream.parquet import ParquetRows

        rows = ParquetRows(data, schema=schema, cache=cache)
        note(f"Streaming {rows.shape[0]} rows from {data}; first, all of them are checked once")
        return TrainingRows(rows, None, rows.stored_columns, is_streamed=True)
    table = read_table(data, [*schema.column_names, schema.target.name])
    with named_errors(data):
        y = schema.encode_target(table.pop(schema.target.name))
        return TrainingRows(schema.encode(table), y, tuple(storage_types(data)), is_streamed=False)
