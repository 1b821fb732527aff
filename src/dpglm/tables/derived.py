"""Expressions of columns that the table does not hold: dates, durations, parts and indicators.

Encoders write expressions of plain columns. ``Derived`` writes those of a date, a duration, a part
of a date or an indicator of missing values as expressions of the table's own column.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, final

from dpglm._score import (
    GAP,
    Notation,
    Score,
    as_score,
    choice,
    floor,
    is_missing,
    is_number,
    moment,
    named,
    piecewise,
    refused,
    span,
    total,
    written,
)
from dpglm.tables.cells import Entry
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.times import UNITS

_DAY = 86_400.0
_UNIX_DAY = 719_468.0  # days from 1 March of the year 0 to 1970
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.999999  # the years 1 to 9999
_BELOW_GAP = 0.5 * GAP

T = TypeVar("T")


def days_from(year: Score, month: Score, day: Score) -> Score:
    """Return days since 1970-01-01 of a date in the Gregorian calendar, from the year 1.

    Years are counted from March, so that a leap day is the last day of its year.
    """
    early = choice(month <= 2.0, as_score(1.0), as_score(0.0))

    def counted(y: Score) -> Score:
        start = floor((month + early * 12.0 - 3.0) * 30.6 + 0.5)
        leaps = total([floor(y / 4.0), 0.0 - floor(y / 100.0), floor(y / 400.0)])
        return total([y * 365.0, leaps, start, day - (_UNIX_DAY + 1.0)])

    return (year - early).named(counted)


def month_of(days: Score) -> Score:
    """Return the month, 0 to 11, of days since 1970-01-01, as ``days_from`` counts them."""

    def of_place(place: Score) -> Score:
        """Return the month of a day of 400 years."""
        leaps = total([0.0 - floor(place / 1460.0), floor(place / 36524.0)])
        years = floor((place + leaps - floor(place / 146096.0)) / 365.0)
        return years.named(
            lambda y: of_day(place - total([y * 365.0, floor(y / 4.0), 0.0 - floor(y / 100.0)]))
        )

    def of_day(day: Score) -> Score:
        return _modulo(floor((day * 5.0 + 2.0) / 153.0) + 2.0, 12.0)

    return _modulo(days + _UNIX_DAY, 146_097.0).named(of_place)


def _modulo(number: Score, period: float) -> Score:
    return number.named(lambda x: x - floor(x / period) * period)


_PARTS: Mapping[str, Callable[[Score], Score]] = MappingProxyType(
    {
        "month": lambda seconds: floor(seconds / _DAY).named(month_of),
        "weekday": lambda seconds: _modulo(floor(seconds / _DAY) + 3.0, 7.0),
        "hour": lambda seconds: _modulo(floor(seconds / 3600.0), 24.0),
    }
)
"""Position of each part's category, from seconds since 1970-01-01."""


def seconds_from(parts: Sequence[Score], column: str) -> Score:
    """Return the seconds since 1970-01-01 of the parts of a date in a column's text.

    Parts are year, month, day, hour, minute, second, and seconds that the zone is ahead. A date
    that does not exist is refused.
    """
    year, month, day, hour, minute, second, ahead = parts

    def of_days(days: Score) -> Score:
        clock = total([hour * 3600.0, minute * 60.0, second, 0.0 - ahead])
        seconds = days * _DAY + clock
        odd = [
            *(year < 1.0, as_score(23.0) < hour, as_score(59.0) < minute),
            # The day is not one of the month's.
            *(month_of(days) < month - 1.0, month <= month_of(days)),
            *(seconds < _FIRST, as_score(_LAST) < seconds),
        ]
        return functools.reduce(
            lambda known, test: choice(test, refused(column), known), odd, seconds
        )

    return days_from(year, month, day).named(of_days)


def check_iso(column: str, format: str | None) -> None:
    """Check that a column's text is in ISO 8601 for exports that read text."""
    if format is not None:
        raise ValueError(
            f"column {column!r} has dates in the form {format!r}, which SQL and Python exports do "
            "not read: store ISO dates, and fit with a schema without a format"
        )


def derived(score: Score, columns: Sequence[Column]) -> Score:
    """Return a score of plain columns as one of the table's columns, which are read once each."""
    made = {one.name: one for one in columns if one.plain is not one}
    if not made:
        return score
    parts = [one for one in made.values() if isinstance(one, CategoricalColumn)]
    made |= {one.of.name: one.of for one in parts if one.of.plain is not one.of}
    times = [one for one in made.values() if isinstance(one, NumericColumn)]
    parts = [one for one in parts if one.part in _PARTS]

    def of_times(seconds: Sequence[Score]) -> Score:
        reads = {one.name: value for one, value in zip(times, seconds, strict=True)}

        def of_parts(places: Sequence[Score]) -> Score:
            known = reads | {one.name: value for one, value in zip(parts, places, strict=True)}
            return Score(lambda notation: score.write(Derived(notation, made, known)))

        return named([_PARTS[str(one.part)](reads[one.source]) for one in parts], of_parts)

    return named([_seconds(one) for one in times], of_times)


def _unit(column: NumericColumn) -> float:
    """Return the unit of a date or duration in seconds."""
    return _DAY if column.time == "date" else UNITS[column.unit or "days"] / UNITS["seconds"]


def _seconds(column: NumericColumn) -> Score:
    if column.time == "date":
        return moment(column.name, column.format)
    return span(column.name, _unit(column))


def _passed_on(name: str) -> Any:
    """Return a method that calls that of ``inner``."""

    def method(self: Any, *arguments: Any) -> Any:
        return getattr(self.inner, name)(*arguments)

    method.__doc__ = getattr(Notation, name).__doc__
    return method


@final
@dataclass(frozen=True)
class Derived(Notation[T]):
    """A notation in which some columns are derived from others.

    ``reads`` contains the seconds of dates and durations, and the positions of parts.
    """

    inner: Notation[T]
    columns: Mapping[str, Column]
    reads: Mapping[str, Score]

    def _write(self, score: Score) -> T:
        result: T = score.write(self.inner)
        return result

    def cell(self, column: str) -> T:
        if column not in self.columns:
            return self.inner.cell(column)
        of: Any = self.columns[column]
        return self._write(self.reads[column] / _unit(of))

    def is_number(self, column: str) -> T:
        if column not in self.columns:
            return self.inner.is_number(column)
        return self._write(self.reads[column] < _BELOW_GAP)

    def is_missing(self, column: str) -> T:
        if column not in self.columns:
            return self.inner.is_missing(column)
        return self._write(as_score(_BELOW_GAP) < self.reads[column])

    def lookup(self, column: str, cases: Sequence[tuple[Entry, T]], other: T | None) -> T:
        if column not in self.columns:
            return self.inner.lookup(column, cases, other)
        of: Any = self.columns[column]
        values = [written(value) for _, value in cases]
        filled = dict(zip(of.categories, values, strict=True)).get(of.plain_cells([None])[0])
        if column in self.reads:
            found = piecewise(self.reads[column], [i + 0.5 for i in range(len(values) - 1)], values)
        else:
            found = values[0]
        refusal = refused(of.source)
        found = choice(is_number(of.source), found, refusal)
        found = choice(is_missing(of.source), refusal if filled is None else filled, found)
        result: T = found.write(self)
        return result

    refused, constant, moment, span, total = map(
        _passed_on, ("refused", "constant", "moment", "span", "total")
    )
    arithmetic, function, power, choice, named = map(
        _passed_on, ("arithmetic", "function", "power", "choice", "named")
    )
