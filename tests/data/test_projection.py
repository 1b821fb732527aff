"""Embedded rows: the right products, within the bounds whatever the matrix, row by row."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.maps import (
    GaussianEmbedding,
    SparseEmbedding,
    embedded_rows,
    embedded_spec,
    viewed,
)
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec

EMBEDDINGS = [GaussianEmbedding(), SparseEmbedding(), SparseEmbedding(nonzeros=1)]
LAYOUTS = list(itertools.product(["dense", "csr"], ["float64", "float32"]))


def make(n=60, d=30, *, layout="dense", dtype="float64", row_norm=1.0, intercept=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4) * row_norm / 2.0
    spec = DataSpec(
        n_rows=n,
        n_features=d,
        row_norm=row_norm,
        intercept=intercept,
        dtype=dtype,
        sparse=layout == "csr",
        weight_bound=2.0,
    )
    stored = X.astype(dtype)
    matrix = sparse.csr_array(stored) if layout == "csr" else stored
    y, weights = rng.choice([-1.0, 1.0], n), rng.uniform(0, 2, n)
    return prepare_rows(matrix, y, spec, weights=weights), y, weights


def values(rows):
    """All rows, with their intercept column, as the blocks see them."""
    identity = np.eye(rows.spec.n_columns)
    return np.concatenate([block.predict(identity) for block in rows.blocks()])


def gathered(rows, name):
    return np.concatenate([getattr(block, name) for block in rows.blocks()])


# 1. The matrices.


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=repr)
def test_inner_products_are_kept_on_average(embedding):
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(2, 20)) / math.sqrt(20)
    k, errors = 25, []
    for seed in range(600):
        matrix = embedding.draw(20, k, seed)
        errors.append((u @ matrix) @ (v @ matrix) - u @ v)
    # Mean zero, and the variance that the rule for the dimension counts on.
    variance = (u @ u * (v @ v) + (u @ v) ** 2) / k
    assert abs(np.mean(errors)) < 4.0 * np.std(errors) / math.sqrt(600)
    assert 0.6 * variance < np.var(errors) < 1.25 * variance


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=repr)
def test_the_seed_decides_the_matrix(embedding):
    def dense(seed):
        matrix = embedding.draw(12, 5, seed)
        return matrix.toarray() if sparse.issparse(matrix) else matrix

    np.testing.assert_array_equal(dense(2**63 + 1), dense(2**63 + 1))
    assert not np.array_equal(dense(1), dense(2))


@pytest.mark.parametrize(("dimension", "count"), [(1, 1), (3, 3), (8, 8), (9, 8), (100, 8)])
def test_sparse_columns_have_length_one_and_few_entries(dimension, count):
    matrix = SparseEmbedding().draw(50, dimension, 0)
    assert matrix.shape == (50, dimension)
    assert matrix.nnz == 50 * count
    # Places differ, so squares add up.
    assert (matrix != 0).sum(axis=1).tolist() == [count] * 50
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-12)
    used = np.bincount(SparseEmbedding().draw(4000, dimension, 0).indices, minlength=dimension)
    expected = 4000 * count / dimension
    assert np.all(np.abs(used - expected) < 6.0 * math.sqrt(expected) + 0.35 * expected)


@pytest.mark.parametrize("nonzeros", [0, -1, 1.5, True])
def test_bad_numbers_of_signs_are_named(nonzeros):
    with pytest.raises(ValueError, match="nonzeros must be an integer of at least 1"):
        SparseEmbedding(nonzeros)


# 2. The rows.


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=repr)
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_equals_the_definition(layout, dtype, embedding, intercept):
    rows, y, weights = make(layout=layout, dtype=dtype, intercept=intercept)
    matrix = embedding.draw(30, 7, 3)
    got = embedded_rows(rows, matrix, embedded_spec(rows.spec, 7, dtype))
    expected = values(rows)[:, :30] @ (matrix.toarray() if sparse.issparse(matrix) else matrix)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert (lengths > 1.0).any()
    expected = expected / np.maximum(lengths, 1.0)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    found = values(got)
    np.testing.assert_allclose(found[:, :7], expected, atol=tolerance)
    if intercept:
        np.testing.assert_array_equal(found[:, 7], np.full(60, intercept))
    np.testing.assert_array_equal(gathered(got, "targets"), y)
    np.testing.assert_allclose(gathered(got, "weights"), weights, rtol=1e-6)
    assert got.spec == dataclasses.replace(rows.spec, n_features=7, sparse=False)
    # A bound on entries does not outlive the embedding.
    bounded = dataclasses.replace(rows.spec, entry_bound=0.1)
    assert embedded_spec(bounded, 7, dtype) == got.spec
    assert found.dtype == np.dtype(dtype)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
def test_no_row_is_longer_than_the_bound_whatever_the_matrix(layout, dtype, row_norm):
    rows, _, _ = make(layout=layout, dtype=dtype, row_norm=row_norm)
    spec = embedded_spec(rows.spec, 5, dtype)
    for matrix in (
        GaussianEmbedding().draw(30, 5, 0),
        1e6 * GaussianEmbedding().draw(30, 5, 0),
        np.zeros((30, 5)),
        SparseEmbedding(1).draw(30, 5, 0),
    ):
        got = embedded_rows(rows, matrix, spec)
        found = values(got).astype(np.float64)
        lengths = np.array([math.sqrt(math.fsum(x * x for x in row)) for row in found])
        assert np.all(np.linalg.norm(found[:, :5], axis=1) <= row_norm * (1.0 + 1e-15))
        assert np.all(lengths <= gathered(got, "norms"))


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
def test_one_row_changes_its_own_embedding_only(layout, dtype):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(700, 20)).astype(dtype)
    other = X.copy()
    other[123] = 1e30
    spec = DataSpec(700, 20, intercept=1.0, dtype=dtype, sparse=layout == "csr")
    found = []
    for matrix in (X, other):
        stored = sparse.csr_array(matrix) if layout == "csr" else matrix
        rows = prepare_rows(stored, np.ones(700), spec)
        transform = SparseEmbedding().draw(20, 6, 9)
        found.append(values(embedded_rows(rows, transform, embedded_spec(spec, 6, dtype))))
    changed = np.flatnonzero((found[0] != found[1]).any(axis=1))
    assert changed.tolist() == [123]


def test_every_backend_can_be_embedded():
    rows, y, _ = make(layout="csr")
    matrix = GaussianEmbedding().draw(30, 4, 0)
    spec = embedded_spec(rows.spec, 4, "float64")
    seen = embedded_rows(viewed(rows), matrix, spec)
    np.testing.assert_allclose(values(seen), values(embedded_rows(rows, matrix, spec)), atol=1e-12)
    np.testing.assert_array_equal(gathered(seen, "targets"), y)


def test_no_rows_are_rows():
    rows, _, _ = make()
    none = rows.take(np.empty(0, dtype=np.intp))
    got = embedded_rows(none, np.zeros((30, 4)), embedded_spec(rows.spec, 4, "float64"))
    assert got.n_rows == 0


def test_a_sparse_matrix_of_sparse_rows_is_never_made_dense(monkeypatch):
    # A million columns: the dense matrix would have 64 million entries.
    rng = np.random.default_rng(5)
    n, d, k = 300, 1_000_000, 64
    places = rng.integers(0, d, size=n * 10)
    X = sparse.csr_array((np.full(n * 10, 0.3), places, np.arange(n + 1) * 10), shape=(n, d))
    X.sum_duplicates()
    spec = DataSpec(n, d, sparse=True)
    rows = prepare_rows(X, np.ones(n), spec)

    matrix = SparseEmbedding().draw(d, k, 0)
    original, sizes = sparse.csr_array.toarray, []

    def recording(self, *args, **kwargs):
        sizes.append(math.prod(self.shape))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_array, "toarray", recording)
    got = values(embedded_rows(rows, matrix, embedded_spec(spec, k, "float64")))
    assert sizes == [n * k]
    products = original(X[:3] @ matrix)
    lengths = np.linalg.norm(products, axis=1, keepdims=True)
    np.testing.assert_allclose(got[:3], products / np.maximum(lengths, 1.0), atol=1e-12)
