"""dpglm with default settings: nothing is given but the guarantee and the public facts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.protocol import Adapter, Predict, Task, serve
from dpglm import LinearRegression, LogisticRegression, __version__

VERSION = f"dpglm {__version__}"


def fit(task: Task, epsilon: float, seed: int, **guarantee: Any) -> Predict:
    common = {"epsilon": epsilon, "delta": task.delta, "random_state": seed, **guarantee}
    if task.kind == "regression":
        regression = LinearRegression(
            feature_bounds=(-1.0, 1.0),
            target_bounds=(task.target_low, task.target_high),
            **common,
        )
        return regression.fit(task.X, task.y).predict
    factor = scale(task)
    classifier = LogisticRegression(
        classes=range(task.n_classes), row_norm=factor * task.row_norm, **common
    ).fit(factor * task.X, task.y)
    return lambda X: classifier.decision_function(factor * X)


def scale(task: Task) -> np.float32:
    """Bring pixels to a size of about one, on which the default penalty weighs little."""
    if task.kind != "classes":
        return np.float32(1.0)
    return np.float32(np.sqrt(task.X.shape[1]) / task.row_norm)


def setting(task: Task) -> str:
    factor = scale(task)
    return "defaults only" if factor == 1.0 else f"defaults only, rows times {factor:g}"


DPGLM = Adapter(VERSION, fit, "(ε, 1e-5), a row zeroed out", setting)
DPGLM_PURE = Adapter(
    VERSION,
    partial(fit, delta=0.0, adjacency="replace_one"),
    "(ε, 0), a row replaced",
    setting,
)

if __name__ == "__main__":
    serve(DPGLM)
