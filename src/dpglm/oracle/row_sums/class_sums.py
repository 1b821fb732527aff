"""Bounded sums of the rows of each class, and their numbers, in one release."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.rows import AnyArrays, Block, Kernel
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.rounding import norm_margin, sum_release
from dpglm.oracle.row_sums.moments import beside_constant, constant_column, float_weights
from dpglm.oracle.unit_sums import crossed_of
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease

__all__ = ["class_sum_release", "class_sums", "noisy_class_sums"]


def class_sums(spec: DataSpec) -> Kernel:
    """Return the kernel that sums the rows of each class beside a constant, in units of the bound.

    Privacy: a row enters the sum of one class only, so with R the row norm and c the constant it
    contributes at most its weight times ``|(x, c)| / sqrt(R^2 + c^2)``, whatever the number of
    classes is; longer rows are scaled down, with a margin for the error of the computed norm.
    """
    constant, margin = constant_column(spec), norm_margin(spec.n_features + 1)
    longest = math.hypot(spec.row_norm, constant)

    def block_sum(block: Block) -> NDArray[np.float64]:
        rows = beside_constant(block, constant)
        xp = namespace(rows)
        lengths = xp.sqrt((rows * rows).sum(axis=1))
        factors = margin / xp.maximum(lengths, xp.full_like(lengths, longest))
        labels = xp.arange(spec.n_outputs, device=rows.device)
        chosen = xp.asarray(block.targets[:, None] == labels, dtype=rows.dtype)
        factors = factors * float_weights(block)
        sums = crossed_of(block, chosen * factors[:, None], rows)
        flat: NDArray[np.float64] = xp.reshape(sums, (*sums.shape[:-2], -1))
        return flat

    return AnyArrays(block_sum, apart=True)


def class_sum_release(data: DataSpec, adjacency: Adjacency, mechanism: SumMechanism) -> SumRelease:
    """Declare the release that ``noisy_class_sums`` makes.

    Privacy: the contribution bound is ``data.weight_bound``. Rounding as for
    ``second_moment_release``.
    """
    return sum_release(
        "sums and counts of classes",
        data,
        adjacency,
        mechanism,
        bound=data.weight_bound,
        coordinates=(data.n_features + 1) * data.n_outputs,
    )


def noisy_class_sums(
    oracle: Oracle, declared: SumRelease
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Release sums of rows, of shape (K, n_features), and weights, of shape (K,), of K classes.

    In units of the longest row with its constant, and of the constant over it.
    """
    spec = oracle.rows.spec
    total = oracle.over_blocks(class_sums(spec), declared.coordinates)
    values = oracle.noisy_sum(declared, total, spec.weight_bound)
    sums = values.reshape(spec.n_outputs, spec.n_features + 1)
    return sums[:, :-1], sums[:, -1]
