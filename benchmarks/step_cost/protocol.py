"""Questions to a library's process and its answers; needs NumPy and SciPy only.

An adapter is a module that is run by its library's own interpreter,
``python -m benchmarks.step_cost.NAME_adapter THREADS``. It answers one request at a time: a
pickled tuple on its standard input, a pickled answer on its standard output.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.peers.protocol import ROOT, Predict, Task

__all__ = ["CLIP", "Adapter", "Rows", "Work", "Worker", "Workload", "make_rows", "serve"]

CLIP = 0.3
"""Rows are about 1 long and slopes of the logistic loss about 0.4: most gradients are clipped."""
Work = Callable[[], Any]
"""Run the measured call to its end; return one or several arrays."""


@final
@dataclass(frozen=True)
class Workload:
    """Rows that are drawn alike in every process, and the shape of a model."""

    rows: int
    columns: int
    classes: int = 1
    """1: logistic loss; more: softmax."""
    dtype: str = "float32"
    density: float = 1.0
    """Share of entries that are not zero; below 1 the rows are in CSR format."""


@final
@dataclass(frozen=True)
class Rows:
    """Rows, targets 0, 1, ..., norms of the rows, and where the gradient is taken."""

    X: Any
    y: NDArray[np.int64]
    norms: NDArray[Any]
    w: NDArray[Any]


@lru_cache(maxsize=1)
def make_rows(workload: Workload) -> Rows:
    """Draw rows about 1 long, targets, and a parameter with predictions of about 1."""
    rng = np.random.default_rng(0)
    n, d = workload.rows, workload.columns
    X: Any
    if workload.density < 1.0:
        X = _sparse(workload, rng)
        norms = np.sqrt(X.multiply(X).sum(axis=1))
    else:
        X = rng.standard_normal((n, d), dtype=workload.dtype)  # type: ignore[call-overload]
        X /= np.sqrt(X.dtype.type(d))
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    y = rng.integers(0, max(2, workload.classes), size=n)
    shape = (d,) if workload.classes == 1 else (d, workload.classes)
    return Rows(X, y, norms, rng.standard_normal(shape).astype(workload.dtype))


def _sparse(workload: Workload, rng: np.random.Generator) -> sparse.csr_array:
    # One entry in each run of columns: sorted, no duplicates, and quickly drawn.
    n, run = workload.rows, round(1.0 / workload.density)
    each = workload.columns // run
    columns = rng.integers(0, run, size=(n, each), dtype=np.int32)
    columns += np.arange(0, each * run, run, dtype=np.int32)
    values = rng.standard_normal(n * each, dtype=workload.dtype)  # type: ignore[call-overload]
    values /= np.sqrt(values.dtype.type(each))
    starts = np.arange(0, n * each + 1, each, dtype=np.int32)
    return sparse.csr_array((values, columns.ravel(), starts), shape=(n, workload.columns))


@final
@dataclass(frozen=True)
class Adapter:
    """Capabilities of one library."""

    version: str
    """Names and versions of the libraries that compute."""
    works: Mapping[str, Callable[[Workload], AbstractContextManager[Work]]] = field(
        default_factory=dict
    )
    """Steps, by their names in the tables; a context holds all that is prepared for a workload."""
    fits: Mapping[str, Callable[[Task, float, int], Predict]] = field(default_factory=dict)
    """Whole fits to a task's rows at an epsilon with a seed, as in ``benchmarks.peers``."""


def serve(adapter: Adapter) -> None:
    """Answer requests until the input ends, on as many cores as the command line says."""
    if sys.platform.startswith("linux"):
        # Not every library has a setting for its threads.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with ExitStack() as stack:
        session = _Session(adapter, stack)
        while True:
            try:
                name, arguments = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                answer = (True, getattr(session, name)(*arguments))
            except Exception:  # noqa: BLE001  (the driver stops with it)
                answer = (False, traceback.format_exc())
            pickle.dump(answer, answers)
            answers.flush()


class _Session:
    """One method for each request."""

    def __init__(self, adapter: Adapter, stack: ExitStack) -> None:
        self._adapter, self._stack = adapter, stack
        self._works: dict[str, Work] = {}
        self._task: Task | None = None
        self._X_test: NDArray[Any] | None = None

    def about(self) -> tuple[str, list[str], list[str]]:
        """Version, names of steps, names of fits."""
        return self._adapter.version, list(self._adapter.works), list(self._adapter.fits)

    def open(self, name: str, workload: Workload) -> Any:
        """Prepare a step and take it once; its result."""
        self._works[name] = work = self._stack.enter_context(self._adapter.works[name](workload))
        return work()

    def call(self, name: str, warm_calls: int, quiet: float) -> float:
        """Seconds of a call, after a quiet time and calls that are not counted."""
        work = self._works[name]
        time.sleep(quiet)
        for _ in range(warm_calls):
            work()
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def watched_call(self, name: str, quiet: float) -> tuple[float, int | None]:
        """Seconds of a call, and by how many bytes memory grows meanwhile; None if not Linux."""
        if not sys.platform.startswith("linux"):
            return self.call(name, 0, quiet), None
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # The peak is the memory in use now.
        before = _memory("VmRSS")
        seconds = self.call(name, 0, quiet)
        return seconds, max(0, _memory("VmHWM") - before)

    def close(self) -> None:
        """Forget all steps and their rows."""
        self._works.clear()
        self._stack.close()
        make_rows.cache_clear()

    def task(self, task: Task, X_test: NDArray[Any]) -> None:
        """Receive the rows of the fits that follow."""
        self._task, self._X_test = task, X_test

    def fit(self, name: str, epsilon: float, seed: int) -> tuple[float, Any, Any]:
        """Seconds of a fit, and predictions for training and test rows."""
        assert self._task is not None
        start = time.perf_counter()
        predict = self._adapter.fits[name](self._task, epsilon, seed)
        seconds = time.perf_counter() - start
        return seconds, predict(self._task.X), predict(self._X_test)


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise LookupError(name)


@final
class Worker:
    """A library's process, which lives until it is closed and idles between requests."""

    def __init__(self, module: str, python: Path, threads: int) -> None:
        pools = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        limits = {f"{pool}_NUM_THREADS": str(threads) for pool in pools}
        self._process = subprocess.Popen(
            [python, "-m", module, str(threads)],
            cwd=ROOT,
            env={**os.environ, **limits, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, request: str, *arguments: Any) -> None:
        """Ask; the answer must be received before the next request."""
        assert self._process.stdin is not None
        pickle.dump((request, arguments), self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Wait for the answer."""
        assert self._process.stdout is not None
        try:
            succeeded, answer = pickle.load(self._process.stdout)
        except EOFError:
            raise RuntimeError(f"{self._process.args!r} ended without an answer") from None
        if not succeeded:
            raise RuntimeError(f"{self._process.args!r} failed:\n{answer}")
        return answer

    def ask(self, request: str, *arguments: Any) -> Any:
        """Ask and wait for the answer."""
        self.send(request, *arguments)
        return self.receive()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
