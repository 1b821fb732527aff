"""Reducing events to mechanisms, and group privacy for two rows."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from scipy import stats

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountant import group_delta, least_epsilon, reduce_event
from dpglm.privacy.accounting.accountants import accountant_for
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

MIXED = Composed(
    (
        Repeated(PoissonSampled(0.1, Gaussian(1.5)), 7),
        Gaussian(4.0),
        LastIterate(3.0, 0.5, 9),
        Repeated(Laplace(2.0), 3),
    )
)


def test_reduced_under_zero_out():
    reduced = reduce_event(MIXED, Adjacency.ZERO_OUT)
    assert reduced.mu == pytest.approx(math.hypot(0.25, LastIterate(3.0, 0.5, 9).mu))
    assert reduced.others == ((PoissonSampled(0.1, Gaussian(1.5)), 7), (Laplace(2.0), 3))
    assert (reduced.rows, reduced.count) == (1, 11)
    assert reduced.plain_mu == reduced.pure_epsilon == math.inf


def test_replace_one_reduces_to_two_rows_of_doubled_multipliers():
    one, two = (reduce_event(MIXED, a) for a in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE))
    assert two.mu == pytest.approx(0.5 * one.mu)
    assert two.others == ((PoissonSampled(0.1, Gaussian(3.0)), 7), (Laplace(4.0), 3))
    assert two.rows == 2


def test_values_that_double_for_two_rows():
    event = Composed(
        (
            Pure(0.5),
            BoundedRange(0.25),
            PerturbedObjective(4.0, 0.5),
            ProjectedGaussian(3.0, 7),
            PoissonSampled(0.5, ProjectedGaussian(2.0, 7)),
        )
    )
    two = reduce_event(event, Adjacency.REPLACE_ONE)
    assert two.adjacency is Adjacency.ZERO_OUT
    assert two.others == (
        (Pure(0.5), 1),
        (BoundedRange(0.25), 1),
        (PerturbedObjective(8.0, 0.5), 1),
        (ProjectedGaussian(6.0, 7), 1),
        (PoissonSampled(0.5, ProjectedGaussian(4.0, 7)), 1),
    )
    whole = Composed(event.events[:-1])
    reduced = reduce_event(whole, Adjacency.REPLACE_ONE)
    assert reduced.rows == 1
    assert reduced.adjacency is Adjacency.REPLACE_ONE
    assert reduced.others[2:] == (
        (PerturbedObjective(4.0, 0.5), 1),
        (ProjectedGaussian(3.0, 7), 1),
    )


def test_without_sampling_replace_one_needs_no_detour():
    event = Composed((Gaussian(4.0), Laplace(2.0)))
    one, two = (reduce_event(event, a) for a in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE))
    assert dataclasses.replace(two, adjacency=Adjacency.ZERO_OUT) == one


def test_unsampled_mu_is_the_same_for_every_relation():
    event = Composed((Repeated(PoissonSampled(0.1, Gaussian(2.0)), 16), Gaussian(1.0)))
    for adjacency in Adjacency:
        assert reduce_event(event, adjacency).plain_mu == pytest.approx(math.sqrt(5.0))


def group_epsilon(curve, delta):
    return least_epsilon(lambda epsilon: group_delta(curve, epsilon), delta)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_group_privacy_covers_two_gaussian_rows(mu, delta):
    # Two rows of a mu-GDP mechanism are exactly 2 mu-GDP.
    one = functools.partial(gdp.delta, mu=mu)
    bound, exact = group_epsilon(one, delta), gdp.epsilon(delta, 2.0 * mu)
    assert exact <= bound <= 1.6 * exact + 1e-3
    assert gdp.delta(bound, 2.0 * mu) <= group_delta(one, bound) <= delta
    # Planted bugs: one row for two, and group privacy without its factor 1 + exp(eps/2).
    assert gdp.epsilon(delta, mu) < exact
    assert gdp.delta(1.0, 2.0 * mu) > gdp.delta(1.0, mu)


def test_group_epsilon_of_unreachable_delta_is_infinite():
    assert group_epsilon(lambda epsilon: 1e-3, 1e-4) == math.inf


def test_group_epsilon_is_zero_where_half_of_delta_is_enough():
    assert group_epsilon(functools.partial(gdp.delta, mu=1e-6), 0.1) == 0.0


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_replace_one_claim_covers_release_and_sample(rate, epsilon):
    """Exact, by integration: whole sums are one sensitivity apart, however far erasing moves them.

    The row's contributions to the sampled sum are opposite, and 1 in norm.
    """
    whole, sampled = 2.0, 1.5
    x = np.linspace(-14.0, 14.0, 2001)
    one, other = stats.norm.pdf(x), stats.norm.pdf(x, 1.0 / whole)
    y = np.linspace(-40.0, 40.0, 2001)
    law = stats.norm(scale=2.0 * sampled)
    with_one = (1.0 - rate) * law.pdf(y) + rate * law.pdf(y - 1.0)
    with_other = (1.0 - rate) * law.pdf(y) + rate * law.pdf(y + 1.0)
    excess = np.outer(one, with_one) - math.exp(epsilon) * np.outer(other, with_other)
    exact = float(np.maximum(excess, 0.0).sum() * (x[1] - x[0]) * (y[1] - y[0]))
    event = Composed((Gaussian(whole), PoissonSampled(rate, Gaussian(sampled))))
    relation = Adjacency.REPLACE_ONE
    claimed = accountant_for(event, relation).delta(event, relation, epsilon)
    assert 0.8 * claimed < exact <= claimed
