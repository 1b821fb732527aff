"""Tables of record batches as rows: numbers as they are, or columns that a schema encodes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_one_of
from dpglm.data.rows import Floats, FloatType
from dpglm.data.stream.batches import Batches, Part, compared, open_batches, require_values
from dpglm.data.stream.stored import StoredRows
from dpglm.data.stream.streamed import Piece, Source
from dpglm.tables.cells import (
    WHOSE_CURE,
    check_no_dates,
    check_unique,
    column_in_words,
    normal,
    plain_array,
)
from dpglm.tables.files import named_errors
from dpglm.tables.given import Watch, as_floats
from dpglm.tables.named import OffsetColumn, OffsetKind, offset_of
from dpglm.tables.schema import Schema

_NONE: NDArray[Any] = np.empty(0)
_DECODERS = itertools.count()
_NO_OFFSET = OffsetColumn("offset")


# Columns of a batch as a matrix.


@final
@dataclass(frozen=True, eq=False)
class Decoder:
    """Turns the ``columns`` of a batch into a matrix with columns called ``names``.

    ``features`` maps a batch to the matrix, ``targets`` a column to targets in the user's units.
    """

    dtype: FloatType
    columns: tuple[str, ...]
    names: tuple[str, ...]
    features: Callable[[Any], Floats]
    targets: Callable[[Any], NDArray[Any]] = plain_array


class RowEncoder(Protocol):
    """Turns a table of the columns ``names`` into ``width`` numbers for each row."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def width(self) -> int:
        """Number of columns of the result."""

    def encode(self, table: Any) -> NDArray[np.float64]:
        """Encode rows, each by itself."""


def number_columns(columns: tuple[str, ...], parts: Sequence[Part], dtype: FloatType) -> Decoder:
    """Read columns of numbers, true or false, or lists of one length, alike in all parts."""
    if not columns:
        raise ValueError("columns must name at least one column of features, got none")
    widths = [_width(parts[0], name) for name in columns]
    for part in parts[1:]:
        for name, width in zip(columns, widths, strict=True):
            if _width(part, name) != width:
                raise ValueError(
                    f"{part.title}: column {name!r} is not of the length that it has in "
                    f"{parts[0].title}"
                )
    names = tuple(
        name if width is None else f"{name}[{i}]"
        for name, width in zip(columns, widths, strict=True)
        for i in range(width or 1)
    )

    def features(batch: Any) -> Floats:
        if len(columns) == 1:
            return _numbers(batch, columns[0], dtype).reshape(batch.num_rows, len(names))
        X: Floats = np.empty((batch.num_rows, len(names)), dtype)
        start = 0
        for name, width in zip(columns, widths, strict=True):
            stop = start + (width or 1)
            X[:, start:stop] = _numbers(batch, name, dtype).reshape(batch.num_rows, width or 1)
            start = stop
        return X

    return Decoder(dtype, columns, names, features)


def encoded_columns(schema: Schema, dtype: FloatType) -> Decoder:
    """Read columns that a schema encodes."""

    def features(batch: Any) -> Floats:
        return schema.encode({name: batch.column(name) for name in schema.column_names}, dtype)

    targets = schema.encode_target if schema.has_target else plain_array
    return Decoder(dtype, schema.column_names, schema.feature_names, features, targets)


def _width(part: Part, name: str) -> int | None:
    """Length of the lists in a column of numbers; None for plain numbers."""
    import pyarrow as pa

    kind, width = part.types[part.stored[normal(name)]], None
    check_no_dates(f"{part.title}: column {name!r}", kind)
    if pa.types.is_fixed_size_list(kind):
        kind, width = kind.value_type, kind.list_size
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(test(kind) for test in tests):
        raise ValueError(
            f"{part.title}: column {name!r} has the type {kind}, but features must be "
            "numbers, true/false or lists of numbers of one fixed length (pyarrow.list_(type, "
            "length)): leave it out of columns=, or give a schema= that encodes it"
        )
    return width


def _numbers(batch: Any, name: str, dtype: FloatType) -> NDArray[Any]:
    """Read a column as numbers; lists one after the other."""
    import pyarrow as pa

    column = batch.column(name)
    require_values(column, name)
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
        require_values(column, name)
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(dtype, copy=False)


@final
class BatchSource(Source):
    """Rows of a table of record batches; without a target only features are read."""

    is_view, may_seek = False, False

    def __init__(
        self,
        table: Batches,
        decoder: Decoder,
        target: str | None = None,
        weight: str | None = None,
        offset: OffsetColumn = _NO_OFFSET,
        kind: str | None = None,
    ) -> None:
        # Digests tell the features of several decoders apart, also when one of them is gone.
        self._kind = kind or f"features {next(_DECODERS)}"
        self.shape = (table.n_rows, len(decoder.names))
        self.dtype = decoder.dtype
        self.is_weighted = weight is not None
        self.has_offset = offset.name is not None
        self._table, self._decoder = table, decoder
        self._target, self._weight, self._offset = target, weight, offset

    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        if indices is not None and (np.diff(indices) <= 0).any():
            raise ValueError(
                "rows of this data set can be visited in their order only, and this solver asks "
                "for another: give cache= a folder"
            )
        table, kind = self._table, self._kind
        seen, start = table.seen, 0
        digests: dict[str, Any] = {}
        columns = list(self._decoder.columns)
        if not features_only:
            others = self._target, self._weight, self._offset.name
            columns += [name for name in others if name is not None]
        # Columns that were read by themselves belong to the same rows.
        also = [] if seen is None else [c for c in seen.columns if (kind, c) not in seen.together]
        every = list(dict.fromkeys([*columns, *also]))
        for where, batch, part in table.batches(every, rows, indices):
            with named_errors(where):
                X = self._decoder.features(batch)
                y, weights = (_NONE, None) if features_only else self._facts(batch)
                # Rows that are predicted have offsets alone.
                facts = "offsets" if self._target is None else "targets"
                values = {kind: X, f"{facts} of {kind}": y, f"weights of {kind}": weights}
                values |= compared(batch, also)
            table.compare(digests, start, values)
            start += batch.num_rows
            yield X[part], y[part] if len(y) else y, None if weights is None else weights[part]
        if seen is not None and start == table.n_rows:
            seen.together.update((kind, one) for one in also)

    def without_targets(self) -> BatchSource:
        return BatchSource(self._table, self._decoder, offset=self._offset, kind=self._kind)

    def watch(self) -> Watch:
        return self._table.watch

    def _facts(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        y: NDArray[Any] = np.zeros(batch.num_rows)
        if self._target is not None:
            column = batch.column(self._target)
            require_values(column, self._target)
            y = self._decoder.targets(column)
        if self._offset.name is not None:
            given = _floats_of(batch, self._offset.name, self._offset.name)
            y = np.column_stack([as_floats("y", y), offset_of(**{self._offset.kind: given})])
        if self._weight is None:
            return y, None
        return y, _floats_of(batch, self._weight, "sample_weight")

    def column_name(self, column: int) -> str:
        return column_in_words(self._decoder.names, column)


def _floats_of(batch: Any, column: str, name: str) -> NDArray[np.float64]:
    values = batch.column(column)
    require_values(values, column)
    return as_floats(name, values.to_numpy(zero_copy_only=False))


@final
class ArrowRows(StoredRows):
    """Rows of Parquet files, of a database or of a lazy table, read anew at each pass.

    ``ParquetRows`` is another name of this class.

    Parameters
    ----------
    source : path-like or object
        A file of Parquet, or a folder. The .parquet and .pq files of a folder and its subfolders
        are read in the order of their names. Names that begin with ``.`` or ``_`` are left out,
        files and folders alike. A folder ``year=2024`` gives its rows the column ``year``, as text.
        Otherwise a relation of DuckDB, a ``LazyFrame`` of polars, a ``Dataset`` or ``Table`` of
        pyarrow, a table of Ibis, a ``Query``, an address such as
        ``"duckdb:bank.duckdb?table=loans"``, any other object with ``__arrow_c_stream__``, or a
        function that returns a new one. Its rows must be the same each time, in the same order.
    target : str, optional
        Name of the target's column; with a schema, that of the schema. Rows that are only predicted
        need none: give ``columns``, or a schema.
    columns : sequence of str, optional
        Feature columns in order: numbers, true/false, or lists of numbers of one fixed length.
        By default all but target, weights and offsets; with a schema, those of the schema.
    schema : Schema, optional
        Encodes the columns, as ``Schema.encode`` does; then declare the estimator's ``row_norm``
        as ``schema.row_norm``, and its facts about the target as
        ``schema.target.estimator_parameters()``.
    sample_weight : str, optional
        Name of a column of weights; the estimator's ``weight_bound`` must be declared.
    offset : str, optional
        Name of a column of offsets, see the estimator's ``fit``.
    exposure : str, optional
        Name of a column of exposures; their logarithms are offsets. Predictions include them.
    groups : str, optional
        Name of a column of person (group) ids, numbers or texts. All rows of a group are then
        protected together. It must not be among the features. A fit reads it into memory. Without
        a cache the rows of each group must stand together, in one file or across the end of one
        (ORDER BY the column); no group is ever split.
    dtype : {"float32", "float64"}, default="float32"
        Type of the features in memory.
    cache : path-like, optional
        Folder for a copy of the prepared rows while a fit lasts, in place of one query, or one
        decoding of the files, for each step. It holds private rows: keep it where you keep the
        table. The copy is unnamed and vanishes with the process. By default nothing is copied.

    Raises
    ------
    ValueError
        If the source cannot be read again, files are missing, a column is missing or not of
        numbers, or the folder for the cache does not exist.
    ImportError
        If pyarrow is not installed.

    Notes
    -----
    Only the columns that are used are read. Memory holds a few chunks of 16 MiB, whatever the
    sizes of files and row groups, and that of the source is its own (``SET memory_limit`` in
    DuckDB). Rows can be visited in their order only, so solvers that shuffle rows need a cache.

    Privacy: a fit reads the rows several times. Marks of files, or the number of rows and digests
    of runs of them, are kept in memory and compared at each pass. Changed or reordered rows end
    the fit with ``RowsChangedError`` before anything is released from them.

    Examples
    --------
    >>> import duckdb
    >>> loans = duckdb.sql("select range as age, range % 2 as late from range(50)")
    >>> rows = ArrowRows(loans, target="late")
    >>> rows.shape, rows.feature_names
    ((50, 1), ('age',))
    """

    def __init__(
        self,
        source: Any,
        target: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        sample_weight: str | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        groups: str | None = None,
        dtype: FloatType = "float32",
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        check_one_of("dtype", dtype, ("float32", "float64"))
        table = source if isinstance(source, Batches) else open_batches(source)
        self._stated_target = target
        names = {"offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        self._given: dict[str, Any] = {**names, "groups": groups, "dtype": dtype, "cache": cache}
        if schema is not None:
            if columns is not None or (target is not None and schema.has_target):
                raise ValueError("target and columns must be None where a schema= is given")
            columns = schema.column_names
            if schema.has_target:
                target = schema.target.name
                if not any(normal(target) in part.stored for part in table.parts):
                    target = None
        elif target is None and columns is None:
            raise ValueError(
                "target must be the name of a column, or columns= the features of rows that are "
                "only predicted, got neither"
            )
        if offset is not None and exposure is not None:
            raise ValueError("offset and exposure must not both be given")
        given = (target, sample_weight, offset, exposure, groups)
        others = [name for name in given if name is not None]
        if columns is None:
            used = {normal(name) for name in others}
            columns = [name for name in table.columns if normal(name) not in used]
        check_unique([*columns, *others], "column")
        self.used_columns = tuple(dict.fromkeys([*columns, *others]))
        table.require(self.used_columns)
        if schema is None:
            decoder = number_columns(tuple(columns), table.parts, dtype)
            self.feature_names = decoder.columns if decoder.names == decoder.columns else None
        else:
            decoder = encoded_columns(schema, dtype)
        self.schema, self.table = schema, table
        self.target_name, self._group_column = target, groups
        kind: OffsetKind = "offset" if exposure is None else "exposure"
        self.offset_column = OffsetColumn(kind, exposure if offset is None else offset)
        own = BatchSource(table, decoder, target, sample_weight, self.offset_column)
        super().__init__(own, cache, has_targets=target is not None)

    @property
    def group_ids(self) -> Any:
        if self._group_column is None:
            return None
        return self.table.read_columns([self._group_column], WHOSE_CURE)[self._group_column]

    def with_schema(self, schema: Schema) -> ArrowRows:
        """Return the same rows, encoded by another schema.

        Parameters
        ----------
        schema : Schema
            It describes the same target, if any.

        Returns
        -------
        ArrowRows
        """
        return ArrowRows(self.table, self._stated_target, schema=schema, **self._given)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, for a folder those of its first file."""
        return self.table.columns

    def __getitem__(self, name: str) -> Any:
        """Return a column of private values by its name in the table."""
        return self.table.read_columns([name])[name]


ParquetRows = ArrowRows


def encoded_rows(table: Batches, encoder: RowEncoder) -> StoredRows:
    """Return the rows of a table as an encoder of tables reads them, without targets."""
    table.require(encoder.names)

    def features(batch: Any) -> Floats:
        return encoder.encode({name: batch.column(name) for name in encoder.names})

    names = tuple(map(str, range(encoder.width)))
    source = BatchSource(table, Decoder("float64", encoder.names, names, features))
    return StoredRows(source, None, has_targets=True)
