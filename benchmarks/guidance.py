"""Measure how often the accuracy stated by plans is reached on 40 problems, fitted by default.

Run with ``make guidance`` (some ten minutes on one core), which rewrites the table of
``docs/evidence/coverage.md``. ``--only TEXT`` prints the lines with TEXT in their name, and writes
nothing.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score, roc_auc_score

import dpglm
from dpglm.datasets import load_adult, load_california_housing
from dpglm.guidance import guidance
from dpglm.tables.schema import Schema
from experiments.measured import put

__all__ = ["PROBLEMS", "Measured", "Problem", "main", "measure"]

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "coverage.md"
_FITS, _TEST_ROWS = 2, 4000
# Column names of the table, and the share of problems in which the stated range must hold.
_HEADINGS = "| problem | rows | columns | epsilon | stated | measured | holds |"
LEAST = 0.9
"""Share of the problems in which the stated range must hold."""

Rows: TypeAlias = tuple[Any, NDArray[Any]]


@dataclass(frozen=True)
class Problem:
    """Rows to fit and rows to test, by a seed; the private model and the one without privacy.

    ``score`` compares targets with a model's answers; ``constant`` is the score of the best
    constant answer, as a function of the targets.
    """

    name: str
    epsilon: float
    rows: Callable[[np.random.Generator], tuple[Rows, Rows]]
    private: Any
    plain: Any
    score: Callable[[Any, Any, NDArray[Any]], float]
    constant: Callable[[NDArray[Any]], float]
    table: bool = False  # Whether rows are a table of columns that the model encodes.


@dataclass(frozen=True)
class Measured:
    """Stated and measured shares of the possible improvement."""

    problem: Problem
    n_rows: int
    n_features: int
    low: float
    high: float
    shares: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether the mean share is within the range."""
        return self.low <= float(np.mean(self.shares)) <= self.high

    def line(self) -> str:
        """Return the row of the table."""
        said = f"{self.low:.2f} to {self.high:.2f}"
        return (
            f"| {self.problem.name} | {self.n_rows} | {self.n_features} | "
            f"{self.problem.epsilon:g} | {said} | {np.mean(self.shares):.2f} | "
            f"{'yes' if self.holds else 'no'} |"
        )


def _auc(model: Any, X: Any, y: NDArray[Any]) -> float:
    return float(roc_auc_score(y, model.decision_function(X)))


def _accuracy(model: Any, X: Any, y: NDArray[Any]) -> float:
    return float(accuracy_score(y, model.predict(X)))


def _r2(model: Any, X: Any, y: NDArray[Any]) -> float:
    return float(r2_score(y, model.predict(X)))


def _d2(model: Any, X: Any, y: NDArray[Any]) -> float:
    means = np.clip(model.predict(X), 1e-9, 1e9)
    return float(d2_tweedie_score(y, means, power=1))


def _most_frequent(y: NDArray[Any]) -> float:
    return float(np.unique(y, return_counts=True)[1].max() / len(y))


def _cut(X: Any, y: NDArray[Any], n: int) -> tuple[Rows, Rows]:
    return (X[:n], y[:n]), (X[n:], y[n:])


def _expit(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def _uniform(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float64]:
    return rng.uniform(-1.0, 1.0, size=(n + _TEST_ROWS, d))


def _binary(n: int, d: int, epsilon: float, size: float = 2.0, level: float = 0.0) -> Problem:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        X = _uniform(rng, n, d)
        z = level + X @ rng.normal(0.0, size / np.sqrt(d), d)
        return _cut(X, (rng.random(len(X)) < _expit(z)).astype(int), n)

    rare = ", few of one class" if level else ""
    return Problem(
        f"two classes{rare}",
        epsilon,
        rows,
        dpglm.LogisticRegression(classes=[0, 1], feature_bounds=(-1, 1)),
        LogisticRegression(max_iter=500),
        _auc,
        lambda y: 0.5,
    )


def _factors(n: int, sizes: Sequence[int], epsilon: float, level: float) -> Problem:
    """Two classes and one-hot columns of factors with Zipf-distributed levels."""

    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        total = n + _TEST_ROWS
        parts, z = [], np.full(total, level)
        for size in sizes:
            cells = np.minimum(rng.zipf(1.3, total) - 1, size - 1)
            parts.append(
                sparse.csr_array((np.ones(total), (np.arange(total), cells)), (total, size))
            )
            z += rng.normal(0.0, 0.6, size)[cells]
        X = sparse.csr_array(sparse.hstack(parts))
        return _cut(X, (rng.random(total) < _expit(z)).astype(int), n)

    return Problem(
        f"two classes, factors of {' and '.join(map(str, sizes))} levels",
        epsilon,
        rows,
        dpglm.LogisticRegression(classes=[0, 1], row_norm=float(np.sqrt(len(sizes)))),
        LogisticRegression(max_iter=500),
        _auc,
        lambda y: 0.5,
    )


def _classes(n: int, d: int, count: int, epsilon: float, size: float = 6.0) -> Problem:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        X = rng.normal(size=(n + _TEST_ROWS, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        z = size * X @ rng.normal(size=(d, count)) + rng.gumbel(size=(len(X), count))
        return _cut(X, z.argmax(axis=1), n)

    return Problem(
        f"{count} classes",
        epsilon,
        rows,
        dpglm.LogisticRegression(classes=range(count), row_norm=1.0),
        LogisticRegression(max_iter=500),
        _accuracy,
        _most_frequent,
    )


def _clusters(n: int, d: int, count: int, epsilon: float, spread: float) -> Problem:
    """Classes that are clusters, which are easy to tell apart."""

    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        y = rng.integers(count, size=n + _TEST_ROWS)
        centers = rng.normal(size=(count, d)) / np.sqrt(d)
        X = centers[y] + spread * rng.normal(size=(len(y), d)) / np.sqrt(d)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        return _cut(X, y, n)

    return Problem(
        f"{count} clusters",
        epsilon,
        rows,
        dpglm.LogisticRegression(classes=range(count), row_norm=1.0),
        LogisticRegression(max_iter=500),
        _accuracy,
        _most_frequent,
    )


def _numbers(n: int, d: int, epsilon: float) -> Problem:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        X = _uniform(rng, n, d)
        y = X @ rng.normal(0.0, np.sqrt(3.0 / d), d) + rng.normal(size=len(X))
        return _cut(X, np.clip(y, -5.0, 5.0), n)

    return Problem(
        "numbers",
        epsilon,
        rows,
        dpglm.LinearRegression(target_bounds=(-5, 5), feature_bounds=(-1, 1)),
        Ridge(),
        _r2,
        lambda y: 0.0,
    )


def _counts(n: int, d: int, epsilon: float, high: float, level: float = 0.5) -> Problem:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        X = _uniform(rng, n, d)
        z = level + X @ rng.normal(0.0, np.sqrt(1.0 / d), d)
        return _cut(X, np.minimum(rng.poisson(np.exp(z)), high), n)

    return Problem(
        f"counts up to {high:g}, mean {np.exp(level + 0.17):.2g}",
        epsilon,
        rows,
        dpglm.PoissonRegressor(alpha=0.0, target_bounds=(0, high), feature_bounds=(-1, 1)),
        PoissonRegressor(alpha=1e-6, max_iter=500),
        _d2,
        lambda y: 0.0,
    )


def _in_memory(
    X: NDArray[np.float64], y: NDArray[Any], n: int
) -> Callable[[np.random.Generator], tuple[Rows, Rows]]:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        order = rng.permutation(len(y))
        return _cut(X[order], y[order], n)

    return rows


def _adult(n: int, epsilon: float) -> Problem:
    adult = load_adult()
    schema = Schema.from_dict(adult.schema)
    X, y = schema.encode(adult.data), np.asarray(adult.target == np.unique(adult.target)[1])
    return Problem(
        "Adult",
        epsilon,
        _in_memory(X, y.astype(int), n),
        dpglm.LogisticRegression(classes=[0, 1], row_norm=schema.row_norm),
        LogisticRegression(max_iter=500),
        _auc,
        lambda y: 0.5,
    )


def _housing(n: int, epsilon: float) -> Problem:
    housing = load_california_housing()
    schema = Schema.from_dict(housing.schema)
    bounds = schema.target.estimator_parameters()["target_bounds"]
    return Problem(
        "California housing",
        epsilon,
        _in_memory(schema.encode(housing.data), housing.target, n),
        dpglm.LinearRegression(target_bounds=bounds, row_norm=schema.row_norm),
        Ridge(),
        _r2,
        lambda y: 0.0,
    )


def _digits(epsilon: float) -> Problem:
    X, y = load_digits(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return Problem(
        "digits",
        epsilon,
        _in_memory(X, y, 1400),
        dpglm.LogisticRegression(classes=range(10), row_norm=1.0),
        LogisticRegression(max_iter=500),
        _accuracy,
        _most_frequent,
    )


def _cancer(epsilon: float) -> Problem:
    X, y = load_breast_cancer(return_X_y=True)
    X = np.clip(2.0 * X / X.max(axis=0) - 1.0, -1.0, 1.0)
    return Problem(
        "breast cancer",
        epsilon,
        _in_memory(X, y, 400),
        dpglm.LogisticRegression(classes=[0, 1], feature_bounds=(-1, 1)),
        LogisticRegression(max_iter=500),
        _auc,
        lambda y: 0.5,
    )


PROBLEMS: tuple[Callable[[], Problem], ...] = (
    lambda: _binary(500, 5, 0.2),
    lambda: _binary(2000, 5, 0.2),
    lambda: _binary(20_000, 5, 0.1),
    lambda: _binary(2000, 30, 0.5),
    lambda: _binary(8000, 30, 0.3),
    lambda: _binary(50_000, 30, 1.0),
    lambda: _binary(10_000, 100, 0.3),
    lambda: _binary(40_000, 100, 0.3, 1.0),
    lambda: _binary(20_000, 400, 1.0),
    lambda: _binary(20_000, 20, 0.3, 1.0, -3.0),
    lambda: _binary(60_000, 10, 0.1, 2.0, -4.0),
    lambda: _factors(20_000, (50, 100), 0.5, -2.0),
    lambda: _factors(20_000, (500, 3000), 1.0, -3.5),
    lambda: _factors(60_000, (500, 3000), 1.0, -3.5),
    lambda: _factors(30_000, (100, 200), 0.5, -1.0),
    lambda: _factors(20_000, (1000,), 0.3, 0.0),
    lambda: _classes(6000, 20, 3, 0.3),
    lambda: _classes(30_000, 20, 5, 0.1),
    lambda: _classes(20_000, 50, 10, 0.3),
    lambda: _classes(20_000, 50, 30, 0.5),
    lambda: _clusters(15_000, 96, 100, 1.0, 1.5),
    lambda: _clusters(10_000, 64, 100, 2.0, 2.0),
    lambda: _clusters(10_000, 100, 20, 0.3, 1.0),
    lambda: _clusters(30_000, 64, 10, 0.1, 1.0),
    lambda: _numbers(1000, 5, 0.3),
    lambda: _numbers(5000, 20, 0.2),
    lambda: _numbers(30_000, 20, 0.1),
    lambda: _numbers(20_000, 100, 0.3),
    lambda: _counts(2000, 3, 0.3, 50.0),
    lambda: _counts(20_000, 3, 0.1, 20_000.0),
    lambda: _counts(20_000, 3, 1.0, 1e6),
    lambda: _counts(20_000, 30, 0.3, 100.0),
    lambda: _counts(60_000, 10, 0.2, 20.0, -2.0),
    lambda: _adult(1000, 1.0),
    lambda: _adult(6000, 0.3),
    lambda: _adult(40_000, 0.1),
    lambda: _housing(3000, 0.2),
    lambda: _housing(16_000, 0.1),
    lambda: _digits(2.0),
    lambda: _cancer(2.0),
)
"""The 40 problems."""


def measure(problem: Problem, seed: int = 0, fits: int = _FITS) -> Measured:
    """Fit a problem privately a few times, on rows of their own, and compare with its plan."""
    shares = []
    for fit in range(fits):
        (X, y), (X_test, y_test) = problem.rows(np.random.default_rng([seed, fit]))
        model = problem.private.__sklearn_clone__()
        model.set_params(epsilon=problem.epsilon, random_state=fit + 100 * seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
            plain = problem.plain.fit(X, y)
        constant = problem.constant(y_test)
        best = problem.score(plain, X_test, y_test) - constant
        shares.append((problem.score(model, X_test, y_test) - constant) / best)
    said = guidance(model.solution_.plan)
    return Measured(problem, *X.shape, *said.share, tuple(shares))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all problems; return 0 if the stated range holds in 90 % of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only problems with this text in their name")
    parser.add_argument("--seed", type=int, default=0, help="other rows and other noise")
    options = parser.parse_args(argv)
    found = []
    for make in PROBLEMS:
        problem = make()
        if options.only in problem.name:
            found.append(measure(problem, options.seed))
            print(found[-1].line(), flush=True)
    holds = sum(one.holds for one in found)
    print(f"{holds} of {len(found)} hold")
    if not options.only and not options.seed:
        lines = [_HEADINGS, "|---|---|---|---|---|---|---|", *(one.line() for one in found)]
        lines += ["", f"The stated range holds in {holds} of {len(found)} problems."]
        put(PAGE, "expected accuracy", "\n".join(lines))
    return 0 if holds >= LEAST * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
