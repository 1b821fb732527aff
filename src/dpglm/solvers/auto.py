"""The solver that estimators use unless told otherwise: a choice by public facts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm.data.spec import DataSpec
from dpglm.oracle.moment_plans import MOST_COLUMNS
from dpglm.preprocessing import Center, Preprocessor, Whiten
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.unit import Adjacency
from dpglm.problem import Problem, Squared
from dpglm.solvers.base import Plan, Solver
from dpglm.solvers.newton import Newton
from dpglm.solvers.noisy_gd import NoisyGD
from dpglm.solvers.preprocessed import Preprocessed
from dpglm.solvers.pure_gd import PureGD
from dpglm.solvers.sufficient_statistics import SufficientStatistics

__all__ = ["Auto", "choose"]

# Newton's steps in all directions of more columns than these drown in noise; 2^28 entries in
# double precision are 2 GiB.
_MOST_COLUMNS = 300
_MOST_ENTRIES = 2**28
# Noise in second moments that whitening can bear, against a row's squared length.
_MOST_MOMENT_NOISE = 0.03
_EXPONENT = 0.25


def choose(
    problem: Problem,
    budget: PrivacyBudget,
    data: DataSpec,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
) -> Solver:
    """Choose a solver with default settings.

    Parameters
    ----------
    problem : Problem
        Loss, regularizer and constraint.
    budget : PrivacyBudget
        What may be spent.
    data : DataSpec
        Public facts about the data.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        The neighbouring relation.

    Returns
    -------
    Solver
        ``PureGD`` for a delta of 0, which Gaussian noise cannot give. For at most 300 columns,
        and at most 2^28 entries of rows: ``SufficientStatistics`` for squared loss, ``Newton``
        for other convex losses. Otherwise ``NoisyGD``; after ``Center`` where rows are dense and
        there is an intercept, and after ``Whiten`` too where noise leaves something to see of
        second moments.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> choose(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data) == Newton()
    True
    """
    if budget.to_dict().get("delta") == 0.0:
        return PureGD()
    large = data.n_columns > _MOST_COLUMNS or data.n_rows * data.n_columns > _MOST_ENTRIES
    if not large and problem.loss.convex:
        return SufficientStatistics() if isinstance(problem.loss, Squared) else Newton()
    if data.sparse or not data.intercept or not problem.loss.convex:
        return NoisyGD()
    steps: list[Preprocessor] = [Center()]
    whiten = Whiten(exponent=_EXPONENT)
    mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.weight_bound)
    signal = data.n_rows * mu * math.sqrt(whiten.share(data, mu))
    if (
        data.n_columns <= MOST_COLUMNS
        and math.sqrt(2.0 * data.n_columns) <= _MOST_MOMENT_NOISE * signal
    ):
        steps.append(whiten)
    return Preprocessed(steps)


@final
@dataclass(frozen=True)
class Auto(Solver):
    """The solver that ``choose`` returns.

    Notes
    -----
    Privacy: the choice depends on public facts only; the plan is that of the chosen solver.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> data = DataSpec(n_rows=1000, n_features=3, target_low=0.0, target_high=1.0)
    >>> plan = Auto().plan(Problem(Squared()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.method.settings()["algorithm"]
    'sufficient statistics'
    """

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        return choose(problem, budget, data, adjacency).plan(problem, budget, data, adjacency)
