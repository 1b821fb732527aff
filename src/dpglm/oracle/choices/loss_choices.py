"""Private choices of the parameter with the least sum of clipped losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import UNIT
from dpglm.oracle.row_sums.losses import RowLoss, clipped_loss_sums, loss_rounding
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Bounded, Release, ScoreRelease
from dpglm.privacy.selection.mechanisms import (
    BoundedScores,
    GeneralizedExponentialMechanism,
    PermuteAndFlip,
)

__all__ = [
    "GeneralizedRelease",
    "choose_least_generalized",
    "choose_least_loss",
    "generalized_choice_release",
    "least_loss_release",
]


GeneralizedRelease: TypeAlias = Release[BoundedScores, int]
"""A choice of a candidate with a small score, each score with its own bound."""


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

    Privacy: ``BoundedRange(epsilon)``, by the generalised exponential mechanism. A row contributes
    between 0 and ``bounds[j]`` times the weight bound to the score of candidate j, so that erasing
    or replacing it moves the score by at most that. ``loss_rounding`` is that of both sums.
    """
    largest = max(bounds) * spec.weight_bound
    return Release(
        "least clipped loss for its norm",
        GeneralizedExponentialMechanism(epsilon, failure),
        adjacency,
        largest,
        rounding=loss_rounding(spec, largest),
        diameter=1.0,
    )


def choose_least_generalized(
    oracle: Oracle,
    declared: GeneralizedRelease,
    candidates: Sequence[NDArray[np.float64]],
    bounds: Sequence[float],
    public_loss: float,
    penalties: Sequence[float],
) -> int:
    """Choose the candidate with the least sum of losses, each clipped at its own bound.

    Candidate 0 has no sensitivity: its score is ``public_loss``, a public bound on its mean loss;
    position j is ``candidates[j - 1]``, whose mean loss counts with a public penalty. The number of
    rows is public; all losses stay private, the chosen candidate's included.

    Privacy: adding a penalty rounds a sum of at most n bounds once more, for either of two
    neighbours.
    """
    spec = oracle.rows.spec
    most = spec.n_rows * spec.weight_bound
    sums = clipped_loss_sums(oracle.rows, oracle.loss, candidates, bounds, oracle.map_blocks)
    scores = np.concatenate([[most * public_loss], sums + most * np.array(penalties)])
    moves = [0.0]
    for bound, penalty in zip(bounds, penalties, strict=True):
        added = 4.0 * UNIT * most * (bound + penalty) if penalty else 0.0
        largest = bound * spec.weight_bound
        moves.append(largest + loss_rounding(spec, largest) + added)
    largest = max(bounds) * spec.weight_bound
    return oracle.curator.release(
        declared, Bounded(BoundedScores(scores, np.array(moves)), largest)
    )
