"""The one loop that drives every solver, and checks that what happened was planned."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpglm.data.rows import SERIAL, Block, BlockMap, Kernel, Rows
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.events import canonical
from dpglm.privacy.mechanisms import Curator
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan, Solution, StepInfo

__all__ = ["run", "run_to_state"]

_PARALLEL_ENTRIES = 1 << 20
_BLOCKS_AT_ONCE = 8


def run(
    plan: Plan,
    rows: Rows,
    noise: NoiseSource,
    progress: Callable[[StepInfo], None] | None = None,
) -> Solution:
    """Execute a plan on rows.

    Parameters
    ----------
    plan : Plan
        What to do.
    rows : Rows
        Prepared rows whose ``spec`` is the plan's.
    noise : NoiseSource
        Where all randomness comes from.
    progress : callable, optional
        Called after each step with its public diagnostics. Not called where only the last
        iterate is paid for.

    Returns
    -------
    Solution
        The released parameter and the record of the run.

    Raises
    ------
    PlanMismatchError
        If the rows are not those that were planned for, or the events that happened are not
        those that were planned; nothing is returned then.

    Notes
    -----
    Privacy: ``plan.event``, under ``plan.adjacency``.
    """
    return run_to_state(plan, rows, noise, progress)[0]


def run_to_state(
    plan: Plan,
    rows: Rows,
    noise: NoiseSource,
    progress: Callable[[StepInfo], None] | None = None,
) -> tuple[Solution, Any]:
    """Execute a plan as ``run`` does, for callers that need the method's last state too.

    Parameters
    ----------
    plan, rows, noise, progress
        As for ``run``.

    Returns
    -------
    Solution
        What ``run`` returns.
    state
        The last state; made of released values, as all states are.
    """
    if rows.spec != plan.data:
        raise PlanMismatchError(f"rows have the facts {rows.spec}, but the plan is for {plan.data}")
    if plan.adjacency.n_is_public and rows.n_rows != plan.data.n_rows:
        raise PlanMismatchError(
            f"there are {rows.n_rows} rows, but the plan is for n_rows={plan.data.n_rows}"
        )
    method = plan.method
    curator = Curator(plan.adjacency, noise)
    history: list[StepInfo] = []
    with block_map(rows) as map_blocks:
        seed = int(noise.words(1)[0])
        oracle = Oracle(method.prepare(rows, seed), plan.problem.loss, curator, map_blocks)
        state = method.init(seed)
        for _ in range(method.n_steps):
            state, info = method.step(state, oracle)
            if method.releases_iterates:
                history.append(info)
                if progress is not None:
                    progress(info)
    if curator.event != canonical(method.mechanisms):
        raise PlanMismatchError(
            f"planned to release {canonical(method.mechanisms)}, but released {curator.event}"
        )
    solution = Solution(
        method.finish(state),
        plan,
        tuple(history),
        noise.name,
        method.noise_in(state),
        method.chosen(state),
    )
    return solution, state


@contextlib.contextmanager
def block_map(rows: Rows) -> Iterator[BlockMap]:
    """Threads over blocks, each with a single-threaded BLAS, where there is enough to do."""
    threads = cpu_count()
    if threads == 1 or rows.n_rows * rows.spec.n_columns < _PARALLEL_ENTRIES:
        yield SERIAL
        return
    with ThreadPoolExecutor(threads) as pool, threadpool_limits(1, user_api="blas"):

        def map_blocks(kernel: Kernel, blocks: Iterable[Block]) -> Iterator[NDArray[np.float64]]:
            # Threads that hand over the interpreter's lock once per block wait for each other.
            remaining = iter(blocks)
            while wave := list(itertools.islice(remaining, threads * _BLOCKS_AT_ONCE)):
                shares = [wave[first::threads] for first in range(threads)]
                sums = list(pool.map(lambda share: [kernel(block) for block in share], shares))
                for position in range(len(wave)):
                    yield sums[position % threads][position // threads]

        yield map_blocks
