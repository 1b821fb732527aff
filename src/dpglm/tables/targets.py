"""Public facts about the target, and the encoding of its cells for an estimator."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_real
from dpglm.tables.cells import Entry, Vocabulary, as_numbers
from dpglm.tables.columns import (
    EntryReader,
    PaidFor,
    as_vocabulary,
    check_bounds,
    check_unit,
    paid_from_dict,
    read_entry,
)

__all__ = [
    "ClassTarget",
    "CountTarget",
    "NoTarget",
    "NumericTarget",
    "TargetColumn",
    "target_from_dict",
]

_CLASS_CURE = (
    "Correct the cell, give where=, False for such rows, or complete the classes in the schema"
)


class TargetColumn(abc.ABC):
    """The target column of a schema; final subclasses below."""

    name: str
    unit: str | None = None
    """In which predictions are, for pictures."""

    @property
    @abc.abstractmethod
    def default_estimator(self) -> str:
        """Name of the estimator that the command line uses unless told otherwise."""

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None if the target is a number."""
        return None

    @abc.abstractmethod
    def encode(self, values: ArrayLike) -> NDArray[Any]:
        """Return each row's class, as the schema spells it, or number within the bounds.

        Errors name the column, the row and the cure.

        Privacy: each row is encoded by itself.
        """

    @abc.abstractmethod
    def estimator_parameters(self) -> dict[str, Any]:
        """Return what an estimator's constructor has to be told about the target."""

    def with_bounds(self, low: float, high: float, paid: PaidFor) -> TargetColumn:
        """Return a numeric target with bounds that were paid for; others as they are."""
        return self

    @property
    def paid_bounds(self) -> tuple[float, float, PaidFor] | None:
        """Bounds that were learned from private rows, with their price; None without such."""
        return None

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the target's entry in the JSON form of the schema."""


@final
@dataclass(frozen=True)
class ClassTarget(TargetColumn):
    """One of a public list of classes, at least two."""

    name: str
    classes: tuple[Entry, ...]

    default_estimator = "logistic"

    def __post_init__(self) -> None:
        as_vocabulary("classes", self.classes)
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

    def to_dict(self) -> dict[str, Any]:
        kind = "binary" if len(self.classes) == 2 else "classes"
        return {"name": self.name, "type": kind, "classes": list(self.classes)}


@final
@dataclass(frozen=True)
class NumericTarget(TargetColumn):
    """A number between public bounds, to which it is clipped."""

    name: str
    low: float
    high: float
    paid: PaidFor | None = None
    unit: str | None = None

    default_estimator = "ridge"

    def __post_init__(self) -> None:
        check_bounds(self.low, self.high)
        check_unit(self.unit)

    def with_bounds(self, low: float, high: float, paid: PaidFor) -> TargetColumn:
        return dataclasses.replace(self, low=low, high=high, paid=paid)

    @property
    def paid_bounds(self) -> tuple[float, float, PaidFor] | None:
        return None if self.paid is None else (self.low, self.high, self.paid)

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        return np.clip(as_numbers(values, f"target {self.name!r}"), self.low, self.high)

    def estimator_parameters(self) -> dict[str, Any]:
        return {"target_bounds": (self.low, self.high)}

    def to_dict(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.name, "type": "numeric"}
        entry |= {"low": self.low, "high": self.high}
        entry |= {} if self.unit is None else {"unit": self.unit}
        return entry if self.paid is None else entry | {"provenance": self.paid.to_dict()}


@final
@dataclass(frozen=True)
class CountTarget(TargetColumn):
    """A whole number of events, at least 0, clipped to the public bound ``high``."""

    name: str
    high: float

    default_estimator = "poisson"

    def __post_init__(self) -> None:
        check_real("high", self.high, least=1)

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        return np.minimum(self._counts(values), self.high)

    def shares(
        self, values: ArrayLike, trials: ArrayLike, column: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each row's share of successes, which the target counts, and its trials.

        Rows without a trial have the share 0. Errors name the row and the cure.

        Privacy: each row is encoded by itself.
        """
        counts, made = self._counts(values), as_numbers(trials, f"column {column!r}")
        wrong = ~((counts <= made) & (made == np.floor(made)))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"column {column!r}, row {row + 1}: {made[row]:g} is not a whole number of trials, "
                f"at least the {counts[row]:g} that succeeded. Correct the cell"
            )
        return counts / np.maximum(made, 1.0), made

    def _counts(self, values: ArrayLike) -> NDArray[np.float64]:
        counts = as_numbers(values, f"target {self.name!r}")
        wrong = (counts < 0) | (counts != np.floor(counts))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"target {self.name!r}, row {row + 1}: {counts[row]:g} is not a count (a whole "
                'number from 0). Correct the cell, or declare the target as "numeric"'
            )
        return counts

    def estimator_parameters(self) -> dict[str, Any]:
        return {"target_bounds": (0, self.high)}

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "type": "count", "high": self.high}


@final
@dataclass(frozen=True)
class NoTarget(TargetColumn):
    """The schema does not say what is predicted: each question about it is an error."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Raise ValueError: there is none."""
        raise ValueError(
            'the schema must have a "target" for this: {"name": ..., "type": ...} and what belongs '
            "to the type"
        )

    @property
    def default_estimator(self) -> str:
        return self.name

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        return np.full(0, self.name)

    def estimator_parameters(self) -> dict[str, Any]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        return {}


def target_from_dict(entry: object) -> TargetColumn:
    """Read the target's entry: its name, its type and that type's fields.

    ``{"name", "type": "binary" or "classes", "classes"}``, ``{"name", "type": "numeric", "low",
    "high"}``, perhaps with a ``"unit"``, or ``{"name", "type": "count", "high"}``; None or nothing
    for a schema without one. Errors say what to write.
    """
    if entry is None or entry == {}:
        return NoTarget()
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ValueError('must be an object with the "name" of the target column')
    rest = {key: value for key, value in entry.items() if key != "name"}
    return read_entry(_TARGET_READERS, entry["name"], rest)


def _binary(name: str, classes: object) -> ClassTarget:
    target = ClassTarget(name, as_vocabulary("classes", classes))
    if len(target.classes) != 2:
        raise ValueError(
            f'"classes" must list two for the type "binary", got {len(target.classes)}; '
            'with more the type is "classes"'
        )
    return target


def _numeric(
    name: str, low: float, high: float, provenance: object = None, unit: str | None = None
) -> NumericTarget:
    return NumericTarget(name, low, high, paid_from_dict(provenance), unit)


_TARGET_READERS: Mapping[str, EntryReader[TargetColumn]] = MappingProxyType(
    {
        "binary": EntryReader(_binary, ("classes",)),
        "classes": EntryReader(ClassTarget, ("classes",)),
        "numeric": EntryReader(_numeric, ("low", "high"), ("provenance", "unit")),
        "count": EntryReader(CountTarget, ("high",)),
    }
)
