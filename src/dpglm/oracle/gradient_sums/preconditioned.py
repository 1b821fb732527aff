"""The bounded sum of row gradients that are clipped in a public basis, and its release."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import derived_rows
from dpglm.data.rows import Rows
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec, FloatType
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release
from dpglm.oracle.row_sums.moments import rows_in_basis
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import SumMechanism, SumRelease
from dpglm.problem.loss import Loss, Target

__all__ = [
    "noisy_preconditioned_gradient",
    "preconditioned_release",
    "rows_turned",
    "type_in_basis",
]

_MANY_ENTRIES = 1 << 22
"""Of rows that are kept in single precision: 32 MB in double precision, more than fits caches."""
_LEAST_CLIP, _MOST_CLIP = 1e-10, 1e10


def type_in_basis(data: DataSpec, adjacency: Adjacency, loss: Loss, bound: float) -> FloatType:
    """Type of the rows in a basis: single precision where they are many and targets are classes.

    It halves what each step reads from memory. Its rounding is declared and, of up to 4000 classes,
    adds less than a thousandth to the sensitivity. It costs no accuracy where targets are classes;
    others may be far larger than their differences. ``bound`` limits a row's contribution. Public
    facts alone decide.
    """
    classifies = loss.target in (Target.BINARY, Target.CLASS)
    many = data.n_rows * data.n_columns >= _MANY_ENTRIES
    usual = _LEAST_CLIP <= bound <= _MOST_CLIP
    fixed = adjacency.rows_are_public(data.unit)
    return "float32" if classifies and many and usual and fixed else "float64"


def preconditioned_release(
    data: DataSpec,
    adjacency: Adjacency,
    dtype: FloatType,
    clip: float,
    mechanism: SumMechanism,
    count: int = 1,
) -> SumRelease:
    """Declare the releases that ``noisy_preconditioned_gradient`` makes of rows of a type."""
    if dtype == "float32":
        data = dataclasses.replace(data, dtype=dtype, sparse=False)
    return gradient_release(
        data,
        adjacency,
        FlatClipping(clip),
        mechanism,
        quantity="preconditioned gradient sum",
        count=count,
    )


def noisy_preconditioned_gradient(
    oracle: Oracle, declared: SumRelease, turned: Rows, v: NDArray[np.float64], clip: float
) -> NDArray[np.float64]:
    """Release the mean gradient with respect to v at ``w = B v``, clipped row by row.

    ``turned`` is ``rows_turned(oracle, B)``; ``clip`` bounds the L2 norm of ``l'(z_i) B^T x_i``.
    Declared by ``preconditioned_release`` for this clip; the divisor is the public n.

    Privacy: ``declared.event``; the contribution bound is ``clip * spec.weight_bound``, whatever
    the rows, the basis and v are, as the rows that are clipped are the computed ``B^T x_i``. They
    are dense. In float32 they are summed as ``sum_rounding`` says of such rows, by which they are
    declared. In float64 a block of at most 16384 of them is summed with an error below ``330 u``
    times the sum of the norms: runs of 64 rows, and at most 256 runs; ``sum_rounding`` allows for
    more whatever the rows were stored as (at least ``gamma_4096`` times 4096 rows for sparse ones).
    For rows on a device see ``dpglm.data.torch.tensors``.
    """

    def kernel(_: Rows) -> NDArray[np.float64]:
        rows = turned.bounded(declared.contribution_bound)
        return clipped_gradient_sum(rows, oracle.loss, FlatClipping(clip), v, oracle.map_blocks)

    return oracle.noisy_mean(declared, kernel, clip * oracle.rows.spec.weight_bound)


def rows_turned(oracle: Oracle, basis: NDArray[np.float64], dtype: FloatType = "float64") -> Rows:
    """Return the rows ``B^T x_i`` for a public matrix B, dense and of the type. Private.

    In float64, whose rounding is less, where B could make rows so long that float32 overflows.
    """
    rows, spec = oracle.rows, oracle.rows.spec
    row_by_row = not oracle.places_are_fixed
    longest = 2.0 * spec.augmented_row_norm * float(np.linalg.norm(basis))
    dtype = dtype if longest <= LARGEST else "float64"
    facts = dataclasses.replace(
        spec,
        n_features=basis.shape[1],
        row_norm=min(max(longest, SMALLEST), LARGEST),
        intercept=0.0,
        dtype=dtype,
        sparse=False,
    )
    return derived_rows(
        rows,
        lambda block: rows_in_basis(block, spec, basis, row_by_row, dtype),
        facts,
        oracle.map_blocks,
    )
