"""Do projections and fading noise help at equal epsilon: d2p2's methods on validation rows.

``python -m experiments.d2p2 --mnist FOLDER`` writes the tables of ``docs/evidence/papers.md``.
Only training parts are read: some of their rows train, others validate.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.datasets import load_adult, load_mnist
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.events import Composed, Event, Gaussian, PoissonSampled, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem, Softmax
from dpglm.solvers import D2P2, Exponential, NoisyGD, Solver, run
from dpglm.solvers.parts.schedules import in_levels
from dpglm.tables.schema import Schema
from experiments.measured import DOCS, put

__all__ = ["compare", "epsilon_of", "main", "printed_settings"]

DELTA = 1e-5
STEP_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Task:
    """Training rows, and the score of a model on validation rows."""

    name: str
    rows: Rows
    problem: Problem
    score: Callable[[NDArray[np.float64]], float]
    n_steps: int
    epsilons: tuple[float, ...]
    methods: Mapping[str, Callable[[float], Solver]]


def adult(quick: bool) -> Task:
    """Adult's training part, rows of norm 1: 26049 rows train, 6512 validate."""
    data = load_adult()
    encoder = SchemaEncoder(Schema.from_dict(data.schema)).fit(data.data)
    X = encoder.transform(data.data)[data.train]
    y = np.where(data.target[data.train] == ">50K", 1.0, -1.0)
    order = np.random.default_rng(0).permutation(len(y))
    train, validation = (order[:2000], order[2000:3000]) if quick else np.split(order, [26_049])
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    X = X.astype(np.float32)
    spec = DataSpec(len(train), X.shape[1], intercept=1.0, dtype="float32")

    def auc(w: NDArray[np.float64]) -> float:
        return float(roc_auc_score(y[validation], X[validation] @ w[:-1]))

    n_steps = 10 if quick else 100
    rows = prepare_rows(X[train], y[train], spec)
    problem = Problem(Logistic())
    return Task("Adult, AUC", rows, problem, auc, n_steps, (0.1, 1.0), methods(n_steps, spec))


def mnist(folder: Path, quick: bool) -> Task:
    """MNIST's training part, 14 x 14 means of pixels: 20000 rows train, 10000 validate."""
    data = load_mnist(folder)
    order = np.random.default_rng(0).permutation(data.train)[: 1500 if quick else 30_000]
    images = data.data[order].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)
    X, y = images / np.linalg.norm(images, axis=1, keepdims=True), data.target[order]
    X, n = X.astype(np.float32), len(order) * 2 // 3
    spec = DataSpec(n, 196, n_outputs=10, intercept=1.0, dtype="float32")

    def accuracy(w: NDArray[np.float64]) -> float:
        return float(np.mean((X[n:] @ w[:-1] + w[-1]).argmax(axis=1) == y[n:]))

    n_steps = 5 if quick else 50
    rows = prepare_rows(X[:n], y[:n], spec)
    problem = Problem(Softmax())
    task = "MNIST at half resolution, accuracy"
    compared = methods(n_steps, spec)
    # Least squares in 1970 unknowns at every step would take most of the time.
    del compared["PrivSGD: least squares"]
    return Task(task, rows, problem, accuracy, n_steps, (0.3, 1.0), compared)


def methods(n_steps: int, spec: DataSpec) -> dict[str, Callable[[float], Solver]]:
    """List the compared solvers, each as a function of the factor on its step size."""
    columns = round(0.7 * spec.n_coefficients)
    step = _default_step(spec)

    def flat(make: Callable[..., D2P2], **settings: object) -> Callable[..., D2P2]:
        return lambda factor: make(
            normalize=False, n_steps=n_steps, step_size=factor * step, **settings
        )

    return {
        "noisy_gd, momentum 0.9": lambda factor: NoisyGD(
            n_steps=n_steps, step_size=19.0 * factor * step
        ),
        "DP-SGD": flat(D2P2.dp_sgd),
        "DP-SGD, normalised": lambda factor: D2P2.dp_sgd(n_steps=n_steps, step_size=factor * step),
        "D2P-SGD: noise 1/sqrt(k)": flat(D2P2.d2p_sgd),
        "D2P-SGD: exponential noise": flat(
            lambda **settings: D2P2(projected=False, noise_schedule=Exponential(0.3), **settings)
        ),
        "DP2-SGD: projection": flat(D2P2.dp2_sgd, dimension=columns),
        "D2P2-SGD: both": flat(D2P2, dimension=columns),
        "PrivSGD: least squares": flat(D2P2.priv_sgd, dimension=columns),
    }


def _default_step(spec: DataSpec) -> float:
    loss = Softmax() if spec.n_outputs > 1 else Logistic()
    plan = D2P2.dp_sgd(n_steps=200).plan(Problem(loss), ApproximateDP(1.0, DELTA), spec)
    return float(plan.method.step_sizes[0])


def compare(task: Task, seeds: int) -> str:
    """Score every method with the best of five step sizes, all at the same epsilon."""
    head = [f"epsilon {epsilon:g}" for epsilon in task.epsilons]
    lines = [f"| {task.name} | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for name, make in task.methods.items():
        cells = []
        for epsilon in task.epsilons:
            scores = {
                factor: _scores(task, make(factor), epsilon, seeds) for factor in STEP_FACTORS
            }
            factor, best = max(scores.items(), key=lambda item: float(np.mean(item[1])))
            cells.append(f"{np.mean(best):.4f} ± {np.std(best, ddof=1):.4f} ({factor:g})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _scores(task: Task, solver: Solver, epsilon: float, seeds: int) -> list[float]:
    plan = solver.plan(task.problem, ApproximateDP(epsilon, DELTA), task.rows.spec)
    return [task.score(run(plan, task.rows, SeededNoise(seed)).w) for seed in range(seeds)]


def printed_settings(quick: bool) -> str:
    """Return the cost of fading noise if constant noise of its first scale costs 0.95."""
    n = 60_000
    lines = [
        "| batch | epochs | constant noise | k counts epochs | k counts steps |",
        "|---|---|---|---|---|",
    ]
    for batch, epochs in [(1024, 2)] if quick else [(256, 5), (256, 10), (256, 20), (1024, 10)]:
        rate, each = batch / n, n // batch

        def constant(sigma: float, rate: float = rate, count: int = epochs * each) -> Event:
            return Repeated(PoissonSampled(rate, Gaussian(sigma)), count)

        sigma = calibrate(constant, ApproximateDP(0.95, DELTA), Adjacency.ZERO_OUT)
        by_epoch = np.repeat(np.arange(1, epochs + 1), each)
        costs = [
            epsilon_of(rate, sigma * in_levels(1.0 / np.sqrt(k), 32))
            for k in (by_epoch, np.arange(1, epochs * each + 1))
        ]
        lines.append(f"| {batch} | {epochs} | 0.95 | {costs[0]:.2f} | {costs[1]:.0f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def epsilon_of(rate: float, multipliers: NDArray[np.float64]) -> float:
    values, counts = np.unique(multipliers, return_counts=True)
    event = Composed(
        tuple(
            Repeated(PoissonSampled(rate, Gaussian(float(value))), int(count))
            for value, count in zip(values, counts, strict=True)
        )
    )
    return accountant_for(event, Adjacency.ZERO_OUT).epsilon(event, Adjacency.ZERO_OUT, DELTA)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, help="folder of MNIST's files; without it, no MNIST")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the code")
    options = parser.parse_args(arguments)
    page = options.docs / "evidence" / "papers.md"
    start = time.perf_counter()
    tables = {"printed": printed_settings(options.quick)}
    tables["adult"] = compare(adult(options.quick), 2 if options.quick else 5)
    if options.mnist is not None:
        tables["mnist"] = compare(mnist(options.mnist, options.quick), 2 if options.quick else 3)
    for name, table in tables.items():
        put(page, f"d2p2 {name}", table)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
