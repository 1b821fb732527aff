"""The part of bends in what additive models lose where effects are straight: no test row is read.

``python -m experiments.straight`` prints R squared on held-out rows of the generated table
"straight, number", by default: the linear default, the additive default, its curves after and
before the shrinkage of bends, and the least-squares line through each of these curves. The lines
are what a fit would return that knew that all effects are straight.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.estimators.additive._curves import information_of, shrunk_bends, straightened
from experiments.additive import DELTA, FOLDS, Table, generated

WAYS = ("linear", "additive", "its lines", "not shrunk", "its lines")


def scores(table: Table, epsilon: float, seed: int) -> NDArray[np.float64]:
    """Return R squared of each way on one held-out fold."""
    folds = np.random.default_rng(0).permutation(len(table.target)) % FOLDS
    fit, held = folds != seed % FOLDS, folds == seed % FOLDS
    rows, target = table.rows(held), table.target[held]
    budget = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
    linear = table.linear(**budget).fit(table.rows(fit), table.target[fit])
    model = table.additive(**budget).fit(table.rows(fit), table.target[fit])
    solution, schema = model.solution_, model.schema_
    shrunk, *_ = shrunk_bends(solution.w, solution.precision, schema)
    shrunk = straightened(shrunk, solution, schema, information_of(solution, schema))
    X, found = schema.encode(rows), [linear.score(rows, target)]
    for w in (shrunk, solution.w):
        coef, intercept = model.estimator_._model(
            model.estimator_.units_.coefficients(w[:, np.newaxis])
        )
        terms = schema.additive_encoding.terms
        parts = [X[:, term.features] @ np.ravel(coef)[term.features] for term in terms]
        lines = [
            np.polyval(np.polyfit(rows[term.name], part, 1), rows[term.name])
            for term, part in zip(terms, parts, strict=True)
        ]
        for effects in (parts, lines):
            left = target - np.sum(effects, axis=0) - float(np.ravel(intercept)[0])
            found.append(1.0 - float(np.mean(left**2)) / float(np.var(target)))
    return np.array(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", default="straight, number")
    parser.add_argument("--epsilons", type=float, nargs="*", default=(0.1, 0.3, 1.0, 4.0))
    parser.add_argument("--runs", type=int, default=6)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    table = generated(options.table)
    print(f"{options.table}: {', '.join(WAYS)}")
    for epsilon in options.epsilons:
        found = np.mean([scores(table, epsilon, seed) for seed in range(options.runs)], axis=0)
        print(f"epsilon {epsilon:g}: {' '.join(f'{one:.4f}' for one in found)}", flush=True)


if __name__ == "__main__":
    main()
