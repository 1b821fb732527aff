"""The tables of a description, their shares of the budget, and the rows that they count."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from narwhals import dependencies
from numpy.typing import ArrayLike, NDArray

from dpglm.certificate.certificate import Certificate, PublicFact
from dpglm.certificate.execution import PartInput, Stated, StudyPart, execute, size_facts
from dpglm.data.collection import Collection, MatrixRows, Preparation, as_collection
from dpglm.data.groups import planned_limit
from dpglm.data.rows import DataSpec, Protection, Rows
from dpglm.data.split import EXPLORATION
from dpglm.data.stream.arrow import ArrowRows, RowEncoder, encoded_rows
from dpglm.data.stream.batches import Batches, open_batches
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.oracle.counts import Cells
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan, calibrated
from dpglm.solvers.composite.tabulation import Tabulation
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.cells import WHOSE_CURE, spelled_in
from dpglm.tables.databases import Address
from dpglm.tables.described import CellEncoder, CountedColumn
from dpglm.tables.files import read_table
from dpglm.tables.given import Where
from dpglm.tables.named import Named, named_columns
from dpglm.tables.schema import Schema

Pair: TypeAlias = tuple[str, str]
"""Names of two columns."""
Key: TypeAlias = tuple[str, ...]
"""Kind of a table, and the names of its columns."""
COUNTS, PARTS, NUMBERS, SQUARES, PRODUCTS = "counts", "parts", "numbers", "squares", "products"
"""Kinds of tables: counts of cells of one or two columns and of parts of cells, and sums of x,
x^2 - 1/2 and x x'."""


@final
@dataclass(frozen=True, eq=False)
class Design:
    """The tables of a description, by the levels of ``by`` if it is given.

    ``cells`` has the tables by key, in the order of their release.

    Privacy: weights bound the L2 norm of the contributions of a row to all tables by 1.
    """

    encoder: CellEncoder
    by: str | None
    two_way: tuple[Pair, ...]
    correlations: tuple[Pair, ...]
    cells: Mapping[Key, Cells]

    @property
    def described(self) -> tuple[CountedColumn, ...]:
        """The described columns, without ``by``."""
        return tuple(one for one in self.encoder.columns if one.name != self.by)

    @property
    def n_levels(self) -> int:
        """Number of cells of ``by``; 1 without it."""
        return 1 if self.by is None else self.encoder[self.by].n_cells

    @property
    def counted(self) -> list[Key]:
        """The names of the columns of each table of counts."""
        return [key[1:] for key in self.cells if key[0] == COUNTS]

    def variance(self, noise_std: float, *key: str) -> float:
        """Return the noise variance of each cell of a table, weight removed."""
        return (noise_std / self.cells[key].weight) ** 2


def design_of(
    encoder: CellEncoder,
    two_way: Iterable[Pair],
    correlations: Iterable[Pair] | bool,
    by: str | None,
) -> Design:
    """Choose the tables and their weights; a ValueError names an invalid argument.

    Weights minimize the sum of variances times worths. For the largest contribution r of a row and
    the worth v, the share of the budget, w^2 r^2, is proportional to r sqrt(v).
    """
    if by is not None and encoder[by].n_bins:
        raise ValueError(f"by must name a column of categories, got {by!r}, which is numeric")
    if by is not None and len(encoder.columns) == 1:
        raise ValueError("columns must name a column besides that of by=")
    pairs = _pairs("two_way", two_way, encoder, by)
    related = _related(correlations, encoder, by)
    raw = list(_raw_tables(encoder, by, pairs, related))
    roots = [cells.reach * math.sqrt(worth) for _, cells, worth in raw]
    total = math.fsum(roots)
    weighted = {
        key: dataclasses.replace(cells, weight=math.sqrt(root / total) / cells.reach)
        for (key, cells, _), root in zip(raw, roots, strict=True)
    }
    return Design(encoder, by, pairs, related, weighted)


def _raw_tables(
    encoder: CellEncoder, by: str | None, pairs: Sequence[Pair], related: Sequence[Pair]
) -> Iterable[tuple[Key, Cells, float]]:
    """Yield key, table with weight 1, and worth: its factor in the sum of variances.

    The worth of shown cells is 1. Numeric columns also show ranks: the sum of some of K cells with
    a known total has a mean variance of K/6 times theirs, and likewise for the parts of a cell.
    """

    def of(names: Iterable[str], values: tuple[int, ...] = (), bound: float = 1.0) -> Cells:
        every = (*(() if by is None else (by,)), *names)
        places = tuple(encoder.places(name)["cell"] for name in every)
        return Cells(places, tuple(encoder[name].n_cells for name in every), 1.0, values, bound)

    if by is not None:
        yield (COUNTS,), of([]), 1.0
    for column in encoder.columns:
        name, places = column.name, encoder.places(column.name)
        if name == by:
            continue
        ranks, cells = column.n_cells / 6.0 if column.n_bins else 0.0, of([name])
        yield (COUNTS, name), cells, 1.0 + ranks
        if "part" in places:
            divided = Cells((*cells.columns, places["part"]), (*cells.sizes, column.n_parts))
            yield (PARTS, name), divided, column.n_parts / 6.0
        if "number" in places and ranks:
            yield (NUMBERS, name), of([], (places["number"],)), 1.0
            yield (SQUARES, name), of([], (places["square"],), 0.5), 1.0
    for pair in pairs:
        yield (COUNTS, *pair), of(pair), 1.0
    for one, other in related:
        values = tuple(encoder.places(name)["number"] for name in (one, other))
        yield (PRODUCTS, one, other), of([], values), 1.0


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
    """Return the pairs to correlate; True: all numeric columns and a target of two classes."""
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
                f"correlations must name numeric columns or those of two categories, got {name!r}"
            )
    return pairs


_PARQUET = (".parquet", ".pq")
_EXPECTED = "table must be a file of columns, or have columns by name"


@final
@dataclass(frozen=True, eq=False, repr=False)
class TableRows:
    """A private table with its true number of rows.

    ``column`` returns a column by name, and is None if groups are not supported; ``cells`` are the
    columns of a table in memory.
    """

    n_rows: int
    encoded: Callable[[RowEncoder], Collection]
    column: Callable[[str], Any] | None
    cells: Named | None = None

    def group_ids(self, groups: Any) -> Any:
        """Return the group of each row, given as values or as the name of a column; or None."""
        if groups is None:
            return None
        if self.column is None:
            raise ValueError(
                "groups must be None for rows on Dask or Spark: describe them in parts"
            )
        return self.column(groups) if isinstance(groups, str) else groups

    def chosen(self, encoder: RowEncoder, where: Any) -> Collection:
        """Encode the rows that count."""
        if where is None:
            return self.encoded(encoder)
        if self.cells is None:
            raise ValueError("where must be None for rows that are not in memory")
        table = {name: self.cells[name] for name in encoder.names}
        found = Where.of(where, table)
        with Where.numbering(found):
            return _matrix(encoder.encode(found.rows(table))).spread(found.counts)


def open_table(
    table: Any, names: Sequence[str], read: Callable[..., Any] = read_table
) -> TableRows:
    """Check that a table has some columns, and count its rows; releases nothing.

    ``table`` is a mapping or data frame of columns, ``ArrowRows``, ``SparkRows``, a data frame of
    Dask, the path of a file, which is read by blocks if it is Parquet, or an address. ``read``
    reads columns of other files.
    """
    if isinstance(table, TableRows):
        return table
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        is_parquet = path.is_dir() or path.name.lower().endswith(_PARQUET)
        if is_parquet or Address.of(table) is not None:
            return _stored(open_batches(table))
        rows = open_table(read(path, names), names)
        return dataclasses.replace(rows, column=lambda name: read(path, [name])[name])
    if isinstance(table, ArrowRows):
        return _stored(table.table)
    if isinstance(table, Collection):
        # Imported when needed, as few tables are on Spark.
        from dpglm.data.pyspark import SparkRows

        if isinstance(table, SparkRows):
            return TableRows(table.shape[0], table.encoded, None)
    is_dask = dependencies.is_dask_dataframe(table)
    named = named_columns(None if isinstance(table, np.ndarray) else table, names, _EXPECTED)
    if is_dask:
        frame = table[list(spelled_in(names, table.columns).values())]

        def encoded(encoder: RowEncoder) -> Collection:
            import dask.array

            like = np.empty((0, encoder.width))
            X = frame.map_partitions(encoder.encode, meta=like).compute_chunk_sizes()
            rows = as_collection(X, dask.array.zeros(X.shape[:1], chunks=X.chunks[:1]))
            assert rows is not None
            return rows

        return TableRows(int(frame.shape[0].compute()), encoded, None)

    def column(name: str) -> Any:
        if name not in named:
            raise ValueError(f"groups must name a column of the table, got {name!r}")
        return named[name]

    n_rows = len(named[names[0]])
    return TableRows(n_rows, lambda encoder: _matrix(encoder.encode(named)), column, named)


def _matrix(X: NDArray[np.float64]) -> MatrixRows:
    return MatrixRows(X, np.zeros(len(X)))


def _stored(table: Batches) -> TableRows:
    return TableRows(
        table.n_rows,
        lambda encoder: encoded_rows(table, encoder),
        lambda name: table.read_columns([name], WHOSE_CURE)[name],
    )


def plan_tables(
    protection: Protection, width: int, row_norm: float, tables: tuple[Cells, ...]
) -> Plan:
    """Plan the release of tables of rows with ``width`` numbers."""
    data = DataSpec(protection.n_rows, width, row_norm=row_norm, groups=protection.groups)
    return calibrated(
        lambda noise: Tabulation(data, protection.adjacency, tables, noise),
        data,
        protection.budget,
        protection.adjacency,
    )


def run_tables(
    plan: Plan,
    rows: Callable[[], Collection],
    n_rows: int,
    given: PartInput,
    made: str,
    part: str,
    facts: Iterable[PublicFact],
) -> tuple[Solution, Certificate]:
    """Execute a plan of tables on encoded rows, at most the planned number of each group."""
    most: int | None = None
    if plan.data.groups is not None or given.groups is not None:
        most = planned_limit(given.groups, plan.data, plan.adjacency, n_rows)

    def prepared(noise: NoiseSource) -> Rows:
        used = rows()
        if most is not None:
            used = used.in_groups(given.groups, most, noise)
        return used.prepared(Preparation(plan.data, None, np.zeros_like))

    sizes = size_facts(plan.data, plan.adjacency, chosen=given.where is not None)
    return execute(plan, prepared, made, part, (*sizes, *facts), given)


def run_on_table(
    plan: Plan,
    given: PartInput,
    encoder: RowEncoder,
    schema: Schema,
    made: str,
    facts: Iterable[PublicFact],
) -> tuple[Solution, Certificate]:
    """Execute a plan on the encoded rows of a table, and certify it as the result ``made``."""
    (table,) = given.arguments("the table")
    rows = open_table(table, encoder.names, schema.read_file)
    given = dataclasses.replace(given, groups=rows.group_ids(given.groups))
    chosen = functools.partial(rows.chosen, encoder, given.where)
    return run_tables(plan, chosen, rows.n_rows, given, made, EXPLORATION, facts)


def release(
    part: StudyPart,
    encoder: RowEncoder,
    schema: Schema,
    table: Any,
    stated: Stated,
    groups: Any,
    where: ArrayLike | None,
    ledger: PrivacyLedger | str | os.PathLike[str] | None,
    random_state: int | NoiseSource | None,
) -> Any:
    """Plan a part for a table, and run it; ``encoder`` names the columns that it reads."""
    rows = open_table(table, encoder.names, schema.read_file)
    ids = rows.group_ids(groups)
    plan = part.plan(stated.protection(rows.n_rows, ids))
    return part.run(plan, PartInput((rows,), ids, where, ledger, random_state))
