"""Defaults of the variance-reduced methods, as functions of public quantities alone."""

from __future__ import annotations

import math

from dpglm.data.spec import DataSpec
from dpglm.problem import Problem
from dpglm.solvers.parts import defaults

__all__ = [
    "LEAST_SHARE_OF_BOUND",
    "decide_sampling_rate",
    "decide_steps",
    "require_smooth",
    "row_smoothness",
]

LEAST_SHARE_OF_BOUND = 2.0**-20
"""Least clip norm of a difference, in units of the most that two clipped gradients differ by."""

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen.
_TRAVEL = 0.1
_STEP_BOUNDED, _STEP_UNBOUNDED, _STEP_NONCONVEX = 4.0, 2.0, 0.5
_LEAST_STEPS, _MOST_STEPS = 50, 500
_LEAST_BATCH = 256


def decide_steps(
    problem: Problem,
    data: DataSpec,
    *,
    mu: float,
    clip: float,
    units: int,
    inner_steps: int | None,
    step_size: float | None,
) -> tuple[int, float]:
    """Inner steps of the first epoch and step size, as far as they are not given.

    All epochs together are ``units`` times as long as the first.

    As in ``defaults.steps``, the budget decides how far clipped gradients may carry the
    parameter: 0.1 in place of 0.7 units, as differences have twice the sensitivity and their
    noise adds to that of anchors. Steps are up to 4 times the inverse of the worst curvature
    (2 times for losses with unbounded slopes, 0.5 times for losses that are not convex), and
    their number is at least about 50 and at most about 500.
    """
    loss = problem.loss
    unit, curvature = defaults.slope_unit(loss, data), defaults.smoothness(loss, data)
    travel = _TRAVEL * unit / curvature * mu * data.n_rows / data.row_norm
    targets = data.target_range(loss.target.bounds)
    bounded = math.isfinite(loss.slope_bound_on(math.inf, *targets))
    largest = _STEP_BOUNDED if bounded else _STEP_UNBOUNDED
    largest = largest if loss.convex else _STEP_NONCONVEX
    stable = largest / row_smoothness(problem, data)
    if inner_steps is None:
        wanted = travel / (clip * (step_size or stable))
        inner_steps = math.ceil(min(max(_LEAST_STEPS, wanted), _MOST_STEPS) / units)
    if step_size is None:
        step_size = min(stable, travel / (clip * units * inner_steps))
    return inner_steps, step_size


def decide_sampling_rate(data: DataSpec, lengths: tuple[int, ...], rate: float | None) -> float:
    """Choose the rate of batches: differences cost as much as anchors; at least 256 rows."""
    if rate is not None:
        return rate
    return min(1.0, max(len(lengths) / (2.0 * sum(lengths)), _LEAST_BATCH / data.n_rows))


def row_smoothness(problem: Problem, data: DataSpec) -> float:
    """Lipschitz constant of a row's gradient: the loss's smoothness times the squared row norm."""
    return defaults.smoothness(problem.loss, data) * data.augmented_row_norm**2


def require_smooth(problem: Problem, data: DataSpec) -> None:
    """Raise ValueError where gradients at two near points need not be close."""
    if not math.isfinite(row_smoothness(problem, data)):
        raise ValueError(
            "loss must have a bounded second derivative, so that differences of gradients shrink "
            f"with the distance, got {problem.loss!r}"
        )
