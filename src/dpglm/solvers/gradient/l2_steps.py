"""How many steps gradient descent with L2 noise takes, and how large they are."""

from __future__ import annotations

import math

from dpglm.data.spec import DataSpec
from dpglm.problem.problem import Problem
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.schedules import Constant, Schedule

__all__ = ["l2_steps"]

# Chosen on validation parts of the training rows of Adult and ACS employment, at epsilon 0.1 to 5.
_NOISE_SCALAR, _NOISE_VECTOR = 0.2, 0.15
_LARGER_STEPS = 2.0
_LEAST_STEPS, _MOST_STEPS = 5, 200


def l2_steps(
    problem: Problem,
    data: DataSpec,
    *,
    signal: float,
    clip: float,
    momentum: float,
    schedule: Schedule,
    n_steps: int | None,
    step_size: float | None,
) -> tuple[int, float]:
    """Choose steps and first step size; ``signal`` is ``n epsilon`` over the relation's factor.

    As in ``dpglm.solvers.parts.defaults.steps``, but noise in a coefficient is about ``travel
    sqrt(T (m + 1)) / signal``, so that fewer steps may travel further. Steps are as large
    as is stable, twice as large as those with momentum, and T is what travels just so far.
    """
    reach = defaults.slope_range(problem.loss, data)
    noise = _NOISE_SCALAR if data.n_outputs == 1 else _NOISE_VECTOR
    travel = noise * reach * signal / (data.row_norm * math.sqrt(data.n_coefficients + 1.0))
    _, stable = defaults.steps(
        problem,
        data,
        mu=math.inf,
        clip=clip,
        momentum=momentum,
        schedule=Constant(),
        n_steps=1,
        step_size=None,
    )
    largest = _LARGER_STEPS * stable
    wanted = math.cbrt(2.0 * travel / (clip * (step_size or largest))) ** 2
    n_steps = n_steps or min(max(_LEAST_STEPS, math.ceil(wanted)), _MOST_STEPS)
    factors = math.sqrt(n_steps) * float(schedule.factors(n_steps).sum())
    return n_steps, step_size or min(largest, travel / (clip * factors))
