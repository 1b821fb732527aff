"""Closed convex sets for the weights, with projections and declared sizes."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import erf, gammaln, ndtr

from dpglm._calls import checked
from dpglm._validation import check_integer, check_real
from dpglm.problem.links import FloatArray


class Constraint(abc.ABC):
    """A closed convex set of weights, in every dimension.

    ``w`` has shape (d,) or (d, K) and counts as one vector of ``w.size`` entries; that number is
    the ``dimension`` of the declared sizes, at least 1.

    Notes
    -----
    Privacy: a set does not depend on rows, so projecting is post-processing. Projections are
    nonexpansive, as amplification by iteration requires.
    """

    @abc.abstractmethod
    def project(self, w: FloatArray) -> FloatArray:
        """Return the point of the set that is nearest to w in the L2 norm.

        Parameters
        ----------
        w : ndarray of float, shape (d,) or (d, K)
            Finite weights, float32 or float64.

        Returns
        -------
        ndarray of float, shape and dtype of w
            A new array, in the set up to rounding.
        """

    @abc.abstractmethod
    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        """Check whether w is in the set.

        Parameters
        ----------
        w : ndarray of float, shape (d,) or (d, K)
            Weights.
        tolerance : float, default 1e-6
            Allowance for rounding, relative to the radius of the set (of a box: to its bounds).
        """

    def norm_bound(self, dimension: int) -> float:
        """Return the largest L2 norm of a point of the set; possibly inf.

        With rows of norm R it bounds the predictions: ``|z| <= R * norm_bound``.
        """
        check_integer("dimension", dimension, least=1)
        return self._norm_bound(dimension)

    def gaussian_width(self, dimension: int) -> float:
        """Return the mean of ``sup <g, w>`` over the set for standard Gaussian g; possibly inf.

        Wang, Ye and Xu, "Differentially Private Empirical Risk Minimization Revisited: Faster and
        More General", NIPS 2017, Definition 5.2.
        """
        check_integer("dimension", dimension, least=1)
        return self._gaussian_width(dimension)

    def effective_dimension(self, dimension: int) -> float:
        """Return the squared Gaussian width over the squared norm bound, from 1 to ``dimension``.

        About ``dimension`` for an L2 ball, ``2 log(dimension)`` for an L1 ball or a simplex;
        ``dimension`` for a set that is not bounded.
        """
        bound = self.norm_bound(dimension)
        if not 0.0 < bound < math.inf:
            return float(dimension)
        return max((self.gaussian_width(dimension) / bound) ** 2, 1.0)

    @abc.abstractmethod
    def _norm_bound(self, dimension: int) -> float: ...

    @abc.abstractmethod
    def _gaussian_width(self, dimension: int) -> float: ...


@final
@dataclass(frozen=True)
class Unconstrained(Constraint):
    """All of R^d."""

    def project(self, w: FloatArray) -> FloatArray:
        return w.copy()

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        return True

    def _norm_bound(self, dimension: int) -> float:
        return math.inf

    def _gaussian_width(self, dimension: int) -> float:
        return math.inf


@final
@dataclass(frozen=True)
class L2Ball(Constraint):
    """``|w|_2 <= radius`` (Frobenius norm for a matrix).

    Parameters
    ----------
    radius : float
        Positive.

    Examples
    --------
    >>> L2Ball(1.0).project(np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """

    radius: float

    def __post_init__(self) -> None:
        check_real("radius", self.radius, above=0.0)

    def project(self, w: FloatArray) -> FloatArray:
        norm = _norm(w)
        return w / (norm / self.radius) if norm > self.radius else w.copy()

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        return _norm(w) <= self.radius * (1 + tolerance)

    def _norm_bound(self, dimension: int) -> float:
        return self.radius

    def _gaussian_width(self, dimension: int) -> float:
        log_ratio = gammaln((dimension + 1) / 2) - gammaln(dimension / 2)
        return self.radius * math.sqrt(2) * math.exp(float(log_ratio))


@final
@dataclass(frozen=True)
class L1Ball(Constraint):
    """``|w|_1 <= radius`` (over all entries of a matrix).

    Parameters
    ----------
    radius : float
        Positive.

    References
    ----------
    .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra, "Efficient Projections onto the
       l1-Ball for Learning in High Dimensions", ICML 2008, figure 1.

    Examples
    --------
    >>> L1Ball(1.0).project(np.array([2.0, -0.5])).tolist()
    [1.0, 0.0]
    """

    radius: float

    def __post_init__(self) -> None:
        check_real("radius", self.radius, above=0.0)

    def project(self, w: FloatArray) -> FloatArray:
        magnitudes = np.abs(w).astype(np.float64)
        if magnitudes.sum() <= self.radius:
            return w.copy()
        result: FloatArray = np.copysign(_onto_simplex(magnitudes, self.radius), w).astype(w.dtype)
        # copysign leaves negative zeros; adding zero makes them positive.
        result += 0
        return result

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        return float(np.abs(w).sum(dtype=np.float64)) <= self.radius * (1 + tolerance)

    def _norm_bound(self, dimension: int) -> float:
        return self.radius

    def _gaussian_width(self, dimension: int) -> float:
        # The mean of max |g_j|, as the integral of its tail.
        return self.radius * _integrate_to_tail(
            lambda t: 1 - erf(t / math.sqrt(2)) ** dimension, dimension
        )


@checked
@final
@dataclass(frozen=True)
class Box(Constraint):
    """``low <= w_j <= high`` for every entry.

    Parameters
    ----------
    low, high : float
        ``low <= high``; infinite ends are allowed (``Box(0, inf)``: no negative weights).

    Examples
    --------
    >>> Box(0.0, float("inf")).project(np.array([2.0, -0.5])).tolist()
    [2.0, 0.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.low <= self.high and self.low < math.inf and self.high > -math.inf):
            raise ValueError(
                f"low and high must satisfy low <= high, got {self.low!r} and {self.high!r}"
            )

    def project(self, w: FloatArray) -> FloatArray:
        return np.clip(w, self.low, self.high)

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        low = self.low - tolerance * abs(self.low)
        high = self.high + tolerance * abs(self.high)
        return bool(np.all((w >= low) & (w <= high)))

    def _norm_bound(self, dimension: int) -> float:
        return max(abs(self.low), abs(self.high)) * math.sqrt(dimension)

    def _gaussian_width(self, dimension: int) -> float:
        # The mean of max(low g, high g) = high g+ - low g-, for each entry.
        return dimension * (self.high - self.low) / math.sqrt(2 * math.pi)


@final
@dataclass(frozen=True)
class Simplex(Constraint):
    """``w_j >= 0`` with ``sum_j w_j = radius`` (over all entries of a matrix).

    Parameters
    ----------
    radius : float, default 1.0
        Positive.

    References
    ----------
    .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra, "Efficient Projections onto the
       l1-Ball for Learning in High Dimensions", ICML 2008, figure 1.

    Examples
    --------
    >>> Simplex().project(np.array([0.75, 0.75, -1.0])).tolist()
    [0.5, 0.5, 0.0]
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_real("radius", self.radius, above=0.0)

    def project(self, w: FloatArray) -> FloatArray:
        return _onto_simplex(w.astype(np.float64), self.radius).astype(w.dtype)

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        slack = tolerance * self.radius
        sum_error = abs(float(w.sum(dtype=np.float64)) - self.radius)
        return bool(np.all(w >= -slack)) and sum_error <= slack

    def _norm_bound(self, dimension: int) -> float:
        return self.radius

    def _gaussian_width(self, dimension: int) -> float:
        # The mean of max g_j, from its two tails.
        mean = _integrate_to_tail(
            lambda t: 1 - ndtr(t) ** dimension - ndtr(-t) ** dimension, dimension
        )
        # A single point has width 0, which rounding would make -1e-17.
        return self.radius * max(mean, 0.0)


def _onto_simplex(v: FloatArray, radius: float) -> FloatArray:
    """Project v on the simplex: subtract one threshold from all entries and clip at 0."""
    descending = np.sort(v, axis=None)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, v.size + 1)
    support = int(np.count_nonzero(descending > thresholds))
    result: FloatArray = np.maximum(v - thresholds[support - 1], 0)
    return result


def _integrate_to_tail(function: Callable[[FloatArray], FloatArray], dimension: int) -> float:
    """Integrate from 0 to where the largest of ``dimension`` Gaussians has a tail below 1e-20."""
    end = math.sqrt(2 * math.log(dimension)) + 10
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return float(end / 2 * weights @ function(end / 2 * (nodes + 1)))


def _norm(w: FloatArray) -> float:
    return float(np.linalg.norm(np.asarray(w, dtype=np.float64).ravel()))
