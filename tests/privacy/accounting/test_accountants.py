"""The exact and the Fourier accountant against closed forms and direct integration."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import GaussianAccountant, accountant_for
from dpglm.privacy.accounting.fourier import FourierAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian, Laplace, LastIterate, PoissonSampled, Repeated
from tests.privacy.pld import PLD

GAUSSIAN, FOURIER = GaussianAccountant(), FourierAccountant()
NUMERICAL = [PLD(), FOURIER]


def one_step_delta(q, s, epsilon, old=1.0, new=-1.0):
    """Exact delta of ``(1-q) N(0,s) + q N(old,s)`` against the same with ``new``, by cells.

    Sums positive parts over cells of exact normal probabilities: a lower bound, and exact but
    for the few cells in which the sign changes.
    """
    edges = np.linspace(-1.0 - 14.0 * s, 1.0 + 14.0 * s, 20_001)

    def cells(center):
        below, above = ndtr((edges - center) / s), ndtr((center - edges) / s)
        return np.where(edges[:-1] < center, np.diff(below), -np.diff(above))

    p = (1.0 - q) * cells(0.0) + q * cells(old)
    r = (1.0 - q) * cells(0.0) + q * cells(new)
    factor = math.exp(epsilon)
    return max(
        float(np.maximum(p - factor * r, 0.0).sum()), float(np.maximum(r - factor * p, 0.0).sum())
    )


@pytest.mark.parametrize("adjacency", Adjacency)
def test_gaussian_is_the_closed_form(adjacency):
    event = Composed((Repeated(Gaussian(3.0), 10), LastIterate(2.0, 0.5, 7), Gaussian(1.5)))
    mu = math.sqrt(10 / 9 + LastIterate(2.0, 0.5, 7).mu ** 2 + 1 / 2.25)
    assert GAUSSIAN.mu(event, adjacency) == pytest.approx(mu, rel=1e-14)
    assert GAUSSIAN.epsilon(event, adjacency, 1e-6) == pytest.approx(gdp.epsilon(1e-6, mu))
    assert GAUSSIAN.delta(event, adjacency, 2.0) == pytest.approx(gdp.delta(2.0, mu), rel=1e-10)


@pytest.mark.parametrize("accountant", NUMERICAL, ids=lambda one: one.name)
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.3, 0.7), (0.9, 3.0)])
def test_one_poisson_step_is_exact(accountant, adjacency, q, sigma):
    event = PoissonSampled(q, Gaussian(sigma))
    for epsilon in (0.0, 0.1, 1.0, 2.0):
        amplified = math.log1p(math.expm1(epsilon) / q)
        exact = q * gdp.delta(amplified, 1.0 / sigma)
        if exact > 1e-10:
            bound = accountant.delta(event, adjacency, epsilon)
            assert exact * (1.0 - 1e-9) <= bound <= exact * (1.0 + 2e-3)


@pytest.mark.parametrize("accountant", NUMERICAL, ids=lambda one: one.name)
@pytest.mark.parametrize(("q", "sigma"), [(0.02, 0.5), (0.2, 1.0), (0.7, 1.0), (0.999, 0.6)])
def test_replace_one_poisson_is_never_below_one_exact_step(accountant, q, sigma):
    # Clip 1, so noise of standard deviation 2 sigma: multipliers are relative to 2 C.
    event = PoissonSampled(q, Gaussian(sigma))
    for epsilon in (0.0, 0.2, 0.7, 1.5, 3.0):
        bound = accountant.delta(event, Adjacency.REPLACE_ONE, epsilon)
        for new in (-1.0, -0.5, 0.0, 0.5):
            assert bound >= one_step_delta(q, 2.0 * sigma, epsilon, new=new)


def test_replace_one_poisson_treated_as_zero_out_would_be_caught():
    # The planted bug: noise relative to C, accounted as if one row could move the sum by C.
    q, sigma, epsilon = 0.2, 1.0, 0.7
    wrong = FOURIER.delta(PoissonSampled(q, Gaussian(2.0 * sigma)), Adjacency.ZERO_OUT, epsilon)
    assert one_step_delta(q, 2.0 * sigma, epsilon) > 1.5 * wrong


def test_replace_one_is_exact_without_sampling_and_at_rate_one():
    event = Repeated(Gaussian(4.0), 9)
    assert accountant_for(event, Adjacency.REPLACE_ONE).name == "gaussian"
    found = PLD().epsilon(event, Adjacency.REPLACE_ONE, 1e-5)
    assert found == pytest.approx(gdp.epsilon(1e-5, 0.75), rel=1e-3)
    almost = Repeated(PoissonSampled(1.0 - 1e-9, Gaussian(4.0)), 9)
    assert FOURIER.epsilon(almost, Adjacency.REPLACE_ONE, 1e-5) == pytest.approx(
        gdp.epsilon(1e-5, 0.75), rel=1e-6
    )


@pytest.mark.parametrize("accountant", NUMERICAL, ids=lambda one: one.name)
def test_laplace_is_the_closed_form(accountant):
    event = Laplace(0.5)
    assert FOURIER.epsilon(event, Adjacency.ZERO_OUT, 0.0) == pytest.approx(2.0, rel=1e-14)
    assert accountant.delta(event, Adjacency.ZERO_OUT, 2.0) == pytest.approx(0.0, abs=1e-15)
    for epsilon in (0.0, 0.5, 1.5):
        exact = -math.expm1(0.5 * (epsilon - 2.0))
        bound = accountant.delta(event, Adjacency.REPLACE_ONE, epsilon)
        assert exact * (1.0 - 1e-12) <= bound <= exact * (1.0 + 1e-3)
    many = Repeated(Laplace(10.0), 30)
    assert FOURIER.epsilon(many, Adjacency.ZERO_OUT, 0.0) == pytest.approx(3.0, rel=1e-14)
    assert accountant.epsilon(many, Adjacency.ZERO_OUT, 1e-3) < 2.0


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_laplace_noise_on_several_numbers_costs_as_on_one(share):
    # Why one event covers vectors: all of the L1 sensitivity in one number is the worst case.
    split = Composed((Laplace(1.0 / (1.2 * share)), Laplace(1.0 / (1.2 * (1.0 - share)))))
    for epsilon in (0.0, 0.3, 0.8, 1.1):
        whole = FOURIER.delta(Laplace(1.0 / 1.2), Adjacency.ZERO_OUT, epsilon)
        assert FOURIER.delta(split, Adjacency.ZERO_OUT, epsilon) <= whole * (1.0 + 1e-3)


@pytest.mark.parametrize("accountant", [GAUSSIAN, FOURIER], ids=lambda one: one.name)
def test_nothing_released_costs_nothing(accountant):
    for nothing in (Composed(()), Repeated(Gaussian(1.0), 0)):
        assert accountant.epsilon(nothing, Adjacency.ZERO_OUT, 0.0) == 0.0
        assert accountant.epsilon(nothing, Adjacency.REPLACE_ONE, 1e-6) == 0.0
        assert accountant.delta(nothing, Adjacency.ADD_REMOVE, 0.0) == 0.0


@pytest.mark.parametrize("accountant", [GAUSSIAN, FOURIER], ids=lambda one: one.name)
def test_gaussian_noise_has_no_epsilon_at_delta_zero(accountant):
    assert accountant.epsilon(Gaussian(1.0), Adjacency.ZERO_OUT, 0.0) == math.inf


@pytest.mark.parametrize("accountant", [GAUSSIAN, FOURIER], ids=lambda one: one.name)
@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_bad_arguments_are_refused(accountant, bad):
    with pytest.raises(ValueError, match="epsilon"):
        accountant.delta(Gaussian(1.0), Adjacency.ZERO_OUT, bad)
    with pytest.raises(ValueError, match="delta"):
        accountant.epsilon(Gaussian(1.0), Adjacency.ZERO_OUT, bad)


def test_gaussian_accountant_refuses_inexact_cases():
    sampled = PoissonSampled(0.1, Gaussian(1.0))
    assert not GAUSSIAN.supports(sampled, Adjacency.ZERO_OUT)
    assert not GAUSSIAN.supports(Composed((Gaussian(1.0), Laplace(1.0))), Adjacency.ZERO_OUT)
    with pytest.raises(ValueError, match="gaussian accountant supports"):
        GAUSSIAN.epsilon(sampled, Adjacency.ZERO_OUT, 1e-5)
    assert accountant_for(sampled, Adjacency.ZERO_OUT).name == "fourier"


@pytest.mark.parametrize("accountant", [GAUSSIAN, FOURIER], ids=lambda one: one.name)
def test_versions_name_the_library(accountant):
    assert accountant.version.startswith("dpglm")


def test_tiny_epsilon_and_tiny_noise_stay_small_in_memory():
    # A mean-squared loss of 1e-10 and one of 1e4 in the same library call.
    quiet = PoissonSampled(1e-4, Gaussian(50.0))
    assert 0.0 <= FOURIER.delta(quiet, Adjacency.ZERO_OUT, 1e-5) < 1e-6
    loud = Repeated(PoissonSampled(0.5, Gaussian(0.05)), 3)
    assert FOURIER.epsilon(loud, Adjacency.ZERO_OUT, 1e-5) > 100.0
    assert FOURIER.delta(loud, Adjacency.ZERO_OUT, 1.0) > 0.8
