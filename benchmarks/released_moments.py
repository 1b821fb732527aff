"""Compare a release of moments with separate fits, by columns and numbers of models.

``python -m benchmarks.released_moments`` prints the table of docs/moments.md: for tables of 10, 30
and 100 columns the ratio of standard errors from moments to those of k fits that share the budget.
"""

from __future__ import annotations

import argparse
import math
import warnings

import numpy as np

import dpglm
from dpglm import LinearRegression, from_formula
from dpglm.privacy import ApproximateDP, GaussianDP

__all__ = ["main", "ratios", "table"]

N_ROWS, BUDGET, IN_MODEL = 50_000, ApproximateDP(1.0, 1e-5), 8
COLUMNS = (10, 30, 100)
MODELS = (1, 2, 5, 10, 20)


def table(n_columns: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Return correlated numbers, two categories, and a target; and its schema."""
    rng = np.random.default_rng(seed)
    k = n_columns - 3
    common = rng.normal(size=(N_ROWS, 1))
    X = np.clip(0.8 * rng.normal(size=(N_ROWS, k)) + 0.6 * common, -4.0, 4.0)
    codes = [rng.choice(3, N_ROWS, p=[0.6, 0.3, 0.1]) for _ in range(2)]
    effects = rng.normal(size=k) / math.sqrt(k)
    y = X @ effects + 0.4 * (codes[0] == 1) - 0.3 * (codes[1] == 2) + rng.normal(size=N_ROWS)
    levels = np.array(["a", "b", "c"])
    columns = {f"x{j}": {"type": "numeric", "low": -4, "high": 4} for j in range(k)}
    kinds = {f"c{j}": {"type": "categorical", "categories": ["a", "b", "c"]} for j in range(2)}
    rows = {f"x{j}": X[:, j] for j in range(k)}
    rows |= {f"c{j}": levels[code] for j, code in enumerate(codes)}
    schema = {
        "columns": columns | kinds,
        "target": {"name": "y", "type": "numeric", "low": -12, "high": 12},
        "provenance": "generated",
    }
    return rows | {"y": np.clip(y, -12.0, 12.0)}, schema


def ratios(n_columns: int, seed: int) -> list[float]:
    """Return mean standard errors from moments over those of separate fits, for each number."""
    rows, schema = table(n_columns, seed)
    rng = np.random.default_rng(seed + 1000)
    moments = dpglm.release_moments(rows, schema, budget=BUDGET, random_state=seed)
    found = []
    for n_models in MODELS:
        names = rng.choice(n_columns - 3, min(IN_MODEL, n_columns - 3), replace=False)
        formula = "y ~ " + " + ".join([*(f"x{j}" for j in names), "c0"])
        share = GaussianDP(BUDGET.gdp_mu() / math.sqrt(n_models))
        model = from_formula(
            formula, schema, LinearRegression(inference=True), budget=share, random_state=seed
        ).fit(rows)
        own = moments.regress(formula).inference_.standard_errors[1:].mean()
        found.append(float(own / model.inference_.standard_errors[1:].mean()))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| columns |" + "".join(f" {k} models |" for k in MODELS))
    print("|---|" + "---|" * len(MODELS))
    for n_columns in COLUMNS:
        every = np.array([ratios(n_columns, seed) for seed in range(options.seeds)])
        cells = (f" {m:.2f} ± {s:.2f} |" for m, s in zip(every.mean(0), every.std(0), strict=True))
        print(f"| {n_columns} |" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
