"""Generated tables with a schema, for tests of additive models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "low": 20, "high": 60},
    "pay": {"type": "numeric", "low": 0, "high": 1000, "scale": "log", "missing": 0},
    "sex": {"type": "categorical", "categories": ["f", "m"]},
}


def schema(target: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of ``table``, with the target "ill" by default."""
    binary = {"name": "ill", "type": "binary", "classes": ["no", "yes"]}
    return {
        "columns": COLUMNS,
        "target": binary if target is None else target,
        "provenance": "made up",
    }


def table(n: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Draw rows with targets of every kind; scores bend in age, and differ for missing pay."""
    rng = np.random.default_rng(seed)
    age, pay = rng.uniform(15, 65, n), rng.lognormal(4, 1, n)
    pay[rng.random(n) < 0.1] = np.nan
    sex = rng.choice(["f", "m"], n)
    score = 2.0 - np.abs(age - 40) / 5 + 1.5 * np.isnan(pay) + (sex == "m")
    ill = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    return {
        "age": age,
        "pay": pay,
        "sex": sex,
        "ill": ill,
        "cost": np.clip(score + rng.normal(size=n), -5.0, 5.0),
        "visits": np.minimum(rng.poisson(np.exp(0.4 * score)), 20),
        "kind": np.where(score > 1.5, "c", np.where(rng.random(n) < 0.5, "a", "b")),
    }
