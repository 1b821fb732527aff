"""What Newton-Raphson decides before data: shares of the budget, limits of rows and slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm.data.spec import DataSpec
from dpglm.oracle.scores import curvature_bound
from dpglm.privacy.adjacency import Adjacency
from dpglm.solvers.uncertainty import Covariance

__all__ = [
    "LENGTHS",
    "LIMITS",
    "SHARES",
    "SIZES",
    "Limits",
    "group_reach",
    "hessian_noise",
    "limits",
    "longest_step",
    "rows_enough",
]

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
"""Shares of the lengths of groups' scores, and of the sizes of targets without an upper bound."""
LIMITS = 0.02
"""Share of the counts of rows on which limits bind, of fits with intervals."""

# Rows that the approach and all Hessians ask, where there are more than twice as many: with so
# little noise where rows are cut as short as they may be, and so many.
_ENOUGH_NOISE, _ENOUGH_PER_COLUMN, _ENOUGH_ROWS = 0.02, 2000, 100_000
# Noise in Hessians beyond which steps are shorter.
_SURE_NOISE = 0.1
# Of the limit of f |z| squared, the least, in units of the mean squared length of rows; beyond it
# noise may add so much to what sampling makes of a score, in variance. Under any model weights
# change what is estimated, so that more noise is worth their absence.
_LEAST_LENGTH = 1.5
_NEGLIGIBLE = {None: 0.05, "model": 0.05, "robust": 0.25}
# Where slopes are cut, in units of their standard deviation at the start, the least and the usual:
# without intervals, and for those of a right model or of any, which a bias of slopes that are cut
# would shift; and what noise a cut may leave, in units of what sampling makes of a score.
# The powers of that room by which the limit of rows grows, alone, and where slopes are cut as well.
_POWERS = {None: (0.6, 0.2), "model": (0.6, 0.2), "robust": (0.8, 0.6)}
_SLOPES = {None: (2.0, 8.0), "model": (3.0, 5.0), "robust": (6.0, 8.0)}
_BEARABLE = 0.6
# Where groups' scores are cut, in units of their mean length at the constant model, likewise, and
# where at most they are before they are squared; their root mean square in units of it.
_GROUPS = {None: (1.75, 1.75), "model": (2.0, 4.0), "robust": (4.0, 8.0)}
_FAR_PRODUCT, _SPREAD = 4.0, 1.2
# Where curvature is cut, in units of that at the start; noise in a Hessian that does little harm,
# and the powers of what room it leaves by which limits of f |z|^2 and of curvature grow.
_LEAST_CURVATURE, _HESSIAN_NOISE = 3.0, 0.3
_LONGER, _STEEPER = 0.4, 0.3


@final
@dataclass(frozen=True)
class Limits:
    """Limits of f |z| and f |z|^2, and the largest slope and curvature in units of typical ones."""

    clip: float
    square: float
    slope: float
    squared_slope: float  # Of scores that are squared.
    curvature: float


def hessian_noise(
    mu: float, data: DataSpec, inference: Covariance | None = None, n_asked: int | None = None
) -> float:
    """Length of the noise in the last Hessian over the Hessian's, were curvature half its bound.

    ``mu`` is the budget as Gaussian DP over the contribution of a row; ``n_asked`` the number of
    rows that Hessians ask, by default all.
    """
    at, n_asked = limits(mu, data, inference, n_asked), n_asked or data.n_rows
    bound = curvature_bound(at.clip, at.square, with_variance=inference == "model")
    return 2.0 * bound * _noise_of_hessian(mu, data, n_asked)


def _noise_of_hessian(mu: float, data: DataSpec, n_asked: int) -> float:
    """Length of the noise in the last Hessian, for parts at most 1 long."""
    reach = data.reach(data.n_columns) / data.reach()
    return reach * math.sqrt(2.0 * data.n_columns / SHARES["Hessian"]) / (mu * n_asked)


def rows_enough(mu: float, data: DataSpec, adjacency: Adjacency) -> int | None:
    """Return how many rows, if not all, bring the estimate near enough for the last steps."""
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
    """Return how far a step may change scores, root mean square.

    Curvature hardly changes over so little, or is seen anew with little ``noise`` after it.
    """
    return min(max(_SURE_NOISE / noise, 1.0), 2.0)


def group_reach(
    length: float, noise: float, data: DataSpec, inference: Covariance | None
) -> tuple[float, float]:
    """Return where scores of groups, and their squares, are cut, from the mean length of scores.

    All three are in units of a row's bound; ``noise`` is what the mean score's has in each
    direction, for scores that are cut at one unit.
    """
    # Noise over what sampling makes of a score, for scores that are cut at their mean length.
    sampled = _SPREAD * math.sqrt(data.n_units / data.n_columns) / data.n_rows
    unit = noise / sampled
    least, usual = _GROUPS[inference]
    cut = _cut(unit, least, usual)
    most = data.reach(1) * cut / _GROUPS[None][0]
    reach = min(max(cut * length, 1.0), most)
    return reach, min(reach, max(_FAR_PRODUCT * length, 1.0))


def _cut(unit: float, least: float, usual: float, power: float = 0.4) -> float:
    """Return where to cut: as far as noise is bearable, and beyond the usual more slowly.

    ``unit`` is the noise of a cut at 1, over what sampling does. So both the bias of a cut and its
    noise vanish beside sampling as rows or budget grow; of squares the noise with a lower power.
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
    """Return where rows, slopes and curvature are cut.

    All limits grow beyond the least that will do as far as noise stays negligible; that of rows
    more slowly where slopes are cut as well.
    """
    least = _LEAST_LENGTH * data.n_columns
    noise = 2.0 * least * _noise_of_hessian(mu, data, n_asked or data.n_rows)
    room = max(_HESSIAN_NOISE / noise, 1.0)
    square, curvature = least * room**_LONGER, _LEAST_CURVATURE * room**_STEEPER
    # Noise over what sampling makes of a score, for rows of length and slopes of 1.
    unit = 1.0 / (mu * math.sqrt(SHARES["final"] * data.n_rows))
    # Slopes of a balanced binary target vary as 0.15, in units of their square bound.
    room = max(_NEGLIGIBLE[inference] * 0.15 / (unit**2 * least), 1.0)
    clip = math.sqrt(min(least * room ** _POWERS[inference][cuts_slopes], square))
    least_slope, usual = _SLOPES[inference]
    slope, squared = (_cut(unit * clip, least_slope, usual, power) for power in (0.4, 0.15))
    return Limits(clip, square, slope, squared, curvature)
