"""Compare the noise that ``newton`` reports with the true one: a table for the docs.

Run with ``python -m experiments.newton_noise``. It rewrites the table in
``docs/evidence/solvers.md``. Rows are generated once for each line; noise is drawn anew in each
run.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np
from numpy.typing import NDArray

from dpglm import LogisticRegression
from experiments.measured import DOCS, put

PAGE, SECTION = DOCS / "evidence" / "solvers.md", "newton noise"
# Rows, columns, epsilon, share of positive labels.
CASES = tuple(itertools.product((5000, 20_000), (5, 20), (0.3, 1.0), (0.02, 0.06, 0.5)))


def draw(
    n_rows: int, n_features: int, positive: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw even columns, and labels of a logistic model with a given share of positives."""
    rng = np.random.default_rng([n_rows, n_features])
    X = rng.uniform(-1.0, 1.0, size=(n_rows, n_features))
    effects = np.linspace(-1.5, 1.5, n_features) * np.sqrt(10.0 / n_features)
    z = X @ effects + rng.logistic(size=n_rows)
    return X, (z > np.quantile(z, 1.0 - positive)).astype(np.int64)


def ratios(
    X: NDArray[np.float64], y: NDArray[np.int64], epsilon: float, runs: int
) -> NDArray[np.float64]:
    """Return reported over true noise, as standard deviations; intercept last."""
    found, said = [], []
    for run in range(runs):
        model = LogisticRegression(
            epsilon=epsilon,
            solver="newton",
            feature_bounds=(-1.0, 1.0),
            classes=[0, 1],
            random_state=run,
        )
        with warnings.catch_warnings():
            # Fits that promise little warn of it.
            warnings.simplefilter("ignore")
            solution = model.fit(X, y).solution_
        found.append(solution.w)
        said.append(np.broadcast_to(solution.coefficient_noise, solution.w.shape))
    return np.asarray(np.sqrt(np.mean(np.square(said), axis=0)) / np.std(found, axis=0, ddof=1))


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    lines = [
        "| rows | columns | epsilon | positive | columns, mean | least | most | intercept |",
        "|---" * 8 + "|",
    ]
    for n_rows, n_features, epsilon, positive in CASES:
        found = ratios(*draw(n_rows, n_features, positive), epsilon, runs)
        columns = found[:-1]
        lines.append(
            f"| {n_rows:,} | {n_features} | {epsilon:g} | {positive:.0%} | {columns.mean():.2f} "
            f"| {columns.min():.2f} | {columns.max():.2f} | {found[-1]:.2f} |"
        )
        print(lines[-1], flush=True)
    put(PAGE, SECTION, "\n".join(lines))


if __name__ == "__main__":
    main()
