"""Two clusters far from zero: noisy gradient descent fails, DPSGD-F does not (Sun et al. 2023).

Run with ``python -m experiments.sun2023_counter_example``. It prints accuracies, fails if they miss
the bars below, and draws ``docs/figures/sun2023_counter_example.svg``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import dpsgd_f_theoretical
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import NoisyGD, Solver, dpsgd_f, run
from experiments.curves import Curve, draw_curve, write_csv
from experiments.measured import DOCS

__all__ = ["DISTANCE", "LEAST_WITH", "MOST_WITHOUT", "SOLVERS", "accuracies", "draw", "measure"]

N_ROWS, EPSILON, DELTA = 2000, 1.0, 1e-5
DISTANCE = 4.0
"""Distance of the clusters from zero, over n epsilon, at the bars."""
LEAST_WITH, MOST_WITHOUT = 0.95, 0.6
DISTANCES = (2.0**-8, 2.0**-6, 2.0**-4, 0.25, 1.0, DISTANCE, 16.0)
THEORETICAL, PRACTICAL, WITHOUT = "DPSGD-F, theoretical", "DPSGD-F, practical", "without"
SOLVERS: dict[str, Solver] = {
    THEORETICAL: dpsgd_f_theoretical(),
    PRACTICAL: dpsgd_f(),
    WITHOUT: NoisyGD(),
}


def clusters(mu: float, flip: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Half of the rows at ``(mu, 1)``, half at ``(mu, -1)``; ``flip`` swaps their labels."""
    side = np.where(np.arange(N_ROWS) % 2 == 0, 1.0, -1.0)
    return np.column_stack([np.full(N_ROWS, mu), side]), -side if flip else side


def accuracies(solver: Solver, distance: float, seeds: int) -> list[float]:
    """Accuracy for each seed, the labels swapped in every other one."""
    mu = distance * N_ROWS * EPSILON
    row_norm = math.hypot(mu, 1.0)
    spec = DataSpec(N_ROWS, 2, row_norm=row_norm, intercept=row_norm)
    plan = solver.plan(Problem(Logistic()), ApproximateDP(EPSILON, DELTA), spec)
    found = []
    for seed in range(seeds):
        X, y = clusters(mu, flip=seed % 2 == 1)
        w = run(plan, prepare_rows(X, y, spec), SeededNoise(seed)).w
        scores = np.column_stack([X, np.full(N_ROWS, row_norm)]) @ w
        found.append(float((np.sign(scores) == y).mean()))
    return found


def measure(distances: Sequence[float], seeds: int) -> list[Curve]:
    """Measure every solver at every distance."""
    x = np.array(distances)
    return [
        Curve(name, x, np.array([accuracies(solver, one, seeds) for one in distances]))
        for name, solver in SOLVERS.items()
    ]


def draw(curves: Sequence[Curve]) -> Any:
    """Draw accuracy against the distance from zero."""
    from dpglm.pictures import BLUE, GREEN, INK, ORANGE, new_figure, quiet

    figure = new_figure(
        7.5,
        4.4,
        "Two clusters far from zero",
        f"Accuracy on half of {N_ROWS} rows at (mu, 1) and half at (mu, -1), epsilon {EPSILON:g}, "
        "delta 1e-5.\nLines: mean of seeds; bands: their middle half.",
    )
    axes = figure.subplots()
    looks = ((BLUE, "o"), (GREEN, "^"), (ORANGE, "v"))
    for curve, (color, marker) in zip(curves, looks, strict=True):
        draw_curve(axes, curve, color, marker=marker)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0.35, 1.03)
    axes.set_xlabel("mu / (n epsilon)")
    axes.set_ylabel("accuracy")
    quiet(axes)
    axes.legend(frameon=False, labelcolor=INK, fontsize=9.5, loc="lower left")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, draw, and fail if the bars are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="fits for each point")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--quick", action="store_true", help="two seeds")
    options = parser.parse_args(arguments)
    curves = measure(DISTANCES, 2 if options.quick else options.seeds)
    for curve in curves:
        values = "  ".join(
            f"{x:g}: {mean:.3f}" for x, mean in zip(curve.x, curve.mean, strict=True)
        )
        print(f"{curve.label:22s} {values}")
    figures = options.docs / "figures"
    write_csv(figures / "sun2023_counter_example.csv", [("accuracy", curves)])
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
        figure = draw(curves)
        figure.savefig(figures / "sun2023_counter_example.svg", metadata={"Date": None})
    place = DISTANCES.index(DISTANCE)
    with_it, without = (curves[i].mean[place] for i in (0, 2))
    if not (with_it >= LEAST_WITH and without <= MOST_WITHOUT):
        raise SystemExit(f"bars missed: {with_it:.3f} with, {without:.3f} without preprocessing")


if __name__ == "__main__":
    main()
