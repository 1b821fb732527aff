"""Targets and columns of a schema: public facts, encoding, and entries in JSON."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._codec import Text, decode, encode
from dpglm._validation import check_one_of, check_real, in_one_line
from dpglm.tables.cells import Entry, Vocabulary, as_numbers, row_name
from dpglm.tables.columns import (
    CategoricalColumn,
    Column,
    Entries,
    Number,
    NumericColumn,
    PaidFor,
    Provenance,
    check_bounds,
    check_unit,
    check_vocabulary,
    part_of,
)
from dpglm.tables.times import PARTS, UNITS, date_text, days_of

_CLASS_CURE = (
    "Correct the cell, give where=, False for such rows, or complete the classes in the schema"
)


class TargetColumn(abc.ABC):
    """The target column of a schema; final subclasses below."""

    name: str
    unit: str | None = None
    """Unit of predictions, for pictures."""
    omits_defaults: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def default_estimator(self) -> str:
        """Default estimator of the command line."""

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None if the target is a number."""
        return None

    @abc.abstractmethod
    def encode(self, values: ArrayLike) -> NDArray[Any]:
        """Return each row's class in the schema's spelling, or number within the bounds.

        Errors name the column, the row and the remedy.

        Privacy: each row is encoded by itself.
        """

    @abc.abstractmethod
    def estimator_parameters(self) -> dict[str, Any]:
        """Return the parameters of an estimator that describe the target."""

    def with_bounds(self, low: float, high: float, paid: PaidFor) -> TargetColumn:
        """Return a numeric target with private bounds; other targets are unchanged."""
        return self

    @property
    def paid_bounds(self) -> tuple[float, float, PaidFor] | None:
        """Bounds that were learned from private rows, with their cost; None for public ones."""
        return None


@final
@dataclass(frozen=True)
class ClassTarget(TargetColumn):
    """One of a public list of classes, at least two."""

    name: Text
    classes: Entries

    type_name = "classes"
    default_estimator = "logistic"

    def __post_init__(self) -> None:
        check_vocabulary("classes", self.classes)
        if "" in self.classes:
            raise ValueError('classes must not list "": a missing target cannot be learned from')

    @property
    def n_classes(self) -> int | None:
        return len(self.classes)

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        what = f"target {self.name!r}"
        positions = Vocabulary(self.classes).positions(values, what, _CLASS_CURE)
        return np.asarray(self.classes)[positions]

    def estimator_parameters(self) -> dict[str, Any]:
        return {"classes": list(self.classes)}


@final
@dataclass(frozen=True)
class NumericTarget(TargetColumn):
    """A number, clipped to public bounds."""

    name: Text
    low: Number
    high: Number
    provenance: Provenance | None = None
    unit: str | None = None

    type_name = "numeric"
    default_estimator = "ridge"

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)
        check_unit(self.unit)

    def with_bounds(self, low: float, high: float, paid: PaidFor) -> TargetColumn:
        return dataclasses.replace(self, low=low, high=high, provenance=paid)

    @property
    def paid_bounds(self) -> tuple[float, float, PaidFor] | None:
        return None if self.provenance is None else (self.low, self.high, self.provenance)

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        return np.clip(as_numbers(values, f"target {self.name!r}"), self.low, self.high)

    def estimator_parameters(self) -> dict[str, Any]:
        return {"target_bounds": (self.low, self.high)}


@final
@dataclass(frozen=True)
class CountTarget(TargetColumn):
    """A whole number of events, at least 0, clipped to the public bound ``high``."""

    name: Text
    high: Number

    type_name = "count"
    default_estimator = "poisson"

    def __post_init__(self) -> None:
        check_real("high", self.high, least=1)

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        return np.minimum(self._counts(values), self.high)

    def shares(
        self, values: ArrayLike, trials: ArrayLike, column: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each row's share of successes, which the target counts, and its trials.

        The share is 0 without trials. Errors name the row and the remedy.

        Privacy: each row is encoded by itself.
        """
        counts, made = self._counts(values), as_numbers(trials, f"column {column!r}")
        wrong = ~((counts <= made) & (made == np.floor(made)))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"column {column!r}, {row_name(row)}: {made[row]:g} is not a whole number of "
                f"trials, at least the {counts[row]:g} that succeeded. Correct the cell"
            )
        return counts / np.maximum(made, 1.0), made

    def _counts(self, values: ArrayLike) -> NDArray[np.float64]:
        counts = as_numbers(values, f"target {self.name!r}")
        wrong = (counts < 0) | (counts != np.floor(counts))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"target {self.name!r}, {row_name(row)}: {counts[row]:g} is not a count (a whole "
                'number from 0). Correct the cell, or declare the target as "numeric"'
            )
        return counts

    def estimator_parameters(self) -> dict[str, Any]:
        return {"target_bounds": (0, self.high)}


@final
@dataclass(frozen=True)
class NoTarget(TargetColumn):
    """No target; access to its properties is an error."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Raise ValueError."""
        raise ValueError(
            'the schema must have a "target": {"name": ..., "type": ...} and the fields of the type'
        )

    @property
    def default_estimator(self) -> str:
        return self.name

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        return np.full(0, self.name)

    def estimator_parameters(self) -> dict[str, Any]:
        return {}


_TYPES = ("binary", "classes", "numeric", "count")


def write_target(target: TargetColumn) -> dict[str, Any]:
    """Return the entry of a target in the JSON form of a schema."""
    entry: dict[str, Any] = encode(target, TargetColumn)
    return entry | {"type": "binary"} if target.n_classes == 2 else entry


def read_target(entry: object) -> TargetColumn:
    """Read the entry of a target; None and an empty object stand for a schema without one."""
    if entry is None or entry == {}:
        return NoTarget()
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ValueError('must be an object with the "name" of the target column')
    kind, classes = entry.get("type"), entry.get("classes")
    if not kind and bool(classes) is not (entry.get("high") is not None):
        numbers = "count" if entry.get("low") is None else "numeric"
        kind = ("binary" if len(classes) == 2 else "classes") if classes else numbers
    if kind not in _TYPES:
        raise ValueError(f'"type" must be one of {", ".join(_TYPES)}, got {kind!r}')
    _check_filled(entry, kind)
    document = {**entry, "type": "classes" if kind == "binary" else kind}
    found = decode(TargetColumn, document)  # type: ignore[type-abstract]
    if kind == "binary" and found.n_classes != 2:
        raise ValueError(
            f'"classes" must list two for the type "binary", got {found.n_classes}; '
            'with more the type is "classes"'
        )
    return found


_TIMES = ("date", "duration")
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(("numeric", *_TIMES), ("low", "high"))
    | {"categorical": ("categories",), "count": ("high",)}
    | dict.fromkeys(("binary", "classes"), ("classes",))
)
_DATES = frozenset({"low", "high", "missing", "knots"})
_PARTS_KEY = "parts"
_FORMS = ("categorical", "cyclic")
_BY_FIELD: Mapping[str, str] = MappingProxyType({"categories": "categorical", "low": "numeric"})


def _check_filled(entry: Mapping[str, Any], kind: Any) -> None:
    """Check that an entry has the fields that its type needs."""
    if lacking := [key for key in _NEEDED.get(str(kind), ()) if entry.get(key) in (None, [])]:
        given = ", ".join(str(key) for key in entry if key not in ("name", "type")) or "none"
        raise ValueError(
            f"{' and '.join(lacking)} must be filled in for the type {kind!r}, got {given}"
        )


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
    if kind is None:
        raise ValueError(
            "is not filled in: give low and high (numbers or dates), or categories, or delete it"
        )
    stated["type"] = kind
    _check_filled(stated, kind)
    parts = stated.pop(_PARTS_KEY, {})
    times: dict[str, Any] = {}
    if kind in _TIMES:
        stated["type"] = "numeric"
        times = {"time": kind, "format": stated.pop("format", None)}
    for key in ("format", _PARTS_KEY):
        if entry.get(key) is not None and kind != "date":
            raise ValueError(f'"{key}" is for columns of type "date"')
    if kind == "date":
        stated |= {key: _in_days(key, one) for key, one in stated.items() if key in _DATES}
    if kind == "duration" and stated.get("unit", "days") not in tuple(UNITS):
        check_one_of("unit", stated["unit"], tuple(UNITS))
    missing, indicator = stated.get("missing"), False
    if isinstance(missing, Mapping):
        indicator = missing.get("indicator", False)
        is_known = missing.keys() <= {"value", "indicator"} and missing.get("value") is not None
        if not is_known or not isinstance(indicator, bool):
            raise ValueError(
                '"missing" must be a number, or {"value": NUMBER, "indicator": true}, got '
                f"{in_one_line(missing)}"
            )
        stated["missing"] = missing["value"]
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


def _in_days(key: str, value: Any) -> Any:
    """Read the dates in a field as days."""
    if key == "knots" and isinstance(value, list):
        return [_in_days(key, one) for one in value]
    if isinstance(value, Mapping) and "value" in value:
        return {**value, "value": _in_days(key, value["value"])}
    try:
        return days_of(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f'"{key}" {error}') from None


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
                for key in entry.keys() & _DATES:
                    days = entry[key]
                    is_list = isinstance(days, list)
                    entry[key] = [*map(date_text, days)] if is_list else date_text(days)
        entries[name] = entry
    return entries


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
