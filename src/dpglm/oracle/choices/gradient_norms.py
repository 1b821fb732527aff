"""Private choice of the parameter with the shortest mean clipped gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.rounding import UNIT, sum_magnitude, sum_rounding
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Bounded, Release, ScoreRelease
from dpglm.privacy.selection.mechanisms import PermuteAndFlip

__all__ = ["choose_shortest_gradient", "norm_rounding", "shortest_gradient_release"]


def norm_rounding(spec: DataSpec, adjacency: Adjacency, bound: float) -> float:
    """Bound on what rounding adds to the distance of two neighbours' norms.

    It is added to ``bound``, the bound on one row's exact contribution to the gradient sum, before
    the relation's factor multiplies it.

    Privacy: the sums themselves are ``sum_rounding`` further apart. Norms above ``M =
    sum_magnitude`` count as M, and a computed sum is no longer than M; so only where the public
    shift is shorter than 3 M does rounding matter (elsewhere both norms are cut), and the shifted
    sum is then at most 4 M long. Adding the shift changes its norm by a relative ``u`` at most,
    computing the norm of p entries by ``(p + 2) u`` (``u`` the unit roundoff): together less than
    ``4 M (p + 8) u`` for each of two data sets. Squares that underflow change a norm by less than
    ``sqrt(p)`` times 1e-150, which the 8 covers.
    """
    longest = 4.0 * sum_magnitude(spec, adjacency, bound)
    norms = 2.0 * longest * (spec.n_coefficients + 8) * UNIT
    return sum_rounding(spec, adjacency, bound) + norms


def shortest_gradient_release(
    spec: DataSpec, adjacency: Adjacency, clipping: Clipping, epsilon: float
) -> ScoreRelease:
    """Declare the choice that ``choose_shortest_gradient`` makes.

    Privacy: ``Pure(epsilon)``, by permute-and-flip. By the triangle inequality a norm moves
    by no more than its vector, so each score has the sensitivity of the clipped gradient sum,
    ``C`` times the weight bound, whatever the candidate and the shift are.
    """
    bound = clipping.bound * spec.weight_bound
    return Release(
        "shortest clipped gradient sum",
        PermuteAndFlip(epsilon),
        adjacency,
        bound,
        rounding=norm_rounding(spec, adjacency, bound),
        magnitude=sum_magnitude(spec, adjacency, bound),
    )


def choose_shortest_gradient(
    oracle: Oracle,
    declared: ScoreRelease,
    candidates: Sequence[NDArray[np.float64]],
    shifts: Sequence[NDArray[np.float64]],
    clipping: Clipping,
) -> int:
    """Choose the candidate at which the shifted, clipped gradient sum has the least norm.

    Candidates and shifts (n times a penalty's gradient at each) are public. Returned is the
    position; all norms stay private, the chosen candidate's included.
    """
    bound = clipping.bound * oracle.rows.spec.weight_bound
    largest = declared.magnitude
    scores = np.empty(len(candidates))
    for j, (w, shift) in enumerate(zip(candidates, shifts, strict=True)):
        total = clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w, oracle.map_blocks)
        # A shift that overflowed is public, and counts as the largest score.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            scores[j] = np.fmin(np.linalg.norm((total + shift).ravel()), largest)
    return oracle.curator.release(declared, Bounded(scores, bound))
