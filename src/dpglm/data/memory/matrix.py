"""One matrix in memory as a collection."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from typing import Any, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.collection import Collection, Preparation
from dpglm.data.groups import GroupedRows, Groups
from dpglm.data.memory.dense import DenseRows
from dpglm.data.memory.sparse import SparseRows
from dpglm.data.prepare import Matrix, largest_norm
from dpglm.data.rows import Rows, threads_over
from dpglm.data.spec import FloatType
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.given import as_floats, as_offset

T = TypeVar("T")

# Rows that tell matrices apart.
_MARKED = 64
_KEY = secrets.token_bytes(32)

_NONE: NDArray[Any] = np.empty(0)


@final
class MatrixRows(Collection):
    """One validated matrix in memory, dense or CSR, with its targets and weights.

    ``starts`` says where each group of rows starts, if they are in groups (``GroupedRows``), and
    ``where`` which rows count, if not all.
    """

    copies_cheaply = True
    dtype: FloatType = "float64"
    is_sparse: bool = False

    def __init__(
        self,
        X: Matrix,
        y: NDArray[Any] = _NONE,
        weights: NDArray[np.float64] | None = None,
        starts: NDArray[np.intp] | None = None,
        where: NDArray[np.bool_] | None = None,
    ) -> None:
        self._X, self._y, self._weights = X, y, weights
        self.dtype, self.is_sparse = cast(FloatType, X.dtype.name), bool(sparse.issparse(X))
        self._starts, self._where = starts, where

    def spread(self, where: NDArray[np.bool_] | None) -> MatrixRows:
        """Put these rows at the places where they count, among rows of zeros with the weight 0."""
        if where is None:
            return self
        rows = np.flatnonzero(where)
        shape = (len(where), self.shape[1])
        if sparse.issparse(self._X):
            sizes = np.zeros(len(where), self._X.indptr.dtype)
            sizes[rows] = np.diff(self._X.indptr)
            ends = np.zeros(len(where) + 1, sizes.dtype)
            np.cumsum(sizes, out=ends[1:])
            X: Matrix = sparse.csr_array((self._X.data, self._X.indices, ends), shape=shape)
        else:
            X = np.zeros(shape, self._X.dtype)
            X[rows] = self._X
        y = np.zeros((len(where), *self._y.shape[1:]), self._y.dtype)
        y[rows] = self._y
        weights = None
        if self._weights is not None:
            weights = np.zeros(len(where))
            weights[rows] = self._weights
        return MatrixRows(X, y, weights, where=where)

    @property
    def shape(self) -> tuple[int, int]:
        rows, features = self._X.shape
        return int(rows), int(features)

    def with_offset(self, offset: Any) -> MatrixRows:
        y = np.column_stack([as_floats("y", self._y), as_offset(offset, len(self._y))])
        return MatrixRows(self._X, y, self._weights)

    @property
    def n_groups(self) -> int | None:
        return None if self._starts is None else len(self._starts) - 1

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> MatrixRows:
        places, starts = Groups.of(ids, len(self._y)).arranged(most, noise)
        X, y, weights, where = self._X, self._y, self._weights, self._where
        if places is not None:
            X, y = X[places], y[places]
            weights = None if weights is None else weights[places]
            where = None if where is None else where[places]
        return MatrixRows(X, y, weights, starts, where)

    def longest_row(self) -> float:
        return largest_norm(self._X)

    def mark(self) -> bytes:
        chosen = np.linspace(0, self.shape[0] - 1, _MARKED).astype(np.intp)
        rows = self._X[chosen]
        whole = np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows)
        digest = hashlib.blake2b(whole.tobytes(), key=_KEY, digest_size=16)
        digest.update(repr((self.shape, self._X.dtype)).encode())
        return digest.digest()

    def _prepared(self, how: Preparation) -> Rows:
        X = self._X.astype(how.spec.dtype, copy=False)
        X = sparse.csr_array(X) if sparse.issparse(X) else X
        with threads_over(math.prod(X.shape)) as map_blocks:
            rows = how.rows(X, self._y, self._weights, self._where, map_blocks)
        if self._starts is None:
            return rows
        assert isinstance(rows, DenseRows | SparseRows)
        return GroupedRows(rows, self._starts)

    def apply(self, function: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        return function(self._X)

    def parts(self, function: Callable[[Any, Any, Any], T]) -> list[T]:
        return [function(self._X, self._y, self._weights)]
