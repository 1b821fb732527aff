"""Compare Newton-Raphson with Newton on development rows, for the default's choice.

``python -m experiments.newton_raphson --splits FOLDER`` writes the table of
``docs/evidence/solvers.md``: generated rows, and validation parts of the training rows of
Adult and ACS employment. No test row is read.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import d2_tweedie_score, log_loss, roc_auc_score

from benchmarks.splits import load_acs_employment, load_adult_split
from dpglm import LogisticRegression, PoissonRegressor
from dpglm.exceptions import LowSignalWarning
from dpglm.privacy import ApproximateDP
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from experiments.measured import DOCS, put

DELTA = 1e-5
SOLVERS = "newton", "newton_raphson"
Floats = NDArray[np.float64]


def binary_tables(splits: Path | None) -> Iterator[tuple[str, Floats, NDArray[Any], float]]:
    """Yield names, rows, labels and row norms."""
    for name, n, d, size, level in (
        ("even", 6_250, 10, 1.5, 0.0),
        ("even, rare class", 25_000, 30, 0.3, -2.0),
        ("correlated", 50_000, 60, 0.5, 0.0),
        ("heavy tails", 25_000, 20, 3.0, -1.0),
    ):
        rng = np.random.default_rng(n + d)
        X = rng.uniform(-1.0, 1.0, (n, d))
        if name == "correlated":
            X = np.clip(0.7 * rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, d)), -1.0, 1.0)
        if name == "heavy tails":
            X = np.clip(rng.standard_t(2.5, size=(n, d)) / 10.0, -1.0, 1.0)
        p = 1.0 / (1.0 + np.exp(-X @ rng.normal(size=d) * size - level))
        yield f"{name}, {n * 4 // 5} x {d}", X, (rng.random(n) < p).astype(int), math.sqrt(d)
    if splits is not None:
        for name, load in (("Adult", load_adult_split), ("ACS employment", load_acs_employment)):
            split = load(splits)
            X = split.X_train
            yield f"{name}, {len(X) * 4 // 5} x {X.shape[1]}", X, split.y_train, split.row_norm


def counts() -> Iterator[tuple[str, Floats, Floats, float]]:
    """Yield names, rows, counts and the largest."""
    for n, d, mean, excess, size in (
        (25_000, 9, 3.0, 2.0, 0.5),
        (25_000, 9, 0.5, 0.0, 0.7),
        (25_000, 4, 20.0, 0.5, 0.7),
        (6_250, 5, 3.0, 1.0, 0.7),
    ):
        rng = np.random.default_rng(n + d)
        X = rng.uniform(-1.0, 1.0, (n, d))
        X[:, 0] = rng.random(n) < 0.3
        means = np.exp(X @ rng.normal(size=d) * size / math.sqrt(d))
        means *= mean / means.mean()
        if excess:
            means = means * rng.gamma(1.0 / excess, excess, n)
        most = 25.0 * max(mean, 1.0)
        y = np.minimum(rng.poisson(means), most).astype(float)
        name = f"counts, {n * 4 // 5} x {d}, mean {mean:g}, mixed with variance {excess:g}"
        yield name, X, y, most


def measure(splits: Path | None, seeds: int) -> str:
    """Score both solvers on validation rows at several epsilons; a table."""
    lines = [
        "| rows | epsilon | noise in the Hessian | `newton` | `newton_raphson` |",
        "|---|---|---|---|---|",
    ]
    for name, X, y, norm in binary_tables(splits):
        train, validation = _parts(len(X))
        for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
            cells = []
            for solver in SOLVERS:
                area, loss = [], []
                for seed in range(seeds):
                    model = LogisticRegression(
                        epsilon=epsilon,
                        delta=DELTA,
                        classes=[0, 1],
                        row_norm=norm,
                        solver=solver,
                        random_state=seed,
                    ).fit(X[train], y[train])
                    area.append(
                        roc_auc_score(y[validation], model.decision_function(X[validation]))
                    )
                    loss.append(log_loss(y[validation], model.predict_proba(X[validation])[:, 1]))
                cells.append(f"{np.mean(area):.4f} ± {np.std(area):.4f} ({np.mean(loss):.4f})")
            lines.append(_line(name, epsilon, model, cells))
    for name, X, y, most in counts():
        train, validation = _parts(len(X))
        for epsilon in (0.1, 0.3, 1.0, 10.0):
            cells = []
            for solver in SOLVERS:
                scores = []
                for seed in range(seeds):
                    regressor = PoissonRegressor(
                        alpha=0.0,
                        epsilon=epsilon,
                        delta=DELTA,
                        feature_bounds=(-1, 1),
                        target_bounds=(0.0, most),
                        solver=solver,
                        random_state=seed,
                    ).fit(X[train], y[train])
                    predicted = regressor.predict(X[validation])
                    scores.append(d2_tweedie_score(y[validation], predicted, power=1))
                cells.append(f"{np.mean(scores):.3f} ± {np.std(scores):.3f}")
            lines.append(_line(name, epsilon, regressor, cells))
    return "\n".join(lines)


def _parts(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    order = np.random.default_rng(0).permutation(n)
    return order[: n * 4 // 5], order[n * 4 // 5 :]


def _line(name: str, epsilon: float, model: Any, cells: list[str]) -> str:
    noise = hessian_noise(ApproximateDP(epsilon, DELTA).gdp_mu(), model.solution_.plan.data)
    return f"| {name} | {epsilon:g} | {noise:.2f} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=Path, help="folder of the fixed benchmark splits")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", LowSignalWarning)
    table = measure(arguments.splits, arguments.seeds)
    put(DOCS / "evidence" / "solvers.md", "newton_raphson development", table)


if __name__ == "__main__":
    main()
