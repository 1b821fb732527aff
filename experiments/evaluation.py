"""Errors and coverage of private evaluations, over Adult and generated rows: tables for the docs.

Run with ``make evaluation``, or ``python -m experiments.evaluation [--runs N]``. It rewrites the
tables in ``docs/evidence/coverage.md``; ``--shapes`` only that of scores of every scale, and
``--tested`` only that of intervals that are inverted tests.
``--develop`` prints the error for several numbers of cells instead, on training rows of Adult and
generated ones; the rule was chosen from these.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from unittest import mock

from benchmarks.evaluation import (
    DELTA,
    LEVEL,
    Population,
    hard,
    measured,
    others,
    populations,
    shapes,
)
from dpglm.evaluation.estimates import n_cells_for
from dpglm.privacy import ApproximateDP
from experiments.measured import DOCS, put

PAGE = DOCS / "evidence" / "coverage.md"
SETTINGS = ((16_000, 0.1), (16_000, 0.5), (16_000, 1.0), (16_000, 4.0), (5_000, 1.0), (1_000, 1.0))
SHAPED = ((16_000, 1.0), (4_000, 0.3))
TESTED = ((1_000, 0.3), (4_000, 0.1), (2_000, 1.0), (20_000, 1.0))
FEWER = ((16_000, 0.1), (16_000, 1.0), (5_000, 1.0))
WORDS = {
    "auc": "AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "r2": "R2",
    "mean_prediction": "mean prediction",
    "calibration_intercept": "calibration intercept",
    "calibration_slope": "calibration slope",
}


def develop(runs: int) -> None:
    """Print the root mean squared error of the AUC for several numbers of cells."""
    for population in populations():
        for n_rows, epsilon in ((16_000, 1.0), (16_000, 0.1), (5_000, 1.0), (16_000, 4.0)):
            said = [f"{population.name:8}{n_rows:7d}{epsilon:6g}"]
            for cells in (4, 6, 8, 12, 16, 24):
                with mock.patch("dpglm.evaluation.binary.n_cells_for", return_value=cells):
                    error = measured(population, n_rows, epsilon, runs).rmse["auc"]
                said.append(f"{cells}: {error:.4f}")
            mu = ApproximateDP(epsilon, DELTA).gdp_mu()
            print("  ".join(said), f"(rule: {n_cells_for(n_rows, mu)})", flush=True)


def tables(
    every: Iterable[Population], settings: Sequence[tuple[int, float]], runs: int
) -> tuple[str, str]:
    """Measure populations of one task; return a table of errors, and one of coverages."""
    errors: list[str] = []
    covered: list[str] = []
    for population in every:
        for n_rows, epsilon in settings:
            line = measured(population, n_rows, epsilon, runs)
            if not errors:
                names = [WORDS.get(name, name) for name in line.rmse]
                heads = "| " + " | ".join(["predictions", "rows", "epsilon", *names]) + " |"
                errors, covered = ([heads, "|---" * (3 + len(names)) + "|"] for _ in range(2))
            head = f"| {population.name} | {n_rows:,} | {epsilon:g} | "
            errors.append(head + " | ".join(f"{one:.4f}" for one in line.rmse.values()) + " |")
            pairs = zip(line.covered.values(), line.covered_rows.values(), strict=True)
            covered.append(head + " | ".join(f"{a:.3f} / {b:.3f}" for a, b in pairs) + " |")
            print(errors[-1], covered[-1], sep="\n", flush=True)
    return "\n".join(errors), "\n".join(covered)


def write_shapes(runs: int) -> None:
    """Write the table of AUCs of scores of every scale."""
    lines = ["| scores | rows | epsilon | error | population | rows |", "|---" * 6 + "|"]
    for population in shapes():
        for n_rows, epsilon in SHAPED:
            line = measured(population, n_rows, epsilon, runs)
            numbers = f"{line.covered['auc']:.2f} | {line.covered_rows['auc']:.2f}"
            head = f"| {population.name} | {n_rows:,} | {epsilon:g} | "
            lines.append(f"{head}{line.rmse['auc']:.4f} | {numbers} |")
            print(lines[-1], flush=True)
    put(PAGE, "evaluation shapes", "\n".join(lines) + f"\n\n{runs} samples.")


def write_tested(runs: int) -> None:
    """Write the table of intervals that are inverted tests."""
    names = ("ks", "lift", "calibration_intercept", "calibration_slope")
    heads = [
        "scores",
        "rows",
        "epsilon",
        "KS distance",
        "lift",
        "intercept",
        "slope",
        "no end",
        "if finite",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for population in hard():
        for n_rows, epsilon in TESTED:
            line = measured(population, n_rows, epsilon, runs)
            pairs = (f"{line.covered[one]:.2f} / {line.covered_rows[one]:.2f}" for one in names)
            head = f"| {population.name} | {n_rows:,} | {epsilon:g} | "
            slope = line.endless["calibration_slope"], line.covered_if_finite["calibration_slope"]
            known = "" if math.isnan(slope[1]) else f"{slope[1]:.2f}"
            lines.append(f"{head}{' | '.join(pairs)} | {slope[0]:.2f} | {known} |")
            print(lines[-1], flush=True)
    put(PAGE, "evaluation tested", "\n".join(lines) + f"\n\n{runs} samples.")


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--develop", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--tested", action="store_true")
    arguments = parser.parse_args()
    if arguments.tested:
        write_tested(arguments.runs)
        return
    if arguments.shapes:
        write_shapes(arguments.runs)
        return
    if arguments.develop:
        develop(arguments.runs)
        return
    classes, *numbers = others()
    parts = [
        tables(populations(), SETTINGS, arguments.runs),
        tables([classes], FEWER, arguments.runs),
        tables(numbers, FEWER, arguments.runs),
    ]
    for place, name in enumerate(("errors", "coverage")):
        put(PAGE, f"evaluation {name}", "\n\n".join(part[place] for part in parts))
    write_shapes(arguments.runs)
    write_tested(arguments.runs)
    standard = math.sqrt(LEVEL * (1.0 - LEVEL) / arguments.runs)
    runs = f"{arguments.runs} samples; standard error of a coverage {standard:.3f}."
    put(PAGE, "evaluation runs", runs)


if __name__ == "__main__":
    main()
