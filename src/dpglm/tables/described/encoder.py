"""From a schema to counted columns, and from rows to numbers that say where they count."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_list
from dpglm.tables.cells import as_cells, check_unique
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.described.bins import bin_edges, given_edges, log_edges, parts_of
from dpglm.tables.described.columns import CountedColumn, LevelCells, NumberCells
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget, CountTarget, NumericTarget, TargetColumn

__all__ = ["CellEncoder", "Places", "counted_columns"]


@final
@dataclass(frozen=True)
class Places:
    """Where the numbers of a column stand in an encoded row; None for what it does not have."""

    cell: int
    part: int | None
    number: int | None
    square: int | None


@final
@dataclass(frozen=True)
class CellEncoder:
    """Turns rows of a table into numbers that say in which cells they count.

    Privacy: each row is encoded by itself, from public facts.
    """

    columns: tuple[CountedColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the table's columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """Number of columns of the encoded rows."""
        return sum(column.width for column in self.columns)

    @property
    def row_norm(self) -> float:
        """Bound on the L2 norm of an encoded row."""
        sizes = (column.n_cells**2 + column.n_parts**2 + 2 for column in self.columns)
        return math.sqrt(math.fsum(sizes))

    @functools.cached_property
    def _starts(self) -> Mapping[str, int]:
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return dict(zip(self.names, starts, strict=False))

    def places(self, name: str) -> Places:
        """Say where a column's numbers stand."""
        column, start = self[name], self._starts[name]
        end = start + column.width
        return Places(
            start,
            start + 1 if column.n_parts > 1 else None,
            end - 2 if column.is_number else None,
            end - 1 if column.is_number else None,
        )

    def __getitem__(self, name: str) -> CountedColumn:
        """Return a column by its name; a ValueError lists those that there are."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise ValueError(
                f"there is no column {name!r} among {', '.join(map(repr, self.names))}"
            )
        return found

    def encode(self, table: Any) -> NDArray[np.float64]:
        """Encode columns by name; a ValueError names the column, the row and the cure."""
        encoded: NDArray[np.float64] | None = None
        table = by_name(table)
        for column in self.columns:
            cells = as_cells(table[column.name], f"column {column.name!r}")
            if encoded is None:
                encoded = np.zeros((len(cells), self.width))
            if len(cells) != len(encoded):
                raise ValueError(
                    f"column {column.name!r} has {len(cells)} rows, but {self.names[0]!r} has "
                    f"{len(encoded)}"
                )
            start = self._starts[column.name]
            column.encode(cells, encoded[:, start : start + column.width])
        assert encoded is not None
        return encoded


def counted_columns(
    schema: Schema, columns: Sequence[str] | None, bins: Mapping[str, Any] | None, most_bins: int
) -> CellEncoder:
    """Return the columns of a schema, the target last, as cells.

    ``columns`` names those that are wanted, by default all. ``bins`` says of numeric columns how
    many bins they have, or which; by default there are at most ``most_bins``.
    """
    targets = (schema.target,) if schema.has_target else ()
    found: list[Column | TargetColumn] = [*schema.columns, *targets]
    known = [one.name for one in found]
    if columns is not None and not (columns := check_list("columns", columns, "a list of names")):
        raise ValueError("columns must be a list of names, at least one, got none")
    if bins is not None and not isinstance(bins, Mapping):
        raise ValueError(
            "bins must map names of numeric columns to numbers of bins, such as {'age': 10}, got "
            f"{bins!r}"
        )
    for what, names in (("columns", columns), ("bins", bins)):
        unknown = [name for name in names or () if name not in known]
        if unknown:
            raise ValueError(
                f"{what} must name columns of the schema, {', '.join(map(repr, known))}, got "
                f"{unknown[0]!r}"
            )
    if columns is not None:
        check_unique(list(columns), "column")
        found = [one for one in found if one.name in columns]
    given = {} if bins is None else dict(bins)
    counted = tuple(_counted(one, given.pop(one.name, None), most_bins) for one in found)
    if given:
        raise ValueError(f"bins[{next(iter(given))!r}] is for a column that is not in columns=")
    return CellEncoder(counted)


@functools.singledispatch
def _counted(column: Any, bins: Any, most_bins: int) -> CountedColumn:
    raise ValueError(f"a column of type {type(column).__name__} cannot be described")


def _numbers(
    name: str,
    low: float,
    high: float,
    bins: Any,
    most: int,
    *,
    is_target: bool,
    whole: bool = False,
    log: bool = False,
) -> CountedColumn:
    if bins is None:
        edges = log_edges(low, high, most) if log else bin_edges(low, high, most, whole=whole)
    else:
        edges = given_edges(name, bins, low, high, whole=whole, log=log)
    return NumberCells(name, edges, parts_of(edges, whole=whole), whole, is_target)


def _levels(name: str, levels: Any, other: Any, bins: Any, *, is_target: bool) -> CountedColumn:
    if bins is not None:
        raise ValueError(f"bins[{name!r}] is for a numeric column, and this one has categories")
    return LevelCells(name, levels, other, is_target)


@_counted.register
def _(column: NumericColumn, bins: Any, most_bins: int) -> CountedColumn:
    log = column.scale == "log"
    return _numbers(column.name, column.low, column.high, bins, most_bins, is_target=False, log=log)


@_counted.register
def _(column: CategoricalColumn, bins: Any, most_bins: int) -> CountedColumn:
    return _levels(column.name, column.categories, column.other, bins, is_target=False)


@_counted.register
def _(column: NumericTarget, bins: Any, most_bins: int) -> CountedColumn:
    return _numbers(column.name, column.low, column.high, bins, most_bins, is_target=True)


@_counted.register
def _(column: CountTarget, bins: Any, most_bins: int) -> CountedColumn:
    return _numbers(column.name, 0.0, column.high, bins, most_bins, is_target=True, whole=True)


@_counted.register
def _(column: ClassTarget, bins: Any, most_bins: int) -> CountedColumn:
    return _levels(column.name, column.classes, None, bins, is_target=True)
