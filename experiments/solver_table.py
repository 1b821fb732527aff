"""Every solver with default settings on every problem that it takes: a table for the docs.

Run with ``python -m experiments.solver_table``. It rewrites the tables in
``docs/evidence/comparison.md``, each as soon as its problem is done; with ``--solvers NAME ...``
only the lines of these.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.selection import BestIterate
from dpglm.solvers import SOLVERS, Solver, run
from experiments.measured import DOCS, lead, measured, put
from experiments.problems import PROBLEMS, Task, predictions, risk, targets

EPSILONS = (0.1, 1.0, 4.0)
DELTA = 1e-5
PAGE = DOCS / "evidence" / "comparison.md"
CANDIDATES: dict[str, Callable[[], Solver]] = {
    **SOLVERS,
    "best iterate (of noisy_gd)": BestIterate,
}
# A new projection matrix of 20001 x 14001 numbers in each of 400 steps takes a quarter of an hour.
TOO_SLOW = {("text", "d2p2")}
# Half a minute for each fit: only this many seeds, and `auto` is not compared on them.
FEW_SEEDS = {("text", "dpsgd_f"): 15}


@dataclass(frozen=True)
class Result:
    """Results of one solver on one problem at one epsilon, over all seeds."""

    problem: str
    solver: str
    epsilon: float
    excess_risk: list[float]
    score: list[float]
    gradient_evaluations_over_n: float
    seconds: list[float]


def measure(task: Task, name: str, epsilon: float, seeds: int) -> Result | None:
    """Fit once for each seed; None where the solver does not take the problem."""
    budget = ApproximateDP(epsilon, DELTA)
    try:
        plan = CANDIDATES[name]().plan(task.problem, budget, task.train.spec)
    except ValueError as error:
        print(f"{task.name}: {name} does not take it: {error}", flush=True)
        return None
    excess, scores, seconds = [], [], []
    for seed in range(seeds):
        start = time.process_time()
        w = run(plan, task.train, SeededNoise(seed)).w
        seconds.append(time.process_time() - start)
        excess.append(risk(task.problem, task.train, w) - task.optimum)
        scores.append(float(task.score(targets(task.test), predictions(task.test, w))))
    evaluations = plan.method.gradient_evaluations / task.train.spec.n_rows
    return Result(task.name, name, epsilon, excess, scores, evaluations, seconds)


def section(task: Task, results: Iterable[Result]) -> str:
    """One problem's table as Markdown; solvers in the order of their excess risk at epsilon 1."""
    at: dict[str, dict[float, Result]] = {}
    for result in results:
        if result.problem == task.name:
            at.setdefault(result.solver, {})[result.epsilon] = result
    order = sorted(at, key=lambda name: float(np.mean(at[name][1.0].excess_risk)))
    start = risk(task.problem, task.train, np.zeros(task.train.spec.coefficient_shape))
    spec = task.train.spec
    facts = (
        f"n = {spec.n_rows}, d = {spec.n_columns}. Smallest training risk {task.optimum:.4f} "
        f"(test {task.score_name} {task.best_score:.3f}); the zero model is "
        f"{start - task.optimum:.4f} above it."
    )
    lines = [
        f"### {task.name}",
        "",
        facts,
        "",
        "| solver | "
        + " | ".join(f"excess risk, ε = {e:g}" for e in EPSILONS)
        + " | "
        + " | ".join(f"{task.score_name}, ε = {e:g}" for e in EPSILONS)
        + " | passes | seconds |",
        "|---|" + "---:|" * (2 * len(EPSILONS) + 2),
    ]
    lines += [_line(name, at[name]) for name in order]
    seeds = len(at["auto"][1.0].score) if "auto" in at else 0
    others = [name for name in order if name != "auto" and len(at[name][1.0].score) == seeds]
    if others:
        leads = [
            lead(at["auto"][e].score, {name: at[name][e].score for name in others})
            + f" (ε = {e:g})"
            for e in EPSILONS
        ]
        lines += [
            "",
            f"{task.score_name} of `auto` above the best of the others: {', '.join(leads)}.",
        ]
    return "\n".join(lines)


def _line(name: str, at: dict[float, Result]) -> str:
    ones = [at[epsilon] for epsilon in EPSILONS]
    cells = [_cell(one.excess_risk, 4) for one in ones]
    cells += [_cell(one.score, 3) for one in ones]
    cells.append(f"{at[1.0].gradient_evaluations_over_n:.3g}")
    cells.append(f"{np.median(at[1.0].seconds):.2g}")
    return f"| `{name}` | " + " | ".join(cells) + " |"


def merged(old: str, new: str) -> str:
    """Return a table with the lines of another in place of those of the same solvers.

    Nothing is said about ``auto`` then, which needs the scores of all seeds.
    """
    solvers = {_solver(one): one for text in (old, new) for one in _rows(text)}
    head = old[: old.index("\n| `")]
    order = sorted(solvers.values(), key=lambda one: float(one.split("|")[3].split("±")[0]))
    return "\n".join([head, *order])


def _rows(table: str) -> list[str]:
    return [one for one in table.splitlines() if one.startswith("| `")]


def _solver(row: str) -> str:
    return row.split("`")[1]


def _cell(values: list[float], digits: int) -> str:
    mean = float(np.mean(values))
    if not np.isfinite(mean) or abs(mean) >= 10.0:
        return f"{mean:.0e}"
    return f"{mean:.{digits}f} ± {np.std(values):.{digits}f}"


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=sorted(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--solvers", nargs="*", choices=sorted(CANDIDATES), default=[])
    options = parser.parse_args()
    for key in options.only:
        task = PROBLEMS[key]()
        found = Parallel(n_jobs=options.jobs)(
            delayed(measure)(
                task, name, epsilon, min(options.seeds, FEW_SEEDS.get((key, name), options.seeds))
            )
            for name in options.solvers or CANDIDATES
            for epsilon in EPSILONS
            if (key, name) not in TOO_SLOW
        )
        results = [one for one in found if one is not None]
        if results:
            table = section(task, results)
            print(table, flush=True)
            put(PAGE, key, merged(measured(PAGE, key), table) if options.solvers else table)


if __name__ == "__main__":
    main()
