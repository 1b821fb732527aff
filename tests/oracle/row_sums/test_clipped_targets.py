"""Sums of clipped targets: right values, and no row moves them by more than is declared."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.clipped_targets import clipped_target_release, noisy_clipped_targets
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.problem import Poisson, WithOffset
from tests.audit.attack import released_sums

BOUNDS = (20.0, 5.0, 1.25)


def asked(y, weights=None, loss=None, noise=1e-9):
    """Return the means, and the sums with their noise."""
    spec = DataSpec(len(y), 1, intercept=1.0, weight_bound=2.0, target_low=0.0, target_high=20.0)
    rows = prepare_rows(np.zeros((len(y), 1)), y, spec, weights=weights)
    oracle = Oracle(rows, loss or Poisson(), Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
    declared = clipped_target_release(spec, Adjacency.ZERO_OUT, GaussianNoise(noise), count=3)
    with released_sums() as seen:
        return noisy_clipped_targets(oracle, declared, BOUNDS), seen


def test_means_are_weighted_and_in_units_of_the_bounds():
    rng = np.random.default_rng(0)
    y, w = rng.uniform(0.0, 20.0, 500), rng.uniform(0.0, 2.0, 500)
    means, _ = asked(y, w)
    expected = [np.mean(w * np.minimum(y / bound, 1.0)) for bound in BOUNDS]
    np.testing.assert_allclose(means, expected, rtol=1e-6)


def test_offsets_are_taken_out():
    pairs = np.column_stack([[4.0, 8.0], [np.log(4.0), np.log(8.0)]])
    means, _ = asked(pairs, loss=WithOffset(Poisson(), 3.0))
    np.testing.assert_allclose(means, [1 / 20, 1 / 5, 1 / 1.25], rtol=1e-6)


@pytest.mark.parametrize("y", [0.0, 3.0, 20.0])
def test_one_row_moves_sums_by_no_more_than_declared(y):
    seen = [
        asked(np.array([y, 3.0]), np.array([weight, 1.0]), noise=1.0)[1][0] for weight in (2.0, 0.0)
    ]
    (one, std), (other, _) = seen
    moved = float(np.linalg.norm(one - other))
    assert moved <= std
    if y == 20.0:
        assert moved == pytest.approx(std, rel=1e-6)
