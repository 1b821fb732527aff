"""Coverage of models from released moments, and of intervals after selection.

``python -m experiments.moments`` prints, for tables of 30 columns: the coverage of intervals of the
full model, the median ratio of standard errors to those without privacy, and how often the joint
intervals of a selected model cover all of its coefficients.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import dpglm
from benchmarks.released_moments import table
from dpglm.privacy import ApproximateDP

__all__ = ["main", "measured"]

N_COLUMNS, N_SELECTED = 30, 10


def measured(seed: int, epsilon: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return which coefficients are covered, ratios of errors, and whether a selection is."""
    rows, schema = table(N_COLUMNS, seed)
    moments = dpglm.release_moments(
        rows, schema, budget=ApproximateDP(epsilon, 1e-5), random_state=seed
    )
    names = [f"x{j}" for j in range(N_COLUMNS - 3)]
    X = np.column_stack([rows[name] for name in names])
    levels = [rows[f"c{j}"] == level for j in range(2) for level in ("b", "c")]
    D = np.column_stack([np.ones(len(X)), X, *levels])
    inverse = np.linalg.inv(D.T @ D)
    beta = inverse @ D.T @ rows["y"]
    errors = np.sqrt(np.diag(inverse) * np.mean((rows["y"] - D @ beta) ** 2))
    # The coefficients that made the rows; see ``table``.
    rng = np.random.default_rng(seed)
    rng.normal(size=(len(X), 1))
    rng.normal(size=X.shape)
    [rng.choice(3, len(X), p=[0.6, 0.3, 0.1]) for _ in range(2)]
    effects = rng.normal(size=X.shape[1]) / np.sqrt(X.shape[1])
    truth = np.concatenate([[0.0], effects, [0.4, 0.0, 0.0, -0.3]])
    found = moments.regress("y ~ " + " + ".join([*names, "c0", "c1"])).inference_
    ends = found.conf_int()
    # A selected model estimates the best linear combination of its columns alone.
    few = names[:N_SELECTED]
    chosen = moments.select("y ~ " + " + ".join(few))
    own = [name for name in chosen.model.inference_.names if name != "intercept"]
    covariance = 0.36 + 0.64 * np.eye(len(names))
    at = [names.index(name) for name in own]
    best = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at] @ effects)
    joint = chosen.conf_int()[1:]
    covers = bool(((joint[:, 0] <= best) & (best <= joint[:, 1])).all())
    covered = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    return covered, found.standard_errors / errors, covers


def main() -> None:
    """Print a line for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.3, 1.0, 4.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| epsilon | coverage | worst coefficient | length | joint after selection |")
    print("|---|---|---|---|---|")
    for epsilon in options.epsilon:
        found = [measured(seed, epsilon) for seed in range(options.runs)]
        covered = np.array([one[0] for one in found])
        length = float(np.median([one[1] for one in found]))
        joint = float(np.mean([one[2] for one in found]))
        worst = covered.mean(axis=0).min()
        print(f"| {epsilon:g} | {covered.mean():.3f} | {worst:.2f} | {length:.2f} | {joint:.2f} |")


if __name__ == "__main__":
    main()
