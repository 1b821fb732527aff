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
from dpglm.tables.finite import check_finite, column_in_words, not_finite, unmasked
from dpglm.tables.unchanged import in_memory

__all__ = ["finite_matrix"]


def finite_matrix(
    X: Any,
    read: Callable[..., tuple[Any, Any]],
    names: Sequence[str] | NDArray[Any] | None = None,
) -> tuple[Any, Any]:
    """Read rows in memory as finite numbers, in float32 or float64.

    ``read`` takes options of ``sklearn.utils.check_array`` and returns rows and something else,
    which is returned beside them. Rows mapped from a file are copied, and duplicate entries of
    sparse ones added up. ``names`` defaults to the columns' names in ``X``. Errors name the row
    and the column of a cell that is missing, infinite, masked, no number, or text that spells one.
    """
    unmasked("X", X)
    if type(X).__name__ == "LazyFrame":
        raise ValueError("X must be rows in memory, got a lazy frame: give X.collect()")
    names = _get_feature_names(X) if names is None else names
    name = functools.partial(column_in_words, None if names is None else tuple(names))
    dtypes = [np.float64, np.float32]
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
    _refuse_text(X, name)
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


def _name_the_cell(X: Any, name: Callable[[int], str]) -> None:
    """Raise an error that names the first cell that is no number, if there is one."""
    cells = np.empty(0) if sparse.issparse(X) else np.asarray(X, dtype=object)
    for column, values in enumerate(cells.T if cells.ndim == 2 else ()):
        for row, cell in enumerate(values.tolist()):
            try:
                float(0.0 if isinstance(cell, complex) else cell)
            except (TypeError, ValueError, OverflowError) as error:
                if is_missing(cell):
                    raise not_finite(np.nan, row, name(column)) from None
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(
                    f"X must hold numbers: row {row + 1}, {name(column)}: {error}. Encode "
                    "categories by a public list of them: SchemaEncoder, "
                    "OneHotEncoder(categories=...); turn dates into numbers, such as days since a "
                    "fixed day"
                ) from None


def _refuse_text(X: Any, name: Callable[[int], str]) -> None:
    """Refuse text that was read because it spells numbers, which no other container would take."""
    if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind not in "OUST"):
        return
    types = () if isinstance(X, (np.ndarray, list, tuple)) else getattr(X, "dtypes", ())
    if len(types) and not any(str(kind).lower().startswith(_MAY_BE_TEXT) for kind in types):
        return
    cells = np.asarray(X)
    for column, values in enumerate(cells.T if cells.dtype.kind in "OUST" else ()):
        for row, cell in enumerate(values.tolist()):
            if isinstance(cell, (str, bytes)):
                raise ValueError(
                    f"X must hold numbers: row {row + 1}, {name(column)}: {cell!r} is text. Turn "
                    "it into a number, or encode it by a public list of categories"
                )


_MAY_BE_TEXT = ("object", "str", "large_string", "category", "categorical", "enum")
