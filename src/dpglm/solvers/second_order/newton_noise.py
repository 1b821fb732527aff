"""The noise that Newton's steps leave in coefficients, estimated from what was released.

In the basis all rows have the same component along the intercept, and elsewhere a mean of zero and
about the same second moment in every direction. Taken as normal there, rows have a Hessian that
is a multiple of the identity but in the plane of the intercept and of the parameter: a prediction
tells where curvature is large, so that noise in slopes moves the intercept. Where a class is rare
that is more than what noise along the intercept alone leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.second_order.preconditioner import Basis

__all__ = ["noise_left"]

# Of the quadrature over scores, and where scores are cut off in it.
_NODES, _FARTHEST = 40, 30.0


def noise_left(
    basis: Basis,
    v: NDArray[np.float64],
    loss: Loss,
    data: DataSpec,
    reaches: NDArray[np.float64],
    curvature: float,
    step_sizes: Sequence[float],
    pace: float,
) -> NDArray[np.float64]:
    """Return the noise in each coefficient, in units of that of ``1 / curvature`` times a gradient.

    Parameters
    ----------
    basis : Basis
        Coordinates of the steps.
    v : ndarray of shape (n_columns,)
        The last iterate in them, at which curvature is taken.
    loss : Loss
        One with one output.
    data : DataSpec
        Public facts.
    reaches : ndarray of shape (n_columns,)
        For each coefficient the slope from which on rows that tell of it are clipped.
    curvature : float
        Bound on the loss's curvature, or what stands in for it.
    step_sizes : sequence of float
        Of all steps.
    pace : float
        Factor on steps along the intercept.
    """
    level, along = 0.0, np.zeros_like(v)
    if data.intercept > 0.0:
        length = float(np.linalg.norm(basis.inverse[:, -1]))
        level, along = data.intercept / length, basis.inverse[:, -1] / length
    mean = float(along @ v)
    across = v - mean * along
    spread = float(np.linalg.norm(across))
    across = across / (spread or 1.0)
    even, first, second = _kept_curvature(loss, data, level * mean, spread, reaches) / curvature
    hessians = np.zeros((len(v), 3, 3))
    # Along the intercept, along the parameter, and in any other direction.
    hessians[:, 0, 0] = (level**2 or 1.0) * even
    hessians[:, 0, 1] = hessians[:, 1, 0] = level * first
    hessians[:, 1, 1], hessians[:, 2, 2] = second, even
    noise = _covariance(hessians, step_sizes, np.array([pace, 1.0, 1.0]))
    parts = np.column_stack([basis.vectors @ along, basis.vectors @ across])
    others = np.maximum(basis.scales**2 - (parts**2).sum(axis=1), 0.0)
    in_plane = np.einsum("ij,ijk,ik->i", parts, noise[:, :2, :2], parts)
    return np.asarray(np.sqrt(np.maximum(in_plane + others * noise[:, 2, 2], 0.0)))


def _kept_curvature(
    loss: Loss, data: DataSpec, mean: float, spread: float, reaches: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean of the clipped loss's curvature times 1, t and t^2, t the standardised score.

    Scores are normal, targets those of a right model. Returns shape (3, n_columns).
    """
    t, shares = np.polynomial.hermite_e.hermegauss(_NODES)
    z = np.clip(mean + spread * t, -_FARTHEST, _FARTHEST)
    if loss.target is Target.BINARY and loss.link is not None:
        up = np.clip(loss.link.inverse(z), 0.0, 1.0)
        sides = [(np.ones_like(z), up), (-np.ones_like(z), 1.0 - up)]
    else:
        mean_target = z if loss.link is None else loss.link.inverse(z)
        low, high = data.target_range(loss.target.bounds)
        sides = [(np.clip(mean_target, low, high), np.ones_like(z))]
    powers = shares / shares.sum() * np.stack([np.ones_like(t), t, t**2])
    total = np.zeros((3, len(reaches)))
    for y, probability in sides:
        kept = np.abs(loss.slope(z, y)) <= reaches[:, np.newaxis]
        total += powers @ (probability * loss.curvature(z, y) * kept).T
    return total


def _covariance(
    hessians: NDArray[np.float64], step_sizes: Sequence[float], pace: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Covariance after steps ``v - eta pace (H v + noise)``; no step overshoots."""
    root = np.sqrt(pace)
    values, directions = np.linalg.eigh(root[:, np.newaxis] * hessians * root)
    turned = directions.transpose(0, 2, 1)
    entering = turned @ np.diag(pace) @ directions
    found = np.zeros_like(hessians)
    for eta in step_sizes:
        kept = 1.0 - np.clip(eta * values, 0.0, 1.0)
        found = kept[:, :, np.newaxis] * found * kept[:, np.newaxis, :] + eta**2 * entering
    return np.asarray(root[:, np.newaxis] * (directions @ found @ turned) * root)
