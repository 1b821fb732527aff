"""Tables in memory, in Parquet files and on Dask, encoded where they are."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from dpglm._validation import in_one_line
from dpglm.data.collection import Collection
from dpglm.tables.cells import spelled_in
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema

__all__ = ["GivenTable", "given_table"]

_NOT_A_TABLE = (
    "X must be a table whose columns the schema describes, Dask's or ParquetRows of one, or the "
    "path of Parquet files"
)

_TEXTS = (".csv", ".tsv", ".txt")


class GivenTable(abc.ABC):
    """The rows of a fit or prediction, before a schema encodes them; final subclasses below."""

    in_memory: ClassVar[bool] = False
    """Whether encoded rows are one matrix in memory."""

    @property
    @abc.abstractmethod
    def n_rows(self) -> int:
        """Number of rows."""

    @abc.abstractmethod
    def features(self, schema: Schema) -> Any:
        """Return encoded rows as a linear model takes them."""

    @abc.abstractmethod
    def targets(self, schema: Schema, y: Any) -> Any:
        """Return targets: those given, or else those in the column that the schema names."""


@final
@dataclass(frozen=True, eq=False)
class _InMemory(GivenTable):
    """A mapping, a data frame, or an array in the schema's order."""

    table: Any
    schema: Schema

    in_memory: ClassVar[bool] = True

    @property
    def n_rows(self) -> int:
        return self.schema.count(self.table)

    def features(self, schema: Schema) -> Any:
        return schema.encode_sparse(self.table) if schema.is_wide else schema.encode(self.table)

    def targets(self, schema: Schema, y: Any) -> Any:
        if y is not None:
            return y
        _check_target(schema)
        if isinstance(self.table, np.ndarray) or schema.target.name not in self.table:
            raise ValueError(
                f"y must be given, or the table must have the target's column, "
                f"{schema.target.name!r}"
            )
        return schema.encode_target(self.table[schema.target.name])


@final
@dataclass(frozen=True, eq=False)
class _InParquet(GivenTable):
    """Rows that a schema encodes as they are read; they have their own targets."""

    rows: Any

    @property
    def n_rows(self) -> int:
        n_rows: int = self.rows.shape[0]
        return n_rows

    def features(self, schema: Schema) -> Any:
        return self.rows.with_schema(schema)

    def targets(self, schema: Schema, y: Any) -> Any:
        return y


@final
@dataclass(frozen=True, eq=False)
class _OnDask(GivenTable):
    """A Dask data frame, whose partitions are encoded on their workers."""

    frame: Any

    @property
    def n_rows(self) -> int:
        return int(self.frame.shape[0].compute())

    def features(self, schema: Schema) -> Any:
        named = spelled_in(schema.column_names, self.frame.columns)
        columns = [named.get(name, name) for name in schema.column_names]
        empty = np.zeros((0, len(schema.feature_names)))
        encoded = self.frame[columns].map_partitions(schema.encode, meta=empty)
        return encoded.compute_chunk_sizes()

    def targets(self, schema: Schema, y: Any) -> Any:
        if y is not None:
            return y
        _check_target(schema)
        name = schema.target.name
        column = self.frame[spelled_in([name], self.frame.columns).get(name, name)]
        like = schema.target.encode(column.head(0))
        encoded = column.map_partitions(schema.encode_target, meta=like)
        return encoded.compute_chunk_sizes()


def _check_target(schema: Schema) -> None:
    if not schema.has_target:
        raise ValueError("y must be given, as the schema describes no target")


def given_table(X: Any, schema: Schema) -> GivenTable:
    """Return rows that were given to a fit or prediction; ``schema`` names their columns."""
    if isinstance(X, str | os.PathLike | Collection):
        # Here, as most tables are in memory.
        from dpglm.data.stream.parquet import ParquetRows

        if not isinstance(X, Collection) and Path(X).suffix.lower() in _TEXTS:
            raise ValueError(
                "X must be of Parquet where it is the path of a file: read text first, as by "
                f"pandas.read_csv, or fit it by dpglm fit; got {in_one_line(X)}"
            )
        rows = X if isinstance(X, Collection) else ParquetRows(X, schema=schema)
        if isinstance(rows, ParquetRows):
            return _InParquet(rows)
        raise ValueError(f"{_NOT_A_TABLE}, got {type(X).__name__}")
    if type(X).__module__.partition(".")[0] == "dask":
        import dask.dataframe

        if not isinstance(X, dask.dataframe.DataFrame):
            raise ValueError(f"X must be a data frame where it is of Dask, got {in_one_line(X)}")
        return _OnDask(X)
    return _InMemory(by_name(X, _NOT_A_TABLE), schema)
