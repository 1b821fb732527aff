"""Strongly convex objectives over private rows, and bounds on their floating-point errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.memory import dense, sparse
from dpglm.data.rows import SERIAL, Block, BlockMap, Floats, Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import UNIT, target_size
from dpglm.problem.loss import Loss

__all__ = ["Accuracy", "Objective", "Prox", "Terms", "block_rows"]

Vector = NDArray[np.float64]
Prox = Callable[[Vector, float], Vector]
"""``prox(w, step)`` of a penalty and a set, relative to a sum over rows."""


@final
@dataclass(frozen=True)
class Accuracy:
    """Bounds on floating-point errors that grow with the norm of the parameter.

    ``n_rows`` (times each row's share), ``block_rows``, ``clip`` (a row's gradient norm),
    ``curvature`` (of a row's clipped loss, row norm included), ``ridge``, ``linear_norm`` and
    ``offset`` (of a row's score) are upper bounds. ``strength`` is the strong convexity of the
    whole objective; a step is no longer than its inverse, even where only the non-smooth penalty
    provides it.

    With u the unit roundoff, each dot product of at most d + 1 terms errs by ``2 (d + 10) u |x|
    |w|`` in L2 norm over the outputs (Higham 2002, section 3.1; a maximum that softmax subtracts
    and a scaled intercept included), which the curvature turns into an error of the gradient; the
    loss's own sums with constants, targets and offsets count like it. A slope then errs by
    ``(64 + 4 K) u`` times the clipped slope plus the target, or 1. Sums within a block and over
    blocks are as in ``oracle.rounding``.
    """

    data: DataSpec
    n_rows: float
    block_rows: int
    clip: float
    curvature: float
    ridge: float
    linear_norm: float
    strength: float = 0.0
    offset: float = 0.0

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the smooth part's gradient, or more: at least ``strength``."""
        own = self.n_rows * self.data.weight_bound * self.curvature + self.ridge
        return max(own, self.strength)

    def gradient(self, norm: float) -> float:
        """Bound the error of the smooth part's gradient at a parameter of this L2 norm."""
        data, total = self.data, self.n_rows * self.data.weight_bound
        target = target_size(data)
        slope = self.clip + data.augmented_row_norm * target
        within = 2 * (self.block_rows + 8) * self.clip
        argument = norm + (1.0 + target + self.offset) / data.augmented_row_norm
        row = self.curvature * 2 * (data.n_columns + 10) * argument
        row += (64 + 4 * data.n_outputs) * slope + within
        rest = 9 * (self.ridge * norm + self.linear_norm + total * self.clip)
        return UNIT * (total * row + rest)

    def prox(self, norm: float) -> float:
        """Bound the error of a prox step, a projection included, that starts at this norm."""
        return 4 * (self.data.n_coefficients + 16) * UNIT * norm


def block_rows(n_rows: int) -> int:
    """Bound the size of a block among so many rows."""
    return min(max(dense.BLOCK_ROWS, sparse.BLOCK_ROWS), n_rows)


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """What is added to the sum of the rows' losses.

    ``ridge`` holds the coefficient of ``w_j^2 / 2``, above 0, for each row of the parameter;
    ``linear``, of the parameter's shape, is private where it is noise; ``prox`` stands for a
    non-smooth penalty and a constraint, of strong convexity ``prox_strength`` in all coefficients.
    """

    ridge: Vector
    linear: Vector
    prox: Prox | None = None
    prox_strength: float = 0.0

    @property
    def strength(self) -> float:
        """Strong convexity in all coefficients."""
        return float(self.ridge.min()) + self.prox_strength


@final
class Objective:
    """The sum of clipped convex losses, a quadratic, a linear and a proximal term. Private.

    Rows are in float64. Beyond the clip bound a row's loss goes on along its tangent; with more
    than one output the clipping must never bind, because clipped gradients of several outputs need
    not have a potential (Song et al. 2021, Theorem 5.3). ``curvature`` bounds that of any row's
    clipped loss, row norm included; ``share``, in (0, 1], multiplies each row's loss.
    """

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        clipping: FlatClipping,
        curvature: float,
        terms: Terms,
        map_blocks: BlockMap = SERIAL,
        share: float = 1.0,
    ) -> None:
        self.rows, self.loss, self.clipping, self.terms = rows, loss, clipping, terms
        self._map_blocks, self._share = map_blocks, share
        self.accuracy = Accuracy(
            data=rows.spec,
            n_rows=rows.n_rows * share,
            block_rows=block_rows(rows.n_rows),
            clip=clipping.bound,
            curvature=curvature,
            ridge=float(terms.ridge.max()),
            linear_norm=float(np.linalg.norm(terms.linear)) * (1.0 + 1e-9),
            strength=terms.strength,
            offset=loss.offset_bound,
        )

    def gradient(self, w: Vector) -> Vector:
        """Gradient of the smooth part, up to ``accuracy.gradient(|w|)``."""
        g = clipped_gradient_sum(self.rows, self.loss, self.clipping, w, self._map_blocks)
        return self._share * g + _columns(self.terms.ridge, w) * w + self.terms.linear

    def hessian(self, w: Vector) -> Vector:
        """Hessian of the smooth part, one output; no bound on its error is claimed."""
        spec, loss, clip = self.rows.spec, self.loss, self.clipping.bound
        identity = np.eye(spec.n_columns)

        def block_sum(block: Block) -> Vector:
            with np.errstate(all="ignore"):
                z = block.predict(w)
                slopes = np.abs(loss.slope(z, block.targets))
                curvatures: Floats = loss.curvature(z, block.targets)
            curvatures[slopes * block.norms > clip] = 0.0
            if block.weights is not None:
                curvatures *= block.weights
            weighted = block.predict(identity)
            weighted *= curvatures[:, np.newaxis]
            return block.weighted_sum(weighted)

        shape = (spec.n_columns, spec.n_columns)
        curvature = self.rows.sum(block_sum, self._map_blocks, shape)
        return self._share * curvature + np.diag(self.terms.ridge)

    def prox(self, w: Vector, step: float) -> Vector:
        """Prox of what is not smooth, up to ``accuracy.prox``."""
        return w if self.terms.prox is None else self.terms.prox(w, step)


def _columns(ridge: Vector, w: Vector) -> Vector:
    return ridge if w.ndim == 1 else ridge[:, np.newaxis]
