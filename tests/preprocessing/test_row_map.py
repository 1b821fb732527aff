"""Maps of rows: bounded whatever they are, each row from itself alone, and taken back exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.moments import row_by_row_product
from dpglm.preprocessing import RowMap
from dpglm.preprocessing.base import dense_spec
from tests.preprocessing.support import LAYOUTS, dense, make_rows
from tests.slowly import together

RNG = np.random.default_rng(0)
MAPS = {
    "factors": RowMap(RNG.normal(size=5) * 0.1, RNG.uniform(0.5, 2.0, 5)),
    "matrix": RowMap(RNG.normal(size=5) * 0.1, RNG.normal(size=(5, 3))),
}


def spec_after(rows, learned, row_norm=1.0):
    n_features = learned.matrix.shape[-1] if learned.matrix.ndim == 2 else rows.spec.n_features
    after = dense_spec(rows.spec, row_norm)
    return dataclasses.replace(after, n_features=n_features)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_by_row", [False, True])
def test_rows_targets_and_weights_are_as_they_should(name, layout, dtype, row_by_row):
    X = RNG.normal(size=(700, 5)) * 0.4
    weights = np.linspace(0.0, 2.0, 700)
    rows = make_rows(X, layout=layout, dtype=dtype, weights=weights, weight_bound=2.0)
    learned = MAPS[name]
    mapped = learned.apply(rows, spec_after(rows, learned, 50.0), row_by_row)
    matrix = np.diag(learned.matrix) if learned.matrix.ndim == 1 else learned.matrix
    expected = (dense(rows) - learned.center) @ matrix
    np.testing.assert_allclose(dense(mapped), expected, atol=1e-5 if dtype == "float32" else 1e-12)
    np.testing.assert_allclose(learned.transform(dense(rows), row_by_row), expected, atol=1e-12)
    for before, after in zip(rows.blocks(), mapped.blocks(), strict=False):
        np.testing.assert_array_equal(before.targets[:256], after.targets[:256])
        np.testing.assert_array_equal(before.weights[:256], after.weights[:256])
    assert mapped.spec.sparse is False


@together(("layout", "dtype"), LAYOUTS)
@together(
    "matrix",
    [
        np.full(2, 1e300),
        np.full(2, 1e-300),
        np.array([1e300, -1e300]),
        np.full((2, 2), 1e308),
        np.array([[1e308, 1e308], [-1e308, 1e308]]),
        np.array([1.0, 1e25]),
    ],
    ids=["huge", "tiny", "opposite", "matrix", "cancelling", "uneven"],
)
@together("row_norm", [1e-3, 1.0, 1e15])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_no_row_is_longer_than_the_bound_whatever_the_map(layout, dtype, matrix, row_norm):
    X = np.array([[1.0, 1.0], [1e30, -1e30], [0.0, 0.0], [1e-30, 0.0], [-1.0, 1.0]])
    rows = make_rows(X, layout=layout, dtype=dtype, row_norm=row_norm)
    for center in (np.zeros(2), np.full(2, 1e15), np.array([-row_norm, row_norm])):
        for lengthen in (False, True):
            learned = RowMap(center, matrix, lengthen)
            mapped = learned.apply(rows, spec_after(rows, learned, 2.0), False)
            (block,) = mapped.blocks()
            found = dense(mapped)
            assert np.isfinite(found).all()
            lengths = np.linalg.norm(found, axis=1)
            assert (lengths <= 2.0 * (1.0 + 1e-12)).all()
            assert (block.norms >= np.hypot(lengths, mapped.spec.intercept) * (1 - 1e-7)).all()


def test_one_row_changes_no_other():
    X = RNG.normal(size=(300, 5))
    other = X.copy()
    other[17] = 1e30
    learned = MAPS["matrix"]
    first, second = (make_rows(one) for one in (X, other))
    a, b = (dense(learned.apply(one, spec_after(one, learned), False)) for one in (first, second))
    np.testing.assert_array_equal(np.delete(a, 17, axis=0), np.delete(b, 17, axis=0))
    assert (a[17] != b[17]).all()


def test_row_by_row_a_row_more_changes_no_bit_of_the_others():
    X = RNG.normal(size=(301, 40))
    learned = RowMap(np.zeros(40), RNG.normal(size=(40, 37)))
    for removed in (0, 1, 17):
        fewer = np.delete(X, removed, axis=0)
        a, b = (
            dense(learned.apply(rows, spec_after(rows, learned), True))
            for rows in (make_rows(X, row_norm=9.0), make_rows(fewer, row_norm=9.0))
        )
        np.testing.assert_array_equal(np.delete(a, removed, axis=0), b)
        np.testing.assert_array_equal(
            learned.transform(X, True)[removed + 1 :], learned.transform(fewer, True)[removed:]
        )
    np.testing.assert_allclose(row_by_row_product(X, X.T), X @ X.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("intercepts", [(2.0, 0.5), (0.0, 0.0)])
def test_coefficients_that_were_taken_back_predict_the_same(name, n_outputs, intercepts):
    learned = MAPS[name]
    if not intercepts[0]:
        learned = RowMap(np.zeros(5), learned.matrix)
    before = DataSpec(10, 5, n_outputs, intercept=intercepts[0])
    after = DataSpec(10, MAPS[name].matrix.shape[-1], n_outputs, intercept=intercepts[1])
    w = RNG.normal(size=after.coefficient_shape)
    X = RNG.normal(size=(10, 5))
    back = learned.pull_back(w, before, after)
    assert back.shape == before.coefficient_shape
    Z = learned.transform(X)
    if before.intercept:
        X = np.column_stack([X, np.full(10, before.intercept)])
        Z = np.column_stack([Z, np.full(10, after.intercept)])
    np.testing.assert_allclose(X @ back, Z @ w, rtol=1e-10)


@pytest.mark.parametrize("name", MAPS)
def test_pulling_back_is_a_matrix(name):
    learned = MAPS[name]
    before = DataSpec(10, 5, intercept=2.0)
    after = DataSpec(10, learned.matrix.shape[-1], intercept=0.5)
    drawn = RNG.normal(size=(9, after.n_columns))
    back = np.array([learned.pull_back(w, before, after) for w in drawn])
    np.testing.assert_allclose(drawn @ learned.pulling_matrix(before, after).T, back, atol=1e-12)


def test_short_rows_are_lengthened_where_that_is_asked_for():
    rows = make_rows(np.array([[0.3, 0.0], [0.0, -0.001], [0.0, 0.0]]))
    learned = RowMap(np.zeros(2), np.ones(2), lengthen=True)
    found = dense(learned.apply(rows, spec_after(rows, learned, 0.5), False))
    np.testing.assert_allclose(found, [[0.5, 0.0], [0.0, -0.5], [0.0, 0.0]], rtol=1e-12)


def test_no_rows_at_all():
    spec = DataSpec(7, 5)
    rows = prepare_rows(np.empty((0, 5)), np.empty(0), spec)
    assert MAPS["factors"].apply(rows, spec, True).n_rows == 0
