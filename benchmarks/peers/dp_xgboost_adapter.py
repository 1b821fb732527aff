"""DP-XGBoost: boosted trees with pure privacy, subsampled rows for each tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import version

import dp_xgboost
import numpy as np

from benchmarks.peers.protocol import Adapter, Predict, Task, serve


@dataclass(frozen=True)
class Setting:
    """Its settings; docs/evidence/peers.md gives the sources of the numbers."""

    trees: int
    depth: int
    share: float
    """Share of the rows, drawn anew for each tree."""
    least_weight: float
    """Least number of rows in a leaf: the sensitivity of its value falls with it."""
    rate: float


CLASSES = {
    0.1: Setting(5, 3, 0.5, 500.0, 0.3),
    0.5: Setting(20, 3, 0.1, 100.0, 0.3),
    1.0: Setting(20, 5, 0.1, 100.0, 0.3),
    4.0: Setting(20, 3, 0.5, 100.0, 0.3),
}
NUMBERS = {
    0.1: Setting(5, 5, 0.1, 500.0, 0.3),
    0.5: Setting(5, 5, 0.5, 500.0, 0.3),
    1.0: Setting(5, 3, 0.5, 500.0, 0.3),
    4.0: Setting(20, 3, 0.5, 500.0, 0.3),
}


def epsilon_of_a_tree(epsilon: float, chosen: Setting) -> float:
    """Return the epsilon of one tree's sampled rows if trees share epsilon equally."""
    return math.log1p(math.expm1(epsilon / chosen.trees) / chosen.share)


def fit(task: Task, epsilon: float, seed: int) -> Predict:
    numbers = task.kind == "regression"
    chosen = (NUMBERS if numbers else CLASSES)[epsilon]
    # Slopes beyond 1 are cut off, so targets of a regression are brought to [-1, 1].
    centre = (task.target_low + task.target_high) / 2.0 if numbers else 0.0
    half = (task.target_high - task.target_low) / 2.0 if numbers else 1.0
    columns = list(task.columns.values())
    rows = dp_xgboost.DMatrix(
        task.X,
        (task.y - centre) / half,
        feature_min=np.array([column.get("low", 0.0) for column in columns]),
        feature_max=np.array(
            [column.get("high", len(column.get("categories", [])) - 1.0) for column in columns]
        ),
    )
    trees = dp_xgboost.train(
        {
            "objective": "reg:squarederror" if numbers else "binary:logistic",
            "base_score": 0.0 if numbers else 0.5,
            "tree_method": "approxDP",
            "dp_epsilon_per_tree": epsilon_of_a_tree(epsilon, chosen),
            "max_depth": chosen.depth,
            "subsample": chosen.share,
            "min_child_weight": chosen.least_weight,
            "learning_rate": chosen.rate,
            "lambda": 0.1,
            "seed": seed,
            "nthread": 1,
            "verbosity": 0,
        },
        rows,
        chosen.trees,
    )
    return lambda X: centre + half * trees.predict(dp_xgboost.DMatrix(X), output_margin=True)


def setting(task: Task) -> str:
    chosen = NUMBERS if task.kind == "regression" else CLASSES
    by_epsilon = "; ".join(
        f"at ε = {epsilon:g} {one.trees} trees of depth {one.depth} on {one.share:.0%} of the "
        f"rows, min_child_weight {one.least_weight:g}, learning rate {one.rate:g}"
        for epsilon, one in chosen.items()
    )
    return f"feature_min, feature_max; lambda 0.1; {by_epsilon}"


DP_XGBOOST = Adapter(
    f"dp-xgboost {version('dp-xgboost')}", fit, "(ε, 0), a row added or removed", setting
)

if __name__ == "__main__":
    serve(DP_XGBOOST)
