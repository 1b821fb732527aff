"""Bounded sums of weighted second moments of rows, and of their products with classes' codes."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import least_product, norm_margin, sum_release
from dpglm.oracle.row_sums.moments import (
    float_weights,
    n_symmetric,
    pack_symmetric,
    unpack_symmetric,
)
from dpglm.oracle.row_sums.weighted_moments import MomentSums, View, weighted_coordinates
from dpglm.oracle.unit_sums import crossed_of, products_of
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["code_length", "code_moment_release", "code_moments", "noisy_code_moments"]


def code_length(n_classes: int) -> float:
    """Length of a class's code, which is 1 at the class and 0 elsewhere, less 1/K everywhere."""
    return math.sqrt(1.0 - 1.0 / n_classes)


def code_moments(spec: DataSpec, view: View, share: float, row_by_row: bool) -> Kernel:
    """Return the kernel that sums ``f z z^T`` and ``f z c_y^T``, each in units of its bound.

    Privacy: with ``L = cap + level^2``, ``f |z|^2 <= L`` and ``f <= 1``, so ``f z z^T / L`` and
    ``f z c^T / (sqrt(L) |c|)`` are no longer than 1, whatever the row, its class and the number of
    classes are. With ``sqrt(share)`` and ``sqrt(1 - share)`` as factors a row contributes at most
    ``spec.weight_bound`` to both together. f has a margin for the error of the computed norm.
    """
    scale, shift = 1.0 / math.sqrt(view.longest), 1.0 / spec.n_outputs
    margin = norm_margin(view.vectors.shape[1] + spec.n_outputs)
    per_code = math.sqrt(1.0 - share) / code_length(spec.n_outputs)

    def block_sum(block: Block) -> NDArray[np.float64]:
        z, f = weighted_coordinates(block, spec, view, row_by_row)
        xp = namespace(z)
        f = margin * f * float_weights(block)
        z = scale * z
        matrix = math.sqrt(share) * pack_symmetric(products_of(block, f, z))
        labels = xp.arange(spec.n_outputs, device=z.device)
        codes = xp.asarray(block.targets[:, None] == labels, dtype=z.dtype) - shift
        vectors = per_code * crossed_of(block, codes * f[:, None], z)
        return cast(
            "NDArray[np.float64]",
            xp.concat([matrix, xp.reshape(vectors, (*matrix.shape[:-1], -1))], axis=-1),
        )

    return AnyArrays(block_sum, apart=True)


def code_moment_release(
    data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism, share: float
) -> SumRelease:
    """Declare the release that ``noisy_code_moments`` makes.

    Privacy: the contribution bound is ``data.weight_bound``. With ``a = sqrt(f) z / sqrt(L)``, so
    that ``t = <a, a'>`` is in [-1, 1], the inner product of two contributions of weight 1 is
    ``share t^2 + (1 - share) c t``, where ``c = sqrt(f f') <c_y, c_y'> / |c|^2`` is in [-1, 1]:
    ``least_product``. Rounding as for ``second_moment_release``.
    """
    return sum_release(
        "second moments and products with codes of classes",
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=n_symmetric(data.n_columns) + data.n_columns * data.n_outputs,
        opposition=least_product(1.0 - share, share),
    )


def noisy_code_moments(
    oracle: Oracle, declared: SumRelease, view: View, share: float
) -> MomentSums:
    """Release weighted second moments and products with codes, in their own units.

    The matrix is symmetric and may have negative eigenvalues; ``vector`` has the shape (size, K).
    """
    spec = oracle.rows.spec
    size, n_matrix = spec.n_columns, n_symmetric(spec.n_columns)
    row_by_row = not oracle.places_are_fixed
    kernel = code_moments(spec, view, share, row_by_row)
    total = oracle.over_blocks(kernel, declared.coordinates)
    values = oracle.noisy_sum(declared, total, spec.weight_bound)
    in_matrix = view.longest / math.sqrt(share)
    in_vectors = math.sqrt(view.longest / (1.0 - share)) * code_length(spec.n_outputs)
    return MomentSums(
        in_matrix * unpack_symmetric(values[:n_matrix], size),
        in_matrix * declared.noise_std,
        in_vectors * values[n_matrix:].reshape(spec.n_outputs, size).T,
        in_vectors * declared.noise_std,
        squares=0.0,
        squares_noise=0.0,
    )
