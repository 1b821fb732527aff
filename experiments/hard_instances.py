"""Excess risk on hard instances, between the proved floor and the proved ceiling."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Arora2022Smooth, Song2021
from dpglm.pictures import BLUE, GREEN, GREY, INK, ORANGE, new_figure
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2Ball, Problem
from dpglm.solvers import Plan, Solver, run
from experiments.curves import Curve, draw_curve, draw_slope, log_axes
from experiments.papers import HardInstance, biased_labels, biased_responses

__all__ = ["ceiling", "draw", "measure"]

DELTA = 1e-6
RELATION = Adjacency.REPLACE_ONE
ROWS = (500, 1000, 2000, 4000, 8000)
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
CEILING, MEASURED = "proved for noisy GD", "noisy GD, measured"
ZERO, FLOOR = "the zero model", "proved for every private method"


def ceiling(plan: Plan, reach: float, directions: int) -> float:
    """Bound the expected excess risk of averaged noisy gradient descent.

    With ``reach`` the norm of the minimiser w* (a zero of the gradient), and noise of
    standard deviation sigma in each of the ``directions``,

        B^2 / (2 eta T) + (1 + 1/T) eta (G^2 + directions sigma^2) / 2,

    without ``G^2`` for smooth losses and ``eta <= 1/H``: the bounds of
    ``dpglm.papers.Song2021``, for iterates 1 to T.
    """
    method, data, loss = plan.method, plan.data, plan.problem.loss
    eta, n_steps = method.step_sizes[0], plan.n_steps
    smooth = eta * loss.smoothness * data.row_norm**2 <= 1.0
    square = (0.0 if smooth else method.clipping.bound**2) + directions * method.noise_std**2
    return float(reach**2 / (2 * eta * n_steps) + (1 + 1 / n_steps) * eta * square / 2)


def plan_for(instance: HardInstance, solver: Solver, epsilon: float, ball: bool) -> Plan:
    """Plan from the public facts of an instance; the ball is as large as its minimiser."""
    n, d = instance.X.shape
    spec = DataSpec(
        n,
        d,
        row_norm=instance.row_norm,
        sparse=True,
        target_low=instance.target_low,
        target_high=instance.target_high,
    )
    problem = Problem(instance.loss)
    if ball:
        radius = float(np.linalg.norm(instance.minimizer))
        problem = dataclasses.replace(problem, constraint=L2Ball(radius))
    return solver.plan(problem, ApproximateDP(epsilon, DELTA), spec, RELATION)


def measured(instance: HardInstance, plan: Plan, seed: int) -> float:
    """Excess risk of one private fit."""
    rows = prepare_rows(instance.X, instance.y, plan.data)
    return instance.excess_risk(run(plan, rows, SeededNoise(seed)).w)


def four(
    sizes: tuple[float, ...], cases: list[list[tuple[HardInstance, Plan, float, int]]]
) -> list[Curve]:
    """Turn instances with their plan, epsilon and rank, by size and seed, into four curves."""
    x = np.array(sizes, dtype=float)

    def curve(label: str, values: list[list[float]]) -> Curve:
        return Curve(label, x, np.array(values))

    reach = [[float(np.linalg.norm(one.minimizer)) for one, *_ in row] for row in cases]
    return [
        curve(
            CEILING,
            [
                [ceiling(plan, b, rank) for (_, plan, _, rank), b in zip(row, bs, strict=True)]
                for row, bs in zip(cases, reach, strict=True)
            ],
        ),
        curve(
            MEASURED,
            [
                [measured(one, plan, seed) for seed, (one, plan, *_) in enumerate(row)]
                for row in cases
            ],
        ),
        curve(
            ZERO, [[one.excess_risk(np.zeros_like(one.minimizer)) for one, *_ in r] for r in cases]
        ),
        curve(FLOOR, [[one.floor(e, DELTA, RELATION) for one, _, e, _ in row] for row in cases]),
    ]


def measure(quick: bool = False) -> list[tuple[str, list[Curve]]]:
    """Measure both panels; ``quick`` makes them tiny, for a test of the code."""
    seeds, few = (2, 20) if quick else (8, None)
    rows = ROWS[:2] if quick else ROWS
    epsilons = EPSILONS[-2:] if quick else EPSILONS

    def regression(n: int, seed: int) -> tuple[HardInstance, Plan, float, int]:
        one = biased_responses(n, 10, radius=0.5, epsilon=0.2, seed=seed)
        return one, plan_for(one, Arora2022Smooth(n_steps=few), 0.2, True), 0.2, 10

    def labels(epsilon: float, seed: int) -> tuple[HardInstance, Plan, float, int]:
        one = biased_labels(400, 100, rank=10, epsilon=0.2, seed=seed)
        solver = Song2021(rank=10, norm=10.0**0.5, n_steps=few)
        return one, plan_for(one, solver, epsilon, False), epsilon, 10

    return [
        ("rows", four(rows, [[regression(n, s) for s in range(seeds)] for n in rows])),
        ("epsilon", four(epsilons, [[labels(e, s) for s in range(seeds)] for e in epsilons])),
    ]


def draw(panels: list[tuple[str, list[Curve]]]) -> Any:
    """Draw one panel against n and one against epsilon."""
    figure = new_figure(
        9.5,
        4.6,
        "Hard instances: between what no private method beats and what is proved",
        "Excess empirical risk on one-hot rows whose labels lean by too few rows to be seen, "
        "delta 1e-6,\nreplace-one. Lines: mean of seeds; bands: their middle half.",
    )
    left, right = figure.subplots(1, 2)
    looks = ((ORANGE, "v"), (BLUE, "o"), (GREY, ""), (GREEN, "^"))
    for axes, (_, shown) in zip((left, right), panels, strict=True):
        for curve, (color, marker) in zip(shown, looks, strict=True):
            draw_curve(axes, curve, color, marker=marker)
    draw_slope(left, panels[0][1][0].x, 0.6 * panels[0][1][3].mean[0], -1.0, "1 / n")
    right.set_ylim(1e-3, 20.0)
    log_axes(left, "least squares, 10 columns, epsilon 0.2", "rows", panels[0][1][0].x)
    log_axes(right, "hinge loss, rank 10, 100 columns, 400 rows", "epsilon", panels[1][1][0].x)
    left.set_ylabel("excess risk")
    handles, texts = left.get_legend_handles_labels()
    figure.legend(
        handles,
        texts,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        labelcolor=INK,
        fontsize=9.5,
    )
    return figure
