"""Accelerated mirror descent: full-batch noisy gradients in the geometry of the constraint."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import L2Ball, Problem
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.feasible import n_penalized
from dpglm.solvers.parts.mirror_maps import MirrorMap, mirror_map_for
from dpglm.solvers.parts.planning import calibrated, check_given

__all__ = ["AcceleratedMirrorDescent", "balanced_steps"]

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen.
_STEP_BOUNDED, _STEP_UNBOUNDED = 2.0, 1.0
_RADIUS = 8.0
_LEAST_STEPS, _MOST_STEPS = 10, 400


@final
@dataclass(frozen=True)
class AcceleratedMirrorDescent(Solver):
    """Accelerated mirror descent with one noisy gradient for each step.

    With ``r = 2 / (k + 2)`` at step k = 0, 1, ..., the noisy mean clipped gradient g is taken at
    ``x = r z + (1 - r) y``; then ``z`` goes to the minimiser of
    ``<g, v> + penalty(v) + (r / eta) D(v, z)`` over the constraint, and
    ``y <- r z + (1 - r) y``; the last y is returned. The divergence D is Euclidean on an
    `L2Ball` and without a constraint, that of the p-norm on an `L1Ball`, and relative entropy on
    a `Simplex`. An intercept outside the constraint takes Euclidean steps.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1.
    step_size : float, optional
        The eta above, above 0. By default twice what the bound below asks for, which
        ``dpglm.papers.Wang2017MirrorDescent`` takes.
    clip : float, optional
        Clip norm C of a row's gradient, above 0, in units of the prepared rows.

    Notes
    -----
    Privacy: T Gaussian releases, accounted exactly; ``x``, ``y`` and ``z`` are functions of them.
    As printed, the algorithm takes its y-step with the exact gradient and returns y, so that
    nothing private comes out at T = 1; here every y is an average of noisy z.

    Without noise the risk is at most ``4 D(w, z_0) / (eta (T + 1)**2)`` above that of any w in
    the constraint, for convex losses and eta of at most one over the smoothness.

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

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        loss = problem.loss
        curvature = defaults.smoothness(loss, data)
        if not (loss.convex and math.isfinite(curvature)):
            raise ValueError(
                "loss must be convex with a bounded second derivative for accelerated mirror "
                f"descent, got {loss!r}"
            )
        clip = defaults.checked_clip(loss, data, self.clip)
        n_steps, step_size = self._decide(
            problem,
            data,
            curvature=curvature,
            mu=budget.gdp_mu() / adjacency.sum_sensitivity(data.unit_weight),
            clip=clip,
        )
        method = AcceleratedMirrorDescentMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            geometry=mirror_map_for(problem),
            step_sizes=tuple(step_size * (k + 2.0) / 2.0 for k in range(n_steps)),
            clip=clip,
            noise_multiplier=1.0,
        )
        return calibrated(
            lambda sigma: dataclasses.replace(method, noise_multiplier=sigma),
            problem,
            budget,
            data,
            adjacency,
        )

    def _decide(
        self, problem: Problem, data: DataSpec, *, curvature: float, mu: float, clip: float
    ) -> tuple[int, float]:
        """Choose steps and step size where they are not given, as Theorem 5.4 does."""
        loss = problem.loss
        bounded = math.isfinite(
            loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        )
        step_size = self.step_size
        if step_size is None:
            largest = _STEP_BOUNDED if bounded else _STEP_UNBOUNDED
            step_size = largest / (curvature * data.augmented_row_norm**2)
        n_steps = self.n_steps
        if n_steps is None:
            wanted = balanced_steps(problem, data, step_size, clip, mu)
            n_steps = math.ceil(min(max(_LEAST_STEPS, wanted), _MOST_STEPS))
        return n_steps, step_size


def balanced_steps(
    problem: Problem, data: DataSpec, step_size: float, clip: float, mu: float
) -> float:
    """Return the T at which bias ``4 B / (eta T^2)`` and noise ``eta T (s W)^2 / 3`` are equal.

    The noise of each gradient is ``s = C sqrt(T) / (mu n)``, and W is its mean length in the dual
    norm. Without a bounded set, B and W are those of a ball as far as slopes change.
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
@dataclass(frozen=True, eq=False)
class AcceleratedMirrorDescentState:
    """The average y that will be returned, and the point z from which mirror steps go."""

    step: int
    y: NDArray[np.float64]
    z: NDArray[np.float64]


@final
@dataclass(frozen=True)
class AcceleratedMirrorDescentMethod(Method["AcceleratedMirrorDescentState"]):
    """Accelerated mirror descent with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
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
    def gradient_evaluations(self) -> float:
        return float(self.n_steps * self.data.n_rows)

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

    def init(self, seed: int) -> AcceleratedMirrorDescentState:
        zero = np.zeros(self.data.coefficient_shape)
        rows = n_penalized(self.problem, self.data)
        z = np.concatenate([self.geometry.start(zero[:rows].shape), zero[rows:]])
        # A penalty that does not fit the parameter fails here.
        self._mirror_step(z, zero, 0.0)
        return AcceleratedMirrorDescentState(0, z, z)

    def step(
        self, state: AcceleratedMirrorDescentState, oracle: Oracle
    ) -> tuple[AcceleratedMirrorDescentState, StepInfo]:
        r, eta = 2.0 / (state.step + 2.0), self.step_sizes[state.step]
        x = r * state.z + (1.0 - r) * state.y
        g = oracle.noisy_gradient(self.gradients, x, FlatClipping(self.clip))
        z = self._mirror_step(state.z, g, eta)
        y = r * z + (1.0 - r) * state.y
        noise_norm = self.noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        return AcceleratedMirrorDescentState(state.step + 1, y, z), info

    def _mirror_step(
        self, z: NDArray[np.float64], g: NDArray[np.float64], eta: float
    ) -> NDArray[np.float64]:
        rows = n_penalized(self.problem, self.data)
        head = self.geometry.step(z[:rows], g[:rows], eta)
        return np.concatenate([head, z[rows:] - eta * g[rows:]])

    def finish(self, state: AcceleratedMirrorDescentState) -> NDArray[np.float64]:
        return state.y
