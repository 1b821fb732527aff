"""The bounded sum of row gradients that are clipped in a public basis, and its release."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import derived_rows
from dpglm.data.rows import Rows
from dpglm.data.spec import LARGEST, SMALLEST
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.row_sums.moments import rows_in_basis
from dpglm.privacy.releases import SumRelease

__all__ = ["noisy_preconditioned_gradient", "rows_turned"]


def noisy_preconditioned_gradient(
    oracle: Oracle, declared: SumRelease, turned: Rows, v: NDArray[np.float64], clip: float
) -> NDArray[np.float64]:
    """Release the mean gradient with respect to v at ``w = B v``, clipped row by row.

    ``turned`` is ``rows_turned(oracle, B)``; ``clip`` bounds the L2 norm of ``l'(z_i) B^T x_i``.
    Declared by ``gradient_release`` for this clip; the divisor is the public n.

    Privacy: ``declared.event``; the contribution bound is ``clip * spec.weight_bound``, whatever
    the rows, the basis and v are, as the rows that are clipped are the computed ``B^T x_i``. They
    are dense and in float64, where a block of at most 16384 of them is summed with an error below
    ``330 u`` times the sum of the norms: runs of 64 rows, and at most 256 runs. ``sum_rounding``
    allows for more whatever the rows were stored as (at least ``gamma_4096`` times 4096 rows for
    sparse ones). For rows on a device see ``dpglm.data.torch.tensors``.
    """

    def kernel(_: Rows) -> NDArray[np.float64]:
        rows = turned.bounded(declared.contribution_bound)
        return clipped_gradient_sum(rows, oracle.loss, FlatClipping(clip), v, oracle.map_blocks)

    return oracle.noisy_mean(declared, kernel, clip * oracle.rows.spec.weight_bound)


def rows_turned(oracle: Oracle, basis: NDArray[np.float64]) -> Rows:
    """Return the rows ``B^T x_i`` for a public matrix B, dense and in float64. Private."""
    rows, spec = oracle.rows, oracle.rows.spec
    row_by_row = not oracle.places_are_fixed
    longest = 2.0 * spec.augmented_row_norm * float(np.linalg.norm(basis))
    facts = dataclasses.replace(
        spec,
        n_features=basis.shape[1],
        row_norm=min(max(longest, SMALLEST), LARGEST),
        intercept=0.0,
        dtype="float64",
        sparse=False,
    )
    return derived_rows(
        rows,
        lambda block: rows_in_basis(block, spec, basis, row_by_row),
        facts,
        oracle.map_blocks,
    )
