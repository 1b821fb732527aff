"""The bounded sum of differences of row gradients between two public points, and its release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, weighted
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, Floats, Rows
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.curator import BoundedSum
from dpglm.privacy.noise import bernoulli
from dpglm.problem.loss import Loss

__all__ = ["clipped_difference_sum", "noisy_difference"]


def clipped_difference_sum(
    rows: Rows,
    loss: Loss,
    clipping: Clipping,
    bound: float,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum over rows of the clipped gradient at ``w`` minus that at ``anchor``. Private.

    Parameters
    ----------
    rows : Rows
        Prepared rows.
    loss : Loss
        The loss of one row as a function of its prediction.
    clipping : Clipping
        Bounds each of the two gradients of a row.
    bound : float
        Length to which their difference is clipped in turn, above 0.
    w, anchor : ndarray of shape ``rows.spec.coefficient_shape``
        Where gradients are taken.
    map_blocks : callable, optional
        ``map``, or a parallel one that keeps the order.

    Returns
    -------
    ndarray, shape of ``w``
        The sum.

    Notes
    -----
    Both gradients are multiples of the row (for K outputs: outer products with it), and so is
    their difference: all three clips rescale slopes.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in L2 norm, whatever its
    values and whatever ``w`` and ``anchor`` are: the last clip acts on the computed difference,
    so nothing rests on the smoothness of the loss or on the rounding of slopes. Slopes that
    overflowed count as zero.
    """
    difference_clipping = FlatClipping(bound)

    def block_sum(block: Block) -> NDArray[np.float64]:
        # Overflow is harmless: what is not finite is zeroed before it is clipped.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = _clipped_slopes(block, loss, clipping, w)
            slopes -= _clipped_slopes(block, loss, clipping, anchor)
            slopes = difference_clipping.scale(finite(slopes), block.norms)
            slopes = weighted(slopes, block.weights)
        return block.weighted_sum(slopes)

    return rows.sum(AnyArrays(block_sum), map_blocks)


def noisy_difference(
    oracle: Oracle,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    clipping: Clipping,
    bound: float,
    noise_multiplier: float,
    sampling_rate: float = 1.0,
) -> NDArray[np.float64]:
    """Release the mean difference of clipped gradients over all rows, or over a Poisson sample.

    Parameters
    ----------
    oracle : Oracle
        Of the private rows.
    w, anchor : ndarray
        Where gradients are taken; both public.
    clipping : Clipping
        Bounds each of the two gradients of a row.
    bound : float
        Clip norm of their difference, above 0; it may depend on what is public, such as the
        distance of ``w`` from ``anchor``.
    noise_multiplier : float
        Noise standard deviation over the sensitivity of the sum.
    sampling_rate : float, default=1.0
        Probability with which each row enters, independently, in (0, 1].

    Returns
    -------
    ndarray, shape of ``w``
        The noisy sum divided by the public ``sampling_rate * n``.

    Notes
    -----
    Privacy: one ``Gaussian(noise_multiplier)``, within ``PoissonSampled(sampling_rate)`` if the
    rate is below 1. Noise is proportional to ``bound``, so the event does not depend on it; as
    ``bound`` is a function of earlier releases, composition is adaptive, which both exact
    Gaussian accounting and privacy-loss distributions allow.
    """
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    batch = oracle.rows
    if sampling_rate < 1.0:
        entered = bernoulli(oracle.curator.noise, batch.n_rows, sampling_rate)
        batch = batch.take(np.flatnonzero(entered))
    contribution = bound * spec.weight_bound
    total = BoundedSum(
        clipped_difference_sum(batch, oracle.loss, clipping, bound, w, anchor, oracle.map_blocks),
        contribution_bound=contribution,
        magnitude=sum_magnitude(spec, adjacency, contribution),
        rounding=sum_rounding(spec, adjacency, contribution),
        sampling_rate=sampling_rate,
    )
    noisy = oracle.curator.release_gaussian(total, noise_multiplier)
    return noisy / (sampling_rate * spec.n_rows)


def _clipped_slopes(block: Block, loss: Loss, clipping: Clipping, w: NDArray[np.float64]) -> Floats:
    slopes = finite(loss.slope(block.predict(w), block.targets))
    return clipping.scale(slopes, block.norms)
