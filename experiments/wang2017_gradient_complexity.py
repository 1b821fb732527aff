"""Excess risk against gradient evaluations: noisy GD and SGD, SVRG and SVRG++, at equal privacy.

Run with ``python -m experiments.wang2017_gradient_complexity`` (half an hour; ``--draw`` only
draws the earlier measurements again). It writes the tables in ``docs/evidence/papers.md``, the
figure there, and the numbers behind them.

Every method minimises the same ridge-regularised logistic risk of generated rows with the same
clip norm and the same (epsilon, delta). Settings are tuned, separately for each method, on the
true excess risk of some seeds, which no private analysis could do; those that no cheaper setting
beats are then measured on fresh seeds. So the curves show the best of each algorithm, and the
points at default settings the results of a user.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpglm._words import plain_number
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.pictures import BLUE, GREEN, INK, ORANGE, PURPLE, new_figure, quiet
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, Logistic, Problem
from dpglm.solvers import (
    SVRG,
    Constant,
    LinearDecay,
    NoisyGD,
    NoisySGD,
    Plan,
    Schedule,
    Solver,
    SVRGPlusPlus,
    run,
)
from experiments.measured import DOCS, put

N_ROWS, N_FEATURES, CLIP = 50_000, 10, 0.75
BUDGET = ApproximateDP(1.0, 1e-6)
TUNING, FRESH = range(2), range(100, 120)
FIGURE = Path("figures", "wang2017_gradient_complexity.svg")
FAMILIES = {"noisy GD": BLUE, "noisy SGD": GREEN, "SVRG": ORANGE, "SVRG++": PURPLE}
DEFAULTS: dict[str, Solver] = {
    "noisy GD": NoisyGD(),
    "noisy SGD": NoisySGD(),
    "SVRG": SVRG(),
    "SVRG++": SVRGPlusPlus(),
}
# Spread of the columns' variances and strength of the ridge: condition numbers of about 1 to 40.
PROBLEMS = ((1.0, 1e-2), (10.0, 2e-3), (100.0, 5e-4))


@dataclass(frozen=True)
class Task:
    """A risk to minimise, its minimum and its curvature there."""

    problem: Problem
    rows: Rows
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    minimum: float
    curvatures: NDArray[np.float64]
    """Eigenvalues of the Hessian at the minimum, ascending."""

    @property
    def condition(self) -> float:
        """Condition number at the minimum."""
        return float(self.curvatures[-1] / self.curvatures[0])

    def excess(self, w: NDArray[np.float64]) -> float:
        """Risk of ``w`` above the minimum."""
        return _risk(self.problem, self.X, self.y, w) - self.minimum


@dataclass(frozen=True)
class Point:
    """Results of a solver: cost in passes over the rows, and excess risks over all seeds."""

    passes: float
    risk: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Result:
    """Results on one problem."""

    condition: float
    start: float
    """Excess risk of the zero model."""
    fronts: dict[str, list[Point]]
    defaults: dict[str, Point]


def make_task(spread: float, strength: float) -> Task:
    """Rows with variances that fall by the factor ``spread`` from the first column to the last."""
    rng = np.random.default_rng(2017)
    scale = spread ** (-0.5 * np.linspace(0.0, 1.0, N_FEATURES))
    X = rng.normal(size=(N_ROWS, N_FEATURES)) * scale / np.linalg.norm(scale)
    X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, np.newaxis]
    truth = rng.normal(size=N_FEATURES)
    truth *= 2.0 / np.sqrt(np.mean((X @ truth) ** 2))
    y = np.where(rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-X @ truth)), 1.0, -1.0)
    problem = Problem(Logistic(), L2(strength))

    def gradient(w: NDArray[np.float64]) -> NDArray[np.float64]:
        return X.T @ problem.loss.slope(X @ w, y) / N_ROWS + strength * w

    def hessian(w: NDArray[np.float64]) -> NDArray[np.float64]:
        curved = X * problem.loss.curvature(X @ w, y)[:, np.newaxis]
        return X.T @ curved / N_ROWS + strength * np.eye(N_FEATURES)

    start = np.zeros(N_FEATURES)
    w = minimize(lambda w: _risk(problem, X, y, w), start, jac=gradient, method="BFGS").x
    for _ in range(5):
        w -= np.linalg.solve(hessian(w), gradient(w))
    rows = prepare_rows(X, y, DataSpec(N_ROWS, N_FEATURES))
    curvatures = np.linalg.eigvalsh(hessian(w))
    return Task(problem, rows, X, y, _risk(problem, X, y, w), curvatures)


def _risk(
    problem: Problem, X: NDArray[np.float64], y: NDArray[np.float64], w: NDArray[np.float64]
) -> float:
    return float(problem.loss.value(X @ w, y).mean()) + problem.regularizer.value(w)


def candidates(family: str, unit: float) -> Iterator[tuple[Solver, list[dict[str, Any]]]]:
    """List settings that decide the noise, each with those of the method that do not.

    ``unit`` is the inverse of the largest curvature.
    """
    if family in ("noisy GD", "noisy SGD"):
        full = family == "noisy GD"
        counts = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96) if full else (10, 20, 40, 80, 160, 320)
        schedules: tuple[Schedule, ...] = (Constant(), LinearDecay())
        for n_steps, rate in itertools.product(counts, (1.0,) if full else (0.02, 0.1, 0.3)):
            changes = itertools.product((0.5, 1.0, 2.0, 4.0), schedules, (0.0, 0.5, 0.8))
            yield (
                NoisyGD(n_steps=n_steps, clip=CLIP, sampling_rate=rate),
                [
                    {
                        "step_sizes": tuple((size * unit * schedule.factors(n_steps)).tolist()),
                        "momentum": momentum,
                    }
                    for size, schedule, momentum in changes
                ],
            )
        return
    kind, lengths = (
        (SVRG, (5, 10, 20, 40, 80)) if family == "SVRG" else (SVRGPlusPlus, (2, 4, 8, 16))
    )
    for n_epochs, inner_steps, rate in itertools.product(
        (1, 2, 3, 4), lengths, (0.005, 0.02, 0.05)
    ):
        solver = kind(
            n_epochs=n_epochs,
            inner_steps=inner_steps,
            clip=CLIP,
            sampling_rate=rate,
            anchor_share=0.8,
        )
        yield solver, [{"step_size": size * unit} for size in (0.5, 1.0)]


def plans(task: Task, family: str) -> Iterator[Plan]:
    """Every plan that is tried; noise is calibrated once for all that release the same."""
    for solver, changes in candidates(family, 1.0 / float(task.curvatures[-1])):
        plan = solver.plan(task.problem, BUDGET, task.rows.spec)
        for change in changes:
            yield dataclasses.replace(plan, method=dataclasses.replace(plan.method, **change))


def measure(task: Task, plan: Plan, seeds: range) -> Point:
    """Run a plan once for each seed."""
    passes = plan.method.gradient_evaluations / N_ROWS
    risks = [task.excess(run(plan, task.rows, SeededNoise(seed)).w) for seed in seeds]
    return Point(passes, float(np.mean(risks)), min(risks), max(risks))


def frontier(task: Task, family: str, jobs: int, stride: int) -> list[Point]:
    """Find the settings that no cheaper one beats on tuning seeds; measure them on fresh ones.

    One in ``stride`` of all settings is tried.
    """
    tried = list(itertools.islice(plans(task, family), 0, None, stride))
    points = Parallel(n_jobs=jobs)(delayed(measure)(task, plan, TUNING) for plan in tried)
    best, kept = np.inf, []
    for plan, point in sorted(
        zip(tried, points, strict=True), key=lambda pair: (pair[1].passes, pair[1].risk)
    ):
        if point.risk < best:
            best = point.risk
            kept.append(plan)
    return Parallel(n_jobs=jobs)(delayed(measure)(task, plan, FRESH) for plan in kept)


def cheapest(points: list[Point], target: float) -> float:
    """Fewest passes with which a frontier's risk is at most ``target``."""
    return min((point.passes for point in points if point.risk <= target), default=np.inf)


def table(result: Result) -> str:
    """Write the results on a problem as Markdown."""
    # Within a tenth, as means over 20 seeds differ by that much from chance alone.
    by_default = 1.1 * result.defaults["noisy GD"].risk
    by_tuning = 1.1 * min(point.risk for point in result.fronts["noisy GD"])
    needs = f"passes to {by_default:.1e} | passes to {by_tuning:.1e}"
    lines = [
        f"**Condition number {result.condition:.2g}** (excess risk of zero: {result.start:.2g})",
        "",
        f"| method | default settings: passes | excess risk | tuned: {needs} |",
        "|---|---:|---:|---:|---:|",
    ]
    for family, points in result.fronts.items():
        default = result.defaults[family]
        needed = [f"{cheapest(points, one):.3g}" for one in (by_default, by_tuning)]
        cells = [f"{default.passes:.3g}", f"{default.risk:.1e}", *needed]
        lines.append(f"| {family} | {' | '.join(cells).replace('inf', 'never')} |")
    return "\n".join(lines)


def draw(results: list[Result]) -> Any:
    """One panel for each problem."""
    figure = new_figure(
        9.5,
        4.2,
        "The worse a problem is conditioned, the more passes variance reduction saves",
        "Excess risk against passes over the rows (row gradients over n) at epsilon 1, delta 1e-6. "
        "Lines: tuned settings,\nmean and range of 20 seeds. Dots: default settings.",
    )
    panels = figure.subplots(1, len(results), sharey=True, sharex=True)
    for axes, result in zip(panels, results, strict=True):
        for family, points in result.fronts.items():
            color, x = FAMILIES[family], [point.passes for point in points]
            low, high = [p.lowest for p in points], [p.highest for p in points]
            axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0.0)
            axes.plot(x, [point.risk for point in points], color=color, lw=1.8, label=family)
        for family, point in result.defaults.items():
            axes.plot(point.passes, point.risk, "o", color=FAMILIES[family], ms=7, mec="white")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: plain_number(value))
        axes.set_title(f"condition number {result.condition:.2g}", size=10.5, color=INK)
        axes.set_xlabel("passes over the rows")
        quiet(axes)
    panels[0].set_ylabel("excess risk")
    panels[-1].legend(frameon=False, labelcolor=INK, fontsize=9.5, loc="upper right")
    return figure


def write(docs: Path, results: list[Result]) -> None:
    """Put tables, figure and numbers into the docs."""
    found = "\n\n".join(table(result) for result in results)
    put(docs / "evidence" / "papers.md", "wang2017 passes", found)
    figure = docs / FIGURE
    with matplotlib.rc_context({"svg.hashsalt": "dpglm"}):
        draw(results).savefig(figure, metadata={"Date": None})
    numbers = [asdict(result) for result in results]
    figure.with_suffix(".json").write_text(json.dumps(numbers) + "\n")


def read(docs: Path) -> list[Result]:
    """Read the numbers that ``write`` wrote."""
    return [
        Result(
            one["condition"],
            one["start"],
            {name: [Point(**point) for point in points] for name, points in one["fronts"].items()},
            {name: Point(**point) for name, point in one["defaults"].items()},
        )
        for one in json.loads((docs / FIGURE).with_suffix(".json").read_text())
    ]


def compare(spread: float, strength: float, jobs: int, stride: int = 1) -> Result:
    """Measure every method on one problem."""
    task = make_task(spread, strength)
    fronts = {family: frontier(task, family, jobs, stride) for family in FAMILIES}
    defaults = {
        name: measure(task, solver.plan(task.problem, BUDGET, task.rows.spec), FRESH)
        for name, solver in DEFAULTS.items()
    }
    start = task.excess(np.zeros(N_FEATURES))
    result = Result(task.condition, start, fronts, defaults)
    print(table(result), "\n", flush=True)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and write them and the figure into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--quick", action="store_true", help="few of the settings")
    parser.add_argument("--draw", action="store_true", help="only draw the earlier measurements")
    options = parser.parse_args(arguments)
    if options.draw:
        results = read(options.docs)
    else:
        stride = 40 if options.quick else 1
        results = [compare(*problem, options.jobs, stride) for problem in PROBLEMS]
    write(options.docs, results)


if __name__ == "__main__":
    main()
