"""Everything that yields a stream of Arrow more than once, as a collection."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import in_one_line
from dpglm.data.spec import FloatType
from dpglm.data.stream.batches import Batches, BatchRows, Seen, part_of
from dpglm.data.stream.parquet import ParquetFiles
from dpglm.tables.cells import check_unique, normal, plain_column
from dpglm.tables.databases import Address, quoted
from dpglm.tables.files import Watch, changed, named_errors
from dpglm.tables.schema import Schema

_ROWS = 1 << 15
_FEWEST, _RUN_CELLS = 256, 1 << 20
Opened: TypeAlias = "AbstractContextManager[Iterable[Any]]"
"""Record batches of one pass, which end with the block."""


@final
@dataclass(frozen=True, eq=False)
class ArrowStream:
    """A table that yields a new stream of record batches at each pass.

    ``kinds`` is its schema of pyarrow. ``open`` takes names of columns and returns batches of
    those columns, of any sizes.

    Privacy: rows are recognised by their number and by digests (``Seen``).
    """

    title: str
    kinds: Any
    n_rows: int
    open: Callable[[list[str]], Opened]

    def __post_init__(self) -> None:
        with named_errors(self.title):
            check_unique(self.kinds.names, "column")

    @functools.cached_property
    def seen(self) -> Seen:
        """Digests of the rows, for runs that take a few MiB of memory."""
        return Seen(max(_FEWEST, _RUN_CELLS // len(self.columns)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.kinds.names)

    @functools.cached_property
    def types(self) -> Mapping[str, Any]:
        """Types by normal names."""
        return {normal(one.name): one.type for one in self.kinds}

    @property
    def parts(self) -> Sequence[ArrowStream]:
        """The stream itself."""
        return (self,)

    def watch(self) -> Watch:
        """Return a watch of no files."""
        return Watch()

    def batches(
        self, columns: Sequence[str], rows: int, wanted: NDArray[np.intp] | None
    ) -> Iterator[tuple[str, Any, slice | NDArray[np.intp]]]:
        """Yield place in words, batch and wanted part of all batches; see ``Batches``."""
        import pyarrow as pa

        stored = {normal(name): name for name in self.columns}
        names, start = [stored[normal(name)] for name in columns], 0
        with contextlib.closing(self._runs(list(dict.fromkeys(names)))) as runs:
            for run in runs:
                if start + run.num_rows > self.n_rows:
                    raise changed(f"there were {self.n_rows} rows, and now there are more")
                whole = pa.RecordBatch.from_arrays(
                    [run.column(name) for name in names], names=list(columns)
                )
                for first in range(0, run.num_rows, rows):
                    batch = whole.slice(first, rows)
                    part = part_of(wanted, start + first, start + first + batch.num_rows)
                    where = f"{self.title}, from row {start + first + 1} on"
                    yield where, batch, slice(0) if part is None else part
                start += run.num_rows
        if start != self.n_rows:
            raise changed(f"there were {self.n_rows} rows, and now there are {start}")

    def _runs(self, names: list[str]) -> Generator[Any]:
        """Yield batches of whole runs of ``seen``, but for the last."""
        held: list[Any] = []
        count, size = 0, self.seen.n_rows
        with named_errors(self.title), self.open(names) as batches:
            for batch in _read(batches):
                start = 0
                while start < batch.num_rows:
                    held.append(batch.slice(start, size - count))
                    start, count = start + held[-1].num_rows, count + held[-1].num_rows
                    if count == size:
                        yield _one(held, names)
                        held, count = [], 0
            if held:
                yield _one(held, names)


def _read(batches: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except (ImportError, ValueError, OSError):
        raise
    except Exception as error:
        # Each driver has errors of its own.
        raise ValueError(f"the rows cannot be read: {' '.join(str(error).split())}") from error


def _one(batches: list[Any], names: list[str]) -> Any:
    """Return several batches as one, of plain columns."""
    import pyarrow as pa

    plain = [[plain_column(one.column(name)) for name in names] for one in batches]
    joined = plain[0] if len(plain) == 1 else map(pa.concat_arrays, zip(*plain, strict=True))
    return pa.RecordBatch.from_arrays(list(joined), names=names)


# Makers of streams by the package of a source.


def open_batches(source: Any) -> Batches:
    """Return a source of rows as batches that can be read again; nothing is released.

    A text is the address of a database (``duckdb:bank.duckdb?table=loans``), or a path of Parquet.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError(
            "this needs pyarrow, which is not installed: pip install 'dpglm[parquet]'"
        ) from error
    if isinstance(source, str | os.PathLike):
        address = Address.of(source)
        if address is None:
            return ParquetFiles.of(Path(source))
        with named_errors(address):
            return _query(address.query, os.fspath(address))
    if isinstance(source, pa.RecordBatchReader):
        raise ValueError(
            "source must give its rows more than once, got a RecordBatchReader, which can be read "
            "once only: give its source, or a function that returns a new reader"
        )
    package = type(source).__module__.partition(".")[0].lstrip("_")
    if package in _MAKERS:
        return _MAKERS[package](source)
    if not (callable(source) or callable(getattr(source, "__arrow_c_stream__", None))):
        raise ValueError(
            "source must yield a stream of Arrow more than once, such as a relation of DuckDB, a "
            "LazyFrame of polars, a Dataset of pyarrow, a Query, or a function that returns a new "
            f"reader; got {in_one_line(source)}"
        )
    return _any_stream(source)


def _query(source: Any, title: str = "the query") -> ArrowStream:
    with named_errors(title):
        return ArrowStream(title, source.schema(), source.count(), source.stream)


def _relation(source: Any) -> ArrowStream:
    import pyarrow as pa

    def opened(names: list[str]) -> Opened:
        # A new relation, since one keeps its result.
        some = source.project(", ".join(map(quoted, names)))
        return contextlib.closing(pa.RecordBatchReader.from_stream(some))

    n_rows = source.aggregate("count(*)").fetchall()[0][0]
    kinds = pa.RecordBatchReader.from_stream(source.limit(0)).schema
    return ArrowStream("the relation of DuckDB", kinds, int(n_rows), opened)


def _polars(source: Any) -> ArrowStream:
    import polars

    frame = source.lazy()

    @contextlib.contextmanager
    def opened(names: list[str]) -> Iterator[Iterator[Any]]:
        parts = frame.select(names).collect_batches(chunk_size=_ROWS, maintain_order=True)
        yield (batch for part in parts for batch in part.to_arrow().to_batches())

    n_rows = frame.select(polars.len()).collect().item()
    kinds = frame.limit(0).collect().to_arrow().schema
    return ArrowStream("the frame of polars", kinds, int(n_rows), opened)


def _arrow(source: Any) -> ArrowStream:
    from pyarrow import dataset

    table = source if isinstance(source, dataset.Dataset) else dataset.dataset(source)

    def opened(names: list[str]) -> Opened:
        # With the default settings a scanner holds dozens of batches.
        batches = table.to_batches(
            columns=names, batch_size=_ROWS, batch_readahead=2, fragment_readahead=1
        )
        return contextlib.nullcontext(batches)

    return ArrowStream("the table of pyarrow", table.schema, table.count_rows(), opened)


def _ibis(source: Any) -> ArrowStream:
    def opened(names: list[str]) -> Opened:
        return contextlib.closing(source.select(names).to_pyarrow_batches(chunk_size=_ROWS))

    n_rows = source.count().to_pyarrow().as_py()
    return ArrowStream("the table of Ibis", source.schema().to_pyarrow(), int(n_rows), opened)


def _any_stream(source: Any) -> ArrowStream:
    """Read a source that cannot leave out columns, or a function that returns such sources."""
    import pyarrow as pa

    def reader() -> Any:
        made = source() if callable(source) else source
        return pa.RecordBatchReader.from_stream(made)

    @contextlib.contextmanager
    def opened(names: list[str]) -> Iterator[Iterator[Any]]:
        with contextlib.closing(reader()) as batches:
            yield (batch.select(names) for batch in batches)

    with contextlib.closing(reader()) as batches:
        kinds, n_rows = batches.schema, sum(batch.num_rows for batch in batches)
    return ArrowStream("the source", kinds, n_rows, opened)


_MAKERS: Mapping[str, Callable[[Any], ArrowStream]] = MappingProxyType(
    {"duckdb": _relation, "polars": _polars, "pyarrow": _arrow, "ibis": _ibis, "dpglm": _query}
)


@final
class ArrowRows(BatchRows):
    """Rows of a database or of a lazy table, read as a stream of Arrow at each pass.

    Parameters
    ----------
    source : object
        A relation of DuckDB, a ``LazyFrame`` of polars, a ``Dataset`` or ``Table`` of pyarrow, a
        table of Ibis, a ``Query``, an address such as ``"duckdb:bank.duckdb?table=loans"``, any
        other object with ``__arrow_c_stream__``, or a function that returns a new one. Its rows
        must be the same each time, in the same order.
    target : str, optional
        Name of the target's column; with a schema, that of the schema. Rows that are only predicted
        need none: give ``columns``, or a schema.
    columns : sequence of str, optional
        Feature columns in order: numbers, true/false, or lists of numbers of one fixed length.
        By default all but target, weights and offsets; with a schema, those of the schema.
    schema : Schema, optional
        Encodes the columns, as ``Schema.encode`` does; then declare the estimator's ``row_norm``
        as ``schema.row_norm``, and its facts about the target as
        ``schema.target.estimator_parameters()``.
    sample_weight : str, optional
        Name of a column of weights; the estimator's ``weight_bound`` must be declared.
    offset : str, optional
        Name of a column of offsets, see the estimator's ``fit``.
    exposure : str, optional
        Name of a column of exposures; their logarithms are offsets. Predictions include them.
    groups : str, optional
        Name of a column of person (group) ids, numbers or texts. All rows of a group are then
        protected together. A fit reads it into memory. Without a cache the rows of each group must
        stand together: ORDER BY it.
    dtype : {"float32", "float64"}, default="float32"
        Type of the features in memory.
    cache : path-like, optional
        Folder for a copy of the prepared rows while a fit lasts, in place of one query for each
        step. It holds private rows: keep it where you keep the table. The copy is unnamed and
        vanishes with the process. By default nothing is copied.

    Raises
    ------
    ValueError
        If the source cannot be read again, or a column is missing or not of numbers.
    ImportError
        If pyarrow is not installed.

    Notes
    -----
    Only the columns that are used are read. Memory holds a few chunks of 16 MiB, and that of
    the source is its own (``SET memory_limit`` in DuckDB).

    Privacy: a fit reads the rows several times. Their number, and digests of runs of them, are
    kept in memory and compared at each pass. Changed or reordered rows end the fit with
    ``RowsChangedError`` before anything is released from them.

    Examples
    --------
    >>> import duckdb
    >>> from dpglm.data import ArrowRows
    >>> loans = duckdb.sql("select range as age, range % 2 as late from range(50)")
    >>> rows = ArrowRows(loans, target="late")
    >>> rows.shape, rows.feature_names
    ((50, 1), ('age',))
    """

    def __init__(
        self,
        source: Any,
        target: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        sample_weight: str | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        groups: str | None = None,
        dtype: FloatType = "float32",
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        table = source if isinstance(source, ArrowStream | ParquetFiles) else open_batches(source)
        others = (sample_weight, offset, exposure, groups, dtype, cache)
        super().__init__(table, target, columns, schema, *others)
