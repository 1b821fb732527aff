"""Which second moments can be released, and the spectrum that is read off them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.adjacency import Adjacency

__all__ = [
    "MOST_COLUMNS",
    "check_data",
    "constant_column",
    "spectrum",
]

MOST_COLUMNS = 1000
"""Second moments of more columns than these are too many values to release."""

_CONSTANT = 1.0 / 3.0


def check_data(data: DataSpec, adjacency: Adjacency) -> None:
    """Refuse data whose second moments cannot be released, or would drown in noise.

    Parameters
    ----------
    data : DataSpec
        Public facts.
    adjacency : Adjacency
        The neighbouring relation.

    Raises
    ------
    ValueError
        For more than 1000 columns, intercept included, or where ``sum_rounding`` has no bound.
    """
    if data.n_columns > MOST_COLUMNS:
        raise ValueError(
            f"n_features must be at most {MOST_COLUMNS} with the intercept for a solver that "
            f"releases second moments of columns, got {data.n_columns}: use 'noisy_gd'"
        )
    sum_rounding(data, adjacency, data.weight_bound)


def constant_column(data: DataSpec) -> float:
    """Choose the value of the constant column that normalised rows get: a third of the row norm.

    Parameters
    ----------
    data : DataSpec
        Public facts.

    Returns
    -------
    float

    Notes
    -----
    The intercept column that estimators append is as long as the longest row. Few rows are that
    long, so a shorter one leaves more of a normalised row to the features.
    """
    return _CONSTANT * data.row_norm


def spectrum(
    moments: NDArray[np.float64], noise_std: float, data: DataSpec, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Estimate second moments of rows along their principal directions.

    Parameters
    ----------
    moments : ndarray of shape (n_features + 1, n_features + 1)
        What ``noisy_second_moments`` released with the constant ``constant_column(data)``.
    noise_std : float
        Standard deviation of the noise in its diagonal.
    data : DataSpec
        Public facts.
    columns : int
        How many columns to look at: ``n_features``, or one more for the constant too.

    Returns
    -------
    values : ndarray of shape (columns,)
        Mean squares along the directions, all above 0.
    directions : ndarray of shape (columns, columns)
        One in each column.
    seen : ndarray of shape (columns,)
        The same as seen through noise, which cancels in their sum; may be below 0.

    Notes
    -----
    Eigenvalues below ``noise_std sqrt(columns)``, half of what the largest eigenvalue of noise
    alone would be about, are raised to that: the eigenvalue clipping of Ganesh et al. (2023).
    The last diagonal entry is a sum of ``constant^2 / |u|^2``, so it tells how long rows are.

    Privacy: post-processing of released values.

    References
    ----------
    Ganesh, Haghifam, Steinke and Thakurta, "Faster differentially private convex optimization
    via second-order methods", NeurIPS 2023, section 4.
    """
    typical = constant_column(data) ** 2 / max(float(moments[-1, -1]), noise_std)
    seen, directions = np.linalg.eigh(moments[:columns, :columns])
    values = np.maximum(seen, noise_std * math.sqrt(columns))
    return values * typical, directions, seen * typical
