"""What the library's speed must be; measured side by side in one run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.bar import Bar
from dpglm import NoisyGD
from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import SystemNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import run
from dpglm.solvers.run import block_map

__all__ = ["SPEED"]


def gradient(splits: Path) -> Iterator[Bar]:
    """Cost of a clipped gradient in units of one matrix-vector product, same run."""
    rng = np.random.default_rng(0)
    n, d = 200_000, 100
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = rng.choice([-1.0, 1.0], n)
    spec = DataSpec(n_rows=n, n_features=d, row_norm=20.0, dtype="float32")
    rows = prepare_rows(X, y, spec)
    w = rng.standard_normal(d)
    coarse = w.astype(np.float32)
    clipping = FlatClipping(1.0)
    ratios = []
    for _ in range(15):
        product = _warm_seconds(lambda: X @ coarse)
        with block_map(rows) as blocks:
            sums = _warm_seconds(
                lambda blocks=blocks: clipped_gradient_sum(rows, Logistic(), clipping, w, blocks)
            )
        ratios.append(sums / product)
    name = "clipped gradient over X @ w, n = 200000, d = 100, float32"
    yield Bar(name, float(np.median(ratios)), float(np.std(ratios)), 2.5, False, "x")


def _warm_seconds(work: Callable[[], object]) -> float:
    """Seconds of the third call in a row, as in a fit's many steps.

    BLAS threads spin for some 30 ms after their last product and would slow down what follows.
    """
    time.sleep(0.1)
    work()
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def overhead(splits: Path) -> Iterator[Bar]:
    """Share of a fit's time outside gradient sums and noise."""
    rng = np.random.default_rng(0)
    n, d = 200_000, 100
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = rng.choice([-1.0, 1.0], n)
    spec = DataSpec(n_rows=n, n_features=d, row_norm=20.0, dtype="float32")
    rows = prepare_rows(X, y, spec)
    shares = []
    inner = Oracle.noisy_gradient
    for _ in range(5):
        inside = 0.0

        def timed(*args: object, **kwargs: object) -> object:
            nonlocal inside
            start = time.perf_counter()
            result = inner(*args, **kwargs)  # type: ignore[arg-type]
            inside += time.perf_counter() - start
            return result

        Oracle.noisy_gradient = timed  # type: ignore[method-assign,assignment]
        start = time.perf_counter()
        plan = NoisyGD(n_steps=100).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), spec)
        run(plan, rows, SystemNoise())
        shares.append(100.0 * (1.0 - inside / (time.perf_counter() - start)))
        Oracle.noisy_gradient = inner  # type: ignore[method-assign]
    name = "time outside gradient sums and noise, d = 100, T = 100"
    yield Bar(name, float(np.median(shares)), float(np.std(shares)), 5.0, False, "%")


def importing(splits: Path) -> Iterator[Bar]:
    """Seconds of ``import dpglm``, and of the first estimator, in a fresh interpreter."""
    for name, command in (
        ("import dpglm", "import dpglm"),
        ("from dpglm import LogisticRegression", "from dpglm import LogisticRegression"),
    ):
        program = f"import time; t = time.perf_counter(); {command}; print(time.perf_counter() - t)"
        times = [
            float(subprocess.run([sys.executable, "-c", program], capture_output=True).stdout)
            for _ in range(5)
        ]
        bar = 1.2 if command == "import dpglm" else float("inf")
        yield Bar(name, float(np.median(times)), float(np.std(times)), bar, False, "s")


SPEED: Mapping[str, Callable[[Path], Iterator[Bar]]] = {
    "gradient": gradient,
    "overhead": overhead,
    "import": importing,
}
