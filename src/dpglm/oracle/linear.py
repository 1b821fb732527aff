"""Bounded sums of curvature, scores and residuals of linear predictions, and of long rows."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, like, namespace
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.rows import AnyArrays, Block, DataSpec, Kernel
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import (
    float_weights,
    n_symmetric,
    pack_symmetric,
    products_of,
    rows_in_basis,
    sum_of,
    sum_over_rows,
    unpack_symmetric,
)
from dpglm.oracle.rounding import RowSum, least_product, norm_margin, slack_of_row, sums_and_slack
from dpglm.oracle.scores import limits_of, n_limits, read_limits
from dpglm.privacy.releases import SumRelease

# Of rows that are shorter, in units of their bound, squares might underflow.
_SHORTEST = 1e-140


@final
@dataclass(frozen=True, eq=False)
class LinearView:
    """Public coordinates, bounds and a linear prediction of rows.

    With ``z = vectors^T x`` (the last coordinate is ``level``, unless that is 0) and s a row's
    weight over the weight bound, its factor is ``f = min(1, cap / (s |z'|^2))``, z' without the
    level. Its residual u is the target minus ``center`` and ``<z, v>``, clipped to ``reach`` and
    divided by it. Scores that are clipped by their norm are ``s r z``, to ``reach sqrt(longest)``.
    """

    vectors: Array
    cap: float
    level: float
    center: float
    v: Array
    reach: float

    @property
    def longest(self) -> float:
        """Bound on ``f s |z|^2``."""
        return self.cap + self.level**2


def weighted_coordinates(
    block: Block, spec: DataSpec, view: LinearView, row_by_row: bool
) -> tuple[Array, Array]:
    """Return the coordinates z of a block's rows, and the factors f. Private.

    Privacy: ``f s |z'|^2 <= cap`` and ``f <= 1``, with a margin for the computed norm's error.
    """
    z, squares = coordinates_of(block, spec, view, row_by_row)
    most = namespace(z).clip(squares * float_weights(block) / spec.weight_bound, view.cap, math.inf)
    return z, norm_margin(z.shape[1]) * view.cap / most


def coordinates_of(
    block: Block, spec: DataSpec, view: LinearView, row_by_row: bool
) -> tuple[Array, Array]:
    """Return the coordinates z of a block's rows, and ``|z'|^2``. Private."""
    z = rows_in_basis(block, spec, view.vectors, row_by_row)
    xp, size = namespace(z), view.vectors.shape[1]
    if view.level > 0.0:
        z[:, -1] = view.level
    columns = size - (view.level > 0.0)
    return z, xp.sum(z[:, :columns] * z[:, :columns], axis=1)


def residuals_of(block: Block, spec: DataSpec, view: LinearView, z: Array) -> Array:
    """Return targets, clipped to their bounds, less center and prediction. Private."""
    xp = namespace(z)
    targets = xp.asarray(block.targets, dtype=xp.float64)
    targets = xp.clip(targets, spec.target_low, spec.target_high)
    predictions = xp.sum(z * like(z, view.v), axis=1)
    return cast("Array", targets - view.center - predictions)


@final
@dataclass(frozen=True, eq=False)
class MomentSums:
    """Released sums of f z z^T, of scores, of squares, and of products, with the noise in them.

    With ``MomentShares`` scores are f r z and squares r^2, r the clipped residual; without a matrix
    scores are clipped w r z, r the residual and w the row's weight. With ``ScoreShares`` scores are
    h = f w r z, clipped by their own norm; squares are |h|^2 and products h h^T. For rows in groups
    these are of the groups' sums of h.
    """

    matrix: Array
    matrix_noise: float  # On the diagonal; 1 / sqrt(2) of it elsewhere.
    vector: Array
    vector_noise: float
    squares: float
    squares_noise: float
    products: Array | None = None
    products_noise: float = 0.0

    def bounded(self, largest: float) -> MomentSums:
        """Return them with no number beyond ``largest``, so that products do not overflow."""
        within: dict[str, Any] = {
            name: None if value is None else np.clip(value, -largest, largest)
            for name, value in vars(self).items()
        }
        return MomentSums(**within)


def _in_units(
    values: Array, size: int, noise: float, units: tuple[float, float, float, float]
) -> MomentSums:
    """Read matrix, scores, squares and products, each in its unit, which is 0 for missing ones."""
    of_matrix, of_vector, of_squares, of_products = units
    ends = np.cumsum([n_symmetric(size) * (of_matrix > 0.0), size, 1])
    matrix, vector, squares, products = np.split(values, ends)
    return MomentSums(
        of_matrix * unpack_symmetric(matrix, size) if of_matrix else np.zeros((size, size)),
        of_matrix * noise,
        of_vector * vector,
        of_vector * noise,
        of_squares * float(squares[0]),
        of_squares * noise,
        of_products * unpack_symmetric(products, size) if of_products else None,
        of_products * noise,
    )


# Weighted second moments, scores and squared residuals.


@final
@dataclass(frozen=True)
class MomentShares:
    """How one release is divided into matrix, vector and squares; the shares sum to at most 1.

    Without a matrix scores are clipped by their own length, not weighted by that of their rows.
    """

    matrix: float
    vector: float
    squares: float

    @property
    def opposition(self) -> float:
        """Bound on how far two rows' contributions oppose each other, see ``RowSum``.

        Privacy: with ``a = sqrt(f s) z / sqrt(L)``, ``t = <a, a'>`` and ``r = sqrt(s s') u u'``,
        both in [-1, 1], two contributions have the inner product ``matrix t^2 + vector g t r +
        squares r^2`` in units of their bound, where ``g = sqrt(f f')`` is at most 1. As a function
        of ``(|t|, |r|)`` it is homogeneous, so if it is negative anywhere it has its least value
        where one of them is 1. Without a matrix the vector's part is at least ``-vector``.
        """
        if self.matrix == 0.0:
            return self.vector
        least = least_product(self.vector, self.matrix) - self.squares
        other = least_product(self.vector, self.squares) - self.matrix
        return max(0.0, least, other)


def weighted_moments(
    spec: DataSpec, view: LinearView, shares: MomentShares, row_by_row: bool
) -> Kernel:
    """Return the kernel that sums what ``MomentSums`` holds, each part in units of its bound.

    Privacy: with ``L = cap + level^2``, ``f s |z|^2 <= L`` and f, s and ``|u|`` are at most 1, so
    ``s f z z^T / L``, ``s f u z / sqrt(L)`` and ``s u^2`` are no longer than 1, for every row and
    whatever the view is. Without a matrix the score is ``q z / sqrt(L)``, q the residual over
    ``reach`` times s, clipped to ``|q| <= sqrt(L) / |z|``: no longer than 1 either. With the square
    roots of their shares as factors, and the weight bound, a row contributes at most
    ``spec.weight_bound``. f and the bound on q have a margin for the error of the computed norm.
    """
    size = view.vectors.shape[1]
    scale = 1.0 / math.sqrt(view.longest)

    def block_sum(block: Block) -> Array:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        q = residuals_of(block, spec, view, z) / view.reach
        u = xp.clip(q, -1.0, 1.0)
        weights = float_weights(block)
        z = scale * z
        parts = []
        if shares.matrix > 0.0:
            products = products_of(block, f * weights, xp.concat([z, u[:, None]], axis=1))
            parts.append(math.sqrt(shares.matrix) * pack_symmetric(products[..., :size, :size]))
            vector = products[..., :size, size]
        else:
            lengths = xp.sqrt(xp.sum(z * z, axis=1))
            most = norm_margin(size) / xp.clip(lengths, _SHORTEST, math.inf)
            q = xp.clip(q * weights / spec.weight_bound, -most, most)
            vector = spec.weight_bound * sum_of(block, q, z)
        parts.append(math.sqrt(shares.vector) * vector)
        squares = sum_of(block, u * weights, u[:, None])
        parts.append(math.sqrt(shares.squares) * squares)
        return cast("Array", xp.concat(parts, axis=-1))

    return AnyArrays(block_sum, apart=True)


def moment_sum(data: DataSpec, shares: MomentShares) -> RowSum:
    """Sum of ``weighted_moments``."""
    name, size = "clipped score and squared residuals", data.n_columns + 1
    if shares.matrix > 0.0:
        name, size = "second moments, score and squared residuals", size + n_symmetric(size - 1)
    return RowSum(name, size, opposition=shares.opposition)


def noisy_weighted_moments(
    oracle: Oracle, declared: SumRelease, view: LinearView, shares: MomentShares
) -> MomentSums:
    """Release weighted second moments, score and squared residuals, in their own units.

    The matrix is symmetric and may have negative eigenvalues; without one it is zero.
    """
    spec = oracle.rows.spec
    kernel = weighted_moments(spec, view, shares, not oracle.places_are_fixed)
    values = moment_sum(spec, shares).noisy(oracle, declared, kernel)
    units = (
        view.longest / math.sqrt(shares.matrix) if shares.matrix > 0.0 else 0.0,
        math.sqrt(view.longest / shares.vector) * view.reach,
        view.reach**2 / math.sqrt(shares.squares),
        0.0,
    )
    return _in_units(values, view.vectors.shape[1], declared.noise_std, units)


# Bounded sums of curvature, scores and their second moments, for one step and its covariance.


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
        """Bound on how far two rows' contributions oppose each other, see ``RowSum``.

        Privacy: with ``t = <h, h'>``, in [-1, 1], the inner product of two contributions of weight
        1 is at least ``vector t + (squares + products) t^2``, as ``|h|^2 |h'|^2 >= t^2``.
        """
        return least_product(self.vector, self.squares + self.products)


def score_sums(
    spec: DataSpec, view: LinearView, shares: ScoreShares, columns: Array, row_by_row: bool
) -> Kernel:
    """Return the kernel that sums what ``MomentSums`` holds, each part in units of its bound.

    The slack of a row's contribution has s times ``limits_of`` it, u the product of z and
    ``columns``.

    Privacy: with ``L = cap + level^2``, ``f s |z|^2 / L`` is at most 1, and h is clipped to the
    length 1, in units of its bound, with a margin for the error of its computed length. So
    ``s f z z^T / L``, h, ``|h|^2`` and ``h h^T`` are no longer than 1, whatever the view is; times
    the weight bound and the square roots of their shares, a row contributes at most that bound.
    Scores of a group are added up before they are multiplied, and divided by their bound: the whole
    contribution of a group is clipped to the declared bound.
    """
    size = view.vectors.shape[1]
    scale = 1.0 / math.sqrt(view.longest)

    def block_sum(block: Block) -> Array:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        weights, heaviest = float_weights(block), spec.weight_bound
        q = f * residuals_of(block, spec, view, z) / view.reach * (weights / heaviest)
        z = scale * z
        lengths = xp.sqrt(xp.sum(z * z, axis=1))
        most = norm_margin(size) / xp.clip(lengths, _SHORTEST, math.inf)
        kept, q = xp.abs(q) < most, xp.clip(q, -most, most)
        vector = heaviest * sum_of(block, q, z)
        squares = sum_of(block, (q * lengths) ** 2, xp.ones_like(z[:, :1]))
        parts = [
            math.sqrt(shares.matrix) * pack_symmetric(products_of(block, f * weights, z)),
            math.sqrt(shares.vector) * vector,
            math.sqrt(shares.squares) * heaviest * squares,
        ]
        if shares.products > 0.0:
            if spec.groups is None:
                own = heaviest * products_of(block, q * q, z)
            else:
                own = vector[..., :, None] * vector[..., None, :] / spec.unit_weight
            parts.append(math.sqrt(shares.products) * pack_symmetric(own))
        h = (q * lengths) ** 2
        share = xp.ones_like(f) * weights / heaviest
        norms = shares.matrix * (share * f * lengths**2) ** 2
        norms = norms + (shares.vector + (shares.squares + shares.products) * h) * h
        product = row_by_row_product if row_by_row else operator.matmul
        met = limits_of(f / norm_margin(size), product(z, like(z, columns)), kept)
        met = slack_of_row(spec, norms, share[:, None] * met)
        met = sum_of(block, heaviest * xp.ones_like(f), met)
        return cast("Array", sums_and_slack(spec, xp.concat(parts, axis=-1), met))

    return AnyArrays(block_sum, apart=True)


def score_moment_sum(data: DataSpec, shares: ScoreShares) -> RowSum:
    """Sum of ``score_sums``."""
    of_scores = "second moments" if shares.products > 0.0 else "squared lengths"
    size, n_matrices = data.n_columns, 1 + (shares.products > 0.0)
    sums = RowSum(
        f"second moments, and scores with their {of_scores}",
        n_matrices * n_symmetric(size) + size + 1,
        opposition=shares.opposition,
    )
    return sums.with_slack(n_limits(data))


def noisy_score_sums(
    oracle: Oracle, declared: SumRelease, view: LinearView, shares: ScoreShares, columns: Array
) -> tuple[MomentSums, Array, Array]:
    """Release curvature, scores and their second moments, in their own units.

    Matrices are symmetric and may have negative eigenvalues. Also returned is on how many rows the
    weights bind, as from ``read_limits``.
    """
    spec = oracle.rows.spec
    kernel = score_sums(spec, view, shares, columns, not oracle.places_are_fixed)
    values = score_moment_sum(spec, shares).noisy(oracle, declared, kernel)
    values, met = np.split(values, [-n_limits(spec)])
    square = view.reach**2 * view.longest
    units = (
        view.longest / math.sqrt(shares.matrix),
        math.sqrt(square / shares.vector),
        square * spec.weight_bound / math.sqrt(shares.squares),
        square * spec.unit_weight / math.sqrt(shares.products) if shares.products > 0.0 else 0.0,
    )
    sums = _in_units(values, view.vectors.shape[1], declared.noise_std, units)
    return sums, *read_limits(spec, met, declared.noise_std)


# Counts of rows by size: of a coordinate, of the row, of its score.

N_ENTRY_SIZES, SIZE_RATIO = 16, math.sqrt(2.0)
"""Entries of a row are counted by size: below 1, and in shells with ends that grow by the ratio."""
N_SHELLS = 32
"""Number of shells. Scores within the first are not counted; the last is unbounded."""


@final
@dataclass(frozen=True)
class Shells:
    """Public shells: the k-th begins at ``first * ratio**k``."""

    first: float
    ratio: float

    def start(self, k: int) -> float:
        """Norm where a shell begins."""
        return self.first * self.ratio**k

    def of(self, sizes: Any, count: int) -> Any:
        """Return for each size the indicator of its shell, none for sizes within the first."""
        xp = namespace(sizes)
        ratios = xp.clip(sizes / self.first, _SHORTEST, math.inf)
        places = xp.clip(xp.floor(xp.log2(ratios) / math.log2(self.ratio)), -1.0, count - 1.0)
        indices = xp.arange(count, dtype=xp.float64, device=sizes.device)
        return xp.asarray(places[..., None] == indices, dtype=xp.float64)


def size_sum(n_columns: int) -> RowSum:
    """Return the sum of counts of entries by size, for some columns.

    Privacy: a row adds its weight to at most one shell of each column; no count is negative.
    """
    size, bound = n_columns * N_ENTRY_SIZES, math.sqrt(n_columns)
    return RowSum("counts of large entries", size, bound, directions=1, opposition=0.0)


def noisy_sizes(
    oracle: Oracle, declared: SumRelease, view: LinearView, columns: NDArray[np.intp]
) -> Array:
    """Release the weight of rows by the size of some coordinates: (n_columns, N_ENTRY_SIZES)."""
    spec, row_by_row = oracle.rows.spec, not oracle.places_are_fixed

    def counted(block: Block) -> Array:
        z, _ = coordinates_of(block, spec, view, row_by_row)
        xp = namespace(z)
        found = Shells(1.0, SIZE_RATIO).of(xp.abs(z[:, columns]), N_ENTRY_SIZES)
        return cast("Array", xp.reshape(found, (len(z), -1)))

    found = size_sum(len(columns)).noisy(oracle, declared, sum_over_rows(counted))
    return found.reshape(len(columns), N_ENTRY_SIZES)


ROW_LENGTHS = RowSum("counts of long rows", N_SHELLS, directions=1, opposition=0.0)
"""A row adds its weight to at most one shell, whatever the view and the shells are."""


def noisy_lengths(oracle: Oracle, declared: SumRelease, view: LinearView, shells: Shells) -> Array:
    """Release the weight of the rows in each shell of squared lengths, of shape (N_SHELLS,)."""
    spec, row_by_row = oracle.rows.spec, not oracle.places_are_fixed

    def counted(block: Block) -> Array:
        _, squares = coordinates_of(block, spec, view, row_by_row)
        return cast("Array", shells.of(squares, N_SHELLS))

    return ROW_LENGTHS.noisy(oracle, declared, sum_over_rows(counted))


SHELL_COUNTS = RowSum("counts of long scores", N_SHELLS, directions=1, opposition=0.0)
"""A row adds the weight bound to at most one shell, whatever the view and the shells are."""


def shell_counts(spec: DataSpec, view: LinearView, shells: Shells, row_by_row: bool) -> Kernel:
    """Return the kernel that counts rows by the norm of ``f s r z``, r not clipped or divided."""

    def block_sum(block: Block) -> Array:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        s = xp.ones_like(f) * float_weights(block) / spec.weight_bound
        sizes = f * xp.abs(residuals_of(block, spec, view, z)) * xp.sqrt(xp.sum(z * z, axis=1))
        one = spec.weight_bound * xp.asarray(s > 0.0, dtype=xp.float64)
        return cast("Array", sum_of(block, one, shells.of(s * sizes, N_SHELLS)))

    return AnyArrays(block_sum, apart=True)


def noisy_shell_counts(
    oracle: Oracle, declared: SumRelease, view: LinearView, shells: Shells
) -> Array:
    """Release the rows with scores in each shell, times the weight bound: (N_SHELLS,)."""
    kernel = shell_counts(oracle.rows.spec, view, shells, not oracle.places_are_fixed)
    return SHELL_COUNTS.noisy(oracle, declared, kernel)


# Second moments of rows.


def table_moment_sum(data: DataSpec) -> RowSum:
    """Return the sum of weighted second moments.

    Privacy: ``<z z^T, y y^T> = <z, y>^2`` is not negative.
    """
    size = data.n_columns
    return RowSum("second moments of columns", n_symmetric(size), directions=size, opposition=0.0)


def noisy_moments(oracle: Oracle, declared: SumRelease, view: LinearView) -> tuple[Array, float]:
    """Release ``sum f z z^T``, and return it with the standard deviation of its diagonal's noise.

    Entries off the diagonal have ``1 / sqrt(2)`` of it. Eigenvalues may be negative.

    Privacy: ``f s |z|^2 <= longest`` for every row, whatever the view is, so in units of
    ``longest`` a row contributes at most the weight bound.
    """
    spec, row_by_row = oracle.rows.spec, not oracle.places_are_fixed

    def block_sum(block: Block) -> Array:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        factors = f * float_weights(block) / view.longest
        return pack_symmetric(products_of(block, factors, z))

    sums = table_moment_sum(spec)
    values = sums.noisy(oracle, declared, AnyArrays(block_sum, apart=True))
    found = view.longest * unpack_symmetric(values, view.vectors.shape[1])
    return found, view.longest * declared.noise_std
