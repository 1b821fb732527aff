"""The Fourier accountant at small deltas, where others stop, and its error terms."""

import math

import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting.fourier import FourierAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import BoundedRange, Composed, Gaussian, Laplace, PoissonSampled, Repeated
from tests.privacy.pld import PLD

FOURIER = FourierAccountant()
# Costs an epsilon of 1e-9, and keeps the closed form for Gaussian events out of the way.
WHISPER = Laplace(1e9)


@pytest.mark.parametrize("mu", [0.03, 0.4, 1.0, 6.0])
@pytest.mark.parametrize("delta", [1e-18, 1e-12, 1e-6, 0.01])
def test_gaussian_down_to_tiny_deltas(mu, delta):
    exact = gdp.epsilon(delta, mu)
    found = FOURIER.epsilon(Composed((Gaussian(1.0 / mu), WHISPER)), Adjacency.ZERO_OUT, delta)
    assert exact * (1.0 - 1e-9) <= found <= exact * (1.0 + 1e-3) + 1e-8


@pytest.mark.parametrize("epsilon", [0.2, 2.0, 5.0, 9.0])
def test_one_poisson_step_at_tiny_deltas(epsilon):
    q, sigma = 0.05, 0.9
    exact = q * gdp.delta(math.log1p(math.expm1(epsilon) / q), 1.0 / sigma)
    bound = FOURIER.delta(PoissonSampled(q, Gaussian(sigma)), Adjacency.ZERO_OUT, epsilon)
    assert exact * (1.0 - 1e-9) <= bound <= exact * (1.0 + 2e-3)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.3])
def test_a_single_rarely_sampled_step_has_no_convolution_error(epsilon):
    # Nearly all of the loss is near zero, whatever the tilt: an FFT would drown the rest.
    q, sigma = 0.001, 1.2
    exact = q * gdp.delta(math.log1p(math.expm1(epsilon) / q), 1.0 / sigma)
    bound = FOURIER.delta(PoissonSampled(q, Gaussian(sigma)), Adjacency.ZERO_OUT, epsilon)
    assert exact * (1.0 - 1e-9) <= bound <= exact * (1.0 + 1e-3)


@pytest.mark.parametrize("top", [0.01, 0.5, 5.0])
@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-12])
def test_a_single_choice_is_the_closed_form(top, delta):
    found = FOURIER.epsilon(BoundedRange(top), Adjacency.ZERO_OUT, delta)
    # delta is the square of exp(top/2) - exp(epsilon/2), over exp(top) - 1.
    root = math.exp(0.5 * top) - math.sqrt(delta * math.expm1(top))
    exact = 2.0 * math.log(max(root, 1.0))
    assert exact * (1.0 - 1e-9) <= found <= exact * (1.0 + 2e-3) + 1e-9


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.001, 0.7, 2000), (0.01, 0.5, 30)])
def test_growing_cells_cost_nothing_and_never_shrink_bounds(q, sigma, steps):
    event = Repeated(PoissonSampled(q, Gaussian(sigma)), steps)
    even, growing, coarse = (
        FourierAccountant(even_cells=cells).epsilon(event, Adjacency.ZERO_OUT, 1e-6)
        for cells in (10**6, 800, 20)
    )
    assert even * (1.0 - 1e-8) <= growing <= even * (1.0 + 1e-5)
    assert even < coarse < 1.05 * even


@pytest.mark.parametrize(
    ("q", "sigma", "steps"),
    [(0.01, 1.0, 1000), (0.05, 20.0, 2000), (0.5, 1.0, 50), (0.2, 3.0, 1)],
)
def test_agrees_with_dp_accounting(q, sigma, steps):
    event = Repeated(PoissonSampled(q, Gaussian(sigma)), steps)
    pld = PLD(2).epsilon(event, Adjacency.ZERO_OUT, 1e-6)
    assert FOURIER.epsilon(event, Adjacency.ZERO_OUT, 1e-6) == pytest.approx(pld, rel=5e-4)


@pytest.mark.parametrize("delta", [1e-18, 1e-9, 1e-3, 0.3])
def test_epsilon_and_delta_are_inverse(delta):
    event = Composed((Repeated(PoissonSampled(0.02, Gaussian(0.8)), 200), Gaussian(3.0)))
    epsilon = FOURIER.epsilon(event, Adjacency.ADD_REMOVE, delta)
    if delta == 0.3:
        assert epsilon < 0.5
    else:
        back = FOURIER.delta(event, Adjacency.ADD_REMOVE, epsilon)
        assert back == pytest.approx(delta, rel=1e-2)


def test_coarser_grids_are_never_below_finer_ones():
    event = Repeated(PoissonSampled(0.03, Gaussian(1.1)), 300)
    fine = FOURIER.epsilon(event, Adjacency.ZERO_OUT, 1e-6)
    coarse = FourierAccountant(0.3, 3000).epsilon(event, Adjacency.ZERO_OUT, 1e-6)
    assert fine < coarse < 1.02 * fine


def test_both_orders_of_the_data_sets_count():
    # With loud noise and half of the rows drawn, removing a row costs more than adding one.
    event = PoissonSampled(0.5, Gaussian(0.3))
    removing = 0.5 * gdp.delta(math.log1p(math.expm1(3.0) / 0.5), 1.0 / 0.3)
    assert removing > 0.3
    assert FOURIER.delta(event, Adjacency.ZERO_OUT, 3.0) >= removing


def test_losses_too_large_for_the_grid_count_as_infinite():
    event = Composed((Repeated(Gaussian(0.02), 1), WHISPER))
    assert FOURIER.epsilon(event, Adjacency.ZERO_OUT, 1e-6) == math.inf
    assert FOURIER.delta(event, Adjacency.ZERO_OUT, 100.0) == pytest.approx(1.0)
