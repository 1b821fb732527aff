"""The solver of a fit that learns a map of the rows and no model: it releases nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.solvers.base import Method, Plan, Solver, StepInfo

__all__ = ["NoModel", "NoModelMethod"]


@final
@dataclass(frozen=True)
class NoModel(Solver):
    """Stands where a solver is wanted and none is needed, as in ``Preprocessed``.

    Privacy: nothing is asked, nothing released, nothing spent; the coefficients are zeros.
    """

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        return Plan(problem, data, budget, adjacency, NoModelMethod(data))


@final
@dataclass(frozen=True)
class NoModelMethod(Method[None]):
    """No steps."""

    data: DataSpec

    algorithm = "none"

    fits = False
    n_steps = 0
    releases = ()
    gradient_evaluations = 0.0
    coefficient_noise = 0.0

    def init(self, seed: int) -> None:
        return None

    def step(self, state: None, oracle: Oracle) -> tuple[None, StepInfo]:
        raise AssertionError("there are no steps")

    def finish(self, state: None) -> NDArray[np.float64]:
        return np.zeros(self.data.coefficient_shape)
