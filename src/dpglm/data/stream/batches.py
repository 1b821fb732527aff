"""Tables that are read as record batches of Arrow, again at each pass."""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_one_of
from dpglm.data.spec import FloatType
from dpglm.data.stream.decoders import (
    Decoder,
    EncodedColumns,
    NumberColumns,
    Part,
    RowEncoder,
    TableColumns,
    require_values,
)
from dpglm.data.stream.source import Piece, Source
from dpglm.data.stream.stored import StoredRows
from dpglm.tables.cells import WHOSE_CURE, check_unique, column_in_words, normal, plain_array
from dpglm.tables.cells import plain_column as plain
from dpglm.tables.files import Watch, changed, check_present, named_errors
from dpglm.tables.given import as_floats
from dpglm.tables.named import OffsetColumn, offset_of
from dpglm.tables.schema import Schema

_NONE: NDArray[Any] = np.empty(0)
_DECODERS = itertools.count()
_COLUMN_ROWS = 1 << 16


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """Digests of the rows that earlier passes over a stream have read.

    ``digests`` has one for each run of ``n_rows`` rows of each kind of values; ``columns`` are
    those that were read by themselves. Any two kinds of values are read together at least once, so
    that rows in another order are found even where passes read different columns.

    Privacy: digests are as private as the rows, and never leave the process.
    """

    n_rows: int
    digests: dict[tuple[str, int], bytes] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    together: set[tuple[str, str]] = field(default_factory=set)

    def compare(self, kind: str, run: int, digest: bytes) -> None:
        """Raise RowsChangedError unless a run has the values of earlier passes."""
        if self.digests.setdefault((kind, run), digest) != digest:
            first = run * self.n_rows + 1
            raise changed(
                f"rows {first} to {first + self.n_rows - 1} are others than before, or in another "
                "order (a query needs ORDER BY to return rows in one order each time)"
            )


@final
class _Pass:
    """Digests of one pass over a stream, in its order, compared as soon as a run is complete."""

    def __init__(self, seen: Seen | None, n_rows: int) -> None:
        self._seen, self._n_rows = seen, n_rows
        self._open: dict[str, Any] = {}

    def add(self, first: int, values: Mapping[str, NDArray[Any] | None]) -> None:
        """Add the next rows, all of one run, as values of several kinds."""
        if self._seen is None:
            return
        for kind, array in values.items():
            if array is None or not len(array):
                continue
            digest = self._open.setdefault(kind, hashlib.sha256())
            if array.dtype.kind in "OT":
                digest.update("\n".join(map(repr, [*array.ravel().tolist(), ""])).encode())
            else:
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
            stop = first + len(array)
            run = self._seen.n_rows
            if stop % run == 0 or stop == self._n_rows:
                self._seen.compare(kind, first // run, self._open.pop(kind).digest())


class Batches(Protocol):
    """A table that yields its rows as record batches of Arrow, more than once."""

    @property
    def title(self) -> str:
        """The table in words."""

    @property
    def n_rows(self) -> int:
        """The true number of rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, in the table's spelling."""

    @property
    def parts(self) -> Sequence[Part]:
        """Parts with columns of their own; a column must be in each."""

    @property
    def seen(self) -> Seen | None:
        """Digests of earlier passes; None where ``watch`` finds every change."""

    def watch(self) -> Watch:
        """Return a watch for changes of the table's files."""

    def batches(
        self, columns: Sequence[str], rows: int, wanted: NDArray[np.intp] | None
    ) -> Iterator[tuple[str, Any, slice | NDArray[np.intp]]]:
        """Yield place in words, batch and wanted part of batches of at most ``rows`` rows.

        A batch has the columns by the names that are asked for. ``wanted`` lists row numbers in
        ascending order, by default all. Only batches without any may be left out, and none where
        there are digests. ``RowsChangedError`` if there are more or fewer rows than ``n_rows``.
        """


def part_of(
    wanted: NDArray[np.intp] | None, start: int, stop: int
) -> slice | NDArray[np.intp] | None:
    """Return the wanted rows from ``start`` to ``stop``, counted from there; None for none."""
    if wanted is None:
        return slice(None) if start < stop else None
    low, high = np.searchsorted(wanted, (start, stop))
    return wanted[low:high] - start if low < high else None


def require(table: Batches, columns: Sequence[str]) -> None:
    """Check that every part of a table has some columns."""
    for part in table.parts:
        with named_errors(part.title):
            check_present(columns, part.types)


def read_columns(
    table: Batches, names: Sequence[str], cure: str | None = None
) -> dict[str, NDArray[Any]]:
    """Read whole columns in one pass; ``cure`` is the remedy for missing values, None allows them.

    Numbers of several types become objects, so that large ones stay distinct.
    """
    require(table, names)
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    seen, start, digests = table.seen, 0, _Pass(table.seen, table.n_rows)
    others = [] if seen is None else [one for one in seen.columns if one not in found]
    for where, batch, _ in table.batches([*names, *others], _COLUMN_ROWS, None):
        with named_errors(where):
            arrays = {}
            for name in (*names, *others):
                column = plain(batch.column(name))
                if cure is not None and name in found:
                    require_values(column, name, cure)
                arrays[name] = plain_array(column)
            for name in names:
                found[name].append(arrays[name])
        digests.add(start, {f"column {normal(name)}": one for name, one in arrays.items()})
        start += batch.num_rows
    if seen is not None:
        seen.columns.extend(name for name in names if name not in seen.columns)
    return {name: _joined(parts) for name, parts in found.items()}


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    if len({one.dtype for one in parts}) > 1:
        parts = [one.astype(object) for one in parts]
    return np.concatenate(parts) if parts else np.empty(0)


@final
class BatchSource(Source):
    """Rows of a table of record batches; without a target only features are read."""

    is_view, may_seek = False, False

    def __init__(
        self,
        table: Batches,
        decoder: Decoder,
        target: str | None,
        weight: str | None,
        offset: str | None = None,
        exposure: str | None = None,
        kind: str | None = None,
    ) -> None:
        # Digests tell the features of several decoders apart, also when one of them is gone.
        self._kind = kind or f"features {next(_DECODERS)}"
        self.shape = (table.n_rows, len(decoder.names))
        self.dtype = decoder.dtype
        self.is_weighted = weight is not None
        self.has_offset = offset is not None or exposure is not None
        self._table, self._decoder = table, decoder
        self._target, self._weight = target, weight
        self._offset, self._exposure = offset, exposure

    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        if indices is not None and (np.diff(indices) <= 0).any():
            raise ValueError(
                "rows of this data set can be visited in their order only, and this solver asks "
                "for another: give cache= a folder"
            )
        table, kind = self._table, self._kind
        seen, start, digests = table.seen, 0, _Pass(table.seen, table.n_rows)
        columns = list(self._decoder.columns)
        if not features_only:
            others = self._target, self._weight, self._offset, self._exposure
            columns += [name for name in others if name is not None]
        # Columns that were read by themselves belong to the same rows.
        also = [] if seen is None else [c for c in seen.columns if (kind, c) not in seen.together]
        every = list(dict.fromkeys([*columns, *also]))
        for where, batch, part in table.batches(every, rows, indices):
            with named_errors(where):
                X = self._decoder.features(batch)
                y, weights = (_NONE, None) if features_only else self._facts(batch)
                values = {kind: X, f"targets of {kind}": y, f"weights of {kind}": weights}
                for one in also:
                    values[f"column {normal(one)}"] = plain_array(plain(batch.column(one)))
            digests.add(start, values)
            start += batch.num_rows
            yield X[part], y[part] if len(y) else y, None if weights is None else weights[part]
        if seen is not None and start == table.n_rows:
            seen.together.update((kind, one) for one in also)

    def without_targets(self) -> BatchSource:
        offsets = self._offset, self._exposure
        return BatchSource(self._table, self._decoder, None, None, *offsets, self._kind)

    def watch(self) -> Watch:
        return self._table.watch()

    def _facts(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        y: NDArray[Any] = np.zeros(batch.num_rows)
        if self._target is not None:
            column = plain(batch.column(self._target))
            require_values(column, self._target)
            y = self._decoder.targets(column)
        if self.has_offset:
            given = self._offset, self._exposure
            offset, exposure = (
                None if name is None else _floats_of(batch, name, name) for name in given
            )
            y = np.column_stack([as_floats("y", y), offset_of(offset, exposure)])
        if self._weight is None:
            return y, None
        return y, _floats_of(batch, self._weight, "sample_weight")

    def column_name(self, column: int) -> str:
        return column_in_words(self._decoder.names, column)


def _floats_of(batch: Any, column: str, name: str) -> NDArray[np.float64]:
    values = batch.column(column)
    require_values(values, column)
    return as_floats(name, values.to_numpy(zero_copy_only=False))


class BatchRows(StoredRows):
    """Rows of a table of record batches as a collection."""

    def __init__(
        self,
        table: Batches,
        target: str | None,
        columns: Sequence[str] | None,
        schema: Schema | None,
        sample_weight: str | None,
        offset: str | None,
        exposure: str | None,
        groups: str | None,
        dtype: FloatType,
        cache: str | os.PathLike[str] | None,
    ) -> None:
        check_one_of("dtype", dtype, ("float32", "float64"))
        self._given = (sample_weight, offset, exposure, groups, dtype, cache)
        self._stated_target = target
        if schema is not None:
            if columns is not None or (target is not None and schema.has_target):
                raise ValueError("target and columns must be None where a schema= is given")
            columns = schema.column_names
            if schema.has_target:
                target = schema.target.name
                if not any(normal(target) in part.types for part in table.parts):
                    target = None
        elif target is None and columns is None:
            raise ValueError(
                "target must be the name of a column, or columns= the features of rows that are "
                "only predicted, got neither"
            )
        offsets = [name for name in (offset, exposure) if name is not None]
        if len(offsets) > 1:
            raise ValueError("offset and exposure must not both be given")
        given = (target, sample_weight, *offsets, groups)
        others = [name for name in given if name is not None]
        if columns is None:
            used = {normal(name) for name in others}
            columns = [name for name in table.columns if normal(name) not in used]
        check_unique([*columns, *others], "column")
        self.used_columns = tuple(dict.fromkeys([*columns, *others]))
        require(table, self.used_columns)
        self._decoder: Decoder = (
            NumberColumns(tuple(columns), table.parts, dtype)
            if schema is None
            else EncodedColumns(schema, dtype)
        )
        self._schema, self._table = schema, table
        self._target, self._group_column = target, groups
        self._offset_column = OffsetColumn(
            "offset" if exposure is None else "exposure", offset if exposure is None else exposure
        )
        source = BatchSource(table, self._decoder, target, sample_weight, offset, exposure)
        super().__init__(source, cache, has_targets=target is not None)

    @property
    def group_ids(self) -> Any:
        if self._group_column is None:
            return None
        return read_columns(self._table, [self._group_column], WHOSE_CURE)[self._group_column]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self._decoder.feature_names

    @property
    def target_name(self) -> str | None:
        return self._target

    @property
    def schema(self) -> Schema | None:
        return self._schema

    @property
    def offset_column(self) -> OffsetColumn:
        return self._offset_column

    def with_schema(self, schema: Schema) -> Self:
        """Return the same rows, encoded by another schema.

        Parameters
        ----------
        schema : Schema
            It describes the same target, if any.

        Returns
        -------
        ParquetRows or ArrowRows
        """
        found = copy.copy(self)
        BatchRows.__init__(found, self._table, self._stated_target, None, schema, *self._given)
        return found

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Names of all columns, for a folder those of its first file."""
        return self._table.columns

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return self._table.columns

    def __getitem__(self, name: str) -> Any:
        """Return a column of private values by its name in the table."""
        return read_columns(self._table, [name])[name]

    @property
    def table(self) -> Batches:
        """The table that is read."""
        return self._table


def encoded_rows(table: Batches, encoder: RowEncoder) -> StoredRows:
    """Return the rows of a table as an encoder of tables reads them, without targets."""
    require(table, encoder.names)
    source = BatchSource(table, TableColumns(encoder), None, None)
    return StoredRows(source, None, has_targets=True)
