"""Rows that are functions of other rows, one by one: affine maps, random projections, views."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import (
    Array,
    check_bools,
    check_integer,
    contiguous,
    like,
    namespace,
    rounded_up,
)
from dpglm.data.compiled.kernels import SlopeRule, row_by_row_product
from dpglm.data.memory import SPARSE_BLOCK_ROWS, ArrayRows
from dpglm.data.prepare import derived_rows, prepare_rows
from dpglm.data.rows import Block, DataSpec, Floats, FloatType, Rows
from dpglm.data.sampled import SeenRows

# Affine maps that are learned from releases, and their inverse for coefficients.

# Largest entry: norms of such rows do not overflow, and no learned map reaches it.
_MOST = 1e30


@final
@dataclass(frozen=True, eq=False)
class RowMap:
    """The map ``matrix^T (x - center)`` of rows; the intercept column stays.

    Parameters
    ----------
    center : ndarray of shape (features,)
        Center, subtracted from rows.
    matrix : ndarray of shape (features,) or (features, new_features)
        A factor for each column, or a matrix.
    lengthen : bool, default=False
        Whether shorter rows are scaled up to the row norm after the map, for training.

    Notes
    -----
    Privacy: computed from released values. Each mapped row depends on its own row alone.
    """

    center: NDArray[np.float64]
    matrix: NDArray[np.float64]
    lengthen: bool = False

    def __post_init__(self) -> None:
        check_bools(self)

    def apply(
        self, rows: Rows, spec: DataSpec, row_by_row: bool, *, overwrite: bool = False
    ) -> Rows:
        """Map rows for training: dense, in the same order, with the same targets and weights.

        Parameters
        ----------
        rows : Rows
            Prepared rows.
        spec : DataSpec
            Public facts about the mapped rows; longer ones are scaled down to its ``row_norm``.
        row_by_row : bool
            Whether the rounding of a row must not depend on its position, as under ``add_remove``,
            where another row shifts all others; slower for a matrix.
        overwrite : bool, default=False
            Whether the rows' memory may be overwritten; see ``derived_rows``.

        Notes
        -----
        Privacy: neighbours stay neighbours, and ``derived_rows`` bounds the norm of every row by
        ``spec.row_norm`` for any map. Rows that overflow, or nearly so, become zeros.
        """

        def mapped(block: Block) -> Floats:
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                # Row-major, so that norms do not depend on the position of a row.
                X = self.transform(contiguous(block.features()), row_by_row)
                X[~namespace(X).all(abs(X) <= _MOST, axis=1)] = 0.0
            if self.lengthen:
                _lengthen(X, spec.row_norm)
            return X

        return derived_rows(rows, mapped, spec, overwrite)

    def transform(self, X: Floats, row_by_row: bool = False) -> Floats:
        """Map rows, an array or a tensor, without bounding their norms; see ``apply``."""
        centered: Floats = X - like(X, self.center, X.dtype)
        matrix = like(X, self.matrix, X.dtype)
        if matrix.ndim == 1:
            centered *= matrix
            return centered
        mapped: Floats = (row_by_row_product if row_by_row else operator.matmul)(centered, matrix)
        return mapped

    def pull_back(
        self, w: NDArray[np.float64], before: DataSpec, after: DataSpec
    ) -> NDArray[np.float64]:
        """Return coefficients for rows before the map, of shape ``before.coefficient_shape``.

        ``w`` has shape ``after.coefficient_shape``, with the intercept last, if any; ``before`` and
        ``after`` are the facts about rows before and after.
        """
        k = after.n_features
        slopes = (self.matrix * w[:k].T).T if self.matrix.ndim == 1 else self.matrix @ w[:k]
        if not before.intercept:
            return slopes
        shift = self.center @ slopes
        last = (after.intercept * w[-1] - shift) / before.intercept
        return np.concatenate([slopes, last[np.newaxis]])

    def pulling_matrix(self, before: DataSpec, after: DataSpec) -> NDArray[np.float64]:
        """Return the matrix of ``pull_back``, (``before.n_columns``, ``after.n_columns``)."""
        slopes = np.diag(self.matrix) if self.matrix.ndim == 1 else self.matrix
        if not before.intercept:
            return slopes
        full = np.zeros((len(slopes) + 1, slopes.shape[1] + 1))
        full[:-1, :-1] = slopes
        full[-1, :-1] = -(self.center @ slopes) / before.intercept
        full[-1, -1] = after.intercept / before.intercept
        return full


def _lengthen(X: Floats, length: float) -> None:
    """Scale every row to one norm, in place; rows of zeros stay."""
    xp = namespace(X)
    wide = X if xp is np else xp.asarray(X, dtype=xp.float64)
    options = {"dtype": np.float64} if xp is np else {}
    norms = xp.sqrt(xp.einsum("ij,ij->i", wide, wide, **options))
    X *= xp.asarray(length / xp.maximum(norms, 1e-9 * length), dtype=X.dtype)[:, None]


# Random linear maps to few columns.

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
def _(rows: ArrayRows, transform: Transform, spec: DataSpec) -> Rows:
    if not rows._is_sparse:
        return embedded_rows.dispatch(Rows)(rows, transform, spec)
    # Blocks only multiply by dense matrices, without the savings of a sparse one.
    matrix = transform.astype(rows.spec.dtype)
    X = np.empty((rows.n_rows, spec.n_features), spec.dtype)
    for start in range(0, rows.n_rows, SPARSE_BLOCK_ROWS):
        block = rows._X[start : start + SPARSE_BLOCK_ROWS] @ matrix
        X[start : start + SPARSE_BLOCK_ROWS] = block.toarray() if sparse.issparse(matrix) else block
    weights = None if rows._weights is None else rows._weights.astype(np.float64)
    return prepare_rows(X, rows._y, spec, weights=weights)


# Rows with another intercept column, or as one class against the rest.


def view_spec(data: DataSpec, intercept_scale: float, n_outputs: int) -> DataSpec:
    """Public facts of a view with the intercept column scaled and ``n_outputs`` predictions."""
    intercept = data.intercept * intercept_scale
    return dataclasses.replace(data, intercept=intercept, n_outputs=n_outputs)


def viewed(rows: Rows, intercept_scale: float = 1.0, positive_class: int | None = None) -> Rows:
    """Return rows with a scaled intercept column, and perhaps one class against the rest.

    With a ``positive_class`` targets become +1 for its rows and -1 for all others, with one
    prediction for each row.

    Privacy: each row is changed by itself, by public numbers. Its norm bound is computed anew and
    rounded up.
    """
    seen = functools.partial(
        _ViewBlock,
        intercept=rows.spec.intercept,
        intercept_scale=intercept_scale,
        positive_class=positive_class,
    )
    n_outputs = rows.spec.n_outputs if positive_class is None else 1
    return SeenRows(rows, seen, view_spec(rows.spec, intercept_scale, n_outputs))


@final
class _ViewBlock(Block):
    def __init__(
        self, block: Block, intercept: float, intercept_scale: float, positive_class: int | None
    ) -> None:
        self._block, self._has_intercept = block, intercept > 0.0
        self._scale = intercept_scale
        self.weights, self.starts = block.weights, block.starts
        self.norms = block.norms
        if self._has_intercept and intercept_scale != 1.0:
            # Upper bounds, which cover the rounding of the terms that the subtraction exposes.
            eps, old = float(np.finfo(np.float64).eps), intercept
            xp = namespace(block.norms)
            squares = like(block.norms, block.norms, xp.float64) ** 2 * (1.0 + 8.0 * eps)
            features = xp.maximum(squares - old**2 * (1.0 - 8.0 * eps), 0.0)
            rescaled = xp.sqrt(features + (intercept_scale * old) ** 2) * (1.0 + 8.0 * eps)
            self.norms = rounded_up(rescaled, block.norms.dtype)
        self.targets = block.targets
        if positive_class is not None:
            signs = namespace(block.norms).where(block.targets == positive_class, 1.0, -1.0)
            self.targets = like(block.norms, signs, block.norms.dtype)

    def predict(self, w: Array) -> Floats:
        return self._block.predict(self._scaled(w))

    def features(self) -> Floats:
        return self._block.features()

    def stored(self) -> Any:
        return self._block.stored()

    def located(self) -> tuple[Any, NDArray[np.int64] | None]:
        return self._block.located()

    def weighted_sum(self, slopes: Floats) -> Array:
        total = self._block.weighted_sum(slopes)
        if self.starts is None:
            return self._scaled(total)
        return np.stack([self._scaled(of_group) for of_group in total])

    def bounded_sum(
        self, rule: SlopeRule, w: Array, targets: NDArray[Any], norms: Floats
    ) -> Array | None:
        total = self._block.bounded_sum(rule, self._scaled(w), targets, norms)
        return None if total is None else self._scaled(total)

    def _scaled(self, values: Array) -> Array:
        if not self._has_intercept or self._scale == 1.0:
            return values
        values = values + 0.0
        values[-1] *= self._scale
        return values
