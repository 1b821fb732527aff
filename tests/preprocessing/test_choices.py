"""From a share of mu to the epsilon of a choice, by the accountants."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from dpglm.preprocessing.base import bounded_range_epsilon, pure_epsilon
from dpglm.privacy import Adjacency, gdp
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.events import BoundedRange, Pure


def least_mu(epsilon, t):
    """For log-ratios t and t - epsilon: the mu of the point where their two chords meet."""
    q = -np.expm1(t - epsilon) / (np.exp(t) - np.exp(t - epsilon))
    return norm.isf(q) + norm.ppf(q * np.exp(t))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 20.0])
def test_no_split_of_the_range_is_worse_than_the_middle(epsilon):
    t = epsilon * np.linspace(0.001, 0.999, 1999)
    worst = least_mu(epsilon, t)
    assert worst.max() <= least_mu(epsilon, epsilon / 2.0) * (1.0 + 1e-9)
    assert least_mu(epsilon, epsilon / 2.0) == pytest.approx(2.0 * norm.ppf(expit(epsilon / 2.0)))


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_choices_are_within_their_mu_and_no_larger_epsilon_is(mu, adjacency):
    for make, epsilon in ((Pure, pure_epsilon(mu)), (BoundedRange, bounded_range_epsilon(mu))):
        inside = []
        for factor in (1.0, 1.2):
            event = make(factor * epsilon)
            accountant = accountant_for(event, adjacency)
            levels = mu * np.array([0.0, 0.1, 0.3, 0.6, 1.0, 2.0])
            found = [accountant.delta(event, adjacency, one) for one in levels]
            allowed = [gdp.delta(one, mu) for one in levels]
            inside.append(all(np.array(found) <= np.array(allowed) * (1 + 1e-6) + 1e-12))
        assert inside == [True, False]


@pytest.mark.parametrize("mu", [1e-4, 1.0, 30.0])
def test_bounded_range_buys_twice_the_epsilon(mu):
    assert bounded_range_epsilon(mu) == 2.0 * pure_epsilon(mu)
    assert 2.0 * norm.ppf(expit(pure_epsilon(min(mu, 8.0)))) == pytest.approx(min(mu, 8.0))
