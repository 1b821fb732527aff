"""Checks of rows, targets, weights and offsets in memory, and of files that must not change."""

from __future__ import annotations

import contextlib
import functools
import mmap
import numbers
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.exceptions import RowsChangedError
from dpglm.tables.cells import (
    CONDITION,
    NUMBER_KINDS,
    as_float,
    check_finite,
    check_no_date_cells,
    check_no_dates,
    column_by_number,
    column_in_words,
    dates,
    is_date,
    is_missing,
    normal,
    not_finite,
    row_name,
    unmasked,
)

NO_WEIGHT = "sample_weight must not be zero in every row"
"""Scores require a weight. Fits accept such rows: whether all rows are erased is private."""
NO_WHERE = (
    "where must be None for rows that are not in memory: give sample_weight instead, 1 for rows "
    "that count and 0 for others, with weight_bound=1"
)
_TEXT = "UST"


def series_name(values: Any) -> str | None:
    """Return the name of a series of pandas or polars, if it has one."""
    if isinstance(values, np.ndarray | list | tuple):
        return None
    from narwhals import dependencies

    name = getattr(values, "name", None) if dependencies.is_into_series(values) else None
    return name if isinstance(name, str) and name else None


def as_column(values: Any, n_rows: int | None = None) -> NDArray[Any]:
    """Return targets as an array with one axis; warn of a column vector as scikit-learn does."""
    from sklearn.utils import column_or_1d

    values = unmasked("y", values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "T":
        values = values.astype(object)  # which scikit-learn knows
    column: NDArray[Any] = column_or_1d(values, warn=True)
    if n_rows is not None:
        check_shape("y", column.shape, n_rows)
    return column


def check_shape(name: str, shape: tuple[int, ...], n_rows: int) -> None:
    """Check the shape of targets, weights or offsets for this number of rows."""
    from sklearn.exceptions import DataConversionWarning

    if name != "y":
        if shape != (n_rows,):
            raise ValueError(f"{name} must have shape ({n_rows},), got shape {shape}")
        return
    if len(shape) != 1 and shape[1:] != (1,):
        raise ValueError(f"y should be a 1d array, got an array of shape {shape} instead.")
    if shape[0] != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, shape[0]]}"
        )
    if len(shape) == 2:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape "
            "of y to (n_samples, ), for example using ravel().",
            DataConversionWarning,
            stacklevel=2,
        )


def as_floats(name: str, values: Any) -> NDArray[np.float64]:
    """Return numbers and bool as float64, with NaN for missing ones; refuse other values."""
    array = np.asarray(unmasked(name, values))
    kind = array.dtype.kind
    check_no_date_cells(name, array)
    try:
        if kind == "O":
            cells = [np.nan if is_missing(one) else as_float(one) for one in array.ravel().tolist()]
            return np.array(cells, dtype=np.float64).reshape(array.shape)
        if kind in NUMBER_KINDS:
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must contain numbers, got dtype {array.dtype}")


def check_not_missing(y: NDArray[Any], *, names_row: bool = False) -> NDArray[Any]:
    """Return targets or labels without NaN, None, infinity, dates and masked entries.

    ``names_row`` is for all rows at once: its error is for their holder, before any release.
    """
    y = unmasked("y", y)
    check_no_date_cells("y", y)
    gaps = np.zeros(len(y), np.bool_)
    if y.dtype.kind == "f":
        if np.isinf(y).any() and not np.isnan(y).any():
            raise ValueError("y must be finite, but y contains infinity")
        gaps = np.isnan(y)
    elif y.dtype.kind == "O":
        gaps = np.array([not isinstance(one, str) and is_missing(one) for one in y.tolist()], bool)
    if gaps.any():
        row = f" in {row_name(int(gaps.argmax()))}" if names_row else ""
        raise ValueError(
            f"y must be finite, but y contains NaN{row}. Give where=, False for such rows: "
            "dropping them would publish their number"
        )
    return y


def is_text(labels: NDArray[Any]) -> bool | None:
    """Return whether all labels are text (True) or numbers (False); None otherwise."""
    kind = labels.dtype.kind
    if kind == "O":
        found = {isinstance(one, str) for one in labels.tolist()}
        return found.pop() if len(found) == 1 else None
    return kind in _TEXT if kind in NUMBER_KINDS + _TEXT else None


def spelled_as(labels: NDArray[Any], known: Iterable[Any]) -> NDArray[Any]:
    """Return labels in the spelling of known ones; text is compared in its normal form."""
    labels = labels.astype(object) if labels.dtype.kind == "T" else labels
    if labels.dtype.kind not in "OU":
        return labels
    cells, spelled = labels.tolist(), {normal(one): one for one in known if isinstance(one, str)}
    found = {one for one in cells if isinstance(one, str)}
    changes = {one: spelled[normal(one)] for one in found if normal(one) in spelled}
    if all(one == change for one, change in changes.items()):
        return labels
    new = np.empty(labels.shape, dtype=object)
    new[:] = [changes.get(one, one) if isinstance(one, str) else one for one in cells]
    return new


def different_labels(classes: Any) -> NDArray[Any]:
    """Return the distinct labels, sorted, with the first spelling of each."""
    labels = np.asarray(classes)
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"classes must be a list of labels, got {classes!r}")
    found = np.unique(labels.astype(object) if labels.dtype.kind == "T" else labels)
    first = {normal(one) if isinstance(one, str) else one: one for one in found.tolist()[::-1]}
    return found if len(first) == len(found) else found[np.isin(found, list(first.values()))]


def _one_for_each_row(name: str, values: Any, n_rows: int) -> NDArray[np.float64]:
    found = as_floats(name, values)
    if isinstance(values, numbers.Real):
        found = np.full(n_rows, float(found))
    check_shape(name, found.shape, n_rows)
    return found


def as_offset(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Return finite offsets of shape (n_rows,); a single number applies to all rows."""
    offset = _one_for_each_row("offset", values, n_rows)
    if not np.isfinite(offset).all():
        raise ValueError("offset must be finite, and exposure above 0, in every row")
    return offset


@final
@dataclass(frozen=True, eq=False)
class Where:
    """A private condition that selects rows of a table; only selected rows are read.

    Privacy: other rows keep their place with weight 0 and enter nothing else, so the public number
    of rows is that of the table.
    """

    counts: NDArray[np.bool_]
    is_applied: bool = False
    """Whether arguments are the selected rows already."""

    @classmethod
    def of(cls, where: Any, X: Any) -> Where:
        """Read the argument ``where`` for a table or matrix in memory."""
        if isinstance(where, Where):
            return where
        from sklearn.utils.validation import _num_samples

        first = next(iter(X.values()), ()) if isinstance(X, Mapping) else X
        n_rows = _num_samples(first)
        if isinstance(where, str):
            raise ValueError(
                f"where must be True or False in every row, such as table['age'] >= 65, got "
                f"{where!r}. Conditions in words are for the command line"
            )
        counts = np.asarray(unmasked("where", where))
        check_shape("where", counts.shape, n_rows)
        if counts.dtype.kind == "O" and all(isinstance(one, bool) for one in counts.tolist()):
            counts = counts.astype(bool)
        if counts.dtype != bool:
            raise ValueError(
                f"where must be True or False in every row, such as a comparison of columns, got "
                f"{counts.dtype}"
            )
        return cls(counts)

    def rows(self, values: Any) -> Any:
        """Return the selected rows of an argument; None and single numbers are unchanged."""
        from sklearn.utils import _safe_indexing
        from sklearn.utils.validation import _num_samples

        if values is None or isinstance(values, numbers.Real) or self.is_applied:
            return values
        if isinstance(values, Mapping):
            return {name: self.rows(column) for name, column in values.items()}
        if _num_samples(values) != len(self.counts):
            raise ValueError(
                f"where must have one entry per row, got {len(self.counts)} for "
                f"{_num_samples(values)} rows"
            )
        return _safe_indexing(values, np.flatnonzero(self.counts))

    @staticmethod
    @contextlib.contextmanager
    def numbering(where: Any) -> Iterator[None]:
        """State errors about selected rows with their numbers in the whole table."""
        token = CONDITION.set(where.counts if isinstance(where, Where) else where)
        try:
            yield
        finally:
            CONDITION.reset(token)


def as_weights(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Return finite weights of at least 0, of shape (n_rows,); a number applies to all rows."""
    weights = _one_for_each_row("sample_weight", values, n_rows)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError("sample_weight must be finite and at least 0 in every row")
    return weights


# Tables and matrices in memory as finite numbers.


def finite_matrix(
    X: Any, read: Callable[..., tuple[Any, Any]], names: Sequence[str] | NDArray[Any] | None = None
) -> tuple[Any, Any]:
    """Read rows in memory as finite numbers, in float32 or float64.

    ``read`` takes options of ``sklearn.utils.check_array`` and returns rows and another value, both
    of which are returned. Rows mapped from a file are copied, and duplicate sparse entries are
    added up. ``names`` defaults to the column names of ``X``. Errors name the row and the column of
    a cell that is missing, infinite, masked, not a number, a date, or text; they do not show other
    cells.
    """
    from sklearn.utils.validation import _get_feature_names

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
        _check_cells(X, name, every=True)
        if isinstance(error, ValueError):
            raise
        # scikit-learn raises a TypeError for values that are not numbers.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"X must be rows of numbers, such as an array or a data frame: {error}"
        ) from error
    _check_cells(X, name, every=False)
    # A fit reads the rows many times, so a mapped file must not change after this check.
    whole: Any = in_memory(numbers)
    is_sparse: bool = sparse.issparse(whole)
    if is_sparse:
        whole = sparse.csr_array(whole)
        if not whole.has_canonical_format:
            whole = whole.copy()
            # The check for finite numbers finds overflow.
            with np.errstate(over="ignore"):
                whole.sum_duplicates()
    return check_finite(whole, name), other


_COMPLEX = "Complex data not supported: X must contain real numbers"


def refuse_types(X: Any, name: Callable[[int], str] = column_by_number) -> None:
    """Refuse types that scikit-learn would read as numbers, or would show in its error."""
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
        except ValueError:  # scikit-learn refuses rows of different lengths
            return
        if array.dtype.kind in "Mmc" or array.ndim < 2:
            refuse_types(array, name)


def _check_cells(X: Any, name: Callable[[int], str], *, every: bool) -> None:
    """Name the first cell that is not a number, also of types that cannot be text if ``every``."""
    if sparse.issparse(X):
        return
    types = [] if isinstance(X, (np.ndarray, list, tuple)) else column_types(X)
    may_be_text = not types or any(kind.startswith(_MAY_BE_TEXT) for kind in types)
    if not every and not (may_be_text and np.asarray(X).dtype.kind in "OUST"):
        return
    cells = np.asarray(X, dtype=object)
    for column, values in enumerate(cells.T if cells.ndim == 2 else ()):
        for row, cell in enumerate(values.tolist()):
            if is_date(cell):
                raise dates(f"X, {row_name(row)}, {name(column)}")
            try:
                float(0.0 if isinstance(cell, complex) else cell)
            except (TypeError, ValueError, OverflowError) as error:
                if is_missing(cell):
                    raise not_finite(np.nan, row, name(column)) from None
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(
                    f"X must contain numbers: {row_name(row)}, {name(column)}: {error}. Encode "
                    "categories by a public list of them: SchemaEncoder, "
                    "OneHotEncoder(categories=...)"
                ) from None
            if isinstance(cell, (str, bytes)):
                raise ValueError(
                    f"X must contain numbers: {row_name(row)}, {name(column)}: {cell!r} is text. "
                    "Turn it into a number, or encode it by a public list of categories"
                )


def column_types(table: Any) -> list[str]:
    """Return a table's column types in its library's names; an empty list for other values."""
    types = getattr(table, "dtypes", None) if getattr(table, "ndim", 2) == 2 else ()
    if types is None:
        types = getattr(getattr(table, "schema", None), "types", ())
    return [str(kind).lower() for kind in types]


_MAY_BE_TEXT = ("object", "str", "large_string", "category", "categorical", "enum")


Mark: TypeAlias = tuple[Path, os.stat_result]
"""A file, and its identity, size and modification time at one time."""


def difference_of(path: Path, before: os.stat_result) -> str | None:
    """Describe the change of a file since then; None if it is unchanged."""
    try:
        now = os.stat(path)
    except OSError as error:
        return f"{path} cannot be found ({error.strerror})"
    if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
        return f"{path} is another file than before"
    if now.st_size != before.st_size:
        return f"{path} had {before.st_size} bytes and has {now.st_size}"
    return None if now.st_mtime_ns == before.st_mtime_ns else f"{path} was written to"


@final
@dataclass(frozen=True)
class Watch:
    """Files that must not change."""

    marks: tuple[Mark, ...] = ()

    @classmethod
    def over(cls, arrays: Iterable[Any]) -> Watch:
        """Watch the files of memory-mapped arrays."""
        maps = (mapped for array in arrays for mapped in memory_maps(array))
        names = {Path(mapped.filename) for mapped in maps if mapped.filename is not None}
        return cls(tuple((path, os.stat(path)) for path in sorted(names)))

    def check(self) -> None:
        """Raise RowsChangedError if a file has changed."""
        for path, before in self.marks:
            difference = difference_of(path, before)
            if difference is not None:
                raise changed(difference)


def changed(difference: str) -> RowsChangedError:
    """Return the error about a changed file."""
    return RowsChangedError(
        f"rows changed while they were in use: {difference}. Nothing was released from the changed "
        "rows; earlier releases of the fit and its ledger entry remain charged"
    )


def memory_maps(array: Any) -> Iterator[np.memmap[Any, Any]]:
    """Yield the memory maps that an array is a view of, itself first."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            yield array
        array = array.base


def check_length(array: Any) -> None:
    """Raise RowsChangedError if the file of a mapped array has become too short.

    Reading a page beyond the end of the file would kill the process.
    """
    for mapped in memory_maps(array):
        pages: Any = mapped.base
        if isinstance(pages, mmap.mmap):
            end = mapped.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            if pages.size() < end + len(pages):
                raise changed(f"{mapped.filename} was cut off at {pages.size()} bytes")


def in_memory(X: Any) -> Any:
    """Return a matrix with copies of parts that are mapped from files."""
    if isinstance(X, np.ndarray):
        if next(memory_maps(X), None) is None:
            return X
        check_length(X)
        return np.array(X, order="K")
    parts = (X.data, X.indices, X.indptr)
    own = tuple(map(in_memory, parts))
    same = all(one is other for one, other in zip(own, parts, strict=True))
    return X if same else sparse.csr_array(own, shape=X.shape)
