"""Sparse sampling: the Fourier accountant against bounds from below, and against closed forms."""

import math

import mpmath
import pytest

from dpglm.exceptions import TooCostlyError
from dpglm.privacy import gdp
from dpglm.privacy.accounting import convolution as rare_losses
from dpglm.privacy.accounting.fourier import FourierAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian, PoissonSampled, ProjectedGaussian, Repeated
from tests.privacy.accounting.rare_sampling import least_delta
from tests.privacy.pld import PLD
from tests.slowly import first_quickly, some_quickly

pytestmark = pytest.mark.one_in(3)

ZERO_OUT = Adjacency.ZERO_OUT
RATES = (1e-3, 1e-4, 1e-5, 3e-5, 1e-6, 1e-7, 1e-8)
# Sigma, steps and a delta with positive epsilon for every rate.
SETTINGS = ((0.5, 60, 1e-9), (1.0, 1, 1e-12), (1.0, 10, 1e-10), (2.0, 30, 1e-11), (0.3, 20, 1e-8))


def event(rate, sigma, steps):
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


# One in four pairs has every rate and every setting.
@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    some_quickly([(rate, *setting) for rate in RATES for setting in SETTINGS], 4),
)
def test_epsilon_exceeds_the_truth_by_at_most_two_per_cent(rate, sigma, steps, delta):
    found = FourierAccountant().epsilon(event(rate, sigma, steps), ZERO_OUT, delta)
    if found == 0.0:
        assert least_delta(rate, sigma, steps, 0.0) <= delta
        return
    # Merged outcomes show that no epsilon two per cent smaller will do.
    assert least_delta(rate, sigma, steps, 0.98 * found) > delta
    assert least_delta(rate, sigma, steps, found) <= delta


@pytest.mark.parametrize(
    ("rate", "sigma", "steps"), first_quickly((1e-5, 0.6, 100), (3e-5, 0.6, 1000))
)
def test_claims_that_verify_rejected(rate, sigma, steps):
    one = event(rate, sigma, steps)
    claimed = PLD(2).epsilon(one, ZERO_OUT, 1e-7)
    assert FourierAccountant().delta(one, ZERO_OUT, claimed) <= 1e-7 * 1.002


@pytest.mark.parametrize("rate", [1e-3, 1e-6, 1e-8])
@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_one_step_is_the_closed_form(rate, sigma):
    for epsilon in (1e-3 * rate, rate, 1e2 * rate, 0.01, 1.0):
        exact = rate * gdp.delta(math.log1p(math.expm1(epsilon) / rate), 1.0 / sigma)
        if exact > 1e-16:
            found = FourierAccountant().delta(event(rate, sigma, 1), ZERO_OUT, epsilon)
            assert exact * (1.0 - 1e-9) <= found <= exact * 1.003


@pytest.mark.parametrize(
    ("rate", "epsilon"), first_quickly((1e-6, 1e-4), (1e-3, 0.1), (1e-5, 1e-3))
)
def test_two_steps_by_integration_with_many_digits(rate, epsilon):
    """Delta is a mean, over the loss of the first step, of the closed form for the second."""
    mpmath.mp.dps = 30
    q, one = mpmath.mpf(rate), mpmath.mpf(1)

    def delta_of_one(e):
        # Of the mixture against N(0, 1), at any e: all of it below log(1 - q).
        ratio = 1 + mpmath.expm1(e) / q
        if ratio <= 0:
            return -mpmath.expm1(e)
        x = mpmath.log(ratio) + one / 2
        upper = (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(1 - x)
        return upper - mpmath.exp(e) * mpmath.ncdf(-x)

    def inside(x):
        loss = mpmath.log1p(q * mpmath.expm1(x - one / 2))
        density = (1 - q) * mpmath.npdf(x) + q * mpmath.npdf(x, 1, 1)
        return density * delta_of_one(epsilon - loss)

    exact = float(mpmath.quad(inside, mpmath.linspace(-12, 14, 53)))
    found = FourierAccountant().delta(event(rate, 1.0, 2), ZERO_OUT, epsilon)
    assert exact * (1.0 - 1e-9) <= found <= exact * 1.01
    assert least_delta(rate, 1.0, 2, epsilon) <= exact * (1.0 + 1e-9)


def test_a_part_left_out_is_seen(monkeypatch):
    split = rare_losses.split

    def without_the_largest(*arguments):
        return split(*arguments)[:1]

    one = event(1e-6, 0.5, 60)
    monkeypatch.setattr("dpglm.privacy.accounting.fourier.split", without_the_largest)
    found = FourierAccountant(cell_fraction=0.021).epsilon(one, ZERO_OUT, 1e-9)
    assert least_delta(1e-6, 0.5, 60, found) > 1e-9


def test_the_grid_is_refused_before_it_is_made():
    with pytest.raises(TooCostlyError, match="too costly"):
        FourierAccountant().epsilon(
            Repeated(PoissonSampled(0.5, Gaussian(1e3)), 10**12), ZERO_OUT, 1e-6
        )


def test_losses_that_happen_too_rarely_for_floats_take_no_room():
    # Noise that fades over 100,000 steps, as d2p2 plans it: the window of such a part was endless.
    sigmas = (20104.22, 8833.736, 3881.518, 1705.527, 749.4037, 329.2858, 144.6872, 63.57513)
    counts = (2, 9, 50, 255, 1321, 6846, 35456, 56061)
    fading = Composed(
        tuple(
            Repeated(PoissonSampled(1e-3, ProjectedGaussian(sigma, 70)), count)
            for sigma, count in zip(sigmas, counts, strict=True)
        )
    )
    assert 1e-6 < FourierAccountant(0.02).delta(fading, ZERO_OUT, 0.01) < 1e-5
