"""Rows in groups that are read from storage, a chunk at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.groups.ids import rows_of
from dpglm.data.groups.rows import GroupedRows
from dpglm.data.memory.dense import DenseRows
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import SERIAL, Block, BlockMap, Kernel, Rows, compensated_sum
from dpglm.data.spec import DataSpec
from dpglm.data.stream.streamed import StreamedRows
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Unit

__all__ = ["GroupedStream"]


@final
class GroupedStream(Rows):
    """Rows in storage, visited group by group; ``starts`` as for ``GroupedRows``.

    Chunks are cut between groups: rows of a group that lie in several are put together in memory
    first, so that each group is summed and bounded once, as a whole.
    """

    def __init__(
        self, rows: StreamedRows, starts: NDArray[np.intp], bound: float | None = None
    ) -> None:
        self.spec, self.watch = rows.spec, rows.watch
        self._rows, self._starts, self._bound = rows, starts, bound

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def unit(self) -> Unit:
        return Unit.GROUP

    @property
    def n_units(self) -> int:
        return len(self._starts) - 1

    def bounded(self, bound: float) -> GroupedStream:
        return GroupedStream(self._rows, self._starts, bound)

    def alike(self, rows: Rows) -> GroupedRows:
        assert isinstance(rows, DenseRows)
        return GroupedRows(rows, self._starts)

    def blocks(self) -> Iterator[Block]:
        return self._rows.blocks()

    def map_native(
        self, function: Callable[[Block], Any], map_blocks: BlockMap = SERIAL
    ) -> Iterable[Any]:
        return self._rows.map_native(function, map_blocks)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> Rows:
        positions, starts = rows_of(self._starts, indices)
        rows = self._rows._taken(positions, spec)
        if isinstance(rows, StreamedRows):
            return GroupedStream(rows, starts, self._bound)
        assert isinstance(rows, DenseRows)
        return GroupedRows(rows, starts, self._bound)

    def clip_entries(self, bound: float) -> GroupedStream:
        return GroupedStream(self._rows.clip_entries(bound), self._starts, self._bound)

    def sum(
        self, kernel: Kernel, map_blocks: BlockMap = SERIAL, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Add up what a kernel returns for each group, as ``GroupedRows.sum`` does."""
        bound = self._bound
        if bound is None:
            raise PlanMismatchError("sums over groups need a bound on what a group contributes")
        shape = self.spec.coefficient_shape if shape is None else shape
        size = int(np.prod(shape))
        sums = itertools.chain.from_iterable(
            part.bounded(bound).batch_sums(kernel, size, map_blocks) for part in self._parts()
        )
        total = compensated_sum(sums, np.zeros(size))
        self.watch.check()
        return total.reshape(shape)

    def _parts(self) -> Iterator[GroupedRows]:
        """All groups, in order, those of each chunk together."""
        starts, done, first = self._starts, 0, 0
        begun: list[DenseRows] = []
        for chunk in self._rows.chunks():
            assert isinstance(chunk, DenseRows)
            last, offset = first + chunk.n_rows, 0
            if begun:
                # What the chunk has of the group that an earlier one began.
                offset = int(min(starts[done + 1], last)) - first
                begun.append(chunk.take(np.arange(offset)))  # type: ignore[arg-type]
                if starts[done + 1] > last:
                    first = last
                    continue
                yield GroupedRows(DenseRows.joined(begun), starts[done : done + 2] - starts[done])
                done, begun = done + 1, []
            whole = int(np.searchsorted(starts, last, side="right")) - 1
            if whole > done:
                yield GroupedRows(chunk, starts[done : whole + 1] - first)
                done = whole
            if starts[done] < last:
                rest = np.arange(int(starts[done]) - first, chunk.n_rows)
                begun = [DenseRows.joined([chunk.take(rest)])]  # type: ignore[list-item]
            first = last


@derived_rows.register
def _(
    rows: GroupedStream,
    function: Callable[[Block], Any],
    spec: DataSpec,
    map_blocks: BlockMap = SERIAL,
    overwrite: bool = False,
) -> Rows:
    return rows.alike(derived_rows(rows._rows, function, spec, map_blocks, overwrite))
