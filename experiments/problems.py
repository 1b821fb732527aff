"""The problems on which solvers are compared, with their exact optimum and test score."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from sklearn.metrics import r2_score, roc_auc_score

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.datasets import load_adult, load_california_housing
from dpglm.preprocessing import SchemaEncoder
from dpglm.problem import L2, Logistic, Problem, Savage, Squared
from dpglm.tables.schema import Schema

__all__ = ["PROBLEMS", "Task", "predictions", "risk", "solved_task", "targets"]


@dataclass(frozen=True)
class Task:
    """Training and test rows, the objective, and the score of a model."""

    name: str
    problem: Problem
    train: Rows
    test: Rows
    score: Callable[[NDArray[Any], NDArray[Any]], float]
    score_name: str
    optimum: float
    """Smallest training objective, found without privacy."""
    best_score: float
    """Test score of the model that attains it."""
    w: NDArray[np.float64]
    """That model."""


def predictions(rows: Rows, w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predict all rows."""
    return np.concatenate([np.asarray(block.predict(w), float) for block in rows.blocks()])


def targets(rows: Rows) -> NDArray[Any]:
    """Targets of all rows."""
    return np.concatenate([block.targets for block in rows.blocks()])


def risk(problem: Problem, rows: Rows, w: NDArray[np.float64]) -> float:
    """Training objective: mean loss plus penalty, the intercept free."""
    total = sum(
        float(problem.loss.value(block.predict(w), block.targets).sum()) for block in rows.blocks()
    )
    return total / rows.n_rows + problem.regularizer.value(w[:-1])


def solved_task(
    name: str,
    problem: Problem,
    train: Rows,
    test: Rows,
    score: Callable[[NDArray[Any], NDArray[Any]], float],
    score_name: str,
) -> Task:
    """Find the smallest training objective and the test score of its minimiser."""
    strength = problem.regularizer.strong_convexity

    def objective(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        gradient = train.sum(
            lambda block: block.weighted_sum(problem.loss.slope(block.predict(w), block.targets))
        )
        penalized = np.append(w[:-1], 0.0)
        return risk(problem, train, w), gradient / train.n_rows + strength * penalized

    starts = [np.zeros(train.spec.n_columns)]
    if not problem.loss.convex:
        # A convex surrogate finds the right valley of a bounded loss.
        convex = dataclasses.replace(problem, loss=Logistic())
        starts.append(solved_task(name, convex, train, test, score, score_name).w)
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-10, "gtol": 1e-7}
    found = [
        minimize(objective, start, jac=True, method="L-BFGS-B", options=options) for start in starts
    ]
    best = min(found, key=lambda one: one.fun)
    test_score = score(targets(test), predictions(test, best.x))
    return Task(name, problem, train, test, score, score_name, float(best.fun), test_score, best.x)


def adult() -> Task:
    """Income above 50 000 dollars from census answers; the publishers' split."""
    data = load_adult()
    encoder = SchemaEncoder(data.schema)
    X = np.asarray(encoder.fit_transform(data.data), dtype=np.float64)
    positive = Schema.from_dict(data.schema).target.classes[1]
    y = np.where(data.target == positive, 1.0, -1.0)
    norm = Schema.from_dict(data.schema).row_norm
    spec = DataSpec(len(data.train), X.shape[1], row_norm=norm, intercept=norm, entry_bound=1.0)
    return solved_task(
        "Adult, logistic",
        Problem(Logistic(), L2(1.0 / spec.n_rows)),
        prepare_rows(X[data.train], y[data.train], spec),
        prepare_rows(X[data.test], y[data.test], dataclasses.replace(spec, n_rows=len(data.test))),
        roc_auc_score,
        "AUC",
    )


def california() -> Task:
    """Median house values of Californian districts, least squares within public bounds."""
    data = load_california_housing()
    schema = Schema.from_dict(data.schema)
    X = np.asarray(SchemaEncoder(data.schema).fit_transform(data.data), dtype=np.float64)
    low, high = schema.target.low, schema.target.high
    y = (np.clip(data.target, low, high) - (low + high) / 2) / ((high - low) / 2)
    norm = schema.row_norm
    spec = DataSpec(
        len(data.train),
        X.shape[1],
        row_norm=norm,
        intercept=norm,
        target_low=-1.0,
        target_high=1.0,
        entry_bound=1.0,
    )
    return solved_task(
        "California housing, squared",
        Problem(Squared()),
        prepare_rows(X[data.train], y[data.train], spec),
        prepare_rows(X[data.test], y[data.test], dataclasses.replace(spec, n_rows=len(data.test))),
        r2_score,
        "R2",
    )


def text() -> Task:
    """Generate documents with Zipf word counts: 20 000 words, 5 000 documents for training."""
    rng = np.random.default_rng(20_170)
    n_train, n, n_words, length = 5000, 7000, 20_000, 40
    frequency = 1.0 / np.arange(1, n_words + 1) ** 1.1
    words = rng.choice(n_words, size=(n, length), p=frequency / frequency.sum())
    counts = sparse.csr_array(
        (np.ones(words.size), (np.repeat(np.arange(n), length), words.ravel())),
        shape=(n, n_words),
    )
    counts.sum_duplicates()
    # Logarithmic counts, and every document of length one: row by row, so no privacy is spent.
    counts.data = np.log1p(counts.data)
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    X = sparse.csr_array(sparse.diags_array(1.0 / norms) @ counts)
    signal = np.where(rng.random(n_words) < 0.2, rng.normal(scale=6.0, size=n_words), 0.0)
    y = np.where(X @ signal + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    spec = DataSpec(n_train, n_words, row_norm=1.0, intercept=1.0, sparse=True)
    head, tail = np.arange(n_train), np.arange(n_train, n)
    return solved_task(
        "Text-like, logistic, d > n",
        Problem(Logistic(), L2(1.0 / n_train)),
        prepare_rows(X[head], y[head], spec),
        prepare_rows(X[tail], y[tail], dataclasses.replace(spec, n_rows=len(tail))),
        roc_auc_score,
        "AUC",
    )


def robust() -> Task:
    """Generate rows with wrong labels for a seventh, far out; the savage loss."""
    rng = np.random.default_rng(2008)
    n_train, n_test, d = 10_000, 4000, 20
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)

    def sample(n: int, wrong: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        position = rng.uniform(-1.0, 1.0, size=n)
        y = np.where(position + 0.15 * rng.logistic(size=n) > 0.0, 1.0, -1.0)
        bad = rng.random(n) < wrong
        position[bad] = 1.8 * y[bad]
        y[bad] *= -1.0
        X = rng.normal(scale=0.5 / np.sqrt(d), size=(n, d))
        return X + np.outer(position - X @ direction, direction), y

    spec = DataSpec(n_train, d, row_norm=2.0, intercept=2.0)
    return solved_task(
        "Wrong labels, savage (non-convex)",
        Problem(Savage(), L2(1.0 / n_train)),
        prepare_rows(*sample(n_train, 1.0 / 7.0), spec),
        prepare_rows(*sample(n_test, 0.0), dataclasses.replace(spec, n_rows=n_test)),
        roc_auc_score,
        "AUC",
    )


PROBLEMS: dict[str, Callable[[], Task]] = {
    "adult": adult,
    "california": california,
    "text": text,
    "robust": robust,
}
