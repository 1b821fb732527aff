"""Private whitening: rows in coordinates in which their second moment is near the identity."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import (
    MOST_WHITENED,
    check_data,
    constant_column,
    noisy_second_moments,
    second_moment_release,
    spectrum,
)
from dpglm.preprocessing.base import PlannedStep, Preprocessor, dense_spec
from dpglm.preprocessing.choices import check_row_norm
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease

__all__ = ["PlannedWhiten", "Whiten"]

# Chosen on validation rows of MNIST's training set; docs/defaults.md.
_SHARE = 0.05


@final
@dataclass(frozen=True)
class Whiten(Preprocessor):
    """Rotate and scale rows by a private second moment, so that directions have equal spread.

    Parameters
    ----------
    exponent : float, default=0.5
        Directions in which rows have the mean square s are divided by ``s ** exponent``; in
        (0, 0.5]. Less than 0.5 evens them out in part.
    row_norm : float, optional
        Root mean square of row norms afterwards, about; longer rows are scaled down to it for
        training. Above 0; by default the row norm before.

    Notes
    -----
    Mean squares below the noise are raised to its level, which limits how far any direction is
    stretched. At most 2100 columns, the intercept's included. Centre rows first: a mean would take
    up a direction. ``Newton`` does the same within its steps, where it bounds gradients and not
    rows.

    Privacy: one Gaussian release of second moments of rows scaled to one length, in coordinates
    that keep lengths (``dpglm.oracle.row_sums.moments.pack_symmetric``).

    References
    ----------
    Ganesh, Haghifam, Steinke and Thakurta, NeurIPS 2023, section 4, for the least eigenvalue.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=3, row_norm=50.0)
    >>> step = Whiten().plan(data, mu=0.1, adjacency=Adjacency.ZERO_OUT)
    >>> [(one.quantity, one.coordinates) for one in step.releases], step.output.row_norm
    ([('normalised second-moment sum', 10)], 50.0)
    """

    exponent: float = 0.5
    row_norm: float | None = None

    def __post_init__(self) -> None:
        check_real("exponent", self.exponent, above=0.0, most=0.5)
        check_row_norm(self.row_norm)

    def share(self, data: DataSpec, mu: float) -> float:
        return _SHARE

    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedWhiten:
        check_data(data, adjacency, MOST_WHITENED)
        row_norm = data.row_norm if self.row_norm is None else self.row_norm
        return PlannedWhiten(data, adjacency, 1.0 / mu, self.exponent, row_norm)


@final
@dataclass(frozen=True)
class PlannedWhiten(PlannedStep):
    """Whitening with every setting decided."""

    data: DataSpec
    adjacency: Adjacency
    first_noise_multiplier: float
    exponent: float
    row_norm: float

    name = "whiten"

    @functools.cached_property
    def moments(self) -> SumRelease:
        """The release of second moments."""
        noise = GaussianNoise(self.first_noise_multiplier)
        return second_moment_release(self.data, self.adjacency, noise)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.moments,)

    @property
    def output(self) -> DataSpec:
        return dense_spec(self.data, self.row_norm)

    @property
    def noise_growth(self) -> float:
        return self.row_norm / self.data.row_norm

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        moments = noisy_second_moments(oracle, self.moments, constant_column(self.data))
        d = self.data.n_features
        values, directions, seen = spectrum(moments, self.moments.noise_std, self.data, d)
        factors = values**-self.exponent
        least = 0.01 * float(np.sum(factors**2 * values))
        unit = math.sqrt(max(float(np.sum(factors**2 * seen)), least))
        stretched = directions * (factors * (self.row_norm / unit))
        # Rotated back to the columns, so that rows with an even spread hardly change.
        return RowMap(np.zeros(d), stretched @ directions.T)
