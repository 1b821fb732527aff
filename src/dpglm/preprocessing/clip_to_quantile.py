"""Private scaling of rows by a quantile of their norms."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_bools, check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.choices.quantiles import (
    CELLS,
    UNBOUNDED_RADII,
    CountRelease,
    RankRelease,
    noisy_radius,
    noisy_unbounded_radius,
    rank_release,
    unbounded_radius_release,
)
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing.base import PlannedStep, Preprocessor, dense_spec
from dpglm.preprocessing.choices import (
    bounded_range_epsilon,
    pure_epsilon,
    quantile_share,
)
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import AnyRelease

__all__ = ["ClipToQuantile", "PlannedClipToQuantile"]

_QUANTILE, _LEAST_QUANTILE = 0.9, 0.5
# Of the budget, for all rows but a few: any fixed share leaves out O(log n / epsilon) of them.
_SHARE_OF_ALL = 0.1


@final
@dataclass(frozen=True)
class ClipToQuantile(Preprocessor):
    """Divide rows by a private quantile of their norms, and clip them to length 1.

    Parameters
    ----------
    quantile : float or None, default=0.9
        Share of the rows that should be within the radius, in (0, 1). With None all rows but
        ``2 log(k n^2) / epsilon``, for k radii, n rows and a choice at ``epsilon``: as many as the
        choice may miss, except with probability ``1 / n^2``. Half of the rows where that is more.
    unbounded : bool, default=False
        Whether the radius may be anything from 1e-15 to 1e15, for a row norm that is only a
        generous guess. By default it is at least a trillionth of the row norm.

    Notes
    -----
    The row norm is 1 afterwards, in units of the radius. Put it after a centring step, so that
    differences between rows are scaled.

    Privacy: one choice of a radius by how many rows are within each: by the exponential mechanism
    on 4096 radii 0.7 % apart, or, unbounded, of the first radius with enough rows.

    References
    ----------
    Sun et al. 2023, Algorithm 2 and Lemma 4. Smith, STOC 2011, Algorithm 2. Durfee, NeurIPS 2023.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, row_norm=50.0)
    >>> step = ClipToQuantile().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> step.releases[0].quantity, step.output.row_norm
    ('radius of rows', 1.0)
    """

    quantile: float | None = _QUANTILE
    unbounded: bool = False

    def __post_init__(self) -> None:
        check_bools(self)
        if self.quantile is not None:
            check_real("quantile", self.quantile, above=0.0, below=1.0)

    def share(self, data: DataSpec, mu: float) -> float:
        return _SHARE_OF_ALL if self.quantile is None else quantile_share(data, mu)

    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedClipToQuantile:
        epsilon = pure_epsilon(mu) if self.unbounded else bounded_range_epsilon(mu)
        quantile = self.quantile
        if quantile is None:
            radii = UNBOUNDED_RADII.size if self.unbounded else CELLS
            missed = 2.0 * math.log(radii * float(data.n_rows) ** 2) / epsilon
            quantile = max(_LEAST_QUANTILE, 1.0 - missed / data.n_rows)
        return PlannedClipToQuantile(data, adjacency, quantile, epsilon, self.unbounded)


@final
@dataclass(frozen=True)
class PlannedClipToQuantile(PlannedStep):
    """Scaling by a private radius with every setting decided."""

    data: DataSpec
    adjacency: Adjacency
    quantile: float
    choice_epsilon: float
    unbounded: bool

    name = "clip to quantile"

    @functools.cached_property
    def radius(self) -> RankRelease | CountRelease:
        """The release of the radius."""
        if self.unbounded:
            return unbounded_radius_release(
                self.data, self.adjacency, self.quantile, self.choice_epsilon
            )
        return rank_release("radius of rows", self.adjacency, self.choice_epsilon)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.radius,)

    @property
    def output(self) -> DataSpec:
        return dense_spec(self.data, 1.0)

    @property
    def noise_growth(self) -> float:
        return 1.0 / self.data.row_norm

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        origin = np.zeros(self.data.n_features)
        declared: AnyRelease = self.radius
        if self.unbounded:
            radius = noisy_unbounded_radius(oracle, declared, origin)
        else:
            radius = noisy_radius(oracle, declared, origin, self.data.row_norm, self.quantile)
        return RowMap(origin, np.full(self.data.n_features, 1.0 / radius))
