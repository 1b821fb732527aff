"""Laws that every event must satisfy under every accountant and every relation."""

import functools
import itertools
import math

import pytest

from dpglm.privacy.accounting.accountants import (
    FourierAccountant,
    GaussianAccountant,
    MixtureAccountant,
    RenyiAccountant,
    accountant_for,
)
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
    canonical,
    event_from_dict,
)
from tests.laws.mechanisms import EVENTS
from tests.privacy.pld import PLD

pytestmark = pytest.mark.one_in(3)

RENYI = RenyiAccountant()
TIGHT = [GaussianAccountant(), MixtureAccountant(), FourierAccountant(0.05, 20_000)]
CHECK = PLD()
ACCOUNTANTS = [*TIGHT, RENYI]
DELTA = 1e-5
# Grids of privacy losses move with the event; bounds may differ by about this much.
GRID = 1e-3

CASES = [
    pytest.param(make, accountant, adjacency, id=f"{name}-{accountant.name}-{adjacency.value}")
    for (name, make), accountant, adjacency in itertools.product(
        EVENTS.items(), ACCOUNTANTS, Adjacency
    )
    if accountant.supports(make(1.0), adjacency)
]
every_case = pytest.mark.parametrize(("make", "accountant", "adjacency"), CASES)


@functools.cache
def epsilon(accountant, event, adjacency):
    return accountant.epsilon(event, adjacency, DELTA)


def test_every_event_has_accountants_except_private_parts():
    for (name, make), adjacency in itertools.product(EVENTS.items(), Adjacency):
        supporting = [one for one in (*ACCOUNTANTS, CHECK) if one.supports(make(1.0), adjacency)]
        if "parallel" in name and adjacency is Adjacency.ADD_REMOVE:
            assert supporting == []
            with pytest.raises(ValueError, match="disjoint parts"):
                accountant_for(make(1.0), adjacency)
        else:
            alone = name.startswith("best of")
            assert len(supporting) >= (1 if alone else 2)
            assert accountant_for(make(1.0), adjacency).supports(make(1.0), adjacency)


@every_case
def test_repeating_is_composing_with_itself(make, accountant, adjacency):
    repeated = Repeated(make(3.0), 4)
    assert canonical(Composed((make(3.0),) * 4)) == canonical(repeated)
    # Multipliers that differ in the seventh digit cannot be merged, so nothing is shared.
    listed = Composed(tuple(make(3.0 * (1.0 + 1e-7 * j)) for j in range(4)))
    assert len(canonical(listed).terms) >= 4
    expected = epsilon(accountant, repeated, adjacency)
    assert accountant.epsilon(listed, adjacency, DELTA) == pytest.approx(expected, rel=GRID)
    # Planted bug: the count forgotten.
    assert expected > 1.5 * epsilon(accountant, make(3.0), adjacency)


@every_case
def test_order_of_composition_does_not_matter(make, accountant, adjacency):
    parts = (make(3.0), Repeated(make(5.0), 2), make(4.0))
    one, other = Composed(parts), Composed((Composed(parts[1:]), parts[0]))
    assert accountant.epsilon(one, adjacency, DELTA) == pytest.approx(
        accountant.epsilon(other, adjacency, DELTA), rel=1e-6
    )


@every_case
def test_more_noise_costs_less(make, accountant, adjacency):
    costs = [epsilon(accountant, Repeated(make(s), 6), adjacency) for s in (1.5, 3.0, 6.0)]
    # Planted bug: half the noise.
    assert costs[0] > 1.5 * costs[1] > 2.25 * costs[2]


@every_case
def test_more_events_cost_more(make, accountant, adjacency):
    costs = [epsilon(accountant, Repeated(make(3.0), k), adjacency) for k in (1, 4, 6)]
    assert costs[0] < costs[1] < costs[2]


@every_case
def test_delta_falls_in_epsilon_and_inverts_it(make, accountant, adjacency):
    event = Repeated(make(3.0), 6)
    deltas = [accountant.delta(event, adjacency, e) for e in (0.0, 0.7, 2.0)]
    assert all(0.0 <= low <= high <= 1.0 for high, low in itertools.pairwise(deltas))
    assert deltas[0] > deltas[-1]
    found = epsilon(accountant, event, adjacency)
    assert accountant.delta(event, adjacency, found) == pytest.approx(DELTA, rel=0.02)


@every_case
def test_claims_survive_json(make, accountant, adjacency):
    event = Repeated(make(math.pi), 6)
    assert accountant.epsilon(event_from_dict(event.to_dict()), adjacency, DELTA) == epsilon(
        accountant, event, adjacency
    )


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("name", EVENTS)
def test_accountants_agree(name, adjacency):
    event = Repeated(EVENTS[name](3.0), 6)
    found = [
        epsilon(accountant, event, adjacency)
        for accountant in TIGHT
        if accountant.supports(event, adjacency)
    ]
    if found:
        assert max(found) <= min(found) * (1.0 + GRID)
        for bound in found:
            assert CHECK.delta(event, adjacency, bound) == pytest.approx(DELTA, rel=0.03)
        if RENYI.supports(event, adjacency):
            rough = epsilon(RENYI, event, adjacency)
            assert 0.9 * min(found) < rough < 1.3 * min(found)


@pytest.mark.parametrize("accountant", [FourierAccountant(0.05, 20_000)], ids=lambda one: one.name)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_sampling_more_rows_costs_more_and_never_more_than_all(accountant, adjacency):
    costs = [
        accountant.epsilon(Repeated(PoissonSampled(q, Gaussian(2.0)), 5), adjacency, DELTA)
        for q in (0.01, 0.1, 0.5, 1.0)
    ]
    assert costs == sorted(costs)
    assert costs[0] < 0.5 * costs[-1]
    assert costs[-1] == pytest.approx(
        GaussianAccountant().epsilon(Repeated(Gaussian(2.0), 5), adjacency, DELTA), rel=GRID
    )


@every_case
def test_zero_out_and_add_remove_have_equal_cost(make, accountant, adjacency):
    event = Repeated(make(3.0), 6)
    if adjacency is Adjacency.ADD_REMOVE:
        assert epsilon(accountant, event, Adjacency.ZERO_OUT) == pytest.approx(
            epsilon(accountant, event, adjacency), rel=1e-9
        )


@every_case
def test_replace_one_costs_more_for_the_same_noise(make, accountant, adjacency):
    # The same noise in absolute terms is half the multiplier under replace-one.
    if adjacency is Adjacency.REPLACE_ONE:
        replaced = epsilon(accountant, Repeated(make(1.5), 6), adjacency)
        assert replaced > 1.5 * epsilon(accountant, Repeated(make(3.0), 6), Adjacency.ZERO_OUT)


EXTREMES = (1e-48, 1e-20, 1e-5, 1e12, 1e20, 1e48)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("multiplier", EXTREMES)
@pytest.mark.parametrize("name", EVENTS)
def test_no_finite_noise_is_free_and_none_overflows(name, multiplier, adjacency):
    event = Repeated(EVENTS[name](multiplier), 3)
    if "parallel" in name and adjacency is Adjacency.ADD_REMOVE:
        return
    accountant = accountant_for(event, adjacency)
    assert accountant.epsilon(event, adjacency, 0.0) > 0.0
    assert accountant.epsilon(event, adjacency, 1e-6) >= 0.0
    assert 0.0 <= accountant.delta(event, adjacency, 1.0) <= 1.0


@pytest.mark.parametrize(
    "make",
    [
        Gaussian,
        Laplace,
        Pure,
        BoundedRange,
        lambda s: LastIterate(s, 0.5, 3),
        lambda s: PerturbedObjective(s, 0.1),
        lambda s: PerturbedObjective(1.0, s),
        lambda s: ProjectedGaussian(s, 3),
        lambda s: PoissonSampled(1e-60, Gaussian(s)),
    ],
)
@pytest.mark.parametrize("value", [1e162, 1e51, 1e-51, 1e-200])
def test_multipliers_with_overflowing_powers_are_refused(make, value):
    # Gaussian(1e162) used to cost nothing at delta 0: the square of its mu is 0 in floating point.
    with pytest.raises(ValueError, match=r"1e-50"):
        make(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Repeated(Gaussian(1.0), n),
        lambda n: LastIterate(1.0, 0.5, n),
        lambda n: ProjectedGaussian(1.0, n),
    ],
)
def test_counts_beyond_floats_are_refused(make):
    make(2**53)
    with pytest.raises(ValueError, match=r"must be at most|must be an integer below"):
        make(10**400)
