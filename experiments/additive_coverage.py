"""Coverage of the bands of additive models, with outcomes drawn from a fitted model.

``python -m experiments.additive_coverage`` prints, for each epsilon and term, the share of the
values that pointwise 95 % bands cover, weighted by training rows, the root mean squared error of
the curve, the part of this error that all runs have in common (its bias), and the band's standard
deviation. The truth is an additive model with the features of the default fit, fitted to the
training rows without privacy. No test row is read. With ``--splits`` the rows are ACS employment's,
on which the constants of the bands were chosen.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpglm.shapes.shape import terms_of
from experiments.additive import acs, adult
from experiments.adult_coverage import _Z, DELTA, fitted

EPSILONS = (0.1, 0.5, 1.0, 4.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--splits", type=Path, help="folder with ACS employment")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
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
