"""Neighbouring data sets on which one row shows as much as possible."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.problem.loss import Target
from dpglm.solvers.base import Plan

__all__ = ["Neighbours", "Table", "neighbouring_tables", "target_ends", "worst_neighbours"]

HUGE = 1e6
"""How many times longer than allowed a row of interest comes, for the library to shorten it."""


@final
@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets that a claim says are hard to tell apart.

    Parameters
    ----------
    name : str
        What is special about them, in words.
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

    Weights belong to prepared rows: what preparation makes of an erased row is of no account.
    """

    X: NDArray[np.float64]
    y: NDArray[Any]
    weights: NDArray[np.float64]

    def without_the_first(self, *, erased: bool) -> Table:
        """Return the rows with the first one erased in place, or removed."""
        if not erased:
            return Table(self.X[1:], self.y[1:], self.weights[1:])
        weights = self.weights.copy()
        weights[0] = 0.0
        return dataclasses.replace(self, weights=weights)


def target_ends(target: Target, n_outputs: int, low: float, high: float) -> tuple[Any, Any]:
    """Return the target with the longest gradient at zero, and one far from it."""
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
) -> Iterator[tuple[str, Table, Table]]:
    """Generate pairs of tables that differ in the first row: erased, removed, or replaced.

    Rows of interest are a million times as long as ``row_norm``; ``targets`` as ``target_ends``
    returns them.
    """
    far, near = targets
    along, spread = np.zeros(n_features), np.ones(n_features)
    along[0] = HUGE * row_norm
    nothing = np.zeros(n_features)

    def table(row: NDArray[np.float64], target: Any, others: NDArray[np.float64] | None) -> Table:
        X = np.tile(nothing if others is None else others, (n_rows, 1))
        X[0] = row
        y = np.full(n_rows, far if others is None else near)
        y[0] = target
        weights = np.full(n_rows, 0.0 if others is None else 1.0)
        weights[0] = 1.0
        return Table(X, y, weights)

    def pair(
        name: str,
        row: NDArray[np.float64],
        others: NDArray[np.float64] | None = None,
        *,
        turned: bool = True,
    ) -> tuple[str, Table, Table]:
        first = table(row, far, others)
        if adjacency is not Adjacency.REPLACE_ONE:
            return name, first, first.without_the_first(erased=adjacency.n_is_public)
        opposite = table(-row, far, others) if turned else table(row, near, others)
        return name, first, opposite

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


def worst_neighbours(plan: Plan) -> tuple[Neighbours, ...]:
    """Make the neighbouring data sets on which a plan is attacked.

    Parameters
    ----------
    plan : Plan
        Of any solver.

    Returns
    -------
    tuple of Neighbours
        Of prepared rows, as the plan wants them.
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
        Neighbours(
            name, prepared(first, spec), prepared(second, spec), bool(first.weights[1:].any())
        )
        for name, first, second in tables
    )


def prepared(table: Table, spec: DataSpec) -> Rows:
    """Make a table satisfy the bounds of a plan's facts."""
    X = table.X.astype(spec.dtype)
    weights = spec.weight_bound * table.weights
    matrix = sparse.csr_array(X) if spec.sparse else X
    return prepare_rows(matrix, table.y, spec, weights=weights)
