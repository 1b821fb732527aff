"""Coverage of population coefficients with survey weights: ``python -m experiments.survey``.

People answer with probabilities that depend on the outcome. Prints, by ``weight_bound``, the
coverage and the mean length of robust 95 % intervals of a private linear regression, over that of
the weighted sandwich intervals without privacy. The first line ignores the weights.
"""

from __future__ import annotations

import argparse
import functools
import warnings

import numpy as np

from dpglm import LinearRegression

__all__ = ["main", "one", "people", "population", "sample"]

SLOPES = np.array([0.5, -0.3, 0.0])
REACH, Z, N_PER_ANSWER = 8.0, 1.96, 5


def people(n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return features and outcomes of the population; the linear model is not right."""
    X = rng.normal(size=(n_rows, 3)).clip(-3.0, 3.0)
    y = X @ SLOPES + 0.5 * (X[:, 0] ** 2 - 1.0) + rng.normal(size=n_rows)
    return X, y.clip(-REACH, REACH)


def sample(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return those who answer: features, outcomes and weights with mean 1, at most about 4."""
    rng = np.random.default_rng(seed)
    X, y = people(N_PER_ANSWER * n_rows, rng)
    chance = np.exp(0.4 * (y + X[:, 0])).clip(0.3, 3.0)
    chance *= n_rows / chance.sum()
    there = rng.random(len(y)) < chance
    weights = 1.0 / chance[there]
    return X[there], y[there], weights / weights.mean()


@functools.cache
def population() -> np.ndarray:
    """Return intercept and slopes of least squares in a population of two millions."""
    X, y = people(2_000_000, np.random.default_rng(99))
    return np.linalg.lstsq(np.column_stack([np.ones(len(y)), X]), y)[0]


def sandwich(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return standard errors without privacy."""
    Z = np.column_stack([np.ones(len(y)), X])
    bread = np.linalg.inv((Z * w[:, None]).T @ Z)
    scores = Z * (w * (y - Z @ (bread @ (Z.T @ (w * y)))))[:, None]
    return np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))


def one(
    seed: int, weight_bound: float | None, *, n_rows: int = 20_000, epsilon: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return errors, standard errors, and those without privacy; None ignores the weights."""
    X, y, w = sample(n_rows, seed)
    model = LinearRegression(
        feature_bounds=(-3, 3),
        target_bounds=(-REACH, REACH),
        inference="robust",
        weight_bound=weight_bound or 1.0,
        epsilon=epsilon,
        random_state=seed,
    )
    found = model.fit(X, y, sample_weight=None if weight_bound is None else w).inference_
    return found.params - population(), found.standard_errors, sandwich(X, y, w)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| weight_bound | coverage, by coefficient | length |")
    print("|---|---|---|")
    for bound in (None, 5.0, 4.0, 3.0, 2.0):
        found = [one(seed, bound) for seed in range(options.runs)]
        error, se, own = np.array(found).transpose(1, 0, 2)
        covered = np.mean(np.abs(error) < Z * se, axis=0)
        shares = ", ".join(f"{share:.2f}" for share in covered)
        print(f"| {bound or 'no weights'} | {shares} | {np.mean(se / own):.2f} |", flush=True)


if __name__ == "__main__":
    main()
