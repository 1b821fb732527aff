"""dpglm's additive models with default settings: nothing but the guarantee and the schema."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.protocol import Adapter, Predict, Task, serve
from dpglm import AdditiveClassifier, AdditiveRegressor, __version__


def fit(task: Task, epsilon: float, seed: int) -> Predict:
    common: dict[str, Any] = {"epsilon": epsilon, "delta": task.delta, "random_state": seed}
    columns = {name: _of_positions(column) for name, column in task.columns.items()}
    schema = {"columns": columns, "provenance": "the task"}
    if task.kind == "regression":
        bounds = (task.target_low, task.target_high)
        return AdditiveRegressor(schema, target_bounds=bounds, **common).fit(task.X, task.y).predict
    model = AdditiveClassifier(schema, classes=range(task.n_classes), **common)
    return model.fit(task.X, task.y).decision_function


def _of_positions(column: dict[str, Any]) -> dict[str, Any]:
    """Name categories by their positions, as the rows contain positions."""
    if column["type"] != "categorical":
        return column
    return {**column, "categories": list(range(len(column["categories"])))}


DPGLM_ADDITIVE = Adapter(
    f"dpglm {__version__}",
    fit,
    "(ε, 1e-5), a row zeroed out",
    lambda task: "types, bounds and categories declared, otherwise defaults",
)

if __name__ == "__main__":
    serve(DPGLM_ADDITIVE)
