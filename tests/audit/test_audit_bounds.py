"""Bounds from counts: they hold as often as stated, and are close."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpglm.audit import error_bounds, rate_above
from dpglm.audit.guessing import _p_values, best_number_of_guesses, epsilon_of_guesses
from dpglm.privacy import gdp


@pytest.mark.parametrize("trials", [1, 7, 60])
@pytest.mark.parametrize("rate", [0.003, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("confidence", [0.8, 0.99])
def test_a_rate_is_below_its_bound_as_often_as_promised(trials, rate, confidence):
    counts = np.arange(trials + 1)
    bounds = np.array([rate_above(int(k), trials, confidence) for k in counts])
    failure = binom.pmf(counts, trials, rate)[bounds < rate].sum()
    assert failure <= 1.0 - confidence
    # A bound for one count fewer would fail too often somewhere.
    assert (np.diff(bounds) > 0.0).all()
    assert bounds[0] == pytest.approx(1.0 - (1.0 - confidence) ** (1.0 / trials))
    assert bounds[-1] == 1.0


def exact_failure(mu, runs, confidence, statistic, limit):
    """Probability that a bound from a midpoint test between N(mu, 1) and N(0, 1) is too high."""
    rates = binom.pmf(np.arange(runs + 1), runs, norm.cdf(-mu / 2.0))
    failure = 0.0
    for missed, a in enumerate(rates):
        for false, b in enumerate(rates):
            if a * b > 1e-9:
                guesses = np.arange(runs) >= missed
                others = np.arange(runs) < false
                if statistic(error_bounds(guesses, others, confidence)) > limit:
                    failure += a * b
    return failure


def test_bounds_on_two_rates_hold_together():
    mu, runs = 1.0, 30
    delta = gdp.delta(0.3, mu)
    for statistic, limit in (
        (lambda found: found.mu(), mu),
        (lambda found: found.epsilon(delta), 0.3),
        (lambda found: found.delta(0.3), delta),
    ):
        assert exact_failure(mu, runs, 0.9, statistic, limit) <= 0.1
    # A claim of less than the truth is found out.
    assert exact_failure(3.0, 30, 0.9, lambda found: found.mu(), 1.0) > 0.9


def test_both_directions_count():
    often, seldom = np.arange(400) < 390, np.arange(400) < 200
    found = error_bounds(often, seldom, 0.95)
    turned = error_bounds(~seldom, ~often, 0.95)
    assert found.epsilon(0.01) == pytest.approx(turned.epsilon(0.01))
    assert found.delta(0.5) == pytest.approx(turned.delta(0.5))
    assert found.mu() == pytest.approx(turned.mu())
    # The likelier event is one that the second data set misses.
    assert found.epsilon(0.0) > math.log((1.0 - found.missed) / found.false)


def test_nothing_seen_proves_nothing():
    same = np.ones(10, dtype=bool)
    found = error_bounds(same, same, 0.95)
    assert (found.mu(), found.epsilon(0.0), found.delta(0.1)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("arguments", [(-1, 3, 0.9), (4, 3, 0.9), (1, 0, 0.9), (1, 3, 1.0)])
def test_counts_that_cannot_be_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        rate_above(*arguments)


# Many canaries in one run.


def by_definition(m, r, v, epsilon, delta):
    """Theorem 5.2 of Steinke, Nasr and Jagielski, term by term."""
    chance = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    law = binom(r, chance)
    slack = max((law.cdf(v - 1) - law.cdf(v - i - 1)) / i for i in range(1, m + 1))
    return min(1.0, law.sf(v - 1) + 2.0 * m * delta * slack)


@pytest.mark.parametrize(
    "case", [(30, 20, 15, 0.5, 0.0), (30, 30, 30, 2.0, 1e-2), (9, 4, 1, 1.0, 0.1)]
)
def test_p_values_are_those_of_the_theorem(case):
    *counts, epsilon, delta = case
    (found,) = _p_values(*counts, np.array([epsilon]), delta)
    assert found == pytest.approx(by_definition(*case), rel=1e-9)


@pytest.mark.parametrize("counts", [(4, 5, 2), (4, 3, 4)])
def test_impossible_counts_of_guesses_are_refused(counts):
    canaries, guesses, right = counts
    says = f"right must be at most guesses, .* got {right}, {guesses} and {canaries}"
    with pytest.raises(ValueError, match=says):
        epsilon_of_guesses(canaries, guesses, right, 0.0, 0.95)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_randomized_response_is_bounded_as_often_as_promised(epsilon, delta):
    # With probability delta all answers are right: (epsilon, delta)-DP, with nothing to spare.
    m, confidence = 200, 0.9
    right = np.arange(m + 1)
    law = (1.0 - delta) * binom.pmf(right, m, 1.0 / (1.0 + math.exp(-epsilon)))
    law[-1] += delta
    bounds = np.array([epsilon_of_guesses(m, m, int(v), delta, confidence) for v in right])
    assert law[bounds > epsilon].sum() <= 1.0 - confidence
    # Half of it is found on average, and twice the loss is refuted as a rule.
    assert law @ bounds >= 0.5 * epsilon
    twice = binom.pmf(right, m, 1.0 / (1.0 + math.exp(-2.0 * epsilon)))
    assert twice[bounds > epsilon].sum() > 0.8


def test_the_term_with_delta_is_needed():
    # All right with probability 0.1: without its term the bound would fail twice as often.
    m, delta = 40, 0.1
    without = epsilon_of_guesses(m, m, m, 0.0, 0.95)
    assert without > 2.0
    assert epsilon_of_guesses(m, m, m, delta, 0.95) == 0.0


@pytest.mark.parametrize("mu", [0.8, 2.0])
def test_gaussian_canaries_are_bounded_and_the_bound_is_of_use(mu):
    m, delta, confidence = 1000, 1e-5, 0.95
    guesses = best_number_of_guesses(m, mu, delta, confidence)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(20):
        there = rng.random(m) < 0.5
        scores = mu * (there - 0.5) + rng.normal(size=m)
        surest = np.argsort(-np.abs(scores))[:guesses]
        right = int(((scores > 0.0) == there)[surest].sum())
        found.append(epsilon_of_guesses(m, guesses, right, delta, confidence))
    true = gdp.epsilon(delta, mu)
    assert max(found) <= true
    assert np.mean(found) >= 0.25 * true
