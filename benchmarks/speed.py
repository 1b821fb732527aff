"""Bars for speed, measured side by side in one run."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

from benchmarks.accuracy import scaled_pixels
from benchmarks.bar import Bar
from benchmarks.splits import load_adult_split
from dpglm import LogisticRegression, NoisyGD
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows, threads_over
from dpglm.datasets import load_fashion_mnist
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import SystemNoise
from dpglm.problem import Logistic, Loss, Problem, Softmax
from dpglm.solvers import run

__all__ = ["SPEED"]


def gradient(splits: Path) -> Iterator[Bar]:
    """Cost of a clipped gradient in units of one matrix-vector product, same run."""
    rng = np.random.default_rng(0)
    for n, d, bar in ((200_000, 100, 2.0), (20_000, 2000, 1.7)):
        for dtype in ("float32", "float64"):
            for order in "CF":
                X = np.asarray(rng.standard_normal((n, d)), dtype=dtype, order=order)  # type: ignore[call-overload]
                rows = prepare_rows(
                    X,
                    rng.choice([-1.0, 1.0], n),
                    DataSpec(n_rows=n, n_features=d, row_norm=100.0, dtype=dtype),
                )
                w = rng.standard_normal(d)
                coarse = w.astype(dtype)
                name = f"clipped gradient over X @ w, n = {n}, d = {d}, {dtype}, {order} order"
                yield _ratio(name, rows, Logistic(), w, lambda X=X, v=coarse: X @ v, bar)


def softmax(splits: Path) -> Iterator[Bar]:
    """Cost of a softmax gradient in units of the two matrix products it needs."""
    rng = np.random.default_rng(0)
    n, d, n_classes = 60_000, 784, 10
    X = rng.random((n, d), dtype=np.float32)
    spec = DataSpec(n_rows=n, n_features=d, n_outputs=n_classes, row_norm=30.0, dtype="float32")
    rows = prepare_rows(X, rng.integers(0, n_classes, n), spec)
    w = rng.standard_normal((d, n_classes)) * 0.01
    coarse, slopes = w.astype(np.float32), rng.random((n, n_classes), dtype=np.float32)

    def products() -> None:
        X @ coarse
        X.T @ slopes

    name = "softmax gradient over two matrix products, n = 60000, d = 784, K = 10, float32"
    yield _ratio(name, rows, Softmax(), w, products, 1.25)


def sparse_gradient(splits: Path) -> Iterator[Bar]:
    """Cost of a clipped gradient over sparse rows in units of SciPy's two products."""
    rng = np.random.default_rng(0)
    n, d = 20_000, 100_000
    X = sparse.csr_array(sparse.random_array((n, d), density=0.01, format="csr", rng=rng))
    spec = DataSpec(n_rows=n, n_features=d, row_norm=100.0, dtype="float64", sparse=True)
    rows = prepare_rows(X, rng.choice([-1.0, 1.0], n), spec)
    w, slopes = rng.standard_normal(d), rng.standard_normal(n)

    def products() -> None:
        X @ w
        X.T @ slopes

    name = "clipped gradient over two products, CSR, n = 20000, d = 100000, density 0.01"
    yield _ratio(name, rows, Logistic(), w, products, 2.0)


def _ratio(
    name: str,
    rows: Rows,
    loss: Loss,
    w: NDArray[np.float64],
    products: Callable[[], object],
    bar: float,
) -> Bar:
    """Seconds of a gradient over those of bare products, measured in turns."""
    clipping, ratios = FlatClipping(1.0), []
    for _ in range(15):
        bare = _warm_seconds(products)
        with threads_over(rows.n_rows * rows.spec.n_columns):
            sums = _warm_seconds(lambda: clipped_gradient_sum(rows, loss, clipping, w))
        ratios.append(sums / bare)
    return Bar(name, float(np.median(ratios)), float(np.std(ratios)), bar, False, "x")


def fit(splits: Path) -> Iterator[Bar]:
    """Seconds of a default fit over those of scikit-learn's without privacy."""
    images = load_fashion_mnist()
    pixels, length = scaled_pixels(images)
    adult = load_adult_split(splits)
    cases = (
        ("Adult fixed split", adult.X_train, adult.y_train, adult.row_norm, 5),
        ("Fashion-MNIST pixels", pixels[images.train], images.target[images.train], length, 3),
    )
    for name, X, y, row_norm, repeats in cases:
        private = LogisticRegression(
            epsilon=1.0, delta=1e-5, classes=np.unique(y).tolist(), row_norm=row_norm
        )
        ratios = []
        for _ in range(repeats):
            seconds = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                for model in (private, linear_model.LogisticRegression()):
                    start = time.perf_counter()
                    model.fit(X, y)
                    seconds.append(time.perf_counter() - start)
            ratios.append(seconds[0] / seconds[1])
        label = f"default private fit over scikit-learn's LogisticRegression, {name}"
        yield Bar(label, float(np.median(ratios)), float(np.std(ratios)), 1.0, False, "x")


def _warm_seconds(work: Callable[[], object]) -> float:
    """Seconds of the third call in a row, as in a fit's many steps.

    BLAS threads spin for a while after their last product (0.1 s is not enough) and would slow down
    the next measurement.
    """
    time.sleep(0.3)
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
    "softmax": softmax,
    "sparse_gradient": sparse_gradient,
    "fit": fit,
    "overhead": overhead,
    "import": importing,
}
