"""Which tables describe a data set, and how one budget is divided between them."""

from __future__ import annotations

import abc
import functools
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np

from dpglm.data.collection import Collection, as_collection
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec
from dpglm.data.stream.parquet import ParquetFile, ParquetRows, column_of, encoded_files
from dpglm.oracle.counts import Cells
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import spelled_in
from dpglm.tables.described import CellEncoder, CountedColumn
from dpglm.tables.files import read_table
from dpglm.tables.given import Where
from dpglm.tables.named import Named, by_name

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
    def described(self) -> tuple[CountedColumn, ...]:
        """The columns that are described, which ``by`` is not."""
        return tuple(one for one in self.encoder.columns if one.name != self.by)

    @property
    def n_levels(self) -> int:
        """Number of groups: cells of ``by``; 1 without."""
        return 1 if self.by is None else self.encoder[self.by].n_cells

    @functools.cached_property
    def cells(self) -> Mapping[Key, Cells]:
        """The tables by key, in the order of their release."""
        return {part.key: part.cells for part in self.parts}

    def variance(self, noise_std: float, *key: str) -> float:
        """Return the noise variance of each cell of a table, weight removed."""
        return (noise_std / self.cells[key].weight) ** 2


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


# The rows of a table, of whatever kind, as a description counts them.

_PARQUET = (".parquet", ".pq")
_EXPECTED = "table must be a file of columns, or have columns by name"


class TableRows(abc.ABC):
    """A private table with its true number of rows; final subclasses below."""

    n_rows: int

    @abc.abstractmethod
    def collection(self, encoder: CellEncoder) -> Collection:
        """Return encoded rows, each by itself; ValueError for a cell that is of the wrong kind."""

    def chosen(self, encoder: CellEncoder, where: Any) -> Collection:
        """Return encoded rows of which only those count where a condition holds."""
        raise ValueError("where must be None for rows that are not in memory")

    def group_ids(self, groups: Any) -> Any:
        """Return the group of each row, which may be the name of a column."""
        raise ValueError("groups must be None for a data frame of Dask: describe it in parts")

    def prepared(
        self, encoder: CellEncoder, spec: DataSpec, groups: Any, noise: NoiseSource, where: Any
    ) -> Rows:
        """Prepare all rows, or as many of each group as ``spec`` says; those that count."""
        rows = self.collection(encoder) if where is None else self.chosen(encoder, where)
        if spec.groups is not None:
            rows = rows.in_groups(groups, int(spec.groups.rows), noise)
        return rows.prepared(spec, None, np.zeros_like)


def open_table(table: Any, names: Sequence[str]) -> TableRows:
    """Check that a table has some columns, and count its rows; nothing is released here.

    ``table`` is a mapping or data frame of columns, ``ParquetRows``, a data frame of Dask, or the
    path of a file, which is read by blocks if it is Parquet.
    """
    if isinstance(table, TableRows):
        return table
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        if path.is_dir() or path.name.lower().endswith(_PARQUET):
            return _Stored(ParquetFile.all_in(path))
        return _InFile(path, names)
    if isinstance(table, ParquetRows):
        return _Stored(table.files)
    is_dask = type(table).__module__.partition(".")[0] == "dask"
    named = by_name(None if isinstance(table, np.ndarray) else table, _EXPECTED)
    lacking = [name for name in names if name not in named]
    if lacking:
        raise ValueError(
            f"the data lack column {', '.join(map(repr, lacking))}, which the schema describes: "
            "add it, or list in columns= those that there are"
        )
    if is_dask:
        return _OnCluster(table[list(spelled_in(names, table.columns).values())])
    return _InMemory(named, len(named[names[0]]))


@final
@dataclass(frozen=True, eq=False, repr=False)
class _InMemory(TableRows):
    table: Named
    n_rows: int

    def __post_init__(self) -> None:
        if not self.n_rows:
            raise ValueError("the table must have at least one row, got none")

    def collection(self, encoder: CellEncoder) -> Collection:
        X = encoder.encode(self.table)
        return MatrixRows(X, np.zeros(len(X)))

    def chosen(self, encoder: CellEncoder, where: Any) -> Collection:
        table = {name: self.table[name] for name in encoder.names}
        found = Where.of(where, table)
        X = encoder.encode(found.rows(table))
        return MatrixRows(X, np.zeros(len(X))).spread(found.counts)

    def group_ids(self, groups: Any) -> Any:
        if not isinstance(groups, str):
            return groups
        if groups not in self.table:
            raise ValueError(f"groups must name a column of the table, got {groups!r}")
        return self.table[groups]


@final
class _InFile(TableRows):
    """A file that is read whole."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._table = path, open_table(read_table(path, names), names)
        self.n_rows = self._table.n_rows

    def collection(self, encoder: CellEncoder) -> Collection:
        return self._table.collection(encoder)

    def chosen(self, encoder: CellEncoder, where: Any) -> Collection:
        return self._table.chosen(encoder, where)

    def group_ids(self, groups: Any) -> Any:
        return read_table(self._path, [groups])[groups] if isinstance(groups, str) else groups


@final
class _Stored(TableRows):
    def __init__(self, files: Sequence[ParquetFile]) -> None:
        self._files, self.n_rows = files, sum(file.n_rows for file in files)

    def collection(self, encoder: CellEncoder) -> Collection:
        return encoded_files(self._files, encoder)

    def group_ids(self, groups: Any) -> Any:
        return column_of(self._files, groups) if isinstance(groups, str) else groups


@final
class _OnCluster(TableRows):
    def __init__(self, frame: Any) -> None:
        self._frame, self.n_rows = frame, int(frame.shape[0].compute())

    def collection(self, encoder: CellEncoder) -> Collection:
        import dask.array

        like = np.empty((0, encoder.width))
        X = self._frame.map_partitions(encoder.encode, meta=like).compute_chunk_sizes()
        rows = as_collection(X, dask.array.zeros(X.shape[:1], chunks=X.chunks[:1]))
        assert rows is not None
        return rows
