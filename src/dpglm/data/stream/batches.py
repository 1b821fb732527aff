"""Tables that are read as record batches of Arrow, again at each pass: files, queries, streams."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from dpglm._registry import require
from dpglm._validation import check_path, in_one_line
from dpglm.tables.cells import MISSING_CURE, check_unique, normal, plain_array, plain_column
from dpglm.tables.databases import Address, Query, quoted
from dpglm.tables.files import check_present, named_errors
from dpglm.tables.given import Mark, Watch, changed

_COLUMN_ROWS = 1 << 16


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """Digests of the rows that earlier passes over a stream have read.

    ``digests`` has one for each run of ``n_rows`` rows of each kind of values; ``columns`` are
    those that were read by themselves. Any two kinds of values are read together at least once, so
    that rows in another order are found even where passes read different columns.

    Privacy: digests are as private as the rows, and never leave the process.
    """

    n_rows: int
    digests: dict[tuple[str, int], bytes] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    together: set[tuple[str, str]] = field(default_factory=set)

    def compare(self, kind: str, run: int, digest: bytes) -> None:
        """Raise RowsChangedError unless a run has the values of earlier passes."""
        if self.digests.setdefault((kind, run), digest) != digest:
            first = run * self.n_rows + 1
            raise changed(
                f"rows {first} to {first + self.n_rows - 1} are others than before, or in another "
                "order (a query needs ORDER BY to return rows in one order each time)"
            )


Reader: TypeAlias = Callable[[list[str], int, Callable[[int, int], bool]], Generator[Any]]
"""From names of columns, the most rows of a batch, and a test whether any row from one to another
is wanted, to the record batches of a new pass, or numbers of rows that are left out."""


@final
@dataclass(frozen=True, eq=False)
class Part:
    """A part of a table with columns of its own, such as a file; ``types`` are those of pyarrow."""

    title: str
    types: Mapping[str, Any]
    n_rows: int
    read: Reader

    @functools.cached_property
    def stored(self) -> Mapping[str, str]:
        """Names of the columns by their normal form."""
        return {normal(name): name for name in self.types}

    def batches(
        self, columns: Sequence[str], rows: int, wanted: NDArray[np.intp] | None, run: int | None
    ) -> Iterator[tuple[str, Any, slice | NDArray[np.intp]]]:
        """Yield what ``Batches.batches`` does; with ``run`` every batch lies in one run of rows."""

        def places(first: int, stop: int) -> slice | NDArray[np.intp] | None:
            """Return the wanted rows, counted from the first one; None for none."""
            if wanted is None:
                return slice(None)
            low, high = np.searchsorted(wanted, (first, stop))
            if low == high:
                return None if run is None else slice(0)
            return wanted[low:high] - first

        names, start = [self.stored[normal(name)] for name in columns], 0
        read = self.read(list(dict.fromkeys(names)), rows, lambda *ends: places(*ends) is not None)
        with contextlib.closing(read):
            for some in _in_runs(_plain(self.title, read, names, list(columns)), run):
                if isinstance(some, int):
                    start += some
                    continue
                if start + some.num_rows > self.n_rows:
                    raise changed(f"there were {self.n_rows} rows, and now there are more")
                for first in range(0, max(some.num_rows, 1), rows):
                    batch = some.slice(first, rows)
                    chosen = places(start + first, start + first + batch.num_rows)
                    if chosen is not None:
                        yield f"{self.title}, from row {start + first + 1} on", batch, chosen
                start += some.num_rows
        if start != self.n_rows:
            raise changed(f"there were {self.n_rows} rows, and now there are {start}")


def _plain(title: str, read: Iterable[Any], names: list[str], columns: list[str]) -> Iterator[Any]:
    """Yield batches with the named columns, as plain ones and by other names."""
    import pyarrow as pa

    with named_errors(title):
        try:
            for batch in read:
                if isinstance(batch, int):
                    yield batch
                else:
                    found = [plain_column(batch.column(name)) for name in names]
                    yield pa.RecordBatch.from_arrays(found, names=columns)
        except (ImportError, ValueError, OSError):
            raise
        except Exception as error:
            # Each driver has errors of its own.
            reason = " ".join(str(error).split())
            raise ValueError(f"the rows cannot be read: {reason}") from error


def _in_runs(batches: Iterator[Any], size: int | None) -> Iterator[Any]:
    """Cut batches into runs of ``size`` rows, and a shorter last one."""
    import pyarrow as pa

    if size is None:
        yield from batches
        return
    held: list[Any] = []
    count = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            held.append(batch.slice(start, size - count))
            start, count = start + held[-1].num_rows, count + held[-1].num_rows
            if count == size:
                yield pa.concat_batches(held)
                held, count = [], 0
    if held:
        yield pa.concat_batches(held)


@final
@dataclass(frozen=True, eq=False)
class Batches:
    """A table that yields its rows as record batches of Arrow, more than once.

    Changes are found by a ``watch`` of its files, or by the digests ``seen`` of earlier passes.
    """

    title: str
    parts: Sequence[Part]
    watch: Watch = field(default_factory=Watch)
    seen: Seen | None = None

    @property
    def n_rows(self) -> int:
        """The true number of rows."""
        return sum(part.n_rows for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the first part."""
        return tuple(self.parts[0].types)

    def require(self, columns: Sequence[str]) -> None:
        """Check that every part has some columns."""
        for part in self.parts:
            with named_errors(part.title):
                check_present(columns, part.types)

    def compare(
        self, digests: dict[str, Any], first: int, values: Mapping[str, NDArray[Any] | None]
    ) -> None:
        """Compare the next rows of a pass, all of one run, with those of earlier passes.

        ``values`` are of several kinds; ``digests`` has those of the pass whose runs are not
        complete yet.
        """
        if self.seen is None:
            return
        for kind, array in values.items():
            if array is None or not len(array):
                continue
            digest = digests.setdefault(kind, hashlib.sha256())
            if array.dtype.kind in "OT":
                digest.update("".join(f"{one!r}\n" for one in array.ravel().tolist()).encode())
            else:
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
            stop, run = first + len(array), self.seen.n_rows
            if stop % run == 0 or stop == self.n_rows:
                self.seen.compare(kind, first // run, digests.pop(kind).digest())

    def batches(
        self, columns: Sequence[str], rows: int, wanted: NDArray[np.intp] | None = None
    ) -> Iterator[tuple[str, Any, slice | NDArray[np.intp]]]:
        """Yield place in words, batch and wanted part of batches of at most ``rows`` rows.

        A batch has the columns by the names that are asked for. ``wanted`` lists row numbers in
        ascending order, by default all. Batches without any are left out, unless there are digests.
        ``RowsChangedError`` if there are more or fewer rows than ``n_rows``.
        """
        run, before = None if self.seen is None else self.seen.n_rows, 0
        for part in self.parts:
            own = None
            if wanted is not None:
                low, high = np.searchsorted(wanted, (before, before + part.n_rows))
                own = wanted[low:high] - before
            before += part.n_rows
            yield from part.batches(columns, rows, own, run)

    def read_columns(
        self, names: Sequence[str], cure: str | None = None
    ) -> dict[str, NDArray[Any]]:
        """Read whole columns in one pass; ``cure`` is the remedy for missing values, if refused.

        Numbers of several types become objects, so that large ones stay distinct.
        """
        self.require(names)
        found: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        seen, start = self.seen, 0
        digests: dict[str, Any] = {}
        others = [] if seen is None else [one for one in seen.columns if one not in found]
        for where, batch, _ in self.batches([*names, *others], _COLUMN_ROWS):
            with named_errors(where):
                if cure is not None:
                    for name in names:
                        require_values(batch.column(name), name, cure)
                for name in names:
                    found[name].append(plain_array(batch.column(name)))
            self.compare(digests, start, compared(batch, [*names, *others]))
            start += batch.num_rows
        if seen is not None:
            seen.columns.extend(name for name in names if name not in seen.columns)
        for name, parts in found.items():
            if len({one.dtype for one in parts}) > 1:
                found[name] = [one.astype(object) for one in parts]
        return {
            name: np.concatenate(parts) if parts else np.empty(0) for name, parts in found.items()
        }


def compared(batch: Any, columns: Iterable[str]) -> dict[str, NDArray[Any] | None]:
    """Return columns as values for ``Batches.compare``, alike however a table is cut."""
    import pyarrow as pa

    found: dict[str, NDArray[Any] | None] = {}
    for name in columns:
        column, kind = batch.column(name), f"column {normal(name)}"
        if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
            # NumPy has another type for those with missing cells.
            found[f"gaps of {kind}"] = column.is_null().to_numpy(zero_copy_only=False)
            column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        found[kind] = plain_array(column)
    return found


def require_values(column: Any, name: str, cure: str = MISSING_CURE) -> None:
    """Refuse missing values."""
    if column.null_count:
        row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise ValueError(f"column {name!r}, row {row + 1}: the value is missing. {cure}")


# Sources that yield streams of Arrow more than once, by their packages.

_ROWS = 1 << 15
_FEWEST, _RUN_CELLS = 256, 1 << 20


def open_batches(source: Any) -> Batches:
    """Return a source of rows as batches that can be read again; nothing is released.

    A text is the address of a database (``duckdb:bank.duckdb?table=loans``), or a path of Parquet.
    """
    pa = require("pyarrow", "parquet")
    if isinstance(source, str | os.PathLike):
        address = Address.of(source)
        if address is None:
            return _parquet(check_path("source", source))
        return _query(address, os.fspath(address))
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
            "source must be the path of Parquet files, or yield a stream of Arrow more than once, "
            "such as a relation of DuckDB, a LazyFrame of polars, a Dataset of pyarrow, a Query, "
            f"or a function that returns a new reader; got {in_one_line(source)}"
        )
    return _any_stream(source)


def stream_of(
    title: str,
    kinds: Any,
    n_rows: int,
    opened: Callable[[list[str]], contextlib.AbstractContextManager[Iterable[Any]]],
) -> Batches:
    """Return a table of one part, with digests for runs that take a few MiB of memory.

    ``opened`` gives the record batches of some columns, or of all, in a new pass.
    """

    def read(names: list[str], *_: Any) -> Generator[Any]:
        with opened(names) as batches:
            yield from batches

    with named_errors(title):
        part = Part(title, types_of(kinds), n_rows, read)
    return Batches(title, (part,), seen=Seen(max(_FEWEST, _RUN_CELLS // len(part.types))))


def table_batches(title: str, table: Any) -> Batches:
    """Return a table of pyarrow in memory as batches; nothing checks whether it changes."""

    def read(names: list[str], rows: int, _: Any) -> Generator[Any]:
        import pyarrow as pa

        some = [plain_column(table.column(name)) for name in names]
        # As long batches: those of Spark are short. There is at least one.
        whole = pa.Table.from_arrays(some, names=names).combine_chunks()
        yield from whole.to_batches(rows) or [pa.RecordBatch.from_pylist([], whole.schema)]

    return Batches(title, (Part(title, types_of(table.schema), int(table.num_rows), read),))


def types_of(kinds: Any) -> dict[str, Any]:
    """Return the types in a schema of pyarrow by name; each must have its own."""
    check_unique(kinds.names, "column")
    return dict(zip(kinds.names, kinds.types, strict=True))


def _query(source: Query | Address, title: str = "the query") -> Batches:
    with named_errors(title):
        query = source.query if isinstance(source, Address) else source
        kinds, n_rows = query.schema(), query.count()
    return stream_of(title, kinds, n_rows, query.stream)


def _relation(source: Any) -> Batches:
    import pyarrow as pa

    def opened(names: list[str]) -> Any:
        # A new relation, since one keeps its result.
        some = source.project(", ".join(map(quoted, names)))
        return contextlib.closing(pa.RecordBatchReader.from_stream(some))

    n_rows = source.aggregate("count(*)").fetchall()[0][0]
    kinds = pa.RecordBatchReader.from_stream(source.limit(0)).schema
    return stream_of("the relation of DuckDB", kinds, int(n_rows), opened)


def _polars(source: Any) -> Batches:
    import polars

    frame = source.lazy()

    @contextlib.contextmanager
    def opened(names: list[str]) -> Iterator[Any]:
        parts = frame.select(names).collect_batches(chunk_size=_ROWS, maintain_order=True)
        yield (batch for part in parts for batch in part.to_arrow().to_batches())

    n_rows = frame.select(polars.len()).collect().item()
    kinds = frame.limit(0).collect().to_arrow().schema
    return stream_of("the frame of polars", kinds, int(n_rows), opened)


def _arrow(source: Any) -> Batches:
    from pyarrow import dataset

    table = source if isinstance(source, dataset.Dataset) else dataset.dataset(source)

    def opened(names: list[str]) -> Any:
        # With the default settings a scanner holds dozens of batches.
        few = {"batch_size": _ROWS, "batch_readahead": 2, "fragment_readahead": 1}
        return contextlib.nullcontext(table.to_batches(columns=names, **few))

    return stream_of("the table of pyarrow", table.schema, table.count_rows(), opened)


def _ibis(source: Any) -> Batches:
    def opened(names: list[str]) -> Any:
        return contextlib.closing(source.select(names).to_pyarrow_batches(chunk_size=_ROWS))

    n_rows = source.count().to_pyarrow().as_py()
    return stream_of("the table of Ibis", source.schema().to_pyarrow(), int(n_rows), opened)


def _any_stream(source: Any) -> Batches:
    """Read a source that cannot leave out columns, or a function that returns such sources."""
    import pyarrow as pa

    def opened(_: list[str]) -> Any:
        made = source() if callable(source) else source
        return contextlib.closing(pa.RecordBatchReader.from_stream(made))

    with opened([]) as batches:
        kinds, n_rows = batches.schema, sum(batch.num_rows for batch in batches)
    return stream_of("the source", kinds, n_rows, opened)


_MAKERS: Mapping[str, Callable[[Any], Batches]] = MappingProxyType(
    {"duckdb": _relation, "polars": _polars, "pyarrow": _arrow, "ibis": _ibis, "dpglm": _query}
)


# Files of Parquet, read piece by piece.

# Columns are read in pieces of this size, so that row groups may have any size.
_BUFFER_BYTES = 1 << 18
_SUFFIXES = frozenset({".parquet", ".pq"})
# Stands for a missing value in the name of a folder.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Files that mark tables with versions.
_TABLE_LOGS: Mapping[str, str] = MappingProxyType(
    {
        "_delta_log": "a table of Delta Lake",
        ".hoodie": "a table of Hudi",
        "metadata/*.metadata.json": "a table of Iceberg",
    }
)


def parquet_files(path: Path) -> list[Path]:
    """Return the files of a data set: the path itself, or those in the folder, by name.

    Files and folders below it with names that begin with a dot or an underscore are left out, as
    in pyarrow, Spark and Dask: they hold drafts, copies and logs of the same rows.
    """
    if not path.is_dir():
        return [path]
    for mark, kind in _TABLE_LOGS.items():
        if next(path.glob(mark), None) is not None:
            raise ValueError(
                f"{path}: must be a plain folder of Parquet files, got {kind}, which also keeps "
                "rows of earlier versions. Read the current rows with its own library, and write "
                "them to a new folder"
            )
    return sorted(
        one
        for one in path.rglob("*")
        if one.suffix.lower() in _SUFFIXES
        and not one.is_dir()
        and not any(_is_hidden(part) for part in one.relative_to(path).parts)
    )


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _parquet(path: Path) -> Batches:
    """Open a file, or all files of a folder in the order of names, by their footers.

    Marks of the files find every change. A file that is there under two names would count its rows
    twice.
    """
    found = parquet_files(path)
    if not found:
        raise ValueError(
            f"{path}: the folder must contain a .parquet or .pq file (names that begin with "
            "'.' or '_' are left out)"
        )
    parts, marks = zip(*(_parquet_file(one, one.relative_to(path)) for one in found), strict=True)
    first: dict[tuple[int, int], Path] = {}
    for own, found_at in marks:
        same = first.setdefault((found_at.st_dev, found_at.st_ino), own)
        if same != own:
            raise ValueError(
                f"{path}: {same.name} and {own.name} must be different files, but are "
                "one file, and its rows would count twice: remove one of the two names"
            )
    return Batches(os.fspath(path), parts, Watch(marks))


def _parquet_file(path: Path, place: Path) -> tuple[Part, Mark]:
    """Read the footer of a file, and the columns that names of folders in its ``place`` hold.

    Such columns, as in ``year=2024/part.parquet``, are text, or missing. One that is in the file,
    too, is taken from there.
    """
    import pyarrow as pa

    def opened() -> Any:
        # Not mapped into memory: the pages of a mapped file count as the process's own.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)

    pq = require("pyarrow.parquet", "parquet")
    with named_errors(path), opened() as file:
        groups = range(file.metadata.num_row_groups)
        sizes = [file.metadata.row_group(group).num_rows for group in groups]
        types = types_of(file.schema_arrow)
        mark = path, os.stat(path)
    own = set(map(normal, types))
    folders = {name: one for name, one in _in_folders(place).items() if name not in own}

    def read(names: list[str], rows: int, is_wanted: Callable[[int, int], bool]) -> Generator[Any]:
        stored, first = [name for name in names if name not in folders], 0
        with opened() as file:
            for group, size in enumerate(sizes):
                first += size
                if not is_wanted(first - size, first):
                    yield size
                    continue
                for batch in file.iter_batches(rows, row_groups=[group], columns=stored):
                    columns = [
                        batch.column(name)
                        if name in stored
                        else pa.repeat(pa.scalar(folders[name], pa.string()), batch.num_rows)
                        for name in names
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=names)

    types |= dict.fromkeys(folders, pa.string())
    return Part(os.fspath(path), types, sum(sizes), read), mark


def _in_folders(path: Path) -> dict[str, str | None]:
    """Return the columns that names of folders hold, as Hive and Spark write them."""
    pairs = [part.partition("=") for part in path.parts[:-1] if "=" in part]
    values = {normal(unquote(name)): unquote(value) for name, _, value in pairs}
    return {name: None if value == _NO_VALUE else value for name, value in values.items()}
