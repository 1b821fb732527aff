"""The steps of noisy gradient descent, and what they release."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.oracle.row_sums.losses import loss_difference_release, noisy_loss_difference
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Composed, Event, LastIterate
from dpglm.privacy.noise import grid_sensitivity
from dpglm.privacy.noise.additive import GaussianNoise, L2Noise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import L2Ball, Problem
from dpglm.solvers.base import Method, StepInfo
from dpglm.solvers.gradient.amplification import Contraction, contraction
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.outputs import Last, Output
from dpglm.solvers.parts.shrinkage import is_neutral, share_of_comparison, shrunk

__all__ = ["Comparison", "NoisyGDMethod", "NoisyGDState"]


@final
@dataclass(frozen=True)
class Comparison:
    """How the result is compared with the start."""

    bound: float
    noise: GaussianNoise

    def release(self, data: DataSpec, adjacency: Adjacency) -> SumRelease:
        """Declare the release of the sum of differences."""
        return loss_difference_release(data, adjacency, self.bound, self.noise)


@final
@dataclass(frozen=True, eq=False)
class NoisyGDState:
    """Iterate and velocity, weighted sum of the iterates so far, share of it that is returned."""

    step: int
    w: NDArray[np.float64]
    velocity: NDArray[np.float64]
    returned: NDArray[np.float64]
    weights: NDArray[np.float64]
    share: float = 1.0


@final
@dataclass(frozen=True)
class NoisyGDMethod(Method["NoisyGDState"]):
    """Noisy gradient descent with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clipping: Clipping
    step_sizes: tuple[float, ...]
    momentum: float
    sampling_rate: float
    output: Output
    noise: GaussianNoise | L2Noise
    # Whether all iterates but the last stay secret, which is what amplification by iteration asks
    # for.
    last_only: bool = False
    shrink: bool = False
    comparison: Comparison | None = None

    @property
    def algorithm(self) -> str:
        pure = isinstance(self.noise, L2Noise)
        return "gradient descent with L2 noise" if pure else "noisy gradient descent"

    def __post_init__(self) -> None:
        if self.last_only and self.contraction is None:
            raise ValueError(
                "last_only must be False where a condition of amplification by iteration does not "
                "hold, got True"
            )

    @functools.cached_property
    def contraction(self) -> Contraction | None:
        """What makes amplification by iteration hold; None where a condition does not."""
        return contraction(
            self.problem,
            self.data,
            self.adjacency,
            clipping=self.clipping,
            step_sizes=self.step_sizes,
            plain=self.momentum == 0.0
            and self.sampling_rate == 1.0
            and self.output == Last()
            and isinstance(self.noise, GaussianNoise),
        )

    @property
    def amplified(self) -> Contraction | None:
        """The contraction, where privacy rests on it."""
        return self.contraction if self.last_only else None

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the sensitivity of a gradient sum."""
        return self.noise.multiplier

    def with_multiplier(self, multiplier: float) -> NoisyGDMethod:
        """Return the same method with noise of this scale over the sensitivity."""
        return dataclasses.replace(self, noise=self.noise.with_multiplier(multiplier))

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        if self.comparison is None:
            return (self.gradients,)
        return self.gradients, self.comparison.release(self.data, self.adjacency)

    @functools.cached_property
    def gradients(self) -> SumRelease:
        """The release of each gradient sum."""
        release = functools.partial(
            gradient_release,
            self.data,
            self.adjacency,
            self.clipping,
            self.noise,
            count=self.n_steps,
            sampling_rate=self.sampling_rate,
        )
        if self.amplified is None:
            return release()
        # The snapping of secret iterates moves the next step's input as well; twice that leaves
        # room for the finer grid's choice once this is added.
        secret = release(extra_rounding=self.amplified.rounding).scale
        grid = grid_sensitivity(self.data.n_coefficients, secret.exponent)
        return release(extra_rounding=self.amplified.rounding + 2.0 * grid)

    @property
    def event(self) -> Event:
        if self.amplified is None:
            return super().event
        last = LastIterate(self.noise.multiplier, self.amplified.factor, self.n_steps)
        others = tuple(release.event for release in self.releases[1:])
        return Composed((last, *others)) if others else last

    @property
    def releases_iterates(self) -> bool:
        return self.amplified is None

    @property
    def gradient_evaluations(self) -> float:
        compared = 0 if self.comparison is None else self.data.n_rows
        return self.n_steps * self.sampling_rate * self.data.n_rows + compared

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient."""
        return self.gradients.noise_std / (self.sampling_rate * self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        # The recursion is linear in the noise: carry the covariance of (w, v, returned). Iterates
        # are in units of the longest move, so that squares neither overflow nor vanish.
        m, strong = self.momentum, self.problem.regularizer.strong_convexity
        moves = [
            eta / (1.0 + eta * strong) if eta * strong < 1e300 else 1.0 / strong
            for eta in self.step_sizes
        ]
        covariance, unit = np.zeros((3, 3)), max(moves)
        weights = self.output.weights(self.n_steps, 0.5)
        for eta, move, weight in zip(self.step_sizes, moves, weights, strict=True):
            shrink, moved = 1.0 / (1.0 + eta * strong), move / unit
            after = [shrink, -moved * m, 0.0]
            transition = np.array(
                [after, [0.0, m, 0.0], [weight * after[0], weight * after[1], 1.0]]
            )
            entry = (1.0 - m) * np.array([-moved, 1.0, -weight * moved])
            covariance = transition @ covariance @ transition.T + np.outer(entry, entry)
        return self.noise_std * unit * math.sqrt(covariance[2, 2])

    def init(self, seed: int) -> NoisyGDState:
        zero = np.zeros(self.data.coefficient_shape)
        weights = self.output.weights(self.n_steps, seed * 2.0**-64)
        return NoisyGDState(0, self._onto_feasible(zero, 0.0), zero, zero, weights)

    def step(self, state: NoisyGDState, oracle: Oracle) -> tuple[NoisyGDState, StepInfo]:
        g = oracle.noisy_gradient(self.gradients, state.w, self.clipping)
        eta = self.step_sizes[state.step]
        v = self.momentum * state.velocity + (1.0 - self.momentum) * g
        w = self._onto_feasible(state.w - eta * v, eta)
        returned = state.returned + state.weights[state.step] * w
        noise_norm = self.noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        state = NoisyGDState(state.step + 1, w, v, returned, state.weights)
        if self.comparison is not None and state.step == self.n_steps:
            state = dataclasses.replace(state, share=self._compared(returned, oracle))
        return state, info

    def _compared(self, w: NDArray[np.float64], oracle: Oracle) -> float:
        """Share of the way from the start to ``w`` that a paid comparison leaves."""
        assert self.comparison is not None
        declared, bound = self.comparison.release(self.data, self.adjacency), self.comparison.bound
        worse = noisy_loss_difference(oracle, declared, w, self.init(0).w, bound)
        return share_of_comparison(worse, declared.noise_std)

    def _onto_feasible(self, w: NDArray[np.float64], eta: float) -> NDArray[np.float64]:
        w = feasible(self.problem, n_penalized(self.problem, self.data), w, eta)
        if self.amplified is None:
            return w
        # Amplification asks for penalties on all coefficients, so none is free.
        return L2Ball(self.amplified.radius).project(w).astype(np.float64, copy=False)

    def finish(self, state: NoisyGDState) -> NDArray[np.float64]:
        start, w = self.init(0).w, state.returned
        if self.shrink and is_neutral(self.problem.loss, self.data):
            own_intercept = n_penalized(self.problem, self.data) < self.data.n_columns
            w = shrunk(w, start, self.coefficient_noise, own_intercept=own_intercept)
        return w if state.share == 1.0 else start + state.share * (w - start)
