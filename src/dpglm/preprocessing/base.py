"""Types of private preprocessing: settings and planned steps."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import ClassVar, final

from scipy.special import log_ndtr

from dpglm._validation import check_bools, check_real
from dpglm.data.maps import RowMap
from dpglm.data.rows import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.releases import AnyRelease


def dense_spec(data: DataSpec, row_norm: float | None) -> DataSpec:
    """Return facts of dense rows with a row norm, by default the same; the intercept scales."""
    row_norm = data.row_norm if row_norm is None else row_norm
    return dataclasses.replace(
        data,
        row_norm=row_norm,
        intercept=data.intercept * (row_norm / data.row_norm),
        sparse=False,
        entry_bound=math.inf,
    )


class Preprocessor(abc.ABC):
    """A preprocessing step: a frozen dataclass of public settings.

    Notes
    -----
    The methods take ``mu``, the budget of the step as Gaussian DP: its releases together must be
    mu-GDP. They depend on public facts only.
    """

    name: ClassVar[str]
    """Name of the stage in reports, such as ``"center"``."""
    row_norm: float | None = None
    """Row norm after the step; by default the one before."""

    def __post_init__(self) -> None:
        check_bools(self)
        if self.row_norm is not None:
            check_real("row_norm", self.row_norm, least=SMALLEST, most=LARGEST)

    @abc.abstractmethod
    def share(self, data: DataSpec, mu: float) -> float:
        """Return the default share of the budget (of mu squared), in [0, 1).

        ``mu`` is the whole budget as Gaussian DP, divided by the relation's factor; the share is 0
        for a step that releases nothing.
        """

    @abc.abstractmethod
    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        """Return all releases of the step, with their sensitivities and noise.

        ``data`` has the facts of the input rows. ValueError if the step does not support such rows.
        """

    def output(self, data: DataSpec) -> DataSpec:
        """Return facts about the rows after the step; by default dense ones with ``row_norm``."""
        return dense_spec(data, self.row_norm)

    def noise_growth(self, data: DataSpec) -> float:
        """Return the growth of coefficient noise when the map is undone, at most."""
        return 1.0

    @abc.abstractmethod
    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        """Learn the map from the planned releases of ``oracle`` alone.

        ``seed`` is public randomness: 64 random bits that are independent of the rows.
        """

    @final
    def plan(self, data: DataSpec, mu: float, adjacency: Adjacency) -> PlannedStep:
        """Decide the noise, from public facts only; arguments and errors as in ``releases``."""
        planned = PlannedStep(self, data, adjacency, mu)
        # This refuses rows that the step does not support, or without a bound on rounding.
        _ = planned.releases
        return planned


@final
@dataclass(frozen=True)
class PlannedStep:
    """A preprocessing step with the budget (``mu``, as Gaussian DP) and the rows that it is for.

    Parameters
    ----------
    step : Preprocessor
        The settings.
    data : DataSpec
        Public facts about the input rows.
    adjacency : Adjacency
        The neighbouring relation.
    mu : float
        Budget of the step.
    """

    step: Preprocessor
    data: DataSpec
    adjacency: Adjacency
    mu: float

    @property
    def name(self) -> str:
        """Name of the stage in reports."""
        return self.step.name

    @functools.cached_property
    def releases(self) -> tuple[AnyRelease, ...]:
        """All releases of the step."""
        return self.step.releases(self.data, self.mu, self.adjacency)

    @property
    def output(self) -> DataSpec:
        """Public facts about the rows after the step."""
        return self.step.output(self.data)

    @property
    def noise_growth(self) -> float:
        """Growth factor of coefficient noise when the map is undone."""
        return self.step.noise_growth(self.data)

    def learn(self, oracle: Oracle, seed: int) -> RowMap:
        """Learn the map; see ``Preprocessor.learn``."""
        return self.step.learn(oracle, self, seed)


def pure_epsilon(mu: float) -> float:
    """Return the epsilon for which epsilon-DP implies mu-GDP: ``log(Phi(mu/2) / Phi(-mu/2))``.

    Privacy: the trade-off function of an epsilon-DP release lies above two chords that meet where
    both errors are ``1 / (1 + exp(epsilon))``. The trade-off function of mu-GDP is convex, has the
    same ends and passes through that point for this mu, so it lies below the chords.
    """
    return float(log_ndtr(mu / 2.0) - log_ndtr(-mu / 2.0))


def bounded_range_epsilon(mu: float) -> float:
    """Return the epsilon for which bounded range is about mu-GDP: twice ``pure_epsilon(mu)``.

    Privacy: log-ratios of bounded range lie within ``[t - epsilon, t]`` for some t; the worst case
    is ``t = epsilon / 2``, which is ``epsilon / 2``-DP. This is checked numerically only, and used
    for the division of a budget only: plans are accounted exactly.
    """
    return 2.0 * pure_epsilon(mu)


def share_for_error(error: float, wanted: float, least: float = 0.01, most: float = 0.1) -> float:
    """Return the share of mu squared that achieves the wanted error, within limits.

    ``error`` is the error at the whole budget; errors are proportional to 1 / mu.
    """
    return min(max((error / wanted) ** 2, least), most)
