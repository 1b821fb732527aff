"""The noise that Newton's steps leave in coefficients, estimated from what was released.

In the basis all rows have the same component along the intercept, and elsewhere a mean of zero and
about the same second moment in every direction. Taken as normal there, rows have a Hessian that
is a multiple of the identity but in the plane of the intercept and of the parameter: a prediction
tells where curvature is large, so that noise in slopes moves the intercept. Where a class is rare
that is more than what noise along the intercept alone leaves. A column that is zero but in few rows
may have a direction of its own: these rows are long in the basis, so that more of them are clipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem.loss import Loss
from dpglm.solvers.second_order.likelihood import NormalScores
from dpglm.solvers.second_order.preconditioner import Basis
from dpglm.solvers.uncertainty import NoiseCovariance

__all__ = ["Steps", "curvature_of_outputs", "noise_left", "variance_left"]

# How likely it is that few long rows, not many short ones, tell of a column whose values are small
# on the whole, which second moments cannot tell apart.
_FEW_ROWS = 0.25
# Rows drawn to find the curvature of several outputs, and differences that show it.
_DRAWS, _DIFFERENCE, _FARTHEST = 256, 1e-3, 30.0


@final
@dataclass(frozen=True, eq=False)
class Steps:
    """Steps ``v - eta (H v + noise)``, each followed by a penalty's, in units of the curvature.

    ``penalty`` is the Hessian of the penalty, ``along`` the direction in which steps are ``pace``
    times as long.
    """

    sizes: Sequence[float]
    penalty: NDArray[np.float64]
    along: NDArray[np.float64]
    pace: float

    def noise(self, hessian: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the covariance of what unit noise leaves in the end; no step overshoots."""
        along = self.along[:, np.newaxis]
        root = np.eye(len(along)) + (math.sqrt(self.pace) - 1.0) * along * self.along
        own = root @ hessian @ root
        _, directions = np.linalg.eigh(own + self.penalty)
        curved = (directions * (own @ directions)).sum(axis=0)
        drawn = np.maximum((directions * (self.penalty @ directions)).sum(axis=0), 0.0)
        turned = directions.T @ self.along
        entering = np.eye(len(along)) + (self.pace - 1.0) * np.outer(turned, turned)
        # What is left in the end of what each step brought in, the last one first.
        left, brought = np.ones(len(curved)), []
        for eta in reversed(self.sizes):
            left = left / (1.0 + eta * drawn)
            brought.append(eta * left)
            left = left * (1.0 - np.clip(eta * curved, 0.0, 1.0))
        steps = np.stack(brought)
        found = entering * (steps.T @ steps)
        back = root @ directions
        return np.asarray(back @ found @ back.T)


def variance_left(sizes: Sequence[float], curved: float, drawn: float = 0.0) -> float:
    """Return the variance that steps of these sizes leave of unit noise in a single direction.

    ``curved`` is the curvature of the loss there, ``drawn`` that of the penalty.
    """
    variance = 0.0
    for eta in sizes:
        left = 1.0 / (1.0 + eta * drawn)
        variance = left**2 * ((1.0 - min(curved * eta, 1.0)) ** 2 * variance + eta**2)
    return variance


def noise_left(
    basis: Basis,
    v: NDArray[np.float64],
    products: NDArray[np.float64],
    loss: Loss,
    data: DataSpec,
    clip: float,
    curvature: float,
    steps: Steps,
) -> NoiseCovariance:
    """Return the noise in v, in units of that of ``1 / curvature`` times a gradient.

    Parameters
    ----------
    basis : Basis
        Coordinates of the steps.
    v : ndarray of shape (n_columns,) or (n_columns, n_outputs)
        The last iterate in them, at which curvature is taken.
    products : ndarray of shape (n_columns, n_columns)
        Mean products of rows in them, as far as known.
    loss : Loss
        The loss.
    data : DataSpec
        Public facts.
    clip : float
        Bound on a row's gradient.
    curvature : float
        Bound on the loss's curvature, or what stands in for it.
    steps : Steps
        What was done.
    """
    level = 0.0
    if data.intercept > 0.0:
        level = data.intercept / float(np.linalg.norm(basis.inverse[:, -1]))
    mean = steps.along @ v
    across = v - np.multiply.outer(steps.along, mean)
    usual = math.sqrt(max(float(np.trace(products)), 1.0))
    if v.ndim > 1:
        hessian = curvature_of_outputs(loss, level * mean, across.T @ across, clip / usual)
        return _of_outputs(hessian / curvature, products, steps)
    spread = float(np.linalg.norm(across))
    across = across / (spread or 1.0)
    scores = NormalScores(float(level * mean), spread)
    # The mean row that shows a column is this long in the basis, and turned to where its inverse
    # has the column.
    lengths = np.linalg.norm(basis.inverse, axis=0)
    shown = min(data.entry_bound, data.row_norm) / lengths
    rare = np.flatnonzero(shown[: data.n_features] > usual)
    reaches = clip / np.append(usual, shown[rare])
    found = scores.curvature(loss, data, reaches) / curvature
    even, first, second = found[:, 0]
    hessian = even * products
    if level > 0.0:
        hessian += (level**2 - 1.0) * even * np.outer(steps.along, steps.along)
        joint = np.outer(steps.along, across)
        hessian += level * first * (joint + joint.T)
    if spread > 0.0:
        hessian += (second - even) * np.outer(across, across)
    noise = steps.noise(hessian)
    if len(rare):
        own = basis.inverse[:, rare] / lengths[rare]
        flatter = hessian - own * (even - found[0, 1:]) @ own.T
        noise += _FEW_ROWS * (steps.noise(flatter) - noise)
    return NoiseCovariance(noise)


def _of_outputs(
    hessian: NDArray[np.float64], products: NDArray[np.float64], steps: Steps
) -> NoiseCovariance:
    """Return the noise in v where rows' curvature, across outputs, is the same in all directions.

    Outputs share the shape of the noise, and differ by how much of it their curvature damps.
    """
    values, directions = np.linalg.eigh(hessian)
    damped = [max(float(one), 0.0) for one in values]
    mean, drawn = sum(damped) / len(damped), float(np.median(np.diag(steps.penalty)))
    variances = np.array([variance_left(steps.sizes, one, drawn) for one in damped])
    columns = steps.noise(mean * products)
    relative = directions**2 @ variances / variance_left(steps.sizes, mean, drawn)
    return NoiseCovariance(columns, relative)


def curvature_of_outputs(
    loss: Loss, mean: NDArray[np.float64], covariance: NDArray[np.float64], reach: float
) -> NDArray[np.float64]:
    """Return the mean Hessian of a loss in its scores, of shape (n_outputs, n_outputs).

    Scores are normal, targets those of a right model; rows whose slope is longer than ``reach`` are
    clipped, and count as flat.
    """
    # The same draws each time, which protect nobody.
    random = np.random.default_rng(0)
    values, directions = np.linalg.eigh(covariance)
    root = directions * np.sqrt(np.maximum(values, 0.0))
    z = mean + random.standard_normal((_DRAWS, len(mean))) @ root.T
    z = np.clip(z, -_FARTHEST, _FARTHEST)
    shares = np.eye(len(mean))[z.argmax(axis=1)] if loss.link is None else loss.link.inverse(z)
    below = np.cumsum(shares, axis=1) < random.random(_DRAWS)[:, np.newaxis]
    y = np.minimum(below.sum(axis=1), len(mean) - 1)
    kept = np.linalg.norm(loss.slope(z, y), axis=1) <= reach
    z, y = z[kept], y[kept]
    if not len(z):
        return np.zeros_like(covariance)
    found = np.empty_like(covariance)
    for output, apart in enumerate(_DIFFERENCE * np.eye(len(mean))):
        change = loss.slope(z + apart, y) - loss.slope(z - apart, y)
        found[output] = change.sum(axis=0) / (2.0 * _DIFFERENCE * _DRAWS)
    return np.asarray(0.5 * (found + found.T))
