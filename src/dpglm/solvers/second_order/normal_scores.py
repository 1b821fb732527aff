"""What a loss is like at scores that are about normal, as far as released values tell."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem import Squared
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.parts.defaults import slope_unit
from dpglm.solvers.parts.shrinkage import is_neutral
from dpglm.solvers.second_order.likelihood import constant_model
from dpglm.solvers.second_order.preconditioner import Basis

__all__ = ["USUAL_ERROR", "NormalScores", "expected_constant", "normal_nodes"]

# Of the quadrature over scores, and where scores are cut off in it.
_NODES, _FEW, _MANY, _FARTHEST = 40, 20, 80, 30.0
USUAL_ERROR = 0.2
"""Root mean square of what is left of numbers, in units of the largest: a rough guess."""
# Mean of targets that are no counts and above 0, likewise.
_USUAL_MEAN = 0.1


@final
@dataclass(frozen=True)
class NormalScores:
    """Scores of rows, taken as normal; ``w`` predicts targets rightly.

    Parameters
    ----------
    mean, spread : float
        Mean and standard deviation.
    """

    mean: float
    spread: float

    @classmethod
    def expected(cls, loss: Loss, data: DataSpec) -> NormalScores:
        """Return what is expected of scores before a row is seen: a standard deviation of 1.

        About the prediction zero where that is neutral, about one count, or a tenth of the largest
        target, where targets are at least 0.
        """
        if loss.link is None or is_neutral(loss, data):
            return cls(0.0, 1.0)
        return cls(expected_constant(loss, data)[0], 1.0)

    @classmethod
    def of(cls, basis: Basis, w: NDArray[np.float64]) -> NormalScores:
        """Return those of a parameter with one output, in a basis in which rows look alike."""
        v, level = basis.inverse @ w, basis.inverse[:, -1]
        mean = float(level @ v / (level @ level)) * float(np.linalg.norm(level))
        return cls(mean, math.sqrt(max(float(v @ v) - mean**2, 0.0)))

    def clipped(self, loss: Loss, data: DataSpec, reach: float) -> tuple[float, float]:
        """Return the mean curvature of a loss whose slopes are cut at ``reach``, and squared slope.

        What predictions leave of numbers is unknown, and taken as normal.
        """
        errors = USUAL_ERROR * slope_unit(loss, data), _FEW
        nodes = self._at_nodes(loss, data, *errors)
        bend = float(_curvature(loss, nodes, np.array([reach]))[0, 0])
        squares = (
            nodes.shares @ (probability * np.minimum(np.abs(loss.slope(nodes.z, y)), reach) ** 2)
            for y, probability in nodes.sides
        )
        return bend, float(sum(squares))

    def curvature(
        self, loss: Loss, data: DataSpec, reaches: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the mean of a loss's curvature times 1, t and t^2, t the standardised score.

        Slopes are cut at each of ``reaches``, and curvature is zero where they are: shape (3,
        n_reaches). What predictions leave of numbers is taken to be as large as they differ.
        """
        error = min(self.spread, USUAL_ERROR * slope_unit(loss, data))
        return _curvature(loss, self._at_nodes(loss, data, error, _MANY), reaches)

    def _at_nodes(self, loss: Loss, data: DataSpec, error: float, count: int) -> _Nodes:
        """Return the quadrature; ``error`` is the deviation of what is left of numbers."""
        t, shares = normal_nodes()
        z = np.clip(self.mean + self.spread * t, -_FARTHEST, _FARTHEST)
        if loss.target is Target.BINARY and loss.link is not None:
            up = np.asarray(np.clip(loss.link.inverse(z), 0.0, 1.0))
            one: NDArray[np.float64] = np.ones_like(z)
            return _Nodes(t, shares, z, ((one, up), (-one, np.asarray(1.0 - up))))
        means = z if loss.link is None else loss.link.inverse(z)
        means = np.clip(means, *data.target_range(loss.target.bounds))
        errors = [(0.0, 1.0)]
        if isinstance(loss, Squared):
            errors = [(error * one, share) for one, share in zip(*normal_nodes(count), strict=True)]
        sides = ((np.asarray(means + one), np.full_like(z, share)) for one, share in errors)
        return _Nodes(t, shares, z, tuple(sides))


def expected_constant(loss: Loss, data: DataSpec) -> tuple[float, float]:
    """Return score and curvature of a constant, where targets are at least 0, before one is seen.

    That of one count, or of a tenth of the largest target.
    """
    low, high = data.target_range(loss.target.bounds)
    one = loss.dispersion if loss.target is Target.COUNT else None
    mean = min(max(_USUAL_MEAN * high if one is None else one, low), high)
    return constant_model(loss, mean, low, high)


@final
@dataclass(frozen=True, eq=False)
class _Nodes:
    """A quadrature: standardised scores, their shares, scores, and targets with probabilities."""

    t: NDArray[np.float64]
    shares: NDArray[np.float64]
    z: NDArray[np.float64]
    sides: tuple[tuple[NDArray[Any], NDArray[Any]], ...]


def _curvature(loss: Loss, nodes: _Nodes, reaches: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = nodes.shares * np.stack([np.ones_like(nodes.t), nodes.t, nodes.t**2])
    total = np.zeros((3, len(reaches)))
    for y, probability in nodes.sides:
        kept = np.abs(loss.slope(nodes.z, y)) <= reaches[:, np.newaxis]
        total += powers @ (probability * loss.curvature(nodes.z, y) * kept).T
    return total


@functools.cache
def normal_nodes(count: int = _NODES) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and shares of a quadrature over the standard normal distribution."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(count)
    return nodes, shares / shares.sum()
