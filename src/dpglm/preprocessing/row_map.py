"""Affine maps of rows, learned from releases, and their inverse for coefficients."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bools, contiguous, like, namespace
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import SERIAL, Block, BlockMap, DataSpec, Floats, Rows

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
        self,
        rows: Rows,
        spec: DataSpec,
        row_by_row: bool,
        map_blocks: BlockMap = SERIAL,
        overwrite: bool = False,
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
        map_blocks : callable, optional
            ``map``, or a parallel one that keeps the order.
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

        return derived_rows(rows, mapped, spec, map_blocks, overwrite)

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
