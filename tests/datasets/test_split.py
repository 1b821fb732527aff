"""The public split rule: a partition with the asked share in every stretch, always the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.datasets import split_by_index


@settings(deadline=None)
@given(n_rows=st.integers(50, 5000), test_fraction=st.floats(0.05, 0.95))
def test_parts_partition_the_rows_in_the_asked_proportion(n_rows, test_fraction):
    train, test = split_by_index(n_rows, test_fraction)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(n_rows))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    assert abs(len(test) - test_fraction * n_rows) <= 6


def test_every_stretch_of_rows_gives_its_share():
    _, test = split_by_index(100_000, 0.2)
    per_thousand = np.bincount(test // 1000, minlength=100)
    assert abs(per_thousand - 200).max() <= 3


def test_rule_is_the_documented_one():
    _, test = split_by_index(1000, 0.25)
    expected = [i for i in range(1000) if (2654435761 * i) % 2**32 < 0.25 * 2**32]
    assert test.tolist() == expected


def test_more_rows_leave_earlier_rows_where_they_were():
    _, few = split_by_index(500, 0.2)
    _, many = split_by_index(5000, 0.2)
    assert np.array_equal(many[many < 500], few)


def test_large_row_numbers_do_not_overflow():
    _, test = split_by_index(3_000_000, 0.2)
    last = int(test[-1])
    assert last > 2_999_900
    assert (2654435761 * last) % 2**32 < 0.2 * 2**32


@pytest.mark.parametrize("n_rows", [-1, 0, 1, 2**32])
def test_row_count_out_of_range(n_rows):
    with pytest.raises(ValueError, match="n_rows must be at least 2"):
        split_by_index(n_rows)


@pytest.mark.parametrize("test_fraction", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_fraction_out_of_range(test_fraction):
    with pytest.raises(ValueError, match="test_fraction must be strictly between 0 and 1"):
        split_by_index(10, test_fraction)


def test_no_part_is_ever_empty():
    with pytest.raises(ValueError, match="leaves no row for training"):
        split_by_index(2, 0.9)
    train, test = split_by_index(2, 0.01)
    assert (train.tolist(), test.tolist()) == ([1], [0])
