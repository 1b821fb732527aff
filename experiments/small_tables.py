"""Intervals of small tables: dpglm's next to those of bootstraps, as a table for the docs.

``python -m experiments.small_tables`` (twenty minutes of one core) writes the table of
``docs/evidence/coverage.md``. All intervals follow from one private fit. The bootstraps simulate
that fit again, and know the law of the columns and of the errors, which favours them:

- the parametric bootstrap, at the private estimate;
- the debiased bootstrap. Wang, Chang and Awan, "Optimal debiased inference on privatized data via
  indirect estimation and parametric bootstrap", arXiv:2507.10746: the parameter whose simulated
  fits have the private estimate as their mean, with the spread that this parameter then has. Here
  the mean is a line in the parameter, from fits at scattered parameters;
- repro samples. Awan and Wang, "Simulation-based, finite-sample inference for privatized data",
  arXiv:2303.05328: the parameters for which the private estimate is within the central 95 % of
  simulated fits in all directions together, here from the same fits and lines.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
from scipy import stats

from experiments.coverage import LEVEL, PAGE, library
from experiments.families import FAMILIES, Array, Case, draw_columns, fit_plain, plain_covariance
from experiments.measured import DOCS, put

__all__ = ["bootstrapped", "cases", "debiased", "main", "one"]

STORE = DOCS / "figures" / "small_tables.json"
METHODS = "dpglm", "parametric bootstrap", "debiased bootstrap", "repro samples"
_Z = float(stats.norm.ppf(0.5 + LEVEL / 2.0))


def cases() -> list[Case]:
    """Return the lines of the table."""
    return [
        Case(family, n_rows, 5, epsilon)
        for family in ("logistic", "linear")
        for n_rows in (500, 1000, 2000, 5000)
        for epsilon in (0.5, 1.0, 4.0)
    ]


def drawn(case: Case, theta: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw rows and targets of a parameter, the intercept first."""
    family, X = FAMILIES[case.family], draw_columns(case, case.n_rows, rng)
    return X, family.drawn(family.mean(X @ theta[1:] + theta[0]), X, rng, False)


def refitted(case: Case, thetas: Array, rng: np.random.Generator) -> Array:
    """Return the private estimates of new rows of each parameter."""
    fit = library()
    seeds = rng.integers(2**31, size=len(thetas))
    return np.array(
        [
            fit(case, *drawn(case, theta, rng), int(seed))[0]
            for theta, seed in zip(thetas, seeds, strict=True)
        ]
    )


def bootstrapped(estimate: Array, fits: Array) -> Array:
    """Return intervals around the estimate."""
    t = stats.t.ppf(0.5 + LEVEL / 2.0, len(fits) - 1)
    return estimate[:, None] + t * fits.std(axis=0, ddof=1)[:, None] * np.array([-1.0, 1.0])


def debiased(estimate: Array, thetas: Array, fits: Array) -> tuple[Array, Array]:
    """Return the intervals of the debiased bootstrap and of repro samples.

    Each coordinate of ``fits`` is a line in that of ``thetas``. A coordinate whose line is level
    has no information, and its intervals no end.
    """
    middle, squares = thetas.mean(axis=0), ((thetas - thetas.mean(axis=0)) ** 2).sum(axis=0)
    slopes = ((thetas - middle) * fits).sum(axis=0) / squares
    rest, freedom = fits - fits.mean(axis=0) - slopes * (thetas - middle), len(fits) - 2
    covariance = rest.T @ rest / freedom
    deviations = np.sqrt(np.diag(covariance))
    slopes[slopes <= 2.0 * deviations / np.sqrt(squares)] = np.nan
    way = (estimate - fits.mean(axis=0)) / slopes
    centre = np.nan_to_num(middle + way)
    # The line itself has an error, which grows with the distance.
    scale = deviations / slopes * np.sqrt(1.0 + 1.0 / len(fits) + way**2 / squares)
    scale = np.nan_to_num(scale, nan=math.inf)
    far = np.sqrt(np.einsum("ij,ij->i", rest @ np.linalg.inv(covariance), rest))
    reach = np.sort(far)[min(math.ceil(LEVEL * (len(far) + 1)), len(far)) - 1]
    widths = stats.t.ppf(0.5 + LEVEL / 2.0, freedom), float(reach)
    one, joint = (
        np.column_stack([centre - width * scale, centre + width * scale]) for width in widths
    )
    return one, joint


def one(case: Case, seed: int, replicates: int) -> tuple[Array, Array]:
    """Return which intervals of (methods, coefficients) cover, and their relative lengths."""
    rng = np.random.default_rng([seed, case.n_rows, round(10 * case.epsilon)])
    X, y = drawn(case, case.truth, rng)
    estimate, own = library()(case, X, y, seed)
    family = FAMILIES[case.family]
    plain = fit_plain(family, X, y, case.truth)
    usual = 2.0 * _Z * np.sqrt(np.diag(plain_covariance(family, X, y, plain, False)))
    intervals = [own]
    if replicates:
        again = refitted(case, np.tile(estimate, (replicates, 1)), rng)
        # Twice as far around the estimate as it varies.
        thetas = estimate + 2.0 * (again - again.mean(axis=0))
        fits = refitted(case, thetas, rng)
        intervals += [bootstrapped(estimate, again), *debiased(estimate, thetas, fits)]
    ends = np.array(intervals)
    covered = (ends[..., 0] <= case.truth) & (case.truth <= ends[..., 1])
    return covered, (ends[..., 1] - ends[..., 0]) / usual


def measure(case: Case, runs: int, some: int, replicates: int) -> dict[str, Any]:
    """Return coverage, and median length, of each method; ``some`` of the runs have all."""
    found = [one(case, seed, replicates if seed < some else 0) for seed in range(runs)]
    result: dict[str, Any] = {}
    for k, name in enumerate(METHODS):
        mine = [(covered[k], length[k]) for covered, length in found if k < len(covered)]
        covered, length = np.array(mine).transpose(1, 0, 2)
        result[name] = [float(covered.mean()), float(np.median(length))]
    return result


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60, help="runs of dpglm alone")
    parser.add_argument("--bootstrapped", type=int, default=6, help="runs of all methods")
    parser.add_argument("--replicates", type=int, default=30)
    given = parser.parse_args()
    store: dict[str, Any] = json.loads(STORE.read_text()) if STORE.exists() else {}
    lines = [f"| family | rows | epsilon | {' | '.join(METHODS)} |", "|---" * 7 + "|"]
    for case in cases():
        name = f"{case.family} | {case.n_rows:,} | {case.epsilon:g}"
        if name not in store:
            store[name] = measure(case, given.runs, given.bootstrapped, given.replicates)
            STORE.write_text(json.dumps(store))
        cells = (f"{share:.3f} / {length:.2f}" for share, length in store[name].values())
        print(line := f"| {name} | {' | '.join(cells)} |", flush=True)
        lines.append(line)
    put(PAGE, "small tables", "\n".join(lines))


if __name__ == "__main__":
    main()
