"""The constraints: projections and sizes in closed form, parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.problem import Box, L1Ball, L2Ball, Simplex, Unconstrained


def test_projections_in_closed_form() -> None:
    w = np.array([3.0, -4.0])
    np.testing.assert_array_equal(Unconstrained().project(w), w)
    np.testing.assert_allclose(L2Ball(2.5).project(w), [1.5, -2])
    np.testing.assert_allclose(L1Ball(3.0).project(w), [1, -2])
    np.testing.assert_allclose(L1Ball(0.5).project(w), [0, -0.5])
    np.testing.assert_allclose(Box(-1, 5).project(w), [3, -1])
    np.testing.assert_allclose(Simplex().project(w), [1, 0])
    np.testing.assert_allclose(Simplex(2.0).project(np.array([0.0, 0.0])), [1, 1])


def test_matrices_count_as_one_vector() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 3)) * 3
    for c in (L2Ball(1.0), L1Ball(1.0), Box(-0.2, 1), Simplex()):
        np.testing.assert_allclose(c.project(w), c.project(w.ravel()).reshape(4, 3))


def test_projection_leaves_no_negative_zeros() -> None:
    assert not np.signbit(L1Ball(1.0).project(np.array([5.0, -0.1]))).any()


def test_far_points_keep_the_sum_of_the_simplex() -> None:
    w = np.array([1e12, 1e12 + 0.5, -1e12])
    assert Simplex().project(w).sum() == pytest.approx(1, abs=1e-3)


def test_gaussian_widths_in_closed_form() -> None:
    half_normal = math.sqrt(2 / math.pi)
    for c in (L2Ball(3.0), L1Ball(3.0), Box(-3, 3)):
        assert c.gaussian_width(1) == pytest.approx(3 * half_normal, rel=1e-12)
    assert L2Ball(1.0).gaussian_width(2) == pytest.approx(math.sqrt(math.pi / 2), rel=1e-12)
    assert L1Ball(1.0).gaussian_width(2) == pytest.approx(2 / math.sqrt(math.pi), rel=1e-12)
    assert Simplex().gaussian_width(1) == 0
    assert Simplex().gaussian_width(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-12)
    assert Simplex().gaussian_width(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-12)
    assert Box(1, 3).gaussian_width(10) == pytest.approx(20 / math.sqrt(2 * math.pi))


def test_the_l1_ball_is_thin_and_the_l2_ball_is_not() -> None:
    for dimension in (10**3, 10**6, 10**9):
        assert L2Ball(1.0).gaussian_width(dimension) == pytest.approx(
            math.sqrt(dimension), rel=1e-3
        )
        upper = math.sqrt(2 * math.log(2 * dimension))
        assert 0.85 * upper < L1Ball(1.0).gaussian_width(dimension) < upper
        assert Simplex().gaussian_width(dimension) < L1Ball(1.0).gaussian_width(dimension)


def test_noise_counts_in_few_directions_of_a_thin_set() -> None:
    assert Unconstrained().effective_dimension(1000) == 1000
    assert L2Ball(7.0).effective_dimension(1000) == pytest.approx(999.5, rel=1e-3)
    assert Box(-2, 2).effective_dimension(1000) == pytest.approx(2000 / math.pi)
    assert 10 < L1Ball(7.0).effective_dimension(1000) < 2 * math.log(2000)
    for thin in (Simplex(), L1Ball(2.0)):
        assert thin.effective_dimension(1) == 1


def test_box_without_zero_has_norm_bound_above_half_diameter() -> None:
    assert Box(1, 3).norm_bound(4) == 6
    assert Box(-3, -1).norm_bound(4) == 6


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_radius_is_checked(radius: float) -> None:
    for make in (L2Ball, L1Ball, Simplex):
        with pytest.raises(ValueError, match="radius must be a finite number above 0"):
            make(radius)


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 0), (math.nan, 1), (0, math.nan), (math.inf, math.inf), (-math.inf, -math.inf)],
)
def test_box_bounds_are_checked(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="low and high must satisfy low <= high"):
        Box(low, high)
