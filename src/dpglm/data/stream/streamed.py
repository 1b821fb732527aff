"""Rows that are read from storage each time they are needed, a chunk at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import tenths
from dpglm.data.collection import Preparation
from dpglm.data.memory import RUN_ROWS, DenseRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import Block, DataSpec, Floats, Rows
from dpglm.data.stream.source import ArraySource, Piece, Source, Spool
from dpglm.tables.cells import check_finite
from dpglm.tables.given import Watch, as_weights, changed

T = TypeVar("T")
_CHUNK_BYTES = 1 << 24
_CHUNKS_AHEAD = 2
_FACT_BYTES = 1 << 28
_END = object()


@final
@dataclass(frozen=True)
class _Recipe:
    """How stored rows become prepared ones."""

    source: Source
    how: Preparation
    watch: Watch

    def prepare(self, piece: Piece, spec: DataSpec) -> Rows:
        """Prepare some rows, with public facts of their own."""
        X, y, weights = piece
        weights = None if weights is None else as_weights(weights, len(X))
        return dataclasses.replace(self.how, spec=spec).rows(X, y, weights)


@final
@dataclass(frozen=True)
class _RowFacts:
    """Targets, norms and weights of rows with stored features that satisfy the bounds."""

    targets: NDArray[Any]
    norms: Floats
    weights: Floats | None

    def about(self, X: Floats, rows: Any, spec: DataSpec) -> Rows:
        """Put features together with the facts about them."""
        return DenseRows(X, self.targets[rows], self.norms[rows], spec, self._weights_of(rows))

    def bounding(self, X: Floats, rows: Any, spec: DataSpec) -> Rows:
        """Do the same with norms of the very features given: they bind whatever was read."""
        return prepare_rows(X, self.targets[rows], spec, None, self._weights_of(rows))

    def _weights_of(self, rows: Any) -> Floats | None:
        return None if self.weights is None else self.weights[rows]


@final
@dataclass(frozen=True, eq=False)
class StreamedRows(Rows):
    """Rows that are read, prepared and forgotten chunk by chunk, at every pass.

    ``facts`` are known where features can be used as they are stored; see ``prepared_stream``. The
    number of rows in a chunk depends on public facts only, however the storage is cut, and each
    chunk is cut into the blocks of ``DenseRows``; so neighbouring data sets of equal length are
    cut alike. While one chunk is in use, a thread reads and prepares the next ones. In memory
    there are never more than these few chunks and the blocks that are being summed.

    Privacy: chunks in memory of their own are checked, and shortened where need be, each time they
    are read, so that a contribution is within its bound even if a file changes. Views of a mapped
    file, which cost nothing, have the norms that the first pass found. In both cases the size,
    time and identity of each file are compared before each pass and after it, before anything that
    was computed from it is used.
    """

    recipe: _Recipe
    facts: _RowFacts | None
    spec: DataSpec
    indices: NDArray[np.intp] | None = None
    entry_bound: float = np.inf

    @property
    def watch(self) -> Watch:  # type: ignore[override]
        """The files in which the rows lie."""
        return self.recipe.watch

    @property
    def n_rows(self) -> int:
        return self.recipe.source.shape[0] if self.indices is None else len(self.indices)

    def blocks(self) -> Iterator[Block]:
        for chunk in self.chunks():
            yield from chunk.blocks()

    def chunks(self) -> Iterator[Rows]:
        chunks = self._chunks() if self._costs_nothing else _read_ahead(self._chunks())
        with contextlib.closing(chunks):
            yield from tenths("Pass over the rows", chunks, _n_rows, self.n_rows)

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
        source = self.recipe.source
        return source.is_view and source.dtype == self.spec.dtype and self.indices is None

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> Rows:
        indices = indices if self.indices is None else self.indices[indices]
        taken = dataclasses.replace(self, spec=spec, indices=indices)
        if len(indices) > _chunk_rows(self.recipe.source, spec):
            return taken
        # A single chunk is read once, and not at each pass.
        chunk = next(taken._chunks(), taken)
        self.watch.check()
        return chunk

    def _read(self, *, features_only: bool) -> Iterator[Piece]:
        source = self.recipe.source
        try:
            yield from _chunks(source, self.spec, self.indices, features_only=features_only)
        except Exception:
            # A file that changes may fail in any way: report the change.
            self.watch.check()
            raise

    def _chunks(self) -> Generator[Rows]:
        self.watch.check()
        start, source, facts = 0, self.recipe.source, self.facts
        for X, y, weights in self._read(features_only=facts is not None):
            rows = slice(start, start + len(X))
            which: Any = rows if self.indices is None else self.indices[rows]
            start = rows.stop
            if facts is not None and self._costs_nothing:
                yield facts.about(X, which, self.spec)
                continue
            own = X.copy(order="K") if self._are_views else X
            if not np.isfinite(own).all():
                raise changed("a value is no longer a finite number")
            if facts is None:
                chunk = self.recipe.prepare((own, y, weights), self.spec)
            else:
                chunk = facts.bounding(own, which, self.spec)
            yield chunk if self.entry_bound == np.inf else chunk.clip_entries(self.entry_bound)
        n_rows = source.shape[0] if self.indices is None else len(self.indices)
        if start != n_rows:
            raise changed(f"there were {n_rows} rows and now there are {start}")


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
    recipe, spec, unchanged = _Recipe(source, how, source.watch()), how.spec, True
    with contextlib.ExitStack() as closing:
        store = closing.enter_context(contextlib.closing(_Store(recipe, spec, cache)))
        chunks = closing.enter_context(contextlib.closing(_read_ahead(_checked(recipe, spec))))
        size = source.shape[0]
        for rows, as_stored in tenths("Checking the rows", chunks, lambda one: one[0].n_rows, size):
            unchanged = unchanged and as_stored
            store.append(rows)
        recipe.watch.check()
        if cache is not None:
            # An unnamed file: no other process writes to it.
            kept = ArraySource(store.features())
            recipe = dataclasses.replace(recipe, source=kept, watch=kept.watch())
        ready = store.is_open and (unchanged or cache is not None)
        return StreamedRows(recipe, store.facts() if ready else None, spec)


@final
class _Store:
    """Facts about rows from the first pass, as far as there is room, and a cache's rows."""

    def __init__(self, recipe: _Recipe, spec: DataSpec, cache: Path | None) -> None:
        n_rows = recipe.source.shape[0]
        types: list[str] = [spec.dtype if spec.n_outputs == 1 else "intp", spec.dtype]
        weighted = recipe.source.is_weighted or recipe.how.weights is not None
        types += [spec.dtype] * (weighted or spec.weight_bound < 1.0)
        shapes: list[tuple[int, ...]] = [(n_rows,)] * len(types)
        if recipe.source.has_offset:
            shapes[0] = (n_rows, 2)
        facts = list(zip(shapes, types, strict=True))
        size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in facts)
        self.is_open = cache is not None or size <= _FACT_BYTES
        self._facts = [Spool(cache, *one) for one in facts] if self.is_open else []
        self._features = None if cache is None else Spool(cache, recipe.source.shape, spec.dtype)

    def append(self, rows: Rows) -> None:
        for block in rows.blocks() if self.is_open else ():
            facts = [block.targets, block.norms]
            facts += [] if block.weights is None else [block.weights]
            for spool, values in zip(self._facts, facts, strict=True):
                spool.append(values)
            if self._features is not None:
                self._features.append(block.features())

    def close(self) -> None:
        """Close the files; arrays that were read from them stay."""
        for spool in (*self._facts, *([] if self._features is None else [self._features])):
            spool.close()

    def facts(self) -> _RowFacts:
        y, norms, *weights = (spool.array() for spool in self._facts)
        return _RowFacts(y, norms, weights[0] if weights else None)

    def features(self) -> NDArray[Any]:
        assert self._features is not None
        return self._features.array()


def _n_rows(rows: Rows) -> int:
    return rows.n_rows


def _checked(recipe: _Recipe, spec: DataSpec) -> Generator[tuple[Rows, bool]]:
    """Prepare chunk after chunk; tell of each whether its features could stay as they are."""
    start, source = 0, recipe.source
    for X, y, weights in _chunks(source, spec):
        where = f"rows {start + 1} to {start + len(X)}"
        check_finite(X, source.column_name, start)
        try:
            rows = recipe.prepare((X, y, weights), spec)
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
