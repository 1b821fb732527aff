"""The solver that estimators use unless told otherwise: a choice by public facts."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from typing import final

from dpglm._validation import check_bools, check_one_of
from dpglm.data.spec import DataSpec
from dpglm.oracle.moments import MOST_COLUMNS, MOST_WHITENED
from dpglm.preprocessing import Center, Whiten
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, is_pure
from dpglm.problem import L2, NoPenalty, Problem, Squared, Unconstrained
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import Facts, Plan, Solver
from dpglm.solvers.composite.calibrated import Calibrated
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.solvers.gradient.noisy_gd import NoisyGD, pure_gd
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbation
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import is_neutral
from dpglm.solvers.second_order.likelihood import check_likelihood, needs_mean
from dpglm.solvers.second_order.newton import Newton
from dpglm.solvers.second_order.newton_raphson import NewtonRaphson
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from dpglm.solvers.second_order.prototypes import Prototypes
from dpglm.solvers.second_order.sufficient_statistics import SufficientStatistics
from dpglm.solvers.uncertainty import Covariance

__all__ = ["Auto", "choose"]

# Newton's steps in all directions of more columns than these drown in noise, unless mu times rows
# per column is so much: there they reach what hundreds of gradient steps do not, and lost nothing
# on the tables of ``experiments.wide_tables``. 2^28 entries in double precision are 2 GiB.
_MOST_COLUMNS, _HEARD_IN_ALL = 300, 180.0
# Noise in Hessians up to which Newton-Raphson was at least as good as Newton, on validation parts
# of Adult and ACS employment and on generated rows; no other solver learns how rows of a group add
# up.
_MOST_HESSIAN_NOISE, _MOST_OF_GROUPS = 0.3, 1.0
# Of losses of numbers with a kink, of unknown curvature: mu times rows per column from which
# Newton's steps see more than descent does, on generated rows; where they see less they shrink all.
_SEEN_BY_KINKS = 400.0
# Least squares from a matrix whose noise grows faster with columns than that of Newton's steps.
_FEW_COLUMNS = 64
_MOST_ENTRIES = 2**28
# With L2 noise objective perturbation was the better one wherever it was tried, up to 784.
_MOST_PERTURBED = 1000
# Centred rows are copies; those of sparse rows are dense.
_MOST_COPIED, _MOST_SPARSE_COLUMNS = 2**30, 1000
# Noise in second moments that whitening can bear, against a row's squared length.
_MOST_MOMENT_NOISE = 0.03
_WHITEN = Whiten(exponent=0.25)
_INTERCEPT = 0.25
# Of classes' codes: share of the mean, whose error costs little; noise in second moments that is
# small enough for whitening, which is stronger than that of other losses; and from how many mu
# times rows per column on the clip grows, as their root, so that clipping vanishes with the noise.
# ``experiments.ridge_classifier`` compares. Scores rank the classes, and shrinkage changes no rank.
_CENTER_SHARE_OF_CODES, _MOST_MOMENT_NOISE_OF_CODES = 0.03, 0.12
_WHITEN_CODES = Whiten(exponent=0.5)
_STEPS_OF_CODES = NoisyGD(n_steps=100, momentum=0.8)
_CLIP_GROWS_FROM, _MOST_CLIP_GROWTH = 80.0, 5.0
# Clip for centred rows over that for others: they are as much shorter than their bound. And for
# losses that are not convex over one that leaves slopes at zero as they are. Both cost calibration,
# so not where budget and rows are ample.
_CLIP_OF_CENTERED, _CLIP_NOT_CONVEX = 2.0 / 3.0, 0.6
# Times the number of rows; the default of estimators, C = 1. Stronger ones would mean something
# else for coefficients of whitened rows.
_STRONGEST_PENALTY = 1.0 + 1e-9


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
    problem : Problem
        Loss, regularizer and constraint.
    budget : PrivacyBudget
        What may be spent.
    data : DataSpec
        Public facts about the data.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        The neighbouring relation.
    may_copy : bool, default=True
        Whether solvers that make a copy of all rows in memory come into question.

    Returns
    -------
    Solver
        For a delta of 0, which Gaussian noise cannot give: for classes' codes
        ``Prototypes``; ``ObjectivePerturbation``, which then has L2 noise, if it takes the problem
        and there are at most 1000 columns and 2^28 entries of rows; ``pure_gd()`` otherwise.

        For other budgets and at most 300 columns ``NewtonRaphson``, if it takes the problem and
        sees Hessians through their noise. Else, for at most 300 columns and 2^28 entries of rows,
        ``SufficientStatistics`` for squared loss and at most 64 columns; ``Newton`` for other
        convex losses and more columns, but not for codes, nor for numbers and a loss with a kink
        where ``mu`` times rows is below 400 for each column; and up to 1000 columns for counts and
        amounts with a log link, and for two classes where ``mu`` times rows is 180 or more for
        each. Otherwise ``NoisyGD`` with a paid
        comparison with its start, and for losses that are not convex 0.6 times its usual clip
        unless ``mu`` times rows is 80 or more for each column; for convex losses, an intercept and
        more than 300 dense columns (at most 2^30 entries) or 301 to 1000 sparse ones (at most 2^28)
        without a comparison, but after ``Center``, and for codes whatever the number of columns is.
        With several outputs ``Whiten`` follows, too, where noise leaves something to see of second
        moments and there is neither a constraint nor more of a penalty than L2 with ``C = 1``. For
        codes the clip grows where ``mu`` times rows is more than 80 for each column. Descent on a
        likelihood of two classes with an intercept is ``Calibrated``.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data, problem = DataSpec(n_rows=10_000, n_features=20), Problem(Logistic())
    >>> choose(problem, ApproximateDP(0.5, 1e-5), data) == Newton()
    True
    >>> choose(problem, ApproximateDP(4.0, 1e-5), data)
    NewtonRaphson(n_pooled=None, inference=None)
    """
    if is_pure(budget):
        return _without_delta(problem, budget, data, adjacency, may_copy)
    mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.unit_weight) * data.typical_weight
    if _is_likelihood(problem, data, mu):
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
        if kinked and mu * data.n_rows < _SEEN_BY_KINKS * data.n_columns:
            return NoisyGD(compare=True)
        few = data.n_columns <= _FEW_COLUMNS
        if isinstance(problem.loss, Squared) and (few or not may_copy):
            return SufficientStatistics()
        return Newton() if may_copy else NoisyGD(compare=True)
    clip = _clip_of_codes(problem.loss, data, mu) if codes else None
    calibrated = wide and may_copy and _is_binary_likelihood(problem, data)
    if not (may_copy and (wide or codes) and data.intercept and _can_center(data, adjacency)):
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


def _clip_of_codes(loss: Loss, data: DataSpec, mu: float) -> float | None:
    """Return a larger clip than the usual one where rows and budget are plenty."""
    growth = math.sqrt(mu * data.n_rows / (_CLIP_GROWS_FROM * data.n_columns))
    return min(growth, _MOST_CLIP_GROWTH) * defaults.clip(loss, data) if growth > 1.0 else None


def _is_wide(problem: Problem, data: DataSpec, mu: float) -> bool:
    """Whether columns are too many for steps in all of their directions."""
    if data.n_columns <= _MOST_COLUMNS:
        return False
    binary = problem.loss.target is Target.BINARY and data.n_outputs == 1
    heard = binary and mu * data.n_rows >= _HEARD_IN_ALL * data.n_columns
    small = data.n_columns <= MOST_COLUMNS and data.n_rows * data.n_columns <= _MOST_ENTRIES
    # Descent begins at a mean of the targets' upper bound, and its noise is that of this bound.
    return not (small and (heard or needs_mean(problem.loss, data)))


def _can_center(data: DataSpec, adjacency: Adjacency) -> bool:
    """Whether a dense copy of the rows is small enough, also next to what sparse rows take.

    Of dense rows in float32 sums have no bound on their rounding where the number of rows is
    private (``sum_rounding``).
    """
    entries = data.n_rows * data.n_columns
    if data.dtype == "float32" and not adjacency.n_is_public:
        return False
    if data.sparse:
        return data.n_columns <= _MOST_SPARSE_COLUMNS and entries <= _MOST_ENTRIES
    return entries <= _MOST_COPIED


def _without_delta(
    problem: Problem, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency, may_copy: bool
) -> Solver:
    """Choose a solver for a delta of 0."""
    if problem.loss.of_codes:
        return Prototypes()
    small = data.n_columns <= _MOST_PERTURBED and data.n_rows * data.n_columns <= _MOST_ENTRIES
    if small and may_copy:
        perturbed = ObjectivePerturbation()
        # Losses, penalties and constraints that it cannot have, single precision, and rows so many
        # that rounding could not be bounded.
        with contextlib.suppress(ValueError):
            perturbed.plan(problem, budget, data, adjacency)
            return perturbed
    return pure_gd()


def _is_binary_likelihood(problem: Problem, data: DataSpec) -> bool:
    """Whether scores of two classes have a slope and an intercept of maximum likelihood."""
    if problem.loss.target is not Target.BINARY or data.intercept == 0.0:
        return False
    try:
        check_likelihood(problem, data)
    except ValueError:
        return False
    return True


def _is_likelihood(problem: Problem, data: DataSpec, mu: float) -> bool:
    """Whether there is a likelihood, whose Hessians stand out of their noise."""
    if data.n_columns > _MOST_COLUMNS:
        return False
    try:
        check_likelihood(problem, data)
    except ValueError:
        return False
    most = _MOST_HESSIAN_NOISE if data.groups is None else _MOST_OF_GROUPS
    return hessian_noise(mu, data) <= most


def _can_whiten(
    problem: Problem, data: DataSpec, mu: float, whiten: Whiten, most_noise: float
) -> bool:
    """Whether second moments stand out of their noise, and the objective hardly changes."""
    penalty = problem.regularizer
    weak = isinstance(penalty, NoPenalty | L2)
    weak = weak and penalty.strong_convexity * data.n_rows <= _STRONGEST_PENALTY
    if not weak or problem.constraint != Unconstrained() or data.n_columns > MOST_WHITENED:
        return False
    signal = math.sqrt(whiten.share(data, mu)) * mu * data.n_rows
    return math.sqrt(2.0 * data.n_columns) <= most_noise * signal


@final
@dataclass(frozen=True)
class Auto(Solver):
    """The solver that ``choose`` returns.

    Parameters
    ----------
    may_copy : bool, default=True
        Whether solvers that make a copy of all rows in memory come into question. Estimators
        say no for rows that are not one matrix in memory.
    inference : {"model", "robust"}, optional
        Which covariance to release, too. Then it is one of the two solvers that can:
        ``SufficientStatistics`` for squared loss, ``NewtonRaphson`` for all else.

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

    def __post_init__(self) -> None:
        check_bools(self)
        if self.inference is not None:
            check_one_of("inference", self.inference, ("model", "robust"))

    def with_inference(self, covariance: Covariance) -> Auto:
        return dataclasses.replace(self, inference=covariance)

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        # ``choose`` takes objective perturbation where it can, but for classes' codes.
        perturbed = is_pure(budget) and not problem.loss.of_codes
        return perturbed and self.may_copy and self.inference is None

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        if self.inference is None:
            chosen = choose(problem, budget, data, adjacency, may_copy=self.may_copy)
        else:
            is_squared = isinstance(problem.loss, Squared)
            able = SufficientStatistics() if is_squared else NewtonRaphson()
            chosen = able.with_inference(self.inference)
        return chosen.plan(problem, budget, data, adjacency)
