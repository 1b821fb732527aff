"""The choice of the parameter whose clipped loss, summed over the rows, is least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.data import dense, sparse
from dpglm.data.rows import SERIAL, Block, BlockMap, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.problem.loss import Loss

__all__ = ["choose_least_generalized", "choose_least_loss", "clipped_loss_sums", "loss_rounding"]


def clipped_loss_sums(
    rows: Rows,
    loss: Loss,
    candidates: Sequence[NDArray[np.float64]],
    bounds: Sequence[float],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum the rows' clipped losses for each candidate. Private.

    Parameters
    ----------
    rows : Rows
        Prepared rows.
    loss : Loss
        A loss that is at least 0.
    candidates : sequence of ndarray, each of shape ``rows.spec.coefficient_shape``
        Parameters, at least one.
    bounds : sequence of float
        For each candidate the value, above 0, as which larger losses count.
    map_blocks : callable, optional
        ``map``, or a parallel one that keeps the order.

    Returns
    -------
    ndarray of shape (len(candidates),)

    Notes
    -----
    Privacy: each row contributes between 0 and its bound times its weight, whatever its values
    and whatever the candidates are; a loss that overflowed, to infinity or to NaN, counts as
    the bound.
    """

    def block_sums(block: Block) -> NDArray[np.float64]:
        sums = np.empty(len(candidates))
        for j, (w, bound) in enumerate(zip(candidates, bounds, strict=True)):
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                losses = loss.value(block.predict(w), block.targets).astype(np.float64, copy=False)
            # A comparison with NaN is false.
            clipped = np.where(losses <= bound, np.maximum(losses, 0.0), bound)
            if block.weights is not None:
                clipped = clipped * block.weights.astype(np.float64, copy=False)
            sums[j] = clipped.sum()
        return sums

    return rows.sum(block_sums, map_blocks, (len(candidates),))


def loss_rounding(spec: DataSpec, bound: float) -> float:
    """Bound on what rounding adds to the distance of two neighbours' sums; n is public.

    Parameters
    ----------
    spec : DataSpec
        Public facts of the rows.
    bound : float
        Largest exact contribution of a row, weight included.

    Returns
    -------
    float

    Notes
    -----
    Privacy: clipping is exact and the weight rounds once. Neighbours are cut into the same
    blocks and differ in one of them, of m rows, whose sum in float64 is within ``gamma_m`` times
    the sum of its terms, in any order (Higham 2002, section 4.2). The blocks are added by
    ``Rows.sum``, whose error enters for both.
    """
    unit = float(np.finfo(np.float64).eps) / 2
    rows_of_block = sparse.BLOCK_ROWS if spec.sparse else dense.BLOCK_ROWS
    affected = min(rows_of_block, spec.n_rows)
    blocks = spec.n_rows // min(dense.RUN_ROWS, sparse.BLOCK_ROWS) + 1
    within = 2.0 * affected * unit * affected
    across = (unit + (2.0 * blocks * unit) ** 2) * spec.n_rows
    return 2.0 * (within + across + unit) * bound * (1.0 + 4.0 * unit)


def choose_least_loss(
    oracle: Oracle, candidates: Sequence[NDArray[np.float64]], bound: float, epsilon: float
) -> int:
    """Choose the candidate with the least clipped loss, all clipped at the same bound.

    Parameters
    ----------
    oracle : Oracle
        Answers for the rows; their number is public.
    candidates : sequence of ndarray, each of shape ``rows.spec.coefficient_shape``
        Public parameters, at least one.
    bound : float
        Larger losses count as this; above 0.
    epsilon : float
        What the choice costs.

    Returns
    -------
    int
        Position of the choice. The losses stay private, that of the chosen candidate included.

    Notes
    -----
    Privacy: ``Pure(epsilon)``, by permute-and-flip. It only sees differences of scores, so
    what matters is the length of an interval that contains the moves of all scores, and half
    of that counts as the sensitivity (``dpglm.privacy.choices``). A row contributes between 0
    and the bound: erasing it moves all scores down by at most the bound, so half the bound is
    the sensitivity; replacing it moves scores up or down by at most the bound, which is twice
    half the bound, as ``Adjacency.sum_sensitivity`` has it.
    """
    spec = oracle.rows.spec
    largest = bound * spec.weight_bound
    sums = clipped_loss_sums(
        oracle.rows, oracle.loss, candidates, [bound] * len(candidates), oracle.map_blocks
    )
    return oracle.curator.choose_least(sums, 0.5 * largest + loss_rounding(spec, largest), epsilon)


def choose_least_generalized(
    oracle: Oracle,
    candidates: Sequence[NDArray[np.float64]],
    bounds: Sequence[float],
    public_loss: float,
    epsilon: float,
    failure: float,
) -> int:
    """Choose the candidate with the least clipped loss, each clipped at its own bound.

    Parameters
    ----------
    oracle : Oracle
        Answers for the rows; their number is public.
    candidates : sequence of ndarray, each of shape ``rows.spec.coefficient_shape``
        Public parameters, at least one.
    bounds : sequence of float
        For each candidate the value, above 0, as which larger losses count.
    public_loss : float
        A public bound on the mean loss of one candidate more, whose score has no sensitivity.
    epsilon : float
        What the choice costs.
    failure : float
        Probability with which the choice may miss its accuracy, in (0, 1).

    Returns
    -------
    int
        0 for the candidate with the public loss, 1 for ``candidates[0]``, and so on. The
        losses stay private, that of the chosen candidate included.

    Notes
    -----
    Privacy: ``BoundedRange(epsilon)``, by the generalised exponential mechanism. Erasing a row
    moves the score of candidate j by at most ``bounds[j]`` times the weight bound.
    """
    spec = oracle.rows.spec
    sums = clipped_loss_sums(oracle.rows, oracle.loss, candidates, bounds, oracle.map_blocks)
    scores = np.concatenate([[spec.n_rows * spec.weight_bound * public_loss], sums])
    largest = [bound * spec.weight_bound for bound in bounds]
    moves = np.array([0.0, *(bound + loss_rounding(spec, bound) for bound in largest)])
    return oracle.curator.choose_generalized(scores, moves, epsilon, failure)
