"""Images as tensors, the networks of the experiments, and how they are trained and scored."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.datasets import load_fashion_mnist, load_mnist
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.solvers import D2P2, TailAverage
from dpglm.torch import D2P2Optimizer

__all__ = [
    "DELTA",
    "MOMENTUM",
    "Images",
    "accuracy",
    "fashion_images",
    "four_layers",
    "mnist_images",
    "papernot",
    "train",
    "train_without_privacy",
]

DELTA = 1e-5
MOMENTUM = 0.9


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images of one channel, values in [0, 1], with their classes."""

    name: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any

    def held_out(self, count: int) -> Images:
        """Return the training part alone, with ``count`` fixed rows as its test part."""
        import torch

        order = torch.from_numpy(np.random.default_rng(1).permutation(len(self.X)))
        train, test = order[count:], order[:count]
        return Images(self.name, self.X[train], self.y[train], self.X[test], self.y[test])

    def first(self, count: int) -> Images:
        """Return fewer training rows."""
        return Images(self.name, self.X[:count], self.y[:count], self.X_test, self.y_test)


@functools.cache
def fashion_images(folder: Path | None, side: int) -> Images:
    """Load Fashion-MNIST, by default where Debian puts it; 28 or 14 pixels a side."""
    return _images("Fashion-MNIST", load_fashion_mnist(folder), side)


@functools.cache
def mnist_images(folder: Path, side: int) -> Images:
    """Load MNIST from a folder; 28 or 14 pixels a side."""
    return _images("MNIST", load_mnist(folder), side)


def _images(name: str, data: Any, side: int) -> Images:
    import torch

    pixels = data.data.reshape(-1, side, 28 // side, side, 28 // side).mean(axis=(2, 4))
    X = torch.from_numpy((pixels / 255.0).astype(np.float32)).unsqueeze(1)
    y = torch.from_numpy(data.target)
    return Images(name, X[data.train], y[data.train], X[data.test], y[data.test])


def four_layers(side: int, activation: str = "ReLU", seed: int = 0) -> Any:
    """Make a network of two convolutions and two dense layers.

    At 28 pixels it is that of Opacus's example on MNIST, with 26,010 parameters, and with
    ``Tanh`` that of Papernot et al. 2021; at 14 a smaller one of 3,714.
    """
    import torch

    act = getattr(torch.nn, activation)
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if side == 28:
            first = (nn.Conv2d(1, 16, 8, stride=2, padding=2), act(), nn.MaxPool2d(2, 1))
            second = (nn.Conv2d(16, 32, 4, stride=2), act(), nn.MaxPool2d(2, 1))
            width = 512
        else:
            first = (nn.Conv2d(1, 8, 4, stride=2, padding=1), act(), nn.MaxPool2d(2, 1))
            second = (nn.Conv2d(8, 16, 3, stride=2), act())
            width = 64
        dense = (nn.Flatten(), nn.Linear(width, 32), act(), nn.Linear(32, 10))
        return nn.Sequential(*first, *second, *dense)


def accuracy(network: Any, data: Images) -> float:
    """Return the share of test images that the network classifies correctly."""
    import torch

    with torch.no_grad():
        found = torch.cat([network(part).argmax(dim=1) for part in data.X_test.split(1000)])
    return float((found == data.y_test).float().mean())


def train(
    network: Any,
    data: Images,
    solver: D2P2,
    epsilon: float,
    seed: int,
    watch: Callable[[int], None] = lambda step: None,
    **settings: Any,
) -> D2P2Optimizer:
    """Train a network in place; ``watch`` is called with the number of steps after each."""
    import torch

    optimizer = D2P2Optimizer(
        network,
        torch.nn.functional.cross_entropy,
        data.X,
        data.y,
        ApproximateDP(epsilon, DELTA),
        solver,
        noise=SeededNoise(seed),
        **settings,
    )
    while not optimizer.done:
        optimizer.step()
        watch(len(optimizer.history))
    return optimizer


def train_without_privacy(
    network: Any,
    data: Images,
    step_size: float,
    n_steps: int,
    sampling_rate: float,
    seed: int,
    watch: Callable[[int], None] = lambda step: None,
) -> None:
    """Train a network in place by SGD on Poisson samples, without clipping and without noise."""
    import torch

    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=step_size)
    for step in range(1, n_steps + 1):
        drawn = torch.rand(len(data.X), generator=random) < sampling_rate
        optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(
            network(data.X[drawn]), data.y[drawn], reduction="sum"
        )
        (losses / (sampling_rate * len(data.X))).backward()
        optimizer.step()
        watch(step)


def papernot(epochs: int, n_rows: int, batch: int = 2048) -> D2P2:
    """Make DP-SGD with the settings of Papernot et al. 2021 and Tramèr and Boneh 2021.

    Clip 0.1, step 4 (with ``MOMENTUM``). The result is the mean of the last tenth of the
    iterates: exponential averages were up to 0.2 points better than the last iterate on 10,000
    held-out training rows.
    """
    return D2P2.dp_sgd(
        normalize=False,
        clip=0.1,
        step_size=4.0,
        n_steps=round(epochs * n_rows / batch),
        sampling_rate=batch / n_rows,
        output=TailAverage(0.1),
    )
