"""The bounded sum of rows, and its release as a noisy mean."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Mechanism, Release, SumRelease

__all__ = ["mean_release", "noisy_mean"]

V = TypeVar("V")
R = TypeVar("R")


def mean_release(data: DataSpec, adjacency: Adjacency, mechanism: Mechanism[V, R]) -> Release[V, R]:
    """Declare the release of the sum of the rows, without their intercept column.

    Privacy: a prepared row is no longer than ``data.row_norm``, which bounds its contribution;
    weights are left out, so that a row counts once. ``sum_rounding`` covers the error of the
    computed row norm.
    """
    return sum_release(
        "row sum",
        data,
        adjacency,
        mechanism,
        bound=data.row_norm,
        coordinates=data.n_features,
    )


def noisy_mean(oracle: Oracle, declared: SumRelease) -> NDArray[np.float64]:
    """Release the mean of the rows, without their intercept column, of shape (n_features,).

    Sun et al. 2023, Algorithm 3, where the noise lacks the factor 1/n.
    """
    spec = oracle.rows.spec

    def block_sum(block: Block) -> NDArray[np.float64]:
        ones = namespace(block.norms).ones_like(block.norms)
        return block.weighted_sum(ones)[: spec.n_features]

    total = oracle.over_blocks(AnyArrays(block_sum), spec.n_features)
    return oracle.noisy_mean(declared, total, spec.row_norm)
