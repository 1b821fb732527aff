"""Reading and writing tables: CSV and Parquet by pyarrow, never guessing a type from values."""

from __future__ import annotations

import abc
import contextlib
import csv
import enum
import io
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._json import in_file
from dpglm.exceptions import RowsChangedError
from dpglm.tables.cells import check_unique, plain_column, spelled_in

# Checks that files do not change while rows are read from them.


@final
@dataclass(frozen=True)
class FileMark:
    """Identity, size in bytes and time of the last change (ns) of a file at one time."""

    path: Path
    size: int
    modified: int
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileMark:
        """Ask the system; OSError if there is no such file."""
        found = os.stat(path)
        return cls(path, found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)

    def difference(self) -> str | None:
        """Say how the file differs from what it was, or None if it does not."""
        try:
            now = FileMark.of(self.path)
        except OSError as error:
            return f"{self.path} cannot be found any more ({error.strerror})"
        if (now.device, now.inode) != (self.device, self.inode):
            return f"{self.path} is another file than before"
        if now.size != self.size:
            return f"{self.path} had {self.size} bytes and has {now.size}"
        if now.modified != self.modified:
            return f"{self.path} was written to"
        return None


@final
@dataclass(frozen=True)
class Watch:
    """Files that must not change, as they were at the start."""

    marks: tuple[FileMark, ...] = ()

    @classmethod
    def over(cls, arrays: Iterable[Any]) -> Watch:
        """Watch the named files that arrays are mapped from."""
        maps = (mapped for array in arrays for mapped in memory_maps(array))
        names = {Path(mapped.filename) for mapped in maps if mapped.filename is not None}
        return cls(tuple(map(FileMark.of, sorted(names))))

    def check(self) -> None:
        """Raise RowsChangedError if a file's size, time of last change or identity has changed."""
        for mark in self.marks:
            difference = mark.difference()
            if difference is not None:
                raise changed(difference)


def changed(difference: str) -> RowsChangedError:
    """Return the error about a changed file, and what follows from the change."""
    return RowsChangedError(
        f"rows changed while they were in use: {difference}. Nothing is released of what was read "
        "since; what a fit had released before stays spent, and its entry in a ledger stays"
    )


def memory_maps(array: Any) -> Iterator[np.memmap[Any, Any]]:
    """Yield the maps that an array is a view of, itself first."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            yield array
        array = array.base


def check_length(array: Any) -> None:
    """Raise RowsChangedError if the file of a mapped array has become too short to be read.

    Touching a page beyond the end would kill the process.
    """
    for mapped in memory_maps(array):
        pages: Any = mapped.base
        if isinstance(pages, mmap.mmap):
            end = mapped.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            if pages.size() < end + len(pages):
                raise changed(f"{mapped.filename} was cut off at {pages.size()} bytes")


def in_memory(X: Any) -> Any:
    """Return a matrix without memory mapped from files; the same object if there is none."""
    if isinstance(X, np.ndarray):
        return _own(X)
    parts = (X.data, X.indices, X.indptr)
    own = tuple(map(_own, parts))
    same = all(one is other for one, other in zip(own, parts, strict=True))
    return X if same else sparse.csr_array(own, shape=X.shape)


def _own(array: NDArray[Any]) -> NDArray[Any]:
    if next(memory_maps(array), None) is None:
        return array
    check_length(array)
    return np.array(array, order="K")


class StorageType(enum.Enum):
    """What a file declares about a column."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "true or false"
    UNKNOWN = "unknown"


class TableFormat(abc.ABC):
    """A file format for tables; final subclasses below."""

    @abc.abstractmethod
    def storage_types(self, path: Path | io.BytesIO) -> tuple[tuple[str, StorageType], ...]:
        """Return names and types of the columns, in order, from the file's head alone."""

    @abc.abstractmethod
    def read(self, path: Path | io.BytesIO, columns: Sequence[str]) -> Any:
        """Return some columns as a pyarrow.Table; a file without types gives text throughout."""

    @abc.abstractmethod
    def write(self, table: Any, path: Path | io.BytesIO) -> None:
        """Write a pyarrow.Table."""


@final
class _Csv(TableFormat):
    """Comma-separated text in UTF-8 with a header, compressed where the name ends in .gz."""

    def storage_types(self, path: Path | io.BytesIO) -> tuple[tuple[str, StorageType], ...]:
        import pyarrow as pa

        if isinstance(path, io.BytesIO):
            # A copy, as the stream below closes what it reads.
            path = io.BytesIO(path.getvalue())
        # Undecodable bytes further down must not matter: the header alone decides.
        with (
            pa.input_stream(path) as raw,
            io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="") as text,
        ):
            header = next(csv.reader(text), [])
        try:
            ",".join(header).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("the header is not text in UTF-8") from None
        return tuple((name, StorageType.UNKNOWN) for name in header)

    def read(self, path: Path | io.BytesIO, columns: Sequence[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        # A blank line is an empty cell where there is one column, as it is written; else nothing.
        alone = len(self.storage_types(path)) == 1
        try:
            return arrow_csv.read_csv(
                _WholeLineEnds(pa.input_stream(path)),
                parse_options=arrow_csv.ParseOptions(
                    newlines_in_values=True, ignore_empty_lines=not alone
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=list(columns),
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            cure = ". Save the file as UTF-8" if "invalid UTF8" in str(error) else ""
            if "straddling" in str(error):
                cure = ". A cell is longer than a block of 1 MiB: a quote is not closed, or the "
                cure += "text belongs into another file"
            raise ValueError(f"{_in_one_line(error)}{cure}") from error

    def write(self, table: Any, path: Path | io.BytesIO) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if isinstance(path, io.BytesIO):
            stream: Any = contextlib.nullcontext(path)
        else:
            stream = pa.output_stream(path, compression="detect")
        with stream as stream:
            arrow_csv.write_csv(table, stream, arrow_csv.WriteOptions(quoting_style="needed"))


@final
class _WholeLineEnds(io.RawIOBase):
    """A file of which no read ends between a carriage return and its line feed.

    pyarrow drops a line feed at the start of a block after a carriage return, also within quotes.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._kept = stream, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes, none of them only at the end."""
        found: bytes = self._kept + self._stream.read(size - len(self._kept) if size > 0 else None)
        self._kept = b""
        if size > 1 and len(found) == size and found.endswith(b"\r"):
            found, self._kept = found[:-1], b"\r"
        return found


@final
class _Parquet(TableFormat):
    """Apache Parquet."""

    def storage_types(self, path: Path | io.BytesIO) -> tuple[tuple[str, StorageType], ...]:
        from pyarrow import parquet

        return tuple((field.name, _arrow_type(field.type)) for field in parquet.read_schema(path))

    def read(self, path: Path | io.BytesIO, columns: Sequence[str]) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(path).read(columns=list(columns))

    def write(self, table: Any, path: Path | io.BytesIO) -> None:
        from pyarrow import parquet

        parquet.write_table(table, path)


_FORMATS: Mapping[str, TableFormat] = MappingProxyType(
    {".csv": _Csv(), ".csv.gz": _Csv(), ".parquet": _Parquet(), ".pq": _Parquet()}
)
SUFFIXES = tuple(_FORMATS)
"""File name endings that decide the format."""


@final
@dataclass(frozen=True, eq=False)
class PipedTable:
    """A CSV table that came through standard input; in memory, as a pipe can be read once."""

    content: bytes

    def __fspath__(self) -> str:
        return "standard input.csv"


def _source(path: str | os.PathLike[str]) -> Path | io.BytesIO:
    """Return what a table is read from."""
    if isinstance(path, PipedTable):
        return io.BytesIO(path.content)
    found = Path(path)
    if found.exists() and not found.is_file():
        raise ValueError(
            f"{found} must be a regular file, as it is read twice: copy the rows into one"
        )
    return found


def table_format(path: str | os.PathLike[str]) -> TableFormat:
    """Return the format that a file's name stands for, by its ending."""
    name = Path(path).name.lower()
    for suffix, found in _FORMATS.items():
        if name.endswith(suffix):
            return found
    raise ValueError(f"{os.fspath(path)}: the file's name must end in {', '.join(SUFFIXES)}")


def storage_types(path: str | os.PathLike[str]) -> dict[str, StorageType]:
    """Return the columns of a file, in order, with the types that it declares; CSV declares none.

    Privacy: no value is looked at, so the result depends on the header alone.
    """
    kind = table_format(path)
    with named_errors(path):
        found = kind.storage_types(_source(path))
        names = [name for name, _ in found]
        if not any(names):
            raise ValueError("the file names no columns: its first line must be a header")
        check_unique([name for name in names if name], "column")
        return dict(found)


def read_table(path: str | os.PathLike[str], columns: Sequence[str]) -> dict[str, Any]:
    """Read some columns of a file, in row order, for ``Schema.encode``; those of CSV hold text."""
    present = storage_types(path)
    with named_errors(path):
        spelled = check_present(columns, present)
        table = table_format(path).read(_source(path), list(dict.fromkeys(spelled.values())))
        if table.num_rows == 0:
            raise ValueError("the file has no rows")
        return {name: plain_column(table[spelled[name]]) for name in columns}


def check_present(columns: Sequence[str], present: Iterable[str]) -> dict[str, str]:
    """Check that a file has some columns, of those that are present; return how it spells them."""
    present = list(present)
    spelled = spelled_in(columns, present)
    lacking = [name for name in columns if name not in spelled]
    if lacking:
        other = next((one for one in ";\t|" if len(present) == 1 and one in present[0]), None)
        cure = "" if other is None else f". Separate its fields by commas, not by {other!r}"
        raise ValueError(
            f"there is no column {', '.join(map(repr, lacking))}; the file has "
            f"{', '.join(map(repr, present))}{cure}"
        )
    return spelled


def csv_text(columns: Mapping[str, Any]) -> bytes:
    """Return columns of equal length as a CSV file in UTF-8."""
    import pyarrow as pa

    stream = io.BytesIO()
    _Csv().write(pa.table(dict(columns)), stream)
    return stream.getvalue()


def write_table(columns: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write columns of equal length to a file, whose name decides the format."""
    import pyarrow as pa

    table_format(path).write(pa.table(dict(columns)), Path(path))


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors about a file's content into ValueErrors that name the file."""
    with in_file(path):
        try:
            yield
        except OSError as error:
            # pyarrow reports damage without an errno; other errors are about the disk.
            if error.errno is not None:
                raise
            raise ValueError(_in_one_line(error)) from error
        except ImportError:
            # Without pyarrow its error types are unknown.
            raise
        except _damages() as error:
            raise ValueError(_in_one_line(error)) from error


def _damages() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (csv.Error, pa.ArrowException)


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _arrow_type(kind: Any) -> StorageType:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _arrow_type(kind.value_type)
    if pa.types.is_boolean(kind):
        return StorageType.BOOLEAN
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return StorageType.NUMBER
    is_text = (pa.types.is_string(kind), pa.types.is_large_string(kind))
    return StorageType.TEXT if any(is_text) else StorageType.UNKNOWN
