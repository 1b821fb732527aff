"""Mean gradients: the exact sum, the bounds handed on, noise of either kind, the public divisor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum, gradient_release
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian, Pure
from dpglm.privacy.noise.additive import GaussianNoise, L2Noise
from dpglm.problem import Logistic
from tests.oracle.choices.test_loss_choices import NEIGHBOURS, make_rows, neighbours, oracle_for
from tests.oracle.watching import move_allowed, watching

L2 = L2Noise(0.3)


def mean_gradient(oracle, w, clipping, mechanism):
    """Declare a release and make it."""
    adjacency = oracle.curator.adjacency
    declared = gradient_release(oracle.rows.spec, adjacency, clipping, mechanism)
    return oracle.noisy_gradient(declared, w, clipping)


def asked(rows, loss, w, clipping, adjacency=Adjacency.ZERO_OUT, mechanism=L2):
    """What the curator is told."""
    with watching() as told:
        mean_gradient(oracle_for(rows, loss, adjacency=adjacency), w, clipping, mechanism)
    return told.declared, told.value


@pytest.mark.filterwarnings("error")
@NEIGHBOURS
def test_worst_neighbours_stay_within_declared_bounds(layout, dtype, loss, n_outputs, relation):
    rng = np.random.default_rng(4)
    for row_norm, n, huge in itertools.product((0.01, 1.0, 100.0), (1, 300), (1e6, -1e30)):
        a, b = neighbours(loss, n_outputs, n, row_norm, layout, dtype, huge, relation)
        for clipping in (FlatClipping(0.3 * row_norm), AutomaticClipping(row_norm)):
            for size in (0.0, 1.0, 1e8):
                w = rng.normal(size=a.spec.coefficient_shape) * size / row_norm
                (declared, one), (same, other) = (
                    asked(rows, loss, w, clipping, relation) for rows in (a, b)
                )
                assert declared == same
                assert declared.mechanism == L2
                moved = np.linalg.norm(one - other)
                assert moved <= relation.sum_sensitivity(move_allowed(declared))
                assert np.linalg.norm(one) <= declared.magnitude


@pytest.mark.parametrize("mechanism", [L2, GaussianNoise(2.0)], ids=str)
def test_bounds_are_those_of_a_clipped_gradient_sum(mechanism):
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], 20), np.full(20, 2.0)
    rows, clipping, w = make_rows(X, y, weights=weights), FlatClipping(0.25), rng.normal(size=4)
    for adjacency in Adjacency:
        declared, total = asked(rows, Logistic(), w, clipping, adjacency, mechanism)
        # The bound on weights, 2, multiplies the clip norm.
        assert declared.contribution_bound == 0.5
        assert declared.rounding == sum_rounding(rows.spec, adjacency, 0.5)
        assert declared.magnitude == sum_magnitude(rows.spec, adjacency, 0.5)
        assert (declared.coordinates, declared.sampling_rate) == (4, 1.0)
        expected = clipped_gradient_sum(rows, Logistic(), clipping, w)
        np.testing.assert_array_equal(total, expected)


def test_the_mean_is_over_the_public_number_of_rows():
    rng = np.random.default_rng(0)
    rows = make_rows(rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], 20))
    fewer = rows.take(np.arange(5))
    clipping, w = FlatClipping(1.0), np.zeros(4)
    for each in (rows, fewer):
        with watching():
            oracle = oracle_for(each, Logistic(), adjacency=Adjacency.ADD_REMOVE)
            mean = mean_gradient(oracle, w, clipping, L2)
        exact = clipped_gradient_sum(each, Logistic(), clipping, w)
        np.testing.assert_array_equal(mean, exact / 20)


@pytest.mark.parametrize(
    ("mechanism", "event"), [(L2Noise(0.25), Pure(0.25)), (GaussianNoise(4.0), Gaussian(4.0))]
)
def test_the_event_is_that_of_the_mechanism(mechanism, event):
    oracle = oracle_for(make_rows(np.zeros((3, 1)), np.ones(3)), Logistic())
    mean_gradient(oracle, np.zeros(2), FlatClipping(1.0), mechanism)
    assert oracle.curator.event == event
