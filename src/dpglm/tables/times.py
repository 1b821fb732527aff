"""Cells of dates, times and durations, read as numbers of one unit in every container."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import in_one_line
from dpglm.tables.cells import Entry, as_cells, is_missing, row_name

Micros: TypeAlias = NDArray[np.int64]
_DAY, _DAY_MS = 86_400_000_000, 86_400_000
_EPOCH = datetime.datetime(1970, 1, 1)
_MICRO = datetime.timedelta(microseconds=1)
_CLOCK = r"(?:[T ](?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:\.\d+)?))?)?"
_ISO = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)" + _CLOCK + r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_DOTTED = re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})(?P<zone>)" + _CLOCK)
_SPAN = re.compile(
    r"(?P<sign>-?)(?:(?P<days>\d+) days?,? ?)?"
    r"(?:(?P<hour>\d+):(?P<minute>\d\d)(?::(?P<second>\d\d(?:\.\d+)?))?)?"
)
UNITS: Mapping[str, int] = MappingProxyType(
    {
        "seconds": 1_000_000,
        "minutes": 60_000_000,
        "hours": 3_600_000_000,
        "days": _DAY,
        "weeks": 7 * _DAY,
    }
)
"""Microseconds in each unit of durations."""


def micros_of(cell: Any, format: str | None = None) -> int:
    """Return a date or time as microseconds since 1970-01-01 (UTC where it has a zone).

    Text is in ISO 8601 (``2026-11-27 13:05``), or day.month.year (``27.11.2026 13:05``), unless
    ``format`` states its form, like that of ``datetime.strptime``. ValueError for anything else.
    """
    if isinstance(cell, str):
        return _from_text(cell.strip(), format)
    if isinstance(cell, np.datetime64):
        return int(cell.astype("datetime64[us]").astype(np.int64))
    if isinstance(cell, datetime.datetime):
        if cell.tzinfo is not None:
            cell = cell.astimezone(datetime.UTC).replace(tzinfo=None)
        return int((cell - _EPOCH) // _MICRO)
    if isinstance(cell, datetime.date):
        return (cell.toordinal() - _EPOCH.toordinal()) * _DAY
    raise ValueError(f"a {type(cell).__name__} is not a date")


def _from_text(text: str, format: str | None) -> int:
    if format is not None:
        return micros_of(datetime.datetime.strptime(text, format))
    found = _ISO.fullmatch(text) or _DOTTED.fullmatch(text)
    if found is None:
        raise ValueError("unknown form")
    parts = [int(found[name] or 0) for name in ("year", "month", "day", "hour", "minute")]
    seconds = round(float(found["second"] or 0.0) * 1e6)
    moment = datetime.datetime(*parts) + seconds * _MICRO  # type: ignore[arg-type]
    zone = found["zone"] or "Z"
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        ahead = datetime.timedelta(hours=hours, minutes=minutes)
        moment -= ahead if zone[0] == "+" else -ahead
    return micros_of(moment)


def span_of(cell: Any) -> int:
    """Return a duration, or a time of day, in microseconds; ValueError for anything else."""
    if isinstance(cell, str):
        found = _SPAN.fullmatch(cell.strip())
        if found is None or (found["days"] is None and found["hour"] is None):
            raise ValueError("unknown form")
        clock = 60 * int(found["hour"] or 0) + int(found["minute"] or 0)
        micros = int(found["days"] or 0) * _DAY + clock * UNITS["minutes"]
        micros += round(float(found["second"] or 0.0) * 1e6)
        return -micros if found["sign"] else micros
    if isinstance(cell, np.timedelta64):
        return int(cell.astype("timedelta64[us]").astype(np.int64))
    if isinstance(cell, datetime.timedelta):
        return int(cell // _MICRO)
    if isinstance(cell, datetime.time):
        minutes = 60 * cell.hour + cell.minute
        return minutes * UNITS["minutes"] + cell.second * UNITS["seconds"] + cell.microsecond
    if type(cell).__name__ == "MonthDayNano" and not cell.months:
        return int(cell.days * _DAY + cell.nanoseconds // 1000)
    raise ValueError(f"a {type(cell).__name__} is not a duration")


_GAP = np.iinfo(np.int64).min
_CURES: Mapping[str, str] = MappingProxyType(
    {
        "date": " that the schema describes: write dates as 2026-11-27 or 27.11.2026, state "
        'another form in the schema ("format": "%m/%d/%Y"), or declare the column as numeric',
        "duration": ': write durations as 36:15:00 or "1 day 12:15:00", or declare the column as '
        "numeric",
    }
)


def read_times(values: ArrayLike, what: str, kind: str, format: str | None = None) -> Micros:
    """Read a column of dates or durations as microseconds, see ``as_units`` for gaps.

    ``kind`` is "date" (since 1970-01-01) or "duration". Errors name the column, the row and the
    remedy.
    """
    cells, code = as_cells(values, what), "M" if kind == "date" else "m"
    if cells.dtype.kind == code:
        found: Micros = cells.astype(f"{code}8[us]").astype(np.int64)
        return np.where(np.isnat(cells), _GAP, found)
    micros = np.full(len(cells), _GAP)
    known: dict[Hashable, int] = {}
    for row, cell in enumerate(cells.tolist() if cells.dtype.kind in "OUT" else cells):
        if is_missing(cell):
            continue
        try:
            if cell not in known:
                known[cell] = micros_of(cell, format) if kind == "date" else span_of(cell)
            micros[row] = known[cell]
        except (TypeError, ValueError, OverflowError):
            where = f"{what}, {row_name(row)}: {in_one_line(cell)}"
            raise ValueError(f"{where} is not a {kind}{_CURES[kind]}") from None
    return micros


def as_units(micros: Micros, unit: str = "days") -> NDArray[np.float64]:
    """Return microseconds in a unit, with NaN for gaps."""
    return np.where(micros == _GAP, np.nan, micros / UNITS[unit])


def days_of(stated: Any) -> float:
    """Read a date of a schema as days since 1970-01-01; numbers are such days.

    Milliseconds are distinct as days of any year, microseconds are not.

    >>> days_of("1970-01-02 12:00")
    1.5
    """
    if isinstance(stated, str):
        try:
            return round(micros_of(stated) / 1000) / _DAY_MS
        except (ValueError, OverflowError):
            raise ValueError(f"must be a date such as 2026-11-27, got {stated!r}") from None
    return round(stated * _DAY_MS) / _DAY_MS if isinstance(stated, float) else stated


def date_text(days: float) -> str:
    """Return days since 1970-01-01 as text that ``days_of`` reads as the same number.

    >>> date_text(1.5), date_text(2)
    ('1970-01-02T12:00:00', '1970-01-03')
    """
    moment = _EPOCH + datetime.timedelta(milliseconds=round(days * _DAY_MS))
    whole = (moment - _EPOCH) % datetime.timedelta(1) == datetime.timedelta(0)
    return moment.date().isoformat() if whole else moment.isoformat()


# Parts of dates, as positions among a public list of categories.

_MONTHS: tuple[Entry, ...] = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS: tuple[Entry, ...] = (
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)

PARTS: Mapping[str, tuple[tuple[Entry, ...], Callable[[Micros], NDArray[np.intp]]]] = (
    MappingProxyType(
        {
            "month": (_MONTHS, lambda us: us.astype("M8[us]").astype("M8[M]").astype(np.intp) % 12),
            "weekday": (_DAYS, lambda us: (us // _DAY + 3).astype(np.intp) % 7),
            "hour": (tuple(range(24)), lambda us: (us // UNITS["hours"]).astype(np.intp) % 24),
        }
    )
)
"""Categories of each part, and their positions for microseconds since 1970-01-01."""


def parts_of(micros: Micros, part: str, missing: float | None) -> NDArray[Any]:
    """Return the category of a part of each date; a missing date is ``missing`` days, or None."""
    categories, positions = PARTS[part]
    gaps = micros == _GAP
    if missing is not None:
        micros, gaps = np.where(gaps, round(missing * _DAY), micros), np.zeros_like(gaps)
    found = np.array(categories, dtype=object)[positions(np.where(gaps, 0, micros))]
    found[gaps] = None
    return found
