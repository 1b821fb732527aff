"""Errors and coverage of private descriptions, over samples of Adult and of generated rows.

Run with ``make exploration``, or ``python -m experiments.exploration [--runs N]``. It rewrites the
measured sections of ``docs/evidence/coverage.md``. Each run draws a sample from a large table, the
population, and describes it: intervals for "this table" are held against the sample, those for the
population against the large table.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.datasets import load_adult
from dpglm.exploration import plan_description
from dpglm.exploration.description import Description
from dpglm.privacy import ApproximateDP
from dpglm.tables.described import CountedColumn
from dpglm.tables.schema import Schema
from dpglm.tabulate import Number
from experiments.measured import DOCS, put

PAGE = DOCS / "evidence" / "coverage.md"
LEVEL, DELTA = 0.95, 1e-6
SETTINGS = ((5_000, 0.1), (5_000, 1.0), (20_000, 0.1), (20_000, 1.0))
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_OFTEN = 0.01
SHARE, RARE, JOINT = "shares", "shares below 1 %", "shares of pairs"
MEAN, SPREAD, QUANTILE = "means", "standard deviations", "quantiles"
CORRELATION = "correlations"
KINDS = (SHARE, JOINT, RARE, MEAN, SPREAD, QUANTILE, CORRELATION)

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Population:
    """A large table, the public facts about it, and the measured pairs of columns."""

    name: str
    schema: Schema
    table: Columns
    two_way: tuple[str, str]

    def sample(self, n_rows: int, rng: np.random.Generator) -> Columns:
        """Draw rows independently."""
        size = len(next(iter(self.table.values())))
        rows = rng.integers(0, size, n_rows)
        return {name: cells[rows] for name, cells in self.table.items()}


def adult() -> Population:
    """Return the rows of Adult, with some of its columns."""
    data = load_adult()
    names = ["age", "education-num", "hours-per-week", "workclass", "sex", "marital-status"]
    facts = dict(data.schema)
    facts["columns"] = {name: facts["columns"][name] for name in names}
    table = {name: np.asarray(data.data[name]) for name in names}
    return Population(
        "Adult", Schema.from_dict(facts), table | {"income": data.target}, ("sex", "income")
    )


def generated() -> Population:
    """Return rows with skewed amounts, values beyond their bounds, and a correlation of 0.6."""
    rng = np.random.default_rng(0)
    size = 200_000
    one, other = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]], size).T
    levels = np.array(list("abcdefgh"))
    facts = {
        "columns": {
            "normal": {"type": "numeric", "low": -4, "high": 4},
            "related": {"type": "numeric", "low": -3, "high": 3},
            "skewed": {"type": "numeric", "low": 0, "high": 20},
            "level": {"type": "categorical", "categories": levels.tolist()},
        },
        "target": {"name": "event", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "generated",
    }
    weights = 1.0 / np.arange(1, 9)
    table = {
        "normal": one,
        "related": other,
        "skewed": np.where(rng.uniform(size=size) < 0.3, 0.0, rng.lognormal(1.0, 0.8, size)),
        "level": rng.choice(levels, size, p=weights / weights.sum()),
        "event": np.where(rng.uniform(size=size) < 1.0 / (1.0 + np.exp(2.0 - one)), "yes", "no"),
    }
    return Population("generated", Schema.from_dict(facts), table, ("level", "event"))


def clipped(population: Population, table: Columns) -> dict[str, NDArray[np.float64]]:
    """Return the numeric columns within their bounds, and the target as 0 and 1."""
    schema = population.schema.to_dict()
    found = {
        name: table[name].astype(float).clip(fact["low"], fact["high"])
        for name, fact in schema["columns"].items()
        if fact["type"] == "numeric"
    }
    target = schema["target"]
    return found | {target["name"]: (table[target["name"]] == target["classes"][1]).astype(float)}


def codes_of(column: CountedColumn, cells: NDArray[Any]) -> NDArray[np.intp]:
    """Return which of a column's cells each row is in, from the labels and edges alone."""
    if not column.edges:
        places = {label: place for place, label in enumerate(column.labels)}
        return np.array([places[str(cell)] for cell in cells], dtype=np.intp)
    values, edges = cells.astype(float), np.asarray(column.edges)
    codes = column.bins.start + np.searchsorted(edges, values, side="right") - 1
    codes = np.minimum(codes, column.bins.stop - 1)
    if not column.whole:
        codes[values == edges[0]] = 1
    codes[values < edges[0]] = 0
    codes[values > edges[-1]] = column.bins.stop
    return codes


def truths(population: Population, table: Columns, seen: Description) -> Iterator[float]:
    """List the true numbers of a table, in the order of ``said``."""
    values = clipped(population, table)
    codes = {name: codes_of(column.column, table[name]) for name, column in seen.columns.items()}
    for name, column in seen.columns.items():
        yield from np.bincount(codes[name], minlength=len(column.labels)) / len(codes[name])
        if column.mean is not None:
            yield values[name].mean()
            yield values[name].std()
            yield from np.quantile(values[name], QUANTILES, method="inverted_cdf")
    for one, other in seen.two_way:
        shape = (len(seen[one].labels), len(seen[other].labels))
        joint = np.ravel_multi_index((codes[one], codes[other]), shape)
        yield from np.bincount(joint, minlength=math.prod(shape)) / len(joint)
    for one, other in seen.correlations:
        yield float(np.corrcoef(values[one], values[other])[0, 1])


def said(seen: Description) -> Iterator[tuple[str, str | None, Number]]:
    """List numbers with their kind, and the column with the unit of its errors."""
    for name, column in seen.columns.items():
        yield from ((SHARE, None, share) for share in column.shares)
        if column.mean is not None and column.spread is not None:
            yield MEAN, name, column.mean
            yield SPREAD, name, column.spread
            yield from ((QUANTILE, name, column.quantile(q)) for q in QUANTILES)
    for table in seen.two_way.values():
        yield from ((JOINT, None, share) for row in table.shares for share in row)
    yield from ((CORRELATION, None, found) for found in seen.correlations.values())


@dataclass
class Tally:
    """Results for one kind of numbers."""

    errors: list[float] = field(default_factory=list)
    of_table: list[bool] = field(default_factory=list)
    of_population: list[bool] = field(default_factory=list)

    @property
    def error(self) -> float:
        """The root mean squared error."""
        return math.sqrt(np.mean(np.square(self.errors)))

    @property
    def coverage(self) -> str:
        """How often intervals contained the table's value, and the population's."""
        return f"{np.mean(self.of_table):.3f} / {np.mean(self.of_population):.3f}"


def measured(population: Population, n_rows: int, epsilon: float, runs: int) -> dict[str, Tally]:
    """Describe samples; return the results for each kind of numbers."""
    plan = plan_description(
        population.schema,
        n_rows,
        ApproximateDP(epsilon, DELTA),
        two_way=[population.two_way],
        correlations=True,
        level=LEVEL,
    )
    rng = np.random.default_rng(1)
    tallies = {kind: Tally() for kind in KINDS}
    whole: list[float] = []
    deviations = {
        name: float(cells.std()) for name, cells in clipped(population, population.table).items()
    }
    for run in range(runs):
        sample = population.sample(n_rows, rng)
        seen = plan.run(sample, random_state=run)
        whole = whole or list(truths(population, population.table, seen))
        true = truths(population, sample, seen)
        for (kind, name, found), here, there in zip(said(seen), true, whole, strict=True):
            rare = kind in (SHARE, JOINT) and there < _OFTEN
            tally = tallies[RARE if rare else kind]
            tally.errors.append((found.estimate - here) / (deviations[name] if name else 1.0))
            tally.of_table.append(found.low <= here <= found.high)
            assert found.population_low is not None
            assert found.population_high is not None
            tally.of_population.append(found.population_low <= there <= found.population_high)
    return tallies


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    head = ["| " + " | ".join(["rows from", "rows", "epsilon", *KINDS]) + " |"]
    head.append("|---" * (3 + len(KINDS)) + "|")
    errors, covered = list(head), list(head)
    for population, (n_rows, epsilon) in itertools.product((adult(), generated()), SETTINGS):
        seen = measured(population, n_rows, epsilon, runs)
        first = f"| {population.name} | {n_rows:,} | {epsilon:g} | "
        percent = [kind in (SHARE, RARE, JOINT) for kind in KINDS]
        words = (
            f"{100.0 * seen[kind].error:.2g} %" if one else f"{seen[kind].error:.2g}"
            for kind, one in zip(KINDS, percent, strict=True)
        )
        errors.append(first + " | ".join(words) + " |")
        covered.append(first + " | ".join(seen[kind].coverage for kind in KINDS) + " |")
        print(errors[-1], covered[-1], sep="\n", flush=True)
    put(PAGE, "description errors", "\n".join(errors))
    put(PAGE, "description coverage", "\n".join(covered))
    standard = math.sqrt(LEVEL * (1.0 - LEVEL) / runs)
    put(
        PAGE,
        "description runs",
        f"{runs} samples each; standard error of one number's coverage {standard:.3f}.",
    )


if __name__ == "__main__":
    main()
