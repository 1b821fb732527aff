"""How accurate additive models with default settings must be: ten seeds each, delta 1e-5, zero-out.

The linear models that they are compared with have the same schema, budget and seeds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.bar import Bar
from benchmarks.splits import load_acs_codes, load_acs_employment
from dpglm import AdditiveClassifier, AdditiveRegressor, LogisticRegression, PrivatePipeline
from dpglm.datasets import load_adult, load_california_housing
from dpglm.preprocessing import SchemaEncoder

__all__ = ["ADDITIVE"]

DELTA, SEEDS = 1e-5, range(10)
EPSILONS = (0.1, 0.5, 1.0, 4.0)


def _adult() -> Iterator[Bar]:
    """AUC, log loss and accuracy of UCI's test rows."""
    data = load_adult()
    train, test = ({k: v[part] for k, v in data.data.items()} for part in (data.train, data.test))
    truth = data.target[data.test] == data.schema["target"]["classes"][1]
    for epsilon, bar in zip(EPSILONS, (0.904, 0.910, 0.912, 0.916), strict=True):
        found = []
        for seed in SEEDS:
            model = AdditiveClassifier(
                data.schema, epsilon=epsilon, delta=DELTA, random_state=seed
            ).fit(train, data.target[data.train])
            chances = model.predict_proba(test)[:, 1]
            right = np.mean((chances > 0.5) == truth)
            found.append((roc_auc_score(truth, chances), -log_loss(truth, chances), right))
        for measure, scores, least in zip(
            ("AUC", "minus log loss", "accuracy"),
            np.transpose(found),
            (bar, -np.inf, 0.0),
            strict=True,
        ):
            yield _bar(f"Adult, UCI's split, epsilon {epsilon:g}, {measure}", scores, least)


def _california() -> Iterator[Bar]:
    """R squared on the test rows of the fixed split, with and without a surface of places."""
    data = load_california_housing()
    for words, pairs, bars in (
        ("", (), (0.66, 0.725, 0.736)),
        (", latitude x longitude", [("Latitude", "Longitude")], (0.67, 0.75, 0.76)),
    ):
        for epsilon, bar in zip((0.1, 1.0, 4.0), bars, strict=True):
            scores = []
            for seed in SEEDS:
                model = AdditiveRegressor(
                    data.schema,
                    interactions=pairs,
                    epsilon=epsilon,
                    delta=DELTA,
                    random_state=seed,
                ).fit(data.data[data.train], data.target[data.train])
                scores.append(model.score(data.data[data.test], data.target[data.test]))
            yield _bar(f"California housing{words}, epsilon {epsilon:g}, R2", scores, bar)


def _acs(splits: Path) -> Iterator[Bar]:
    """AUC over that of the default linear model, on the fixed test rows."""
    codes, split = load_acs_codes(splits), load_acs_employment(splits)
    target = {"name": "ESR", "type": "binary", "classes": [0, 1]}
    schema = {"columns": codes.columns, "target": target, "provenance": "the Census Bureau's codes"}
    for epsilon in EPSILONS:
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA}
        gains = []
        for seed in SEEDS:
            curves = AdditiveClassifier(schema, random_state=seed, **budget)
            line = _linear(schema, random_state=seed, **budget)
            aucs = [
                roc_auc_score(
                    split.y_test,
                    model.fit(codes.train, split.y_train).decision_function(codes.test),
                )
                for model in (curves, line)
            ]
            gains.append(aucs[0] - aucs[1])
        yield _bar(
            f"ACS employment, epsilon {epsilon:g}, AUC over the linear default's", gains, 0.0
        )


def _seconds() -> Iterator[Bar]:
    """Time of a fit on Adult over that of the default linear fit of the same table."""
    data = load_adult()
    train, target = {k: v[data.train] for k, v in data.data.items()}, data.target[data.train]
    ratios = []
    for seed in SEEDS:
        budget: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "random_state": seed}
        curves, line = AdditiveClassifier(data.schema, **budget), _linear(data.schema, **budget)
        spent = [_timed(lambda model=model: model.fit(train, target)) for model in (curves, line)]
        ratios.append(spent[0] / spent[1])
    value = statistics.median(ratios)
    yield Bar(
        "Adult, a fit's time over the linear one's", value, float(np.std(ratios)), 3.0, False, ""
    )


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _linear(schema: Mapping[str, Any], **budget: Any) -> PrivatePipeline:
    last = LogisticRegression(classes=schema["target"]["classes"])
    return PrivatePipeline([SchemaEncoder(schema), last], **budget)


def _bar(name: str, scores: Sequence[float] | NDArray[np.float64], bar: float) -> Bar:
    return Bar(name, float(np.mean(scores)), float(np.std(scores)), bar, True, "")


def _all(splits: Path) -> Iterator[Bar]:
    yield from _seconds()
    yield from _adult()
    yield from _california()
    yield from _acs(splits)


ADDITIVE: Mapping[str, Any] = MappingProxyType({"additive": _all})
