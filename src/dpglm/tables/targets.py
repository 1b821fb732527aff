"""Targets of a schema: their public facts and their encoding."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._codec import Text, decode, encode
from dpglm._validation import check_real
from dpglm.tables.cells import Vocabulary, as_numbers
from dpglm.tables.columns import (
    Entries,
    Number,
    PaidFor,
    Provenance,
    check_bounds,
    check_unit,
    check_vocabulary,
)

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


def _kind_of(entry: Mapping[str, Any]) -> str | None:
    """Return the type of a target without a stated type, from its facts."""
    classes, has_bounds = entry.get("classes"), entry.get("high") is not None
    if not classes:
        return ("count" if entry.get("low") is None else "numeric") if has_bounds else None
    return None if has_bounds else "binary" if len(classes) == 2 else "classes"


def read_target(entry: object) -> TargetColumn:
    """Read the entry of a target; None and an empty object stand for a schema without one."""
    if entry is None or entry == {}:
        return NoTarget()
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ValueError('must be an object with the "name" of the target column')
    kind = entry.get("type") or _kind_of(entry)
    if kind not in _TYPES:
        raise ValueError(f'"type" must be one of {", ".join(_TYPES)}, got {kind!r}')
    document = {**entry, "type": "classes" if kind == "binary" else kind}
    found = decode(TargetColumn, document)  # type: ignore[type-abstract]
    if kind == "binary" and found.n_classes != 2:
        raise ValueError(
            f'"classes" must list two for the type "binary", got {found.n_classes}; '
            'with more the type is "classes"'
        )
    return found
