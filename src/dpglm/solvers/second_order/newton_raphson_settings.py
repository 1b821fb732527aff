"""What Newton-Raphson decides before data: shares of the budget, limits of rows and slopes."""

from __future__ import annotations

import math

from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.solvers.uncertainty import Covariance

__all__ = ["LENGTHS", "SHARES", "group_reach", "hessian_noise", "limits", "rows_enough"]

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
LENGTHS = 0.02
"""Share of the lengths of groups' scores."""

# Rows that the approach and all Hessians ask, where there are more than twice as many: with so
# little noise, and so many.
_ENOUGH_NOISE, _ENOUGH_PER_COLUMN, _ENOUGH_ROWS = 0.05, 2000, 100_000
# Noise that may be added to what sampling makes of a score, in variance, by rows that keep their
# weights, and by slopes that are not cut.
_NEGLIGIBLE = 0.02
_LEAST_LENGTH = 1.5  # Of clip^2, in units of the mean squared length of rows.
# Where slopes are cut, in units of their standard deviation at the start, the least and the usual:
# without intervals, and for those of a right model or of any, which a bias of slopes that are cut
# would shift; and what noise a cut may leave, in units of what sampling makes of a score.
_SLOPES = {None: (2.0, 8.0), "model": (3.0, 5.0), "robust": (6.0, 8.0)}
_BEARABLE = 0.6
# Where groups' scores are cut, in units of their mean length at the constant model, likewise, and
# where at most they are before they are squared; their root mean square in units of it.
_GROUPS = {None: (1.75, 1.75), "model": (2.0, 4.0), "robust": (4.0, 8.0)}
_FAR_PRODUCT, _SPREAD = 4.0, 1.2
# Where curvature is cut, in units of that at the start; noise in a Hessian that does no harm.
_LEAST_CURVATURE, _HESSIAN_NOISE = 3.0, 0.1


def hessian_noise(mu: float, data: DataSpec) -> float:
    """Length of the noise in the last Hessian over the Hessian's, were curvature half its bound.

    ``mu`` is the budget as Gaussian DP over the contribution of a row.
    """
    clip, _, _ = limits(mu, data)
    return 2.0 * clip**2 * _noise_of_hessian(mu, data)


def _noise_of_hessian(mu: float, data: DataSpec) -> float:
    """Length of the noise in the last Hessian, for parts at most 1 long."""
    reach = data.reach(data.n_columns) / data.reach()
    return reach * math.sqrt(2.0 * data.n_columns / SHARES["Hessian"]) / (mu * data.n_rows)


def rows_enough(mu: float, data: DataSpec, adjacency: Adjacency) -> int | None:
    """Return how many rows, if not all, bring the estimate near enough for the last steps."""
    if not adjacency.n_is_public or data.groups is not None:
        return None
    enough = max(
        math.ceil(data.n_rows * hessian_noise(mu, data) / _ENOUGH_NOISE),
        _ENOUGH_PER_COLUMN * data.n_columns,
        _ENOUGH_ROWS,
    )
    return enough if 2 * enough <= data.n_rows else None


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


def _cut(unit: float, least: float, usual: float) -> float:
    """Return where to cut: as far as noise is bearable, farther where it is negligible.

    ``unit`` is the noise of a cut at 1, over what sampling does.
    """
    cut = min(max(_BEARABLE / unit, least), usual)
    return cut * math.pow(max(math.sqrt(_NEGLIGIBLE) / (unit * cut), 1.0), 0.25)


def limits(
    mu: float, data: DataSpec, inference: Covariance | None = None
) -> tuple[float, float, float]:
    """Return the clip, and the largest slope and curvature in units of typical ones.

    They grow beyond the least that will do as far as noise stays negligible: in scores, and in
    Hessians, where clip and curvature share what there is.
    """
    n_rows, noise = data.n_rows, _noise_of_hessian(mu, data)
    least = _LEAST_LENGTH * data.n_columns
    growth = max(_HESSIAN_NOISE / (noise * least * _LEAST_CURVATURE), 1.0) ** 0.25
    # Slopes of a balanced binary target vary as 0.15, in units of their square bound.
    square = max(least, min(_NEGLIGIBLE * 0.15 * n_rows * mu**2, least * growth))
    room = max(_HESSIAN_NOISE / (noise * square * _LEAST_CURVATURE), 1.0)
    curvature = _LEAST_CURVATURE * math.sqrt(room)
    # Noise over what sampling makes of a score, for slopes that are cut at one unit.
    unit = math.sqrt(square / (SHARES["final"] * n_rows)) / mu
    return math.sqrt(square), _cut(unit, *_SLOPES[inference]), curvature
