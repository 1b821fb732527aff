"""Random linear maps of rows to few columns, and the rows that they make."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import check_integer
from dpglm.data.memory import SPARSE_BLOCK_ROWS, SparseRows
from dpglm.data.prepare import derived_rows, prepare_rows
from dpglm.data.rows import DataSpec, FloatType, Rows

Transform: TypeAlias = "NDArray[np.float64] | sparse.csr_array"


@final
@dataclass(frozen=True)
class GaussianEmbedding:
    """Independent normal entries of variance 1 / dimension; dense, and free of data.

    Examples
    --------
    >>> GaussianEmbedding().draw(5, 2, seed=0).shape
    (5, 2)
    """

    def draw(self, n_features: int, dimension: int, seed: int) -> NDArray[np.float64]:
        """Draw ``Phi^T``, for which ``E[Phi^T Phi]`` is the identity.

        Parameters
        ----------
        n_features, dimension : int
            Columns of the rows, and of the embedded rows; at least 1.
        seed : int
            Public randomness; the same seed gives the same matrix.

        Returns
        -------
        ndarray of shape (n_features, dimension)
        """
        matrix = np.random.default_rng(seed).normal(size=(n_features, dimension))
        matrix /= np.sqrt(dimension)
        return matrix


@final
@dataclass(frozen=True)
class SparseEmbedding:
    """A few random signs for each column of the rows, each in another column of the result.

    Parameters
    ----------
    nonzeros : int, default=8
        Signs for each column, at least 1; as many as the dimension where that is less.

    Notes
    -----
    Costs ``nonzeros`` operations for each stored value of the rows, where a dense matrix costs
    ``dimension``. Columns of ``Phi`` have length 1 exactly, so a row with one entry keeps its
    norm.

    References
    ----------
    Kane and Nelson, "Sparser Johnson-Lindenstrauss transforms", J. ACM 2014, section 3 (the
    block construction).

    Examples
    --------
    >>> SparseEmbedding(nonzeros=2).draw(5, 4, seed=0).nnz
    10
    """

    nonzeros: int = 8

    def __post_init__(self) -> None:
        check_integer("nonzeros", self.nonzeros, least=1)

    def draw(self, n_features: int, dimension: int, seed: int) -> sparse.csr_array:
        """Draw ``Phi^T``; see ``GaussianEmbedding.draw``.

        Parameters
        ----------
        n_features, dimension, seed : int
            As there.

        Returns
        -------
        csr_array of shape (n_features, dimension)
        """
        rng = np.random.default_rng(seed)
        count = min(self.nonzeros, dimension)
        edges = np.arange(count + 1) * dimension // count
        columns = rng.integers(edges[:-1], edges[1:], size=(n_features, count))
        signs = rng.choice([-1.0, 1.0], size=(n_features, count)) / np.sqrt(count)
        pointers = np.arange(n_features + 1) * count
        return sparse.csr_array(
            (signs.ravel(), columns.ravel(), pointers), shape=(n_features, dimension)
        )


Embedding: TypeAlias = GaussianEmbedding | SparseEmbedding
"""A law of random matrices that nearly keep inner products; free of data."""


def embedded_spec(data: DataSpec, dimension: int, dtype: FloatType) -> DataSpec:
    """Public facts of embedded rows: dense, with ``dimension`` columns and the same norm bound."""
    return dataclasses.replace(
        data, n_features=dimension, dtype=dtype, sparse=False, entry_bound=math.inf
    )


@functools.singledispatch
def embedded_rows(rows: Rows, transform: Transform, spec: DataSpec) -> Rows:
    """Replace each row x by ``Phi x``, shortened to the row norm again where it is longer.

    ``transform`` is ``Phi^T``, drawn independently of the rows; ``spec`` comes from
    ``embedded_spec``. Targets, weights and intercept column are kept.

    Privacy: an embedded row is a function of its own row and of ``transform``, so neighbours stay
    neighbours; and no row of the result is longer than ``spec.row_norm``, whatever ``transform``
    is, because ``prepare_rows`` shortens it. Nothing rests on norms being kept with high
    probability. Rounding in ``Phi x`` is harmless for the same reason.
    """
    matrix = transform.toarray() if sparse.issparse(transform) else transform
    if rows.spec.intercept:
        # The intercept's column keeps out of the embedding.
        matrix = np.vstack([matrix, np.zeros((1, matrix.shape[1]))])
    return derived_rows(rows, lambda block: block.predict(matrix), spec)


@embedded_rows.register
def _(rows: SparseRows, transform: Transform, spec: DataSpec) -> Rows:
    # Blocks only multiply by dense matrices, without the savings of a sparse one.
    matrix = transform.astype(rows.spec.dtype)
    X = np.empty((rows.n_rows, spec.n_features), spec.dtype)
    for start in range(0, rows.n_rows, SPARSE_BLOCK_ROWS):
        block = rows._X[start : start + SPARSE_BLOCK_ROWS] @ matrix
        X[start : start + SPARSE_BLOCK_ROWS] = block.toarray() if sparse.issparse(block) else block
    weights = None if rows._weights is None else rows._weights.astype(np.float64)
    return prepare_rows(X, rows._y, spec, weights=weights)
