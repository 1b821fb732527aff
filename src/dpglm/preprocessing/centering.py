"""Private centring of rows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bools, check_real
from dpglm.data.spec import SMALLEST, DataSpec
from dpglm.oracle.choices import noisy_medians, noisy_radius, rank_release
from dpglm.oracle.counts import noisy_clipped_mean, noisy_mean, row_sum, rows_in_radii
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import MOST_COLUMNS
from dpglm.preprocessing.base import (
    PlannedStep,
    Preprocessor,
    bounded_range_epsilon,
    check_row_norm,
    dense_spec,
    share_for_error,
)
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease

_WANTED_ERROR = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.1


@final
@dataclass(frozen=True)
class Center(Preprocessor):
    """Subtract a private mean of the rows.

    Parameters
    ----------
    row_norm : float, optional
        Row norm after centring, above 0; longer rows are scaled down to it for training. By
        default the row norm before, although a centred row can have twice that norm.
    lengthen : bool, default=False
        Whether shorter rows are scaled up to the row norm.
    intercept : float, default=1.0
        Factor of the intercept column, in (0, 1]. A smaller one reduces the norm of every gradient
        and increases the effect of a penalty on the intercept.

    Notes
    -----
    Coefficients are those of unscaled rows, with the mean moved into the intercept:
    ``b = b' - <w, mean>``.

    Privacy: one Gaussian release of the sum of rows.

    References
    ----------
    Sun et al. 2023, Algorithm 3 (DPSGD-F in its practical form).

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, intercept=1.0)
    >>> step = Center().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.noise_multiplier) for one in step.releases]
    [('row sum', 10.0)]
    """

    row_norm: float | None = None
    lengthen: bool = False
    intercept: float = 1.0

    name = "center"

    def __post_init__(self) -> None:
        check_bools(self)
        check_real("intercept", self.intercept, least=SMALLEST, most=1.0)
        check_row_norm(self.row_norm)

    def share(self, data: DataSpec, mu: float) -> float:
        error = math.sqrt(data.n_features) / (data.n_rows * mu)
        return share_for_error(error, _WANTED_ERROR, _LEAST_SHARE, _MOST_SHARE)

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        check_intercept(data)
        return (row_sum(data).release(data, adjacency, GaussianNoise(1.0 / mu)),)

    def output(self, data: DataSpec) -> DataSpec:
        after = dense_spec(data, self.row_norm)
        return dataclasses.replace(after, intercept=self.intercept * after.intercept)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data = planned.data
        mean = nearest_mean(noisy_mean(oracle, *planned.releases), data)
        return RowMap(mean, np.ones(data.n_features), self.lengthen)


def check_intercept(data: DataSpec) -> None:
    """Refuse rows without an intercept column, into which the mean could move."""
    if not data.intercept:
        raise ValueError("fit_intercept must be True for centring: the mean moves into it")


def nearest_mean(point: NDArray[np.float64], data: DataSpec) -> NDArray[np.float64]:
    """Project a point to the ball that contains all means of rows."""
    return point * min(1.0, data.row_norm / max(float(np.linalg.norm(point)), 1e-300))


# Private centring with an error that scales with the spread of the rows, not with their norm.

_MEDIANS, _RADIUS, _MEAN = 0.5, 0.1, 0.4
_QUANTILE = 0.95
# Rank error of a median, times its epsilon, for 2^40 cells.
_RANKS = 55.0
_WANTED_RANK_ERROR = 0.1
_LEAST_QUANTILE_SHARE, _MOST_QUANTILE_SHARE = 0.05, 0.4


@final
@dataclass(frozen=True)
class InstanceOptimalCenter(Preprocessor):
    """Subtract a private mean that is computed around private medians.

    Parameters
    ----------
    row_norm : float, optional
        See ``Center``.

    Notes
    -----
    The center is a vector of private medians along the directions of a random basis. A private
    radius around it contains 95 % of the rows; other rows are moved to that distance, and Gaussian
    noise is added to the mean. With radius r, row norm R, n rows, d columns and budget mu, the
    error is about ``2 r sqrt(d) / (n mu)``, compared with ``R sqrt(d) / (n mu)`` for ``Center``. It
    is better for rows that are far from zero relative to their spread and ``n mu`` above about
    ``60 sqrt(d)``: for a cloud at ten times its radius and d = 100, errors are 2.9 and 1.2
    (``Center``) at ``n mu = 10 sqrt(d)``, and 0.018 and 0.116 at ``100 sqrt(d)``.

    At most 1000 columns.

    Privacy: a choice by the exponential mechanism for each direction, another for the radius, and
    one Gaussian release, to which a row contributes at most 1 in units of the radius for any
    medians and radius. The basis is made of public random bits.

    References
    ----------
    Huang, Liang and Yi, "Instance-optimal mean estimation under differential privacy", NeurIPS
    2021, Theorem 3.3 as cited by Sun et al. 2023, Lemma 3; with medians in place of ranges.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, intercept=1.0)
    >>> step = InstanceOptimalCenter().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.count) for one in step.releases]
    [('median along a direction', 3), ('radius around medians', 1), ('row sum in radii', 1)]
    """

    row_norm: float | None = None

    name = "instance-optimal center"

    def __post_init__(self) -> None:
        check_row_norm(self.row_norm)

    def share(self, data: DataSpec, mu: float) -> float:
        each = bounded_range_epsilon(mu * math.sqrt(_MEDIANS / data.n_features))
        error = _RANKS / (each * data.n_rows)
        return share_for_error(
            error, _WANTED_RANK_ERROR, _LEAST_QUANTILE_SHARE, _MOST_QUANTILE_SHARE
        )

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        check_intercept(data)
        d = data.n_features
        if d > MOST_COLUMNS:
            raise ValueError(
                f"n_features must be at most {MOST_COLUMNS} for medians along directions, got "
                f"{d}: use Center"
            )
        of_median = bounded_range_epsilon(mu * math.sqrt(_MEDIANS / d))
        of_radius = bounded_range_epsilon(mu * math.sqrt(_RADIUS))
        noise = GaussianNoise(1.0 / (mu * math.sqrt(_MEAN)))
        return (
            rank_release("median along a direction", adjacency, of_median, d),
            rank_release("radius around medians", adjacency, of_radius),
            rows_in_radii(data).release(data, adjacency, noise),
        )

    def output(self, data: DataSpec) -> DataSpec:
        return dense_spec(data, self.row_norm)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        data, (of_medians, of_radius, of_mean) = planned.data, planned.releases
        basis = random_basis(data.n_features, seed)
        medians = noisy_medians(oracle, of_medians, basis)
        center = nearest_mean(basis @ medians, data)
        radius = noisy_radius(oracle, of_radius, center, 2.0 * data.row_norm, _QUANTILE)
        mean = noisy_clipped_mean(oracle, of_mean, center, radius)
        return RowMap(nearest_mean(mean, data), np.ones(data.n_features))


def random_basis(size: int, seed: int) -> NDArray[np.float64]:
    """Draw a uniformly distributed orthonormal basis from public random bits."""
    drawn, upper = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))
    return drawn * np.sign(np.diag(upper))
