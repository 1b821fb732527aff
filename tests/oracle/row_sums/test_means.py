"""Noisy means: right values, bounded contributions on worst-case rows, on every backend."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from dpglm.oracle import rounding
from dpglm.oracle.counts import noisy_clipped_mean, noisy_mean, row_sum, rows_in_radii
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.noise.exact import noise_scale
from tests.audit.attack import released_sums
from tests.preprocessing.support import LAYOUTS, dense, make_rows, oracle_of, worst_pairs

CENTER = np.array([0.3, -0.2, 0.1])


def of_all_rows(oracle, noise_multiplier):
    noise = GaussianNoise(noise_multiplier)
    return noisy_mean(
        oracle, row_sum(oracle.rows.spec).release(oracle.rows.spec, oracle.curator.adjacency, noise)
    )


def around_a_point(oracle, noise_multiplier):
    spec, noise = oracle.rows.spec, GaussianNoise(noise_multiplier)
    declared = rows_in_radii(spec).release(spec, oracle.curator.adjacency, noise)
    return noisy_clipped_mean(oracle, declared, CENTER * spec.row_norm, 0.5 * spec.row_norm)


OPERATIONS = {
    "all rows": (of_all_rows, lambda spec: spec.row_norm, 0.0),
    "around a point": (
        around_a_point,
        lambda spec: 1.0,
        CENTER,
    ),
}


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("weights", [None, np.linspace(0.0, 3.0, 2500)])
def test_means_are_those_of_the_definition(layout, dtype, weights):
    X = np.random.default_rng(0).normal(size=(2500, 3)) * 0.6
    rows = make_rows(X, layout=layout, dtype=dtype, weights=weights, weight_bound=2.0)
    kept = dense(rows)
    tolerance = 1e-4 if dtype == "float32" else 1e-9
    # A row counts once, whatever it weighs in the fit, but one of weight 0 does not.
    counts = np.ones(2500) if weights is None else weights > 0.0
    with released_sums():
        found = of_all_rows(oracle_of(rows), 1.0)
        np.testing.assert_allclose(found, counts @ kept / 2500, atol=tolerance)
        around = around_a_point(oracle_of(rows), 1.0)
    apart = kept - CENTER
    apart *= 0.5 / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 0.5)
    np.testing.assert_allclose(around, CENTER + counts @ apart / 2500, atol=tolerance)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
def test_one_row_moves_the_sum_by_no_more_than_declared(operation, layout, dtype, row_norm):
    ask, bound, erased = OPERATIONS[operation]
    largest = 0.0
    for one, other, relation in worst_pairs(300, 3, row_norm, row_norm * erased):
        adjacency = Adjacency(relation)
        if not adjacency.n_is_public and (layout, dtype) == ("C", "float32"):
            continue
        sums = []
        for X in (one, other):
            rows = make_rows(X, layout=layout, dtype=dtype, row_norm=row_norm, n_rows=300)
            with released_sums() as seen:
                ask(oracle_of(rows, adjacency), 1.0)
            ((total, std),) = seen
            sums.append(total)
        declared = bound(rows.spec)
        magnitude = sum_magnitude(rows.spec, adjacency, declared)
        declared += sum_rounding(rows.spec, adjacency, declared)
        sensitivity = adjacency.sum_sensitivity(declared)
        assert std == noise_scale(adjacency, sensitivity, 1.0, 3, magnitude).std
        moved = np.linalg.norm(sums[0] - sums[1])
        # The noise is one sensitivity large here, rounding and grid included.
        assert moved <= std
        largest = max(largest, moved / std)
    assert largest > 0.9


def test_a_forgotten_factor_of_two_is_caught():
    one, other, relation = worst_pairs(300, 3, 1.0)[0]
    assert relation == "replace_one"
    with released_sums() as seen:
        for X in (one, other):
            of_all_rows(oracle_of(make_rows(X), Adjacency.ZERO_OUT), 1.0)
    (first, std), (second, _) = seen
    assert np.linalg.norm(first - second) > 1.9 * std


def test_one_release_each_and_noise_as_large_as_declared():
    rows = make_rows(np.zeros((50, 3)))
    for ask, bound, _ in OPERATIONS.values():
        oracle = oracle_of(rows)
        drawn = np.array([ask(oracle, 2.0) for _ in range(1500)]) * 50
        assert oracle.curator.event.terms == ((Gaussian(2.0), 1500),)
        spread = drawn.std(axis=0).mean() / (0.5 if ask is around_a_point else 1.0)
        assert spread == pytest.approx(2.0 * bound(rows.spec), rel=0.04)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_few_rows(n_rows):
    rows = make_rows(np.ones((n_rows, 2)), n_rows=7)
    with released_sums():
        mean = of_all_rows(oracle_of(rows, Adjacency.ADD_REMOVE), 1.0)
    # Divided by the public number of rows, never by the true one.
    np.testing.assert_allclose(mean, n_rows / 7 / np.sqrt(2.0))


def test_rows_that_were_not_bounded_are_caught():
    X = np.zeros((300, 3))
    X[17, 0] = 50.0
    rows = make_rows(X, row_norm=100.0)
    with (
        released_sums() as seen,
        mock.patch.object(rounding, "sum_magnitude", return_value=600.0),
    ):
        for clean in (rows, make_rows(np.zeros((300, 3)), row_norm=100.0)):
            oracle = oracle_of(clean)
            # As if the rows had been prepared for a norm of 1.
            object.__setattr__(clean.spec, "row_norm", 1.0)
            of_all_rows(oracle, 1.0)
    (first, std), (second, _) = seen
    assert np.linalg.norm(first - second) > 10.0 * std
