"""Parts of the rows depend on public numbers and public randomness only."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from dpglm.privacy.budget import Adjacency
from dpglm.selection.method import part_sizes, partition
from dpglm.solvers.parts.defaults import stage_seed
from tests.slowly import together


@together("n_rows", [2, 3, 7, 100, 10_001])
@together("n_parts", [1, 2, 6])
@together("fraction", [1e-9, 0.2, 0.5, 1.0 - 1e-9])
def test_sizes_add_up_and_every_part_has_a_row(n_rows, n_parts, fraction):
    if n_rows <= n_parts:
        with pytest.raises(ValueError, match=f"n_rows must be at least {n_parts + 1}"):
            part_sizes(n_rows, n_parts, fraction)
        return
    sizes = part_sizes(n_rows, n_parts, fraction)
    assert len(sizes) == n_parts + 1
    assert sum(sizes) == n_rows
    assert min(sizes) >= 1
    assert max(sizes[:-1]) - min(sizes[:-1]) <= 1
    if n_rows == 10_001 and fraction in (0.2, 0.5):
        assert sizes[-1] == int(fraction * n_rows)


def test_a_private_number_of_rows_is_refused():
    with pytest.raises(ValueError, match="adjacency must be 'zero_out' or 'replace_one'"):
        part_sizes(100, 2, 0.2, Adjacency.ADD_REMOVE)
    assert part_sizes(100, 2, 0.2, Adjacency.REPLACE_ONE) == (40, 40, 20)


def test_parts_are_disjoint_cover_all_rows_and_never_see_a_value():
    sizes = (5, 1, 7, 4)
    parts = partition(3, sizes)
    assert [len(part) for part in parts] == list(sizes)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(17))
    assert list(inspect.signature(partition).parameters) == ["seed", "sizes"]
    again = partition(3, sizes)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    assert any((a != b).any() for a, b in zip(parts, partition(4, sizes), strict=True))


def test_every_row_is_as_likely_to_choose_as_any_other():
    counts = np.zeros(10)
    for seed in range(4000):
        counts[partition(seed, (7, 3))[-1]] += 1
    # Five standard deviations of a binomial count.
    assert np.abs(counts - 1200).max() < 5 * np.sqrt(4000 * 0.3 * 0.7)


def test_stages_have_randomness_of_their_own():
    seeds = {stage_seed(seed, stage) for seed in (0, 1, 2**64 - 1) for stage in range(20)}
    assert len(seeds) == 60
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) > 2**62
