"""Counts of targets by size: right values, and no row moves them by more than is declared."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import targets as target_means
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.targets import N_SIZES, noisy_target_sizes, target_size_sum
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Poisson, WithOffset
from tests.audit.attack import released_sums

HIGH = 20.0


def asked(y, weights=None, loss=None, noise=1e-9):
    """Return the counts, and the sums with their noise."""
    spec = DataSpec(len(y), 1, intercept=1.0, weight_bound=2.0, target_low=0.0, target_high=HIGH)
    rows = prepare_rows(np.zeros((len(y), 1)), y, spec, weights=weights)
    loss = loss or Poisson()
    oracle = Oracle(rows, loss, Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
    declared = target_size_sum(has_offset=loss.offset_bound > 0.0).release(
        spec, Adjacency.ZERO_OUT, GaussianNoise(noise)
    )
    with released_sums() as seen:
        return noisy_target_sizes(oracle, declared, HIGH), seen


def test_sizes_are_weighted_counts_between_powers_of_two():
    rng = np.random.default_rng(0)
    y, w = HIGH * rng.uniform(size=500) ** 8, rng.uniform(0.0, 2.0, 500)
    y[:3] = 0.0, HIGH, HIGH / 4.0
    counts, _ = asked(y, w)
    ends = HIGH * 2.0 ** -np.arange(N_SIZES + 1)
    pairs = itertools.pairwise(ends)
    expected = [w[(y > low) & (y <= high)].sum() for high, low in pairs]
    np.testing.assert_allclose(counts, [expected], atol=1e-6)


def test_sizes_of_both_kinds_leave_offsets_in_and_out():
    pairs = np.column_stack([[16.0, 16.0], [0.0, np.log(4.0)]])
    counts, _ = asked(pairs, loss=WithOffset(Poisson(), 3.0))
    np.testing.assert_allclose(counts[:, :3], [[2, 0, 0], [1, 0, 1]], atol=1e-6)


def moved(y, offset=None):
    """Return the move of the sums when one row is erased, and the declared bound."""
    loss, y = Poisson(), np.array([y, 3.0])
    if offset is not None:
        y, loss = np.column_stack([y, [offset, 0.0]]), WithOffset(loss, 3.0)
    seen = [asked(y, np.array([weight, 1.0]), loss, 1.0)[1][0] for weight in (2.0, 0.0)]
    (one, std), (other, _) = seen
    return float(np.linalg.norm(one - other)), std


@pytest.mark.parametrize("offset", [None, -3.0, 3.0])
@pytest.mark.parametrize("y", [0.0, 3.0, HIGH])
def test_one_row_moves_sizes_by_no_more_than_declared(y, offset):
    distance, declared = moved(y, offset)
    assert distance <= declared
    if y > 0.0:
        assert distance == pytest.approx(declared, rel=1e-6)


def test_planted_counts_of_all_smaller_sizes_are_found(monkeypatch):
    """A row that counts for its own size and all below it moves more than is declared."""

    sound = target_means._kinds
    monkeypatch.setattr(
        target_means, "_kinds", lambda *args: [_Nested.of(one) for one in sound(*args)]
    )
    distance, declared = moved(HIGH)
    assert distance > 2.0 * declared


class _Nested(np.ndarray):
    """Numbers with only the lower end of their size."""

    @classmethod
    def of(cls, values):
        return np.asarray(values).view(cls)

    def __le__(self, other):
        return np.ones(self.shape, dtype=bool)
