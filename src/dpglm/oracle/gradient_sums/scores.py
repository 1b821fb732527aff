"""Bounded sums of scores in a public basis, with the curvature and the spread of scores there."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, cast, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import finite, like, namespace
from dpglm.data.compiled.score_kernels import score_sum
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.compiled import has_compiled_scores
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import norm_margin, sum_release
from dpglm.oracle.row_sums.moments import (
    n_symmetric,
    pack_symmetric,
    row_by_row_product,
    unpack_symmetric,
)
from dpglm.oracle.unit_sums import RUN_ROWS, products_of, sum_of
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.releases import SumMechanism, SumRelease
from dpglm.problem.loss import Loss

__all__ = [
    "Scores",
    "hessian_release",
    "length_release",
    "score_moment_release",
    "score_release",
]


@final
@dataclass(frozen=True)
class _OfRows:
    """What sums need to know of the rows, without the rows: workers of a cluster get it.

    Where places must not matter, products of rows and a matrix do not depend on them.
    """

    loss: Loss
    spec: DataSpec
    product: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

    @classmethod
    def of(cls, oracle: Oracle) -> Self:
        product = operator.matmul if oracle.places_are_fixed else row_by_row_product
        return cls(oracle.loss, oracle.rows.spec, product)


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """How a row's score enters a sum: all of it public.

    ``z = basis^T x`` and ``f = min(1, clip^2 / |z|^2)``. A row's score is ``f s z``, s its slope
    cut to ``[-slope, slope]``; its part of the Hessian is ``f h z z^T``, h its curvature, at most
    ``curvature``. As f depends on x alone, the expected score at the true parameter of a right
    model is zero, as long as slopes are not cut.

    Privacy: in units of ``slope`` a score is at most ``clip`` long, and in units of ``curvature`` a
    part of the Hessian at most ``clip**2`` in Frobenius norm, as ``f |z| <= clip`` and
    ``f |z|^2 <= clip^2``; z is the computed product, and the margin covers the error of its norm.
    """

    basis: NDArray[np.float64]
    clip: float
    slope: float
    curvature: float
    # Where scores of groups are cut, and those that are squared, in units of their declared bound.
    within: float = 1.0
    squares_within: float = 1.0

    @property
    def reach(self) -> float:
        """What one unit of a released score is worth."""
        return self.slope * self.within

    def mean_length(
        self, oracle: Oracle, declared: SumRelease, v: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Release the mean length of the groups' scores at v, in units of a row's bound.

        ``length_release`` declares it; returned with the standard deviation of the noise. Lengths
        are cut at m such units, m the typical number of rows of a group.
        """
        groups = oracle.rows.spec.groups
        assert groups is not None
        scores, most = self._score_sum(_OfRows.of(oracle), v), groups.rows
        unit = most * self.clip * oracle.rows.spec.weight_bound

        def lengths(block: Block) -> NDArray[np.float64]:
            found = np.linalg.norm(scores(block), axis=-1, keepdims=True)
            return cast("NDArray[np.float64]", np.minimum(found / unit, 1.0))

        kernel = oracle.over_blocks(AnyArrays(lengths, apart=True), 1)
        total = float(oracle.noisy_sum(declared, kernel, 1.0)[0])
        per_group = most / groups.n_groups
        return per_group * total, per_group * declared.noise_std

    def mean_score(
        self, oracle: Oracle, declared: SumRelease, v: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Release the mean score at ``w = basis v``; ``score_release`` declares it."""
        bound = self.clip * oracle.rows.spec.weight_bound
        block_sum = self._score_sum(_OfRows.of(oracle), v)
        kernel = oracle.over_blocks(AnyArrays(block_sum, apart=True), declared.coordinates)
        return self.slope * oracle.noisy_mean(declared, kernel, bound, self.within)

    def _score_sum(self, of_rows: _OfRows, v: NDArray[np.float64]) -> Kernel:
        """Return the kernel of sums of scores, in units of ``slope``."""

        def block_sum(block: Block) -> NDArray[np.float64]:
            compiled = self._compiled_sum("scores", of_rows, block, v)
            if compiled is not None:
                return compiled
            total: Any = 0.0
            for z, factors, targets, weights in self._runs(of_rows, block):
                factors *= self._slopes(of_rows, z, targets, v)
                factors = factors if weights is None else factors * weights
                total = total + sum_of(block, factors, z)
            return cast("NDArray[np.float64]", total)

        return block_sum

    def mean_hessian(
        self, oracle: Oracle, declared: SumRelease, v: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Release the mean Hessian at ``w = basis v``; ``hessian_release`` declares it.

        Noise has the declared standard deviation times ``curvature`` over n on the diagonal, and
        ``1 / sqrt(2)`` of it elsewhere.
        """
        of_rows = _OfRows.of(oracle)

        def factors_of(z: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
            bends = finite(of_rows.loss.curvature(_predictions(of_rows, z, v), targets))
            bends = namespace(bends).clip(bends / self.curvature, 0.0, 1.0)
            return cast("NDArray[np.float64]", bends)

        bound = self.clip**2 * oracle.rows.spec.weight_bound
        products = self._product_sum("curvature", of_rows, v, factors_of)
        return self.curvature * self._mean_matrix(oracle, declared, products, bound)

    def mean_score_products(
        self, oracle: Oracle, declared: SumRelease, v: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Release the mean of scores times their transposes, at ``w = basis v``.

        The scores of a group's rows are added up first, where rows are in groups; the mean is that
        over rows. ``score_moment_release`` declares it; noise as for ``mean_hessian``, in units of
        ``slope**2``.
        """
        of_rows = _OfRows.of(oracle)
        bound = (self.clip * oracle.rows.spec.weight_bound) ** 2
        if oracle.rows.unit is Unit.GROUP:
            group_sum = self._score_sum(of_rows, v)

            def products(block: Block) -> NDArray[np.float64]:
                scores = group_sum(block)
                return pack_symmetric(scores[..., :, None] * scores[..., None, :])

            within = self.squares_within**2
            return self.slope**2 * self._mean_matrix(oracle, declared, products, bound, within)

        def factors_of(z: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
            slopes = self._slopes(of_rows, z, targets, v)
            return slopes * slopes

        squares = self._product_sum("squares", of_rows, v, factors_of)
        return self.slope**2 * self._mean_matrix(oracle, declared, squares, bound)

    def _mean_matrix(
        self,
        oracle: Oracle,
        declared: SumRelease,
        block_sum: Kernel,
        bound: float,
        within: float = 1.0,
    ) -> NDArray[np.float64]:
        # Rows in groups are NumPy's; curvature is not known of tensors.
        if oracle.rows.unit is Unit.GROUP:
            block_sum = AnyArrays(block_sum, apart=True)
        kernel = oracle.over_blocks(block_sum, declared.coordinates)
        values = oracle.noisy_mean(declared, kernel, bound, within)
        return unpack_symmetric(values, self.basis.shape[1])

    def _product_sum(
        self,
        of: Literal["curvature", "squares"],
        of_rows: _OfRows,
        v: NDArray[np.float64],
        factors_of: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    ) -> Kernel:
        """Return the kernel of sums of ``a f w z z^T``, f w squared of squares.

        a is what ``factors_of`` returns.
        """
        power = 2 if of == "squares" else 1

        def block_sum(block: Block) -> NDArray[np.float64]:
            total: Any = self._compiled_sum(of, of_rows, block, v)
            if total is not None:
                return pack_symmetric(total)
            total = 0.0
            for z, factors, targets, weights in self._runs(of_rows, block):
                if weights is not None:
                    factors *= weights
                factors = factors_of(z, targets) * factors**power
                total = total + products_of(block, factors, z)
            return pack_symmetric(total)

        return block_sum

    def _compiled_sum(
        self,
        of: Literal["scores", "curvature", "squares"],
        of_rows: _OfRows,
        block: Block,
        v: NDArray[np.float64],
    ) -> NDArray[np.float64] | None:
        """Return the sum over a block's rows in one pass; None where no compiled code knows it.

        Privacy: a row's contribution is computed as below, by the same operations wherever the row
        stands, and 64 rows' are added up before others are: at most 400 additions for each block.
        """
        if block.starts is not None or not has_compiled_scores(of_rows.loss):
            return None
        limits = (self.slope, self.curvature, self.clip**2, norm_margin(self.basis.shape[1]))
        return score_sum(
            of,
            limits,
            block.features(),
            self.basis,
            of_rows.spec.intercept,
            v,
            block.targets,
            block.weights,
        )

    def _runs(
        self, of_rows: _OfRows, block: Block
    ) -> Iterator[
        tuple[
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64] | None,
        ]
    ]:
        """Yield a block's rows in the basis, with f, targets and weights, in float64, by runs."""
        spec, margin = of_rows.spec, norm_margin(self.basis.shape[1])
        features = block.features()
        xp = namespace(features)
        basis = like(features, self.basis)
        for start in range(0, len(features), RUN_ROWS):
            run = slice(start, start + RUN_ROWS)
            z = of_rows.product(
                xp.asarray(features[run], dtype=xp.float64), basis[: spec.n_features]
            )
            if spec.intercept > 0.0:
                z += spec.intercept * basis[spec.n_features]
            squares = xp.einsum("ij,ij->i", z, z)
            factors = margin * self.clip**2 / xp.maximum(squares, self.clip**2)
            targets = xp.asarray(block.targets[run], dtype=xp.float64)
            weights = block.weights
            if weights is not None:
                weights = xp.asarray(weights[run], dtype=xp.float64)
            yield z, factors, targets, weights

    def _slopes(
        self,
        of_rows: _OfRows,
        z: NDArray[np.float64],
        targets: NDArray[np.float64],
        v: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Slopes in units of the largest that counts, at most 1."""
        slopes = finite(of_rows.loss.slope(_predictions(of_rows, z, v), targets))
        slopes /= self.slope
        cut: NDArray[np.float64] = namespace(slopes).clip(slopes, -1.0, 1.0, out=slopes)
        return cut


def score_release(
    data: DataSpec,
    adjacency: Adjacency,
    clip: float,
    mechanism: SumMechanism,
    *,
    count: int = 1,
) -> SumRelease:
    """Declare what ``Scores.mean_score`` releases.

    Privacy: the contribution bound is ``clip * data.weight_bound``. Rounding as for
    ``second_moment_release``: everything is in float64, in runs of 1024 rows.
    """
    return sum_release(
        "score sum",
        data,
        adjacency,
        mechanism,
        bound=clip * data.weight_bound,
        coordinates=data.n_columns,
        count=count,
    )


def length_release(data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism) -> SumRelease:
    """Declare what ``Scores.mean_length`` releases: a group contributes at most 1."""
    return sum_release(
        "lengths of group scores", data, adjacency, mechanism, bound=1.0, coordinates=1, power=0
    )


def hessian_release(
    data: DataSpec,
    adjacency: Adjacency,
    clip: float,
    mechanism: SumMechanism,
    *,
    count: int = 1,
) -> SumRelease:
    """Declare what ``Scores.mean_hessian`` releases; the bound is ``clip^2 weight_bound``."""
    return sum_release(
        "Hessian sum",
        data,
        adjacency,
        mechanism,
        bound=clip**2 * data.weight_bound,
        coordinates=n_symmetric(data.n_columns),
        count=count,
        directions=data.n_columns,
    )


def score_moment_release(
    data: DataSpec, adjacency: Adjacency, clip: float, mechanism: SumMechanism
) -> SumRelease:
    """Declare what ``Scores.mean_score_products`` releases: at most ``(clip weight_bound)^2``."""
    return sum_release(
        "sum of squared scores",
        data,
        adjacency,
        mechanism,
        bound=(clip * data.weight_bound) ** 2,
        coordinates=n_symmetric(data.n_columns),
        power=2,
    )


def _predictions(
    of_rows: _OfRows, z: NDArray[np.float64], v: NDArray[np.float64]
) -> NDArray[np.float64]:
    return of_rows.product(z, like(z, v)[:, None])[:, 0]
