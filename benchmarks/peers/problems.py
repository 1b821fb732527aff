"""The problems on which libraries are compared: rows, a fixed split, and public facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from benchmarks.peers.protocol import Task
from benchmarks.splits import load_adult_split
from dpglm.datasets import load_adult, load_california_housing, load_fashion_mnist
from dpglm.preprocessing import SchemaEncoder
from dpglm.tables.schema import Schema

__all__ = ["PROBLEMS", "Problem", "development", "scores", "shortened"]


@dataclass(frozen=True)
class Problem:
    """A task, and the test rows on which its models are scored."""

    title: str
    task: Task
    X_test: NDArray[Any]
    y_test: NDArray[Any]


def scores(problem: Problem, predictions: NDArray[np.float64]) -> dict[str, float]:
    """Score a model on the test rows by every measure of its kind of problem."""
    y = problem.y_test
    if problem.task.kind == "regression":
        return {"R²": float(r2_score(y, predictions))}
    if problem.task.kind == "classes":
        return {"accuracy": float(accuracy_score(y, predictions.argmax(axis=1)))}
    return {
        "AUC": float(roc_auc_score(y, predictions)),
        "accuracy": float(accuracy_score(y, predictions > 0.0)),
    }


def shortened(problem: Problem) -> Problem:
    """Keep the first training rows only, to try whether everything works."""
    X, y = problem.task.X[:2000], problem.task.y[:2000]
    return replace(problem, task=replace(problem.task, X=X, y=y))


def development(problem: Problem) -> Problem:
    """Score on the last fifth of the training rows: where settings may be chosen."""
    X, y = problem.task.X, problem.task.y
    n = len(y) * 4 // 5
    task = replace(problem.task, X=X[:n], y=y[:n])
    return replace(problem, task=task, X_test=X[n:], y_test=y[n:])


def adult(splits: Path) -> Problem:
    """Adult as shipped, encoded by its public schema, UCI's split."""
    data = load_adult()
    schema = Schema.from_dict(data.schema)
    X = SchemaEncoder(schema).fit_transform(data.data)
    y = (data.target == schema.target.classes[1]).astype(np.int64)
    task = Task("adult", "binary", X[data.train], y[data.train], row_norm=schema.row_norm)
    return Problem("Adult, UCI's split", task, X[data.test], y[data.test])


def adult_fixed(splits: Path) -> Problem:
    """Adult in the split of a published benchmark, read from a folder."""
    split = load_adult_split(splits)
    task = Task("adult_fixed", "binary", split.X_train, split.y_train, row_norm=split.row_norm)
    return Problem("Adult, fixed split", task, split.X_test, split.y_test)


def california(splits: Path) -> Problem:
    """California housing, every column scaled to [-1, 1] by its public bounds."""
    data = load_california_housing()
    schema = Schema.from_dict(data.schema)
    X = SchemaEncoder(schema).fit_transform(data.data)
    task = Task(
        "california",
        "regression",
        X[data.train],
        data.target[data.train],
        row_norm=schema.row_norm,
        target_low=schema.target.low,
        target_high=schema.target.high,
    )
    return Problem("California housing", task, X[data.test], data.target[data.test])


def fashion(splits: Path) -> Problem:
    """Fashion-MNIST pixels; every image loses its own mean and is scaled to length one."""
    data = load_fashion_mnist()
    X = data.data.astype(np.float32) / np.float32(255.0)
    X -= X.mean(axis=1, keepdims=True)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-6))
    train = data.train
    task = Task("fashion", "classes", X[train], data.target[train], row_norm=1.0, n_classes=10)
    return Problem("Fashion-MNIST, pixels", task, X[data.test], data.target[data.test])


PROBLEMS: dict[str, Callable[[Path], Problem]] = {
    "adult": adult,
    "adult_fixed": adult_fixed,
    "california": california,
    "fashion": fashion,
}
