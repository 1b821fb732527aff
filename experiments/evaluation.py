"""Accuracy and coverage of private evaluations, over generated rows and Adult: tables for the docs.

Run with ``make evaluation``, or ``python -m experiments.evaluation [--runs N]``. It rewrites the
tables in ``docs/evaluation.md``. ``--develop`` prints the error for several numbers of cells
instead, on training rows of Adult and generated ones: what the rule was chosen by.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dpglm.datasets import load_adult
from dpglm.evaluation import BinaryTask, plan_evaluation
from dpglm.evaluation.cells import n_cells_for
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import ApproximateDP
from experiments.measured import DOCS, put

PAGE = DOCS / "evaluation.md"
DELTA, LEVEL = 1e-5, 0.95
MEASURES = ("auc", "accuracy", "log_loss", "brier")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Many scored rows, of which samples are evaluated."""

    name: str
    scores: Array
    y: NDArray[np.int64]

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
        """Draw rows with replacement, so that the population is all of them."""
        rows = rng.integers(len(self.y), size=n_rows)
        return self.scores[rows], self.y[rows]


def populations() -> Iterator[Population]:
    """Return Adult, scored by a logistic regression of other rows, and generated scores."""
    adult = load_adult()
    X = SchemaEncoder(adult.schema).fit_transform(adult.data)
    y = (adult.target == ">50K").astype(np.int64)
    half = adult.train[::2]
    model = LogisticRegression(max_iter=500).fit(X[half], y[half])
    rest = adult.train[1::2]
    yield Population("Adult", model.predict_proba(X[rest])[:, 1], y[rest])
    rng = np.random.default_rng(0)
    for name, middle, spread in (("rare", -3.5, 1.3), ("weak", 0.0, 0.4), ("strong", 0.0, 4.0)):
        scores = expit(middle + spread * rng.normal(size=200_000))
        yield Population(name, scores, (rng.uniform(size=len(scores)) < scores).astype(np.int64))


def exact(scores: Array, y: NDArray[np.int64]) -> dict[str, float]:
    """Return what the evaluation estimates, without privacy."""
    right = np.where(y == 1, scores, 1.0 - scores)
    return {
        "auc": float(roc_auc_score(y, scores)),
        "accuracy": float(((scores >= 0.5) == y).mean()),
        "log_loss": float(np.minimum(-np.log(right), 8.0).mean()),
        "brier": float(((1.0 - right) ** 2).mean()),
    }


@dataclass(frozen=True)
class Line:
    """Errors and coverages of every measure, over samples."""

    rmse: dict[str, float]
    covered: dict[str, float]
    covered_rows: dict[str, float]


def measured(population: Population, n_rows: int, epsilon: float, runs: int) -> Line:
    """Evaluate samples of a population."""
    plan = plan_evaluation(BinaryTask((0, 1)), n_rows, ApproximateDP(epsilon, DELTA), level=LEVEL)
    rng = np.random.default_rng(1)
    truth = exact(population.scores, population.y)
    errors, hits, hits_rows = [], [], []
    for _ in range(runs):
        scores, y = population.sample(n_rows, rng)
        found, of_rows = plan.run(y, scores), exact(scores, y)
        numbers = {name: found.number(name) for name in MEASURES}
        errors.append([numbers[name].estimate - of_rows[name] for name in MEASURES])
        hits_rows.append([numbers[n].low <= of_rows[n] <= numbers[n].high for n in MEASURES])
        hits.append(
            [
                (numbers[n].population_low or 0.0)
                <= truth[n]
                <= (numbers[n].population_high or 0.0)
                for n in MEASURES
            ]
        )
    rmse = np.sqrt(np.mean(np.square(errors), axis=0))
    return Line(
        dict(zip(MEASURES, rmse.tolist(), strict=True)),
        dict(zip(MEASURES, np.mean(hits, axis=0).tolist(), strict=True)),
        dict(zip(MEASURES, np.mean(hits_rows, axis=0).tolist(), strict=True)),
    )


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


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--develop", action="store_true")
    arguments = parser.parse_args()
    if arguments.develop:
        develop(arguments.runs)
        return
    errors = ["| scores | rows | epsilon | " + " | ".join(_words(one) for one in MEASURES) + " |"]
    errors.append("|---" * (3 + len(MEASURES)) + "|")
    covered = list(errors)
    for population in populations():
        for n_rows, epsilon in (
            (16_000, 0.1),
            (16_000, 0.5),
            (16_000, 1.0),
            (16_000, 4.0),
            (5_000, 1.0),
            (1_000, 1.0),
        ):
            line = measured(population, n_rows, epsilon, arguments.runs)
            head = f"| {population.name} | {n_rows:,} | {epsilon:g} | "
            errors.append(head + " | ".join(f"{line.rmse[one]:.4f}" for one in MEASURES) + " |")
            pairs = (f"{line.covered[m]:.3f} / {line.covered_rows[m]:.3f}" for m in MEASURES)
            covered.append(head + " | ".join(pairs) + " |")
            print(errors[-1], covered[-1], sep="\n", flush=True)
    put(PAGE, "errors", "\n".join(errors))
    put(PAGE, "coverage", "\n".join(covered))
    standard = math.sqrt(LEVEL * (1.0 - LEVEL) / arguments.runs)
    put(PAGE, "runs", f"{arguments.runs} samples; standard error of a coverage {standard:.3f}.")


def _words(name: str) -> str:
    return {"auc": "AUC", "log_loss": "log loss", "brier": "Brier score"}.get(
        name, name.replace("_", " ")
    )


if __name__ == "__main__":
    main()
