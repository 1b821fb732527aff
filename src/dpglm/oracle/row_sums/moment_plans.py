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
    """Refuse data whose second moments cannot be released, or would drown in noise."""
    if data.n_columns > MOST_COLUMNS:
        raise ValueError(
            f"n_features must be at most {MOST_COLUMNS} with the intercept for a solver that "
            f"releases second moments of columns, got {data.n_columns}: use 'noisy_gd'"
        )
    sum_rounding(data, adjacency, data.weight_bound)


def constant_column(data: DataSpec) -> float:
    """Value of the constant column of normalised rows: a third of the row norm.

    The intercept column that estimators append is as long as the longest row. Few rows are that
    long, so a shorter one leaves more of a normalised row to the features.
    """
    return _CONSTANT * data.row_norm


def spectrum(
    moments: NDArray[np.float64], noise_std: float, data: DataSpec, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Estimate mean squares of rows along their principal directions, from noisy moments.

    ``moments`` were released by ``noisy_second_moments`` with the constant
    ``constant_column(data)`` and noise of ``noise_std`` on the diagonal; ``columns`` is
    ``n_features``, or one more to include the constant. Returned: mean squares, of shape
    (columns,) and above 0; directions, one in each column; and the unclipped mean squares, which
    may be negative and whose sum is unbiased.

    Eigenvalues below ``noise_std sqrt(columns)``, about half the largest eigenvalue of noise
    alone, are raised to it: the eigenvalue clipping of Ganesh, Haghifam, Steinke and Thakurta,
    "Faster differentially private convex optimization via second-order methods", NeurIPS 2023,
    section 4. The last diagonal entry is a sum of ``constant^2 / |u|^2``, so it estimates how long
    rows are.

    Privacy: post-processing of released values.
    """
    typical = constant_column(data) ** 2 / max(float(moments[-1, -1]), noise_std)
    seen, directions = np.linalg.eigh(moments[:columns, :columns])
    values = np.maximum(seen, noise_std * math.sqrt(columns))
    return values * typical, directions, seen * typical
