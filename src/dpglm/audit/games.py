"""Attacks as games: a run on one of two data sets, seen by the attacker."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm.audit.laws import DensityLaw, Law
from dpglm.audit.listening import SECRET, OutOfStepError, Recording, Released, Replay
from dpglm.audit.neighbours import Neighbours
from dpglm.audit.scores import Observation
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import RandomlyRepeated
from dpglm.privacy.events.branches import leaves
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

__all__ = ["FunctionGame", "Game", "PlanGame", "left_out", "pays_for_all"]

# Log-likelihood of what can only have happened on one of the data sets.
_CERTAIN = 1e6


def pays_for_all(plan: Plan) -> bool:
    """Whether a plan's claim covers every release, not only the returned model."""
    is_secret = any(isinstance(basic, RandomlyRepeated) for basic in leaves(plan.event))
    is_secret |= any(isinstance(one.mechanism, SECRET) for one in plan.method.releases)
    return plan.method.releases_iterates and not is_secret


@dataclass(frozen=True, eq=False)
class Game(abc.ABC):
    """A mechanism and two data sets; the attacker sees all releases, or the result only."""

    neighbours: Neighbours
    sees_all: bool
    plan: Plan | None

    @abc.abstractmethod
    def play(self, first: bool, noise: NoiseSource) -> Observation:
        """Run once on the first or the second data set."""


@final
@dataclass(frozen=True, eq=False)
class FunctionGame(Game):
    """A function from rows to an array, which draws its own noise; the array is seen."""

    function: Callable[[Any], ArrayLike]

    def play(self, first: bool, noise: NoiseSource) -> Observation:
        shown = self.function(self.neighbours.first if first else self.neighbours.second)
        return Observation(np.ravel(np.asarray(shown, dtype=np.float64)), None)


@final
@dataclass(frozen=True, eq=False)
class PlanGame(Game):
    """A plan, of which all releases are seen, or only the returned model.

    An attacker who sees all releases and knows both data sets can compute their likelihood ratio. A
    run is recorded on one data set and replayed on the other: every release is set to what was
    seen, so that all later questions are the same, and only its law is noted. With Poisson samples
    of rate q the law is the mixture over whether the row of interest was drawn, for other rows that
    contribute nothing.

    A model that a replay does not reproduce to the last bit was not made from releases alone; that
    settles which data set it was.
    """

    plan: Plan

    def play(self, first: bool, noise: NoiseSource) -> Observation:
        plan, sides = self.plan, (self.neighbours.first, self.neighbours.second)
        own, other = sides if first else sides[::-1]
        if not self.sees_all:
            return Observation(run(plan, own, noise).w.ravel(), None)
        recording = Recording(noise)
        w = run(plan, own, recording).w
        values = np.concatenate([*(one.value.ravel() for one in recording.releases), w.ravel()])
        laws = [release.law for release in recording.releases]
        if recording.is_sampled:
            laws = self.laws(recording, own)[0]
        elsewhere, w_elsewhere = self.laws(recording, other)
        if len(elsewhere) < len(laws) or not np.array_equal(w, w_elsewhere):
            return Observation(values, _CERTAIN if first else -_CERTAIN)
        pairs = zip(laws, elsewhere, strict=True) if first else zip(elsewhere, laws, strict=True)
        ratios = (
            _log_ratio(release, *pair, plan.adjacency)
            for release, pair in zip(recording.releases, pairs, strict=True)
        )
        return Observation(values, float(sum(ratios)))

    def laws(self, recording: Recording, rows: Any) -> tuple[list[Law], NDArray[np.float64]]:
        """Replay a run on other rows; return the laws of its releases and the model that follows.

        There are no laws where these rows cannot have released it.
        """
        replay = Replay(recording)
        try:
            return replay.laws, run(self.plan, rows, replay).w
        except (OutOfStepError, PlanMismatchError):
            return [], np.empty(0)


def _log_ratio(release: Released, first: Law, second: Law, adjacency: Adjacency) -> float:
    rate = release.sampling_rate
    if rate == 1.0 or not (isinstance(first, DensityLaw) and isinstance(second, DensityLaw)):
        return first.log_density(release.value) - second.log_density(release.value)
    without = left_out(first, second, adjacency).log_density(release.value)
    return _mixed(rate, first.log_density(release.value), without) - _mixed(
        rate, second.log_density(release.value), without
    )


def left_out(first: DensityLaw, second: DensityLaw, adjacency: Adjacency) -> DensityLaw:
    """Return the law of a release about a sample without the row of interest.

    For neighbours of which the second lacks the row, or has one that is opposite to it, and other
    rows that contribute nothing.
    """
    if adjacency is not Adjacency.REPLACE_ONE:
        return second
    return second.around(0.5 * (first.mean + second.mean))


def _mixed(rate: float, drawn: float, left_out: float) -> float:
    return float(np.logaddexp(np.log(rate) + drawn, np.log1p(-rate) + left_out))
