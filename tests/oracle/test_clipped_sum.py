"""The bounded sum: right values, bounded contributions on worst-case rows, on every backend."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from dpglm.data import rows as data_rows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.clipping import AutomaticClipping, Clipping, FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.problem import Hinge, Logistic, Loss, OneVsRest, Poisson, Savage, Softmax, Squared
from dpglm.tables.encoding import column_scaling

pytestmark = pytest.mark.one_in(3)

LOSSES: list[tuple[Loss, int]] = [
    (Logistic(), 1),
    (Hinge(), 1),
    (Savage(), 1),
    (Squared(), 1),
    (Poisson(), 1),
    (Softmax(), 3),
    (OneVsRest(Hinge(), 3), 3),
]
LAYOUTS = ["C", "F", "csr", "tensor"]


def make_targets(rng: np.random.Generator, loss: Loss, n: int, n_outputs: int) -> np.ndarray:
    if n_outputs > 1:
        return rng.integers(0, n_outputs, n)
    if loss.target.value == "binary":
        return rng.choice([-1, 1], n)
    return rng.uniform(0, 1, n)


def make_rows(
    X: np.ndarray,
    y: np.ndarray,
    *,
    layout: str = "C",
    dtype: str = "float64",
    n_outputs: int = 1,
    row_norm: float = 1.0,
    intercept: float = 1.0,
    weights: np.ndarray | None = None,
    weight_bound: float = 1.0,
) -> Rows:
    spec = DataSpec(
        n_rows=len(X),
        n_features=X.shape[1],
        n_outputs=n_outputs,
        row_norm=row_norm,
        intercept=intercept,
        dtype=dtype,  # type: ignore[arg-type]
        sparse=layout == "csr",
        weight_bound=weight_bound,
        target_low=0.0,
        target_high=1.0,
    )
    matrix = X.astype(dtype)
    store = {"csr": sparse.csr_array, "tensor": torch.as_tensor}.get(
        layout, lambda values: np.asarray(values, order=layout)
    )
    return prepare_rows(store(matrix), y, spec, weights=weights)


def row_by_row(rows_X, y, loss, clipping, w, row_norm, intercept, weights=None):
    """The definition: clip each row's gradient, add up, in float64."""
    total = np.zeros_like(w)
    for i, (x, target) in enumerate(zip(rows_X.astype(float), y, strict=True)):
        norm = np.linalg.norm(x)
        if norm > row_norm:
            x = x * (row_norm / norm)
        if intercept:
            x = np.append(x, intercept)
        z = x @ w
        slope = loss.slope(np.atleast_1d(z)[None] if w.ndim == 2 else np.array([z]), [target])[0]
        gradient = np.multiply.outer(x, slope)
        size = np.linalg.norm(gradient)
        if isinstance(clipping, FlatClipping):
            factor = min(1.0, clipping.bound / size) if size else 1.0
        else:
            factor = clipping.bound / (size + clipping.stability * clipping.bound)
        total += factor * gradient * (1.0 if weights is None else weights[i])
    return total


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("clipping", [FlatClipping(0.4), AutomaticClipping(0.4)], ids=repr)
def test_equals_the_definition(layout, dtype, loss, n_outputs, clipping):
    rng = np.random.default_rng(1)
    n, d = 700, 5
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    y = make_targets(rng, loss, n, n_outputs)
    weights = rng.uniform(0, 2, n)
    rows = make_rows(
        X, y, layout=layout, dtype=dtype, n_outputs=n_outputs, weights=weights, weight_bound=2.0
    )
    w = rng.normal(size=rows.spec.coefficient_shape)
    expected = row_by_row(X.astype(dtype), y, loss, clipping, w, 1.0, 1.0, weights)
    got = clipped_gradient_sum(rows, loss, clipping, w)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, atol=1e-3 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_and_serial_give_the_same_bits(layout, monkeypatch):
    monkeypatch.setattr(data_rows, "cpu_count", lambda: 3)
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(20_000, 6)), rng.choice([-1, 1], 20_000)
    rows = make_rows(X, y, layout=layout, dtype="float32")
    w = rng.normal(size=7)
    serial = clipped_gradient_sum(rows, Logistic(), FlatClipping(0.5), w)
    with data_rows.threads_over(10**7):
        threaded = clipped_gradient_sum(rows, Logistic(), FlatClipping(0.5), w)
    np.testing.assert_array_equal(serial, threaded)


def distance(a: Rows, b: Rows, loss: Loss, clipping: Clipping, w: np.ndarray) -> float:
    return float(
        np.linalg.norm(
            clipped_gradient_sum(a, loss, clipping, w) - clipped_gradient_sum(b, loss, clipping, w)
        )
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_row_of_1e6_stays_within_the_declared_sensitivity(
    layout, dtype, loss, n_outputs, row_norm, intercept
):
    rng = np.random.default_rng(3)
    n, d = 300, 4
    X = rng.normal(size=(n, d)) * row_norm
    y = make_targets(rng, loss, n, n_outputs)
    options = {
        "layout": layout,
        "dtype": dtype,
        "n_outputs": n_outputs,
        "row_norm": row_norm,
        "intercept": row_norm if intercept else 0.0,
    }
    clipping = FlatClipping(0.3 * row_norm)
    for huge in (1e6, -1e6, 1e30):
        one, other = X.copy(), X.copy()
        one[17], other[17] = huge, -huge
        y_other = y.copy()
        y_other[17] = y[0] if y[0] != y[17] else y[5]
        a, b = make_rows(one, y, **options), make_rows(other, y_other, **options)
        zero = np.zeros(n)
        zero[:] = 1.0
        zero[17] = 0.0
        gone = make_rows(one, y, weights=zero, **options)
        full = make_rows(one, y, weights=np.ones(n), **options)
        for size in (0.0, 1.0, 1e8):
            w = rng.normal(size=a.spec.coefficient_shape) * size / row_norm
            for adjacency, first, second in (
                (Adjacency.REPLACE_ONE, a, b),
                (Adjacency.ZERO_OUT, full, gone),
            ):
                rounding = sum_rounding(a.spec, adjacency, clipping.bound)
                bound = adjacency.sum_sensitivity(clipping.bound + rounding)
                assert distance(first, second, loss, clipping, w) <= bound


def test_the_bound_is_attained_and_a_missing_clip_would_be_seen():
    # Opposite rows of full length with saturated slopes: exactly 2 C apart.
    X = np.zeros((40, 2))
    X[:, 0] = 1.0
    other = X.copy()
    other[3, 0] = -1.0
    y = np.ones(40)
    w = np.array([0.0, -50.0])
    a = make_rows(X, y, intercept=0.0)
    b = make_rows(other, y, intercept=0.0)
    clipping = FlatClipping(0.3)
    attained = distance(a, b, Logistic(), clipping, w)
    assert attained == pytest.approx(0.6, rel=1e-9)
    unclipped = distance(a, b, Logistic(), FlatClipping(1e9), w)
    assert unclipped > Adjacency.REPLACE_ONE.sum_sensitivity(0.3) * 1.5


def test_overflowing_slopes_count_as_zero_and_leave_no_nan():
    X = np.array([[1.0], [1.0], [0.5]])
    rows = make_rows(X, np.array([0.0, 1.0, 1.0]), intercept=0.0)
    for w in (np.array([1e6]), np.array([1e308]), np.array([-1e308])):
        total = clipped_gradient_sum(rows, Poisson(), FlatClipping(1.0), w)
        assert np.isfinite(total).all()
        assert np.linalg.norm(total) <= 3.0 * (1 + 1e-9)


def test_scalar_losses_see_targets_of_shape_n_only():
    # Pitfall 19: (n,) against (n, 1) would broadcast to n x n.
    rows = make_rows(np.ones((5, 2)), np.ones((5, 1)))
    with pytest.raises(ValueError, match="shape"):
        clipped_gradient_sum(rows, Logistic(), FlatClipping(1.0), np.zeros(3))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_bound_covers_adversarial_cancellation(layout, dtype):
    # Huge partial sums that cancel: the computed sum errs most here. Compared with exact sums
    # over the very slopes and rows, in rational arithmetic (math.fsum is correctly rounded).
    rng = np.random.default_rng(4)
    n = 512
    X = np.ones((n, 1)) * 0.999
    X[1::2] = 0.998
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    rows = make_rows(X, y, layout=layout, dtype=dtype, intercept=0.0)
    shuffled = rng.permutation(n)
    other = make_rows(X[shuffled], y[shuffled], layout=layout, dtype=dtype, intercept=0.0)
    w = np.array([0.3])
    difference = distance(rows, other, Logistic(), FlatClipping(10.0), w)
    contribution = 1.0
    bound = sum_rounding(rows.spec, Adjacency.ZERO_OUT, contribution) * n / 256
    assert difference <= bound


def test_rounding_is_small_and_refused_where_useless():
    spec = DataSpec(n_rows=1_000_000, n_features=100, dtype="float32")
    assert sum_rounding(spec, Adjacency.ZERO_OUT, 1.0) < 0.01
    fine = DataSpec(n_rows=1_000_000, n_features=100)
    assert sum_rounding(fine, Adjacency.ZERO_OUT, 1.0) < 1e-6
    assert sum_rounding(fine, Adjacency.ADD_REMOVE, 1.0) < 0.02
    with pytest.raises(ValueError, match="dtype must be 'float64'"):
        sum_rounding(spec, Adjacency.ADD_REMOVE, 1.0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepared_rows_keep_the_norm_bound(layout):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 3))
    X[0], X[1], X[2] = 1e200, 0.0, 1e-200
    rows = make_rows(X, np.ones(50), layout=layout, row_norm=0.7, intercept=0.0)
    for block in rows.blocks():
        identity = np.eye(3)
        values = np.column_stack([block.predict(e) for e in identity])
        lengths = np.array([math.sqrt(math.fsum(v * v for v in row)) for row in values])
        assert (lengths <= 0.7).all()
        assert (block.norms >= lengths).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("value", "row_norm"), [(1e31, 1e-8), (1e30, 1e-12), (3e37, 3e-8)])
def test_rows_far_beyond_bound_have_normal_scale_factors(layout, value, row_norm):
    # Such a factor has few digits: the row was up to 1.4 times longer than its declared norm.
    rows = make_rows(
        np.full((1, 1), value), np.ones(1), layout=layout, dtype="float32", row_norm=row_norm
    )
    assert abs(float(next(rows.blocks()).features()[0, 0])) <= row_norm
    coarse = np.float32(row_norm / value)
    assert 0.0 < coarse < np.finfo(np.float32).tiny
    assert float(coarse * np.float32(value)) > row_norm * (1 + 1e-8)


def test_bounds_are_not_misread():
    # Pitfall 1: asymmetric bounds, bounds with zero, lower = 0, zero width.
    scaling = column_scaling(([-1.0, 0.0, 5.0, 2.0], [3.0, 10.0, 6.0, 2.0]), 4)
    X = np.array([[-1.0, 0.0, 5.0, 2.0], [3.0, 10.0, 6.0, 2.0], [-99.0, 99.0, 0.0, 7.0]])
    expected = [[-1, -1, -1, 0], [1, 1, 1, 0], [-1, 1, -1, 0]]
    np.testing.assert_allclose(scaling.apply(X), expected)


@pytest.mark.parametrize(
    "bounds", [(1.0, 0.0), (0.0, np.inf), (0.0, np.nan), (0.0, [1.0, 2.0]), 3.0, None, (1, 2, 3)]
)
def test_bad_bounds_are_named(bounds):
    with pytest.raises(ValueError, match="feature_bounds"):
        column_scaling(bounds, 3)
