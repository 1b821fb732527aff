"""Cells of one table column: read as numbers, or looked up in a public list of values."""

from __future__ import annotations

import datetime
import functools
import math
import numbers
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm._validation import as_host, namespace
from dpglm._words import did_you_mean

NUMBER_KINDS = "biuf"
"""Kinds of NumPy's real number types."""
MISSING_CURE = (
    "Replace missing values by a fixed number, chosen without looking at the data (in a schema "
    'column: "missing": NUMBER), list "" as a category (SchemaEncoder), or give where=, False for '
    "such rows. Dropping these rows would publish their number, which where= keeps private. An "
    "imputer that was fitted to private rows would leak them"
)
"""Remedies for a missing value without privacy cost."""
WHOSE_CURE = (
    "The group id is missing: fill it in, or drop the row if the number of such rows may be public"
)
"""Remedy for a row without a group id, which would otherwise count as another person."""
_INFINITE_CURE = "Replace it by a finite number, by a rule that looks at each row alone"
_CHECKED_AT_ONCE = 1 << 20
"""Entries."""
CONDITION: ContextVar[Any] = ContextVar("CONDITION", default=None)
"""Truth for each row of the user's table, where a condition selects those that are read."""


def row_name(row: int) -> str:
    """Return the number of a row in the user's table, for errors; the first row is row 1."""
    truth = CONDITION.get()
    return f"row {1 + int(row if truth is None else np.flatnonzero(truth)[row])}"


def unmasked(name: str, values: Any) -> Any:
    """Return a masked array without masked entries as a plain one, and other values unchanged."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    masked = int(np.ma.getmaskarray(values).sum())
    if masked:
        raise ValueError(
            f"{name} must not have masked entries, got {masked}: replace them by a fixed number, "
            "or give where=, False for such rows"
        )
    return np.asarray(values)


_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
# Type names in NumPy, pandas, polars and pyarrow, such as timedelta64, Duration, date32.
_DATED = re.compile("date|time|duration|period|month_day_nano")
_DATE_NAMES = frozenset({"Period", "MonthDayNano", "DateOffset"})


def is_date(cell: Any) -> bool:
    """Return whether a cell is a date, time or duration, possibly missing."""
    return _is_dated(type(cell))


def _is_dated(kind: type) -> bool:
    return (issubclass(kind, _DATES) and kind.__name__ != "NaTType") or kind.__name__ in _DATE_NAMES


def dates(what: str) -> ValueError:
    """Return the error about dates, times and durations where numbers or labels are expected."""
    return ValueError(
        f"{what} must not contain dates, times or durations without a schema that declares them "
        '("type": "date" or "duration"): add one, or turn them into numbers, such as days since a '
        "fixed day"
    )


def check_no_dates(what: str, kind: Any) -> None:
    """Refuse a type, given by its name in its library, of dates, times or durations."""
    if _DATED.match(str(kind).lower()):
        raise dates(what)


def check_no_date_cells(what: str, array: NDArray[Any]) -> None:
    """Refuse an array that contains dates, times or durations."""
    cells: set[type] = set(map(type, array.flat)) if array.dtype.kind == "O" else set()
    if array.dtype.kind in "Mm" or any(map(_is_dated, cells)):
        raise dates(what)


def column_in_words(names: Sequence[str] | NDArray[Any] | None, column: int) -> str:
    """Name a column in messages by its name, or by its number from 1.

    >>> column_in_words(["age", "pay"], 1), column_in_words(None, 1)
    ("column 'pay'", 'column 2')
    """
    return f"column {column + 1}" if names is None else f"column {str(names[column])!r}"


column_by_number: Callable[[int], str] = functools.partial(column_in_words, None)
"""Names a column by its number."""


def not_finite(value: float, row: int | None, column: str) -> ValueError:
    """Return the error about a feature that is NaN or infinite; ``row`` counts from 0."""
    where = column if row is None else f"{row_name(row)}, {column}"
    if np.isnan(value):
        return ValueError(f"X must be finite, got NaN in {where}. {MISSING_CURE}")
    what = "infinity" if value > 0.0 else "-infinity"
    return ValueError(f"X must be finite, got {what} in {where}. {_INFINITE_CURE}")


def check_finite(
    X: Any, name: Callable[[int], str] = column_by_number, first_row: int | None = 0
) -> Any:
    """Return features if all are finite; the error names the row, the column and the remedy.

    ``name`` maps a column's number to its name in messages; ``first_row`` is None for unknown row
    numbers.

    Privacy: the error and its message depend on rows and are for their holder only.
    """
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        where = np.flatnonzero(~np.isfinite(X.data))[:1]
        row, column = np.searchsorted(X.indptr, where, side="right") - 1, X.indices[where]
        values = X.data[where]
    else:
        row, column, values = _first_in_dense(X)
    if not len(values):
        return X
    at = None if first_row is None else first_row + int(row[0])
    raise not_finite(float(values[0]), at, name(int(column[0])))


def _first_in_dense(X: Any) -> tuple[Any, Any, Any]:
    """Return row, column and value of the first entry that is not finite, if any."""
    xp = namespace(X)
    # The sum is not finite with NaN or infinity, and possibly by overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        if xp.isfinite(xp.sum(X)):
            return (), (), ()
    step = max(1, _CHECKED_AT_ONCE // X.shape[1])
    for start in range(0, X.shape[0], step):
        block = X[start : start + step]
        finite = xp.isfinite(block)
        if not xp.all(finite):
            row, column = np.argwhere(~as_host(finite))[0]
            return (start + row,), (column,), (float(block[int(row), int(column)]),)
    return (), (), ()


T = TypeVar("T")
Entry: TypeAlias = str | int | float | bool
"""A JSON value that a cell can equal."""
_OBJECT_KINDS = "OUT"
_TRUTH = {"true": True, "false": False}
_SHOWN = 12
LARGEST_WHOLE = 2**53 - 1
"""Whole numbers up to this magnitude have distinct float64 values."""


def normal(text: str) -> str:
    """Return text for comparisons: in Unicode's NFC, without surrounding blanks.

    It applies to categories, labels, group ids and column names.

    >>> normal("cafe\N{COMBINING ACUTE ACCENT} ") == normal(
    ...     "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    ... )
    True
    """
    return composed(text).strip()


def composed(text: str) -> str:
    """Return text in Unicode's NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def by_normal_name(names: Iterable[Any]) -> dict[Any, list[Any]]:
    """Return column names by their normal form."""
    found: dict[Any, list[Any]] = {}
    for name in names:
        found.setdefault(normal(name) if isinstance(name, str) else name, []).append(name)
    return found


def spelled_in(names: Iterable[str], present: Iterable[Any]) -> dict[str, Any]:
    """Return a table's spelling of the column names that it has; refuse ambiguous names."""
    known, found = by_normal_name(present), {}
    for name in names:
        same = known.get(normal(name), [])
        if len(same) > 1:
            raise ValueError(
                f"the table must have one column {name!r}, got {len(same)}: "
                f"{', '.join(map(repr, same))}"
            )
        if same:
            found[name] = same[0]
    return found


def plain_column(column: Any) -> Any:
    """Write out a column of pyarrow that is dictionary-encoded (categorical), or views of texts."""
    import pyarrow as pa

    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def plain_array(values: Any) -> NDArray[Any]:
    """Return a NumPy array in which missing cells stay missing."""
    if isinstance(values, np.ndarray | list | tuple):
        return np.asarray(values)
    from narwhals import dependencies

    arrow = dependencies.get_pyarrow()
    if arrow is None or not isinstance(values, arrow.Array | arrow.ChunkedArray):
        return np.asarray(values)
    if arrow.types.is_interval(values.type):
        return np.fromiter(values.to_pylist(), dtype=object, count=len(values))
    # NumPy would take another row's value for a missing cell of an encoded column.
    array: NDArray[Any] = plain_column(values).to_numpy(zero_copy_only=False)
    return array


def as_cells(values: ArrayLike, what: str) -> NDArray[Any]:
    """Return a column's values as an array with one axis; ``what`` names the column in errors.

    Privacy: lists become arrays of objects. NumPy would convert all cells to one type, so that text
    in one row would turn the numbers of other rows into text.
    """
    values = unmasked(what, values)
    if isinstance(values, (list, tuple)):
        return np.fromiter(values, dtype=object, count=len(values))
    cells = plain_array(values)
    if cells.ndim != 1:
        raise ValueError(f"{what} must have one value per row, got shape {cells.shape}")
    return cells


def as_numbers(values: ArrayLike, what: str, missing: float | None = None) -> NDArray[np.float64]:
    """Read a column's cells as finite float64 numbers.

    Text may spell numbers with digits 0 to 9 (``1_0`` is refused); ``nan`` is missing, ``inf``
    infinite. Missing cells become ``missing``, if given. Errors name the column, the row and the
    remedy.
    """
    cells = as_cells(values, what)
    if cells.dtype.kind in NUMBER_KINDS:
        numbers = cells.astype(np.float64)
    elif cells.dtype.kind in _OBJECT_KINDS:
        try:
            numbers = _plain(cells).astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.array(
                [_number(cell, row, what) for row, cell in enumerate(cells.tolist())]
            )
    elif cells.dtype.kind in "Mm":
        raise dates(what)
    else:
        raise ValueError(
            f"{what} must contain numbers, as its schema states, got type {cells.dtype}: turn the "
            "values into numbers first"
        )
    gaps = np.isnan(numbers)
    if gaps.any():
        if missing is None:
            raise ValueError(
                f"{what}, {row_name(int(gaps.argmax()))}: the value is missing. {MISSING_CURE}"
            )
        numbers[gaps] = missing
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"{what}, {row_name(int(infinite.argmax()))}: the value is infinite. Replace it by a "
            "finite number"
        )
    return numbers


@final
@dataclass(frozen=True)
class Vocabulary:
    """A public list of the values that a column may hold.

    At least two distinct entries: all text, all numbers or all bool; the text ``""`` in any list
    means "missing". Text is compared in its ``normal`` form. Numbers and bool are compared by their
    float64 value, up to ``LARGEST_WHOLE``, in any spelling.

    Privacy: the position of a cell depends on that cell alone, not on the column's type, which
    other cells determine. Numbers among texts are therefore an error: ``pandas.read_csv`` reads
    "01" and "1" as numbers until one row contains a word.

    >>> Vocabulary(("no", "yes")).positions(["yes", "no", " yes"], "column 'x'", "Correct it")
    array([1, 0, 1])
    >>> Vocabulary((1, 2, "")).positions([None, "2", 1.0], "column 'x'", "Correct it")
    array([2, 1, 0])
    """

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        entries = self.entries
        kinds = {_kind(entry) for entry in entries if entry != ""}
        if len(entries) < 2 or len(kinds) != 1 or "other" in kinds:
            raise ValueError(
                "must list at least two values, all text or all numbers or all true/false, got "
                f"({listed(entries)})"
            )
        for entry in entries:
            if isinstance(entry, str) and entry and not normal(entry):
                raise ValueError(f'must write a missing value as "", got {entry!r}')
            if not isinstance(entry, str) and abs(entry) > LARGEST_WHOLE:
                raise ValueError(
                    f"must list numbers of magnitude below 2^53, got {entry!r}: larger ones are "
                    "not distinct. List them as text, and read the column as text"
                )
        values = [_value(entry) for entry in entries]
        if len(set(values)) < len(values):
            repeated = next(entries[i] for i, value in enumerate(values) if value in values[:i])
            raise ValueError(
                f"must list each value once, but {repeated!r} occurs twice (blanks around text "
                "and Unicode composition are ignored)"
            )

    def positions(
        self, values: ArrayLike, what: str, cure: str, other: int | None = None
    ) -> NDArray[np.intp]:
        """Return each cell's position in ``entries``, and ``other`` for unlisted cells.

        Blanks around text are ignored, and text may spell a number. Without ``other`` an unlisted
        cell is an error, which names the column, the row, the cell and the remedy. A cell that is
        not text among texts is always an error.
        """
        cells = as_cells(values, what).tolist()
        places: dict[Entry | None, int | None]
        places = {_value(entry): i for i, entry in enumerate(self.entries)}
        seen: dict[Hashable, int] = {}
        positions = np.empty(len(cells), dtype=np.intp)
        for row, cell in enumerate(cells):
            try:
                position = seen.get(cell)
            except TypeError:
                raise ValueError(
                    f"{what}, {row_name(row)}: a {type(cell).__name__} is not a single value"
                ) from None
            if position is None:
                position = places.get(self._spelled(cell, row, what), other)
                if position is None:
                    raise ValueError(f"{self._unknown(cell, row, what)}. {cure}")
                seen[cell] = position
            positions[row] = position
        return positions

    def _spelled(self, cell: Any, row: int, what: str) -> Entry | None:
        """Return the entry that a cell would equal: "" if it is missing, None if it has none."""
        if is_missing(cell):
            return ""
        if isinstance(next(entry for entry in self.entries if entry != ""), str):
            if not isinstance(cell, str):
                kind = "number" if _kind(cell) == "number" else type(cell).__name__
                raise ValueError(
                    f"{what}, {row_name(row)}: the data contain the {kind} {cell!r}, but the "
                    "schema lists texts. Read the column as text (pandas: dtype=str), or list "
                    "numbers, or true and false, without quotes in the schema"
                )
            return normal(cell)
        if isinstance(cell, str):
            cell = _TRUTH.get(cell.strip().lower(), cell)
        number = _number_or_none(cell)
        return "" if number is not None and math.isnan(number) else number

    def _unknown(self, cell: Any, row: int, what: str) -> str:
        where = f"{what}, {row_name(row)}"
        if is_missing(cell):
            return f"{where}: the value is missing"
        hint = did_you_mean(cell, self.entries)
        return f"{where}: {cell!r} is not in the schema's list ({listed(self.entries)}){hint}"


def check_unique(names: Sequence[str], kind: str) -> None:
    """Check that names are distinct; ``kind`` is the named thing in the error."""
    repeated = next((same for same in by_normal_name(names).values() if len(same) > 1), None)
    if repeated is not None:
        raise ValueError(f"each {kind} must have its own name, but {repeated[-1]!r} is repeated")


def _plain(cells: NDArray[Any]) -> NDArray[Any]:
    """Return cells as objects if NumPy reads all of them as ``as_float`` and ``_float`` would."""
    plain = cells.astype(object)
    kinds, allowed = set(map(type, plain.tolist())), (*_REAL, str, bytes, type(None))
    if np.timedelta64 in kinds or not all(issubclass(kind, allowed) for kind in kinds):
        raise TypeError("cells that are neither numbers nor missing")
    found: list[Any] = [cell for cell in plain.tolist() if isinstance(cell, (str, bytes))]
    texts = "".join(found)
    if "_" in texts or not texts.isascii():
        raise ValueError("digits of other kinds, or between underscores")
    return plain


def _float(text: str | bytes) -> float:
    """Read a number in ASCII digits without underscores; "nan" and "inf" are accepted."""
    spelled = text if isinstance(text, str) else text.decode("ascii")
    if "_" in spelled or not spelled.isascii():
        raise ValueError
    return float(spelled)


_WITH_COMMA = re.compile(r"[+-]?[\d. ]*,\d+")
_COMMA_CURE = (
    'If decimals follow a comma, state the form of the file (--decimal \',\'; "csv": {"decimal": '
    '","} in the schema). '
)


def _number(cell: Any, row: int, what: str) -> float:
    if is_missing(cell):
        return math.nan
    if is_date(cell):
        raise dates(f"{what}, {row_name(row)},")
    number = _number_or_none(cell)
    if number is None:
        comma = isinstance(cell, str) and _WITH_COMMA.fullmatch(cell.strip()) is not None
        cure = _COMMA_CURE if comma else ""
        raise ValueError(
            f"{what}, {row_name(row)}: {cell!r} is not a number, but the column is numeric in the "
            f"schema. {cure}Correct the cell (leave it empty if the value is missing), or declare "
            "the column as categorical"
        )
    return number


def _number_or_none(cell: Any) -> float | None:
    try:
        return _float(cell) if isinstance(cell, (str, bytes)) else as_float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


# float() also accepts durations, and arrays with one entry.
_REAL = (numbers.Real, Decimal, np.bool_)


def as_float(cell: Any) -> float:
    """Return a real number as a float; anything else is a TypeError or OverflowError."""
    if not isinstance(cell, _REAL) or is_date(cell):
        raise TypeError(f"a {type(cell).__name__} is not a number")
    return float(cell)


def is_missing(cell: Any) -> bool:
    """Return whether a cell is missing: None, NaN, NaT, pandas.NA or blank text."""
    if isinstance(cell, str):
        return not cell.strip()
    if cell is None or type(cell).__name__ == "NAType":
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    # NaN and NaT do not equal themselves; lists and arrays are values.
    same = cell == cell
    return isinstance(same, bool | np.bool_) and not same


def _kind(entry: Any) -> str:
    if isinstance(entry, bool):
        return "bool"
    if isinstance(entry, str):
        return "text"
    number = _number_or_none(entry) if isinstance(entry, (int, float)) else None
    return "other" if number is None or not math.isfinite(number) else "number"


def _value(entry: Entry) -> Entry:
    """Return the key of an entry in comparisons: its normal text, or its float64 value."""
    return normal(entry) if isinstance(entry, str) else float(entry)


def listed(entries: Sequence[Entry]) -> str:
    """List the first entries in one line."""
    shown = ", ".join(repr(entry) for entry in entries[:_SHOWN])
    more = f", ... ({len(entries)} in all)" if len(entries) > _SHOWN else ""
    return f"{shown}{more}"
