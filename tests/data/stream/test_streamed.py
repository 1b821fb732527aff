"""Streamed rows give the sums, batches and parts of rows in memory, and hold little of them."""

import mmap
import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpglm.data.collection import Preparation, as_collection
from dpglm.data.memory import BLOCK_ROWS, RUN_ROWS
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.data.stream import streamed
from dpglm.data.stream.arrow import ParquetRows
from dpglm.data.stream.stored import STREAMED_BYTES, MappedRows
from dpglm.data.stream.streamed import ArraySource
from dpglm.exceptions import RowsChangedError
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.problem import Logistic
from dpglm.tables.encoding import column_scaling

N, D = 3000, 5
W = np.array([0.3, -1.0, 0.5, 2.0, -0.2, 0.1])


def signs(y):
    return 2 * y - 1


def heavier(y):
    return 1.0 + y


def table(dtype="float32"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(dtype)
    return X, rng.integers(0, 2, N), rng.uniform(0.0, 1.0, N)


def spec_of(X, **options):
    facts = {"row_norm": 100.0, "intercept": 1.0, "weight_bound": 2.0} | options
    return DataSpec(n_rows=len(X), n_features=D, dtype=X.dtype.name, **facts)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of 512 rows in float64 and of 1024 in float32, so that there are several."""
    monkeypatch.setattr(streamed, "_CHUNK_BYTES", 512 * D * 8)


def mapped(folder, X, y, weights, **options):
    np.save(folder / "X.npy", X)
    return MappedRows(np.load(folder / "X.npy", mmap_mode="r"), y, weights, **options)


def fortran(folder, X, y, weights, **options):
    return mapped(folder, np.asfortranarray(X), y, weights, **options)


def in_parquet(folder, X, y, weights, group=700, **options):
    columns = {f"x{j}": X[:, j] for j in range(D)} | {"y": y, "w": weights}
    parquet.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=group)
    return ParquetRows(
        folder / "rows.parquet", "y", sample_weight="w", dtype=X.dtype.name, **options
    )


def gradient(rows):
    return clipped_gradient_sum(rows, Logistic(), FlatClipping(1.0), W)


def facts(rows):
    """Features, targets, norms and weights of all blocks, each in one array."""
    blocks = list(rows.blocks())
    return [
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("targets", "norms", "weights")
    ] + [np.concatenate([block.features() for block in blocks])]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("row_norm", [100.0, 1.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("storage", [mapped, fortran, in_parquet])
def test_rows_are_those_of_a_matrix(tmp_path, storage, dtype, row_norm, scaled, cached):
    X, y, weights = table(dtype)
    spec = spec_of(X, row_norm=row_norm)
    scaling = column_scaling((-2.0, 1.5), D) if scaled else None
    inside = prepare_rows(X, signs(y), spec, scaling, heavier(y) * weights)
    cache = tmp_path / "cache"
    cache.mkdir()
    collection = storage(tmp_path, X, y, weights, cache=cache if cached else None)
    rows = collection.prepared(Preparation(spec, scaling, signs, heavier))
    assert (rows.n_rows, rows.spec, collection.is_weighted) == (N, spec, True)
    for _ in range(2):
        for got, wanted in zip(facts(rows), facts(inside), strict=True):
            # Last bits of norms depend on the order in which rows in Fortran order are added.
            np.testing.assert_allclose(got, wanted, rtol=1e-15 if dtype == "float64" else 0.0)
    np.testing.assert_allclose(gradient(rows), gradient(inside), rtol=1e-5, atol=1e-4)
    indices = np.flatnonzero(np.random.default_rng(1).random(N) < 0.4)
    for few in (indices, indices[:100], indices[:0]):
        taken, wanted = rows.take(few), inside.take(few)
        assert taken.n_rows == len(few)
        np.testing.assert_allclose(gradient(taken), gradient(wanted), rtol=1e-5, atol=1e-4)
    part = rows.part(indices)
    assert part.spec.n_rows == len(indices)
    for got, wanted in zip(
        facts(part.take(np.arange(0, 900, 2))), facts(inside.take(indices[:900:2])), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-15 if dtype == "float64" else 0.0)
    assert facts(rows.clip_entries(0.5).clip_entries(0.7))[3].max() <= 0.5
    assert os.listdir(cache) == []


@pytest.mark.parametrize("storage", [mapped, in_parquet])
def test_one_row_changes_one_block_however_storage_is_cut(tmp_path, storage):
    X, y, weights = table()
    other = X.copy()
    # Too long: its chunk cannot be used as it is stored any more.
    other[1234] = 1e6
    sums = []
    for name, matrix, options in (("a", X, {}), ("b", other, {"group": 333})):
        (tmp_path / name).mkdir()
        options = options if storage is in_parquet else {}
        collection = storage(tmp_path / name, matrix, y, weights, **options)
        rows = collection.prepared(Preparation(spec_of(X), None, signs))
        blocks = list(rows.blocks())
        assert all(len(block.norms) % RUN_ROWS == 0 for block in blocks[:-1])
        assert max(len(block.norms) for block in blocks) <= BLOCK_ROWS
        sums.append([block.weighted_sum(0.1 * block.targets) for block in blocks])
    differs = [not np.array_equal(a, b) for a, b in zip(*sums, strict=True)]
    assert len(differs) > 2
    assert sum(differs) == 1


def test_facts_that_do_not_fit_are_found_anew_at_each_pass(tmp_path, monkeypatch):
    X, y, weights = table()
    wanted = facts(prepare_rows(X, signs(y), spec_of(X), None, weights))
    monkeypatch.setattr(streamed, "_FACT_BYTES", 12 * N - 1)
    rows = mapped(tmp_path, X, y, weights).prepared(Preparation(spec_of(X), None, signs))
    assert rows.facts is None
    for got, expected in zip(facts(rows), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_file_is_never_copied_as_a_whole(tmp_path, order):
    X = np.zeros((150_000, D), order=order)
    np.save(tmp_path / "X.npy", X)
    size = X.nbytes
    del X
    mapped_X = np.load(tmp_path / "X.npy", mmap_mode="r")
    y = np.zeros(len(mapped_X), np.int8)
    spec = DataSpec(n_rows=len(mapped_X), n_features=D, intercept=1.0)
    tracemalloc.start()
    rows = MappedRows(mapped_X, y).prepared(Preparation(spec, None, signs))
    facts_bytes = 2 * 8 * len(mapped_X)
    gradient(rows)
    gradient(rows.take(np.arange(0, len(mapped_X), 2)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < facts_bytes + 8 * len(mapped_X) + size / 6


def test_pages_that_were_written_to_privately_are_kept(tmp_path):
    X, y, _ = table()
    np.save(tmp_path / "X.npy", X)
    for mode in ("r+", "c"):
        written = np.load(tmp_path / "X.npy", mmap_mode=mode)
        written[:] = 1.0
        rows = MappedRows(written, y).prepared(Preparation(spec_of(X), None, signs))
        gradient(rows)
        assert (written == 1.0).all()
    # Of no file at all.
    private = mmap.mmap(-1, X.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    written = np.frombuffer(private, np.float32).reshape(X.shape)
    written[:] = 1.0
    gradient(MappedRows(written, y).prepared(Preparation(spec_of(X), None, signs)))
    assert (written == 1.0).all()


def test_a_part_of_a_mapped_file_is_announced_where_it_lies(tmp_path):
    X, _, _ = table()
    X.tofile(tmp_path / "X.bin")
    whole = np.memmap(tmp_path / "X.bin", np.float32, "r", offset=4 * D * 10, shape=(N - 10, D))
    for part, first in ((whole, 10), (whole[500:900], 510), (np.asarray(whole)[3:], 13)):
        source = ArraySource(part)
        assert source._mapping is not None
        start = np.frombuffer(source._mapping, np.uint8)[source._offset :]
        np.testing.assert_array_equal(start[: 4 * D].view(np.float32), X[first])
        pieces = [piece[0] for piece in source.pieces(128, features_only=True)]
        np.testing.assert_array_equal(np.concatenate(pieces), part)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scaling", [None, column_scaling((-1.0, 1.0), D)])
@pytest.mark.parametrize("storage", [mapped, in_parquet])
def test_a_value_that_is_not_finite_is_found_wherever_it_is(tmp_path, storage, scaling, value):
    X, y, weights = table()
    X[1999, 3] = value
    collection = storage(tmp_path, X, y, weights)
    with pytest.raises(ValueError, match=r"must be finite, got .* in row 2000, column ('x3'|4)[.]"):
        collection.prepared(Preparation(spec_of(X), scaling, signs))


def test_targets_and_weights_that_are_not_allowed_are_found(tmp_path):
    X, y, weights = table()
    wrong = weights.copy()
    wrong[2000] = -1.0
    with pytest.raises(ValueError, match="sample_weight must be finite and at least 0"):
        mapped(tmp_path, X, y, wrong)
    with pytest.raises(ValueError, match="rows 1025 to 2048: sample_weight must be finite and"):
        in_parquet(tmp_path, X, y, wrong).prepared(Preparation(spec_of(X), None, signs))
    wrong = y.astype(float)
    wrong[10] = np.nan
    with pytest.raises(ValueError, match="rows 1 to 1024: y must be finite"):
        mapped(tmp_path, X, wrong, weights).prepared(Preparation(spec_of(X), None, signs))

    def refuse(y):
        raise ValueError("no such label")

    with pytest.raises(ValueError, match="rows 1 to 1024: no such label"):
        mapped(tmp_path, X, y, weights).prepared(Preparation(spec_of(X), None, refuse))
    with pytest.raises(ValueError, match="at least one row"):
        MappedRows(X[:0], y[:0]).prepared(Preparation(spec_of(X), None, signs))


@pytest.mark.parametrize("kind", ["uint8", "int16", "int64", "float16"])
def test_numbers_of_any_type_are_read(kind):
    X = np.random.default_rng(0).integers(0, 200, (N, D)).astype(kind)
    rows = MappedRows(X, np.ones(N, int))
    assert rows.dtype == ("float64" if kind == "int64" else "float32")
    spec = DataSpec(n_rows=N, n_features=D, row_norm=1e4, dtype=rows.dtype)
    blocks = rows.prepared(Preparation(spec, None, signs)).blocks()
    np.testing.assert_array_equal(np.concatenate([b.features() for b in blocks]), X)


def test_a_reader_that_is_not_needed_any_more_stops(tmp_path):
    X, y, weights = table()
    rows = in_parquet(tmp_path, X, y, weights).prepared(Preparation(spec_of(X), None, signs))
    blocks = rows.blocks()
    next(blocks)
    blocks.close()
    os.remove(tmp_path / "rows.parquet")
    with pytest.raises(RowsChangedError, match="cannot be found"):
        next(rows.blocks())


def test_only_large_mapped_arrays_are_collections_by_themselves(tmp_path):
    few = np.memmap(tmp_path / "few", np.float32, "w+", shape=(10, 2))
    rows = STREAMED_BYTES // 8
    many = np.memmap(tmp_path / "many", np.float32, "w+", shape=(rows, 2))
    assert as_collection(few, np.zeros(10)) is None
    assert as_collection(np.zeros((10, 2)), np.zeros(10)) is None
    assert isinstance(as_collection(many, np.zeros(rows)), MappedRows)
    made = MappedRows(few, np.zeros(10))
    assert as_collection(made) is made
    with pytest.raises(ValueError, match="y and sample_weight must be None"):
        as_collection(made, np.zeros(10))


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        ([[1.0]], [1.0], {}, "X must be a NumPy array"),
        (np.zeros(3), np.zeros(3), {}, "two axes"),
        (np.zeros((3, 1), complex), np.zeros(3), {}, "real numbers"),
        (np.zeros((3, 0)), np.zeros(3), {}, "at least one column"),
        (np.zeros((3, 1)), np.zeros((3, 2)), {}, r"y should be a 1d array, got .* \(3, 2\)"),
        (np.zeros((3, 1)), np.zeros(3), {"sample_weight": [1.0]}, "sample_weight must have"),
        (np.zeros((3, 1)), np.zeros(3), {"cache": "nowhere"}, "cache must be an existing folder"),
    ],
)
def test_arguments_other_than_rows_are_refused(X, y, options, message):
    with pytest.raises(ValueError, match=message):
        MappedRows(X, y, **options)
