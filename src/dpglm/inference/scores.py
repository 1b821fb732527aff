"""Linear scores of the user's rows, with their standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array

from dpglm.data.prepare import ColumnScaling, Matrix
from dpglm.inference.estimates import Estimates
from dpglm.tables.user_matrix import finite_matrix

__all__ = ["Features", "LinearScores"]


@final
@dataclass(frozen=True, eq=False)
class Features:
    """Checks rows against the columns of the fit, and clips them to their declared bounds.

    ``names`` are those that the fit saw, if it saw any.
    """

    n_features: int
    names: tuple[str, ...] | None
    scaling: ColumnScaling | None

    def __call__(self, X: Any) -> Matrix:
        """Return the rows as a matrix of shape (n, n_features)."""
        given = getattr(X, "columns", None)
        if given is not None and self.names not in (None, tuple(map(str, given))):
            raise ValueError(
                f"X must have the columns {list(self.names or ())} in this order, got {list(given)}"
            )
        X, _ = finite_matrix(X, lambda **options: (check_array(X, **options), None))
        if X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns, got {X.shape[1]}")
        matrix: Matrix = X if self.scaling is None else self.scaling.clip_matrix(X)
        return matrix


@final
@dataclass(frozen=True, eq=False)
class LinearScores:
    """Scores of rows and their standard errors.

    ``features`` turns the user's rows into the matrix that ``estimates`` are about, without the
    intercept's column.
    """

    features: Callable[[Any], Matrix]
    estimates: Estimates

    def __call__(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return scores and their standard errors, both of shape (n,)."""
        features, first = self.features(X), int(self.estimates.has_intercept)

        def quadratic(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
            # With an intercept a it is that of a, plus x (2 (a, b) + (b, b) x).
            crossed = matrix[:first, first:].sum(axis=0)
            spread = np.asarray(features @ matrix[first:, first:] + 2.0 * crossed)
            if isinstance(features, sparse.csr_array):
                of_features = np.asarray(features.multiply(spread).sum(axis=1)).ravel()
            else:
                of_features = np.einsum("ij,ij->i", features, spread)
            found: NDArray[np.float64] = matrix[:first, :first].sum() + of_features
            return found

        params = self.estimates.params
        scores = np.asarray(features @ params[first:]) + params[:first].sum()
        return scores, self.estimates.standard_errors(quadratic)
