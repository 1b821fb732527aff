"""A random projection in blocks: a small public matrix for each few coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.gradient_sums.projection import GaussianMatrix
from dpglm.solvers.parts.lifts import Lift

__all__ = ["BlockMatrices"]


@final
@dataclass(frozen=True)
class BlockMatrices:
    """Independent Gaussian matrices of p columns, one for each of k blocks of the coordinates.

    Blocks are those of ``numpy.array_split``. One matrix is in memory at a time; each is made
    from the seed whenever it is needed.

    Privacy: with every row's block no longer than ``C / sqrt(k)``, the squared length of a
    projected change is at most ``sum_b (D^2 / k) chi2_p / p = D^2 chi2_kp / (k p)`` in law,
    whatever its direction: what one matrix of k p columns does to a change of length D. A row
    that is bounded as a whole only could have all of its length in one block, with the wider law
    of ``chi2_p / p``.
    """

    blocks: int
    columns: int
    seed: tuple[int, ...]

    def project(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``A_b^T v_b / sqrt(p)`` of all blocks, one after the other."""
        pieces = np.array_split(vector, self.blocks)
        matrices = self._matrices([piece.size for piece in pieces])
        return np.concatenate([A.project(v) for A, v in zip(matrices, pieces, strict=True)])

    def lift(self, values: NDArray[np.float64], size: int, lift: Lift) -> NDArray[np.float64]:
        """Return what a lift makes of each block's values: ``size`` coordinates together."""
        pieces = np.split(values, self.blocks)
        sizes = [len(part) for part in np.array_split(np.empty(size), self.blocks)]
        matrices = self._matrices(sizes)
        return np.concatenate([lift.gradient(A, r) for A, r in zip(matrices, pieces, strict=True)])

    def _matrices(self, sizes: list[int]) -> Iterator[GaussianMatrix]:
        for block, size in enumerate(sizes):
            yield GaussianMatrix(size, self.columns, (*self.seed, block))
