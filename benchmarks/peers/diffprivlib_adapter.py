"""diffprivlib: objective perturbation for classes, the functional mechanism for least squares."""

from __future__ import annotations

import diffprivlib
from diffprivlib.models import LinearRegression, LogisticRegression

from benchmarks.peers.protocol import Adapter, Predict, Task, serve


def fit(task: Task, epsilon: float, seed: int) -> Predict:
    if task.kind == "regression":
        regression = LinearRegression(
            epsilon=epsilon,
            bounds_X=(-1.0, 1.0),
            bounds_y=(task.target_low, task.target_high),
            random_state=seed,
        )
        return regression.fit(task.X, task.y).predict
    classifier = LogisticRegression(
        epsilon=epsilon, data_norm=task.row_norm, max_iter=1000, random_state=seed
    )
    return classifier.fit(task.X, task.y).decision_function


def setting(task: Task) -> str:
    if task.kind == "regression":
        return "bounds_X, bounds_y; otherwise defaults"
    return "data_norm, up to 1000 iterations; otherwise defaults"


DIFFPRIVLIB = Adapter(
    f"diffprivlib {diffprivlib.__version__}", fit, "(ε, 0), a row replaced", setting
)

if __name__ == "__main__":
    serve(DIFFPRIVLIB)
