"""CSV files and their dialects: separators, decimal commas, encodings, compression."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.cells import as_cells

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
    """The form of a CSV file.

    Parameters
    ----------
    separator : str, optional
        Character between cells; by default that of a line ``sep=;`` at the start of the file, a
        tabulator for names with ``.tsv``, and else a comma.
    decimal : {".", ","}, default="."
        Decimal point of numbers.
    thousands : str, optional
        Separator of thousands, such as ``"."`` in 1.234,5; by default there is none.
    encoding : str, default="utf-8"
        Encoding of text, as in Python, such as ``"latin-1"``.
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
            raw = closing.enter_context(_only_member(path, closing))
        else:
            raw = closing.enter_context(pa.input_stream(path))
        yield _WholeLineEnds(_Decoded(raw, encoding))


def _only_member(path: Path, closing: contextlib.ExitStack) -> IO[bytes]:
    archive = closing.enter_context(zipfile.ZipFile(path))
    names = [one for one in archive.namelist() if not one.endswith("/")]
    if len(names) != 1:
        raise ValueError(f"the archive must contain one file, got {len(names)}")
    return archive.open(names[0])


@final
class _Decoded(io.RawIOBase):
    """Bytes of a file in UTF-8, whatever its encoding, without its byte order mark."""

    def __init__(self, raw: Any, encoding: str) -> None:
        self._raw, self._ready = raw, b""
        self._decoder = codecs.getincrementaldecoder(encoding)()
        start = raw.read(len(_MARK))
        # Text of some other encoding may follow a mark of UTF-8.
        self._rest, self._ended = b"" if start == _MARK else start, False
        self._is_utf8 = codecs.lookup(encoding).name == "utf-8"

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes."""
        while not self._ended and (size < 0 or len(self._ready) < size):
            more = self._rest + self._raw.read(_AT_ONCE)
            self._rest, self._ended = b"", not more
            # UTF-8 is checked where it is used: bytes in other columns do not matter.
            self._ready += more if self._is_utf8 else self._recoded(more)
        size = len(self._ready) if size < 0 else size
        found, self._ready = self._ready[:size], self._ready[size:]
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
class _WholeLineEnds(io.RawIOBase):
    """A file in which no read ends between a carriage return and its line feed.

    pyarrow drops a line feed at the start of a block after a carriage return, also within quotes.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._kept = stream, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; an empty result marks the end."""
        wanted = size - len(self._kept) if size > 0 else -1
        found: bytes = self._kept + self._stream.read(wanted)
        self._kept = b""
        if size > 1 and len(found) == size and found.endswith(b"\r"):
            found, self._kept = found[:-1], b"\r"
        return found

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, for a text wrapper."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


@final
@dataclass(frozen=True)
class _Header:
    names: list[str]
    separator: str
    lines_before: int


@final
@dataclass(frozen=True)
class Csv:
    """Text with a header, in a dialect."""

    dialect: Dialect = Dialect()
    usual: str = ","

    def types(self, path: Source) -> tuple[tuple[str, Any], ...]:
        """Return names of the columns, in order, from the header, with unknown types."""
        return tuple((name, None) for name in self._header(path).names)

    def numbers(self, values: Any, name: str) -> Any:
        """Return the cells of a column of numbers with decimal points."""
        return self.dialect.numbers(values, name)

    def _header(self, path: Source) -> _Header:
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
        return _Header(names, separator, before)

    def read(self, path: Source, columns: Sequence[str]) -> Any:
        """Return some columns as a pyarrow.Table of text."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        header = self._header(path)
        # A blank line is an empty cell in a file with one column, and ignored in others.
        alone = len(header.names) == 1
        try:
            with opened(path, self.dialect.encoding) as stream:
                return arrow_csv.read_csv(
                    stream,
                    read_options=arrow_csv.ReadOptions(skip_rows=header.lines_before),
                    parse_options=arrow_csv.ParseOptions(
                        delimiter=header.separator,
                        newlines_in_values=True,
                        ignore_empty_lines=not alone,
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
