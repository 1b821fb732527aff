"""Coverage of private average treatment effects: ``python -m experiments.ate``.

Prints, by outcome and by the model that lacks the right form, how often the 95 % interval covers
the true effect, its mean length over that of the doubly robust interval without privacy (in NumPy,
with the same halves and clipping), and the coverage of that one. The propensity is clipped to
[0.1, 0.9] where it is generated, so that there is overlap.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import warnings
from typing import Any

import numpy as np

import dpglm

__all__ = ["columns", "main", "one", "reference", "rows", "schema", "true_effect"]

BOUND, OVERLAP, Z = 6.0, 0.1, 1.96
TREATED = np.array([0.5, -0.5, 0.3, 0.3, -0.2, 0, 0, 0, 0, 0])
OUTCOME = np.array([0.5, 0.5, -0.4, 0, 0.3, 0.3, 0, 0, 0, 0.2])
WRONG = ("neither", "propensity", "outcome")


def columns(n_columns: int) -> list[str]:
    """Return the names of the covariates, of which those beyond ten have no effect."""
    return [f"x{k}" for k in range(n_columns)]


def schema(binary: bool, n_columns: int = 10) -> dict[str, Any]:
    """Return the public facts: covariates, treatment and outcome."""
    target: dict[str, Any] = {"name": "y", "type": "numeric", "low": -BOUND, "high": BOUND}
    if binary:
        target = {"name": "y", "type": "binary", "classes": [0, 1]}
    numbers = {name: {"type": "numeric", "low": -3, "high": 3} for name in columns(n_columns)}
    arms = {"type": "categorical", "categories": ["control", "treated"]}
    return {"columns": {**numbers, "t": arms}, "target": target, "provenance": "generated"}


def _curved(X: np.ndarray) -> np.ndarray:
    return 0.4 * (X[:, 0] ** 2 - 1.0) + 0.4 * X[:, 1] * X[:, 2]


def _means(X: np.ndarray, wrong: str, binary: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected outcomes without and with treatment."""
    base = X[:, :10] @ OUTCOME + (_curved(X) if wrong == "outcome" else 0.0)
    # With a wrong outcome model the effect also differs between people.
    effect = 0.3 + (0.2 * X[:, 0] if wrong == "outcome" else 0.0)
    if not binary:
        return base, base + effect
    return tuple(1.0 / (1.0 + np.exp(1.5 - one)) for one in (0.7 * base, 0.7 * base + 2 * effect))


def rows(
    n_rows: int, seed: int, wrong: str = "neither", *, binary: bool = False, n_columns: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return covariates, treatments and outcomes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)).clip(-3.0, 3.0)
    score = X[:, :10] @ TREATED + (_curved(X) if wrong == "propensity" else 0.0)
    chance = np.clip(1.0 / (1.0 + np.exp(-score)), OVERLAP, 1.0 - OVERLAP)
    t = (rng.random(n_rows) < chance).astype(float)
    mean = np.where(t == 1.0, *_means(X, wrong, binary)[::-1])
    y = (rng.random(n_rows) < mean) * 1.0 if binary else mean + rng.normal(size=n_rows)
    return X, t, np.clip(y, -BOUND, BOUND)


@functools.cache
def true_effect(wrong: str, *, binary: bool) -> float:
    """Return the average effect, from two million people without randomness of outcomes."""
    rng = np.random.default_rng(99)
    X = rng.normal(size=(2_000_000, 10)).clip(-3.0, 3.0)
    control, treated = _means(X, wrong, binary)
    return float(np.mean(treated - control))


def _logistic(Z: np.ndarray, t: np.ndarray) -> np.ndarray:
    w = np.zeros(Z.shape[1])
    for _ in range(12):
        p = 1.0 / (1.0 + np.exp(-Z @ w))
        w += np.linalg.solve((Z * (p * (1.0 - p))[:, None]).T @ Z, Z.T @ (t - p))
    return w


def reference(
    X: np.ndarray, t: np.ndarray, y: np.ndarray, *, binary: bool, seed: int
) -> tuple[float, float]:
    """Return the doubly robust estimate without privacy, and its standard error."""
    n = len(t)
    half = np.random.default_rng(seed).permutation(n) < n // 2
    psi = np.zeros(n)
    for one in (half, ~half):
        Z = np.column_stack([np.ones(n), X])
        e = 1.0 / (1.0 + np.exp(-Z[~one] @ _logistic(Z[one], t[one])))
        e = np.clip(e, OVERLAP, 1.0 - OVERLAP)
        both = np.column_stack([Z, t])
        w = _logistic(both[one], y[one]) if binary else np.linalg.lstsq(both[one], y[one])[0]
        control, treated = (
            np.column_stack([Z[~one], np.full(n - one.sum(), a)]) @ w for a in (0, 1)
        )
        if binary:
            control, treated = (1.0 / (1.0 + np.exp(-m)) for m in (control, treated))
        a, b = t[~one], y[~one]
        psi[~one] = treated - control
        psi[~one] += a * (b - treated) / e - (1.0 - a) * (b - control) / (1.0 - e)
    return float(psi.mean()), float(psi.std() / np.sqrt(n))


def one(
    seed: int,
    wrong: str,
    *,
    binary: bool,
    n_rows: int = 20_000,
    n_columns: int = 10,
    epsilon: float = 1.0,
) -> tuple[float, float, float, float]:
    """Return the error and the standard error of both estimates, the private one first."""
    X, t, y = rows(n_rows, seed, wrong, binary=binary, n_columns=n_columns)
    arms = np.array(["control", "treated"])[t.astype(int)]
    table = {**dict(zip(columns(n_columns), X.T, strict=True)), "t": arms}
    table["y"] = y.astype(int) if binary else y
    effect = dpglm.ate(
        table,
        treatment="t",
        outcome="y",
        adjust=columns(n_columns),
        schema=schema(binary, n_columns),
        epsilon=epsilon,
        overlap=OVERLAP,
        random_state=seed,
    )
    own, error = reference(X, t, y, binary=binary, seed=seed)
    truth = true_effect(wrong, binary=binary)
    return effect.estimate - truth, effect.standard_error, own - truth, error


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=250)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| outcome | wrong model | coverage | length | median | bias / error | without privacy |")
    print("|---|---|---|---|---|---|---|")
    for binary, wrong in itertools.product((False, True), WRONG):
        size = {"n_rows": options.rows, "n_columns": options.columns, "epsilon": options.epsilon}
        found = [
            one(seed, wrong, binary=binary, **size)
            for seed in range(options.first, options.first + options.runs)
        ]
        error, se, error0, se0 = np.array(found).T
        print(
            f"| {'binary' if binary else 'number'} | {wrong} | "
            f"{np.mean(np.abs(error) < Z * se):.3f} | {np.mean(se / se0):.2f} | "
            f"{np.median(se / se0):.2f} | "
            f"{np.mean(error) / np.std(error):.2f} | {np.mean(np.abs(error0) < Z * se0):.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
