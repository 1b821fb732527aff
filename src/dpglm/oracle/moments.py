"""Bounded sums of second moments of rows, and their release."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import Array, finite, like, namespace
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.groups import segment_sums
from dpglm.data.rows import AnyArrays, Block, DataSpec, FloatType, Kernel
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import RowSum, norm_margin, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.releases import SumRelease
from dpglm.problem.loss import Loss

MOST_COLUMNS = 1000
"""Second moments of more columns have too many entries for a solver that builds on them."""
MOST_WHITENED = 2100
"""The same for a private whitening map: 18 MB of values."""
_CONSTANT = 1.0 / 3.0


RUN_ROWS = 1024
"""Rows that are added up before other runs' are, so that rounding is bounded."""


def sum_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i``, of shape (size,), or (groups, size) for a block of groups."""
    if block.starts is not None:
        return segment_sums(rows, factors, block.starts)
    xp = namespace(rows)
    total = xp.zeros(rows.shape[1], dtype=rows.dtype, device=rows.device)
    for start in range(0, rows.shape[0], RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        total = total + factors[run] @ rows[run]
    return total


def products_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i rows_i^T``, of shape (size, size), or one for each group."""
    xp, size = namespace(rows), rows.shape[1]
    roots = xp.sqrt(factors)[:, None]
    # A product of a matrix with its own transpose costs half as much as another.
    if block.starts is not None:
        found: Array = np.empty((len(block.starts) - 1, size, size))
        for place, (start, stop) in enumerate(itertools.pairwise(block.starts)):
            scaled = rows[start:stop] * roots[start:stop]
            found[place] = scaled.T @ scaled
        return found
    total = xp.zeros((size, size), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        scaled = rows[start : start + RUN_ROWS] * roots[start : start + RUN_ROWS]
        total += scaled.T @ scaled
    return total


def crossed_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i^T``, of shape (K, size), or one for each group."""
    xp = namespace(rows)
    if block.starts is not None:
        return xp.stack([sum_of(block, column, rows) for column in factors.T], axis=1)
    total = xp.zeros((factors.shape[1], rows.shape[1]), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        total += factors[run].T @ rows[run]
    return total


def sum_over_rows(of_rows: Callable[[Block], Any]) -> Kernel:
    """Return the kernel that adds up a vector for each row of a block, times the row's weight.

    Privacy: ``sum_rounding`` counts on sums in float64, whatever the type of the rows is.
    """

    def block_sum(block: Block) -> Array:
        each = of_rows(block)
        each = namespace(each).asarray(each, dtype=namespace(each).float64)
        weights = namespace(each).ones_like(each[:, 0]) * float_weights(block)
        total: Array = sum_of(block, weights, each)
        return total

    return AnyArrays(block_sum, apart=True)


def n_symmetric(size: int) -> int:
    """Return the number of free entries of a symmetric matrix with ``size`` columns."""
    return size * (size + 1) // 2


def pack_symmetric(matrix: Array) -> Array:
    """List the diagonal and ``sqrt(2)`` times the entries above it, of one matrix or several.

    Privacy: the map is an isometry, ``|pack(M)| = |M|_F``. With equal noise in every value, entries
    off the diagonal get ``1 / sqrt(2)`` of the noise on the diagonal, as if all ``size**2`` entries
    had been released and mirror images averaged.
    """
    above = np.triu_indices(matrix.shape[-1])
    factors = np.where(above[0] == above[1], 1.0, math.sqrt(2.0))
    return cast("Array", matrix[..., *above] * like(matrix, factors))


def unpack_symmetric(values: Array, size: int) -> Array:
    """Undo ``pack_symmetric``; the matrix is exactly symmetric."""
    rows, columns = np.triu_indices(size)
    return symmetric(values / np.where(rows == columns, 1.0, math.sqrt(2.0)), size)


def symmetric(values: Array, size: int) -> Array:
    """Return the symmetric matrix with these entries on and above its diagonal."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = values
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
    block: Block, spec: DataSpec, basis: Array, row_by_row: bool, dtype: FloatType = "float64"
) -> Any:
    """Multiply the rows of a block by a public matrix of ``spec.n_columns`` rows. Private.

    ``row_by_row`` is slower, and needed under ``add_remove``, where one row more shifts all
    others: the last bits of a row's product must not depend on its place.
    """
    rows = beside_constant(block, spec.intercept, dtype)
    there = like(rows, basis, rows.dtype)
    return row_by_row_product(rows, there) if row_by_row else rows @ there


Standardising: TypeAlias = tuple[Array, Array]
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

    def block_sum(block: Block) -> Array:
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
) -> Array:
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
    moments: Array, noise_std: float, data: DataSpec, columns: int
) -> tuple[Array, Array, Array]:
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


def unit_of_moments(moments: Array, noise_std: float, data: DataSpec) -> float:
    """Return what ``spectrum`` multiplies eigenvalues by: a mean square over the rows' number."""
    return constant_column(data) ** 2 / max(float(moments[-1, -1]), noise_std)


def float_weights(block: Block) -> Array | float:
    """Return the weights of a block's rows in float64; 1 where they have none."""
    if block.weights is None:
        return 1.0
    xp = namespace(block.weights)
    weights: Array = xp.asarray(block.weights, dtype=xp.float64)
    return weights


# Bounded sums for models with pooled levels: scores, and structured parts of the Hessian.


@final
@dataclass(frozen=True, eq=False)
class LevelParts:
    """The released parts of a mean Hessian, with the noise of a diagonal entry."""

    fixed: Array  # Shape (n_fixed, n_fixed).
    crossed: Array  # Shape (n_levels, n_fixed), with 1 / sqrt(2) of the noise.
    diagonal: Array  # Shape (n_levels,).
    noise: float


@final
@dataclass(frozen=True, eq=False)
class LevelScores:
    """Public coordinates and limits of rows with fixed columns and pooled levels.

    ``z = (basis^T x, scales x')``, x the fixed columns with the intercept's, x' the levels. At a
    public point a row has the weight ``f = min(1, clip / (m |z|), square / (h |z|^2))``: m is a
    bound on its slope and h on its curvature, for any target. So f does not depend on the target,
    and scores of a right model have the mean zero.

    Privacy: with slopes clipped to [-m, m] a score ``f s z`` is at most ``clip`` long. The released
    parts of ``f h z z^T`` are some of its entries, with mirror images, so that their Frobenius norm
    is at most ``f h |z|^2 <= square``. Nothing rests on x' being an indicator. z is the computed
    product, and the margin covers the error of its norm.
    """

    fixed: NDArray[np.intp]
    levels: NDArray[np.intp]
    basis: Array
    scales: Array
    intercept: float  # Value of the intercept's column.
    clip: float = 1.0
    square: float = 1.0
    # Clipping threshold of the slopes of counts, in standard deviations, beyond one count.
    reach: float = math.inf

    @property
    def n_fixed(self) -> int:
        """Number of coordinates without those of levels."""
        return int(self.basis.shape[1])

    def mean_score(self, oracle: Oracle, declared: SumRelease, v: Array) -> Array:
        """Release the mean score at a point; ``level_score_sum`` declares it."""
        spec, margin = oracle.rows.spec, norm_margin(len(v))

        def block_sum(block: Block) -> Array:
            z, levels, eta, f = self._coordinates(oracle, block, v, margin)
            m, _ = self.bounds(oracle.loss, eta)
            slopes = np.clip(finite(oracle.loss.slope(eta, block.targets)), -m, m)
            factors = finite(f / self.clip * slopes) * float_weights(block)
            return np.concatenate([factors @ z, levels.T @ factors])

        total = level_score_sum(len(v)).noisy(oracle, declared, block_sum)
        return self.clip * total / spec.n_rows

    def mean_hessian(self, oracle: Oracle, declared: SumRelease, v: Array) -> LevelParts:
        """Release the structured parts of the mean Hessian; ``level_hessian_sum`` declares."""
        spec, margin, size = oracle.rows.spec, norm_margin(len(v)), self.n_fixed

        def block_sum(block: Block) -> Array:
            z, levels, eta, f = self._coordinates(oracle, block, v, margin)
            _, h = self.bounds(oracle.loss, eta)
            factors = finite(f / self.square * h) * float_weights(block)
            weighted = factors[:, np.newaxis] * z
            crossed = math.sqrt(2.0) * (levels.T @ weighted).ravel()
            squares = levels.multiply(levels).T @ factors
            return np.concatenate([pack_symmetric(z.T @ weighted), crossed, squares])

        sums = level_hessian_sum(size, len(v) - size).noisy(oracle, declared, block_sum)
        unit = self.square / spec.n_rows
        ends = np.cumsum([n_symmetric(size), size * (len(v) - size)])
        fixed, crossed, diagonal = np.split(unit * sums, ends)
        return LevelParts(
            unpack_symmetric(fixed, size),
            crossed.reshape(-1, size) / math.sqrt(2.0),
            diagonal,
            unit * declared.noise_std,
        )

    @property
    def constant(self) -> float:
        """Value of the last fixed coordinate in every row."""
        return float(self.basis[-1, -1]) * self.intercept

    def bounds(self, loss: Loss, eta: Array) -> tuple[Array, Array]:
        """Return bounds on slopes and curvature at scores, for every target."""
        if all(map(math.isfinite, loss.target.bounds)):
            # Both are largest at an end of the targets' range, in which they are linear.
            ends = [np.full_like(eta, end) for end in loss.target.bounds]
            slopes = [np.abs(loss.slope(eta, end)) for end in ends]
            bends = [loss.curvature(eta, end) for end in ends]
            largest = np.maximum(*slopes), np.maximum(*bends)
            return np.asarray(largest[0], np.float64), np.asarray(largest[1], np.float64)
        # With a canonical link, curvature is the variance function for every target.
        bend, one = (
            np.asarray(loss.curvature(eta, np.ones_like(eta)), np.float64),
            loss.dispersion or 1.0,
        )
        return self.reach * np.sqrt(one * bend) + one, bend

    def _coordinates(
        self, oracle: Oracle, block: Block, v: Array, margin: float
    ) -> tuple[Array, sparse.csr_array, Array, Array]:
        """Return a block's fixed coordinates, its levels, its scores at a point, and weights f."""
        product = operator.matmul if oracle.places_are_fixed else row_by_row_product
        z = finite(product(beside(block, self.fixed, self.intercept), self.basis))
        levels = sparse.csr_array(block.stored()[:, self.levels], dtype=np.float64)
        levels = sparse.csr_array(
            (levels.data * self.scales[levels.indices], levels.indices, levels.indptr),
            shape=levels.shape,
        )
        squares = (z * z).sum(axis=1) + levels.multiply(levels).sum(axis=1)
        eta = product(z, v[: self.n_fixed, np.newaxis])[:, 0] + levels @ v[self.n_fixed :]
        m, h = self.bounds(oracle.loss, eta)
        excess = np.maximum(np.sqrt(squares) * m / self.clip, squares * h / self.square)
        return z, levels, eta, finite(margin / np.maximum(excess, 1.0))


def beside(block: Block, columns: NDArray[np.intp], constant: float) -> Array:
    """Return some columns of a block's rows, dense, with a constant one last. Private."""
    chosen = block.stored()[:, columns]
    dense: Any = chosen.toarray() if sparse.issparse(chosen) else chosen  # type: ignore[attr-defined]
    return np.column_stack([dense, np.full(len(dense), constant)]).astype(np.float64)


def noisy_fixed_moments(
    oracle: Oracle, declared: SumRelease, columns: NDArray[np.intp], constant: float
) -> Array:
    """Release ``sum u u^T / |u|^2``, u some columns with a constant one last.

    Privacy: as in ``normalized_second_moments``. ``fixed_moment_sum`` declares it.
    """
    margin = norm_margin(len(columns) + 1)

    def block_sum(block: Block) -> Array:
        rows = beside(block, columns, constant)
        factors = margin / (rows * rows).sum(axis=1) * float_weights(block)
        return pack_symmetric((rows * factors[:, np.newaxis]).T @ rows)

    size = len(columns) + 1
    return unpack_symmetric(fixed_moment_sum(size).noisy(oracle, declared, block_sum), size)


def fixed_moment_sum(size: int) -> RowSum:
    """Sum of ``noisy_fixed_moments``; ``size`` counts the constant column, too."""
    name = "normalised second-moment sum"
    return RowSum(name, n_symmetric(size), directions=size, opposition=0.0)


def level_score_sum(size: int) -> RowSum:
    """Sum of ``LevelScores.mean_score``, in units of the clipping threshold."""
    return RowSum("score sum of pooled terms", size)


def level_hessian_sum(n_fixed: int, n_levels: int) -> RowSum:
    """Sum of ``LevelScores.mean_hessian``, in units of its bound.

    Privacy: entries between levels are missing, so that inner products may be negative, and
    contributions oppose each other.
    """
    size = n_symmetric(n_fixed) + n_levels * (n_fixed + 1)
    return RowSum("Hessian sum of pooled terms", size, directions=n_fixed + n_levels)
