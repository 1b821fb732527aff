"""Rows in groups that are read from storage, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.groups.rows import GroupedRows, InGroups
from dpglm.data.memory.dense import DenseRows
from dpglm.data.rows import SERIAL, BlockMap, Kernel, Rows
from dpglm.data.stream.streamed import StreamedRows

__all__ = ["GroupedStream"]


@final
class GroupedStream(InGroups):
    """Rows in storage, visited group by group; ``starts`` as for ``InGroups``.

    Chunks are cut between groups: rows of a group that lie in several are put together in memory
    first, so that each group is summed and bounded once, as a whole.
    """

    _rows: StreamedRows

    def _with(
        self, rows: Rows, starts: NDArray[np.intp], bound: float | None, step: float | None
    ) -> InGroups:
        kind = GroupedStream if isinstance(rows, StreamedRows) else GroupedRows
        return kind(rows, starts, bound, step)

    def batch_sums(
        self, kernel: Kernel, size: int, map_blocks: BlockMap = SERIAL
    ) -> Iterable[NDArray[np.float64]]:
        bound = self._most
        for part in self._parts():
            yield from part.held(bound, self._step).batch_sums(kernel, size, map_blocks)

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
