"""Intervals of a logistic model of all columns of Adult, with outcomes drawn from a fitted model.

``python -m experiments.adult_coverage`` prints the share of unknown coefficients, the coverage of
95 % intervals, and their length over that without privacy, for each epsilon. The true coefficients
are those of a fit without privacy under the same prior.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpglm
from dpglm.datasets import load_adult
from dpglm.tables.schema import Schema

DELTA, _Z = 1e-5, 1.959963984540054


def formula_and_schema() -> tuple[str, dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the formula of all 14 columns, with their schema and table, under valid names."""
    adult = load_adult()
    names = {name: name.replace("-", "_") for name in adult.data}
    schema = json.loads(json.dumps(adult.schema))
    schema["columns"] = {names[name]: column for name, column in schema["columns"].items()}
    terms = [
        f"C({names[name]})" if "categories" in column else names[name]
        for name, column in adult.schema["columns"].items()
    ]
    table = {names[name]: np.asarray(column) for name, column in adult.data.items()}
    return " + ".join(terms), schema, table | {"income": np.asarray(adult.target)}


def fitted(
    X: NDArray[np.float64], y: NDArray[np.float64], scales: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return coefficients without privacy, intercept last, and their standard errors."""
    w = np.zeros(X.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-X @ w))
        hessian = (X * (p * (1.0 - p))[:, np.newaxis]).T @ X + np.diag(scales**-2.0)
        w += np.linalg.solve(hessian, X.T @ (y - p) - w / scales**2)
    return w, np.sqrt(np.diag(np.linalg.inv(hessian)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="*", default=(1.0, 4.0))
    options = parser.parse_args(arguments)
    formula, columns, table = formula_and_schema()
    schema = Schema.from_dict(columns)
    encoder = dpglm.preprocessing.SchemaEncoder(schema, formula=formula).fit(table)
    X = np.asarray(encoder.transform(table))
    schema = encoder.schema_
    rows = np.column_stack([X, np.ones(len(X))])
    y = (table["income"] == sorted(set(table["income"].tolist()))[1]).astype(float)
    scales = np.append(np.minimum(2.5 / X.std(axis=0), schema.encoding.prior_scales), 10.0)
    truth, _ = fitted(rows, y, scales)
    chances = 1.0 / (1.0 + np.exp(-rows @ truth))
    for epsilon in options.epsilons:
        covered, lengths, unknown = [], [], []
        for run in range(options.runs):
            drawn = np.random.default_rng(run).random(len(X)) < chances
            _, errors = fitted(rows, drawn.astype(float), scales)
            model = dpglm.LogisticRegression(
                C=np.inf,
                classes=[False, True],
                delta=DELTA,
                epsilon=epsilon,
                inference=True,
                prior_scales=schema.encoding.prior_scales,
                random_state=run,
                row_norm=schema.row_norm,
                solver=dpglm.solvers.Auto(indicators=schema.encoding.indicators),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                inference = model.fit(X, drawn).inference_
            low, high = np.roll(inference.conf_int(), -1, axis=0).T
            covered.append((low <= truth) & (truth <= high))
            lengths.append((high - low) / (2.0 * _Z * errors))
            unknown.append(np.isinf(high - low))
        share = np.mean(covered, axis=0)
        names = np.array([*schema.feature_names, "intercept"])[np.argsort(share)[:4]]
        print(
            f"epsilon {epsilon:g}: {np.mean(unknown):.1%} unknown, coverage {share.mean():.3f}, "
            f"{np.mean(share < 0.88):.1%} of the coefficients below .88 (worst: "
            f"{', '.join(names)}), median length {np.median(lengths):.2f}"
        )


if __name__ == "__main__":
    main()
