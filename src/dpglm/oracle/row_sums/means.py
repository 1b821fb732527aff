"""Bounded sums of rows, as they are or around a public point, released as noisy means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.prepare import row_lengths
from dpglm.data.rows import AnyArrays, Block, Floats
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import norm_margin, sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = [
    "centered_rows",
    "clipped_mean_release",
    "counted",
    "mean_release",
    "noisy_clipped_mean",
    "noisy_mean",
]


def mean_release(data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism) -> SumRelease:
    """Declare the release of the sum of the rows, without their intercept column.

    Privacy: a prepared row is no longer than ``data.row_norm``, which bounds its contribution: a
    row counts once, or not at all (``counted``). ``sum_rounding`` covers the error of the computed
    row norm.
    """
    return sum_release(
        "row sum",
        data,
        adjacency,
        mechanism,
        bound=data.row_norm,
        coordinates=data.n_features,
        directions=1,
    )


def noisy_mean(oracle: Oracle, declared: SumRelease) -> NDArray[np.float64]:
    """Release the mean of the rows, without their intercept column, of shape (n_features,).

    Sun et al. 2023, Algorithm 3, where the noise lacks the factor 1/n.
    """
    spec = oracle.rows.spec

    def block_sum(block: Block) -> NDArray[np.float64]:
        return block.weighted_sum(counted(block))[: spec.n_features]

    total = oracle.over_blocks(AnyArrays(block_sum), spec.n_features)
    return oracle.noisy_mean(declared, total, spec.row_norm)


def clipped_mean_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism
) -> SumRelease:
    """Declare the release of the sum of rows around a point, in units of a radius.

    Privacy: each ``(x - center) / radius`` is scaled down to length 1, with a margin for the error
    of its computed length, so a row contributes at most 1 whatever the center and the radius are.
    Computed in float64, in blocks no longer than ``sum_rounding`` assumes. A row counts once, or
    not at all (``counted``).
    """
    return sum_release(
        "row sum in radii", data, adjacency, mechanism, bound=1.0, coordinates=data.n_features
    )


def noisy_clipped_mean(
    oracle: Oracle, declared: SumRelease, center: NDArray[np.float64], radius: float
) -> NDArray[np.float64]:
    """Release the mean of the rows, each moved to within a public radius of a public center."""
    d = oracle.rows.spec.n_features
    margin = norm_margin(d)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z = centered_rows(block, center)
        z *= (margin / np.maximum(row_lengths(z), radius) * counted(block))[:, np.newaxis]
        total: NDArray[np.float64] = z.sum(axis=0)
        return total

    mean = oracle.noisy_mean(declared, oracle.over_blocks(block_sum, d), 1.0)
    return np.asarray(center + radius * mean)


def counted(block: Block) -> Floats:
    """Return 1 for each row of a block, but 0 for rows of weight 0, which are erased. Private.

    For sums, counts and ranks that leave weights out otherwise.

    Privacy: a factor of 0 or 1 that depends on its own row alone leaves every bound as it is, and
    erasing a row removes all that it contributes, whatever an earlier step made of it.
    """
    ones: Floats = namespace(block.norms).ones_like(block.norms)
    return ones if block.weights is None else ones * (block.weights > 0.0)


def centered_rows(block: Block, center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract a public point from the rows of a block, in float64. Private."""
    # Row after row in memory, so that sums over a row do not depend on where it stands.
    return block.features().astype(np.float64, order="C") - center
