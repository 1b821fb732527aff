"""Bounded sums of rows' losses, and of their differences between two parameters, released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array
from dpglm.data.memory import BLOCK_ROWS, RUN_ROWS, SPARSE_BLOCK_ROWS
from dpglm.data.rows import SERIAL, Block, BlockMap, DataSpec, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import UNIT, RowSum
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.releases import Release, SumMechanism, SumRelease


class RowLoss(Protocol):
    """A row's loss as a function of its prediction."""

    def value(self, z: NDArray[Any], y: NDArray[Any], /) -> NDArray[Any]:
        """Return the losses for predictions of shape (n,) or (n, K) and targets."""


def clipped_loss_sums(
    rows: Rows,
    loss: RowLoss,
    candidates: Sequence[Array],
    bounds: Sequence[float],
    map_blocks: BlockMap = SERIAL,
) -> Array:
    """Sum the rows' losses for each candidate, clipped to [0, bound] for its bound. Private.

    Privacy: each row contributes between 0 and the bound times its weight, whatever its values and
    whatever the candidates are; a loss that overflowed, to infinity or to NaN, counts as the
    bound.
    """

    def block_sums(block: Block) -> Array:
        sums = np.empty(len(candidates))
        for j, (w, bound) in enumerate(zip(candidates, bounds, strict=True)):
            sums[j] = _weighted_sum(_clipped(_losses(loss, block, w), 0.0, bound), block)
        return sums

    return rows.sum(block_sums, map_blocks, (len(candidates),))


def loss_rounding(spec: DataSpec, bound: float) -> float:
    """Bound the rounding error in the distance of two neighbours' sums; n is public.

    ``bound`` is the largest exact contribution of a row, weight included.

    Privacy: clipping is exact and the weight rounds once. Neighbours are cut into the same blocks
    and differ in one of them. The sum of its m rows in float64 is within ``gamma_m`` times the sum
    of the terms, in any order (Higham 2002, section 4.2). The blocks are added by ``Rows.sum``; its
    error enters for both.
    """
    rows_of_block = SPARSE_BLOCK_ROWS if spec.sparse else BLOCK_ROWS
    affected = min(rows_of_block, spec.n_rows)
    blocks = spec.n_rows // min(RUN_ROWS, SPARSE_BLOCK_ROWS) + 1
    within = 2.0 * affected * UNIT * affected
    across = (UNIT + (2.0 * blocks * UNIT) ** 2) * spec.n_rows
    return 2.0 * (within + across + UNIT) * bound * (1.0 + 4.0 * UNIT)


def noisy_loss_release(
    spec: DataSpec, adjacency: Adjacency, bound: float, mechanism: SumMechanism
) -> SumRelease:
    """Declare the release that ``noisy_loss`` makes.

    Privacy: less half the bound, a row contributes at most half the bound (times its weight) in
    absolute value.
    """
    half = 0.5 * bound * spec.weight_bound
    return Release(
        "noisy score",
        mechanism,
        adjacency,
        half,
        rounding=loss_rounding(spec, 2.0 * half),
        magnitude=2.0 * spec.n_rows * half,
    )


def noisy_loss(
    oracle: Oracle, declared: SumRelease, w: Array, loss: RowLoss, bound: float
) -> float:
    """Release the sum over rows of the clipped loss less half its bound; lower is better.

    The loss must be at least 0, and the number of rows public.
    """

    def block_sum(block: Block) -> Array:
        centred = _clipped(_losses(loss, block, w), 0.0, bound) - 0.5 * bound
        return np.array([_weighted_sum(centred, block)])

    half = 0.5 * bound * oracle.rows.spec.weight_bound
    return float(oracle.noisy_sum(declared, oracle.over_blocks(block_sum, 1), half)[0])


def clipped_loss_difference_sum(
    rows: Rows, loss: RowLoss, bound: float, w: Array, anchor: Array, map_blocks: BlockMap = SERIAL
) -> Array:
    """Sum over rows of the loss at ``w`` minus that at ``anchor``, clipped; shape (1,). Private.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in absolute value, whatever
    its values and whatever ``w`` and ``anchor`` are: the clip acts on the computed difference, and
    one that is not a number counts as the bound.
    """

    def block_sum(block: Block) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            differences = _losses(loss, block, w) - _losses(loss, block, anchor)
        return np.array([_weighted_sum(_clipped(differences, -bound, bound), block)])

    return rows.sum(block_sum, map_blocks, (1,))


def loss_difference_sum(bound: float) -> RowSum:
    """Sum of loss differences, each clipped to [-bound, bound].

    Privacy: values are added in float64, so ``sum_rounding`` holds for their sum, whatever the
    type of the rows.
    """
    return RowSum("clipped loss difference sum", 1, bound)


def noisy_loss_difference(
    oracle: Oracle, declared: SumRelease, w: Array, anchor: Array, bound: float
) -> float:
    """Release the sum of clipped loss differences; negative where ``w`` seems better."""

    def kernel(rows: Rows) -> Array:
        return clipped_loss_difference_sum(rows, oracle.loss, bound, w, anchor, oracle.map_blocks)

    return float(oracle.noisy_sum(declared, kernel, bound * oracle.rows.spec.weight_bound)[0])


def _losses(loss: RowLoss, block: Block, w: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return loss.value(block.predict(w), block.targets).astype(np.float64, copy=False)


def _clipped(values: Array, low: float, high: float) -> Array:
    """Clip values; NaN, with which a comparison is false, counts as the upper bound."""
    return np.where(values <= high, np.maximum(values, low), high)


def _weighted_sum(values: Array, block: Block) -> Any:
    return (values if block.weights is None else values * block.weights).sum()
