"""The part of a study that looks at the table."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._words import plain_number
from dpglm.exploration import DescriptionPlan, plan_description
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.study.division import ratio_of_share
from dpglm.study.parts.part import EXPLORATION, Columns, DeclaredPart, Expected, PlannedPart
from dpglm.study.persons import Persons
from dpglm.tables.schema import Schema

__all__ = ["Exploration", "PlannedExploration"]

_SHARE = "share of rows"
# Categories and bins that are looked at hold some tenth of the rows.
_TYPICAL = 0.1


@final
@dataclass(frozen=True)
class Exploration(DeclaredPart):
    """What is to be looked at; ``options`` are those of ``dpglm.exploration.plan_description``."""

    options: Mapping[str, Any]

    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedExploration:
        plan = plan_description(
            schema,
            n_rows,
            budget,
            adjacency=adjacency.value,
            groups=None if persons is None else persons.bound,
            **self.options,
        )
        return PlannedExploration(plan)


@final
@dataclass(frozen=True, eq=False)
class PlannedExploration(PlannedPart):
    """A description that is planned."""

    description: DescriptionPlan

    @property
    def plan(self) -> Plan:
        return self.description.plan

    @property
    def noise_to_sampling(self) -> float:
        shown = self.description
        found = [
            ratio_of_share(one.half_width / shown.z, self.plan.data.n_rows, _TYPICAL)
            for one in shown.precision()
            if one.quantity == _SHARE
        ]
        return math.fsum(found) / len(found)

    def expected(self) -> tuple[Expected, ...]:
        widest: dict[str, float] = {}
        for one in self.description.precision():
            if one.quantity != "mean":  # Each is in units of its own column.
                widest[one.quantity] = max(widest.get(one.quantity, 0.0), one.half_width)
        return tuple(
            Expected(EXPLORATION, quantity, f"± {plain_number(width, 2)} at most")
            for quantity, width in widest.items()
        )

    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        groups: NDArray[Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Any:
        plan = dataclasses.replace(self.description, chosen=where is not None)
        return plan.run(
            table, groups=groups, where=where, random_state=noise, checkpoint=checkpoint
        )
