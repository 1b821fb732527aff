"""Budgets in three currencies and the automatic delta."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.privacy import gdp
from dpglm.privacy.budget import (
    ApproximateDP,
    GaussianDP,
    ZeroConcentratedDP,
    budget_from_dict,
    default_delta,
)

BUDGETS = [
    ApproximateDP(0.1, 1e-9),
    ApproximateDP(3.0, 0.0),
    GaussianDP(0.1),
    ZeroConcentratedDP(0.3),
]


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_json_round_trip(budget):
    assert budget_from_dict(json.loads(json.dumps(budget.to_dict()))) == budget


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 100.0), st.floats(1e-18, 0.1))
def test_approximate_dp_mu_is_the_largest_allowed(epsilon, delta):
    budget = ApproximateDP(epsilon, delta)
    mu = budget.gdp_mu()
    assert gdp.delta(epsilon, mu) <= delta
    assert gdp.delta(epsilon, mu * (1.0 + 1e-6)) > delta
    assert not budget.allows_mu(mu * (1.0 + 1e-6))
    assert budget.allows_mu(mu * (1.0 - 1e-9))


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-12, 1e6))
def test_zcdp_is_rounded_down_but_hardly(rho):
    mu = ZeroConcentratedDP(rho).gdp_mu()
    assert ZeroConcentratedDP(rho).allows_mu(mu)
    assert not ZeroConcentratedDP(rho).allows_mu(mu * (1.0 + 1e-12))


def test_statements_are_in_the_budgets_currency():
    assert GaussianDP(1.0).statement_for_mu(0.5) == {"mu": 0.5}
    assert ZeroConcentratedDP(1.0).statement_for_mu(0.5) == {"rho": 0.125}
    statement = ApproximateDP(1.0, 1e-5).statement_for_mu(0.2)
    assert statement == {"epsilon": gdp.epsilon(1e-5, 0.2), "delta": 1e-5}


def test_pure_budget_is_a_budget_but_not_for_gaussian_noise():
    with pytest.raises(ValueError, match="delta must be above 0 for Gaussian noise"):
        ApproximateDP(1.0, 0.0).gdp_mu()
    assert not ApproximateDP(1.0, 0.0).allows_mu(1e-9)
    assert ApproximateDP(1.0, 0.0).allows_mu(0.0)


def test_only_approximate_dp_is_an_epsilon_and_a_delta():
    budget = ApproximateDP(1.0, 1e-6)
    assert budget.as_approximate_dp() is budget
    for other in (GaussianDP(1.0), ZeroConcentratedDP(1.0)):
        with pytest.raises(ValueError, match=r"\(epsilon, delta\)"):
            other.as_approximate_dp()


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1", True, None])
def test_bad_budgets_are_refused(value):
    for make, name in (
        (lambda v: ApproximateDP(v, 1e-5), "epsilon"),
        (GaussianDP, "mu"),
        (ZeroConcentratedDP, "rho"),
    ):
        with pytest.raises(ValueError, match=name):
            make(value)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, "0", None])
def test_bad_delta_is_refused(delta):
    with pytest.raises(ValueError, match="delta"):
        ApproximateDP(1.0, delta)


@pytest.mark.parametrize(
    "mapping",
    [
        {"type": "renyi", "epsilon": 1.0},
        {"type": "gaussian_dp"},
        {"type": "gaussian_dp", "mu": 1.0, "delta": 0.1},
        {"type": None},
        "gaussian_dp",
    ],
)
def test_malformed_budgets_are_refused(mapping):
    with pytest.raises(ValueError, match="must"):
        budget_from_dict(mapping)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2**53))
def test_default_delta_is_the_largest_such_power_of_ten(n_rows):
    delta = default_delta(n_rows)
    exponent = -round(math.log10(delta))
    assert delta == float(f"1e-{exponent}")
    assert Fraction(1, 10**exponent) <= min(Fraction(1, 10 * n_rows), Fraction(1, 10**5))
    assert exponent == 5 or Fraction(1, 10 ** (exponent - 1)) > Fraction(1, 10 * n_rows)


@pytest.mark.parametrize(
    ("n_rows", "delta"),
    [(1, 1e-5), (10_000, 1e-5), (10_001, 1e-6), (48_842, 1e-6), (100_000, 1e-6), (100_001, 1e-7)],
)
def test_default_delta_examples(n_rows, delta):
    assert default_delta(n_rows) == delta


@pytest.mark.parametrize("n_rows", [0, -3, 2.5, True, None])
def test_default_delta_refuses(n_rows):
    with pytest.raises(ValueError, match="n_rows"):
        default_delta(n_rows)
