"""The privacy noise in coefficients after Newton steps, estimated from released values.

In the basis the intercept's coordinate is equal in all rows. The other coordinates have mean zero
and about the same second moment in every direction. For normal rows the Hessian is then a multiple
of the identity, except in the plane of the intercept and the parameter. There curvature depends on
the prediction, so noise in slopes moves the intercept. With a rare class this effect exceeds the
noise along the intercept alone. Rows with an entry in a sparse column may have a large norm in the
basis, and are then clipped more often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from dpglm.data.rows import DataSpec
from dpglm.problem.loss import Loss
from dpglm.solvers.second_order.likelihood import NormalScores, normal_nodes
from dpglm.solvers.second_order.preconditioner import FEW, Basis
from dpglm.solvers.uncertainty import Floats, NoiseCovariance, eigen

# Draws and difference for the curvature of several outputs.
_DRAWS, _DIFFERENCE, _FARTHEST = 256, 1e-3, 30.0
_LEAST_RATIO = 1e-12


@final
@dataclass(frozen=True, eq=False)
class Response:
    """The share of a true parameter that Newton steps from a constant model reach."""

    moments: Floats  # Released mean products of prepared rows, with the constant 1 last.
    noise: tuple[float, float]  # Deviations of noise in products of columns, and with the 1.
    basis: Basis
    sizes: tuple[float, ...]
    curvature: float  # Mean curvature of the clipped loss, relative to the bound of steps.
    dispersion: float  # Mean squared slope of a row over the mean curvature of the loss.
    share: float = 1.0  # Share of the way from the start that the fit keeps.
    step_noise: float = 0.0  # Noise in the gradients there over the bound of steps.
    # Means of the points in the basis and of the gradients there over the bound of steps, with the
    # noise in the latter; for squared errors without much of a penalty.
    scores: tuple[Floats, Floats, float] | None = None

    def reached(self, spread: Floats) -> tuple[Floats, Floats, Floats, Callable[[Floats], Floats]]:
        """Return the matrix from true slopes to the mean of the estimate, and parts of its error.

        ``spread`` is the covariance of prepared columns, weighted by the rows' curvature over its
        mean, as the intercept keeps the mean prediction. A step of size eta leaves ``1 - eta c`` of
        the way in a direction of relative curvature c. As c is positive, it has a gamma law with
        its estimate as the mean and the variance of its noise. The other results are the covariance
        from sampling, in units of the variance of a mean prediction, that from noise in gradients,
        and the map from the covariance of true slopes to that from the law of the curvature.
        """
        values, turn = np.linalg.eigh(self.basis.vectors[:-1] @ self.basis.vectors[:-1].T)
        roots = np.sqrt(np.maximum(values, _LEAST_RATIO * float(values[-1])))
        root, inverse = (turn * roots) @ turn.T, (turn / roots) @ turn.T
        bends, directions = np.linalg.eigh(self.curvature * root @ spread @ root)
        bends, back, across = np.maximum(bends, _LEAST_RATIO), root @ directions, directions.T
        errors = self.curvature * math.sqrt(2.0) * self.noise[0] * np.square(back).sum(axis=0)
        shapes = (bends / np.maximum(errors, _LEAST_RATIO * bends)) ** 2
        nodes, chances = normal_nodes()
        laws = special.gammaincinv(shapes, special.ndtr(nodes)[:, np.newaxis])
        laws = np.clip(bends / shapes * laws, _LEAST_RATIO, 1.0 / _LEAST_RATIO)
        left = [1.0 - np.minimum(eta * laws, 1.0) for eta in self.sizes]
        shares = self.share * (1.0 - np.prod(left, axis=0))
        kept, across = chances @ shares, across @ inverse
        sampled = self.curvature * (chances @ (shares**2 / laws))
        noise = chances @ variance_left(self.sizes, laws) * (self.share * self.step_noise) ** 2

        def of_law(prior: Floats) -> Floats:
            unsure = chances @ np.square(shares - kept) * ((across @ prior) * across).sum(axis=1)
            return np.asarray((back * unsure) @ back.T)

        return (back * kept) @ across, (back * sampled) @ back.T, (back * noise) @ back.T, of_law


@final
@dataclass(frozen=True, eq=False)
class Steps:
    """Steps ``v - eta (H v + noise)``, each followed by a penalty's, in units of the curvature.

    ``penalty`` is the Hessian of the penalty. Steps along the direction ``along`` are ``pace``
    times longer.
    """

    sizes: Sequence[float]
    penalty: Floats
    along: Floats
    pace: float

    def noise(self, hessian: Floats) -> Floats:
        """Return the covariance of the final effect of unit noise; no step overshoots."""
        along = self.along[:, np.newaxis]
        root = np.eye(len(along)) + (math.sqrt(self.pace) - 1.0) * along * self.along
        own = root @ hessian @ root
        _, directions = np.linalg.eigh(own + self.penalty)
        curved = (directions * (own @ directions)).sum(axis=0)
        drawn = np.maximum((directions * (self.penalty @ directions)).sum(axis=0), 0.0)
        turned = directions.T @ self.along
        entering = np.eye(len(along)) + (self.pace - 1.0) * np.outer(turned, turned)
        # The remaining effect of each step's noise, the last one first.
        left, brought = np.ones(len(curved)), []
        for eta in reversed(self.sizes):
            left = left / (1.0 + eta * drawn)
            brought.append(eta * left)
            left = left * (1.0 - np.clip(eta * curved, 0.0, 1.0))
        steps = np.stack(brought)
        found = entering * (steps.T @ steps)
        back = root @ directions
        return np.asarray(back @ found @ back.T)


def variance_left(sizes: Sequence[float], curved: Any, drawn: float = 0.0) -> Any:
    """Return the variance that remains of unit noise in single directions.

    ``curved`` is the curvature of the loss there, ``drawn`` that of the penalty.
    """
    variance = 0.0
    for eta in sizes:
        left = 1.0 / (1.0 + eta * drawn)
        variance = left**2 * ((1.0 - np.minimum(curved * eta, 1.0)) ** 2 * variance + eta * eta)
    return variance


def noise_left(
    basis: Basis,
    v: Floats,
    products: Floats,
    loss: Loss,
    data: DataSpec,
    clip: float,
    curvature: float,
    steps: Steps,
) -> NoiseCovariance:
    """Return the noise in v, in units of that of ``1 / curvature`` times a gradient.

    ``v`` is the last iterate in the coordinates of ``basis``, where curvature is taken;
    ``products`` are the estimated mean products of rows there; ``clip`` bounds a row's gradient,
    and ``curvature`` is the loss's curvature.
    """
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
    # The mean row with a nonzero in the column has this length in the basis, and the direction of
    # the inverse's column.
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
        noise += FEW * (steps.noise(flatter) - noise)
    return NoiseCovariance(noise)


def _of_outputs(hessian: Floats, products: Floats, steps: Steps) -> NoiseCovariance:
    """Return the noise in v if curvature across outputs is the same in all directions of rows.

    Outputs share the shape of the noise, and differ in how much their curvature damps.
    """
    values, directions = np.linalg.eigh(hessian)
    damped = [max(float(one), 0.0) for one in values]
    mean, drawn = sum(damped) / len(damped), float(np.median(np.diag(steps.penalty)))
    variances = np.array([variance_left(steps.sizes, one, drawn) for one in damped])
    columns = steps.noise(mean * products)
    relative = directions**2 @ variances / variance_left(steps.sizes, mean, drawn)
    return NoiseCovariance(columns, relative)


def curvature_of_outputs(loss: Loss, mean: Floats, covariance: Floats, reach: float) -> Floats:
    """Return the mean Hessian of a loss in its scores, of shape (n_outputs, n_outputs).

    Scores are normal, targets follow a right model; rows with a slope longer than ``reach`` are
    clipped, and count as flat.
    """
    # Not a source of noise for privacy, so the draws are the same each time.
    random = np.random.default_rng(0)
    values, directions = eigen(covariance)
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
