"""The default solver, a choice by public facts; and the signal-to-noise ratio of a plan."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from typing import final

from dpglm._calls import checked
from dpglm.data.rows import DataSpec
from dpglm.oracle.moments import MOST_COLUMNS, MOST_WHITENED
from dpglm.preprocessing import Center, Whiten
from dpglm.privacy.budget import Adjacency, PrivacyBudget
from dpglm.problem import LogLink, Problem, Squared
from dpglm.problem.loss import Target
from dpglm.solvers.base import Facts, Plan, Solver
from dpglm.solvers.composite.calibrated import Calibrated
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.solvers.gradient.noisy_gd import NoisyGD, pure_gd
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbation
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import is_neutral, is_weakly_regularized
from dpglm.solvers.second_order.likelihood import has_likelihood, needs_mean
from dpglm.solvers.second_order.newton import Newton
from dpglm.solvers.second_order.newton_raphson import NewtonRaphson
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from dpglm.solvers.second_order.prototypes import Prototypes
from dpglm.solvers.second_order.sufficient_statistics import SufficientStatistics
from dpglm.solvers.uncertainty import Covariance, check_intervals

# Largest number of columns for Newton steps, unless mu times rows per column is at least this, by
# ``experiments.wide_tables``.
_MOST_COLUMNS, _LEAST_SIGNAL_WIDE = 300, 180.0
# Noise in Hessians up to which Newton-Raphson was at least as good as Newton, on validation parts
# of Adult and ACS employment and on generated rows; more with groups, as only this solver adapts to
# the sums of their rows.
_MOST_HESSIAN_NOISE, _MOST_OF_GROUPS = 0.3, 1.0
# For real targets and a loss with a kink: least mu times rows per column for Newton steps, which
# shrink everything below it, on generated rows.
_LEAST_SIGNAL_KINKED = 400.0
FEW_COLUMNS = 64
"""Columns up to which least squares are the default: their noise grows faster than Newton's."""
_MOST_ENTRIES = 2**28  # 2 GiB in double precision.
# With L2 noise objective perturbation was better in all trials, up to 784 columns.
_MOST_PERTURBED = 1000
# Centred rows are dense copies.
_MOST_COPIED, _MOST_SPARSE_COLUMNS = 2**30, 1000
# Largest noise in second moments for whitening, relative to a row's squared norm.
_MOST_MOMENT_NOISE = 0.03
_WHITEN = Whiten(exponent=0.25)
_INTERCEPT = 0.25
# For classes' codes, by ``experiments.ridge_classifier``: the mean's share; the largest noise in
# second moments for whitening, which is stronger here; and mu times rows per column
# from there on the clip grows, as their root, so that clipping vanishes with the noise.
_CENTER_SHARE_OF_CODES, _MOST_MOMENT_NOISE_OF_CODES = 0.03, 0.12
_WHITEN_CODES = Whiten(exponent=0.5)
_STEPS_OF_CODES = NoisyGD(n_steps=100, momentum=0.8)
_CLIP_GROWS_FROM, _MOST_CLIP_GROWTH = 80.0, 5.0
# Relative clip for centred rows, which are shorter than their bound, and for non-convex losses.
# Both cost calibration, so they do not apply if budget and rows are ample.
_CLIP_OF_CENTERED, _CLIP_NOT_CONVEX = 2.0 / 3.0, 0.6


@checked
def choose(
    problem: Problem,
    budget: PrivacyBudget,
    data: DataSpec,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    *,
    may_copy: bool = True,
) -> Solver:
    """Choose a solver with default settings.

    Parameters
    ----------
    problem, budget, data, adjacency
        As in ``Facts``.
    may_copy : bool, default=True
        Whether solvers that copy all rows into memory are eligible.

    Returns
    -------
    Solver
        ``docs/solvers/index.md`` states the rule.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data, problem = DataSpec(n_rows=10_000, n_features=20), Problem(Logistic())
    >>> choose(problem, ApproximateDP(0.5, 1e-5), data) == Newton()
    True
    >>> choose(problem, ApproximateDP(4.0, 1e-5), data) == NewtonRaphson()
    True
    """
    if budget.is_pure:
        return _without_delta(Facts(problem, budget, data, adjacency), may_copy)
    mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.unit_weight) * data.typical_weight
    if data.n_columns <= _MOST_COLUMNS and has_likelihood(problem, data):
        most = _MOST_HESSIAN_NOISE if data.groups is None else _MOST_OF_GROUPS
        if hessian_noise(mu, data) <= most:
            return NewtonRaphson()
    entries, wide = data.n_rows * data.n_columns, _is_wide(problem, data, mu)
    ample = defaults.is_ample(mu, data)
    if not problem.loss.convex:
        clip = None if ample else _CLIP_NOT_CONVEX * defaults.clip(problem.loss, data)
        return NoisyGD(clip=clip, shrink=True, compare=True)
    codes = problem.loss.of_codes
    if not wide and entries <= _MOST_ENTRIES and not codes:
        kinked = problem.loss.target is Target.REAL and math.isinf(
            defaults.smoothness(problem.loss, data)
        )
        if kinked and mu * data.n_rows < _LEAST_SIGNAL_KINKED * data.n_columns:
            return NoisyGD(compare=True)
        few = data.n_columns <= FEW_COLUMNS
        if isinstance(problem.loss, Squared) and (few or not may_copy):
            return SufficientStatistics()
        return Newton() if may_copy else NoisyGD(compare=True)
    clip = None
    if codes and (growth := mu * data.n_rows / (_CLIP_GROWS_FROM * data.n_columns)) > 1.0:
        clip = min(math.sqrt(growth), _MOST_CLIP_GROWTH) * defaults.clip(problem.loss, data)
    # Whether scores of two classes have a maximum-likelihood slope and intercept.
    calibrated = problem.loss.target is Target.BINARY and data.intercept > 0.0
    calibrated = calibrated and wide and may_copy and has_likelihood(problem, data)
    # A dense copy of the rows must be small enough, next to the sparse rows if they are sparse. The
    # rounding of sums of dense float32 rows is unbounded if the number of rows is private.
    small = entries <= _MOST_COPIED
    if data.sparse:
        small = data.n_columns <= _MOST_SPARSE_COLUMNS and entries <= _MOST_ENTRIES
    can_center = small and (data.dtype != "float32" or adjacency.n_is_public)
    if not (may_copy and (wide or codes) and data.intercept and can_center):
        descent = NoisyGD(clip=clip, compare=True)
        return Calibrated(descent) if calibrated else descent
    center = Center() if problem.penalize_intercept else Center(intercept=_INTERCEPT)
    if data.n_outputs == 1:
        if is_neutral(problem.loss, data) and not ample:
            clip = _CLIP_OF_CENTERED * defaults.clip(problem.loss, data)
        centered = Preprocessed([center], NoisyGD(clip=clip, shrink=True))
        return Calibrated(centered) if calibrated else centered
    if codes:
        solver = dataclasses.replace(_STEPS_OF_CODES, clip=clip)
        if _can_whiten(problem, data, mu, _WHITEN_CODES, _MOST_MOMENT_NOISE_OF_CODES):
            return Preprocessed([center, _WHITEN_CODES], solver, [_CENTER_SHARE_OF_CODES, None])
        return Preprocessed([center], solver, [_CENTER_SHARE_OF_CODES])
    if _can_whiten(problem, data, mu, _WHITEN, _MOST_MOMENT_NOISE):
        return Preprocessed([center, _WHITEN], NoisyGD(shrink=True))
    return Preprocessed([center], NoisyGD(shrink=True))


def _is_wide(problem: Problem, data: DataSpec, mu: float) -> bool:
    """Whether there are too many columns for steps in all of their directions."""
    if data.n_columns <= _MOST_COLUMNS:
        return False
    binary = problem.loss.target is Target.BINARY and data.n_outputs == 1
    resolved = binary and mu * data.n_rows >= _LEAST_SIGNAL_WIDE * data.n_columns
    small = data.n_columns <= MOST_COLUMNS and data.n_rows * data.n_columns <= _MOST_ENTRIES
    # Descent would start at the targets' upper bound, with noise to match.
    return not (small and (resolved or needs_mean(problem.loss, data)))


def _without_delta(facts: Facts, may_copy: bool) -> Solver:
    """Choose a solver for a delta of 0."""
    data = facts.data
    if facts.problem.loss.of_codes:
        return Prototypes()
    small = data.n_columns <= _MOST_PERTURBED and data.n_rows * data.n_columns <= _MOST_ENTRIES
    if small and may_copy:
        perturbed = ObjectivePerturbation()
        # It refuses some losses, penalties and constraints, single precision, and numbers of rows
        # for which rounding cannot be bounded.
        with contextlib.suppress(ValueError):
            perturbed.decide(facts)
            return perturbed
    return pure_gd()


def _can_whiten(
    problem: Problem, data: DataSpec, mu: float, whiten: Whiten, most_noise: float
) -> bool:
    """Whether second moments are above their noise, and the objective changes little."""
    if not is_weakly_regularized(problem, data) or data.n_columns > MOST_WHITENED:
        return False
    signal = math.sqrt(whiten.share(data, mu)) * mu * data.n_rows
    return math.sqrt(2.0 * data.n_columns) <= most_noise * signal


@checked
@final
@dataclass(frozen=True)
class Auto(Solver):
    """The solver that ``choose`` returns.

    Parameters
    ----------
    may_copy : bool, default=True
        Whether solvers that copy all rows into memory are eligible. Estimators pass False for rows
        that are not one matrix in memory.
    inference : {"model", "robust"}, optional
        Covariance to release as well. The solver is then ``SufficientStatistics`` for squared loss,
        and ``NewtonRaphson`` for all others.
    prior_scales : tuple of float, optional
        Largest prior standard deviations of the coefficients, for intervals.
    full_weights : bool, default=False
        Whether every row has its full weight, for intervals.
    indicators : tuple of (int, int, float), default=()
        Columns that are indicators of levels, for intervals, see ``NewtonRaphson``.

    Notes
    -----
    Privacy: the choice depends on public facts only; the plan is that of the chosen solver.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> data = DataSpec(n_rows=1000, n_features=3, target_low=0.0, target_high=1.0)
    >>> plan = Auto().plan(Problem(Squared()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.method.algorithm
    'sufficient statistics'
    """

    may_copy: bool = True
    inference: Covariance | None = None
    prior_scales: tuple[float, ...] | None = None
    full_weights: bool = False
    indicators: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        check_intervals(self)

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        # ``choose`` prefers objective perturbation, except for classes' codes.
        perturbed = budget.is_pure and not problem.loss.of_codes
        return perturbed and self.may_copy and self.inference is None

    def decide(self, facts: Facts) -> Plan:
        if self.inference is None:
            return choose(**vars(facts), may_copy=self.may_copy).decide(facts)
        is_squared = isinstance(facts.problem.loss, Squared)
        able = SufficientStatistics() if is_squared else NewtonRaphson()
        return able.with_inference(
            self.inference,
            self.prior_scales,
            full_weights=self.full_weights,
            indicators=self.indicators,
        ).decide(facts)


# Factor for real targets: R squared is quadratic in the signal.
_REAL_FACTOR = 3.0
# Factor for counts and amounts, with means often far below their bound.
_FACTOR_OF_MEANS = 14.0
# Factor for minimisers and several steps with L2 noise, compared with one pass over the rows.
_PURE_FACTOR = 5.0


def signal_to_noise(plan: Plan) -> float:
    """Return ``n mu / (f sqrt(d))``, for d coefficients.

    f is the sensitivity factor of the relation and of weights above 1, times 3 for numeric targets
    and 14 for counts and amounts with a log link. For a delta of 0, where L2 noise has norm
    ``d / epsilon``, it is ``n epsilon / (f d)`` for one pass over the rows (prototypes), and
    a fifth of that otherwise.
    """
    data = plan.data
    reach = data.unit_weight / data.weight_bound
    factor = plan.adjacency.sum_sensitivity(max(1.0, data.weight_bound) * reach)
    if plan.problem.loss.target.is_number:
        is_factor = isinstance(plan.problem.loss.link, LogLink)
        factor *= _FACTOR_OF_MEANS if is_factor else _REAL_FACTOR
    if plan.budget.is_pure:
        epsilon = plan.budget.as_approximate_dp().epsilon
        if plan.method.gradient_evaluations > data.n_rows:
            factor *= _PURE_FACTOR
        return data.n_rows * epsilon / (factor * data.n_coefficients)
    return data.n_rows * plan.budget.gdp_mu() / (factor * math.sqrt(data.n_coefficients))
