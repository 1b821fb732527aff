"""Pure events and exponential mechanisms: their losses, compositions, and costs."""

import itertools
import math

import numpy as np
import pytest

from dpglm.privacy.accounting.accountants import (
    FourierAccountant,
    RenyiAccountant,
    TightestAccountant,
    accountant_for,
    within_budget,
)
from dpglm.privacy.accounting.calibrate import calibrate, spent
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    Pure,
    Repeated,
)
from tests.privacy.pld import PLD

ORACLE, FOURIER, RENYI = PLD(), FourierAccountant(), RenyiAccountant()
ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def response_delta(top, count, epsilon):
    """Exact delta of ``count`` randomised responses (Kairouz, Oh and Viswanath 2015)."""
    p = 1.0 / (1.0 + math.exp(-top))
    total = 0.0
    for wins in range(count + 1):
        loss = (2 * wins - count) * top
        if loss > epsilon:
            weight = math.comb(count, wins) * p**wins * (1.0 - p) ** (count - wins)
            total += weight * -math.expm1(epsilon - loss)
    return total


@pytest.mark.parametrize("accountant", [ORACLE, FOURIER], ids=lambda one: one.name)
@pytest.mark.parametrize(("top", "count"), [(0.05, 40), (0.7, 5), (3.0, 2), (2.0, 1)])
def test_pure_events_compose_like_randomised_response(accountant, top, count):
    for share in (0.0, 0.3, 0.6, 0.9):
        epsilon = share * top * count
        exact = response_delta(top, count, epsilon)
        for adjacency in Adjacency:
            found = accountant.delta(Repeated(Pure(top), count), adjacency, epsilon)
            assert exact * (1.0 - 1e-9) <= found <= exact * (1.0 + 1e-6) + 1e-14


@pytest.mark.parametrize("accountant", [FOURIER, RENYI], ids=lambda one: one.name)
def test_delta_zero_adds_epsilons_up(accountant):
    event = Composed((Repeated(Pure(0.1), 30), Laplace(2.0)))
    assert accountant.epsilon(event, ZERO_OUT, 0.0) == pytest.approx(3.5, rel=1e-14)
    assert accountant.epsilon(event, ZERO_OUT, 0.0) >= 3.5
    assert accountant.delta(event, ZERO_OUT, 3.5 + 1e-12) == 0.0
    assert accountant.epsilon(event, ZERO_OUT, 1e-3) < 2.1


def test_epsilons_that_are_not_multiples_of_each_other():
    event = Composed((Repeated(Pure(0.3), 4), Repeated(Pure(0.1 * math.pi), 3)))
    losses, weights = np.zeros(1), np.ones(1)
    for top in (0.3,) * 4 + (0.1 * math.pi,) * 3:
        p = 1.0 / (1.0 + math.exp(-top))
        losses = np.concatenate([losses + top, losses - top])
        weights = np.concatenate([weights * p, weights * (1.0 - p)])
    for epsilon in (0.0, 0.5, 1.2):
        exact = float(weights @ np.maximum(-np.expm1(epsilon - losses), 0.0))
        for accountant in (ORACLE, FOURIER):
            found = accountant.delta(event, ZERO_OUT, epsilon)
            assert exact * (1.0 - 1e-9) <= found <= exact * 1.02


@pytest.mark.parametrize("accountant", [ORACLE, FOURIER], ids=lambda one: one.name)
def test_pure_event_composed_with_sample_is_charged_once(accountant):
    # Sampling forces the way through the erased row, and a pure event has no multiplier to
    # double and would be charged for each of two rows; as a group of its own it is not.
    event = Composed((Pure(0.5), PoissonSampled(0.01, Gaussian(50.0))))
    found = accountant.epsilon(event, REPLACE_ONE, 1e-6)
    assert 0.5 <= found < 0.51
    assert accountant.epsilon(Pure(0.5), REPLACE_ONE, 1e-6) <= 0.5


def choice_delta(top, t, epsilon):
    """Exact delta of the choice with losses t and t - top."""
    upper = (math.exp(top) - math.exp(t)) / math.expm1(top)
    lower = 1.0 - upper
    return upper * max(0.0, -math.expm1(epsilon - t)) + lower * max(
        0.0, -math.expm1(epsilon - t + top)
    )


@pytest.mark.parametrize("top", [0.01, 0.5, 4.0])
def test_one_choice_is_the_worst_of_bounded_range(top):
    for share in (0.0, 0.2, 0.7):
        epsilon = share * top
        worst = max(choice_delta(top, t, epsilon) for t in np.linspace(0.0, top, 2001))
        found = FOURIER.delta(BoundedRange(top), ZERO_OUT, epsilon)
        assert worst * (1.0 - 1e-6) <= found <= worst * 1.003
        # Planted bug: half the length, the range of a monotone score.
        assert found > 1.5 * FOURIER.delta(BoundedRange(0.5 * top), ZERO_OUT, epsilon)
        assert found < 0.8 * FOURIER.delta(Pure(top), ZERO_OUT, epsilon)


@pytest.mark.parametrize("accountant", [FOURIER, RENYI], ids=lambda one: one.name)
def test_choices_that_adapt_are_covered(accountant):
    # The worst three choices in a row; earlier ones set the ranges of the second and third.
    top, grid = 0.8, np.linspace(0.0, 0.8, 9)

    def worst(epsilon, left):
        if left == 0:
            return max(0.0, -math.expm1(epsilon))
        found = 0.0
        for t in grid:
            upper = (math.exp(top) - math.exp(t)) / math.expm1(top)
            found = max(
                found,
                upper * worst(epsilon - t, left - 1)
                + (1.0 - upper) * worst(epsilon - t + top, left - 1),
            )
        return found

    for epsilon in (0.1, 0.6, 1.2):
        exact = worst(epsilon, 3)
        found = accountant.delta(Repeated(BoundedRange(top), 3), ZERO_OUT, epsilon)
        assert found >= exact
        assert response_delta(top, 3, epsilon) > exact


def test_a_real_exponential_mechanism_is_covered():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.normal(size=6)
        moved = scores + rng.uniform(-1.0, 1.0, 6)
        p, q = (np.exp(-0.5 * 0.9 * s) for s in (scores, moved))
        p, q = p / p.sum(), q / q.sum()
        for epsilon in (0.0, 0.2, 0.5):
            exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
            assert exact <= FOURIER.delta(BoundedRange(0.9), ZERO_OUT, epsilon) + 1e-12


def test_the_tighter_accountant_is_taken_for_choices():
    few, many = Repeated(BoundedRange(0.1), 5), Repeated(BoundedRange(0.1), 500)
    chosen = accountant_for(many, ZERO_OUT)
    assert isinstance(chosen, TightestAccountant)
    assert chosen.name == "fourier or renyi"
    for event, winner, other in ((few, FOURIER, RENYI), (many, RENYI, FOURIER)):
        found = [one.epsilon(event, ZERO_OUT, 1e-6) for one in (winner, other)]
        assert found[0] < 0.99 * found[1]
        assert chosen.epsilon(event, ZERO_OUT, 1e-6) == found[0]
        assert chosen.delta(event, ZERO_OUT, found[0]) == pytest.approx(1e-6, rel=1e-3)
    assert found[0] < 0.7 * ORACLE.epsilon(Repeated(Pure(0.1), 500), ZERO_OUT, 1e-6)
    assert accountant_for(Composed((many, Laplace(2.0))), ZERO_OUT).name == "fourier"


@pytest.mark.parametrize("make", [Pure, BoundedRange], ids=["pure", "range"])
def test_calibration(make):
    make_event = lambda s: Composed((Repeated(make(1.0 / s), 8), Repeated(Gaussian(s), 8)))  # noqa: E731
    for budget in (ApproximateDP(0.5, 1e-6), ApproximateDP(3.0, 1e-10)):
        multiplier = calibrate(make_event, budget, ZERO_OUT)
        assert spent(make_event(multiplier), ZERO_OUT, budget)["epsilon"] <= budget.epsilon
        assert not within_budget(make_event(0.99 * multiplier), ZERO_OUT, budget)
    pure = calibrate(lambda s: Repeated(make(1.0 / s), 8), ApproximateDP(2.0, 0.0), ZERO_OUT)
    assert pure == pytest.approx(4.0, rel=1e-9)
    with pytest.raises(ValueError, match=r"\(epsilon, delta\)"):
        calibrate(make_event, GaussianDP(1.0), ZERO_OUT)


def test_epsilons_far_apart_and_extreme():
    for top in (1e-9, 1e-3, 30.0, 600.0):
        for make, accountant in itertools.product((Pure, BoundedRange), (FOURIER, RENYI)):
            found = accountant.epsilon(make(top), ZERO_OUT, 1e-12)
            assert found <= top
            assert found >= 0.9 * top or top < 1e-8


@pytest.mark.parametrize("epsilon", [1e3, 1e5])
def test_losses_beyond_floating_point_are_infinite_not_an_error(epsilon):
    event = Composed((Gaussian(1.0), Pure(epsilon)))
    delta = FourierAccountant().delta(event, Adjacency.ZERO_OUT, 1.0)
    assert 0.99 < delta <= 1.0
