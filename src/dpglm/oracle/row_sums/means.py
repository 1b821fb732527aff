"""The bounded sum of rows, and its release as a noisy mean."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block, Rows
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

    Notes
    -----
    Privacy: a prepared row is no longer than ``data.row_norm``, which bounds its contribution;
    weights are left out, so that a row counts once. What the computed norm of a row may err by is
    in ``sum_rounding``.
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
    """Release the mean of the rows, without their intercept column.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    declared : Release
        Made by ``mean_release``.

    Returns
    -------
    ndarray of shape (n_features,)
        The noisy sum divided by the public number of rows.

    References
    ----------
    Sun et al. 2023, Algorithm 3, where the noise lacks the factor 1/n.

    Examples
    --------
    >>> from dpglm.data.prepare import prepare_rows
    >>> from dpglm.privacy.noise.additive import GaussianNoise
    >>> from dpglm.privacy.curator import Curator
    >>> from dpglm.privacy.noise import SeededNoise
    >>> from dpglm.problem import Squared
    >>> X = np.array([[1.0, 0.0], [0.0, 0.5]])
    >>> data = DataSpec(n_rows=2, n_features=2)
    >>> rows = prepare_rows(X, np.ones(2), data)
    >>> curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    >>> declared = mean_release(data, Adjacency.ZERO_OUT, GaussianNoise(1e-9))
    >>> noisy_mean(Oracle(rows, Squared(), curator), declared).round(6).tolist()
    [0.5, 0.25]
    """
    spec = oracle.rows.spec

    def block_sum(block: Block) -> NDArray[np.float64]:
        ones = namespace(block.norms).ones_like(block.norms)
        return block.weighted_sum(ones)[: spec.n_features]

    def kernel(rows: Rows) -> NDArray[np.float64]:
        return rows.sum(AnyArrays(block_sum), oracle.map_blocks, (spec.n_features,))

    return oracle.noisy_mean(declared, kernel, spec.row_norm)
