"""Test accuracy against dimension with Gaussian and L2 noise: song2021, Figure 2.

``python -m experiments.song2021_dimension --data FOLDER`` draws
``docs/figures/song2021_dimension.svg`` and writes its numbers. FOLDER has Cod-RNA as
``cod-rna.csv.gz`` of the benchmark splits. ``--generated`` takes generated rows of its shape,
prints the results, and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.pictures import BLUE, GREEN, INK, ORANGE, new_figure
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import LinearDecay, NoisyGD, run
from experiments.curves import Curve, draw_curve, log_axes, write_csv
from experiments.measured import DOCS

__all__ = ["draw", "main", "measure"]

EPSILON, DELTA = 5.0, 1e-5
DIMENSIONS = (8, 32, 128, 512, 2048, 4096)
RATE, STEPS, SEEDS = 0.02, 500, 5
STEP_SIZES = (4.0, 16.0, 64.0, 256.0)
GAUSSIAN, L2, PURE = "Gaussian noise", "L2 noise, same delta", "L2 noise, delta 0"
KINDS = {GAUSSIAN: ("gaussian", DELTA), L2: ("l2", DELTA), PURE: ("l2", 0.0)}

Labelled = tuple[sparse.csr_array, NDArray[np.float64]]


def labelled_rows(folder: Path | None, quick: bool) -> tuple[Labelled, Labelled, Labelled]:
    """Training, development and test rows of norm 1, generated without a folder.

    Columns of Cod-RNA are scaled by public ranges.
    """
    if folder is None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(59_535, 8))
        y = np.where(X @ np.linspace(3.0, -3.0, 8) + rng.logistic(size=len(X)) > 0.0, 1.0, -1.0)
    else:
        from benchmarks.splits import load_cod_rna

        split = load_cod_rna(folder)
        X = np.concatenate([split.X_train, split.X_test]).astype(np.float64)
        y = np.where(np.concatenate([split.y_train, split.y_test]) > 0, 1.0, -1.0)
    order = np.random.default_rng(1).permutation(len(y))[: 3000 if quick else None]
    rows = sparse.csr_array(X[order] / np.linalg.norm(X[order], axis=1, keepdims=True))
    parts = np.split(np.arange(len(order)), [len(order) * 6 // 10, len(order) * 8 // 10])
    train, development, test = ((rows[part], y[order][part]) for part in parts)
    return train, development, test


def accuracy(
    kind: str, step_size: float, dimension: int, train: Labelled, test: Labelled, seed: int
) -> float:
    """Share of test rows that a model with one law of noise classifies correctly."""
    noise, delta = KINDS[kind]
    X, y = train
    padded = sparse.csr_array(sparse.hstack([X, sparse.csr_array((len(y), dimension - 8))]))
    spec = DataSpec(len(y), dimension, intercept=1.0, sparse=True)
    solver = NoisyGD(
        n_steps=STEPS,
        step_size=step_size,
        schedule=LinearDecay(),
        clip=1.0,
        momentum=0.0,
        sampling_rate=RATE,
        noise=noise,  # type: ignore[arg-type]
    )
    plan = solver.plan(Problem(Logistic()), ApproximateDP(EPSILON, delta), spec)
    w = run(plan, prepare_rows(padded, y, spec), SeededNoise(seed)).w
    # The other columns of test rows are zero too.
    return float(np.mean(np.sign(test[0] @ w[:8] + w[-1]) == test[1]))


def measure(folder: Path | None, quick: bool) -> list[Curve]:
    """Accuracy at each dimension, with the step size that is best on development rows."""
    train, development, test = labelled_rows(folder, quick)
    dimensions, seeds = (DIMENSIONS[:2], 2) if quick else (DIMENSIONS, SEEDS)
    curves = []
    for kind in KINDS:
        values = []
        for dimension in dimensions:
            step = max(
                STEP_SIZES,
                key=lambda size: sum(
                    accuracy(kind, size, dimension, train, development, 1000 + seed)
                    for seed in range(2 if quick else 3)
                ),
            )
            values.append(
                [accuracy(kind, step, dimension, train, test, seed) for seed in range(seeds)]
            )
            found = f"{np.mean(values[-1]):.4f} ± {np.std(values[-1], ddof=1):.4f}"
            print(f"{kind}, {dimension} columns: {found}, step {step:g}", flush=True)
        curves.append(Curve(kind, np.array(dimensions, float), np.array(values)))
    return curves


def draw(curves: Sequence[Curve]) -> Any:
    """Accuracy against the number of columns."""
    figure = new_figure(
        8.5,
        4.6,
        "Empty columns are free, except under L2 noise",
        "Test accuracy of DP-SGD on Cod-RNA padded with zeros; "
        "epsilon 5, delta 1e-5 or, where said, 0.\n"
        "Lines: mean of seeds; bands: their middle half. Steps chosen on development rows.",
    )
    axes = figure.subplots()
    for curve, color, marker in zip(curves, (BLUE, ORANGE, GREEN), "os^", strict=True):
        draw_curve(axes, curve, color, marker=marker)
    log_axes(axes, "", "columns", curves[0].x)
    axes.set_yscale("linear")
    axes.set_ylabel("test accuracy")
    axes.legend(frameon=False, labelcolor=INK, fontsize=9.5)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write into the docs."""
    import matplotlib

    parser = argparse.ArgumentParser(description=__doc__)
    rows = parser.add_mutually_exclusive_group(required=True)
    rows.add_argument("--data", type=Path, help="folder of cod-rna.csv.gz")
    rows.add_argument("--generated", action="store_true", help="generated rows; nothing is written")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write")
    parser.add_argument("--quick", action="store_true", help="few rows and dimensions")
    options = parser.parse_args(arguments)
    curves = measure(options.data, options.quick)
    if options.generated:
        return
    figures = options.docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    write_csv(figures / "song2021_dimension.csv", [("", curves)])
    with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
        drawn = draw(curves)
        drawn.savefig(figures / "song2021_dimension.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
