"""Excess risk and passes by condition, rows, epsilon and geometry: wang2017, Tables 1 to 3.

``python -m experiments.wang2017_tables`` writes the tables of ``docs/evidence/papers.md``. The
paper's tables compare bounds; these compare default settings on generated rows, at
equal (epsilon, delta) by exact accounting. In Table 1 noisy gradient descent has two settings more.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Wang2017PolyakLojasiewicz
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, L1Ball, L2Ball, Logistic, Problem, Simplex, Unconstrained
from dpglm.solvers import (
    SVRG,
    AcceleratedMirrorDescent,
    FrankWolfe,
    NoisyGD,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    Solver,
    SVRGPlusPlus,
    run,
)
from experiments.measured import DOCS, put

__all__ = ["Case", "general", "geometry", "main", "strongly_convex", "table"]

DELTA, SEEDS = 1e-6, 5
GAP = 1e-6
"""Certified accuracy of the reference minimum."""

STRONGLY_CONVEX: Mapping[str, Solver] = {
    "noisy GD ([6], full batch)": NoisyGD(),
    "noisy GD, clip 1, 20 steps": NoisyGD(clip=1.0, n_steps=20),
    "noisy GD, Theorem 6.2": Wang2017PolyakLojasiewicz(),
    "noisy SGD ([6])": NoisySGD(),
    "objective perturbation ([21])": ObjectivePerturbation(),
    "output perturbation ([34])": OutputPerturbation(),
    "SVRG (this paper)": SVRG(),
}
GENERAL: Mapping[str, Solver] = {
    "noisy GD ([6], full batch)": NoisyGD(),
    "noisy SGD ([6])": NoisySGD(),
    "objective perturbation ([21])": ObjectivePerturbation(),
    "output perturbation ([34])": OutputPerturbation(),
    "SVRG++ (this paper)": SVRGPlusPlus(),
}
GEOMETRY: Mapping[str, Solver] = {
    "noisy GD, projected": NoisyGD(),
    "Frank-Wolfe ([29])": FrankWolfe(),
    "accelerated mirror descent (this paper)": AcceleratedMirrorDescent(),
}


@dataclass(frozen=True)
class Case:
    """A risk to minimise privately, and its varied setting."""

    label: str
    problem: Problem
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    epsilon: float

    def risk(self, w: NDArray[np.float64]) -> float:
        """Mean loss plus penalty."""
        value = float(self.problem.loss.value(self.X @ w, self.y).mean())
        return value + self.problem.regularizer.value(w)

    def gradient(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of the risk."""
        slopes = self.problem.loss.slope(self.X @ w, self.y)
        return self.X.T @ slopes / len(self.y) + self.problem.regularizer.strong_convexity * w


def rows(
    n: int, d: int, spread: float, length: float, sparse: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of norm at most 1 with variances that fall by ``spread``, and logistic labels.

    With ``sparse`` four coefficients make the labels; else all do. ``length`` is the spread of the
    log odds.
    """
    rng = np.random.default_rng(2017)
    scale = spread ** (-0.5 * np.linspace(0.0, 1.0, d))
    X = rng.normal(size=(n, d)) * scale / np.linalg.norm(scale)
    X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, np.newaxis]
    truth = np.zeros(d)
    truth[: 4 if sparse else d] = rng.uniform(0.5, 1.5, size=4 if sparse else d)
    truth *= length / np.sqrt(np.mean((X @ truth) ** 2))
    return X, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-X @ truth)), 1.0, -1.0)


def least_risk(case: Case) -> float:
    """Find the smallest risk in the set; accelerated projected gradients where there is one."""
    constraint = case.problem.constraint
    start = constraint.project(np.zeros(case.X.shape[1]))
    if constraint == Unconstrained():
        options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9}
        found = minimize(case.risk, start, jac=case.gradient, method="L-BFGS-B", options=options)
        return float(found.fun)
    curvature = case.problem.loss.smoothness_on(np.inf, -1.0, 1.0)
    smoothness = curvature * float(np.linalg.eigvalsh(case.X.T @ case.X / len(case.y))[-1])
    w = y = start
    t = 1.0
    for _ in range(50_000):
        g = case.gradient(y)
        new = constraint.project(y - g / smoothness)
        if g @ (new - w) > 0.0:  # the momentum points uphill: restart
            y, t = new, 1.0
        else:
            following = 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5)
            y, t = new + (t - 1.0) / following * (new - w), following
        w = new
        if _gap(case, w) <= GAP:
            return case.risk(w)
    raise RuntimeError(f"{case.label}: no minimum within {GAP:g}")


def _gap(case: Case, w: NDArray[np.float64]) -> float:
    """Bound how far above the minimum the risk of ``w`` is, by the risk's linear model."""
    g, constraint = case.gradient(w), case.problem.constraint
    if isinstance(constraint, L1Ball):
        return float(g @ w + constraint.radius * np.abs(g).max())
    if isinstance(constraint, L2Ball):
        return float(g @ w + constraint.radius * np.linalg.norm(g))
    assert isinstance(constraint, Simplex)
    return float(g @ w - constraint.radius * g.min())


def strongly_convex(quick: bool) -> list[Case]:
    """Ridge-regularised logistic risks of several condition numbers, sizes and epsilons."""
    sizes = (2000,) if quick else (5000, 20_000, 80_000)
    settings = [(1.0, 1e-2, sizes[-1], 1.0), (10.0, 2e-3, sizes[-1], 1.0)]
    settings += [(100.0, 5e-4, n, 1.0) for n in sizes] + [(100.0, 5e-4, sizes[-1], 0.2)]
    cases = []
    for spread, strength, n, epsilon in settings:
        X, y = rows(n, 10, spread, 2.0, sparse=False)
        problem = Problem(Logistic(), L2(strength))
        top = 0.25 * float(np.linalg.eigvalsh(X.T @ X / n)[-1]) + strength
        label = f"L/mu {top / strength:.2g}, n {n:,}, eps {epsilon:g}"
        cases.append(Case(label, problem, X, y, epsilon))
    return cases


def general(quick: bool) -> list[Case]:
    """Logistic risks without a penalty."""
    cases = []
    for n, epsilon in ((2000, 1.0),) if quick else ((5000, 1.0), (20_000, 1.0), (80_000, 1.0)):
        X, y = rows(n, 10, 10.0, 2.0, sparse=False)
        cases.append(Case(f"n {n:,}, eps {epsilon:g}", Problem(Logistic()), X, y, epsilon))
    return cases


def geometry(quick: bool) -> list[Case]:
    """Logistic risks on an L1 ball and a simplex of growing dimension; few coefficients count."""
    cases = []
    sets: dict[str, type[L1Ball | Simplex]] = {"L1 ball": L1Ball, "simplex": Simplex}
    n = 2000 if quick else 20_000
    for name, kind in sets.items():
        for d in (16,) if quick else (64, 256, 512):
            X, y = rows(n, d, 1.0, 2.0, sparse=True)
            if kind is L1Ball:
                X[:, 1::2] *= -1.0  # so that coefficients of both signs matter
            # The length of the true coefficients, about: their odds have the spread 2.
            problem = Problem(Logistic(), constraint=kind(4.0 * d**0.5))
            cases.append(Case(f"{name}, d {d}", problem, X, y, 1.0))
    return cases


def table(cases: Sequence[Case], solvers: Mapping[str, Solver], seeds: int) -> str:
    """Mean excess risk, its standard deviation, and passes over the rows."""
    lines = [
        f"| method | {' | '.join(case.label for case in cases)} |",
        "|---" + "|---:" * len(cases) + "|",
    ]
    least = [least_risk(case) for case in cases]
    zero = [f"{case.risk(start(case)) - low:.1e}" for case, low in zip(cases, least, strict=True)]
    lines.append(f"| start | {' | '.join(zero)} |")
    for name, solver in solvers.items():
        cells = [measured(case, solver, low, seeds) for case, low in zip(cases, least, strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def start(case: Case) -> NDArray[np.float64]:
    """Return the point of the set that is nearest to zero."""
    return case.problem.constraint.project(np.zeros(case.X.shape[1]))


def measured(case: Case, solver: Solver, least: float, seeds: int) -> str:
    """Run one solver with several seeds on one case."""
    spec = DataSpec(len(case.y), case.X.shape[1])
    try:
        plan = solver.plan(case.problem, ApproximateDP(case.epsilon, DELTA), spec)
    except ValueError:
        return "refused"
    data = prepare_rows(case.X, case.y, spec)
    excess = [case.risk(run(plan, data, SeededNoise(seed)).w) - least for seed in range(seeds)]
    passes = plan.method.gradient_evaluations / len(case.y)
    return f"{np.mean(excess):.1e} ± {np.std(excess, ddof=1):.0e} ({passes:.3g})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--quick", action="store_true", help="few rows")
    options = parser.parse_args(arguments)
    seeds = 2 if options.quick else SEEDS
    page = options.docs / "evidence" / "papers.md"
    tables = (
        (strongly_convex, STRONGLY_CONVEX),
        (general, GENERAL),
        (geometry, GEOMETRY),
    )
    for number, (cases, solvers) in enumerate(tables, start=1):
        put(page, f"wang2017 table {number}", table(cases(options.quick), solvers, seeds))


if __name__ == "__main__":
    main()
