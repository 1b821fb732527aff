"""Rows in groups: sums over rows become sums over groups of what each contributes, bounded."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.compiled.kernels import Rule
from dpglm.data.groups.ids import batches, clipped, rows_of, segment_sums
from dpglm.data.memory.dense import DenseRows
from dpglm.data.memory.sparse import SparseRows
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import (
    SERIAL,
    AnyArrays,
    Block,
    BlockMap,
    Floats,
    Kernel,
    Rows,
    compensated_sum,
)
from dpglm.data.sampled import SampledBlock, sampled_rows
from dpglm.data.spec import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Unit

__all__ = ["GroupedRows", "InGroups"]


class InGroups(Rows):
    """Rows, those of each group one after the other, wherever they are.

    ``starts`` has the first row of each group, and the number of rows at the end.

    Privacy: a group's sum is a function of its own rows alone (but see ``sum_rounding`` on
    predictions where neighbours shift rows). In ``sum`` it is scaled down to the bound that
    ``bounded`` set, whatever the kernel returned for it, and the groups' sums are added in
    float64. So one group, with all its rows, changes a sum by at most the bound and what
    ``dpglm.oracle.rounding.group_rounding`` allows for. Without a bound nothing is summed. Of a
    Poisson sample, which has a ``step``, each group's part is rounded to multiples of it, so that
    sums are exact (``dpglm.data.sampled``).
    """

    unit = Unit.GROUP

    def __init__(
        self,
        rows: Rows,
        starts: NDArray[np.intp],
        bound: float | None = None,
        step: float | None = None,
    ) -> None:
        self.spec, self.watch = rows.spec, rows.watch
        self._rows, self._starts, self._bound, self._step = rows, starts, bound, step

    @abc.abstractmethod
    def _with(
        self, rows: Rows, starts: NDArray[np.intp], bound: float | None, step: float | None
    ) -> InGroups:
        """Put rows of this backend, or rows in memory, in groups."""

    def held(self, bound: float, step: float | None) -> InGroups:
        """Hold each group to a bound, and put what it contributes on the grid of ``step``."""
        return self._with(self._rows, self._starts, bound, step)

    @abc.abstractmethod
    def batch_sums(
        self, kernel: Kernel, size: int, map_blocks: BlockMap = SERIAL
    ) -> Iterable[NDArray[np.float64]]:
        """Return the bounded sums over batches of groups, of ``size`` numbers each."""

    @property
    def _most(self) -> float:
        """The bound on what a group contributes."""
        if self._bound is None:
            raise PlanMismatchError("sums over groups need a bound on what a group contributes")
        return self._bound

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def n_units(self) -> int:
        return len(self._starts) - 1

    def bounded(self, bound: float) -> InGroups:
        return self.held(bound, self._step)

    def alike(self, rows: Rows) -> InGroups:
        return self._with(rows, self._starts, None, self._step)

    def blocks(self) -> Iterator[Block]:
        return self._rows.blocks()

    def map_native(
        self, function: Callable[[Block], Any], map_blocks: BlockMap = SERIAL
    ) -> Iterable[Any]:
        return self._rows.map_native(function, map_blocks)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> InGroups:
        positions, starts = rows_of(self._starts, indices)
        return self._with(self._rows._taken(positions, spec), starts, self._bound, self._step)

    def clip_entries(self, bound: float) -> InGroups:
        return self._with(self._rows.clip_entries(bound), self._starts, self._bound, self._step)

    def sum(
        self, kernel: Kernel, map_blocks: BlockMap = SERIAL, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Add up what a kernel returns for each group, scaled down to the bound where longer."""
        shape = self.spec.coefficient_shape if shape is None else shape
        size = int(np.prod(shape))
        total = compensated_sum(self.batch_sums(kernel, size, map_blocks), np.zeros(size))
        self.watch.check()
        return total.reshape(shape)


@final
class GroupedRows(InGroups):
    """Rows in groups, in memory."""

    _rows: DenseRows | SparseRows

    def _with(
        self, rows: Rows, starts: NDArray[np.intp], bound: float | None, step: float | None
    ) -> GroupedRows:
        return GroupedRows(rows, starts, bound, step)

    def batch_sums(
        self, kernel: Kernel, size: int, map_blocks: BlockMap = SERIAL
    ) -> Iterable[NDArray[np.float64]]:
        bound, step = self._most, self._step
        # Of a sample each group is summed alone: how is a function of its own rows.
        apart = isinstance(kernel, AnyArrays) and kernel.apart and step is None

        def group(at: int) -> Block:
            block = self._rows.span(*self._starts[at : at + 2])
            return block if step is None else SampledBlock(block, self.spec.intercept, step)

        def batch_sum(batch: Any) -> NDArray[np.float64]:
            first, last = batch
            if apart and last - first > 1:
                sums = kernel(self._groups(first, last))
            else:
                sums = np.stack([kernel(group(at)) for at in range(first, last)])
            sums = np.asarray(sums, dtype=np.float64).reshape(last - first, size)
            return clipped(sums, bound, step)

        ranges: Any = batches(self._starts, size)
        return map_blocks(batch_sum, ranges)

    def _groups(self, first: int, last: int) -> _GroupBlock:
        start, stop = self._starts[first], self._starts[last]
        starts = self._starts[first : last + 1] - start
        return _GroupBlock(self._rows.span(start, stop), starts, self.spec.intercept)


@final
class _GroupBlock(Block):
    """The rows of several groups, whose sums are returned one by one."""

    def __init__(self, block: Block, starts: NDArray[np.intp], intercept: float) -> None:
        self._block, self._intercept = block, intercept
        self.targets, self.norms, self.weights = block.targets, block.norms, block.weights
        self.starts: NDArray[np.intp] = starts

    def predict(self, w: NDArray[np.float64]) -> Floats:
        return self._block.predict(w)

    def features(self) -> Floats:
        return self._block.features()

    def stored(self) -> Any:
        return self._block.stored()

    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        if slopes.ndim > 1:
            each = [self.weighted_sum(slopes[:, output]) for output in range(slopes.shape[1])]
            return np.stack(each, axis=-1)
        sums = segment_sums(self.stored(), slopes, self.starts)
        total: NDArray[np.float64] = sums if isinstance(sums, np.ndarray) else sums.toarray()
        if self._intercept == 0.0:
            return total
        ones = np.full((len(slopes), 1), self._intercept)
        return np.hstack([total, segment_sums(ones, slopes, self.starts)])

    def bounded_sum(
        self, rule: Rule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        return None


@sampled_rows.register
def _(rows: InGroups, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    taken = rows._taken(indices, rows.spec)
    return taken._with(taken._rows, taken._starts, taken._bound, step)


@derived_rows.register
def _(
    rows: InGroups,
    function: Callable[[Block], Any],
    spec: DataSpec,
    map_blocks: BlockMap = SERIAL,
    overwrite: bool = False,
) -> Rows:
    return rows.alike(derived_rows(rows._rows, function, spec, map_blocks, overwrite))
