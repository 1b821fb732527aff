"""Rows made of others: within the bounds of their facts, in the same order, in memory of their own
unless the others are given up."""

import dataclasses

import numpy as np
import pytest

from dpglm.data.prepare import derived_rows, prepare_rows
from dpglm.data.rows import DataSpec, threads_over
from dpglm.preprocessing import Center, Whiten
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import NoisyGD, Preprocessed, run

SPEC = DataSpec(6000, 200, row_norm=20.0, intercept=1.0, weight_bound=2.0, dtype="float32")


def _given(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((SPEC.n_rows, SPEC.n_features)).astype(SPEC.dtype)
    y = rng.choice([-1.0, 1.0], SPEC.n_rows)
    return X, y, rng.uniform(0.0, 2.0, SPEC.n_rows)


def _mapped(block):
    return block.features()[:, ::-1] * 1.5


def _parts(rows):
    blocks = list(rows.blocks())
    return [
        np.concatenate([values(block) for block in blocks])
        for values in (
            lambda block: block.features(),
            lambda block: block.targets,
            lambda block: block.norms,
            lambda block: block.weights,
        )
    ]


@pytest.mark.parametrize("row_norm", [10.0, 1000.0])
def test_derived_rows_are_those_that_prepare_rows_makes(row_norm):
    X, y, weights = _given()
    rows = prepare_rows(X, y, SPEC, weights=weights)
    after = dataclasses.replace(SPEC, row_norm=row_norm)
    prepared, *_ = _parts(rows)
    expected = _parts(prepare_rows(prepared[:, ::-1] * 1.5, y, after, weights=weights))
    for n_entries in (0, rows.n_rows * rows.spec.n_columns):
        with threads_over(n_entries):
            found = _parts(derived_rows(rows, _mapped, after))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert np.linalg.norm(found[0].astype(float), axis=1).max() <= row_norm
    assert (found[2] <= np.float32(np.hypot(row_norm, SPEC.intercept)) * (1 + 1e-6)).all()


def test_row_memory_is_reused_only_if_released_and_large_enough():
    X, y, weights = _given()
    rows = prepare_rows(X, y, dataclasses.replace(SPEC, row_norm=1e3), weights=weights)
    before = X.copy()
    kept = derived_rows(rows, _mapped, SPEC)
    np.testing.assert_array_equal(X, before)
    expected = _parts(kept)
    narrow = dataclasses.replace(SPEC, n_features=7)
    derived_rows(rows, lambda block: block.features()[:, :7] * 2.0, narrow, overwrite=True)
    np.testing.assert_array_equal(X, before)
    with threads_over(rows.n_rows * rows.spec.n_columns):
        over = derived_rows(rows, _mapped, SPEC, overwrite=True)
    for one, other in zip(_parts(over), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    # The rows were within their bounds, so they were the given array itself.
    assert np.shares_memory(next(iter(over.blocks())).features(), X)


def test_a_fit_after_two_steps_leaves_the_given_rows_as_they_are():
    X, y, weights = _given()
    spec = dataclasses.replace(SPEC, row_norm=1e3)
    before = X.copy()
    rows = prepare_rows(X, y, spec, weights=weights)
    solver = Preprocessed([Center(), Whiten()], NoisyGD(n_steps=3))
    plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), spec)
    first = run(plan, rows, SeededNoise(0))
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(run(plan, rows, SeededNoise(0)).w, first.w)


def test_targets_beyond_single_precision_stay_finite():
    spec = DataSpec(3, 2, dtype="float32")
    X = np.zeros((3, 2), np.float32)
    for y in (np.array([1e300, -1e300, 1.0]), np.array([[0.0, 1e300], [1e300, -1e300], [1, 1]])):
        (block,) = prepare_rows(X, y, spec).blocks()
        assert block.targets.dtype == np.float32
        assert np.isfinite(block.targets).all()
        assert block.targets.shape == y.shape
