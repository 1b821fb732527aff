"""Likelihoods as Newton steps see them: who has one, its constant model, and its noisy Hessian."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm.data.spec import DataSpec
from dpglm.oracle.row_sums.moments import pack_symmetric, unpack_symmetric
from dpglm.problem import Problem, Squared
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.parts.algebra import eigen

__all__ = ["at_least", "check_likelihood", "constant_model", "steadied"]

_FARTHEST_SCORE, _LEAST_BEND, _LEAST_SHARE = 30.0, 1e-12, 1e-3


def check_likelihood(problem: Problem, data: DataSpec) -> None:
    """Refuse losses without a likelihood's curvature, and targets without bounds."""
    loss = problem.loss
    low, high = data.target_range(loss.target.bounds)
    smooth = loss.link is not None and math.isfinite(
        loss.without_offset.smoothness_on(1.0, low, high)
    )
    if data.n_outputs > 1 or not (loss.convex and smooth) or isinstance(loss, Squared):
        raise ValueError(
            "loss must be convex and smooth with a link and one output, and not squared, for the "
            f"solver NewtonRaphson, got {loss!r} with {data.n_outputs} outputs"
        )
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(
            "target_low and target_high must be finite for the solver NewtonRaphson, got "
            f"{low!r} and {high!r}"
        )


def constant_model(loss: Loss, mean: float, low: float, high: float) -> tuple[float, float]:
    """Return the score that predicts a mean, and the expected curvature there."""
    link = loss.link
    assert link is not None
    binary = loss.target is Target.BINARY
    wanted = 0.5 + 0.5 * mean if binary else mean

    def excess(z: float) -> float:
        return float(link.inverse(np.array([z]))[0]) - wanted

    ends = -_FARTHEST_SCORE, _FARTHEST_SCORE
    values = [excess(end) for end in ends]
    if values[0] >= 0.0:
        score = ends[0]
    elif values[1] <= 0.0:
        score = ends[1]
    else:
        score = float(brentq(excess, *ends))
    z = np.full(2, score)
    if not binary:
        return score, max(float(loss.curvature(z, np.full(2, mean))[0]), _LEAST_BEND)
    bends = loss.curvature(z, np.array([-1.0, 1.0]))
    return score, max(float(bends @ np.array([1.0 - wanted, wanted])), _LEAST_BEND)


def steadied(
    matrix: NDArray[np.float64], noise: float, v: NDArray[np.float64], level: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shrink a noisy Hessian towards what it is for elliptical rows; make it positive definite.

    The same for second moments of scores.

    With rows that have one shape in every direction, the Hessian at v is in the span of the
    identity and the products of v and of the intercept's direction ``level``. What is off that
    span keeps the share that the positive-part James-Stein estimator keeps; ``noise`` is the
    standard deviation on the diagonal, which every packed entry has.
    """
    size = len(matrix)
    shapes = [np.eye(size), np.outer(v, v), np.outer(level, level)]
    shapes.append(np.outer(v, level) + np.outer(level, v))
    values, span = pack_symmetric(matrix), np.column_stack([pack_symmetric(a) for a in shapes])
    if not (np.isfinite(values).all() and np.isfinite(span).all()):
        return np.full(matrix.shape, np.nan)
    left, lengths, _ = np.linalg.svd(span / np.linalg.norm(span, axis=0).clip(1e-300), False)
    left = left[:, lengths > _LEAST_SHARE * lengths[0]]
    regular = left @ (left.T @ values)
    rest = values - regular
    expected = noise**2 * (len(values) - left.shape[1])
    kept = max(0.0, 1.0 - expected / max(float(rest @ rest), 1e-300))
    typical = max(float(np.trace(matrix)) / size, noise / math.sqrt(size))
    least = max(kept * noise * math.sqrt(size), _LEAST_SHARE * typical)
    return _raised(unpack_symmetric(regular + kept * rest, size), least)


def at_least(matrix: NDArray[np.float64], least: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise the curvature of a matrix to at least that of another, in every direction.

    Where it has fallen by much on the way of a step, it is larger on the way back.
    """
    values, directions = eigen(least)
    lengths = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    root, inverse = directions * lengths, (directions / lengths).T
    raised = _raised(inverse @ matrix @ inverse.T, 1.0)
    found: NDArray[np.float64] = root @ raised @ root.T
    return found


def _raised(matrix: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Raise the eigenvalues of a symmetric matrix to at least this."""
    values, directions = eigen(matrix)
    raised: NDArray[np.float64] = (directions * np.maximum(values, least)) @ directions.T
    return raised
