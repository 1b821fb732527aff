"""What a problem must have for its estimates to have standard errors."""

from __future__ import annotations

import math

import numpy as np

from dpglm.data.spec import DataSpec
from dpglm.problem import Problem, Target
from dpglm.solvers.uncertainty import Covariance, check_normal

__all__ = ["check_inference"]

_GROUPS_PER_COLUMN = 10


def check_inference(
    problem: Problem, data: DataSpec, covariance: Covariance, *, weighted: bool = False
) -> None:
    """Refuse a problem whose estimates are not asymptotically normal with a known covariance.

    The coefficients must be one vector; the loss smooth and convex; the penalty none or
    L2; the minimum unconstrained. The covariance of a model needs a likelihood, in which a weight
    divides the variance of its row's target, like a number of trials: labels have no such weights.
    The robust covariance of rows in groups is estimated from as many sums of scores as there are
    groups. Offsets must have bounds, about whose middle a fit starts: one that starts too far away
    does not arrive, and no interval would tell.
    """
    loss = problem.loss
    if data.n_outputs > 1:
        raise ValueError(
            f"inference needs one vector of coefficients, but {loss!r} has {data.n_outputs}: fit "
            "two classes at a time"
        )
    low, high = loss.target.bounds
    reach = (low, high) if math.isfinite(high) else (max(low, -1.0), 1.0)
    if not loss.convex or math.isinf(loss.without_offset.smoothness_on(1.0, *reach)):
        raise ValueError(f"inference needs a smooth convex loss, got {loss!r}")
    check_normal(problem)
    if math.isinf(loss.offset_bound):
        raise ValueError(
            "offset_bounds must be public bounds on the offsets for inference, got None; of "
            "exposures they are logarithms, such as (math.log(0.1), math.log(10))"
        )
    if covariance == "robust":
        _check_groups(data)
        return
    if loss.variance(np.ones(1)) is None:
        raise ValueError(
            f"inference=True needs a loss that is a likelihood, got {loss!r}: inference='robust' "
            "does not"
        )
    if weighted and loss.target is Target.BINARY:
        raise ValueError(
            "inference=True needs labels without weights, as a model does not say how weighted "
            "ones vary: inference='robust' takes them, and BinomialRegressor numbers of trials"
        )


def _check_groups(data: DataSpec) -> None:
    """Refuse so few groups that the covariance of their scores' sums is not known."""
    needed = _GROUPS_PER_COLUMN * data.n_columns
    if data.groups is not None and data.n_units < needed:
        raise ValueError(
            f"groups must be at least {needed} for inference='robust' on {data.n_columns} columns, "
            f"{_GROUPS_PER_COLUMN} for each, got {data.n_units}"
        )
