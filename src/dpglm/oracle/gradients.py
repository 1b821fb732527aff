"""The bounded sum of clipped row gradients, and its release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, weighted
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.compiled import compiled_rule
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.releases import AnyRelease, Bounded, Mechanism, Release, SumRelease
from dpglm.problem.loss import Loss

__all__ = ["Oracle", "clipped_gradient_sum", "gradient_release"]

V = TypeVar("V")
R = TypeVar("R")


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

    Attributes
    ----------
    kept : dict
        What a method has made of the rows and needs again, such as mapped ones. Private; it lives
        as long as the run, while a method's state holds released values only.
    """

    rows: Rows
    loss: Loss
    curator: Curator
    map_blocks: BlockMap = SERIAL
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def noisy_sum(
        self,
        declared: SumRelease,
        kernel: Callable[[Rows], NDArray[np.float64]],
        bound: float,
    ) -> NDArray[np.float64]:
        """Release a sum over all rows, or over a fresh Poisson sample, as it was declared.

        Parameters
        ----------
        declared : Release
            What the plan says of it.
        kernel : callable
            From the rows that entered to the sum.
        bound : float
            Bound on what one row contributes to it, weight included.

        Returns
        -------
        ndarray

        Notes
        -----
        Privacy: ``declared.event``.
        """
        return self.curator.release(declared, Bounded(kernel(self.entered(declared)), bound))

    def noisy_mean(
        self,
        declared: SumRelease,
        kernel: Callable[[Rows], NDArray[np.float64]],
        bound: float,
    ) -> NDArray[np.float64]:
        """Release a sum as ``noisy_sum`` does, over the public expected number of its rows.

        Notes
        -----
        Privacy: ``declared.event``. The divisor is the expected batch size, never the realised
        one; an empty batch is a batch like any other.
        """
        return self.noisy_sum(declared, kernel, bound) / (
            declared.sampling_rate * self.rows.spec.n_rows
        )

    def entered(self, declared: AnyRelease) -> Rows:
        """Return the rows that a release is about: all, or a fresh Poisson sample. Private."""
        if declared.sampling_rate == 1.0:
            return self.rows
        entered = self.curator.sample(self.rows.n_rows, declared.sampling_rate)
        return self.rows.take(np.flatnonzero(entered))

    def noisy_gradient(
        self,
        declared: SumRelease,
        w: NDArray[np.float64],
        clipping: Clipping,
    ) -> NDArray[np.float64]:
        """Release the mean clipped gradient of all rows, or of a fresh Poisson sample.

        Parameters
        ----------
        declared : Release
            Made by ``gradient_release`` with this clipping.
        w : ndarray
            Where gradients are taken; public.
        clipping : Clipping
            Bounds the gradient of each row.

        Returns
        -------
        ndarray, shape of ``w``
            The noisy sum divided by the public expected number of rows in it.
        """

        def kernel(rows: Rows) -> NDArray[np.float64]:
            return clipped_gradient_sum(rows, self.loss, clipping, w, self.map_blocks)

        return self.noisy_mean(declared, kernel, clipping.bound * self.rows.spec.weight_bound)


def gradient_release(
    data: DataSpec,
    adjacency: Adjacency,
    clipping: Clipping,
    mechanism: Mechanism[V, R],
    *,
    quantity: str = "clipped gradient sum",
    count: int = 1,
    sampling_rate: float = 1.0,
    extra_rounding: float = 0.0,
) -> Release[V, R]:
    """Declare the release of clipped gradient sums, as ``Oracle.noisy_gradient`` makes them.

    Parameters
    ----------
    data, adjacency, mechanism, quantity, count, sampling_rate, extra_rounding
        As for ``sum_release``.
    clipping : Clipping
        Bounds the gradient of each row.

    Returns
    -------
    Release
    """
    return sum_release(
        quantity,
        data,
        adjacency,
        mechanism,
        bound=clipping.bound * data.weight_bound,
        coordinates=data.n_coefficients,
        count=count,
        sampling_rate=sampling_rate,
        extra_rounding=extra_rounding,
    )
