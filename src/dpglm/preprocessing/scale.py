"""Private scaling of columns: divide each by a noisy root mean square."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.magnitudes import LEVELS, magnitudes_release, noisy_magnitudes
from dpglm.preprocessing.base import PlannedStep, Preprocessor, dense_spec
from dpglm.preprocessing.choices import check_row_norm, share_for_error
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease

__all__ = ["PlannedScale", "Scale"]

# The row norm over the root mean square of row norms.
_HEADROOM = 1.5
_WANTED_COUNTS = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.1
# In standard deviations of the noise: smaller counts are ignored.
_SIGNIFICANT = 4.0
# Mean of x^2 between 1/2 and 1.
_MEAN_SQUARE = 7.0 / 12.0


@final
@dataclass(frozen=True)
class Scale(Preprocessor):
    """Divide each column by a private estimate of its size, for columns of very different size.

    Parameters
    ----------
    exponent : float, default=0.5
        Columns with the mean square s are divided by ``s ** exponent``; in (0, 0.5]. Less than
        0.5 evens them out in part.
    row_norm : float, optional
        Rows longer than this after scaling are scaled down to it for training; above 0. Their root
        mean square is about two thirds of it. By default the row norm before.

    Notes
    -----
    What is released is not a second moment, whose noise would hide columns that are small next to
    the longest row, but how many entries of each column lie between successive powers of two, down
    to ``2^-40`` of the row norm. Counts within the noise are left out, so a few outliers do not
    make a column large. A column without significant counts is given the largest mean square that
    noise could hide, which is too much where all rows are short.

    Centre rows first where columns have means that are large next to their spread. Columns that
    public bounds have brought to one scale are better left alone: rare ones would become large.

    Privacy: one Gaussian release of counts.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=4, row_norm=50.0)
    >>> step = Scale().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.contribution_bound) for one in step.releases], step.output.row_norm
    ([('counts of magnitudes', 2.0)], 50.0)
    """

    exponent: float = 0.5
    row_norm: float | None = None

    def __post_init__(self) -> None:
        check_real("exponent", self.exponent, above=0.0, most=0.5)
        check_row_norm(self.row_norm)

    def share(self, data: DataSpec, mu: float) -> float:
        error = _SIGNIFICANT * math.sqrt(data.n_features) / (data.n_rows * mu)
        return share_for_error(error, _WANTED_COUNTS, _LEAST_SHARE, _MOST_SHARE)

    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedScale:
        row_norm = data.row_norm if self.row_norm is None else self.row_norm
        step = PlannedScale(data, adjacency, 1.0 / mu, self.exponent, row_norm)
        # Refuses rows for which there is no bound on rounding.
        _ = step.counts
        return step


@final
@dataclass(frozen=True)
class PlannedScale(PlannedStep):
    """Scaling of columns with every setting decided."""

    data: DataSpec
    adjacency: Adjacency
    noise_multiplier: float
    exponent: float
    row_norm: float

    name = "scale"

    @functools.cached_property
    def counts(self) -> SumRelease:
        """The release of the counts."""
        noise = GaussianNoise(self.noise_multiplier)
        return magnitudes_release(self.data, self.adjacency, noise)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.counts,)

    @property
    def output(self) -> DataSpec:
        return dense_spec(self.data, self.row_norm)

    @property
    def noise_growth(self) -> float:
        return self.row_norm / self.data.row_norm

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        counts = noisy_magnitudes(oracle, self.counts)
        squares = self.mean_squares(counts)
        factors = squares**-self.exponent
        # Rows then have a mean square of about 1.
        unit = math.sqrt(float(np.sum(factors**2 * squares)))
        factors *= self.row_norm / (_HEADROOM * unit)
        return RowMap(np.zeros(self.data.n_features), factors)

    def mean_squares(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate the mean square of each column from noisy counts; above 0."""
        least = _SIGNIFICANT * self.counts.noise_std
        squares = _MEAN_SQUARE * 0.25 ** np.arange(LEVELS)
        shares = np.where(counts > least, np.minimum(counts / self.data.n_rows, 1.0), 0.0)
        unseen = min(least / self.data.n_rows, 1.0)
        seen = shares @ squares
        return self.data.row_norm**2 * np.where(seen > 0.0, seen, unseen)
