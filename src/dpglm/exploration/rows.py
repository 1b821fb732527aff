"""The rows of a table, of whatever kind, as a description counts them."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from dpglm.data.collection import Collection, as_collection
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec
from dpglm.data.stream.parquet import ParquetRows, encoded_files
from dpglm.data.stream.parquet_source import ParquetFile, column_of
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import spelled_in
from dpglm.tables.described.encoder import CellEncoder
from dpglm.tables.files import read_table
from dpglm.tables.given import Where
from dpglm.tables.named import Named, by_name

__all__ = ["TableRows", "open_table"]

_PARQUET = (".parquet", ".pq")
_EXPECTED = "table must be a file of columns, or have columns by name"


class TableRows(abc.ABC):
    """A private table with its true number of rows; final subclasses below."""

    n_rows: int

    @abc.abstractmethod
    def collection(self, encoder: CellEncoder) -> Collection:
        """Return encoded rows, each by itself; ValueError for a cell that is of the wrong kind."""

    def chosen(self, encoder: CellEncoder, where: Any) -> Collection:
        """Return encoded rows of which only those count where a condition holds."""
        raise ValueError("where must be None for rows that are not in memory")

    def group_ids(self, groups: Any) -> Any:
        """Return the group of each row, which may be the name of a column."""
        raise ValueError("groups must be None for a data frame of Dask: describe it in parts")

    def prepared(
        self, encoder: CellEncoder, spec: DataSpec, groups: Any, noise: NoiseSource, where: Any
    ) -> Rows:
        """Prepare all rows, or as many of each group as ``spec`` says; those that count."""
        rows = self.collection(encoder) if where is None else self.chosen(encoder, where)
        if spec.groups is not None:
            rows = rows.in_groups(groups, int(spec.groups.rows), noise)
        return rows.prepared(spec, None, np.zeros_like)


def open_table(table: Any, names: Sequence[str]) -> TableRows:
    """Check that a table has some columns, and count its rows; nothing is released here.

    ``table`` is a mapping or data frame of columns, ``ParquetRows``, a data frame of Dask, or the
    path of a file, which is read by blocks if it is Parquet.
    """
    if isinstance(table, TableRows):
        return table
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        if path.is_dir() or path.name.lower().endswith(_PARQUET):
            return _Stored(ParquetFile.all_in(path))
        return _InFile(path, names)
    if isinstance(table, ParquetRows):
        return _Stored(table.files)
    is_dask = type(table).__module__.partition(".")[0] == "dask"
    named = by_name(None if isinstance(table, np.ndarray) else table, _EXPECTED)
    lacking = [name for name in names if name not in named]
    if lacking:
        raise ValueError(
            f"the data lack column {', '.join(map(repr, lacking))}, which the schema describes: "
            "add it, or list in columns= those that there are"
        )
    if is_dask:
        return _OnCluster(table[list(spelled_in(names, table.columns).values())])
    return _InMemory(named, len(named[names[0]]))


@final
@dataclass(frozen=True, eq=False, repr=False)
class _InMemory(TableRows):
    table: Named
    n_rows: int

    def __post_init__(self) -> None:
        if not self.n_rows:
            raise ValueError("the table must have at least one row, got none")

    def collection(self, encoder: CellEncoder) -> Collection:
        X = encoder.encode(self.table)
        return MatrixRows(X, np.zeros(len(X)))

    def chosen(self, encoder: CellEncoder, where: Any) -> Collection:
        table = {name: self.table[name] for name in encoder.names}
        found = Where.of(where, table)
        X = encoder.encode(found.rows(table))
        return MatrixRows(X, np.zeros(len(X))).spread(found.counts)

    def group_ids(self, groups: Any) -> Any:
        if not isinstance(groups, str):
            return groups
        if groups not in self.table:
            raise ValueError(f"groups must name a column of the table, got {groups!r}")
        return self.table[groups]


@final
class _InFile(TableRows):
    """A file that is read whole."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._table = path, open_table(read_table(path, names), names)
        self.n_rows = self._table.n_rows

    def collection(self, encoder: CellEncoder) -> Collection:
        return self._table.collection(encoder)

    def chosen(self, encoder: CellEncoder, where: Any) -> Collection:
        return self._table.chosen(encoder, where)

    def group_ids(self, groups: Any) -> Any:
        return read_table(self._path, [groups])[groups] if isinstance(groups, str) else groups


@final
class _Stored(TableRows):
    def __init__(self, files: Sequence[ParquetFile]) -> None:
        self._files, self.n_rows = files, sum(file.n_rows for file in files)

    def collection(self, encoder: CellEncoder) -> Collection:
        return encoded_files(self._files, encoder)

    def group_ids(self, groups: Any) -> Any:
        return column_of(self._files, groups) if isinstance(groups, str) else groups


@final
class _OnCluster(TableRows):
    def __init__(self, frame: Any) -> None:
        self._frame, self.n_rows = frame, int(frame.shape[0].compute())

    def collection(self, encoder: CellEncoder) -> Collection:
        import dask.array

        like = np.empty((0, encoder.width))
        X = self._frame.map_partitions(encoder.encode, meta=like).compute_chunk_sizes()
        rows = as_collection(X, dask.array.zeros(X.shape[:1], chunks=X.chunks[:1]))
        assert rows is not None
        return rows
