"""Descent whose noise changes from step to step, at a few levels: a release for each."""

from __future__ import annotations

import abc
import functools
import math
from collections import Counter
from collections.abc import Mapping

from dpglm.data.spec import DataSpec
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import Method, S
from dpglm.solvers.parts.lifts import Lift
from dpglm.solvers.parts.schedules import MOST_LEVELS

__all__ = ["NoiseLevels"]


class NoiseLevels(Method[S]):
    """A method that asks for a gradient sum in each step, perhaps in projection."""

    data: DataSpec
    step_sizes: tuple[float, ...]
    noise_factors: tuple[float, ...]
    dimension: int | None
    """Columns of each step's matrix; None where nothing is projected."""
    lift: Lift
    sampling_rate: float

    @abc.abstractmethod
    def _release(self, place: int, factor: float, count: int) -> SumRelease:
        """Declare the gradient sums of a level, which have so many times the least noise."""

    @property
    @abc.abstractmethod
    def _columns(self) -> int:
        """Number of coefficients that one matrix projects."""

    def check_levels(self) -> None:
        """Refuse factors on the noise that are not one for each step, or too many."""
        if len(self.noise_factors) != self.n_steps or len(self.levels) > MOST_LEVELS:
            raise ValueError(
                f"noise_factors must be {self.n_steps}, one for each step, and at most "
                f"{MOST_LEVELS} different ones, got {len(self.noise_factors)} and "
                f"{len(self.levels)}"
            )

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes)

    @functools.cached_property
    def levels(self) -> tuple[tuple[float, int], ...]:
        """Each factor on the noise and for how many steps it serves."""
        return tuple(Counter(self.noise_factors).items())

    @functools.cached_property
    def by_level(self) -> Mapping[float, SumRelease]:
        """The release of gradient sums for each factor on the noise."""
        return {
            factor: self._release(place, factor, count)
            for place, (factor, count) in enumerate(self.levels, 1)
        }

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self.by_level.values())

    @property
    def gradient_evaluations(self) -> float:
        return self.n_steps * self.sampling_rate * self.data.n_rows

    def noise_std(self, step: int) -> float:
        """Root mean square of the noise in each coordinate of a step's mean gradient."""
        std = self.by_level[self.noise_factors[step]].noise_std
        growth = 1.0
        if self.dimension is not None:
            growth = self.lift.noise_growth(self._columns, self.dimension)
        return math.sqrt(growth) * std / (self.sampling_rate * self.data.n_rows)
