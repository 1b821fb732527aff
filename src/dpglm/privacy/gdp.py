"""Exact trade-off between epsilon, delta and mu of the Gaussian mechanism, in log space."""

from __future__ import annotations

import functools
import math
import numbers
import sys
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr

from dpglm._calls import checked

__all__ = ["delta", "epsilon", "log_delta", "mu"]

# log_delta is right to 1e-14 of max(1, |log delta|); the inverses leave ten times that room.
_SLACK = 1e-13
# Counts as no privacy at all: epsilon would be some 1e15.
_LARGEST_MU = 1e7
_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(24))
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
# Coefficients of 1/x^2 - 3/x^4 + 15/x^6 - ... for _mills_slope, from the last to the first.
_ASYMPTOTIC = [(-1.0) ** j * float(np.prod(np.arange(1, 2 * j + 2, 2))) for j in range(8, -1, -1)]


def log_delta(epsilon: float, mu: float) -> float:
    """Compute the logarithm of the smallest delta of a mu-GDP release at a given epsilon.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float
        Parameter of Gaussian differential privacy, sensitivity over noise standard
        deviation for one Gaussian release; at least 0.

    Returns
    -------
    float
        ``log(Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2))``, to about
        14 digits; ``-inf`` for ``mu = 0``.

    Notes
    -----
    With ``a = epsilon/mu - mu/2``, ``b = a + mu``, density ``phi`` and Mills' ratio
    ``R(x) = Phi(-x)/phi(x)``, ``exp(epsilon) phi(b) = phi(a)``, so that
    ``delta = phi(a) (R(a) - R(b))``. The difference of two nearly equal numbers is replaced
    by the integral of ``-R'(x) = 1 - x R(x) > 0`` from a to b.

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
    Theorem 8. Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, Corollary 1.

    Examples
    --------
    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    epsilon, mu = _checked("epsilon", epsilon), _checked("mu", mu)
    if mu == 0.0:
        return -math.inf
    if mu > _LARGEST_MU:
        return 0.0
    a = epsilon / mu - 0.5 * mu
    if math.isinf(a):
        return -math.inf
    if mu <= max(1.0, 0.5 * a):
        gap = mu * float(_WEIGHTS @ _mills_slope(a + mu * _NODES))
        return -0.5 * a * a - _LOG_SQRT_2PI + math.log(gap)
    b = a + mu
    root = math.sqrt(0.5)
    if a >= 0.0:
        log_ratio = math.log(erfcx(b * root) / erfcx(a * root))
    else:
        log_ratio = epsilon + float(log_ndtr(-b)) - float(log_ndtr(-a))
    return min(0.0, float(log_ndtr(-a)) + math.log(-math.expm1(log_ratio)))


def delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta with which a mu-GDP release is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, mu : float
        See ``log_delta``.

    Returns
    -------
    float
        In [0, 1]; 0 if ``log_delta`` is below the smallest positive float.

    Examples
    --------
    >>> round(delta(0.0, 1.0), 6)  # total variation distance of N(0, 1) and N(1, 1)
    0.382925
    """
    return math.exp(log_delta(epsilon, mu))


# Plans and certificates ask for the epsilon of one release again and again.
@checked
@functools.lru_cache(maxsize=64)
def epsilon(delta: float, mu: float) -> float:
    """Compute the smallest epsilon for which a mu-GDP release is (epsilon, delta)-DP.

    Parameters
    ----------
    delta : float
        In [0, 1].
    mu : float
        At least 0.

    Returns
    -------
    float
        Rounded up: ``gdp.delta(epsilon(delta, mu), mu) <= delta``. ``inf`` if no epsilon will do
        (``delta = 0`` and ``mu > 0``, or ``mu`` above 1e7 and ``delta < 1``).

    Examples
    --------
    >>> round(epsilon(1e-5, 1.0), 4)
    4.3772
    """
    target = _log_target(delta)
    mu = _checked("mu", mu)
    if log_delta(0.0, mu) <= target:
        return 0.0
    if math.isinf(target) or mu > _LARGEST_MU:
        return math.inf
    # Phi(-a) <= exp(-a^2/2) for a >= 0, so a^2 = -2 log delta is on the safe side.
    high = mu * (math.sqrt(-2.0 * target) + 0.5 * mu) * (1.0 + 1e-9)
    return _bisect(lambda value: log_delta(value, mu) <= target, bad=0.0, good=high)


# Planning asks for the mu of one budget again and again.
@checked
@functools.lru_cache(maxsize=64)
def mu(epsilon: float, delta: float) -> float:
    """Compute the largest mu for which every mu-GDP release is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0, finite.
    delta : float
        In [0, 1].

    Returns
    -------
    float
        Rounded down: ``gdp.delta(epsilon, mu(epsilon, delta)) <= delta``. 0 for ``delta = 0``,
        ``inf`` for ``delta = 1``.

    Examples
    --------
    >>> round(mu(1.0, 1e-5), 4)
    0.2681
    """
    target = _log_target(delta)
    epsilon = _checked("epsilon", epsilon)
    if math.isinf(epsilon):
        raise ValueError(f"epsilon must be finite, got {epsilon!r}")
    if math.isinf(target):
        return 0.0
    if delta == 1.0:
        return math.inf
    # Either bound is safe: delta at epsilon 0 is at most mu/sqrt(2 pi), and Phi(-a) as above.
    root = math.sqrt(-2.0 * target)
    low = max(
        2.0 * epsilon / (math.sqrt(root * root + 2.0 * epsilon) + root),
        math.exp(target + _LOG_SQRT_2PI),
    )
    good = low * (1.0 - 1e-9)
    bad = 2.0 * low
    while log_delta(epsilon, bad) <= target:
        good, bad = bad, 2.0 * bad
    return _bisect(lambda value: log_delta(epsilon, value) <= target, bad=bad, good=good)


def _mills_slope(x: np.ndarray) -> np.ndarray:
    """Minus the derivative of Mills' ratio, ``1 - x R(x)``, without cancellation at large x."""
    far = x > 25.0
    squared = np.where(far, x, 25.0) ** -2.0
    asymptotic = np.polyval(_ASYMPTOTIC, squared) * squared
    near = np.where(far, 0.0, x)
    exact = 1.0 - near * (math.sqrt(0.5 * math.pi) * erfcx(near * math.sqrt(0.5)))
    return np.where(far, asymptotic, exact)


def _bisect(is_good: Callable[[float], bool], bad: float, good: float) -> float:
    """Last float found good between a bad and a good one; to the last bit of precision."""
    while True:
        middle = 0.5 * (bad + good)
        if middle in (bad, good):
            return good
        if is_good(middle):
            good = middle
        else:
            bad = middle


def _log_target(delta: float) -> float:
    if not 0.0 <= delta <= 1.0:
        raise ValueError(f"delta must be in [0, 1], got {delta!r}")
    if delta == 0.0:
        return -math.inf
    if delta == 1.0:
        return 0.0
    logarithm = math.log(delta)
    return logarithm - _SLACK * max(1.0, -logarithm)


def _checked(name: str, value: float) -> float:
    is_number = isinstance(value, numbers.Real) and (
        value <= sys.float_info.max or value == math.inf
    )
    if not (is_number and value >= 0.0):
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    return float(value)
