"""Mean gradients of rows that add noise themselves: bounds of one message, noise of their sum."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import (
    clipped_gradient_sum,
    local_gradient_release,
    locally_noised_gradient,
)
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise.additive import MOST_SENDERS, LocalGaussianNoise
from dpglm.problem import Logistic
from tests.oracle.choices.test_loss_choices import NEIGHBOURS, make_rows, neighbours, oracle_for
from tests.oracle.watching import move_allowed, watching


def declared_for(data, adjacency, clipping, multiplier, most_rows):
    noise = LocalGaussianNoise(multiplier, most_rows)
    return local_gradient_release(data, adjacency, clipping, noise, 1)


def noised(oracle, w, clipping, multiplier, most_rows):
    """Declare a release and make it."""
    adjacency = oracle.curator.adjacency
    declared = declared_for(oracle.rows.spec, adjacency, clipping, multiplier, most_rows)
    return locally_noised_gradient(oracle, declared, w, clipping)


def asked(rows, loss, w, clipping, adjacency, most_rows):
    """What the curator is told."""
    with watching(np.zeros(1)) as told:
        noised(oracle_for(rows, loss, adjacency=adjacency), w, clipping, 2.0, most_rows)
    return told.declared, told.value


@pytest.mark.filterwarnings("error")
@NEIGHBOURS
def test_worst_neighbours_stay_within_declared_bounds(layout, dtype, loss, n_outputs, relation):
    rng = np.random.default_rng(4)
    for row_norm, n, huge in itertools.product((0.01, 1.0, 100.0), (1, 300), (1e6, -1e30)):
        a, b = neighbours(loss, n_outputs, n, row_norm, layout, dtype, huge, relation)
        clipping = FlatClipping(0.3 * row_norm)
        for size in (0.0, 1.0, 1e8):
            w = rng.normal(size=a.spec.coefficient_shape) * size / row_norm
            (declared, one), (same, other) = (
                asked(rows, loss, w, clipping, relation, n + 5) for rows in (a, b)
            )
            assert declared == same
            assert (declared.noise_multiplier, one[1], other[1]) == (2.0, n, n)
            moved = np.linalg.norm(one[0] - other[0])
            assert moved <= relation.sum_sensitivity(move_allowed(declared))
            assert np.linalg.norm(one[0]) <= declared.magnitude


def test_blocks_of_all_sizes_have_messages_of_equal_noise():
    rng = np.random.default_rng(0)
    rows = make_rows(rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], 20))
    clipping, relation = FlatClipping(0.25), Adjacency.REPLACE_ONE
    bounds = []
    for size in (10, 9, 1):
        part = rows.part(np.arange(size))
        declared, messages = asked(part, Logistic(), np.zeros(4), clipping, relation, 10)
        assert messages[1] == size
        bounds.append(declared)
    assert len(set(bounds)) == 1
    largest = dataclasses.replace(rows.spec, n_rows=10)
    assert bounds[0].rounding == sum_rounding(largest, relation, 0.25)


def test_mean_is_over_block_with_the_event_of_one_message():
    rng = np.random.default_rng(0)
    rows = make_rows(rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], 20)).part(np.arange(8))
    oracle = oracle_for(rows, Logistic())
    exact = clipped_gradient_sum(rows, Logistic(), FlatClipping(1.0), np.zeros(4)) / 8
    mean = noised(oracle, np.zeros(4), FlatClipping(1.0), 1e-6, 8)
    np.testing.assert_allclose(mean, exact, atol=1e-5)
    assert oracle.curator.event == Gaussian(1e-6)


@pytest.mark.parametrize("relation", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE], ids=str)
def test_noise_is_that_of_the_block(relation):
    rows = make_rows(np.zeros((16, 1)), np.zeros(16))
    noise = [
        noised(
            oracle_for(rows, Logistic(), seed, relation), np.zeros(2), FlatClipping(0.5), 3.0, 16
        )
        for seed in range(1500)
    ]
    declared = declared_for(rows.spec, relation, FlatClipping(0.5), 3.0, 16)
    exact = declared.noise_std / np.sqrt(16)
    assert exact == pytest.approx(3.0 * relation.sum_sensitivity(0.5) / 4.0)
    # Slopes at zero, for targets that are none, are zero; 3000 draws tell five per cent apart.
    assert np.std(noise) == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_of_the_largest_block_is_small(dtype):
    data = DataSpec(10**6, 1000, dtype=dtype)
    declared = declared_for(data, Adjacency.ZERO_OUT, FlatClipping(1.0), 1.0, MOST_SENDERS)
    assert 1.0 < declared.noise_std < 1.02
