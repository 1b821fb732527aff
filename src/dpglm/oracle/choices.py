"""Private choice of the signed coordinate of steepest descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, finite, namespace, weighted
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.prepare import row_lengths
from dpglm.data.rows import LARGEST, SMALLEST, AnyArrays, Block, DataSpec, Kernel, map_blocks
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.counts import centered_rows, counted
from dpglm.oracle.gradients import (
    Oracle,
    RowLoss,
    clipped_gradient_sum,
    clipped_loss_sums,
    loss_rounding,
)
from dpglm.oracle.rounding import UNIT, sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.releases import Bounded, Curator, Release, ScoreRelease
from dpglm.privacy.selection import choices


def entry_bound(data: DataSpec) -> float:
    """Bound to which entries of rows are clipped, the intercept column excepted."""
    return min(data.entry_bound, data.row_norm)


def largest_entry(data: DataSpec) -> float:
    """Bound on the entries of clipped rows in any column, the intercept's included."""
    return max(entry_bound(data), data.intercept)


def coordinate_release(
    data: DataSpec,
    adjacency: Adjacency,
    slope_clip: float,
    offset_bound: float,
    epsilon: float,
    count: int = 1,
) -> ScoreRelease:
    """Declare choices of a signed coordinate by the entries of a shifted gradient sum.

    Slopes are clipped to ``slope_clip``, entries of the public shift to ``offset_bound``.

    Privacy: ``BoundedRange(epsilon)``. Slopes and entries are clipped, so a row contributes at
    most ``slope_clip * largest_entry * weight_bound`` to any score, whatever its values and
    whatever the parameter is; a slope that overflowed counts as zero. An entry of the sum adds up
    one number for each row, none larger than that bound, so ``sum_rounding`` for vectors of one
    coordinate bounds its error. Adding the offset rounds once more for either of two neighbours,
    by half a unit in the last place of a number no larger than ``sum_magnitude + offset_bound``.
    """
    exact = slope_clip * largest_entry(data) * data.weight_bound
    magnitude = sum_magnitude(data, adjacency, exact)
    added = 4.0 * UNIT * (magnitude + offset_bound)
    return Release(
        "vertex of the L1 ball",
        choices.ExponentialMechanism(epsilon),
        adjacency,
        exact,
        count=count,
        rounding=sum_rounding(data, adjacency, exact) + added,
        magnitude=magnitude,
    )


def choose_coordinate(
    oracle: Oracle,
    declared: ScoreRelease,
    w: Array,
    slope_clip: float,
    offset: Array,
    offset_bound: float,
) -> tuple[int, float]:
    """Choose the coordinate and sign of steepest descent by the exponential mechanism.

    The oracle's rows must have been through ``clip_entries(entry_bound(spec))``. ``w`` and
    ``offset``, such as a penalty's gradient, are public. Returned are the position in the
    flattened parameter and the sign, 1.0 or -1.0, of the direction in which the loss falls.
    """
    loss, spec = oracle.loss, oracle.rows.spec

    def block_sum(block: Block) -> Array:
        # Overflow is harmless: its slope is zeroed here.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            slopes = finite(loss.slope(block.predict(w), block.targets))
            namespace(slopes).clip(slopes, -slope_clip, slope_clip, out=slopes)
            slopes = weighted(slopes, block.weights)
            return block.weighted_sum(slopes)

    shift = np.clip(offset, -offset_bound, offset_bound)
    gradient = (oracle.rows.sum(AnyArrays(block_sum)) + shift).ravel()
    # Moving along e_j changes the loss by gradient_j, along -e_j by its negative.
    scores = np.concatenate([gradient, -gradient])
    bound = slope_clip * largest_entry(spec) * spec.weight_bound
    chosen = oracle.curator.release(declared, Bounded(scores, bound))
    return chosen % len(gradient), 1.0 if chosen < len(gradient) else -1.0


# Private choice of the parameter with the shortest mean clipped gradient.


def norm_rounding(spec: DataSpec, adjacency: Adjacency, bound: float) -> float:
    """Bound the rounding error in the distance of two neighbours' norms.

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
        choices.PermuteAndFlip(epsilon),
        adjacency,
        bound,
        rounding=norm_rounding(spec, adjacency, bound),
        magnitude=sum_magnitude(spec, adjacency, bound),
    )


def choose_shortest_gradient(
    oracle: Oracle,
    declared: ScoreRelease,
    candidates: Sequence[Array],
    shifts: Sequence[Array],
    clipping: Clipping,
) -> int:
    """Choose the candidate with the shortest shifted and clipped gradient sum.

    Candidates and shifts (n times a penalty's gradient at each) are public. Returned is the
    position; all norms stay private, the chosen candidate's included.
    """
    bound = clipping.bound * oracle.rows.spec.weight_bound
    largest = declared.magnitude
    scores = np.empty(len(candidates))
    for j, (w, shift) in enumerate(zip(candidates, shifts, strict=True)):
        total = clipped_gradient_sum(oracle.rows, oracle.loss, clipping, w)
        # A shift that overflowed is public, and counts as the largest score.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            scores[j] = np.fmin(np.linalg.norm((total + shift).ravel()), largest)
    return oracle.curator.release(declared, Bounded(scores, bound))


# Private choices of the parameter with the least sum of clipped losses.

GeneralizedRelease: TypeAlias = Release[choices.BoundedScores, int]
"""A choice of a candidate with a small score, each score with its own bound."""


def least_loss_release(
    spec: DataSpec, adjacency: Adjacency, bound: float, epsilon: float
) -> ScoreRelease:
    """Declare the choice that ``choose_least_loss`` makes; the number of rows is public.

    Privacy: ``Pure(epsilon)``, by permute-and-flip. It uses differences of scores only, so the
    sensitivity is half the length of an interval that contains the moves of all scores
    (``dpglm.privacy.selection.choices``). A row contributes
    between 0 and the bound: erasing it moves all scores down by at most the bound, so half the
    bound is the sensitivity; replacing it moves scores up or down by at most the bound, which is
    twice half the bound, as ``Adjacency.sum_sensitivity`` has it.
    """
    largest = bound * spec.weight_bound
    return Release(
        "least clipped loss",
        choices.PermuteAndFlip(epsilon),
        adjacency,
        0.5 * largest,
        rounding=loss_rounding(spec, largest),
    )


def choose_least_loss(
    oracle: Oracle,
    declared: ScoreRelease,
    candidates: Sequence[Array],
    bound: float,
    loss: RowLoss | None = None,
) -> int:
    """Choose the public candidate with the least sum of losses, all clipped at one bound.

    The loss must be at least 0, and the number of rows public; ``loss`` defaults to the oracle's
    own. Returned is the position; all losses stay private, the chosen candidate's included.
    """
    sums = clipped_loss_sums(
        oracle.rows,
        oracle.loss.value if loss is None else loss,
        candidates,
        [bound] * len(candidates),
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
        choices.GeneralizedExponentialMechanism(epsilon, failure),
        adjacency,
        largest,
        rounding=loss_rounding(spec, largest),
        diameter=1.0,
    )


def choose_least_generalized(
    oracle: Oracle,
    declared: GeneralizedRelease,
    candidates: Sequence[Array],
    bounds: Sequence[float],
    public_loss: float,
    penalties: Sequence[float],
) -> int:
    """Choose the candidate with the least sum of losses, each clipped at its own bound.

    The sensitivity of candidate 0 is zero: its score is ``public_loss``, a public bound on its mean
    loss. Position j is ``candidates[j - 1]``; a public penalty is added to its mean loss. The
    number of rows is public; all losses stay private, the chosen candidate's included.

    Privacy: adding a penalty rounds a sum of at most n bounds once more, for either of two
    neighbours.
    """
    spec = oracle.rows.spec
    most = spec.n_rows * spec.weight_bound
    sums = clipped_loss_sums(oracle.rows, oracle.loss.value, candidates, bounds)
    scores = np.concatenate([[most * public_loss], sums + most * np.array(penalties)])
    moves = [0.0]
    for bound, penalty in zip(bounds, penalties, strict=True):
        added = 4.0 * UNIT * most * (bound + penalty) if penalty else 0.0
        largest = bound * spec.weight_bound
        moves.append(largest + loss_rounding(spec, largest) + added)
    largest = max(bounds) * spec.weight_bound
    return oracle.curator.release(declared, Bounded((scores, np.array(moves)), largest))


# Private quantiles of rows: medians along directions, and radii around a point.

RankRelease: TypeAlias = Release[choices.Runs, int]
"""A choice of a candidate by ranks."""
CountRelease: TypeAlias = Release[NDArray[np.int64], int]
"""A choice of where growing counts reach a threshold."""
CELLS = 4096
_LEAST = 1e-12
_FINE_CELLS = 2**40
# So many directions at a time keep memory low.
_DIRECTIONS = 64
UNBOUNDED_RADII: Array = np.geomspace(SMALLEST, 2.0 * LARGEST, 3573)
"""From the least to the greatest distance that rows may have, in steps of 2 %."""
UNBOUNDED_RADII.flags.writeable = False


def radii(largest: float) -> Array:
    """Return the 4096 radii of ``noisy_radius``, 0.7 % apart, from 1e-12 of the largest up."""
    return np.asarray(np.geomspace(_LEAST * largest, largest, CELLS))


def rank_release(
    quantity: str, adjacency: Adjacency, epsilon: float, count: int = 1
) -> RankRelease:
    """Declare choices by the number of rows up to a candidate.

    Privacy: ``BoundedRange(epsilon)`` each. Adding, erasing or replacing a row moves either end
    of the interval of ranks by at most 1, so every score by at most 1. Scores are whole numbers:
    nothing is rounded.
    """
    mechanism = choices.ExponentialMechanismOverRuns(epsilon)
    return Release(quantity, mechanism, adjacency, 1.0, count=count, diameter=1.0)


def choose_quantile(
    curator: Curator, declared: RankRelease, cells: NDArray[np.int64], n_cells: int, rank: int
) -> int:
    """Choose the cell in which the row of the given public rank lies, up to noise.

    ``cells`` holds the (private) cell of each row, from 0 to ``n_cells - 1``, with ``n_cells`` at
    most 2^52. The score of cell k is the distance of the rank from the interval that begins with
    the number of rows in cells before k and ends with that in cells up to k, so a cell that holds
    many rows covers many ranks. Empty cells between two occupied ones are one run. Smith,
    "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011,
    Algorithm 2.

    Privacy: ``declared.event``; each cell must be computed from its own row alone.
    """
    taken, counts = np.unique(cells, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    edges = np.concatenate([[-1], taken, [n_cells]])
    # One run before each taken cell and after the last, and one for each taken cell.
    lengths = np.ones(2 * taken.size + 1, np.int64)
    lengths[::2] = np.diff(edges) - 1
    scores = np.zeros(lengths.size)
    scores[::2] = np.abs(below - rank)
    scores[1::2] = np.maximum(np.maximum(below[:-1] - rank, rank - below[1:]), 0)
    kept = lengths > 0
    return curator.release(declared, Bounded((scores[kept], lengths[kept]), 1.0))


def noisy_radius(
    oracle: Oracle, declared: RankRelease, center: Array, largest: float, quantile: float
) -> float:
    """Release the radius of ``radii(largest)`` within which a given share of the rows lies.

    Center and ``largest`` are public; longer distances count as ``largest``. Except with
    probability p, the number of rows within the radius is off by at most ``2 log(4096 / p) /
    epsilon``.

    Privacy: ``declared.event``; a distance is computed from its own row alone.
    """
    public = radii(largest)
    cells = np.searchsorted(public[:-1], distances(oracle, center), side="left")
    rank = round(quantile * oracle.rows.spec.n_rows)
    chosen = choose_quantile(oracle.curator, declared, cells.astype(np.int64), CELLS, rank)
    return float(public[chosen])


def unbounded_radius_release(
    data: DataSpec, adjacency: Adjacency, quantile: float, epsilon: float
) -> CountRelease:
    """Declare the choice of a radius within which a given share of the rows lies.

    Privacy: ``Pure(epsilon)``; a distance is computed from its own row alone, and counts within a
    radius grow with the radius.
    """
    threshold = round(quantile * data.n_rows)
    return Release(
        "unbounded radius of rows", choices.AboveThreshold(epsilon, threshold), adjacency, 1.0
    )


def noisy_unbounded_radius(oracle: Oracle, declared: CountRelease, center: Array) -> float:
    """Release the first of ``UNBOUNDED_RADII`` within which, up to noise, enough rows lie.

    Except with probability p, the number of rows within the radius is at least the share less ``2
    log(3573 / p) / epsilon``, and at the radius before it exceeds the share by no more than that,
    under zero-out (Durfee, "Unbounded differentially private quantile and maximum estimation",
    NeurIPS 2023).
    """
    ordered = np.sort(distances(oracle, center))
    counts = np.searchsorted(ordered, UNBOUNDED_RADII, side="right").astype(np.int64)
    chosen = oracle.curator.release(declared, Bounded(counts, 1.0))
    return float(UNBOUNDED_RADII[chosen])


def distances(oracle: Oracle, center: Array) -> Array:
    """Distances of the rows, without the intercept column, from a public point. Private."""

    def block_distances(block: Block) -> Array:
        return row_lengths(centered_rows(block, center))

    return _by_row(oracle, block_distances, ())


def noisy_medians(oracle: Oracle, declared: RankRelease, basis: Array) -> Array:
    """Release the median of the rows along each of some public directions of length 1.

    ``basis`` has shape (n_features, directions). Medians are multiples of ``2^-39`` of the row
    norm.

    Privacy: ``declared.event`` (``rank_release``) for each direction. Positions are within a row
    norm of zero and computed from each row alone: where one row more shifts others, without matrix
    products; their last bits could depend on a row's place.
    """
    spec, curator = oracle.rows.spec, oracle.curator
    width = 2.0 * spec.row_norm / _FINE_CELLS
    rank = round(0.5 * spec.n_rows)
    chosen = [
        choose_quantile(curator, declared, cells, _FINE_CELLS, rank)
        for first in range(0, basis.shape[1], _DIRECTIONS)
        for cells in cells_along(oracle, basis[:, first : first + _DIRECTIONS], width)
    ]
    return (np.array(chosen) + 0.5) * width - spec.row_norm


def cells_along(oracle: Oracle, basis: Array, width: float) -> NDArray[np.int64]:
    """Cell of each row's position along each direction, of shape (directions, rows). Private.

    Cells of the given width divide ``[-row_norm, row_norm]``.
    """
    row_norm = oracle.rows.spec.row_norm
    row_by_row = not oracle.places_are_fixed

    def block_cells(block: Block) -> Array:
        X = block.features().astype(np.float64)
        along = row_by_row_product(X, basis) if row_by_row else X @ basis
        return np.clip(np.floor((along + row_norm) / width), 0.0, _FINE_CELLS - 1.0).T

    return _by_row(oracle, block_cells, basis.shape[1:]).astype(np.int64)


def _by_row(oracle: Oracle, function: Kernel, shape: tuple[int, ...]) -> Array:
    """Return a function's values, rows last, for all rows but erased ones. Private."""

    def of_counted(block: Block) -> Array:
        return function(block)[..., counted(block) > 0.0]

    parts = list(map_blocks(of_counted, oracle.rows.blocks()))
    oracle.rows.watch.check()
    return np.concatenate([np.empty((*shape, 0)), *parts], axis=-1)
