"""Renyi divergences by integration, and the conversion to (epsilon, delta)."""

import math

import mpmath
import numpy as np
import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import FourierAccountant, RenyiAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Gaussian,
    Laplace,
    LastIterate,
    PerturbedObjective,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    Repeated,
)

RENYI = RenyiAccountant()
ZERO_OUT = Adjacency.ZERO_OUT
# Costs next to nothing, and keeps the closed form of Gaussian events out of the way.
WHISPER = Pure(1e-12)


def divergence(mechanism, order, adjacency=ZERO_OUT):
    return float(mechanism.divergence(np.array([order - 1.0]), adjacency)[0])


@pytest.mark.parametrize("order", [1.001, 1.5, 3.0, 40.0])
def test_laplace_by_integration(order):
    b = 0.8
    with mpmath.workdps(30):
        f = lambda x, m: mpmath.exp(-abs(x - m) / b) / (2 * b)  # noqa: E731
        moment = mpmath.quad(lambda x: f(x, 0) ** order * f(x, 1) ** (1 - order), [-60, 0, 1, 60])
        exact = float(mpmath.log(moment) / (order - 1))
    assert divergence(Laplace(b), order) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("order", [1.001, 1.5, 3.0, 40.0])
def test_pure_is_randomised_response(order):
    with mpmath.workdps(30):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(0.7)))
        moment = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        exact = float(mpmath.log(moment) / (order - 1))
    assert divergence(Pure(0.7), order) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("order", [1.01, 2.0, 8.0])
def test_bounded_range_covers_every_pair_of_two_losses(order):
    top = 1.3
    found = divergence(BoundedRange(top), order)
    for t in np.linspace(0.001, top - 0.001, 50):
        p = (math.exp(top) - math.exp(t)) / math.expm1(top)
        moment = p * math.exp((order - 1) * t) + (1 - p) * math.exp((order - 1) * (t - top))
        assert math.log(moment) / (order - 1) <= found


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("order", [1.01, 2.0, 20.0])
def test_objective_perturbation_is_the_moment_of_its_loss(replaced, order):
    adjacency = Adjacency.REPLACE_ONE if replaced else ZERO_OUT
    perturbed = PerturbedObjective(2.5, math.expm1(0.1))
    law = perturbed.losses(adjacency)[0]
    t = np.linspace(law.low, law.high, 400_001)
    tail = law.tails(t)[0]
    excess = order - 1.0
    # E exp(excess Z) = exp(excess low) + integral of excess exp(excess t) P(Z > t).
    moment = math.exp(excess * law.low) + np.trapezoid(excess * np.exp(excess * t) * tail, t)
    assert divergence(perturbed, order, adjacency) == pytest.approx(
        math.log(moment) / excess, rel=1e-5
    )


def test_projection_has_no_divergence_beyond_its_last_order():
    piece = ProjectedGaussian(2.0, 4)
    assert divergence(piece, 4.5) < 3.0
    assert divergence(piece, 4.6) == math.inf


@pytest.mark.parametrize("mu", [0.002, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-9, 1e-5, 1e-2])
def test_conversion_is_close_to_exact_gaussian_and_not_below(mu, delta):
    event = Composed((Gaussian(1.0 / mu), WHISPER))
    exact, found = gdp.epsilon(delta, mu), RENYI.epsilon(event, ZERO_OUT, delta)
    assert exact <= found <= 1.25 * exact + 0.5 * mu
    if found > 0.0:
        assert RENYI.delta(event, ZERO_OUT, found) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 4.0, 20.0])
def test_best_order_is_found(epsilon):
    mu = gdp.mu(epsilon, 1e-9)
    event = Composed((Gaussian(1.0 / mu), WHISPER))
    orders = 1.0 + np.geomspace(1e-4, 1e8, 2_000_001)
    logs = (orders - 1.0) * (0.5 * orders * mu**2 - epsilon + np.log1p(-1.0 / orders))
    best = float(np.exp(np.min(logs - np.log(orders))))
    assert RENYI.delta(event, ZERO_OUT, epsilon) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    "event",
    [
        Repeated(Laplace(4.0), 9),
        Repeated(Pure(0.2), 12),
        Repeated(PerturbedObjective(6.0, 0.02), 2),
        Repeated(ProjectedGaussian(5.0, 50), 3),
        Composed((LastIterate(2.0, 0.8, 20), BoundedRange(0.3))),
    ],
    ids=lambda event: type(event.terms[0][0]).__name__,
)
def test_never_tighter_than_the_loss_itself(event):
    tight = FourierAccountant()
    for delta in (1e-10, 1e-5):
        exact = tight.epsilon(event, ZERO_OUT, delta)
        assert exact * (1.0 - 1e-6) <= RENYI.epsilon(event, ZERO_OUT, delta) <= 1.3 * exact


def test_sampled_events_are_refused():
    event = PoissonSampled(0.1, Gaussian(1.0))
    assert not RENYI.supports(event, ZERO_OUT)
    with pytest.raises(ValueError, match="renyi accountant supports"):
        RENYI.epsilon(event, ZERO_OUT, 1e-6)
