"""Settings of Newton-Raphson from public facts: budget shares, and limits of rows and slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm.data.rows import DataSpec
from dpglm.oracle.scores import curvature_bound
from dpglm.privacy.budget import Adjacency
from dpglm.solvers.second_order.posterior import FAR
from dpglm.solvers.uncertainty import Covariance

# Chosen on generated rows by ``python -m experiments.newton_raphson`` and
# ``python -m experiments.coverage``; docs/solvers/newton_raphson.md.
SMALL, MEDIUM, LARGE = 0.02, 0.06, 0.15
"""Shares of mu squared: of a few numbers, of a rough matrix, of a matrix; scores have the rest."""
SHARES = {
    "targets": SMALL,
    "slopes": SMALL,
    "moments": LARGE,
    "approach": LARGE,
    "first Hessians": MEDIUM,
    "Hessian": LARGE,
    "final": 0.5,
}
COLUMNS = {"columns": SMALL, "near": SMALL, "moments": MEDIUM}
"""Shares of fits with intervals for second moments of columns, counts near means, and moments."""
ENOUGH_FOR_MEAN = 45.0
"""A small share suffices for the mean of the targets if rows times mu are at least this."""
POOLED = 4
MOST_POOLED = 2 * POOLED
"""Numbers of pooled scores, for bounded slopes and others."""

# Variance that noise may add, relative to sampling: under a right model, and under any, where
# weights change the estimand.
NEGLIGIBLE, _BEARABLE = 0.05, 0.6
# Limits of rows grow as this power of the remaining room. Those of slopes and curvature grow as
# half of it: noise in squared scores still vanishes.
GROWTH = 0.4
# Least squared limit of f |z|, and limit of f |z|^2, in units of the mean squared length of rows;
# least clipping threshold of curvature and slopes, in units of typical ones; and harmless noise in
# a Hessian. A lower limit never raises noise over signal in a score, ``clip / mean(min(1, clip /
# |z|))``. Few long rows, such as those of rare levels, determine the mean squared length.
LEAST_LENGTH, LEAST_SQUARE, LEAST_CUT, HARMLESS = 0.75, 1.5, 3.0, 0.3
# Least clipping threshold of slopes, in standard deviations at the start, and of groups'
# scores, in units of their mean length: without intervals, and under a right model or any, which a
# clipping bias would shift.
_SLOPES = {None: 2.0, "model": LEAST_CUT, "robust": 2.0 * LEAST_CUT}
# The approach and Hessians use a sample of rows, if there are more than twice as many: enough for
# negligible noise at the least limits, and this many.
_ENOUGH_ROWS = 100_000


@final
@dataclass(frozen=True)
class Limits:
    """Limits of f |z| and f |z|^2, and the largest slope and curvature in units of typical ones."""

    clip: float
    square: float
    slope: float
    curvature: float

    @property
    def longest(self) -> float:
        """Largest norm of a row that has its full weight."""
        return min(self.clip, math.sqrt(self.square))


def shares_of_hessian(n_columns: int) -> dict[str, float]:
    """Return the shares of the last Hessian and the pooled scores, for intervals.

    The sum of two errors is least if shares are in proportion to their deviations. That of
    the Hessian, off the diagonal and times half a unit, exceeds that of scores by this ratio, as
    curvature is at most a quarter and ``square / clip`` the root of the least ``square``.
    """
    both = SHARES["Hessian"] + SHARES["final"]
    ratio = 0.5**3 * math.sqrt(0.5 * LEAST_SQUARE * n_columns)
    return {"Hessian": both * ratio / (1.0 + ratio), "final": both / (1.0 + ratio)}


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
    noise = 2.0 * LEAST_SQUARE * data.n_columns * _noise_of_hessian(mu, data, data.n_rows)
    enough = max(math.ceil(data.n_rows * noise / NEGLIGIBLE), _ENOUGH_ROWS)
    return enough if 2 * enough <= data.n_rows else None


def longest_step(noise: float) -> float:
    """Return the largest root-mean-square change of scores in a step.

    Curvature changes little over that distance, or is released again with little ``noise``.
    """
    return min(max(2.0 * NEGLIGIBLE / noise, 1.0), 2.0)


def group_reach(
    length: float, noise: float, data: DataSpec, inference: Covariance | None
) -> tuple[float, float]:
    """Return the clipping thresholds of groups' scores and of their squares, from the mean length.

    All three are in units of a row's bound; ``noise`` is that of the mean score in each direction,
    for scores clipped at one unit.
    """
    # Noise over sampling error of a score, for scores clipped at their mean length.
    sampled = math.sqrt(data.n_units / data.n_columns) / data.n_rows
    cut = _cut(noise / sampled, _SLOPES[inference])
    reach = min(max(cut * length, 1.0), data.reach(1) * cut / _SLOPES[None])
    return reach, min(reach, max(FAR * length, 1.0))


def _cut(unit: float, least: float) -> float:
    """Return a clipping threshold: as large as noise allows, growing slowly beyond ``FAR``.

    ``unit`` is the noise for a threshold of 1, relative to sampling error. So both the bias of
    clipping and its noise vanish against sampling error as rows or budget grow.
    """
    bearable = max(_BEARABLE / unit, least)
    return bearable * math.pow(min(max(FAR, least) / bearable, 1.0), 1.0 - GROWTH / 2.0)


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
    half as fast if slopes are clipped as well.
    """
    square = LEAST_SQUARE * data.n_columns
    # Under a wrong model, weights of rows change the estimand.
    least = square if inference == "robust" else LEAST_LENGTH * data.n_columns
    noise = 2.0 * square * _noise_of_hessian(mu, data, n_asked or data.n_rows)
    room = max(HARMLESS / noise, 1.0)
    longest, curvature = square * room**GROWTH, LEAST_CUT * room ** (GROWTH / 2.0)
    # Noise over sampling error of a score, for rows of length 1 and slopes of 1.
    unit = 1.0 / (mu * math.sqrt(SHARES["final"] * data.n_rows))
    # Slopes of a balanced binary target vary as 1/4, in units of their square bound.
    negligible = 0.5 if inference == "robust" else NEGLIGIBLE
    room = max(negligible * 0.5**2 / (unit**2 * least), 1.0)
    power = GROWTH / 2.0 if cuts_slopes else GROWTH
    clip = math.sqrt(min(least * room**power, longest))
    # The threshold of slopes fits rows up to ``square``: a lower limit of rows does not raise it.
    unit *= clip * math.sqrt(square / least)
    return Limits(clip, longest, _cut(unit, _SLOPES[inference]), curvature)
