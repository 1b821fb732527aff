"""One-hot tables of 300 to 1000 columns: the default solver and those with a name.

Run with ``python -m experiments.wide_tables [--splits FOLDER] [--only TABLE ...]``. It rewrites a
table in ``docs/evidence/comparison.md``, or the lines of the tables that are named. FOLDER holds
the fixed split of ACS employment. Tables are generated, or made of Adult's and ACS employment's
training rows, with a part drawn by the seed held out; no test row is read.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import roc_auc_score

from benchmarks.splits import acs_employment_codes
from dpglm import LogisticRegression
from dpglm.datasets import load_adult
from experiments.measured import DOCS, measured, put, spread

__all__ = ["TABLES", "Table", "fit_score"]

DELTA = 1e-5
EPSILONS = (0.1, 1.0, 4.0)
SOLVERS = ("newton", "noisy_gd", "objective_perturbation")
HELD_OUT = 0.25

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """Indicators of levels, labels 0 and 1, and the public norm of rows; training rows first."""

    X: sparse.csr_array
    y: NDArray[np.int64]
    row_norm: float
    n_train: int


@dataclass(frozen=True)
class Generated:
    """A table of independent columns with Zipf-distributed levels, and of even numbers."""

    n_train: int
    levels: tuple[int, ...]
    positive: float
    numbers: int = 5
    zipf: float = 1.0
    spread: float = 1.5
    """Standard deviation of the log-odds; a few columns carry most of it."""
    n_test: int = 20_000

    def __call__(self, seed: int, splits: Path) -> Table:
        rng = np.random.default_rng([seed, self.n_train, sum(self.levels)])
        n = self.n_train + self.n_test
        codes, log_odds = [], np.zeros(n)
        for count in self.levels:
            frequency = rng.permutation(1.0 / np.arange(1, count + 1) ** self.zipf)
            codes.append(rng.choice(count, size=n, p=frequency / frequency.sum()))
            log_odds += rng.standard_t(3) * rng.normal(size=count)[codes[-1]]
        numbers = rng.uniform(-1.0, 1.0, size=(n, self.numbers))
        log_odds += numbers @ rng.normal(size=self.numbers)
        log_odds *= self.spread / log_odds.std()
        y = log_odds + rng.logistic(size=n)
        y = (y > np.quantile(y, 1.0 - self.positive)).astype(np.int64)
        return _table(codes, self.levels, y, self.n_train, numbers)


def _table(
    codes: Sequence[Codes],
    levels: Sequence[int],
    y: NDArray[np.int64],
    n_train: int,
    numbers: NDArray[np.float64] | None = None,
) -> Table:
    parts = [_indicators(one, count) for one, count in zip(codes, levels, strict=True)]
    n_numbers = 0
    if numbers is not None:
        parts.append(sparse.csr_array(numbers))
        n_numbers = numbers.shape[1]
    X = sparse.csr_array(sparse.hstack(parts, format="csr"))
    return Table(X, y, float(np.sqrt(len(codes) + n_numbers)), n_train)


def _indicators(codes: Codes, count: int) -> sparse.csr_array:
    n = len(codes)
    return sparse.csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, count))


@dataclass(frozen=True)
class Real:
    """Codes of a real table, with indicators of pairs of its columns."""

    read: Callable[[Path], tuple[dict[str, Codes], dict[str, int]]]
    target: str
    above: int
    """Labels are 1 where the target's code is larger."""
    without: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    def __call__(self, seed: int, splits: Path) -> Table:
        columns, counts = self.read(splits)
        y = (columns[self.target] > self.above).astype(np.int64)
        order = np.random.default_rng(seed).permutation(len(y))
        names = [name for name in columns if name != self.target and name not in self.without]
        codes = [columns[name] for name in names]
        levels = [counts[name] for name in names]
        for first, second in self.pairs:
            codes.append(columns[first] * counts[second] + columns[second])
            levels.append(counts[first] * counts[second])
        n_train = round((1.0 - HELD_OUT) * len(y))
        return _table([one[order] for one in codes], levels, y[order], n_train)


def _adult(splits: Path) -> tuple[dict[str, Codes], dict[str, int]]:
    """Adult's training rows, every column in levels; amounts by powers of two."""
    data = load_adult()
    columns: dict[str, Codes] = {}
    counts: dict[str, int] = {}
    for name, facts in data.schema["columns"].items():
        values = np.asarray(data.data[name])[data.train]
        if facts["type"] == "categorical":
            places = {level: code for code, level in enumerate(facts["categories"])}
            columns[name] = np.array([places[value] for value in values])
            counts[name] = len(places)
        elif facts["high"] > 1000:
            columns[name] = np.ceil(np.log2(1.0 + values)).astype(np.int64)
            counts[name] = int(np.ceil(np.log2(1.0 + facts["high"]))) + 1
        else:
            columns[name] = values.astype(np.int64) - int(facts["low"])
            counts[name] = int(facts["high"] - facts["low"]) + 1
        columns[name] = np.minimum(columns[name], counts[name] - 1)
    columns["income"] = (np.asarray(data.target)[data.train] == ">50K").astype(np.int64)
    counts["income"] = 2
    return columns, counts


_OF_INCOME = (("education", "occupation"),)
_MANY_OF_INCOME = (
    ("education", "occupation"),
    ("workclass", "occupation"),
    ("marital-status", "relationship"),
    ("race", "relationship"),
)
_OF_ACS = (("AGEP", "SEX"),)
_MANY_OF_ACS = (("AGEP", "SEX"), ("SCHL", "MAR"), ("RELP", "RAC1P"), ("RELP", "MAR"))

TABLES: Mapping[str, Callable[[int, Path], Table]] = {
    "zipf": Generated(20_000, (200, 100, 50, 20, 10, 5, 3, 2), 0.5),
    "zipf, rare": Generated(20_000, (200, 100, 50, 20, 10, 5, 3, 2), 0.03),
    "wide zipf, rare": Generated(40_000, (400, 200, 100, 50, 40, 30, 20, 10, 5), 0.05),
    "survey": Generated(20_000, (8,) * 60, 0.5, zipf=0.7),
    "survey, rare": Generated(8000, (8,) * 70, 0.06, zipf=1.3, spread=1.0),
    "large, rare": Generated(100_000, (200, 100, 50, 20, 10, 5, 3, 2), 0.02),
    "Adult": Real(_adult, "income", 0, pairs=_OF_INCOME),
    "Adult, pairs": Real(_adult, "income", 0, pairs=_MANY_OF_INCOME),
    "Adult, capital loss": Real(_adult, "capital-loss", 0, ("capital-gain",), _OF_INCOME),
    "ACS": Real(acs_employment_codes, "ESR", 0, pairs=_OF_ACS),
    "ACS, pairs": Real(acs_employment_codes, "ESR", 0, pairs=_MANY_OF_ACS),
    "ACS, hearing": Real(acs_employment_codes, "DEAR", 0, ("DIS",), _OF_ACS),
}

MORE_SEEDS = {"Adult, capital loss": 4, "large, rare": 2}
"""Factor on the seeds of tables with an AUC that varies more than solvers differ."""
PAGE, SECTION = DOCS / "evidence" / "comparison.md", "one-hot tables"


def fit_score(table: Table, solver: Any, epsilon: float, seed: int, *, dense: bool = True) -> float:
    """AUC on the rows that are not for training."""
    X = table.X.toarray().astype(np.float32) if dense else table.X
    head, tail = slice(table.n_train), slice(table.n_train, None)
    model = LogisticRegression(
        epsilon=epsilon,
        delta=DELTA,
        classes=[0, 1],
        row_norm=table.row_norm,
        solver=solver,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # Fits that promise little warn of it; here that is wanted.
        warnings.simplefilter("ignore")
        model.fit(X[head], table.y[head])
    return float(roc_auc_score(table.y[tail], model.decision_function(X[tail])))


def line(name: str, epsilon: float, tables: Sequence[Table]) -> str:
    """One line of the page: AUC by default, by name, and the gap to the best name."""
    scores = {
        solver: [
            fit_score(table, solver, epsilon, seed, dense=solver == "auto")
            for seed, table in enumerate(tables)
        ]
        for solver in ("auto", *SOLVERS)
    }
    best = max(SOLVERS, key=lambda solver: float(np.mean(scores[solver])))
    ahead = np.subtract(scores["auto"], scores[best])
    error = float(ahead.std(ddof=1)) / math.sqrt(len(ahead)) if len(ahead) > 1 else math.nan
    cells = [spread(scores[solver], 3) for solver in ("auto", *SOLVERS)]
    cells.append(f"{ahead.mean():+.4f} ± {error:.4f}")
    return f"| {name} | {epsilon:g} | {len(tables)} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and write the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=Path, default=Path("splits"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=sorted(TABLES), default=list(TABLES))
    parser.add_argument("--epsilons", type=float, nargs="*", choices=EPSILONS, default=EPSILONS)
    options = parser.parse_args()
    names = " | ".join(f"`{solver}`" for solver in SOLVERS)
    head = [
        f"| table | ε | seeds | `auto` | {names} | `auto` above the best of them |",
        "|---|---:|---:|" + "---:|" * (len(SOLVERS) + 2),
    ]
    kept = measured(PAGE, SECTION).splitlines()[len(head) :]
    lines = []
    for name in TABLES:
        if name not in options.only:
            lines += [one for one in kept if one.startswith(f"| {name}: ")]
            continue
        seeds = options.seeds * MORE_SEEDS.get(name, 1)
        tables = [TABLES[name](seed, options.splits) for seed in range(seeds)]
        shape = f"{name}: {tables[0].n_train} x {tables[0].X.shape[1]}"
        for epsilon in EPSILONS:
            if epsilon in options.epsilons:
                lines.append(line(shape, epsilon, tables))
                print(lines[-1], flush=True)
            else:
                lines += [one for one in kept if one.startswith(f"| {shape} | {epsilon:g} |")]
    put(PAGE, SECTION, "\n".join([*head, *lines]))


if __name__ == "__main__":
    main()
