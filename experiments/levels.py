"""Random intercepts: a Zipf factor of 50 levels, and two factors of 600 and 3,000 levels.

``python -m experiments.levels`` rewrites a table in ``docs/evidence/coverage.md``: error and
coverage of the levels' effects, next to those without privacy, and the ranking of new rows with
and without two factors; the second does not have an effect.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse
from sklearn.metrics import roc_auc_score

from dpglm import LogisticRegression
from dpglm.privacy.noise import SeededNoise
from dpglm.solvers import RandomIntercepts
from experiments.measured import DOCS, put

DELTA, SCALE, N_LEVELS, _Z = 1e-5, 0.5, 50, 1.959963984540054
Array = NDArray[np.float64]


def table(
    n: int,
    sizes: Sequence[int],
    scales: Sequence[float],
    seed: int,
    *,
    numbers: int,
    positive: float,
) -> tuple[sparse.csr_array, Array, Array, list[Array]]:
    """Draw rows of even numbers and Zipf factors, labels, chances, and the levels' effects."""
    rng = np.random.default_rng([seed, n, *sizes])
    X = rng.uniform(-1.0, 1.0, (n, numbers))
    eta, blocks, effects = X @ np.linspace(1.0, 0.2, numbers), [sparse.csr_array(X)], []
    for size, scale in zip(sizes, scales, strict=True):
        shares = 1.0 / np.arange(1, size + 1) ** (1.0 if len(sizes) == 1 else 0.7)
        codes = rng.choice(size, n, p=shares / shares.sum())
        effects.append(scale * rng.normal(size=size))
        eta = eta + effects[-1][codes]
        entries = np.ones(n), (np.arange(n), codes)
        blocks.append(sparse.csr_array(entries, shape=(n, size)))
    if positive != 0.5:
        eta += optimize.brentq(lambda a: float(expit(a + eta).mean()) - positive, -20.0, 20.0)
    chances = expit(eta)
    return sparse.csr_array(sparse.hstack(blocks)), (rng.random(n) < chances) * 1, chances, effects


def expit(eta: Array) -> Array:
    """Return chances of scores."""
    return np.asarray(1.0 / (1.0 + np.exp(-eta)))


def fitted(X: Any, y: Any, sizes: Sequence[int], numbers: int, **options: Any) -> Any:
    """Fit a logistic model, with random intercepts of the factors."""
    if sizes:
        ends = np.cumsum([numbers, *sizes]).tolist()
        options["solver"] = RandomIntercepts(tuple(itertools.pairwise(ends)))
    norm = math.sqrt(max(numbers + len(sizes), 1))
    model = LogisticRegression(C=math.inf, classes=[0, 1], delta=DELTA, row_norm=norm, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def without_privacy(X: sparse.csr_array, y: Array, scale: float) -> Array:
    """Return the scores of the levels by penalised likelihood."""
    counts, ones = np.asarray(X.sum(axis=0)), np.asarray(X.T @ y)
    w, a = np.zeros(len(counts)), 0.0
    for _ in range(100):
        p = expit(a + w)
        h = counts * p * (1.0 - p)
        w = w + (ones - counts * p - w / scale**2) / (h + scale**-2.0)
        a += float((ones - counts * expit(a + w)).sum() / h.sum()) if scale < 10.0 else 0.0
    return a + w


def zipf(epsilon: float, runs: int) -> str:
    """Return the line of the table for a factor of 50 levels."""
    found = []
    for seed in range(runs):
        X, y, _, (effects,) = table(20_000, [N_LEVELS], [SCALE], seed, numbers=0, positive=0.5)
        model = fitted(
            X, y, [N_LEVELS], 0, epsilon=epsilon, inference=True, random_state=SeededNoise(seed)
        )
        inference = model.inference_
        gaps, errors = inference.params[1:] - effects, inference.standard_errors[1:]
        ((_, low, high),) = inference.variance_components.values()
        likely, mixed = (without_privacy(X, y, scale) - effects for scale in (10.0, SCALE))
        found.append(
            [
                np.sqrt(np.mean((gaps + inference.params[0]) ** 2)),
                np.mean(np.abs(gaps) <= _Z * errors),
                low <= SCALE <= high,
                np.sqrt(np.mean(likely**2)),
                np.sqrt(np.mean(mixed**2)),
            ]
        )
    error, covered, right, likely, mixed = np.mean(found, axis=0)
    return (
        f"| {epsilon:g} | {error:.3f} | {covered:.3f} | {right:.2f} | {likely:.3f} | {mixed:.3f} "
        f"| {runs} |"
    )


def two_factors(runs: int) -> str:
    """Return a sentence on two factors, the second without effect."""
    found, n, sizes = [], 120_000, [600, 3000]
    for seed in range(runs):
        X, y, chances, _ = table(2 * n, sizes, [SCALE, 0.0], seed, numbers=5, positive=0.03)
        options = {"epsilon": 1.0, "random_state": SeededNoise(seed)}
        start = time.perf_counter()
        model = fitted(X[:n], y[:n], sizes, 5, **options)
        seconds = time.perf_counter() - start
        plain = fitted(X[:n, :5].toarray(), y[:n], [], 5, **options)
        pooled = model.predict_proba(X)[:, 1]
        found.append(
            [
                roc_auc_score(y[n:], pooled[n:]),
                roc_auc_score(y[n:], plain.predict_proba(X[n:, :5].toarray())[:, 1]),
                roc_auc_score(y[n:], chances[n:]),
                abs(pooled[:n].mean() / y[:n].mean() - 1.0),
                seconds,
            ]
        )
    auc, without, truth, _, seconds = np.mean(found, axis=0)
    worst = max(one[3] for one in found)
    least = min(one[0] - one[1] for one in found)
    return (
        f"Two factors of 600 and 3,000 levels, the second without effect, 120,000 rows, 3 % "
        f"positive, epsilon 1 ({runs} runs): AUC {auc:.3f} on new rows, without the factors "
        f"{without:.3f} (least gain {least:.3f}), of the true chances {truth:.3f}. The mean "
        f"prediction is within {100.0 * worst:.1f} % of the mean outcome in every run. A fit takes "
        f"{seconds:.0f} s."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--epsilons", type=float, nargs="*", default=(0.3, 1.0, 8.0))
    options = parser.parse_args(arguments)
    lines = [
        "| epsilon | RMSE | coverage | scale covered | maximum likelihood | mixed model | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for epsilon in options.epsilons:
        lines.append(zipf(epsilon, options.runs))
        print(lines[-1], flush=True)
    text = two_factors(max(options.runs // 10, 1))
    print(text)
    put(DOCS / "evidence" / "coverage.md", "levels", "\n".join([*lines, "", text]))


if __name__ == "__main__":
    main()
