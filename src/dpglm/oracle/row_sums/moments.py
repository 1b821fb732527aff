"""Bounded sums of second moments of rows, and their release."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import like, namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec, FloatType
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import norm_margin, sum_release, sum_rounding
from dpglm.oracle.unit_sums import products_of
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = [
    "MOST_COLUMNS",
    "MOST_WHITENED",
    "beside_constant",
    "check_data",
    "constant_column",
    "float_weights",
    "n_symmetric",
    "noisy_second_moments",
    "normalized_second_moments",
    "pack_symmetric",
    "row_by_row_product",
    "rows_in_basis",
    "second_moment_release",
    "spectrum",
    "unit_of_moments",
    "unpack_symmetric",
]

MOST_COLUMNS = 1000
"""Second moments of more columns have too many entries for a solver that builds on them."""
MOST_WHITENED = 2100
"""The same for a map that evens out what stands out of their noise: 18 MB of values."""

_CONSTANT = 1.0 / 3.0

F = TypeVar("F", bound=np.floating[Any])


def n_symmetric(size: int) -> int:
    """Return the number of free entries of a symmetric matrix with ``size`` columns."""
    return size * (size + 1) // 2


def pack_symmetric(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """List the diagonal and ``sqrt(2)`` times the entries above it, of one matrix or several.

    Privacy: the map is an isometry, ``|pack(M)| = |M|_F``. With noise of one standard deviation in
    every value, entries off the diagonal get ``1 / sqrt(2)`` of what the diagonal gets, as if all
    ``size**2`` entries had been released and mirror images averaged. Without the ``sqrt(2)`` the
    same noise would be spent on a vector that may be as long and tells less.
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
    """Return the block's features, beside a constant column unless it is zero."""
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


def normalized_second_moments(spec: DataSpec, constant: float) -> Kernel:
    """Return the kernel that sums ``u u^T / |u|^2``, packed and weighted, over a block.

    u is a row whose intercept column is replaced by ``constant``, above 0.

    Privacy: ``|u u^T|_F = |u|^2``, so a row contributes at most ``spec.weight_bound`` in L2 norm,
    whatever it is. The factor on each row has a margin for the error of its computed norm.
    """
    margin = norm_margin(spec.n_features + 1)

    def block_sum(block: Block) -> NDArray[np.float64]:
        rows = beside_constant(block, constant)
        squares = namespace(rows).einsum("ij,ij->i", rows, rows)
        factors = margin / squares * float_weights(block)
        return pack_symmetric(products_of(block, factors, rows))

    return AnyArrays(block_sum, apart=True)


def second_moment_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism
) -> SumRelease:
    """Declare the release that ``noisy_second_moments`` makes.

    Privacy: the contribution bound is ``data.weight_bound``. No two contributions oppose each
    other, as ``<u u^T, v v^T> = <u, v>^2``. Everything is computed in float64,
    in runs of 1024 rows, so that the error of a block's sum is below ``1200 u`` times the sum of
    its terms' norms, less than ``sum_rounding`` allows for: at least ``gamma_4096`` for sparse
    rows and ``gamma_16384`` for dense ones; 2^16 rows of a block on a device have
    ``1200 * 2^16 < 16384 * 16384``.
    """
    return sum_release(
        "normalised second-moment sum",
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=n_symmetric(data.n_features + 1),
        directions=data.n_features + 1,
        opposition=0.0,
    )


def noisy_second_moments(
    oracle: Oracle, declared: SumRelease, constant: float
) -> NDArray[np.float64]:
    """Release the symmetric matrix ``sum u u^T / |u|^2``, with one column more than features.

    Declared by ``second_moment_release``. Noise has the declared standard deviation on the
    diagonal and ``1 / sqrt(2)`` of it elsewhere; eigenvalues may be negative.
    """
    spec = oracle.rows.spec
    block_sum = normalized_second_moments(spec, constant)
    total = oracle.over_blocks(block_sum, declared.coordinates)
    values = oracle.noisy_sum(declared, total, spec.weight_bound)
    return unpack_symmetric(values, spec.n_features + 1)


def check_data(data: DataSpec, adjacency: Adjacency, most: int = MOST_COLUMNS) -> None:
    """Refuse data whose second moments cannot be released, or would drown in noise."""
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
    may be negative and whose sum is unbiased.

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
