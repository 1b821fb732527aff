"""Where Newton's steps start, and by what they measure slopes, curvature and weights there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.clipped_targets import noisy_clipped_targets
from dpglm.oracle.row_sums.target_means import noisy_squared_slope
from dpglm.privacy.releases import SumRelease
from dpglm.problem import Problem
from dpglm.problem.loss import Loss
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.shrinkage import is_neutral
from dpglm.solvers.second_order.likelihood import constant_model
from dpglm.solvers.second_order.normal_scores import expected_constant

__all__ = ["N_BOUNDS", "Start", "at_private_mean", "expected_mean", "mean_weight", "needs_mean"]

N_BOUNDS = 6
"""At how many bounds targets are clipped to find their mean, each a quarter of the one before."""

_RATIO = 4.0
# Of the upper bound: a usual mean, and the least. Standard deviations beyond which a mean is sure.
_USUAL_MEAN, _LEAST_MEAN, _SURE_OF_MEAN = 1.0 / 32.0, 1e-6, 2.0
# Where slopes are cut to find their standard deviation, and which count as large, in units of what
# it is without excess, and of what is found.
_FAR_SLOPE, _LARGE_SLOPE = 6.0, 4.0
# By what curvature, which is that of the mean itself, may exceed what it is at the start.
_GROWTH = 2.0
# Standard deviations by which noise may make weights look smaller than they are.
_SURE = 3.0


@final
@dataclass(frozen=True, eq=False)
class Start:
    """A model to start from, and to shrink to; all of it public or released."""

    w: NDArray[np.float64]
    slope: float  # One that counts as large.
    curvature: float  # What second moments of rows of weight 1 are multiplied by.


def needs_mean(loss: Loss, data: DataSpec) -> bool:
    """Whether targets, of at least 0, have a mean that is the neutral model.

    >>> from dpglm.problem import Logistic, Poisson
    >>> counts = DataSpec(100, 2, intercept=1.0, target_low=0.0, target_high=1.0)
    >>> needs_mean(Poisson(), counts), needs_mean(Logistic(), DataSpec(100, 2, intercept=1.0))
    (True, False)
    """
    low, high = data.target_range(loss.target.bounds)
    is_size = loss.link is not None and low >= 0.0 and 0.0 < high < math.inf
    return is_size and data.intercept > 0.0 and not is_neutral(loss, data)


def at_private_mean(
    oracle: Oracle,
    targets: SumRelease,
    squared_slopes: SumRelease,
    problem: Problem,
    weight: float,
) -> Start:
    """Release about the mean of the targets and the spread of slopes; start at that constant.

    Declared by ``clipped_target_release`` for ``N_BOUNDS``, and ``squared_slope_release``.
    ``weight`` is the mean weight.
    """
    loss, data = problem.loss, oracle.rows.spec
    low, high = data.target_range(loss.target.bounds)
    bounds = high * _RATIO ** -np.arange(N_BOUNDS, dtype=np.float64)
    means = noisy_clipped_targets(oracle, targets, bounds.tolist()) / weight
    mean = _largest_sure(bounds, means, targets.noise_std / (weight * data.n_rows))
    mean = min(max(mean, low, _LEAST_MEAN * high), high)
    score, bend = constant_model(loss, mean, low, high)
    far = _FAR_SLOPE * math.sqrt(bend * (loss.dispersion or 1.0))
    total = weight * data.n_rows
    square = noisy_squared_slope(oracle, squared_slopes, score, far, total)
    w = np.zeros(data.coefficient_shape)
    w[-1] = score / data.intercept
    return _at_mean(feasible(problem, n_penalized(problem, data), w, 0.0), square, bend, loss)


def expected_mean(
    w: NDArray[np.float64], loss: Loss, data: DataSpec, noise_of_square: float
) -> Start:
    """Return what ``at_private_mean`` is expected to find, at ``w``, before a row is seen.

    ``noise_of_square`` is that of the released mean of squares, in units of their bound.
    """
    _, bend = expected_constant(loss, data)
    square = bend * (loss.dispersion or 1.0) * (1.0 + _FAR_SLOPE**2 * min(noise_of_square, 1.0))
    return _at_mean(w, square, bend, loss)


def _at_mean(w: NDArray[np.float64], square: float, bend: float, loss: Loss) -> Start:
    """Measure slopes by their mean square, and curvature by what it is at a constant model."""
    # Where the dispersion is known it is one count, by which small means are far exceeded.
    return Start(w, _LARGE_SLOPE * math.sqrt(square) + (loss.dispersion or 0.0), _GROWTH * bend)


def _largest_sure(bounds: NDArray[np.float64], means: NDArray[np.float64], noise: float) -> float:
    """Return a mean of numbers, from means of their shares of several bounds, at most 1.

    Clipped numbers have a smaller mean, and less noise. So it is the one of the bound that shows
    the largest mean beyond noise; where none shows any, a usual part of the largest bound.
    """
    sure = bounds * (means - _SURE_OF_MEAN * noise)
    best = int(np.argmax(sure))
    return float(bounds[best] * means[best] if sure[best] > 0.0 else _USUAL_MEAN * bounds[0])


def mean_weight(moments: NDArray[np.float64], noise_std: float, data: DataSpec) -> float:
    """Bound the mean weight of the rows, from second moments of rows scaled to one length.

    Their trace is the sum of the weights. Too small a weight would make steps too long, so it is
    as large as noise lets it be, and at most the declared bound. Where noise does not tell it from
    0, it is that bound: of rows that are all erased gradients are noise, which must not be divided
    by noise.
    """
    noise, total = _SURE * noise_std * math.sqrt(len(moments)), float(np.trace(moments))
    if total <= noise:
        return data.weight_bound
    return min((total + noise) / data.n_rows, data.weight_bound)
