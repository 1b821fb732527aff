"""How accurate models with default settings must be: ten seeds each, delta 1e-5, zero-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.bar import Bar
from benchmarks.splits import Split, load_acs_employment, load_adult_split, load_cod_rna
from dpglm import LinearRegression, LogisticRegression
from dpglm.datasets import Dataset, load_california_housing, load_fashion_mnist, load_mnist
from examples.oriented_gradients import OrientedGradients

__all__ = ["ACCURACY", "scaled_pixels"]

SEEDS = range(10)
DELTA = 1e-5

Bars = Sequence[tuple[float, float]]
"""Epsilons and the least that is asked for at each; minus infinity where nothing is."""


def adult(splits: Path) -> Iterator[Bar]:
    """Mean test AUC of default logistic regression on the fixed Adult split."""
    bars = ((0.05, 0.872), (0.1, 0.884), (0.5, 0.899), (1.0, 0.901))
    yield from _auc("Adult fixed split", load_adult_split(splits), "auto", bars)


def perturbed(splits: Path) -> Iterator[Bar]:
    """Mean test AUC of objective perturbation on the fixed Adult split."""
    bars = ((0.05, 0.870), (0.1, 0.882))
    yield from _auc("Adult fixed split", load_adult_split(splits), "objective_perturbation", bars)


def acs(splits: Path) -> Iterator[Bar]:
    """Mean test AUC of default logistic regression on the fixed ACS employment split."""
    bars = ((0.1, -np.inf), (1.0, 0.85))
    yield from _auc("ACS employment", load_acs_employment(splits), "auto", bars)


def cod_rna(splits: Path) -> Iterator[Bar]:
    """Mean test AUC on Cod-RNA, which no default has seen."""
    bars = ((0.1, -np.inf), (0.5, -np.inf), (1.0, -np.inf))
    yield from _auc("Cod-RNA", load_cod_rna(splits), "auto", bars)


def _auc(data: str, split: Split, solver: str, bars: Bars) -> Iterator[Bar]:
    for epsilon, bar in bars:
        scores = []
        for seed in SEEDS:
            model = LogisticRegression(
                epsilon=epsilon,
                delta=DELTA,
                classes=[0, 1],
                row_norm=split.row_norm,
                solver=solver,
                random_state=seed,
            ).fit(split.X_train, split.y_train)
            scores.append(roc_auc_score(split.y_test, model.decision_function(split.X_test)))
        yield _bar(f"{data}, {solver}, epsilon {epsilon}, test AUC", scores, bar, "")


def fashion(splits: Path) -> Iterator[Bar]:
    """Mean test accuracy of default softmax regression on Fashion-MNIST pixels."""
    bars = ((0.5, 83.0), (1.0, 84.0), (2.0, 84.5))
    yield from _pixels("Fashion-MNIST", load_fashion_mnist(), bars)


def fashion_unscaled(splits: Path) -> Iterator[Bar]:
    """Mean test accuracy on pixels divided by 255 and no more, far shorter than declared."""
    data = load_fashion_mnist()
    X = data.data.astype(np.float32) / np.float32(255.0)
    bars = [(epsilon, -np.inf) for epsilon in (0.5, 1.0, 2.0)]
    yield from _softmax("Fashion-MNIST pixels over 255", X, data, float(np.sqrt(X.shape[1])), bars)


def mnist(splits: Path) -> Iterator[Bar]:
    """Mean test accuracy of default softmax regression on MNIST pixels."""
    yield from _pixels("MNIST", load_mnist(splits / "mnist"), ((1.0, 91.5), (2.0, 92.0)))


def fashion_features(splits: Path) -> Iterator[Bar]:
    """Mean test accuracy on oriented gradients of Fashion-MNIST images."""
    yield from _features("Fashion-MNIST", load_fashion_mnist(), ((1.0, 88.3),))


def mnist_features(splits: Path) -> Iterator[Bar]:
    """Mean test accuracy on oriented gradients of MNIST images."""
    yield from _features("MNIST", load_mnist(splits / "mnist"), ((1.0, -np.inf),))


def _pixels(name: str, data: Dataset[NDArray[np.uint8]], bars: Bars) -> Iterator[Bar]:
    X, row_norm = scaled_pixels(data)
    yield from _softmax(f"{name} pixels", X, data, row_norm, bars)


def scaled_pixels(data: Dataset[NDArray[np.uint8]]) -> tuple[NDArray[np.float32], float]:
    """Images, each scaled to one norm by itself, and that norm."""
    X = data.data.astype(np.float32)
    row_norm = float(np.sqrt(X.shape[1]))
    X *= row_norm / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1.0))
    return X, row_norm


def _features(name: str, data: Dataset[NDArray[np.uint8]], bars: Bars) -> Iterator[Bar]:
    features = OrientedGradients()
    X = features.fit_transform(data.data.astype(np.float32) / np.float32(255.0))
    yield from _softmax(f"{name} oriented gradients", X, data, features.row_norm_, bars)


def _softmax(
    name: str, X: NDArray[np.float32], data: Dataset[NDArray[np.uint8]], row_norm: float, bars: Bars
) -> Iterator[Bar]:
    for epsilon, bar in bars:
        scores = []
        for seed in SEEDS:
            model = LogisticRegression(
                epsilon=epsilon,
                delta=DELTA,
                classes=range(10),
                row_norm=row_norm,
                random_state=seed,
            ).fit(X[data.train], data.target[data.train])
            scores.append(100.0 * model.score(X[data.test], data.target[data.test]))
        yield _bar(f"{name}, epsilon {epsilon}, test accuracy", scores, bar, "%")


def california(splits: Path) -> Iterator[Bar]:
    """Mean test R2 of least squares from sufficient statistics, bounds from the public schema."""
    data = load_california_housing()
    columns = data.schema["columns"].values()
    target = data.schema["target"]
    orders = [np.random.default_rng(seed).permutation(data.n_rows) for seed in SEEDS]
    n_test = len(data.test)
    for split, parts in (
        ("fixed split", [(data.train, data.test) for _ in SEEDS]),
        ("random splits", [(rows[n_test:], rows[:n_test]) for rows in orders]),
    ):
        scores = []
        for seed, (train, test) in zip(SEEDS, parts, strict=True):
            model = LinearRegression(
                epsilon=1.0,
                delta=DELTA,
                solver="sufficient_statistics",
                feature_bounds=tuple([one[end] for one in columns] for end in ("low", "high")),
                target_bounds=(target["low"], target["high"]),
                random_state=seed,
            ).fit(data.data[train], data.target[train])
            scores.append(model.score(data.data[test], data.target[test]))
        name = f"California housing, {split}, epsilon 1, test R2"
        yield _bar(name, scores, 0.55, "")


def _bar(name: str, scores: list[float], bar: float, unit: str) -> Bar:
    return Bar(name, float(np.mean(scores)), float(np.std(scores)), bar, True, unit)


ACCURACY: Mapping[str, Callable[[Path], Iterator[Bar]]] = {
    "adult": adult,
    "perturbed": perturbed,
    "acs": acs,
    "cod_rna": cod_rna,
    "fashion": fashion,
    "fashion_unscaled": fashion_unscaled,
    "fashion_features": fashion_features,
    "mnist": mnist,
    "mnist_features": mnist_features,
    "california": california,
}
