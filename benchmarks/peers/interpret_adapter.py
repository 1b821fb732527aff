"""interpret's explainable boosting machine with privacy (DP-EBM): types and bounds declared."""

from __future__ import annotations

from importlib.metadata import version

from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

from benchmarks.peers.protocol import Adapter, Predict, Task, serve

_TYPES = {"numeric": "continuous", "categorical": "nominal"}


def fit(task: Task, epsilon: float, seed: int) -> Predict:
    columns = list(task.columns.values())
    declared = {
        "epsilon": epsilon,
        "delta": task.delta,
        "feature_names": list(task.columns),
        "feature_types": [_TYPES[column["type"]] for column in columns],
        "privacy_bounds": {
            place: (float(column["low"]), float(column["high"]))
            for place, column in enumerate(columns)
            if column["type"] == "numeric"
        },
        "random_state": seed,
        "n_jobs": 1,
    }
    if task.kind == "regression":
        regression = DPExplainableBoostingRegressor(
            privacy_target_min=task.target_low, privacy_target_max=task.target_high, **declared
        )
        return regression.fit(task.X, task.y).predict
    classifier = DPExplainableBoostingClassifier(**declared)
    return classifier.fit(task.X, task.y).decision_function


def setting(task: Task) -> str:
    return "types and bounds declared, otherwise defaults"


INTERPRET = Adapter(
    f"interpret-core {version('interpret-core')}",
    fit,
    "(ε, 1e-5), a row added or removed",
    setting,
)

if __name__ == "__main__":
    serve(INTERPRET)
