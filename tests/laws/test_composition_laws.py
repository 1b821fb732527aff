"""Composition and calibration on events that Hypothesis makes up."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.events import Composed, Repeated, canonical, event_from_dict
from tests.laws.budgets import examples
from tests.laws.mechanisms import EVENTS

DELTA = 1e-5
# Parallel parts, and the best of several, are accounted for by themselves.
TOGETHER = [name for name in EVENTS if not name.startswith(("parallel", "best of"))]
QUICK = ["gaussian", "laplace", "pure", "bounded range", "last iterate", "objective"]

multipliers = st.floats(2.0, 50.0)


@st.composite
def events(draw, names=tuple(TOGETHER)):
    event = EVENTS[draw(st.sampled_from(names))](draw(multipliers))
    return Repeated(event, draw(st.integers(1, 5)))


@examples(20)
@given(a=events(), b=events(), c=events())
def test_composition_is_associative_and_commutative(a, b, c):
    forms = [
        canonical(Composed(tree))
        for tree in (
            (a, b, c),
            (Composed((a, b)), c),
            (a, Composed((b, c))),
            (Composed((Composed((a,)), b)), Repeated(c, 1)),
            (c, Composed((b, a))),
        )
    ]
    assert len(set(forms[:-1])) == 1
    # In another order the list of terms has another order too.
    assert sorted(forms[-1].terms, key=repr) == sorted(forms[0].terms, key=repr)
    assert canonical(event_from_dict(forms[0].to_dict())) == forms[0]
    assert sum(count for _, count in forms[0].terms) == sum(
        count for one in (a, b, c) for _, count in canonical(one).terms
    )


def cost(adjacency, *parts):
    event = canonical(Composed(parts))
    return accountant_for(event, adjacency).epsilon(event, adjacency, DELTA)


@examples(5)
@given(
    parts=st.lists(events(tuple(QUICK)), min_size=2, max_size=3),
    adjacency=st.sampled_from(list(Adjacency)),
)
def test_no_part_is_free_and_no_whole_costs_more_than_its_parts(parts, adjacency):
    whole = cost(adjacency, *parts)
    for left_out in range(len(parts)):
        rest = [part for k, part in enumerate(parts) if k != left_out]
        # Both are rounded up, each on a grid of its own.
        assert cost(adjacency, *rest) <= whole * (1.0 + 1e-5)
    # Basic composition: epsilons add up where deltas do.
    delta = DELTA / len(parts)
    alone = 0.0
    for part in parts:
        event = canonical(part)
        alone += accountant_for(event, adjacency).epsilon(event, adjacency, delta)
    assert whole <= alone * (1.0 + 1e-3) + 1e-9


@pytest.mark.parametrize("name", QUICK)
@examples(2)
@given(data=st.data())
def test_noise_falls_as_the_budget_grows(name, data):
    adjacency = data.draw(st.sampled_from(list(Adjacency)))
    low, high = sorted(data.draw(st.floats(0.05, 10.0)) for _ in range(2))
    assume(high > 1.01 * low)

    def multiplier(epsilon, delta):
        return calibrate(EVENTS[name], ApproximateDP(epsilon, delta), adjacency)

    by_epsilon = [multiplier(epsilon, DELTA) for epsilon in (low, high)]
    by_delta = [multiplier(low, delta) for delta in (1e-9, 1e-3)]
    assert by_epsilon[0] > by_epsilon[1]
    # If delta is negligible, grids of privacy losses may differ by this much.
    assert by_delta[0] >= by_delta[1] * (1.0 - 1e-3)
