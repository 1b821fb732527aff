"""Columns of a user's table by name, and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import namespace
from dpglm._words import did_you_mean
from dpglm.tables.cells import as_cells, listed, plain_array, spelled_in
from dpglm.tables.encoding import Reader
from dpglm.tables.given import series_name

Table: TypeAlias = Any
"""A mapping or DataFrame of columns, or an array in the schema's order."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Named:
    """Columns of a table by normal name; an ambiguous name is a ValueError."""

    names: Sequence[Any]
    column: Callable[[Any], Any]

    def __contains__(self, name: str) -> bool:
        return bool(spelled_in([name], self.names))

    def __getitem__(self, name: str) -> Any:
        found = spelled_in([name], self.names)
        if not found:
            raise KeyError(name)
        return self.column(found[name])


def by_name(table: Table, expected: str = "a table must have columns by name") -> Any:
    """Give access to a table's columns by normal names; an array stays as it is.

    Lazy frames of polars are collected. Errors begin with ``expected`` and contain no rows.
    """
    if isinstance(table, np.ndarray | Named):
        return table
    if isinstance(table, Mapping):
        return Named(list(table), table.__getitem__)
    if isinstance(table, list | tuple) and any(isinstance(row, Mapping) for row in table):
        raise ValueError(
            f"{expected}, got a list of rows: give pandas.DataFrame(rows), or "
            "{name: [row[name] for row in rows] for name in rows[0]}"
        )
    # narwhals' own frames refuse repeated names, also of columns that are not used.
    from narwhals import dependencies

    if dependencies.is_polars_lazyframe(table):
        table = table.collect()
    arrow = dependencies.get_pyarrow()
    if arrow is not None and isinstance(table, arrow.Table | arrow.RecordBatch):
        arrays = dict(zip(table.schema.names, table.columns, strict=True))
        return Named(table.schema.names, lambda name: plain_array(arrays[name]))
    columns = getattr(table, "columns", None)
    if columns is None or callable(columns):
        raise ValueError(
            f"{expected}, got a value of type {type(table).__name__}. Tables are dicts of columns, "
            "and data frames of pandas, polars and pyarrow"
        )
    return Named(list(columns), table.__getitem__)


def named_columns(table: Table, names: Sequence[str], *expected: str) -> Any:
    """Return an object with these columns by name; a ValueError lists missing ones."""
    table = by_name(table, *expected)
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.shape[1] != len(names):
            raise ValueError(
                f"an array must have shape (n, {len(names)}), with the schema's columns, got "
                f"{table.shape}; only tables with column names may have others"
            )
        return dict(zip(names, table.T, strict=True))
    lacking = [name for name in names if name not in table]
    if lacking:
        hint = did_you_mean(lacking[0], table.names)
        raise ValueError(
            f"the data lack column{'s' if len(lacking) > 1 else ''} {listed(lacking)}, which the "
            f"schema or an argument names{hint}. Rename or add it, or remove it from the schema"
        )
    return table


def read_columns(table: Table, names: Sequence[str]) -> tuple[Reader, int]:
    """Return a reader of columns by name, and the number of rows."""
    named, first = named_columns(table, names), names[0]
    n_rows = len(named[first])

    def cells(name: str) -> NDArray[Any]:
        found = as_cells(named[name], f"column {name!r}")
        if len(found) != n_rows:
            raise ValueError(f"column {name!r} has {len(found)} rows, but {first!r} has {n_rows}")
        return found

    return cells, n_rows


def check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Check that an argument names columns of a schema."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"{what} must name columns of the schema, {listed(known)}, got {name!r}"
                f"{did_you_mean(name, known)}"
            )


# Offsets: known terms of scores, given directly or as exposures.

OffsetKind: TypeAlias = Literal["offset", "exposure"]


@final
@dataclass(frozen=True)
class OffsetColumn:
    """Kind of an offset, and the name of its column, if known."""

    kind: OffsetKind
    name: str | None = None


def stated_offset(offset: Any, exposure: Any) -> tuple[OffsetColumn, Any]:
    """Read the argument ``offset`` or ``exposure``, and return offsets.

    Either is an array, a Series, or a mapping of one name to an array. Exposures that are not
    positive give offsets that are not finite, which ``as_offset`` refuses.
    """
    if offset is not None and exposure is not None:
        raise ValueError("offset and exposure must not both be given: add log(exposure) to offset")
    column = OffsetColumn("offset" if exposure is None else "exposure")
    given = offset if exposure is None else exposure
    name = series_name(given)
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise ValueError(f"{column.kind} must have one column, got {len(given)}")
        ((name, given),) = given.items()
    if isinstance(given, str):
        raise ValueError(
            f"{column.kind} must be numbers, one per row, got the text {given!r}: give the column "
            f"itself, as in table[{given!r}]"
        )
    column = OffsetColumn(column.kind, name if isinstance(name, str) else None)
    if exposure is None:
        return column, given
    with np.errstate(divide="ignore", invalid="ignore"):
        try:
            return column, namespace(given).log(given)
        except (TypeError, AttributeError):
            raise ValueError(
                f"exposure must contain numbers above 0, got {type(given).__name__} of others"
            ) from None


def offset_of(offset: Any = None, exposure: Any = None) -> Any:
    """Return the offsets of rows; see ``stated_offset``."""
    return stated_offset(offset, exposure)[1]
