"""The losses of generalized linear models, against closed forms and many-digit arithmetic."""

from __future__ import annotations

import math
import tracemalloc

import mpmath
import numpy as np
import pytest

from dpglm.problem import ConvexScalarLoss, Huber, Logistic, Poisson, Softmax, Squared

Z = [-700.0, -40.0, -20.0, -1.0, -1e-6, 0.0, 1e-6, 1.0, 20.0, 40.0, 700.0]


@pytest.mark.parametrize("y", [-1, 1])
def test_logistic_has_full_relative_precision(y: int) -> None:
    with mpmath.workdps(400):
        m = [y * mpmath.mpf(z) for z in Z]
        value = [float(mpmath.log1p(mpmath.exp(-v))) for v in m]
        slope = [float(-y / (1 + mpmath.exp(v))) for v in m]
        curvature = [float(mpmath.exp(v) / (1 + mpmath.exp(v)) ** 2) for v in m]
    targets = np.full(len(Z), y)
    np.testing.assert_allclose(Logistic().value(Z, targets), value, rtol=1e-14)
    np.testing.assert_allclose(Logistic().slope(Z, targets), slope, rtol=1e-14)
    np.testing.assert_allclose(Logistic().curvature(Z, targets), curvature, rtol=1e-14)


def test_logistic_constants() -> None:
    assert Logistic().slope_bound == 1
    assert Logistic().smoothness == 0.25
    assert Logistic().slope_bound_on(0.0, -1, 1) == 0.5
    assert Logistic().slope_bound_on(2.0, -1, 1) == pytest.approx(1 / (1 + math.exp(-2)))


def test_predictions() -> None:
    z = np.array([-1e4, -1.0, 0.0, 2.0])
    np.testing.assert_allclose(
        Logistic().link.inverse(z), [0, 1 / (1 + math.e), 0.5, 1 / (1 + math.exp(-2))]
    )
    np.testing.assert_allclose(Poisson().link.inverse(z), np.exp(z))
    np.testing.assert_array_equal(Squared().link.inverse(z), z)
    np.testing.assert_array_equal(Huber().link.inverse(z), z)
    p = Softmax().link.inverse(np.stack([z, -z, 0 * z], axis=1))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(p[2], 1 / 3)
    with pytest.raises(ValueError, match="z must have shape"):
        Softmax().link.inverse(z)


def test_softmax_against_many_digits() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(20, 5)) * 15, rng.integers(0, 5, 20)
    with mpmath.workdps(60):
        value, slope = [], []
        for row, label in zip(z, y, strict=True):
            e = [mpmath.exp(mpmath.mpf(v)) for v in row]
            value.append(float(mpmath.log(sum(e)) - mpmath.mpf(row[label])))
            slope.append([float(v / sum(e) - (k == label)) for k, v in enumerate(e)])
    np.testing.assert_allclose(Softmax().value(z, y), value, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(Softmax().slope(z, y), slope, rtol=1e-12, atol=1e-15)


def test_softmax_saturates() -> None:
    z = np.array([[1e4, 0.0, -1e4], [-1e4, 1e4, 3.0]])
    expected = [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(Softmax().slope(z, [1, 1]), expected, atol=1e-15)
    np.testing.assert_allclose(Softmax().value(z, [1, 1]), [1e4, 0.0])


def test_softmax_of_two_classes_is_logistic_loss_of_difference() -> None:
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=(50, 2)) * 3, rng.integers(0, 2, 50)
    difference, sign = z[:, 1] - z[:, 0], 2 * y - 1
    np.testing.assert_allclose(Softmax().value(z, y), Logistic().value(difference, sign))
    np.testing.assert_allclose(Softmax().slope(z, y)[:, 1], Logistic().slope(difference, sign))
    np.testing.assert_allclose(Softmax().link.inverse(z)[:, 1], Logistic().link.inverse(difference))


def test_softmax_slopes_sum_to_zero_and_ignore_a_shift() -> None:
    rng = np.random.default_rng(2)
    z, y = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    np.testing.assert_allclose(Softmax().slope(z, y).sum(axis=1), 0, atol=1e-15)
    np.testing.assert_allclose(Softmax().slope(z + 100, y), Softmax().slope(z, y), atol=1e-13)


@pytest.mark.parametrize("order", ["C", "F"])
def test_softmax_does_not_depend_on_memory_layout(order: str) -> None:
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    laid_out = np.array(z, order=order)
    np.testing.assert_array_equal(Softmax().slope(laid_out, y), Softmax().slope(z, y))
    np.testing.assert_array_equal(laid_out, z)


def test_softmax_refuses_invalid_class_indices() -> None:
    z = np.zeros((3, 3))
    for y in ([0, 1, 3], [0, 1, -1]):
        with pytest.raises(ValueError, match=r"y must lie in 0, ..., 2"):
            Softmax().slope(z, y)
    for bad in ([0.0, 1.0, 2.0], [True, False, True], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="y must hold integer class indices"):
            Softmax().slope(z, bad)
    with pytest.raises(ValueError, match="K >= 2"):
        Softmax().slope(np.zeros((3, 1)), [0, 0, 0])


def test_softmax_slope_allocates_one_array() -> None:
    z = np.zeros((2000, 100), dtype=np.float32)
    y = np.zeros(2000, dtype=np.int64)
    Softmax().slope(z, y)
    tracemalloc.start()
    try:
        Softmax().slope(z, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * z.nbytes


def test_squared_and_huber_closed_forms() -> None:
    z, y = np.array([0.0, 2.0, -3.0, 5.0]), np.array([0.5, 2.0, 1.0, 0.0])
    np.testing.assert_allclose(Squared().value(z, y), [0.125, 0, 8, 12.5])
    np.testing.assert_allclose(Squared().slope(z, y), [-0.5, 0, -4, 5])
    np.testing.assert_allclose(Huber(2.0).value(z, y), [0.125, 0, 6, 8])
    np.testing.assert_allclose(Huber(2.0).slope(z, y), [-0.5, 0, -2, 2])
    assert Squared().slope_bound == math.inf
    assert Huber(2.0).slope_bound == 2


def test_asymmetric_targets_use_the_farther_end() -> None:
    """A bound that reads one end twice, or only the upper one, gives 6 or 3 here."""
    assert Squared().slope_bound_on(1.0, -5, 2) == 6
    assert Squared().slope_bound_on(1.0, -2, 5) == 6
    assert Squared().slope_bound_on(1.0, -5, -2) == 6
    assert Squared().slope_bound_on(1.0, 0, 0) == 1
    assert Squared().slope_bound_on(0.0, 0, 0) == 0


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf])
def test_huber_threshold_is_checked(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold must be a finite number above 0"):
        Huber(threshold)


def test_poisson_constants_on_a_range() -> None:
    e = math.e
    assert Poisson().slope_bound_on(1.0, 0, 0) == pytest.approx(e)
    assert Poisson().slope_bound_on(1.0, 0, 10) == pytest.approx(10 - 1 / e)
    assert Poisson().slope_bound_on(0.0, 0, 0) == 1
    assert Poisson().slope_bound_on(0.0, 1, 1) == 0
    assert Poisson().slope_bound_on(1e4, 0, 1) == math.inf
    assert Poisson().slope_bound == Poisson().smoothness == math.inf


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 40.0), (np.float64, 300.0)])
def test_poisson_goes_on_along_its_tangent(dtype: type, limit: float) -> None:
    z = np.array([limit - 1, limit, limit + 1, limit + 2, 1e4], dtype=dtype)
    y = np.zeros_like(z)
    value, slope = Poisson().value(z, y), Poisson().slope(z, y)
    top = np.exp(dtype(limit))
    np.testing.assert_allclose(slope[1:], top, rtol=1e-6)
    np.testing.assert_allclose(value[1:4] / top, [1, 2, 3], rtol=1e-5)
    np.testing.assert_allclose(value[0], np.exp(z[0]), rtol=1e-6)
    # A clip factor computed from the slope, or from its square, stays a number.
    assert np.isfinite(slope * slope).all()
    assert Poisson().curvature(z, y)[-1] == 0


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson(), Huber(3.0)], ids=repr)
def test_slope_inverse(loss: ConvexScalarLoss) -> None:
    z = np.linspace(-2, 2, 41)
    for y in (1.0, -1.0 if loss.target.bounds[0] < 0 else 4.0):
        targets = np.full_like(z, y)
        np.testing.assert_allclose(
            loss.slope_inverse(loss.slope(z, targets), targets), z, atol=1e-12
        )
