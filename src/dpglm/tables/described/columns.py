"""Columns of a table as cells that count its rows: intervals of numbers, levels of categories."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._words import plain_number
from dpglm.tables.cells import Entry, Vocabulary, as_cells, as_numbers, is_missing

__all__ = ["MISSING", "NOT_LISTED", "CountedColumn", "LevelCells", "NumberCells"]

MISSING, NOT_LISTED = "missing", "not listed"
"""Labels of cells beside a column's own."""

_Floats = NDArray[np.float64]


class CountedColumn(abc.ABC):
    """A column whose rows are counted in cells, each row in one; final subclasses below.

    A row becomes ``width`` numbers: its cell; its part of that cell, where cells are divided; and,
    where the column is a number x within [-1, 1], x and x^2 - 1/2, both 0 for a missing value.
    """

    name: str
    is_target: bool
    n_parts: int
    """Number of parts of a cell that is divided; 1 where none is."""
    is_number: bool
    """Whether rows are numbers x within [-1, 1]."""

    @property
    @abc.abstractmethod
    def labels(self) -> tuple[str, ...]:
        """What the cells are called, in order."""

    @abc.abstractmethod
    def encode(self, values: ArrayLike, out: _Floats) -> None:
        """Write the numbers of each row into ``out``, zeros of shape (n, width).

        Privacy: each row is encoded by itself.
        """

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.labels)

    @property
    def n_bins(self) -> int:
        """Number of bins, which are cells of their own, and divided; 0 for categories."""
        return 0

    @property
    def bins(self) -> slice:
        """Where the bins are among the cells; what comes before is at or below the low bound."""
        return slice(0, 0)

    @property
    @abc.abstractmethod
    def own(self) -> slice:
        """Where the bins or levels are among the cells, beside what the schema does not list."""

    @property
    def part_edges(self) -> _Floats:
        """Edges of the parts of all bins, of shape (n_bins * n_parts + 1,)."""
        return np.empty(0)

    @property
    def divided(self) -> NDArray[np.bool_]:
        """Of each cell, whether it is divided into ``n_parts``."""
        divided = np.zeros(self.n_cells, bool)
        divided[self.bins] = True
        return divided

    @property
    def missing(self) -> int | None:
        """Number of the cell of missing values, if it is not one of the levels."""
        return self.labels.index(MISSING) if self.labels[-1] == MISSING else None

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return 1 + (self.n_parts > 1) + 2 * self.is_number

    @property
    def center(self) -> float:
        """The column's value where x is 0."""
        return 0.0

    @property
    def half_range(self) -> float:
        """The change of the column's value as x grows by 1."""
        return 1.0


@final
@dataclass(frozen=True)
class NumberCells(CountedColumn):
    """Numbers: bins from the low to the high bound, and what is below, above or missing.

    A bin holds its lower edge; the last one its upper edge, too. Each is divided into ``n_parts``.
    ``whole`` numbers have bins of whole numbers; others a cell for what equals the low bound, where
    amounts are often heaped.
    """

    name: str
    edges: tuple[float, ...]
    n_parts: int
    whole: bool = False
    is_target: bool = False

    is_number = True

    @property
    def n_bins(self) -> int:
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        low, high = plain_number(self.edges[0], 6), plain_number(self.edges[-1], 6)
        before = (f"below {low}",) if self.whole else (f"below {low}", f"exactly {low}")
        bins = map(self._bin_in_words, range(self.n_bins))
        return (*before, *bins, f"above {high}", MISSING)

    @property
    def bins(self) -> slice:
        first = 1 if self.whole else 2
        return slice(first, first + self.n_bins)

    @property
    def own(self) -> slice:
        return self.bins

    def _bin_in_words(self, place: int) -> str:
        low, high = self.edges[place : place + 2]
        if self.whole:
            last = math.ceil(high) - (place + 1 < self.n_bins)
            return f"{low:.0f}" if last <= low else f"{low:.0f} to {last:.0f}"
        return f"{plain_number(low, 6)} to {plain_number(high, 6)}"

    @property
    def center(self) -> float:
        return 0.5 * self.edges[0] + 0.5 * self.edges[-1]

    @property
    def half_range(self) -> float:
        return 0.5 * self.edges[-1] - 0.5 * self.edges[0]

    @property
    def part_edges(self) -> _Floats:
        edges = np.asarray(self.edges)
        inner = edges[:-1, None] + np.diff(edges)[:, None] * (
            np.arange(self.n_parts) / self.n_parts
        )
        return np.append(inner.ravel(), edges[-1])

    def encode(self, values: ArrayLike, out: _Floats) -> None:
        numbers = as_numbers(values, f"column {self.name!r}", math.nan)
        gaps = np.isnan(numbers)
        edges = self.part_edges
        place = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
        bins, parts = np.divmod(place, self.n_parts)
        ends = numbers < edges[0], numbers > edges[-1], gaps
        first, after = self.bins.start, self.bins.stop
        out[:, 0] = np.select(ends, (0, after, after + 1), first + bins)
        inside = ~np.logical_or.reduce(ends)
        if not self.whole:
            exactly = numbers == edges[0]
            out[exactly, 0] = 1
            inside &= ~exactly
        if self.n_parts > 1:
            out[:, 1] = np.where(inside, parts, 0)
        x = np.clip((numbers - self.center) / self.half_range, -1.0, 1.0)
        out[:, -2] = np.where(gaps, 0.0, x)
        out[:, -1] = np.where(gaps, 0.0, x * x - 0.5)


@final
@dataclass(frozen=True)
class LevelCells(CountedColumn):
    """Categories: a cell for each, for values that are not listed, and for missing ones.

    Where the schema has a category for all that is not listed, ``other``, such values count there.
    The first of two levels counts as the number -1, the second as 1.
    """

    name: str
    levels: tuple[Entry, ...]
    other: Entry | None = None
    is_target: bool = False

    n_parts = 1

    @property
    def labels(self) -> tuple[str, ...]:
        own = tuple(MISSING if level == "" else str(level) for level in self.levels)
        return (
            *own,
            *(() if self.other is not None else (NOT_LISTED,)),
            *(() if "" in self.levels else (MISSING,)),
        )

    @property
    def own(self) -> slice:
        return slice(0, len(self.levels))

    @property
    def missing(self) -> int | None:
        return None if "" in self.levels else self.n_cells - 1

    @property
    def is_number(self) -> bool:  # type: ignore[override]
        """Whether there are two levels, which count as -1 and 1."""
        return len(self.levels) == 2 and "" not in self.levels

    def encode(self, values: ArrayLike, out: _Floats) -> None:
        what, n = f"column {self.name!r}", len(self.levels)
        cells = as_cells(values, what)
        found = Vocabulary(self.levels).positions(cells, what, "", n)
        unknown = np.flatnonzero(found == n)
        if unknown.size:
            gaps = np.array([is_missing(cell) for cell in cells[unknown].tolist()])
            other = n if self.other is None else self.levels.index(self.other)
            found[unknown] = np.where(gaps, self.n_cells - 1, other)
        out[:, 0] = found
        if self.is_number:
            listed = found < n
            out[:, -2] = np.where(listed, 2.0 * found - 1.0, 0.0)
            out[:, -1] = np.where(listed, 0.5, 0.0)
