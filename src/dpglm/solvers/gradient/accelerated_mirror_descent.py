"""Accelerated mirror descent: full-batch noisy gradients in the geometry of the constraint."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import (
    Constraint,
    L1Ball,
    L2Ball,
    NoPenalty,
    Problem,
    Regularizer,
    Simplex,
    Unconstrained,
)
from dpglm.solvers.base import Facts, FitMethod, Iterate, Outcome, Plan, Solver, StepInfo, present
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.uncertainty import Floats, n_penalized

# Mirror maps: the geometries in which accelerated mirror descent takes its steps.

Array: TypeAlias = NDArray[np.floating[Any]]
_TINY = 1e-300


class MirrorMap(abc.ABC):
    """A function on a set, 1-strongly convex in a norm that is at least the Euclidean one.

    So a loss of smoothness ``beta`` on rows of norm R is ``beta R**2``-smooth in that norm, too.
    """

    @abc.abstractmethod
    def start(self, shape: tuple[int, ...]) -> Array:
        """Return the minimiser of the function on the set."""

    @abc.abstractmethod
    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        """Minimise ``<gradient, v> + penalty(v) + D(v, z) / step_size`` over the set.

        D is the function's Bregman divergence.
        """

    @abc.abstractmethod
    def reach(self, dimension: int) -> float:
        """Bound the Bregman divergence of any point of the set from the start; possibly inf."""


@final
@dataclass(frozen=True)
class EuclideanMap(MirrorMap):
    """``|v|_2**2 / 2``, with any penalty, on an L2 ball or without a constraint."""

    regularizer: Regularizer
    # Set for which a prox and then a projection is the prox of both (see ``Problem``).
    constraint: Constraint

    def start(self, shape: tuple[int, ...]) -> Array:
        return self.constraint.project(np.zeros(shape))

    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        return self.constraint.project(self.regularizer.prox(z - step_size * gradient, step_size))

    def reach(self, dimension: int) -> float:
        return 0.5 * self.constraint.norm_bound(dimension) ** 2


@final
@dataclass(frozen=True)
class EntropyMap(MirrorMap):
    """``radius * sum_j v_j log v_j`` on the simplex, strongly convex in the L1 norm.

    Pinsker's inequality, for ``v / radius``.
    """

    radius: float

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.radius / math.prod(shape))

    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        # An entry that underflowed to zero could never grow again.
        logits = np.log(np.maximum(z, _TINY)) - step_size / self.radius * gradient
        with np.errstate(under="ignore"):
            weights = np.exp(logits - logits.max())
        return np.asarray(self.radius * (weights / weights.sum()))

    def reach(self, dimension: int) -> float:
        return self.radius**2 * math.log(dimension)


@final
@dataclass(frozen=True)
class PNormMap(MirrorMap):
    """``|v|_p**2 / (2 (p - 1))`` with ``p = 1 + 1 / log d``, at most 2, on an L1 ball.

    Ball, Carlen and Lieb, "Sharp uniform convexity and smoothness inequalities for trace norms",
    Inventiones Mathematicae 1994, Proposition 3 (strong convexity in the p-norm).
    """

    radius: float

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape)

    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        p = _order(z.size)
        dual = _gradient(z, p) / (p - 1.0) - step_size * gradient
        largest = float(np.abs(dual).max())

        # A multiplier for the L1 norm thresholds the dual; the conjugate's gradient leads back.
        def primal(multiplier: float) -> Array:
            kept = np.maximum(np.abs(dual) - multiplier, 0.0)
            return (p - 1.0) * _gradient(np.copysign(kept, dual), p / (p - 1.0))

        def excess(multiplier: float) -> float:
            return float(np.abs(primal(multiplier)).sum()) - self.radius

        if excess(0.0) <= 0.0:
            return primal(0.0)
        v = primal(brentq(excess, 0.0, largest, xtol=1e-15 * largest, rtol=1e-14))
        if not v.any():
            # All but the largest entries of a huge dual vanish by rounding.
            v = np.where(np.abs(dual) == largest, np.sign(dual), 0.0)
        return np.asarray(self.radius * (v / np.abs(v).sum()))

    def reach(self, dimension: int) -> float:
        return 0.5 * self.radius**2 / (_order(dimension) - 1.0)


def mirror_map_for(problem: Problem) -> MirrorMap:
    """Choose the geometry of a problem's constraint."""
    constraint, penalty = problem.constraint, problem.regularizer
    if isinstance(constraint, Unconstrained | L2Ball):
        return EuclideanMap(penalty, constraint)
    if not isinstance(constraint, L1Ball | Simplex):
        raise ValueError(
            "constraint must be one of L1Ball, L2Ball, Simplex, Unconstrained for accelerated "
            f"mirror descent, got {constraint!r}"
        )
    if penalty != NoPenalty():
        raise ValueError(
            f"regularizer must be NoPenalty() on {constraint!r} for accelerated mirror descent, "
            f"got {penalty!r}"
        )
    make = PNormMap if isinstance(constraint, L1Ball) else EntropyMap
    return make(constraint.radius)


def _order(dimension: int) -> float:
    return 1.0 + 1.0 / max(1.0, math.log(dimension))


def _gradient(v: Array, p: float) -> Array:
    """Gradient of ``|v|_p**2 / 2``."""
    largest = float(np.abs(v).max())
    if largest == 0.0:
        return np.zeros_like(v)
    with np.errstate(under="ignore"):
        total = float(np.sum((np.abs(v) / largest) ** p))
        norm = largest * math.pow(total, 1.0 / p)
        return norm * np.copysign((np.abs(v) / norm) ** (p - 1.0), v)


# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen.
_STEP_BOUNDED, _STEP_UNBOUNDED = 2.0, 1.0
_RADIUS = 8.0
_LEAST_STEPS, _MOST_STEPS = 10, 400


@final
@dataclass(frozen=True)
class AcceleratedMirrorDescent(Solver):
    """Accelerated mirror descent with one noisy gradient for each step.

    Steps are Euclidean on an `L2Ball` and without a constraint, in the geometry of the p-norm on an
    `L1Ball`, and in that of relative entropy on a `Simplex`. An intercept outside the constraint
    takes Euclidean steps.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1.
    step_size : float, optional
        Step size eta, above 0. By default twice the largest for which there is a proof, which is
        the step of ``dpglm.papers.Wang2017MirrorDescent``.
    clip : float, optional
        Clipping threshold C of a row's gradient, above 0, in units of the prepared rows.

    Notes
    -----
    Privacy: T Gaussian releases, accounted exactly; all iterates are functions of them. As printed,
    the algorithm takes a step with the exact gradient, which is not private even at T = 1.
    ``docs/solvers/accelerated_mirror_descent.md`` has the algorithm and the bound on its error.

    References
    ----------
    Wang, Ye and Xu 2017, Algorithm 3 (corrected) and Theorem 5.4. Tseng, "On accelerated proximal
    gradient methods for convex-concave optimization", 2008, Algorithm 1.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import L1Ball, Logistic
    >>> problem = Problem(Logistic(), constraint=L1Ball(2.0))
    >>> data = DataSpec(n_rows=10_000, n_features=1000)
    >>> plan = AcceleratedMirrorDescent().plan(problem, ApproximateDP(1.0, 1e-5), data)
    >>> plan.event
    Repeated(event=Gaussian(noise_multiplier=23.8...), count=41)
    """

    n_steps: int | None = None
    step_size: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        check_given(self)

    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        loss = problem.loss
        curvature = defaults.smoothness(loss, data)
        if not (loss.convex and math.isfinite(curvature)):
            raise ValueError(
                "loss must be convex with a bounded second derivative for accelerated mirror "
                f"descent, got {loss!r}"
            )
        clip = defaults.checked_clip(loss, data, self.clip)
        step_size, n_steps = self.step_size, self.n_steps
        if step_size is None:
            bounded = defaults.has_bounded_slopes(loss, data)
            largest = _STEP_BOUNDED if bounded else _STEP_UNBOUNDED
            step_size = largest / (curvature * data.augmented_row_norm**2)
        if n_steps is None:
            wanted = balanced_steps(problem, data, step_size, clip, facts.mu)
            n_steps = math.ceil(min(max(_LEAST_STEPS, wanted), _MOST_STEPS))
        method = AcceleratedMirrorDescentMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            geometry=mirror_map_for(problem),
            step_sizes=tuple(step_size * (k + 2.0) / 2.0 for k in range(n_steps)),
            clip=clip,
            noise_multiplier=1.0,
        )
        return facts.calibrated(lambda sigma: dataclasses.replace(method, noise_multiplier=sigma))


def balanced_steps(
    problem: Problem, data: DataSpec, step_size: float, clip: float, mu: float
) -> float:
    """Return the T for which bias ``4 B / (eta T^2)`` and noise ``eta T (s W)^2 / 3`` are equal.

    The noise of each gradient is ``s = C sqrt(T) / (mu n)``, and W is its mean length in the dual
    norm. Without a bounded set, B and W are those of a ball over which slopes change.
    """
    dimension = n_penalized(problem, data) * data.n_outputs
    allowed = problem.constraint
    reach = mirror_map_for(problem).reach(dimension)
    if not math.isfinite(reach):
        curved = defaults.smoothness(problem.loss, data) * data.row_norm
        radius = _RADIUS * defaults.slope_unit(problem.loss, data) / curved
        allowed, reach = L2Ball(radius), 0.5 * radius**2
    width = allowed.gaussian_width(dimension) / allowed.norm_bound(dimension)
    loud = step_size * clip * width
    quiet = mu * data.n_rows / loud if loud > 0.0 else 0.0
    return float((12.0 * reach) ** 0.25 * math.sqrt(quiet))


@final
@dataclass(frozen=True)
class AcceleratedMirrorDescentMethod(FitMethod[Iterate]):
    """Accelerated mirror descent with every setting decided."""

    geometry: MirrorMap  # On the rows of the parameter that penalty and constraint act on.
    step_sizes: tuple[float, ...]
    clip: float
    noise_multiplier: float

    algorithm = "accelerated mirror descent"

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes)

    @functools.cached_property
    def gradients(self) -> SumRelease:
        """The release of each gradient sum."""
        noise = GaussianNoise(self.noise_multiplier)
        clipping = FlatClipping(self.clip)
        return gradient_release(self.data, self.adjacency, clipping, noise, count=self.n_steps)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.gradients,)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient."""
        return self.gradients.noise_std / self.data.n_rows

    @property
    def coefficient_noise(self) -> float:
        # The recursion is linear in the noise: carry the covariance of (z, y). Other geometries
        # move no further than the Euclidean one, as their norms are nowhere below it.
        covariance = np.zeros((2, 2))
        strong = self.problem.regularizer.strong_convexity
        for k, eta in enumerate(self.step_sizes):
            r, shrink = 2.0 / (k + 2.0), 1.0 / (1.0 + eta * strong)
            transition = np.array([[shrink, 0.0], [r * shrink, 1.0 - r]])
            entry = -shrink * eta * np.array([1.0, r])
            covariance = transition @ covariance @ transition.T + np.outer(entry, entry)
        return self.noise_std * math.sqrt(covariance[1, 1])

    def init(self, seed: int) -> Iterate:
        zero = np.zeros(self.data.coefficient_shape)
        rows = n_penalized(self.problem, self.data)
        z = np.concatenate([self.geometry.start(zero[:rows].shape), zero[rows:]])
        # A penalty that does not fit the parameter raises here.
        self._mirror_step(z, zero, 0.0)
        return Iterate(0, z, z)

    def step(self, state: Iterate, oracle: Oracle) -> tuple[Iterate, StepInfo]:
        r, eta = 2.0 / (state.step + 2.0), self.step_sizes[state.step]
        y, z = state.w, present(state.z)
        x = r * z + (1.0 - r) * y
        g = oracle.noisy_gradient(self.gradients, x, FlatClipping(self.clip))
        z = self._mirror_step(z, g, eta)
        y = r * z + (1.0 - r) * y
        noise_norm = self.noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        return Iterate(state.step + 1, y, z), info

    def _mirror_step(self, z: Floats, g: Floats, eta: float) -> Floats:
        rows = n_penalized(self.problem, self.data)
        head = self.geometry.step(z[:rows], g[:rows], eta)
        return np.concatenate([head, z[rows:] - eta * g[rows:]])

    def finish(self, state: Iterate) -> Outcome:
        return Outcome(state.w)
