"""How much of a noisy parameter is worth keeping: shrinkage after the fact."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import LARGEST, DataSpec
from dpglm.problem.loss import Loss

__all__ = ["is_neutral", "kept_share", "shrunk"]

# Signs and ranks of predictions can be right where their size is lost in noise.
_LEAST_SHARE = 0.1


def is_neutral(loss: Loss, data: DataSpec) -> bool:
    """Whether targets pull the prediction zero both ways, so that it is one to shrink to.

    Examples
    --------
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
    """Decide how much of a noisy vector to keep, from its length and what noise alone would be.

    Parameters
    ----------
    size : float
        Euclidean length of the vector, at least 0.
    noise : float
        Standard deviation of the noise in each coordinate, above 0.
    coordinates : int
        Number of coordinates m, at least 1.
    alike : bool
        Whether rows are about alike in all directions, so that lengths tell what is in
        predictions. If not, few directions may carry all of them, and little length much signal.

    Returns
    -------
    float
        For the squared length q in units of ``m noise^2``: 0.1 up to ``a = 1 + sqrt(2 / m)``,
        which noise alone exceeds one time in six; 1 from b on, which is ``2 a`` if rows are
        ``alike`` and ``1 + 3 sqrt(2 / m)`` if not; between them ``(1 - a / q) / (1 - a / b)``,
        but at least 0.1.

    Notes
    -----
    The positive-part James-Stein estimator has the factor ``1 - 1 / q`` at every q. Noise that is
    only bounded from above would make it shrink large vectors for nothing.

    Privacy: post-processing of released values.

    References
    ----------
    James and Stein, "Estimation with quadratic loss", Fourth Berkeley Symposium (1961).

    Examples
    --------
    >>> [kept_share(size, noise=1.0, coordinates=2, alike=True) for size in (1.0, 2.0, 2.5, 3.0)]
    [0.1, 0.1, 0.72, 1.0]
    """
    spread = math.sqrt(2.0 / coordinates)
    least = 1.0 + spread
    enough = 2.0 * least if alike else 1.0 + 3.0 * spread
    squares = max((size / noise) ** 2 / coordinates, least)
    return min(max((1.0 - least / squares) / (1.0 - least / enough), _LEAST_SHARE), 1.0)


def shrunk(
    w: NDArray[np.float64],
    start: NDArray[np.float64],
    noise: float,
    loss: Loss,
    data: DataSpec,
) -> NDArray[np.float64]:
    """Draw a noisy parameter towards where it started, if it has hardly got further than noise.

    Parameters
    ----------
    w, start : ndarray of shape ``data.coefficient_shape``
        The parameter, and where descent started.
    noise : float
        Bound on the standard deviation of the noise in each coefficient, above 0.
    loss : Loss
        Pointwise loss; nothing is done unless ``is_neutral``.
    data : DataSpec
        Public facts.

    Returns
    -------
    ndarray, shape of w
        ``start`` plus a share of the way to ``w``: ``kept_share`` for rows that may differ much
        between directions.

    Notes
    -----
    Privacy: post-processing of released values.
    """
    if not is_neutral(loss, data):
        return w
    length = float(np.linalg.norm(w - start))
    share = kept_share(length, noise, data.n_coefficients, alike=False)
    moved: NDArray[np.float64] = start + share * (w - start)
    return moved
