"""Newton's method on a quadratic upper bound: noisy gradients in the metric of noisy curvature."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import LARGEST, SMALLEST, DataSpec, FloatType
from dpglm.oracle.gradient_sums.preconditioned import (
    noisy_preconditioned_gradient,
    preconditioned_release,
    rows_turned,
    type_in_basis,
)
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import noisy_second_moments, second_moment_release
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Composed, Gaussian, Repeated
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem, Squared
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.parts.defaults import curvature, slope_unit
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.planning import check_given
from dpglm.solvers.parts.shrinkage import is_neutral, relative_length, shrunk
from dpglm.solvers.second_order.newton_noise import noise_left
from dpglm.solvers.second_order.normal_scores import NormalScores
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    check_data,
    constant_column,
    largest_basis_scale,
)
from dpglm.solvers.second_order.quadratic import minimize_quadratic

__all__ = ["Newton", "NewtonMethod"]

# Chosen on validation parts of the training rows of Adult, ACS employment and California housing,
# and on generated rows; docs/solvers/newton.md says what else was seen on the way.
_TRAVEL, _SAFE_SIGNAL, _FAR = 0.4, 5.0, 4.0
_SAFE_FOR_INTERCEPT = 0.75
_LEAST_STEPS, _MOST_STEPS = 10, 60
_LEAST_CLIP, _USUAL_CLIP, _CLIP_GROWTH = 0.15, 0.75, 0.15
_LARGEST_STEP = 2.0
# Share of the bound on curvature that damps noise, where the clip is twice the slopes at zero;
# none where it is below them, as the clipped loss is flat there.
_DAMPING = 0.25
# The same for squared errors, whose curvature is what it is: the share of rows that are not clipped
# if errors are spread evenly over what targets allow, at most this.
_MOST_DAMPING, _LITTLE = 0.5, 0.5
# Noise in a prediction, over the range in which slopes change, that does no harm.
_VISIBLE = 0.05


@final
@dataclass(frozen=True)
class Newton(Solver):
    """Newton steps with a noisy upper bound on the Hessian and noisy gradients clipped in it.

    Second moments of rows scaled to one length are released once. Times the loss's smoothness
    they bound the Hessian everywhere, up to the rows' lengths. In a basis in which that bound is
    a multiple of the identity, each step is a noisy clipped gradient step, so that steps, clips
    and noise all have the shape of the data. For convex losses.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1. By default 10 to 60, more with more budget.
    step_size : float, optional
        Size of the first step, above 0, in units of the minimiser of the upper bound; later
        ones decay linearly to zero. By default 2, or less where noise would carry further than
        the budget can.
    clip : float, optional
        Bound on a row's gradient in the basis, above 0, in units of the gradient of a row of
        mean squared length with a slope that counts as large. By default it grows with the
        budget.
    first_share : float, default=0.2
        Share of the budget (of mu squared) that goes to the second moments, in (0, 1).

    Notes
    -----
    What is returned is shrunk towards the start where it is no longer than noise alone would make
    it (``dpglm.solvers.parts.shrinkage``): a known share of it, so that signs and ranks stay.

    Privacy: one Gaussian release of second moments and T of gradients, accounted exactly. The
    basis is public once the moments are released, so clipping in it bounds every row whatever
    the moments were.

    References
    ----------
    Ganesh, Haghifam, Steinke and Thakurta, "Faster differentially private convex optimization
    via second-order methods", NeurIPS 2023, section 4: the quadratic upper bound, at zero.
    Böhning and Lindsay, "Monotonicity of quadratic-approximation algorithms", Annals of the
    Institute of Statistical Mathematics 40 (1988).

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = Newton(n_steps=10).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.count) for one in plan.method.releases]
    [('normalised second-moment sum', 1), ('preconditioned gradient sum', 10)]
    """

    n_steps: int | None = None
    step_size: float | None = None
    clip: float | None = None
    first_share: float = 0.2

    def __post_init__(self) -> None:
        check_given(self)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        if not problem.loss.convex:
            raise ValueError(f"loss must be convex for the solver Newton, got {problem.loss!r}")
        check_data(data, adjacency)
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.unit_weight)
        clip, n_steps, step_size = self._clip_and_steps(problem.loss, mu, data)
        unit = slope_unit(problem.loss, data)
        method = NewtonMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            clip=clip * unit * math.sqrt(data.n_columns),
            curvature=curvature(problem.loss, data),
            step_sizes=tuple(step_size * (1.0 - (k + 0.5) / n_steps) for k in range(n_steps)),
            intercept_pace=1.0,
            first_noise_multiplier=1.0,
            noise_multiplier=1.0,
        )
        if n_penalized(problem, data) < data.n_columns and data.n_outputs == 1:
            pace = (_SAFE_FOR_INTERCEPT / self._safe(problem.loss, mu, data)) ** 2
            pace = min(pace, _LARGEST_STEP / step_size)
            method = dataclasses.replace(method, intercept_pace=max(1.0, pace))
        # Penalties and constraints that do not fit the parameter fail here, not in the run.
        method.init(0)
        first, rest = self.first_share, (1.0 - self.first_share) / n_steps
        sigma = calibrate(
            lambda sigma: Composed(
                (
                    Gaussian(sigma / math.sqrt(first)),
                    Repeated(Gaussian(sigma / math.sqrt(rest)), n_steps),
                )
            ),
            budget,
            adjacency,
        )
        method = dataclasses.replace(
            method,
            first_noise_multiplier=sigma / math.sqrt(first),
            noise_multiplier=sigma / math.sqrt(rest),
        )
        return Plan(problem, data, budget, adjacency, method)

    def _signal(self, mu: float, data: DataSpec) -> float:
        return math.sqrt(1.0 - self.first_share) * mu * data.n_rows / data.n_columns

    def _safe(self, loss: Loss, mu: float, data: DataSpec) -> float:
        """Factor on how far descent goes, below 1 where columns are many for the budget."""
        # Rows that all pull the start the same way are heard where others drown in noise.
        if not is_neutral(loss, data):
            return _FAR
        return min(1.0, math.sqrt(self._signal(mu, data) / _SAFE_SIGNAL))

    def _clip_and_steps(self, loss: Loss, mu: float, data: DataSpec) -> tuple[float, int, float]:
        """Fill in clip, number of steps and step size; ``mu`` is the budget as Gaussian DP."""
        travel = _TRAVEL * self._signal(mu, data) * self._safe(loss, mu, data)
        clip = self.clip
        if clip is None:
            # Sampling moves gradients as well; a small clip does not help where that is more.
            sampling = _CLIP_GROWTH * mu * math.sqrt(data.n_rows / data.n_columns)
            clip = min(max(travel / 25.0, sampling, _LEAST_CLIP), _USUAL_CLIP)
            clip = max(clip, travel / 100.0) * _steepness(loss, data)
        if not SMALLEST <= clip <= LARGEST:
            raise ValueError(f"clip must be {SMALLEST:g} to {LARGEST:g}, got {clip!r}")
        n_steps = self.n_steps
        if n_steps is None:
            wanted = math.ceil(2.0 * travel / (clip * (self.step_size or _LARGEST_STEP)))
            n_steps = min(max(wanted, _LEAST_STEPS), _MOST_STEPS)
        step_size = self.step_size or min(_LARGEST_STEP, 2.0 * travel / (clip * n_steps))
        return clip, n_steps, step_size


def _steepness(loss: Loss, data: DataSpec) -> float:
    """Slopes at zero over half of the slope that counts as large, for smooth binary losses.

    Half is what the logistic loss has there. A small clip makes a loss flat as far as slopes are
    above it, and on flat ground neither noise nor the sampling of rows is damped.
    """
    low, high = data.target_range(loss.target.bounds)
    if loss.target is not Target.BINARY or not math.isfinite(
        loss.smoothness_on(math.inf, low, high)
    ):
        return 1.0
    return max(1.0, 2.0 * loss.slope_bound_on(0.0, low, high) / slope_unit(loss, data))


@final
@dataclass(frozen=True, eq=False)
class NewtonState:
    """Iterate after some steps, and the basis once second moments were released."""

    step: int
    basis: Basis | None
    w: NDArray[np.float64]


@final
@dataclass(frozen=True)
class NewtonMethod(Method["NewtonState"]):
    """Newton's method with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clip: float  # Bound on a row's gradient in the basis, weight excluded.
    # What second moments are multiplied by: the loss's smoothness, or its unit of slope where that
    # is infinite.
    curvature: float
    step_sizes: tuple[float, ...]
    intercept_pace: float  # Factor on steps along the intercept, at least 1.
    first_noise_multiplier: float
    noise_multiplier: float

    algorithm = "newton with a quadratic upper bound"

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes)

    @functools.cached_property
    def moments(self) -> SumRelease:
        """The release of second moments."""
        noise = GaussianNoise(self.first_noise_multiplier)
        return second_moment_release(self.data, self.adjacency, noise)

    @functools.cached_property
    def gradients(self) -> SumRelease:
        """The release of each gradient sum in the basis."""
        noise = GaussianNoise(self.noise_multiplier)
        return preconditioned_release(
            self.data, self.adjacency, self._type_in_basis, self.clip, noise, self.n_steps
        )

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return self.moments, self.gradients

    @property
    def _type_in_basis(self) -> FloatType:
        bound = self.clip * self.data.weight_bound
        return type_in_basis(self.data, self.adjacency, self.problem.loss, bound)

    @property
    def gradient_evaluations(self) -> float:
        return float(self.n_steps * self.data.n_rows)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient in the basis."""
        return self.gradients.noise_std / self.data.n_rows

    @property
    def coefficient_noise(self) -> float:
        scale = largest_basis_scale(self.data, self.moments.noise_std)
        return self._noise_in_basis * scale

    @property
    def _usual_length(self) -> float:
        """Root mean square of the rows' lengths in the basis."""
        return math.sqrt(self.data.n_columns)

    @property
    def _noise_in_basis(self) -> float:
        return self.noise_std * math.hypot(*self.step_sizes) / self.curvature

    @property
    def _noise_left(self) -> float:
        """Standard deviation of the noise in each coordinate, as far as the loss damps it."""
        loss, longest = self.problem.loss, self._usual_length
        largest = loss.slope_bound_on(0.0, *self.data.target_range(loss.target.bounds))
        # A row of usual length is clipped where its slope is larger.
        reach = self.clip / longest
        relative = reach / largest if largest else 1.0
        if isinstance(loss, Squared):
            left = self._noise_damped_by(min(relative, _MOST_DAMPING))
            # So little noise that few rows go where the clipped loss is straight because of it.
            if left * longest * self.curvature <= _LITTLE * reach:
                return left
        return self._noise_damped_by(_DAMPING * min(max(relative - 1.0, 0.0), 1.0))

    def _noise_damped_by(self, damping: float) -> float:
        variance = 0.0
        for eta in self.step_sizes:
            variance = (1.0 - min(damping * eta, 1.0)) ** 2 * variance + eta**2
        return self.noise_std * math.sqrt(variance) / self.curvature

    def noise_in(self, state: NewtonState) -> NDArray[np.float64]:
        basis = state.basis
        assert basis is not None
        v, unit = basis.inverse @ state.w, self.noise_std / self.curvature
        if v.ndim > 1 or not math.isfinite(self.curvature):
            noise = self._noise_damped_by(0.0) * basis.scales
            noise[-1] *= self.intercept_pace
            return noise
        # A column may be zero but in few rows, which are then long in the basis.
        largest, usual = min(self.data.entry_bound, self.data.row_norm), self._usual_length
        lengths = np.maximum(largest * basis.scales, usual)
        if self.data.intercept > 0.0:
            lengths[-1] = usual
        return unit * noise_left(
            basis,
            v,
            self.problem.loss,
            self.data,
            self.clip / lengths,
            self.curvature,
            self.step_sizes,
            self.intercept_pace,
        )

    def precision(self, state: NewtonState) -> NDArray[np.float64] | None:
        basis, w = state.basis, state.w
        assert basis is not None
        if w.ndim > 1 or not math.isfinite(self.curvature):
            return None
        # In the basis the noise is alike in all directions, and so are the errors of sampling.
        scores, reach = NormalScores.of(basis, w), self.clip / math.sqrt(self.data.n_columns)
        bend, square = scores.clipped(self.problem.loss, self.data, reach)
        damping = min(max(bend / self.curvature, 0.0), 1.0)
        carried = 0.0
        for eta in self.step_sizes:
            carried = (1.0 - min(damping * eta, 1.0)) * carried + eta
        sampling = carried / self.curvature * math.sqrt(square / self.data.n_rows)
        variance = self._noise_damped_by(damping) ** 2 + sampling**2
        d = self.data.n_features
        variance *= relative_length(self.finish(state)[:d], w[:d]) ** 2
        return np.asarray(basis.inverse.T @ basis.inverse / variance)

    def init(self, seed: int) -> NewtonState:
        zero = np.zeros(self.data.coefficient_shape)
        penalized = n_penalized(self.problem, self.data)
        return NewtonState(0, None, feasible(self.problem, penalized, zero, 1.0))

    def step(self, state: NewtonState, oracle: Oracle) -> tuple[NewtonState, StepInfo]:
        basis = state.basis
        if basis is None:
            moments = noisy_second_moments(oracle, self.moments, constant_column(self.data))
            basis = basis_from_moments(moments, self.moments.noise_std, self.data)
        v = basis.inverse @ state.w
        # Rows in the basis, which never changes, are computed once in a run.
        if "turned" not in oracle.kept:
            oracle.kept["turned"] = rows_turned(oracle, basis.vectors, self._type_in_basis)
        turned = oracle.kept["turned"]
        g = noisy_preconditioned_gradient(oracle, self.gradients, turned, v, self.clip)
        eta = self.step_sizes[state.step]
        bound = self.curvature / eta
        w = minimize_quadratic(
            bound,
            bound * v - g,
            basis,
            self.problem,
            n_penalized(self.problem, self.data),
            np.zeros_like(v),
        )
        if self.intercept_pace > 1.0:
            along = basis.inverse[:, -1]
            w[-1] -= (self.intercept_pace - 1.0) / bound * (along @ g) / (along @ along)
        noise_norm = self.noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        return NewtonState(state.step + 1, basis, w), info

    def finish(self, state: NewtonState) -> NDArray[np.float64]:
        assert state.basis is not None
        loss, noise = self.problem.loss, self._noise_left
        visible = _VISIBLE * slope_unit(loss, self.data) / self.curvature
        if noise * self._usual_length < visible or not is_neutral(loss, self.data):
            return state.w
        start = self.init(0).w
        own_intercept = n_penalized(self.problem, self.data) < self.data.n_columns
        inverse = state.basis.inverse
        return shrunk(
            state.w,
            start,
            noise,
            inverse=inverse,
            own_intercept=own_intercept,
            pace=self.intercept_pace,
        )
