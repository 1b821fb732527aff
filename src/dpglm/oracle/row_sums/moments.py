"""Bounded sums of second moments of rows, alone or with targets, and their release."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import like, namespace
from dpglm.data.rows import AnyArrays, Block, Kernel, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Mechanism, Release, SumRelease

__all__ = [
    "clipped_moments",
    "dense_rows",
    "moment_release",
    "n_symmetric",
    "noisy_moments",
    "noisy_second_moments",
    "normalized_second_moments",
    "pack_symmetric",
    "row_by_row_product",
    "rows_in_basis",
    "second_moment_release",
    "unpack_symmetric",
]

_RUN_ROWS = 1024

V = TypeVar("V")
R = TypeVar("R")
F = TypeVar("F", bound=np.floating[Any])


def n_symmetric(size: int) -> int:
    """Return the number of values that make a symmetric matrix with ``size`` columns."""
    return size * (size + 1) // 2


def pack_symmetric(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """List the diagonal and ``sqrt(2)`` times the entries above it.

    Parameters
    ----------
    matrix : ndarray or tensor of shape (size, size)
        Symmetric; only the upper triangle is read.

    Returns
    -------
    ndarray or tensor of shape (size * (size + 1) / 2,)

    Notes
    -----
    Privacy: the map keeps lengths, ``|pack(M)| = |M|_F``. With noise of one standard deviation
    in every value, entries off the diagonal get ``1 / sqrt(2)`` of what the diagonal gets, as
    if all ``size**2`` entries had been released and mirror images averaged. Without the
    ``sqrt(2)`` the same noise would be spent on a vector that may be as long and tells less.

    Examples
    --------
    >>> pack_symmetric(np.array([[3.0, 1.0], [1.0, 2.0]])).round(4).tolist()
    [3.0, 1.4142, 2.0]
    """
    above = np.triu_indices(len(matrix))
    factors = np.where(above[0] == above[1], 1.0, math.sqrt(2.0))
    return cast("NDArray[np.float64]", matrix[above] * like(matrix, factors))


def unpack_symmetric(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Undo ``pack_symmetric``.

    Parameters
    ----------
    values : ndarray of shape (size * (size + 1) / 2,)
        What ``pack_symmetric`` listed.
    size : int
        Number of columns.

    Returns
    -------
    ndarray of shape (size, size)
        Exactly symmetric.

    Examples
    --------
    >>> unpack_symmetric(pack_symmetric(np.eye(2)), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    above = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[above] = values / np.where(above[0] == above[1], 1.0, math.sqrt(2.0))
    mirrored: NDArray[np.float64] = np.triu(matrix, 1).T + matrix
    return mirrored


def dense_rows(block: Block, spec: DataSpec) -> NDArray[np.float64]:
    """Return the rows of a block as they are, intercept column included, in float64.

    Parameters
    ----------
    block : Block
        Some rows. Private, and so is the result.
    spec : DataSpec
        Their public facts.

    Returns
    -------
    ndarray of shape (rows, ``spec.n_columns``)

    Notes
    -----
    Privacy: each row depends on itself alone.
    """
    return _beside_constant(block, spec.intercept)


def _beside_constant(block: Block, constant: float) -> NDArray[np.float64]:
    """Features of a block in float64, and a constant column if it is not zero."""
    features = block.features()
    xp, (n_rows, d) = namespace(features), features.shape
    shape = (n_rows, d + (constant != 0.0))
    rows: NDArray[np.float64] = xp.empty(shape, dtype=xp.float64, device=features.device)
    rows[:, :d] = features
    rows[:, d:] = constant
    return rows


def rows_in_basis(
    block: Block, spec: DataSpec, basis: NDArray[np.float64], row_by_row: bool
) -> NDArray[np.float64]:
    """Multiply the rows of a block by a public matrix.

    Parameters
    ----------
    block : Block
        Some rows. Private, and so is the result.
    spec : DataSpec
        Their public facts.
    basis : ndarray of shape (``spec.n_columns``, columns)
        What rows are multiplied by.
    row_by_row : bool
        Whether the last bits of a row must not depend on where it stands, as under
        ``add_remove``, where a row more shifts all others; slower.

    Returns
    -------
    ndarray of shape (rows, columns)
    """
    rows = dense_rows(block, spec)
    there = like(rows, basis)
    return row_by_row_product(rows, there) if row_by_row else rows @ there


def row_by_row_product(X: NDArray[F], matrix: NDArray[F]) -> NDArray[F]:
    """Multiply rows by a matrix, each in a way that does not depend on where it stands.

    Parameters
    ----------
    X : ndarray of shape (n, features)
        Rows.
    matrix : ndarray of shape (features, columns)
        Of the same dtype.

    Returns
    -------
    ndarray of shape (n, columns)
        Products of matrices may add up in an order that depends on a row's place; this does not.
    """
    shape = (len(X), matrix.shape[1])
    product: NDArray[F] = namespace(X).zeros(shape, dtype=X.dtype, device=X.device)
    for column, along in zip(X.T, matrix, strict=True):
        product += column[:, None] * along
    return product


def normalized_second_moments(spec: DataSpec, constant: float) -> Kernel:
    """Make the kernel that adds up ``u u^T / |u|^2``, u being a row and a constant.

    Parameters
    ----------
    spec : DataSpec
        Public facts of the rows.
    constant : float
        Value of u's last column, which takes the place of an intercept column; above 0.

    Returns
    -------
    callable
        From a block to its packed sum, each term times the row's weight.

    Notes
    -----
    Privacy: ``|u u^T|_F = |u|^2``, so a row contributes at most ``spec.weight_bound`` in L2
    norm, whatever it is. The factor on each row stays below what its computed norm allows by
    more than that norm can err.
    """
    margin = _margin(spec.n_features + 1)

    def block_sum(block: Block) -> NDArray[np.float64]:
        rows = _beside_constant(block, constant)
        squares = (rows * rows).sum(axis=1)
        return pack_symmetric(_weighted_products(rows, margin / squares * _weights(block)))

    return AnyArrays(block_sum)


def second_moment_release(
    data: DataSpec, adjacency: Adjacency, mechanism: Mechanism[V, R]
) -> Release[V, R]:
    """Declare the release that ``noisy_second_moments`` makes.

    Notes
    -----
    Privacy: the contribution bound is ``data.weight_bound``. Everything is computed in float64,
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
    )


def noisy_second_moments(
    oracle: Oracle, declared: SumRelease, constant: float
) -> NDArray[np.float64]:
    """Release the sum of ``u u^T / |u|^2`` over all rows, u being a row and a constant.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    declared : Release
        Made by ``second_moment_release``.
    constant : float
        Value of u's last column, which takes the place of an intercept column; above 0.

    Returns
    -------
    ndarray of shape (n_features + 1, n_features + 1)
        Symmetric. Noise has the declared standard deviation on the diagonal and
        ``1 / sqrt(2)`` of it elsewhere. It may have negative eigenvalues.

    Examples
    --------
    A row's length does not matter, and its direction is what is seen:

    >>> from dpglm.data.prepare import prepare_rows
    >>> from dpglm.privacy.noise.additive import GaussianNoise
    >>> from dpglm.privacy.curator import Curator
    >>> from dpglm.privacy.noise import SeededNoise
    >>> from dpglm.problem import Squared
    >>> data = DataSpec(n_rows=1, n_features=1)
    >>> rows = prepare_rows(np.array([[1.0]]), np.ones(1), data)
    >>> curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0))
    >>> declared = second_moment_release(data, Adjacency.ZERO_OUT, GaussianNoise(1e-9))
    >>> noisy_second_moments(Oracle(rows, Squared(), curator), declared, 1.0).round(6).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    spec = oracle.rows.spec
    block_sum = normalized_second_moments(spec, constant)

    def kernel(rows: Rows) -> NDArray[np.float64]:
        return rows.sum(block_sum, oracle.map_blocks, (declared.coordinates,))

    return unpack_symmetric(
        oracle.noisy_sum(declared, kernel, spec.weight_bound), spec.n_features + 1
    )


def clipped_moments(
    spec: DataSpec,
    basis: NDArray[np.float64],
    clip: float,
    center: float,
    target_weight: float,
    row_by_row: bool,
) -> Kernel:
    """Make the kernel that adds up ``z z^T`` and ``b (y - center) z`` of each row, clipped.

    Parameters
    ----------
    spec : DataSpec
        Public facts of the rows, with finite bounds on targets.
    basis : ndarray of shape (``spec.n_columns``, columns)
        Rows are ``z = basis^T x``.
    clip : float
        Bound C on the L2 norm of a row's contribution; longer ones are scaled down, both
        parts by the same factor.
    center : float
        Subtracted from targets, which are first clipped to their bounds.
    target_weight : float
        The factor b, above 0.
    row_by_row : bool
        As for ``rows_in_basis``.

    Returns
    -------
    callable
        From a block to its sum: the packed matrix, then the vector.

    Notes
    -----
    Privacy: the norm of a contribution is ``|z| sqrt(|z|^2 + b^2 (y - center)^2)``, computed in
    float64 and scaled to at most ``C`` with a margin for what it can err; weights are at most
    ``spec.weight_bound``. A row scaled down by f enters least squares with the weight f.
    """
    size = basis.shape[1]
    margin = _margin(size)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z = rows_in_basis(block, spec, basis, row_by_row)
        xp = namespace(z)
        targets = xp.asarray(block.targets, dtype=xp.float64)
        targets = xp.clip(targets, spec.target_low, spec.target_high)
        residuals = target_weight * (targets - center)
        squares = (z * z).sum(axis=1)
        lengths = xp.sqrt(squares) * xp.sqrt(squares + residuals * residuals)
        factors = margin * clip / xp.maximum(lengths, clip) * _weights(block)
        products = _weighted_products(xp.concat([z, residuals[:, None]], axis=1), factors)
        both = [pack_symmetric(products[:size, :size]), products[:size, size]]
        return cast("NDArray[np.float64]", xp.concat(both))

    return AnyArrays(block_sum)


def moment_release(
    data: DataSpec, adjacency: Adjacency, columns: int, clip: float, mechanism: Mechanism[V, R]
) -> Release[V, R]:
    """Declare the release that ``noisy_moments`` makes in a basis of so many columns.

    Notes
    -----
    Privacy: the contribution bound is ``clip * data.weight_bound``. Rounding as for
    ``second_moment_release``.
    """
    return sum_release(
        "clipped moment sum",
        data,
        adjacency,
        mechanism,
        bound=clip * data.weight_bound,
        coordinates=n_symmetric(columns) + columns,
    )


def noisy_moments(
    oracle: Oracle,
    declared: SumRelease,
    basis: NDArray[np.float64],
    *,
    clip: float,
    center: float,
    target_weight: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Release the sufficient statistics of least squares for rows in a public basis.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    declared : Release
        Made by ``moment_release`` with this clip.
    basis, clip, center, target_weight
        As for ``clipped_moments``.

    Returns
    -------
    matrix : ndarray of shape (columns, columns)
        Sum of ``z z^T``; symmetric, possibly with negative eigenvalues.
    vector : ndarray of shape (columns,)
        Sum of ``(y - center) z``; its noise is that of the diagonal over ``target_weight``.
    """
    spec = oracle.rows.spec
    size = basis.shape[1]
    row_by_row = not oracle.curator.adjacency.n_is_public
    block_sum = clipped_moments(spec, basis, clip, center, target_weight, row_by_row)

    def kernel(rows: Rows) -> NDArray[np.float64]:
        return rows.sum(block_sum, oracle.map_blocks, (declared.coordinates,))

    values = oracle.noisy_sum(declared, kernel, clip * spec.weight_bound)
    matrix = unpack_symmetric(values[: n_symmetric(size)], size)
    return matrix, values[n_symmetric(size) :] / target_weight


def _margin(size: int) -> float:
    """Shrink by more than a computed contribution's norm can be too small."""
    return 1.0 - 4.0 * (size + 16) * float(np.finfo(np.float64).eps)


def _weights(block: Block) -> NDArray[np.float64] | float:
    if block.weights is None:
        return 1.0
    xp = namespace(block.weights)
    weights: NDArray[np.float64] = xp.asarray(block.weights, dtype=xp.float64)
    return weights


def _weighted_products(
    rows: NDArray[np.float64], factors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``sum_i factors_i rows_i rows_i^T``, in runs whose length bounds the rounding error."""
    # A product of a matrix with its own transpose costs half as much as another.
    rows = rows * namespace(rows).sqrt(factors)[:, None]
    shape = (rows.shape[1], rows.shape[1])
    total: NDArray[np.float64] = namespace(rows).zeros(shape, dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), _RUN_ROWS):
        run = rows[start : start + _RUN_ROWS]
        total += run.T @ run
    return total
