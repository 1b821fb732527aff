"""The non-convex losses: their definitions, their limits, and constants to many digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dpglm.problem import Logistic, Savage, Tangent, Tempered

Z = np.linspace(-30, 30, 241)
ONES = np.ones_like(Z)


def test_savage_is_its_definition_and_bounded() -> None:
    np.testing.assert_allclose(Savage().value(Z, ONES), (1 + np.exp(Z)) ** -2.0)
    assert Savage().slope_bound == pytest.approx(8 / 27, rel=1e-15)
    # The constant to 20 digits, from the root of 12 u^2 - 15 u + 4.
    assert Savage().smoothness == pytest.approx(0.15405857012135053601, rel=1e-14)


def test_tangent_is_its_definition_and_penalises_too_good_rows() -> None:
    np.testing.assert_allclose(Tangent().value(Z, ONES), (2 * np.arctan(Z) - 1) ** 2)
    best = math.tan(0.5)
    assert Tangent().value([best], [1])[0] == pytest.approx(0, abs=1e-30)
    assert Tangent().value([1e8], [1])[0] == pytest.approx((math.pi - 1) ** 2)
    assert Tangent().value([-1e8], [1])[0] == pytest.approx((math.pi + 1) ** 2)


def test_tangent_constants_to_many_digits() -> None:
    with mpmath.workdps(40):

        def loss(m: mpmath.mpf) -> mpmath.mpf:
            return (2 * mpmath.atan(m) - 1) ** 2

        steepest = mpmath.findroot(lambda m: mpmath.diff(loss, m, 2), -0.5)
        curved = mpmath.findroot(lambda m: mpmath.diff(loss, m, 3), 0.1)
        assert Tangent().slope_bound == pytest.approx(
            float(-mpmath.diff(loss, steepest)), rel=1e-14
        )
        assert Tangent().smoothness == pytest.approx(float(mpmath.diff(loss, curved, 2)), rel=1e-14)


@pytest.mark.parametrize("t", [0.0, 0.2, 0.5, 0.9])
def test_tempered_is_the_bregman_divergence_of_its_definition(t: float) -> None:
    """Sum over both classes of y (log_t y - log_t p) - (y^(2-t) - p^(2-t)) / (2 - t)."""

    def log_t(x: float) -> float:
        return (x ** (1 - t) - 1) / (1 - t)

    for z in (-6.0, -0.7, 0.0, 1.3, 5.0):
        p = 1 / (1 + math.exp(-z))
        divergence = log_t(1) - log_t(p) - (1 - p ** (2 - t)) / (2 - t)
        divergence += (1 - p) ** (2 - t) / (2 - t)
        assert Tempered(t).value([z], [1])[0] == pytest.approx(divergence, rel=1e-10)
        assert Tempered(t).value([-z], [-1])[0] == pytest.approx(divergence, rel=1e-10)


def test_tempered_joins_savage_and_logistic() -> None:
    np.testing.assert_allclose(Tempered(0).value(Z, ONES), Savage().value(Z, ONES), atol=1e-15)
    np.testing.assert_allclose(Tempered(0).slope(Z, ONES), Savage().slope(Z, ONES), atol=1e-15)
    cool = Tempered(1 - 1e-9)
    np.testing.assert_allclose(cool.slope(Z, ONES), Logistic().slope(Z, ONES), atol=1e-6)
    np.testing.assert_allclose(cool.value(Z, ONES), Logistic().value(Z, ONES), atol=1e-5)
    assert Tempered(0).slope_bound == pytest.approx(Savage().slope_bound, rel=2e-9)
    assert Tempered(0).smoothness == pytest.approx(Savage().smoothness, rel=2e-9)
    assert cool.slope_bound == pytest.approx(1, rel=1e-6)
    assert cool.smoothness == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize("t", [0.0, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_tempered_constants_against_a_fine_grid(t: float) -> None:
    """Margins down to -2000, where the tail of a temperature near 1 is still alive."""
    m = np.linspace(-2000, 50, 400_001)
    y = np.ones_like(m)
    slope = float(np.abs(Tempered(t).slope(m, y)).max())
    curvature = float(np.abs(Tempered(t).curvature(m, y)).max())
    assert slope <= Tempered(t).slope_bound <= slope * (1 + 1e-4)
    assert curvature <= Tempered(t).smoothness <= curvature * (1 + 1e-4)


@pytest.mark.parametrize("t", [0.0, 0.5, 0.8])
def test_tempered_is_bounded(t: float) -> None:
    assert Tempered(t).value([-1e4], [1])[0] == pytest.approx(1 / (1 - t))


def test_predictions_are_probabilities() -> None:
    for loss in (Savage(), Tempered(0.5)):
        np.testing.assert_allclose(loss.link.inverse(Z), Logistic().link.inverse(Z))
    p = Tangent().link.inverse(Z)
    assert p.min() == 0
    assert p.max() == 1
    assert Tangent().link.inverse([0.0])[0] == 0.5


@pytest.mark.parametrize("loss", [Savage(), Tangent(), Tempered(0.3)], ids=repr)
def test_the_predicted_probability_minimises_the_expected_loss(loss: Savage) -> None:
    """The link that each loss claims: at P(y = 1) = q the best z predicts q."""
    z = np.linspace(-3, 3, 60_001)
    for q in (0.2, 0.5, 0.7):
        risk = q * loss.value(z, np.ones_like(z)) + (1 - q) * loss.value(z, -np.ones_like(z))
        assert loss.link.inverse(z[[np.argmin(risk)]])[0] == pytest.approx(q, abs=1e-3)


@pytest.mark.parametrize("t", [-0.1, 1.0, 1.5, math.nan])
def test_temperature_is_checked(t: float) -> None:
    with pytest.raises(ValueError, match=r"temperature must lie in \[0, 1\)"):
        Tempered(t)
