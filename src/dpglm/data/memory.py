"""Rows in memory: a dense array that is never copied, or a sparse one in CSR."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.compiled import kernels
from dpglm.data.rows import Block, DataSpec, Floats, Rows

RUN_ROWS = 64
"""Rows that are summed in the rows' own precision; runs are added up in float64."""
_LEAST_BYTES, _MOST_BYTES = 1 << 23, 1 << 25
"""Sizes of a block; the least is a quarter of this with several outputs, as each row takes more
work. Large blocks cost less overhead, but every core should get some."""
_BLOCKS = 16
"""Number of blocks, about, within these sizes."""
_COLUMN_BLOCKS = 4
"""Rows in Fortran order have about as many blocks, if ``BLOCK_ROWS`` allows."""
BLOCK_ROWS = 16384
"""The most rows in a block."""
SPARSE_BLOCK_ROWS = 4096
"""Rows in a sparse block, which are added one after the other."""


@final
class ArrayRows(Rows):
    """Rows of a dense array, or of a CSR array without duplicate entries.

    ``norms`` are upper bounds on row norms with the intercept column. The rows' own norms are at
    most ``spec.row_norm``. ``which`` holds the positions of the rows in a dense ``X``, which are
    not copied.
    """

    n_rows = 0

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        norms: Floats,
        spec: DataSpec,
        weights: Floats | None = None,
        which: NDArray[np.int64] | None = None,
    ) -> None:
        self.spec, self.n_rows = spec, len(y)
        self._X, self._y, self._norms, self._weights = X, y, norms, weights
        self._which, self._block_rows = which, SPARSE_BLOCK_ROWS
        self._is_sparse: bool = sparse.issparse(X)
        if self._is_sparse:
            return
        row_bytes = X.itemsize * X.shape[1]
        # Neighbours, which have the same spec, are cut alike.
        least = _LEAST_BYTES if spec.n_outputs == 1 else _LEAST_BYTES // 4
        size = min(max(least, spec.n_rows * row_bytes // _BLOCKS), _MOST_BYTES)
        blocks = -(-spec.n_rows * row_bytes // size)
        if which is None and not X.flags.c_contiguous and X.flags.f_contiguous:
            # Long pieces of columns are read faster, which outweighs the cache.
            blocks = min(blocks, _COLUMN_BLOCKS)
        blocks = max(blocks, -(-spec.n_rows // BLOCK_ROWS))
        # A power of two, so that a power of two of threads get equally many.
        rows = -(-spec.n_rows // (1 << (blocks - 1).bit_length()))
        self._block_rows = -(-rows // RUN_ROWS) * RUN_ROWS

    def on_host(self) -> ArrayRows:
        return self if self._is_sparse else self._with(np.ascontiguousarray(self._X))

    def blocks(self) -> Iterator[Block]:
        for start in range(0, self.n_rows, self._block_rows):
            yield self.span(start, min(start + self._block_rows, self.n_rows))

    def span(self, start: int, stop: int) -> Block:
        """Return the rows from one position up to another as a block."""
        rows = slice(start, stop)
        weights = None if self._weights is None else self._weights[rows]
        facts = self._y[rows], self._norms[rows], weights, self.spec.intercept
        if self._is_sparse:
            return _SparseBlock(self._X, rows, *facts)
        if self._which is None:
            return _DenseBlock(self._X[rows], None, *facts)
        return _DenseBlock(self._X, self._which[rows], *facts)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> ArrayRows:
        which = np.asarray(indices, dtype=np.int64)
        if which.size and which.min() < 0:
            raise IndexError("positions of rows must not be negative")
        which = which if self._which is None else self._which[which]
        weights = None if self._weights is None else self._weights[indices]
        facts = self._y[indices], self._norms[indices], spec, weights
        if spec is self.spec and not self._is_sparse:
            return ArrayRows(self._X, *facts, which)
        # A part is read many times, so worth a copy.
        return ArrayRows(self._X[which], *facts)

    @classmethod
    def joined(cls, parts: Sequence[ArrayRows]) -> ArrayRows:
        """Put dense rows one after the other into memory of their own."""
        first = parts[0]
        blocks = [part.span(0, part.n_rows) for part in parts]
        weights = None
        if first._weights is not None:
            weights = np.concatenate([part._weights for part in parts if part._weights is not None])
        return cls(
            np.concatenate([block.features() for block in blocks]),
            np.concatenate([block.targets for block in blocks]),
            np.concatenate([block.norms for block in blocks]),
            first.spec,
            weights,
        )

    def room_for(self, shape: tuple[int, int], dtype: Any) -> Floats:
        """Return memory for an array: that of the rows, which are given up, if it fits exactly."""
        old = self._X
        fits = not self._is_sparse and self._which is None
        fits = fits and old.shape == shape and old.dtype == dtype and old.flags.c_contiguous
        return old if fits else np.empty(shape, dtype)

    def clip_entries(self, bound: float) -> ArrayRows:
        X = self._X
        entries = np.clip(X.data if self._is_sparse else X, -bound, bound, dtype=X.dtype)
        if self._is_sparse:
            entries = sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape)
        return self._with(entries)

    def _with(self, X: Any) -> ArrayRows:
        return ArrayRows(X, self._y, self._norms, self.spec, self._weights, self._which)


@final
class _DenseBlock(Block):
    @functools.cached_property
    def _rows(self) -> Floats:
        rows: Floats = self._stored if self._which is None else self._stored[self._which]
        return rows

    def predict(self, w: NDArray[np.float64]) -> Floats:
        w = w.astype(self._rows.dtype)
        features = w if self._intercept == 0.0 else w[:-1]
        z: Floats = kernels.row_by_row_product(self._rows, features.reshape(len(features), -1))
        z = z.reshape(len(z), *w.shape[1:])
        if self._intercept != 0.0:
            z += w.dtype.type(self._intercept) * w[-1]
        return z

    def features(self) -> Floats:
        return self._rows

    def located(self) -> tuple[Any, NDArray[np.int64] | None]:
        return self._stored, self._which

    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        total = _sum_in_runs(self._rows, slopes)
        if self._intercept == 0.0:
            return total
        last = self._intercept * slopes.sum(axis=0, keepdims=True, dtype=np.float64)
        return np.concatenate([total, last])

    def bounded_sum(
        self, rule: kernels.SlopeRule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        compiled = kernels.bounded_sum if w.ndim == 1 else kernels.softmax_sum
        return compiled(
            rule, self._stored, self._which, w, self._intercept, targets, norms, self.weights
        )


def _sum_in_runs(X: Floats, slopes: Floats) -> NDArray[np.float64]:
    """``X.T @ slopes`` with at most ``RUN_ROWS`` additions in the precision of ``X``."""
    rows, columns = X.shape
    whole = rows // RUN_ROWS * RUN_ROWS
    # Splitting the first axis of a slice gives views, whatever the memory order.
    stacked_X = X[:whole].reshape(-1, RUN_ROWS, columns)
    total: NDArray[np.float64]
    if slopes.ndim == 1:
        stacked = slopes[:whole].reshape(-1, 1, RUN_ROWS)
        total = np.matmul(stacked, stacked_X).sum(axis=(0, 1), dtype=np.float64)
    else:
        stacked = slopes[:whole].reshape(-1, RUN_ROWS, slopes.shape[1])
        total = np.matmul(stacked_X.transpose(0, 2, 1), stacked).sum(axis=0, dtype=np.float64)
    if whole < rows:
        total += X[whole:].T @ slopes[whole:]
    return total


@final
class _SparseBlock(Block):
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
