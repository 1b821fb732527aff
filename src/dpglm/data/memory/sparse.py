"""Sparse rows in CSR; sums are accumulated in float64, at a cost in the non-zeros."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.compiled import kernels
from dpglm.data.rows import Block, Floats, Rows
from dpglm.data.spec import DataSpec

BLOCK_ROWS = 4096
"""Rows in a block, which are added one after the other."""


@final
class SparseRows(Rows):
    """Rows of a CSR array without duplicate entries; otherwise as ``DenseRows``."""

    def __init__(
        self,
        X: sparse.csr_array,
        y: NDArray[Any],
        norms: Floats,
        spec: DataSpec,
        weights: Floats | None = None,
    ) -> None:
        self.spec = spec
        self._X, self._y, self._norms, self._weights = X, y, norms, weights

    @property
    def n_rows(self) -> int:
        return int(self._X.shape[0])

    def blocks(self) -> Iterator[Block]:
        for start in range(0, self.n_rows, BLOCK_ROWS):
            yield self.span(start, min(start + BLOCK_ROWS, self.n_rows))

    def span(self, start: int, stop: int) -> Block:
        """Return the rows from one position up to another as a block."""
        rows = slice(start, stop)
        weights = None if self._weights is None else self._weights[rows]
        return _SparseBlock(
            self._X, rows, self._y[rows], self._norms[rows], weights, self.spec.intercept
        )

    def clip_entries(self, bound: float) -> SparseRows:
        entries = np.clip(self._X.data, -bound, bound, dtype=self._X.dtype)
        X = sparse.csr_array((entries, self._X.indices, self._X.indptr), shape=self._X.shape)
        return SparseRows(X, self._y, self._norms, self.spec, self._weights)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> SparseRows:
        weights = None if self._weights is None else self._weights[indices]
        return SparseRows(self._X[indices], self._y[indices], self._norms[indices], spec, weights)


@final
class _SparseBlock(Block):
    def __init__(
        self,
        X: sparse.csr_array,
        rows: slice,
        targets: NDArray[Any],
        norms: Floats,
        weights: Floats | None,
        intercept: float,
    ) -> None:
        self._stored, self._which, self._intercept = X, rows, intercept
        self.targets, self.norms, self.weights = targets, norms, weights

    @functools.cached_property
    def _rows(self) -> sparse.csr_array:
        return _row_slice(self._stored, self._which)

    def predict(self, w: NDArray[np.float64]) -> Floats:
        if self._intercept == 0.0:
            return np.asarray(self._rows @ w)
        z: Floats = np.asarray(self._rows @ w[:-1])
        z += self._intercept * w[-1]
        return z

    def features(self) -> Floats:
        return self._rows.toarray()

    def stored(self) -> sparse.csr_array:
        return self._rows

    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        slopes = slopes.astype(np.float64, copy=False)
        total = np.asarray(self._rows.T @ slopes, dtype=np.float64)
        if self._intercept == 0.0:
            return total
        return np.concatenate([total, self._intercept * slopes.sum(axis=0, keepdims=True)])

    def bounded_sum(
        self, rule: kernels.SlopeRule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        if w.ndim > 1:
            return None
        return kernels.sparse_bounded_sum(
            rule, self._stored, self._which, w, self._intercept, targets, norms, self.weights
        )


def _row_slice(X: sparse.csr_array, rows: slice) -> sparse.csr_array:
    """``X[rows]`` as views of its data, which SciPy's own slicing would copy."""
    pointers = X.indptr[rows.start : rows.stop + 1]
    entries = slice(pointers[0], pointers[-1])
    return sparse.csr_array(
        (X.data[entries], X.indices[entries], pointers - pointers[0]),
        shape=(rows.stop - rows.start, X.shape[1]),
        copy=False,
    )
