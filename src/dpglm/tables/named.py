"""The columns of a user's table, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.cells import as_cells, listed
from dpglm.tables.encoding import Reader

__all__ = ["Table", "columns_in_words", "named_columns", "read_columns"]

Table: TypeAlias = Any
"""A mapping or DataFrame (``table[name]`` is a column), or an array in the schema's order."""


def named_columns(table: Table, names: Sequence[str]) -> Any:
    """Return an object from which every one of these columns can be had by its name."""
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
