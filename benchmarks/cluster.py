"""Print the overhead of a Dask cluster for each step of a fit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bar import Bar
from dpglm.data.collection import Preparation, as_collection
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import SystemNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic

__all__ = ["CLUSTER"]

_ROWS_OF_A_WORKER, _FEATURES = 100_000, 100
_STEPS = 50


class _TimedRows:
    """Rows whose sums also return the kernel time of the slowest worker.

    That is time on the clock: where there are more workers than processors, it includes
    the time that a worker waits for others to compute.
    """

    def __init__(self, rows: Any, n_workers: int) -> None:
        self.spec, self._rows, self._n_workers = rows.spec, rows, n_workers
        self.slowest = 0.0

    def sum(self, kernel: Any, shape: Any = None) -> Any:
        (size,), n_workers = self.spec.coefficient_shape, self._n_workers

        def timed(block: Any) -> Any:
            from distributed import get_worker

            start = time.perf_counter()
            result = np.zeros(size + n_workers)
            result[:size] = kernel(block)
            result[size + get_worker().name] = time.perf_counter() - start
            return result

        total = self._rows.sum(timed, shape=(size + n_workers,))
        self.slowest = float(total[size:].max())
        return total[:size]


def _step_over(n_workers: int, partitions: int, n_rows: int) -> Callable[[], tuple[float, float]]:
    """Return a function that makes a step; it returns its seconds and the slowest worker's."""
    import dask.array as da

    rng = da.random.default_rng(0)
    X = rng.standard_normal((n_rows, _FEATURES), (n_rows // partitions, -1), dtype=np.float32)
    y = da.where(X[:, 0] > 0, 1.0, -1.0)
    spec = DataSpec(n_rows=n_rows, n_features=_FEATURES, row_norm=20.0, dtype="float32")
    collection = as_collection(X, y)
    assert collection is not None
    rows = _TimedRows(collection.prepared(Preparation(spec, None, np.asarray)), n_workers)
    curator = Curator(Adjacency.ZERO_OUT, SystemNoise())
    oracle = Oracle(rows, Logistic(), curator)  # type: ignore[arg-type]
    clipping = FlatClipping(1.0)
    declared = gradient_release(spec, Adjacency.ZERO_OUT, clipping, GaussianNoise(1.0))

    def step() -> tuple[float, float]:
        start = time.perf_counter()
        oracle.noisy_gradient(declared, np.zeros(_FEATURES), clipping)
        return time.perf_counter() - start, rows.slowest

    for _ in range(5):
        step()
    return step


@contextmanager
def _cluster(n_workers: int) -> Iterator[None]:
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster):
        yield


def _milliseconds(n_workers: int, partitions: int) -> np.ndarray[Any, Any]:
    """Time steps in turn over many rows, and over so few that nothing but messages is left.

    Returns
    -------
    ndarray of shape (steps, 4)
        Whole step, slowest worker, the difference, and whole step over few rows.
    """
    with _cluster(n_workers):
        step = _step_over(n_workers, partitions, n_workers * _ROWS_OF_A_WORKER)
        empty = _step_over(n_workers, partitions, partitions)
        times = 1e3 * np.array([(*step(), empty()[0]) for _ in range(_STEPS)])
    return np.column_stack([times[:, :2], times[:, 0] - times[:, 1], times[:, 2]])


def overhead(splits: Path) -> Iterator[Bar]:
    """Time of a step beyond that of the slowest of three workers; spread is half the quartiles'."""
    low, median, high = np.quantile(_milliseconds(3, 3)[:, 2], [0.25, 0.5, 0.75])
    name = f"cluster of 3 workers on {os.cpu_count()} processors, step beyond the slowest's compute"
    yield Bar(name, float(median), float(high - low) / 2.0, 20.0, False, " ms")


CLUSTER: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"cluster": overhead}


def main() -> None:
    """Print medians, and quartiles of the overhead, for several sizes."""
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; milliseconds\n")
    print("| workers | partitions | step | slowest worker | beyond it | quartiles | messages |")
    print("|---|---|---|---|---|---|---|")
    for n_workers, partitions in ((1, 1), (2, 2), (3, 3), (3, 12), (3, 48), (6, 6)):
        times = _milliseconds(n_workers, partitions)
        step, slowest, beyond, messages = np.median(times, axis=0)
        low, high = np.quantile(times[:, 2], [0.25, 0.75])
        print(
            f"| {n_workers} | {partitions} | {step:.1f} | {slowest:.1f} | {beyond:.1f} "
            f"| {low:.1f} to {high:.1f} | {messages:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
