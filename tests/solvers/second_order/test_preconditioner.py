"""The basis: rows look alike in it, and noise decides where it stops stretching."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.oracle.moments import check_data, constant_column
from dpglm.privacy import Adjacency
from dpglm.solvers.second_order.preconditioner import basis_from_moments, usual_basis_scale


def moments_of(X, spec):
    u = np.column_stack([X, np.full(len(X), constant_column(spec))])
    return (u / (u * u).sum(axis=1, keepdims=True)).T @ u


@pytest.mark.parametrize("intercept", [0.0, 3.0])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_rows_of_any_scale_look_alike_in_it(intercept, size):
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 0.3, 0.03])
    X = size * rng.normal(size=(4000, 3)) * scales @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    spec = DataSpec(4000, 3, row_norm=3.0 * size, intercept=intercept * size)
    basis = basis_from_moments(moments_of(X, spec), 1e-6, spec)
    rows = np.column_stack([X, np.full(4000, spec.intercept)]) if intercept else X
    z = rows @ basis.vectors
    spread = np.linalg.eigvalsh(z.T @ z / 4000)
    assert 0.3 < spread[0] <= spread[-1] < 3.0
    np.testing.assert_allclose(basis.inverse @ basis.vectors, np.eye(len(spread)), atol=1e-9)


def test_scores_below_noise_are_not_stretched():
    spec = DataSpec(100, 2)
    moments = np.diag([60.0, -3.0, 40.0])
    lengths = [
        np.linalg.norm(basis_from_moments(moments, noise, spec).vectors, axis=0)
        for noise in (1.0, 4.0)
    ]
    assert lengths[0].max() / lengths[0].min() == pytest.approx(np.sqrt(60.0 / np.sqrt(2.0)))
    assert lengths[0].max() == pytest.approx(2.0 * lengths[1].max())


def test_nothing_but_noise_gives_a_sane_basis():
    spec = DataSpec(1, 4, row_norm=10.0, intercept=10.0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = 1e6 * rng.normal(size=(5, 5))
        basis = basis_from_moments(noise + noise.T, 1e6, spec)
        assert np.isfinite(basis.vectors).all()
        assert np.isfinite(basis.inverse).all()


def test_usual_scale_of_a_basis_is_that_of_even_columns():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(20_000, 6))
    spec = DataSpec(20_000, 6, row_norm=np.sqrt(6.0))
    basis = basis_from_moments(moments_of(X, spec), 10.0, spec)
    np.testing.assert_allclose(basis.scales, usual_basis_scale(spec, 10.0), rtol=0.1)
    # No direction is seen through noise: eigenvalues are raised to it.
    drowned = basis_from_moments(moments_of(X, spec), 4000.0, spec)
    np.testing.assert_allclose(drowned.scales, usual_basis_scale(spec, 4000.0), rtol=0.4)
    assert usual_basis_scale(spec, 4000.0) < 0.8 * usual_basis_scale(spec, 10.0)


def test_too_many_columns_are_refused():
    check_data(DataSpec(10, 999, intercept=1.0), Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError, match=r"n_features must be at most 1000.*got 1001"):
        check_data(DataSpec(10, 1000, intercept=1.0), Adjacency.ZERO_OUT)


def test_rows_without_rounding_bound_are_refused():
    data = DataSpec(10, 3, dtype="float32")
    check_data(data, Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match="dtype must be 'float64'"):
        check_data(data, Adjacency.ADD_REMOVE)
