"""The compiled sums equal NumPy's, for any place of a row and any storage of rows."""

from __future__ import annotations

import itertools
import os
import shutil
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.compiled import kernels
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.data.sampled import sampled_rows
from dpglm.oracle.clipping import AutomaticClipping, BalancedClipping, FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum, compiled_rule
from dpglm.problem import Huber, Logistic, Savage, Softmax, Squared, SquaredHinge
from dpglm.tables.encoding import ColumnScaling

LOSSES = (Logistic(), Squared(), Huber(0.7), SquaredHinge())
CLIPPINGS = (FlatClipping(0.3), AutomaticClipping(0.3))
PAIRS = (*itertools.product(LOSSES, CLIPPINGS), (Logistic(), BalancedClipping(0.3)))

# Where there is a compiler, there must be compiled sums.
pytestmark = [
    pytest.mark.one_in(3),
    pytest.mark.skipif(
        not kernels.COMPILED and shutil.which(os.environ.get("CC", "cc").split()[0]) is None,
        reason="no C compiler: sums are NumPy's, which all other tests are about then",
    ),
]


def test_compiled_code_is_there():
    assert kernels.COMPILED


def _problem(n, d, dtype, order="C", seed=0):
    rng = np.random.default_rng(seed)
    X = np.asarray(rng.standard_normal((n, d)), dtype=dtype, order=order)
    y = rng.choice([-1.0, 1.0], n).astype(dtype)
    norms = np.linalg.norm(X.astype(float), axis=1).astype(dtype) + dtype(1e-3)
    return X, y, norms, rng.standard_normal(d), rng.random(n).astype(dtype)


def _reference(loss, clipping, X, y, norms, w, weights):
    X, y, norms = X.astype(float), y.astype(float), norms.astype(float)
    slopes = clipping.scale(loss.slope(X @ w, y), norms)
    return (slopes * (1.0 if weights is None else weights.astype(float))) @ X


@pytest.mark.parametrize(("loss", "clipping"), PAIRS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (8, 8), (1029, 37), (130, 300), (9, 20000)])
def test_sum_is_that_of_numpy(loss, clipping, dtype, order, shape):
    X, y, norms, w, weights = _problem(*shape, dtype, order)
    rule = compiled_rule(loss, clipping)
    tolerance = 30 * np.finfo(dtype).eps * np.sqrt(sum(shape)) * max(1.0, np.linalg.norm(w))
    for given in (None, weights):
        total = kernels.bounded_sum(rule, X, None, w, 0.0, y, norms, given)
        expected = _reference(loss, clipping, X, y, norms, w, given)
        np.testing.assert_allclose(total, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_intercept_and_chosen_rows(dtype):
    X, y, norms, w, weights = _problem(300, 11, dtype)
    rule = compiled_rule(Logistic(), FlatClipping(1.0))
    which = np.array([5, 5, 299, 0, 17])
    full = np.column_stack([X, np.full(300, 2.0, dtype)])
    w = np.append(w, 0.4)
    args = (y[which], norms[which], weights[which])
    total = kernels.bounded_sum(rule, X, which, w, 2.0, *args)
    expected = kernels.bounded_sum(rule, full[which], None, w, 0.0, *args)
    np.testing.assert_allclose(total, expected, rtol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("columns", [1, 5, 8, 13, 100])
def test_a_row_contributes_the_same_bits_wherever_it_stands(dtype, order, columns):
    X, y, norms, w, weights = _problem(600, columns, dtype, order)
    rule = compiled_rule(Logistic(), FlatClipping(0.5))
    for place in (0, 3, 8, 511, 599):
        others = np.zeros_like(X)
        others[place] = X[7]
        targets, lengths, importance = (np.full(600, v[7]) for v in (y, norms, weights))
        moved = kernels.bounded_sum(rule, others, None, w, 0.0, targets, lengths, importance)
        alone = np.zeros_like(X[:20])
        alone[12] = X[7]
        args = (targets[:20], lengths[:20], importance[:20])
        assert (moved == kernels.bounded_sum(rule, alone, None, w, 0.0, *args)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("loss", "clipping"), PAIRS, ids=repr)
def test_contributions_stay_bounded_when_predictions_overflow(dtype, loss, clipping):
    rng = np.random.default_rng(1)
    w = np.array([1e300, -1e300, 1e30, 1.0])
    for scale in (1e-30, 1.0, 1e15):
        X = (scale * rng.standard_normal((50, 4))).astype(dtype)
        norms = (np.linalg.norm(X.astype(float), axis=1) * (1 + 1e-6)).astype(dtype)
        for y in (-1.0, 1.0):
            for i in range(50):
                with np.errstate(over="ignore"):
                    total = kernels.bounded_sum(
                        compiled_rule(loss, clipping),
                        X[i : i + 1],
                        None,
                        w,
                        0.0,
                        np.full(1, y, dtype),
                        norms[i : i + 1],
                        None,
                    )
                assert np.isfinite(total).all()
                assert np.linalg.norm(total) <= clipping.bound * (1 + 20 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "largest", "tiny"), [(np.float64, 700.0, 1e-300), (np.float32, 86.0, 1e-37)]
)
def test_exponential_is_accurate_over_its_whole_range(dtype, largest, tiny):
    far = 1.07 * largest
    z = np.concatenate([np.linspace(-far, far, 40001), np.linspace(-1, 1, 2001)]).astype(dtype)
    one = np.ones((1, 1), dtype)
    rule = compiled_rule(Logistic(), FlatClipping(10.0))
    slopes = np.array(
        [
            kernels.bounded_sum(rule, one, None, np.array([v]), 0.0, one[0], one[0], None)[0]
            for v in z
        ]
    )
    expected = Logistic().slope(z.astype(np.float64), np.ones(len(z)))
    inside, rtol = np.abs(z) < largest, 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(slopes[inside], expected[inside], rtol=rtol)
    np.testing.assert_allclose(slopes, expected, rtol=rtol, atol=tiny)


def test_arrays_without_compiled_code_are_left_to_numpy():
    X, y, norms, w, _ = _problem(20, 6, np.float64)
    rule = compiled_rule(Squared(), FlatClipping(1.0))
    assert kernels.bounded_sum(rule, X[:, ::2], None, w[::2], 0.0, y, norms, None) is None
    assert kernels.bounded_sum(rule, X, None, w, 0.0, y.astype(np.float32), norms, None) is None
    assert compiled_rule(Savage(), FlatClipping(1.0)) is None
    assert compiled_rule(Squared(), BalancedClipping(1.0)) is None


def test_shapes_that_do_not_fit_are_refused():
    X, y, norms, w, _ = _problem(20, 6, np.float64)
    rule = compiled_rule(Squared(), FlatClipping(1.0))
    with pytest.raises(ValueError, match="shape"):
        kernels.bounded_sum(rule, X, None, w, 0.0, y[:5], norms, None)
    with pytest.raises(ValueError, match="w has shape"):
        kernels.bounded_sum(rule, X, None, w, 1.0, y, norms, None)
    rows = prepare_rows(X, y, DataSpec(n_rows=20, n_features=6, row_norm=9.0))
    with pytest.raises(IndexError, match="negative"):
        rows.take(np.array([-1]))
    with pytest.raises(IndexError):
        rows.take(np.array([20]))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_without_the_library_numpy_gives_the_same(loss, monkeypatch):
    X, y, _, w, weights = _problem(3000, 20, np.float64)
    spec = DataSpec(n_rows=3000, n_features=20, row_norm=9.0, intercept=1.0)
    rows = prepare_rows(X, y, spec, weights=weights)
    w = np.append(w, 0.3)
    fast = clipped_gradient_sum(rows, loss, FlatClipping(1.0), w)
    monkeypatch.setattr(kernels, "_library", None)
    slow = clipped_gradient_sum(rows, loss, FlatClipping(1.0), w)
    np.testing.assert_allclose(fast, slow, atol=1e-10)
    assert (fast != slow).any()


def test_batches_are_not_copied():
    X, y, _, w, _ = _problem(2000, 16, np.float64)
    spec = DataSpec(n_rows=2000, n_features=16, row_norm=9.0)
    rows = prepare_rows(X, y, spec)
    batch = rows.take(np.arange(0, 2000, 2))
    assert np.shares_memory(next(iter(batch.blocks()))._stored, next(iter(rows.blocks()))._stored)
    direct = prepare_rows(X[::2].copy(), y[::2], spec)
    args = (Logistic(), FlatClipping(1.0), w)
    np.testing.assert_array_equal(
        clipped_gradient_sum(batch, *args), clipped_gradient_sum(direct, *args)
    )
    np.testing.assert_array_equal(
        clipped_gradient_sum(batch.take(np.array([3])), *args),
        clipped_gradient_sum(rows.take(np.array([6])), *args),
    )


def test_a_wrong_bound_in_the_rule_is_seen():
    # The neighbour tests go through ``compiled_rule``: a bound twice too large must show there.
    X, y, norms, w, _ = _problem(1, 4, np.float64)
    rule = compiled_rule(Squared(), FlatClipping(1e-3))
    rule.bound *= 2.0
    total = kernels.bounded_sum(rule, X, None, w, 0.0, y, norms, None)
    assert np.linalg.norm(total) > 1e-3 * (1 + 1e-9)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (1029, 37)])
def test_prepared_rows_are_those_of_numpy(shape, dtype, centered):
    X = _problem(*shape, dtype)[0]
    X[-1] *= 1e3
    low, high = np.linspace(-1.0, 0.3, shape[1]), np.linspace(0.3, 2.0, shape[1])
    scaling, scaled = ColumnScaling(low, high), np.empty_like(X)
    limits = [low, high, scaling.center(centered=centered), scaling.scale(centered=centered)]
    norms = kernels.prepare(X, limits, scaled)
    np.testing.assert_array_equal(scaled, scaling.apply(X, centered=centered))
    np.testing.assert_allclose(norms, np.linalg.norm(scaled.astype(float), axis=1), rtol=1e-15)
    np.testing.assert_array_equal(norms, kernels.prepare(scaled, None, scaled))


@pytest.mark.parametrize("clipping", [*CLIPPINGS, BalancedClipping(0.3)], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["C", "F", "few"])
def test_bounded_sums_on_a_grid_are_those_of_numpy(clipping, dtype, layout, monkeypatch):
    n = 1 if layout == "few" else 700
    X, y, _, w, weights = _problem(2 * n, 6, dtype, "F" if layout == "F" else "C")
    spec = DataSpec(
        n_rows=2 * n, n_features=6, row_norm=9.0, intercept=1.0, dtype=np.dtype(dtype).name
    )
    rows = prepare_rows(X, y, spec, weights=weights)
    drawn = sampled_rows(rows, np.arange(0, 2 * n, 2), 0.5, 2.0**-20)
    arguments = (drawn, Logistic(), clipping, np.append(w, 0.3))
    fast = clipped_gradient_sum(*arguments)
    monkeypatch.setattr(kernels, "bounded_sum_on_grid", lambda *_: None)
    # A slope that rounds to another float moves few products to the next point of the grid.
    np.testing.assert_allclose(fast, clipped_gradient_sum(*arguments), atol=20 * 2.0**-20)
    np.testing.assert_array_equal(fast, np.rint(fast * 2.0**20) / 2.0**20)


def test_an_old_library_is_not_used(monkeypatch):
    assert kernels._load() is not None
    monkeypatch.setattr(kernels, "_ABI", -1)
    assert kernels._load() is None


def _classes(n, d, n_classes, dtype, seed=0):
    X, _, norms, _, weights = _problem(n, d, dtype, seed=seed)
    rng = np.random.default_rng(seed + 1)
    return X, rng.integers(0, n_classes, n), norms, rng.standard_normal((d, n_classes)), weights


@pytest.fixture(params=["by classes", "by panels"])
def layout(request, monkeypatch):
    monkeypatch.setattr(kernels, "_panels_are_better", lambda *_: request.param == "by panels")


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("clipping", CLIPPINGS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 10, 16, 64])
@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (7, 9), (65, 8), (131, 37), (9, 3000)])
def test_sum_of_classes_is_that_of_numpy(clipping, dtype, n_classes, shape):
    X, y, norms, w, weights = _classes(*shape, n_classes, dtype)
    rule = compiled_rule(Softmax(), clipping)
    tolerance = 30 * np.finfo(dtype).eps * np.sqrt(sum(shape)) * max(1.0, np.linalg.norm(w))
    for given in (None, weights):
        total = kernels.softmax_sum(rule, X, None, w, 0.0, y, norms, given)
        slopes = clipping.scale(Softmax().slope(X.astype(float) @ w, y), norms.astype(float))
        slopes *= 1.0 if given is None else given.astype(float)[:, np.newaxis]
        np.testing.assert_allclose(total, X.astype(float).T @ slopes, atol=tolerance, rtol=0)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_intercept_and_chosen_rows_of_classes(dtype):
    X, y, norms, w, weights = _classes(300, 11, 7, dtype)
    rule = compiled_rule(Softmax(), FlatClipping(1.0))
    which = np.array([5, 5, 299, 0, 17])
    full = np.column_stack([X, np.full(300, 2.0, dtype)])
    w = np.vstack([w, 0.4 * np.ones(7)])
    args = (y[which], norms[which], weights[which])
    total = kernels.softmax_sum(rule, X, which, w, 2.0, *args)
    expected = kernels.softmax_sum(rule, full[which], None, w, 0.0, *args)
    np.testing.assert_allclose(
        total, expected, rtol=50 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps
    )


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 8, 13, 100])
@pytest.mark.parametrize("n_classes", [3, 10, 61])
def test_contribution_of_a_class_row_is_independent_of_place(dtype, columns, n_classes):
    X, y, norms, w, weights = _classes(200, columns, n_classes, dtype)
    rule = compiled_rule(Softmax(), FlatClipping(0.5))
    sums = []
    for n, place in ((200, 0), (200, 63), (200, 64), (200, 199), (1, 0), (35, 34)):
        alone = np.zeros((n, columns), dtype)
        alone[place] = X[7]
        facts = [np.full(n, v[7]) for v in (y, norms)]
        importance = np.zeros(n, dtype)
        importance[place] = weights[7]
        sums.append(kernels.softmax_sum(rule, alone, None, w, 0.0, *facts, importance))
    assert all((one == sums[0]).all() for one in sums)
    assert np.abs(sums[0]).max() > 0.0


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clipping", CLIPPINGS, ids=repr)
def test_no_row_of_a_class_contributes_more_than_the_bound(dtype, clipping):
    rng = np.random.default_rng(1)
    rule = compiled_rule(Softmax(), clipping)
    largest = 0.0
    for size in (1.0, 1e30, 1e300):
        w = size * rng.standard_normal((4, 3))
        for scale in (1e-30, 1.0, 1e15):
            X = (scale * rng.standard_normal((20, 4))).astype(dtype)
            norms = (np.linalg.norm(X.astype(float), axis=1) * (1 + 1e-6)).astype(dtype)
            for i in range(20):
                one = slice(i, i + 1)
                with np.errstate(over="ignore"):
                    total = kernels.softmax_sum(
                        rule, X[one], None, w, 0.0, np.array([i % 3]), norms[one], None
                    )
                assert np.isfinite(total).all()
                largest = max(largest, np.linalg.norm(total))
    assert 0.9 * clipping.bound <= largest <= clipping.bound * (1 + 20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_layouts_of_classes_are_used_and_agree(dtype, monkeypatch):
    size = np.dtype(dtype).itemsize
    for shape, n_classes, better in (((50, 2000), 10, False), ((50, 10), 64, True)):
        assert kernels._panels_are_better(shape[1], n_classes, size) is better
        X, y, norms, w, weights = _classes(*shape, n_classes, dtype)
        args = (compiled_rule(Softmax(), FlatClipping(1.0)), X, None, w, 0.0, y, norms, weights)
        chosen = kernels.softmax_sum(*args)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "_panels_are_better", lambda *_, choice=not better: choice)
            other = kernels.softmax_sum(*args)
        assert chosen.shape == w.shape
        assert chosen.flags.c_contiguous
        np.testing.assert_allclose(chosen, other, atol=100 * np.finfo(dtype).eps)


def test_numpy_replaces_missing_compiled_class_sums():
    X, y, norms, w, _ = _classes(20, 6, 65, np.float64)
    rule = compiled_rule(Softmax(), FlatClipping(1.0))
    assert kernels.softmax_sum(rule, X, None, w, 0.0, y, norms, None) is None
    few = w[:, :4]
    assert kernels.softmax_sum(rule, X, None, few, 0.0, y % 4, norms, None) is not None
    columns = np.asfortranarray(X)
    assert kernels.softmax_sum(rule, columns, None, few, 0.0, y % 4, norms, None) is None
    narrow = (y % 4).astype(np.int32)
    assert kernels.softmax_sum(rule, X, None, few, 0.0, narrow, norms, None) is None
    with pytest.raises(ValueError, match="shape"):
        kernels.softmax_sum(rule, X, None, few, 0.0, (y % 4)[:5], norms, None)
    with pytest.raises(ValueError, match="w has shape"):
        kernels.softmax_sum(rule, X, None, few, 1.0, y % 4, norms, None)
    # A rule for classes is nothing for one output: no slope passes unclipped.
    assert not kernels.bounded_sum(rule, X, None, w[:, 0], 0.0, norms, norms, None).any()


def test_rows_of_classes_use_the_compiled_sum():
    X, y, _, w, weights = _classes(3000, 20, 4, np.float32)
    spec = DataSpec(
        n_rows=3000, n_features=20, n_outputs=4, row_norm=9.0, intercept=1.0, dtype="float32"
    )
    rows = prepare_rows(X, y, spec, weights=weights)
    args = (Softmax(), FlatClipping(1.0), np.vstack([w, w[:1]]))
    fast = clipped_gradient_sum(rows, *args)
    with mock.patch.object(kernels, "_library", None):
        slow = clipped_gradient_sum(rows, *args)
    np.testing.assert_allclose(fast, slow, atol=1e-2)
    assert (fast != slow).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_below_the_normal_range_count_as_zero(dtype):
    # They would lose the precision on which the bound of a contribution counts.
    tiny = float(np.finfo(dtype).tiny)
    one = np.ones((1, 1), dtype)
    for part, expected in ((0.3, 0.0), (3.0, 3.0 * tiny)):
        clipping = FlatClipping(part * tiny)
        total = kernels.bounded_sum(
            compiled_rule(Squared(), clipping), one, None, np.ones(1), 0.0, -one[0], one[0], None
        )
        assert total[0] == pytest.approx(expected, rel=1e-6, abs=0.0)
        total = kernels.softmax_sum(
            compiled_rule(Softmax(), clipping),
            *(one, None, np.zeros((1, 2)), 0.0, np.zeros(1, np.int64), one[0], None),
        )
        assert total[0, 1] == pytest.approx(expected / np.sqrt(2), rel=1e-6, abs=0.0)


@pytest.mark.parametrize(("loss", "clipping"), PAIRS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_sum_is_that_of_numpy(loss, clipping, dtype, index):
    _, y, _, w, weights = _problem(200, 50, dtype)
    X = sparse.csr_array(
        sparse.random_array((200, 50), density=0.1, format="csr", rng=np.random.default_rng(0)),
        dtype=dtype,
    )
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    norms = np.sqrt((X.toarray() ** 2).sum(axis=1)) + dtype(1e-3)
    rule = compiled_rule(loss, clipping)
    tolerance = 100 * np.finfo(dtype).eps * np.linalg.norm(w)
    full = np.column_stack([X.toarray(), np.full(200, 2.0)])
    v = np.append(w, 0.4)
    for given in (None, weights):
        total = kernels.sparse_bounded_sum(rule, X, slice(0, 200), w, 0.0, y, norms, given)
        expected = _reference(loss, clipping, full[:, :-1], y, norms, w, given)
        np.testing.assert_allclose(total, expected, atol=tolerance, rtol=0)
        total = kernels.sparse_bounded_sum(rule, X, slice(0, 200), v, 2.0, y, norms, given)
        expected = _reference(loss, clipping, full, y, norms, v, given)
        np.testing.assert_allclose(total, expected, atol=tolerance, rtol=0)


def test_contribution_of_a_sparse_row_is_independent_of_place():
    _, y, norms, w, _ = _problem(100, 30, np.float64)
    X = sparse.csr_array(
        sparse.random_array((100, 30), density=0.4, format="csr", rng=np.random.default_rng(0))
    )
    rule = compiled_rule(Logistic(), FlatClipping(0.5))
    for i in (0, 31, 32, 77):
        own = slice(i, i + 1)
        alone = kernels.sparse_bounded_sum(rule, X, own, w, 0.0, y[own], norms[own], None)
        only = sparse.csr_array(X.multiply((np.arange(100) == i)[:, None]))
        everywhere = kernels.sparse_bounded_sum(
            rule, only, slice(0, 100), w, 0.0, np.full(100, y[i]), np.full(100, norms[i]), None
        )
        assert (alone == everywhere).all()


def test_sparse_blocks_use_the_compiled_sum():
    _, y, _, w, weights = _problem(9000, 40, np.float64)
    X = sparse.csr_array(
        sparse.random_array((9000, 40), density=0.2, format="csr", rng=np.random.default_rng(0))
    )
    spec = DataSpec(n_rows=9000, n_features=40, row_norm=3.0, intercept=1.0, sparse=True)
    rows = prepare_rows(X, y, spec, weights=weights)
    args = (Logistic(), FlatClipping(0.5), np.append(w, 0.3))
    fast = clipped_gradient_sum(rows, *args)
    with mock.patch.object(kernels, "_library", None):
        slow = clipped_gradient_sum(rows, *args)
    np.testing.assert_allclose(fast, slow, atol=1e-10)
    assert (fast != slow).any()


def test_sparse_rows_with_columns_out_of_range_are_refused():
    X = sparse.csr_array(np.eye(4))
    X.indices[2] = 9
    with pytest.raises(ValueError, match="indices"):
        prepare_rows(X, np.ones(4), DataSpec(n_rows=4, n_features=4, sparse=True))
    rule = compiled_rule(Squared(), FlatClipping(1.0))
    X = sparse.csr_array(np.eye(4))
    with pytest.raises(ValueError, match="w has shape"):
        kernels.sparse_bounded_sum(
            rule, X, slice(0, 4), np.ones(3), 0.0, np.ones(4), np.ones(4), None
        )
    with pytest.raises(ValueError, match="shape"):
        kernels.sparse_bounded_sum(
            rule, X, slice(0, 4), np.ones(4), 0.0, np.ones(3), np.ones(4), None
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 65])
@pytest.mark.parametrize("columns", [1, 5, 33])
def test_sums_on_a_grid_are_those_of_numpy(dtype, rows, columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)).astype(dtype)
    w, slopes = rng.normal(size=(columns, 3)), rng.normal(size=(rows, 3)).astype(dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    product = kernels.row_by_row_product(X, w.astype(dtype))
    assert product.dtype == dtype
    np.testing.assert_allclose(product, X @ w, atol=tolerance)
    step = 2.0**-20
    total = kernels.sum_on_grid(X, slopes, 1.5 * 2.0**52 * step)
    assert (total % step == 0.0).all()
    exact = X.T.astype(np.float64) @ slopes
    np.testing.assert_allclose(total, exact, atol=rows * step)
    if rows > 1:
        order = rng.permutation(rows)
        shuffled = kernels.sum_on_grid(X[order], slopes[order], 1.5 * 2.0**52 * step)
        np.testing.assert_array_equal(shuffled, total)
