"""A noisy count of rows, where their number is private, and the share with which each counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpglm._validation import Array, check_integer, check_real, namespace
from dpglm.data.prepare import row_lengths
from dpglm.data.rows import AnyArrays, Block, DataSpec, Floats, Kernel, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import beside_constant, constant_column, crossed_of, float_weights
from dpglm.oracle.rounding import MOST_ROWS, RowSum, norm_margin
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.events import Event
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Release, SumRelease

# Standard deviations that noise exceeds with a probability below any float: Phi(-40) < 1e-349.
_FARTHEST = 40.0
# Covers the rounding of shares.
_LESS = 1.0 - 2.0**-18


@final
@dataclass(frozen=True)
class CountedRows:
    """A noisy number of rows, and the weight (the share) with which each row then counts.

    Up to ``usual`` rows count in full; ``noise_multiplier`` is the standard deviation of the
    noise.

    Privacy: ``Gaussian(noise_multiplier)``, for a relation under which the number of rows is
    private: one row changes it by 1. The share is post-processing of the noisy number and at most
    1, so a row weighted by it contributes no more than one that counts in full.
    """

    usual: int
    noise_multiplier: float

    @property
    def event(self) -> Event:
        """Privacy cost of the number."""
        return self.release.event

    @property
    def most(self) -> int:
        """Bound on the number of rows times their share.

        It fails only if the noise is below -40 standard deviations. With at most ``usual`` rows
        the share is 1 unless the noise is above 40 standard deviations.
        """
        wanted = self.usual + 2.0 * _FARTHEST * self.noise_multiplier
        return min(math.ceil(wanted), MOST_ROWS)

    @property
    def release(self) -> SumRelease:
        """The release of the number."""
        return Release(
            "number of rows",
            GaussianNoise(self.noise_multiplier),
            Adjacency.ADD_REMOVE,
            1.0,
            magnitude=2.0 * MOST_ROWS,
        )

    def share(self, oracle: Oracle) -> float:
        """Release the number of rows and return each row's share, at most 1."""

        def kernel(rows: Rows) -> Array:
            return np.array([float(min(rows.n_rows, MOST_ROWS))])

        noisy = float(oracle.noisy_sum(self.release, kernel, 1.0)[0])
        largest = noisy + _FARTHEST * self.noise_multiplier
        return min(1.0, _LESS * self.most / max(largest, 1.0))


def shrinking_share(n_rows: int, most: int) -> float:
    """Share of each row that falls with the true (private) number of rows, for pure privacy.

    It is ``1 - n / (4 most)`` up to ``2 most`` rows and ``most / n`` beyond, less a relative
    ``2^-18``.

    Privacy: let G be a sum over n rows of vectors no longer than C, c the share for n rows and c'
    that for n + 1. One row more moves ``c G`` to ``c' (G + g)``, by at most ``c' C + (c - c') n
    C``. Up to 2 most rows that is ``(1 - 1 / (4 most)) C``, beyond ``2 most C / (n + 1)``, so at
    most C throughout. Rounding of shares adds at most ``2^-52 n C`` times the share, which is
    below ``2^-20 C`` for ``most`` up to ``MOST_ROWS``; the ``2^-18`` covers it.
    """
    exact = 1.0 - n_rows / (4.0 * most) if n_rows <= 2 * most else most / n_rows
    return _LESS * exact


# Bounded sums of the rows of each class, and their numbers, in one release.


def class_sums(spec: DataSpec) -> Kernel:
    """Return the kernel that sums the rows, with a constant, of each class, in units of the bound.

    Privacy: a row enters the sum of one class only, so with R the row norm and c the constant it
    contributes at most its weight times ``|(x, c)| / sqrt(R^2 + c^2)``, whatever the number of
    classes is; longer rows are scaled down, with a margin for the error of the computed norm.
    """
    constant, margin = constant_column(spec), norm_margin(spec.n_features + 1)
    longest = math.hypot(spec.row_norm, constant)

    def block_sum(block: Block) -> Array:
        rows = beside_constant(block, constant)
        xp = namespace(rows)
        lengths = xp.sqrt((rows * rows).sum(axis=1))
        factors = margin / xp.maximum(lengths, xp.full_like(lengths, longest))
        labels = xp.arange(spec.n_outputs, device=rows.device)
        chosen = xp.asarray(block.targets[:, None] == labels, dtype=rows.dtype)
        factors = factors * float_weights(block)
        sums = crossed_of(block, chosen * factors[:, None], rows)
        flat: Array = xp.reshape(sums, (*sums.shape[:-2], -1))
        return flat

    return AnyArrays(block_sum, apart=True)


def class_sum(data: DataSpec) -> RowSum:
    """Sum of ``class_sums``."""
    return RowSum("sums and counts of classes", (data.n_features + 1) * data.n_outputs)


def noisy_class_sums(oracle: Oracle, declared: SumRelease) -> tuple[Array, Array]:
    """Release sums of rows, of shape (K, n_features), and weights, of shape (K,), of K classes.

    In units of the longest row with its constant, and of the constant over it.
    """
    spec = oracle.rows.spec
    values = class_sum(spec).noisy(oracle, declared, class_sums(spec))
    sums = values.reshape(spec.n_outputs, spec.n_features + 1)
    return sums[:, :-1], sums[:, -1]


# Bounded sums of rows, as they are or around a public point, released as noisy means.


def row_sum(data: DataSpec) -> RowSum:
    """Sum of the rows, without their intercept column.

    Privacy: the norm of a prepared row is at most ``data.row_norm``. A row counts once, or not at
    all (``counted``). ``sum_rounding`` covers the error of the computed row norm.
    """
    return RowSum("row sum", data.n_features, data.row_norm, weighted=False, directions=1)


def noisy_mean(oracle: Oracle, declared: SumRelease) -> Array:
    """Release the mean of the rows, without their intercept column, of shape (n_features,).

    Sun et al. 2023, Algorithm 3, where the noise lacks the factor 1/n.
    """
    spec = oracle.rows.spec

    def block_sum(block: Block) -> Array:
        return block.weighted_sum(counted(block))[: spec.n_features]

    return row_sum(spec).noisy(oracle, declared, AnyArrays(block_sum)) / spec.n_rows


def rows_in_radii(data: DataSpec) -> RowSum:
    """Sum of rows around a point, in units of a radius.

    Privacy: each ``(x - center) / radius`` is clipped to the norm 1, with a margin for the error of
    its computed norm, so a row contributes at most 1 for every center and radius. A row counts
    once, or not at all (``counted``).
    """
    return RowSum("row sum in radii", data.n_features, weighted=False)


def noisy_clipped_mean(oracle: Oracle, declared: SumRelease, center: Array, radius: float) -> Array:
    """Release the mean of the rows, each moved to within a public radius of a public center."""
    spec = oracle.rows.spec
    margin = norm_margin(spec.n_features)

    def block_sum(block: Block) -> Array:
        z = centered_rows(block, center)
        z *= (margin / np.maximum(row_lengths(z), radius) * counted(block))[:, np.newaxis]
        total: Array = z.sum(axis=0)
        return total

    mean = rows_in_radii(spec).noisy(oracle, declared, block_sum) / spec.n_rows
    return np.asarray(center + radius * mean)


def counted(block: Block) -> Floats:
    """Return 1 for each row of a block, but 0 for rows of weight 0, which are erased. Private.

    For sums, counts and ranks that leave weights out otherwise.

    Privacy: a factor of 0 or 1 that depends on its own row alone leaves every bound as it is, and
    erasing a row removes all that it contributes, whatever an earlier step made of it.
    """
    ones: Floats = namespace(block.norms).ones_like(block.norms)
    return ones if block.weights is None else ones * (block.weights > 0.0)


def centered_rows(block: Block, center: Array) -> Array:
    """Subtract a public point from the rows of a block, in float64. Private."""
    # Row after row in memory, so that sums over a row do not depend on where it stands.
    return block.features().astype(np.float64, order="C") - center


# Counts of rows in cells, and sums of their numbers there, and their joint release.


@final
@dataclass(frozen=True)
class Cells:
    """A table of cells, and the amount that a row adds to its one cell.

    The cell is at the whole numbers in ``columns`` of the row, each clipped to its range, from 0 to
    the size less 1; of no columns there is one cell. A row adds 1, or the product of the numbers in
    the columns ``values``, each clipped to [-1, 1] and all to [-bound, bound]; times ``weight``.
    """

    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    weight: float = 1.0
    values: tuple[int, ...] = ()
    bound: float = 1.0

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.sizes):
            raise ValueError(f"sizes must be as many as columns, got {self.sizes!r}")
        for name in ("columns", "sizes", "values"):
            for value in getattr(self, name):
                check_integer(name, value, least=int(name == "sizes"))
        check_real("weight", self.weight, above=0.0)
        check_real("bound", self.bound, above=0.0, most=1.0)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.sizes)

    @property
    def reach(self) -> float:
        """The most that one row adds to its cell, in magnitude."""
        return self.weight * (self.bound if self.values else 1.0)

    @property
    def is_signed(self) -> bool:
        """Whether a row may add less than 0: products of squares are never negative."""
        return any(self.values.count(value) % 2 for value in self.values)

    def sums(self, X: Array, weights: Any = None, starts: Any = None) -> Array:
        """Add up rows, each times a weight of its own, not times ``weight``; shape (size,).

        With ``starts``, add up each group by itself: shape (n_groups, size). Private.
        """
        place = np.zeros(len(X), np.intp)
        for column, size in zip(self.columns, self.sizes, strict=True):
            place = place * size + np.clip(np.rint(X[:, column]), 0, size - 1).astype(np.intp)
        added = np.ones(len(X))
        if self.values:
            factors = np.clip(X[:, list(self.values)], -1.0, 1.0)
            added = np.clip(factors.prod(axis=1), -self.bound, self.bound)
        if weights is not None:
            added = added * weights
        ends = [0, len(X)] if starts is None else starts
        place += self.size * np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        found = np.asarray(np.bincount(place, added, self.size * (len(ends) - 1)), np.float64)
        return found if starts is None else found.reshape(-1, self.size)


def noisy_tables(
    oracle: Oracle,
    declared: SumRelease,
    tables: tuple[Cells, ...],
    recoded: Callable[[Array], Array] | None = None,
) -> Array:
    """Release all cells of all tables, one after the other, weights included.

    ``recoded`` changes rows first, each by itself.

    Privacy: ``declared.event``. Counts are whole numbers, which add up without rounding.
    """
    weights = np.repeat([table.weight for table in tables], [table.size for table in tables])

    def block_sums(block: Block) -> Array:
        X = np.asarray(block.features(), np.float64)
        X = X if recoded is None else recoded(X)
        found = [table.sums(X, block.weights, block.starts) for table in tables]
        return np.concatenate(found, axis=-1)

    sums = table_sum(tables)
    if oracle.rows.unit is Unit.GROUP:
        # The contributions of groups are clipped with their weights.
        kernel = AnyArrays(lambda block: weights * block_sums(block), apart=True)
        return sums.noisy(oracle, declared, kernel)
    size, bound = (sums.size,), sums.of_row(oracle.rows.spec)
    return oracle.noisy_sum(declared, lambda rows: weights * rows.sum(block_sums, size), bound)


def table_sum(tables: tuple[Cells, ...]) -> RowSum:
    """Cells of all tables.

    Privacy: a row adds at most ``reach`` to one cell of each table, times its own weight. Only
    tables with signs add less than 0 to the inner product of two contributions, each at most the
    square of its ``reach``.
    """
    squares = math.fsum(table.reach**2 for table in tables)
    signed = math.fsum(table.reach**2 for table in tables if table.is_signed)
    size = sum(table.size for table in tables)
    opposition = min(1.0, signed / squares)
    return RowSum("weighted tables", size, math.sqrt(squares), directions=1, opposition=opposition)
