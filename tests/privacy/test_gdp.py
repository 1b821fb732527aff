"""Exact Gaussian trade-offs against 60-digit arithmetic."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.privacy import gdp

EPSILONS = [0.0, 1e-6, 1e-3, 0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0]
DELTAS = [1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1]


def exact_log_delta(epsilon, mu):
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.log(mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_log_delta_against_mpmath(epsilon):
    checked = 0
    for mu in [*np.logspace(-4, 1.6, 40).tolist(), 1.0, 1.0 + 1e-12]:
        if abs(epsilon / mu - mu / 2) > 40.0:
            continue
        exact = float(exact_log_delta(epsilon, mu))
        assert gdp.log_delta(epsilon, mu) == pytest.approx(exact, rel=1e-14, abs=1e-14)
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS[2:])
def test_inverses_against_mpmath_and_on_the_safe_side(epsilon, delta):
    mu = gdp.mu(epsilon, delta)
    ratio = float(mpmath.exp(exact_log_delta(epsilon, mu)) / mpmath.mpf(delta))
    assert 1.0 - 1e-9 < ratio <= 1.0
    least = gdp.epsilon(delta, mu)
    assert epsilon * (1.0 - 1e-9) <= least <= epsilon * (1.0 + 1e-12)
    assert exact_log_delta(least, mu) <= mpmath.log(mpmath.mpf(delta))


def test_half_the_noise_is_seen():
    # With half the noise mu doubles; the check above must then fail by far.
    mu = gdp.mu(1.0, 1e-5)
    assert gdp.delta(1.0, 2.0 * mu) > 100.0 * 1e-5
    assert gdp.epsilon(1e-5, 2.0 * mu) > 2.0


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 200.0), st.floats(1e-6, 50.0), st.floats(1.0001, 3.0))
def test_monotone_in_both(epsilon, mu, factor):
    assert gdp.log_delta(epsilon, factor * mu) > gdp.log_delta(epsilon, mu) - 1e-12
    assert gdp.log_delta(factor * epsilon, mu) <= gdp.log_delta(epsilon, mu) + 1e-12


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-18, 0.5), st.floats(1e-5, 30.0))
def test_reevaluation_never_exceeds(delta, mu):
    epsilon = gdp.epsilon(delta, mu)
    assert gdp.delta(epsilon, mu) <= delta
    if epsilon > 0.0:
        assert gdp.delta(epsilon, gdp.mu(epsilon, delta)) <= delta


def test_extremes_are_defined():
    assert gdp.log_delta(1.0, 0.0) == -math.inf
    assert gdp.delta(1.0, math.inf) == 1.0
    assert gdp.delta(1e300, 1e-300) == 0.0
    assert gdp.epsilon(1e-5, 0.0) == 0.0
    assert gdp.epsilon(1.0, 5.0) == 0.0
    assert gdp.epsilon(0.5, 0.1) == 0.0
    assert gdp.epsilon(0.0, 1.0) == math.inf
    assert gdp.epsilon(1e-5, math.inf) == math.inf
    assert gdp.mu(1.0, 0.0) == 0.0
    assert gdp.mu(1.0, 1.0) == math.inf
    assert gdp.mu(0.0, 1e-5) == pytest.approx(1e-5 * math.sqrt(2.0 * math.pi), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gdp.log_delta(-1.0, 1.0), "epsilon"),
        (lambda: gdp.log_delta(1.0, -1.0), "mu"),
        (lambda: gdp.log_delta(math.nan, 1.0), "epsilon"),
        (lambda: gdp.epsilon(-1e-9, 1.0), "delta"),
        (lambda: gdp.epsilon(1.5, 1.0), "delta"),
        (lambda: gdp.epsilon(0.1, math.nan), "mu"),
        (lambda: gdp.mu(math.inf, 1e-5), "epsilon"),
        (lambda: gdp.mu(-1.0, 1e-5), "epsilon"),
        (lambda: gdp.mu(1.0, math.nan), "delta"),
    ],
)
def test_bad_arguments_are_refused(call, name):
    with pytest.raises(ValueError, match=name):
        call()
