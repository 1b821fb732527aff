"""Bounded sums of scores in a public basis, with the curvature and the spread of scores there."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np

from dpglm._validation import Array, finite, like, namespace
from dpglm.data.compiled.kernels import ScoreSum, row_by_row_product, score_sum
from dpglm.data.rows import AnyArrays, Block, DataSpec, Kernel
from dpglm.oracle import moments
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import RowSum, norm_margin, slack_of_row, sums_and_slack
from dpglm.privacy.budget import Unit
from dpglm.privacy.releases import SumRelease
from dpglm.problem import Logistic
from dpglm.problem.loss import Loss

# Weight of the scores' variance relative to the Hessian: errors are inversely proportional to
# curvature, but proportional only to the root of the variance.
_LESS_VARIANCE = 0.5
_SHORTEST, _LONGEST = 1e-280, 1e280  # Squares that sums and ratios neither lose nor overflow.
# Parts of a bound for long rows, their loss of weight, residuals that are not clipped, and the
# columns' shares of long rows: so small that few scores leave less slack.
_LIMITS, _LONG_IN_COLUMN = np.array([0.25, 0.25, 0.5]), 0.25
_LONG = 1.0 - 2.0**-40  # A row with a weight below this is long; rounding alone lowers it less.


@final
@dataclass(frozen=True, eq=False)
class ClippedScores:
    """How a row's score enters a sum: all of it public.

    ``z = basis^T x`` and ``f = min(1, clip / |z|, square / |z|^2)``. A row's score is ``f s z``, s
    its slope cut to ``[-slope, slope]``; its part of the Hessian is ``f h z z^T``, h its curvature,
    at most ``curvature``; of the scores' variance in a right model it is ``f^2 h z z^T``. As f
    depends on x alone, the expected score at the true parameter of a right model is zero, as long
    as slopes are not cut.

    Privacy: in units of ``slope`` a score is at most ``clip`` long, as ``f |z| <= clip``. In units
    of ``curvature`` a part of the Hessian is at most ``square`` in Frobenius norm, as ``f |z|^2 <=
    square``, and of the variance at most ``clip^2``. z is the computed product, and the margin
    covers the error of its norm.
    """

    basis: Array
    clip: float
    square: float
    slope: float
    curvature: float
    # Where scores of groups are cut, and those that are squared, in units of their declared bound.
    within: float = 1.0
    squares_within: float = 1.0

    @property
    def reach(self) -> float:
        """Value of one unit of a released score."""
        return self.slope * self.within

    def mean_length(self, oracle: Oracle, declared: SumRelease, v: Array) -> tuple[float, float]:
        """Release the mean length of the groups' scores at v, in units of a row's bound.

        Declared by ``LENGTHS``; returned with the standard deviation of the noise. Lengths
        are cut at m such units, m the typical number of rows of a group.
        """
        groups = oracle.rows.spec.groups
        assert groups is not None
        scores, most = self._at(oracle, v).score_sum, groups.rows
        unit = most * self.clip * oracle.rows.spec.weight_bound

        def lengths(block: Block) -> Array:
            found = np.linalg.norm(scores(block), axis=-1, keepdims=True)
            return cast("Array", np.minimum(found / unit, 1.0))

        kernel = AnyArrays(lengths, apart=True)
        total = float(oracle.noisy_sum(declared, lambda rows: rows.sum(kernel, (1,)), 1.0)[0])
        per_group = most / groups.n_groups
        return per_group * total, per_group * declared.noise_std

    def mean_score(self, oracle: Oracle, declared: SumRelease, v: Array) -> Array:
        """Release the mean score at ``w = basis v``; declared by ``sum_of_scores``."""
        spec, kernel = oracle.rows.spec, AnyArrays(self._at(oracle, v).score_sum, apart=True)
        total = sum_of_scores(spec, self.clip).noisy(oracle, declared, kernel, self.within)
        return self.slope * total / spec.n_rows

    def mean_score_and_limits(
        self, oracle: Oracle, declared: SumRelease, v: Array, columns: Array, *, cuts_slopes: bool
    ) -> tuple[Array, Array, Array]:
        """Release the mean score with, in the slack of scores, on how many rows the limits bind.

        Declared by ``score_with_limits``. The last two are as from ``read_limits``. ``cuts_slopes``
        says whether to count the slopes that are not clipped.
        """
        spec, unit = oracle.rows.spec, self.clip * self.within
        at = functools.partial(self._at(oracle, v).score_and_limits, columns, cuts_slopes)
        sums, kernel = score_with_limits(spec, self.clip), AnyArrays(at, apart=True)
        total = sums.noisy(oracle, declared, kernel, self.within)
        score, met = np.split(total, [spec.n_columns])
        found = read_limits(spec, met, self.within * declared.noise_std, unit)
        return self.slope * score / spec.n_rows, *found

    def mean_curvatures(
        self, oracle: Oracle, declared: SumRelease, v: Array, *, with_variance: bool = False
    ) -> list[Array]:
        """Release the mean Hessian at ``w = basis v``; declared by ``curvature_sum``.

        Noise has the declared standard deviation times ``curvature`` over n on the diagonal, and
        ``1 / sqrt(2)`` of it elsewhere. With the variance, the mean variance of scores under a
        right model follows, with twice that noise.
        """
        at, size = self._at(oracle, v), self.basis.shape[1]
        every: tuple[tuple[ScoreSum, float], ...] = (
            ("curvature", 1.0),
            ("variance", 1.0 / _LESS_VARIANCE),
        )
        asked = every[: 1 + with_variance]

        def block_sums(block: Block) -> Array:
            sums = [at.product_sum(of, block) / unit for of, unit in asked]
            return sums[0] if len(sums) == 1 else namespace(sums[0]).concat(sums, axis=-1)

        sums = curvature_sum(oracle.rows.spec, self.clip, self.square, with_variance=with_variance)
        values = self._mean_products(oracle, declared, block_sums, sums)
        return [
            unit * self.curvature * moments.unpack_symmetric(part, size)
            for part, (_, unit) in zip(values.reshape(len(asked), -1), asked, strict=True)
        ]

    def mean_score_products(self, oracle: Oracle, declared: SumRelease, v: Array) -> Array:
        """Release the mean of scores times their transposes, at ``w = basis v``.

        The scores of a group's rows are added up first, where rows are in groups; the mean is that
        over rows. ``score_product_sum`` declares it. Noise equals that of ``mean_hessian`` in
        units of ``slope**2``.
        """
        at, of_groups = self._at(oracle, v), oracle.rows.unit is Unit.GROUP

        def products(block: Block) -> Array:
            if not of_groups:
                return at.product_sum("squares", block)
            scores = at.score_sum(block)
            return moments.pack_symmetric(scores[..., :, None] * scores[..., None, :])

        within = self.squares_within**2 if of_groups else 1.0
        sums = score_product_sum(oracle.rows.spec, self.clip)
        values = self._mean_products(oracle, declared, products, sums, within)
        return self.slope**2 * moments.unpack_symmetric(values, self.basis.shape[1])

    def _mean_products(
        self,
        oracle: Oracle,
        declared: SumRelease,
        block_sum: Kernel,
        sums: RowSum,
        within: float = 1.0,
    ) -> Array:
        # Rows in groups are NumPy's; curvature is not known of tensors.
        if oracle.rows.unit is Unit.GROUP:
            block_sum = AnyArrays(block_sum, apart=True)
        return sums.noisy(oracle, declared, block_sum, within) / oracle.rows.spec.n_rows

    def _at(self, oracle: Oracle, v: Array) -> _AtPoint:
        product = operator.matmul if oracle.places_are_fixed else row_by_row_product
        return _AtPoint(self, oracle.loss, oracle.rows.spec, v, product)


@final
@dataclass(frozen=True, eq=False)
class _AtPoint:
    """Kernels of scores at a public point, without the rows, to be sent to workers.

    Where other rows may shift, products of rows and a matrix do not depend on their places.
    """

    scores: ClippedScores
    loss: Loss
    spec: DataSpec
    v: Array
    product: Callable[[Array, Array], Array]

    def score_sum(self, block: Block) -> Array:
        """Sum scores, in units of ``slope``."""
        compiled = self._compiled_sum("scores", block)
        if compiled is not None:
            return compiled
        total: Any = 0.0
        for z, f, targets, weights in self._runs(block):
            total = total + moments.sum_of(block, f * self._slopes(z, targets) * weights, z)
        return cast("Array", total)

    def product_sum(self, of: ScoreSum, block: Block) -> Array:
        """Sum z z^T, each times its factor; packed."""
        total: Any = self._compiled_sum(of, block)
        if total is not None:
            return moments.pack_symmetric(total)
        total = 0.0
        for z, f, targets, weights in self._runs(block):
            if of == "squares":
                factors = (f * weights * self._slopes(z, targets)) ** 2
            else:
                factors = f * weights * self._bends(z, targets)
                factors = factors * f if of == "variance" else factors
            total = total + moments.products_of(block, factors, z)
        return moments.pack_symmetric(total)

    def score_and_limits(self, columns: Array, cuts_slopes: bool, block: Block) -> Array:
        """Sum scores, in units of ``slope``, and ``limits_of`` in their slack."""
        total: Any = 0.0
        met: Any = 0.0
        scores = self.scores
        margin = norm_margin(scores.basis.shape[1])
        for z, f, targets, weights in self._runs(block):
            xp, slopes = namespace(z), self._slopes(z, targets)
            total = total + moments.sum_of(block, f * slopes * weights, z)
            squares = (f * slopes / scores.clip) ** 2 * xp.einsum("ij,ij->i", z, z)
            kept = xp.abs(slopes) < (1.0 if cuts_slopes else 0.0)
            limits = limits_of(f / margin, self.product(z, like(z, columns)), kept)
            limits = slack_of_row(self.spec, squares, limits)
            met = met + moments.sum_of(block, xp.ones_like(f) * weights, limits)
        return cast("Array", sums_and_slack(self.spec, total, met, scores.clip * scores.within))

    def _compiled_sum(self, of: ScoreSum, block: Block) -> Array | None:
        """Return the sum over a block's rows in one pass; None where no compiled code knows it.

        Privacy: a row's contribution is computed as below, by the same operations wherever the row
        stands, and 64 rows' are added up before others are: at most 400 additions for each block.
        """
        if block.starts is not None or type(self.loss) is not Logistic:
            return None
        scores = self.scores
        margin = norm_margin(scores.basis.shape[1])
        limits = (scores.slope, scores.curvature, scores.clip, scores.square, margin)
        rows = (block.features(), scores.basis, self.spec.intercept)
        return score_sum(of, limits, *rows, self.v, block.targets, block.weights)

    def _runs(self, block: Block) -> Iterator[tuple[Array, Array, Array, Array | float]]:
        """Yield a block's rows in the basis, with f, targets and weights, in float64, by runs."""
        spec, scores = self.spec, self.scores
        margin, features = norm_margin(scores.basis.shape[1]), block.features()
        xp = namespace(features)
        basis = like(features, scores.basis)
        for start in range(0, len(features), moments.RUN_ROWS):
            run = slice(start, start + moments.RUN_ROWS)
            rows = xp.asarray(features[run], dtype=xp.float64)
            z = self.product(rows, basis[: spec.n_features])
            if spec.intercept > 0.0:
                z += spec.intercept * basis[spec.n_features]
            squares = xp.einsum("ij,ij->i", z, z)
            longer = xp.maximum(xp.sqrt(squares) / scores.clip, squares / scores.square)
            factors = margin / xp.maximum(longer, xp.ones_like(longer))
            targets = xp.asarray(block.targets[run], dtype=xp.float64)
            weights = block.weights
            yield (
                z,
                factors,
                targets,
                (1.0 if weights is None else xp.asarray(weights[run], dtype=xp.float64)),
            )

    def _slopes(self, z: Array, targets: Array) -> Array:
        """Slopes in units of the largest that counts, at most 1."""
        slopes = finite(self.loss.slope(self._predictions(z), targets))
        slopes /= self.scores.slope
        cut: Array = namespace(slopes).clip(slopes, -1.0, 1.0, out=slopes)
        return cut

    def _bends(self, z: Array, targets: Array) -> Array:
        """Curvature in units of the largest that counts, from 0 to 1."""
        bends = finite(self.loss.curvature(self._predictions(z), targets))
        cut: Array = namespace(bends).clip(bends / self.scores.curvature, 0.0, 1.0)
        return cut

    def _predictions(self, z: Array) -> Array:
        return self.product(z, like(z, self.v)[:, None])[:, 0]


def sum_of_scores(data: DataSpec, clip: float) -> RowSum:
    """Sum of ``ClippedScores.mean_score``."""
    return RowSum("score sum", data.n_columns, clip)


def score_with_limits(data: DataSpec, clip: float) -> RowSum:
    """Sum of ``ClippedScores.mean_score_and_limits``."""
    return sum_of_scores(data, clip).with_slack(n_limits(data))


LENGTHS = RowSum("lengths of group scores", 1, weighted=False, power=0, opposition=0.0)
"""Sum of ``ClippedScores.mean_length``: a group contributes a number from 0 to 1."""


def limits_of(f: Any, u: Any, kept: Any) -> Array:
    """Return the contributions of rows to counts of limits, of shape (n, ``n_limits``). Private.

    These are: whether a row is so long that it counts less; by how much less (``1 - f``); whether
    its residual is unclipped (clipped ones may leave no slack); and for a long row the columns'
    shares ``u_j^2 / |u|^2`` in its squared norm, u its standardised columns. Each is multiplied by
    its part of the bound on a score.

    Privacy: no number is negative, as ``RowSum.with_slack`` asks. ``within_slack`` bounds them.
    """
    xp, is_long = namespace(u), f < _LONG
    met = xp.stack([is_long, 1.0 - xp.clip(f, 0.0, 1.0), kept], axis=1)
    met = xp.asarray(met, dtype=xp.float64) * like(u, _LIMITS)
    squares = xp.clip(u**2, 0.0, _LONGEST)
    totals = xp.clip(xp.sum(squares, axis=1, keepdims=True), _SHORTEST, math.inf)
    shares = squares / totals * xp.asarray(is_long, dtype=xp.float64)[:, None]
    return cast("Array", xp.concat([met, _LONG_IN_COLUMN * shares], axis=1))


def n_limits(data: DataSpec) -> int:
    """Return the length of ``limits_of``."""
    return len(_LIMITS) + data.n_features


def read_limits(
    data: DataSpec, values: Array, noise: float, bound: float = 1.0
) -> tuple[Array, Array]:
    """Return released sums of ``limits_of`` as counts, with the standard deviations of their noise.

    ``bound`` is that of ``sums_and_slack``.
    """
    units = np.append(_LIMITS, np.full(data.n_features, _LONG_IN_COLUMN))
    units = units * bound * (data.reach() / (1.0 if data.groups is None else data.groups.rows))
    return values / units, noise / units


def curvature_sum(
    data: DataSpec, clip: float, square: float, *, with_variance: bool = False
) -> RowSum:
    """Sum of Hessians, and of the variance of scores.

    Privacy: a Hessian is at most ``square`` in Frobenius norm, the variance at most ``clip^2``
    and counts half. Both are ``z z^T`` times a factor of at least 0, so no inner product is
    negative.
    """
    return RowSum(
        "Hessians and variances of scores" if with_variance else "Hessian sum",
        (1 + with_variance) * moments.n_symmetric(data.n_columns),
        curvature_bound(clip, square, with_variance=with_variance),
        directions=data.n_columns,
        opposition=0.0,
    )


def curvature_bound(clip: float, square: float, *, with_variance: bool) -> float:
    """Bound on a row's part of the Hessian, or of that and of the scores' variance."""
    return math.hypot(square, _LESS_VARIANCE * clip**2) if with_variance else square


def score_product_sum(data: DataSpec, clip: float) -> RowSum:
    """Sum of ``h h^T`` over scores h, or over groups' sums of scores.

    Privacy: the inner product of ``h h^T`` and ``k k^T`` is ``<h, k>^2``.
    """
    bound, size = (clip * data.weight_bound) ** 2, moments.n_symmetric(data.n_columns)
    return RowSum("sum of squared scores", size, bound, weighted=False, power=2, opposition=0.0)
