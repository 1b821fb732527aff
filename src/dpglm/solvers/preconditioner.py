"""A basis in which rows look alike in every direction, from noisy second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.moments import n_symmetric
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.events import Gaussian
from dpglm.privacy.mechanisms import NoiseScale, Release, noise_scale
from dpglm.privacy.unit import Adjacency

__all__ = [
    "MOST_COLUMNS",
    "Basis",
    "basis_from_moments",
    "check_data",
    "constant_column",
    "largest_basis_scale",
    "row_sum_noise",
    "second_moment_release",
]

MOST_COLUMNS = 1000
"""Second moments of more columns than these are too many values to release."""

_CONSTANT = 1.0 / 3.0


@final
@dataclass(frozen=True, eq=False)
class Basis:
    """Coordinates v of the parameter, ``w = vectors v``, and the way back.

    Parameters
    ----------
    vectors : ndarray of shape (columns, columns)
        Public; rows become ``vectors^T x``.
    inverse : ndarray of shape (columns, columns)
        Its inverse.
    """

    vectors: NDArray[np.float64]
    inverse: NDArray[np.float64]

    @property
    def scales(self) -> NDArray[np.float64]:
        """By how much noise in the coordinates is multiplied in each coefficient."""
        lengths: NDArray[np.float64] = np.linalg.norm(self.vectors, axis=1)
        return lengths


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


def row_sum_noise(
    data: DataSpec, adjacency: Adjacency, bound: float, noise_multiplier: float, coordinates: int
) -> NoiseScale:
    """Work out the noise of a released sum over rows.

    Parameters
    ----------
    data : DataSpec
        Public facts.
    adjacency : Adjacency
        The neighbouring relation.
    bound : float
        Bound on one row's contribution, weight included.
    noise_multiplier : float
        Noise standard deviation over sensitivity.
    coordinates : int
        Number of values.

    Returns
    -------
    NoiseScale
        With ``sum_rounding`` in it.
    """
    return noise_scale(
        adjacency,
        bound + sum_rounding(data, adjacency, bound),
        noise_multiplier,
        coordinates,
        sum_magnitude(data, adjacency, bound),
    )


def second_moment_release(data: DataSpec, adjacency: Adjacency, noise_multiplier: float) -> Release:
    """Plan the release that ``dpglm.oracle.moments.noisy_second_moments`` makes.

    Parameters
    ----------
    data : DataSpec
        Public facts.
    adjacency : Adjacency
        The neighbouring relation.
    noise_multiplier : float
        Noise standard deviation over sensitivity.

    Returns
    -------
    Release
    """
    size = n_symmetric(data.n_features + 1)
    bound = data.weight_bound
    scale = row_sum_noise(data, adjacency, bound, noise_multiplier, size)
    return Release(
        "normalised second-moment sum",
        Gaussian(noise_multiplier),
        1,
        bound,
        noise_multiplier,
        scale.std,
        size,
    )


def basis_from_moments(moments: NDArray[np.float64], noise_std: float, data: DataSpec) -> Basis:
    """Find coordinates in which second moments are about the same in every direction.

    Parameters
    ----------
    moments : ndarray of shape (n_features + 1, n_features + 1)
        What ``noisy_second_moments`` released with the constant ``constant_column(data)``.
    noise_std : float
        Standard deviation of the noise in its diagonal.
    data : DataSpec
        Public facts.

    Returns
    -------
    Basis
        Rows in it have a mean squared norm of about the number of columns, as far as second
        moments stand out of the noise.

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
    constant = constant_column(data)
    typical = constant**2 * data.n_rows / max(float(moments[-1, -1]), noise_std)
    ends = np.ones(data.n_columns)
    if data.intercept > 0.0:
        ends[-1] = constant / data.intercept
    values, directions = np.linalg.eigh(moments[: data.n_columns, : data.n_columns])
    values = np.maximum(values, noise_std * math.sqrt(data.n_columns))
    lengths = np.sqrt(values / data.n_rows * typical)
    return Basis(
        ends[:, np.newaxis] * (directions / lengths),
        (lengths[:, np.newaxis] * directions.T) / ends,
    )


def largest_basis_scale(data: DataSpec, noise_std: float) -> float:
    """Bound what the basis makes of noise in a coefficient, for long rows.

    Parameters
    ----------
    data : DataSpec
        Public facts.
    noise_std : float
        Standard deviation of the noise in the diagonal of second moments.

    Returns
    -------
    float
        By which noise in basis coordinates is multiplied in a coefficient whose direction the
        rows do not show beyond noise, or in any if rows are alike in all directions, whichever
        is more. Rows much shorter than their bound make it larger.
    """
    long = math.hypot(data.row_norm, constant_column(data))
    least = noise_std * math.sqrt(data.n_columns) / data.n_rows
    return 1.0 / (long * math.sqrt(min(least, 1.0 / data.n_columns)))
