"""The step that keeps iterates where penalty and constraint want them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem import Problem

__all__ = ["feasible", "n_penalized"]


def n_penalized(problem: Problem, data: DataSpec) -> int:
    """Return on how many leading rows of the parameter penalty and constraint act."""
    return data.n_columns - int(data.intercept > 0.0 and not problem.penalize_intercept)


def feasible(
    problem: Problem, penalized: int, w: NDArray[np.float64], step: float
) -> NDArray[np.float64]:
    """Prox of the penalty, then projection, on the rows of ``w`` that they act on."""
    acted_on = problem.constraint.project(problem.regularizer.prox(w[:penalized], step))
    return np.concatenate([acted_on, w[penalized:]])
