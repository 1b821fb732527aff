"""Second moments: right values, bounded contributions on worst-case rows, on every backend."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.linear import (
    LinearView,
    MomentShares,
    moment_sum,
    noisy_weighted_moments,
    weighted_moments,
)
from dpglm.oracle.moments import (
    n_symmetric,
    noisy_second_moments,
    normalized_second_moments,
    pack_symmetric,
    rows_in_basis,
    second_moment_sum,
    unpack_symmetric,
)
from dpglm.oracle.rounding import sum_rounding
from dpglm.oracle.targets import TargetShares, target_sums
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Squared
from tests.audit.attack import released_sums

LAYOUTS = [("C", "float64"), ("C", "float32"), ("F", "float64"), ("csr", "float32")]
CENTER, REACH = 0.4, 0.3
SHARES = [
    MomentShares(0.5, 0.3, 0.2),
    MomentShares(0.0, 0.7, 0.3),
]


def make_rows(
    X, y, *, layout="C", dtype="float64", row_norm=1.0, intercept=1.0, weights=None, most=1.0
) -> Rows:
    spec = DataSpec(
        n_rows=len(X),
        n_features=X.shape[1],
        row_norm=row_norm,
        intercept=intercept,
        dtype=dtype,
        sparse=layout == "csr",
        weight_bound=most,
        target_low=0.0,
        target_high=1.0,
    )
    matrix = X.astype(dtype)
    stored = sparse.csr_array(matrix) if layout == "csr" else np.asarray(matrix, order=layout)
    return prepare_rows(stored, y, spec, weights=weights)


def first_sum(rows, constant):
    size = n_symmetric(rows.spec.n_features + 1)
    return rows.sum(normalized_second_moments(rows.spec, constant), shape=(size,))


TARGET_SHARES = [TargetShares(0.5, 0.1, 0.4, 4), TargetShares(0.9, 0.1, 0.0, 0)]


def target_sum(rows, shares):
    return rows.sum(target_sums(rows.spec, shares), shape=(2 + shares.side**2,))


def view_of(basis, cap, level=0.0, reach=REACH):
    v = np.linspace(-0.1, 0.2, basis.shape[1]) / max(1.0, float(np.abs(basis).max()))
    return LinearView(basis, cap, level, CENTER, v, reach)


def second_sum(rows, basis, cap, row_by_row=False, shares=SHARES[0], level=0.0):
    size = basis.shape[1] + 1
    size += 0 if shares.matrix == 0.0 else n_symmetric(basis.shape[1])
    kernel = weighted_moments(rows.spec, view_of(basis, cap, level), shares, row_by_row)
    return rows.sum(kernel, shape=(size,))


def test_packing_keeps_lengths_and_can_be_undone():
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix += matrix.T
    packed = pack_symmetric(matrix)
    assert packed.shape == (n_symmetric(5),)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(matrix), rel=1e-15)
    np.testing.assert_allclose(unpack_symmetric(packed, 5), matrix, rtol=1e-15)
    np.testing.assert_array_equal(unpack_symmetric(packed, 5), unpack_symmetric(packed, 5).T)


@pytest.mark.parametrize("row", [[1.0, 0.0, 0.0], [0.5, -0.5, math.sqrt(0.5)]])
def test_norm_of_row_matrix_is_squared_row_norm(row):
    # Sparse and dense rows alike: the Frobenius norm is the same in every direction.
    assert np.linalg.norm(pack_symmetric(np.outer(row, row))) == pytest.approx(1.0, rel=1e-15)


def test_other_ways_to_charge_a_matrix_are_wasteful_or_wrong():
    # Charging each of the d^2 entries for a change of |x|^2 costs d times as much noise ...
    d, row = 20, np.full(20, 20.0**-0.5)
    matrix = np.outer(row, row)
    apart = math.sqrt(d**2 * 1.0)
    assert apart == pytest.approx(d * np.linalg.norm(pack_symmetric(matrix)))
    # ... the upper triangle without sqrt(2) is charged for more than it can tell ...
    upper = matrix[np.triu_indices(d)]
    assert np.linalg.norm(upper) < 0.75 * np.linalg.norm(pack_symmetric(matrix))
    # ... and is not cheaper in the worst case, a row along one column.
    corner = np.diag(np.eye(d)[0])
    assert np.linalg.norm(corner[np.triu_indices(d)]) == np.linalg.norm(pack_symmetric(corner))


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("intercept", [1.0, 0.0])
def test_sums_equal_the_definition(layout, dtype, intercept):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 4)) * 0.4 * (rng.random((2500, 4)) < 0.7)
    y, weights = rng.uniform(-0.2, 1.2, 2500), rng.uniform(0, 3, 2500)
    options = {"layout": layout, "dtype": dtype, "intercept": intercept}
    rows = make_rows(X, y, weights=weights, most=2.0, **options)
    kept = X.astype(dtype).astype(float)
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    kept *= np.minimum(1.0, 1.0 / np.maximum(lengths, 1e-9))
    w = np.minimum(weights, 2.0)
    u = np.column_stack([kept, np.full(2500, 0.3)])
    expected = (u * (w / (u * u).sum(axis=1))[:, None]).T @ u
    atol = 1e-3 if dtype == "float32" else 1e-8
    np.testing.assert_allclose(first_sum(rows, 0.3), pack_symmetric(expected), atol=atol)

    x = np.column_stack([kept, np.ones(2500)]) if intercept else kept
    basis = rng.normal(size=(x.shape[1], 3))
    t = np.clip(y.astype(dtype).astype(float), 0.0, 1.0)
    cap = 1.0 if intercept else 0.25
    for level in (0.0, 0.8):
        z = x @ basis
        squares = (z[:, : 2 if level else 3] ** 2).sum(axis=1)
        z[:, 2] = level or z[:, 2]
        squares *= w / 2.0
        f = cap / np.maximum(squares, cap)
        assert 0.1 < (squares > cap).mean() < 0.9
        longest = cap + level**2
        q = (t - CENTER - z @ view_of(basis, cap).v) / REACH
        most = math.sqrt(longest) / np.maximum(np.linalg.norm(z, axis=1), 1e-12)
        scores = 2.0 * np.clip(q * w / 2.0, -most, most)
        assert 0.01 < (np.abs(scores) < 0.999 * np.abs(q) * w).mean() < 0.9
        r = np.clip(q, -1.0, 1.0)
        assert 0.1 < (np.abs(r) == 1.0).mean() < 0.9
        for shares in SHARES:
            factors = w * f * (shares.matrix > 0.0)
            matrix = (z * factors[:, None]).T @ z / longest
            parts = [math.sqrt(shares.matrix) * pack_symmetric(matrix)] * (shares.matrix > 0.0)
            weighted = scores if shares.matrix == 0.0 else w * f * r
            parts.append(math.sqrt(shares.vector) * (z.T @ weighted) / math.sqrt(longest))
            expected = np.concatenate([*parts, [math.sqrt(shares.squares) * (w @ r**2)]])
            for row_by_row in (False, True):
                found = second_sum(rows, basis, cap, row_by_row, shares, level)
                np.testing.assert_allclose(found, expected, atol=5.0 * atol)


def declared(rows, adjacency, bound):
    return adjacency.sum_sensitivity(bound + sum_rounding(rows.spec, adjacency, bound))


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_row_stays_within_the_declared_sensitivity(layout, dtype, row_norm, intercept):
    rng = np.random.default_rng(3)
    n, d = 300, 4
    X, y = rng.normal(size=(n, d)) * row_norm, rng.uniform(size=n)
    options = {
        "layout": layout,
        "dtype": dtype,
        "row_norm": row_norm,
        "intercept": row_norm if intercept else 0.0,
        "most": 2.5,
    }
    # An ill-conditioned basis, in which some rows become very long.
    basis = np.linalg.qr(rng.normal(size=(d + intercept, d + intercept)))[0]
    basis = basis * np.logspace(-2, 4, d + intercept) / row_norm
    for huge in (1e6, -1e6, 1e30, 1e-30):
        one, other = X.copy(), X.copy()
        one[17], other[17] = huge, rng.permutation([huge, 0.0, 0.0, -huge])
        y_one, y_other = y.copy(), y.copy()
        y_one[17], y_other[17] = 1e30, -1e30
        heavy, gone = np.full(n, 2.5), np.full(n, 2.5)
        gone[17] = 0.0
        full = make_rows(one, y_one, weights=heavy, **options)
        absent = make_rows(one, y_one, weights=gone, **options)
        replaced = make_rows(other, y_other, weights=heavy, **options)
        pairs = ((Adjacency.ZERO_OUT, absent), (Adjacency.REPLACE_ONE, replaced))
        for adjacency, neighbour in pairs:
            moved = first_sum(full, row_norm / 3.0) - first_sum(neighbour, row_norm / 3.0)
            assert np.linalg.norm(moved) <= declared(full, adjacency, 2.5)
            for cap, shares in itertools.product((0.1, 5.0, 1e6), SHARES):
                for level in (0.0, 0.5 * math.sqrt(cap)):
                    question = (basis, cap, False, shares, level)
                    moved = second_sum(full, *question) - second_sum(neighbour, *question)
                    assert np.linalg.norm(moved) <= declared(full, adjacency, 2.5)
            for shares in TARGET_SHARES:
                moved = target_sum(full, shares) - target_sum(neighbour, shares)
                assert np.linalg.norm(moved) <= declared(full, adjacency, 2.5)


@pytest.mark.parametrize("true_n", [1, 2, 300, 5000])
def test_a_row_more_stays_within_the_declared_sensitivity(true_n):
    # Under add_remove the rows behind it move to other places.
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(true_n, 3)), rng.uniform(size=true_n)
    rows = make_rows(X, y)
    basis = rng.normal(size=(4, 4)) @ np.diag([1e-3, 1.0, 1e3, 1e5])
    for position in {0, true_n // 2, true_n - 1}:
        fewer = rows.take(np.delete(np.arange(true_n), position))
        moved = first_sum(rows, 0.3) - first_sum(fewer, 0.3)
        assert np.linalg.norm(moved) <= declared(rows, Adjacency.ADD_REMOVE, 1.0)
        for shares in SHARES:
            question = (basis, 4.0, True, shares, 1.0)
            moved = second_sum(rows, *question) - second_sum(fewer, *question)
            assert np.linalg.norm(moved) <= declared(rows, Adjacency.ADD_REMOVE, 1.0)
        moved = target_sum(rows, TARGET_SHARES[0]) - target_sum(fewer, TARGET_SHARES[0])
        assert np.linalg.norm(moved) <= declared(rows, Adjacency.ADD_REMOVE, 1.0)


def test_rows_are_independent_of_place_on_request():
    rng = np.random.default_rng(5)
    rows = make_rows(rng.normal(size=(1001, 7)), rng.uniform(size=1001))
    basis = rng.normal(size=(8, 8)) * 1e5
    (block,) = rows.blocks()
    (shifted,) = rows.take(np.arange(1, 1001)).blocks()
    first = rows_in_basis(block, rows.spec, basis, row_by_row=True)
    second = rows_in_basis(shifted, rows.spec, basis, row_by_row=True)
    np.testing.assert_array_equal(first[1:], second)


def test_the_bounds_are_attained_and_smaller_ones_would_be_seen():
    # A row along one column next to rows of weight zero; R = 10, so that R is not R^2.
    X, weights = np.zeros((5, 2)), np.zeros(5)
    X[0, 0], weights[0] = 10.0, 1.0
    rows = make_rows(X, np.ones(5), row_norm=10.0, intercept=0.0, weights=weights)
    assert np.linalg.norm(first_sum(rows, 3.0)) == pytest.approx(1.0, rel=1e-12)
    for shares in SHARES:
        attained = np.linalg.norm(second_sum(rows, np.eye(2), 100.0, shares=shares))
        assert attained == pytest.approx(1.0, rel=1e-12)
        for cap in (1.0, 25.0, 100.0, 400.0):
            assert np.linalg.norm(second_sum(rows, np.eye(2), cap, shares=shares)) <= 1.0
        # A level lengthens the part of a row within its cap that is divided by both sums.
        view = view_of(np.eye(2), 100.0, 5.0)
        attained = np.linalg.norm(second_sum(rows, np.eye(2), 100.0, shares=shares, level=5.0))
        assert attained == pytest.approx(1.0, rel=1e-12)
        # Without its weight the row would be four times as long as it may be.
        larger = weighted_moments(rows.spec, dataclasses.replace(view, cap=400.0), shares, False)
        unclipped = (425.0 / 30.0) * larger(next(iter(rows.blocks())))
        assert np.linalg.norm(unclipped) > 2.0 * declared(rows, Adjacency.ZERO_OUT, 1.0)
    for shares in TARGET_SHARES:
        assert np.linalg.norm(target_sum(rows, shares)) == pytest.approx(1.0, rel=1e-12)


def test_targets_outside_their_bounds_count_as_the_nearer_one():
    X = np.full((3, 1), 0.5)
    inside = make_rows(X, np.array([0.0, 1.0, 0.5]))
    outside = make_rows(X, np.array([-7.0, 1e200, 0.5]))
    basis = np.eye(2)
    np.testing.assert_array_equal(second_sum(inside, basis, 1e3), second_sum(outside, basis, 1e3))
    shares = TARGET_SHARES[0]
    np.testing.assert_array_equal(target_sum(inside, shares), target_sum(outside, shares))


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("side", [2, 5, 16])
def test_counts_of_targets_are_those_of_a_histogram(layout, dtype, side):
    rng = np.random.default_rng(8)
    y, weights = rng.uniform(size=3000), rng.uniform(0, 2, 3000)
    rows = make_rows(
        rng.normal(size=(3000, 2)), y, layout=layout, dtype=dtype, weights=weights, most=2.0
    )
    (block, *others) = rows.blocks()
    found = target_sum(rows, TargetShares(0.25, 0.25, 0.25, side))
    kept = np.concatenate([np.asarray(one.targets, dtype=float) for one in (block, *others)])
    expected = np.histogram(kept, side**2, (0.0, 1.0), weights=weights)[0]
    np.testing.assert_allclose(found[2:], 0.5 * expected, atol=1e-9)
    np.testing.assert_allclose(found[:2], [weights @ (kept - 0.5), 0.5 * weights.sum()], atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_is_nearer_to_the_exact_one_than_rounding_allows(dtype):
    # Two runs and a remainder; exact sums over the very same rows by math.fsum.
    rng = np.random.default_rng(6)
    rows = make_rows(rng.normal(size=(2100, 2)), rng.uniform(size=2100), dtype=dtype)
    (block,) = rows.blocks()
    z = rows_in_basis(block, rows.spec, np.eye(3), row_by_row=False)
    factors = 1.0 / (z * z).sum(axis=1)
    exact = [
        math.fsum(float(f) * float(a[i]) * float(a[j]) for f, a in zip(factors, z, strict=True))
        for i in range(3)
        for j in range(i, 3)
    ]
    computed = first_sum(rows, 1.0) / np.where(np.isin(np.arange(6), [0, 3, 5]), 1, math.sqrt(2))
    error = np.linalg.norm(computed - exact)
    assert error < 1e-9 * 2100
    assert error <= sum_rounding(rows.spec, Adjacency.ZERO_OUT, 1.0) + 1e-11


def make_oracle(rows, adjacency=Adjacency.ZERO_OUT, seed=0):
    return Oracle(rows, Squared(), Curator(adjacency, SeededNoise(seed)))


def ask_first(oracle, constant, multiplier):
    """Declare normalised second moments and release them."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = second_moment_sum(spec).release(spec, adjacency, GaussianNoise(multiplier))
    return noisy_second_moments(oracle, declared, constant)


def ask_second(oracle, basis, cap, shares, multiplier):
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    noise = GaussianNoise(multiplier)
    declared = moment_sum(spec, shares).release(spec, adjacency, noise)
    return noisy_weighted_moments(oracle, declared, view_of(basis, cap), shares)


@pytest.mark.parametrize("shares", SHARES, ids=lambda one: f"matrix {one.matrix:g}")
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_releases_are_recorded_with_noise_for_their_bounds(adjacency, shares):
    rows = make_rows(np.ones((4, 2)), np.ones(4), most=2.0, weights=np.ones(4))
    oracle = make_oracle(rows, adjacency)
    with released_sums() as sums:
        ask_first(oracle, 0.5, 3.0)
        ask_second(oracle, np.eye(3), 0.7, shares, 5.0)
    assert oracle.curator.event == Composed((Gaussian(3.0), Gaussian(5.0)))
    rel = 0.03 if adjacency is Adjacency.ADD_REMOVE else 1e-5
    for (_, std), multiplier, opposition in zip(
        sums, (3.0, 5.0), (0.0, shares.opposition), strict=True
    ):
        replaced = adjacency is Adjacency.REPLACE_ONE
        factor = math.sqrt(2.0 + 2.0 * opposition) if replaced else 1.0
        assert std == pytest.approx(multiplier * factor * 2.0, rel=rel)
    assert [value.shape for value, _ in sums] == [(6,), (4 if shares.matrix == 0.0 else 10,)]


def test_off_diagonal_noise_is_smaller_by_sqrt_2_and_symmetric():
    # Rows of weight zero leave nothing but noise: 20 matrices of 2016 values.
    rows = make_rows(np.ones((2, 62)), np.ones(2), weights=np.zeros(2))
    draws = np.array([ask_first(make_oracle(rows, seed=seed), 0.5, 2.0) for seed in range(20)])
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    diagonal = np.diagonal(draws, axis1=1, axis2=2)
    above = draws[:, *np.triu_indices(63, 1)]
    assert diagonal.std() == pytest.approx(2.0, rel=0.08)
    assert above.std() == pytest.approx(2.0 / math.sqrt(2.0), rel=0.015)
    assert abs(np.corrcoef(draws[0].ravel(), draws[1].ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("shares", SHARES, ids=lambda one: f"matrix {one.matrix:g}")
def test_noise_equals_its_report(shares):
    rows = make_rows(np.ones((2, 300)), np.ones(2), weights=np.zeros(2), intercept=0.0, most=2.0)
    found = ask_second(make_oracle(rows), np.eye(300), 3.0, shares, 2.0)
    unit = 2.0 * 2.0
    assert found.vector_noise == pytest.approx(
        unit * REACH * math.sqrt(3.0 / shares.vector), rel=1e-4
    )
    assert found.vector.std() == pytest.approx(found.vector_noise, rel=0.15)
    assert found.squares_noise == pytest.approx(
        unit * REACH**2 / math.sqrt(shares.squares), rel=1e-4
    )
    if shares.matrix > 0.0:
        assert found.matrix_noise == pytest.approx(3.0 * unit / math.sqrt(shares.matrix), rel=1e-4)
        assert np.diagonal(found.matrix).std() == pytest.approx(found.matrix_noise, rel=0.15)


@pytest.mark.parametrize("shares", SHARES, ids=lambda one: f"matrix {one.matrix:g}")
def test_released_sums_are_in_their_own_units(shares):
    # Nearly no noise: the sums that the parts stand for.
    rng = np.random.default_rng(9)
    rows = make_rows(rng.normal(size=(500, 3)) * 0.3, rng.uniform(size=500), intercept=0.0)
    found = ask_second(make_oracle(rows), 5.0 * np.eye(3), 1.5, shares, 1e-6)
    (block,) = rows.blocks()
    z = 5.0 * np.asarray(block.features())
    f = 1.5 / np.maximum((z * z).sum(axis=1), 1.5)
    q = block.targets - CENTER - z @ view_of(5.0 * np.eye(3), 1.5).v
    r = np.clip(q, -REACH, REACH)
    most = REACH * math.sqrt(1.5) / np.linalg.norm(z, axis=1)
    factors = f * (shares.matrix > 0.0)
    expected = (z * factors[:, None]).T @ z
    np.testing.assert_allclose(found.matrix, expected, atol=1e-3)
    clipped = np.clip(q, -most, most) if shares.matrix == 0.0 else f * r
    np.testing.assert_allclose(found.vector, z.T @ clipped, atol=1e-3)
    assert found.squares == pytest.approx(r @ r, abs=1e-3)
