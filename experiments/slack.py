"""Shares of long rows and clipped residuals, which fits with intervals release at no cost.

``python -m experiments.slack`` writes a table in ``docs/evidence/solvers.md``: the noise in the
released shares, their bias from rows that leave too little slack, and for comparison the noise of a
release with 2 % of the budget. ``--parts`` compares parts of the bound for a count.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm import LinearRegression, LogisticRegression, PoissonRegressor
from dpglm.oracle import rounding, scores
from dpglm.privacy import ApproximateDP
from experiments.measured import DOCS, put

__all__ = ["MODELS", "fitted", "main", "measured", "rows", "table"]

N, D, SEEDS, EPSILONS = 20_000, 8, 10, (0.5, 2.0)
PARTS = (0.125, 0.25, 0.5)
"""Parts of the bound for each number; that for residuals is twice as large."""
PAID = 0.02
"""Budget share of a release of its own, with the bound ``sqrt(1 + 3 / 16)`` and 1/4 a count."""
MODELS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "logistic": (LogisticRegression, {"classes": [0, 1], "C": math.inf}),
    "least squares": (LinearRegression, {"target_bounds": (-12.0, 12.0)}),
    "Poisson": (PoissonRegressor, {"target_bounds": (0.0, 60.0), "alpha": 0.0}),
}


def rows(name: str, seed: int) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Draw rows with one skewed column, and targets with wide errors."""
    rng = np.random.default_rng([seed, len(name)])
    X = np.clip(rng.normal(size=(N, D)), -3.0, 3.0)
    X[:, 0] = np.clip(np.exp(rng.normal(size=N)) - 1.0, -3.0, 20.0)
    score = X @ np.linspace(-0.3, 0.4, D)
    if name == "logistic":
        return X, (score + rng.logistic(size=N) > 0.0).astype(int)
    if name == "least squares":
        return X, np.clip(score + rng.standard_t(4, N), -12.0, 12.0)
    mean = np.exp(0.5 * np.clip(score, -4.0, 4.0)) * rng.gamma(2.0, 0.5, N)
    return X, np.minimum(rng.poisson(mean), 60)


def fitted(name: str, seed: int, epsilon: float) -> Any:
    """Fit with intervals."""
    kind, settings = MODELS[name]
    X, y = rows(name, seed)
    bounds = ([-3.0] * D, [20.0] + [3.0] * (D - 1))
    model = kind(
        epsilon=epsilon,
        delta=1e-5,
        inference=True,
        feature_bounds=bounds,
        random_state=seed,
        **settings,
    )
    return model.fit(X, y)


def _shares(name: str, seed: int, epsilon: float) -> list[NDArray[np.float64]]:
    """Return released shares of long rows and clipped residuals, their bias, and their noise."""
    honest = fitted(name, seed, epsilon)._uncertainty.binding
    with mock.patch.object(rounding, "within_slack", lambda squares, more: more):
        full = fitted(name, seed, epsilon)._uncertainty.binding
    shares, whole = (np.array([one.long, one.clipped]) for one in (honest, full))
    return [shares, shares - whole, np.array(honest.noise)[[0, 2]]]


def measured(name: str, epsilon: float, part: float, seeds: int) -> NDArray[np.float64]:
    """Return share, bias and noise for long rows and clipped residuals, of shape (3, 2)."""
    parts = part * np.array([1.0, 1.0, 2.0])
    with mock.patch.multiple(scores, _LIMITS=parts, _LONG_IN_COLUMN=part):
        found = [_shares(name, seed, epsilon) for seed in range(seeds)]
    return np.asarray(np.mean(found, axis=0))


def table(parts: Sequence[float], seeds: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| model | epsilon | long rows | clipped residuals |"
    yield "|---" * 4 + "|"
    for name, epsilon in itertools.product(MODELS, EPSILONS):
        mu = ApproximateDP(epsilon, 1e-5).gdp_mu()
        paid = math.sqrt(1.0 + 3.0 / 16.0) / (mu * math.sqrt(PAID) * N)
        for part in parts:
            found = np.vstack([measured(name, epsilon, part, seeds), paid * np.array([4.0, 1.0])])
            long, clipped = ("/".join(f"{one:.2f}" for one in kind) for kind in 100.0 * found.T)
            of = f"{name}, {part}" if len(parts) > 1 else name
            yield f"| {of} | {epsilon} | {long} | {clipped} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", action="store_true", help="compare parts, and print")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    lines = list(table(PARTS if options.parts else PARTS[1:2], options.seeds))
    if options.parts:
        print("\n".join(lines))
    else:
        put(options.docs / "evidence" / "solvers.md", "slack", "\n".join(lines))


if __name__ == "__main__":
    main()
