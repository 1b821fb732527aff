"""A law: whatever the numbers of a row are, its contribution is within the clip norm."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from dpglm.data import torch as tensors
from dpglm.data.compiled import kernels
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.clipping import AutomaticClipping, BalancedClipping, Clipping, FlatClipping
from dpglm.oracle.gradients import clipped_difference_sum, clipped_gradient_sum
from dpglm.oracle.rounding import contribution_rounding
from dpglm.problem import (
    Hinge,
    Huber,
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
)

LOSSES: list[tuple[Loss, int]] = [
    (Logistic(), 1),
    (Squared(), 1),
    (Huber(1e10), 1),
    (SquaredHinge(), 1),
    (Poisson(), 1),
    (Softmax(), 3),
    (OneVsRest(Hinge(), 3), 3),
    (OneVsRest(SquaredHinge(), 3), 3),
]
CLIPPINGS: list[Clipping] = [
    FlatClipping(1.0),
    FlatClipping(1e-12),
    FlatClipping(1e12),
    AutomaticClipping(1.0),
    AutomaticClipping(1e6, stability=1e-30),
    BalancedClipping(1.0),
    BalancedClipping(1e-12),
]
STORES = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csr": sparse.csr_array,
    "tensor": torch.as_tensor,
}
ROWS, ENTRIES = 96, 3


def anywhere(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of every order of magnitude that a type has, those below its normal range too."""
    limits = np.finfo(dtype)
    least, most = math.log10(float(limits.smallest_subnormal)), math.log10(float(limits.max))
    return rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(least, most, shape)


def hostile_rows(
    rng: np.random.Generator, loss: Loss, outputs: int, layout: str, dtype: str
) -> Rows:
    """Rows without shared columns, so that their sum contains each contribution."""
    entries = anywhere(rng, (ROWS, ENTRIES), dtype)
    # In some rows all are of the same order of magnitude.
    entries[::2] = entries[::2, :1] * rng.uniform(-1.0, 1.0, entries[::2].shape)
    X = np.zeros((ROWS, ROWS * ENTRIES), dtype)
    X.reshape(ROWS, ROWS, ENTRIES)[np.arange(ROWS), np.arange(ROWS)] = entries
    low, high = loss.target.bounds if outputs == 1 else (0.0, 0.0)
    spec = DataSpec(
        n_rows=ROWS,
        n_features=X.shape[1],
        n_outputs=outputs,
        row_norm=1e15,
        dtype=dtype,  # type: ignore[arg-type]
        sparse=layout == "csr",
        target_low=max(low, -1e15),
        target_high=min(high, 1e15),
    )
    if outputs > 1:
        y = rng.integers(0, outputs, ROWS)
    elif loss.target.value == "binary":
        y = rng.choice([-1.0, 1.0], ROWS)
    else:
        y = np.clip(anywhere(rng, (ROWS,), "float32"), spec.target_low, spec.target_high)
    return prepare_rows(STORES[layout](X), y, spec)


def hostile_parameter(rng: np.random.Generator, rows: Rows) -> np.ndarray:
    """Entries of every order of magnitude; of some rows those that make exponentials large.

    They are finite in the type of predictions: an infinite one makes all slopes zero.
    """
    dtype = "float64" if rows.spec.sparse else rows.spec.dtype
    w = anywhere(rng, rows.spec.coefficient_shape, dtype)
    X = np.concatenate([np.asarray(block.features(), np.float64) for block in rows.blocks()])
    first = X[np.arange(ROWS), np.arange(ROWS) * ENTRIES]
    with np.errstate(over="ignore", divide="ignore"):
        steep = rng.uniform(-710.0, 710.0, ROWS) / first
    of_rows = w.reshape(ROWS, ENTRIES, -1)
    chosen = (np.abs(steep) < np.finfo(dtype).max) & (rng.random(ROWS) < 0.5)
    of_rows[chosen] = 0.0
    of_rows[chosen, 0] = steep[chosen, np.newaxis]
    return w


def largest_excess(rows: Rows, total: np.ndarray, bound: float) -> float:
    """Return the largest contribution over its bound, rounding included."""
    spec = rows.spec
    contributions = np.abs(total).reshape(ROWS, -1)
    tops = np.maximum(contributions.max(axis=1), 1e-300)
    lengths = tops * np.linalg.norm(contributions / tops[:, np.newaxis], axis=1)
    norms = np.concatenate([np.asarray(block.norms, np.float64) for block in rows.blocks()])
    tiny = float(np.finfo(spec.dtype).tiny)
    # The absolute part is that of ``dpglm.oracle.rounding``.
    absolute = tiny * (8.0 * math.sqrt(spec.n_outputs) * norms + 4.0 * math.sqrt(total.size))
    allowed = bound * (1.0 + contribution_rounding(spec)) + absolute
    return float((lengths / allowed).max())


def every_case(rng: np.random.Generator, layout: str, dtype: str, times: int) -> float:
    worst = 0.0
    for loss, outputs in LOSSES:
        for _ in range(times):
            rows = hostile_rows(rng, loss, outputs, layout, dtype)
            w, anchor = (hostile_parameter(rng, rows) for _ in range(2))
            for clipping in CLIPPINGS:
                total = clipped_gradient_sum(rows, loss, clipping, w)
                worst = max(worst, largest_excess(rows, total, clipping.bound))
                total = clipped_difference_sum(rows, loss, clipping, 0.1, w, anchor)
                worst = max(worst, largest_excess(rows, total, 0.1))
    return worst


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("layout", STORES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hostile_rows_stay_within_the_clip_norm(monkeypatch, layout, dtype, compiled):
    if not compiled:
        monkeypatch.setattr(kernels, "_library", None)
        monkeypatch.setattr(tensors, "_is_host", lambda device: False)
    assert 0.99 < every_case(np.random.default_rng(11), layout, dtype, 2) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("layout", STORES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_hostile_rows_stay_within_the_clip_norm(monkeypatch, layout, dtype):
    assert every_case(np.random.default_rng(12), layout, dtype, 40) <= 1.0
    monkeypatch.setattr(kernels, "_library", None)
    monkeypatch.setattr(tensors, "_is_host", lambda device: False)
    assert every_case(np.random.default_rng(13), layout, dtype, 40) <= 1.0


def test_a_sparse_float32_row_that_is_almost_zero_is_clipped():
    # Clip 1, and a contribution of 1.36e91: in float32 the quotient of the two was infinite.
    spec = DataSpec(1, 1, row_norm=1.0, dtype="float32", sparse=True, target_high=1.0)
    rows = prepare_rows(sparse.csr_array(np.array([[1e-45]], np.float32)), np.ones(1), spec)
    total = clipped_gradient_sum(rows, Poisson(), FlatClipping(1.0), np.array([4.97e47]))
    assert 0.4 <= abs(total[0]) <= 1.0


def test_the_law_sees_a_quotient_in_float32(monkeypatch):
    def scale(self, slopes, row_norms):
        if slopes.ndim > 1:
            return Clipping.scale(self, slopes, row_norms)
        limits = np.divide(float(self.bound), row_norms)
        return np.clip(slopes, -limits, limits, out=slopes)

    monkeypatch.setattr(FlatClipping, "scale", scale)
    monkeypatch.setattr(kernels, "_library", None)
    assert every_case(np.random.default_rng(11), "csr", "float32", 2) > 1e9


def test_a_scaled_slope_that_overflows_counts_as_zero():
    slopes, norms = np.array([1e37, 1.0], np.float32), np.array([1e-44, 1.0], np.float32)
    with np.errstate(over="ignore"):
        scaled = AutomaticClipping(1.0).scale(slopes, norms)
    assert scaled[0] == 0.0
    assert scaled[1] == pytest.approx(1 / 1.01)
