"""Choices by gradient norm: a norm moves no more than its vector, whatever rows and shifts are."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.oracle.choices import choose_shortest_gradient, norm_rounding, shortest_gradient_release
from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Pure
from dpglm.privacy.selection import choices as selections
from dpglm.problem import Logistic, Squared
from tests.oracle.choices.test_loss_choices import (
    NEIGHBOURS,
    RUNS,
    make_rows,
    neighbours,
    oracle_for,
    p_value,
    permute_and_flip_law,
)
from tests.oracle.watching import move_allowed, watching


def choose(oracle, candidates, shifts, clipping, epsilon):
    """Declare the choice and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = shortest_gradient_release(spec, adjacency, clipping, epsilon)
    return choose_shortest_gradient(oracle, declared, candidates, shifts, clipping)


def asked(rows, loss, candidates, shifts, clipping, adjacency):
    """The scores, and the bound that the curator is told."""
    with watching(0) as told:
        choose(oracle_for(rows, loss, adjacency=adjacency), candidates, shifts, clipping, 1.0)
    return told.value, move_allowed(told.declared)


@pytest.mark.filterwarnings("error")
@NEIGHBOURS
def test_worst_neighbours_stay_within_declared_bounds(layout, dtype, loss, n_outputs, relation):
    rng = np.random.default_rng(4)
    for row_norm, n, huge in itertools.product((0.01, 1.0, 100.0), (1, 300), (1e6, -1e30)):
        a, b = neighbours(loss, n_outputs, n, row_norm, layout, dtype, huge, relation)
        shape = a.spec.coefficient_shape
        candidates = [rng.normal(size=shape) * size / row_norm for size in (0.0, 1.0, 1e8)]
        for clipping in (FlatClipping(0.3 * row_norm), AutomaticClipping(row_norm)):
            for length in (0.0, clipping.bound, 1e8, np.inf):
                shifts = [np.full(shape, length) for _ in candidates]
                scores, bound = asked(a, loss, candidates, shifts, clipping, relation)
                others, _ = asked(b, loss, candidates, shifts, clipping, relation)
                assert np.isfinite(scores).all()
                moved = np.abs(scores - others).max()
                assert moved <= relation.sum_sensitivity(bound)
                if np.isinf(length):
                    assert moved == 0.0


def test_add_remove_with_a_row_more():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.choice([-1.0, 1.0], 50)
    rows = make_rows(X, y)
    fewer = rows.take(np.arange(49))
    candidates = [rng.normal(size=4) for _ in range(3)]
    shifts = [rng.normal(size=4) for _ in range(3)]
    clipping, relation = FlatClipping(0.5), Adjacency.ADD_REMOVE
    scores, bound = asked(rows, Logistic(), candidates, shifts, clipping, relation)
    others, same = asked(fewer, Logistic(), candidates, shifts, clipping, relation)
    assert bound == same
    assert np.abs(scores - others).max() <= relation.sum_sensitivity(bound)


def test_the_bound_is_attained_and_a_missing_clip_would_be_seen():
    # Opposite slopes on one row, and a shift in the direction of both gradients.
    X, w, shift = np.ones((2, 1)), np.array([0.0, 0.5]), np.array([-9.0, -9.0])
    pair = [make_rows(X, np.array([y, 0.0])) for y in (0.0, 1.0)]
    relation = Adjacency.REPLACE_ONE

    def move(clip):
        far, near = (
            asked(rows, Squared(), [w], [shift], FlatClipping(clip), relation)[0] for rows in pair
        )
        return near[0] - far[0]

    _, told = asked(pair[0], Squared(), [w], [shift], FlatClipping(0.1), relation)
    sensitivity = relation.sum_sensitivity(told)
    # The shift is cut where it is longer than any sum, so it must not be.
    shift[:] = -0.2
    assert 0.999 * sensitivity < move(0.1) <= sensitivity
    shift[:] = -2.0
    assert move(1.0) > 5.0 * sensitivity


def test_scores_are_norms_of_sums_with_the_penalty_in_them():
    rows = make_rows(np.zeros((3, 1)), np.zeros(3))
    # Slopes of the squared loss are the prediction, here of the intercept alone.
    candidates = [np.array([0.0, b]) for b in (0.1, -0.2, 5.0)]
    shifts = [np.array([0.0, s]) for s in (0.0, 0.6, 100.0)]
    scores, bound = asked(
        rows, Squared(), candidates, shifts, FlatClipping(1.0), Adjacency.ZERO_OUT
    )
    # The last one counts as the longest that a sum of three can be, with a factor 2 to spare.
    np.testing.assert_allclose(scores, [0.3, 0.0, 6.0], atol=1e-12)
    assert 1.0 < bound < 1.0 + 1e-9


def test_the_shortest_is_chosen_with_the_probability_claimed():
    rows = make_rows(np.zeros((1, 1)), np.zeros(1))
    norms = np.array([0.2, 0.0, 0.5])
    candidates = [np.array([0.0, norm]) for norm in norms]
    shifts = [np.zeros(2)] * 3
    clipping = FlatClipping(0.6)
    picks = [
        choose(oracle_for(rows, Squared(), seed), candidates, shifts, clipping, 3.0)
        for seed in range(RUNS)
    ]
    counts = np.bincount(picks, minlength=3)
    assert p_value(counts, permute_and_flip_law(norms, 0.6, 3.0)) > 1e-4
    # Half the sensitivity, or the factor 2 of the mechanism forgotten.
    assert p_value(counts, permute_and_flip_law(norms, 0.3, 3.0)) < 1e-9
    assert p_value(counts, permute_and_flip_law(norms, 1.2, 3.0)) < 1e-9


def test_the_choice_is_recorded_before_it_is_made():
    rows = make_rows(np.zeros((1, 1)), np.zeros(1))
    oracle = oracle_for(rows, Squared())
    broken = mock.patch.object(selections, "permute_and_flip", side_effect=RuntimeError)
    with broken, pytest.raises(RuntimeError):
        choose(oracle, [np.zeros(2)], [np.zeros(2)], FlatClipping(1.0), 0.7)
    assert oracle.curator.event == Pure(0.7)


def test_rounding_is_small():
    for adjacency, least in ((Adjacency.ZERO_OUT, 1e-6), (Adjacency.ADD_REMOVE, 0.03)):
        assert norm_rounding(DataSpec(50_000, 1000), adjacency, 1.0) < least
