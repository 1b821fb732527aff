"""Compare default least squares with a private mean and with no privacy: tables for the docs.

Run with ``python -m experiments.least_squares`` (five minutes). It prints the tables of
``docs/evidence/solvers.md``: squared errors on fresh rows over those of a private mean (of zero
without an intercept), errors of coefficients over those of least squares, and the loss of R2
against least squares without privacy, compared with ``newton``. With ``--only rows`` only the last
one. No row is a test row of ``docs/evidence/comparison.md``: those of California housing are
its training rows, with one fifth held out.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Problem, Squared
from dpglm.solvers import Newton, Solver, SufficientStatistics, run
from experiments.problems import california, targets

EPSILONS = (0.1, 0.63, 1.0, 4.0)
DELTA = 1e-5


@dataclass(frozen=True)
class Table:
    """Generated rows in [-1, 1]^d and targets, which have bounds [-1, 1]; or the diabetes data."""

    columns: str
    n_rows: int
    n_features: int
    mean: float = 0.0
    spread: float = 0.3
    signal: float = 0.5

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return rows and targets."""
        if self.columns == "diabetes":
            data = load_diabetes()
            chosen = rng.permutation(len(data.target))[:n_rows]
            return np.clip(data.data / 0.2, -1, 1)[chosen], (data.target / 200.0 - 1.0)[chosen]
        d = self.n_features
        X = rng.uniform(-1, 1, size=(n_rows, d))
        if self.columns == "correlated":
            X = 0.5 * X + 0.5 * rng.uniform(-1, 1, size=(n_rows, 1))
        elif self.columns == "narrow":
            X = 0.1 * X + rng.uniform(-0.6, 0.6, size=d)
        elif self.columns == "binary":
            X = np.where(rng.random((n_rows, d)) < np.linspace(0.03, 0.5, d), 1.0, -1.0)
        z = (X - X.mean(axis=0)) @ rng.normal(size=d)
        z *= math.sqrt(self.signal) / z.std()
        noise = math.sqrt(1.0 - self.signal) * rng.normal(size=n_rows)
        return X, np.clip(self.mean + self.spread * (z + noise), -1, 1)


TABLES = (
    Table("diabetes", 442, 10),
    Table("uniform", 100, 5, 0.5, 0.005, 0.0),
    Table("uniform", 100, 35, 0.8, 0.02),
    Table("uniform", 155, 33, 0.0, 0.4),
    Table("uniform", 300, 5, 0.0, 0.3, 0.0),
    Table("uniform", 500, 10, 0.8, 0.02),
    Table("correlated", 500, 5, -0.5, 0.1, 0.9),
    Table("uniform", 1000, 20, 0.3, 0.2, 0.8),
    Table("narrow", 2000, 10, -0.5, 0.1, 0.9),
    Table("binary", 2000, 20, 0.0, 0.3, 0.6),
    Table("uniform", 2000, 35, -0.5, 0.1, 0.3),
)


def spec_of(table: Table, n_rows: int, *, intercept: bool) -> DataSpec:
    """Return the public facts of a table."""
    end = math.sqrt(table.n_features)
    return DataSpec(
        n_rows,
        table.n_features,
        row_norm=end,
        intercept=end if intercept else 0.0,
        target_low=-1.0,
        target_high=1.0,
    )


def error_over_mean(table: Table, epsilon: float, runs: int, *, intercept: bool) -> float:
    """Mean squared error over that of a private mean with the whole budget, both averaged."""
    rng = np.random.default_rng(0)
    n = table.n_rows
    spec, budget = spec_of(table, n, intercept=intercept), ApproximateDP(epsilon, n**-2.0)
    plan = SufficientStatistics().plan(Problem(Squared()), budget, spec)
    ours, neutral = [], []
    for seed in range(runs):
        fresh = slice(0, None) if table.columns == "diabetes" else slice(n, None)
        X, y = table.draw(2 * n, rng)
        w = run(plan, prepare_rows(X[:n], y[:n], spec), SeededNoise(seed)).w
        predictions = X[fresh] @ w[: table.n_features] + (
            spec.intercept * w[-1] if intercept else 0
        )
        ours.append(np.mean((predictions - y[fresh]) ** 2))
        guesses = np.zeros(1)
        if intercept:
            guesses = rng.normal(y[:n].mean(), 1.0 / (n * budget.gdp_mu()), size=100)
        neutral.append(np.mean((np.clip(guesses, -1, 1)[:, None] - y[fresh]) ** 2))
    return float(np.mean(ours) / np.mean(neutral))


def error_over_least_squares(n: int, epsilon: float, runs: int) -> float:
    """Root mean squared error of ten coefficients and an intercept over that of least squares."""
    rng = np.random.default_rng(0)
    spec = spec_of(Table("normal", n, 10), n, intercept=True)
    budget = ApproximateDP(epsilon, 1e-5)
    plan = SufficientStatistics().plan(Problem(Squared()), budget, spec)
    truth = np.append(np.linspace(-0.2, 0.2, 10), 0.1 / spec.intercept)
    found = []
    for seed in range(runs):
        X = np.clip(0.35 * rng.normal(size=(n, 10)), -1, 1)
        X[:, 1] = np.clip(0.7 * X[:, 0] + 0.7 * X[:, 1], -1, 1)
        A = np.column_stack([X, np.full(n, spec.intercept)])
        y = np.clip(A @ truth + 0.1 * rng.normal(size=n), -1, 1)
        inverse = np.linalg.inv(A.T @ A)
        w = run(plan, prepare_rows(X, y, spec), SeededNoise(seed)).w
        errors = np.vstack([w - truth, inverse @ (A.T @ y) - truth])
        found.append(errors / np.sqrt(np.diag(inverse)))
    ours, without_privacy = np.sqrt(np.mean(np.square(found), axis=(0, 2)))
    return float(ours / without_privacy)


@dataclass(frozen=True)
class Rows:
    """Rows of a kind that is hard for least squares in some way, with a fresh part to score on."""

    kind: str
    n_rows: int
    n_features: int

    def draw(self, rng: np.random.Generator) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield rows and targets to fit to, then fresh ones."""
        n, d = self.n_rows, self.n_features
        if self.kind == "California housing":
            X, y = _california()
            places = rng.permutation(len(y))
            for part in (places[:n], places[n:]):
                yield X[part], y[part]
            return
        shape = (n + _FRESH, d)
        X = np.clip(_COLUMNS.get(self.kind, _COLUMNS["normal"])(rng, shape), -1.0, 1.0)
        w = np.random.default_rng(d).normal(size=d)
        columns = (X - X.mean(axis=0)) / X.std(axis=0)
        z = columns @ w / np.linalg.norm(w)
        if "curved" in self.kind:
            z = np.tanh(z) + 0.3 * np.minimum(z**2, 4.0)
        error = rng.normal(size=len(z))
        if self.kind == "uneven errors":
            error *= 0.5 + np.abs(columns[:, 0])
        if self.kind == "skewed errors":
            error = rng.exponential(size=len(z)) - 1.0
        y = np.clip(0.25 * (z + 0.8 * error) - 0.2, -1.0, 1.0)
        yield X[:n], y[:n]
        yield X[n:], y[n:]


_FRESH = 20_000
_COLUMNS: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]] = {
    "normal": lambda rng, shape: rng.normal(size=shape) / 3.0,
    "correlated": lambda rng, shape: (
        (rng.normal(size=shape) + 2.0 * rng.normal(size=(shape[0], 1))) / 8.0
    ),
    "heavy-tailed": lambda rng, shape: rng.standard_t(3, size=shape) / 10.0,
    "lognormal": lambda rng, shape: np.exp(rng.normal(size=shape)) / 20.0 - 0.5,
    "lognormal, curved": lambda rng, shape: np.exp(rng.normal(size=shape)) / 20.0 - 0.5,
    "rare": lambda rng, shape: np.where(
        rng.random(shape) < np.linspace(0.01, 0.5, shape[1]), 1.0, -1.0
    ),
}
ROWS = (
    Rows("California housing", 13_209, 8),
    *(
        Rows(kind, n, d)
        for kind in (*_COLUMNS, "curved", "uneven errors", "skewed errors")
        for n, d in ((2000, 5), (16_000, 10), (16_000, 40))
    ),
)


@functools.cache
def _california() -> tuple[NDArray[Any], NDArray[Any]]:
    train = california().train
    X = np.concatenate([np.asarray(block.features()) for block in train.blocks()])
    return X, targets(train)


def behind_least_squares(
    rows: Rows, solver: Solver, epsilons: Sequence[float], runs: int
) -> list[float]:
    """How far R2 on fresh rows is behind that of least squares, on average, in thousandths."""
    lost = np.zeros((runs, len(epsilons)))
    spec = spec_of(Table(rows.kind, rows.n_rows, rows.n_features), rows.n_rows, intercept=True)
    plans = [solver.plan(Problem(Squared()), ApproximateDP(one, DELTA), spec) for one in epsilons]
    for seed in range(runs):
        (X, y), (fresh, t) = rows.draw(np.random.default_rng([seed, rows.n_rows, rows.n_features]))
        A, B = (np.column_stack([one, np.full(len(one), spec.intercept)]) for one in (X, fresh))
        best = np.mean((B @ np.linalg.lstsq(A, y, rcond=None)[0] - t) ** 2)
        prepared = prepare_rows(X, y, spec)
        for k, plan in enumerate(plans):
            w = run(plan, prepared, SeededNoise(seed)).w
            lost[seed, k] = (np.mean((B @ w - t) ** 2) - best) / np.var(t)
    return [float(one) for one in 1000.0 * lost.mean(axis=0)]


def print_rows(runs: int) -> None:
    """Print how far both solvers are behind least squares."""
    epsilons = (0.1, 0.3, 1.0, 4.0, 100.0)
    print("\n| rows | columns | " + " | ".join(map(str, epsilons)) + " |")
    print("|---" * (2 + len(epsilons)) + "|")
    for rows in ROWS:
        both = [
            behind_least_squares(rows, solver, epsilons, runs)
            for solver in (SufficientStatistics(), Newton())
        ]
        cells = [f"{a:.1f} / {b:.1f}" for a, b in zip(*both, strict=True)]
        row = [str(rows.n_rows), f"{rows.n_features} {rows.kind}", *cells]
        print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--only", choices=["rows"])
    options = parser.parse_args()
    if not options.only:
        print_errors(options.runs)
    print_rows(max(options.runs // 4, 1))


def print_errors(runs: int) -> None:
    """Print errors relative to a private mean, and to least squares."""
    print("| rows | columns | targets | intercept | " + " | ".join(map(str, EPSILONS)) + " |")
    print("|---" * (4 + len(EPSILONS)) + "|")
    for intercept in (True, False):
        for table in TABLES:
            cells = [
                f"{error_over_mean(table, epsilon, runs, intercept=intercept):.3f}"
                for epsilon in EPSILONS
            ]
            targets = f"{table.mean} ± {table.spread}, R2 {table.signal}"
            if table.columns == "diabetes":
                targets = "diabetes"
            kind = f"{table.n_features} {table.columns}"
            row = [str(table.n_rows), kind, targets, "yes" if intercept else "no", *cells]
            print("| " + " | ".join(row) + " |", flush=True)
    print("\n| rows | epsilon 1 | 10 | 100 |\n|---|---|---|---|")
    for n in (20_000, 100_000):
        cells = [f"{error_over_least_squares(n, one, runs // 2):.2f}" for one in (1.0, 10.0, 100.0)]
        print(f"| {n} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
