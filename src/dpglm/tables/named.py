"""The columns of a user's table, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.cells import as_cells, listed
from dpglm.tables.encoding import Reader
from dpglm.tables.files import plain_column

__all__ = ["Table", "by_name", "columns_in_words", "named_columns", "read_columns"]

Table: TypeAlias = Any
"""A mapping or DataFrame (``table[name]`` is a column), or an array in the schema's order."""


def by_name(table: Table) -> Any:
    """Return a table of which ``in`` and ``[]`` take the names of columns, if it has names.

    Tables of pyarrow have them elsewhere, and lazy frames of polars are collected.
    """
    kind = type(table)
    return _OPENERS.get((kind.__module__.partition(".")[0], kind.__name__), _as_it_is)(table)


def _as_it_is(table: Any) -> Any:
    return table


def _of_rows(table: Sequence[Any]) -> Sequence[Any]:
    if any(isinstance(row, Mapping) for row in table):
        raise ValueError(
            "the table must be columns by name, got a list of rows: give pandas.DataFrame(rows), "
            "or {name: [row[name] for row in rows] for name in rows[0]}"
        )
    return table


def _of_arrow(table: Any) -> dict[str, Any]:
    # NumPy would take another row's value for what is missing in an encoded column.
    columns = (plain_column(one).to_numpy(zero_copy_only=False) for one in table.columns)
    return dict(zip(table.column_names, columns, strict=True))


_OPENERS: Mapping[tuple[str, str], Callable[[Any], Any]] = MappingProxyType(
    {
        ("builtins", "list"): _of_rows,
        ("builtins", "tuple"): _of_rows,
        ("pyarrow", "RecordBatch"): _of_arrow,
        ("pyarrow", "Table"): _of_arrow,
        ("polars", "LazyFrame"): lambda table: table.collect(),
    }
)


def named_columns(table: Table, names: Sequence[str]) -> Any:
    """Return an object from which every one of these columns can be had by its name."""
    table = by_name(table)
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.shape[1] != len(names):
            raise ValueError(
                f"an array must have shape (n, {len(names)}), one column for each of the schema's, "
                f"got {table.shape}; a table with column names may have others"
            )
        return dict(zip(names, table.T, strict=True))
    lacking = [name for name in names if name not in table]
    if lacking:
        raise ValueError(
            f"the data lack {columns_in_words(lacking)}, which the schema describes. Rename or add "
            "the column, or take it out of the schema"
        )
    return table


def read_columns(table: Table, names: Sequence[str]) -> tuple[Reader, int]:
    """Return what reads the cells of a column, and the number of rows."""
    named, first = named_columns(table, names), names[0]
    n_rows = len(named[first])

    def cells(name: str) -> NDArray[Any]:
        found = as_cells(named[name], f"column {name!r}")
        if len(found) != n_rows:
            raise ValueError(f"column {name!r} has {len(found)} rows, but {first!r} has {n_rows}")
        return found

    return cells, n_rows


def columns_in_words(names: Sequence[str]) -> str:
    """Name columns, of many the first."""
    return f"column{'s' if len(names) > 1 else ''} {listed(names)}"
