"""What identifies a fit to its checkpoint: everything that affects the model."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from dpglm.data.collection import Collection
from dpglm.data.prepare import ColumnScaling
from dpglm.estimators._private import PublicFacts
from dpglm.estimators.linear._targets import Task

__all__ = ["identity"]

# The plan has what these decide, and is compared as a whole.
_IN_THE_PLAN = frozenset({"adjacency", "budget", "delta", "epsilon", "solver"})
# These change nothing in a model; where noise comes from is compared beside the plan.
_OF_NO_CONSEQUENCE = frozenset({"callback", "ledger", "random_state", "verbose"})


def identity(
    estimator: BaseEstimator,
    rows: Collection,
    facts: PublicFacts,
    scaling: ColumnScaling | None,
    task: Task,
) -> dict[str, Any]:
    """List by name what identifies a fit beyond its plan, all of it public.

    Every parameter of the estimator counts, but for those that are known not to.
    """
    noted = {fact.name: (fact.value, fact.provenance) for fact in facts.facts}
    parameters = estimator.get_params(deep=False)
    kept = sorted(set(parameters) - _IN_THE_PLAN - _OF_NO_CONSEQUENCE)
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "estimator": type(estimator),
        **{name: parameters[name] for name in kept},
        **{f"{name} in use": value for name, value in noted.items()},
        "feature names": None if names is None else list(names),
        "schema": rows.schema,
        "weighted rows": rows.is_weighted,
        "columns": scaling,
        "targets": task.targets,
        "weights": task.weights,
    }
