"""Tables of counts and sums instead of a model: one joint release."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.tabulated import Cells, noisy_tables, table_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem, Squared
from dpglm.solvers.base import Method, Plan, Stage, StepInfo
from dpglm.solvers.parts.planning import calibrated

__all__ = ["Tabulation", "plan_tabulation"]

_State: TypeAlias = NDArray[np.float64]

# Rows are counted, so that no loss is ever asked.
_PROBLEM = Problem(Squared())


@final
@dataclass(frozen=True)
class Tabulation(Method[_State]):
    """Counts of rows in the cells of several tables, and sums of their numbers there.

    What it returns are the cells of all tables, one after the other, weights and noise included.

    Privacy: one Gaussian release of all tables together.
    """

    data: DataSpec
    adjacency: Adjacency
    tables: tuple[Cells, ...]
    noise_multiplier: float

    algorithm = "tabulation"

    fits = False
    n_steps = 1
    gradient_evaluations = 0.0

    def __post_init__(self) -> None:
        used = [one for table in self.tables for one in (*table.columns, *table.values)]
        if not self.tables or max(used, default=0) >= self.data.n_features:
            raise ValueError(
                f"tables must be at least one, of columns below {self.data.n_features}, got "
                f"{self.tables!r}"
            )

    @functools.cached_property
    def release(self) -> SumRelease:
        """The one release."""
        return table_release(
            self.data, self.adjacency, GaussianNoise(self.noise_multiplier), self.tables
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.release,)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Stage("tables", self.releases, self.event),)

    @property
    def coefficient_noise(self) -> float:
        return self.release.noise_std

    def init(self, seed: int) -> _State:
        return np.zeros(self.release.coordinates)

    def step(self, state: _State, oracle: Oracle) -> tuple[_State, StepInfo]:
        return noisy_tables(oracle, self.release, self.tables), StepInfo(1, math.nan)

    def finish(self, state: _State) -> NDArray[np.float64]:
        return state


def plan_tabulation(
    data: DataSpec, budget: PrivacyBudget, adjacency: Adjacency, tables: tuple[Cells, ...]
) -> Plan:
    """Plan tables with the least noise within a budget that allows Gaussian noise."""
    return calibrated(
        lambda noise: Tabulation(data, adjacency, tables, noise),
        _PROBLEM,
        budget,
        data,
        adjacency,
    )
