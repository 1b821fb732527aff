"""The types of private preprocessing: settings and planned steps."""

from __future__ import annotations

import abc
import dataclasses
import math

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import AnyRelease

__all__ = ["PlannedStep", "Preprocessor", "dense_spec"]


def dense_spec(data: DataSpec, row_norm: float) -> DataSpec:
    """Public facts of dense rows with another row norm, the intercept in proportion."""
    return dataclasses.replace(
        data,
        row_norm=row_norm,
        intercept=data.intercept * (row_norm / data.row_norm),
        sparse=False,
        entry_bound=math.inf,
    )


class PlannedStep(abc.ABC):
    """A preprocessing step whose settings are all decided; frozen, public, and free of data.

    A dataclass whose fields say everything, like a ``Method``.
    """

    data: DataSpec
    """Public facts about the rows that come to the step."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name of the stage in reports, such as ``"center"``."""

    @property
    @abc.abstractmethod
    def releases(self) -> tuple[AnyRelease, ...]:
        """All releases of the step, with their sensitivities and noise."""

    @property
    @abc.abstractmethod
    def output(self) -> DataSpec:
        """Public facts about the rows after the step."""

    @property
    def noise_growth(self) -> float:
        """Factor by which noise in coefficients grows on the way back, before data is seen.

        For rows of the greatest norm; shorter ones make it larger.
        """
        return 1.0

    @abc.abstractmethod
    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        """Learn the map from releases of ``oracle`` alone.

        ``seed``, 64 random bits, is public randomness that no row had a part in.
        """


class Preprocessor(abc.ABC):
    """Public settings of a preprocessing step; what is left open is decided by ``plan``.

    A new step is one of these, with a ``PlannedStep``.
    """

    @abc.abstractmethod
    def share(self, data: DataSpec, mu: float) -> float:
        """Share of the budget (of mu squared) that the step asks for by default.

        Parameters
        ----------
        data : DataSpec
            Public facts about the rows that come to the step.
        mu : float
            The whole budget as Gaussian DP, over the relation's factor.

        Returns
        -------
        float
            In [0, 1); 0 for a step that releases nothing.
        """

    @abc.abstractmethod
    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedStep:
        """Decide every setting and the noise, from public facts only.

        Parameters
        ----------
        data : DataSpec
            Public facts about the rows that come to the step.
        mu : float
            What the step may spend: its releases together must be mu-GDP.
        adjacency : Adjacency
            The neighbouring relation.

        Returns
        -------
        PlannedStep

        Raises
        ------
        ValueError
            If the step cannot be done with such rows.
        """
