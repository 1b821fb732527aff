"""Many classes with few rows each: prototypes and other fits, on generated rows.

``python -m experiments.many_classes`` writes the table of ``docs/evidence/solvers.md``. Classes
differ in their means, of equal spread in all directions ("round") or mostly in the first ones
("long": the k-th has a standard deviation in proportion to ``k^-1/2``), and so do the rows of a
class around it. Rows have length 1; delta is 1e-5. Accuracy on 4,000 more rows, one fit each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm import LogisticRegression, RidgeClassifier
from dpglm.privacy import ApproximateDP
from dpglm.solvers import Prototypes, Solver
from experiments.measured import DOCS, put

__all__ = ["main"]

N_TRAIN, N_HELD, DELTA = 20_000, 4_000, 1e-5
PAGE, NAME = Path("evidence") / "solvers.md", "many classes"
CASES = (
    # Kind, columns, classes, spread of rows over that of means.
    ("round", 128, 20, 2.0),
    ("round", 128, 100, 2.0),
    ("round", 128, 200, 1.0),
    ("long", 128, 20, 1.0),
    ("long", 128, 100, 1.0),
    ("long", 512, 100, 1.0),
    ("long", 128, 200, 0.7),
)
EPSILONS = (0.1, 0.3)
MODELS: dict[str, tuple[type[Any], str | Solver]] = {
    "softmax": (LogisticRegression, "auto"),
    "`RidgeClassifier`": (RidgeClassifier, "auto"),
    "prototypes": (RidgeClassifier, Prototypes()),
}


def rows_of(
    kind: str, d: int, n_classes: int, spread: float
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw rows of length 1 and their classes."""
    rng = np.random.default_rng([d, n_classes])
    scale = np.arange(1, d + 1) ** (-0.5 if kind == "long" else 0.0)
    y = rng.integers(n_classes, size=N_TRAIN + N_HELD)
    X = (scale * rng.normal(size=(n_classes, d)))[y] + spread * scale * rng.normal(size=(len(y), d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), y


def lines(cases: Sequence[tuple[str, int, int, float]] = CASES) -> Iterator[str]:
    """Yield a line of the table for each case and epsilon."""
    for kind, d, n_classes, spread in cases:
        X, y = rows_of(kind, d, n_classes, spread)
        for epsilon in EPSILONS:
            cells = []
            for estimator, solver in MODELS.values():
                model = estimator(
                    epsilon=epsilon,
                    delta=DELTA,
                    classes=range(n_classes),
                    row_norm=1.0,
                    solver=solver,
                    random_state=0,
                ).fit(X[:N_TRAIN], y[:N_TRAIN])
                cells.append(f"{100.0 * model.score(X[N_TRAIN:], y[N_TRAIN:]):.1f}")
            mu = ApproximateDP(epsilon, DELTA).gdp_mu()
            heard = mu * N_TRAIN / (n_classes * d**0.5)
            start = f"| {kind} | {d} | {n_classes} | {epsilon:g} | {heard:.2g}"
            yield f"{start} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is")
    options = parser.parse_args(arguments)
    table = [f"| kind | columns | classes | ε | signal-to-noise | {' | '.join(MODELS)} |"]
    table.append("|---|---:|---:|---:|---:|" + "---:|" * len(MODELS))
    for line in lines():
        print(line, flush=True)
        table.append(line)
    put(options.docs / PAGE, NAME, "\n".join(table))


if __name__ == "__main__":
    main()
