"""List functions that a call runs, and count its plans: ``python -m benchmarks.visited``."""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import numpy as np

import dpglm
from dpglm import LogisticRegression, Study
from dpglm.datasets import load_adult
from dpglm.privacy.noise import SeededNoise
from dpglm.solvers import Plan
from dpglm.tables.schema import Schema

__all__ = ["CALLS", "counts", "main", "n_plans", "visited"]

PACKAGE = Path(dpglm.__file__).parent
_ROWS = 5000
Visited = dict[str, set[str]]


def visited(call: Callable[[], object]) -> Visited:
    """Return the functions that a call runs, by file; comprehensions and lambdas do not count."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for code in codes:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and not code.co_name.startswith("<"):
            name = f"{code.co_qualname}:{code.co_firstlineno}"
            found[str(path.relative_to(PACKAGE))].add(name)
    return dict(found)


def fit_of_arrays() -> object:
    """Fit a logistic regression of an array."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(_ROWS, 5))
    y = X[:, 0] + rng.logistic(size=_ROWS) > 0.0
    model = LogisticRegression(
        classes=[False, True], feature_bounds=(-1.0, 1.0), random_state=SeededNoise(0)
    )
    return model.fit(X, y)


@functools.cache
def _rows_of_adult() -> tuple[Schema, dict[str, Any]]:
    """Return the schema and the first rows of Adult."""
    adult = load_adult()
    table = {name: values[:_ROWS] for name, values in adult.data.items()}
    return Schema.from_dict(adult.schema), table | {"income": adult.target[:_ROWS]}


def study_of_adult() -> object:
    """Run a study of rows in memory: a description, a model and its evaluation."""
    schema, table = _rows_of_adult()
    study = Study(schema, epsilon=3.0).explore().fit().evaluate()
    return study.run(table, random_state=SeededNoise(0))


CALLS: dict[str, Callable[[], object]] = {"fit": fit_of_arrays, "study": study_of_adult}


def counts(name: str) -> tuple[int, int]:
    """Return how many files and functions of the package a call runs the second time."""
    found = _second(CALLS[name])
    return len(found), sum(map(len, found.values()))


def n_plans(call: Callable[[], object]) -> int:
    """Return how many plans a call makes."""
    made = Plan.__post_init__
    with warnings.catch_warnings(), mock.patch.object(Plan, "__post_init__", autospec=True) as seen:
        warnings.simplefilter("ignore")
        seen.side_effect = made
        call()
    return seen.call_count


def main() -> None:
    """Print how many files, functions and plans each call needs; list them with ``--list``."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--list", action="store_true", help="also list the functions by file")
    chosen = reader.parse_args()
    for name, call in CALLS.items():
        found = _second(call)
        n_functions = sum(map(len, found.values()))
        print(f"{name}: {len(found)} files, {n_functions} functions, {n_plans(call)} plans")
        for path in sorted(found, key=lambda path: -len(found[path])) if chosen.list else ():
            print(f"  {len(found[path]):4d}  {path}: {', '.join(sorted(found[path]))}")


def _second(call: Callable[[], object]) -> Visited:
    """Run a call twice: the first run fills the caches of the process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
        return visited(call)


if __name__ == "__main__":
    main()
