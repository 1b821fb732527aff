"""Cluster-robust intervals have their nominal coverage, and planted errors are detected."""

from unittest import mock

import numpy as np
import pytest

from dpglm.solvers.second_order import newton_raphson_method
from experiments.groups import Persons, coverage

UNEVEN = Persons("logistic", 2000, 5, 3, 4.0, "repeated", "uneven")
LINEAR = Persons("linear", 2000, 5, 3, 2.0, "alike", "uneven")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", [UNEVEN, LINEAR], ids=["logistic", "linear"])
def test_intervals_cover_where_those_of_rows_do_not(case):
    found = coverage(case, 40)
    assert found.covered.mean() > 0.92
    assert found.by_rows < 0.8


def cut_near(length, noise, data, inference):
    """As if scores of large groups were cut near the mean of all."""
    return (1.75 * length,) * 2


def test_scores_that_are_cut_too_near_are_found():
    with mock.patch.object(newton_raphson_method, "group_reach", cut_near):
        assert np.mean(coverage(UNEVEN, 15).covered) < 0.8
