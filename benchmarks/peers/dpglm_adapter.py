"""dpglm with default settings: nothing is given but the guarantee and the public facts."""

from __future__ import annotations

from functools import partial
from typing import Any

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
    classifier = LogisticRegression(
        classes=range(task.n_classes), row_norm=task.row_norm, **common
    ).fit(task.X, task.y)
    return classifier.decision_function


def setting(task: Task) -> str:
    return "defaults only"


DPGLM = Adapter(VERSION, fit, "(ε, 1e-5), a row zeroed out", setting)
DPGLM_PURE = Adapter(
    VERSION,
    partial(fit, delta=0.0, adjacency="replace_one"),
    "(ε, 0), a row replaced",
    setting,
)

if __name__ == "__main__":
    serve(DPGLM)
