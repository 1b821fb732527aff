"""Clipping entries: every backend, every precision, row by row, and the intercept stays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.maps import viewed
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec

LAYOUTS = [
    pytest.param(layout, dtype, id=f"{layout}-{dtype}")
    for layout in ("C", "F", "csr")
    for dtype in ("float32", "float64")
]
BOUND = 0.3
ROWS = np.array([[1e30, -1e-30, 0.0], [0.1, -0.2, 0.25], [-5.0, 0.4, 0.3]])


def make_rows(layout, dtype, row_norm=100.0, weights=None):
    X = ROWS.astype(dtype)
    stored = sparse.csr_array(X) if layout == "csr" else np.asarray(X, order=layout)
    spec = DataSpec(
        3, 3, row_norm=row_norm, intercept=2.0, dtype=dtype, sparse=layout == "csr", entry_bound=0.3
    )
    return prepare_rows(stored, np.array([1.0, -1.0, 1.0]), spec, weights=weights)


def dense(rows):
    """All columns, as they are stored."""
    values = [block.predict(np.eye(4)) for block in rows.blocks()]
    return np.vstack(values).astype(rows.spec.dtype)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
def test_entries_are_clipped_and_all_else_stays(layout, dtype):
    rows = make_rows(layout, dtype, weights=np.array([1.0, 0.5, 0.0]))
    before = dense(rows)
    clipped = rows.clip_entries(BOUND)
    after = dense(clipped)
    np.testing.assert_array_equal(after[:, :3], np.clip(before[:, :3], -BOUND, BOUND))
    assert np.abs(after[:, :3]).max() <= np.dtype(dtype).type(BOUND)
    assert (after[:, 3] == 2.0).all()
    assert clipped.spec == rows.spec
    (old,), (new,) = list(rows.blocks()), list(clipped.blocks())
    for name in ("targets", "norms", "weights"):
        np.testing.assert_array_equal(getattr(new, name), getattr(old, name))
        assert getattr(new, name).dtype == getattr(old, name).dtype
    # The norms are those of longer rows, so they still bound.
    assert (np.linalg.norm(after.astype(float), axis=1) <= new.norms).all()
    np.testing.assert_array_equal(dense(rows), before)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
def test_a_row_is_clipped_by_itself(layout, dtype):
    rows = make_rows(layout, dtype)
    whole = dense(rows.clip_entries(BOUND))
    for i in range(3):
        alone = rows.take(np.array([i])).clip_entries(BOUND)
        np.testing.assert_array_equal(dense(alone)[0], whole[i])


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
def test_view_clips_its_rows(layout, dtype):
    view = viewed(make_rows(layout, dtype), intercept_scale=0.25).clip_entries(BOUND)
    shown = dense(view)
    assert np.abs(shown[:, :3]).max() <= np.dtype(dtype).type(BOUND)
    assert (shown[:, 3] == 0.5).all()


def test_sparse_rows_stay_sparse():
    rows = make_rows("csr", "float64").clip_entries(BOUND)
    assert rows._X.nnz == np.count_nonzero(ROWS)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, 1e16, 1e-16, -np.inf, True, "1"])
def test_a_bound_must_be_in_range(wrong):
    with pytest.raises(ValueError, match="entry_bound must be a finite number"):
        DataSpec(10, 2, entry_bound=wrong)


def test_no_bound_is_the_default():
    assert DataSpec(10, 2).entry_bound == np.inf
    assert DataSpec(10, 2, entry_bound=2.0).entry_bound == 2.0
