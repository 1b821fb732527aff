"""The hinge family: closed forms, kinks and limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.problem import Hinge, OneVsRest, SmoothedHinge, SquaredHinge

M = np.array([-3.0, 0.0, 0.5, 0.9, 1.5])


def test_closed_forms_depend_on_the_margin_only() -> None:
    for y in (1, -1):
        z, targets = y * M, np.full(M.size, y)
        np.testing.assert_allclose(Hinge().value(z, targets), [4, 1, 0.5, 0.1, 0])
        np.testing.assert_allclose(Hinge().slope(z, targets) * y, [-1, -1, -1, -1, 0])
        np.testing.assert_allclose(SquaredHinge().value(z, targets), [16, 1, 0.25, 0.01, 0])
        np.testing.assert_allclose(SquaredHinge().slope(z, targets) * y, [-8, -2, -1, -0.2, 0])
        smoothed = SmoothedHinge(width=0.5)
        np.testing.assert_allclose(smoothed.value(z, targets), [3.75, 0.75, 0.25, 0.01, 0])
        np.testing.assert_allclose(smoothed.slope(z, targets) * y, [-1, -1, -1, -0.2, 0])


def test_a_narrow_smoothed_hinge_is_the_hinge() -> None:
    y = np.ones_like(M)
    np.testing.assert_allclose(SmoothedHinge(1e-9).value(M, y), Hinge().value(M, y), atol=1e-9)
    assert SmoothedHinge(1e-9).smoothness == pytest.approx(1e9)


def test_a_wide_smoothed_hinge_is_a_scaled_squared_hinge() -> None:
    y = np.ones_like(M)
    wide = SmoothedHinge(width=100.0)
    np.testing.assert_allclose(wide.value(M, y), SquaredHinge().value(M, y) / 200)
    np.testing.assert_allclose(wide.slope(M, y), SquaredHinge().slope(M, y) / 200)


def test_the_hinge_is_linear_while_the_kink_is_out_of_reach() -> None:
    assert Hinge().smoothness_on(0.99, -1, 1) == 0
    assert Hinge().smoothness_on(1.0, -1, 1) == math.inf
    assert SmoothedHinge(0.5).smoothness_on(0.4, -1, 1) == 0
    assert SmoothedHinge(0.5).smoothness_on(0.5, -1, 1) == 2


def test_slope_inverse_gives_a_point_with_that_subgradient() -> None:
    u = np.array([0.1, 0.5, 0.9])
    for y in (1.0, -1.0):
        targets = np.full_like(u, y)
        np.testing.assert_array_equal(Hinge().slope_inverse(-y * u, targets), targets)
        for loss in (SquaredHinge(), SmoothedHinge(0.3)):
            z = loss.slope_inverse(-y * u, targets)
            np.testing.assert_allclose(loss.slope(z, targets), -y * u)


def test_margins_are_not_probabilities() -> None:
    for loss in (Hinge(), SquaredHinge(), SmoothedHinge()):
        assert loss.link is None
        assert OneVsRest(loss, 3).link is None


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan, math.inf])
def test_width_is_checked(width: float) -> None:
    with pytest.raises(ValueError, match="width must be a finite number above 0"):
        SmoothedHinge(width)
