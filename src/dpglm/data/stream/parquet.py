"""A Parquet file, or a folder of them, as a collection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_path
from dpglm.data.spec import FloatType
from dpglm.data.stream.batches import BatchRows, Seen, part_of
from dpglm.tables.cells import check_unique, normal
from dpglm.tables.files import FileMark, Watch, named_errors
from dpglm.tables.schema import Schema

# Rows of Parquet files, decoded piece by piece.

# Columns are read in pieces of this size, so that row groups may have any size.
_BUFFER_BYTES = 1 << 18
_SUFFIXES = frozenset({".parquet", ".pq"})
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

    @property
    def title(self) -> str:
        """Name of the file."""
        return os.fspath(self.path)

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
                if part_of(wanted, first, int(self.starts[group + 1])) is None:
                    continue
                for batch in file.iter_batches(rows, row_groups=[group], columns=stored):
                    part = part_of(wanted, first, first + batch.num_rows)
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


@final
@dataclass(frozen=True, eq=False)
class ParquetFiles:
    """The files of a data set, one after the other."""

    title: str
    parts: Sequence[ParquetFile]
    # Marks of files find every change.
    seen: Seen | None = None

    @classmethod
    def of(cls, path: Path) -> ParquetFiles:
        """Open a file, or all files of a folder."""
        return cls(os.fspath(path), ParquetFile.all_in(path))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(file.n_rows for file in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the first file."""
        return self.parts[0].columns

    def watch(self) -> Watch:
        """Return a watch of the files as they were when their footers were read."""
        return Watch(tuple(file.mark for file in self.parts))

    def batches(
        self, columns: Sequence[str], rows: int, wanted: NDArray[np.intp] | None
    ) -> Iterator[tuple[str, Any, slice | NDArray[np.intp]]]:
        """Yield place in words, batch and wanted part; see ``Batches``."""
        start = 0
        for file in self.parts:
            own = None
            if wanted is not None:
                low, high = np.searchsorted(wanted, (start, start + file.n_rows))
                own = wanted[low:high] - start
            start += file.n_rows
            for first, batch, part in file.batches(columns, rows, own):
                yield f"{file.path}, from row {first + 1} on", batch, part


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


@final
class ParquetRows(BatchRows):
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
        files = ParquetFiles.of(check_path("path", path))
        others = (sample_weight, offset, exposure, groups, dtype, cache)
        super().__init__(files, target, columns, schema, *others)
