"""Private centring: subtract a noisy mean of the rows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.means import mean_noise, noisy_mean
from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.events import Gaussian
from dpglm.privacy.mechanisms import Release
from dpglm.privacy.unit import Adjacency

__all__ = ["Center", "PlannedCenter"]

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

    def __post_init__(self) -> None:
        if self.row_norm is not None:
            check_real("row_norm", self.row_norm, above=0.0)

    def share(self, data: DataSpec, mu: float) -> float:
        error = math.sqrt(data.n_features) / (data.n_rows * mu)
        return min(max((error / _WANTED_ERROR) ** 2, _LEAST_SHARE), _MOST_SHARE)

    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedCenter:
        if not data.intercept:
            raise ValueError("fit_intercept must be True for centring: the mean moves into it")
        row_norm = data.row_norm if self.row_norm is None else self.row_norm
        return PlannedCenter(data, adjacency, 1.0 / mu, row_norm, self.lengthen)


@final
@dataclass(frozen=True)
class PlannedCenter(PlannedStep):
    """Centring with every setting decided.

    Parameters
    ----------
    data : DataSpec
        Public facts about the rows before.
    adjacency : Adjacency
        The neighbouring relation.
    noise_multiplier : float
        Of the sum of rows.
    row_norm : float
        Bound on the norms of centred rows.
    lengthen : bool
        Whether shorter rows are scaled up to it.
    """

    data: DataSpec
    adjacency: Adjacency
    noise_multiplier: float
    row_norm: float
    lengthen: bool

    @property
    def name(self) -> str:
        return "center"

    @property
    def releases(self) -> tuple[Release, ...]:
        return (
            Release(
                "row sum",
                Gaussian(self.noise_multiplier),
                1,
                self.data.row_norm,
                self.noise_multiplier,
                mean_noise(self.data, self.adjacency, self.noise_multiplier).std,
                self.data.n_features,
            ),
        )

    @property
    def output(self) -> DataSpec:
        return dataclasses.replace(
            self.data,
            row_norm=self.row_norm,
            intercept=self.data.intercept * (self.row_norm / self.data.row_norm),
            sparse=False,
            entry_bound=math.inf,
        )

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        mean = noisy_mean(oracle, self.noise_multiplier)
        # The mean of rows is no longer than the longest of them.
        mean *= min(1.0, self.data.row_norm / max(float(np.linalg.norm(mean)), 1e-300))
        return RowMap(mean, np.ones(self.data.n_features), self.lengthen)

    def settings(self) -> dict[str, Any]:
        return {
            "algorithm": "private centring",
            "noise_multiplier": self.noise_multiplier,
            "row_norm": self.row_norm,
            "lengthen": self.lengthen,
        }
