"""Bounded sums of second moments of rows, and their release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import like, namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec, FloatType
from dpglm.oracle.differences import products_of, sum_of
from dpglm.oracle.gradients import Oracle, RowSum
from dpglm.oracle.rounding import least_product, norm_margin, sum_rounding
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumRelease

MOST_COLUMNS = 1000
"""Second moments of more columns have too many entries for a solver that builds on them."""
MOST_WHITENED = 2100
"""The same for a private whitening map: 18 MB of values."""
_CONSTANT = 1.0 / 3.0
F = TypeVar("F", bound=np.floating[Any])


def n_symmetric(size: int) -> int:
    """Return the number of free entries of a symmetric matrix with ``size`` columns."""
    return size * (size + 1) // 2


def pack_symmetric(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """List the diagonal and ``sqrt(2)`` times the entries above it, of one matrix or several.

    Privacy: the map is an isometry, ``|pack(M)| = |M|_F``. With equal noise in every value, entries
    off the diagonal get ``1 / sqrt(2)`` of the noise on the diagonal, as if all ``size**2`` entries
    had been released and mirror images averaged.
    """
    above = np.triu_indices(matrix.shape[-1])
    factors = np.where(above[0] == above[1], 1.0, math.sqrt(2.0))
    return cast("NDArray[np.float64]", matrix[..., *above] * like(matrix, factors))


def unpack_symmetric(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Undo ``pack_symmetric``; the matrix is exactly symmetric."""
    above = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[above] = values / np.where(above[0] == above[1], 1.0, math.sqrt(2.0))
    return np.triu(matrix, 1).T + matrix


def beside_constant(block: Block, constant: float, dtype: FloatType = "float64") -> Any:
    """Return the features of a block, with a constant column last unless it is zero."""
    features = block.features()
    xp, (n_rows, d) = namespace(features), features.shape
    shape = (n_rows, d + (constant != 0.0))
    rows = xp.empty(shape, dtype=getattr(xp, dtype), device=features.device)
    rows[:, :d] = features
    rows[:, d:] = constant
    return rows


def rows_in_basis(
    block: Block,
    spec: DataSpec,
    basis: NDArray[np.float64],
    row_by_row: bool,
    dtype: FloatType = "float64",
) -> Any:
    """Multiply the rows of a block by a public matrix of ``spec.n_columns`` rows. Private.

    ``row_by_row`` is slower, and needed under ``add_remove``, where one row more shifts all
    others: the last bits of a row's product must not depend on its place.
    """
    rows = beside_constant(block, spec.intercept, dtype)
    there = like(rows, basis, rows.dtype)
    return row_by_row_product(rows, there) if row_by_row else rows @ there


def row_by_row_product(X: NDArray[F], matrix: NDArray[F]) -> NDArray[F]:
    """Multiply rows by a matrix in an order of additions that does not depend on a row's place."""
    shape = (len(X), matrix.shape[1])
    product: NDArray[F] = namespace(X).zeros(shape, dtype=X.dtype, device=X.device)
    for column, along in zip(X.T, matrix, strict=True):
        product += column[:, None] * along
    return product


Standardising: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Public means of columns, and scales above 0 to divide by."""
# Squares of longer entries might overflow.
_LONGEST = 1e150


def normalized_second_moments(
    spec: DataSpec, constant: float, by: Standardising | None = None
) -> Kernel:
    """Return the kernel that sums ``u u^T / |u|^2``, packed and weighted, over a block.

    u is a row, standardised if wanted, with ``constant``, above 0, in place of its intercept
    column.

    Privacy: ``|u u^T|_F = |u|^2``, so a row contributes at most ``spec.weight_bound`` in L2 norm,
    whatever it is, and whatever the means and scales are. The factor on each row has a margin for
    the error of its computed norm. Entries are standardised one by one, so the bits of a row do not
    depend on its place.
    """
    margin, d = norm_margin(spec.n_features + 1), spec.n_features

    def block_sum(block: Block) -> NDArray[np.float64]:
        rows = beside_constant(block, constant)
        if by is not None:
            means, scales = (like(rows, one) for one in by)
            rows[:, :d] = namespace(rows).clip((rows[:, :d] - means) / scales, -_LONGEST, _LONGEST)
        squares = namespace(rows).einsum("ij,ij->i", rows, rows)
        factors = margin / squares * float_weights(block)
        return pack_symmetric(products_of(block, factors, rows))

    return AnyArrays(block_sum, apart=True)


def second_moment_sum(data: DataSpec) -> RowSum:
    """Sum of normalised second moments.

    Privacy: no two contributions oppose each other, as ``<u u^T, v v^T> = <u, v>^2``. Sums are in
    float64, in runs of 1024 rows. The error of a block's sum is below ``1200 u`` times the sum of
    its terms' norms. ``sum_rounding`` allows for more: at least ``gamma_4096`` for sparse rows and
    ``gamma_16384`` for dense ones; 2^16 rows of a block on a device have ``1200 * 2^16 < 16384 *
    16384``. The same holds for the other sums of this package in float64.
    """
    size = data.n_features + 1
    return RowSum(
        "normalised second-moment sum", n_symmetric(size), directions=size, opposition=0.0
    )


def noisy_second_moments(
    oracle: Oracle, declared: SumRelease, constant: float, by: Standardising | None = None
) -> NDArray[np.float64]:
    """Release the symmetric matrix ``sum u u^T / |u|^2``, with one column more than features.

    Noise has the declared standard deviation on the diagonal and ``1 / sqrt(2)`` of it elsewhere.
    Eigenvalues may be negative.
    """
    spec = oracle.rows.spec
    kernel = normalized_second_moments(spec, constant, by)
    values = second_moment_sum(spec).noisy(oracle, declared, kernel)
    return unpack_symmetric(values, spec.n_features + 1)


def check_data(data: DataSpec, adjacency: Adjacency, most: int = MOST_COLUMNS) -> None:
    """Refuse data with too many columns, or without a bound on rounding, for second moments."""
    if data.n_columns > most:
        raise ValueError(
            f"n_features must be at most {most} with the intercept for a solver that "
            f"releases second moments of columns, got {data.n_columns}: use 'noisy_gd'"
        )
    sum_rounding(data, adjacency, data.weight_bound)


def constant_column(data: DataSpec) -> float:
    """Value of the constant column of normalised rows: a third of the row norm.

    The intercept column that estimators append is as long as the longest row. Few rows are that
    long, so a shorter one leaves more of a normalised row to the features.
    """
    return _CONSTANT * data.row_norm


def spectrum(
    moments: NDArray[np.float64], noise_std: float, data: DataSpec, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Estimate mean squares of rows along their principal directions, from noisy moments.

    ``moments`` were released by ``noisy_second_moments`` with the constant
    ``constant_column(data)`` and noise of ``noise_std`` on the diagonal; ``columns`` is
    ``n_features``, or one more to include the constant. Returned: mean squares, of shape
    (columns,) and above 0; directions, one in each column; and the unclipped mean squares, which
    may be negative and have an unbiased sum.

    Eigenvalues below ``noise_std sqrt(columns)``, about half the largest eigenvalue of noise
    alone, are raised to it: the eigenvalue clipping of Ganesh, Haghifam, Steinke and Thakurta,
    "Faster differentially private convex optimization via second-order methods", NeurIPS 2023,
    section 4. The last diagonal entry is a sum of ``constant^2 / |u|^2``, so it estimates how long
    rows are.

    Privacy: post-processing of released values.
    """
    typical = unit_of_moments(moments, noise_std, data)
    seen, directions = np.linalg.eigh(moments[:columns, :columns])
    values = np.maximum(seen, noise_std * math.sqrt(columns))
    return values * typical, directions, seen * typical


def unit_of_moments(moments: NDArray[np.float64], noise_std: float, data: DataSpec) -> float:
    """Return what ``spectrum`` multiplies eigenvalues by: a mean square over the rows' number."""
    return constant_column(data) ** 2 / max(float(moments[-1, -1]), noise_std)


def float_weights(block: Block) -> NDArray[np.float64] | float:
    """Return the weights of a block's rows in float64; 1 where they have none."""
    if block.weights is None:
        return 1.0
    xp = namespace(block.weights)
    weights: NDArray[np.float64] = xp.asarray(block.weights, dtype=xp.float64)
    return weights


# Bounded sums of weighted second moments, scores and squared residuals of linear predictions.

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
class LinearView:
    """Public coordinates, bounds and a linear prediction of rows.

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

    Without a matrix the vector sums clipped r z in place of f r z, r the residual.
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
    block: Block, spec: DataSpec, view: LinearView, row_by_row: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates z of a block's rows, and their weights f. Private.

    Privacy: ``f |z'|^2 <= cap`` and ``f <= 1``, with a margin for the error of the computed norm.
    """
    z, squares = coordinates_of(block, spec, view, row_by_row)
    weights = norm_margin(z.shape[1]) * view.cap / namespace(z).clip(squares, view.cap, math.inf)
    return z, weights


def coordinates_of(
    block: Block, spec: DataSpec, view: LinearView, row_by_row: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates z of a block's rows, and ``|z'|^2``. Private."""
    z = rows_in_basis(block, spec, view.vectors, row_by_row)
    xp, size = namespace(z), view.vectors.shape[1]
    if view.level > 0.0:
        z[:, -1] = view.level
    columns = size - (view.level > 0.0)
    return z, xp.sum(z[:, :columns] * z[:, :columns], axis=1)


def residuals_of(
    block: Block, spec: DataSpec, view: LinearView, z: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return targets, clipped to their bounds, less center and prediction. Private."""
    xp = namespace(z)
    targets = xp.asarray(block.targets, dtype=xp.float64)
    targets = xp.clip(targets, spec.target_low, spec.target_high)
    predictions = xp.sum(z * like(z, view.v), axis=1)
    return cast("NDArray[np.float64]", targets - view.center - predictions)


def weighted_moments(
    spec: DataSpec, view: LinearView, shares: MomentShares, row_by_row: bool
) -> Kernel:
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


def moment_sum(data: DataSpec, shares: MomentShares) -> RowSum:
    """Sum of ``weighted_moments``."""
    names = {
        "none": "clipped score and squared residuals",
        "hessian": "second moments, score and squared residuals",
    }
    size = _n_matrix(shares, data.n_columns) + data.n_columns + 1
    return RowSum(names[shares.kind], size, opposition=shares.opposition)


def noisy_weighted_moments(
    oracle: Oracle, declared: SumRelease, view: LinearView, shares: MomentShares
) -> MomentSums:
    """Release weighted second moments, score and squared residuals, in their own units.

    The matrix is symmetric and may have negative eigenvalues; without one it is zero.
    """
    spec = oracle.rows.spec
    size = view.vectors.shape[1]
    row_by_row = not oracle.places_are_fixed
    kernel = weighted_moments(spec, view, shares, row_by_row)
    values = moment_sum(spec, shares).noisy(oracle, declared, kernel)
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
