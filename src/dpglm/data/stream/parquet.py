"""A Parquet file, or a folder of them, as a collection."""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_one_of, check_path
from dpglm.data.rows import Floats
from dpglm.data.spec import FloatType
from dpglm.data.stream.source import Piece, Source
from dpglm.data.stream.stored import StoredRows
from dpglm.tables.cells import (
    MISSING_CURE,
    WHOSE_CURE,
    check_no_dates,
    check_unique,
    column_in_words,
    normal,
    plain_array,
    plain_column,
)
from dpglm.tables.files import FileMark, Watch, check_present, named_errors
from dpglm.tables.given import as_floats
from dpglm.tables.named import OffsetColumn, offset_of
from dpglm.tables.schema import Schema

# Rows of Parquet files, decoded piece by piece.

# Columns are read in pieces of this size, so that row groups may have any size.
_BUFFER_BYTES = 1 << 18
_ID_ROWS = 1 << 16
_SUFFIXES = frozenset({".parquet", ".pq"})
_NONE: NDArray[Any] = np.empty(0)
# Stands for a missing value in the name of a folder.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Files that mark tables with versions.
_TABLE_LOGS: Mapping[str, str] = MappingProxyType(
    {
        "_delta_log": "a table of Delta Lake",
        ".hoodie": "a table of Hudi",
        "metadata/*.metadata.json": "a table of Iceberg",
    }
)


@final
@dataclass(frozen=True, eq=False)
class ParquetFile:
    """Facts from a file's footer: column types and first rows of the row groups, with their end.

    ``types`` has names of columns in their normal form; ``stored`` has their spelling in the file.
    ``folders`` has the columns that names of folders hold, as in ``year=2024/part.parquet``: text,
    or None where the value is missing. ``mark`` identifies the file as it was when its footer had
    been read.
    """

    path: Path
    types: Mapping[str, Any]
    starts: NDArray[np.intp]
    mark: FileMark
    stored: Mapping[str, str]
    folders: Mapping[str, str | None]

    @classmethod
    def all_in(cls, path: Path) -> list[ParquetFile]:
        """Read the footers of a file, or of all files in a folder, in the order of names.

        Privacy: a file that is there under two names would count its rows twice.
        """
        found = parquet_files(path)
        if not found:
            raise ValueError(
                f"{path}: the folder must contain a .parquet or .pq file (names that begin with "
                "'.' or '_' are left out)"
            )
        files = [cls.of(one, _in_folders(one.relative_to(path))) for one in found]
        first: dict[tuple[int, int], Path] = {}
        for file in files:
            same = first.setdefault((file.mark.device, file.mark.inode), file.path)
            if same != file.path:
                raise ValueError(
                    f"{path}: {same.name} and {file.path.name} must be different files, but are "
                    "one file, and its rows would count twice: remove one of the two names"
                )
        return files

    @classmethod
    def of(cls, path: Path, folders: Mapping[str, str | None] | None = None) -> ParquetFile:
        """Read the footer of a file."""
        with named_errors(path), _opened(path) as file:
            import pyarrow as pa

            groups = file.metadata.num_row_groups
            sizes = [file.metadata.row_group(i).num_rows for i in range(groups)]
            names = file.schema_arrow.names
            check_unique(names, "column")
            stored = {normal(name): name for name in names}
            types = {normal(field.name): field.type for field in file.schema_arrow}
            # A column that is in the file, too, is taken from there.
            given = {name: one for name, one in (folders or {}).items() if name not in types}
            types |= dict.fromkeys(given, pa.string())
            return cls(path, types, np.cumsum([0, *sizes]), FileMark.of(path), stored, given)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, as the file spells them; last those of folders."""
        return (*self.stored.values(), *self.folders)

    def require(self, columns: Sequence[str]) -> None:
        """Check that columns are there."""
        with named_errors(self.path):
            check_present(columns, self.types)

    def batches(
        self, columns: Sequence[str], rows: int, wanted: NDArray[np.intp] | None
    ) -> Iterator[tuple[int, Any, slice | NDArray[np.intp]]]:
        """Yield first row, batch and the wanted part of each batch of at most ``rows`` rows.

        A batch has the columns by the names that are asked for. ``wanted`` lists row numbers in
        ascending order, by default all; batches without any are left out.
        """
        stored = [self.stored[one] for one in map(normal, columns) if one in self.stored]
        with _opened(self.path) as file:
            for group, first in enumerate(self.starts[:-1].tolist()):
                if _part(wanted, first, int(self.starts[group + 1])) is None:
                    continue
                for batch in file.iter_batches(rows, row_groups=[group], columns=stored):
                    part = _part(wanted, first, first + batch.num_rows)
                    if part is not None:
                        yield first, self._named(batch, columns), part
                    first += batch.num_rows

    def _named(self, batch: Any, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        found = []
        for one in map(normal, columns):
            if one in self.stored:
                found.append(batch.column(self.stored[one]))
            else:
                found.append(pa.repeat(pa.scalar(self.folders[one], pa.string()), batch.num_rows))
        return pa.RecordBatch.from_arrays(found, names=list(columns))


class Decoder(abc.ABC):
    """Turns columns of a batch into a matrix."""

    dtype: FloatType
    """Type of the matrix."""
    columns: tuple[str, ...]
    """Names of the feature columns."""
    names: tuple[str, ...]
    """Names of the columns of the matrix."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names that a table of the same columns would have, if each is one feature."""
        return None

    @abc.abstractmethod
    def features(self, batch: Any) -> Floats:
        """Return the features of a batch, shape ``(rows, len(names))``."""

    @abc.abstractmethod
    def targets(self, column: Any) -> NDArray[Any]:
        """Return the targets of a batch, in the user's units."""


@final
class NumberColumns(Decoder):
    """Columns of numbers, true or false, or lists of numbers of one length, alike in all files."""

    def __init__(
        self, columns: tuple[str, ...], files: Sequence[ParquetFile], dtype: FloatType
    ) -> None:
        if not columns:
            raise ValueError("columns must name at least one column of features, got none")
        self.columns, self.dtype = columns, dtype
        self._widths = [_width(files[0], name) for name in columns]
        for file in files[1:]:
            for name, width in zip(columns, self._widths, strict=True):
                if _width(file, name) != width:
                    raise ValueError(
                        f"{file.path}: column {name!r} is not of the length that it has in "
                        f"{files[0].path}"
                    )
        self.names = tuple(
            name if width is None else f"{name}[{i}]"
            for name, width in zip(columns, self._widths, strict=True)
            for i in range(width or 1)
        )

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.columns if self.names == self.columns else None

    def features(self, batch: Any) -> Floats:
        if len(self.columns) == 1:
            return _numbers(batch, self.columns[0], self.dtype).reshape(batch.num_rows, -1)
        X: Floats = np.empty((batch.num_rows, len(self.names)), self.dtype)
        start = 0
        for name, width in zip(self.columns, self._widths, strict=True):
            stop = start + (width or 1)
            values = _numbers(batch, name, self.dtype)
            X[:, start:stop] = values.reshape(batch.num_rows, -1)
            start = stop
        return X

    def targets(self, column: Any) -> NDArray[Any]:
        return np.asarray(column.to_numpy(zero_copy_only=False))


@final
class EncodedColumns(Decoder):
    """Columns that a schema encodes."""

    def __init__(self, schema: Schema, dtype: FloatType) -> None:
        self._schema, self.dtype = schema, dtype
        self.columns, self.names = schema.column_names, schema.feature_names

    def features(self, batch: Any) -> Floats:
        table = {name: plain_column(batch.column(name)) for name in self.columns}
        return self._schema.encode(table, self.dtype)

    def targets(self, column: Any) -> NDArray[Any]:
        if not self._schema.has_target:
            return np.asarray(plain_column(column))
        return self._schema.encode_target(column)


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


@final
class TableColumns(Decoder):
    """Columns that an encoder of whole tables reads."""

    def __init__(self, encoder: RowEncoder) -> None:
        self._encoder, self.dtype = encoder, "float64"
        self.columns = encoder.names
        self.names = tuple(map(str, range(encoder.width)))

    def features(self, batch: Any) -> Floats:
        return self._encoder.encode(
            {name: plain_column(batch.column(name)) for name in self.columns}
        )

    def targets(self, column: Any) -> NDArray[Any]:
        raise AssertionError("a column of targets is missing")


@final
class ParquetSource(Source):
    """Rows of some files, one after the other; without a target only features are read."""

    is_view, may_seek = False, False

    def __init__(
        self,
        files: Sequence[ParquetFile],
        decoder: Decoder,
        target: str | None,
        weight: str | None,
        offset: str | None = None,
        exposure: str | None = None,
    ) -> None:
        self.shape = (sum(file.n_rows for file in files), len(decoder.names))
        self.dtype = decoder.dtype
        self.is_weighted = weight is not None
        self.has_offset = offset is not None or exposure is not None
        self._files, self._decoder = tuple(files), decoder
        self._target, self._weight = target, weight
        self._offset, self._exposure = offset, exposure

    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        if indices is not None and (np.diff(indices) <= 0).any():
            raise ValueError(
                "rows of a Parquet data set can be visited in their order only, and this solver "
                "asks for another: give cache= a folder"
            )
        columns = list(self._decoder.columns)
        if not features_only:
            others = self._target, self._weight, self._offset, self._exposure
            columns += [name for name in others if name is not None]
        start = 0
        for file in self._files:
            wanted = None
            if indices is not None:
                low, high = np.searchsorted(indices, (start, start + file.n_rows))
                wanted = indices[low:high] - start
            start += file.n_rows
            for first, batch, part in file.batches(columns, rows, wanted):
                with named_errors(f"{file.path}, from row {first + 1} on"):
                    X = self._decoder.features(batch)[part]
                    y, weights = (_NONE, None) if features_only else self._facts(batch)
                yield X, y[part] if len(y) else y, None if weights is None else weights[part]

    def without_targets(self) -> ParquetSource:
        return ParquetSource(self._files, self._decoder, None, None, self._offset, self._exposure)

    def watch(self) -> Watch:
        # As they were when their footers, which say where rows are, were read.
        return Watch(tuple(file.mark for file in self._files))

    def _facts(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        y: NDArray[Any] = np.zeros(batch.num_rows)
        if self._target is not None:
            column = plain_column(batch.column(self._target))
            _require_values(column, self._target)
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


def column_of(files: Sequence[ParquetFile], name: str) -> NDArray[Any]:
    """Read the column of group ids of all files: numbers or texts without gaps."""
    found = []
    for file in files:
        file.require([name])
        for first, batch, _ in file.batches([name], _ID_ROWS, None):
            with named_errors(f"{file.path}, from row {first + 1} on"):
                values = plain_column(batch.column(name))
                _require_values(values, name, WHOSE_CURE)
                found.append(plain_array(values))
    if len({one.dtype for one in found}) > 1:
        # Numbers of several types would become floats, and large ones would coincide.
        found = [one.astype(object) for one in found]
    return np.concatenate(found) if found else np.empty(0)


def _floats_of(batch: Any, column: str, name: str) -> NDArray[np.float64]:
    values = batch.column(column)
    _require_values(values, column)
    return as_floats(name, values.to_numpy(zero_copy_only=False))


def parquet_files(path: Path) -> list[Path]:
    """Return the files of a data set: the path itself, or those in the folder, by name.

    Files and folders below it with names that begin with a dot or an underscore are left out, as
    in pyarrow, Spark and Dask: they hold drafts, copies and logs of the same rows.
    """
    if not path.is_dir():
        return [path]
    for mark, kind in _TABLE_LOGS.items():
        if next(path.glob(mark), None) is not None:
            raise ValueError(
                f"{path}: must be a plain folder of Parquet files, got {kind}, which also keeps "
                "rows of earlier versions. Read the current rows with its own library, and write "
                "them to a new folder"
            )
    return sorted(
        one
        for one in path.rglob("*")
        if one.suffix.lower() in _SUFFIXES
        and not one.is_dir()
        and not any(_is_hidden(part) for part in one.relative_to(path).parts)
    )


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _in_folders(path: Path) -> dict[str, str | None]:
    """Return the columns that names of folders hold, as Hive and Spark write them."""
    pairs = [part.partition("=") for part in path.parts[:-1] if "=" in part]
    values = {normal(unquote(name)): unquote(value) for name, _, value in pairs}
    return {name: None if value == _NO_VALUE else value for name, value in values.items()}


def _opened(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "this needs pyarrow, which is not installed: pip install 'dpglm[parquet]'"
        ) from error
    # Not mapped into memory: the pages of a mapped file count as the process's own.
    return parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _part(
    wanted: NDArray[np.intp] | None, start: int, stop: int
) -> slice | NDArray[np.intp] | None:
    """Return the wanted rows from ``start`` to ``stop``, counted from there; None for none."""
    if wanted is None:
        return slice(None) if start < stop else None
    low, high = np.searchsorted(wanted, (start, stop))
    return wanted[low:high] - start if low < high else None


def _width(file: ParquetFile, name: str) -> int | None:
    """Length of the lists in a column of numbers; None for plain numbers."""
    import pyarrow as pa

    kind, width = file.types[normal(name)], None
    check_no_dates(f"{file.path}: column {name!r}", kind)
    if pa.types.is_fixed_size_list(kind):
        kind, width = kind.value_type, kind.list_size
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(test(kind) for test in tests):
        raise ValueError(
            f"{file.path}: column {name!r} has the type {kind}, but features must be "
            "numbers, true/false or lists of numbers of one fixed length (pyarrow.list_(type, "
            "length)): leave it out of columns=, or give a schema= that encodes it"
        )
    return width


def _numbers(batch: Any, name: str, dtype: FloatType) -> NDArray[Any]:
    """Read a column as numbers; lists one after the other."""
    import pyarrow as pa

    column = batch.column(name)
    _require_values(column, name)
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
        _require_values(column, name)
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(dtype, copy=False)


def _require_values(column: Any, name: str, cure: str = MISSING_CURE) -> None:
    if column.null_count:
        row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise ValueError(f"column {name!r}, row {row + 1}: the value is missing. {cure}")


@final
class ParquetRows(StoredRows):
    """Rows of a Parquet data set that need not fit into memory.

    Parameters
    ----------
    path : path-like
        A file, or a folder. The .parquet and .pq files of a folder and its subfolders are read in
        the order of their names. Names that begin with ``.`` or ``_`` are left out, files
        and folders alike. A folder ``year=2024`` gives its rows the column ``year``, as text.
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
        protected together. It must not be among the features. A fit
        reads it into memory. Without a cache the rows of each group must stand together, in one
        file or across the end of one; no group is ever split.
    dtype : {"float32", "float64"}, default="float32"
        Type of the features in memory.
    cache : path-like, optional
        Folder for a copy of the prepared rows while a fit lasts: decoding Parquet at every step
        takes several times as long as reading this copy. It holds private rows: keep it where
        you keep the file. The copy is unnamed and vanishes with the process. By default nothing
        is copied.

    Raises
    ------
    ValueError
        If files are missing, a column is missing or not of numbers, or the folder
        for the cache does not exist.
    ImportError
        If pyarrow is not installed.

    Notes
    -----
    Nothing but schemas and numbers of rows is read before a fit. Memory holds a few chunks of 16
    MiB, whatever the sizes of file and row groups. Rows can be visited in the order of the file
    only, so solvers that shuffle rows need a cache.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1]}), f"{folder}/part-0.parquet")
    ...     rows = ParquetRows(folder, target="y")
    >>> rows.shape, rows.feature_names
    ((2, 1), ('a',))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
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
        self._again = functools.partial(
            ParquetRows,
            path,
            target,
            sample_weight=sample_weight,
            offset=offset,
            exposure=exposure,
            groups=groups,
            dtype=dtype,
            cache=cache,
        )
        files = ParquetFile.all_in(check_path("path", path))
        if schema is not None:
            if columns is not None or (target is not None and schema.has_target):
                raise ValueError("target and columns must be None where a schema= is given")
            columns = schema.column_names
            if schema.has_target:
                target = schema.target.name
                if not any(normal(target) in file.types for file in files):
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
            columns = [name for name in files[0].columns if normal(name) not in used]
        check_unique([*columns, *others], "column")
        for file in files:
            file.require([*columns, *others])
        self._decoder: Decoder = (
            NumberColumns(tuple(columns), files, dtype)
            if schema is None
            else EncodedColumns(schema, dtype)
        )
        self._schema, self._stored_columns = schema, files[0].columns
        self._files, self._group_column = files, groups
        self._target = target
        self._offset_column = OffsetColumn(
            "offset" if exposure is None else "exposure", offset if exposure is None else exposure
        )
        source = ParquetSource(files, self._decoder, target, sample_weight, offset, exposure)
        super().__init__(source, cache, has_targets=target is not None)

    @property
    def group_ids(self) -> Any:
        if self._group_column is None:
            return None
        return column_of(self._files, self._group_column)

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

    def with_schema(self, schema: Schema) -> ParquetRows:
        """Return the same rows, encoded by another schema.

        Parameters
        ----------
        schema : Schema
            It describes the same target, if any.

        Returns
        -------
        ParquetRows
        """
        return self._again(schema=schema)

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Names of all columns of the first file."""
        return self._stored_columns

    @property
    def files(self) -> Sequence[ParquetFile]:
        """The files, as their footers describe them."""
        return self._files


def encoded_files(files: Sequence[ParquetFile], encoder: RowEncoder) -> StoredRows:
    """Return the rows of files as an encoder of tables reads them, without targets."""
    for file in files:
        file.require(encoder.names)
    source = ParquetSource(files, TableColumns(encoder), None, None)
    return StoredRows(source, None, has_targets=True)
