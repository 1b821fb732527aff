"""Features that are not finite: where they are, and what is safe to do about them."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._arrays import as_host, namespace

__all__ = [
    "MISSING_CURE",
    "NUMBER_KINDS",
    "WHOSE_CURE",
    "check_finite",
    "check_no_date_cells",
    "check_no_dates",
    "column_by_number",
    "column_in_words",
    "dates",
    "is_date",
    "not_finite",
    "unmasked",
]

NUMBER_KINDS = "biuf"
"""Kinds of NumPy's types of real numbers."""

MISSING_CURE = (
    "Replace missing values by a fixed number, chosen without looking at the data (in a schema "
    'column: "missing": NUMBER), list "" as a category of its own (SchemaEncoder), or give '
    "where=, False for such rows. A table without these rows publishes how many there are, which "
    "where= keeps private. An imputer that was fitted to private rows would leak what it learned"
)
"""Cures for a missing value that cost no privacy."""

WHOSE_CURE = (
    "The group id is missing: fill it in, or drop the row if the number of such rows may be public"
)
"""Cures for a row that names no person: with an id of its own it would be nobody's."""

_INFINITE_CURE = "Replace it by a finite number, by a rule that looks at each row alone"

_CHECKED_AT_ONCE = 1 << 20
"""Entries."""


def unmasked(name: str, values: Any) -> Any:
    """Return values, a masked array as a plain one; refuse masked entries."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    masked = int(np.ma.getmaskarray(values).sum())
    if masked:
        raise ValueError(
            f"{name} must have no masked entries, got {masked}: replace them by a fixed number, "
            "or give where=, False for such rows"
        )
    return np.asarray(values)


_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
# Names of types in NumPy, pandas, polars and pyarrow, such as timedelta64, Duration, date32.
_DATED = re.compile("date|time|duration|period")


def is_date(cell: Any) -> bool:
    """Say whether a cell is a date, a time or a duration, or one that is missing."""
    return _is_dated(type(cell))


def _is_dated(kind: type) -> bool:
    return (issubclass(kind, _DATES) and kind.__name__ != "NaTType") or kind.__name__ == "Period"


def dates(what: str) -> ValueError:
    """Return the error about dates, times and durations where numbers or labels are expected."""
    return ValueError(
        f"{what} must not hold dates, times or durations, of which no schema says what they mean. "
        "Turn them into numbers first, such as days since a fixed day"
    )


def check_no_dates(what: str, kind: Any) -> None:
    """Refuse values whose type, as a library names it, is one of dates, times or durations."""
    if _DATED.match(str(kind).lower()):
        raise dates(what)


def check_no_date_cells(what: str, array: NDArray[Any]) -> None:
    """Refuse an array of dates, times or durations, or of objects among which they are."""
    cells: set[type] = set(map(type, array.flat)) if array.dtype.kind == "O" else set()
    if array.dtype.kind in "Mm" or any(map(_is_dated, cells)):
        raise dates(what)


def column_in_words(names: Sequence[str] | NDArray[Any] | None, column: int) -> str:
    """Name a column for messages: by its name, or by its number from 1.

    >>> column_in_words(["age", "pay"], 1), column_in_words(None, 1)
    ("column 'pay'", 'column 2')
    """
    return f"column {column + 1}" if names is None else f"column {str(names[column])!r}"


column_by_number: Callable[[int], str] = functools.partial(column_in_words, None)
"""Names a column by its number."""


def not_finite(value: float, row: int | None, column: str) -> ValueError:
    """Return the error about a feature that is NaN or infinite; ``row`` counts from 0."""
    where = column if row is None else f"row {row + 1}, {column}"
    if np.isnan(value):
        return ValueError(f"X must be finite, got NaN in {where}. {MISSING_CURE}")
    what = "infinity" if value > 0.0 else "-infinity"
    return ValueError(f"X must be finite, got {what} in {where}. {_INFINITE_CURE}")


def check_finite(
    X: Any,
    name: Callable[[int], str] = column_by_number,
    first_row: int | None = 0,
) -> Any:
    """Return features if all are finite; the error names the row, the column and the cure.

    ``name`` maps a column's number to its name in messages; ``first_row`` is None where row
    numbers are not known.

    Privacy: nothing is released, but whether there is an error, and its message, depend on rows:
    they are for their holder only.
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
    """Row, column and value of the first entry that is not finite, if any."""
    xp = namespace(X)
    # NaN or infinity makes the sum not finite; so may finite values that overflow.
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
