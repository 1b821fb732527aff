"""Defaults of the gradient solvers, as functions of public quantities alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpglm._validation import check_count, check_real
from dpglm.data.rows import LARGEST, SMALLEST, DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianAccountant, GaussianDP, PrivacyBudget
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.accounting.calibrate import calibrate, excess, largest_share
from dpglm.privacy.events import Composed, Event, Gaussian, canonical
from dpglm.problem import L2, NoPenalty, Problem, Unconstrained
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import Plan
from dpglm.solvers.parts.schedules import Schedule
from dpglm.solvers.uncertainty import Floats


def stage_seed(seed: int, stage: int) -> int:
    """Derive 64 public random bits for one stage from those of the run."""
    bits = np.random.default_rng([seed, stage + 1])
    return int(bits.integers(2**64, dtype=np.uint64))


# Largest penalty times the number of rows that counts as weak: that of estimators with C = 1.
_STRONGEST_WEAK_PENALTY = 1.0 + 1e-9


def is_weakly_regularized(problem: Problem, data: DataSpec) -> bool:
    """Whether there is neither a constraint nor more of a penalty than L2 with ``C = 1``."""
    penalty = problem.regularizer
    weak = isinstance(penalty, NoPenalty | L2)
    weak = weak and penalty.strong_convexity * data.n_rows <= _STRONGEST_WEAK_PENALTY
    return weak and problem.constraint == Unconstrained()


_COUNTS = frozenset({"n_steps", "n_blocks", "n_epochs", "n_models", "rank"})
_SIZES = frozenset({"step_size", "clip", "radius", "norm", "growth", "loss_bound"})
_SHARES = frozenset({"choice_share", "choice_fraction", "anchor_share", "first_share", "failure"})


def check_given(settings: Any) -> None:
    """Check the fields of a solver that have one of these names; a default None leaves one open."""
    for one in dataclasses.fields(settings):
        name, value = one.name, getattr(settings, one.name)
        if value is None and one.default is None:
            continue
        if name in _COUNTS:
            check_count(name, value)
        if name in _SIZES:
            check_real(name, value, above=0.0)
        if name in _SHARES:
            check_real(name, value, above=0.0, below=1.0)
        if name == "momentum":
            check_real(name, value, least=0.0, below=1.0)
        if name == "sampling_rate":
            check_real(name, value, above=0.0, most=1.0)


MARGIN = 1.0 - 1e-12
"""Factor on a mu that is divided, for rounding."""


def plan_beside(
    make: Callable[[PrivacyBudget], Plan],
    spent: Event,
    mu: float,
    budget: PrivacyBudget,
    adjacency: Adjacency,
) -> Plan | None:
    """Plan with the part of a budget that ``spent`` leaves; None if nothing is left.

    If everything is Gaussian, the plan gets exactly ``mu``, its share of mu squared. Otherwise it
    gets the largest epsilon for which the composition is within the budget.

    Privacy: ``spent`` and the plan's event composed are within the budget.
    """
    gaussian = GaussianAccountant()

    def together(plan: Plan) -> Event:
        return canonical(Composed((spent, plan.event)))

    def of_mu(mu: float) -> Plan | None:
        try:
            plan = make(GaussianDP(mu))
        except ValueError:  # Other noise requires a budget of epsilon and delta.
            return None
        is_gaussian = gaussian.supports(plan.event, adjacency)
        return plan if is_gaussian and within_budget(together(plan), adjacency, budget) else None

    found = None
    if gaussian.supports(spent, adjacency):
        found = of_mu(mu)
    elif gaussian.supports(make(budget).event, adjacency):
        # Mechanisms other than noise may spend less than their share.
        sigma = calibrate(lambda s: Composed((spent, Gaussian(s))), budget, adjacency)
        found = of_mu(gaussian.mu(Gaussian(sigma), adjacency) * MARGIN)
    if found is not None:
        return found
    limit = budget.as_approximate_dp()
    left = (mu / budget.gdp_mu()) ** 2
    return largest_share(
        lambda share: make(ApproximateDP(share * limit.epsilon, limit.delta)),
        lambda plan: excess(together(plan), adjacency, budget),
        start=math.sqrt(left),
        slope=left,
    )


# Signs and ranks of predictions can be right if their size is lost in noise.
_LEAST_SHARE = 0.1
# Noise in a single number often reaches 1.5 standard deviations, and rarely 2.5.
_SURE = 1.6
# A signal above this many times the noise is kept in full; its square does not overflow.
_FAR = 1e9


def is_neutral(loss: Loss, data: DataSpec) -> bool:
    """Whether targets pull the prediction zero both ways, so that shrinking to it is harmless.

    >>> from dpglm.problem import Logistic, Poisson
    >>> is_neutral(Logistic(), DataSpec(100, 2))
    True
    >>> is_neutral(Poisson(), DataSpec(100, 2, target_low=0.0, target_high=1.0))
    False
    """
    if data.n_outputs > 1:
        return True
    ends = np.clip(data.target_range(loss.target.bounds), -LARGEST, LARGEST)
    low, high = loss.slope(np.zeros(2), ends)
    return bool(low * high < 0.0)


def shrinkage_factor(size: float, noise: float, coordinates: int, *, alike: bool) -> float:
    """Return the shrinkage factor of a noisy vector, from its norm and its noise.

    For the squared norm q in units of ``coordinates * noise^2``: 0.1 up to ``a = 1 + sqrt(2 /
    coordinates)``, which noise alone exceeds one time in six; 1 from b on, which is ``2 a`` if rows
    are ``alike`` in all directions, so that norms reflect predictions, and ``1 + 3 sqrt(2 /
    coordinates)`` if few directions may carry all of them; between these ``(1 - a / q) / (1 - a /
    b)``, but at least 0.1. The positive-part James-Stein estimator ``1 - 1 / q`` would shrink large
    vectors for nothing, as noise is only bounded from above.
    """
    if size >= _FAR * noise:
        # Without noise in a coefficient, as under a huge penalty, all of it is signal.
        return 1.0
    spread = math.sqrt(2.0 / coordinates)
    least = 1.0 + spread
    enough = 2.0 * least if alike else 1.0 + 3.0 * spread
    squares = max((size / noise) ** 2 / coordinates, least)
    return min(max((1.0 - least / squares) / (1.0 - least / enough), _LEAST_SHARE), 1.0)


def relative_length(after: Floats, before: Floats) -> float:
    """Return the ratio of the norms of coefficients; at least 1e-9, and 1 if the second is 0."""
    length = float(np.linalg.norm(before))
    return max(float(np.linalg.norm(after)) / length, 1.0 / _FAR) if length > 0.0 else 1.0


def share_of_comparison(worse: float, noise: float) -> float:
    """Return the shrinkage factor for a loss that is, up to noise, ``worse`` than the start's.

    ``1/2 - worse / (2 noise)``, within 0.1 and 1. If noise decides, it is about a half: that leaves
    a quarter of the harm of a step that was all noise, and three quarters of the gain of a right
    one.

    >>> [share_of_comparison(worse, noise=2.0) for worse in (-2.0, -1.0, 0.0, 2.0)]
    [1.0, 0.75, 0.5, 0.1]
    """
    return min(max(0.5 - 0.5 * worse / noise, _LEAST_SHARE), 1.0)


def shrunk(
    w: Floats,
    start: Floats,
    noise: float,
    *,
    inverse: Floats | None = None,
    own_intercept: bool,
    pace: float = 1.0,
) -> Floats:
    """Shrink a noisy parameter towards its start if it is not much farther from it than noise.

    ``inverse @ w`` are coordinates in which rows look alike in every direction, and in which the
    noise is bounded; by default the coefficients, for any rows.

    Several outputs share one factor, so that the largest stays the largest: with factors of their
    own for intercepts, the most frequent class would get every row. With one output, an intercept
    without penalty and constraint (``own_intercept``) may have a factor of its own: all rows inform
    it, so it exceeds the noise when the slopes do not, as with a rare class. ``pace``, at least 1,
    is the factor of the noise along it.

    >>> w = np.append(np.full(100, 0.8), 6.0)
    >>> shrunk(w, np.zeros(101), noise=1.0, own_intercept=True)[[0, -1]]
    array([0.08, 6.  ])
    """
    way = w - start
    kept = shrunk_by(way, noise, inverse=inverse, own_intercept=own_intercept, pace=pace)
    return move_partway(start, way, kept, inverse)


def shrunk_by(
    way: Floats, noise: float, *, inverse: Floats | None, own_intercept: bool, pace: float = 1.0
) -> tuple[float, float]:
    """Return the share of the way that ``shrunk`` keeps, and more of the mean prediction."""
    v = way if inverse is None else inverse @ way
    alike = inverse is not None
    # In coordinates in which rows look alike, directions orthogonal to this predict 0 on average.
    along = np.append(np.zeros(len(v) - 1), 1.0) if inverse is None else inverse[:, -1]
    intercept = along @ v / max(float(along @ along), SMALLEST)
    level = np.multiply.outer(along, intercept / pace)
    even = float(np.linalg.norm(v - (pace - 1.0) * level))
    share = shrinkage_factor(even, noise, v.size, alike=alike)
    if not own_intercept or way.ndim > 1:
        return share, 0.0
    length = float(np.linalg.norm(level))
    own = shrinkage_factor(length, _SURE * noise, 1, alike=alike)
    own = max((own - _LEAST_SHARE) / (1.0 - _LEAST_SHARE), share / pace)
    return share, own - share


def move_partway(
    start: Floats, way: Floats, kept: tuple[float, float], inverse: Floats | None
) -> Floats:
    """Move by a share of the way, and more of the mean prediction, see ``shrunk_by``."""
    share, more = kept
    moved: Floats = start + share * way
    if more:
        moved[-1] += more * (mean_prediction(len(way), inverse) @ way)
    return moved


def mean_prediction(size: int, inverse: Floats | None) -> Floats:
    """Return the intercept that predicts the average prediction of w, as a linear function of w.

    Where rows look alike, directions orthogonal to the intercept's predict 0 on average.
    """
    if inverse is None:
        return np.append(np.zeros(size - 1), 1.0)
    along = inverse[:, -1]
    return np.asarray(along @ inverse / (along @ along))


# Chosen on validation parts of the training rows of Adult, ACS employment, MNIST and California
# housing, then frozen; see docs/defaults.md.
_CLIP_SCALAR, _CLIP_VECTOR = 0.75, 0.15
_NOISE_SCALAR, _NOISE_VECTOR = 0.7, 0.5
# For losses of classes' codes; ``experiments.ridge_classifier``.
_NOISE_CODES = 0.2
# With one output: share of that noise if data damp little of it, and mu times rows per column from
# which all of it is acceptable; on the tables of ``experiments.wide_tables``.
_UNDAMPED, _DAMPED_FROM = 0.25, 80.0
_LEAST_STEPS, _MOST_STEPS = 200, 400
_LARGEST_STEP_BOUNDED, _LARGEST_STEP_UNBOUNDED, _LARGEST_STEP_NONCONVEX = 8.0, 4.0, 0.5


def slope_unit(loss: Loss, data: DataSpec) -> float:
    """Return a slope that counts as large: the loss's bound, else its bound at the prediction zero.

    1 if that is zero, as with squared errors of a constant target.
    """
    low, high = data.target_range(loss.target.bounds)
    bound = loss.slope_bound_on(math.inf, low, high)
    if not math.isfinite(bound):
        bound = loss.without_offset.slope_bound_on(0.0, low, high)
    return bound or 1.0


def loss_at_zero(loss: Loss, data: DataSpec) -> float:
    """Return the largest loss at the prediction zero; inf without public bounds on numbers.

    Losses are convex in the target, so an end of the range is worst; all classes are alike.
    """
    if loss.target is Target.CLASS:
        return float(loss.value(np.zeros((1, data.n_outputs)), np.zeros(1, dtype=int))[0])
    ends = data.target_range(loss.target.bounds)
    if not all(map(math.isfinite, ends)):
        return math.inf
    return float(loss.value(np.zeros(2), np.array(ends)).max())


def has_bounded_slopes(loss: Loss, data: DataSpec) -> bool:
    """Whether slopes are bounded at all predictions."""
    return math.isfinite(loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds)))


def is_smooth(loss: Loss, data: DataSpec) -> bool:
    """Whether slopes are continuous, so that curvature describes how noise is damped."""
    low, high = data.target_range(loss.target.bounds)
    return math.isfinite(loss.without_offset.smoothness_on(1.0, low, high))


def curvature(loss: Loss, data: DataSpec) -> float:
    """Return a large curvature: the loss's smoothness, or without one ``slope_unit``."""
    bend = smoothness(loss, data)
    return bend if math.isfinite(bend) else slope_unit(loss, data)


def clip(loss: Loss, data: DataSpec) -> float:
    """Return the clip norm of a row's gradient: 0.75 or 0.15 times ``slope_unit * row_norm``.

    The smaller for several outputs. For non-convex losses twice the largest slope at the prediction
    zero replaces ``slope_unit`` if it is larger.

    With one output and an intercept (with a column as long as a row), no slope below 0.53 of the
    unit is clipped. Below one half, the minimiser of the clipped logistic loss would jump away from
    zero where the classes are balanced: clipping then costs calibration. With several outputs
    slopes of opposite rows do not cancel head-on, and a small clip lets the parameter go further
    for the same noise.
    """
    fraction = _CLIP_SCALAR if data.n_outputs == 1 else _CLIP_VECTOR
    unit = slope_unit(loss, data)
    if not loss.convex:
        # Slopes at zero are more than half of the unit.
        at_zero = loss.slope_bound_on(0.0, *data.target_range(loss.target.bounds))
        unit = max(unit, 2.0 * at_zero)
    return fraction * unit * data.row_norm


def checked_clip(loss: Loss, data: DataSpec, given: float | None, least: float = SMALLEST) -> float:
    """Return the given clip norm, or the default, if it is in proportion to the row norm."""
    bound = clip(loss, data) if given is None else given
    if not least <= bound / data.augmented_row_norm <= LARGEST:
        raise ValueError(
            f"clip must be {least:g} to {LARGEST:g} times the row norm "
            f"{data.augmented_row_norm!r}, got {bound!r}"
        )
    return bound


def smoothness(loss: Loss, data: DataSpec) -> float:
    """Return a bound on the curvature for all targets in their public range; possibly inf."""
    return loss.smoothness_on(math.inf, *data.target_range(loss.target.bounds))


def slope_range(loss: Loss, data: DataSpec) -> float:
    """Return the range of predictions over which slopes change: unit over smoothness, or 1."""
    bend = smoothness(loss, data)
    return slope_unit(loss, data) / bend if math.isfinite(bend) else 1.0


def steps(
    problem: Problem,
    data: DataSpec,
    *,
    mu: float,
    clip: float,
    momentum: float,
    schedule: Schedule,
    n_steps: int | None,
    step_size: float | None,
) -> tuple[int, float]:
    """Choose number of steps and first step size, if they are not given.

    ``mu`` is the budget as Gaussian DP over the relation's factor and the weight bound.

    ``docs/defaults.md`` has the rule. The budget decides the travel ``C sum_k eta_k``, the distance
    that clipped gradients can carry the parameter, since noise in a coefficient is about ``travel /
    (mu n)`` for every number of steps. That number keeps single steps stable. Typical data are far
    from the worst case, and steps decay, so convex losses get several times what it allows, more if
    their slopes are bounded, as curvature then vanishes where slopes are large. Non-convex ones get
    less, as too long a step ends where slopes vanish. A small clip itself bounds a step.
    """
    loss = problem.loss
    unit = slope_unit(loss, data)
    bend = curvature(loss, data)
    noise = _NOISE_SCALAR if data.n_outputs == 1 else _NOISE_VECTOR
    if loss.of_codes:
        noise = _NOISE_CODES
    noise *= _damped(problem, mu, data)
    travel = noise * unit / bend * mu * data.n_rows / data.row_norm
    reach = max(1.0 / data.augmented_row_norm**2, 0.375 * unit / (data.row_norm * clip))
    bounded = has_bounded_slopes(loss, data)
    largest = _LARGEST_STEP_BOUNDED if bounded else _LARGEST_STEP_UNBOUNDED
    largest = largest if loss.convex else _LARGEST_STEP_NONCONVEX
    stable = largest * (1.0 + momentum) / (1.0 - momentum) * reach / bend
    # Gradients, and curvature, are those of weighted rows.
    stable /= data.weight_bound
    if n_steps is None:
        wanted = 2.0 * travel / (clip * (step_size or stable))
        n_steps = min(max(_LEAST_STEPS, math.ceil(wanted)), _MOST_STEPS)
    if step_size is None:
        travel /= clip * float(schedule.factors(n_steps).sum())
        step_size = min(stable, travel, LARGEST)
    return n_steps, step_size


def is_ample(mu: float, data: DataSpec) -> bool:
    """Whether budget and rows suffice for data to damp the noise in this many columns."""
    return mu * data.n_rows >= _DAMPED_FROM * data.n_columns


def _damped(problem: Problem, mu: float, data: DataSpec) -> float:
    """Return the share of the noise that is acceptable if data damp all of it.

    Along a direction in which rows have the mean square h, noise is damped once ``curvature h
    travel / C`` is above 1. With x = ``mu n / columns`` and rows alike in all directions, its
    variance in predictions is then proportional to ``travel / x``, so travel may grow as x. Below
    that it is not damped, and the acceptable noise is a share of the signal in predictions, for all
    x. Rare classes (little curvature) and rare levels (small h) move the change to x = 20, far
    above 1. If columns outnumber ``mu n``, fewer directions have signal, and the share falls
    slowly. Projecting on a set leaves noise in its effective dimension only, which then replaces
    the columns.

    Several outputs have a small clip, with slopes that damp noise earlier; counts start far from
    the optimum, and non-convex losses where they are flat.
    """
    loss, columns = problem.loss, problem.constraint.effective_dimension(data.n_columns)
    x = mu * data.typical_weight * data.n_rows / columns
    if data.n_outputs > 1 or not (loss.convex and is_neutral(loss, data)):
        return min(1.0, math.sqrt(x))
    return min(max(x / _DAMPED_FROM, _UNDAMPED * min(1.0, math.sqrt(math.sqrt(x)))), 1.0)
