"""People with several rows: coverage of cluster-robust intervals, and a limit on rows.

Run with ``make groups``, or ``python -m experiments.groups``. It rewrites the tables of
``docs/evidence/coverage.md``; ``--runs`` says how often each line is drawn.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

import dpglm
from experiments.measured import DOCS, put

PAGE = DOCS / "evidence" / "coverage.md"
LEVEL = 0.95
_LARGE, _FRESH, _NODES = 400_000, 20_000, 21
_KINDS = ("independent", "alike", "repeated")
_LIMITS = (1, 2, 5, 10, 20, None)
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Persons:
    """Generated persons: ``rows`` each on average, and how they belong together.

    ``sizes`` are "equal", or "uneven" (geometric: many persons with one row, few with many). Rows
    of a person are "independent", "alike" (features vary little, and every person has a level), or
    "repeated" (one row as often as there are rows).
    """

    family: str
    persons: int
    rows: int
    columns: int
    epsilon: float
    kind: str = "alike"
    sizes: str = "equal"
    limit: int | None = None

    @property
    def truth(self) -> Array:
        """The coefficients, the intercept first."""
        return np.append(0.3, np.linspace(-1.5, 1.5, self.columns))

    def drawn(self, seed: int) -> tuple[Array, Array, Array]:
        """Draw rows, targets and persons, in the order of persons."""
        rng = np.random.default_rng([seed, self.persons, self.rows, self.columns])
        sizes = np.full(self.persons, self.rows)
        if self.sizes == "uneven":
            sizes = rng.geometric(1.0 / self.rows, self.persons)
        ids = np.repeat(np.arange(self.persons), sizes)
        X, level = self._features(ids, rng)
        y = self._targets(self._scores(X) + level, rng)
        if self.kind == "repeated":
            first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            X, y = X[first][ids], y[first][ids]
        return X, y, ids

    def target(self) -> Array:
        """Return the coefficients that minimise the expected loss of a row."""
        if self.family == "linear" or self.kind != "alike":
            return self.truth
        X, means = self.fresh(_LARGE)
        return plain(self.family, X, means, self.truth)

    def fresh(self, n_rows: int) -> tuple[Array, Array]:
        """Draw rows of as many persons, with the means of their binary targets."""
        X, _ = self._features(np.arange(n_rows), np.random.default_rng(0))
        scores = self._scores(X)
        if self.kind != "alike":
            means: Array = special.expit(scores)
            return X, means
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        return X, special.expit(scores[:, np.newaxis] + nodes) @ (weights / weights.sum())

    def _features(self, ids: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        X, count = rng.uniform(-1.0, 1.0, (len(ids), self.columns)), int(ids.max()) + 1
        if self.kind != "alike":
            return X, np.zeros(len(ids))
        own = rng.uniform(-1.0, 1.0, (count, self.columns))
        return 0.3 * X + 0.7 * own[ids], rng.normal(size=count)[ids]

    def _scores(self, X: Array) -> Array:
        scores: Array = X @ self.truth[1:] + self.truth[0]
        return scores

    def _targets(self, scores: Array, rng: np.random.Generator) -> Array:
        if self.family == "linear":
            drawn: Array = scores + rng.normal(size=len(scores))
            return drawn
        return (rng.uniform(size=len(scores)) < special.expit(scores)).astype(float)


def estimator(case: Persons, seed: int, **settings: Any) -> Any:
    """Make the estimator of a case, with noise from a seed."""
    shared = {
        "epsilon": case.epsilon,
        "delta": 1e-6,
        "feature_bounds": (-1.0, 1.0),
        "random_state": seed,
        **settings,
    }
    if case.family == "linear":
        return dpglm.LinearRegression(target_bounds=(-9.0, 9.0), **shared)
    return dpglm.LogisticRegression(classes=[0.0, 1.0], C=math.inf, **shared)


def plain(family: str, X: Array, y: Array, start: Array, steps: int = 8) -> Array:
    """Fit without privacy by Newton steps."""
    theta = start.copy()
    for _ in range(steps):
        scores, hessian = _derivatives(family, X, y, theta)
        theta += np.linalg.solve(hessian, scores.sum(axis=0))
    return theta


def plain_deviations(family: str, X: Array, y: Array, ids: Array, theta: Array) -> Array:
    """Cluster-robust standard errors of the fit without privacy."""
    scores, hessian = _derivatives(family, X, y, theta)
    sums = np.zeros((int(ids.max()) + 1, len(theta)))
    np.add.at(sums, ids, scores)
    inverse = np.linalg.inv(hessian)
    return np.sqrt(np.diag(inverse @ (sums.T @ sums) @ inverse))


def _derivatives(family: str, X: Array, y: Array, theta: Array) -> tuple[Array, Array]:
    """Scores of rows, and the Hessian."""
    design = np.column_stack([np.ones(len(X)), X])
    mean, weights = design @ theta, np.ones(len(X))
    if family == "logistic":
        mean = special.expit(mean)
        weights = mean * (1.0 - mean)
    return design * (y - mean)[:, np.newaxis], design.T @ (weights[:, np.newaxis] * design)


@dataclass(frozen=True)
class Coverage:
    """Results of intervals in many runs.

    ``covered`` are shares, for each coefficient; ``length`` is the mean over that of cluster-robust
    intervals without privacy; ``by_rows`` the coverage of a private fit that knows of no persons.
    """

    covered: Array
    length: float
    by_rows: float


def coverage(case: Persons, runs: int) -> Coverage:
    """Fit many times to new persons."""
    target, z = case.target(), -float(special.ndtri(0.5 - LEVEL / 2.0))
    covered, lengths, by_rows = [], [], []
    for run in range(runs):
        X, y, ids = case.drawn(run)
        low, high = _fitted(case, run, X, y, ids).inference_.conf_int(LEVEL).T
        covered.append((low <= target) & (target <= high))
        theta = plain(case.family, X, y, target)
        own = 2.0 * z * plain_deviations(case.family, X, y, ids, theta)
        lengths.append(np.mean((high - low) / own))
        low, high = _fitted(case, run, X, y, None).inference_.conf_int(LEVEL).T
        by_rows.append((low <= target) & (target <= high))
    return Coverage(np.mean(covered, axis=0), float(np.mean(lengths)), float(np.mean(by_rows)))


def excess(case: Persons, runs: int) -> tuple[float, float]:
    """Return the mean log loss over the best model's, on fresh rows, and its standard error."""
    X, means = case.fresh(_FRESH)
    best, found = case.target(), []
    for run in range(runs):
        model = _fitted(case, run, *case.drawn(run), inference=False)
        scores = X @ model.coef_[0] + model.intercept_[0], X @ best[1:] + best[0]
        losses = [np.mean(np.logaddexp(0.0, z) - means * z) for z in scores]
        found.append(float(losses[0] - losses[1]))
    return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(runs))


def _fitted(
    case: Persons, seed: int, X: Array, y: Array, ids: Array | None, inference: Any = "robust"
) -> Any:
    limit = case.limit if ids is not None else None
    model = estimator(case, seed, inference=inference, max_rows_per_group=limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, groups=ids)


def coverage_lines(runs: int) -> Iterator[str]:
    """Measure intervals, a line of the table at a time."""
    yield "| family | epsilon | rows of a person | sizes | coverage | of a fit of rows | length |"
    yield "|---|---|---|---|---|---|---|"
    for family, epsilon, kind in itertools.product(("logistic", "linear"), (1.0, 4.0), _KINDS):
        for sizes in ("equal", "uneven"):
            found = coverage(Persons(family, 4000, 5, 4, epsilon, kind, sizes), runs)
            shares = f"{found.covered.mean():.3f} | {found.by_rows:.3f} | {found.length:.2f}"
            yield f"| {family} | {epsilon:g} | {kind} | {sizes} | {shares} |"


def limit_lines(runs: int) -> Iterator[str]:
    """Measure fits with limits, a line of the table at a time."""
    yield "| epsilon | rows of a person | " + " | ".join(map(_named, _LIMITS)) + " |"
    yield "|---" * (2 + len(_LIMITS)) + "|"
    for epsilon, kind in itertools.product((0.3, 1.0, 4.0), _KINDS):
        case = Persons("logistic", 4000, 5, 10, epsilon, kind, "uneven")
        cells = []
        for limit in _LIMITS:
            mean, error = excess(replace(case, limit=limit), runs)
            cells.append(f"{1000.0 * mean:.1f} ± {1000.0 * error:.1f}")
        yield f"| {epsilon:g} | {kind} | {' | '.join(cells)} |"


def _named(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", choices=("coverage", "limits"))
    arguments = parser.parse_args()
    for name, lines in (("coverage", coverage_lines), ("limits", limit_lines)):
        if arguments.only in (None, name):
            found = []
            for line in lines(arguments.runs):
                print(line, flush=True)
                found.append(line)
            put(PAGE, f"people {name}", "\n".join(found))


if __name__ == "__main__":
    main()
