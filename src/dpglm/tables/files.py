"""Reading and writing CSV files, of any dialect, and Parquet files, without guessing types."""

from __future__ import annotations

import codecs
import contextlib
import csv
import enum
import io
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._json import in_file
from dpglm._words import did_you_mean
from dpglm.tables.cells import as_cells, check_unique, listed, plain_column, spelled_in
from dpglm.tables.databases import Address

Source: TypeAlias = Path | io.BytesIO
_MARK = codecs.BOM_UTF8
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n?')
_THOUSANDS = (None, ",", ".", "'", "\u2019", " ", "\u00a0", "\u202f", "_")
_AT_ONCE = 1 << 18
PACKED = ("", ".gz", ".zst", ".zip")
"""Endings of the names of compressed files."""


@final
@dataclass(frozen=True)
class Dialect:
    """The form of a CSV file: characters between cells and in numbers, and encoding of text.

    The default ``separator`` is that of a line ``sep=;`` at the start of the file, a tabulator for
    names with ``.tsv``, and else a comma. There are no ``thousands`` separators by default.
    """

    separator: str | None = None
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"

    omits_defaults: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one = self.separator
        if one is not None and (len(one) != 1 or one in '"\r\n'):
            raise ValueError(f"separator must be one character, such as ';', got {one!r}")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}")
        if self.thousands not in _THOUSANDS or self.thousands == self.decimal:
            raise ValueError(
                f"thousands must be another character than decimal, such as '.' or a blank, got "
                f"{self.thousands!r}"
            )
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError):
            raise ValueError(
                f"encoding must be a text encoding of Python, such as 'latin-1', got "
                f"{self.encoding!r}"
            ) from None

    def numbers(self, values: Any, name: str) -> Any:
        """Return cells of a column of numbers with decimal points; other text is an error.

        Privacy: each cell is read by itself.
        """
        if self.decimal == "." and self.thousands is None:
            return values
        cells = as_cells(values, f"column {name!r}")
        found: NDArray[Any] = np.empty(len(cells), dtype=object)
        for row, cell in enumerate(cells.tolist()):
            text = cell.strip()
            if self._number.fullmatch(text) is None and not text.isalpha() and text:
                raise ValueError(
                    f"column {name!r}, row {row + 1}: {cell!r} is not a number with "
                    f"{self._in_words}: correct the cell, or the form of numbers (--decimal, "
                    '--thousands; "csv" in the schema)'
                )
            found[row] = text.replace(self.thousands or "", "").replace(self.decimal, ".")
        return found

    @property
    def _number(self) -> re.Pattern[str]:
        mark, point = re.escape(self.thousands or ""), re.escape(self.decimal)
        whole = rf"(\d{{1,3}}({mark}\d{{3}})+|\d+)" if mark else r"\d+"
        return re.compile(rf"[+-]?({whole}({point}\d*)?|{point}\d+)([eE][+-]?\d+)?")

    @property
    def _in_words(self) -> str:
        apart = "" if self.thousands is None else f" and thousands apart by {self.thousands!r}"
        return f"decimals after {self.decimal!r}{apart}"


@contextlib.contextmanager
def opened(path: Source, encoding: str) -> Iterator[Any]:
    """Open a file that may be compressed, as UTF-8 without a byte order mark."""
    import pyarrow as pa

    with contextlib.ExitStack() as closing:
        raw: Any
        if isinstance(path, io.BytesIO):
            raw = io.BytesIO(path.getvalue())
        elif path.name.lower().endswith(".zip"):
            archive = closing.enter_context(zipfile.ZipFile(path))
            names = [one for one in archive.namelist() if not one.endswith("/")]
            if len(names) != 1:
                raise ValueError(f"the archive must contain one file, got {len(names)}")
            raw = closing.enter_context(archive.open(names[0]))
        else:
            raw = closing.enter_context(pa.input_stream(path))
        yield _Decoded(raw, encoding)


@final
class _Decoded(io.RawIOBase):
    """Bytes of a file in UTF-8, whatever its encoding, without its byte order mark.

    No read ends between a carriage return and its line feed: pyarrow drops a line feed at the start
    of a block after a carriage return, also within quotes.
    """

    def __init__(self, raw: Any, encoding: str) -> None:
        self._raw, self._ready = raw, b""
        self._decoder = codecs.getincrementaldecoder(encoding)()
        start = raw.read(len(_MARK))
        # Text of some other encoding may follow a mark of UTF-8.
        self._rest, self._ended = b"" if start == _MARK else start, False
        self._is_utf8 = codecs.lookup(encoding).name == "utf-8"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, for a text wrapper."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; an empty result marks the end."""
        while not self._ended and (size < 0 or len(self._ready) < size):
            more = self._rest + self._raw.read(_AT_ONCE)
            self._rest, self._ended = b"", not more
            # UTF-8 is checked where it is used: bytes in other columns do not matter.
            self._ready += more if self._is_utf8 else self._recoded(more)
        stop = len(self._ready) if size < 0 else size
        stop -= 1 < size <= len(self._ready) and self._ready[size - 1 : size] == b"\r"
        found, self._ready = self._ready[:stop], self._ready[stop:]
        return found

    def _recoded(self, more: bytes) -> bytes:
        try:
            text = self._decoder.decode(more, final=not more)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"the file is not text in the stated encoding, {error.encoding}: {error.reason}"
            ) from error
        return text.lstrip("\ufeff").encode()


@final
@dataclass(frozen=True)
class Csv:
    """Text with a header, in a dialect."""

    dialect: Dialect = Dialect()
    usual: str = ","

    def types(self, path: Source) -> tuple[tuple[str, Any], ...]:
        """Return names of the columns, in order, from the header, with unknown types."""
        return tuple((name, None) for name in self._header(path)[0])

    def _header(self, path: Source) -> tuple[list[str], str, int]:
        """Return names of the columns, the separator, and the number of lines before the header."""
        separator, before = self.dialect.separator, 0
        # Undecodable bytes after the header must not matter.
        with (
            opened(path, self.dialect.encoding) as raw,
            io.TextIOWrapper(raw, "utf-8", "surrogateescape", newline="") as text,
        ):
            first = text.readline()
            stated = _SEPARATOR_LINE.fullmatch(first)
            if stated is not None:
                before, separator = 1, separator or stated[1]
                first = ""
            separator = separator or self.usual
            lines = (line for line in (first, *iter(text.readline, "")) if line)
            names = next(csv.reader(lines, delimiter=separator), [])
        try:
            "".join(names).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(
                "the header is not text in UTF-8: state its encoding (--encoding latin-1, or "
                '"csv": {"encoding": "latin-1"} in the schema)'
            ) from None
        return names, separator, before

    def read(self, path: Source, columns: Sequence[str]) -> Any:
        """Return some columns as a pyarrow.Table of text."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        names, separator, before = self._header(path)
        try:
            with opened(path, self.dialect.encoding) as stream:
                return arrow_csv.read_csv(
                    stream,
                    read_options=arrow_csv.ReadOptions(skip_rows=before),
                    parse_options=arrow_csv.ParseOptions(
                        delimiter=separator,
                        newlines_in_values=True,
                        # In a file with one column a blank line is an empty cell.
                        ignore_empty_lines=len(names) > 1,
                    ),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types=dict.fromkeys(columns, pa.string()),
                        include_columns=list(columns),
                        strings_can_be_null=False,
                    ),
                )
        except pa.ArrowInvalid as error:
            cure = ""
            if "invalid UTF8" in str(error):
                cure = ". Save the file as UTF-8, or state its encoding (--encoding latin-1)"
            if "straddling" in str(error):
                cure = ". A cell is longer than 1 MiB: close its quote, or move the text to "
                cure += "another file"
            raise ValueError(f"{' '.join(str(error).split())}{cure}") from error

    def write(self, table: Any, path: Source) -> None:
        """Write a pyarrow.Table."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if isinstance(path, io.BytesIO):
            stream: Any = contextlib.nullcontext(path)
        elif path.name.lower().endswith(".zip"):
            raise ValueError("results cannot be written to an archive: name a .csv or .csv.gz file")
        else:
            stream = pa.output_stream(path, compression="detect")
        options = arrow_csv.WriteOptions(quoting_style="needed", delimiter=self.usual)
        with stream as stream:
            arrow_csv.write_csv(table, stream, options)


class StorageType(enum.Enum):
    """The type that a file declares for a column."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "true or false"
    DATE = "date"
    DURATION = "duration"
    UNKNOWN = "unknown"


@final
@dataclass(frozen=True)
class _Format:
    """Functions for other sources of tables, like the methods of ``Csv``."""

    types: Callable[[Source], tuple[tuple[str, Any], ...]]
    read: Callable[[Source, Sequence[str]], Any]
    write: Callable[[Any, Source], None]


def _parquet() -> Any:
    from pyarrow import parquet

    return parquet


def _typed(kinds: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(zip(kinds.names, kinds.types, strict=True))


_PARQUET = _Format(
    lambda path: _typed(_parquet().read_schema(path)),
    lambda path, columns: _parquet().ParquetFile(path).read(columns=list(columns)),
    lambda table, path: _parquet().write_table(table, path),
)


def _database(address: Address) -> _Format:
    def write(table: Any, path: Source) -> None:
        raise ValueError(f"{address}: results must go to a file, such as results.csv")

    return _Format(
        lambda path: _typed(address.query.schema()),
        lambda path, columns: address.read(columns),
        write,
    )


TableFormat: TypeAlias = Csv | _Format
_FORMATS: Mapping[str, TableFormat] = MappingProxyType(
    {
        **{f".csv{packed}": Csv() for packed in PACKED},
        **{f".tsv{packed}": Csv(usual="\t") for packed in PACKED},
        ".parquet": _PARQUET,
        ".pq": _PARQUET,
    }
)
SUFFIXES = tuple(_FORMATS)
"""File name endings of the formats."""


@final
@dataclass(frozen=True, eq=False)
class PipedTable:
    """A CSV table from standard input, in memory."""

    content: bytes

    def __fspath__(self) -> str:
        return "standard input.csv"


def _source(path: str | os.PathLike[str]) -> Source:
    """Return the source of a table."""
    if isinstance(path, PipedTable):
        return io.BytesIO(path.content)
    found = Path(path)
    if found.exists() and not found.is_file():
        raise ValueError(
            f"{found} must be a regular file, since it is read twice: copy the rows into one"
        )
    return found


def table_format(path: str | os.PathLike[str], dialect: Dialect | None = None) -> TableFormat:
    """Return the format of a file by the ending of its name, or of an address."""
    address = Address.of(path)
    if address is not None:
        return _database(address)
    name = Path(path).name.lower()
    for suffix, found in _FORMATS.items():
        if name.endswith(suffix):
            return Csv(dialect, found.usual) if dialect and isinstance(found, Csv) else found
    raise ValueError(f"{os.fspath(path)}: the file's name must end in {', '.join(SUFFIXES)}")


def storage_types(
    path: str | os.PathLike[str], dialect: Dialect | None = None
) -> dict[str, StorageType]:
    """Return the columns of a file, in order, with their declared types; CSV declares none.

    Privacy: the result depends on the header alone.
    """
    kind = table_format(path, dialect)
    with named_errors(path):
        found = kind.types(_source(path))
        names = [name for name, _ in found]
        if not any(names):
            raise ValueError("the file names no columns: its first line must be a header")
        check_unique([name for name in names if name], "column")
        return {name: _arrow_type(one) for name, one in found}


def read_table(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    dialect: Dialect | None = None,
    numbers: Collection[str] = (),
) -> dict[str, Any]:
    """Read some columns of a file for ``Schema.encode``; columns of CSV contain text.

    ``numbers`` names columns of numbers, which a CSV file has in the form of its dialect.
    """
    present, kind = storage_types(path, dialect), table_format(path, dialect)
    with named_errors(path):
        spelled = check_present(columns, present)
        table = kind.read(_source(path), list(dict.fromkeys(spelled.values())))
        if table.num_rows == 0:
            raise ValueError("the file must have rows, got none")
        found = {name: plain_column(table[spelled[name]]) for name in columns}
        if isinstance(kind, Csv):
            found |= {n: kind.dialect.numbers(found[n], n) for n in numbers if n in found}
        return found


def check_present(columns: Sequence[str], present: Iterable[str]) -> dict[str, str]:
    """Check that columns are present in a file, and return its spelling of them."""
    present = list(present)
    spelled = spelled_in(columns, present)
    lacking = [name for name in columns if name not in spelled]
    if lacking:
        raise ValueError(
            f"there is no column {listed(lacking)}; the file has "
            f"{', '.join(map(repr, present))}{did_you_mean(lacking[0], present)}"
            f"{separator_cure(present)}"
        )
    return spelled


def separator_cure(names: Sequence[str]) -> str:
    """Return the remedy for a header with another separator; empty for other headers."""
    separator = next((one for one in ";\t|" if len(names) == 1 and one in names[0]), None)
    if separator is None:
        return ""
    shown = "tab" if separator == "\t" else separator
    return (
        f". Its cells seem to be apart by {separator!r}: state it (--separator '{shown}', or "
        f'"csv": {{"separator": "{separator}"}} in the schema)'
    ).replace("\t", "\\t")


def csv_text(columns: Mapping[str, Any]) -> bytes:
    """Return columns of equal length as a CSV file in UTF-8."""
    import pyarrow as pa

    stream = io.BytesIO()
    Csv().write(pa.table(dict(columns)), stream)
    return stream.getvalue()


def write_table(columns: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write columns of equal length to a file in the format of its name."""
    import pyarrow as pa

    table_format(path).write(pa.table(dict(columns)), Path(path))


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors about a file's content into ValueErrors that name the file."""
    with in_file(path):
        try:
            yield
        except OSError as error:
            # pyarrow reports damage without an errno; others are errors of the disk.
            if error.errno is not None:
                raise
            raise ValueError(_in_one_line(error)) from error
        except ImportError:
            raise  # _damages needs pyarrow
        except _damages() as error:
            raise ValueError(_in_one_line(error)) from error


def _damages() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (csv.Error, zipfile.BadZipFile, pa.ArrowException)


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


_TESTS: tuple[tuple[str, StorageType], ...] = (
    ("boolean", StorageType.BOOLEAN),
    *((one, StorageType.NUMBER) for one in ("integer", "floating", "decimal")),
    *((one, StorageType.DURATION) for one in ("duration", "interval", "time")),
    ("temporal", StorageType.DATE),
    *((one, StorageType.TEXT) for one in ("string", "large_string")),
)
"""Tests of pyarrow.types by name; the first that holds decides."""


def _arrow_type(kind: Any) -> StorageType:
    import pyarrow as pa

    if kind is None:
        return StorageType.UNKNOWN
    if pa.types.is_dictionary(kind):
        return _arrow_type(kind.value_type)
    found = (one for test, one in _TESTS if getattr(pa.types, f"is_{test}")(kind))
    return next(found, StorageType.UNKNOWN)
