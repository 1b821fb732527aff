"""Last layers of several widths: accuracy, time and memory of default classifiers.

``python -m experiments.layer_widths --mnist FOLDER`` fits ten classes of MNIST and Fashion-MNIST
and writes the table of ``docs/evidence/solvers.md``; ``--only mnist-768 ...`` replaces the
lines of some features. 60,000 training rows in float32, the test rows' accuracy, a fit each.
Nothing is chosen by it.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ridge import random_features
from dpglm import LogisticRegression, RidgeClassifier
from dpglm.datasets import Dataset, load_fashion_mnist, load_mnist
from examples.oriented_gradients import OrientedGradients
from experiments.measured import DOCS, measured, put

__all__ = ["main"]

EPSILONS, DELTA = (0.1, 0.3, 1.0), 1e-5
PAGE, NAME = Path("evidence") / "solvers.md", "last layers"
MODELS: Mapping[str, tuple[type[Any], float]] = {
    "softmax": (LogisticRegression, DELTA),
    "`RidgeClassifier`": (RidgeClassifier, DELTA),
    "`RidgeClassifier`, delta 0": (RidgeClassifier, 0.0),
}
MAPS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "mnist-780": ("MNIST, 780 oriented gradients", OrientedGradients),
    "mnist-768": ("MNIST, 768 random", lambda: random_features(768)),
    "mnist-2048": ("MNIST, 2048 random", lambda: random_features(2048)),
    "mnist-4096": ("MNIST, 4096 random", lambda: random_features(4096)),
    "fashion-780": ("Fashion-MNIST, 780 oriented gradients", OrientedGradients),
    "fashion-2048": ("Fashion-MNIST, 2048 random", lambda: random_features(2048)),
}


def lines(name: str, maps: Any, data: Dataset[NDArray[np.uint8]]) -> Iterator[str]:
    """Yield a line of the table for each model."""
    X = maps.fit_transform(data.data.astype(np.float32) / np.float32(255.0))
    train, test = X[data.train], X[data.test]
    del X
    for title, (kind, delta) in MODELS.items():
        cells, seconds, most = [], [], 0
        for epsilon in EPSILONS:
            model = kind(
                epsilon=epsilon,
                delta=delta,
                classes=range(10),
                row_norm=1.0,
                random_state=0,
            )
            tracemalloc.start()
            start = time.process_time()
            model.fit(train, data.target[data.train])
            seconds.append(time.process_time() - start)
            most = max(most, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            cells.append(f"{100.0 * model.score(test, data.target[data.test]):.1f}")
        took = f"{np.mean(seconds):.0f} | {train.nbytes / 1e6:.0f} + {most / 1e6:.0f}"
        yield f"| {name} | {title} | {' | '.join(cells)} | {took} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, required=True, help="folder of MNIST's files")
    parser.add_argument("--fashion-mnist", type=Path, help="folder of Fashion-MNIST's files")
    parser.add_argument("--only", nargs="*", choices=MAPS, default=list(MAPS), metavar="FEATURES")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is")
    options = parser.parse_args(arguments)
    for key in options.only:
        fashion = key.startswith("fashion")
        data = load_fashion_mnist(options.fashion_mnist) if fashion else load_mnist(options.mnist)
        name, make = MAPS[key]
        for line in lines(name, make(), data):
            print(line, flush=True)
            _write(options.docs / PAGE, line)


def _write(page: Path, fresh: str) -> None:
    """Put one line among those that the page has, in place of an older one."""
    known = {_key(line): line for line in [*measured(page, NAME).splitlines(), fresh]}
    keys = [f"| {name} | {title} " for name, _ in MAPS.values() for title in MODELS]
    heads = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
    table = [f"| columns | model | {' | '.join(heads)} | fit, s | rows + fit, MB |"]
    table.append("|---|---|" + "---:|" * (len(heads) + 2))
    put(page, NAME, "\n".join(table + [known[key] for key in keys if key in known]))


def _key(line: str) -> str:
    return "|".join(line.split("|")[:3])


if __name__ == "__main__":
    main()
