"""Public facts about a feature column, and the encoding of its cells as features."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_real
from dpglm.tables.cells import Entry, Vocabulary, as_numbers

__all__ = [
    "CategoricalColumn",
    "Column",
    "EntryReader",
    "NumericColumn",
    "as_vocabulary",
    "check_bounds",
    "column_from_dict",
    "read_entry",
]

T = TypeVar("T")

_CATEGORY_CURE = (
    'Correct the cell, or complete "categories" in the schema from public knowledge ("" stands for '
    'a missing value); with "other": CATEGORY, all that is not listed counts as that category'
)


class Column(abc.ABC):
    """A feature column of a schema; final subclasses below."""

    name: str

    @property
    @abc.abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""

    @abc.abstractmethod
    def encode(self, values: ArrayLike, out: NDArray[np.floating[Any]]) -> None:
        """Write the features of each row into ``out``, zeros of shape (n, len(feature_names)).

        Errors name the column, the row and the cure.

        Privacy: each row is encoded by itself, to features of L2 norm at most 1.
        """

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the column's entry in the JSON form of the schema."""


@final
@dataclass(frozen=True)
class NumericColumn(Column):
    """A number, clipped to public bounds, as one feature in [-1, 1].

    A missing value counts as the public number ``missing``; by default it is an error.
    """

    name: str
    low: float
    high: float
    missing: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)
        if self.missing is not None:
            check_real("missing", self.missing)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, values: ArrayLike, out: NDArray[np.floating[Any]]) -> None:
        numbers = as_numbers(values, f"column {self.name!r}", self.missing)
        np.clip(numbers, self.low, self.high, out=numbers)
        numbers -= 0.5 * self.low + 0.5 * self.high
        numbers /= 0.5 * self.high - 0.5 * self.low
        np.clip(numbers, -1.0, 1.0, out=out[:, 0])

    def to_dict(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "numeric", "low": self.low, "high": self.high}
        return entry if self.missing is None else entry | {"missing": self.missing}


@final
@dataclass(frozen=True)
class CategoricalColumn(Column):
    """One of a public list of values, as one feature in {0, 1} for each of them.

    ``""`` among the categories stands for "missing"; values outside the list count as the category
    ``other``, and by default are an error.
    """

    name: str
    categories: tuple[Entry, ...]
    other: Entry | None = None

    def __post_init__(self) -> None:
        as_vocabulary("categories", self.categories)
        if self.other is not None and self.other not in self.categories:
            raise ValueError(f"other must be one of the categories, got {self.other!r}")

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.categories)

    def encode(self, values: ArrayLike, out: NDArray[np.floating[Any]]) -> None:
        other = None if self.other is None else self.categories.index(self.other)
        what = f"column {self.name!r}"
        positions = Vocabulary(self.categories).positions(values, what, _CATEGORY_CURE, other)
        out[np.arange(len(positions)), positions] = 1.0

    def to_dict(self) -> dict[str, Any]:
        entry = {"type": "categorical", "categories": list(self.categories)}
        return entry if self.other is None else entry | {"other": self.other}


def column_from_dict(name: str, entry: object) -> Column:
    """Read the entry of one feature column.

    ``{"type": "numeric", "low", "high"}`` with an optional ``"missing"``, or ``{"type":
    "categorical", "categories"}`` with an optional ``"other"``. Fields of the other type may be
    left in if they are null or empty, as in an unfilled template. Errors say what to write.
    """
    return read_entry(_COLUMN_READERS, name, entry)


@final
@dataclass(frozen=True)
class EntryReader(Generic[T]):
    """How one type of entry is read: ``build`` takes the column's name and the named fields."""

    build: Callable[..., T]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


def read_entry(readers: Mapping[str, EntryReader[T]], name: str, entry: object) -> T:
    """Read an entry by the reader of its ``"type"``; fields that are null or empty do not count."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"must be a JSON object, got {entry!r}")
    kind = entry.get("type")
    if kind is None:
        raise ValueError(f'"type" is not filled in: write one of {_quoted(list(readers))}')
    if not isinstance(kind, str) or kind not in readers:
        raise ValueError(f'"type" must be one of {_quoted(list(readers))}, got {kind!r}')
    reader = readers[kind]
    fields = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in entry.items()
        if key != "type" and value is not None and value != []
    }
    lacking = [key for key in reader.required if key not in fields]
    if lacking:
        raise ValueError(f'{_quoted(lacking)} must be filled in for the type "{kind}"')
    unknown = [key for key in fields if key not in (*reader.required, *reader.optional)]
    if unknown:
        allowed = _quoted(["type", *reader.required, *reader.optional])
        raise ValueError(
            f'{_quoted(unknown)} has no meaning for the type "{kind}", which has {allowed}'
        )
    return reader.build(name, **fields)


def as_vocabulary(field: str, entries: object) -> tuple[Entry, ...]:
    """Check that a field is a tuple that a ``Vocabulary`` can be made of, and return it."""
    if not isinstance(entries, tuple):
        raise ValueError(f'"{field}" must be a list of values, got {entries!r}')
    try:
        return Vocabulary(entries).entries
    except ValueError as error:
        raise ValueError(f'"{field}" {error}') from None


def check_bounds(low: object, high: object) -> None:
    """Check that two fields are finite numbers, the first less than the second."""
    if not check_real("low", low) < check_real("high", high):
        raise ValueError(f'"low" must be less than "high", got {low!r} and {high!r}')


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


_COLUMN_READERS: Mapping[str, EntryReader[Column]] = MappingProxyType(
    {
        "numeric": EntryReader(NumericColumn, ("low", "high"), ("missing",)),
        "categorical": EntryReader(CategoricalColumn, ("categories",), ("other",)),
    }
)
