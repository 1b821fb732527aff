"""A loss, a penalty and a set of allowed weights: the objective of a fit."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import check_bools, check_real
from dpglm.problem.constraints import Constraint, Unconstrained
from dpglm.problem.links import FloatArray
from dpglm.problem.loss import Loss

# Penalties on the weights, each with its proximal map and its declared constants.


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

    @abc.abstractmethod
    def value(self, w: FloatArray) -> float:
        """Return ``r(w)``."""

    def prox(self, w: FloatArray, step: float) -> FloatArray:
        """Minimise ``step * r(v) + |v - w|^2 / 2`` over v.

        Parameters
        ----------
        w : ndarray of float, shape (d,) or (d, K)
            Weights.
        step : float
            Step size, finite and at least 0.

        Returns
        -------
        ndarray of float, shape and dtype of w
            A new array.

        Raises
        ------
        ValueError
            If ``step`` is negative or not finite.
        """
        check_real("step", step, least=0.0)
        return self._prox(w, step)

    @abc.abstractmethod
    def _prox(self, w: FloatArray, step: float) -> FloatArray: ...


@final
@dataclass(frozen=True)
class NoPenalty(Regularizer):
    """``r(w) = 0``."""

    strong_convexity = 0.0
    smoothness = 0.0

    def value(self, w: FloatArray) -> float:
        return 0.0

    def _prox(self, w: FloatArray, step: float) -> FloatArray:
        return w.copy()


@final
@dataclass(frozen=True)
class L2(Regularizer):
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

    @property
    def strong_convexity(self) -> float:
        return self.strength

    @property
    def smoothness(self) -> float:
        return self.strength

    def value(self, w: FloatArray) -> float:
        return self.strength / 2 * _sum_of_squares(w)

    def _prox(self, w: FloatArray, step: float) -> FloatArray:
        return w / (1 + step * self.strength)


@final
@dataclass(frozen=True)
class L1(Regularizer):
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

    strong_convexity = 0.0

    def __post_init__(self) -> None:
        check_real("strength", self.strength, least=0.0)

    @property
    def smoothness(self) -> float:
        return math.inf if self.strength > 0 else 0.0

    def value(self, w: FloatArray) -> float:
        return self.strength * _sum_of_absolutes(w)

    def _prox(self, w: FloatArray, step: float) -> FloatArray:
        return _soft_threshold(w, step * self.strength)


@checked
@final
@dataclass(frozen=True)
class ElasticNetPenalty(Regularizer):
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

    @property
    def strong_convexity(self) -> float:
        return self.strength * (1 - self.l1_ratio)

    @property
    def smoothness(self) -> float:
        return math.inf if self.strength * self.l1_ratio > 0 else self.strong_convexity

    def value(self, w: FloatArray) -> float:
        l1 = self.strength * self.l1_ratio * _sum_of_absolutes(w)
        return l1 + self.strong_convexity / 2 * _sum_of_squares(w)

    def _prox(self, w: FloatArray, step: float) -> FloatArray:
        result = _soft_threshold(w, step * self.strength * self.l1_ratio)
        result /= 1 + step * self.strong_convexity
        return result


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

    def _prox(self, w: FloatArray, step: float) -> FloatArray:
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


def _soft_threshold(w: FloatArray, threshold: float) -> FloatArray:
    return w - np.clip(w, -threshold, threshold)


def _sum_of_absolutes(w: FloatArray) -> float:
    return float(np.sum(np.abs(w), dtype=np.float64))


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
