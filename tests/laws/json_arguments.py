"""Frequently used functions with valid arguments, and wrong JSON-like values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "g": {"type": "categorical", "categories": ["a", "b"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "made up for tests",
}
TABLE = {
    "age": np.linspace(0.0, 99.0, 200),
    "g": np.array(["a", "b"] * 100),
    "ill": np.array(["no", "yes"] * 50 + ["yes", "yes"] * 50),
}
IDS = np.arange(200) // 2
JSON: tuple[Any, ...] = (
    None, True, 0, 1, -1, 7, 10**400, 0.5, -2.5, 1e308, math.inf, math.nan, "", "x", "age",
    "a\x00b", [], [1], [0.5, 2], ["g"], ["x", "x"], [None], [[]], [[1, 2], [3]], [["age", "g"]], {},
    {"a": 1}, {"age": 1}, {"age": [1]}, {"type": "x"}, {"": None},
)  # fmt: skip


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that can be given by name; empty without a signature."""
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    usual = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: one for name, one in known.items() if one.kind in usual}


def doors() -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """List frequently used functions, each with valid arguments."""
    import dpglm
    from dpglm.report import load_model
    from dpglm.study.reading import read_study

    X = np.column_stack([TABLE["age"], np.ones(200)])
    y, numbers = TABLE["ill"], TABLE["age"]
    shares = np.linspace(0.05, 0.95, 200)
    known = {"epsilon": 1.0, "delta": 1e-5}
    yield "describe", dpglm.describe, {"table": TABLE, "schema": SCHEMA, **known}
    yield "from_formula", dpglm.from_formula, {"formula": "ill ~ age", "schema": SCHEMA}
    yield (
        "evaluate_predictions",
        dpglm.evaluate_predictions,
        {"y": y, "predictions": shares, "classes": ["no", "yes"], **known},
    )
    model = dpglm.LogisticRegression(row_norm=200.0, classes=["no", "yes"], **known).fit(X, y)
    yield "evaluate", dpglm.evaluate, {"model": model, "X": X, "y": y, **known}
    yield "Study", dpglm.Study, {"schema": SCHEMA}
    study = dpglm.Study(SCHEMA, **known)
    yield "Study.explore", lambda **one: study.explore(**one).plan(200), {}
    yield "Study.fit", lambda **one: study.fit(**one).plan(200), {"estimator": "additive"}
    fitted = study.fit("additive")
    yield "Study.evaluate", lambda **one: fitted.evaluate(**one).plan(200), {}
    tested = study.fit(dpglm.LogisticRegression(inference=True))
    yield (
        "Study.effects",
        lambda **one: tested.effects(**one).plan(5000),
        {"column": "age", "values": [40]},
    )
    yield "Study.plan", fitted.plan, {"n_rows": 200}
    for opening in (read_study, load_model, dpglm.PrivacyLedger):
        yield opening.__name__, opening, {"path": "none"}
    yield "ParquetRows", dpglm.ParquetRows, {"source": "none"}
    for kind in (dpglm.LogisticRegression, dpglm.Ridge, dpglm.PoissonRegressor):
        facts: dict[str, Any] = {"row_norm": 200.0, **known}
        name, is_of_classes = kind.__name__, kind is dpglm.LogisticRegression
        facts |= {"classes": ["no", "yes"]} if is_of_classes else {"target_bounds": (0.0, 99.0)}
        target, n_classes = (y, {"n_classes": 2}) if is_of_classes else (numbers, {})

        def plan(kind: Any = kind, own: Any = n_classes, **one: Any) -> Any:
            return kind(**one).plan(200, 2, **own)

        yield name, plan, facts
        yield f"{name}.fit", kind(**facts).fit, {"X": X, "y": target}
        yield f"{name}.plan", kind(**facts).plan, {"n_rows": 200, "n_features": 2, **n_classes}
        yield f"{name}.predict", kind(**facts).fit(X, target).predict, {"X": X}
    yield (
        "AdditiveClassifier",
        lambda **one: dpglm.AdditiveClassifier(**one).plan(200),
        {"schema": SCHEMA, **known},
    )
    additive = dpglm.AdditiveClassifier(SCHEMA, **known)
    yield "AdditiveClassifier.fit", additive.fit, {"X": TABLE}
