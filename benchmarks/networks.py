"""How accurate a network must be: DP-SGD on Fashion-MNIST, one seed, delta 1e-5, zero-out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.bar import Bar

__all__ = ["NETWORKS"]

EPOCHS = 40


def fashion_network(splits: Path) -> Iterator[Bar]:
    """Test accuracy of a convolutional network at epsilon 3: some ten minutes on one free core."""
    from experiments.network_tasks import MOMENTUM, accuracy, four_layers, images, papernot, train

    data = images(None, 28)
    network = four_layers(28, "Tanh")
    start = time.perf_counter()
    solver = papernot(EPOCHS, len(data.X))
    train(network, data, solver, 3.0, seed=0, momentum=MOMENTUM)
    print(f"{solver.n_steps} steps in {time.perf_counter() - start:.0f} s")
    name = "Fashion-MNIST convolutional network, epsilon 3, test accuracy"
    yield Bar(name, 100.0 * accuracy(network, data), 0.0, 86.0, True, "%")


NETWORKS: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"fashion_network": fashion_network}
