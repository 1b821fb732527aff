"""Bounded sums of second moments of rows, and their release."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from dpglm._validation import Array, like, namespace
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.groups import segment_sums
from dpglm.data.rows import AnyArrays, Block, DataSpec, FloatType, Kernel
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import RowSum, norm_margin, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.releases import SumRelease

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

    def products(start: int, stop: int) -> Any:
        # A product of a matrix with its own transpose costs half as much as another.
        scaled = rows[start:stop] * roots[start:stop]
        return scaled.T @ scaled

    if block.starts is not None:
        found: Array = np.empty((len(block.starts) - 1, size, size))
        for place, (start, stop) in enumerate(itertools.pairwise(block.starts)):
            found[place] = products(start, stop)
        return found
    total = xp.zeros((size, size), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        total += products(start, start + RUN_ROWS)
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
    """Return the kernel that adds up a vector for each row of a block, times the row's weight."""

    def block_sum(block: Block) -> Array:
        each = of_rows(block)
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
