"""Linear algebra that never raises, so that a run that was paid for returns. Post-processing."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
"""An array of double precision."""
_MOST_ERROR = 0.1


def solved(matrix: Floats, vector: Floats) -> Floats:
    """Solve a linear system; the solution is zero along directions within rounding of singular.

    NaN if arithmetic overflowed.
    """
    for solve in (np.linalg.solve, lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0]):
        try:
            return np.asarray(solve(matrix, vector), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
    return np.full(vector.shape, np.nan)


def inverted(matrix: Floats) -> Floats:
    """Return the inverse of a curvature matrix, or NaN if rounding or overflow make it inaccurate.

    A covariance that is computed with it is then unknown, and not too small.
    """
    try:
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full(matrix.shape, np.nan)
    # Invariant to the units of the coefficients.
    units = np.sqrt(np.abs(np.diag(matrix)))
    error = np.abs(matrix @ inverse - np.eye(len(matrix))) * (units / units[:, np.newaxis])
    if not error.max() < _MOST_ERROR:
        return np.full(matrix.shape, np.nan)
    return inverse


def eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Return eigenvalues and eigenvectors of a symmetric matrix, or NaN if it is not finite."""
    try:
        values, directions = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        return np.full(len(matrix), np.nan), np.full(matrix.shape, np.nan)
    return values, directions
