"""Mean gradients with L2 noise: the exact sum, the bounds handed on, the public divisor."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.oracle.gradient_sums.pure_gradients import pure_noisy_gradient
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.events import Pure
from dpglm.problem import Logistic
from tests.oracle.choices.test_loss_choices import NEIGHBOURS, make_rows, neighbours, oracle_for


def asked(rows, loss, w, clipping, adjacency=Adjacency.ZERO_OUT):
    """What the curator is told."""
    with mock.patch.object(Curator, "release_l2", return_value=np.zeros(1)) as told:
        pure_noisy_gradient(oracle_for(rows, loss, adjacency=adjacency), w, clipping, 0.3)
    return told.call_args.args


@pytest.mark.filterwarnings("error")
@NEIGHBOURS
def test_worst_neighbours_stay_within_what_the_curator_is_told(
    layout, dtype, loss, n_outputs, relation
):
    rng = np.random.default_rng(4)
    for row_norm, n, huge in itertools.product((0.01, 1.0, 100.0), (1, 300), (1e6, -1e30)):
        a, b = neighbours(loss, n_outputs, n, row_norm, layout, dtype, huge, relation)
        for clipping in (FlatClipping(0.3 * row_norm), AutomaticClipping(row_norm)):
            for size in (0.0, 1.0, 1e8):
                w = rng.normal(size=a.spec.coefficient_shape) * size / row_norm
                (one, epsilon), (other, _) = (
                    asked(rows, loss, w, clipping, relation) for rows in (a, b)
                )
                assert epsilon == 0.3
                for name in ("contribution_bound", "rounding", "magnitude"):
                    assert getattr(one, name) == getattr(other, name)
                moved = np.linalg.norm(one.value - other.value)
                allowed = one.contribution_bound + one.rounding
                assert moved <= relation.sum_sensitivity(allowed)
                assert np.linalg.norm(one.value) <= one.magnitude


def test_bounds_are_those_of_a_clipped_gradient_sum():
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], 20), np.full(20, 2.0)
    rows, clipping, w = make_rows(X, y, weights=weights), FlatClipping(0.25), rng.normal(size=4)
    for adjacency in Adjacency:
        told, _ = asked(rows, Logistic(), w, clipping, adjacency)
        # The bound on weights, 2, multiplies the clip norm.
        assert told.contribution_bound == 0.5
        assert told.rounding == sum_rounding(rows.spec, adjacency, 0.5)
        assert told.magnitude == sum_magnitude(rows.spec, adjacency, 0.5)
        assert told.sampling_rate == 1.0
        expected = clipped_gradient_sum(rows, Logistic(), clipping, w)
        np.testing.assert_array_equal(told.value, expected)


def test_the_mean_is_over_the_public_number_of_rows():
    rng = np.random.default_rng(0)
    rows = make_rows(rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], 20))
    fewer = rows.take(np.arange(5))
    clipping, w = FlatClipping(1.0), np.zeros(4)
    for each in (rows, fewer):
        oracle = oracle_for(each, Logistic(), adjacency=Adjacency.ADD_REMOVE)
        with mock.patch.object(Curator, "release_l2", lambda self, total, epsilon: total.value):
            mean = pure_noisy_gradient(oracle, w, clipping, 1.0)
        exact = clipped_gradient_sum(each, Logistic(), clipping, w)
        np.testing.assert_array_equal(mean, exact / 20)


def test_the_event_is_pure():
    rows = make_rows(np.zeros((3, 1)), np.ones(3))
    oracle = oracle_for(rows, Logistic())
    pure_noisy_gradient(oracle, np.zeros(2), FlatClipping(1.0), 0.25)
    assert oracle.curator.event == Pure(0.25)
