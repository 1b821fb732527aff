"""Private choice of the signed coordinate of steepest descent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, namespace, weighted
from dpglm.data.rows import AnyArrays, Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import UNIT, sum_magnitude, sum_rounding
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Bounded, Release, ScoreRelease
from dpglm.privacy.selection.mechanisms import ExponentialMechanism

__all__ = ["choose_coordinate", "coordinate_release", "entry_bound", "largest_entry"]


def entry_bound(data: DataSpec) -> float:
    """Bound to which entries of rows are clipped, the intercept column excepted."""
    return min(data.entry_bound, data.row_norm)


def largest_entry(data: DataSpec) -> float:
    """Bound on the entries of clipped rows in any column, the intercept's included."""
    return max(entry_bound(data), data.intercept)


def coordinate_release(
    data: DataSpec,
    adjacency: Adjacency,
    slope_clip: float,
    offset_bound: float,
    epsilon: float,
    count: int = 1,
) -> ScoreRelease:
    """Declare choices of a signed coordinate by the entries of a shifted gradient sum.

    Slopes are clipped to ``slope_clip``, entries of the public shift to ``offset_bound``.

    Privacy: ``BoundedRange(epsilon)``. Slopes and entries are clipped, so a row contributes at
    most ``slope_clip * largest_entry * weight_bound`` to any score, whatever its values and
    whatever the parameter is; a slope that overflowed counts as zero. An entry of the sum adds up
    one number for each row, none larger than that bound, so ``sum_rounding`` for vectors of one
    coordinate bounds its error. Adding the offset rounds once more for either of two neighbours,
    by half a unit in the last place of a number no larger than ``sum_magnitude + offset_bound``.
    """
    exact = slope_clip * largest_entry(data) * data.weight_bound
    magnitude = sum_magnitude(data, adjacency, exact)
    added = 4.0 * UNIT * (magnitude + offset_bound)
    return Release(
        "vertex of the L1 ball",
        ExponentialMechanism(epsilon),
        adjacency,
        exact,
        count=count,
        rounding=sum_rounding(data, adjacency, exact) + added,
        magnitude=magnitude,
    )


def choose_coordinate(
    oracle: Oracle,
    declared: ScoreRelease,
    w: NDArray[np.float64],
    slope_clip: float,
    offset: NDArray[np.float64],
    offset_bound: float,
) -> tuple[int, float]:
    """Choose the coordinate and sign of steepest descent by the exponential mechanism.

    The oracle's rows must have been through ``clip_entries(entry_bound(spec))``. ``w`` and
    ``offset``, such as a penalty's gradient, are public. Returned are the position in the
    flattened parameter and the sign, 1.0 or -1.0, of the direction in which the loss falls.
    """
    loss, spec = oracle.loss, oracle.rows.spec

    def block_sum(block: Block) -> NDArray[np.float64]:
        # Overflow is harmless: its slope is zeroed here.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = finite(loss.slope(block.predict(w), block.targets))
            namespace(slopes).clip(slopes, -slope_clip, slope_clip, out=slopes)
            slopes = weighted(slopes, block.weights)
            return block.weighted_sum(slopes)

    shift = np.clip(offset, -offset_bound, offset_bound)
    gradient = (oracle.rows.sum(AnyArrays(block_sum), oracle.map_blocks) + shift).ravel()
    # Moving along e_j changes the loss by gradient_j, along -e_j by its negative.
    scores = np.concatenate([gradient, -gradient])
    bound = slope_clip * largest_entry(spec) * spec.weight_bound
    chosen = oracle.curator.release(declared, Bounded(scores, bound))
    return chosen % len(gradient), 1.0 if chosen < len(gradient) else -1.0
