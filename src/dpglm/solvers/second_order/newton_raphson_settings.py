"""Settings of Newton-Raphson before data: shares of the budget, limits of rows and slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm.data.rows import DataSpec
from dpglm.oracle.scores import curvature_bound
from dpglm.privacy.budget import Adjacency
from dpglm.solvers.uncertainty import Covariance

# Chosen on generated rows by experiments/newton_raphson.py; docs/solvers/newton_raphson.md.
SHARES = {
    "targets": 0.02,
    "slopes": 0.02,
    "moments": 0.1,
    "approach": 0.16,
    "first Hessians": 0.06,
    "Hessian": 0.15,
    "final": 0.49,
}
"""Shares of mu squared."""
LENGTHS = SIZES = 0.02
"""Shares for the lengths of groups' scores, and for the sizes of targets without an upper bound."""

COLUMNS = {"columns": 0.03, "near": 0.02, "moments": 0.06}
"""Shares of fits with intervals for second moments of columns, counts near means, and moments."""

# The approach and all Hessians use a sample of rows, if there are more than twice as many: enough
# for this relative noise at the least limits, this many per column, and this many in all.
_ENOUGH_NOISE, _ENOUGH_PER_COLUMN, _ENOUGH_ROWS = 0.02, 2000, 100_000
# Largest noise in Hessians for full steps.
_SURE_NOISE = 0.1
# Least squared limit of f |z|, in units of the mean squared length of rows, and the variance that
# noise may add beyond it, relative to sampling. Under any model weights change the estimand, so
# more noise is acceptable there.
_LEAST_LENGTH = 1.5
_NEGLIGIBLE = {None: 0.05, "model": 0.05, "robust": 0.25}
# Powers of that room for the limit of rows, without and with clipped slopes.
_POWERS = {None: (0.6, 0.2), "model": (0.6, 0.2), "robust": (0.8, 0.6)}
# Least and usual clipping threshold of slopes, in standard deviations at the start: without
# intervals, and for intervals under a right model or any, which a clipping bias would shift; and
# the acceptable noise relative to sampling.
_SLOPES = {None: (2.0, 8.0), "model": (3.0, 5.0), "robust": (6.0, 8.0)}
_BEARABLE = 0.6
# The same for groups' scores, in units of their mean length at the constant model; the largest
# threshold before squaring, and the root mean square of the lengths.
_GROUPS = {None: (1.75, 1.75), "model": (2.0, 4.0), "robust": (4.0, 8.0)}
_FAR_PRODUCT, _SPREAD = 4.0, 1.2
# Least clipping threshold of curvature, in units of that at the start; harmless noise in a Hessian,
# and the powers of the remaining room for the limits of f |z|^2 and of curvature.
_LEAST_CURVATURE, _HESSIAN_NOISE = 3.0, 0.3
_LONGER, _STEEPER = 0.4, 0.3


@final
@dataclass(frozen=True)
class Limits:
    """Limits of f |z| and f |z|^2, and the largest slope and curvature in units of typical ones."""

    clip: float
    square: float
    slope: float
    squared_slope: float  # The slope limit for squared scores.
    curvature: float

    @property
    def longest(self) -> float:
        """Largest norm of a row that has its full weight."""
        return min(self.clip, math.sqrt(self.square))


def hessian_noise(
    mu: float, data: DataSpec, inference: Covariance | None = None, n_asked: int | None = None
) -> float:
    """Return the relative noise in the last Hessian, if the curvature is half its bound.

    ``mu`` is the budget as Gaussian DP over the contribution of a row; ``n_asked`` the number of
    rows in Hessians, by default all.
    """
    at, n_asked = limits(mu, data, inference, n_asked), n_asked or data.n_rows
    bound = curvature_bound(at.clip, at.square, with_variance=inference == "model")
    return 2.0 * bound * _noise_of_hessian(mu, data, n_asked)


def _noise_of_hessian(mu: float, data: DataSpec, n_asked: int) -> float:
    """Return the norm of the noise in the last Hessian, for contributions of at most 1."""
    reach = data.reach(data.n_columns) / data.reach()
    return reach * math.sqrt(2.0 * data.n_columns / SHARES["Hessian"]) / (mu * n_asked)


def rows_enough(mu: float, data: DataSpec, adjacency: Adjacency) -> int | None:
    """Return the number of rows that suffice for all but the last steps; None for all rows."""
    if not adjacency.n_is_public or data.groups is not None:
        return None
    noise = 2.0 * _LEAST_LENGTH * data.n_columns * _noise_of_hessian(mu, data, data.n_rows)
    enough = max(
        math.ceil(data.n_rows * noise / _ENOUGH_NOISE),
        _ENOUGH_PER_COLUMN * data.n_columns,
        _ENOUGH_ROWS,
    )
    return enough if 2 * enough <= data.n_rows else None


def longest_step(noise: float) -> float:
    """Return the largest root-mean-square change of scores in a step.

    Curvature changes little over that distance, or is released again with little ``noise``.
    """
    return min(max(_SURE_NOISE / noise, 1.0), 2.0)


def group_reach(
    length: float, noise: float, data: DataSpec, inference: Covariance | None
) -> tuple[float, float]:
    """Return the clipping thresholds of groups' scores and of their squares, from the mean length.

    All three are in units of a row's bound; ``noise`` is that of the mean score in each direction,
    for scores clipped at one unit.
    """
    # Noise over sampling error of a score, for scores clipped at their mean length.
    sampled = _SPREAD * math.sqrt(data.n_units / data.n_columns) / data.n_rows
    unit = noise / sampled
    least, usual = _GROUPS[inference]
    cut = _cut(unit, least, usual)
    most = data.reach(1) * cut / _GROUPS[None][0]
    reach = min(max(cut * length, 1.0), most)
    return reach, min(reach, max(_FAR_PRODUCT * length, 1.0))


def _cut(unit: float, least: float, usual: float, power: float = 0.4) -> float:
    """Return a clipping threshold: as large as noise allows, growing slowly beyond the usual.

    ``unit`` is the noise for a threshold of 1, relative to sampling error. So both the bias of
    clipping and its noise vanish against sampling error as rows or budget grow.
    """
    bearable = max(_BEARABLE / unit, least)
    return bearable * math.pow(min(usual / bearable, 1.0), 1.0 - power)


def limits(
    mu: float,
    data: DataSpec,
    inference: Covariance | None = None,
    n_asked: int | None = None,
    *,
    cuts_slopes: bool = False,
) -> Limits:
    """Return the limits of rows, slopes and curvature.

    All limits exceed the least useful ones as long as noise stays negligible; that of rows grows
    more slowly if slopes are clipped as well.
    """
    least = _LEAST_LENGTH * data.n_columns
    noise = 2.0 * least * _noise_of_hessian(mu, data, n_asked or data.n_rows)
    room = max(_HESSIAN_NOISE / noise, 1.0)
    square, curvature = least * room**_LONGER, _LEAST_CURVATURE * room**_STEEPER
    # Noise over sampling error of a score, for rows of length 1 and slopes of 1.
    unit = 1.0 / (mu * math.sqrt(SHARES["final"] * data.n_rows))
    # Slopes of a balanced binary target vary as 0.15, in units of their square bound.
    room = max(_NEGLIGIBLE[inference] * 0.15 / (unit**2 * least), 1.0)
    clip = math.sqrt(min(least * room ** _POWERS[inference][cuts_slopes], square))
    least_slope, usual = _SLOPES[inference]
    slope, squared = (_cut(unit * clip, least_slope, usual, power) for power in (0.4, 0.15))
    return Limits(clip, square, slope, squared, curvature)
