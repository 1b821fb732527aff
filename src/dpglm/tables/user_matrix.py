"""Tables and matrices in memory as finite numbers, or errors that name the offending cell."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import _get_feature_names

from dpglm.tables.cells import is_missing
from dpglm.tables.finite import (
    check_finite,
    check_no_dates,
    column_by_number,
    column_in_words,
    dates,
    is_date,
    not_finite,
    unmasked,
)
from dpglm.tables.unchanged import in_memory

__all__ = ["finite_matrix", "refuse_types"]


def finite_matrix(
    X: Any,
    read: Callable[..., tuple[Any, Any]],
    names: Sequence[str] | NDArray[Any] | None = None,
) -> tuple[Any, Any]:
    """Read rows in memory as finite numbers, in float32 or float64.

    ``read`` takes options of ``sklearn.utils.check_array`` and returns rows and something else,
    which is returned beside them. Rows mapped from a file are copied, and duplicate entries of
    sparse ones added up. ``names`` defaults to the columns' names in ``X``. Errors name the row
    and the column of a cell that is missing, infinite, masked, no number, a date, or text that
    spells a number. None of them shows the rows.
    """
    unmasked("X", X)
    if type(X).__name__ == "LazyFrame":
        raise ValueError("X must be rows in memory, got a lazy frame: give X.collect()")
    names = _get_feature_names(X) if names is None else names
    name = functools.partial(column_in_words, None if names is None else tuple(names))
    dtypes = [np.float64, np.float32]
    refuse_types(X, name)
    try:
        numbers, other = read(accept_sparse="csr", dtype=dtypes, ensure_all_finite=False)
    except (TypeError, ValueError, OverflowError) as error:
        _name_the_cell(X, name)
        if isinstance(error, ValueError):
            raise
        # scikit-learn raises a TypeError for what is no number.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"X must be rows of numbers, such as an array or a data frame: {error}"
        ) from error
    _refuse_cells(X, name)
    # A fit reads the rows many times, and what is checked here must stay true.
    numbers = in_memory(numbers)
    if sparse.issparse(numbers):
        numbers = _without_duplicates(numbers)
    return check_finite(numbers, name), other


def _without_duplicates(X: Any) -> Any:
    rows: Any = sparse.csr_array(X)
    if not rows.has_canonical_format:
        rows = rows.copy()
        # Overflow is found by the check for finite numbers.
        with np.errstate(over="ignore"):
            rows.sum_duplicates()
    return rows


_COMPLEX = "Complex data not supported: X must hold real numbers"


def refuse_types(X: Any, name: Callable[[int], str] = column_by_number) -> None:
    """Refuse what scikit-learn would take for numbers, or would show in its error."""
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        given: Any = X
        kind, n_axes = given.dtype.kind, given.ndim
        if kind in "Mm":
            raise dates("X")
        if kind == "c":
            raise ValueError(_COMPLEX)
        if n_axes < 2:
            raise ValueError(
                f"X must have rows and columns. Expected 2D array, got {n_axes}D array instead. "
                "Reshape your data: X.reshape(-1, 1) has a single feature, X.reshape(1, -1) a "
                "single row"
            )
        return
    types = column_types(X)
    for column, kind in enumerate(types):
        check_no_dates(name(column), kind)
        if kind.startswith("complex"):
            raise ValueError(f"{_COMPLEX}: {name(column)}")
    if not types:
        try:
            array = np.asarray(X)
        except ValueError:  # rows of different lengths, which scikit-learn refuses
            return
        if array.dtype.kind in "Mmc" or array.ndim < 2:
            refuse_types(array, name)


def _name_the_cell(X: Any, name: Callable[[int], str]) -> None:
    """Raise an error that names the first cell that is no number, if there is one."""
    cells = np.empty(0) if sparse.issparse(X) else np.asarray(X, dtype=object)
    for column, values in enumerate(cells.T if cells.ndim == 2 else ()):
        for row, cell in enumerate(values.tolist()):
            if is_date(cell):
                raise dates(f"X, row {row + 1}, {name(column)}")
            try:
                float(0.0 if isinstance(cell, complex) else cell)
            except (TypeError, ValueError, OverflowError) as error:
                if is_missing(cell):
                    raise not_finite(np.nan, row, name(column)) from None
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(
                    f"X must hold numbers: row {row + 1}, {name(column)}: {error}. Encode "
                    "categories by a public list of them: SchemaEncoder, "
                    "OneHotEncoder(categories=...)"
                ) from None


def _refuse_cells(X: Any, name: Callable[[int], str]) -> None:
    """Refuse text and dates that were read as numbers, which no other container would take."""
    if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind not in "OUST"):
        return
    types = [] if isinstance(X, (np.ndarray, list, tuple)) else column_types(X)
    if types and not any(kind.startswith(_MAY_BE_TEXT) for kind in types):
        return
    cells = np.asarray(X)
    for column, values in enumerate(cells.T if cells.dtype.kind in "OUST" else ()):
        for row, cell in enumerate(values.tolist()):
            if is_date(cell):
                raise dates(f"X, row {row + 1}, {name(column)}")
            if isinstance(cell, (str, bytes)):
                raise ValueError(
                    f"X must hold numbers: row {row + 1}, {name(column)}: {cell!r} is text. Turn "
                    "it into a number, or encode it by a public list of categories"
                )


def column_types(table: Any) -> list[str]:
    """Return the types of a table's columns, as its library calls them; none of other values."""
    types = getattr(table, "dtypes", None) if getattr(table, "ndim", 2) == 2 else ()
    if types is None:
        types = getattr(getattr(table, "schema", None), "types", ())
    return [str(kind).lower() for kind in types]


_MAY_BE_TEXT = ("object", "str", "large_string", "category", "categorical", "enum")
