"""The bars that the library must clear, each measured and printed beside its bar.

Run with ``python -m benchmarks.bars [--splits FOLDER] [--only NAME ...]``. FOLDER holds the fixed
benchmark splits; what needs a file that is not there is reported as skipped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.splits import load_adult_split
from dpglm import LinearRegression, LogisticRegression, NoisyGD
from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.datasets import load_california_housing, load_fashion_mnist
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import SystemNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import run
from dpglm.solvers.run import block_map

SEEDS = range(10)
DELTA = 1e-5


@dataclass(frozen=True)
class Bar:
    """One measured figure and what it must be."""

    name: str
    value: float
    spread: float
    bar: float
    at_least: bool
    unit: str

    @property
    def met(self) -> bool:
        """Whether the figure clears its bar."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def adult(splits: Path) -> Iterator[Bar]:
    """Mean test AUC of default logistic regression on the fixed Adult split."""
    yield from _adult_auc(splits, "auto", ((0.1, 0.875), (0.5, 0.893), (1.0, 0.897)))


def perturbed(splits: Path) -> Iterator[Bar]:
    """Mean test AUC of objective perturbation on the fixed Adult split."""
    yield from _adult_auc(splits, "objective_perturbation", ((0.05, 0.870), (0.1, 0.882)))


def _adult_auc(splits: Path, solver: str, bars: tuple[tuple[float, float], ...]) -> Iterator[Bar]:
    split = load_adult_split(splits)
    for epsilon, bar in bars:
        scores = []
        for seed in SEEDS:
            model = LogisticRegression(
                epsilon=epsilon,
                delta=DELTA,
                classes=[0, 1],
                row_norm=split.row_norm,
                solver=solver,
                random_state=seed,
            ).fit(split.X_train, split.y_train)
            scores.append(roc_auc_score(split.y_test, model.decision_function(split.X_test)))
        name = f"Adult fixed split, {solver}, epsilon {epsilon}, test AUC"
        yield Bar(name, float(np.mean(scores)), float(np.std(scores)), bar, True, "")


def fashion(splits: Path) -> Iterator[Bar]:
    """Mean test accuracy of default softmax regression on Fashion-MNIST pixels."""
    data = load_fashion_mnist()
    X = data.data.astype(np.float32) / np.float32(255.0)
    # Every image loses its own mean and is scaled to length one by its own norm: the contrast
    # normalisation of image processing, in which no other row is involved.
    X -= X.mean(axis=1, keepdims=True)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-6))
    scores = []
    for seed in SEEDS:
        model = LogisticRegression(
            epsilon=1.0,
            delta=DELTA,
            classes=range(10),
            row_norm=1.0,
            random_state=seed,
        ).fit(X[data.train], data.target[data.train])
        scores.append(100.0 * model.score(X[data.test], data.target[data.test]))
    name = "Fashion-MNIST pixels, epsilon 1, test accuracy"
    yield Bar(name, float(np.mean(scores)), float(np.std(scores)), 82.5, True, "%")


def california(splits: Path) -> Iterator[Bar]:
    """Mean test R2 of least squares from sufficient statistics, bounds from the public schema."""
    data = load_california_housing()
    columns = data.schema["columns"].values()
    target = data.schema["target"]
    orders = [np.random.default_rng(seed).permutation(data.n_rows) for seed in SEEDS]
    n_test = len(data.test)
    for split, parts in (
        ("fixed split", [(data.train, data.test) for _ in SEEDS]),
        ("random splits", [(rows[n_test:], rows[:n_test]) for rows in orders]),
    ):
        scores = []
        for seed, (train, test) in zip(SEEDS, parts, strict=True):
            model = LinearRegression(
                epsilon=1.0,
                delta=DELTA,
                solver="sufficient_statistics",
                feature_bounds=tuple([one[end] for one in columns] for end in ("low", "high")),
                target_bounds=(target["low"], target["high"]),
                random_state=seed,
            ).fit(data.data[train], data.target[train])
            scores.append(model.score(data.data[test], data.target[test]))
        name = f"California housing, {split}, epsilon 1, test R2"
        yield Bar(name, float(np.mean(scores)), float(np.std(scores)), 0.55, True, "")


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
        plan = NoisyGD(n_steps=100).plan(Problem(Logistic()), ApproximateDP(1.0, DELTA), spec)
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


MEASURES: dict[str, Callable[[Path], Iterator[Bar]]] = {
    "adult": adult,
    "perturbed": perturbed,
    "fashion": fashion,
    "california": california,
    "gradient": gradient,
    "overhead": overhead,
    "import": importing,
}


def main() -> int:
    """Measure, print a table, and return the number of bars that were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=Path, default=Path("splits"))
    parser.add_argument("--only", nargs="*", choices=sorted(MEASURES), default=list(MEASURES))
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.only:
        try:
            for bar in MEASURES[name](arguments.splits):
                relation = ">=" if bar.at_least else "<="
                verdict = "met" if bar.met else "MISSED"
                print(
                    f"{bar.name}: {bar.value:.4g}{bar.unit} +- {bar.spread:.2g} "
                    f"(bar {relation} {bar.bar:g}) {verdict}",
                    flush=True,
                )
                missed += not bar.met
        except FileNotFoundError as error:
            print(f"{name}: skipped, {error}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
