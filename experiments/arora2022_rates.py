"""Excess risk against n for least squares on a ball: arora2022 in low and in high dimension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Arora2022Smooth
from dpglm.pictures import BLUE, GREEN, GREY, INK, ORANGE, new_figure
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2Ball, Problem, Squared
from dpglm.solvers import JohnsonLindenstrauss, OutputPerturbation, Solver, run
from experiments.curves import Curve, draw_curve, draw_slope, log_axes

__all__ = ["Task", "draw", "measure"]

DELTA = 1e-6
LOW_ROWS = (500, 1000, 2000, 4000, 8000)
HIGH_ROWS = (500, 1000, 2000, 4000, 8000)
LOW, HIGH = "low dimension", "high dimension"
ZERO = "the zero model"


@dataclass(frozen=True)
class Task:
    """Rows with given column variances, and the parameter that made the targets."""

    variances: NDArray[np.float64]
    truth: NDArray[np.float64]

    @property
    def radius(self) -> float:
        """Radius of the ball: the norm of the truth."""
        return float(np.linalg.norm(self.truth))

    def sample(self, n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw rows of norm 1 and targets within [-1, 1]."""
        rng = np.random.default_rng(seed)
        scale = np.sqrt(self.variances)
        X = rng.choice([-1.0, 1.0], (n, len(scale))) * scale
        room = 1.0 - float(np.abs(self.truth) @ scale)
        return X, X @ self.truth + rng.uniform(-room, room, n)

    def population_excess(self, w: NDArray[np.float64]) -> float:
        """Compute the expected loss of ``w`` on a fresh row beyond that of the truth."""
        return float(self.variances @ (w - self.truth) ** 2) / 2.0


def low_task() -> Task:
    """Give ten columns, each with a quarter of the variance of the one before."""
    variances = 4.0 ** -np.arange(10.0)
    return Task(variances / variances.sum(), np.full(10, 10.0**-0.5))


def high_task(columns: int) -> Task:
    """Let variances fall like 1, 1/2, 1/3, ..., and the squares of the truth likewise."""
    variances = 1.0 / np.arange(1.0, columns + 1.0)
    variances /= variances.sum()
    return Task(variances, 0.6 * np.sqrt(variances))


def best_in_ball(
    X: NDArray[np.float64], y: NDArray[np.float64], radius: float
) -> NDArray[np.float64]:
    """Least squares on the ball, by the multiplier for which the norm is the radius."""
    curvature, basis = np.linalg.eigh(X.T @ X / len(X))
    target = basis.T @ (X.T @ y) / len(X)

    def beyond(multiplier: float) -> float:
        return float(np.linalg.norm(target / (curvature + multiplier))) - radius

    least = 1e-10 + max(0.0, -float(curvature[0]))
    multiplier = least if beyond(least) <= 0.0 else brentq(beyond, least, 1e6)
    return np.asarray(basis @ (target / (curvature + multiplier)))


def _empirical(X: NDArray[np.float64], y: NDArray[np.float64], w: NDArray[np.float64]) -> float:
    return float(np.mean((X @ w - y) ** 2)) / 2.0


def curves(
    task: Task,
    solvers: dict[str, Callable[[int], Solver]],
    rows: tuple[int, ...],
    epsilon: float,
    seeds: int,
) -> list[Curve]:
    """Measure excess empirical and population risk of each solver at each n."""
    problem = Problem(Squared(), constraint=L2Ball(task.radius))
    names = [f"{name}, {kind}" for name in solvers for kind in ("empirical", "population")]
    names.append(ZERO)
    values = {name: np.empty((len(rows), seeds)) for name in names}
    for seed in range(seeds):
        for position, n in enumerate(rows):
            X, y = task.sample(n, seed)
            spec = DataSpec(n, X.shape[1], target_low=-1.0, target_high=1.0)
            prepared = prepare_rows(X, y, spec)
            least = _empirical(X, y, best_in_ball(X, y, task.radius))
            values[ZERO][position, seed] = _empirical(X, y, 0.0 * task.truth) - least
            for name, solver in solvers.items():
                plan = solver(n).plan(problem, ApproximateDP(epsilon, DELTA), spec)
                w = run(plan, prepared, SeededNoise(seed)).w
                values[f"{name}, empirical"][position, seed] = _empirical(X, y, w) - least
                values[f"{name}, population"][position, seed] = task.population_excess(w)
    return [Curve(name, np.array(rows, dtype=float), values[name]) for name in names]


def measure(quick: bool = False) -> list[tuple[str, list[Curve]]]:
    """Measure both panels; ``quick`` makes them tiny, for a test of the code."""
    low = curves(
        low_task(),
        {"noisy GD": lambda n: Arora2022Smooth(n_steps=n)},
        (100, 200) if quick else LOW_ROWS,
        0.5,
        2 if quick else 10,
    )
    few = 20 if quick else 1000
    high = curves(
        high_task(40 if quick else 1000),
        {
            "noisy GD": lambda n: Arora2022Smooth(n_steps=few),
            "Johnson-Lindenstrauss": lambda n: JohnsonLindenstrauss(
                gradient_descent=Arora2022Smooth(n_steps=few)
            ),
            "output perturbation": lambda n: OutputPerturbation(),
        },
        (100, 200) if quick else HIGH_ROWS,
        2.0,
        2 if quick else 3,
    )
    return [(LOW, low), (HIGH, high)]


def draw(panels: list[tuple[str, list[Curve]]]) -> Any:
    """Draw one panel for each regime."""
    (_, low), (_, high) = panels
    figure = new_figure(
        9.5,
        4.4,
        "Least squares on a ball: error falls about as fast as the theorems say",
        "Excess risk against the number of rows, delta 1e-6. Lines: mean of seeds; bands: their "
        "middle half;\ndashed: the slope of the theorem's private term.",
    )
    left, right = figure.subplots(1, 2)
    draw_curve(left, low[0], BLUE, label="noisy GD, on the rows")
    draw_curve(left, low[1], ORANGE, style=":", marker="s", label="noisy GD, on fresh rows")
    draw_slope(left, low[0].x, 0.55 * low[0].mean[0], -1.0, "1 / n")
    log_axes(left, "10 columns, epsilon 0.5 (Theorem 1)", "rows", low[0].x)
    shown = [curve for curve in high if curve.label.endswith("empirical")]
    draw_curve(right, high[-1], GREY, marker="")
    for curve, color, marker in zip(shown, (BLUE, GREEN, ORANGE), "o^s", strict=True):
        label = curve.label.removesuffix(", empirical")
        draw_curve(right, curve, color, marker=marker, label=label)
    draw_slope(right, high[0].x, 0.6 * shown[-1].mean[0], -2.0 / 3.0, "1 / n^(2/3)")
    log_axes(right, "1000 columns, epsilon 2 (Theorems 2, 3)", "rows", high[0].x)
    left.set_ylabel("excess risk")
    for axes in (left, right):
        axes.legend(frameon=False, labelcolor=INK, fontsize=9.5)
    return figure
