"""Entries of a schema's columns in JSON, and the columns that they stand for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dpglm._codec import decode, encode
from dpglm._validation import check_one_of, in_one_line
from dpglm.tables.cells import Entry
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn, part_of
from dpglm.tables.times import PARTS, UNITS, date_text, days_of

_TIMES = ("date", "duration")
_PARTS_KEY = "parts"
_FORMS = ("categorical", "cyclic")
_BY_FIELD: Mapping[str, str] = MappingProxyType({"categories": "categorical", "low": "numeric"})


def read_entry(name: str, entry: object) -> list[Column]:
    """Return the column of an entry, and its parts; ValueError names a wrong field.

    Without a type, numbers for bounds make a numeric column, dates a date, and categories a
    categorical column.
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"must be a JSON object, got {entry!r}")
    if "name" in entry:
        raise ValueError('must not have the key "name": the name is the key of the entry')
    stated = {key: value for key, value in entry.items() if value is not None and value != []}
    kind = stated.get("type") or _kind_of(stated)
    if kind is not None:
        stated["type"] = kind
    parts = stated.pop(_PARTS_KEY, {})
    times: dict[str, Any] = {}
    if kind in _TIMES:
        stated["type"] = "numeric"
        times = {"time": kind, "format": stated.pop("format", None)}
    for key in ("format", _PARTS_KEY):
        if entry.get(key) is not None and kind != "date":
            raise ValueError(f'"{key}" is for columns of type "date"')
    if kind == "date":
        stated = _with_days(stated)
    if kind == "duration" and stated.get("unit", "days") not in UNITS:
        check_one_of("unit", stated["unit"], tuple(UNITS))
    missing, indicator = stated.get("missing"), False
    if isinstance(missing, Mapping):
        indicator = _indicator(missing)
        stated["missing"] = missing.get("value")
    column: Any = decode(Column, {"name": name, **stated})
    column = dataclasses.replace(column, **times)
    found: list[Column] = [column]
    if isinstance(column, NumericColumn):
        found += [part_of(column, "missing")] if indicator else []
        found += list(_parts(column, parts))
    return found


def _kind_of(entry: Mapping[str, Any]) -> str | None:
    """Return the type of a column without a stated type, from its facts."""
    found = {kind for field, kind in _BY_FIELD.items() if field in entry}
    if len(found) != 1:
        return None
    is_date = found == {"numeric"} and isinstance(entry["low"], str)
    return "date" if is_date else found.pop()


def _with_days(entry: Mapping[str, Any]) -> dict[str, Any]:
    stated = dict(entry)
    for key in ("low", "high", "missing"):
        if isinstance(stated.get(key), str):
            stated[key] = _day(key, stated[key])
    missing = stated.get("missing")
    if isinstance(missing, Mapping) and isinstance(missing.get("value"), str):
        stated["missing"] = {**missing, "value": _day("missing", missing["value"])}
    if isinstance(stated.get("knots"), list):
        stated["knots"] = [_day("knots", one) for one in stated["knots"]]
    return stated


def _day(key: str, value: Any) -> Any:
    try:
        return days_of(value)
    except ValueError as error:
        raise ValueError(f'"{key}" {error}') from None


def _indicator(missing: Mapping[str, Any]) -> bool:
    odd = [key for key in missing if key not in ("value", "indicator")]
    wanted = missing.get("indicator", False)
    if odd or missing.get("value") is None or not isinstance(wanted, bool):
        raise ValueError(
            '"missing" must be a number, or {"value": NUMBER, "indicator": true}, got '
            f"{in_one_line(missing)}"
        )
    return wanted


def _parts(column: NumericColumn, parts: Any) -> Iterator[Column]:
    if not isinstance(parts, Mapping):
        raise ValueError(
            '"parts" must be an object such as {"month": "cyclic", "weekday": "categorical"}, got '
            f"{in_one_line(parts)}"
        )
    for part, form in parts.items():
        check_one_of("parts", part, tuple(PARTS))
        reference: Entry | None = None
        if isinstance(form, Mapping):
            reference, form = form.get("reference"), form.get("type")
        check_one_of(part, form, _FORMS)
        found = part_of(column, part, cyclic=form == "cyclic")
        yield found if reference is None else found.with_reference(reference)


def write_entries(columns: Iterable[Column]) -> dict[str, Any]:
    """Return the entries of columns by name; ``read_entry`` makes equal columns of them."""
    entries: dict[str, Any] = {}
    for column in columns:
        if isinstance(column, CategoricalColumn) and column.of is not None:
            _add_part(entries[column.source], column)
            continue
        entry = encode(column, Column)
        name = entry.pop("name")
        if isinstance(column, NumericColumn) and column.time is not None:
            entry = {**entry, "type": column.time}
            if column.format is not None:
                entry["format"] = column.format
            if column.time == "date":
                entry |= _with_dates(entry)
        entries[name] = entry
    return entries


def _with_dates(entry: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: date_text(entry[key]) for key in ("low", "high", "missing") if key in entry}
    if "knots" in entry:
        return found | {"knots": [date_text(one) for one in entry["knots"]]}
    return found


def _add_part(entry: dict[str, Any], column: CategoricalColumn) -> None:
    if column.part == "missing":
        entry["missing"] = {"value": entry["missing"], "indicator": True}
        return
    form: Any = "cyclic" if column.cyclic else "categorical"
    if column.reference is not None:
        form = {"type": form, "reference": column.reference}
    entry.setdefault(_PARTS_KEY, {})[str(column.part)] = form


def rebased(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns with parts of those of the same names among them."""
    found = tuple(columns)
    by_name = {one.name: one for one in found}
    return tuple(
        dataclasses.replace(one, of=by_name[one.source])
        if isinstance(one, CategoricalColumn) and one.of is not None
        else one
        for one in found
    )
