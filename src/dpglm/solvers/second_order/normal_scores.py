"""What a loss is like at scores that are about normal, as far as released values tell."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import DataSpec
from dpglm.problem import Squared
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.parts.defaults import slope_unit
from dpglm.solvers.second_order.preconditioner import Basis

__all__ = ["NormalScores"]

# Of the quadrature over scores, and where scores are cut off in it.
_NODES, _FEW, _FARTHEST = 40, 20, 30.0
# Root mean square of what is left of numbers, in units of the largest: a rough guess.
_USUAL_ERROR = 0.2


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
    def of(cls, basis: Basis, w: NDArray[np.float64]) -> NormalScores:
        """Return those of a parameter with one output, in a basis in which rows look alike."""
        v, level = basis.inverse @ w, basis.inverse[:, -1]
        mean = float(level @ v / (level @ level)) * float(np.linalg.norm(level))
        return cls(mean, math.sqrt(max(float(v @ v) - mean**2, 0.0)))

    def clipped(self, loss: Loss, data: DataSpec, reach: float) -> tuple[float, float]:
        """Return the mean curvature of a loss whose slopes are cut at ``reach``, and squared slope.

        What predictions leave of numbers is unknown, and taken as normal.
        """
        nodes, shares = _normal(_NODES)
        z = np.clip(self.mean + self.spread * nodes, -_FARTHEST, _FARTHEST)
        if loss.target is Target.BINARY and loss.link is not None:
            up = np.clip(loss.link.inverse(z), 0.0, 1.0)
            sides = [(np.ones_like(z), up), (-np.ones_like(z), 1.0 - up)]
        else:
            means = z if loss.link is None else loss.link.inverse(z)
            means = np.clip(means, *data.target_range(loss.target.bounds))
            errors = [(0.0, 1.0)]
            if isinstance(loss, Squared):
                size = _USUAL_ERROR * slope_unit(loss, data)
                errors = [(size * node, share) for node, share in zip(*_normal(_FEW), strict=True)]
            sides = [(np.asarray(means + error), np.full_like(z, share)) for error, share in errors]
        bend = square = 0.0
        for y, probability in sides:
            slopes = np.abs(loss.slope(z, y))
            bend += float(shares @ (probability * (slopes <= reach) * loss.curvature(z, y)))
            square += float(shares @ (probability * np.minimum(slopes, reach) ** 2))
        return bend, square


@functools.cache
def _normal(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and shares of a quadrature over the standard normal distribution."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(count)
    return nodes, shares / shares.sum()
