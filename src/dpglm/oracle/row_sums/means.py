"""The bounded sum of rows, and its release as a noisy mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.curator import BoundedSum

__all__ = ["noisy_mean"]


def noisy_mean(oracle: Oracle, noise_multiplier: float) -> NDArray[np.float64]:
    """Release the mean of the rows, without their intercept column.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    noise_multiplier : float
        Noise standard deviation over the sensitivity of the sum.

    Returns
    -------
    ndarray of shape (n_features,)
        The noisy sum divided by the public number of rows.

    Notes
    -----
    Privacy: one ``Gaussian(noise_multiplier)``. A prepared row is no longer than
    ``spec.row_norm``, which bounds its contribution; weights are left out, so that a row counts
    once. What the computed norm of a row may err by is in ``sum_rounding``.

    References
    ----------
    Sun et al. 2023, Algorithm 3, where the noise lacks the factor 1/n.

    Examples
    --------
    >>> from dpglm.data.prepare import prepare_rows
    >>> from dpglm.data.spec import DataSpec
    >>> from dpglm.privacy import Adjacency
    >>> from dpglm.privacy.curator import Curator
    >>> from dpglm.privacy.noise import SeededNoise
    >>> from dpglm.problem import Squared
    >>> X = np.array([[1.0, 0.0], [0.0, 0.5]])
    >>> rows = prepare_rows(X, np.ones(2), DataSpec(n_rows=2, n_features=2))
    >>> curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    >>> noisy_mean(Oracle(rows, Squared(), curator), 1e-9).round(6).tolist()
    [0.5, 0.25]
    """
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency

    def block_sum(block: Block) -> NDArray[np.float64]:
        ones = namespace(block.norms).ones_like(block.norms)
        return block.weighted_sum(ones)[: spec.n_features]

    total = BoundedSum(
        oracle.rows.sum(AnyArrays(block_sum), oracle.map_blocks, (spec.n_features,)),
        contribution_bound=spec.row_norm,
        magnitude=sum_magnitude(spec, adjacency, spec.row_norm),
        rounding=sum_rounding(spec, adjacency, spec.row_norm),
    )
    return oracle.curator.release_gaussian(total, noise_multiplier) / spec.n_rows
