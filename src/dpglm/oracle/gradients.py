"""The bounded sum of clipped row gradients, and its release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, weighted
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, Rows
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.compiled import compiled_rule
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.curator import BoundedSum, Curator
from dpglm.privacy.noise import bernoulli
from dpglm.problem.loss import Loss

__all__ = ["Oracle", "clipped_gradient_sum"]


def clipped_gradient_sum(
    rows: Rows,
    loss: Loss,
    clipping: Clipping,
    w: NDArray[np.float64],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum of the rows' clipped gradients at ``w``. Private.

    Parameters
    ----------
    rows : Rows
        Prepared rows.
    loss : Loss
        The loss of one row as a function of its prediction.
    clipping : Clipping
        Bounds the gradient of each row; weights multiply the bounded gradient.
    w : ndarray of shape ``rows.spec.coefficient_shape``
        Where gradients are taken.
    map_blocks : callable, optional
        ``map``, or a parallel one that keeps the order.

    Returns
    -------
    ndarray, shape of ``w``
        The sum.

    Notes
    -----
    A row's gradient is its slope times the row, so its norm is the product of two norms and
    clipping rescales the slope: no row gradient is ever formed.

    Privacy: each row contributes at most ``clipping.bound * spec.weight_bound`` in L2 norm,
    whatever its values and whatever ``w`` is; a slope that overflowed counts as zero.
    """
    rule = compiled_rule(loss, clipping)

    def block_sum(block: Block) -> NDArray[np.float64]:
        if rule is not None:
            total = block.bounded_sum(rule, w, block.targets, block.norms)
            if total is not None:
                return total
        # Overflow is harmless: its slope is zeroed here, or its factor below is.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = finite(loss.slope(block.predict(w), block.targets))
            slopes = clipping.scale(slopes, block.norms)
            slopes = weighted(slopes, block.weights)
        return block.weighted_sum(slopes)

    return rows.sum(AnyArrays(block_sum), map_blocks)


@final
@dataclass(frozen=True, eq=False)
class Oracle:
    """Answers a solver's questions about private rows with noisy mean gradients.

    Parameters
    ----------
    rows : Rows
        Prepared rows.
    loss : Loss
        The loss of one row.
    curator : Curator
        Adds the noise and records the event.
    map_blocks : callable, optional
        How the kernel is mapped over blocks.
    """

    rows: Rows
    loss: Loss
    curator: Curator
    map_blocks: BlockMap = SERIAL

    def noisy_gradient(
        self,
        w: NDArray[np.float64],
        clipping: Clipping,
        noise_multiplier: float,
        sampling_rate: float = 1.0,
        extra_rounding: float = 0.0,
    ) -> NDArray[np.float64]:
        """Release the mean clipped gradient of all rows, or of a fresh Poisson sample.

        Parameters
        ----------
        w : ndarray
            Where gradients are taken; public.
        clipping : Clipping
            Bounds the gradient of each row.
        noise_multiplier : float
            Noise standard deviation over the sensitivity of the sum.
        sampling_rate : float, default=1.0
            Probability with which each row enters, independently, in (0, 1].
        extra_rounding : float, default=0.0
            Added to the sensitivity where a method's proof asks for more than one sum's.

        Returns
        -------
        ndarray, shape of ``w``
            The noisy sum divided by the public ``sampling_rate * n``.

        Notes
        -----
        Privacy: one ``Gaussian(noise_multiplier)``, within ``PoissonSampled(sampling_rate)``
        if the rate is below 1. The divisor is the expected batch size, never the realised
        one; an empty batch is a batch like any other.
        """
        spec = self.rows.spec
        batch = self.rows
        if sampling_rate < 1.0:
            entered = bernoulli(self.curator.noise, batch.n_rows, sampling_rate)
            batch = batch.take(np.flatnonzero(entered))
        bound = clipping.bound * spec.weight_bound
        total = BoundedSum(
            clipped_gradient_sum(batch, self.loss, clipping, w, self.map_blocks),
            contribution_bound=bound,
            magnitude=sum_magnitude(spec, self.curator.adjacency, bound),
            rounding=sum_rounding(spec, self.curator.adjacency, bound) + extra_rounding,
            sampling_rate=sampling_rate,
        )
        noisy = self.curator.release_gaussian(total, noise_multiplier)
        return noisy / (sampling_rate * spec.n_rows)
