"""When releasing only the last iterate costs less: the conditions, and the contraction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.data.memory import dense, sparse
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.rounding import target_size
from dpglm.privacy.adjacency import Adjacency
from dpglm.problem import Problem
from dpglm.solvers.parts import defaults

__all__ = ["Contraction", "contraction"]


@final
@dataclass(frozen=True)
class Contraction:
    """That a noiseless step brings any two iterates closer together."""

    factor: float  # Lipschitz constant of one exact step, in (0, 1).
    radius: float
    # Bound on how far the computed gradient sums of two data sets, and the computed updates in the
    # same units, are from exact ones.
    rounding: float


def contraction(
    problem: Problem,
    data: DataSpec,
    adjacency: Adjacency,
    *,
    clipping: Clipping,
    step_sizes: tuple[float, ...],
    plain: bool,
) -> Contraction | None:
    """Check every condition of privacy amplification by iteration; None where one does not hold.

    ``plain``: steps use the full batch, have no momentum, and the last iterate is returned.

    Privacy: a step is ``w <- P(prox(w - eta (g(w) + noise)))``. With scalar outputs and flat
    clipping the clipped slope is a nondecreasing function of the prediction (the loss is
    convex), so ``g`` is the gradient of a convex function (Song et al. 2021, Lemma 5.1), of
    smoothness at most M = (smoothness of the loss) times (row norm)^2 times (weight bound);
    clipping can only lower it. For softmax the same holds where the clip can never bind (and
    not otherwise: Theorem 5.3). So ``w - eta g(w)`` is nonexpansive for ``eta <= 2/M``
    (Nesterov 2004, Theorem 2.1.12). The prox of an m-strongly convex penalty on ALL
    coefficients contracts by ``1/(1 + eta m)``, and a projection is nonexpansive. Regrouping
    steps at the point where noise has just been added, each step contracts by that factor and
    two data sets' steps differ by eta times the sensitivity of the mean gradient, as Bok, Su
    and Altschuler (ICML 2024, arXiv 2403.00278, Theorem 4.1) ask; the final prox and
    projection are post-processing. With n private the objective's smoothness is not bounded.

    Intermediate iterates stay secret, so unlike in plain composition the rounding of every
    row's contribution counts: it is bounded for float64 rows and iterates in a ball. The ball
    of radius ``2 C / m`` contains the minimiser if the constraint contains zero (the mean
    gradient is at most C, and strong convexity gives ``m |w*| <= C``), so projecting on it costs
    no accuracy.
    """
    penalty = problem.regularizer.strong_convexity
    covers_all = data.intercept == 0.0 or problem.penalize_intercept
    constant = len(set(step_sizes)) == 1
    if not (plain and constant and covers_all and penalty > 0.0 and adjacency.n_is_public):
        return None
    # A group's clipped gradient is not that of a convex function.
    if data.groups is not None:
        return None
    if data.dtype != "float64" or not isinstance(clipping, FlatClipping):
        return None
    if not problem.constraint.contains(np.zeros(data.coefficient_shape)):
        return None
    loss, norm = problem.loss, data.augmented_row_norm
    if not math.isfinite(loss.offset_bound):
        return None
    never_clips = loss.slope_bound * norm <= clipping.bound
    if not (loss.convex and (data.n_outputs == 1 or never_clips)):
        return None
    curvature = defaults.smoothness(loss, data)
    smoothness = curvature * norm**2 * data.weight_bound
    eta = step_sizes[0]
    if not eta * smoothness <= 2.0:
        return None
    bound = clipping.bound * data.weight_bound
    radius = min(2.0 * bound / penalty, problem.constraint.norm_bound(data.n_coefficients))
    return Contraction(
        factor=1.0 / (1.0 + eta * penalty),
        radius=radius,
        rounding=_rounding(data, bound, curvature, eta, norm * radius + loss.offset_bound, radius),
    )


def _rounding(
    data: DataSpec, bound: float, curvature: float, eta: float, score: float, radius: float
) -> float:
    """Twice the error of a computed step, in units of a gradient sum."""
    unit = float(np.finfo(np.float64).eps) / 2
    norm, n_rows = data.augmented_row_norm, data.n_rows
    # A prediction errs by gamma_{d+2} |x| |w|, or with an offset gamma_{d+3} (|x| |w| + |o|), and
    # its slope by the curvature times that and by a few units in the last place of itself and of
    # the target, or of 1; the row's norm turns a slope into a gradient.
    prediction = 2 * (data.n_columns + 2) * unit * score
    size = norm * target_size(data) * data.weight_bound
    row = curvature * norm * prediction * data.weight_bound + 64 * unit * (bound + size)
    within = 2 * (max(dense.BLOCK_ROWS, sparse.BLOCK_ROWS) + 2) * unit * bound
    update = 32 * unit * (radius / eta + bound) * n_rows
    return 2.0 * (n_rows * (row + within) + update)
