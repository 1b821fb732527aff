"""Views of rows: a scaled intercept column, and one class against the rest."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.data.maps import view_spec, viewed
from tests.oracle.test_clipped_sum import make_rows


def rows_of(layout, intercept=2.0, n_outputs=1):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[0] = 0.0
    y = rng.integers(0, 3, 50) if n_outputs > 1 else rng.choice([-1.0, 1.0], 50)
    rows = make_rows(X, y, layout=layout, intercept=intercept, n_outputs=n_outputs, row_norm=9.0)
    return X, y, rows


@pytest.mark.parametrize("layout", ["C", "csr"])
@pytest.mark.parametrize("scale", [0.25, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_the_intercept_column_is_scaled_and_nothing_else(layout, scale, n_outputs):
    X, _, rows = rows_of(layout, n_outputs=n_outputs)
    seen = np.column_stack([X, np.full(50, 2.0 * scale)])
    (block,) = viewed(rows, scale).blocks()
    rng = np.random.default_rng(1)
    w = rng.normal(size=(4,) if n_outputs == 1 else (4, n_outputs))
    before = w.copy()
    np.testing.assert_allclose(block.predict(w), seen @ w, rtol=1e-13, atol=1e-13)
    slopes = rng.normal(size=(50,) if n_outputs == 1 else (50, n_outputs))
    np.testing.assert_allclose(block.weighted_sum(slopes), seen.T @ slopes, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(w, before)


@pytest.mark.parametrize("scale", [1e-3, 0.25, 1.0, 1e3])
@pytest.mark.parametrize("intercept", [1e-6, 1.0, 1e6])
def test_norm_bounds_hold_and_are_close(scale, intercept):
    X, _, rows = rows_of("C", intercept)
    (block,) = viewed(rows, scale).blocks()
    exact = np.linalg.norm(np.column_stack([X, np.full(50, intercept * scale)]), axis=1)
    assert (block.norms >= exact).all()
    # The cancelled part is at most a rounding of the old norm.
    assert (block.norms <= exact * (1.0 + 1e-9) + 1e-7 * intercept).all()
    assert view_spec(rows.spec, scale, 1).intercept == intercept * scale


def test_a_bound_without_the_rounding_would_not_hold():
    rng = np.random.default_rng(0)
    lengths = np.hypot(rng.uniform(0.0, 1e-6, 1000), 1.0)
    bare = np.sqrt(np.maximum(lengths**2 - 1.0, 0.0))
    rng = np.random.default_rng(0)
    assert (bare < rng.uniform(0.0, 1e-6, 1000)).any()


@pytest.mark.parametrize("layout", ["C", "csr"])
def test_one_class_against_the_rest(layout):
    _, y, rows = rows_of(layout, n_outputs=3)
    view = viewed(rows, 0.5, positive_class=2)
    (block,) = view.blocks()
    np.testing.assert_array_equal(block.targets, np.where(y == 2, 1.0, -1.0))
    assert view.spec.coefficient_shape == (4,)
    assert block.predict(np.ones(4)).shape == (50,)
    indices = np.array([3, 1])
    for taken in (view.take(indices), view.part(indices)):
        (some,) = taken.blocks()
        np.testing.assert_array_equal(some.targets, block.targets[indices])
        np.testing.assert_array_equal(some.norms, block.norms[indices])
    (clipped,) = view.clip_entries(0.1).blocks()
    assert np.abs(clipped.predict(np.array([1.0, 0.0, 0.0, 0.0]))).max() <= 0.1
    assert view.n_rows == 50


def test_rows_without_an_intercept_stay_as_they_are():
    _, _, rows = rows_of("C", intercept=0.0)
    (seen,), (own,) = viewed(rows, 0.25).blocks(), rows.blocks()
    np.testing.assert_array_equal(seen.norms, own.norms)
    np.testing.assert_array_equal(seen.predict(np.ones(3)), own.predict(np.ones(3)))
