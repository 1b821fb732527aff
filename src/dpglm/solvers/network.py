"""Networks: random projections in blocks, losses, and noisy sums of row gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Rows
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.projection import GaussianMatrix
from dpglm.privacy.releases import SumRelease
from dpglm.problem.links import FloatArray
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.parts.schedules import Lift
from dpglm.solvers.uncertainty import Floats

if TYPE_CHECKING:
    from dpglm.data.networks import NetworkRows


def block_matrices(
    sizes: Sequence[int], columns: int, seed: tuple[int, ...]
) -> Iterator[GaussianMatrix]:
    """Make independent Gaussian matrices of p columns, one for each of k blocks of coordinates.

    One matrix is in memory at a time; each is made from the seed when needed.

    Privacy: if every row's block has norm at most ``C / sqrt(k)``, the squared norm of a projected
    change is at most ``sum_b (D^2 / k) chi2_p / p = D^2 chi2_kp / (k p)`` in distribution, in any
    direction: as with one matrix of k p columns and a change of norm D. A row that is bounded only
    as a whole could have its norm in one block, with the wider distribution of ``chi2_p / p``.
    """
    for block, size in enumerate(sizes):
        yield GaussianMatrix(size, columns, (*seed, block))


# The loss of a network's rows, as far as a plan states it.


@final
@dataclass(frozen=True)
class NetworkLoss(Loss):
    """A loss that only torch can compute, linearised in the parameters, so that its slope is 1.

    The rows of a network's plan are the gradients of its loss, which ``name`` describes. Convexity
    and smoothness are not claimed.
    """

    name: str

    target = Target.REAL
    link = None
    convex = False
    nonnegative = False

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return z.copy()

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.ones_like(z)

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.zeros_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return math.inf


# Noisy sums of bounded row gradients.

_SAMPLE, _MATRICES = 0, 1


def network_rows(rows: Rows) -> Rows:
    """Return the rows if they are those of a network, or raise PlanMismatchError."""
    from dpglm.data.networks import NetworkRows

    if not isinstance(rows, NetworkRows):
        raise PlanMismatchError(
            f"the plan is for a network's rows, but rows are {type(rows).__name__}"
        )
    return rows


def network_gradient(
    oracle: Oracle,
    declared: SumRelease,
    w: Floats,
    clipping: Clipping,
    lift: Lift,
    seed: tuple[int, int],
    *,
    blocks: int,
    dimension: int | None,
) -> Floats:
    """Release a mean gradient at w, bounded in each block, and projected to ``dimension`` columns.

    ``seed`` is public: that of the run, and the step.
    """
    # Blocks are those of ``numpy.array_split``.
    sizes = [len(block) for block in np.array_split(np.empty(w.size), blocks)]

    def matrices(columns: int) -> Iterator[GaussianMatrix]:
        return block_matrices(sizes, columns, (*seed, _MATRICES))

    def kernel(rows: Any) -> Floats:
        network: NetworkRows = rows
        total = network.clipped_gradient_sum(
            w,
            clipping.factor,
            blocks,
            alone=not declared.adjacency.n_is_public,
            seed=(*seed, _SAMPLE),
        )
        if dimension is None:
            return total
        pieces = zip(matrices(dimension), np.array_split(total, blocks), strict=True)
        return np.concatenate([A.project(piece) for A, piece in pieces])

    released = oracle.noisy_mean(declared, kernel, clipping.bound)
    if dimension is None:
        return released
    parts = zip(matrices(dimension), np.split(released, blocks), strict=True)
    return np.concatenate([lift.gradient(A, part) for A, part in parts])
