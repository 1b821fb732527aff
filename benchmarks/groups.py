"""Compare fits that protect people with fits that pay for each of their rows.

A fit that protects single rows at epsilon over k protects persons with k rows at epsilon, and at
a larger delta, which is forgiven here. Excess log loss is over the true model's, on fresh rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.bar import Bar
from dpglm import LogisticRegression
from dpglm.exceptions import LowSignalWarning

__all__ = ["GROUPS", "People", "excess", "fitted"]

DELTA, SEEDS, FRESH = 1e-5, 20, 50_000
KINDS = {"independent": 0.6, "repeated": 1.0}
"""How a person's rows are drawn, and the bar of the ratio."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class People:
    """Generated persons with ``rows`` rows each, of ``columns`` columns, and binary targets.

    ``kind`` says how a person's rows belong together: "independent", "repeated" (one row as often
    as there are rows) or "alike" (a person's features vary little, and a person has a level).
    """

    persons: int
    rows: int
    columns: int
    kind: str
    seed: int

    @property
    def coefficients(self) -> Floats:
        """The true ones; the level is 0.3."""
        rng = np.random.default_rng(self.columns)
        return 2.0 * rng.normal(size=self.columns) / math.sqrt(self.columns / 3.0)

    def drawn(self) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        """Return rows, targets and persons, in a random order."""
        rng = np.random.default_rng(self.seed)
        ids = np.repeat(np.arange(self.persons), self.rows)
        X = rng.uniform(-1.0, 1.0, (len(ids), self.columns))
        level = 0.3
        if self.kind == "alike":
            own = rng.uniform(-1.0, 1.0, (self.persons, self.columns))
            X = 0.3 * X + 0.7 * own[ids]
            level += rng.normal(size=self.persons)[ids]
        y = (rng.random(len(ids)) < expit(X @ self.coefficients + level)).astype(int)
        if self.kind == "repeated":
            X, y = (np.repeat(values[:: self.rows], self.rows, axis=0) for values in (X, y))
        order = rng.permutation(len(ids))
        return X[order], y[order], ids[order]


def fitted(people: People, epsilon: float, *, protect: str, **parameters: Any) -> Any:
    """Fit persons, or their rows, at delta 1e-5."""
    X, y, ids = people.drawn()
    model = LogisticRegression(
        epsilon=epsilon,
        delta=DELTA,
        classes=[0, 1],
        feature_bounds=(-1.0, 1.0),
        random_state=people.seed,
        **parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)
        return model.fit(X, y, groups=ids if protect == "persons" else None)


def excess(model: Any, people: People) -> float:
    """Return how much larger the expected log loss is than the true model's, on fresh rows."""
    rng = np.random.default_rng(10_000 + people.seed)
    X = rng.uniform(-1.0, 1.0, (FRESH, people.columns))
    true = X @ people.coefficients + 0.3
    found = X @ model.coef_[0] + model.intercept_[0]
    p = expit(true)
    losses = [np.logaddexp(0.0, z) - p * z for z in (found, true)]
    return float(np.mean(losses[0] - losses[1]))


def _ratios(_: Path) -> Iterator[Bar]:
    for kind, bar in KINDS.items():
        pairs = []
        for seed in range(SEEDS):
            people = People(4000, 5, 20, kind, seed)
            pairs.append(
                (
                    excess(fitted(people, 1.0, protect="persons"), people),
                    excess(fitted(people, 0.2, protect="rows"), people),
                )
            )
        own, other = np.array(pairs).T
        ratio = float(own.mean() / other.mean())
        spread = float(np.std(own - ratio * other, ddof=1)) / (other.mean() * math.sqrt(SEEDS))
        name = f"excess log loss of 4000 persons with 5 rows, {kind}, over that of epsilon / 5"
        yield Bar(name, ratio, float(spread), bar, at_least=False, unit="")


GROUPS: Mapping[str, Any] = MappingProxyType({"groups": _ratios})
