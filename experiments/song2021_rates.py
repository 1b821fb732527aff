"""Excess risk against dimension and against rank for robust regression: song2021, Theorem 3.1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Arora2022Lipschitz, Song2021
from dpglm.pictures import BLUE, INK, ORANGE, new_figure
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Huber, L2Ball, Problem, Unconstrained
from dpglm.solvers import Solver, run
from experiments.curves import Curve, draw_curve, draw_slope, log_axes

__all__ = ["draw", "measure"]

BUDGET = ApproximateDP(1.0, 1e-6)
NORM = 2.0
LOSS = Huber(0.5)
DIMENSIONS = (8, 32, 128, 512, 2048, 8192)
RANKS = (4, 8, 16, 32, 64, 128)
FREE, BALL = "no constraint, settings by rank", "on the ball, settings by dimension"


def sample(
    n: int, rank: int, dimension: int, seed: int
) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """Draw rows of norm 1 that span the first ``rank`` columns, and targets without noise.

    Variances fall evenly on a log scale, by 10^4 in all, so that there are directions of every
    curvature. Which subspace the rows span does not matter: the noise looks the same from all.
    """
    rng = np.random.default_rng(seed)
    scale = 10.0 ** np.linspace(0.0, -2.0, rank)
    X = rng.choice([-1.0, 1.0], (n, rank)) * scale / np.linalg.norm(scale)
    y = X @ np.full(rank, NORM / rank**0.5)
    padding = sparse.csr_array((n, dimension - rank))
    return sparse.csr_array(sparse.hstack([X, padding])), y


def excess(solver: Solver, ball: bool, n: int, rank: int, dimension: int, seed: int) -> float:
    """Mean loss of a private fit; the least one is zero."""
    X, y = sample(n, rank, dimension, seed)
    bound = NORM * rank**0.5
    spec = DataSpec(n, dimension, sparse=True, target_low=-bound, target_high=bound)
    problem = Problem(LOSS, constraint=L2Ball(NORM) if ball else Unconstrained())
    w = run(solver.plan(problem, BUDGET, spec), prepare_rows(X, y, spec), SeededNoise(seed)).w
    return float(LOSS.value(X @ w, y).mean())


def measure(quick: bool = False) -> list[tuple[str, list[Curve]]]:
    """Measure both panels; ``quick`` makes them tiny, for a test of the code."""
    n, seeds, steps = (200, 2, 20) if quick else (4000, 6, None)
    dimensions = DIMENSIONS[:2] if quick else DIMENSIONS
    ranks = RANKS[:2] if quick else RANKS

    def curve(label: str, sizes: tuple[int, ...], by_rank: bool, ball: bool) -> Curve:
        values = [
            [
                excess(
                    Arora2022Lipschitz(n_steps=steps)
                    if ball
                    else Song2021(rank=size if by_rank else 8, norm=NORM, n_steps=steps),
                    ball,
                    n,
                    size if by_rank else 8,
                    512 if by_rank else size,
                    seed,
                )
                for seed in range(seeds)
            ]
            for size in sizes
        ]
        return Curve(label, np.array(sizes, dtype=float), np.array(values))

    return [
        (
            "dimension",
            [curve(FREE, dimensions, False, False), curve(BALL, dimensions, False, True)],
        ),
        ("rank", [curve(FREE, ranks, True, False), curve(BALL, ranks, True, True)]),
    ]


def draw(panels: list[tuple[str, list[Curve]]]) -> Any:
    """Draw one panel for the dimension and one for the rank."""
    figure = new_figure(
        9.5,
        4.4,
        "Without a constraint, noisy GD pays for rank and not for dimension",
        "Excess empirical risk of robust regression (Huber loss), 4000 rows, epsilon 1, delta "
        "1e-6. Lines: mean of\nseeds; bands: their middle half; dashed: the slope of the theorem.",
    )
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, (_, curves) in zip((left, right), panels, strict=True):
        for curve, color, marker in zip(curves, (BLUE, ORANGE), "os", strict=True):
            draw_curve(axes, curve, color, marker=marker)
    dimension, rank = panels[0][1][0], panels[1][1][0]
    draw_slope(left, dimension.x, 0.8 * dimension.mean[0], 0.0, "flat")
    draw_slope(right, rank.x, 0.8 * rank.mean[0], 0.5, "sqrt(rank)")
    log_axes(left, "rank 8, more and more columns", "columns", dimension.x)
    log_axes(right, "512 columns, more and more rank", "rank", rank.x)
    left.set_ylabel("excess risk")
    left.legend(frameon=False, labelcolor=INK, fontsize=9.5)
    return figure
