"""Disjoint parts of the rows: the dearest choice of one part from each split."""

import math

import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import (
    FourierAccountant,
    GaussianAccountant,
    accountant_for,
    within_budget,
)
from dpglm.privacy.accounting.calibrate import calibrate, spent
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP, ZeroConcentratedDP
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    Laplace,
    LastIterate,
    Parallel,
    PoissonSampled,
    Pure,
    Repeated,
    SplitByCoins,
    canonical,
    event_from_dict,
)
from dpglm.privacy.events.compositions import branches, leaves, needs_public_n
from tests.privacy.pld import PLD

GAUSSIAN, ORACLE, FOURIER = GaussianAccountant(), PLD(), FourierAccountant()
ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def test_parts_that_are_equal_in_any_order_are_equal_events():
    a, b = Gaussian(2.0), Laplace(3.0)
    one = Parallel((Composed((a, b)), Repeated(b, 2)))
    assert one == Parallel((Composed((b, b)), Composed((b, Composed((a,))))))
    assert canonical(Composed((one, one))) == Repeated(one, 2)
    assert one != Parallel((Composed((a, b)), b))
    assert Parallel((a, a)) != Parallel((a,))


def test_split_needs_two_parts():
    a, nothing = Gaussian(2.0), Composed(())
    assert canonical(Parallel((a, nothing))) == a
    assert canonical(Parallel((nothing, nothing))) == nothing
    assert canonical(Parallel((Repeated(a, 3),))) == Repeated(a, 3)
    assert canonical(Parallel((PoissonSampled(1.0, a), Laplace(1.0)))) == Parallel(
        (a, Laplace(1.0))
    )
    with pytest.raises(ValueError, match="events"):
        Parallel(())
    with pytest.raises(ValueError, match="events"):
        Parallel((a, "b"))


def test_gaussian_parts_cost_the_largest_mu():
    parts = (Repeated(Gaussian(5.0), 4), Gaussian(3.0), LastIterate(2.0, 0.0, 9))
    event = Composed((Parallel(parts), Gaussian(1.0)))
    for adjacency in (ZERO_OUT, REPLACE_ONE):
        assert GAUSSIAN.mu(event, adjacency) == pytest.approx(math.sqrt(0.25 + 1.0))
        assert accountant_for(event, adjacency).name == "gaussian"
        for accountant in (GAUSSIAN, ORACLE, FOURIER):
            assert accountant.epsilon(event, adjacency, 1e-6) == pytest.approx(
                gdp.epsilon(1e-6, math.sqrt(1.25)), rel=1e-3
            )


def test_neither_the_sum_nor_one_part_only():
    # Planted bugs: the sum of all parts (dear), and the first part (no bound).
    parts = (Gaussian(4.0), Gaussian(2.0))
    found = GAUSSIAN.mu(Parallel(parts), ZERO_OUT)
    assert GAUSSIAN.mu(parts[0], ZERO_OUT) < found < GAUSSIAN.mu(Composed(parts), ZERO_OUT)


@pytest.mark.parametrize("accountant", [ORACLE, FOURIER], ids=lambda one: one.name)
@pytest.mark.parametrize("adjacency", [ZERO_OUT, REPLACE_ONE])
def test_two_splits_are_the_worst_of_all_choices(accountant, adjacency):
    a, b = Repeated(Laplace(8.0), 3), PoissonSampled(0.2, Gaussian(2.0))
    c, d = Repeated(Gaussian(9.0), 20), Pure(0.3)
    event = Composed((Parallel((a, b)), Parallel((c, d)), Gaussian(7.0)))
    choices = [
        accountant.epsilon(Composed((one, other, Gaussian(7.0))), adjacency, 1e-6)
        for one in (a, b)
        for other in (c, d)
    ]
    assert accountant.epsilon(event, adjacency, 1e-6) == pytest.approx(max(choices), rel=1e-8)
    deltas = [
        accountant.delta(Composed((one, other, Gaussian(7.0))), adjacency, 1.0)
        for one in (a, b)
        for other in (c, d)
    ]
    assert accountant.delta(event, adjacency, 1.0) == pytest.approx(max(deltas), rel=1e-12)


def test_the_same_split_again_may_be_another_split():
    # A row in the Laplace part first and in the Gaussian part then: neither part twice.
    a, b = Repeated(Laplace(4.0), 2), Repeated(Gaussian(3.0), 2)
    event = Repeated(Parallel((a, b)), 2)
    mixed = FOURIER.epsilon(Composed((a, b)), ZERO_OUT, 1e-6)
    found = FOURIER.epsilon(event, ZERO_OUT, 1e-6)
    assert len(branches(event)) == 3
    twice = [FOURIER.epsilon(Repeated(one, 2), ZERO_OUT, 1e-6) for one in (a, b)]
    assert found == pytest.approx(max(mixed, *twice), rel=1e-12)


def test_splits_within_a_part():
    inner = Parallel((Laplace(5.0), Pure(0.5)))
    event = Parallel((Composed((inner, Gaussian(3.0))), Gaussian(1.0)))
    expected = {
        Composed((Laplace(5.0), Gaussian(3.0))),
        Composed((Pure(0.5), Gaussian(3.0))),
        Gaussian(1.0),
    }
    found = branches(event)
    assert {frozenset(one.terms) for one in found} == {frozenset(one.terms) for one in expected}
    assert leaves(event) == {Laplace(5.0), Pure(0.5), Gaussian(3.0), Gaussian(1.0)}


def test_parts_that_cost_no_more_than_another_are_left_out():
    chunk = Repeated(Gaussian(2.0), 10)
    event = Parallel((*(Repeated(Gaussian(2.0 + j), 10) for j in range(40)), Pure(0.1)))
    assert {frozenset(one.terms) for one in branches(event)} == {
        frozenset(chunk.terms),
        frozenset(Pure(0.1).terms),
    }
    more = Parallel((Composed((chunk, Pure(0.1))), Pure(0.1), Gaussian(2.0)))
    assert len(branches(more)) == 1


def test_a_single_choice_may_be_made_very_often():
    # A certificate may claim any count: it must not be written out.
    event = Repeated(Parallel((Composed((Gaussian(1.0), Pure(0.1))), Gaussian(2.0))), 2**53)
    assert branches(event) == (
        Composed((Repeated(Gaussian(1.0), 2**53), Repeated(Pure(0.1), 2**53))),
    )


def test_too_many_choices_are_refused():
    parts = Parallel(tuple(Pure(0.1 + 0.01 * j) for j in range(10)))
    with pytest.raises(ValueError, match="at most 64"):
        branches(Repeated(parts, 10))
    with pytest.raises(ValueError, match="at most 64"):
        FOURIER.epsilon(
            Composed(tuple(Parallel((Pure(0.1 + j), Laplace(1.0 + j))) for j in range(7))),
            ZERO_OUT,
            1e-6,
        )


def test_private_n_is_refused():
    event = Parallel((Gaussian(1.0), Gaussian(2.0)))
    for ask in (
        lambda: GAUSSIAN.mu(event, Adjacency.ADD_REMOVE),
        lambda: FOURIER.delta(event, Adjacency.ADD_REMOVE, 1.0),
        lambda: within_budget(event, Adjacency.ADD_REMOVE, GaussianDP(5.0)),
    ):
        with pytest.raises(ValueError, match="disjoint parts"):
            ask()


def test_calibration_and_budgets():
    def make_event(s):
        return Parallel((Repeated(Gaussian(s), 16), Gaussian(0.5 * s)))

    assert calibrate(make_event, GaussianDP(0.5), REPLACE_ONE) == pytest.approx(8.0, rel=1e-9)
    assert spent(make_event(8.0), ZERO_OUT, ZeroConcentratedDP(1.0))["rho"] == pytest.approx(0.125)

    def mixed(s):
        return Parallel((Repeated(Gaussian(s), 16), Repeated(Laplace(s), 4)))

    budget = ApproximateDP(1.0, 1e-6)
    multiplier = calibrate(mixed, budget, ZERO_OUT)
    assert within_budget(mixed(multiplier), ZERO_OUT, budget)
    assert not within_budget(mixed(0.99 * multiplier), ZERO_OUT, budget)


def test_coins_leave_other_rows_in_place_under_all_relations():
    parts = (Repeated(Gaussian(5.0), 4), Gaussian(3.0))
    event = Composed((SplitByCoins(parts), Gaussian(1.0)))
    for adjacency in Adjacency:
        for accountant in (GAUSSIAN, ORACLE, FOURIER):
            assert accountant.epsilon(event, adjacency, 1e-6) == pytest.approx(
                gdp.epsilon(1e-6, math.sqrt(1.16)), rel=1e-3
            )
    assert SplitByCoins(parts) != Parallel(parts)
    assert event_from_dict(event.to_dict()) == canonical(event)


def test_parts_of_fixed_sizes_are_refused_if_n_is_private():
    fixed = Parallel((Gaussian(1.0), Gaussian(2.0)))
    for event in (fixed, SplitByCoins((fixed, Pure(0.1))), Composed((Pure(0.1), fixed))):
        assert needs_public_n(event)
        assert not FOURIER.supports(event, Adjacency.ADD_REMOVE)
        with pytest.raises(ValueError, match="disjoint parts"):
            accountant_for(event, Adjacency.ADD_REMOVE)
    assert not needs_public_n(SplitByCoins((Gaussian(1.0), Gaussian(2.0))))
