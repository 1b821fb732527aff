"""Progress of a fit as ``verbose`` asks for it: a bar in a terminal, else lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

from dpglm._progress import is_watched, shown
from dpglm.data.collection import Collection
from dpglm.data.prepare import ColumnScaling
from dpglm.estimators._private import PublicFacts
from dpglm.estimators.linear._targets import Task
from dpglm.solvers.base import Plan, StepInfo

# What identifies a fit to its checkpoint: everything that affects the model.

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


def showing(verbose: int, plan: Plan | None = None) -> contextlib.AbstractContextManager[None]:
    """Show the progress of a block, unless lines for the steps of its plan will."""
    lines_do = plan is not None and plan.method.releases_iterates and not is_watched()
    return shown() if verbose and not lines_do else contextlib.nullcontext()


def heard(
    callback: Callable[[StepInfo], None] | None, verbose: int
) -> Callable[[StepInfo], None] | None:
    """Return the function that is called after each step: the callback, and a writer of lines.

    Privacy: it is not called where only the last iterate is released.
    """
    wanted = verbose > 1 or (verbose and not is_watched())
    hearers = [one for one in (callback, _print_step if wanted else None) if one is not None]

    def tell(info: StepInfo) -> None:
        for one in hearers:
            one(info)

    return tell if hearers else None


def _print_step(info: StepInfo) -> None:
    sys.stderr.write(
        f"step {info.step}: step size {info.step_size:.3g}, "
        f"noisy gradient norm {info.gradient_norm:.3g}\n"
    )
