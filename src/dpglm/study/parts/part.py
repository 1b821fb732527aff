"""A part of a study: declared, then planned, then run."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.study.persons import Persons
from dpglm.tables.schema import Schema

__all__ = [
    "EVALUATION",
    "EXPLORATION",
    "MODEL",
    "Columns",
    "DeclaredPart",
    "Expected",
    "PlannedPart",
]

EXPLORATION, MODEL, EVALUATION = "exploration", "model", "evaluation"
"""Names of the parts, in the order in which they run."""

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""A table in memory: its columns by name."""


@final
@dataclass(frozen=True)
class Expected:
    """What to expect of a part before anything is spent.

    Parameters
    ----------
    part : str
        Name of the part.
    quantity : str
        Of what, in words.
    precision : str
        How precise it will be, in words.
    """

    part: str
    quantity: str
    precision: str


class PlannedPart(abc.ABC):
    """A part with every setting decided, before a row is seen."""

    @property
    @abc.abstractmethod
    def plan(self) -> Plan:
        """What it will release, and what that costs."""

    @property
    @abc.abstractmethod
    def noise_to_sampling(self) -> float:
        """How much more noise varies than sampling with the plan's budget, on average."""

    @abc.abstractmethod
    def expected(self) -> tuple[Expected, ...]:
        """Say how precise its results will be, from public facts alone."""

    @abc.abstractmethod
    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        groups: NDArray[Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Any:
        """Execute the plan on its rows; the result has a certificate, ``privacy_``.

        ``groups`` says whose each row is, where persons are protected with all of theirs. ``model``
        is what the part that learns has fitted, for the part that evaluates it. ``where`` says
        which rows count, if not all.
        """


class DeclaredPart(abc.ABC):
    """What a study is to do, as it was declared."""

    @abc.abstractmethod
    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedPart:
        """Plan the part for so many rows within a budget; a ValueError says why it cannot be.

        ``persons`` are those whose rows are protected together, where these are not single rows.
        """
