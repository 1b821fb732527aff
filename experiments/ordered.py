"""Gain of an additive model from the order of a category's levels.

``python -m experiments.additive --ordered --splits FOLDER`` writes the table of
``docs/evidence/additive.md`` about columns that are ``"ordered"`` (levels are shrunk towards
their neighbours), compared with plain categories and numbers. Development rows
only: see ``experiments.additive``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.schema import Schema
from experiments.additive import Columns, Table, acs, adult

__all__ = ["EPSILONS", "table_of_gains"]

EPSILONS = (0.05, 0.1, 0.5, 1.0, 4.0)
YEARS = 5
"""Width of a band of ages."""
Codes = Mapping[str, NDArray[np.intp]]


def table_of_gains(splits: Path, names: Sequence[str] | None, seeds: int) -> str:
    """Return the gain of ordered levels, and of numbers, over independent levels, as a table."""
    head = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    lines = [f"| rows | {head} |", "|---" + "|---:" * len(EPSILONS) + "|"]
    for make in _tables(splits):
        table, codes = make()
        if names is not None and table.name not in names:
            continue
        ways = [_as(table, codes, kind) for kind in (_levels, _ordered, _number)]
        cells = []
        for epsilon in EPSILONS:
            levels, ordered, number = (
                one.scores(one.additive, epsilon, seeds)[:, 0] for one in ways
            )
            gains = ordered - levels
            error = gains.std(ddof=1) / np.sqrt(len(gains))
            other = float(np.mean(number - levels))
            cells.append(f"{gains.mean():+.4f} ± {error:.4f} ({other:+.4f})")
        lines.append(f"| {table.name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _levels(count: int) -> dict[str, Any]:
    return {"type": "categorical", "categories": list(range(count))}


def _ordered(count: int) -> dict[str, Any]:
    return _levels(count) | {"ordered": True}


def _number(count: int) -> dict[str, Any]:
    return {"type": "numeric", "low": 0, "high": count - 1}


def _as(table: Table, codes: Codes, kind: Callable[[int], dict[str, Any]]) -> Table:
    """Return the table with ordered columns, given by their codes, as entries of a kind."""
    document = table.schema.to_dict()
    document["columns"] |= {name: kind(int(code.max()) + 1) for name, code in codes.items()}
    columns: Columns = {**table.columns, **codes}
    return Table(table.name, columns, Schema.from_dict(document), table.target, table.pair)


def _tables(splits: Path) -> list[Callable[[], tuple[Table, Codes]]]:
    made: list[Callable[[], tuple[Table, Codes]]] = [_adult, lambda: _acs(splits)]
    made += [
        lambda kind=kind, count=count: _generated(kind, count)
        for kind in ("smooth", "jumps", "no order", "smooth, number")
        for count in (5, 10, 20, 50)
    ]
    return made


def _adult() -> tuple[Table, Codes]:
    """Education by its years of school, and bands of ages."""
    table = adult()
    years, ages = table.columns["education-num"], table.columns["age"]
    document = table.schema.to_dict()
    del document["columns"]["education-num"]
    columns = {k: v for k, v in table.columns.items() if k != "education-num"}
    codes = {"education": years.astype(int) - 1, "age": ages.astype(int) // YEARS - 3}
    return (
        Table(table.name, columns, Schema.from_dict(document), table.target, table.pair),
        codes,
    )


def _acs(splits: Path) -> tuple[Table, Codes]:
    """School in the Census Bureau's codes, and bands of ages."""
    table = acs(splits)
    ages, school = table.columns["AGEP"], table.columns["SCHL"]
    return table, {"SCHL": school.astype(int), "AGEP": ages.astype(int) // YEARS}


def _generated(kind: str, count: int) -> tuple[Table, Codes]:
    """Four columns with frequent middle levels; effects follow the order or do not."""
    rng = np.random.default_rng(count)
    n, p = 24_000, 4
    z = rng.normal(size=(n, p))
    levels = ((z + 2.5) / 5.0 * count).astype(int).clip(0, count - 1)
    place = np.arange(count) / (count - 1.0)
    effects = {
        "smooth": [np.sin(3.0 * place), 1.5 * place**2, -np.sqrt(place), 2.0 * np.abs(place - 0.5)],
        "jumps": [0.8 * (place > 0.4), 0.6 * (place > 0.7), -0.5 * (place > 0.5), 0.0 * place],
        "no order": list(0.4 * rng.normal(size=(p, count))),
    }[kind.partition(",")[0]]
    score = sum(effect[levels[:, i]] for i, effect in enumerate(effects))
    score = np.asarray(score - np.mean(score))
    target: dict[str, Any] = {"name": "y", "type": "binary", "classes": [0, 1]}
    y: NDArray[Any] = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    if kind.endswith("number"):
        target = {"name": "y", "type": "numeric", "low": -4.0, "high": 4.0}
        y = np.clip(score + rng.normal(size=n), -4.0, 4.0)
    codes = {f"x{i}": levels[:, i] for i in range(p)}
    schema = Schema.from_dict(
        {
            "columns": {name: _levels(count) for name in codes},
            "target": target,
            "provenance": "generated",
        }
    )
    return Table(f"{kind}, {count} levels", codes, schema, y, ("x0", "x1")), codes
