"""Rows as a backend sees them: blocks that can predict and sum, and nothing else."""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, final

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpglm.data.compiled.kernels import SlopeRule
from dpglm.data.spec import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Unit
from dpglm.tables.files import Watch

Floats: TypeAlias = NDArray[np.floating[Any]]


class Block(abc.ABC):
    """Some rows, few enough to stay in cache while they are used twice."""

    targets: NDArray[Any]
    """Targets as the loss wants them, shape ``(rows,)``."""
    norms: Floats
    """Upper bounds on the L2 norm of each row with its intercept column, shape ``(rows,)``."""
    weights: Floats | None
    """Weight of each row, shape ``(rows,)``, or None for all ones."""
    starts: NDArray[np.intp] | None = None
    """Where each of several groups starts, and the number of rows: a kernel returns the sum over
    the rows of each group then, along a first axis. None for one sum over all rows."""

    @abc.abstractmethod
    def predict(self, w: NDArray[np.float64]) -> Floats:
        """Linear predictions ``z``, shape ``(rows,)`` or ``(rows, outputs)``; a fresh array."""

    @abc.abstractmethod
    def features(self) -> Floats:
        """Rows without their intercept column, dense; not to be written to."""

    def stored(self) -> Any:
        """Rows without their intercept column, dense or CSR as they are stored."""
        return self.features()

    def located(self) -> tuple[Any, NDArray[np.int64] | None]:
        """Return an array of rows, and the places of the block's rows in it; None for all."""
        return self.stored(), None

    @abc.abstractmethod
    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        """``sum_i slopes_i x_i`` in the shape of the parameter."""

    def bounded_sum(
        self, rule: SlopeRule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        """Sum of clipped, weighted slopes times rows in compiled code; None where there is none.

        ``targets`` and ``norms`` are the block's own, or a view's.
        """
        return None


T = TypeVar("T")
R = TypeVar("R")
Kernel: TypeAlias = Callable[[Block], NDArray[np.float64]]


class BlockMap(Protocol):
    """Applies a function to blocks, or other parts of rows, in order, perhaps on threads."""

    def __call__(self, function: Callable[[T], R], parts: Iterable[T], /) -> Iterable[R]: ...


SERIAL: BlockMap = map


@final
@dataclass(frozen=True)
class AnyArrays:
    """A kernel for blocks of NumPy arrays and of tensors, with float64 values of their kind.

    Rows on a device give it blocks there; a kernel without this mark gets copies on the host.
    With ``apart`` it takes blocks of several groups, too, and returns the sum of each; other
    kernels get the groups one by one.
    """

    kernel: Kernel
    apart: bool = False

    def __call__(self, block: Block) -> NDArray[np.float64]:
        """Call the kernel."""
        return self.kernel(block)


class Rows(abc.ABC):
    """Prepared rows: their norms, targets and weights satisfy the bounds of ``spec``.

    A backend implements this class and ``Block``; every solver then runs on it. Neighbouring data
    sets of equal length are cut into the same blocks, so that one row changes the sum of one block
    only; the rounding bound of a sum rests on that.
    """

    spec: DataSpec
    watch: Watch = Watch()
    """Files in which the rows lie, to be checked after a pass and before its result is used."""

    @property
    @abc.abstractmethod
    def n_rows(self) -> int:
        """The true number of rows; private under ``add_remove``."""

    @property
    def unit(self) -> Unit:
        """The unit of protection: a row, or all rows of a group."""
        return Unit.ROW

    @property
    def n_units(self) -> int:
        """The true number of rows, or of groups."""
        return self.n_rows

    def bounded(self, bound: float) -> Rows:
        """Return rows that clip each unit's contribution to a sum to an L2 norm.

        Rows alone stay as they are, since kernels bound each row. Rows in groups can be summed
        only after this.
        """
        if self.spec.unit is not self.unit:
            raise PlanMismatchError(
                f"rows must be in groups where each {self.spec.unit.value} is protected"
            )
        return self

    def alike(self, rows: Rows) -> Rows:
        """Put new rows, one for each of these, into the groups of these."""
        return rows

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in order, in blocks with boundaries that depend on their number only."""

    def chunks(self) -> Iterator[Rows]:
        """All rows, in order, in parts that are in memory."""
        yield self

    def map_native(
        self, function: Callable[[Block], Any], map_blocks: BlockMap = SERIAL
    ) -> Iterable[Any]:
        """Apply a function of any arrays to blocks in the rows' own storage, in order."""
        yield from map_blocks(function, self.blocks())
        self.watch.check()

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """Take the rows, or groups, at the given positions, in that order."""
        return self._taken(indices, self.spec)

    def part(self, indices: NDArray[np.intp]) -> Rows:
        """Take rows, or groups, as a data set of its own: its ``spec`` has their number."""
        return self._taken(indices, self.spec.of_units(len(indices)))

    @abc.abstractmethod
    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> Rows: ...

    @abc.abstractmethod
    def clip_entries(self, bound: float) -> Rows:
        """Clip every entry to [-bound, bound], except in the intercept column."""

    def sum(
        self, kernel: Kernel, map_blocks: BlockMap = SERIAL, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Add up a kernel's arrays, by default of the parameter's shape, in the blocks' order.

        The error of the result is at most ``u |sum| + gamma_m**2 sum |parts|`` for m blocks,
        coordinate by coordinate: Ogita, Rump and Oishi, "Accurate sum and dot product", SIAM J.
        Sci. Comput. 26 (2005), Proposition 4.5.
        """
        zero = np.zeros(self.spec.coefficient_shape if shape is None else shape)
        total = compensated_sum(map_blocks(kernel, self.blocks()), zero)
        self.watch.check()
        return total


def compensated_sum(
    parts: Iterable[NDArray[np.float64]], zero: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add up float64 arrays, or tensors, in their order, with twice the precision of float64."""
    total, lost = zero, zero + 0.0
    for part in parts:
        total, error = two_sum(total, part)
        lost += error
    return total + lost


def two_sum(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rounded sum and its exact error (Knuth's TwoSum)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


# Threads over blocks of rows.

_PARALLEL_ENTRIES = 1 << 20
_MOST_BLOCKS_EACH = 8
_MOST_BLOCKS = 32
"""In memory at a time where blocks are read from files, but at least one for each thread."""


def block_map(rows: Rows) -> contextlib.AbstractContextManager[BlockMap]:
    """Threads over the blocks of rows, where that pays."""
    return threads_over(rows.n_rows * rows.spec.n_columns)


@contextlib.contextmanager
def threads_over(n_entries: int) -> Iterator[BlockMap]:
    """Threads over parts of ``n_entries``, each with a single-threaded BLAS, where that pays."""
    threads = cpu_count()
    if threads == 1 or n_entries < _PARALLEL_ENTRIES:
        yield SERIAL
        return
    with (
        ThreadPoolExecutor(threads, "dpglm", _stay_on_one_of, (_processors(threads),)) as pool,
        threadpool_limits(1, user_api="blas"),
    ):

        def map_blocks(kernel: Callable[[T], R], blocks: Iterable[T]) -> Iterator[R]:
            remaining = iter(blocks)
            each = max(1, min(_MOST_BLOCKS_EACH, _MOST_BLOCKS // threads))
            while wave := list(itertools.islice(remaining, threads * each)):
                yield from _on_threads(pool, threads, kernel, wave)

        yield map_blocks


def _processors(threads: int) -> Iterator[int]:
    """Return a processor for each thread, or none unless there are as many of them as threads.

    A thread that hands the interpreter's lock to another has it woken on its own processor, where
    both then stay for longer than a step takes. With processors to spare, placing threads is left
    to the system.
    """
    if sys.platform != "linux":
        return iter(())
    usable = sorted(os.sched_getaffinity(0))
    return iter(usable if len(usable) == threads else ())


def _stay_on_one_of(processors: Iterator[int]) -> None:
    """Keep this thread on the next processor."""
    processor = next(processors, None)
    if sys.platform == "linux" and processor is not None:
        # It may have been taken away meanwhile.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {processor})


def _on_threads(
    pool: ThreadPoolExecutor, threads: int, kernel: Callable[[T], R], blocks: list[T]
) -> list[R]:
    """Apply a kernel to blocks; whichever thread is free takes the next."""
    sums: list[Any] = [None] * len(blocks)
    # All threads draw from one iterator: handing out single blocks from here would make them
    # wait for each other at the interpreter's lock.
    positions = iter(range(len(blocks)))

    def work(_: int) -> None:
        # Threads do not inherit this from ``run``, which has the reason.
        with np.errstate(all="ignore"):
            for position in positions:
                sums[position] = kernel(blocks[position])

    for _ in pool.map(work, range(threads)):
        pass
    return sums
