"""Noisy histograms of the orders of magnitude of each column's entries."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.oracle.row_sums.means import counted
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["LEVELS", "magnitudes_release", "noisy_magnitudes"]


LEVELS = 40
"""Level l is for entries above ``2^-(l+1)`` of the row norm, up to ``2^-l`` of it."""


def magnitudes_release(data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism) -> SumRelease:
    """Declare the release of the histograms of magnitudes, one for each column.

    Privacy: a row adds 1 to at most one level of each column, so it contributes at most
    ``sqrt(n_features)``, whatever its values are; no count is negative. Sums of whole numbers are
    exact. A row counts once, or not at all (``counted``).
    """
    return sum_release(
        "counts of magnitudes",
        data,
        adjacency,
        mechanism,
        bound=math.sqrt(data.n_features),
        coordinates=data.n_features * LEVELS,
        directions=1,
        opposition=0.0,
    )


def noisy_magnitudes(oracle: Oracle, declared: SumRelease) -> NDArray[np.float64]:
    """Release the histogram of each column's orders of magnitude, of shape (n_features, 40).

    Zeros, and entries too small for the last level, are not counted.
    """
    spec = oracle.rows.spec
    size = spec.n_features * LEVELS
    first = np.arange(spec.n_features) * LEVELS

    def block_counts(block: Block) -> NDArray[np.float64]:
        X = block.features()
        levels = -np.frexp(np.abs(X) / X.dtype.type(spec.row_norm))[1].astype(np.int64)
        seen = (X != 0) & (levels < LEVELS) & (counted(block) > 0.0)[:, np.newaxis]
        places = (first + np.maximum(levels, 0))[seen]
        return np.bincount(places, minlength=size).astype(np.float64)

    counts = oracle.over_blocks(block_counts, size)
    noisy = oracle.noisy_sum(declared, counts, math.sqrt(spec.n_features))
    return noisy.reshape(spec.n_features, LEVELS)
