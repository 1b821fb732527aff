"""Private choice of the signed coordinate along which the loss falls fastest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, namespace, weighted
from dpglm.data.rows import AnyArrays, Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.adjacency import Adjacency

__all__ = ["choose_coordinate", "entry_bound", "largest_entry", "score_bound"]


def entry_bound(data: DataSpec) -> float:
    """Bound to which entries of rows are clipped, the intercept's column left out."""
    return min(data.entry_bound, data.row_norm)


def largest_entry(data: DataSpec) -> float:
    """Bound on the entries of clipped rows in any column, that of the intercept too."""
    return max(entry_bound(data), data.intercept)


def score_bound(
    data: DataSpec, adjacency: Adjacency, slope_clip: float, offset_bound: float
) -> float:
    """Bound on how far erasing one row moves any computed entry of a shifted gradient sum.

    Parameters
    ----------
    data : DataSpec
        Public facts of rows whose entries are clipped.
    adjacency : Adjacency
        The neighbouring relation.
    slope_clip : float
        Bound on slopes.
    offset_bound : float
        Bound on the entries of the public vector that is added.

    Returns
    -------
    float
        ``slope_clip * largest_entry * weight_bound``, plus rounding.

    Notes
    -----
    Privacy: an entry of the sum adds up one number for each row, none larger than the exact
    bound, so ``sum_rounding`` for vectors of one coordinate bounds its error. Adding the offset
    rounds once more for either of two neighbours, by half a unit in the last place of a number
    no larger than ``sum_magnitude + offset_bound``.
    """
    exact = slope_clip * largest_entry(data) * data.weight_bound
    added = sum_magnitude(data, adjacency, exact) + offset_bound
    return exact + sum_rounding(data, adjacency, exact) + 2.0 * np.finfo(np.float64).eps * added


def choose_coordinate(
    oracle: Oracle,
    w: NDArray[np.float64],
    slope_clip: float,
    offset: NDArray[np.float64],
    offset_bound: float,
    epsilon: float,
) -> tuple[int, float]:
    """Choose a coordinate and a sign by the exponential mechanism on the gradient sum's entries.

    Parameters
    ----------
    oracle : Oracle
        Its rows have been through ``clip_entries(entry_bound(spec))``.
    w : ndarray, shape of the parameter
        Where gradients are taken; public.
    slope_clip : float
        Slopes are clipped to this magnitude, each output by itself.
    offset : ndarray, shape of the parameter
        Public vector that is added to the gradient sum, such as that of a penalty.
    offset_bound : float
        Entries of the offset are clipped to this magnitude.
    epsilon : float
        What the choice costs.

    Returns
    -------
    index : int
        Position in the flattened parameter.
    sign : float
        1.0 or -1.0: the direction in which the loss falls.

    Notes
    -----
    Privacy: one ``BoundedRange(epsilon)``. Slopes are clipped here and entries were, so a row
    contributes at most ``slope_clip * largest_entry * weight_bound`` to any score, whatever
    its values and whatever ``w`` is; a slope that overflowed counts as zero. The scores are not
    released.
    """
    loss = oracle.loss

    def block_sum(block: Block) -> NDArray[np.float64]:
        # Overflow is harmless: its slope is zeroed here.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = finite(loss.slope(block.predict(w), block.targets))
            namespace(slopes).clip(slopes, -slope_clip, slope_clip, out=slopes)
            slopes = weighted(slopes, block.weights)
            return block.weighted_sum(slopes)

    shift = np.clip(offset, -offset_bound, offset_bound)
    gradient = (oracle.rows.sum(AnyArrays(block_sum), oracle.map_blocks) + shift).ravel()
    bound = score_bound(oracle.rows.spec, oracle.curator.adjacency, slope_clip, offset_bound)
    # Moving along e_j changes the loss by gradient_j, along -e_j by its negative.
    chosen = oracle.curator.choose_exponentially(
        np.concatenate([gradient, -gradient]), bound, epsilon
    )
    return chosen % len(gradient), 1.0 if chosen < len(gradient) else -1.0
