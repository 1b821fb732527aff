"""Delta as a contour integral: compared with closed forms, and safe from errors."""

import math

import numpy as np
import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting import mixture
from dpglm.privacy.accounting.accountant import least_epsilon, reduce_event
from dpglm.privacy.accounting.mixture import _MixtureProfile
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian, ProjectedGaussian, Repeated
from tests.slowly import together


def profile(*events):
    return _MixtureProfile(reduce_event(Composed(events), Adjacency.ZERO_OUT))


@together("mu", [1e-6, 0.01, 0.3, 1.0, 5.0, 40.0])
@together("epsilon", [0.0, 0.01, 1.0, 10.0, 100.0])
def test_gaussian_at_any_delta(mu, epsilon):
    exact = gdp.log_delta(epsilon, mu)
    if exact > -1e6:
        found = profile(Gaussian(1.0 / mu))._log_delta(epsilon)
        assert exact - 1e-10 * (1.0 - exact) <= found <= exact + 3e-5


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-15, 1e-100])
def test_epsilon_inverts_delta(delta):
    one = profile(Gaussian(2.0), Repeated(ProjectedGaussian(6.0, 3), 2))
    epsilon = least_epsilon(one.delta, delta)
    assert one.delta(epsilon) <= delta
    if epsilon > 0.0:
        assert one.delta(0.9999 * epsilon) > delta


def test_a_rough_rule_is_still_an_upper_bound(monkeypatch):
    # Period and nodes far too few: the folded and the cut parts are added, never lost.
    exact = gdp.log_delta(1.0, 0.5)
    for name, value in (("_LOG_FOLDED", -0.5), ("_LOG_CUT", 3.0)):
        monkeypatch.setattr(mixture, name, value)
        found = profile(Gaussian(2.0))._log_delta(1.0)
        assert exact < found < exact + 8.0


def test_omitted_parts_are_detected(monkeypatch):
    # The planted bug: few nodes, and nothing for those beyond.
    monkeypatch.setattr(mixture, "_LOG_CUT", 3.0)
    monkeypatch.setattr(_MixtureProfile, "_log_cut", lambda self, theta, epsilon, t: -1e3)
    one = profile(Repeated(ProjectedGaussian(2.0, 1), 2))
    exact = math.log(chi_square_mean(1.0, 1.0 / 4.0, 2))
    assert one._log_delta(1.0) < exact - 1e-3
    monkeypatch.undo()
    assert exact - 1e-9 <= one._log_delta(1.0) <= exact + 3e-5


def chi_square_mean(epsilon, scale, degrees):
    """Mean of the Gaussian mechanism's delta over mu^2 = scale chi2, by the trapezoidal rule."""
    chi = np.linspace(1e-6, 40.0, 400_001)
    density = chi ** (degrees - 1) * np.exp(-0.5 * chi**2)
    deltas = np.array([gdp.delta(epsilon, math.sqrt(scale) * one) for one in chi[::40]])
    deltas = np.interp(chi, chi[::40], deltas)
    return float(np.trapezoid(density * deltas, chi) / np.trapezoid(density, chi))


def test_moments_are_those_of_chi_squares_with_falling_modulus():
    one = profile(Repeated(ProjectedGaussian(math.sqrt(5.0), 4), 1), ProjectedGaussian(5.0**0.5, 1))
    rng = np.random.default_rng(0)
    squares = 0.05 * rng.chisquare(4, 1_000_000) + 0.2 * rng.chisquare(1, 1_000_000)
    for theta in (0.2, 0.9):
        values = np.exp(0.5 * (theta + theta**2) * squares)
        error = 5.0 * float(values.std()) / math.sqrt(values.size)
        found = float(np.exp(one._log_moment(np.array([theta + 0j]))[0].real))
        assert found == pytest.approx(values.mean(), abs=error)
        moduli = one._log_moment(theta + 1j * np.geomspace(0.05, 1e4, 300)).real
        assert np.all(np.diff(moduli) < 0.0)
    limit = one._limit / 0.999999
    assert 0.2 * (limit + limit**2) == pytest.approx(1.0, rel=1e-12)


def test_unreachable_delta_is_infinite(monkeypatch):
    one = profile(ProjectedGaussian(math.sqrt(2.0), 1))
    monkeypatch.setattr(mixture, "_MOST_NODES", 16)
    assert one.delta(3.0) <= 1.0
    assert least_epsilon(one.delta, 1e-12) > 10.0


@pytest.mark.parametrize(
    ("dimension", "noise", "count"), [(2**40, 1e3, 10**6), (2**53, 1.0, 1), (2**53, 1e6, 2**40)]
)
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 5.0])
def test_many_degrees_of_freedom_leave_the_gaussian_mechanism(dimension, noise, count, epsilon):
    # Each factor of the moment is closer to 1 than a float can be.
    exact = gdp.log_delta(epsilon, math.sqrt(count) / noise)
    found = profile(Repeated(ProjectedGaussian(noise, dimension), count))._log_delta(epsilon)
    assert exact - 1e-12 <= found <= exact + 3e-5
