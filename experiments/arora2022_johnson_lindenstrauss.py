"""Embedding against plain noisy gradient descent where there are more columns than rows.

``python -m experiments.arora2022_johnson_lindenstrauss`` writes the table of
``docs/evidence/papers.md``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, Logistic, NoPenalty, Problem, Regularizer
from dpglm.solvers import JohnsonLindenstrauss, NoisyGD, Solver, run
from experiments.measured import DOCS, put

__all__ = ["main", "measure"]

PENALTIES: tuple[Regularizer, ...] = (L2(3e-4), L2(1e-3), L2(3e-3), L2(1e-2))
EPSILONS = (1.0, 4.0)


@dataclass(frozen=True)
class Texts:
    """Rows like texts: few words out of many, common ones more often, and a sparse truth."""

    columns: int
    words: int = 40
    norm: float = 30.0

    def sample(self, n: int, seed: int) -> tuple[sparse.csr_array, NDArray[np.float64]]:
        """Draw rows of norm 1 and labels from a logistic model of the given norm."""
        rng = np.random.default_rng(seed)
        share = 1.0 / np.arange(1, self.columns + 1)
        places = rng.choice(self.columns, size=n * self.words, p=share / share.sum())
        pointers = np.arange(n + 1) * self.words
        X = sparse.csr_array((np.ones(len(places)), places, pointers), shape=(n, self.columns))
        X.sum_duplicates()
        X.data[:] = 1.0
        lengths = np.sqrt(np.diff(X.indptr))
        X.data /= np.repeat(lengths, np.diff(X.indptr))
        z = X @ self.truth
        return X, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)

    @property
    def truth(self) -> NDArray[np.float64]:
        """The parameter that draws labels."""
        w = np.zeros(self.columns)
        w[:300] = np.random.default_rng(99).normal(size=300)
        return np.asarray(w * (self.norm / np.linalg.norm(w)))


def measure(quick: bool) -> str:
    """Tabulate the expected loss on fresh rows beyond that of the truth, as Markdown."""
    n, seeds = (300, 2) if quick else (5000, 5)
    texts = Texts(2000 if quick else 20_000)
    X, y = texts.sample(n, 0)
    fresh_X, fresh_y = texts.sample(500 if quick else 20_000, 1)
    spec = DataSpec(n, texts.columns, sparse=True)
    rows, loss = prepare_rows(X, y, spec), Logistic()
    best = float(loss.value(fresh_X @ texts.truth, fresh_y).mean())
    solvers: dict[str, Solver] = {"plain (`noisy_gd`)": NoisyGD()}
    for k in (32, 128) if quick else (32, 64, 128, 256, 512, 1024):
        solvers[f"k = {k}"] = JohnsonLindenstrauss(dimension=k)
    solvers["k by the rule"] = JohnsonLindenstrauss()

    def excess(solver: Solver, penalty: Regularizer, epsilon: float) -> list[float]:
        plan = solver.plan(Problem(loss, penalty), ApproximateDP(epsilon, 1e-5), spec)
        found = [run(plan, rows, SeededNoise(seed)).w for seed in range(seeds)]
        return [float(loss.value(fresh_X @ w, fresh_y).mean()) - best for w in found]

    head = [f"epsilon {epsilon:g}, {how}" for epsilon in EPSILONS for how in ("no penalty", "L2")]
    lines = [f"| | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for name, solver in solvers.items():
        cells = []
        for epsilon in EPSILONS:
            tried = [excess(solver, penalty, epsilon) for penalty in PENALTIES]
            shown = (excess(solver, NoPenalty(), epsilon), min(tried, key=np.mean))
            cells.extend(f"{np.mean(each):.3f} ± {np.std(each, ddof=1):.3f}" for each in shown)
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the code")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    table = measure(options.quick)
    put(options.docs / "evidence" / "papers.md", "arora2022 embedding", table)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
