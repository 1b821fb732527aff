"""Bounded sums for models with pooled levels: scores, and the structured parts of the Hessian."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import Array, finite
from dpglm.data.compiled.kernels import row_by_row_product
from dpglm.data.rows import Block
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import (
    float_weights,
    n_symmetric,
    pack_symmetric,
    unpack_symmetric,
)
from dpglm.oracle.rounding import RowSum, norm_margin
from dpglm.privacy.releases import SumRelease
from dpglm.problem.loss import Loss


@final
@dataclass(frozen=True, eq=False)
class LevelParts:
    """The released parts of a mean Hessian, with the noise of a diagonal entry."""

    fixed: Array  # Shape (n_fixed, n_fixed).
    crossed: Array  # Shape (n_levels, n_fixed), with 1 / sqrt(2) of the noise.
    diagonal: Array  # Shape (n_levels,).
    noise: float


@final
@dataclass(frozen=True, eq=False)
class LevelScores:
    """Public coordinates and limits of rows with fixed columns and pooled levels.

    ``z = (basis^T x, scales x')``, x the fixed columns with the intercept's, x' the levels. At a
    public point a row has the weight ``f = min(1, clip / (m |z|), square / (h |z|^2))``: m is a
    bound on its slope and h on its curvature, for any target. So f does not depend on the target,
    and scores of a right model have the mean zero.

    Privacy: with slopes clipped to [-m, m] a score ``f s z`` is at most ``clip`` long. The released
    parts of ``f h z z^T`` are some of its entries, with mirror images, so that their Frobenius norm
    is at most ``f h |z|^2 <= square``. Nothing rests on x' being an indicator. z is the computed
    product, and the margin covers the error of its norm.
    """

    fixed: NDArray[np.intp]
    levels: NDArray[np.intp]
    basis: Array
    scales: Array
    intercept: float  # Value of the intercept's column.
    clip: float = 1.0
    square: float = 1.0
    # Clipping threshold of the slopes of counts, in standard deviations, beyond one count.
    reach: float = math.inf

    @property
    def n_fixed(self) -> int:
        """Number of coordinates without those of levels."""
        return int(self.basis.shape[1])

    def mean_score(self, oracle: Oracle, declared: SumRelease, v: Array) -> Array:
        """Release the mean score at a point; ``level_score_sum`` declares it."""
        spec, margin = oracle.rows.spec, norm_margin(len(v))

        def block_sum(block: Block) -> Array:
            z, levels, eta, f = self._coordinates(oracle, block, v, margin)
            m, _ = self.bounds(oracle.loss, eta)
            slopes = np.clip(finite(oracle.loss.slope(eta, block.targets)), -m, m)
            factors = finite(f / self.clip * slopes) * float_weights(block)
            return np.concatenate([factors @ z, levels.T @ factors])

        total = level_score_sum(len(v)).noisy(oracle, declared, block_sum)
        return self.clip * total / spec.n_rows

    def mean_hessian(self, oracle: Oracle, declared: SumRelease, v: Array) -> LevelParts:
        """Release the structured parts of the mean Hessian; ``level_hessian_sum`` declares."""
        spec, margin, size = oracle.rows.spec, norm_margin(len(v)), self.n_fixed

        def block_sum(block: Block) -> Array:
            z, levels, eta, f = self._coordinates(oracle, block, v, margin)
            _, h = self.bounds(oracle.loss, eta)
            factors = finite(f / self.square * h) * float_weights(block)
            weighted = factors[:, np.newaxis] * z
            crossed = math.sqrt(2.0) * (levels.T @ weighted).ravel()
            squares = levels.multiply(levels).T @ factors
            return np.concatenate([pack_symmetric(z.T @ weighted), crossed, squares])

        sums = level_hessian_sum(size, len(v) - size).noisy(oracle, declared, block_sum)
        unit = self.square / spec.n_rows
        ends = np.cumsum([n_symmetric(size), size * (len(v) - size)])
        fixed, crossed, diagonal = np.split(unit * sums, ends)
        return LevelParts(
            unpack_symmetric(fixed, size),
            crossed.reshape(-1, size) / math.sqrt(2.0),
            diagonal,
            unit * declared.noise_std,
        )

    @property
    def constant(self) -> float:
        """Value of the last fixed coordinate in every row."""
        return float(self.basis[-1, -1]) * self.intercept

    def bounds(self, loss: Loss, eta: Array) -> tuple[Array, Array]:
        """Return bounds on slopes and curvature at scores, for every target."""
        if all(map(math.isfinite, loss.target.bounds)):
            # Both are largest at an end of the targets' range, in which they are linear.
            ends = [np.full_like(eta, end) for end in loss.target.bounds]
            slopes = [np.abs(loss.slope(eta, end)) for end in ends]
            bends = [loss.curvature(eta, end) for end in ends]
            largest = np.maximum(*slopes), np.maximum(*bends)
            return np.asarray(largest[0], np.float64), np.asarray(largest[1], np.float64)
        # With a canonical link, curvature is the variance function for every target.
        bend, one = (
            np.asarray(loss.curvature(eta, np.ones_like(eta)), np.float64),
            loss.dispersion or 1.0,
        )
        return self.reach * np.sqrt(one * bend) + one, bend

    def _coordinates(
        self, oracle: Oracle, block: Block, v: Array, margin: float
    ) -> tuple[Array, sparse.csr_array, Array, Array]:
        """Return a block's fixed coordinates, its levels, its scores at a point, and weights f."""
        product = operator.matmul if oracle.places_are_fixed else row_by_row_product
        z = finite(product(beside(block, self.fixed, self.intercept), self.basis))
        levels = sparse.csr_array(block.stored()[:, self.levels], dtype=np.float64)
        levels = sparse.csr_array(
            (levels.data * self.scales[levels.indices], levels.indices, levels.indptr),
            shape=levels.shape,
        )
        squares = (z * z).sum(axis=1) + levels.multiply(levels).sum(axis=1)
        eta = product(z, v[: self.n_fixed, np.newaxis])[:, 0] + levels @ v[self.n_fixed :]
        m, h = self.bounds(oracle.loss, eta)
        excess = np.maximum(np.sqrt(squares) * m / self.clip, squares * h / self.square)
        return z, levels, eta, finite(margin / np.maximum(excess, 1.0))


def beside(block: Block, columns: NDArray[np.intp], constant: float) -> Array:
    """Return some columns of a block's rows, dense, with a constant one last. Private."""
    chosen = block.stored()[:, columns]
    dense: Any = chosen.toarray() if sparse.issparse(chosen) else chosen  # type: ignore[attr-defined]
    return np.column_stack([dense, np.full(len(dense), constant)]).astype(np.float64)


def noisy_fixed_moments(
    oracle: Oracle, declared: SumRelease, columns: NDArray[np.intp], constant: float
) -> Array:
    """Release ``sum u u^T / |u|^2``, u some columns with a constant one last.

    Privacy: as in ``normalized_second_moments``. ``fixed_moment_sum`` declares it.
    """
    margin = norm_margin(len(columns) + 1)

    def block_sum(block: Block) -> Array:
        rows = beside(block, columns, constant)
        factors = margin / (rows * rows).sum(axis=1) * float_weights(block)
        return pack_symmetric((rows * factors[:, np.newaxis]).T @ rows)

    size = len(columns) + 1
    return unpack_symmetric(fixed_moment_sum(size).noisy(oracle, declared, block_sum), size)


def fixed_moment_sum(size: int) -> RowSum:
    """Sum of ``noisy_fixed_moments``; ``size`` counts the constant column, too."""
    name = "normalised second-moment sum"
    return RowSum(name, n_symmetric(size), directions=size, opposition=0.0)


def level_score_sum(size: int) -> RowSum:
    """Sum of ``LevelScores.mean_score``, in units of the clipping threshold."""
    return RowSum("score sum of pooled terms", size)


def level_hessian_sum(n_fixed: int, n_levels: int) -> RowSum:
    """Sum of ``LevelScores.mean_hessian``, in units of its bound.

    Privacy: entries between levels are missing, so that inner products may be negative, and
    contributions oppose each other.
    """
    size = n_symmetric(n_fixed) + n_levels * (n_fixed + 1)
    return RowSum("Hessian sum of pooled terms", size, directions=n_fixed + n_levels)
