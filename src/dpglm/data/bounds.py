"""Bounds of columns as users write them, and linear predictions from columns within them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm._calls import frames_to_the_user
from dpglm._validation import as_host, in_one_line, like, namespace
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.prepare import ColumnScaling, column_scaling
from dpglm.exceptions import EqualBoundsWarning
from dpglm.tables.cells import NUMBER_KINDS, check_unique, column_in_words, spelled_in
from dpglm.tables.given import as_offset
from dpglm.tables.named import offset_of

FeatureBounds: TypeAlias = (
    tuple[ArrayLike, ArrayLike]
    | Sequence[tuple[float, float]]
    | Mapping[str, tuple[float, float]]
    | Mapping[int, tuple[float, float]]
)
"""Bounds of columns, as users write them: see ``read_feature_bounds``."""
_SHOWN = 5


def read_feature_bounds(
    bounds: FeatureBounds, n_features: int, names: Sequence[str] | NDArray[Any] | None = None
) -> ColumnScaling:
    """Read bounds of columns, in any of the forms of ``FeatureBounds``.

    They are a pair (low, high) of numbers or of arrays of shape (n_features,); or one pair for
    each column, in order; or a mapping from every column's name, or its number, to its pair.
    ``names`` are the columns' names.
    """
    if isinstance(bounds, Mapping):
        return column_scaling(_by_column(bounds, n_features, names), n_features, names)
    # A matrix is read as the list of its rows.
    rows = bounds if isinstance(bounds, list | tuple) else np.asarray(bounds).tolist()
    rows = rows if isinstance(rows, list | tuple) else ()
    is_pair = len(rows) == 2 and all(_shape(row) in ((), (1,), (n_features,)) for row in rows)
    is_by_column = len(rows) == n_features and all(_shape(row) == (2,) for row in rows)
    if not is_pair and not is_by_column:
        raise ValueError(
            "feature_bounds must be a mapping from column to (low, high), a pair (low, high) of "
            f"numbers or of arrays of shape ({n_features},), or a sequence of {n_features} such "
            f"pairs, got {in_one_line(bounds)}"
        )
    if is_pair and is_by_column and all(isinstance(row, list | tuple) for row in rows):
        square = np.asarray(rows, dtype=np.float64)
        if not np.array_equal(square, square.T):
            raise ValueError(
                "feature_bounds of two columns can be read as (lows, highs) or as one (low, high) "
                f"for each, got {in_one_line(bounds)}; write {{0: (low, high), 1: (low, high)}} "
                "with names in place of numbers where columns have them, or (numpy.array(lows), "
                "numpy.array(highs))"
            )
    if is_pair:
        return column_scaling((rows[0], rows[1]), n_features, names)
    low, high = np.asarray(rows, dtype=np.float64).T
    return column_scaling((low, high), n_features, names)


def check_feature_bounds(bounds: FeatureBounds, n_features: int) -> None:
    """Check bounds before any row is seen, when column names are unknown."""
    keys = list(bounds) if isinstance(bounds, Mapping) else []
    names = [str(key) for key in keys if isinstance(key, str)]
    if names and len(keys) != n_features:
        raise ValueError(
            f"feature_bounds must have one (low, high) for each of {n_features} columns, got "
            f"{len(keys)}"
        )
    read_feature_bounds(bounds, n_features, names or None)


def warn_of_equal_bounds(
    scaling: ColumnScaling, names: Sequence[str] | NDArray[Any] | None = None
) -> None:
    """Warn of columns with equal bounds, where every row gets the same value."""
    equal = np.flatnonzero(scaling.low == scaling.high).tolist()
    if equal:
        shown = ", ".join(column_in_words(names, column) for column in equal[:_SHOWN])
        more = f" and {len(equal) - _SHOWN} more" if len(equal) > _SHOWN else ""
        warnings.warn(
            f"feature_bounds has low equal to high for {shown}{more}: every row is given this one "
            "value there, whatever it holds",
            EqualBoundsWarning,
            stacklevel=frames_to_the_user(),
        )


def _by_column(
    bounds: Mapping[Any, Any], n_features: int, names: Sequence[str] | NDArray[Any] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Put the pairs of a mapping into the order of the columns."""
    by_number = all(isinstance(key, int | np.integer) for key in bounds)
    if names is None and not by_number:
        raise ValueError(
            f"feature_bounds must have the numbers 0 to {n_features - 1} of columns as keys where "
            f"X lacks column names, got {list(bounds)[:_SHOWN]!r}"
        )
    columns = list(range(n_features)) if by_number or names is None else list(names)
    texts = [key for key in bounds if isinstance(key, str)]
    check_unique(texts, "column of feature_bounds")
    spelled = spelled_in(texts, columns)
    bounds = {spelled.get(key, key): pair for key, pair in bounds.items()}
    missing = [column for column in columns if column not in bounds]
    unknown = [key for key in bounds if key not in set(columns)]
    if missing or unknown:
        raise ValueError(
            "feature_bounds must have one (low, high) for each column; "
            + "; ".join(
                f"{what}: {keys[:_SHOWN]!r}" + (" and others" if len(keys) > _SHOWN else "")
                for what, keys in (("without bounds", missing), ("not in X", unknown))
                if keys
            )
        )
    for column in columns:
        if _shape(bounds[column]) != (2,):
            raise ValueError(
                f"feature_bounds[{column!r}] must be a pair (low, high) of numbers, got "
                f"{in_one_line(bounds[column])}"
            )
    low, high = np.array([bounds[column] for column in columns], dtype=np.float64).T
    return low, high


def _shape(value: Any) -> tuple[int, ...] | None:
    """Shape of a value as an array of numbers; None if it is not one, or has text in it."""
    try:
        shape = np.asarray(value, dtype=np.float64).shape
    except (TypeError, ValueError):
        return None
    cells = np.asarray(value)
    is_number = cells.dtype.kind in NUMBER_KINDS or not any(
        isinstance(one, str | bytes) for one in np.asarray(value, dtype=object).flat
    )
    return shape if is_number else None


# Predictions of a linear model for blocks of rows, computed where the rows are.

Output: TypeAlias = Callable[[NDArray[np.float64]], NDArray[Any]]
"""A function of linear scores of shape (n,) or (n, n_classes), applied row by row."""


@final
@dataclass(frozen=True, eq=False)
class RowPrediction:
    """A linear model as a function of features, which can be sent to a worker.

    ``coef`` has shape (n_features,) or (n_outputs, n_features); columns are clipped as ``scaling``
    says; ``output`` turns scores of shape (n,) or (n, n_outputs), offsets aside at most
    ``largest_score``, into predictions.
    """

    coef: NDArray[np.float64]
    intercept: Any
    scaling: ColumnScaling | None
    output: Output
    largest_score: float = math.inf

    def __call__(self, X: Any, offset: ArrayLike = 0.0) -> NDArray[Any]:
        """Predict; scores are computed on the device of X and copied to the host."""
        xp, coef = namespace(X), np.atleast_2d(self.coef).T
        if xp is not np:
            X, coef = xp.asarray(X, dtype=xp.float64), like(X, coef)
        X = X if self.scaling is None else self.scaling.clip_matrix(X)
        # SciPy multiplies sparse rows one after the other.
        is_sparse: bool = sparse.issparse(X)
        z = X @ coef if is_sparse else row_by_row_product(X, coef)
        z = np.minimum((z if xp is np else as_host(z)) + self.intercept, self.largest_score)
        return self.output((z.ravel() if z.shape[1] == 1 else z) + offset)


def with_offset(output: Output, offset: Any, exposure: Any) -> Output:
    """Return an output at the scores plus offsets: a number, or one for each row in memory."""
    if offset is None and exposure is None:
        return output
    given = offset_of(offset, exposure)

    def answer(z: NDArray[np.float64]) -> NDArray[Any]:
        return output(z + as_offset(given, len(z)))

    return answer


def scores(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return linear scores as they are."""
    return z


@final
@dataclass(frozen=True, eq=False)
class ClassLabels:
    """The label with the highest score, among the sorted ``classes``."""

    classes: NDArray[Any]

    def __call__(self, z: NDArray[np.float64]) -> NDArray[Any]:
        """Return labels; of two classes the second where the score is positive."""
        indices = (z > 0.0).astype(np.intp) if z.ndim == 1 else z.argmax(axis=1)
        labels: NDArray[Any] = self.classes[indices]
        return labels
