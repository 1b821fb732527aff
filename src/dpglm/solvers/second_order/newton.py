"""Newton's method with noisy gradients and a noisy quadratic upper bound on the loss."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from dpglm.data.rows import LARGEST, SMALLEST, DataSpec, FloatType
from dpglm.oracle.clipping import BalancedClipping, FlatClipping
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import (
    check_data,
    constant_column,
    noisy_second_moments,
    second_moment_sum,
    unit_of_moments,
)
from dpglm.oracle.projection import (
    noisy_preconditioned_gradient,
    preconditioned_release,
    rotated_rows,
    type_in_basis,
)
from dpglm.oracle.targets import SLOPES, noisy_mean_slope
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Logistic, Squared
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import Facts, FitMethod, Outcome, Plan, Solver, StepInfo, present
from dpglm.solvers.parts import defaults
from dpglm.solvers.second_order import likelihood, newton_noise
from dpglm.solvers.second_order.least_squares import BY_CHANCE, james_stein
from dpglm.solvers.second_order.newton_raphson_settings import (
    ENOUGH_FOR_MEAN,
    MEDIUM,
    NEGLIGIBLE,
    SMALL,
)
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    products_in_basis,
    usual_basis_scale,
)
from dpglm.solvers.uncertainty import Floats, NoiseCovariance, feasible, n_penalized

# Chosen on validation parts of the training rows of Adult, ACS employment and California housing,
# and on generated rows, by ``python -m experiments.newton_raphson --splits FOLDER``; see
# docs/solvers/newton.md.
_FIRST_SHARE, _TRAVEL, _SAFE_SIGNAL, _SAFE_FOR_INTERCEPT = 0.2, 0.4, 5.0, 0.75
_LEAST_STEPS, _MOST_STEPS = 10, 60
_MOST_STEPS_WITHOUT_NOISE = 400
# Clips while noise exceeds sampling errors, and once it does not; and the number of steps for the
# way, if the clip is between.
LEAST_CLIP, USUAL_CLIP, _STEPS = 0.15, 0.75, 25.0
_LARGEST_STEP = 2.0
# Share of the curvature bound that damps noise of squared errors, at most: that of unclipped rows
# if errors are uniform.
_MOST_DAMPING, _LITTLE = 0.5, 0.5
# The same for losses without a model, if the clip is twice the slopes at zero; none if it is below
# them, as the clipped loss is linear there.
_DAMPING = 0.5 * _MOST_DAMPING
# Counts have few but informative large slopes, which a smaller clip would lose.
_LEAST_CLIP_OF_COUNTS = 0.5
# With a private mean as the start: the largest root-mean-square change of scores in a step, and the
# largest noise in the result.
_LONGEST_STEP, _MOST_NOISE = 1.0, 0.5
# Relative difference for the derivative of a share.
_LONGER = 1e-3
# Standard deviations of scores, before a row is seen.
_SIGNALS = (0.5, 1.0, 2.0)


@final
@dataclass(frozen=True)
class Newton(Solver):
    """Newton steps with a noisy bound on the Hessian, and noisy gradients clipped in its metric.

    Steps, clipping and noise follow the shape of the data. For convex losses. Counts and amounts
    with a log link start at a private mean, where slopes and curvature are measured.

    Parameters
    ----------
    n_steps : int, optional
        Number of gradient steps T, at least 1. By default 10 to 60, more with more budget; up to
        400 where noise is negligible.
    step_size : float, optional
        Size of the first step, above 0, relative to the minimiser of the upper bound; later ones
        decay linearly to zero. By default 2, or less at a small budget.
    clip : float, optional
        Bound on a row's gradient in the basis, above 0, in units of the gradient of a row with a
        root mean square norm and a large slope. By default it grows with the budget.
    first_share : float, default=0.2
        Share of the budget (of mu squared) for the second moments, in (0, 1).

    Notes
    -----
    The result is shrunk towards the start if its norm is near that of noise alone.
    ``docs/solvers/newton.md`` has the algorithm.

    Privacy: one Gaussian release of second moments and T of gradients; with a private mean as the
    start also one each of counts of targets by size, of their mean and of squared slopes, and for
    squared errors of the mean residual; accounted exactly. The basis is public once the moments are
    released, so clipping in it bounds every row for all moments.

    References
    ----------
    Ganesh, Haghifam, Steinke and Thakurta, "Faster differentially private convex optimization
    via second-order methods", NeurIPS 2023, section 4: the quadratic upper bound, at zero.
    Böhning and Lindsay, "Monotonicity of quadratic-approximation algorithms", Annals of the
    Institute of Statistical Mathematics 40 (1988).

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = Newton(n_steps=10).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.count) for one in plan.method.releases]
    [('normalised second-moment sum', 1), ('preconditioned gradient sum', 10)]
    """

    n_steps: int | None = None
    step_size: float | None = None
    clip: float | None = None
    first_share: float = _FIRST_SHARE

    def __post_init__(self) -> None:
        defaults.check_given(self)

    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        if not problem.loss.convex:
            raise ValueError(f"loss must be convex for the solver Newton, got {problem.loss!r}")
        check_data(data, adjacency)
        mu = facts.mu * data.typical_weight
        clip, n_steps, step_size = self._clip_and_steps(problem.loss, mu, data)
        are_factors = likelihood.needs_mean(problem.loss, data)
        has_mean = are_factors or likelihood.needs_scale(problem.loss, data)
        # With a private mean slopes are in units of the released one.
        unit = 1.0 if has_mean else defaults.slope_unit(problem.loss, data)
        shares = {"moments": self.first_share, "gradients": 1.0 - self.first_share}
        if has_mean:
            of_mean = min(max((ENOUGH_FOR_MEAN / (mu * data.n_rows)) ** 2, SMALL), 1.0)
            shares |= {"sizes": 0.5 * of_mean, "targets": 0.5 * of_mean}
            shares["slopes"] = MEDIUM if are_factors else SMALL
            rest = 0.5 * shares["targets"]
            is_weak = defaults.is_weakly_regularized(problem, data)
            if not are_factors and is_weak and math.sqrt(rest) * mu * data.n_rows >= 1.0 / SMALL:
                shares |= {"targets": rest, "residuals": rest}

        def with_noise(scale: float) -> NewtonMethod:
            return NewtonMethod(
                problem=problem,
                data=data,
                adjacency=adjacency,
                clip=clip * unit * math.sqrt(data.n_columns),
                step_sizes=tuple(step_size * (1.0 - (k + 0.5) / n_steps) for k in range(n_steps)),
                intercept_pace=pace,
                noises=likelihood.noises_of(shares, {"gradients": n_steps}, scale),
            )

        pace = 1.0
        if n_penalized(problem, data) < data.n_columns and data.n_outputs == 1:
            pace = (_SAFE_FOR_INTERCEPT / self._safe(mu, data)) ** 2
            pace = max(1.0, min(pace, _LARGEST_STEP / step_size))
        return facts.calibrated(with_noise)

    def _signal(self, mu: float, data: DataSpec) -> float:
        return math.sqrt(1.0 - self.first_share) * mu * data.n_rows / data.n_columns

    def _safe(self, mu: float, data: DataSpec) -> float:
        """Factor on the total step length, below 1 if there are many columns for the budget."""
        return min(1.0, math.sqrt(self._signal(mu, data) / _SAFE_SIGNAL))

    def _clip_and_steps(self, loss: Loss, mu: float, data: DataSpec) -> tuple[float, int, float]:
        """Decide clip, number of steps and step size; ``mu`` is the budget as Gaussian DP."""
        travel = _TRAVEL * self._signal(mu, data) * self._safe(mu, data)
        clip = self.clip
        if clip is None:
            clip = min(max(travel / _STEPS, _least_clip(mu, data)), USUAL_CLIP)
            # Once nothing is clipped, noise must fall as budget or rows grow.
            ample, most = 0.5**2 * travel / _STEPS, 2.0 * USUAL_CLIP
            ample = ample if ample < most else math.sqrt(most * ample)
            clip = max(clip, ample) * _steepness(loss, data)
            if likelihood.needs_mean(loss, data):
                clip = max(clip, _LEAST_CLIP_OF_COUNTS)
        if not SMALLEST <= clip <= LARGEST:
            raise ValueError(f"clip must be {SMALLEST:g} to {LARGEST:g}, got {clip!r}")
        n_steps = self.n_steps
        if n_steps is None:
            wanted = math.ceil(2.0 * travel / (clip * (self.step_size or _LARGEST_STEP)))
            # With negligible noise steps may go far along directions of small curvature.
            most = min(max(_MOST_STEPS, math.ceil(travel / _STEPS)), _MOST_STEPS_WITHOUT_NOISE)
            n_steps = min(max(wanted, _LEAST_STEPS), most)
        step_size = self.step_size or min(_LARGEST_STEP, 2.0 * travel / (clip * n_steps))
        return clip, n_steps, step_size


def _least_clip(mu: float, data: DataSpec) -> float:
    """Return the least useful clip: less does not help where sampling moves gradients more."""
    return LEAST_CLIP * max(mu * math.sqrt(data.n_rows / data.n_columns), 1.0)


def _steepness(loss: Loss, data: DataSpec) -> float:
    """Slopes at zero over half of a large slope, for smooth binary losses.

    Half is the ratio of the logistic loss. A clip below the slopes makes a loss linear, and then
    neither noise nor sampling error is damped.
    """
    low, high = data.target_range(loss.target.bounds)
    if loss.target is not Target.BINARY or not math.isfinite(
        loss.smoothness_on(math.inf, low, high)
    ):
        return 1.0
    return max(1.0, 2.0 * loss.slope_bound_on(0.0, low, high) / defaults.slope_unit(loss, data))


@final
@dataclass(frozen=True, eq=False)
class NewtonState:
    """Iterate after some steps, and the released values that steps use."""

    step: int
    moments: Floats | None
    basis: Basis | None
    w: Floats
    start: likelihood.Start
    weight: float = 1.0  # Mean weight of the rows, or a little more.
    # Points in the basis, and the gradients there.
    visited: tuple[Floats, ...] = ()
    found: tuple[Floats, ...] = ()
    residual: float | None = None  # Mean slope of the result, over the mean weight.

    @property
    def curvature(self) -> float:
        """Bound on the Hessian in the basis, or its substitute."""
        return self.start.curvature * self.weight


@final
@dataclass(frozen=True)
class NewtonMethod(FitMethod["NewtonState"]):
    """Newton's method with every setting decided."""

    # Bound on a row's gradient in the basis, without its weight; with a private mean in units of a
    # large slope.
    clip: float
    step_sizes: tuple[float, ...]
    intercept_pace: float  # Factor on steps along the intercept, at least 1.
    # Noise multiplier of each release; of sizes, targets and slopes if a private mean is the start.
    noises: tuple[tuple[str, float], ...]

    algorithm = "newton with a quadratic upper bound"

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes) + ("residuals" in dict(self.noises))

    @functools.cached_property
    def declared(self) -> Mapping[str, SumRelease]:
        """The releases by name: moments, targets, gradients in the basis, and residuals."""
        data, adjacency = self.data, self.adjacency

        kind, clip, count = self._type_in_basis, self.clip, len(self.step_sizes)
        makers: dict[str, Callable[[GaussianNoise], SumRelease]] = {
            "moments": functools.partial(second_moment_sum(data).release, data, adjacency),
            **likelihood.target_releases(self.problem, data, adjacency),
            "gradients": lambda noise: preconditioned_release(
                data, adjacency, kind, clip, noise, count
            ),
            "residuals": functools.partial(SLOPES.release, data, adjacency),
        }
        return likelihood.declare(makers, dict(self.noises), frozenset({"moments", "gradients"}))

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self.declared.values())

    @property
    def _type_in_basis(self) -> FloatType:
        bound = self.clip * self.data.weight_bound
        return type_in_basis(self.data, self.adjacency, self.problem.loss, bound)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of a mean gradient in the basis.

        In units of a large slope, if that is released.
        """
        return self.declared["gradients"].noise_std / self.data.n_rows

    @property
    def estimates_errors(self) -> bool:
        loss, is_quadratic = self.problem.loss, likelihood.is_quadratic(self.problem)
        return is_quadratic and defaults.is_smooth(loss, self.data) and self.data.n_outputs == 1

    @property
    def coefficient_noise(self) -> float:
        # For final scores with a standard deviation of 1.
        state = self._expected
        scale = usual_basis_scale(self.data, self.declared["moments"].noise_std)
        drawn = self.problem.regularizer.strong_convexity * scale**2 / state.curvature
        return self._shrunk_noise(state, self._noise_damped(state, drawn)) * scale

    @property
    def _expected(self) -> NewtonState:
        """The expected state before a row is seen."""
        start, data = self._public_start(), self.data
        if "slopes" in self.declared and self._are_factors:
            noise = self.declared["slopes"].noise_std / data.n_rows
            start = likelihood.expected_mean(start.w, self.problem.loss, data, noise)
        return NewtonState(0, None, None, start.w, start, data.typical_weight)

    def _shrunk_noise(self, state: NewtonState, noise: float) -> float:
        """Return the expected noise after shrinkage, including the noise in the shrinkage factor.

        Averaged over scores half and twice as large, since it depends on the length of the
        parameter.
        """
        size, left, found = self.data.n_coefficients, self._noise_left(state), []
        if not self._shrinks(state, left):
            return noise
        nodes, chances = likelihood.normal_nodes()
        for signal in _SIGNALS:
            length = math.hypot(signal * math.sqrt(self.data.n_outputs), math.sqrt(size) * noise)
            lengths = np.maximum(length + noise * nodes, 0.0)
            shares = np.array(
                [defaults.shrinkage_factor(float(one), left, size, alike=True) for one in lengths]
            )
            shares *= self._harmless(left)
            along = chances @ (shares * lengths) ** 2 - (chances @ (shares * lengths)) ** 2
            across = (size - 1) * np.square(noise) * (chances @ shares**2)
            found.append(math.sqrt(max(along + across, 0.0) / size))
        return math.hypot(*found) / math.sqrt(len(found))

    @property
    def _are_factors(self) -> bool:
        """Whether steps start at a private mean that scores multiply."""
        return "targets" in self.declared and not isinstance(self.problem.loss, Squared)

    @property
    def _usual_length(self) -> float:
        """Root mean square of the rows' lengths in the basis."""
        return math.sqrt(self.data.n_columns)

    def _unit(self, state: NewtonState) -> float:
        """Return the unit of a released gradient."""
        return 1.0 if "targets" not in self.declared else state.start.slope

    def _reach(self, state: NewtonState) -> float:
        """Return the slope above which a row of usual length is clipped."""
        return self._unit(state) * self.clip / self._usual_length

    def _clipped(self, scores: likelihood.NormalScores, state: NewtonState) -> tuple[float, float]:
        """Return mean curvature and squared slope of the clipped loss."""
        return scores.clipped(self.problem.loss, self.data, self._reach(state))

    def _noise_left(self, state: NewtonState) -> float:
        """Return the noise in each coordinate; a bound where no model says how rows damp it."""
        loss, start, reach = self.problem.loss, state.start, self._reach(state)
        is_squared = isinstance(loss, Squared)
        if loss.link is not None and defaults.is_smooth(loss, self.data) and not is_squared:
            return self._noise_damped(state)
        ends = self.data.target_range(loss.target.bounds)
        largest = start.slope if "targets" in self.declared else loss.slope_bound_on(0.0, *ends)
        # A row of usual length is clipped where its slope is larger.
        unit, relative = self._unit(state) / state.curvature, reach / largest if largest else 1.0
        if is_squared:
            if self._has_secants(state):
                bend, _ = self._measured(state)
                return float(self._noise_damped_by(bend / start.curvature, unit))
            left = float(self._noise_damped_by(min(relative, _MOST_DAMPING), unit))
            # With little noise few rows reach the linear part of the clipped loss.
            if left * self._usual_length * start.curvature <= _LITTLE * reach:
                return left
        return float(self._noise_damped_by(_DAMPING * min(max(relative - 1.0, 0.0), 1.0), unit))

    def _noise_damped(self, state: NewtonState, drawn: float = 0.0) -> float:
        """Return the noise in each coordinate, damped by the curvature of loss and penalty."""
        loss, data, basis, size = self.problem.loss, self.data, state.basis, self.data.n_outputs
        if size == 1:
            expected = likelihood.NormalScores.expected(loss, data)
            scores = expected if basis is None else likelihood.NormalScores.of(basis, state.w)
            bends = np.array([self._clipped(scores, state)[0]])
        else:
            mean, products = np.zeros(size), np.eye(size)
            if basis is not None:
                v, level = basis.inverse @ state.w, basis.inverse[:, -1]
                mean = level @ v / np.linalg.norm(level)
                products = v.T @ v - np.outer(mean, mean)
            found = newton_noise.curvature_of_outputs(loss, mean, products, self._reach(state))
            bends = np.linalg.eigvalsh(found)
        damped, unit = np.maximum(bends, 0.0) / state.start.curvature, self._unit(state)
        noises = [self._noise_damped_by(one, unit / state.curvature, drawn) for one in damped]
        return math.hypot(*noises) / math.sqrt(size)

    def _noise_damped_by(self, damping: Any, unit: float, drawn: float = 0.0) -> Any:
        """Return the noise in each coordinate; ``unit`` is the effect of unit gradient noise."""
        variance = newton_noise.variance_left(self.step_sizes, damping, drawn)
        return self.noise_std * np.sqrt(variance) * unit

    def noise_before_shrinkage(self, state: NewtonState) -> NoiseCovariance | None:
        """Return the noise in the last iterate, if loss and penalty are smooth.

        Noise is carried through the steps with the curvature at the last iterate.
        """
        basis, start, data, problem = present(state.basis), state.start, self.data, self.problem
        if not (defaults.is_smooth(problem.loss, data) and likelihood.is_quadratic(problem)):
            return None
        along, v = np.zeros(data.n_columns), basis.inverse @ state.w
        if data.intercept > 0.0:
            along = basis.inverse[:, -1] / np.linalg.norm(basis.inverse[:, -1])
        strength = problem.regularizer.strong_convexity / state.curvature
        penalty = strength * basis.products(n_penalized(problem, data))
        steps = newton_noise.Steps(self.step_sizes, penalty, along, self.intercept_pace)
        clip, unit = self._unit(state) * self.clip, self._unit(state) / state.curvature
        try:
            noise = self.declared["moments"].noise_std
            products = products_in_basis(present(state.moments), noise, data, basis)
            left = newton_noise.noise_left(
                basis, v, products, problem.loss, data, clip, start.curvature, steps
            )
        except np.linalg.LinAlgError:
            # Eigenvalues fail after an overflow, and a run that was charged must return.
            return None
        found = left.mapped(self.noise_std * unit * basis.vectors)
        return found if found.is_finite else None

    def _of_predictions(self, state: NewtonState) -> Floats:
        """Return a matrix with ``|matrix w|`` as the root mean square prediction of w.

        Noise is largest in the directions in which few rows have entries.
        """
        noise, basis = self.declared["moments"].noise_std, present(state.basis)
        products = products_in_basis(present(state.moments), noise, self.data, basis)
        values, turn = np.linalg.eigh(products)
        roots = np.sqrt(np.maximum(values, 0.0))
        return np.asarray(roots[:, np.newaxis] * (turn.T @ basis.inverse))

    def init(self, seed: int) -> NewtonState:
        start = self._public_start()
        return NewtonState(0, None, None, start.w, start)

    def _public_start(self) -> likelihood.Start:
        """Return zero, with public values of slopes and curvature."""
        loss, data = self.problem.loss, self.data
        zero = np.zeros(data.coefficient_shape)
        w = feasible(self.problem, n_penalized(self.problem, data), zero, 1.0)
        return likelihood.Start(w, defaults.slope_unit(loss, data), defaults.curvature(loss, data))

    def _started(self, oracle: Oracle) -> NewtonState:
        """Release second moments, and the start if it is not zero."""
        data, noise, start = self.data, self.declared["moments"].noise_std, self._public_start()
        moments = noisy_second_moments(oracle, self.declared["moments"], constant_column(data))
        basis = basis_from_moments(moments, noise, data)
        weight = likelihood.mean_weight(moments, noise, data)
        if "targets" in self.declared:
            assert "slopes" in self.declared
            start = likelihood.at_private_mean(oracle, self.declared, self.problem)
        return NewtonState(0, moments, basis, start.w, start, weight)

    def step(self, state: NewtonState, oracle: Oracle) -> tuple[NewtonState, StepInfo]:
        if state.step == len(self.step_sizes):
            declared, most = self.declared["residuals"], self._unit(state)
            mean = noisy_mean_slope(oracle, declared, self.finish(state).w, most) / state.weight
            noise = most * declared.noise_std / self.data.n_rows
            after = dataclasses.replace(state, step=state.step + 1, residual=mean)
            return after, StepInfo(after.step, 1.0, abs(mean), noise)
        if state.basis is None:
            state = self._started(oracle)
        basis, unit = present(state.basis), self._unit(state)
        v = basis.inverse @ state.w
        # The basis never changes, so rows in it are computed once in a run.
        if "turned" not in oracle.kept:
            vectors = basis.vectors / unit
            oracle.kept["turned"] = rotated_rows(oracle, vectors, self._type_in_basis)
        turned = oracle.kept["turned"]
        is_logistic = isinstance(self.problem.loss.without_offset, Logistic)
        clipping = BalancedClipping(self.clip) if is_logistic else FlatClipping(self.clip)
        g = unit * noisy_preconditioned_gradient(
            oracle, self.declared["gradients"], turned, unit * v, clipping
        )
        eta = self.step_sizes[state.step]
        bound = state.curvature / eta
        shift, penalized = bound * v - g, n_penalized(self.problem, self.data)
        zero = np.zeros_like(v)
        w = likelihood.minimize_quadratic(bound, shift, basis, self.problem, penalized, zero)
        if self.intercept_pace > 1.0:
            along = basis.inverse[:, -1]
            w[-1] -= (self.intercept_pace - 1.0) / bound * (along @ g) / (along @ along)
        if self._are_factors:
            length = float(np.linalg.norm(basis.inverse @ (w - state.w)))
            w = state.w + _LONGEST_STEP / max(length, _LONGEST_STEP) * (w - state.w)
        noise_norm = unit * self.noise_std * math.sqrt(self.data.n_coefficients)
        info = StepInfo(state.step + 1, eta, float(np.linalg.norm(g)), noise_norm)
        visited, found = (*state.visited, v), (*state.found, g)
        return dataclasses.replace(
            state, step=state.step + 1, w=w, visited=visited, found=found
        ), info

    def finish(self, state: NewtonState) -> Outcome:
        noise, inverse = self.noise_before_shrinkage(state), present(state.basis).inverse
        row, size, left = inverse[:, -1] @ inverse, self.data.n_columns, self._noise_left(state)
        metric = inverse
        if noise is not None and state.w.ndim == 1:
            metric = self._of_predictions(state)
            own = math.sqrt(np.mean(noise.mapped(metric).deviations ** 2))
            squares = np.linalg.norm(metric @ present(state.basis).vectors, axis=1) ** 2
            if self._has_secants(state):
                damping = self._measured(state)[0] / state.start.curvature
                left = self._noise_damped_by(damping * squares, self._unit(state) / state.curvature)
            left = max(math.sqrt(np.mean(left**2 * squares)), own)
        if not self._shrinks(state, left):
            precision, response = self._precision(state, state.w), self._response(state)
            found = Outcome(state.w, noise, precision=precision, response=response, products=row)
            return found if state.residual is None else self._with_mean(state, found)
        way = state.w - state.start.w
        share, more = self._kept(state, way, left, metric)
        w = defaults.move_partway(state.start.w, way, (share, more), inverse)
        if noise is not None:
            kept = share * np.eye(size)
            kept[-1] += more * defaults.mean_prediction(size, inverse)
            v = metric @ way
            if v.ndim == 1 and (squares := float(v @ v)) > 0.0:
                # The share grows with the length of the way.
                longer, _ = self._kept(state, (1.0 + _LONGER) * way, left, metric)
                kept += np.outer(way, (longer - share) / _LONGER / squares * (v @ metric))
            noise = noise.mapped(kept)
        precision, response = self._precision(state, w), self._response(state, share)
        found = Outcome(w, noise, precision=precision, response=response, products=row)
        return found if state.residual is None else self._with_mean(state, found)

    def _with_mean(self, state: NewtonState, found: Outcome) -> Outcome:
        """Correct the mean prediction, which clipped residuals bias towards that of medians."""
        basis, data, noise = present(state.basis), self.data, found.noise_covariance
        added = self._unit(state) * self.declared["residuals"].noise_std
        added /= data.intercept * data.n_rows * state.weight
        # Noise is as unlikely to change the mean as it is in any of the steps.
        residual = np.array([present(state.residual) / data.intercept])
        change = float(james_stein(residual, added, BY_CHANCE / self.n_steps)[0])
        if not change:
            return found
        share, moved = change / float(residual[0]), np.zeros_like(found.w)
        moved[-1], kept = -change, np.eye(len(moved))
        if noise is not None:
            kept[-1] -= share * defaults.mean_prediction(data.n_columns, basis.inverse)
            columns = noise.mapped(kept).columns
            # The share grows with the residual.
            columns[-1, -1] += ((2.0 - share) * added) ** 2
            noise = NoiseCovariance(columns)
        response = found.response
        if response is not None and response.scores is not None:
            point, gradient, error = response.scores
            scores = point + basis.inverse @ moved, gradient, error
            response = dataclasses.replace(response, scores=scores)
        w = found.w + moved
        return dataclasses.replace(found, w=w, noise_covariance=noise, response=response)

    def _response(self, state: NewtonState, share: float = 1.0) -> newton_noise.Response | None:
        """Return how far the steps follow the truth, if there is one output."""
        if state.w.ndim > 1 or not math.isfinite(state.curvature):
            return None
        data, loss, declared = self.data, self.problem.loss, self.declared["moments"]
        moments, basis, noise = present(state.moments), present(state.basis), declared.noise_std
        constant, unit = constant_column(data), unit_of_moments(moments, noise, data)
        ends = np.append(np.ones(len(moments) - 1), 1.0 / constant)
        size = data.n_columns
        scores = likelihood.NormalScores.of(basis, state.w)
        bend, _ = self._clipped(scores, state)
        full, square = scores.clipped(loss, data, math.inf)
        if isinstance(loss, Squared):
            square = (likelihood.USUAL_ERROR * state.start.slope) ** 2
        means = None
        if isinstance(loss, Squared) and defaults.is_weakly_regularized(self.problem, data):
            if self._has_secants(state):
                bend, error = self._measured(state)
                square = min(error, self._reach(state)) ** 2 * state.start.curvature / bend
            per_step = self._unit(state) * self.noise_std / math.sqrt(len(self.step_sizes))
            gradient = np.mean(state.found, axis=0) / state.curvature
            means = np.mean(state.visited, axis=0), gradient, per_step / state.curvature
        return newton_noise.Response(
            (unit * moments * np.outer(ends, ends))[:size, :size],
            (unit * noise / math.sqrt(2.0), unit * noise / math.sqrt(2.0) / constant),
            basis,
            self.step_sizes,
            bend / state.start.curvature,
            loss.dispersion or square / max(full, SMALLEST),
            share,
            step_noise=self._unit(state) * self.noise_std / state.curvature,
            scores=means,
        )

    def _has_secants(self, state: NewtonState) -> bool:
        """Whether the curvature of squared errors was measured."""
        return isinstance(self.problem.loss, Squared) and len(state.visited) > 2

    def _measured(self, state: NewtonState) -> tuple[float, float]:
        """Return mean curvature by the secants of later steps, and the deviation of residuals.

        The noise in a gradient is in the next step with the opposite sign, so it raises their
        product by a known amount. Rows count as alike in all directions, which understates the
        curvature: others have few and long rows, which are clipped. With normal residuals the
        curvature is the share of those that are not clipped, and implies their deviation.
        """
        start = state.start
        ways = np.diff(state.visited[1:], axis=0)
        changes = np.diff(state.found[1:], axis=0) / state.curvature
        noise = self._unit(state) * self.noise_std / state.curvature
        raised = sum(self.step_sizes[1:-1]) * (self.data.n_columns + self.intercept_pace - 1.0)
        secants = float((ways * changes).sum()) - raised * noise**2
        reach = self._reach(state) / start.slope
        # Residuals deviate by a large slope at most.
        least = math.erf(reach / math.sqrt(2.0))
        bend = secants / max(float((ways**2).sum()), SMALLEST)
        bend = min(max(bend, least), 1.0 - SMALL) if math.isfinite(bend) else least
        error = reach / (math.sqrt(2.0) * float(special.erfinv(bend)))
        error = min(max(error, likelihood.USUAL_ERROR), 1.0)
        return bend * start.curvature, error * start.slope

    def _precision(self, state: NewtonState, returned: Floats) -> Floats | None:
        """Return the rough inverse covariance of the errors of the returned coefficients."""
        basis, w, start = present(state.basis), state.w, state.start
        if w.ndim > 1 or not math.isfinite(state.curvature):
            return None
        # In the basis the noise is alike in all directions, and so are the errors of sampling.
        scores, unit = likelihood.NormalScores.of(basis, w), self._unit(state)
        bend, square = self._clipped(scores, state)
        damping = min(max(bend / start.curvature, 0.0), 1.0)
        carried = 0.0
        for eta in self.step_sizes:
            carried = (1.0 - min(damping * eta, 1.0)) * carried + eta
        sampling = carried / start.curvature * math.sqrt(square / self.data.n_rows)
        noise = self._noise_damped_by(damping, unit / state.curvature)
        d = self.data.n_features
        kept = defaults.relative_length(returned[:d], w[:d])
        return np.asarray(
            basis.inverse.T @ basis.inverse / np.square(kept * math.hypot(noise, sampling))
        )

    def _shrinks(self, state: NewtonState, noise: float) -> bool:
        """Whether the noise may be so large that the parameter is shrunk towards its start."""
        in_predictions = noise * self._usual_length
        if self._are_factors:
            return in_predictions >= NEGLIGIBLE
        visible = NEGLIGIBLE * state.start.slope / state.start.curvature
        return in_predictions >= visible and defaults.is_neutral(self.problem.loss, self.data)

    def _kept(
        self, state: NewtonState, way: Floats, noise: float, metric: Floats
    ) -> tuple[float, float]:
        """Return the share to keep of a way from the start, and more of its mean prediction.

        Towards a private mean all predictions share one factor.
        """
        own_intercept = n_penalized(self.problem, self.data) < self.data.n_columns
        share, more = defaults.shrunk_by(
            way,
            noise,
            inverse=metric,
            own_intercept=own_intercept and not self._are_factors,
            pace=self.intercept_pace,
        )
        return share * self._harmless(noise), more

    def _harmless(self, noise: float) -> float:
        """Return the share of noise to keep, since noisy scores would inflate means."""
        if not self._are_factors:
            return 1.0
        return min(_MOST_NOISE / (noise * self._usual_length), 1.0)
