"""The bounded sum of rows around a public point, and its release as a noisy mean."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.choices.distances import centered_rows, row_lengths
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Mechanism, Release, SumRelease

__all__ = ["clipped_mean_release", "noisy_clipped_mean"]

V = TypeVar("V")
R = TypeVar("R")


def clipped_mean_release(
    data: DataSpec, adjacency: Adjacency, mechanism: Mechanism[V, R]
) -> Release[V, R]:
    """Declare the release of the sum of rows around a point, in units of a radius.

    Privacy: each ``(x - center) / radius`` is scaled down to length 1, with a margin for the error
    of its computed length, so a row contributes at most 1 whatever the center and the radius are.
    Computed in float64, in blocks no longer than ``sum_rounding`` assumes. Weights are left out.
    """
    return sum_release(
        "row sum in radii", data, adjacency, mechanism, bound=1.0, coordinates=data.n_features
    )


def noisy_clipped_mean(
    oracle: Oracle, declared: SumRelease, center: NDArray[np.float64], radius: float
) -> NDArray[np.float64]:
    """Release the mean of the rows, each moved to within a public radius of a public center."""
    d = oracle.rows.spec.n_features
    margin = 1.0 - 4.0 * (d + 16) * float(np.finfo(np.float64).eps)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z = centered_rows(block, center)
        z *= (margin / np.maximum(row_lengths(z), radius))[:, np.newaxis]
        total: NDArray[np.float64] = z.sum(axis=0)
        return total

    mean = oracle.noisy_mean(declared, oracle.over_blocks(block_sum, d), 1.0)
    return np.asarray(center + radius * mean)
