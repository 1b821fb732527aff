"""Threads over blocks of rows."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpglm.data.rows import SERIAL, Block, BlockMap, Kernel, Rows

__all__ = ["block_map"]

_PARALLEL_ENTRIES = 1 << 20
_MOST_BLOCKS_EACH = 8
_MOST_BLOCKS = 32
"""In memory at a time where blocks are read from files, but at least one for each thread."""


@contextlib.contextmanager
def block_map(rows: Rows) -> Iterator[BlockMap]:
    """Threads over blocks, each with a single-threaded BLAS, where that pays."""
    threads = cpu_count()
    if threads == 1 or rows.n_rows * rows.spec.n_columns < _PARALLEL_ENTRIES:
        yield SERIAL
        return
    with (
        ThreadPoolExecutor(threads, "dpglm", _stay_on_one_of, (_processors(threads),)) as pool,
        threadpool_limits(1, user_api="blas"),
    ):

        def map_blocks(kernel: Kernel, blocks: Iterable[Block]) -> Iterator[NDArray[np.float64]]:
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
    pool: ThreadPoolExecutor, threads: int, kernel: Kernel, blocks: list[Block]
) -> list[NDArray[np.float64]]:
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
