"""Threads over blocks: all blocks once, in order, on processors of their own where all are used."""

import os
import sys
import threading

import numpy as np
import pytest
from scipy import sparse

from dpglm.data import rows as threads
from dpglm.data.compiled import kernels
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, map_blocks, threads_over
from dpglm.tables.encoding import ColumnScaling

linux = pytest.mark.skipif(sys.platform != "linux", reason="processors are chosen on Linux only")
SPEC = DataSpec(n_rows=120_000, n_features=50, row_norm=10.0)


@pytest.fixture
def rows():
    X = np.random.default_rng(0).standard_normal((SPEC.n_rows, SPEC.n_features))
    return prepare_rows(X, np.ones(SPEC.n_rows), SPEC)


def _both_threads(monkeypatch, usable):
    """Pretend that two threads are wanted and that these processors may be used."""
    monkeypatch.setattr(threads, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)


def _used(rows):
    """Return the system calls of each thread, once both threads have a block."""
    # A single thread would wait for itself: an hour is enough on any machine.
    both = threading.Barrier(2, timeout=3600)
    names = set()

    def kernel(block):
        name = threading.current_thread().name
        if name not in names:
            names.add(name)
            both.wait()
        return np.array([float(len(block.targets))])

    with threads_over(rows.n_rows * rows.spec.n_columns):
        sums = [int(value[0]) for value in map_blocks(kernel, rows.blocks())]
    assert sums == [len(block.targets) for block in rows.blocks()]
    assert len(sums) > 2
    return names


@linux
def test_each_thread_has_its_processor_if_all_are_used(rows, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        os,
        "sched_setaffinity",
        lambda pid, cpus: asked.update({threading.current_thread().name: (pid, cpus)}),
    )
    _both_threads(monkeypatch, {3, 7})
    names = _used(rows)
    assert set(asked) == names
    assert sorted(asked.values(), key=repr) == [(0, {3}), (0, {7})]


@linux
def test_system_places_threads_if_processors_are_spare(rows, monkeypatch):
    def never(pid, cpus):
        raise AssertionError("no thread may be kept on a processor")

    monkeypatch.setattr(os, "sched_setaffinity", never)
    _both_threads(monkeypatch, {0, 1, 2})
    assert len(_used(rows)) == 2


@linux
def test_a_processor_that_was_taken_away_stops_nothing(rows, monkeypatch):
    _both_threads(monkeypatch, {0, 10**4})
    assert len(_used(rows)) == 2


@linux
def test_the_calling_thread_stays_free(rows):
    before = os.sched_getaffinity(0)
    with threads_over(rows.n_rows * rows.spec.n_columns):
        list(map_blocks(lambda block: np.zeros(1), rows.blocks()))
    assert os.sched_getaffinity(0) == before


def test_an_error_in_a_block_is_raised(rows, monkeypatch):
    monkeypatch.setattr(threads, "cpu_count", lambda: 2)

    def kernel(block):
        raise ZeroDivisionError("in a block")

    with (
        threads_over(rows.n_rows * rows.spec.n_columns),
        pytest.raises(ZeroDivisionError, match="in a block"),
    ):
        list(map_blocks(kernel, rows.blocks()))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compiled", [True, False])
def test_prepared_rows_do_not_depend_on_threads(order, compiled, monkeypatch):
    monkeypatch.setattr(threads, "cpu_count", lambda: 2)
    if not compiled:
        monkeypatch.setattr(kernels, "_library", None)
    X = np.asarray(np.random.default_rng(0).standard_normal((60_000, 20)), order=order)
    spec, scaling = (
        DataSpec(n_rows=60_000, n_features=20, row_norm=2.0),
        ColumnScaling(np.full(20, -1.0), np.full(20, 1.5)),
    )
    alone = next(prepare_rows(X, X[:, 0], spec, scaling).blocks())
    with threads.threads_over(X.size):
        together = next(prepare_rows(X, X[:, 0], spec, scaling).blocks())
    np.testing.assert_array_equal(together.features(), alone.features())
    np.testing.assert_array_equal(together.norms, alone.norms)
    assert (alone.norms <= 2.0 * (1.0 + 1e-14)).all()


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_long_scaled_rows_are_shortened_in_memory_of_their_own(kind):
    given = np.random.default_rng(0).uniform(-1.5, 1.5, (500, 4))
    X, scaling = kind(given), ColumnScaling(np.full(4, -1.0), np.full(4, 1.0))
    spec = DataSpec(n_rows=500, n_features=4, row_norm=0.5, sparse=kind is not np.asarray)
    stored = next(prepare_rows(X, given[:, 0], spec, scaling).blocks()).features()
    expected = np.clip(given, -1.0, 1.0)
    expected *= np.minimum(0.5 / np.linalg.norm(expected, axis=1), 1.0)[:, np.newaxis]
    np.testing.assert_allclose(stored, expected, rtol=1e-14)
    assert np.linalg.norm(stored, axis=1).max() <= 0.5
    np.testing.assert_array_equal(X if isinstance(X, np.ndarray) else X.toarray(), given)
