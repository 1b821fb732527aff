"""The steps of noisy gradient descent, and their releases."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.data.memory import BLOCK_ROWS, SPARSE_BLOCK_ROWS
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.gradients import (
    Oracle,
    gradient_release,
    loss_difference_sum,
    noisy_loss_difference,
)
from dpglm.oracle.rounding import target_size
from dpglm.privacy import Adjacency, Composed, Event, LastIterate
from dpglm.privacy.noise import grid_sensitivity
from dpglm.privacy.noise.additive import GaussianNoise, L2Noise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import L2Ball, NoPenalty, Problem, Unconstrained
from dpglm.solvers.base import FitMethod, Outcome, StepInfo
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import is_neutral, share_of_comparison, shrunk
from dpglm.solvers.parts.schedules import Constant, Last, Output, Schedule
from dpglm.solvers.uncertainty import Floats, feasible, frees_intercept, n_penalized


@final
@dataclass(frozen=True, eq=False)
class DescentState:
    """Iterate and velocity, weighted sum of the iterates so far, share to return, public seed."""

    step: int
    w: Floats
    velocity: Floats
    returned: Floats
    weights: Floats
    share: float = 1.0
    seed: int = 0


@final
@dataclass(frozen=True)
class Descent:
    """Steps ``v <- m v + e g``, ``w <- project(prox(w - eta v))`` from zero, for gradients g.

    The e is ``1 - m``, or 1 if ``dampened`` is False. Iterates stay within ``radius``.
    """

    problem: Problem
    data: DataSpec
    step_sizes: tuple[float, ...]
    output: Output
    momentum: float = 0.0
    dampened: bool = True
    radius: float = math.inf

    def init(self, seed: int) -> DescentState:
        """Start at the feasible point nearest to zero."""
        zero = np.zeros(self.data.coefficient_shape)
        weights = self.output.weights(len(self.step_sizes), seed * 2.0**-64)
        return DescentState(0, self._feasible(zero, 0.0), zero, zero, weights, seed=seed)

    @property
    def _entering(self) -> float:
        return 1.0 - self.momentum if self.dampened else 1.0

    def step(
        self, state: DescentState, g: Floats, noise_std: float
    ) -> tuple[DescentState, StepInfo]:
        """Take a step along a released gradient with this noise in each coordinate."""
        eta = self.step_sizes[state.step]
        v = self.momentum * state.velocity + self._entering * g if self.momentum else g
        w = self._feasible(state.w - eta * v, eta)
        returned = state.returned + state.weights[state.step] * w
        noise_norm = noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        after = dataclasses.replace(state, step=state.step + 1, w=w, velocity=v, returned=returned)
        return after, info

    def _feasible(self, w: Floats, eta: float) -> Floats:
        problem = self.problem
        if problem.regularizer == NoPenalty() and problem.constraint == Unconstrained():
            return w
        w = feasible(problem, n_penalized(problem, self.data), w, eta)
        if self.radius == math.inf:
            return w
        # Amplification needs penalties on all coefficients, so none is free.
        return L2Ball(self.radius).project(w).astype(np.float64, copy=False)

    def noise_growth(self, noises: Sequence[float] | None = None) -> float:
        """Return the standard deviation of the result, for gradients with this noise, by default 1.

        The recursion is linear in the noise: carry the covariance of (w, v, returned), in units of
        the longest move, so that squares neither overflow nor vanish.
        """
        m, strong = self.momentum, self.problem.regularizer.strong_convexity
        noises = [1.0] * len(self.step_sizes) if noises is None else noises
        moves = [
            eta / (1.0 + eta * strong) if eta * strong < 1e300 else 1.0 / strong
            for eta in self.step_sizes
        ]
        covariance, unit, most = np.zeros((3, 3)), max(moves), max(noises)
        weights = self.output.weights(len(self.step_sizes), 0.5)
        for eta, move, weight, noise in zip(self.step_sizes, moves, weights, noises, strict=True):
            shrink, moved = 1.0 / (1.0 + eta * strong), move / unit
            after = [shrink, -moved * m, 0.0]
            transition = np.array(
                [after, [0.0, m, 0.0], [weight * after[0], weight * after[1], 1.0]]
            )
            entry = self._entering * noise / most * np.array([-moved, 1.0, -weight * moved])
            covariance = transition @ covariance @ transition.T + np.outer(entry, entry)
        return most * unit * math.sqrt(covariance[2, 2])


# Chosen on validation parts of the training rows of Adult and ACS employment, at epsilon 0.1 to 5.
_NOISE_SCALAR, _NOISE_VECTOR = 0.2, 0.15
_LARGER_STEPS = 2.0
_LEAST_STEPS, _MOST_STEPS = 5, 200


def l2_steps(
    problem: Problem,
    data: DataSpec,
    *,
    signal: float,
    clip: float,
    momentum: float,
    schedule: Schedule,
    n_steps: int | None,
    step_size: float | None,
) -> tuple[int, float]:
    """Choose steps and first step size; ``signal`` is ``n epsilon`` over the relation's factor.

    As in ``dpglm.solvers.parts.defaults.steps``, but noise in a coefficient is about ``travel
    sqrt(T (m + 1)) / signal``, so fewer steps may travel further. Steps are as long as is stable,
    twice as long as with momentum, and T suffices for the travel.
    """
    reach = defaults.slope_range(problem.loss, data)
    noise = _NOISE_SCALAR if data.n_outputs == 1 else _NOISE_VECTOR
    travel = noise * reach * signal / (data.row_norm * math.sqrt(data.n_coefficients + 1.0))
    _, stable = defaults.steps(
        problem,
        data,
        mu=math.inf,
        clip=clip,
        momentum=momentum,
        schedule=Constant(),
        n_steps=1,
        step_size=None,
    )
    largest = _LARGER_STEPS * stable
    wanted = math.cbrt(2.0 * travel / (clip * (step_size or largest))) ** 2
    n_steps = n_steps or min(max(_LEAST_STEPS, math.ceil(wanted)), _MOST_STEPS)
    factors = math.sqrt(n_steps) * float(schedule.factors(n_steps).sum())
    return n_steps, step_size or min(largest, travel / (clip * factors))


@final
@dataclass(frozen=True)
class Contraction:
    """The contraction of any two iterates by a noiseless step."""

    factor: float  # Lipschitz constant of one exact step, in (0, 1).
    radius: float
    # Bound on the error of the computed gradient sums of two data sets, and of the computed updates
    # in the same units.
    rounding: float


def contraction(
    problem: Problem,
    data: DataSpec,
    adjacency: Adjacency,
    *,
    clipping: Clipping,
    step_sizes: tuple[float, ...],
    plain: bool,
) -> Contraction | None:
    """Check every condition of privacy amplification by iteration; None if any fails.

    ``plain``: steps use the full batch, have no momentum, and the last iterate is returned.

    Privacy: a step is ``w <- P(prox(w - eta (g(w) + noise)))``. With scalar outputs and flat
    clipping the clipped slope is a nondecreasing function of the prediction (the loss is
    convex), so ``g`` is the gradient of a convex function (Song et al. 2021, Lemma 5.1), of
    smoothness at most M = (smoothness of the loss) times (row norm)^2 times (weight bound);
    clipping can only lower it. For softmax the same holds where the clip can never bind (and
    not otherwise: Theorem 5.3). So ``w - eta g(w)`` is nonexpansive for ``eta <= 2/M``
    (Nesterov 2004, Theorem 2.1.12). The prox of an m-strongly convex penalty on ALL
    coefficients contracts by ``1/(1 + eta m)``, and a projection is nonexpansive. Regrouping
    steps at the point where noise has just been added, each step contracts by that factor and
    two data sets' steps differ by eta times the sensitivity of the mean gradient, as Bok, Su
    and Altschuler (ICML 2024, arXiv 2403.00278, Theorem 4.1) require; the final prox and
    projection are post-processing. With n private the objective's smoothness is not bounded.

    Intermediate iterates stay secret, so unlike in plain composition the rounding of every
    row's contribution counts: it is bounded for float64 rows and iterates in a ball. The ball
    of radius ``2 C / m`` contains the minimiser if the constraint contains zero (the mean
    gradient is at most C, and strong convexity gives ``m |w*| <= C``), so projecting on it costs
    no accuracy.
    """
    penalty = problem.regularizer.strong_convexity
    covers_all = not frees_intercept(problem, data)
    constant = len(set(step_sizes)) == 1
    if not (plain and constant and covers_all and penalty > 0.0 and adjacency.n_is_public):
        return None
    # A group's clipped gradient is not the gradient of a convex function.
    if data.groups is not None:
        return None
    if data.dtype != "float64" or not isinstance(clipping, FlatClipping):
        return None
    if not problem.constraint.contains(np.zeros(data.coefficient_shape)):
        return None
    loss, norm = problem.loss, data.augmented_row_norm
    if not math.isfinite(loss.offset_bound):
        return None
    never_clips = loss.slope_bound * norm <= clipping.bound
    if not (loss.convex and (data.n_outputs == 1 or never_clips)):
        return None
    curvature = defaults.smoothness(loss, data)
    smoothness = curvature * norm**2 * data.weight_bound
    eta = step_sizes[0]
    if not eta * smoothness <= 2.0:
        return None
    bound = clipping.bound * data.weight_bound
    radius = min(2.0 * bound / penalty, problem.constraint.norm_bound(data.n_coefficients))
    # Twice the error of a computed step, in units of a gradient sum. A prediction errs by
    # gamma_{d+2} |x| |w|, or with an offset gamma_{d+3} (|x| |w| + |o|), and its slope by the
    # curvature times that and by a few units in the last place of itself and of the target, or of
    # 1; the row's norm turns a slope into a gradient.
    unit = float(np.finfo(np.float64).eps) / 2
    prediction = 2 * (data.n_columns + 2) * unit * (norm * radius + loss.offset_bound)
    size = norm * target_size(data) * data.weight_bound
    row = curvature * norm * prediction * data.weight_bound + 64 * unit * (bound + size)
    within = 2 * (max(BLOCK_ROWS, SPARSE_BLOCK_ROWS) + 2) * unit * bound
    update = 32 * unit * (radius / eta + bound) * data.n_rows
    rounding = 2.0 * (data.n_rows * (row + within) + update)
    return Contraction(1.0 / (1.0 + eta * penalty), radius, rounding)


@final
@dataclass(frozen=True)
class StartComparison:
    """The noisy comparison of the result with the start."""

    bound: float
    noise: GaussianNoise

    def release(self, data: DataSpec, adjacency: Adjacency) -> SumRelease:
        """Declare the release of the sum of differences."""
        return loss_difference_sum(self.bound).release(data, adjacency, self.noise)


@final
@dataclass(frozen=True)
class NoisyGDMethod(FitMethod[DescentState]):
    """Noisy gradient descent with every setting decided."""

    clipping: Clipping
    step_sizes: tuple[float, ...]
    momentum: float
    sampling_rate: float
    output: Output
    noise: GaussianNoise | L2Noise
    # Whether all iterates but the last stay secret, as amplification by iteration requires.
    last_only: bool = False
    shrink: bool = False
    comparison: StartComparison | None = None

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
        """The contraction for amplification by iteration; None if a condition does not hold."""
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
        facts = self.data, self.adjacency, self.clipping, self.noise
        release = functools.partial(
            gradient_release, *facts, count=self.n_steps, sampling_rate=self.sampling_rate
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

    @functools.cached_property
    def descent(self) -> Descent:
        """The steps along noisy gradients."""
        radius = math.inf if self.amplified is None else self.amplified.radius
        settings = self.problem, self.data, self.step_sizes, self.output, self.momentum
        return Descent(*settings, radius=radius)

    @property
    def coefficient_noise(self) -> float:
        return self.noise_std * self.descent.noise_growth()

    def init(self, seed: int) -> DescentState:
        return self.descent.init(seed)

    def step(self, state: DescentState, oracle: Oracle) -> tuple[DescentState, StepInfo]:
        g = oracle.noisy_gradient(self.gradients, state.w, self.clipping)
        state, info = self.descent.step(state, g, self.noise_std)
        if self.comparison is not None and state.step == self.n_steps:
            # The share of the way from the start to keep.
            declared = self.comparison.release(self.data, self.adjacency)
            worse = noisy_loss_difference(
                oracle, declared, state.returned, self.init(0).w, self.comparison.bound
            )
            share = share_of_comparison(worse, declared.noise_std)
            state = dataclasses.replace(state, share=share)
        return state, info

    def finish(self, state: DescentState) -> Outcome:
        start, w = self.init(0).w, state.returned
        if self.shrink and is_neutral(self.problem.loss, self.data):
            own_intercept = frees_intercept(self.problem, self.data)
            w = shrunk(w, start, self.coefficient_noise, own_intercept=own_intercept)
        return Outcome(w if state.share == 1.0 else start + state.share * (w - start))
