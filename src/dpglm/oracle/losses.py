"""Bounded sums of rows' losses, and of their differences between two parameters, released."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import like, namespace
from dpglm.data.memory import dense, sparse
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, Kernel, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.differences import products_of, sum_of
from dpglm.oracle.gradients import Oracle, RowSum
from dpglm.oracle.moments import (
    LinearView,
    float_weights,
    n_symmetric,
    pack_symmetric,
    residuals_of,
    row_by_row_product,
    unpack_symmetric,
    weighted_coordinates,
)
from dpglm.oracle.rounding import UNIT, least_product, norm_margin
from dpglm.oracle.scores import limits_of, noisy_limits
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Release, SumMechanism, SumRelease


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
    rows_of_block = sparse.BLOCK_ROWS if spec.sparse else dense.BLOCK_ROWS
    affected = min(rows_of_block, spec.n_rows)
    blocks = spec.n_rows // min(dense.RUN_ROWS, sparse.BLOCK_ROWS) + 1
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
    oracle: Oracle, declared: SumRelease, w: NDArray[np.float64], loss: RowLoss, bound: float
) -> float:
    """Release the sum over rows of the clipped loss less half its bound; lower is better.

    The loss must be at least 0, and the number of rows public.
    """

    def block_sum(block: Block) -> NDArray[np.float64]:
        centred = _clipped(_losses(loss, block, w), 0.0, bound) - 0.5 * bound
        return np.array([_weighted_sum(centred, block)])

    half = 0.5 * bound * oracle.rows.spec.weight_bound
    return float(oracle.noisy_sum(declared, oracle.over_blocks(block_sum, 1), half)[0])


def clipped_loss_difference_sum(
    rows: Rows,
    loss: RowLoss,
    bound: float,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    map_blocks: BlockMap = SERIAL,
) -> NDArray[np.float64]:
    """Sum over rows of the loss at ``w`` minus that at ``anchor``, clipped; shape (1,). Private.

    Privacy: each row contributes at most ``bound * spec.weight_bound`` in absolute value, whatever
    its values and whatever ``w`` and ``anchor`` are: the clip acts on the computed difference, and
    one that is not a number counts as the bound.
    """

    def block_sum(block: Block) -> NDArray[np.float64]:
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
    oracle: Oracle,
    declared: SumRelease,
    w: NDArray[np.float64],
    anchor: NDArray[np.float64],
    bound: float,
) -> float:
    """Release the sum of clipped loss differences; negative where ``w`` seems better."""

    def kernel(rows: Rows) -> NDArray[np.float64]:
        return clipped_loss_difference_sum(rows, oracle.loss, bound, w, anchor, oracle.map_blocks)

    return float(oracle.noisy_sum(declared, kernel, bound * oracle.rows.spec.weight_bound)[0])


def _losses(loss: RowLoss, block: Block, w: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return loss.value(block.predict(w), block.targets).astype(np.float64, copy=False)


def _clipped(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Clip values; NaN, with which a comparison is false, counts as the upper bound."""
    return np.where(values <= high, np.maximum(values, low), high)


def _weighted_sum(values: NDArray[np.float64], block: Block) -> Any:
    return (values if block.weights is None else values * block.weights).sum()


# Bounded sums of curvature, scores and their second moments, for one step and its covariance.

# Scores that are shorter, in units of their bound, might make squares underflow.
_SHORTEST = 1e-140


@final
@dataclass(frozen=True)
class ScoreShares:
    """How one release is divided; the shares sum to at most 1.

    Without a share for ``products`` the second moments of scores are not released.
    """

    matrix: float
    vector: float
    squares: float
    products: float = 0.0

    @property
    def opposition(self) -> float:
        """Bound on how far two rows' contributions oppose each other, see ``sum_release``.

        Privacy: with ``t = <h, h'>``, in [-1, 1], the inner product of two contributions of weight
        1 is at least ``vector t + (squares + products) t^2``, as ``|h|^2 |h'|^2 >= t^2``.
        """
        return least_product(self.vector, self.squares + self.products)


@final
@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Released sums of f z z^T, of scores h, of h h^T and of |h|^2, with the noise in them.

    h is f r z, r the residual, clipped to ``reach sqrt(longest)`` of the view by its own norm. For
    rows in groups, second moments are those of the groups' sums of h.
    """

    matrix: NDArray[np.float64]
    matrix_noise: float  # On the diagonal; 1 / sqrt(2) of it elsewhere.
    vector: NDArray[np.float64]
    vector_noise: float
    squares: float
    squares_noise: float
    products: NDArray[np.float64] | None
    products_noise: float

    def bounded(self, largest: float) -> ScoreSums:
        """Return them with no number beyond ``largest``, so that products do not overflow."""

        def within(value: float) -> float:
            return min(max(value, -largest), largest)

        return ScoreSums(
            np.clip(self.matrix, -largest, largest),
            within(self.matrix_noise),
            np.clip(self.vector, -largest, largest),
            within(self.vector_noise),
            within(self.squares),
            within(self.squares_noise),
            None if self.products is None else np.clip(self.products, -largest, largest),
            within(self.products_noise),
        )


def score_sums(spec: DataSpec, view: LinearView, shares: ScoreShares, row_by_row: bool) -> Kernel:
    """Return the kernel that sums what ``ScoreSums`` holds, each part in units of its bound.

    Privacy: with ``L = cap + level^2``, f and ``f |z|^2 / L`` are at most 1, and h is clipped to
    the length 1, in units of its bound, with a margin for the error of its computed length. So
    ``f z z^T / L``, h, ``|h|^2`` and ``h h^T`` are no longer than 1, whatever the view is; with the
    square roots of their shares as factors a row contributes at most ``spec.weight_bound``. Weights
    enter once; in ``h h^T`` twice, over their bound. Scores of a group are added up before they are
    multiplied, and divided by their bound: the whole contribution of a group is clipped to the
    declared bound.
    """
    size = view.vectors.shape[1]
    scale = 1.0 / math.sqrt(view.longest)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        weights = float_weights(block)
        q = f * residuals_of(block, spec, view, z) / view.reach
        z = scale * z
        lengths = xp.sqrt(xp.sum(z * z, axis=1))
        most = norm_margin(size) / xp.clip(lengths, _SHORTEST, math.inf)
        q = xp.clip(q, -most, most)
        vector = sum_of(block, q * weights, z)
        squares = sum_of(block, weights * (q * lengths) ** 2, xp.ones_like(z[:, :1]))
        parts = [
            math.sqrt(shares.matrix) * pack_symmetric(products_of(block, f * weights, z)),
            math.sqrt(shares.vector) * vector,
            math.sqrt(shares.squares) * squares,
        ]
        if shares.products > 0.0:
            if spec.groups is None:
                own = products_of(block, q * q * weights * weights / spec.weight_bound, z)
            else:
                own = vector[..., :, None] * vector[..., None, :] / spec.unit_weight
            parts.append(math.sqrt(shares.products) * pack_symmetric(own))
        return cast("NDArray[np.float64]", xp.concat(parts, axis=-1))

    return AnyArrays(block_sum, apart=True)


def noisy_limits_of_view(
    oracle: Oracle, declared: SumRelease, view: LinearView, columns: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Release on how many rows the limits of ``noisy_score_sums`` bind; see ``limits_of``."""
    spec, row_by_row = oracle.rows.spec, not oracle.places_are_fixed
    margin = norm_margin(view.vectors.shape[1])

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        lengths = xp.sqrt(xp.sum(z * z, axis=1) / view.longest)
        far = f * xp.abs(residuals_of(block, spec, view, z)) * lengths > view.reach
        product = row_by_row_product if row_by_row else operator.matmul
        met = limits_of(f / margin, product(z, like(z, columns)), far)
        total: NDArray[np.float64] = sum_of(block, xp.ones_like(f) * float_weights(block), met)
        return total

    return noisy_limits(oracle, declared, block_sum)


def score_moment_sum(data: DataSpec, shares: ScoreShares) -> RowSum:
    """Sum of ``score_sums``."""
    of_scores = "second moments" if shares.products > 0.0 else "squared lengths"
    size, n_matrices = data.n_columns, 1 + (shares.products > 0.0)
    return RowSum(
        f"second moments, and scores with their {of_scores}",
        n_matrices * n_symmetric(size) + size + 1,
        opposition=shares.opposition,
    )


def noisy_score_sums(
    oracle: Oracle, declared: SumRelease, view: LinearView, shares: ScoreShares
) -> ScoreSums:
    """Release curvature, scores and their second moments, in their own units.

    Matrices are symmetric and may have negative eigenvalues.
    """
    spec = oracle.rows.spec
    size = view.vectors.shape[1]
    n_matrix = n_symmetric(size)
    kernel = score_sums(spec, view, shares, not oracle.places_are_fixed)
    values = score_moment_sum(spec, shares).noisy(oracle, declared, kernel)
    length = view.reach * math.sqrt(view.longest)
    in_matrix = view.longest / math.sqrt(shares.matrix)
    in_vector = length / math.sqrt(shares.vector)
    in_squares = length**2 / math.sqrt(shares.squares)
    products, in_products = None, 0.0
    if shares.products > 0.0:
        in_products = length**2 * spec.unit_weight / math.sqrt(shares.products)
        products = in_products * unpack_symmetric(values[-n_matrix:], size)
    noise = declared.noise_std
    return ScoreSums(
        in_matrix * unpack_symmetric(values[:n_matrix], size),
        in_matrix * noise,
        in_vector * values[n_matrix : n_matrix + size],
        in_vector * noise,
        in_squares * float(values[n_matrix + size]),
        in_squares * noise,
        products,
        in_products * noise,
    )
