"""Noisy counts of rows by the length of their scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import sum_release
from dpglm.oracle.row_sums.moments import float_weights
from dpglm.oracle.row_sums.weighted_moments import View, residuals_of, weighted_coordinates
from dpglm.oracle.unit_sums import sum_of
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = [
    "N_SHELLS",
    "Shells",
    "noisy_shell_counts",
    "shell_counts",
    "shell_release",
]

N_SHELLS = 32
"""How many shells there are; what is within the first is not counted, the last has no end."""
# Of rows that are shorter, in units of the first shell, squares might underflow.
_SHORTEST = 1e-140


@final
@dataclass(frozen=True)
class Shells:
    """Public shells: the k-th begins at ``first * ratio**k``."""

    first: float
    ratio: float

    def start(self, k: int) -> float:
        """Length at which a shell begins."""
        return self.first * self.ratio**k


def shell_counts(spec: DataSpec, view: View, shells: Shells, row_by_row: bool) -> Kernel:
    """Return the kernel that counts rows by the length of ``f r z``, see ``View``.

    r is the residual, neither clipped nor divided.

    Privacy: a row adds its weight to at most one shell, so it contributes at most
    ``spec.weight_bound``, whatever the view and the shells are.
    """
    steps = math.log2(shells.ratio)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        lengths = f * xp.abs(residuals_of(block, spec, view, z)) * xp.sqrt(xp.sum(z * z, axis=1))
        ratios = xp.clip(lengths / shells.first, _SHORTEST, math.inf)
        places = xp.clip(xp.floor(xp.log2(ratios) / steps), -1.0, N_SHELLS - 1.0)
        indices = xp.arange(N_SHELLS, dtype=xp.float64, device=z.device)
        indicators = xp.asarray(places[:, None] == indices, dtype=xp.float64)
        weights = xp.ones_like(lengths) * float_weights(block)
        return cast("NDArray[np.float64]", sum_of(block, weights, indicators))

    return AnyArrays(block_sum, apart=True)


def shell_release(data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism) -> SumRelease:
    """Declare the release that ``noisy_shell_counts`` makes.

    Privacy: the contribution bound is ``data.weight_bound``; no count is negative. Rounding as for
    ``second_moment_release``.
    """
    return sum_release(
        "counts of long scores",
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=N_SHELLS,
        directions=1,
        opposition=0.0,
    )


def noisy_shell_counts(
    oracle: Oracle, declared: SumRelease, view: View, shells: Shells
) -> NDArray[np.float64]:
    """Release the weight of the rows whose scores lie in each shell, of shape (N_SHELLS,)."""
    spec = oracle.rows.spec
    kernel = shell_counts(spec, view, shells, not oracle.places_are_fixed)
    total = oracle.over_blocks(kernel, declared.coordinates)
    return oracle.noisy_sum(declared, total, spec.weight_bound)
