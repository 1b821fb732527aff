"""Private centring: subtract a noisy mean of the rows."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bools, check_real
from dpglm.data.spec import SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.means import mean_release, noisy_mean
from dpglm.preprocessing.base import PlannedStep, Preprocessor, dense_spec
from dpglm.preprocessing.choices import check_row_norm, share_for_error
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease

__all__ = ["Center", "PlannedCenter", "check_intercept", "nearest_mean"]

_WANTED_ERROR = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.1


@final
@dataclass(frozen=True)
class Center(Preprocessor):
    """Subtract a private mean, so that gradients show differences between rows.

    Parameters
    ----------
    row_norm : float, optional
        Rows longer than this after centring are scaled down to it for training, above 0. By
        default the row norm before, although a centred row could be twice as long.
    lengthen : bool, default=False
        Whether shorter rows are scaled up to it as well.
    intercept : float, default=1.0
        Factor on the length of the intercept's column, in (0, 1]. A centred row needs little of an
        intercept, and the length of that column counts in every row's gradient; but a penalty on
        the intercept weighs more on a short one.

    Notes
    -----
    Predictions do not scale rows: coefficients are those of unscaled rows, with the mean moved
    into the intercept, ``b = b' - <w, mean>``.

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

    def __post_init__(self) -> None:
        check_bools(self)
        check_real("intercept", self.intercept, least=SMALLEST, most=1.0)
        check_row_norm(self.row_norm)

    def share(self, data: DataSpec, mu: float) -> float:
        error = math.sqrt(data.n_features) / (data.n_rows * mu)
        return share_for_error(error, _WANTED_ERROR, _LEAST_SHARE, _MOST_SHARE)

    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedCenter:
        check_intercept(data)
        row_norm = data.row_norm if self.row_norm is None else self.row_norm
        return PlannedCenter(data, adjacency, 1.0 / mu, row_norm, self.lengthen, self.intercept)


@final
@dataclass(frozen=True)
class PlannedCenter(PlannedStep):
    """Centring with every setting decided."""

    data: DataSpec
    adjacency: Adjacency
    noise_multiplier: float
    row_norm: float
    lengthen: bool
    intercept: float

    name = "center"

    @functools.cached_property
    def mean(self) -> SumRelease:
        """The release of the sum of rows."""
        return mean_release(self.data, self.adjacency, GaussianNoise(self.noise_multiplier))

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.mean,)

    @property
    def output(self) -> DataSpec:
        after = dense_spec(self.data, self.row_norm)
        return dataclasses.replace(after, intercept=self.intercept * after.intercept)

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        mean = nearest_mean(noisy_mean(oracle, self.mean), self.data)
        return RowMap(mean, np.ones(self.data.n_features), self.lengthen)


def check_intercept(data: DataSpec) -> None:
    """Refuse rows without an intercept column, into which the mean could move."""
    if not data.intercept:
        raise ValueError("fit_intercept must be True for centring: the mean moves into it")


def nearest_mean(point: NDArray[np.float64], data: DataSpec) -> NDArray[np.float64]:
    """Shorten a point that is longer than any mean of rows."""
    return point * min(1.0, data.row_norm / max(float(np.linalg.norm(point)), 1e-300))
