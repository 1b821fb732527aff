"""A solver with a given estimate and covariance, so that all later numbers can be computed."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.solvers import Facts, Method, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.uncertainty import Covariance, Uncertainty


@final
@dataclass(frozen=True)
class Given(Solver):
    """Release one gradient, and answer with the given numbers, in prepared coordinates."""

    w: tuple[float, ...]
    sampling: tuple[tuple[float, ...], ...]
    privacy: tuple[tuple[float, ...], ...]
    degrees_of_freedom: float = math.inf
    covariance: Covariance | None = None

    def with_inference(
        self,
        covariance: Covariance,
        prior_scales: tuple[float, ...] | None = None,
        *,
        full_weights: bool = False,
        indicators: tuple[tuple[int, int, float], ...] = (),
    ) -> Given:
        return dataclasses.replace(self, covariance=covariance)

    def decide(self, facts: Facts) -> Plan:
        noise = GaussianNoise(1.0)
        method = GivenMethod(facts.problem, facts.data, facts.adjacency, self, noise)
        return facts.calibrated(method.with_multiplier)


@final
@dataclass(frozen=True)
class GivenMethod(Method[int]):
    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    answers: Given
    noise: GaussianNoise

    n_steps = 1
    gradient_evaluations = 1.0
    coefficient_noise = 1.0
    clipping = FlatClipping(1.0)

    def with_multiplier(self, multiplier):
        return dataclasses.replace(self, noise=self.noise.with_multiplier(multiplier))

    @functools.cached_property
    def gradients(self) -> SumRelease:
        return gradient_release(self.data, self.adjacency, self.clipping, self.noise, count=1)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.gradients,)

    def init(self, seed: int) -> int:
        return 0

    def step(self, state: int, oracle: Oracle) -> tuple[int, StepInfo]:
        oracle.noisy_gradient(self.gradients, self.finish(0).w, self.clipping)
        return 1, StepInfo(1, 1.0)

    def finish(self, state: int) -> Outcome:
        shape = self.data.coefficient_shape
        w = np.array(np.broadcast_to(np.array(self.answers.w), shape[::-1])).T
        return Outcome(w, uncertainty=self._uncertainty())

    def _uncertainty(self) -> Uncertainty | None:
        one = self.answers
        if one.covariance is None:
            return None
        return Uncertainty(
            np.array(one.w),
            np.array(one.sampling),
            np.array(one.privacy),
            one.degrees_of_freedom,
            one.covariance,
        )


def given(w, seed=0, **options) -> Given:
    """Answer with ``w`` and random covariances."""
    rng = np.random.default_rng(seed)
    parts = []
    for size in (0.3, 0.2):
        root = size * rng.normal(size=(len(w), len(w)))
        parts.append(tuple(map(tuple, (root @ root.T).tolist())))
    return Given(tuple(w), *parts, **options)
