"""How fine the curves of additive models should be: development data only.

``python -m experiments.additive --splits FOLDER`` writes the table of
``docs/evidence/additive.md``: the rule of ``dpglm.estimators.additive.resolution`` and the
linear default, cross-validated on the training rows of Adult, ACS employment and California
housing, and on generated rows. ``--grid`` prints the scores of other settings instead;
the rule's constants were chosen from these. ``--wide-bounds`` writes the table about bounds
much wider than the data, ``--ordered`` that of ``experiments.ordered``. ``--draws`` prints gains
over newly drawn tables, which do not depend on one sample. No test row is read.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.splits import acs_employment_codes, load_acs_codes
from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    LogisticRegression,
    PrivatePipeline,
    Ridge,
    describe,
)
from dpglm.datasets import load_adult, load_california_housing
from dpglm.exceptions import LowSignalWarning
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.tables.schema import Schema
from experiments.measured import DOCS, put

DELTA, EPSILONS, FOLDS = 1e-5, (0.05, 0.1, 0.15, 0.3, 1.0, 4.0), 3
PAID = 0.1
"""Share of mu squared of private bounds."""
SEGMENTS, REACHES = (2, 3, 4, 6, 8, 12, 16, 24), (0.1, 0.3, 1.0)
Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Table:
    """Development rows, with a schema that contains the target."""

    name: str
    columns: Columns
    schema: Schema
    target: NDArray[Any]
    pair: tuple[str, str]

    @property
    def classifies(self) -> bool:
        """Whether the target has classes."""
        return self.schema.target.n_classes is not None

    def linear(self, **budget: Any) -> Any:
        """Return the linear default."""
        told = self.schema.target.estimator_parameters()
        last = LogisticRegression(**told) if self.classifies else Ridge(**told)
        return PrivatePipeline([SchemaEncoder(self.schema), last], **budget)

    def additive(self, **parameters: Any) -> Any:
        """Return an additive model."""
        make = AdditiveClassifier if self.classifies else AdditiveRegressor
        return make(self.schema, **parameters)

    def scores(
        self, make: Callable[..., Any], epsilon: float, seeds: int, first: int = 0
    ) -> NDArray[np.float64]:
        """Return AUC and log loss, or R squared and nothing, of each fold and seed: (n, 2)."""
        folds = np.random.default_rng(0).permutation(len(self.target)) % FOLDS
        found = []
        for seed in range(seeds):
            for fold in range(FOLDS):
                fit, held = folds != fold, folds == fold
                model = make(epsilon=epsilon, delta=DELTA, random_state=first + FOLDS * seed + fold)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", LowSignalWarning)
                    fitted = model.fit(self.rows(fit), self.target[fit])
                found.append(self.score(fitted, held))
        return np.array(found)

    def score(self, model: Any, held: NDArray[np.bool_]) -> tuple[float, float]:
        """Score rows that were held out."""
        rows, target = self.rows(held), self.target[held]
        if not self.classifies:
            return float(model.score(rows, target)), np.nan
        truth, chances = target == model.classes_[1], model.predict_proba(rows)[:, 1]
        return float(roc_auc_score(truth, chances)), float(log_loss(truth, chances))

    def rows(self, chosen: Any) -> Columns:
        """Return some of the rows."""
        return {name: column[chosen] for name, column in self.columns.items()}


def tables(splits: Path) -> Iterator[Callable[[], Table]]:
    """Yield the functions that make each table."""
    yield adult
    yield lambda: acs(splits)
    yield california
    for kind in GENERATED:
        yield lambda kind=kind: generated(kind)


def adult() -> Table:
    """Adult's training rows."""
    data = load_adult()
    rows = {name: column[data.train] for name, column in data.data.items()}
    schema = Schema.from_dict(data.schema)
    return Table("Adult", rows, schema, data.target[data.train], ("age", "education-num"))


def acs(splits: Path) -> Table:
    """ACS employment's training rows."""
    codes = load_acs_codes(splits)
    employed = acs_employment_codes(splits)[0]["ESR"]
    target = {"name": "ESR", "type": "binary", "classes": [0, 1]}
    entry = {"columns": codes.columns, "target": target, "provenance": "the Census Bureau's codes"}
    schema = Schema.from_dict(entry)
    return Table("ACS employment", codes.train, schema, employed, ("AGEP", "SEX"))


def california() -> Table:
    """California housing's training rows."""
    data = load_california_housing()
    rows = {name: data.data[data.train, i] for i, name in enumerate(data.feature_names)}
    schema = Schema.from_dict(data.schema)
    pair = ("Latitude", "Longitude")
    return Table("California housing", rows, schema, data.target[data.train], pair)


@dataclass(frozen=True)
class Drawn:
    """How rows are drawn: their number, and the number, distribution and bounds of columns."""

    score: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    rows: int = 24_000
    columns: int = 5
    tails: str = "normal"
    bounds: tuple[float, float] = (-4.0, 4.0)
    levels: tuple[int, ...] = ()
    intercept: float = 0.0
    """Shift of the log-odds; at zero both classes are equally frequent."""
    size: float | None = None
    """Standard deviation of the score, if it is not as it comes; of numbers, with errors, 1."""
    bound: float = 5.0
    """Bound of a number in either direction."""

    def draw(self, rng: np.random.Generator) -> tuple[Columns, NDArray[np.float64]]:
        """Return columns and scores."""
        n, p = self.rows, self.columns
        z = rng.normal(size=(n, p))
        if self.tails == "t3":
            z = rng.standard_t(3, size=(n, p))
        if self.tails == "correlated":
            z = 0.6 * z + 0.8 * rng.normal(size=(n, 1))
        if self.tails == "uniform":
            z = rng.uniform(-1.0, 1.0, size=(n, p))
        values = np.exp(1.5 * z) if self.tails == "heavy" else z.clip(*self.bounds)
        if self.tails == "skewed":
            values = (100.0 * np.exp(0.75 * z)).clip(*self.bounds)
            z = (values - values.mean()) / values.std()
        columns: dict[str, NDArray[Any]] = {f"x{i}": values[:, i] for i in range(p)}
        score = self.score(z)
        for place, count in enumerate(self.levels):
            shares = 1.0 / np.arange(1.0, count + 1.0)
            levels = rng.choice(count, n, p=shares / shares.sum())
            columns[f"level{place}"] = levels
            score = score + rng.normal(size=count)[levels]
        if self.size is not None:
            score = (score - score.mean()) * self.size / score.std()
        return columns, score

    def schema(self) -> dict[str, Any]:
        """Return the entries of the columns."""
        low, high = self.bounds
        numbers = {"type": "numeric", "low": low, "high": high}
        entries: dict[str, Any] = {f"x{i}": numbers for i in range(self.columns)}
        for place, count in enumerate(self.levels):
            entry = {"type": "categorical", "categories": list(range(count))}
            entries[f"level{place}"] = entry
        return entries


def generated(kind: str, draw: int = 0) -> Table:
    """Rows that were drawn: their scores are straight, or bend, or columns have heavy tails."""
    seed = (len(kind), draw) if draw else len(kind)
    drawn, rng = GENERATED[kind], np.random.default_rng(seed)
    columns, score = drawn.draw(rng)
    schema: dict[str, Any] = {
        "columns": drawn.schema(),
        "target": {"name": "y", "type": "binary", "classes": [0, 1]},
        "provenance": "generated",
    }
    log_odds = score - score.mean() + drawn.intercept
    target = (rng.random(len(score)) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    if kind.endswith("number"):
        bound = drawn.bound
        schema["target"] = {"name": "y", "type": "numeric", "low": -bound, "high": bound}
        error = 1.0 if drawn.size is None else math.sqrt(1.0 - drawn.size**2)
        target = np.clip(score + error * rng.normal(size=len(score)), -bound, bound)
    return Table(kind, columns, Schema.from_dict(schema), target, ("x0", "x1"))


def _straight(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return z @ np.linspace(0.5, -0.3, z.shape[1])


def _bent(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.8 * np.sin(2.0 * z[:, 0]) + 0.6 * np.abs(z[:, 1]) + 0.5 * (z[:, 2] > 0) + 0.2 * z[:, 3]


_T3 = Drawn(_straight, 15_000, 8, "t3", (-10.0, 10.0), size=1.0)
_CORRELATED = Drawn(_straight, 15_000, 20, "correlated", levels=(5, 10), size=1.0)
_MANY_LEVELS = (9, 16, 7, 15, 6, 5, 2, 42)

GENERATED: Mapping[str, Drawn] = {
    "straight": Drawn(_straight),
    "straight, number": Drawn(_straight),
    "little curvature": Drawn(lambda z: _straight(z) + 0.1 * z[:, 0] ** 2),
    "bent": Drawn(_bent),
    "heavy tails": Drawn(_straight, tails="heavy", bounds=(0.0, 1000.0)),
    "rare": Drawn(_straight, 30_000, intercept=-2.5, size=1.0),
    "t(3)": _T3,
    "t(3), number": dataclasses.replace(_T3, size=0.6, bound=4.0),
    "correlated": _CORRELATED,
    "correlated, number": dataclasses.replace(_CORRELATED, size=0.7, bound=4.0),
    "many levels": Drawn(_straight, 32_500, 6, levels=_MANY_LEVELS, size=1.2),
    "30 columns, number": Drawn(_straight, 30_000, 30, size=0.6, bound=4.0),
    "few rows": Drawn(_straight, 3_000, 5, "uniform", (-1.0, 1.0), size=1.0),
    "few rows, number": Drawn(_straight, 3_000, 5, "uniform", (-1.0, 1.0), size=0.6, bound=4.0),
    "weak": Drawn(_straight, 75_000, 10, size=0.3),
    "wide residuals, number": Drawn(_straight, size=0.4, bound=1.6),
    "skewed, number": Drawn(_straight, tails="skewed", bounds=(0.0, 1000.0), size=0.6, bound=4.0),
}


def grid(chosen: list[Table], epsilons: list[float], seeds: int, settings: list[str]) -> None:
    """Print scores of fixed resolutions less those of the linear default."""
    for table in chosen:
        for epsilon in epsilons:
            base = table.scores(table.linear, epsilon, seeds)
            means = base.mean(axis=0)
            print(f"{table.name} eps {epsilon:g} linear {means.round(4)}", flush=True)
            for text in settings:
                make = functools.partial(table.additive, **eval(f"dict({text})"))
                found = table.scores(make, epsilon, seeds)
                gain, error = _gain(found, base)
                print(
                    f"{table.name} eps {epsilon:g} {text}: {found.mean(axis=0).round(4)} "
                    f"{gain:+.4f} +- {error:.4f}",
                    flush=True,
                )


def rule(chosen: list[Table], epsilons: list[float], seeds: int) -> str:
    """Return the rule compared with the linear default, as a table."""
    lines = [
        "| rows | ε | segments | linear | additive | gain | log loss, linear | additive |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for table in chosen:
        n_fitted = len(table.target) * (FOLDS - 1) // FOLDS
        for epsilon in epsilons:
            base = table.scores(table.linear, epsilon, seeds)
            found = table.scores(table.additive, epsilon, seeds)
            model = table.additive(epsilon=epsilon, delta=DELTA)
            settings = model.resolve(n_fitted).settings
            logs = "" if settings.log_segments is None else f" ({settings.log_segments})"
            (linear, before), (additive, after) = base.mean(axis=0), found.mean(axis=0)
            gain, error = _gain(found, base)
            losses = f"{before:.3f} | {after:.3f}" if table.classifies else "– | –"
            lines.append(
                f"| {table.name} | {epsilon:g} | {settings.segments}{logs} | {linear:.4f} | "
                f"{additive:.4f} | {gain:+.4f} ± {error:.4f} | {losses} |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines)


def over_draws(kind: str, epsilons: list[float], draws: int) -> None:
    """Print the mean gain over tables of a kind, with its standard error over the tables."""
    made = [generated(kind, draw) for draw in range(draws)]
    for epsilon in epsilons:
        gains = []
        for draw, one in enumerate(made):
            # Each table has noise of its own.
            makes = one.additive, one.linear
            scores = [one.scores(make, epsilon, 1, FOLDS * draw) for make in makes]
            gains.append(_gain(*scores)[0])
        error = np.std(gains, ddof=1) / math.sqrt(draws)
        print(f"{kind} eps {epsilon:g}: {np.mean(gains):+.4f} +- {error:.4f}", flush=True)


def wide_bounds(table: Table, epsilons: list[float], seeds: int) -> str:
    """Return the gains of other bounds, scales and knots than declared, as a table."""
    knots = {
        name: {"knots": [0.0, *np.quantile(values, np.arange(1, 8) / 8.0).tolist(), 1000.0]}
        for name, values in table.columns.items()
    }
    logs = {name: {"scale": "log"} for name in table.columns}
    ways: Mapping[str, Callable[..., Any]] = {
        "declared": table.additive,
        "log scale": told(table, logs).additive,
        "private bounds": functools.partial(PaidBounds, table, {}),
        "private bounds, log scale": functools.partial(PaidBounds, table, logs),
        "knots at quantiles, not private": told(table, knots).additive,
    }
    lines = [f"| ε | linear | {' | '.join(ways)} |", "|---:" * (len(ways) + 2) + "|"]
    for epsilon in epsilons:
        cells = [f"{epsilon:g}"]
        for make in (table.linear, *ways.values()):
            found = table.scores(make, epsilon, seeds)[:, 0]
            error = found.std(ddof=1) / math.sqrt(len(found))
            cells.append(f"{found.mean():.4f} ± {error:.4f}")
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def told(table: Table, fields: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the table with more fields in the entries of its columns."""
    return dataclasses.replace(table, schema=_told(table.schema, fields))


def _told(schema: Schema, fields: Mapping[str, Mapping[str, Any]]) -> Schema:
    document = schema.to_dict()
    for name, more in fields.items():
        document["columns"][name] |= more
    return Schema.from_dict(document)


@dataclass(frozen=True)
class PaidBounds:
    """Makes additive models within private quantiles, on one budget with the fit."""

    table: Table
    fields: Mapping[str, Mapping[str, Any]]
    epsilon: float
    delta: float
    random_state: int

    def fit(self, rows: Columns, target: NDArray[Any]) -> AdditiveClassifier:
        """Describe the rows, then fit with the remaining budget."""
        mu = ApproximateDP(self.epsilon, self.delta).gdp_mu()
        seen = describe(
            {**rows, "y": target},
            self.table.schema,
            budget=GaussianDP(math.sqrt(PAID) * mu),
            columns=list(rows),
            random_state=self.random_state,
        )
        model = AdditiveClassifier(
            _told(seen.schema(), self.fields),
            budget=GaussianDP(math.sqrt(1.0 - PAID) * mu),
            random_state=self.random_state,
        )
        return model.fit(rows, target)


def _gain(found: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean difference of the first score, and its standard error."""
    gains = (found - base)[:, 0]
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def main() -> None:
    """Measure, and write or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=Path, default=Path("splits"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--grid", nargs="*")
    parser.add_argument("--wide-bounds", action="store_true")
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.wide_bounds:
        text = wide_bounds(generated("heavy tails"), [0.1, 0.3, 1.0, 4.0], arguments.seeds)
        put(DOCS / "evidence" / "additive.md", "wide bounds", text)
        return
    if arguments.ordered:
        from experiments.ordered import table_of_gains

        text = table_of_gains(arguments.splits, arguments.only, arguments.seeds)
        if arguments.only is None:
            put(DOCS / "evidence" / "additive.md", "ordered", text)
        return
    if arguments.draws is not None:
        for kind in arguments.only or GENERATED:
            over_draws(kind, arguments.epsilons, arguments.draws)
        return
    made = [make() for make in tables(arguments.splits)]
    chosen = [one for one in made if arguments.only is None or one.name in arguments.only]
    if arguments.grid is not None:
        grid(chosen, arguments.epsilons, arguments.seeds, arguments.grid)
        return
    text = rule(chosen, arguments.epsilons, arguments.seeds)
    if arguments.only is None:
        put(DOCS / "evidence" / "additive.md", "resolution", text)


if __name__ == "__main__":
    main()
