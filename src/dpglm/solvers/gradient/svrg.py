"""DP-SVRG: epochs that start at an anchor with a noisy full gradient."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from dpglm._validation import check_integer
from dpglm.data.rows import SMALLEST, DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release, noisy_difference
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.solvers.base import Facts, FitMethod, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import Last, Output, UniformAverage
from dpglm.solvers.uncertainty import Floats, feasible, n_penalized

# Defaults of the variance-reduced methods, as functions of public quantities alone.

LEAST_SHARE_OF_BOUND = 2.0**-20
"""Least clip norm of a difference, relative to the largest difference of two clipped gradients."""

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen.
_TRAVEL = 0.1
_STEP_BOUNDED, _STEP_UNBOUNDED, _STEP_NONCONVEX = 4.0, 2.0, 0.5
_LEAST_STEPS, _MOST_STEPS = 50, 500
_LEAST_BATCH = 256


def row_smoothness(problem: Problem, data: DataSpec) -> float:
    """Return the Lipschitz constant of a row's gradient."""
    return defaults.smoothness(problem.loss, data) * data.augmented_row_norm**2


@dataclass(frozen=True)
class VarianceReduction(Solver):
    """Settings of both methods; their classes document the parameters."""

    doubles: ClassVar[bool]  # Whether epochs double, and begin where the one before ended.

    n_epochs: int = 1
    inner_steps: int | None = None
    step_size: float | None = None
    clip: float | None = None
    sampling_rate: float | None = None
    anchor_share: float = 0.6
    averaging: Output = field(default_factory=Last)
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.inner_steps is not None:
            check_integer("inner_steps", self.inner_steps, least=1 + self.doubles)
        check_given(self)

    @final
    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        if not math.isfinite(row_smoothness(problem, data)):
            raise ValueError(
                "loss must have a bounded second derivative, so that differences of gradients "
                f"shrink with the distance, got {problem.loss!r}"
            )
        # Clips of differences, down to the least, must be within the range of float32 arithmetic.
        least = SMALLEST / (2.0 * LEAST_SHARE_OF_BOUND)
        clip = defaults.checked_clip(problem.loss, data, self.clip, least)
        growths = [2**epoch if self.doubles else 1 for epoch in range(self.n_epochs)]
        inner_steps, step_size = self._steps(facts, clip, sum(growths))
        lengths = tuple(inner_steps * growth for growth in growths)
        rate = self.sampling_rate
        if rate is None:
            # Differences cost as much as anchors, with batches of at least 256 rows.
            rate = max(len(lengths) / (2.0 * sum(lengths)), _LEAST_BATCH / data.n_rows)
            rate = min(1.0, rate)
        method = VarianceReducedMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            clip=clip,
            step_size=step_size,
            lengths=lengths,
            sampling_rate=rate,
            averaging=self.averaging,
            restarts=not self.doubles,
            momentum=self.momentum,
            anchor_noise_multiplier=1.0,
            difference_noise_multiplier=1.0,
        )
        count = method.n_differences
        share = self.anchor_share if count else 1.0

        def with_noise(scale: float) -> VarianceReducedMethod:
            # The budget, about 1 / scale in Gaussian DP, is split: both multipliers grow with it.
            anchors = scale * math.sqrt(method.n_epochs / share)
            differences = 1.0
            if count:
                each = (1.0 - share) / (scale**2 * count)
                # Solves min(q^2 (exp(1/sigma^2) - 1), 1/sigma^2) = each: the limiting cost of a
                # sampled Gaussian (Bu, Dong, Long and Su 2020), and the cost without sampling.
                sampled = math.log1p(each / method.sampling_rate**2)
                differences = 1.0 / math.sqrt(max(sampled, each))
            return dataclasses.replace(
                method, anchor_noise_multiplier=anchors, difference_noise_multiplier=differences
            )

        return facts.calibrated(with_noise)

    def _steps(self, facts: Facts, clip: float, units: int) -> tuple[int, float]:
        """Decide the steps of the first epoch and their size; all epochs are ``units`` as long.

        As in ``defaults.steps``, the budget decides the distance that clipped gradients may carry
        the parameter: 0.1 in place of 0.7 units, as differences have twice the sensitivity and
        their noise adds to that of anchors.
        """
        loss, data = facts.problem.loss, facts.data
        reach = defaults.slope_unit(loss, data) / defaults.smoothness(loss, data)
        travel = _TRAVEL * reach * facts.mu * data.n_rows / data.row_norm
        bounded = defaults.has_bounded_slopes(loss, data)
        largest = _STEP_BOUNDED if bounded else _STEP_UNBOUNDED
        largest = largest if loss.convex else _STEP_NONCONVEX
        # Nesterov's momentum is stable on quadratics up to this share of the step without it.
        slower = (1.0 + self.momentum) / (1.0 + 2.0 * self.momentum)
        stable = slower * largest / row_smoothness(facts.problem, data)
        inner_steps, step_size = self.inner_steps, self.step_size
        if inner_steps is None:
            wanted = travel / (clip * (step_size or stable))
            inner_steps = math.ceil(min(max(_LEAST_STEPS, wanted), _MOST_STEPS) / units)
        if step_size is None:
            step_size = min(stable, travel / (clip * units * inner_steps))
        return inner_steps, step_size


@final
@dataclass(frozen=True, eq=False)
class VarianceReducedState:
    """State of an epoch: iterate, anchor with its noisy gradient, and partial average.

    Gradients are taken at ``w``, which momentum moves away from the iterate.
    """

    step: int
    w: Floats
    iterate: Floats
    anchor: Floats
    anchor_gradient: Floats
    average: Floats
    weights: Floats


@final
@dataclass(frozen=True)
class VarianceReducedMethod(FitMethod["VarianceReducedState"]):
    """DP-SVRG or DP-SVRG++ with every setting decided.

    Privacy: a difference of two gradients, each clipped to C, has norm at most 2 C, and at most ``L
    |w - anchor|`` as clipping is a projection, hence nonexpansive (L the row's smoothness). It is
    clipped to the smaller of the two, a public number since ``w`` and the anchor were released;
    noise is that number times a fixed multiplier. If ``w`` is the anchor by construction, the
    difference is zero for all rows, and nothing is released.
    """

    clip: float
    step_size: float
    lengths: tuple[int, ...]
    sampling_rate: float
    averaging: Output
    restarts: bool  # Whether an epoch starts at its anchor (SVRG) or at the last iterate (SVRG++).
    momentum: float  # Momentum of the steps within an epoch.
    anchor_noise_multiplier: float
    difference_noise_multiplier: float

    @property
    def algorithm(self) -> str:
        kind = "gradient (SVRG)" if self.restarts else "gradient, doubling epochs (SVRG++)"
        return f"stochastic variance-reduced {kind}"

    @property
    def n_epochs(self) -> int:
        """Number of anchors."""
        return len(self.lengths)

    @property
    def n_steps(self) -> int:
        return sum(self.lengths)

    @property
    def n_differences(self) -> int:
        """Number of inner steps that ask about rows."""
        return self.n_steps - (self.n_epochs if self.restarts else 1)

    @property
    def least_bound(self) -> float:
        """Smallest clip norm of differences, as noise needs a scale at the anchor, too."""
        return 2.0 * LEAST_SHARE_OF_BOUND * self.clip

    @functools.cached_property
    def anchors(self) -> SumRelease:
        """The release of gradient sums at anchors."""
        return gradient_release(
            self.data,
            self.adjacency,
            FlatClipping(self.clip),
            GaussianNoise(self.anchor_noise_multiplier),
            quantity="anchor gradient sum",
            count=self.n_epochs,
        )

    def differences(self, bound: float) -> SumRelease:
        """Declare the release of gradient differences that are clipped to a bound."""
        return gradient_release(
            self.data,
            self.adjacency,
            FlatClipping(bound),
            GaussianNoise(self.difference_noise_multiplier),
            quantity="gradient difference sum",
            count=max(1, self.n_differences),
            sampling_rate=self.sampling_rate,
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        if not self.n_differences:
            return (self.anchors,)
        return self.anchors, self.differences(2.0 * self.clip)

    @property
    def gradient_evaluations(self) -> float:
        # A difference takes two slopes of a row.
        inner = 2.0 * self.sampling_rate * self.n_differences
        return (self.n_epochs + inner) * self.data.n_rows

    def difference_bound(self, distance: float) -> float:
        """Return the clip norm of a row's difference at this distance ``|w - anchor|``."""
        smooth = row_smoothness(self.problem, self.data) * distance
        return max(min(2.0 * self.clip, smooth), self.least_bound)

    def _difference_std(self, distance: float) -> float:
        """Return the standard deviation of the noise in each entry of a mean difference."""
        declared = self.differences(self.difference_bound(distance))
        return declared.noise_std / (self.sampling_rate * self.data.n_rows)

    @property
    def _anchor_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient at an anchor."""
        return self.anchors.noise_std / self.data.n_rows

    @property
    def coefficient_noise(self) -> float:
        # The recursion is linear in the noise: carry the covariance of (w, anchor gradient, sum
        # of the epoch, iterate). Noise of differences grows with the distance from the anchor,
        # which is at most t times the longest step after t noiseless steps.
        eta, entries, beta = self.step_size, self.data.n_coefficients, self.momentum
        longest = eta / (1.0 - beta)
        shrink = 1.0 / (1.0 + eta * self.problem.regularizer.strong_convexity)
        covariance = np.zeros((4, 4))
        before = strayed_before = 0.0
        for length in self.lengths:
            start = covariance[2, 2] if self.restarts else covariance[0, 0]
            covariance = np.zeros((4, 4))
            covariance[np.ix_([0, 3], [0, 3])] = start
            covariance[1, 1] = self._anchor_std**2
            strayed = strayed_before
            for t, weight in enumerate(self.averaging.weights(length, 0.5).tolist()):
                moved = shrink * np.array([1.0, -eta, 0.0, 0.0])
                transition = np.array(
                    [
                        (1.0 + beta) * moved - beta * np.eye(4)[3],
                        np.eye(4)[1],
                        weight * moved + np.eye(4)[2],
                        moved,
                    ]
                )
                covariance = transition @ covariance @ transition.T
                if before + t > 0.0:
                    noise = strayed + (t * longest * self._anchor_std) ** 2
                    distance = (before + t) * longest * self.clip + math.sqrt(entries * noise)
                    variance = self._difference_std(distance) ** 2
                    entry = -shrink * eta * np.array([1.0 + beta, 0.0, weight, 1.0])
                    covariance += variance * np.outer(entry, entry)
                    strayed += longest**2 * variance
            if not self.restarts:
                before = length
                strayed_before = strayed + (length * longest * self._anchor_std) ** 2
        return math.sqrt(covariance[2, 2])

    def init(self, seed: int) -> VarianceReducedState:
        zero = np.zeros(self.data.coefficient_shape)
        start = feasible(self.problem, n_penalized(self.problem, self.data), zero, 0.0)
        uniforms = np.random.default_rng(seed).random(self.n_epochs)
        weights = [
            self.averaging.weights(length, uniform)
            for length, uniform in zip(self.lengths, uniforms.tolist(), strict=True)
        ]
        return VarianceReducedState(0, start, start, start, zero, zero, np.concatenate(weights))

    def step(
        self, state: VarianceReducedState, oracle: Oracle
    ) -> tuple[VarianceReducedState, StepInfo]:
        # The epoch of a step, and its place in it, both from 0.
        ends = np.cumsum(self.lengths)
        epoch = int(np.searchsorted(ends, state.step, side="right"))
        t = state.step - int(ends[epoch]) + self.lengths[epoch]
        anchor_gradient, variance = state.anchor_gradient, self._anchor_std**2
        if t == 0:
            anchor_gradient = oracle.noisy_gradient(
                self.anchors, state.anchor, FlatClipping(self.clip)
            )
        g = anchor_gradient
        if t > 0 or not (self.restarts or epoch == 0):
            distance = float(np.linalg.norm(state.w - state.anchor))
            bound = self.difference_bound(distance)
            declared, points = self.differences(bound), (state.w, state.anchor)
            g = g + noisy_difference(oracle, declared, *points, FlatClipping(self.clip), bound)
            variance += self._difference_std(distance) ** 2
        moved, penalized = state.w - self.step_size * g, n_penalized(self.problem, self.data)
        iterate = feasible(self.problem, penalized, moved, self.step_size)
        w = iterate + self.momentum * (iterate - state.iterate) if self.momentum else iterate
        anchor, average = state.anchor, state.average + state.weights[state.step] * iterate
        if t + 1 == self.lengths[epoch]:
            anchor, average = average, np.zeros_like(average)
            w = iterate = anchor if self.restarts else iterate
        noise_norm = math.sqrt(variance * self.data.n_coefficients)
        info = StepInfo(state.step + 1, self.step_size, float(np.linalg.norm(g)), noise_norm)
        after = VarianceReducedState(
            state.step + 1, w, iterate, anchor, anchor_gradient, average, state.weights
        )
        return after, info

    def finish(self, state: VarianceReducedState) -> Outcome:
        return Outcome(state.anchor)


@final
@dataclass(frozen=True)
class SVRG(VarianceReduction):
    """Stochastic variance-reduced gradient descent with noisy anchors and noisy differences.

    Each epoch releases the mean gradient of all rows at its anchor, then noisy means over Poisson
    batches of the differences between a row's gradients at the iterate and at the anchor. Their
    clip, and so their noise, shrinks with the distance from the anchor.

    Parameters
    ----------
    n_epochs : int, default=5
        Number of epochs T, at least 1.
    inner_steps : int, optional
        Number of steps m of each epoch, at least 1.
    step_size : float, optional
        Size of every step, above 0.
    clip : float, optional
        Clipping threshold C of a row's gradient, above 0, in units of the prepared rows.
    sampling_rate : float, optional
        Probability with which each row enters each batch of differences, in (0, 1].
    anchor_share : float, default=0.6
        Share of the budget for the anchors, in (0, 1); differences get the rest.
    averaging : Output, default=Last()
        The inner iterate, or average of them, that is the next anchor; in the paper
        ``UniformAverage()``.
    momentum : float, default=0.0
        The b of accelerated SVRG, in [0, 1): gradients are taken at ``w + b (w - w')``, with w' the
        iterate before w, in each epoch anew.

    Notes
    -----
    Privacy: T Gaussian releases of full gradients, and ``T (m - 1)`` Poisson-sampled ones of
    differences. ``docs/solvers/svrg.md`` has the algorithm and the proof.

    References
    ----------
    Wang, Ye and Xu 2017, Algorithm 1 (corrected). Xiao and Zhang, "A proximal stochastic gradient
    method with progressive variance reduction", SIAM J. Optim. 2014. Nitanda, "Stochastic proximal
    gradient descent with acceleration techniques", NIPS 2014, for the momentum of Remark 4.2.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import L2, Logistic, Problem
    >>> solver = SVRG(n_epochs=3, inner_steps=11, sampling_rate=0.05)
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = solver.plan(Problem(Logistic(), L2(0.01)), ApproximateDP(1.0, 1e-5), data)
    >>> [release.count for release in plan.method.releases]
    [3, 30]
    """

    doubles: ClassVar[bool] = False

    n_epochs: int = 5


@final
@dataclass(frozen=True)
class SVRGPlusPlus(VarianceReduction):
    """SVRG for objectives that need not be strongly convex: every epoch is twice as long.

    An epoch starts at the last iterate of the one before, and its anchor is the average of that
    epoch's iterates; the last average is returned.

    Parameters
    ----------
    n_epochs : int, default=4
        Number of epochs T, at least 1.
    inner_steps : int, optional
        Number of steps m of the first epoch, at least 2; epoch s has ``2**(s - 1) m``.
    averaging : Output, default=UniformAverage()
        Average of an epoch's iterates that is the next anchor.
    step_size, clip, sampling_rate, anchor_share, momentum
        As in ``SVRG``.

    Notes
    -----
    Privacy: as with ``SVRG``, with ``(2**T - 1) m - 1`` releases of differences: only the very
    first step is at its anchor by construction.

    References
    ----------
    Wang, Ye and Xu 2017, Algorithm 2 (corrected). Allen-Zhu and Yuan, "Improved SVRG for
    non-strongly-convex or sum-of-non-convex objectives", ICML 2016.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> solver = SVRGPlusPlus(n_epochs=3, inner_steps=10, sampling_rate=0.05)
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.method.lengths, [release.count for release in plan.method.releases]
    ((10, 20, 40), [3, 69])
    """

    doubles: ClassVar[bool] = True

    n_epochs: int = 4
    averaging: Output = field(default_factory=UniformAverage)
