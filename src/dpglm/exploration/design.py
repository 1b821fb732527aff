"""Which tables describe a data set, and how one budget is divided between them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.row_sums.tabulated import Cells
from dpglm.tables.described.columns import CountedColumn
from dpglm.tables.described.encoder import CellEncoder

__all__ = ["Design", "Key", "Pair", "Part", "design_of"]

Pair: TypeAlias = tuple[str, str]
"""Names of two columns."""
Key: TypeAlias = tuple[str, ...]
"""What a part is about: its kind, and the names of the columns."""

COUNTS, PARTS, NUMBERS, SQUARES, PRODUCTS = "counts", "parts", "numbers", "squares", "products"
"""Kinds of parts: cells of one or two columns, parts of cells, sums of x, x^2 - 1/2 and x x'."""


@final
@dataclass(frozen=True)
class Part:
    """One table of a design, with what it is for.

    ``worth`` is how many times the variance of one cell enters the sum that the division of the
    budget makes least.
    """

    key: Key
    cells: Cells
    worth: float


@final
@dataclass(frozen=True, eq=False)
class Design:
    """All tables, with their weights: a row's contributions have a joint length of 1 at most.

    Of a column's numbers there are, all by the levels of ``by`` where that is given: counts in its
    cells, counts in their parts, and sums.
    """

    encoder: CellEncoder
    by: str | None
    two_way: tuple[Pair, ...]
    correlations: tuple[Pair, ...]
    parts: tuple[Part, ...]

    @property
    def tables(self) -> tuple[Cells, ...]:
        """The tables in the order of their release."""
        return tuple(part.cells for part in self.parts)

    @property
    def described(self) -> tuple[CountedColumn, ...]:
        """The columns that are described, which ``by`` is not."""
        return tuple(one for one in self.encoder.columns if one.name != self.by)

    @property
    def n_levels(self) -> int:
        """Number of groups: cells of ``by``; 1 without."""
        return 1 if self.by is None else self.encoder[self.by].n_cells

    @functools.cached_property
    def _slices(self) -> Mapping[Key, tuple[slice, Cells]]:
        ends = np.cumsum([part.cells.size for part in self.parts]).tolist()
        return {
            part.key: (slice(end - part.cells.size, end), part.cells)
            for part, end in zip(self.parts, ends, strict=True)
        }

    def has(self, *key: str) -> bool:
        """Say whether there is a part of this kind about these columns."""
        return key in self._slices

    def read(self, released: NDArray[np.float64], *key: str) -> NDArray[np.float64]:
        """Return a part of what was released, without its weight.

        Of shape (n_levels, ...): the cells of the columns, then parts; groups have a shape of
        (n_levels,).
        """
        where, cells = self._slices[key]
        shape = cells.sizes if self.by is not None else (1, *cells.sizes)
        return released[where].reshape(shape) / cells.weight

    def variance(self, noise_std: float, *key: str) -> float:
        """Return the variance of each cell of a part, for noise of that standard deviation."""
        return (noise_std / self._slices[key][1].weight) ** 2


def design_of(
    encoder: CellEncoder,
    two_way: Iterable[Pair],
    correlations: Iterable[Pair] | bool,
    by: str | None,
) -> Design:
    """Choose the tables; a ValueError names the argument that is wrong.

    Weights make the sum of the parts' variances least, each times its worth: with reach r and
    worth v of a part, its share of the budget, w^2 r^2, is in proportion to r sqrt(v).
    """
    if by is not None and encoder[by].n_bins:
        raise ValueError(f"by must name a column of categories, got {by!r}, which is numeric")
    if by is not None and len(encoder.columns) == 1:
        raise ValueError("columns must name a column besides that of by=")
    pairs = _pairs("two_way", two_way, encoder, by)
    related = _related(correlations, encoder, by)
    raw = list(_raw_parts(encoder, by, pairs, related))
    root_worths = [one.cells.reach * math.sqrt(one.worth) for one in raw]
    total = math.fsum(root_worths)
    weighted = (
        Part(one.key, _weighing(one.cells, math.sqrt(root / total) / one.cells.reach), one.worth)
        for one, root in zip(raw, root_worths, strict=True)
    )
    return Design(encoder, by, pairs, related, tuple(weighted))


def _weighing(cells: Cells, weight: float) -> Cells:
    return Cells(cells.columns, cells.sizes, weight, cells.values, cells.bound)


def _raw_parts(
    encoder: CellEncoder, by: str | None, pairs: Sequence[Pair], related: Sequence[Pair]
) -> Iterable[Part]:
    """List the parts with a weight of 1.

    What is shown of a table are its cells, whose mean variance is that of one; of a numeric column
    also ranks: a rank is a sum of some of K cells whose total is known, with a mean variance of K/6
    of theirs, and of some of the parts of one cell.
    """

    def of(names: Iterable[str], values: tuple[int, ...] = (), bound: float = 1.0) -> Cells:
        every = (*(() if by is None else (by,)), *names)
        places = tuple(encoder.places(name).cell for name in every)
        return Cells(places, tuple(encoder[name].n_cells for name in every), 1.0, values, bound)

    if by is not None:
        yield Part((COUNTS,), of([]), 1.0)
    for column in encoder.columns:
        name, places = column.name, encoder.places(column.name)
        if name == by:
            continue
        ranks = column.n_cells / 6.0 if column.n_bins else 0.0
        yield Part((COUNTS, name), of([name]), 1.0 + ranks)
        if places.part is not None:
            cells = of([name])
            divided = Cells((*cells.columns, places.part), (*cells.sizes, column.n_parts))
            yield Part((PARTS, name), divided, column.n_parts / 6.0)
        if places.number is not None and places.square is not None and ranks:
            yield Part((NUMBERS, name), of([], (places.number,)), 1.0)
            yield Part((SQUARES, name), of([], (places.square,), 0.5), 1.0)
    for pair in pairs:
        yield Part((COUNTS, *pair), of(pair), 1.0)
    for one, other in related:
        numbers = (encoder.places(name).number for name in (one, other))
        values = tuple(place for place in numbers if place is not None)
        yield Part((PRODUCTS, one, other), of([], values), 1.0)


def _pairs(what: str, given: Any, encoder: CellEncoder, by: str | None) -> tuple[Pair, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"{what} must list pairs of names of columns, got {given!r}")
    found: list[Pair] = []
    for pair in given:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"{what} must list pairs of names of columns, got {pair!r}")
        one, other = pair
        if one == other:
            raise ValueError(f"{what} must name two different columns in each pair, got {pair!r}")
        for name in pair:
            _ = encoder[name]
            if name == by:
                raise ValueError(f"{what} must not name the column of by=, {by!r}: got {pair!r}")
        if (one, other) in found or (other, one) in found:
            raise ValueError(f"{what} must list each pair once, got {pair!r} again")
        found.append((one, other))
    return tuple(found)


def _related(
    given: Iterable[Pair] | bool, encoder: CellEncoder, by: str | None
) -> tuple[Pair, ...]:
    """Read the pairs whose correlation is wanted; True: of all numeric columns and two classes."""
    if given is True or given is False:
        every = [
            one.name
            for one in encoder.columns
            if given and one.is_number and one.name != by and (one.n_bins or one.is_target)
        ]
        return tuple(itertools.combinations(every, 2))
    pairs = _pairs("correlations", given, encoder, by)
    for name in itertools.chain.from_iterable(pairs):
        if not encoder[name].is_number:
            raise ValueError(
                f"correlations must name numeric columns, or such of two categories, got {name!r}"
            )
    return pairs
