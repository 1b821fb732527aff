"""The spent budget of a ledger, read at a time chosen from results."""

import math

import numpy as np
import pytest

from dpglm.ledger.filters import brackets, make_filter
from dpglm.privacy import Adjacency, ApproximateDP, Gaussian, GaussianDP, Pure

DELTA = 1e-3


def stopped_delta(epsilons, squares, seed=5, paths=40_000):
    """Delta of stopping when the loss is large: the mean of (1 - exp(epsilon - loss))+."""
    rng = np.random.default_rng(seed)
    steps = np.diff(squares, prepend=0.0)
    losses = np.cumsum(
        0.5 * steps + np.sqrt(steps) * rng.standard_normal((paths, steps.size)), axis=1
    )
    passed = losses > epsilons + 0.4 * np.sqrt(squares)
    stop = np.where(passed.any(axis=1), passed.argmax(axis=1), steps.size - 1)
    gap = losses[np.arange(paths), stop] - epsilons[stop]
    return float(np.mean(-np.expm1(-np.maximum(gap, 0.0))))


def test_stopping_passes_the_plain_number_and_not_the_bound():
    rule = make_filter("gaussian", ApproximateDP(8.0, DELTA))
    most = rule.budget.gdp_mu()
    squares = most**2 * np.geomspace(1e-4, 1.0, 100)
    charges = [[{"mu": math.sqrt(square)}] for square in squares]
    plain = np.array([rule.spent(one)["epsilon"] for one in charges])
    safe = np.array([rule.spent_at_any_time(one)["epsilon"] for one in charges])
    assert np.all(safe >= plain)
    # An end that is fixed in advance is paid for by the plain number.
    never = np.where(np.arange(plain.size) == plain.size - 1, plain, math.inf)
    assert stopped_delta(never, squares) <= 1.3 * DELTA
    assert stopped_delta(plain, squares) > 6.0 * DELTA
    assert stopped_delta(safe, squares) <= DELTA


@pytest.mark.parametrize("name", ["gaussian", "renyi", "basic"])
def test_the_bound_is_above_the_plain_number_and_grows(name):
    rule = make_filter(name, ApproximateDP(1.0, 1e-6))
    one = rule.charge(Gaussian(60.0), Adjacency.ZERO_OUT, 1e-8)
    assert rule.spent_at_any_time([])["epsilon"] == 0.0
    found = [rule.spent_at_any_time([one] * k) for k in (1, 2, 4, 8)]
    for bound, k in zip(found, (1, 2, 4, 8), strict=True):
        assert bound["epsilon"] >= rule.spent([one] * k)["epsilon"]
        assert bound["delta"] == 1e-6
    epsilons = [bound["epsilon"] for bound in found]
    assert epsilons == sorted(epsilons)


def test_budgets_without_a_delta_and_pure_ones():
    rule = make_filter("gaussian", GaussianDP(1.0))
    assert rule.spent_at_any_time([{"mu": 0.5}])["delta"] == 1e-6
    rule = make_filter("basic", ApproximateDP(1.0, 0.0))
    tenth = rule.charge(Pure(0.1), Adjacency.ZERO_OUT, None)
    assert rule.spent_at_any_time([tenth] * 3) == {"epsilon": pytest.approx(0.3), "delta": 0.0}


@pytest.mark.parametrize("spent", [1e-9, 0.1, 0.25, 0.250001, 0.5, 0.7, 1.0])
def test_brackets_cover_cost_and_shares_sum_to_one(spent):
    limit, _ = brackets(spent, 1.0)[-1]
    assert spent <= limit < 2.0 * spent + 1e-12
    shares = {brackets(2.0**-k, 1.0)[-1][1] for k in range(60)}
    assert len(shares) == 60
    assert sum(shares) < 1.0


@pytest.mark.parametrize("delta", [1e-71, 1e-90, 5e-324])
def test_a_delta_that_proofs_do_not_pay_for_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be 0, or at least 1e-70"):
        ApproximateDP(1.0, delta)
    assert ApproximateDP(1.0, 1e-70).delta == 1e-70
    assert ApproximateDP(1.0, 0.0).delta == 0.0
