"""Compare least squares of classes with softmax, on features of images: three seeds, delta 1e-5."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from benchmarks.bar import Bar
from dpglm import LogisticRegression, RidgeClassifier
from dpglm.datasets import Dataset, load_fashion_mnist, load_mnist
from examples.oriented_gradients import OrientedGradients

__all__ = ["RIDGE", "random_features"]

EPSILONS, SEEDS, DELTA = (0.1, 0.3), range(3), 1e-5
N_RANDOM = 2048


def random_features(count: int) -> Any:
    """Return random features of 784 pixels in [0, 1], with rows of norm 1."""
    return make_pipeline(RBFSampler(gamma=1 / 98, n_components=count, random_state=0), Normalizer())


def ridge(splits: Path) -> Iterator[Bar]:
    """Test accuracy of ``RidgeClassifier`` less that of softmax, both with default settings."""
    fashion = load_fashion_mnist()
    yield from _gains("Fashion-MNIST oriented gradients", OrientedGradients(), fashion)
    digits = load_mnist(splits / "mnist")
    yield from _gains(f"MNIST, {N_RANDOM} random features", random_features(N_RANDOM), digits)


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
                    row_norm=1.0,
                    random_state=seed,
                ).fit(X[data.train], data.target[data.train])
                scores.append(100.0 * model.score(X[data.test], data.target[data.test]))
            gains.append(scores[0] - scores[1])
        title = f"{name}, epsilon {epsilon}, accuracy of ridge ({scores[0]:.1f}) less softmax's"
        yield Bar(title, float(np.mean(gains)), float(np.std(gains)), 0.0, True, " points")


RIDGE: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"ridge": ridge}
