"""Sums of columns, counts of long rows, and second moments of standardised rows."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.differences import products_of, sum_of
from dpglm.oracle.gradients import Oracle, RowSum
from dpglm.oracle.moments import (
    LinearView,
    beside_constant,
    coordinates_of,
    float_weights,
    n_symmetric,
    pack_symmetric,
    unpack_symmetric,
    weighted_coordinates,
)
from dpglm.oracle.targets import N_SHELLS, Shells
from dpglm.privacy.releases import SumRelease

_SHORTEST = 1e-140


def column_sum(data: DataSpec) -> RowSum:
    """Return the sum of the entries of a row, of their squares, and of a constant.

    Privacy: entries are clipped to [-1, 1], so ``|x^2| <= |x| <= R``, the bound on rows, and a
    contribution of weight 1 has at most the squared norm ``2 R^2 + 1``. With ``t = x x'`` of an
    entry, the inner product of two is ``sum (t + t^2) + 1``. As ``t + t^2 >= -1/4`` and ``sum t >=
    -R^2``, it is at least ``1 - min(d / 4, R^2)``.
    """
    d, square = data.n_features, data.row_norm**2
    most = 2.0 * square + 1.0
    against = max(min(0.25 * d, square) - 1.0, 0.0) / most
    return RowSum("sums of columns", 2 * d + 1, math.sqrt(most), opposition=min(against, 1.0))


def column_sums(spec: DataSpec) -> Kernel:
    """Return the kernel that sums what ``noisy_columns`` releases. Private."""
    d = spec.n_features

    def block_sum(block: Block) -> NDArray[np.float64]:
        rows = beside_constant(block, 1.0)
        xp = namespace(rows)
        rows[:, :d] = xp.clip(rows[:, :d], -1.0, 1.0)
        every = xp.concat([rows[:, :d], rows[:, :d] ** 2, rows[:, d:]], axis=1)
        weights = xp.ones_like(rows[:, 0]) * float_weights(block)
        return cast("NDArray[np.float64]", sum_of(block, weights, every))

    return AnyArrays(block_sum, apart=True)


def noisy_columns(oracle: Oracle, declared: SumRelease) -> NDArray[np.float64]:
    """Release the sums of all columns, of their squares, and the weight of all rows."""
    return column_sum(oracle.rows.spec).noisy(oracle, declared, column_sums(oracle.rows.spec))


N_SIZES, SIZE_RATIO = 16, math.sqrt(2.0)
"""Entries of a row are counted by size: below 1, and in shells with ends that grow by the ratio."""


def size_sum(n_columns: int) -> RowSum:
    """Return the sum of counts of entries by size, for some columns.

    Privacy: a row adds its weight to at most one shell of each column; no count is negative.
    """
    return RowSum(
        "counts of large entries",
        n_columns * N_SIZES,
        math.sqrt(n_columns),
        directions=1,
        opposition=0.0,
    )


def noisy_sizes(
    oracle: Oracle, declared: SumRelease, view: LinearView, columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Release the weight of rows by the size of some coordinates: (n_columns, N_SIZES)."""
    spec, row_by_row = oracle.rows.spec, not oracle.places_are_fixed
    steps = math.log2(SIZE_RATIO)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, squares = coordinates_of(block, spec, view, row_by_row)
        xp = namespace(z)
        sizes = xp.clip(xp.abs(z[:, columns]), _SHORTEST, math.inf)
        places = xp.clip(xp.floor(xp.log2(sizes) / steps), -1.0, N_SIZES - 1.0)
        indices = xp.arange(N_SIZES, dtype=xp.float64, device=z.device)
        indicators = xp.asarray(places[:, :, None] == indices, dtype=xp.float64)
        weights = xp.ones_like(squares) * float_weights(block)
        flat = xp.reshape(indicators, (len(squares), -1))
        return cast("NDArray[np.float64]", sum_of(block, weights, flat))

    found = size_sum(len(columns)).noisy(oracle, declared, AnyArrays(block_sum, apart=True))
    return found.reshape(len(columns), N_SIZES)


ROW_LENGTHS = RowSum("counts of long rows", N_SHELLS, directions=1, opposition=0.0)
"""A row is in at most one shell."""


def length_counts(spec: DataSpec, view: LinearView, shells: Shells, row_by_row: bool) -> Kernel:
    """Return the kernel that counts rows by their squared length ``|z'|^2``, see ``LinearView``.

    Privacy: a row adds its weight to at most one shell, whatever the view and the shells are.
    """
    steps = math.log2(shells.ratio)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, squares = coordinates_of(block, spec, view, row_by_row)
        xp = namespace(z)
        ratios = xp.clip(squares / shells.first, _SHORTEST, math.inf)
        places = xp.clip(xp.floor(xp.log2(ratios) / steps), -1.0, N_SHELLS - 1.0)
        indices = xp.arange(N_SHELLS, dtype=xp.float64, device=z.device)
        indicators = xp.asarray(places[:, None] == indices, dtype=xp.float64)
        weights = xp.ones_like(squares) * float_weights(block)
        return cast("NDArray[np.float64]", sum_of(block, weights, indicators))

    return AnyArrays(block_sum, apart=True)


def noisy_lengths(
    oracle: Oracle, declared: SumRelease, view: LinearView, shells: Shells
) -> NDArray[np.float64]:
    """Release the weight of the rows in each shell of squared lengths, of shape (N_SHELLS,)."""
    kernel = length_counts(oracle.rows.spec, view, shells, not oracle.places_are_fixed)
    return ROW_LENGTHS.noisy(oracle, declared, kernel)


def table_moment_sum(data: DataSpec) -> RowSum:
    """Return the sum of weighted second moments.

    Privacy: ``<z z^T, y y^T> = <z, y>^2`` is not negative.
    """
    size = data.n_columns
    return RowSum("second moments of columns", n_symmetric(size), directions=size, opposition=0.0)


def moment_sums(spec: DataSpec, view: LinearView, row_by_row: bool) -> Kernel:
    """Return the kernel that sums ``f z z^T / longest``, packed, see ``LinearView``.

    Privacy: ``f |z|^2 <= longest`` for every row, whatever the view is, so a row contributes at
    most its weight.
    """

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        factors = f * float_weights(block) / view.longest
        return pack_symmetric(products_of(block, factors, z))

    return AnyArrays(block_sum, apart=True)


def noisy_moments(
    oracle: Oracle, declared: SumRelease, view: LinearView
) -> tuple[NDArray[np.float64], float]:
    """Release ``sum f z z^T``, and return it with the standard deviation of its diagonal's noise.

    Entries off the diagonal have ``1 / sqrt(2)`` of it. Eigenvalues may be negative.
    """
    spec, size = oracle.rows.spec, view.vectors.shape[1]
    kernel = moment_sums(spec, view, not oracle.places_are_fixed)
    values = table_moment_sum(spec).noisy(oracle, declared, kernel)
    return view.longest * unpack_symmetric(values, size), view.longest * declared.noise_std
