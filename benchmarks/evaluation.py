"""Evaluations of generated and real scores: errors, and how often intervals cover.

Samples are drawn from many scored rows, so that both truths are known: that of a
sample, and that of all rows. Private results are compared with those of the same rows
without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import d2_absolute_error_score, roc_auc_score, roc_curve

from benchmarks.bar import Bar
from dpglm.datasets import load_adult
from dpglm.evaluation import (
    LARGEST_LOSS,
    BinaryTask,
    ClassesTask,
    RegressionTask,
    plan_evaluation,
)
from dpglm.evaluation.estimates import LOG_ODDS
from dpglm.evaluation.task import EvaluationTask
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import ApproximateDP

__all__ = [
    "DELTA",
    "EVALUATION",
    "LEVEL",
    "Line",
    "Population",
    "hard",
    "measured",
    "others",
    "populations",
    "shapes",
]

DELTA, LEVEL = 1e-5, 0.95
Array = NDArray[np.float64]
RUNS, _SIZE = 800, 200_000
BARS = {(16_000, 1.0): 0.0025, (16_000, 0.1): 0.012, (5_000, 1.0): 0.006}
"""The most that the root mean squared error of the AUC may be, by rows and epsilon."""
COVERED = (0.93, 0.97)


@dataclass(frozen=True)
class Population:
    """Many rows with predictions; samples of them are evaluated."""

    name: str
    task: EvaluationTask
    predictions: Array
    y: NDArray[Any]
    exact: Callable[[Array, NDArray[Any]], dict[str, float]]
    """Return the values that an evaluation estimates, without privacy."""

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Array, NDArray[Any]]:
        """Draw rows with replacement, so that the population is all of them."""
        rows = rng.integers(len(self.y), size=n_rows)
        return self.predictions[rows], self.y[rows]


def populations() -> Iterator[Population]:
    """Return Adult, scored by a logistic regression of other rows, and generated scores."""
    adult = load_adult()
    X = SchemaEncoder(adult.schema).fit_transform(adult.data)
    y = (adult.target == ">50K").astype(np.int64)
    half, rest = adult.train[::2], adult.train[1::2]
    model = LogisticRegression(max_iter=500).fit(X[half], y[half])
    two = BinaryTask((0, 1))
    yield Population("Adult", two, model.predict_proba(X[rest])[:, 1], y[rest], _of_two)
    rng = np.random.default_rng(0)
    for name, middle, spread in (("rare", -3.5, 1.3), ("weak", 0.0, 0.4), ("strong", 0.0, 4.0)):
        scores = expit(middle + spread * rng.normal(size=_SIZE))
        drawn = (rng.uniform(size=_SIZE) < scores).astype(np.int64)
        yield Population(name, two, scores, drawn, _of_two)


def shapes() -> Iterator[Population]:
    """Return scores of every scale and shape, so that only their order is informative.

    The class of most follows a log-odds score; others have their own.
    """
    rng = np.random.default_rng(2)
    z = rng.normal(size=_SIZE)
    u = rng.uniform(size=_SIZE)
    ranks = np.argsort(np.argsort(z)) / _SIZE
    usual = (u < expit(1.5 * z - 0.5)).astype(np.int64)
    probabilities = {
        "log odds times 10": expit(10.0 * z),
        "log odds times 30": expit(30.0 * z),
        "log odds less 15": expit(z - 15.0),
        "log odds by 100": expit(z / 100.0),
        "expit(3z - 8)": expit(3.0 * z - 8.0),
        "all within 1e-6": 0.3 + 1e-7 * z,
        "all within 1e-9": 0.3 + 1e-10 * z,
        "two clusters": np.where(z > 0.0, 0.7, 0.3) + 1e-9 * z,
        "6 scores": (np.floor(6.0 * expit(z)) + 0.37) / 7.1,
        "30 scores": (np.floor(30.0 * expit(z)) + 0.37) / 31.1,
        "two decimals": np.round(expit(1.5 * z), 2),
        "0 or 1": (z > 0.0) * 1.0,
        "half of them 0": np.where(z < 0.0, 0.0, expit(z)),
        "a third of them 0.5": np.where(np.abs(z) < 0.43, 0.5, expit(z)),
        "naive Bayes": expit(8.0 * np.sign(z) * np.abs(z) ** 3),
        "ranks to the 8": ranks**8,
        "reversed": expit(-1.5 * z),
        "one score": np.full(_SIZE, 0.2),
    }
    for name, scores in probabilities.items():
        yield Population(name, BinaryTask((0, 1)), scores, usual, _area_of_two)
    values = {
        "margins": 1.5 * z,
        "margins by 1e7": 1e-7 * z,
        "margins times 1e4": 1e4 * z + 300.0,
        "heavy tails": np.sign(z) * np.expm1(z**2),
        "points": np.round(600.0 + 60.0 * z),
    }
    for name, scores in values.items():
        task = BinaryTask((0, 1), probabilities=False)
        yield Population(name, task, scores, usual, _area_of_two)
    waves = (u < expit(2.0 * np.sin(2.0 * z))).astype(np.int64)
    yield Population("not monotone", BinaryTask((0, 1)), expit(z), waves, _area_of_two)


def hard() -> Iterator[Population]:
    """Return scores whose calibration and gaps small budgets resolve least."""
    rng = np.random.default_rng(3)
    for name, middle, spread, slope in (
        ("weak", 0.0, 0.4, 1.0),
        ("underconfident", -0.5, 0.7, 2.0),
        ("overconfident", 0.0, 2.5, 0.5),
        ("2 % positive", -4.6, 1.2, 1.0),
    ):
        odds = middle + spread * rng.normal(size=_SIZE)
        drawn = (rng.uniform(size=_SIZE) < expit(slope * odds)).astype(np.int64)
        yield Population(name, BinaryTask((0, 1)), expit(odds), drawn, _tested_of_two)


def _tested_of_two(scores: Array, y: NDArray[Any]) -> dict[str, float]:
    """Return the metrics whose intervals are inverted tests."""
    false, true, _ = roc_curve(y, scores)
    selected = (1.0 - y.mean()) * false + y.mean() * true
    lift = 10.0 * float(np.interp(0.1, selected, true))
    return {"ks": float((true - false).max()), "lift": lift, **_calibration(scores, y)}


def _area_of_two(scores: Array, y: NDArray[Any]) -> dict[str, float]:
    return {"auc": float(roc_auc_score(y, scores))}


def others() -> Iterator[Population]:
    """Return generated probabilities of four classes, and predictions of numbers."""
    rng = np.random.default_rng(1)
    weights = np.exp(1.5 * rng.normal(size=(_SIZE, 4)) + np.array([1.0, 0.0, 0.0, -1.0]))
    shares = weights / weights.sum(axis=1, keepdims=True)
    drawn = (shares.cumsum(axis=1) > rng.uniform(size=(_SIZE, 1))).argmax(axis=1)
    yield Population("four classes", ClassesTask(range(4)), shares, drawn, _of_four)
    middle = rng.normal(2.0, 0.7, _SIZE)
    for name, errors in (
        ("numbers", rng.normal(0.0, 0.5, _SIZE)),
        ("heavy tails", 0.3 * rng.standard_t(3, _SIZE)),
    ):
        y = np.clip(middle + errors, 0.0, 5.0)
        yield Population(name, RegressionTask(0.0, 5.0), np.clip(middle, 0.0, 5.0), y, _of_numbers)


def _of_two(scores: Array, y: NDArray[Any]) -> dict[str, float]:
    right = np.where(y == 1, scores, 1.0 - scores)
    return {
        "auc": float(roc_auc_score(y, scores)),
        "accuracy": float(((scores >= 0.5) == y).mean()),
        "log_loss": float(np.minimum(-np.log(right), LARGEST_LOSS).mean()),
        "brier": float(((1.0 - right) ** 2).mean()),
        "mean_prediction": float(scores.mean()),
        **_calibration(scores, y),
    }


def _calibration(scores: Array, y: NDArray[Any]) -> dict[str, float]:
    """Fit intercept and slope of the class on the log odds, with no penalty."""
    odds = np.clip(logit(scores), -LOG_ODDS, LOG_ODDS)
    a = 0.0
    for _ in range(30):
        means = expit(odds + a)
        a += float((y - means).sum() / (means * (1.0 - means)).sum())
    fitted = np.zeros(2)
    design = np.stack([np.ones_like(odds), odds])
    for _ in range(30):
        means = expit(fitted @ design)
        information = design * (means * (1.0 - means)) @ design.T
        least = 1e-9 * len(y) * np.eye(2)
        fitted = fitted + np.linalg.solve(information + least, design @ (y - means))
    return {"calibration_intercept": a, "calibration_slope": float(fitted[1])}


def _of_four(shares: Array, y: NDArray[Any]) -> dict[str, float]:
    right = shares[np.arange(len(y)), y]
    return {
        "auc": float(np.mean([roc_auc_score(y == k, shares[:, k]) for k in range(4)])),
        "accuracy": float((shares.argmax(axis=1) == y).mean()),
        "log_loss": float(np.minimum(-np.log(right), LARGEST_LOSS).mean()),
        "brier": float(((shares - np.eye(4)[y]) ** 2).sum(axis=1).mean()),
    }


def _of_numbers(predictions: Array, y: NDArray[Any]) -> dict[str, float]:
    residuals = y - predictions
    return {
        "r2": float(1.0 - (residuals**2).mean() / y.var()),
        "mse": float((residuals**2).mean()),
        "mae": float(np.abs(residuals).mean()),
        "d2": float(d2_absolute_error_score(y, predictions)),
        "bias": float(residuals.mean()),
    }


@dataclass(frozen=True)
class Line:
    """Errors and coverages of every measure, over samples."""

    rmse: dict[str, float]
    covered: dict[str, float]
    covered_rows: dict[str, float]
    endless: dict[str, float]  # Shares of population intervals without an end.
    covered_if_finite: dict[str, float]  # Coverage of the other population intervals, or NaN.


def measured(population: Population, n_rows: int, epsilon: float, runs: int) -> Line:
    """Evaluate samples of a population."""
    plan = plan_evaluation(population.task, n_rows, ApproximateDP(epsilon, DELTA), level=LEVEL)
    rng = np.random.default_rng(1)
    truth = population.exact(population.predictions, population.y)
    errors, hits, hits_rows, endless = [], [], [], []
    for _ in range(runs):
        predictions, y = population.sample(n_rows, rng)
        found, of_rows = plan.run(y, predictions), population.exact(predictions, y)
        numbers = {name: found.number(name) for name in truth}
        errors.append([numbers[name].estimate - of_rows[name] for name in truth])
        endless.append(
            [
                math.inf in (one.population_high, -(one.population_low or 0.0))
                for one in numbers.values()
            ]
        )
        hits_rows.append([one.low <= of_rows[name] <= one.high for name, one in numbers.items()])
        hits.append(
            [
                (one.population_low or 0.0) <= truth[name] <= (one.population_high or 0.0)
                for name, one in numbers.items()
            ]
        )

    def named(values: Array) -> dict[str, float]:
        return dict(zip(truth, values.tolist(), strict=True))

    rmse = np.sqrt(np.mean(np.square(errors), axis=0))
    shares = (named(np.mean(one, axis=0)) for one in (hits, hits_rows, endless))
    finite = ~np.array(endless)
    with np.errstate(invalid="ignore"):
        if_finite = (finite & hits).sum(axis=0) / finite.sum(axis=0)
    return Line(named(rmse), *shares, named(if_finite))


def _bars(_: Path) -> Iterator[Bar]:
    covered: dict[str, list[float]] = {"the population": [], "the rows": []}
    for population in populations():
        lines = {key: measured(population, *key, RUNS) for key in BARS}
        if population.name == "Adult":
            for (n_rows, epsilon), bar in BARS.items():
                error = lines[n_rows, epsilon].rmse["auc"]
                name = f"error of the AUC of {n_rows} rows of Adult, epsilon {epsilon:g}"
                yield Bar(name, error, error / math.sqrt(2 * RUNS), bar, at_least=False, unit="")
        for measure in next(iter(lines.values())).rmse:
            for kind, found in zip(
                covered,
                (
                    [line.covered[measure] for line in lines.values()],
                    [line.covered_rows[measure] for line in lines.values()],
                ),
                strict=True,
            ):
                covered[kind].append(float(np.mean(found)))
    spread = math.sqrt(LEVEL * (1.0 - LEVEL) / (RUNS * len(BARS)))
    for kind, shares in covered.items():
        name = f"coverage of {LEVEL:g} intervals for {kind}, of {len(shares)} scores and measures"
        yield Bar(f"{name}, least", min(shares), spread, COVERED[0], at_least=True, unit="")
        yield Bar(f"{name}, most", max(shares), spread, COVERED[1], at_least=False, unit="")


EVALUATION: Mapping[str, Any] = MappingProxyType({"evaluation": _bars})
