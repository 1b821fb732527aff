"""Counts that add up: least squares against matrices, and the nearest that are not negative."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.tabulate import Total, nearest_counts, nearest_table, pooled, whole_of


def least_squares(y, v, A, b):
    """Return the estimate and covariance of y + N(0, v) given A x = b."""
    V = np.diag(v)
    K = V @ A.T @ np.linalg.pinv(A @ V @ A.T)
    return y - K @ (A @ y - b), V - K @ A @ V


def test_parts_of_a_known_whole_are_least_squares():
    y, v = np.array([5.0, 2.0, 9.0]), np.array([1.0, 4.0, 2.0])
    whole = whole_of(y, v, Total(20.0, 0.0))
    x, covariance = least_squares(y, v, np.ones((1, 3)), np.array([20.0]))
    np.testing.assert_allclose(whole.values, x)
    for c in (np.array([1.0, 0.0, 0.0]), np.array([0.5, -1.0, 2.0])):
        assert whole.variance(c) == pytest.approx(c @ covariance @ c)


def test_a_whole_that_is_estimated_elsewhere_is_least_squares():
    # The whole is observed as 20, by itself, and as the sum of its parts.
    y, v = np.array([5.0, 2.0, 9.0, 20.0]), np.array([1.0, 4.0, 2.0, 3.0])
    A = np.array([[1.0, 1.0, 1.0, -1.0]])
    x, covariance = least_squares(y, v, A, np.zeros(1))
    total = pooled([Total(20.0, 3.0), Total(16.0, 7.0)])
    whole = whole_of(y[:3], v[:3], total)
    np.testing.assert_allclose([*whole.values, total.value], x)
    c = np.array([1.0, 1.0, 0.0])
    assert whole.variance(c) == pytest.approx(c @ covariance[:3, :3] @ c)


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_counts_are_the_nearest(seed):
    rng = np.random.default_rng(seed)
    y, v = rng.normal(1.0, 3.0, 6), rng.uniform(0.5, 2.0, 6)
    x = nearest_counts(y, v, 5.0)
    assert x.sum() == pytest.approx(5.0)
    assert (x >= 0.0).all()
    found = minimize(
        lambda z: ((z - y) ** 2 / v).sum(),
        np.full(6, 5.0 / 6.0),
        jac=lambda z: 2.0 * (z - y) / v,
        bounds=[(0.0, None)] * 6,
        constraints={"type": "eq", "fun": lambda z: z.sum() - 5.0},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    np.testing.assert_allclose(x, found.x, atol=1e-4)


def test_nothing_is_divided_among_nothing():
    assert nearest_counts(np.array([3.0, -1.0]), np.ones(2), 0.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_table_is_the_nearest(seed):
    rng = np.random.default_rng(seed)
    y = rng.normal(1.0, 2.0, (3, 2))
    rows, columns = np.array([4.0, 2.0, 0.0]), np.array([5.0, 1.0])
    x = nearest_table(y, rows, columns)
    np.testing.assert_allclose(x.sum(axis=1), rows, atol=1e-6)
    np.testing.assert_allclose(x.sum(axis=0), columns, atol=1e-6)
    assert (x >= 0.0).all()
    found = minimize(
        lambda z: ((z - y.ravel()) ** 2).sum(),
        np.outer(rows, columns).ravel() / 6.0,
        bounds=[(0.0, None)] * 6,
        constraints={
            "type": "eq",
            "fun": lambda z: np.concatenate(
                [z.reshape(3, 2).sum(axis=1) - rows, z.reshape(3, 2).sum(axis=0)[:1] - columns[:1]]
            ),
        },
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    np.testing.assert_allclose(x.ravel(), found.x, atol=1e-3)
