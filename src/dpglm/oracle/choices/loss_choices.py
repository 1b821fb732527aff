"""Clipped losses summed over the rows: the least of them, or one with noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.data.memory import dense, sparse
from dpglm.data.rows import SERIAL, Block, BlockMap, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import UNIT
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Bounded, Release, ScoreRelease, SumMechanism, SumRelease
from dpglm.privacy.selection.mechanisms import (
    BoundedScores,
    GeneralizedExponentialMechanism,
    PermuteAndFlip,
)

__all__ = [
    "GeneralizedRelease",
    "RowLoss",
    "choose_least_generalized",
    "choose_least_loss",
    "clipped_loss_sums",
    "generalized_choice_release",
    "least_loss_release",
    "loss_rounding",
    "noisy_loss",
    "noisy_loss_release",
]


_Array = NDArray[np.float64]

GeneralizedRelease: TypeAlias = Release[BoundedScores, int]
"""A choice of a candidate with a small score, each score with its own bound."""


class RowLoss(Protocol):
    """A row's loss as a function of its prediction."""

    def value(self, z: NDArray[Any], y: NDArray[Any], /) -> NDArray[Any]:
        """Return the losses for predictions of shape (n,) or (n, K) and targets."""


def clipped_loss_sums(
    rows: Rows,
    loss: RowLoss,
    candidates: Sequence[NDArray[np.float64]],
    bounds: Sequence[float],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum the rows' losses for each candidate, clipped to [0, bound] for its bound. Private.

    Privacy: each row contributes between 0 and the bound times its weight, whatever its values and
    whatever the candidates are; a loss that overflowed, to infinity or to NaN, counts as the
    bound.
    """

    def block_sums(block: Block) -> NDArray[np.float64]:
        sums = np.empty(len(candidates))
        for j, (w, bound) in enumerate(zip(candidates, bounds, strict=True)):
            sums[j] = _weighted(_clipped(loss, block, w, bound), block).sum()
        return sums

    return rows.sum(block_sums, map_blocks, (len(candidates),))


def _clipped(loss: RowLoss, block: Block, w: NDArray[np.float64], bound: float) -> _Array:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        losses = loss.value(block.predict(w), block.targets).astype(np.float64, copy=False)
    # A comparison with NaN is false.
    return np.where(losses <= bound, np.maximum(losses, 0.0), bound)


def _weighted(values: _Array, block: Block) -> _Array:
    if block.weights is None:
        return values
    return values * block.weights.astype(np.float64, copy=False)


def loss_rounding(spec: DataSpec, bound: float) -> float:
    """Bound on what rounding adds to the distance of two neighbours' sums; n is public.

    ``bound`` is the largest exact contribution of a row, weight included.

    Privacy: clipping is exact and the weight rounds once. Neighbours are cut into the same blocks
    and differ in one of them, of m rows, whose sum in float64 is within ``gamma_m`` times the sum
    of its terms, in any order (Higham 2002, section 4.2). The blocks are added by ``Rows.sum``,
    whose error enters for both.
    """
    rows_of_block = sparse.BLOCK_ROWS if spec.sparse else dense.BLOCK_ROWS
    affected = min(rows_of_block, spec.n_rows)
    blocks = spec.n_rows // min(dense.RUN_ROWS, sparse.BLOCK_ROWS) + 1
    within = 2.0 * affected * UNIT * affected
    across = (UNIT + (2.0 * blocks * UNIT) ** 2) * spec.n_rows
    return 2.0 * (within + across + UNIT) * bound * (1.0 + 4.0 * UNIT)


def least_loss_release(
    spec: DataSpec, adjacency: Adjacency, bound: float, epsilon: float
) -> ScoreRelease:
    """Declare the choice that ``choose_least_loss`` makes; the number of rows is public.

    Privacy: ``Pure(epsilon)``, by permute-and-flip. It only sees differences of scores, so
    what matters is the length of an interval that contains the moves of all scores, and half
    of that counts as the sensitivity (``dpglm.privacy.selection.choices``). A row contributes
    between 0 and the bound: erasing it moves all scores down by at most the bound, so half the
    bound is the sensitivity; replacing it moves scores up or down by at most the bound, which is
    twice half the bound, as ``Adjacency.sum_sensitivity`` has it.
    """
    largest = bound * spec.weight_bound
    return Release(
        "least clipped loss",
        PermuteAndFlip(epsilon),
        adjacency,
        0.5 * largest,
        rounding=loss_rounding(spec, largest),
    )


def choose_least_loss(
    oracle: Oracle,
    declared: ScoreRelease,
    candidates: Sequence[NDArray[np.float64]],
    bound: float,
    loss: RowLoss | None = None,
) -> int:
    """Choose the public candidate with the least sum of losses, all clipped at one bound.

    The loss must be at least 0, and the number of rows public; ``loss`` defaults to the oracle's
    own. Returned is the position; all losses stay private, the chosen candidate's included.
    """
    sums = clipped_loss_sums(
        oracle.rows,
        oracle.loss if loss is None else loss,
        candidates,
        [bound] * len(candidates),
        oracle.map_blocks,
    )
    return oracle.curator.release(
        declared, Bounded(sums, 0.5 * bound * oracle.rows.spec.weight_bound)
    )


def generalized_choice_release(
    spec: DataSpec, adjacency: Adjacency, bounds: Sequence[float], epsilon: float, failure: float
) -> GeneralizedRelease:
    """Declare the choice that ``choose_least_generalized`` makes.

    Privacy: ``BoundedRange(epsilon)``, by the generalised exponential mechanism. Erasing a row
    moves the score of candidate j by at most ``bounds[j]`` times the weight bound.
    """
    largest = max(bounds) * spec.weight_bound
    return Release(
        "least clipped loss for its norm",
        GeneralizedExponentialMechanism(epsilon, failure),
        adjacency,
        largest,
        rounding=loss_rounding(spec, largest),
    )


def choose_least_generalized(
    oracle: Oracle,
    declared: GeneralizedRelease,
    candidates: Sequence[NDArray[np.float64]],
    bounds: Sequence[float],
    public_loss: float,
) -> int:
    """Choose the candidate with the least sum of losses, each clipped at its own bound.

    Candidate 0 has no sensitivity: its score is ``public_loss``, a public bound on its mean loss;
    position j is ``candidates[j - 1]``. The number of rows is public; all losses stay private, the
    chosen candidate's included.
    """
    spec = oracle.rows.spec
    sums = clipped_loss_sums(oracle.rows, oracle.loss, candidates, bounds, oracle.map_blocks)
    scores = np.concatenate([[spec.n_rows * spec.weight_bound * public_loss], sums])
    largest = [bound * spec.weight_bound for bound in bounds]
    moves = np.array([0.0, *(bound + loss_rounding(spec, bound) for bound in largest)])
    return oracle.curator.release(declared, Bounded(BoundedScores(scores, moves), max(largest)))


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
    oracle: Oracle, declared: SumRelease, w: NDArray[np.float64], loss: RowLoss, bound: float
) -> float:
    """Release the sum over rows of the clipped loss less half its bound; lower is better.

    The loss must be at least 0, and the number of rows public.
    """

    def block_sum(block: Block) -> _Array:
        centred = _clipped(loss, block, w, bound) - 0.5 * bound
        return np.array([_weighted(centred, block).sum()])

    half = 0.5 * bound * oracle.rows.spec.weight_bound
    return float(oracle.noisy_sum(declared, oracle.over_blocks(block_sum, 1), half)[0])
