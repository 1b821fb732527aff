"""The plan of an estimator, and the rows as it prepares them."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from dpglm._validation import check_integer
from dpglm.audit.neighbours import Neighbours, Table, neighbouring_tables, target_ends
from dpglm.data.memory.dense import DenseRows
from dpglm.data.rows import Rows
from dpglm.estimators._private import PrivateFit
from dpglm.exceptions import LowSignalWarning, PublicInformationWarning
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.observer import Observer
from dpglm.problem.loss import Target
from dpglm.solvers.base import Plan

__all__ = ["captured", "estimator_neighbours"]


@final
class _StoppedError(Exception):
    def __init__(self, plan: Plan, rows: Rows) -> None:
        super().__init__()
        self.plan, self.rows = plan, rows


@final
class _Stop(NoiseSource, Observer):
    """Ends a fit at the moment at which it would run its plan."""

    name: ClassVar[str] = "none"
    is_private: ClassVar[bool] = False

    @property
    def observer(self) -> Observer:
        return self

    def begins(self, plan: Plan, rows: Rows) -> None:
        raise _StoppedError(plan, rows)

    def words(self, count: int) -> NDArray[np.uint64]:
        raise AssertionError("no fit asks for noise before it runs its plan")

    def answer(self, declared: Any, value: Any) -> Any:
        raise AssertionError("no fit releases anything before it runs its plan")

    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        raise AssertionError("no fit draws a sample before it runs its plan")


def captured(estimator: BaseEstimator, table: Table) -> tuple[Plan, Rows]:
    """Fit an estimator up to the run of its plan; return plan and prepared rows.

    What follows the run in ``fit`` works on released values and public facts alone. The table's
    weights are put on the prepared rows, which are otherwise those that the estimator encoded,
    scaled and clipped.
    """
    with warnings.catch_warnings():
        # The rows are synthetic; the caller checks what a plan reads off them.
        warnings.simplefilter("ignore", LowSignalWarning)
        warnings.simplefilter("ignore", PublicInformationWarning)
        try:
            clone(estimator).set_params(random_state=_Stop()).fit(table.X, table.y)
        except _StoppedError as stopped:
            return stopped.plan, _weighted(stopped.rows, table)
    raise ValueError(f"target must be an estimator of dpglm, got {estimator!r}")


def estimator_neighbours(
    estimator: BaseEstimator, n_rows: int, n_features: int, n_classes: int
) -> tuple[Plan, tuple[Neighbours, ...], NoiseSource]:
    """Return an estimator's plan, neighbouring data sets as prepared rows, and its noise source.

    Classes and bounds on targets are declared where the estimator leaves them open. A ValueError
    refuses plans that depend on the rows, and noise that is not private.
    """
    check_integer("n_rows", n_rows, least=2)
    check_integer("n_features", n_features, least=1)
    check_integer("n_classes", n_classes, least=2)
    if not isinstance(estimator, PrivateFit):
        raise ValueError(f"target must be an estimator of dpglm, got {estimator!r}")
    estimator = clone(estimator)
    adjacency = Adjacency(estimator.get_params(deep=False)["adjacency"])
    targets = _declare(estimator, adjacency, n_rows, n_classes)
    parameters = estimator.get_params()
    tables = neighbouring_tables(
        adjacency,
        n_rows,
        n_features,
        targets=targets,
        intercept=bool(_first_named(parameters, "fit_intercept")),
    )
    noise = estimator._noise()
    if not noise.is_private:
        raise ValueError(
            "random_state must be None for an audit, or a source of private noise: a fit with "
            f"{noise.name} noise is not private"
        )
    plans, pairs = [], []
    for name, *both in tables:
        found = [captured(estimator, table) for table in both]
        plans += [plan for plan, _ in found]
        first, second = (rows for _, rows in found)
        pairs.append(Neighbours(name, first, second, bool(both[0].weights[1:].any())))
    plan = plans[0]
    if any((other.event, other.data) != (plan.event, plan.data) for other in plans):
        raise ValueError(
            "target must not depend on private rows, but its plan does: declare row_norm= or "
            "feature_bounds=, and bounds on targets"
        )
    return plan, tuple(pairs), noise


def _declare(estimator: Any, adjacency: Adjacency, n_rows: int, n_classes: int) -> tuple[Any, Any]:
    """Declare the public facts of the synthetic table; return the targets to use."""
    parameters = estimator.get_params()
    if not adjacency.n_is_public and parameters.get("n_rows", 0) is None:
        estimator.set_params(n_rows=n_rows)
    for key in parameters:
        if key.split("__")[-1] == "classes":
            if parameters[key] is None:
                estimator.set_params(**{key: list(range(n_classes))})
            classes = sorted(estimator.get_params()[key])
            return classes[-1], classes[0]
    for key in parameters:
        if key.split("__")[-1] == "target_bounds":
            if parameters[key] is None:
                # Not 0, which gamma regression does not admit.
                estimator.set_params(**{key: (1e-3, 1.0)})
            return target_ends(Target.REAL, 1, *estimator.get_params()[key])
    # A transformer looks at no targets.
    return 0.0, 0.0


def _first_named(parameters: dict[str, Any], name: str) -> Any:
    return next((v for key, v in parameters.items() if key.split("__")[-1] == name), None)


def _weighted(rows: Rows, table: Table) -> Rows:
    """Put a table's weights on prepared rows."""
    blocks = list(rows.blocks())
    weights = [np.ones(len(b.norms)) if b.weights is None else b.weights for b in blocks]
    return DenseRows(
        np.concatenate([block.features() for block in blocks]),
        np.concatenate([block.targets for block in blocks]),
        np.concatenate([block.norms for block in blocks]),
        rows.spec,
        np.concatenate(weights) * table.weights.astype(rows.spec.dtype),
    )
