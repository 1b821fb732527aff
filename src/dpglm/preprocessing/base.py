"""The types of private preprocessing: settings and planned steps."""

from __future__ import annotations

import abc
import dataclasses
import math

from scipy.special import log_ndtr

from dpglm._validation import check_real
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import AnyRelease


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


# What steps have in common: the epsilon of a choice, the share of the budget, the row norm.

_WANTED_RANK_ERROR = 0.02
_LOG_CANDIDATES = 10.0
_LEAST_SHARE, _MOST_SHARE = 0.002, 0.1


def pure_epsilon(mu: float) -> float:
    """Epsilon for which every epsilon-DP release is mu-GDP: ``log(Phi(mu/2) / Phi(-mu/2))``.

    Privacy: the trade-off function of an epsilon-DP release lies above two chords that meet where
    both errors are ``1 / (1 + exp(epsilon))``. That of mu-GDP is convex, has the same ends, and
    passes through that point for this mu, so it lies below the chords.
    """
    return float(log_ndtr(mu / 2.0) - log_ndtr(-mu / 2.0))


def bounded_range_epsilon(mu: float) -> float:
    """Epsilon for which a choice of bounded range is about mu-GDP: twice ``pure_epsilon(mu)``.

    Privacy: log-ratios of bounded range lie within ``[t - epsilon, t]`` for some t; the worst case
    is ``t = epsilon / 2``, which is ``epsilon / 2``-DP. That no other t is worse is checked by
    numbers only, so nothing rests on it: plans are accounted for as they are.
    """
    return 2.0 * pure_epsilon(mu)


def quantile_share(data: DataSpec, mu: float) -> float:
    """Share of the budget for a quantile that is off by a fiftieth of the rows, within limits."""
    error = 2.0 * _LOG_CANDIDATES / (bounded_range_epsilon(mu) * data.n_rows)
    return share_for_error(error, _WANTED_RANK_ERROR, _LEAST_SHARE, _MOST_SHARE)


def share_for_error(error: float, wanted: float, least: float, most: float) -> float:
    """Share of the budget (of mu squared) that brings an error to the wanted one, within limits.

    ``error`` is what the whole budget would give; it falls as 1 / mu.
    """
    return min(max((error / wanted) ** 2, least), most)


def check_row_norm(row_norm: float | None) -> None:
    """Check the row norm after a step, where one is given."""
    if row_norm is not None:
        check_real("row_norm", row_norm, least=SMALLEST, most=LARGEST)
