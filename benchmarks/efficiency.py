"""Compare default estimates with maximum likelihood: error, time and memory."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn import linear_model
from sklearn.metrics import d2_tweedie_score

from benchmarks.bar import Bar
from dpglm import LogisticRegression, PoissonRegressor

__all__ = ["EFFICIENCY"]

R = TypeVar("R")
# Public bounds of the columns of randhie, from its codebook.
_RANDHIE = (4.61512, 1.0, 7.2, 8.3, 1.0, 58.6, 1.0, 1.0, 1.0)
_MOST_VISITS = 80.0


def efficient(splits: Path) -> Iterator[Bar]:
    """Root mean squared error over maximum likelihood's standard error: logistic, ten columns."""
    for n, epsilon, bar in (
        (20_000, 1.0, 1.8),
        (100_000, 1.0, 1.25),
        (100_000, 10.0, 1.08),
        (20_000, 100.0, 1.08),
    ):
        ratios = []
        for seed in range(20):
            X, y, truth = _generated(n, 10, seed)
            model = LogisticRegression(
                C=1e6, epsilon=epsilon, feature_bounds=(-1, 1), classes=[0, 1], random_state=seed
            ).fit(X, y)
            error = np.append(model.coef_, model.intercept_) - truth
            ratios.append(float((error**2).mean() / _variances(X, truth).mean()))
        # Bar for a ratio of variances; the figure is its square root.
        value = float(np.sqrt(np.mean(ratios)))
        spread = float(np.std(ratios) / np.sqrt(len(ratios)) / (2.0 * value))
        yield Bar(f"Logistic, {n} x 10, epsilon {epsilon:g}, error", value, spread, bar, False, "")


def large(splits: Path) -> Iterator[Bar]:
    """Largest error, time over scikit-learn's, memory: logistic, 3000000 x 20, epsilon 1."""
    before = _resident()
    X, y, truth = _generated(3_000_000, 20, 0)
    size = X.nbytes

    def private(seed: int) -> LogisticRegression:
        return LogisticRegression(
            C=1e6, epsilon=1.0, row_norm=float(np.sqrt(20)), classes=[0, 1], random_state=seed
        ).fit(X, y)

    errors, ratios, theirs = [], [], linear_model.LogisticRegression(C=1e6)
    for seed in range(3):
        model, seconds, peak = _watched(lambda seed=seed: private(seed))
        exact, usual, _ = _watched(lambda: theirs.fit(X, y))
        errors.append(_largest_error(model, truth))
        ratios.append(seconds / usual)
    name = "Logistic, 3000000 x 20, epsilon 1"
    value, spread = float(np.mean(errors)), float(np.std(errors))
    named = f"{name}, largest error (without privacy {_largest_error(exact, truth):.4f})"
    yield Bar(named, value, spread, 0.007, False, "")
    value, spread = float(np.median(ratios)), float(np.std(ratios))
    yield Bar(f"{name}, time over scikit-learn's", value, spread, 1.0, False, "")
    yield Bar(f"{name}, peak memory over X", (peak - before) / size, 0.0, 2.5, False, "")


def visits(splits: Path) -> Iterator[Bar]:
    """D2 in sample on randhie (``randhie.csv`` of statsmodels), which no default has seen."""
    with (splits / "randhie.csv").open(newline="") as file:
        table = np.array(list(csv.reader(file))[1:], dtype=float)
    y, X = table[:, 0], table[:, 1:]
    for epsilon, bar in ((0.3, 0.080), (1.0, 0.088), (10.0, 0.091)):
        scores = []
        for seed in range(10):
            model = PoissonRegressor(
                alpha=0.0,
                epsilon=epsilon,
                feature_bounds=(np.zeros(9), np.array(_RANDHIE)),
                target_bounds=(0.0, _MOST_VISITS),
                random_state=seed,
            ).fit(X, y)
            scores.append(float(d2_tweedie_score(y, model.predict(X), power=1)))
        name, value = f"randhie, epsilon {epsilon:g}, D2", float(np.mean(scores))
        yield Bar(name, value, float(np.std(scores)), bar, True, "")


def _largest_error(model: Any, truth: NDArray[np.float64]) -> float:
    return float(abs(np.append(model.coef_, model.intercept_) - truth).max())


def _generated(
    n: int, d: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    truth = np.append(np.linspace(-1.5, 1.5, d), 0.0)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ truth[:-1]))).astype(np.int8), truth


def _variances(X: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances of maximum likelihood at the truth."""
    rows = np.column_stack([X, np.ones(len(X))])
    p = 1.0 / (1.0 + np.exp(-rows @ truth))
    return np.diag(np.linalg.inv((rows * (p * (1.0 - p))[:, np.newaxis]).T @ rows))


def _watched(function: Callable[[], R]) -> tuple[R, float, float]:
    """Return a function's result, its seconds and its peak resident memory."""
    most, done = [_resident()], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    result = function()
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    return result, seconds, most[0]


def _resident() -> float:
    """Bytes of this process in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return 1024.0 * float(line.split()[1])
    return float("nan")


EFFICIENCY: Mapping[str, Callable[[Path], Iterator[Bar]]] = {
    "efficient": efficient,
    "large": large,
    "visits": visits,
}
