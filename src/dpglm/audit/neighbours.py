"""Neighbouring data sets on which one row shows as much as possible."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone

from dpglm._calls import checked
from dpglm._validation import Array, check_integer, check_kind
from dpglm.audit.games import OutOfStepError, Replay
from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.estimators._private import PrivateFit
from dpglm.exceptions import LowSignalWarning, PublicInformationWarning
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.problem.loss import Target
from dpglm.solvers.base import Plan

HUGE = 1e6
"""Norm of a row of interest over the row-norm bound: such rows are clipped."""


@final
@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets that a claim says are hard to tell apart.

    Parameters
    ----------
    name : str
        A short description.
    first, second : object
        ``Rows`` for plans; whatever the release takes for functions.
    others_contribute : bool, default=False
        Whether any other row than the one of interest contributes something.
    """

    name: str
    first: Any
    second: Any
    others_contribute: bool = False


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows as a user would give them; a weight is 1, or 0 for a row that is erased.

    Weights are those of prepared rows: an erased row contributes nothing, however it is prepared.
    """

    X: Array
    y: NDArray[Any]
    weights: Array


def target_ends(target: Target, n_outputs: int, low: float, high: float) -> tuple[Any, Any]:
    """Return the target with the largest gradient at zero, and one far from it."""
    if target is Target.BINARY:
        return 1.0, -1.0
    if target is Target.CLASS:
        return n_outputs - 1, 0
    least, most = np.clip(target.bounds, -HUGE, HUGE)
    ends = (low if math.isfinite(low) else least, high if math.isfinite(high) else most)
    far, near = sorted(ends, key=abs, reverse=True)
    return far, near


def neighbouring_tables(
    adjacency: Adjacency,
    n_rows: int,
    n_features: int,
    *,
    targets: tuple[Any, Any],
    intercept: bool,
    row_norm: float = 1.0,
) -> Iterator[Neighbours]:
    """Generate pairs of tables that differ in the first row: erased, removed, or replaced.

    The norms of rows of interest are a million times ``row_norm``; ``targets`` come from
    ``target_ends``.
    """
    far, near = targets
    along, spread = np.zeros(n_features), np.ones(n_features)
    along[0] = HUGE * row_norm
    nothing = np.zeros(n_features)

    def table(row: Array, target: Any, others: Array | None) -> Table:
        X = np.tile(nothing if others is None else others, (n_rows, 1))
        X[0] = row
        y = np.full(n_rows, far if others is None else near)
        y[0] = target
        weights = np.full(n_rows, 0.0 if others is None else 1.0)
        weights[0] = 1.0
        return Table(X, y, weights)

    def pair(
        name: str, row: Array, others: Array | None = None, *, turned: bool = True
    ) -> Neighbours:
        first = table(row, far, others)
        if adjacency is Adjacency.REPLACE_ONE:
            opposite = table(-row, far, others) if turned else table(row, near, others)
        elif adjacency.n_is_public:
            # The first row is erased in place; else it is removed.
            weights = np.concatenate([[0.0], first.weights[1:]])
            opposite = dataclasses.replace(first, weights=weights)
        else:
            opposite = Table(first.X[1:], first.y[1:], first.weights[1:])
        return Neighbours(name, first, opposite, others is not None)

    alone = "a huge row among rows that contribute nothing"
    if intercept and adjacency is Adjacency.REPLACE_ONE:
        # A turned row pulls the intercept to the same side.
        yield pair(alone + ", replaced by one with another target", along, turned=False)
    yield pair(alone, along)
    if n_features > 1:
        yield pair("a row with all features huge", HUGE * row_norm * spread)
    if n_rows > 1:
        yield pair("a huge row that all others pull against", along, others=along)
    if intercept:
        yield pair("a row that only the intercept shows", nothing, turned=False)


@checked
def worst_neighbours(plan: Plan) -> tuple[Neighbours, ...]:
    """Make the neighbouring data sets on which a plan is attacked.

    Parameters
    ----------
    plan : Plan
        A plan of any solver.

    Returns
    -------
    tuple of Neighbours
        Pairs of prepared rows that fit the plan.
    """
    spec = plan.data
    target = plan.problem.loss.target
    tables = neighbouring_tables(
        plan.adjacency,
        spec.n_rows,
        spec.n_features,
        targets=target_ends(target, spec.n_outputs, spec.target_low, spec.target_high),
        intercept=spec.intercept > 0.0,
        row_norm=spec.row_norm,
    )
    return tuple(
        dataclasses.replace(one, first=prepared(one.first, spec), second=prepared(one.second, spec))
        for one in tables
    )


def prepared(table: Table, spec: DataSpec) -> Rows:
    """Make a table satisfy the bounds of a plan's facts."""
    X = table.X.astype(spec.dtype)
    weights = spec.weight_bound * table.weights
    matrix = sparse.csr_array(X) if spec.sparse else X
    return prepare_rows(matrix, table.y, spec, weights=weights)


# The plan of an estimator, and the rows as it prepares them.


def captured(estimator: BaseEstimator, table: Table) -> tuple[Plan, Rows]:
    """Fit an estimator up to the run of its plan; return plan and prepared rows.

    After the run, ``fit`` uses released values and public facts alone. The prepared rows, which the
    estimator encoded, scaled and clipped, get the table's weights.
    """
    with warnings.catch_warnings():
        # The rows are synthetic; the caller checks that plans do not depend on them.
        warnings.simplefilter("ignore", LowSignalWarning)
        warnings.simplefilter("ignore", PublicInformationWarning)
        begun = Replay()
        try:
            clone(estimator).set_params(random_state=begun).fit(table.X, table.y)
        except OutOfStepError:
            return begun.plan, _weighted(begun.rows, table)
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
    check_kind("target", estimator, PrivateFit, "an estimator of dpglm")
    estimator = clone(estimator)
    adjacency = Adjacency(estimator.get_params(deep=False)["adjacency"])
    targets = _declare(estimator, adjacency, n_rows, n_classes)
    parameters = estimator.get_params()
    tables = neighbouring_tables(
        adjacency,
        n_rows,
        n_features,
        targets=targets,
        intercept=any(v for key, v in parameters.items() if key.endswith("fit_intercept")),
    )
    noise = noise_source(estimator.random_state)
    if not noise.is_private:
        raise ValueError(
            "random_state must be None for an audit, or a source of private noise: a fit with "
            f"{noise.name} noise is not private"
        )
    plans, pairs = [], []
    for one in tables:
        found = [captured(estimator, table) for table in (one.first, one.second)]
        plans += [plan for plan, _ in found]
        first, second = (rows for _, rows in found)
        pairs.append(dataclasses.replace(one, first=first, second=second))
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


def _weighted(rows: Rows, table: Table) -> Rows:
    """Put a table's weights on prepared rows."""
    blocks = list(rows.blocks())
    weights = [np.ones(len(b.norms)) if b.weights is None else b.weights for b in blocks]
    return ArrayRows(
        np.concatenate([block.features() for block in blocks]),
        np.concatenate([block.targets for block in blocks]),
        np.concatenate([block.norms for block in blocks]),
        rows.spec,
        np.concatenate(weights) * table.weights.astype(rows.spec.dtype),
    )
