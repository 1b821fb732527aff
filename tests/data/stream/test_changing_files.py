"""Laws: a file that changes while it is read ends the fit, and a sum stays within its bound."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse
from sklearn.utils import check_array

from dpglm import LogisticRegression, MappedRows, ParquetRows, PrivacyLedger
from dpglm.data.collection import MatrixRows, Preparation
from dpglm.data.rows import DataSpec
from dpglm.data.stream import streamed
from dpglm.exceptions import RowsChangedError
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.privacy import ApproximateDP
from dpglm.problem import Squared
from dpglm.tables.encoding import column_scaling
from dpglm.tables.given import Watch, difference_of, finite_matrix

N, D = 1500, 4
CLIP = 0.5


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(streamed, "_CHUNK_BYTES", 512 * D * 8)


def rows_of(factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (N, D)) * factor
    return X, (X[:, 0] > 0).astype(float)


def write_array(path: Path, factor: float, order: str = "C") -> None:
    np.save(path, np.asarray(rows_of(factor)[0], order=order))  # type: ignore[call-overload]


def write_parquet(path: Path, factor: float) -> None:
    X, y = rows_of(factor)
    table = pa.table({f"x{i}": X[:, i] for i in range(D)} | {"y": y})
    # Of the same size whatever the values are.
    parquet.write_table(table, path, use_dictionary=False, compression="none", row_group_size=400)


def mapped(folder: Path, **options):
    write_array(folder / "rows.npy", 1.0)
    return MappedRows(np.load(folder / "rows.npy", mmap_mode="r"), rows_of()[1], **options)


def fortran(folder: Path, **options):
    write_array(folder / "rows.npy", 1.0, "F")
    return MappedRows(np.load(folder / "rows.npy", mmap_mode="r"), rows_of()[1], **options)


def part_of_a_map(folder: Path, **options):
    write_array(folder / "rows.npy", 1.0)
    X = np.asarray(np.load(folder / "rows.npy", mmap_mode="c"))[:, :]
    return MappedRows(X, rows_of()[1], **options)


def in_parquet(folder: Path, **options):
    write_parquet(folder / "rows.parquet", 1.0)
    return ParquetRows(folder / "rows.parquet", "y", dtype="float64", **options)


def in_folder(folder: Path, **options):
    (folder / "parts").mkdir()
    write_parquet(folder / "parts" / "rows.parquet", 1.0)
    return ParquetRows(folder / "parts", "y", dtype="float64", **options)


STORES = [mapped, fortran, part_of_a_map, in_parquet, in_folder]


def file_of(folder: Path) -> Path:
    return next(one for one in folder.rglob("rows.*"))


def written_over(path: Path) -> None:
    """Other values, at a later time, in the same file and as many bytes."""
    before = os.stat(path)
    if path.suffix == ".npy":
        order = "F" if np.load(path).flags.f_contiguous else "C"
        write_array(path, 1e6, order)
    else:
        write_parquet(path, 1e6)
    after = os.stat(path)
    assert (before.st_size, before.st_ino) == (after.st_size, after.st_ino)
    os.utime(path, ns=(after.st_atime_ns, before.st_mtime_ns + 1))


def written_over_at_the_same_time(path: Path) -> None:
    """A change that is invisible from outside."""
    before = os.stat(path)
    written_over(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    """Another file of the same name, size and time."""
    before = os.stat(path)
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)


def cut_off(path: Path) -> None:
    os.truncate(path, 100)


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def removed(path: Path) -> None:
    path.unlink()


CHANGES = [written_over, replaced, cut_off, longer, removed]


def spec_of(**options) -> DataSpec:
    return DataSpec(n_rows=N, n_features=D, target_high=1.0, target_low=0.0, **options)


def as_they_are(y):
    return y


def sum_of(rows, w=None):
    w = np.full(D, 1e3) if w is None else w
    return clipped_gradient_sum(rows, Squared(), FlatClipping(CLIP), w)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_change_between_passes_is_found(tmp_path, store, change, scaled):
    scaling = column_scaling((-1.0, 1.0), D) if scaled else None
    rows = store(tmp_path).prepared(Preparation(spec_of(row_norm=2.0), scaling, as_they_are))
    sum_of(rows)
    change(file_of(tmp_path))
    with pytest.raises(RowsChangedError, match="rows changed while they were in use"):
        sum_of(rows)
    with pytest.raises(RowsChangedError):
        sum_of(rows.take(np.arange(0, N, 3)))
    with pytest.raises(RowsChangedError):
        list(rows.map_native(lambda block: len(block.features())))


@pytest.mark.parametrize("change", [written_over, replaced, longer, removed])
@pytest.mark.parametrize("store", STORES)
def test_a_change_during_a_pass_ends_it_before_its_sum_is_used(tmp_path, store, change):
    rows = store(tmp_path).prepared(Preparation(spec_of(row_norm=2.0), None, as_they_are))
    seen: list[int] = []

    def kernel(block):
        if not seen:
            change(file_of(tmp_path))
        seen.append(1)
        return np.zeros(D)

    with pytest.raises(RowsChangedError):
        rows.sum(kernel)
    assert seen


def test_error_of_half_a_file_states_its_change(tmp_path, monkeypatch):
    rows = in_parquet(tmp_path).prepared(Preparation(spec_of(row_norm=2.0), None, as_they_are))
    changes = iter([None, written_over])

    def half_written(*args, **options):
        change = next(changes)
        if change is not None:
            change(file_of(tmp_path))
        raise OSError("Unexpected end of stream")
        yield

    monkeypatch.setattr(streamed, "_chunks", half_written)
    for error in (OSError, RowsChangedError):
        with pytest.raises(error, match="Unexpected end" if error is OSError else "written to"):
            sum_of(rows)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("cached", [False, True])
def test_a_change_during_the_first_pass_is_refused(tmp_path, store, cached):
    (tmp_path / "cache").mkdir()
    collection = store(tmp_path, cache=tmp_path / "cache" if cached else None)
    changes = iter([written_over])

    def targets(y):
        for change in changes:
            change(file_of(tmp_path))
        return y

    with pytest.raises(RowsChangedError):
        collection.prepared(Preparation(spec_of(row_norm=2.0), None, targets))


@pytest.mark.parametrize("store", STORES)
def test_cache_is_independent_of_later_file_changes(tmp_path, store):
    (tmp_path / "cache").mkdir()
    collection = store(tmp_path, cache=tmp_path / "cache")
    rows = collection.prepared(Preparation(spec_of(row_norm=2.0), None, as_they_are))
    expected = sum_of(rows)
    cut_off(file_of(tmp_path))
    np.testing.assert_array_equal(sum_of(rows), expected)


def every_row_in_bounds(rows) -> bool:
    """Whether no contribution is beyond its clip norm, tried on one row after the other."""
    total = 0.0
    for block in rows.blocks():
        lengths = np.linalg.norm(np.asarray(block.features()), axis=1)
        total = max(total, float((lengths - np.asarray(block.norms)).max()))
    return total <= 1e-9


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("way", ["parts", "scaled", "clipped entries", "all"])
def test_rows_read_again_keep_their_bound(tmp_path, store, way):
    scaling = column_scaling((-1.0, 1.0), D) if way == "scaled" else None
    rows = store(tmp_path).prepared(Preparation(spec_of(row_norm=2.0), scaling, as_they_are))
    written_over_at_the_same_time(file_of(tmp_path))
    some = {
        "parts": lambda: rows.take(np.arange(0, N, 2)),
        "clipped entries": lambda: rows.clip_entries(1e9),
    }.get(way, lambda: rows)()
    mapped_as_it_is = way == "all" and store in (mapped, part_of_a_map)
    # Documented: of a mapped array that is used as it is, the system's word is all there is.
    assert every_row_in_bounds(some) is not mapped_as_it_is


@pytest.mark.parametrize("store", STORES)
def test_a_value_that_is_not_finite_any_more_ends_the_pass(tmp_path, store):
    rows = store(tmp_path).prepared(Preparation(spec_of(row_norm=2.0), None, as_they_are))
    path = file_of(tmp_path)
    before, X = os.stat(path), rows_of()[0]
    X[700, 2] = np.nan
    if path.suffix == ".npy":
        np.save(path, np.asarray(X, order="F" if np.load(path).flags.f_contiguous else "C"))
    else:
        table = pa.table({f"x{i}": X[:, i] for i in range(D)} | {"y": rows_of()[1]})
        options = {"use_dictionary": False, "compression": "none", "row_group_size": 400}
        parquet.write_table(table, path, **options)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(RowsChangedError):
        sum_of(rows.take(np.arange(600, 800)))


def changing_fit(folder: Path, store, change):
    """Fit with a ledger, with the file changed after step 1; return model, ledger and error."""
    ledger = PrivacyLedger.create(
        folder / "spent.ledger", data="rows", budget=ApproximateDP(9.0, 1e-4), filter="basic"
    )
    model = LogisticRegression(
        epsilon=1.0,
        classes=[0.0, 1.0],
        row_norm=1.0,
        ledger=ledger,
        solver="noisy_gd",
        callback=lambda info: change(file_of(folder)) if info.step == 1 else None,
    )
    with pytest.raises(RowsChangedError) as caught:
        model.fit(store(folder))
    return model, ledger, str(caught.value)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("store", STORES)
def test_file_changed_after_step_1_ends_fit_and_keeps_entry(tmp_path, store, change):
    model, ledger, message = changing_fit(tmp_path, store, change)
    assert not hasattr(model, "coef_")
    assert len(ledger.contents().entries) == 1
    assert "rows." in message
    assert "ledger entry remain charged" in message


def test_the_law_sees_a_file_that_is_not_watched(tmp_path, monkeypatch):
    rows = mapped(tmp_path).prepared(Preparation(spec_of(row_norm=2.0), None, as_they_are))
    monkeypatch.setattr(Watch, "check", lambda self: None)
    written_over(file_of(tmp_path))
    assert np.linalg.norm(sum_of(rows)) > 1e4 * N * CLIP


@pytest.mark.parametrize("kind", ["dense", "view", "csr"])
def test_small_mapped_arrays_are_copied_before_they_are_checked(tmp_path, kind):
    X, y = rows_of()
    if kind == "csr":
        whole = sparse.csr_array(X)
        np.save(tmp_path / "rows.npy", whole.data)
        data = np.load(tmp_path / "rows.npy", mmap_mode="r")
        given = sparse.csr_array((data, whole.indices, whole.indptr), shape=X.shape)
    else:
        write_array(tmp_path / "rows.npy", 1.0)
        given = np.load(tmp_path / "rows.npy", mmap_mode="r")
        given = np.asarray(given)[:, :] if kind == "view" else given
    spec = spec_of(row_norm=2.0, sparse=kind == "csr")
    read, _ = finite_matrix(given, lambda **options: (check_array(given, **options), None))
    rows = MatrixRows(read, y).prepared(Preparation(spec, None, as_they_are))
    expected = sum_of(rows)
    with (tmp_path / "rows.npy").open("r+b") as file:
        file.seek(200)
        file.write(np.full(100, 1e300).tobytes())
    np.testing.assert_array_equal(sum_of(rows), expected)


@pytest.mark.parametrize("change", [written_over, longer, removed])
@pytest.mark.parametrize("store", STORES)
def test_predictions_of_a_file_that_changes_are_refused(tmp_path, store, change):
    collection, changes = store(tmp_path), iter([change])

    def predict(X):
        # Not at the trial on one row, which finds the kind of result.
        for one in changes if len(X) > 1 else ():
            one(file_of(tmp_path))
        return X.sum(axis=1)

    with pytest.raises(RowsChangedError):
        collection.apply(predict)


def test_differences_are_stated(tmp_path):
    path = tmp_path / "rows.npy"
    for change, words in (
        (written_over, "was written to"),
        (replaced, "is another file than before"),
        (longer, "bytes and has"),
        (removed, "cannot be found"),
    ):
        write_array(path, 1.0)
        before = path.stat()
        assert difference_of(path, before) is None
        change(path)
        assert words in str(difference_of(path, before))
