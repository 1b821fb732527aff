"""Coverage of population coefficients from survey samples: ``python -m experiments.survey``.

Prints tables of the coverage and mean length of private robust 95 % intervals. Lengths are over
those of the weighted sandwich intervals without privacy.

``weights``: people answer with probabilities that depend on the outcome. The first line ignores the
weights. ``clusters``: the same, with an error that a household of three shares and households as
groups; lengths are over the cluster-robust ones. ``strata``: samples of real tables by stratum,
with allocations in proportion to the stratum's size, its root, or equal. The gain is the largest
reduction of length by strata, without privacy, and of a private interval if scores by stratum were
free.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpglm import LinearRegression
from dpglm.datasets import load_adult, load_california_housing

__all__ = ["main", "one", "people", "population", "sample", "stratified"]

SLOPES = np.array([0.5, -0.3, 0.0])
REACH, Z, N_PER_ANSWER, HOUSEHOLD = 8.0, 1.96, 5, 3


@dataclass(frozen=True)
class Design:
    """How probabilities of answering depend on the outcome, and what a fit declares."""

    weight_bound: float | None
    n_rows: int = 20_000
    epsilon: float = 1.0
    rate: float = 0.4
    least: float = 0.3  # The least relative probability.
    clusters: bool = False


DESIGNS = [
    Design(None),
    *(Design(bound) for bound in (5.0, 4.0, 3.0, 2.0)),
    Design(15.0, least=0.1),
    Design(30.0, rate=0.6, least=0.05),
    Design(5.0, n_rows=5_000),
    Design(5.0, epsilon=0.3),
]


def people(n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return features and outcomes of the population; the linear model is not right."""
    X = rng.normal(size=(n_rows, 3)).clip(-3.0, 3.0)
    y = X @ SLOPES + 0.5 * (X[:, 0] ** 2 - 1.0) + rng.normal(size=n_rows)
    return X, y.clip(-REACH, REACH)


def sample(design: Design, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return those who answer: features, outcomes and weights with a public scale, mean about 1."""
    rng = np.random.default_rng(seed)
    X, y = people(N_PER_ANSWER * design.n_rows, rng)
    chance = np.exp(design.rate * (y + X[:, 0])).clip(design.least, 3.0)
    chance = (chance * design.n_rows / chance.sum()).clip(0.0, 1.0)
    there = rng.random(len(y)) < chance
    return X[there], y[there], 1.0 / (N_PER_ANSWER * chance[there])


def households(design: Design, seed: int) -> tuple[np.ndarray, ...]:
    """Return households that answer together, with an effect that their members share."""
    rng, size = np.random.default_rng(seed), HOUSEHOLD
    shared = rng.normal(size=(N_PER_ANSWER * design.n_rows // size, 1))
    X = 0.7 * shared[:, :, None] + 0.7 * rng.normal(size=(len(shared), size, 3))
    X = X.clip(-3.0, 3.0)
    y = X @ SLOPES + rng.normal(size=(len(shared), 1)) + rng.normal(size=X.shape[:2])
    y = y.clip(-REACH, REACH)
    chance = np.exp(design.rate * X.mean(axis=(1, 2))).clip(design.least, 3.0)
    chance = (chance * len(shared) / N_PER_ANSWER / chance.sum()).clip(0.0, 1.0)
    there = rng.random(len(y)) < chance
    weights = 1.0 / (N_PER_ANSWER * chance[there])
    ids = np.repeat(np.arange(there.sum()), size)
    return X[there].reshape(-1, 3), y[there].ravel(), weights.repeat(size), ids


@functools.cache
def population() -> np.ndarray:
    """Return intercept and slopes of least squares in a population of two millions."""
    X, y = people(2_000_000, np.random.default_rng(99))
    return least_squares(X, y, np.ones(len(y)))[1]


def least_squares(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the inverse of the weighted moments, the coefficients, and the rows' scores."""
    rows = np.column_stack([np.ones(len(y)), X])
    bread = np.linalg.inv((rows * w[:, None]).T @ rows)
    found = bread @ (rows.T @ (w * y))
    return bread, found, rows * (w * (y - rows @ found))[:, None]


def sandwich(bread: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return standard errors without privacy."""
    return np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))


def sums_by(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the sums of scores in each group of rows."""
    return np.stack([np.bincount(ids, column) for column in scores.T], axis=1)


def one(design: Design, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return errors, standard errors, and those without privacy."""
    ids, truth, groups = None, population(), {}
    if design.clusters:
        X, y, w, ids = households(design, seed)
        truth = np.append(0.0, SLOPES)
        groups = {"max_rows_per_group": HOUSEHOLD}
    else:
        X, y, w = sample(design, seed)
    model = LinearRegression(
        feature_bounds=(-3, 3),
        target_bounds=(-REACH, REACH),
        inference="robust",
        weight_bound=design.weight_bound or 1.0,
        epsilon=design.epsilon,
        random_state=seed,
        **groups,
    )
    weights = None if design.weight_bound is None else w
    found = model.fit(X, y, sample_weight=weights, groups=ids).inference_
    bread, _, scores = least_squares(X, y, w)
    own = sandwich(bread, scores if ids is None else sums_by(ids, scores))
    return found.params - truth, found.standard_errors, own


def tables() -> dict[str, tuple[Any, ...]]:
    """Return for each real table its features, target, strata, and their bounds."""
    adult, homes = load_adult().data, load_california_housing()
    married = adult["marital-status"] == "Married-civ-spouse"
    people = [adult["age"], adult["education-num"], adult["sex"] == "Male", married]
    degrees = np.floor(homes.data[:, 6:8])
    return {
        "Adult by occupation": (
            np.column_stack(people).astype(float),
            np.asarray(adult["hours-per-week"], dtype=float),
            np.asarray(adult["occupation"]),
            np.array([[17, 1, 0, 0], [90, 16, 1, 1]]),
            (1, 99),
        ),
        "California by degree": (
            homes.data[:, :2],
            homes.target,
            1000.0 * degrees[:, 0] + degrees[:, 1],
            np.array([[0, 1], [15, 52]]),
            (0, 5),
        ),
    }


def stratified(table: tuple[Any, ...], power: float, seed: int, n: int = 20_000) -> np.ndarray:
    """Return errors, standard errors and privacy noise of a private fit to a stratified sample.

    The last two lines are the standard errors without privacy, by ignoring and by using strata.
    """
    X, y, labels, bounds, ends = table
    stratum, sizes = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    kept = sizes[stratum] >= 100
    X, y, stratum = X[kept], y[kept], np.unique(stratum[kept], return_inverse=True)[1]
    truth, sizes = least_squares(X, y, np.ones(len(y)))[1], np.bincount(stratum)
    drawn = np.round(n * sizes**power / (sizes**power).sum()).astype(int)
    heavy = sizes / sizes.sum() * drawn.sum() / drawn
    rng = np.random.default_rng(seed)
    rows = [rng.choice(np.flatnonzero(stratum == k), count) for k, count in enumerate(drawn)]
    X, y, stratum = (one[np.concatenate(rows)] for one in (X, y, stratum))
    model = LinearRegression(
        feature_bounds=tuple(bounds),
        target_bounds=ends,
        inference="robust",
        weight_bound=float(np.ceil(heavy.max())),
        random_state=seed,
    )
    found = model.fit(X, y, sample_weight=heavy[stratum]).inference_
    bread, _, scores = least_squares(X, y, heavy[stratum])
    centred = scores - (sums_by(stratum, scores) / drawn[:, None])[stratum]
    noise = np.sqrt(np.diag(found.estimates.privacy))
    errors = [found.params - truth, found.standard_errors, noise]
    return np.array([*errors, sandwich(bread, scores), sandwich(bread, centred)])


def shares(error: np.ndarray, se: np.ndarray) -> str:
    """Return the coverage of each coefficient as text."""
    return ", ".join(f"{share:.2f}" for share in np.mean(np.abs(error) < Z * se, axis=0))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--table", choices=["weights", "clusters", "strata"], default="weights")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.table == "strata":
        print("| table | allocation | coverage, by coefficient | gain | gain without privacy |")
        print("|---|---|---|---|---|")
        for name, table in tables().items():
            for power, words in ((1.0, "proportional"), (0.5, "root"), (0.0, "equal")):
                found = [stratified(table, power, seed) for seed in range(options.runs)]
                error, se, noise, ignored, used = np.array(found).transpose(1, 0, 2)
                free = np.mean(np.hypot(used, noise) / np.hypot(ignored, noise), axis=0).min()
                gains = [
                    f"{100 * (1 - one):.1f} %" for one in (free, np.mean(used / ignored, 0).min())
                ]
                print(
                    f"| {name} | {words} | {shares(error, se)} | {' | '.join(gains)} |", flush=True
                )
        return
    designs = DESIGNS
    if options.table == "clusters":
        designs = [Design(bound, clusters=True) for bound in (3.0, 6.0)]
    print(
        "| `weight_bound` | rows | epsilon | largest weight | coverage, by coefficient | length |"
    )
    print("|---|---|---|---|---|---|")
    for at in designs:
        error, se, own = np.array([one(at, k) for k in range(options.runs)]).transpose(1, 0, 2)
        most = (households if at.clusters else sample)(at, 0)[2].max()
        words = f"{at.weight_bound:g}" if at.weight_bound else "weights ignored"
        line = f"| {words} | {at.n_rows:,} | {at.epsilon:g} | {most:.1f} |"
        print(f"{line} {shares(error, se)} | {np.mean(se / own):.2f} |", flush=True)


if __name__ == "__main__":
    main()
