"""Where Newton's steps start, and by what they measure slopes, curvature and weights there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.target_means import (
    noisy_squared_slope,
    noisy_target_means,
    noisy_target_sizes,
)
from dpglm.privacy.releases import SumRelease
from dpglm.problem import Problem, Squared
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.parts.defaults import curvature, slope_unit
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.shrinkage import is_neutral
from dpglm.solvers.second_order.likelihood import constant_model
from dpglm.solvers.second_order.normal_scores import USUAL_ERROR, expected_constant

__all__ = [
    "Start",
    "at_private_mean",
    "expected_mean",
    "farthest_slope",
    "mean_weight",
    "means_of_sizes",
    "needs_mean",
    "needs_scale",
]

# Standard deviations of noise beyond which targets of a size are there: by chance in one fit of
# five hundred. Where there are none of any size, where they are clipped: a part of the upper bound.
_SURE_OF_SIZE, _USUAL_SIZE = 4.0, 1.0 / 32.0
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
    slope: float  # One that counts as large; the unit of gradients.
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
    is_size = is_size and not isinstance(loss, Squared)
    return is_size and data.intercept > 0.0 and not is_neutral(loss, data)


def needs_scale(loss: Loss, data: DataSpec) -> bool:
    """Whether targets are numbers whose spread is to be released, as errors have their unit.

    >>> from dpglm.problem import Huber
    >>> numbers = DataSpec(100, 2, intercept=1.0, target_low=-1.0, target_high=1.0)
    >>> needs_scale(Squared(), numbers), needs_scale(Huber(), numbers)
    (True, False)
    """
    ends = data.target_range(loss.target.bounds)
    is_finite = all(map(math.isfinite, ends)) and ends != (0.0, 0.0)
    return isinstance(loss, Squared) and is_finite and data.intercept > 0.0


def means_of_sizes(
    oracle: Oracle, sizes: SumRelease, targets: SumRelease, loss: Loss
) -> tuple[float, float, float, float]:
    """Release means of targets, whatever their declared bounds are.

    Returns the mean, that without offsets, the sum of weights, and where targets were clipped. That
    is the upper end of the largest size that surely has targets: those beyond are too few for the
    noise that their mean would have. Declared by ``target_size_release``, ``target_mean_release``.
    """
    data = oracle.rows.spec
    low, high = data.target_range(loss.target.bounds)
    high = max(high, -low)
    usual = min(loss.dispersion or _USUAL_SIZE * high, high)
    tops = []
    for counts in noisy_target_sizes(oracle, sizes, high):
        sure = np.flatnonzero(counts > _SURE_OF_SIZE * sizes.noise_std)
        tops.append(max(high * 2.0 ** -float(sure[0]) if sure.size else usual, low))
    low = max(low, -tops[0])
    mean, without_offset, weight = noisy_target_means(oracle, targets, low, *tops)
    return mean, without_offset, weight, tops[0]


def at_private_mean(
    oracle: Oracle,
    sizes: SumRelease,
    targets: SumRelease,
    squared_slopes: SumRelease,
    problem: Problem,
) -> Start:
    """Release about the mean of the targets and the spread of slopes; start at that constant."""
    loss, data = problem.loss, oracle.rows.spec
    low, high = data.target_range(loss.target.bounds)
    mean, without_offset, weight, top = means_of_sizes(oracle, sizes, targets, loss)
    _, bend = constant_model(loss, mean, low, high)
    score, _ = constant_model(loss, without_offset, low, high)
    far = farthest_slope(loss, _FAR_SLOPE, score, bend, top)
    square = noisy_squared_slope(oracle, squared_slopes, score, far, weight)
    w = np.zeros(data.coefficient_shape)
    w[-1] = score / data.intercept
    w = feasible(problem, n_penalized(problem, data), w, 0.0)
    if isinstance(loss, Squared):
        # As if bounds had been declared that are as far apart as usual for such a spread.
        unit = min(math.sqrt(square) / USUAL_ERROR, slope_unit(loss, data))
        return Start(w, unit, curvature(loss, data))
    return _at_mean(w, square, bend, loss)


def farthest_slope(loss: Loss, most: float, score: float, bend: float, top: float) -> float:
    """Return where slopes of a constant model are cut, to find their spread.

    ``most`` times their standard deviation without excess; where the dispersion is not known, at
    the slope of the largest target if that is less.
    """
    usual = most * math.sqrt(bend * (loss.dispersion or 1.0))
    if loss.dispersion is not None:
        return usual
    ends = np.array([-top if loss.target is Target.REAL else 0.0, top])
    slopes = np.abs(loss.without_offset.slope(np.full(2, score), ends))
    return min(usual, float(slopes.max()))


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
