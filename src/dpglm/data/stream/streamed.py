"""Rows that are read from storage each time they are needed, a chunk at a time."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import mmap
import os
import pickle
import tempfile
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, final

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import DTypeLike, NDArray

from dpglm._calls import tenths
from dpglm.data.collection import Preparation
from dpglm.data.memory import RUN_ROWS, ArrayRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import Block, DataSpec, Floats, FloatType, Rows
from dpglm.tables.cells import check_finite, column_in_words
from dpglm.tables.given import Watch, as_floats, as_weights, changed, check_length, memory_maps

Piece: TypeAlias = "tuple[Floats, NDArray[Any], NDArray[Any] | None]"
"""Features, targets and weights of some rows, in the user's units."""
_NONE: NDArray[Any] = np.empty(0)
# Numbers of these types are exact in float32.
_SHORT = frozenset({"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"})
# Defined on Linux and macOS.
_FORGET: int | None = getattr(mmap, "MADV_DONTNEED", None)
_ANNOUNCE: int | None = getattr(mmap, "MADV_WILLNEED", None)


class Source(abc.ABC):
    """Rows in storage."""

    shape: tuple[int, int]
    """Rows and features."""
    dtype: FloatType
    """Type of the features."""
    is_weighted: bool
    """Whether rows have weights."""
    has_offset: bool
    """Whether targets have a second column, of offsets."""
    may_seek: ClassVar[bool] = True
    """Whether rows can be read in any order."""
    is_view: bool
    """Whether pieces in the order of storage are views, which cost nothing to make."""

    @abc.abstractmethod
    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        """Read rows in pieces of at most ``rows``; all pieces of views but the last have that many.

        ``indices`` lists the positions of the rows wanted, in order; by default all, as they are
        stored. ``ValueError`` if a value is not of the right kind, or rows cannot be had in this
        order; ``OSError`` if rows cannot be read, or a mapped file has become shorter.
        """

    @abc.abstractmethod
    def without_targets(self) -> Source:
        """Return the rows as they are predicted: without targets and weights, with offsets."""

    @abc.abstractmethod
    def watch(self) -> Watch:
        """Return a watch for changes of the rows; a new one for each use of them."""

    def column_name(self, column: int) -> str:
        """Name a feature, given by its number from 0, for messages."""
        return column_in_words(None, column)


@final
class ArraySource(Source):
    """Rows of an array of real numbers, which may be mapped from a file.

    Pages of a mapped file count as the process's memory once they were touched, until they are
    given back; this is done after each piece (they stay in the system's page cache, and a view
    that is still in use gets them back). The next piece is announced to the system, which reads it
    from disk meanwhile.
    """

    def __init__(
        self,
        X: NDArray[Any],
        y: NDArray[Any] | None = None,
        weights: NDArray[Any] | None = None,
        offset: NDArray[Any] | None = None,
    ) -> None:
        self.shape = (X.shape[0], X.shape[1])
        self.dtype = "float32" if X.dtype.name in _SHORT else "float64"
        self.is_weighted, self.has_offset = weights is not None, offset is not None
        self.is_view = X.dtype == self.dtype
        self._X, self._y, self._weights = np.asarray(X), y, weights
        self._offsets = offset
        self._mapping = _mapping_of(X)
        self._offset = 0
        if self._mapping is not None:
            mapped = np.frombuffer(self._mapping, np.uint8)
            self._offset = byte_bounds(self._X)[0] - byte_bounds(mapped)[0]

    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        for start in range(0, self.shape[0] if indices is None else len(indices), rows):
            for array in (self._X, self._y, self._weights, self._offsets):
                check_length(array)
            which: Any = slice(start, start + rows)
            if indices is None:
                self._announce(start + rows, start + 2 * rows)
            else:
                which = indices[which]
            X = self._X[which].astype(self.dtype, copy=False)
            if features_only:
                yield X, _NONE, None
            else:
                y = np.zeros(len(X)) if self._y is None else np.asarray(self._y[which])
                if self._offsets is not None:
                    y = np.column_stack([as_floats("y", y), self._offsets[which]])
                yield X, y, None if self._weights is None else np.asarray(self._weights[which])
            if self._mapping is not None and _FORGET is not None:
                self._mapping.madvise(_FORGET)

    def without_targets(self) -> ArraySource:
        return ArraySource(self._X, offset=self._offsets)

    def watch(self) -> Watch:
        return Watch.over((self._X, self._y, self._weights, self._offsets))

    def _announce(self, start: int, stop: int) -> None:
        if self._mapping is None or _ANNOUNCE is None or not self._X.flags.c_contiguous:
            return
        size = self._X.strides[0]
        first = (self._offset + start * size) // mmap.PAGESIZE * mmap.PAGESIZE
        length = self._offset + min(stop, self.shape[0]) * size - first
        if length > 0:
            self._mapping.madvise(_ANNOUNCE, first, length)


def _mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapping in which an array lies, if its pages may be dropped."""
    maps = list(memory_maps(array))
    # Changes of pages without a file, or of this process alone, would be lost.
    is_shared = bool(maps) and {one.mode for one in maps} <= {"r", "r+", "w+"}
    base: Any = maps[-1].base if is_shared else None
    return base if isinstance(base, mmap.mmap) else None


# An array that is written row after row, in memory or in a file without a name.


@final
class Spool:
    """An array that is written row after row, in memory or in an unnamed file.

    The file vanishes with the array, and with the process, however that ends.
    """

    def __init__(self, folder: Path | None, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._shape, self._dtype, self._filled = shape, np.dtype(dtype), 0
        self._file = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        # Memory is taken page by page as it is written.
        self._array = np.empty(shape, dtype) if folder is None else np.empty(0, dtype)

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows; ``OSError`` if the disk is full."""
        if self._file is None:
            self._array[self._filled : self._filled + len(rows)] = rows
        else:
            # Not through a mapping, where a full disk would kill the process.
            self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._filled += len(rows)

    def close(self) -> None:
        """Close the file; arrays that were returned stay valid."""
        if self._file is not None:
            self._file.close()

    def array(self) -> NDArray[Any]:
        """Return all that was written; of a file, a read-only memory map."""
        if self._file is None:
            return self._array
        self._file.flush()
        # A mapping keeps the file open.
        return np.memmap(self._file, self._dtype, "r", shape=self._shape)


# Files of a value and its arrays.

_ALIGNED = 64


def save(path: Path, value: Any) -> None:
    """Write a value; its arrays lie at aligned addresses where ``load`` maps the file."""
    buffers: list[Any] = []
    message = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    head = pickle.dumps((message, [array.nbytes for array in arrays]))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        for part in (len(head).to_bytes(_ALIGNED, "little"), head, *arrays):
            file.write(part)
            file.write(bytes(-file.tell() % _ALIGNED))
    # Two tasks may write the same rows at a time.
    os.replace(file.name, path)


def load(path: Path) -> Any:
    """Map a file of ``save`` into memory; ``FileNotFoundError`` if there is none."""
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    start = _ALIGNED
    length = int.from_bytes(mapped[:start], "little")
    message, sizes = pickle.loads(mapped[start : start + length])
    arrays = []
    for size in sizes:
        start += length + -length % _ALIGNED
        length = size
        arrays.append(mapped[start : start + size])
    return pickle.loads(message, buffers=arrays)


T = TypeVar("T")
_CHUNK_BYTES = 1 << 24
_CHUNKS_AHEAD = 2
_FACT_BYTES = 1 << 28
_END = object()
_UNWATCHED = Watch()
_Facts: TypeAlias = "tuple[NDArray[Any], Floats, Floats | None]"


@final
@dataclass(frozen=True, eq=False)
class StreamedRows(Rows):
    """Rows that are read, prepared and forgotten chunk by chunk, at every pass.

    ``facts``, the targets, norms and weights of all rows, are known where features can be used as
    they are stored; see ``prepared_stream``. ``watch`` has the files of the rows. The number of
    rows in a chunk depends on public facts only, however the storage is cut, and each
    chunk is cut into the blocks of ``ArrayRows``; so neighbouring data sets of equal length are
    cut alike. While one chunk is in use, a thread reads and prepares the next ones. In memory
    there are never more than these few chunks and the blocks that are being summed.

    Privacy: chunks in memory of their own are checked, and shortened where need be, each time they
    are read, so that a contribution is within its bound even if a file changes. Views of a mapped
    file, which cost nothing, have the norms that the first pass found. In both cases the size,
    time and identity of each file are compared before each pass and after it, before anything that
    was computed from it is used.
    """

    source: Source
    how: Preparation
    facts: _Facts | None
    spec: DataSpec
    watch: Watch = _UNWATCHED
    indices: NDArray[np.intp] | None = None
    entry_bound: float = np.inf

    @property
    def n_rows(self) -> int:
        return self.source.shape[0] if self.indices is None else len(self.indices)

    def blocks(self) -> Iterator[Block]:
        for chunk in self.chunks():
            yield from chunk.blocks()

    def chunks(self) -> Iterator[Rows]:
        chunks = self._chunks() if self._costs_nothing else _read_ahead(self._chunks())
        with contextlib.closing(chunks):
            size = self.n_rows
            yield from tenths("Pass over the rows", chunks, lambda rows: rows.n_rows, size)

    def clip_entries(self, bound: float) -> StreamedRows:
        return dataclasses.replace(self, entry_bound=min(bound, self.entry_bound))

    def arranged(self, places: NDArray[np.intp] | None) -> StreamedRows:
        """Return the rows at given positions, in that order; all as they are for None."""
        return self if places is None else dataclasses.replace(self, indices=places)

    @property
    def _costs_nothing(self) -> bool:
        """Whether chunks are used as views of the storage."""
        return self.facts is not None and self.entry_bound == np.inf and self._are_views

    @property
    def _are_views(self) -> bool:
        is_view = self.source.is_view and self.source.dtype == self.spec.dtype
        return is_view and self.indices is None

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> Rows:
        indices = indices if self.indices is None else self.indices[indices]
        taken = dataclasses.replace(self, spec=spec, indices=indices)
        if len(indices) > _chunk_rows(self.source, spec):
            return taken
        # A single chunk is read once, and not at each pass.
        chunk = next(taken._chunks(), taken)
        self.watch.check()
        return chunk

    def _read(self, *, features_only: bool) -> Iterator[Piece]:
        try:
            yield from _chunks(self.source, self.spec, self.indices, features_only=features_only)
        except Exception:
            # A file that changes may fail in any way: report the change.
            self.watch.check()
            raise

    def _chunks(self) -> Generator[Rows]:
        self.watch.check()
        start, facts = 0, self.facts
        for piece in self._read(features_only=facts is not None):
            X, rows = piece[0], slice(start, start + len(piece[0]))
            which: Any = rows if self.indices is None else self.indices[rows]
            start = rows.stop
            own = X.copy(order="K") if self._are_views and not self._costs_nothing else X
            if not self._costs_nothing and not np.isfinite(own).all():
                raise changed("a value is no longer a finite number")
            if facts is None:
                chunk = _prepared(self.how, (own, *piece[1:]), self.spec)
            else:
                y, norms, weights = (None if one is None else one[which] for one in facts)
                assert y is not None
                assert norms is not None
                if self._costs_nothing:
                    yield ArrayRows(X, y, norms, self.spec, weights)
                    continue
                # Norms of the very features given: they bind whatever was read.
                chunk = prepare_rows(own, y, self.spec, None, weights)
            yield chunk if self.entry_bound == np.inf else chunk.clip_entries(self.entry_bound)
        if start != self.n_rows:
            raise changed(f"there were {self.n_rows} rows and now there are {start}")


def _prepared(how: Preparation, piece: Piece, spec: DataSpec) -> Rows:
    """Prepare some rows, with public facts of their own."""
    X, y, weights = piece
    weights = None if weights is None else as_weights(weights, len(X))
    return dataclasses.replace(how, spec=spec).rows(X, y, weights)


def prepared_stream(source: Source, how: Preparation, cache: Path | None) -> StreamedRows:
    """Check all rows in one pass, and decide how they are read from then on.

    Where no row had to be changed, later passes read features alone and use targets, norms and
    weights of this one, which stay in memory up to 256 MiB; otherwise each pass prepares rows
    anew. With a ``cache`` folder nothing is prepared twice: its files are unnamed and vanish
    when they are no longer used, even if the process is killed.

    Privacy: nothing is released. The rows must not change while they are in use, which is checked
    as ``StreamedRows`` says.
    """
    if source.shape[0] == 0:
        raise ValueError("there must be at least one row, got none")
    watch, spec, unchanged = source.watch(), how.spec, True
    spools = _spools(source, how, cache)
    features = None if cache is None else Spool(cache, source.shape, spec.dtype)
    with contextlib.ExitStack() as closing:
        for spool in (*spools, *([] if features is None else [features])):
            closing.callback(spool.close)
        chunks = closing.enter_context(contextlib.closing(_read_ahead(_checked(source, how))))
        size = source.shape[0]
        for rows, as_stored in tenths("Checking the rows", chunks, lambda one: one[0].n_rows, size):
            unchanged = unchanged and as_stored
            for block in rows.blocks() if spools else ():
                facts = [block.targets, block.norms]
                facts += [] if block.weights is None else [block.weights]
                for spool, values in zip(spools, facts, strict=True):
                    spool.append(values)
                if features is not None:
                    features.append(block.features())
        watch.check()
        if features is not None:
            # An unnamed file: no other process writes to it.
            source = ArraySource(features.array())
            watch = source.watch()
        known: _Facts | None = None
        if spools and (unchanged or cache is not None):
            y, norms, *weights = (spool.array() for spool in spools)
            known = y, norms, weights[0] if weights else None
        return StreamedRows(source, how, known, spec, watch)


def _spools(source: Source, how: Preparation, cache: Path | None) -> list[Spool]:
    """Return room for targets, norms and weights of all rows; nothing if they need too much."""
    spec, n_rows = how.spec, source.shape[0]
    types: list[str] = [spec.dtype if spec.n_outputs == 1 else "intp", spec.dtype]
    weighted = source.is_weighted or how.weights is not None
    types += [spec.dtype] * (weighted or spec.weight_bound < 1.0)
    shapes: list[tuple[int, ...]] = [(n_rows,)] * len(types)
    if source.has_offset:
        shapes[0] = (n_rows, 2)
    facts = list(zip(shapes, types, strict=True))
    size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in facts)
    return [Spool(cache, *one) for one in facts] if cache or size <= _FACT_BYTES else []


def _checked(source: Source, how: Preparation) -> Generator[tuple[Rows, bool]]:
    """Prepare chunk after chunk; tell of each whether its features could stay as they are."""
    start = 0
    for X, y, weights in _chunks(source, how.spec):
        where = f"rows {start + 1} to {start + len(X)}"
        check_finite(X, source.column_name, start)
        try:
            rows = _prepared(how, (X, y, weights), how.spec)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        blocks = list(rows.blocks())
        yield rows, all(np.may_share_memory(block.features(), X) for block in blocks)
        start += len(X)
    if start != source.shape[0]:
        raise ValueError(f"{source.shape[0]} rows were announced, but there are {start}")


def _chunk_rows(source: Source, spec: DataSpec) -> int:
    """Rows of a chunk: whole runs, equally many for all data sets with the same public facts."""
    size = np.dtype(spec.dtype).itemsize * source.shape[1]
    return max(RUN_ROWS, _CHUNK_BYTES // size // RUN_ROWS * RUN_ROWS)


def _chunks(
    source: Source,
    spec: DataSpec,
    indices: NDArray[np.intp] | None = None,
    *,
    features_only: bool = False,
) -> Iterator[Piece]:
    """Read pieces of ``_chunk_rows`` rows each, but for the last, in the type of the spec."""
    size = _chunk_rows(source, spec)
    held: list[Piece] = []
    count = 0
    for whole in source.pieces(size, indices, features_only=features_only):
        rest = whole
        while len(rest[0]):
            lacking = size - count
            held.append(_rows_of(rest, slice(lacking)))
            rest = _rows_of(rest, slice(lacking, None))
            count += len(held[-1][0])
            if count == size:
                yield _joined(held, spec)
                held, count = [], 0
    if held:
        yield _joined(held, spec)


def _rows_of(piece: Piece, rows: slice) -> Piece:
    X, y, weights = piece
    return X[rows], y[rows], None if weights is None else weights[rows]


def _joined(pieces: list[Piece], spec: DataSpec) -> Piece:
    X, y, weights = pieces[0]
    if len(pieces) > 1:
        X = np.concatenate([piece[0] for piece in pieces])
        y = np.concatenate([piece[1] for piece in pieces])
        if weights is not None:
            weights = np.concatenate([cast(NDArray[Any], piece[2]) for piece in pieces])
    return X.astype(spec.dtype, copy=False), y, weights


def _read_ahead(items: Generator[T]) -> Generator[T]:
    """Run a generator in a thread, a few items ahead."""
    with ThreadPoolExecutor(1) as thread:
        pending = deque(thread.submit(next, items, _END) for _ in range(_CHUNKS_AHEAD))
        try:
            while (item := pending.popleft().result()) is not _END:
                pending.append(thread.submit(next, items, _END))
                yield cast(T, item)
        finally:
            thread.shutdown(cancel_futures=True)
            items.close()
