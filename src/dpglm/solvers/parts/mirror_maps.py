"""Mirror maps: the geometries in which accelerated mirror descent takes its steps."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm.problem import (
    Constraint,
    L1Ball,
    L2Ball,
    NoPenalty,
    Problem,
    Regularizer,
    Simplex,
    Unconstrained,
)

__all__ = ["EntropyMap", "EuclideanMap", "MirrorMap", "PNormMap", "mirror_map_for"]

Array: TypeAlias = NDArray[np.floating[Any]]

_TINY = 1e-300


class MirrorMap(abc.ABC):
    """A function on a set, 1-strongly convex in a norm that is nowhere below the Euclidean one.

    So a loss of smoothness ``beta`` on rows of norm R is ``beta R**2``-smooth in that norm, too.
    """

    @abc.abstractmethod
    def start(self, shape: tuple[int, ...]) -> Array:
        """Find the point of the set where the function is least."""

    @abc.abstractmethod
    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        """Minimise ``<gradient, v> + penalty(v) + divergence(v, z) / step_size`` over the set."""

    @abc.abstractmethod
    def divergence(self, v: Array, z: Array) -> float:
        """Bregman divergence of the function: at least half the squared distance in the norm."""

    @abc.abstractmethod
    def reach(self, dimension: int) -> float:
        """Bound the divergence of any point of the set from the start; possibly inf."""


@final
@dataclass(frozen=True)
class EuclideanMap(MirrorMap):
    """``|v|_2**2 / 2``, with any penalty, on an L2 ball or without a constraint."""

    regularizer: Regularizer
    # Set for which a prox and then a projection is the prox of both (see ``Problem``).
    constraint: Constraint

    def start(self, shape: tuple[int, ...]) -> Array:
        return self.constraint.project(np.zeros(shape))

    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        return self.constraint.project(self.regularizer.prox(z - step_size * gradient, step_size))

    def divergence(self, v: Array, z: Array) -> float:
        return 0.5 * float(np.sum((v - z) ** 2))

    def reach(self, dimension: int) -> float:
        return 0.5 * self.constraint.norm_bound(dimension) ** 2


@final
@dataclass(frozen=True)
class EntropyMap(MirrorMap):
    """``radius * sum_j v_j log v_j`` on the simplex, strongly convex in the L1 norm.

    Pinsker's inequality, for ``v / radius``.
    """

    radius: float

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.radius / math.prod(shape))

    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        # An entry that underflowed to zero could never grow again.
        logits = np.log(np.maximum(z, _TINY)) - step_size / self.radius * gradient
        with np.errstate(under="ignore"):
            weights = np.exp(logits - logits.max())
        result: Array = self.radius * (weights / weights.sum())
        return result

    def divergence(self, v: Array, z: Array) -> float:
        inside = v > 0.0
        return self.radius * float(np.sum(v[inside] * np.log(v[inside] / z[inside])))

    def reach(self, dimension: int) -> float:
        return self.radius**2 * math.log(dimension)


@final
@dataclass(frozen=True)
class PNormMap(MirrorMap):
    """``|v|_p**2 / (2 (p - 1))`` with ``p = 1 + 1 / log d``, at most 2, on an L1 ball.

    Ball, Carlen and Lieb, "Sharp uniform convexity and smoothness inequalities for trace norms",
    Inventiones Mathematicae 1994, Proposition 3 (strong convexity in the p-norm).
    """

    radius: float

    def start(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape)

    def step(self, z: Array, gradient: Array, step_size: float) -> Array:
        p = _order(z.size)
        dual = _gradient(z, p) / (p - 1.0) - step_size * gradient
        largest = float(np.abs(dual).max())

        # A multiplier for the L1 norm thresholds the dual; the conjugate's gradient leads back.
        def primal(multiplier: float) -> Array:
            kept = np.maximum(np.abs(dual) - multiplier, 0.0)
            return (p - 1.0) * _gradient(np.copysign(kept, dual), p / (p - 1.0))

        def excess(multiplier: float) -> float:
            return float(np.abs(primal(multiplier)).sum()) - self.radius

        if excess(0.0) <= 0.0:
            return primal(0.0)
        v = primal(brentq(excess, 0.0, largest, xtol=1e-15 * largest, rtol=1e-14))
        if not v.any():
            # All but the largest entries of a huge dual vanish to its last bit.
            v = np.where(np.abs(dual) == largest, np.sign(dual), 0.0)
        result: Array = self.radius * (v / np.abs(v).sum())
        return result

    def divergence(self, v: Array, z: Array) -> float:
        p = _order(z.size)
        squares = 0.5 * (_norm(v, p) ** 2 - _norm(z, p) ** 2)
        return (squares - float(np.sum(_gradient(z, p) * (v - z)))) / (p - 1.0)

    def reach(self, dimension: int) -> float:
        return 0.5 * self.radius**2 / (_order(dimension) - 1.0)


def mirror_map_for(problem: Problem) -> MirrorMap:
    """Choose the geometry of a problem's constraint."""
    make = _MAPS.get(type(problem.constraint))
    if make is None:
        raise ValueError(
            f"constraint must be one of {', '.join(sorted(kind.__name__ for kind in _MAPS))} for "
            f"accelerated mirror descent, got {problem.constraint!r}"
        )
    return make(problem)


def _euclidean(problem: Problem) -> MirrorMap:
    return EuclideanMap(problem.regularizer, problem.constraint)


def _without_penalty(make: Callable[[Any], MirrorMap]) -> Callable[[Problem], MirrorMap]:
    def checked(problem: Problem) -> MirrorMap:
        if problem.regularizer != NoPenalty():
            raise ValueError(
                f"regularizer must be NoPenalty() on {problem.constraint!r} for accelerated "
                f"mirror descent, got {problem.regularizer!r}"
            )
        return make(problem.constraint)

    return checked


_MAPS: MappingProxyType[type[Constraint], Callable[[Problem], MirrorMap]] = MappingProxyType(
    {
        Unconstrained: _euclidean,
        L2Ball: _euclidean,
        L1Ball: _without_penalty(lambda ball: PNormMap(ball.radius)),
        Simplex: _without_penalty(lambda simplex: EntropyMap(simplex.radius)),
    }
)


def _order(dimension: int) -> float:
    return 1.0 + 1.0 / max(1.0, math.log(dimension))


def _norm(v: Array, p: float) -> float:
    largest = float(np.abs(v).max())
    if largest == 0.0:
        return 0.0
    with np.errstate(under="ignore"):
        total = float(np.sum((np.abs(v) / largest) ** p))
    return largest * math.pow(total, 1.0 / p)


def _gradient(v: Array, p: float) -> Array:
    """Gradient of ``|v|_p**2 / 2``."""
    norm = _norm(v, p)
    if norm == 0.0:
        return np.zeros_like(v)
    with np.errstate(under="ignore"):
        return norm * np.copysign((np.abs(v) / norm) ** (p - 1.0), v)
