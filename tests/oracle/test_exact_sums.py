"""Computed and exact sums, in rational arithmetic: errors stay within the declared bound."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dpglm import _validation as _arrays
from dpglm.data import torch as tensors
from dpglm.data.collection import Preparation
from dpglm.data.compiled import kernels
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.data.stream.stored import MappedRows
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import contribution_rounding, sum_rounding
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.problem import OneVsRest, Problem, Softmax, Squared, SquaredHinge
from dpglm.solvers import NoisyGD
from tests.laws.budgets import examples
from tests.planted import pythonic
from tests.slowly import together

BACKENDS = {
    "compiled, C": np.ascontiguousarray,
    "compiled, F": np.asfortranarray,
    "compiled, csr": sparse.csr_array,
    "NumPy, C": np.ascontiguousarray,
    "NumPy, F": np.asfortranarray,
    "SciPy, csr": sparse.csr_array,
    "tensor": torch.as_tensor,
    "streamed": np.ascontiguousarray,
}
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
# Rows and targets of twelve bits: where predictions are zero, contributions are exact.
BITS = 2.0**-11
# One run of rows, a run and one row more, more than one compiled chunk.
SIZES = (64, 65, 700)
N_CLASSES = 4


def in_python(backend):
    if backend == "tensor":
        return mock.patch.object(tensors, "_is_host", return_value=False)
    return contextlib.nullcontext() if backend.startswith("compiled") else pythonic()


def spec_of(X, backend, dtype, n_outputs=1, **facts):
    return DataSpec(
        n_rows=len(X),
        n_features=X.shape[1],
        n_outputs=n_outputs,
        dtype=dtype,
        sparse="csr" in backend,
        **{"row_norm": 4.0, "target_low": -1.0, "target_high": 1.0, **facts},
    )


def rows_of(X, y, backend, spec, weights=None) -> Rows:
    X = X.astype(spec.dtype)
    if backend == "streamed":
        return MappedRows(X, y, weights).prepared(Preparation(spec, None, lambda values: values))
    return prepare_rows(BACKENDS[backend](X), y, spec, weights=weights)


def computed(rows, backend, loss, clip=1e3):
    with in_python(backend):
        zero = np.zeros(rows.spec.coefficient_shape)
        return clipped_gradient_sum(rows, loss, FlatClipping(clip), zero)


def exact(X, y, n_outputs):
    """The sum itself, entry by entry, as fractions."""
    if n_outputs == 1:
        slopes = [[-Fraction(float(one))] for one in y]
    else:
        slopes = [[Fraction(1, n_outputs) - (k == one) for k in range(n_outputs)] for one in y]
    return [
        sum(Fraction(float(x)) * slope[k] for x, slope in zip(column, slopes, strict=True))
        for column in X.T
        for k in range(n_outputs)
    ]


def squared(vector):
    return sum(entry * entry for entry in vector)


def adversarial(draw, n, n_outputs):
    """Rows with large partial sums and a small sum, and the like."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    sign = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    kind = draw(st.sampled_from(["cancelling", "halves", "growing", "far apart"]))
    y = {
        "cancelling": sign * (1.0 - BITS * rng.integers(0, 9, n)),
        "halves": np.where(np.arange(n) < n // 2, 1.0, -1.0 + BITS),
        "growing": (np.arange(n) + 1.0) % 2048 * BITS,
        "far apart": np.where(rng.random(n) < 0.5, 1.0, BITS) * sign,
    }[kind]
    X = rng.integers(1, 2048, size=(n, 3)) * BITS
    order = rng.permutation(n) if draw(st.booleans()) else np.arange(n)
    return X[order], y[order] if n_outputs == 1 else rng.integers(0, n_outputs, n)


def error_bound(spec, largest):
    """What ``sum_rounding`` says of one computed sum, for all runs and blocks and not just one."""
    whole = sum_rounding(spec, Adjacency.ZERO_OUT, largest)
    within = 0.5 * (whole - largest * contribution_rounding(spec))
    return within * -(-spec.n_rows // 64)


@every_backend
@every_dtype
@pytest.mark.parametrize("n_outputs", [1, N_CLASSES])
@examples(3)
@given(data=st.data())
def test_a_sum_errs_by_no_more_than_was_declared(backend, dtype, n_outputs, data):
    n = data.draw(st.sampled_from(SIZES))
    X, y = adversarial(data.draw, n, n_outputs)
    spec = spec_of(X, backend, dtype, n_outputs)
    loss = Squared() if n_outputs == 1 else Softmax()
    total = computed(rows_of(X, y, backend, spec), backend, loss)
    pairs = zip(total.ravel(), exact(X, y, n_outputs), strict=True)
    errors = [Fraction(float(a)) - b for a, b in pairs]
    assert squared(errors) <= Fraction(error_bound(spec, np.sqrt(6.0))) ** 2


@every_backend
@every_dtype
@examples(3)
@given(data=st.data())
def test_neighbour_distance_is_within_bound_in_exact_arithmetic(backend, dtype, data):
    n = data.draw(st.sampled_from(SIZES))
    X, y = adversarial(data.draw, n, 1)
    row = data.draw(st.integers(0, n - 1))
    # A direction and a clip that are not short fractions.
    X[row], y[row] = data.draw(st.sampled_from([1e30, 1.0, 5e-324])), 1.0
    clip = data.draw(st.sampled_from([1.0 / 3.0, 1e-30, 1e4]))
    spec = spec_of(X, backend, dtype)
    heavy, light = np.ones(n), np.ones(n)
    light[row] = 0.0
    sums = [
        computed(rows_of(X, y, backend, spec, weights), backend, Squared(), clip)
        for weights in (heavy, light)
    ]
    distance = squared(Fraction(float(a)) - Fraction(float(b)) for a, b in zip(*sums, strict=True))
    bound = Fraction(clip) + Fraction(sum_rounding(spec, Adjacency.ZERO_OUT, clip))
    assert distance <= bound**2


def test_without_the_rounding_term_the_bound_would_not_hold():
    X = np.full((64, 3), 1.0 / 3.0)
    y = np.ones(64)
    spec = spec_of(X, "NumPy, C", "float32")
    light = np.ones(64)
    light[5] = 0.0
    beyond = 0
    for clip in (0.1, 0.25, 0.3, 0.7):
        sums = [
            computed(rows_of(X, y, "NumPy, C", spec, weights), "NumPy, C", Squared(), clip)
            for weights in (np.ones(64), light)
        ]
        pairs = zip(*sums, strict=True)
        distance = squared(Fraction(float(a)) - Fraction(float(b)) for a, b in pairs)
        beyond += distance > Fraction(min(clip, np.sqrt(1.0 / 3.0))) ** 2
        assert distance <= Fraction(clip + sum_rounding(spec, Adjacency.ZERO_OUT, clip)) ** 2
    assert beyond


# Repairs of one row must not change the sums over others.


@pytest.mark.parametrize("layout", ["strided", "row slice", "one column of many", "backwards"])
@every_dtype
def test_shortened_row_leaves_other_contributions_unchanged(layout, dtype):
    """Another layout once took sums over all rows another way: 0.003 of a clip for 10^6 rows."""
    rng = np.random.default_rng(0)
    base = rng.uniform(0.2, 0.3, size=(3000, 10)).astype(dtype)
    cut = {
        "strided": lambda M: M[:, ::2],
        "row slice": lambda M: M[:, :5],
        "one column of many": lambda M: np.asfortranarray(M)[:, :1],
        "backwards": lambda M: M[::-1],
    }[layout]
    weights = np.ones(3000)
    weights[[7, -8]] = 0.0
    sums = []
    for value in (0.1, 3.0):
        base[[7, -8]] = value
        X = cut(base)
        spec = DataSpec(n_rows=3000, n_features=X.shape[1], dtype=dtype)
        rows = prepare_rows(X, np.full(3000, 0.4), spec, weights=weights)
        w = np.full(X.shape[1], 1.0 / 3.0)
        sums.append(clipped_gradient_sum(rows, Squared(), FlatClipping(1.0), w))
    np.testing.assert_array_equal(*sums)


# Weights.


@every_backend
@every_dtype
@together("given_weights", [None, np.full(5, 9.0)], ids=["none", "heavy"])
@together("weight_bound", [0.1, 0.5, 1.0 / 3.0])
def test_no_row_weighs_more_than_the_bound(backend, dtype, given_weights, weight_bound):
    """Rows without weights once counted as one where less was declared: half the noise for 0.5."""
    X = np.full((5, 2), 0.5)
    spec = spec_of(X, backend, dtype, weight_bound=weight_bound)
    for block in rows_of(X, np.ones(5), backend, spec, given_weights).blocks():
        weights = np.asarray(block.weights)
        assert all(0 < Fraction(float(one)) <= Fraction(weight_bound) for one in weights)
        assert weights.min() > 0.999999 * weight_bound


# Bounds near the ends of their range.


def heavy_sum(backend, loss, n_outputs):
    """A row too small to be clipped, and then 10^15 times as heavy."""
    X = np.array([[1e-12], [0.5]])
    y = np.array([0, 1]) if n_outputs > 1 else np.zeros(2)
    spec = spec_of(X, backend, "float32", n_outputs, weight_bound=1e15)
    rows = rows_of(X, y, backend, spec, np.full(2, 1e15))
    with in_python(backend), np.errstate(all="ignore"):
        w = np.full(spec.coefficient_shape, 1e37)
        return clipped_gradient_sum(rows, loss, FlatClipping(1e15), w)


@every_backend
@pytest.mark.parametrize(
    ("loss", "n_outputs"),
    [(Squared(), 1), (OneVsRest(SquaredHinge(), N_CLASSES), N_CLASSES)],
    ids=["one output", "classes"],
)
def test_slopes_times_weights_that_overflow_count_as_zero(backend, loss, n_outputs):
    total = heavy_sum(backend, loss, n_outputs)
    assert np.isfinite(total).all()
    assert np.linalg.norm(total) <= 2e30 * (1.0 + 1e-5)


def test_an_overflow_that_is_kept_would_be_seen():
    with mock.patch.object(_arrays, "finite", lambda values: values):
        assert not np.isfinite(heavy_sum("NumPy, C", Squared(), 1)).all()


def test_contributions_beyond_float32_are_refused_in_the_plan():
    facts = {"row_norm": 1e15, "weight_bound": 1e15, "target_low": -1e15, "target_high": 1e15}
    X = np.full((3, 2), 1e15)
    task = Problem(Squared()), ApproximateDP(1.0, 1e-5)
    solver = NoisyGD(n_steps=2, clip=1e30)
    assert solver.plan(*task, spec_of(X, "NumPy, C", "float64", **facts)).event
    with pytest.raises(ValueError, match=r"clip times weight_bound.*float32"):
        solver.plan(*task, spec_of(X, "NumPy, C", "float32", **facts))
    allowed = spec_of(X, "NumPy, C", "float32", row_norm=1e15)
    assert sum_rounding(allowed, Adjacency.ZERO_OUT, 1e30) < 1e27


@every_dtype
@pytest.mark.parametrize("clip", [1e-30, 1e-38, 1e-44])
@pytest.mark.parametrize("n_outputs", [1, N_CLASSES])
def test_tiny_clips_hold_although_products_underflow(dtype, clip, n_outputs):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.1, 1.0, size=(64, 3))
    y = np.ones(64) if n_outputs == 1 else np.zeros(64, dtype=int)
    spec = spec_of(X, "NumPy, C", dtype, n_outputs)
    light = np.ones(64)
    light[3] = 0.0
    loss = Squared() if n_outputs == 1 else Softmax()
    for backend in ("compiled, C", "NumPy, C"):
        one, other = (
            computed(rows_of(X, y, backend, spec, weights), backend, loss, clip)
            for weights in (np.ones(64), light)
        )
        moved = np.linalg.norm((one - other) / clip)
        assert moved <= 1.0 + sum_rounding(spec, Adjacency.ZERO_OUT, clip) / clip


def test_the_compiled_sums_are_those_that_were_tested():
    if not kernels.COMPILED:
        pytest.skip("no compiled sums")
    X, y = np.ones((3, 2)), np.ones(3)
    rows = rows_of(X, y, "compiled, C", spec_of(X, "compiled, C", "float64"))
    with mock.patch.object(kernels, "_library", None):
        slow = computed(rows, "compiled, C", Squared())
    np.testing.assert_allclose(computed(rows, "compiled, C", Squared()), slow)
