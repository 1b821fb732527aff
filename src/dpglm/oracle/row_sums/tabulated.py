"""Counts of rows in cells, and sums of their numbers there, and their joint release."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.data.rows import Block
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["Cells", "noisy_tables", "table_release"]


@final
@dataclass(frozen=True)
class Cells:
    """A table of cells, of which each row is in one, and what a row adds to its cell.

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

    def sums(
        self, X: NDArray[np.float64], weights: NDArray[np.floating[Any]] | None = None
    ) -> NDArray[np.float64]:
        """Add up rows, each times a weight of its own, not times ``weight``; shape (size,).

        Private.
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
        return np.asarray(np.bincount(place, added, self.size), np.float64)


def table_release(
    data: DataSpec,
    adjacency: Adjacency,
    mechanism: SumMechanism,
    tables: tuple[Cells, ...],
    count: int = 1,
) -> SumRelease:
    """Declare the joint release of tables, ``count`` times.

    Privacy: a row adds at most ``reach`` to one cell of each table, times its own weight, so that
    its contribution is at most the square root of the sum of their squares long, times the bound on
    weights. Only tables with signs add less than 0 to the inner product of two contributions, each
    at most the square of its ``reach``.
    """
    signed = math.fsum(table.reach**2 for table in tables if table.is_signed)
    return sum_release(
        "weighted tables",
        data,
        adjacency,
        mechanism,
        bound=_bound(tables) * data.weight_bound,
        coordinates=sum(table.size for table in tables),
        count=count,
        directions=1,
        opposition=min(1.0, signed / math.fsum(table.reach**2 for table in tables)),
    )


def noisy_tables(
    oracle: Oracle,
    declared: SumRelease,
    tables: tuple[Cells, ...],
    recoded: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
) -> NDArray[np.float64]:
    """Release all cells of all tables, one after the other, weights included.

    ``recoded`` changes rows first, each by itself.

    Privacy: ``declared.event``. Counts are whole numbers, which add up without rounding.
    """
    weights = np.repeat([table.weight for table in tables], [table.size for table in tables])

    def block_sums(block: Block) -> NDArray[np.float64]:
        X = np.asarray(block.features(), np.float64)
        X = X if recoded is None else recoded(X)
        return np.concatenate([table.sums(X, block.weights) for table in tables])

    bound = _bound(tables) * oracle.rows.spec.weight_bound
    if oracle.rows.unit is Unit.GROUP:
        # Groups are held to the bound on what they contribute, weights included.
        weighted = oracle.over_blocks(lambda block: weights * block_sums(block), weights.size)
        return oracle.noisy_sum(declared, weighted, bound)
    over_blocks = oracle.over_blocks(block_sums, weights.size)
    return oracle.noisy_sum(declared, lambda rows: weights * over_blocks(rows), bound)


def _bound(tables: tuple[Cells, ...]) -> float:
    return math.sqrt(math.fsum(table.reach**2 for table in tables))
