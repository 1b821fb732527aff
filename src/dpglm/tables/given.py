"""Checks of targets and weights as users give them, for rows of every kind."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d

from dpglm.tables.cells import is_missing
from dpglm.tables.finite import NUMBER_KINDS, unmasked

__all__ = [
    "NO_WEIGHT",
    "as_column",
    "as_floats",
    "as_offset",
    "as_weights",
    "check_not_missing",
    "check_shape",
    "is_text",
    "series_name",
]

NO_WEIGHT = "sample_weight must not be zero in every row"
"""Without any weight there is no score. Fits take such rows: whether all are erased is private."""

_TEXT = "UST"


def series_name(values: Any) -> str | None:
    """Return the name of a series of pandas or polars, if it has one."""
    of_frames = type(values).__module__.partition(".")[0] in ("pandas", "polars")
    name = getattr(values, "name", None) if of_frames else None
    return name if isinstance(name, str) and name else None


def as_column(values: Any, n_rows: int) -> NDArray[Any]:
    """Return targets as an array of one axis; take a column with scikit-learn's warning."""
    column: NDArray[Any] = column_or_1d(unmasked("y", values), warn=True)
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
    """Return numbers, true or false as float64, with NaN for what is missing; refuse text."""
    array = np.asarray(unmasked(name, values))
    kind = array.dtype.kind
    try:
        if kind == "O" and not any(isinstance(one, (str, bytes)) for one in array.flat):
            cells = [np.nan if is_missing(one) else one for one in array.ravel().tolist()]
            return np.array(cells, dtype=np.float64).reshape(array.shape)
        if kind in NUMBER_KINDS:
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must hold numbers, got the dtype {array.dtype}")


def check_not_missing(y: NDArray[Any]) -> NDArray[Any]:
    """Return targets or labels; refuse NaN, None, infinity and masked entries."""
    y = unmasked("y", y)
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


def as_offset(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Return finite offsets of shape (n_rows,); one number counts for all rows."""
    offset = as_floats("offset", values)
    if isinstance(values, numbers.Real):
        offset = np.full(n_rows, float(offset))
    check_shape("offset", offset.shape, n_rows)
    if not np.isfinite(offset).all():
        raise ValueError("offset must be finite, and exposure above 0, in every row")
    return offset


def as_weights(values: Any, n_rows: int) -> NDArray[np.float64]:
    """Return finite weights of at least 0, of shape (n_rows,); one number counts for all rows."""
    weights = as_floats("sample_weight", values)
    if isinstance(values, numbers.Real):
        weights = np.full(n_rows, float(weights))
    check_shape("sample_weight", weights.shape, n_rows)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError("sample_weight must be finite and at least 0 in every row")
    return weights
