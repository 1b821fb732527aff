"""Rates of theorems for which the papers print no measurement, each as one fitted slope.

``python -m experiments.theorem_rates`` writes the table of ``docs/evidence/papers.md``. Upper
bounds are over the worst data: on the rows generated here errors may fall faster than a theorem
says, or grow more slowly, and the verdict says only whether they do at least as well.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import (
    Arora2022GridSearch,
    Arora2022Lipschitz,
    Arora2022OutputPerturbation,
    Arora2022Smooth,
    Song2021,
    Song2021NonConvex,
    Wang2017MirrorDescent,
    Wang2017NonConvex,
    Wang2017PolyakLojasiewicz,
    Wang2017SVRG,
    Wang2017SVRGPlusPlus,
    dpsgd_f_theoretical,
)
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L2,
    ClippedLoss,
    L1Ball,
    L2Ball,
    Logistic,
    Problem,
    Savage,
    SmoothedHinge,
)
from dpglm.solvers import JohnsonLindenstrauss, Solver, run
from experiments import song2021_rates
from experiments.curves import Curve
from experiments.measured import DOCS, put
from experiments.wang2017_tables import Case, least_risk

__all__ = ["RATES", "Rate", "main", "verdict"]

BUDGET = ApproximateDP(1.0, 1e-6)
SIZES = (2000, 4000, 8000, 16_000, 32_000)


@dataclass(frozen=True)
class Rate:
    """A theorem, its growing size, its largest slope, and the measured error."""

    theorem: str
    subject: str
    against: str
    sizes: tuple[int, ...]
    slope: float
    error: Callable[[int, int], float]
    """Error as a function of a size and a seed."""

    def measure(self, seeds: int, sizes: int) -> Curve:
        """Measure the error at the first ``sizes`` sizes."""
        chosen = self.sizes[:sizes]
        values = [[self.error(size, seed) for seed in range(seeds)] for size in chosen]
        return Curve(self.theorem, np.array(chosen, dtype=float), np.array(values))


def logistic_rows(n: int, d: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of norm 1 with variances that fall by 100, and labels with a slope of 4 in all."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** -np.linspace(0.0, 1.0, d)
    X = rng.choice([-1.0, 1.0], (n, d)) * scale / np.linalg.norm(scale)
    odds = 4.0 * X @ (np.ones(d) / d**0.5)
    return X, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-odds)), 1.0, -1.0)


def fitted(
    solver: Solver,
    problem: Problem,
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    seed: int,
    **spec: float,
) -> NDArray[np.float64]:
    """Fit privately with seeded noise."""
    data = DataSpec(*X.shape, **spec)  # type: ignore[arg-type]
    return run(solver.plan(problem, BUDGET, data), prepare_rows(X, y, data), SeededNoise(seed)).w


def excess(solver: Solver, problem: Problem, n: int, d: int, seed: int) -> float:
    """Empirical risk above the least one."""
    X, y = logistic_rows(n, d, seed)
    case = Case("", problem, X, y, BUDGET.epsilon)
    return case.risk(fitted(solver, problem, X, y, seed)) - least_risk(case)


def public_excess(n: int, seed: int) -> float:
    """Risk on fresh rows above the least one in a ball, at a budget that leaves no noise."""
    data = DataSpec(n, 10)
    plan = Arora2022Smooth(n_steps=n).plan(IN_BALL, ApproximateDP(1e6, 1e-6), data)
    w = run(plan, prepare_rows(*logistic_rows(n, 10, seed), data), SeededNoise(seed)).w
    fresh = Case("", IN_BALL, *logistic_rows(200_000, 10, 10_000 + seed), 0.0)
    return fresh.risk(w) - least_risk(fresh)


def gradient_norm(solver: Solver, n: int, rank: int, seed: int) -> float:
    """Norm of the mean gradient of the Savage loss, on rows of ``rank`` in 64 columns."""
    X, y = logistic_rows(n, rank, seed)
    X = np.hstack([X, np.zeros((n, 64 - rank))])
    w = fitted(solver, Problem(Savage()), X, y, seed)
    return float(np.linalg.norm(X.T @ Savage().slope(X @ w, y) / n))


def population_excess(n: int, seed: int) -> float:
    """Risk on fresh rows of song2021's setting, T = n²; the least one is zero."""
    X, y = song2021_rates.sample(n, 8, 16, seed)
    bound = song2021_rates.NORM * 8**0.5
    spec = DataSpec(n, 16, sparse=True, target_low=-bound, target_high=bound)
    problem = Problem(song2021_rates.LOSS)
    solver = Song2021(rank=8, norm=song2021_rates.NORM, population=True, n_steps=n * n)
    plan = solver.plan(problem, BUDGET, spec)
    w = run(plan, prepare_rows(X, y, spec), SeededNoise(seed)).w
    fresh, targets = song2021_rates.sample(20_000, 8, 16, 10_000 + seed)
    return float(song2021_rates.LOSS.value(fresh @ w, targets).mean())


def clipped_excess(dimension: int, seed: int) -> float:
    """Excess clipped loss at a clip of a tenth of the slope bound, rank 8."""
    n, clip = 4000, 0.1
    X, y = logistic_rows(n, 8, seed)
    loss = ClippedLoss(Logistic(), clip)
    case = Case("", Problem(loss), X, y, BUDGET.epsilon)
    padded = np.hstack([X, np.zeros((n, dimension - 8))])
    w = fitted(Song2021(rank=8, clip=clip), Problem(Logistic()), padded, y, seed)
    return case.risk(w[:8]) - least_risk(case)


def shifted_excess(distance: int, seed: int) -> float:
    """Excess risk of DPSGD-F's theoretical form where all rows lie far from zero."""
    n = 4000
    X, y = logistic_rows(n, 4, seed)
    moved = X + distance * np.eye(4)[0]
    norm = 1.0 + float(distance)
    w = fitted(
        dpsgd_f_theoretical(), Problem(Logistic()), moved, y, seed, row_norm=norm, intercept=norm
    )
    case = Case("", Problem(Logistic()), np.column_stack([X, np.ones(n)]), y, BUDGET.epsilon)
    here = np.append(w[:-1], w[-1] * norm + distance * w[0])
    return case.risk(here) - least_risk(case)


def hinge_excess(n: int, seed: int) -> float:
    """Excess risk of output perturbation on a smoothed hinge, 200 columns, on a ball."""
    problem = Problem(SmoothedHinge(4.0 / n**0.5), constraint=L2Ball(4.0))
    return excess(Arora2022OutputPerturbation(lipschitz=True), problem, n, 200, seed)


PL = Problem(Logistic(), L2(0.01))
BALL = Problem(Logistic(), constraint=L1Ball(4.0))
IN_BALL = Problem(Logistic(), constraint=L2Ball(2.0))
RATES = (
    Rate(
        "song2021, Theorem 3.2",
        "population risk",
        "n",
        (50, 100, 200, 400),
        -0.5,
        population_excess,
    ),
    Rate(
        "song2021, Theorem 4.1, corrected",
        "gradient norm of the chosen iterate, Savage loss",
        "n",
        (500, 1000, 2000, 4000, 8000),
        -0.5,
        lambda n, seed: gradient_norm(Song2021NonConvex(rank=8), n, 8, seed),
    ),
    Rate(
        "song2021, Theorem 4.1, corrected",
        "the same at n = 4000",
        "rank",
        (4, 8, 16, 32, 64),
        0.25,
        lambda rank, seed: gradient_norm(Song2021NonConvex(rank=rank), 4000, rank, seed),
    ),
    Rate(
        "song2021, Corollary 5.2",
        "clipped loss, rank 8",
        "columns",
        (8, 32, 128, 512),
        0.0,
        clipped_excess,
    ),
    Rate(
        "arora2022, Corollary 1",
        "population risk of gradient descent without noise, T = n",
        "n",
        (250, 500, 1000, 2000, 4000),
        -0.5,
        public_excess,
    ),
    Rate("arora2022, Theorem 5", "risk of output perturbation", "n", SIZES, -0.5, hinge_excess),
    Rate(
        "arora2022, Appendix B",
        "risk of the Johnson-Lindenstrauss method, Lipschitz",
        "n",
        SIZES,
        -0.5,
        lambda n, seed: excess(
            JohnsonLindenstrauss(gradient_descent=Arora2022Lipschitz()), IN_BALL, n, 10, seed
        ),
    ),
    Rate(
        "arora2022, Theorem 7",
        "risk of the grid over noisy GD on balls",
        "n",
        SIZES[:4],
        -0.5,
        lambda n, seed: excess(
            Arora2022GridSearch(Arora2022Smooth()), Problem(Logistic()), n, 10, seed
        ),
    ),
    Rate(
        "arora2022, Theorem 8",
        "risk of the grid over boosted output perturbation",
        "n",
        SIZES,
        -0.5,
        lambda n, seed: excess(Arora2022GridSearch(), Problem(Logistic()), n, 10, seed),
    ),
    Rate(
        "wang2017, Theorem 4.2",
        "risk of SVRG, ridge 0.01",
        "n",
        SIZES,
        -2.0,
        lambda n, seed: excess(Wang2017SVRG(), PL, n, 10, seed),
    ),
    Rate(
        "wang2017, Theorem 4.4",
        "risk of SVRG++",
        "n",
        SIZES,
        -1.0,
        lambda n, seed: excess(Wang2017SVRGPlusPlus(), Problem(Logistic()), n, 10, seed),
    ),
    Rate(
        "wang2017, Theorem 5.4",
        "risk of mirror descent, L1 ball",
        "n",
        SIZES,
        -1.0,
        lambda n, seed: excess(Wang2017MirrorDescent(), BALL, n, 64, seed),
    ),
    Rate(
        "wang2017, Theorem 5.4",
        "the same at n = 8000",
        "columns",
        (16, 64, 256),
        0.5,
        lambda d, seed: excess(Wang2017MirrorDescent(), BALL, 8000, d, seed),
    ),
    Rate(
        "wang2017, Theorem 6.2",
        "risk of noisy GD, ridge 0.01",
        "n",
        SIZES,
        -2.0,
        lambda n, seed: excess(Wang2017PolyakLojasiewicz(), PL, n, 10, seed),
    ),
    Rate(
        "wang2017, Theorem 6.3",
        "squared gradient norm, Savage loss",
        "n",
        SIZES,
        -1.0,
        lambda n, seed: gradient_norm(Wang2017NonConvex(), n, 8, seed) ** 2,
    ),
    Rate(
        "sun2023, Theorem 1",
        "risk of DPSGD-F, theoretical form, rows moved from zero",
        "distance",
        (4, 16, 64, 256),
        0.0,
        shifted_excess,
    ),
)


def verdict(allowed: float, slope: float, error: float) -> str:
    """Return whether a measured slope is at most that of a theorem, within two standard errors."""
    return "as the theorem allows" if slope <= allowed + max(2.0 * error, 0.05) else "**worse**"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--only", nargs="*", default=[""], help="words in the theorem; prints only")
    parser.add_argument("--quick", action="store_true", help="few sizes and seeds")
    options = parser.parse_args(arguments)
    seeds, sizes = (2, 2) if options.quick else (6, 5)
    lines = [
        "| theorem | error | against | slope of the theorem | measured | verdict |",
        "|---|---|---|---:|---:|---|",
    ]
    chosen = [rate for rate in RATES if any(word in rate.theorem for word in options.only)]
    for rate in chosen:
        start = time.perf_counter()
        slope, error = rate.measure(seeds, sizes).slope
        cells = [rate.theorem, rate.subject, rate.against, f"at most {rate.slope:g}"]
        cells += [f"{slope:.2f} ± {error:.2f}", verdict(rate.slope, slope, error)]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], f"{time.perf_counter() - start:.0f} s", flush=True)
    if len(chosen) == len(RATES):
        put(options.docs / "evidence" / "papers.md", "rates", "\n".join(lines))


if __name__ == "__main__":
    main()
