"""Settings of least squares of classes' codes, on validation rows of MNIST's training part.

``python -m experiments.ridge_classifier --mnist FOLDER`` prints accuracies of one fit each: softmax
and ``RidgeClassifier`` with their defaults, and with steps on rows that are centred, or whitened,
or moments alone. Rows are oriented gradients, or with ``--random`` 2048 random features.
``--known`` prints the accuracy of least squares if second moments were known and the whole budget
were spent on one sum of products of rows and codes: at the best of many penalties, and of as many
filters that also weigh down directions in which that sum drowns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ridge import random_features
from dpglm import LogisticRegression, RidgeClassifier
from dpglm.datasets import load_mnist
from dpglm.preprocessing import Center, Whiten
from dpglm.privacy import ApproximateDP
from dpglm.solvers import NoisyGD, Preprocessed, Solver, SufficientStatistics
from examples.oriented_gradients import OrientedGradients

__all__ = ["main"]

EPSILONS, DELTA, N_TRAIN = (0.1, 0.3, 1.0), 1e-5, 50_000
CENTER, STEPS = Center(intercept=0.25), NoisyGD(n_steps=100, momentum=0.8)
MODELS: Mapping[str, tuple[type[Any], str | Solver]] = {
    "softmax": (LogisticRegression, "auto"),
    "softmax, centred": (LogisticRegression, Preprocessed([CENTER], NoisyGD(shrink=True))),
    "ridge": (RidgeClassifier, "auto"),
    "ridge, centred": (RidgeClassifier, Preprocessed([CENTER], STEPS)),
    "ridge, whitened": (RidgeClassifier, Preprocessed([CENTER, Whiten()], STEPS)),
    "ridge, moments": (RidgeClassifier, SufficientStatistics()),
}


def known_moments(
    X: NDArray[np.float32], y: NDArray[np.int64], n_train: int, epsilons: Sequence[float]
) -> None:
    """Print bounds on the accuracy with any private second moments; nothing here is private."""
    centred = X - X[:n_train].mean(axis=0)
    rows = centred[:n_train]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    squares, directions = np.linalg.eigh(rows.T @ rows / np.float32(n_train))
    codes = (np.eye(10) - 0.1)[y].astype(np.float32)
    sums, held = directions.T @ (rows.T @ codes[:n_train]) / n_train, centred[n_train:] @ directions
    s = np.maximum(squares, 0.0)[:, np.newaxis]
    for epsilon in epsilons:
        noise = float(np.linalg.norm(codes[0])) / (n_train * ApproximateDP(epsilon, DELTA).gdp_mu())
        noisy = sums + noise * np.random.default_rng(0).standard_normal(sums.shape)
        best = {"penalty": 0.0, "filter": 0.0}
        for level in np.geomspace(1e-5, 0.1, 25):
            for name, w in (
                ("penalty", noisy / (s + level)),
                ("filter", noisy * s / (s**2 + level**2)),
            ):
                score = 100.0 * float(np.mean((held @ w).argmax(axis=1) == y[n_train:]))
                best[name] = max(best[name], score)
        print(f"{epsilon:g} known moments, " + ", ".join(f"{k} {v:.2f} %" for k, v in best.items()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, required=True, help="folder of MNIST's files")
    parser.add_argument("--random", action="store_true", help="2048 random features")
    parser.add_argument("--known", action="store_true", help="known second moments instead")
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    options = parser.parse_args(arguments)
    digits = load_mnist(options.mnist)
    maps: Any = random_features(2048) if options.random else OrientedGradients()
    images = digits.data[digits.train].astype(np.float32) / np.float32(255.0)
    X, y = maps.fit_transform(images), digits.target[digits.train]
    rows = np.random.default_rng(123).permutation(len(y))
    train, held = rows[:N_TRAIN], rows[N_TRAIN:]
    if options.known:
        known_moments(X[rows], y[rows], N_TRAIN, options.epsilons)
        return
    for epsilon in options.epsilons:
        for name in options.only:
            kind, solver = MODELS[name]
            model = kind(
                epsilon=epsilon,
                delta=DELTA,
                classes=range(10),
                row_norm=1.0,
                solver=solver,
                random_state=0,
            )
            start = time.perf_counter()
            try:
                model.fit(X[train], y[train])
            except ValueError as error:
                print(f"{epsilon:g} {name}: {error}", flush=True)
                continue
            took, score = time.perf_counter() - start, model.score(X[held], y[held])
            print(f"{epsilon:g} {name}: {100.0 * score:.2f} % in {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
