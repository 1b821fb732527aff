"""Bounded sums of weighted second moments, scores and squared residuals of linear predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import like, namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import least_product, norm_margin, sum_release
from dpglm.oracle.row_sums.moments import (
    float_weights,
    n_symmetric,
    pack_symmetric,
    rows_in_basis,
    unpack_symmetric,
)
from dpglm.oracle.unit_sums import products_of, sum_of
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = [
    "MomentShares",
    "MomentSums",
    "View",
    "coordinates_of",
    "noisy_weighted_moments",
    "residuals_of",
    "weighted_coordinates",
    "weighted_moment_release",
    "weighted_moments",
]

# Of rows that are shorter, in units of their bound, squares might underflow.
_SHORTEST = 1e-140

MatrixKind: TypeAlias = Literal["none", "hessian"]
"""Which matrix is released: none, or that of f z z^T.

Without a matrix scores are clipped by their own length, not weighted by that of their rows."""


@final
@dataclass(frozen=True)
class MomentShares:
    """How one release is divided into matrix, vector and squares; the shares sum to at most 1."""

    matrix: float
    vector: float
    squares: float
    kind: MatrixKind = "hessian"

    @property
    def opposition(self) -> float:
        """Bound on how far two rows' contributions oppose each other, see ``sum_release``.

        Privacy: with ``a = sqrt(f) z / sqrt(L)``, ``t = <a, a'>`` and ``r = u u'``, both in
        [-1, 1], the inner product of two contributions of weight 1 is ``matrix t^2 + vector g t r +
        squares r^2``, where ``g = sqrt(f f')`` is at most 1. As a function of ``(|t|, |r|)`` it is
        homogeneous, so if it is negative anywhere it has its least value where one of them is 1.
        Without a matrix the vector's part is at least ``-vector``.
        """
        if self.kind == "none":
            return self.vector
        least = least_product(self.vector, self.matrix) - self.squares
        other = least_product(self.vector, self.squares) - self.matrix
        return max(0.0, least, other)


@final
@dataclass(frozen=True, eq=False)
class View:
    """How rows are looked at, all of it public: coordinates, bounds, and a prediction.

    With ``z = vectors^T x`` (the last coordinate is ``level``, unless that is 0), a row's weight is
    ``f = min(1, cap / |z'|^2)``, z' without the level, and its residual u is the target minus
    ``center`` and ``<z, v>``, clipped to ``reach`` and divided by it. Scores r z that are clipped
    by their own length are so to ``reach sqrt(longest)``.
    """

    vectors: NDArray[np.float64]
    cap: float
    level: float
    center: float
    v: NDArray[np.float64]
    reach: float

    @property
    def longest(self) -> float:
        """Bound on ``f |z|^2``."""
        return self.cap + self.level**2


@final
@dataclass(frozen=True, eq=False)
class MomentSums:
    """Released sums of f z z^T, f r z and r^2, r the clipped residual.

    Without a matrix, of clipped r z, r the residual, in place of f r z. Of several classes,
    f c z^T for the class's code c, without r^2.
    """

    matrix: NDArray[np.float64]
    matrix_noise: float  # On the diagonal; 1 / sqrt(2) of it elsewhere.
    vector: NDArray[np.float64]
    vector_noise: float
    squares: float
    squares_noise: float

    def bounded(self, largest: float) -> MomentSums:
        """Return them with no number beyond ``largest``, so that products do not overflow."""
        return MomentSums(
            np.clip(self.matrix, -largest, largest),
            min(self.matrix_noise, largest),
            np.clip(self.vector, -largest, largest),
            min(self.vector_noise, largest),
            min(max(self.squares, -largest), largest),
            min(self.squares_noise, largest),
        )


def weighted_coordinates(
    block: Block, spec: DataSpec, view: View, row_by_row: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates z of a block's rows, and their weights f. Private.

    Privacy: ``f |z'|^2 <= cap`` and ``f <= 1``, with a margin for the error of the computed norm.
    """
    z, squares = coordinates_of(block, spec, view, row_by_row)
    weights = norm_margin(z.shape[1]) * view.cap / namespace(z).clip(squares, view.cap, math.inf)
    return z, weights


def coordinates_of(
    block: Block, spec: DataSpec, view: View, row_by_row: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates z of a block's rows, and ``|z'|^2``. Private."""
    z = rows_in_basis(block, spec, view.vectors, row_by_row)
    xp, size = namespace(z), view.vectors.shape[1]
    if view.level > 0.0:
        z[:, -1] = view.level
    columns = size - (view.level > 0.0)
    return z, xp.sum(z[:, :columns] * z[:, :columns], axis=1)


def residuals_of(
    block: Block, spec: DataSpec, view: View, z: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return targets, clipped to their bounds, less center and prediction. Private."""
    xp = namespace(z)
    targets = xp.asarray(block.targets, dtype=xp.float64)
    targets = xp.clip(targets, spec.target_low, spec.target_high)
    predictions = xp.sum(z * like(z, view.v), axis=1)
    return cast("NDArray[np.float64]", targets - view.center - predictions)


def weighted_moments(spec: DataSpec, view: View, shares: MomentShares, row_by_row: bool) -> Kernel:
    """Return the kernel that sums what ``MomentSums`` holds, each part in units of its bound.

    Privacy: with ``L = cap + level^2``, ``f |z|^2 <= L`` and f and ``|u|`` are at most 1, so
    ``f z z^T / L``, ``f u z / sqrt(L)`` and ``u^2`` are no longer than 1, for every row and
    whatever the view is. Without a matrix the score is ``q z / sqrt(L)``, q the residual over
    ``reach``, clipped to ``|q| <= sqrt(L) / |z|``: no longer than 1 either. With the square roots
    of their shares as factors a row contributes at most ``spec.weight_bound``. f and the bound on q
    have a margin for the error of the computed norm.
    """
    size = view.vectors.shape[1]
    scale = 1.0 / math.sqrt(view.longest)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        q = residuals_of(block, spec, view, z) / view.reach
        u = xp.clip(q, -1.0, 1.0)
        weights = float_weights(block)
        z = scale * z
        parts = []
        if shares.kind == "hessian":
            products = products_of(block, f * weights, xp.concat([z, u[:, None]], axis=1))
            parts.append(math.sqrt(shares.matrix) * pack_symmetric(products[..., :size, :size]))
            vector = products[..., :size, size]
        else:
            lengths = xp.sqrt(xp.sum(z * z, axis=1))
            most = norm_margin(size) / xp.clip(lengths, _SHORTEST, math.inf)
            vector = sum_of(block, xp.clip(q, -most, most) * weights, z)
        parts.append(math.sqrt(shares.vector) * vector)
        squares = sum_of(block, u * weights, u[:, None])
        parts.append(math.sqrt(shares.squares) * squares)
        return cast("NDArray[np.float64]", xp.concat(parts, axis=-1))

    return AnyArrays(block_sum, apart=True)


def weighted_moment_release(
    data: DataSpec,
    adjacency: Adjacency,
    mechanism: SumMechanism,
    shares: MomentShares,
    count: int = 1,
) -> SumRelease:
    """Declare the release that ``noisy_weighted_moments`` makes.

    Privacy: the contribution bound is ``data.weight_bound``, and ``MomentShares.opposition`` bounds
    inner products. Rounding as for ``second_moment_release``.
    """
    size = data.n_columns
    names = {
        "none": "clipped score and squared residuals",
        "hessian": "second moments, score and squared residuals",
    }
    return sum_release(
        names[shares.kind],
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=_n_matrix(shares, size) + size + 1,
        count=count,
        opposition=shares.opposition,
    )


def noisy_weighted_moments(
    oracle: Oracle, declared: SumRelease, view: View, shares: MomentShares
) -> MomentSums:
    """Release weighted second moments, score and squared residuals, in their own units.

    The matrix is symmetric and may have negative eigenvalues; without one it is zero.
    """
    spec = oracle.rows.spec
    size = view.vectors.shape[1]
    row_by_row = not oracle.places_are_fixed
    kernel = weighted_moments(spec, view, shares, row_by_row)
    total = oracle.over_blocks(kernel, declared.coordinates)
    values = oracle.noisy_sum(declared, total, spec.weight_bound)
    n_matrix = _n_matrix(shares, size)
    matrix, in_matrix = np.zeros((size, size)), 0.0
    if n_matrix:
        unit = view.longest / math.sqrt(shares.matrix)
        matrix, in_matrix = unit * unpack_symmetric(values[:n_matrix], size), unit
    in_vector = math.sqrt(view.longest / shares.vector) * view.reach
    in_squares = view.reach**2 / math.sqrt(shares.squares)
    noise = declared.noise_std
    return MomentSums(
        matrix,
        in_matrix * noise,
        in_vector * values[n_matrix : n_matrix + size],
        in_vector * noise,
        in_squares * float(values[-1]),
        in_squares * noise,
    )


def _n_matrix(shares: MomentShares, size: int) -> int:
    return 0 if shares.kind == "none" else n_symmetric(size)
