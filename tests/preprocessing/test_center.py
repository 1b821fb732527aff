"""Centring: the mean is removed, the error is that of the noise, and the share follows its rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.preprocessing import Center, InstanceOptimalCenter
from dpglm.preprocessing.steps import nearest_mean, random_basis
from dpglm.privacy.budget import Adjacency
from tests.preprocessing.support import dense, make_rows, oracle_of

RNG = np.random.default_rng(0)


def far_rows(n=4000, d=5, distance=100.0):
    """A cloud of radius about 1 far from zero."""
    X = RNG.normal(size=(n, d)) / np.sqrt(d)
    X[:, 0] += distance
    return make_rows(X, row_norm=1.1 * distance, intercept=1.1 * distance)


def error(step, rows, mu, seed):
    planned = step.plan(rows.spec, mu, Adjacency.ZERO_OUT)
    learned = planned.learn(oracle_of(rows, seed=seed), seed)
    return float(np.linalg.norm(learned.center - dense(rows).mean(axis=0)))


def test_the_error_is_that_of_the_noise():
    rows = far_rows()
    found = np.mean([error(Center(), rows, 0.2, seed) ** 2 for seed in range(60)]) ** 0.5
    expected = rows.spec.row_norm * np.sqrt(5) / (4000 * 0.2)
    assert found == pytest.approx(expected, rel=0.15)


def test_around_medians_the_error_goes_by_the_spread():
    rows = far_rows()
    plain, around = (
        np.mean([error(step, rows, 0.2, seed) for seed in range(8)])
        for step in (Center(), InstanceOptimalCenter())
    )
    assert around < 0.1 * plain


def test_where_rows_are_few_medians_do_not_pay():
    rows = make_rows(RNG.normal(size=(200, 5)) * 0.2, row_norm=1.0)
    plain, around = (
        np.mean([error(step, rows, 0.05, seed) for seed in range(20)])
        for step in (Center(), InstanceOptimalCenter())
    )
    assert plain < around
    # No mean is further from zero than the longest row.
    assert around <= 1.0


def test_rows_after_it_are_around_zero():
    rows = far_rows(distance=2.0)
    planned = Center().plan(rows.spec, 1.0, Adjacency.ZERO_OUT)
    learned = planned.learn(oracle_of(rows), 0)
    mapped = learned.apply(rows, planned.output, False)
    assert np.linalg.norm(dense(mapped).mean(axis=0)) < 0.01
    assert planned.output.row_norm == rows.spec.row_norm
    assert not learned.lengthen


def test_a_row_norm_and_lengthening_are_taken_over():
    planned = Center(row_norm=0.7, lengthen=True).plan(
        DataSpec(100, 3, row_norm=2.0, intercept=2.0), 1.0, Adjacency.ZERO_OUT
    )
    assert (planned.output.row_norm, planned.output.intercept) == (0.7, 0.7)
    assert planned.learn(oracle_of(make_rows(np.eye(3), row_norm=2.0)), 0).lengthen


def test_the_intercept_column_can_be_shortened():
    data = DataSpec(100, 3, row_norm=2.0, intercept=2.0)
    planned = Center(intercept=0.25).plan(data, 1.0, Adjacency.ZERO_OUT)
    assert (planned.output.row_norm, planned.output.intercept) == (2.0, 0.5)
    with pytest.raises(ValueError, match="intercept must be"):
        Center(intercept=2.0)


def test_the_share_follows_the_error_it_buys():
    data = DataSpec(10_000, 100, intercept=1.0)
    center = Center()
    # sqrt(d) / (n mu) is a hundredth: a quarter of the budget would give twice that error.
    assert center.share(data, 0.1) == 0.1
    assert center.share(dataclasses.replace(data, n_rows=10**6), 0.1) == 0.01
    assert 0.01 < center.share(dataclasses.replace(data, n_rows=30_000), 0.1) < 0.1


def test_points_beyond_all_rows_are_brought_back():
    data = DataSpec(10, 2, row_norm=2.0)
    np.testing.assert_allclose(nearest_mean(np.array([30.0, 40.0]), data), [1.2, 1.6])
    np.testing.assert_array_equal(nearest_mean(np.array([0.3, 0.4]), data), [0.3, 0.4])
    np.testing.assert_array_equal(nearest_mean(np.zeros(2), data), [0.0, 0.0])


def test_the_basis_is_orthonormal_public_and_new_for_every_seed():
    first, again, other = (random_basis(30, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first.T @ first, np.eye(30), atol=1e-12)
    assert np.abs(first - other).max() > 0.1
    # No direction is preferred.
    entries = np.array([random_basis(3, seed)[0, 0] for seed in range(2000)])
    assert entries.mean() == pytest.approx(0.0, abs=0.05)
    assert (entries**2).mean() == pytest.approx(1 / 3, abs=0.03)
