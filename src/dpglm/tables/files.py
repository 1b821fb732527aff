"""Reading and writing tables: CSV and Parquet by pyarrow, never guessing a type from values."""

from __future__ import annotations

import abc
import contextlib
import csv
import enum
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

from dpglm._json import in_file
from dpglm.tables.cells import check_unique

__all__ = [
    "SUFFIXES",
    "StorageType",
    "named_errors",
    "read_table",
    "storage_types",
    "table_format",
    "write_table",
]


class StorageType(enum.Enum):
    """What a file says about a column before any of its values is read."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "true or false"
    UNKNOWN = "unknown"


class TableFormat(abc.ABC):
    """A file format for tables; final subclasses below."""

    @abc.abstractmethod
    def storage_types(self, path: Path) -> tuple[tuple[str, StorageType], ...]:
        """Return names and types of the columns, in order, from the file's head alone."""

    @abc.abstractmethod
    def read(self, path: Path, columns: Sequence[str]) -> Any:
        """Return some columns as a pyarrow.Table; a file without types gives text throughout."""

    @abc.abstractmethod
    def write(self, table: Any, path: Path) -> None:
        """Write a pyarrow.Table."""


@final
class _Csv(TableFormat):
    """Comma-separated text in UTF-8 with a header, compressed where the name ends in .gz."""

    def storage_types(self, path: Path) -> tuple[tuple[str, StorageType], ...]:
        import pyarrow as pa

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

    def read(self, path: Path, columns: Sequence[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        return arrow_csv.read_csv(
            path,
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=list(columns),
                strings_can_be_null=False,
            ),
        )

    def write(self, table: Any, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        with pa.output_stream(path, compression="detect") as stream:
            arrow_csv.write_csv(table, stream, arrow_csv.WriteOptions(quoting_style="needed"))


@final
class _Parquet(TableFormat):
    """Apache Parquet."""

    def storage_types(self, path: Path) -> tuple[tuple[str, StorageType], ...]:
        from pyarrow import parquet

        return tuple((field.name, _arrow_type(field.type)) for field in parquet.read_schema(path))

    def read(self, path: Path, columns: Sequence[str]) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(path).read(columns=list(columns))

    def write(self, table: Any, path: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(table, path)


_FORMATS: Mapping[str, TableFormat] = MappingProxyType(
    {".csv": _Csv(), ".csv.gz": _Csv(), ".parquet": _Parquet(), ".pq": _Parquet()}
)

SUFFIXES = tuple(_FORMATS)
"""File name endings that decide the format."""


def table_format(path: str | os.PathLike[str]) -> TableFormat:
    """Return the format that a file's name stands for.

    Parameters
    ----------
    path : path-like
        The file, which need not exist.

    Returns
    -------
    TableFormat

    Raises
    ------
    ValueError
        If the name has none of the endings in ``SUFFIXES``.
    """
    name = Path(path).name.lower()
    for suffix, found in _FORMATS.items():
        if name.endswith(suffix):
            return found
    raise ValueError(f"{os.fspath(path)}: the file's name must end in {', '.join(SUFFIXES)}")


def storage_types(path: str | os.PathLike[str]) -> dict[str, StorageType]:
    """Return the columns of a file with what the file declares about each.

    Parameters
    ----------
    path : path-like
        CSV or Parquet.

    Returns
    -------
    dict of str to StorageType
        In the order of the file. CSV declares no types: all are UNKNOWN.

    Raises
    ------
    ValueError
        If the file is damaged, has no columns or two of one name; the message names the file.
    OSError
        If the file cannot be read.

    Notes
    -----
    Privacy: no value is looked at, so the result depends on the header alone.
    """
    kind = table_format(path)
    with named_errors(path):
        found = kind.storage_types(Path(path))
        names = [name for name, _ in found]
        if not any(names):
            raise ValueError("the file names no columns: its first line must be a header")
        check_unique([name for name in names if name], "column")
        return dict(found)


def read_table(path: str | os.PathLike[str], columns: Sequence[str]) -> dict[str, Any]:
    """Read some columns of a file.

    Parameters
    ----------
    path : path-like
        CSV or Parquet.
    columns : sequence of str
        Names of the columns wanted, at least one.

    Returns
    -------
    dict of str to pyarrow.ChunkedArray
        The columns, ready for ``Schema.encode``. Those of a CSV file hold text, whatever is in
        them; in both formats rows keep their order.

    Raises
    ------
    ValueError
        If a column is missing, there are no rows, or the file is damaged.
    OSError
        If the file cannot be read.
    """
    present = storage_types(path)
    with named_errors(path):
        lacking = [name for name in columns if name not in present]
        if lacking:
            raise ValueError(
                f"there is no column {', '.join(map(repr, lacking))}; the file has "
                f"{', '.join(map(repr, present))}"
            )
        table = table_format(path).read(Path(path), columns)
        if table.num_rows == 0:
            raise ValueError("the file has no rows")
        return {name: _plain(table[name]) for name in columns}


def write_table(columns: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write columns to a file.

    Parameters
    ----------
    columns : mapping of str to array
        The columns, of equal length.
    path : path-like
        The file; its name decides the format.

    Raises
    ------
    ValueError
        If the name stands for no format.
    OSError
        If the file cannot be written.
    """
    import pyarrow as pa

    table_format(path).write(pa.table(dict(columns)), Path(path))


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in every error about a file's content which file is meant, as a ValueError.

    Parameters
    ----------
    path : path-like
        The file.
    """
    with in_file(path):
        try:
            yield
        except OSError as error:
            # Of a damaged file pyarrow says so without an errno; all else is about the disk.
            if error.errno is not None:
                raise
            raise ValueError(_in_one_line(error)) from error
        except ImportError:
            # Without pyarrow it is not known what its errors are.
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


def _plain(column: Any) -> Any:
    """Write out a dictionary-encoded column (pandas calls it categorical)."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
