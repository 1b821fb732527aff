"""From a noisy projection of a gradient back to a gradient."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.gradient_sums.projection import GaussianMatrix

__all__ = ["LeastSquares", "Lift", "Transpose"]


class Lift(abc.ABC):
    """How a gradient is guessed from what a random matrix showed of it."""

    @abc.abstractmethod
    def gradient(self, matrix: GaussianMatrix, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate g, without bias, from ``values``: ``A^T g / sqrt(p)`` and noise.

        Parameters
        ----------
        matrix : GaussianMatrix
            A, with m rows and p columns.
        values : ndarray of shape (p,)

        Returns
        -------
        ndarray of shape (m,)
        """

    @abc.abstractmethod
    def noise_growth(self, rows: int, columns: int) -> float:
        """Mean square of the estimate's noise over that of the values', coordinate by coordinate.

        Raises
        ------
        ValueError
            If there is no bound for this shape of matrix.
        """


@final
@dataclass(frozen=True)
class Transpose(Lift):
    """``A r / sqrt(p)``, as D2P2-SGD does; needs no memory for A."""

    def gradient(self, matrix: GaussianMatrix, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return matrix.lift(values)

    def noise_growth(self, rows: int, columns: int) -> float:
        return 1.0


@final
@dataclass(frozen=True)
class LeastSquares(Lift):
    """The shortest g with ``A^T g / sqrt(p)`` nearest to r, times ``max(1, m/p)``.

    The "small optimisation" of PrivSGD, where the parameter may be anything; needs A in memory
    and ``m p min(m, p)`` operations. The factor makes up for what lies outside of A's columns.

    References
    ----------
    Kasiviswanathan, "SGD with low-dimensional gradients with applications to private and
    distributed learning", UAI 2021, has a convex set in place of "shortest".
    """

    def gradient(self, matrix: GaussianMatrix, values: NDArray[np.float64]) -> NDArray[np.float64]:
        seen = math.sqrt(matrix.columns) * values
        shortest = np.asarray(np.linalg.lstsq(matrix.dense().T, seen)[0], dtype=np.float64)
        return max(1.0, matrix.rows / matrix.columns) * shortest

    def noise_growth(self, rows: int, columns: int) -> float:
        # Means of inverse Wishart matrices.
        if abs(rows - columns) < 2:
            raise ValueError(
                f"dimension must differ from the number of coefficients, {rows}, by at least 2 for "
                f"a least-squares lift, got {columns!r}"
            )
        if columns < rows:
            return rows / (rows - columns - 1)
        return columns / (columns - rows - 1)
