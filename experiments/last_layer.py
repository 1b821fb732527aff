"""Compare a private last layer on public features with a network trained privately as a whole.

``python -m experiments.last_layer --mnist FOLDER`` writes the table of
``docs/evidence/solvers.md``. Fashion-MNIST is private, MNIST public. Linear models are
``LogisticRegression`` with its defaults; networks have published settings (Papernot et al. 2021),
for more or fewer epochs. Nothing is chosen by test score.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpglm import LogisticRegression
from examples.oriented_gradients import OrientedGradients
from experiments.measured import DOCS, put
from experiments.network_tasks import (
    DELTA,
    MOMENTUM,
    Images,
    accuracy,
    fashion_images,
    four_layers,
    mnist_images,
    papernot,
    train,
)

__all__ = ["main"]

EPSILONS = (1.0, 3.0)
PUBLIC_EPOCHS, SHORT, LONG = 3, 3, 40
CONVOLUTIONS = 7
"""Layers of the network up to the last convolution's flattened output."""


@dataclass(frozen=True)
class Row:
    """A model of the table: trains at an epsilon and returns its test accuracy."""

    name: str
    n_parameters: int
    score: Callable[[float], float]


def pretrained(public: Images, epochs: int) -> Any:
    """Train the network on public images, without privacy."""
    import torch

    network = four_layers(28, "Tanh")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=MOMENTUM)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(epochs):
            for rows in torch.randperm(len(public.X)).split(128):
                optimizer.zero_grad()
                outputs = network(public.X[rows])
                torch.nn.functional.cross_entropy(outputs, public.y[rows]).backward()
                optimizer.step()
    return network


def unit_rows(X: Any) -> Any:
    """Scale every row to length 1 by itself."""
    flat = X.flatten(1)
    return flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-6)


def outputs_of(layers: Any, X: Any) -> Any:
    """Return the features of images, with unit norm."""
    import torch

    with torch.no_grad():
        return unit_rows(torch.cat([layers(part) for part in X.split(1000)]))


def linear(name: str, X: Any, X_test: Any, data: Images) -> Row:
    """Fit a last layer to rows of unit length."""

    def score(epsilon: float) -> float:
        model = LogisticRegression(
            epsilon=epsilon, delta=DELTA, classes=range(10), row_norm=1.0, random_state=0
        ).fit(X, data.y)
        return float(model.score(X_test, data.y_test))

    return Row(name, 10 * (X.shape[1] + 1), score)


def whole(name: str, start: Any, epochs: int, data: Images) -> Row:
    """Train all layers privately, from some initial parameters."""

    def score(epsilon: float) -> float:
        network = copy.deepcopy(start)
        solver = papernot(epochs, len(data.X), batch=min(2048, len(data.X) // 4))
        train(network, data, solver, epsilon, seed=0, momentum=MOMENTUM)
        return accuracy(network, data)

    count = sum(value.numel() for value in start.parameters())
    return Row(f"{name}, {epochs} epochs", count, score)


def oriented(X: Any) -> Any:
    """Return oriented gradients of images, of unit length."""
    import torch

    features = OrientedGradients().fit_transform(X.flatten(1).numpy())
    return unit_rows(torch.from_numpy(features))


def rows(data: Images, public: Images | None, epochs: Sequence[int]) -> Iterator[Row]:
    """List the compared models."""
    random = four_layers(28, "Tanh")
    yield linear("last layer on pixels", unit_rows(data.X), unit_rows(data.X_test), data)
    yield linear("last layer on oriented gradients", oriented(data.X), oriented(data.X_test), data)
    named = [("of random weights", random)]
    if public is not None:
        named.append(("trained on MNIST", pretrained(public, PUBLIC_EPOCHS)))
    for name, network in named:
        layers = network[:CONVOLUTIONS]
        X, X_test = outputs_of(layers, data.X), outputs_of(layers, data.X_test)
        yield linear(f"last layer on two convolutions {name}", X, X_test, data)
    for name, network in named[1:]:
        yield whole(f"whole network {name}", network, SHORT, data)
    for count in epochs:
        yield whole("whole network of random weights", random, count, data)


def table(compared: Iterator[Row], epsilons: Sequence[float]) -> str:
    """Measure all rows; seconds are the processor's for a fit, without making the features."""
    heads = [f"epsilon {epsilon:g}" for epsilon in epsilons]
    lines = [
        f"| private part | coefficients | {' | '.join(heads)} | seconds |",
        "|---|---:|" + "---:|" * (len(heads) + 1),
    ]
    for row in compared:
        start = time.process_time()
        cells = [f"{100.0 * row.score(epsilon):.1f}" for epsilon in epsilons]
        took = (time.process_time() - start) / len(epsilons)
        lines.append(f"| {row.name} | {row.n_parameters} | {' | '.join(cells)} | {took:.0f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, help="folder of MNIST's files, the public images")
    parser.add_argument("--fashion-mnist", type=Path, help="folder of Fashion-MNIST's files")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is")
    parser.add_argument("--quick", action="store_true", help="2,000 rows each, epsilon 1")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    private = fashion_images(options.fashion_mnist, 28)
    public = None if options.mnist is None else mnist_images(options.mnist, 28)
    epochs, epsilons = (SHORT, LONG), EPSILONS
    if options.quick:
        private, epochs, epsilons = private.first(2000), (30,), EPSILONS[:1]
        public = None if public is None else public.first(2000)
    lines = table(rows(private, public, epochs), epsilons)
    put(options.docs / "evidence" / "solvers.md", "last layer", lines)


if __name__ == "__main__":
    main()
