"""Reducing events to pieces, and group privacy for two rows."""

import math

import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting.losses.pieces import (
    BoundedRangePiece,
    LaplacePiece,
    PerturbedPiece,
    ProjectedPiece,
    PurePiece,
    SampledPiece,
    SampledProjectedPiece,
)
from dpglm.privacy.accounting.reduction import Profile, group_delta, group_epsilon, reduce_event
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Gaussian,
    Laplace,
    LastIterate,
    ObjectivePerturbation,
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


def test_pieces_under_zero_out():
    pieces = reduce_event(MIXED, Adjacency.ZERO_OUT)
    assert pieces.mu == pytest.approx(math.hypot(0.25, LastIterate(3.0, 0.5, 9).mu))
    assert pieces.others == (SampledPiece(0.1, 1.5, 7), LaplacePiece(2.0, 3))
    assert (pieces.rows, pieces.count) == (1, 11)
    assert pieces.plain_mu == pieces.pure_epsilon == math.inf


def test_pieces_under_replace_one_are_those_of_two_rows_with_doubled_multipliers():
    one, two = (reduce_event(MIXED, a) for a in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE))
    assert two.mu == pytest.approx(0.5 * one.mu)
    assert two.others == (SampledPiece(0.1, 3.0, 7), LaplacePiece(4.0, 3))
    assert two.rows == 2


def test_what_doubles_for_two_rows_and_what_does_not():
    event = Composed(
        (
            Pure(0.5),
            BoundedRange(0.25),
            ObjectivePerturbation(4.0, 0.5),
            ProjectedGaussian(3.0, 7),
            PoissonSampled(0.5, ProjectedGaussian(2.0, 7)),
        )
    )
    shift = math.log(1.5)
    assert reduce_event(event, Adjacency.REPLACE_ONE).others == (
        PurePiece(0.5, 1),
        BoundedRangePiece(0.25, 1),
        PerturbedPiece(shift, 0.125, False, 1),
        ProjectedPiece(7, 6.0, 1),
        SampledProjectedPiece(0.5, 7, 4.0, 1),
    )
    whole = Composed(event.events[:-1])
    pieces = reduce_event(whole, Adjacency.REPLACE_ONE)
    assert pieces.rows == 1
    assert pieces.others[2:] == (PerturbedPiece(shift, 0.25, True, 1), ProjectedPiece(7, 3.0, 1))


def test_without_sampling_replace_one_needs_no_detour():
    event = Composed((Gaussian(4.0), Laplace(2.0)))
    assert reduce_event(event, Adjacency.REPLACE_ONE) == reduce_event(event, Adjacency.ZERO_OUT)


def test_unsampled_mu_is_the_same_for_every_relation():
    event = Composed((Repeated(PoissonSampled(0.1, Gaussian(2.0)), 16), Gaussian(1.0)))
    for adjacency in Adjacency:
        assert reduce_event(event, adjacency).plain_mu == pytest.approx(math.sqrt(5.0))


class GaussianProfile(Profile):
    def __init__(self, mu):
        self.mu = mu

    def delta(self, epsilon):
        return gdp.delta(epsilon, self.mu)

    def epsilon(self, delta):
        return gdp.epsilon(delta, self.mu)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_group_privacy_covers_two_gaussian_rows(mu, delta):
    # Two rows of a mu-GDP mechanism are exactly 2 mu-GDP.
    one = GaussianProfile(mu)
    bound, exact = group_epsilon(one, delta), gdp.epsilon(delta, 2.0 * mu)
    assert exact <= bound <= 1.6 * exact + 1e-3
    assert gdp.delta(bound, 2.0 * mu) <= group_delta(one.delta, bound) <= delta
    # Planted bugs: one row for two, and group privacy without its factor 1 + exp(eps/2).
    assert one.epsilon(delta) < exact
    assert gdp.delta(1.0, 2.0 * mu) > gdp.delta(1.0, mu)


def test_group_epsilon_of_unreachable_delta_is_infinite():
    class Flat(Profile):
        def delta(self, epsilon):
            return 1e-3

        def epsilon(self, delta):
            return math.inf if delta < 1e-3 else 0.0

    assert group_epsilon(Flat(), 1e-4) == math.inf


def test_group_epsilon_is_zero_where_half_of_delta_is_enough():
    assert group_epsilon(GaussianProfile(1e-6), 0.1) == 0.0
