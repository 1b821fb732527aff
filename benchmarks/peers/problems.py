"""The problems on which libraries are compared: rows, a fixed split, and public facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from benchmarks.peers.protocol import Task
from benchmarks.splits import load_acs_codes, load_acs_employment, load_adult_split
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
    table: Task | None = None
    """The same rows as a table, for the libraries that encode tables themselves."""
    table_test: NDArray[Any] | None = None


def scores(problem: Problem, predictions: NDArray[np.float64]) -> dict[str, float]:
    """Score a model on the test rows by every measure of its kind of problem."""
    y = problem.y_test
    if problem.task.kind == "regression":
        return {"R²": float(r2_score(y, predictions))}
    if problem.task.kind == "classes":
        return {"accuracy": float(accuracy_score(y, predictions.argmax(axis=1)))}
    # Decision values are log-odds; a value of 40 is as good as certain, and its loss is finite.
    chances = expit(np.clip(predictions, -40.0, 40.0))
    return {
        "AUC": float(roc_auc_score(y, predictions)),
        "log loss": float(log_loss(y, chances)),
        "accuracy": float(accuracy_score(y, predictions > 0.0)),
    }


def shortened(problem: Problem) -> Problem:
    """Keep the first training rows only, to try whether everything works."""
    return replace(problem, **_rows_of(problem, slice(2000)))


def development(problem: Problem) -> Problem:
    """Score on the last fifth of the training rows: where settings may be chosen."""
    n = len(problem.task.y) * 4 // 5
    test: dict[str, Any] = {"X_test": problem.task.X[n:], "y_test": problem.task.y[n:]}
    if problem.table is not None:
        test["table_test"] = problem.table.X[n:]
    return replace(problem, **_rows_of(problem, slice(n)), **test)


def _rows_of(problem: Problem, rows: slice) -> dict[str, Task]:
    """Both forms of a problem's task with some of its rows."""
    return {
        name: replace(task, X=task.X[rows], y=task.y[rows])
        for name, task in (("task", problem.task), ("table", problem.table))
        if task is not None
    }


def _with_table(
    problem: Problem,
    columns: dict[str, dict[str, Any]],
    train: Sequence[NDArray[Any]],
    test: Sequence[NDArray[Any]],
) -> Problem:
    """Add the rows as a table: one array of numbers or positions for each column."""
    table = replace(problem.task, X=np.column_stack(train).astype(np.float64), columns=columns)
    return replace(problem, table=table, table_test=np.column_stack(test).astype(np.float64))


def adult(splits: Path) -> Problem:
    """Adult as shipped, encoded by its public schema, UCI's split."""
    data = load_adult()
    schema = Schema.from_dict(data.schema)
    X = SchemaEncoder(schema).fit_transform(data.data)
    y = (data.target == schema.target.classes[1]).astype(np.int64)
    task = Task("adult", "binary", X[data.train], y[data.train], row_norm=schema.row_norm)
    problem = Problem("Adult, UCI's split", task, X[data.test], y[data.test])
    columns = schema.to_dict()["columns"]
    cells = [column.read(data.data[column.name]) for column in schema.columns]
    train, test = ([one[part] for one in cells] for part in (data.train, data.test))
    return _with_table(problem, columns, train, test)


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
    problem = Problem("California housing", task, X[data.test], data.target[data.test])
    columns = schema.to_dict()["columns"]
    cells = [column.read(data.data[:, i]) for i, column in enumerate(schema.columns)]
    train, test = ([one[part] for one in cells] for part in (data.train, data.test))
    return _with_table(problem, columns, train, test)


def acs(splits: Path) -> Problem:
    """ACS employment in the split of a published benchmark, read from a folder."""
    split, codes = load_acs_employment(splits), load_acs_codes(splits)
    task = Task("acs", "binary", split.X_train, split.y_train, row_norm=split.row_norm)
    problem = Problem("ACS employment", task, split.X_test, split.y_test)
    train, test = list(codes.train.values()), list(codes.test.values())
    return _with_table(problem, codes.columns, train, test)


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
    "acs": acs,
    "california": california,
    "fashion": fashion,
}
