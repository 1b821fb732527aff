"""Problems: a loss, a regularizer and a constraint."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from scipy.special import erf, gammaln, ndtr

from dpglm._calls import checked
from dpglm._validation import check_bools, check_integer, check_real
from dpglm.problem.links import FloatArray, product
from dpglm.problem.loss import Loss


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
        """Return the point of the set nearest to w, of shape (d,) or (d, K), in the L2 norm.

        A new array of the shape and dtype of w, float32 or float64, in the set up to rounding.
        """

    @abc.abstractmethod
    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        """Check whether w, of shape (d,) or (d, K), is in the set.

        ``tolerance`` for rounding is relative to the radius of the set (of a box: to its bounds).
        """

    def norm_bound(self, dimension: int) -> float:
        """Return the largest L2 norm of a point of the set; possibly inf.

        With rows of norm R it bounds the predictions: ``|z| <= R * norm_bound``.
        """
        check_integer("dimension", dimension, least=1)
        return self._norm_bound(dimension)

    def gaussian_width(self, dimension: int) -> float:
        """Return the mean of ``sup <g, w>`` over the set for standard Gaussian g; possibly inf.

        Wang, Ye and Xu, NIPS 2017, Definition 5.2.
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

    _gaussian_width = _norm_bound


@dataclass(frozen=True)
class _Ball(Constraint):
    """A set with a radius, which bounds the norm of its points."""

    radius: float

    def __post_init__(self) -> None:
        check_real("radius", self.radius, above=0.0)

    def _norm_bound(self, dimension: int) -> float:
        return self.radius


@final
@dataclass(frozen=True)
class L2Ball(_Ball):
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

    def project(self, w: FloatArray) -> FloatArray:
        norm = float(np.linalg.norm(w.ravel().astype(np.float64)))
        return w / (norm / self.radius) if norm > self.radius else w.copy()

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        return float(np.linalg.norm(w.ravel().astype(np.float64))) <= self.radius * (1 + tolerance)

    def _gaussian_width(self, dimension: int) -> float:
        log_ratio = gammaln((dimension + 1) / 2) - gammaln(dimension / 2)
        return self.radius * math.sqrt(2) * math.exp(float(log_ratio))


@final
@dataclass(frozen=True)
class L1Ball(_Ball):
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

    def project(self, w: FloatArray) -> FloatArray:
        magnitudes = np.abs(w).astype(np.float64)
        if magnitudes.sum() <= self.radius:
            return w.copy()
        result: FloatArray = np.copysign(_onto_simplex(magnitudes, self.radius), w).astype(w.dtype)
        return result + 0  # Negative zeros become positive.

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        return float(np.abs(w).sum(dtype=np.float64)) <= self.radius * (1 + tolerance)

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
class Simplex(_Ball):
    """``w_j >= 0`` with ``sum_j w_j = radius`` (over all entries of a matrix).

    Parameters
    ----------
    radius : float, default 1.0
        Positive.

    Notes
    -----
    Projected on as in the reference of `L1Ball`.

    Examples
    --------
    >>> Simplex().project(np.array([0.75, 0.75, -1.0])).tolist()
    [0.5, 0.5, 0.0]
    """

    radius: float = 1.0

    def project(self, w: FloatArray) -> FloatArray:
        return _onto_simplex(w.astype(np.float64), self.radius).astype(w.dtype)

    def contains(self, w: FloatArray, tolerance: float = 1e-6) -> bool:
        slack = tolerance * self.radius
        sum_error = abs(float(w.sum(dtype=np.float64)) - self.radius)
        return bool(np.all(w >= -slack)) and sum_error <= slack

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
    return np.asarray(np.maximum(v - thresholds[support - 1], 0))


def _integrate_to_tail(function: Callable[[FloatArray], FloatArray], dimension: int) -> float:
    """Integrate from 0 to where the largest of ``dimension`` Gaussians has a tail below 1e-20."""
    end = math.sqrt(2 * math.log(dimension)) + 10
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return float(end / 2 * weights @ function(end / 2 * (nodes + 1)))


class Regularizer(abc.ABC):
    """A convex penalty ``r(w)`` with ``r(0) = 0``.

    ``w`` has shape (d,) or (d, K), dtype float32 or float64, without the row of an unpenalised
    intercept.

    Notes
    -----
    Privacy: a penalty does not depend on rows, so its sensitivity is zero and its proximal map is
    post-processing. Proximal maps are nonexpansive, as amplification by iteration requires.
    """

    @property
    @abc.abstractmethod
    def strong_convexity(self) -> float:
        """Largest m for which ``r(w) - m/2 |w|^2`` is convex."""

    @property
    @abc.abstractmethod
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient; inf if there is none."""

    @property
    def is_quadratic(self) -> bool:
        """Whether the penalty is none or a ridge."""
        return self.smoothness == self.strong_convexity

    @abc.abstractmethod
    def value(self, w: FloatArray) -> float:
        """Return ``r(w)``."""

    @abc.abstractmethod
    def prox(self, w: FloatArray, step: float) -> FloatArray:
        """Minimise ``step * r(v) + |v - w|^2 / 2`` over v: a new array of the shape and dtype of w.

        ``step`` is finite and at least 0, or a ValueError is raised.
        """


class _Elastic(Regularizer):
    """``l1 |w|_1 + l2 / 2 |w|^2``, with strengths that are 0 unless a subclass sets them."""

    _l1 = strong_convexity = smoothness = 0.0

    def value(self, w: FloatArray) -> float:
        l1 = product(self._l1, float(np.abs(w).sum(dtype=np.float64)))
        return l1 + product(self.strong_convexity / 2, _sum_of_squares(w))

    def prox(self, w: FloatArray, step: float) -> FloatArray:
        threshold = check_real("step", step, least=0.0) * self._l1
        return (w - np.clip(w, -threshold, threshold)) / (1 + step * self.strong_convexity)


@final
@dataclass(frozen=True)
class NoPenalty(_Elastic):
    """``r(w) = 0``."""


@final
@dataclass(frozen=True)
class L2(_Elastic):
    """``r(w) = strength / 2 * |w|^2`` (Frobenius norm for a matrix).

    Parameters
    ----------
    strength : float
        At least 0. Relative to a mean, not a sum, of losses.

    Examples
    --------
    >>> L2(0.5).prox(np.array([3.0]), step=1.0).tolist()
    [2.0]
    """

    strength: float

    def __post_init__(self) -> None:
        check_real("strength", self.strength, least=0.0)
        vars(self).update(strong_convexity=self.strength, smoothness=self.strength)


@final
@dataclass(frozen=True)
class L1(_Elastic):
    """``r(w) = strength * sum |w_j|`` (over all entries of a matrix).

    Parameters
    ----------
    strength : float
        At least 0.

    Examples
    --------
    >>> L1(0.5).prox(np.array([3.0, -0.2]), step=1.0).tolist()
    [2.5, 0.0]
    """

    strength: float

    def __post_init__(self) -> None:
        check_real("strength", self.strength, least=0.0)
        vars(self).update(_l1=self.strength, smoothness=math.inf if self.strength > 0 else 0.0)


@checked
@final
@dataclass(frozen=True)
class ElasticNetPenalty(_Elastic):
    """``r(w) = strength * (l1_ratio * |w|_1 + (1 - l1_ratio) / 2 * |w|^2)``.

    Parameters
    ----------
    strength : float
        At least 0; scikit-learn's ``alpha``.
    l1_ratio : float
        In [0, 1].

    Examples
    --------
    >>> ElasticNetPenalty(1.0, l1_ratio=0.5).prox(np.array([3.5]), step=1.0).tolist()
    [2.0]
    """

    strength: float
    l1_ratio: float

    type_name = "elastic_net"

    def __post_init__(self) -> None:
        check_real("strength", self.strength, least=0.0)
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie in [0, 1], got {self.l1_ratio!r}")
        l1, l2 = self.strength * self.l1_ratio, self.strength * (1 - self.l1_ratio)
        smoothness = math.inf if l1 > 0 else l2
        vars(self).update(_l1=l1, strong_convexity=l2, smoothness=smoothness)


@checked
@final
@dataclass(frozen=True)
class GroupLasso(Regularizer):
    """``r(w) = strength * sum_g sqrt(|g|) |w_g|``: whole groups of features are kept or dropped.

    Parameters
    ----------
    strength : float
        At least 0.
    groups : tuple of tuples of int
        Disjoint, non-empty groups of feature indices; of a matrix w the group takes whole rows,
        in the Frobenius norm. Features in no group are not penalised.

    Raises
    ------
    ValueError
        If groups overlap, are empty or hold negative indices; on use, if an index is beyond w.

    References
    ----------
    .. [1] M. Yuan and Y. Lin, "Model Selection and Estimation in Regression with Grouped
       Variables", JRSS B 68, 2006, equation 2.1 (the weight sqrt of the group's size).

    Examples
    --------
    >>> GroupLasso(1.0, groups=((0,), (1, 2))).prox(np.array([3.0, 1.0, -1.0]), 1.0).tolist()
    [2.0, 0.0, 0.0]
    """

    strength: float
    groups: tuple[tuple[int, ...], ...]

    strong_convexity = 0.0

    def __post_init__(self) -> None:
        check_real("strength", self.strength, least=0.0)
        members = [j for group in self.groups for j in group]
        if len(set(members)) < len(members) or not all(self.groups) or min(members, default=0) < 0:
            raise ValueError(
                "groups must be disjoint, non-empty tuples of non-negative indices, "
                f"got {self.groups!r}"
            )

    @property
    def smoothness(self) -> float:
        return math.inf if self.strength > 0 and self.groups else 0.0

    def value(self, w: FloatArray) -> float:
        return math.fsum(
            self.strength * math.sqrt(len(g) * _sum_of_squares(w[list(g)]))
            for g in self._groups_of(w)
        )

    def prox(self, w: FloatArray, step: float) -> FloatArray:
        check_real("step", step, least=0.0)
        result = w.copy()
        for g in self._groups_of(w):
            rows = list(g)
            norm = math.sqrt(_sum_of_squares(w[rows]))
            threshold = step * self.strength * math.sqrt(len(g))
            result[rows] = w[rows] * (1 - threshold / norm) if norm > threshold else 0
        return result

    def _groups_of(self, w: FloatArray) -> tuple[tuple[int, ...], ...]:
        largest = max((max(g) for g in self.groups), default=-1)
        if largest >= w.shape[0]:
            raise ValueError(f"groups name feature {largest}, but w has {w.shape[0]} features")
        return self.groups


def _sum_of_squares(w: FloatArray) -> float:
    v = np.asarray(w, dtype=np.float64).ravel()
    return float(v @ v)


@final
@dataclass(frozen=True)
class Problem:
    """Minimise ``(1/n) sum_i loss(<w, x_i>, y_i) + regularizer(w)`` over w in ``constraint``.

    Parameters
    ----------
    loss : Loss
        Pointwise loss.
    regularizer : Regularizer, optional
        Penalty on the weights; none by default.
    constraint : Constraint, optional
        Set of allowed weights; all by default.
    penalize_intercept : bool, default=False
        Whether penalty and constraint act on the intercept as well.

    Notes
    -----
    A proximal step followed by a projection is nonexpansive for every pair. It is exactly the
    proximal map of penalty plus set for no penalty or `L2` on any set, for every penalty on
    an `L2Ball`, and for `L1` and `ElasticNetPenalty` on a `Box` or an `L1Ball` [1]_. For other
    pairs a fixed point of such steps is close to the minimiser, not at it.

    References
    ----------
    .. [1] Y. Yu, "On Decomposing the Proximal Map", NIPS 2013, Theorem 1.

    Examples
    --------
    >>> from dpglm.problem.losses import Logistic
    >>> Problem(Logistic()).regularizer
    NoPenalty()
    """

    loss: Loss
    regularizer: Regularizer = field(default_factory=NoPenalty)
    constraint: Constraint = field(default_factory=Unconstrained)
    penalize_intercept: bool = False

    def __post_init__(self) -> None:
        check_bools(self)
