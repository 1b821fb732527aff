"""Checks of targets and weights as users give them, for rows of every kind."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.validation import _num_samples

from dpglm.tables.cells import as_float, is_missing, normal
from dpglm.tables.finite import NUMBER_KINDS, check_no_date_cells, unmasked

__all__ = [
    "NO_WEIGHT",
    "NO_WHERE",
    "Where",
    "as_column",
    "as_floats",
    "as_offset",
    "as_weights",
    "check_not_missing",
    "check_shape",
    "different_labels",
    "is_text",
    "series_name",
    "spelled_as",
]

NO_WEIGHT = "sample_weight must not be zero in every row"
"""Without any weight there is no score. Fits take such rows: whether all are erased is private."""

NO_WHERE = (
    "where must be None for rows that are not in memory: give them sample_weight, 1 where a row "
    "counts and 0 elsewhere, with weight_bound=1"
)

_TEXT = "UST"


def series_name(values: Any) -> str | None:
    """Return the name of a series of pandas or polars, if it has one."""
    of_frames = type(values).__module__.partition(".")[0] in ("pandas", "polars")
    name = getattr(values, "name", None) if of_frames else None
    return name if isinstance(name, str) and name else None


def as_column(values: Any, n_rows: int | None = None) -> NDArray[Any]:
    """Return targets as an array of one axis; take a column with scikit-learn's warning."""
    values = unmasked("y", values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "T":
        values = values.astype(object)  # which scikit-learn knows
    column: NDArray[Any] = column_or_1d(values, warn=True)
    if n_rows is not None:
        check_shape("y", column.shape, n_rows)
    return column


def check_shape(name: str, shape: tuple[int, ...], n_rows: int) -> None:
    """Check the shape of values that are not in memory, as ``as_column`` and ``as_weights`` do."""
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
    """Return numbers, true or false as float64, with NaN for what is missing; refuse all else."""
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
    raise ValueError(f"{name} must hold numbers, got the dtype {array.dtype}")


def check_not_missing(y: NDArray[Any]) -> NDArray[Any]:
    """Return targets or labels; refuse NaN, None, infinity, dates and masked entries."""
    y = unmasked("y", y)
    check_no_date_cells("y", y)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity"
        raise ValueError(f"y must be finite, but y contains {what}")
    if y.dtype.kind == "O" and any(
        is_missing(one) for one in y.tolist() if not isinstance(one, str)
    ):
        raise ValueError("y must be finite, but y contains NaN")
    return y


def is_text(labels: NDArray[Any]) -> bool | None:
    """Say whether labels are text (or numbers); None for neither, or some of each."""
    kind = labels.dtype.kind
    if kind == "O":
        found = {isinstance(one, str) for one in labels.tolist()}
        return found.pop() if len(found) == 1 else None
    return kind in _TEXT if kind in NUMBER_KINDS + _TEXT else None


def spelled_as(labels: NDArray[Any], known: Iterable[Any]) -> NDArray[Any]:
    """Return labels, those that equal a known one but for their spelling spelled as it is.

    Text is compared as ``dpglm.tables.cells.normal`` says.
    """
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


def different_labels(labels: Any) -> NDArray[Any]:
    """Return the different labels, sorted; of several spellings of one the first."""
    found = np.unique(labels.astype(object) if labels.dtype.kind == "T" else labels)
    first = {normal(one) if isinstance(one, str) else one: one for one in found.tolist()[::-1]}
    return found if len(first) == len(found) else found[np.isin(found, list(first.values()))]


def as_offset(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Return finite offsets of shape (n_rows,); one number counts for all rows."""
    offset = as_floats("offset", values)
    if isinstance(values, numbers.Real):
        offset = np.full(n_rows, float(offset))
    check_shape("offset", offset.shape, n_rows)
    if not np.isfinite(offset).all():
        raise ValueError("offset must be finite, and exposure above 0, in every row")
    return offset


@final
@dataclass(frozen=True, eq=False)
class Where:
    """Which rows of a table count, by a private condition; what is read holds these rows only.

    Privacy: a row that does not count has the weight 0 and enters nothing else, at its place among
    the table's rows, so that the public number of rows stays that of the table.
    """

    counts: NDArray[np.bool_]

    @classmethod
    def of(cls, where: Any, X: Any) -> Where:
        """Read the argument ``where`` about the rows of a table or matrix in memory."""
        first = next(iter(X.values()), ()) if isinstance(X, Mapping) else X
        n_rows = _num_samples(first)
        counts = np.asarray(unmasked("where", where))
        check_shape("where", counts.shape, n_rows)
        if counts.dtype.kind == "O" and all(isinstance(one, bool) for one in counts.tolist()):
            counts = counts.astype(bool)
        if counts.dtype != bool:
            raise ValueError(
                "where must be True or False in every row, as a comparison of columns gives it, "
                f"got {counts.dtype}"
            )
        return cls(counts)

    def rows(self, values: Any) -> Any:
        """Return what is given about these rows; None, and one number for all rows, as they are."""
        if values is None or isinstance(values, numbers.Real):
            return values
        if isinstance(values, Mapping):
            return {name: self.rows(column) for name, column in values.items()}
        if _num_samples(values) != len(self.counts):
            raise ValueError(
                f"where must have one entry for each row, got {len(self.counts)} for "
                f"{_num_samples(values)} rows"
            )
        return _safe_indexing(values, np.flatnonzero(self.counts))


def as_weights(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Return finite weights of at least 0, of shape (n_rows,); one number counts for all rows."""
    weights = as_floats("sample_weight", values)
    if isinstance(values, numbers.Real):
        weights = np.full(n_rows, float(weights))
    check_shape("sample_weight", weights.shape, n_rows)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError("sample_weight must be finite and at least 0 in every row")
    return weights
