"""scikit-learn, without privacy, as the reference."""

from __future__ import annotations

import sklearn
from sklearn.linear_model import LinearRegression, LogisticRegression

from benchmarks.peers.protocol import Adapter, Predict, Task, serve


def fit(task: Task, epsilon: float, seed: int) -> Predict:
    if task.kind == "regression":
        return LinearRegression().fit(task.X, task.y).predict
    return LogisticRegression(max_iter=1000).fit(task.X, task.y).decision_function


def setting(task: Task) -> str:
    return "defaults" if task.kind == "regression" else "defaults, but up to 1000 iterations"


SCIKIT_LEARN = Adapter(f"scikit-learn {sklearn.__version__}", fit, "none", setting)

if __name__ == "__main__":
    serve(SCIKIT_LEARN)
