"""Shrinkage of a noisy parameter: post-processing of released values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import LARGEST, DataSpec
from dpglm.problem.loss import Loss

__all__ = [
    "drawn_to",
    "is_neutral",
    "kept_share",
    "mean_prediction",
    "relative_length",
    "share_of_comparison",
    "shrunk",
    "shrunk_by",
]

# Signs and ranks of predictions can be right where their size is lost in noise.
_LEAST_SHARE = 0.1
# Noise in a single number often is as long as 1.5 standard deviations, hardly ever as 2.5.
_SURE = 1.6
# Signal beyond so much noise is kept in full in any case; its square does not overflow below.
_FAR = 1e9


def is_neutral(loss: Loss, data: DataSpec) -> bool:
    """Whether targets pull the prediction zero both ways, so that it is one to shrink to.

    >>> from dpglm.problem import Logistic, Poisson
    >>> is_neutral(Logistic(), DataSpec(100, 2))
    True
    >>> is_neutral(Poisson(), DataSpec(100, 2, target_low=0.0, target_high=1.0))
    False
    """
    if data.n_outputs > 1:
        return True
    ends = np.clip(data.target_range(loss.target.bounds), -LARGEST, LARGEST)
    low, high = loss.slope(np.zeros(2), ends)
    return bool(low * high < 0.0)


def kept_share(size: float, noise: float, coordinates: int, *, alike: bool) -> float:
    """Share of a noisy vector to keep, from its length and the noise in each coordinate.

    For the squared length q in units of ``coordinates * noise^2``: 0.1 up to
    ``a = 1 + sqrt(2 / coordinates)``, which noise alone exceeds one time in six; 1 from b on, which
    is ``2 a`` where rows are ``alike`` in all directions, so that lengths tell what is in
    predictions, and ``1 + 3 sqrt(2 / coordinates)`` where few directions may carry all of them;
    between these ``(1 - a / q) / (1 - a / b)``, but at least 0.1.

    The positive-part James-Stein estimator has the factor ``1 - 1 / q`` at every q. Noise that is
    only bounded from above would make it shrink large vectors for nothing.

    James and Stein, "Estimation with quadratic loss", Fourth Berkeley Symposium (1961).

    >>> [kept_share(size, noise=1.0, coordinates=2, alike=True) for size in (1.0, 2.0, 2.5, 3.0)]
    [0.1, 0.1, 0.72, 1.0]
    """
    if size >= _FAR * noise:
        # Where there is no noise in a coefficient, as under a huge penalty, all of it is signal.
        return 1.0
    spread = math.sqrt(2.0 / coordinates)
    least = 1.0 + spread
    enough = 2.0 * least if alike else 1.0 + 3.0 * spread
    squares = max((size / noise) ** 2 / coordinates, least)
    return min(max((1.0 - least / squares) / (1.0 - least / enough), _LEAST_SHARE), 1.0)


def relative_length(after: NDArray[np.float64], before: NDArray[np.float64]) -> float:
    """Return the length of coefficients over that before; at least 1e-9, and 1 if that was 0."""
    length = float(np.linalg.norm(before))
    return max(float(np.linalg.norm(after)) / length, 1.0 / _FAR) if length > 0.0 else 1.0


def share_of_comparison(worse: float, noise: float) -> float:
    """Share of a parameter to keep whose loss is, with this noise, ``worse`` than its start's.

    ``1/2 - worse / (2 noise)``, within 0.1 and 1. Where noise decides it is about a half: that
    leaves a quarter of the harm of a step that was all noise, and three quarters of the gain of one
    that was right.

    >>> [share_of_comparison(worse, noise=2.0) for worse in (-2.0, -1.0, 0.0, 2.0)]
    [1.0, 0.75, 0.5, 0.1]
    """
    return min(max(0.5 - 0.5 * worse / noise, _LEAST_SHARE), 1.0)


def shrunk(
    w: NDArray[np.float64],
    start: NDArray[np.float64],
    noise: float,
    *,
    inverse: NDArray[np.float64] | None = None,
    own_intercept: bool,
    pace: float = 1.0,
) -> NDArray[np.float64]:
    """Draw a noisy parameter towards its start, if it has hardly got further than noise.

    ``inverse @ w`` are coordinates in which rows look alike in every direction, and in which the
    noise is bounded; by default coefficients themselves, in which rows may be anything.

    Several outputs keep one share of everything, so that the largest stays the largest: with
    intercepts of their own, the most frequent class would have every row whose slopes were shrunk.
    With one output, whose ranks matter, an intercept that neither penalty nor constraint acts on
    (``own_intercept``) may keep a share of its own: a number that all rows agree on stands out of
    noise in which the others drown, as where a class is rare. ``pace``, at least 1, is by how much
    the noise along it is larger.

    >>> w = np.append(np.full(100, 0.8), 6.0)
    >>> shrunk(w, np.zeros(101), noise=1.0, own_intercept=True)[[0, -1]]
    array([0.08, 6.  ])
    """
    way = w - start
    kept = shrunk_by(way, noise, inverse=inverse, own_intercept=own_intercept, pace=pace)
    return drawn_to(start, way, kept, inverse)


def shrunk_by(
    way: NDArray[np.float64],
    noise: float,
    *,
    inverse: NDArray[np.float64] | None,
    own_intercept: bool,
    pace: float = 1.0,
) -> tuple[float, float]:
    """Return the share of the way that ``shrunk`` keeps, and what more of the mean prediction."""
    v = way if inverse is None else inverse @ way
    alike = inverse is not None
    # In coordinates in which rows look alike, what is orthogonal to this predicts 0 on average.
    along = np.append(np.zeros(len(v) - 1), 1.0) if inverse is None else inverse[:, -1]
    intercept = along @ v / (along @ along)
    level = np.multiply.outer(along, intercept / pace)
    even = float(np.linalg.norm(v - (pace - 1.0) * level))
    share = kept_share(even, noise, v.size, alike=alike)
    if not own_intercept or way.ndim > 1:
        return share, 0.0
    length = float(np.linalg.norm(level))
    own = kept_share(length, _SURE * noise, 1, alike=alike)
    own = max((own - _LEAST_SHARE) / (1.0 - _LEAST_SHARE), share / pace)
    return share, own - share


def drawn_to(
    start: NDArray[np.float64],
    way: NDArray[np.float64],
    kept: tuple[float, float],
    inverse: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Go from the start a share of the way, and more of the mean prediction, see ``shrunk_by``."""
    share, more = kept
    moved: NDArray[np.float64] = start + share * way
    if more:
        moved[-1] += more * (mean_prediction(len(way), inverse) @ way)
    return moved


def mean_prediction(size: int, inverse: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the intercept that predicts, as a linear function of w, what w does on average.

    In coordinates in which rows look alike, what is orthogonal to the intercept's predicts 0.
    """
    if inverse is None:
        return np.append(np.zeros(size - 1), 1.0)
    along = inverse[:, -1]
    return np.asarray(along @ inverse / (along @ along))
