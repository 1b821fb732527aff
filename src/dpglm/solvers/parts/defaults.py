"""Every default of the gradient solvers, as a function of public quantities alone."""

from __future__ import annotations

import math

from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.problem.loss import Loss
from dpglm.problem.problem import Problem
from dpglm.solvers.parts.schedules import Schedule
from dpglm.solvers.parts.shrinkage import is_neutral

__all__ = [
    "checked_clip",
    "clip",
    "curvature",
    "has_bounded_slopes",
    "is_ample",
    "is_smooth",
    "slope_range",
    "slope_unit",
    "smoothness",
    "steps",
]

# Chosen on validation parts of the training rows of Adult, ACS employment, MNIST and California
# housing, then frozen; docs/defaults.md says what else was seen on the way.
_CLIP_SCALAR, _CLIP_VECTOR = 0.75, 0.15
_NOISE_SCALAR, _NOISE_VECTOR = 0.7, 0.5
# Of losses of classes' codes; ``experiments.ridge_classifier``.
_NOISE_CODES = 0.2
# With one output: share of that noise where data damp little of it, and mu times rows per column
# from which all of it is allowed; on the tables of ``experiments.wide_tables``.
_UNDAMPED, _DAMPED_FROM = 0.25, 80.0
_LEAST_STEPS, _MOST_STEPS = 200, 400
_LARGEST_STEP_BOUNDED, _LARGEST_STEP_UNBOUNDED, _LARGEST_STEP_NONCONVEX = 8.0, 4.0, 0.5


def slope_unit(loss: Loss, data: DataSpec) -> float:
    """Slope that counts as large: the loss's bound, else its bound at the prediction zero.

    1 if that is zero, as for squared errors of a constant target.
    """
    low, high = data.target_range(loss.target.bounds)
    bound = loss.slope_bound_on(math.inf, low, high)
    if not math.isfinite(bound):
        bound = loss.without_offset.slope_bound_on(0.0, low, high)
    return bound or 1.0


def has_bounded_slopes(loss: Loss, data: DataSpec) -> bool:
    """Whether slopes are bounded at whatever prediction."""
    return math.isfinite(loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds)))


def is_smooth(loss: Loss, data: DataSpec) -> bool:
    """Whether slopes change smoothly, however fast, so that curvature says what damps noise."""
    low, high = data.target_range(loss.target.bounds)
    return math.isfinite(loss.without_offset.smoothness_on(1.0, low, high))


def curvature(loss: Loss, data: DataSpec) -> float:
    """Curvature that counts as large: the loss's smoothness; where it has none, ``slope_unit``."""
    bend = smoothness(loss, data)
    return bend if math.isfinite(bend) else slope_unit(loss, data)


def clip(loss: Loss, data: DataSpec) -> float:
    """Clip norm of a row's gradient: 0.75 ``slope_unit * row_norm``, 0.15 for several outputs.

    For losses that are not convex twice the largest slope at the prediction zero takes the place of
    ``slope_unit``, if that is more.

    With one output and an intercept (whose column is as long as a row), no slope below 0.53 of
    the unit is clipped. Below one half, the minimiser of the clipped logistic loss would jump
    away from zero where the classes are balanced: clipping then costs calibration. For several
    outputs slopes of opposite rows do not meet head-on, and a small clip lets the parameter go
    further for the same noise.
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
    """Bound on the loss's curvature for all targets within their public range; possibly inf."""
    return loss.smoothness_on(math.inf, *data.target_range(loss.target.bounds))


def slope_range(loss: Loss, data: DataSpec) -> float:
    """Range of predictions over which slopes change: their unit over the smoothness, else 1."""
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
    """Choose number of steps and first step size, as far as they are not given.

    ``mu`` is the budget as Gaussian DP over the relation's factor and the weight bound.

    With T full-batch steps, noise in a coefficient is about ``travel / (mu n)`` where
    ``travel = C sum_k eta_k`` is how far clipped gradients can carry the parameter, whatever
    T is. So the budget decides the travel: as far as the prediction of a long row gets noise of
    standard deviation ``0.7 * slope_unit / curvature`` (0.5 for several outputs, 0.2 for classes'
    codes, which have no scores beyond those of a class), a part of the range over which slopes
    change; less where columns are many for ``mu n`` and no constraint keeps noise out of most
    directions (``_damped``). The number of steps then keeps single steps stable, in units of
    ``(1 + m) / (1 - m) / (curvature * augmented_row_norm**2)``, half of what the worst case
    allows. Data do not come near to the worst case, and steps decay, so convex losses get more
    than one such unit: more if their slopes are bounded, as curvature then vanishes where
    slopes are large. Others get less, as a step too far ends where slopes vanish. A small clip
    bounds by itself how far a step can go, so steps grow as it shrinks below 0.75 of the unit.
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
    stable = _largest_step(loss, data) * (1.0 + momentum) / (1.0 - momentum) * reach / bend
    # Gradients, and curvature, are those of weighted rows.
    stable /= data.weight_bound
    if n_steps is None:
        wanted = 2.0 * travel / (clip * (step_size or stable))
        n_steps = min(max(_LEAST_STEPS, math.ceil(wanted)), _MOST_STEPS)
    if step_size is None:
        step_size = min(stable, travel / (clip * float(schedule.factors(n_steps).sum())))
    return n_steps, step_size


def is_ample(mu: float, data: DataSpec) -> bool:
    """Whether budget and rows are so many for the columns that data damp the noise."""
    return mu * data.n_rows >= _DAMPED_FROM * data.n_columns


def _damped(problem: Problem, mu: float, data: DataSpec) -> float:
    """Share of the noise that is allowed where data damp all of it.

    Along a direction in which rows have the mean square h, noise is damped once
    ``curvature h travel / C`` is above 1. With x for ``mu n / columns`` and rows in all directions
    alike, its variance in predictions is then proportional to ``travel / x``, so travel may grow
    as x. Below that it is not damped at all: what is allowed then is a share of what predictions
    have of signal, whatever x is. Rare classes (little curvature) and rare levels (small h) bring
    the change from the one to the other to x = 20, far above 1. Where columns outnumber
    ``mu n``, signal stands out of noise in fewer directions, and the share falls slowly. Projecting
    on a set leaves noise in its effective dimension only, which then stands for the columns.

    Several outputs have a small clip, whose slopes damp noise earlier; counts start far from
    where they must go, and losses that are not convex where they are flat.
    """
    loss = problem.loss
    x = (
        mu
        * data.typical_weight
        * data.n_rows
        / problem.constraint.effective_dimension(data.n_columns)
    )
    if data.n_outputs > 1 or not (loss.convex and is_neutral(loss, data)):
        return min(1.0, math.sqrt(x))
    return min(max(x / _DAMPED_FROM, _UNDAMPED * min(1.0, math.sqrt(math.sqrt(x)))), 1.0)


def _largest_step(loss: Loss, data: DataSpec) -> float:
    if not loss.convex:
        return _LARGEST_STEP_NONCONVEX
    bounded = has_bounded_slopes(loss, data)
    return _LARGEST_STEP_BOUNDED if bounded else _LARGEST_STEP_UNBOUNDED
