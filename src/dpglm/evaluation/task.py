"""What is evaluated: a task says what a row adds to which tables, and reads them."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real, in_one_line
from dpglm.data.spec import DataSpec
from dpglm.oracle.counts import Cells
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.solvers.base import Plan
from dpglm.tables.given import spelled_as

__all__ = [
    "Released",
    "Task",
    "class_codes",
    "class_list",
    "finite",
    "in_range",
    "known",
    "weighted",
]

Floats: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Released:
    """What was released, and what is public about it."""

    plan: Plan
    values: Floats
    n_levels: int
    z: float
    chosen: bool = False

    @property
    def n_rows(self) -> int | None:
        """The number of rows that count, where it is public."""
        data = self.plan.data
        public = self.plan.adjacency.rows_are_public(data.unit) and not self.chosen
        return data.n_rows if public else None

    @property
    def clustering(self) -> float:
        """Bound on the factor by which persons' rows, if alike, raise variances of sampling."""
        return self.plan.data.reach(1)


class Task(abc.ABC):
    """Predictions of one kind; final, frozen subclasses hold public facts only."""

    def for_rows(self, n_rows: int, mu: float) -> Self:
        """Return the task as fine as so many rows in each group allow, with mu-GDP."""
        return self

    @abc.abstractmethod
    def plan(
        self, data: DataSpec, n_levels: int, budget: PrivacyBudget, adjacency: Adjacency
    ) -> Plan:
        """Plan the tables within a budget. Rows have one of ``n_levels`` levels, in column 0."""

    @abc.abstractmethod
    def encode(self, y: NDArray[Any], predictions: Floats) -> Floats:
        """Turn rows, each by itself, into columns that follow the group's.

        Raises ValueError for a shape or a value that is not of the task.
        """

    @abc.abstractmethod
    def results(self, released: Released) -> tuple[Any, ...]:
        """Read the tables: one result for each level of rows, and one for all of them."""

    def n_added(self, plan: Plan) -> int:
        """Return the number of cells of the first table that shares of rows are added up from."""
        table: Cells = plan.method.tables[0]  # type: ignore[attr-defined]
        return table.size

    @property
    def means(self) -> tuple[tuple[str, float, int], ...]:
        """Means over all rows: what, what 1 in a mean of the table is worth, and which table."""
        return ()

    @property
    @abc.abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Public facts about the targets, as certificates call them."""


def in_range(
    name: str, values: Any, low: float, high: float, shape: str, ndim: int, remedy: str = ""
) -> Floats:
    """Return values as floats; ValueError unless all are from ``low`` to ``high``."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be numbers of shape {shape}: {error}") from None
    if found.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}, got {found.shape}")
    if not ((found >= low) & (found <= high)).all():
        raise ValueError(f"{name} must be from {low:g} to {high:g}, and contains others{remedy}")
    return found


def finite(name: str, values: Any) -> Floats:
    """Return numbers of shape (n,); ValueError unless all are finite."""
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite numbers of shape (n,), and are not")
    return found


def class_codes(y: NDArray[Any], classes: tuple[Any, ...]) -> NDArray[np.intp]:
    """Return the place of each label among the classes."""
    if y.ndim != 1:
        raise ValueError(f"y must have shape (n,), got {y.shape}")
    y = spelled_as(y, classes)
    found = np.full(len(y), -1, np.intp)
    for place, label in enumerate(classes):
        found[y == label] = place
    if (found < 0).any():
        raise ValueError(f"y must hold the classes {list(classes)!r} only, and holds others")
    return found


def class_list(classes: Any) -> tuple[Any, ...]:
    """Return classes as a tuple of plain values; ValueError unless at least two, all different."""
    found = tuple(np.asarray(classes).tolist())
    if len(found) < 2 or len(set(found)) < len(found):
        raise ValueError(
            f"classes must be at least two different labels, got {in_one_line(classes)}"
        )
    return found


def known(data: DataSpec, width: int, largest: float) -> DataSpec:
    """Return what is public about encoded rows of ``width`` numbers up to ``largest``."""
    norm = math.sqrt(width) * max(largest, 1.0)
    return dataclasses.replace(data, n_features=width, row_norm=norm)


def weighted(cells: Cells, share: float) -> Cells:
    """Return the table with the share of the squared budget that it gets."""
    return dataclasses.replace(cells, weight=math.sqrt(check_real("share", share, above=0.0)))
