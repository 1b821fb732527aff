"""The bounded sum of row gradients that are clipped in a public basis, and its release."""

from __future__ import annotations

import dataclasses
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import derived_rows
from dpglm.data.rows import Rows
from dpglm.data.spec import LARGEST, SMALLEST
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.oracle.row_sums.moments import rows_in_basis
from dpglm.privacy.curator import BoundedSum

__all__ = ["noisy_preconditioned_gradient"]


def noisy_preconditioned_gradient(
    oracle: Oracle,
    basis: NDArray[np.float64],
    v: NDArray[np.float64],
    clip: float,
    noise_multiplier: float,
) -> NDArray[np.float64]:
    """Release the mean gradient with respect to v at ``w = basis v``, clipped row by row.

    Parameters
    ----------
    oracle : Oracle
        Rows, loss and curator.
    basis : ndarray of shape (``spec.n_columns``, ``spec.n_columns``)
        Public matrix B. While it is the same object, rows in it are computed once and kept.
    v : ndarray, shape of the parameter
        Where gradients are taken, in the basis; public.
    clip : float
        Bound C on the L2 norm of a row's gradient ``l'(z_i) B^T x_i``.
    noise_multiplier : float
        Noise standard deviation over the sensitivity of the sum.

    Returns
    -------
    ndarray, shape of ``v``
        The noisy sum divided by the public n.

    Notes
    -----
    Privacy: one ``Gaussian(noise_multiplier)``; the contribution bound is
    ``clip * spec.weight_bound``, whatever the rows, the basis and v are, as the rows that are
    clipped are the computed ``B^T x_i``. They are dense and in float64, where a block of at most
    16384 of them is summed with an error below ``330 u`` times the sum of the norms: runs of 64
    rows, and at most 256 runs. ``sum_rounding`` allows for more whatever the rows were stored as
    (at least ``gamma_4096`` times 4096 rows for sparse ones). For rows on a device see
    ``dpglm.data.torch.tensors``.
    """
    spec = oracle.rows.spec
    bound = clip * spec.weight_bound
    total = BoundedSum(
        clipped_gradient_sum(
            _kept_rows(oracle, basis), oracle.loss, FlatClipping(clip), v, oracle.map_blocks
        ),
        contribution_bound=bound,
        magnitude=sum_magnitude(spec, oracle.curator.adjacency, bound),
        rounding=sum_rounding(spec, oracle.curator.adjacency, bound),
    )
    return oracle.curator.release_gaussian(total, noise_multiplier) / spec.n_rows


# Rows in the basis that was asked for last; gone when the oracle, hence the run, is gone.
_KEPT: WeakKeyDictionary[Oracle, tuple[NDArray[np.float64], Rows]] = WeakKeyDictionary()


def _kept_rows(oracle: Oracle, basis: NDArray[np.float64]) -> Rows:
    kept = _KEPT.get(oracle)
    if kept is not None and kept[0] is basis:
        return kept[1]
    rows = _turned(oracle, basis)
    _KEPT[oracle] = (basis, rows)
    return rows


def _turned(oracle: Oracle, basis: NDArray[np.float64]) -> Rows:
    rows, spec = oracle.rows, oracle.rows.spec
    row_by_row = not oracle.curator.adjacency.n_is_public
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
