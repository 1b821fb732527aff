"""scikit-learn, without privacy: one iteration of its ``LogisticRegression``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import sklearn
from sklearn._loss import HalfBinomialLoss, HalfMultinomialLoss
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._linear_loss import LinearModelLoss

from benchmarks.peers import scikit_learn_adapter as peer
from benchmarks.peers.protocol import Predict, Task
from benchmarks.step_cost.protocol import Adapter, Work, Workload, make_rows, serve


@contextmanager
def gradient(workload: Workload) -> Iterator[Work]:
    rows = make_rows(workload)
    loss = (
        HalfBinomialLoss()
        if workload.classes == 1
        else HalfMultinomialLoss(n_classes=workload.classes)
    )
    model = LinearModelLoss(base_loss=loss, fit_intercept=False)
    y, coefficients = rows.y.astype(workload.dtype), np.asfortranarray(rows.w.T)
    yield lambda: model.loss_gradient(coefficients, rows.X, y)[1]


def default_fit(task: Task, epsilon: float, seed: int) -> Predict:
    return LogisticRegression().fit(task.X, task.y).decision_function


SCIKIT_LEARN = Adapter(
    f"scikit-learn {sklearn.__version__}",
    {"scikit-learn": gradient},
    {"scikit-learn": peer.fit, "scikit-learn, 100 iterations": default_fit},
)

if __name__ == "__main__":
    serve(SCIKIT_LEARN)
