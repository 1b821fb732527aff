"""The loop that drives a method to its end, by itself or within another run."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.gradients import Oracle
from dpglm.solvers.base import Method, Plan, StepInfo

__all__ = ["finished", "prepared", "take_steps"]

S = TypeVar("S")


def _nobody(steps: int, state: Any, info: StepInfo) -> None:
    """Ignore a step."""


def take_steps(
    method: Method[S],
    state: S,
    oracle: Oracle,
    done: int = 0,
    after: Callable[[int, S, StepInfo], None] = _nobody,
) -> S:
    """Take the remaining steps of a method: the one loop that drives every method to its end."""
    for steps in range(done + 1, method.n_steps + 1):
        state, info = method.step(state, oracle)
        after(steps, state, info)
    return state


def prepared(plan: Plan, oracle: Oracle, seed: int) -> Oracle:
    """Return an oracle about the rows as a nested plan's method prepares them; same curator."""
    rows = plan.method.prepare(oracle.rows, seed)
    return dataclasses.replace(oracle, rows=rows, loss=plan.problem.loss)


def finished(method: Method[S], state: S) -> NDArray[np.float64]:
    """Return what a method returns, or the zero model, with a warning, where steps overflowed.

    Privacy: post-processing of released values. What was paid for is always returned.
    """
    w = method.finish(state)
    if np.isfinite(w).all():
        return w
    warnings.warn(
        "steps overflowed, so that the zero model takes the place of what was released: give a "
        "smaller step_size, or bounds in other units",
        RuntimeWarning,
        stacklevel=3,
    )
    return np.zeros_like(w)
