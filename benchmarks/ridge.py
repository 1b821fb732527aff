"""Least squares of classes beside softmax, on features of images: three seeds, delta 1e-5."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bar import Bar
from dpglm import LogisticRegression, RidgeClassifier
from dpglm.datasets import Dataset, load_fashion_mnist, load_mnist
from dpglm.preprocessing import RandomFourierFeatures
from examples.oriented_gradients import OrientedGradients

__all__ = ["RIDGE"]

EPSILONS, SEEDS, DELTA = (0.1, 0.3), range(3), 1e-5
DIRECTIONS = 1024
"""Each gives a cosine and a sine."""


def ridge(splits: Path) -> Iterator[Bar]:
    """Test accuracy of ``RidgeClassifier`` less that of softmax, both with default settings."""
    fashion = load_fashion_mnist()
    yield from _gains("Fashion-MNIST oriented gradients", OrientedGradients(), fashion)
    digits = load_mnist(splits / "mnist")
    random = RandomFourierFeatures(DIRECTIONS)
    yield from _gains(f"MNIST, {2 * DIRECTIONS} random features", random, digits)


def _gains(name: str, maps: Any, data: Dataset[NDArray[np.uint8]]) -> Iterator[Bar]:
    X = maps.fit_transform(data.data.astype(np.float32) / np.float32(255.0))
    for epsilon in EPSILONS:
        gains = []
        for seed in SEEDS:
            scores = []
            for kind in (RidgeClassifier, LogisticRegression):
                model = kind(
                    epsilon=epsilon,
                    delta=DELTA,
                    classes=range(10),
                    row_norm=maps.row_norm_,
                    random_state=seed,
                ).fit(X[data.train], data.target[data.train])
                scores.append(100.0 * model.score(X[data.test], data.target[data.test]))
            gains.append(scores[0] - scores[1])
        title = f"{name}, epsilon {epsilon}, accuracy of ridge ({scores[0]:.1f}) less softmax's"
        yield Bar(title, float(np.mean(gains)), float(np.std(gains)), 0.0, True, " points")


RIDGE: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"ridge": ridge}
