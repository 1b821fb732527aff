"""Delta as a contour integral: against closed forms, and from which errors it is safe."""

import math

import mpmath
import numpy as np
import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting import contour
from dpglm.privacy.accounting.contour import ContourProfile
from dpglm.privacy.accounting.losses.mixture_laws import PLANE_BEND, PLANE_DECAY, PLANE_STEP
from dpglm.privacy.accounting.losses.moments import (
    GaussianMoments,
    LineMoments,
    PlaneMoments,
    ProjectedMoments,
)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 10.0, 100.0])
def test_gaussian_at_any_delta(mu, epsilon):
    exact = gdp.log_delta(epsilon, mu)
    if exact > -1e6:
        found = ContourProfile((GaussianMoments(mu),)).log_delta(epsilon)
        assert exact - 1e-10 * (1.0 - exact) <= found <= exact + 3e-5


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-15, 1e-100])
def test_epsilon_inverts_delta(delta):
    profile = ContourProfile((GaussianMoments(0.5), LineMoments(0.02, 0.3, 2)))
    epsilon = profile.epsilon(delta)
    assert profile.delta(epsilon) <= delta
    if epsilon > 0.0:
        assert profile.delta(0.9999 * epsilon) > delta


def test_a_rough_rule_is_still_an_upper_bound(monkeypatch):
    # Period and nodes far too few: the folded and the cut parts are added, never lost.
    exact = gdp.log_delta(1.0, 0.5)
    for name, value in (("_LOG_FOLDED", -0.5), ("_LOG_CUT", 3.0)):
        monkeypatch.setattr(contour, name, value)
        found = ContourProfile((GaussianMoments(0.5),)).log_delta(1.0)
        assert exact < found < exact + 8.0


def density(law):
    """Density of V, and where it bends."""
    if law is LineMoments:
        return lambda v: mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-v * v / 2), [0, 20]

    def plane(v):
        if v < PLANE_BEND:
            return v * mpmath.exp(-v * v / 2)
        bridge = mpmath.exp(-PLANE_DECAY * (v * v - PLANE_BEND**2) / 2)
        half_normal = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-v * v / 2)
        return half_normal + PLANE_STEP * PLANE_DECAY * v * bridge

    return plane, [0, PLANE_BEND, 20]


@pytest.mark.parametrize("law", [LineMoments, PlaneMoments], ids=["line", "plane"])
@pytest.mark.parametrize("z", [1.0, 12.0, 0.4 + 3j, 5.0 + 20j])
def test_moments_by_integration(law, z):
    shift, slope = 0.1, 0.6
    f, ends = density(law)
    with mpmath.workdps(30):
        value = mpmath.quad(lambda v: mpmath.exp(z * slope * v) * f(v), ends)
        exact = complex(value * mpmath.exp(z * (shift + 0.5 * slope**2)))
    logarithm, roundings = law(shift, slope, 1).logarithm(np.array([complex(z)]))
    assert np.exp(logarithm[0]) == pytest.approx(exact, rel=1e-11)
    assert law(shift, slope, 3).logarithm(np.array([complex(z)]))[0] == 3 * logarithm
    assert roundings[0] * 32.0 * 2.0**-53 > 1e-14


@pytest.mark.parametrize(
    "law",
    [
        GaussianMoments(0.7),
        ProjectedMoments((0.1, 0.02), (3, 10)),
        LineMoments(0.1, 0.5, 2),
        PlaneMoments(0.1, 0.5, 2),
    ],
    ids=["gaussian", "projected", "line", "plane"],
)
def test_bounds_on_the_modulus_hold_and_fall(law):
    t = np.geomspace(0.05, 1e4, 300)
    for theta in (0.3, 1.7):
        bounds = np.array([law.log_bound(theta, float(one)) for one in t])
        assert np.all(np.diff(bounds) <= 0.0)
        moduli = law.logarithm(theta + 1j * t)[0].real
        assert np.all(moduli <= bounds + 1e-9)


def test_projected_moments_are_those_of_chi_squares():
    law = ProjectedMoments((0.05, 0.2), (4, 1))
    rng = np.random.default_rng(0)
    squares = 0.05 * rng.chisquare(4, 1_000_000) + 0.2 * rng.chisquare(1, 1_000_000)
    for theta in (0.2, 0.9):
        values = np.exp(0.5 * (theta + theta**2) * squares)
        error = 5.0 * float(values.std()) / math.sqrt(values.size)
        found = float(np.exp(law.logarithm(np.array([theta + 0j]))[0][0].real))
        assert found == pytest.approx(values.mean(), abs=error)
    assert 0.2 * (law.limit + law.limit**2) == pytest.approx(1.0, rel=1e-12)


def test_unreachable_delta_is_infinite(monkeypatch):
    profile = ContourProfile((ProjectedMoments((0.5,), (1,)),))
    monkeypatch.setattr(contour, "_MOST_NODES", 16)
    assert profile.delta(3.0) <= 1.0
    assert profile.epsilon(1e-12) > 10.0
