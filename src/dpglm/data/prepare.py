"""From the user's matrix to prepared rows: clip to public bounds, scale, bound norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm.data.dense import DenseRows
from dpglm.data.rows import Floats, Rows
from dpglm.data.sparse import SparseRows
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec

__all__ = ["ColumnScaling", "Matrix", "column_scaling", "largest_norm", "prepare_rows"]

Matrix: TypeAlias = "Floats | sparse.csr_array"

_CHUNK_ENTRIES = 1 << 18


@final
@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """Clips columns to public bounds and maps them to [-1, 1], or does nothing.

    Parameters
    ----------
    low, high : ndarray of shape (n_features,)
        Public bounds of each column, in the user's units.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def center(self) -> NDArray[np.float64]:
        """Middle of each column's bounds."""
        return self.low / 2.0 + self.high / 2.0

    @property
    def scale(self) -> NDArray[np.float64]:
        """Half the width of each column's bounds; 1 where the width is zero."""
        half = self.high / 2.0 - self.low / 2.0
        return np.where(half > 0.0, half, 1.0)

    def clip(self, X: Floats) -> Floats:
        """Return rows with every column clipped to its bounds, in a new array."""
        return np.clip(X, self.low.astype(X.dtype), self.high.astype(X.dtype))

    def clip_sparse(self, X: sparse.csr_array) -> sparse.csr_array:
        """Return rows with every stored value clipped to its column's bounds."""
        data = np.clip(X.data, self.low[X.indices], self.high[X.indices]).astype(X.dtype)
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)

    def clip_matrix(self, X: Any) -> Matrix:
        """Return dense or sparse rows with their values clipped."""
        if isinstance(X, np.ndarray):
            return self.clip(X)
        # Entries that share a place are one value, and are added up before it is clipped.
        rows = sparse.csr_array(X, copy=True)
        rows.sum_duplicates()
        return self.clip_sparse(rows)

    def apply(self, X: Floats) -> Floats:
        """Return clipped, centred and scaled rows, in a new array of the same dtype."""
        scaled = self.clip(X)
        scaled -= self.center.astype(X.dtype)
        scaled /= self.scale.astype(X.dtype)
        return scaled

    def apply_sparse(self, X: sparse.csr_array) -> sparse.csr_array:
        """Return clipped and scaled rows that are not centred, so that zeros stay zeros."""
        clipped = self.clip_sparse(X)
        clipped.data /= self.sparse_scale[X.indices].astype(X.dtype)
        return clipped

    @property
    def sparse_scale(self) -> NDArray[np.float64]:
        """Largest magnitude within each column's bounds; 1 where that is zero."""
        reach = np.maximum(np.abs(self.low), np.abs(self.high))
        return np.where(reach > 0.0, reach, 1.0)


def column_scaling(bounds: tuple[ArrayLike, ArrayLike], n_features: int) -> ColumnScaling:
    """Read ``feature_bounds``.

    Parameters
    ----------
    bounds : pair of float or array_like of shape (n_features,)
        Public lower and upper bounds.
    n_features : int
        Number of columns.

    Returns
    -------
    ColumnScaling

    Raises
    ------
    ValueError
        If the bounds are not two finite scalars or vectors with low <= high.
    """
    try:
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        low, high = (np.array(np.broadcast_to(b, (n_features,))) for b in (low, high))
    except (TypeError, ValueError):
        raise ValueError(
            "feature_bounds must be a pair (low, high) of numbers or of arrays of shape "
            f"({n_features},), got {bounds!r}"
        ) from None
    finite = np.isfinite(low).all() and np.isfinite(high).all()
    if not (finite and (low <= high).all() and max(abs(low).max(), abs(high).max()) <= LARGEST):
        raise ValueError(
            f"feature_bounds must be within +-{LARGEST:g} with low <= high in every column, got "
            f"{bounds!r}"
        )
    if ((low < high) & (high - low < SMALLEST)).any():
        raise ValueError(
            f"feature_bounds must be at least {SMALLEST:g} apart, or equal, got {bounds!r}"
        )
    return ColumnScaling(low, high)


def largest_norm(X: Matrix) -> float:
    """Largest row norm of the data: private, unless the caller declares it public."""
    norms = _norms(X)
    return float(norms.max()) if norms.size else 0.0


def prepare_rows(
    X: Matrix,
    y: NDArray[Any],
    spec: DataSpec,
    scaling: ColumnScaling | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Rows:
    """Make rows satisfy the bounds of ``spec``.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, n_features), float32 or float64
        Finite values; never changed, and not copied unless they must be.
    y : ndarray of shape (n,)
        Targets in the loss's convention, within the bounds of ``spec``.
    spec : DataSpec
        The public facts.
    scaling : ColumnScaling, optional
        Applied to the columns first.
    weights : ndarray of shape (n,), optional
        Weights; clipped to [0, ``spec.weight_bound``].

    Returns
    -------
    Rows

    Notes
    -----
    Privacy: every repair depends on its own row only: columns are clipped, then a row longer
    than ``spec.row_norm`` is scaled down to it. Norms are computed in float64 and rounded up.
    """
    if sparse.issparse(X):
        X = X if scaling is None else scaling.apply_sparse(X)
    elif scaling is not None:
        X = scaling.apply(X)
    norms = _norms(X)
    too_long = norms > spec.row_norm
    if too_long.any():
        # A relative margin, so that rounding cannot leave a row longer than the bound.
        margin = 1.0 - 4.0 * float(np.finfo(X.dtype).eps)
        factors = np.where(too_long, margin * spec.row_norm / np.where(too_long, norms, 1.0), 1.0)
        X = _scale_rows(X, factors.astype(X.dtype))
        norms = np.minimum(_norms(X), spec.row_norm)
    lengths = np.hypot(norms, spec.intercept) * (1.0 + 8.0 * np.finfo(np.float64).eps)
    lengths = np.nextafter(lengths.astype(X.dtype), np.inf, dtype=X.dtype)
    if weights is not None:
        weights = np.clip(weights, 0.0, spec.weight_bound).astype(X.dtype)
    if spec.n_outputs == 1:
        y = y.astype(X.dtype, copy=False)
    if sparse.issparse(X):
        return SparseRows(X, y, lengths, spec, weights)
    return DenseRows(X, y, lengths, spec, weights)


def _norms(X: Matrix) -> NDArray[np.float64]:
    """L2 norms of rows in float64, each computed from its own row alone."""
    if sparse.issparse(X):
        values = sparse.csr_array((X.data.astype(np.float64), X.indices, X.indptr), shape=X.shape)
        return _safe_norms(lambda rows: values[rows], _sparse_norms)
    norms = np.empty(X.shape[0])
    step = max(1, _CHUNK_ENTRIES // X.shape[1])
    for start in range(0, X.shape[0], step):
        chunk = X[start : start + step].astype(np.float64)
        norms[start : start + step] = _safe_norms(chunk.__getitem__, _dense_norms)
    return norms


def _safe_norms(
    take: Callable[[Any], Any], norms_of: Callable[[Any], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Norms, computed again from scaled values where squares overflow."""
    with np.errstate(over="ignore", under="ignore"):
        norms = norms_of(take(slice(None)))
    for row in np.flatnonzero(norms > 1e150):
        values = take(slice(row, row + 1))
        top = float(abs(values).max())
        norms[row] = top * norms_of(values / top)[0]
    # Squares of values below this underflow, but such values are no longer than this either.
    return np.maximum(norms, 1e-149)


def _dense_norms(X: NDArray[np.float64]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", X, X)
    return np.sqrt(squares)


def _sparse_norms(X: sparse.csr_array) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.sqrt(squares)


def _scale_rows(X: Matrix, factors: Floats) -> Matrix:
    if sparse.issparse(X):
        data = X.data * np.repeat(factors, np.diff(X.indptr))
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    return X * factors[:, np.newaxis]
