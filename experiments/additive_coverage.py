"""Coverage of the bands of additive models, with outcomes drawn from a fitted model.

``python -m experiments.additive_coverage`` prints, for each epsilon and term, the share of the
values that pointwise 95 % bands cover, weighted by training rows, the root mean squared error of
the curve, the part of this error that all runs have in common (its bias), and the band's standard
deviation. The truth is an additive model with the features of the default fit, fitted to the
training rows without privacy. No test row is read. With ``--splits`` the rows are ACS employment's,
on which the constants of the bands were chosen. With ``--uneven`` they are generated: twelve levels
of very different frequencies, and a long-tailed number with a straight effect.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpglm import AdditiveClassifier
from dpglm.shapes.shape import terms_of
from experiments.additive import acs, adult
from experiments.adult_coverage import _Z, DELTA, fitted

EPSILONS = (0.1, 0.5, 1.0, 4.0)
LEVELS = [f"l{i}" for i in range(12)]
UNEVEN = {
    "columns": {
        "x": {"type": "numeric", "low": 0, "high": 30},
        "g": {"type": "categorical", "categories": LEVELS},
    },
    "target": {"name": "y", "type": "binary", "classes": [0, 1]},
    "provenance": "generated",
}


def uneven(epsilon: float, runs: int) -> dict[str, NDArray[np.float64]]:
    """Return coverage, root mean square error and deviation by column, weighted by rows."""
    shares, effects = np.arange(1.0, 13.0) ** -1.5, np.random.default_rng(5).normal(size=12)
    found: dict[str, list[list[float]]] = {"x": [], "g": []}
    for run in range(runs):
        rng = np.random.default_rng(run)
        x = np.exp(rng.normal(size=20_000)).clip(0.0, 30.0)
        level = rng.choice(12, 20_000, p=shares / shares.sum())
        y = 0.3 * x + effects[level] - 1.0 > rng.logistic(size=20_000)
        rows = {"x": x, "g": np.array(LEVELS)[level]}
        model = AdditiveClassifier(UNEVEN, epsilon=epsilon, delta=DELTA, random_state=run)
        shapes = model.fit(rows, y.astype(int)).shapes(simultaneous=False)
        for name, effect in (("x", 0.3 * np.array(shapes["x"].points[0])), ("g", effects)):
            shape = shapes[name]
            weights = np.asarray(shape.axes[0].weights(rows[name]).mean(axis=0)).ravel()
            error = shape.values[0] - effect + shape.weights @ effect
            reach = 0.5 * np.ptp(shape.band[0], axis=1)
            squares = weights @ error**2, weights @ (reach / _Z) ** 2
            found[name].append([weights @ (np.abs(error) <= reach), *squares])
    means = {name: np.mean(one, axis=0) for name, one in found.items()}
    return {name: np.array([one[0], *np.sqrt(one[1:])]) for name, one in means.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--splits", type=Path, help="folder with ACS employment")
    parser.add_argument("--uneven", action="store_true", help="generated rows")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.uneven:
        for epsilon in options.epsilons:
            for name, numbers in uneven(epsilon, options.runs).items():
                line = "epsilon {:g}, {}: {:.2f}, error {:.3f}, deviation {:.3f}"
                print(line.format(epsilon, name, *numbers), flush=True)
        return
    rows = adult() if options.splits is None else acs(options.splits)
    table, target = rows.columns, rows.target
    no, yes = sorted(set(target.tolist()))
    for epsilon in options.epsilons:
        model = rows.additive(epsilon=epsilon, delta=DELTA, random_state=0)
        schema = model.fit(table, target).schema_
        X = schema.encode(table)
        full = np.column_stack([X, np.ones(len(X))])
        truth, _ = fitted(full, (target == yes).astype(float), np.append(np.ones(X.shape[1]), 1e2))
        chances = 1.0 / (1.0 + np.exp(-full @ truth))
        found: list[list[list[float]]] = []
        errors: list[list[NDArray[np.float64]]] = []
        for run in range(options.runs):
            drawn = np.random.default_rng(1000 + run).random(len(X)) < chances
            model.set_params(random_state=run).fit(table, np.where(drawn, yes, no))
            shapes, own = model.shapes(simultaneous=False), []
            errors.append([])
            for term, axis in zip(terms_of(schema), schema.additive_encoding.terms, strict=True):
                effect = term.matrix @ truth[term.features]
                effect = effect - shapes[term.name].weights.ravel() @ effect
                share = np.asarray(axis.axes[0].weights(table[term.name]).mean(axis=0)).ravel()
                low, high = shapes[term.name].band[0].T
                error = shapes[term.name].values[0] - effect
                spread = (high - low) / (2.0 * _Z)
                is_covered = (low <= effect) & (effect <= high)
                own.append([share @ is_covered, share @ error**2, share @ spread**2])
                errors[-1].append(np.sqrt(share) * error)
            found.append(own)
        covered, error, spread = np.mean(found, axis=0).T
        # The mean product of the errors of two runs.
        common = [np.sum(one, axis=0) for one in zip(*errors, strict=True)]
        bias = np.array([one @ one for one in common]) / options.runs - error
        bias = np.sqrt(np.maximum(bias / max(options.runs - 1, 1), 0.0))
        print(f"epsilon {epsilon:g}: mean coverage {covered.mean():.3f}, least {covered.min():.2f}")
        columns = covered, np.sqrt(error), bias, np.sqrt(spread)
        line = "  {:16s} {:.2f}, error {:.3f}, in common {:.3f}, deviation {:.3f}"
        for term, *numbers in zip(shapes, *columns, strict=True):
            print(line.format(term, *numbers), flush=True)


if __name__ == "__main__":
    main()
