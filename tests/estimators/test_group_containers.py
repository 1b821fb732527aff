"""Groups in every container: the model is that of the same rows in memory; no group is split."""

from decimal import Decimal

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from dpglm import LogisticRegression, MappedRows, ParquetRows, PrivatePipeline
from dpglm.data.dask import groups_of_partitions
from dpglm.data.groups import Groups
from dpglm.data.stream import streamed
from dpglm.ledger import PrivacyLedger
from dpglm.preprocessing import Center
from dpglm.privacy import ApproximateDP, Unit
from dpglm.solvers import NewtonRaphson, NoisyGD, NoisySGD

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.LowSignalWarning")
PERSONS = 150
SOLVERS = {
    "gradients": NoisyGD(n_steps=3),
    "samples": NoisySGD(n_steps=3, sampling_rate=0.3),
    "Hessians": NewtonRaphson(n_pooled=1),
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of 64 rows, so that persons lie in several."""
    monkeypatch.setattr(streamed, "_CHUNK_BYTES", 64 * 3 * 8)


def people(*, in_order=True, largest=12):
    rng = np.random.default_rng(0)
    ids = np.repeat(rng.permutation(PERSONS), rng.integers(1, largest, PERSONS))
    ids = ids if in_order else rng.permutation(ids)
    X = rng.uniform(-1.0, 1.0, (len(ids), 3))
    return X, (rng.random(len(ids)) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int), ids


def model(**parameters):
    facts = {"epsilon": 20.0, "delta": 1e-5, "classes": [0, 1], "feature_bounds": (-1, 1)}
    return LogisticRegression(**facts | {"random_state": 0} | parameters)


def same(found, wanted):
    assert found.privacy_.data.unit is Unit.GROUP
    assert found.solution_.plan == wanted.solution_.plan
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-7)


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("in_order", [True, False])
def test_mapped_arrays(kind, in_order, tmp_path):
    X, y, ids = people(in_order=in_order, largest=12 if in_order else 150)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    solver = SOLVERS[kind]
    for limit in (None, 4):
        settings = {"solver": solver, "max_rows_per_group": limit}
        wanted = model(**settings).fit(X, y, groups=ids)
        same(model(**settings).fit(MappedRows(mapped, y), groups=ids), wanted)


def files(folder, X, y, ids, cuts=(0, 301, 302)):
    """Write a data set of several files, in which persons go on."""
    names = np.array([f"person {one}" for one in ids])
    for number, (start, stop) in enumerate(zip(cuts, [*cuts[1:], len(X)], strict=True)):
        part = slice(start, stop)
        columns = dict(zip("abc", X[part].T, strict=True))
        table = pyarrow.table({**columns, "y": y[part], "who": names[part]})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=50)
    return folder


def test_parquet_with_people_across_files(tmp_path):
    X, y, ids = people()
    rows = ParquetRows(files(tmp_path, X, y, ids), "y", groups="who", dtype="float64")
    assert rows.feature_names == ("a", "b", "c")
    wanted = model(solver=NoisyGD(n_steps=3)).fit(X, y, groups=ids)
    same(model(solver=NoisyGD(n_steps=3)).fit(rows), wanted)
    inner = LogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    pipeline = PrivatePipeline([Center(), inner], epsilon=20.0, random_state=0)
    assert pipeline.fit(rows).privacy_.data.n_units == PERSONS
    with pytest.raises(ValueError, match="groups must be None for ArrowRows with its own groups"):
        model().fit(rows, groups=ids)
    with pytest.raises(ValueError, match="no column 'whom'"):
        ParquetRows(tmp_path, "y", groups="whom")


def test_parquet_in_another_order_needs_a_cache(tmp_path):
    X, y, ids = people(in_order=False)
    folder = files(tmp_path, X, y, ids)
    ledger = PrivacyLedger.create(
        tmp_path / "l", data="x", budget=ApproximateDP(50, 0.1), unit="group"
    )
    asked = model(solver=NoisyGD(n_steps=3), ledger=ledger, random_state=None)
    with pytest.raises(ValueError, match="sort it by group, or give cache="):
        asked.fit(ParquetRows(folder, "y", groups="who"))
    assert ledger.contents().entries == ()
    rows = ParquetRows(folder, "y", groups="who", dtype="float64", cache=tmp_path)
    wanted = model(solver=NoisyGD(n_steps=3)).fit(X, y, groups=ids)
    same(model(solver=NoisyGD(n_steps=3)).fit(rows), wanted)


@pytest.mark.parametrize("kind", SOLVERS)
def test_dask_arrays_of_whole_persons(kind):
    array = pytest.importorskip("dask.array")
    X, y, ids = people()
    ends = np.flatnonzero(np.diff(ids)) + 1
    cuts = np.concatenate([[0], ends[[20, 21, 90]], [len(ids)]])
    chunks = tuple(np.diff(cuts).tolist())
    rows = [array.from_array(values, chunks=(chunks, *values.shape[1:])) for values in (X, y, ids)]
    wanted = model(solver=SOLVERS[kind]).fit(X, y, groups=ids)
    same(model(solver=SOLVERS[kind]).fit(rows[0], rows[1], groups=rows[2]), wanted)
    limited = model(solver=SOLVERS[kind], max_rows_per_group=2)
    found = limited.fit(rows[0], rows[1], groups=rows[2]).privacy_.data
    assert (found.n_rows, found.n_units) == (np.minimum(np.bincount(ids), 2).sum(), PERSONS)


def test_a_person_in_two_partitions_is_refused(tmp_path):
    array = pytest.importorskip("dask.array")
    X, y, ids = people()
    split = int(np.flatnonzero(np.diff(ids) == 0)[40]) + 1
    rows = [
        array.from_array(values, chunks=((split, len(ids) - split), *values.shape[1:]))
        for values in (X, y, ids.astype(float))
    ]
    ledger = PrivacyLedger.create(
        tmp_path / "l", data="x", budget=ApproximateDP(50, 0.1), unit="group"
    )
    with pytest.raises(ValueError, match="groups must each have all their rows in one partition"):
        model(ledger=ledger, random_state=None).fit(rows[0], rows[1], groups=rows[2])
    with pytest.raises(ValueError, match="groups must be of Dask"):
        model(ledger=ledger, random_state=None).fit(rows[0], rows[1], groups=ids)
    assert ledger.contents().entries == ()


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (1, np.int64(1), "in one partition"),
        (1.5, np.float64(1.5), "in one partition"),
        (Decimal("1.5"), Decimal("1.50"), "in one partition"),
        ("a", b"a", "in one partition"),
        (1, "1", "all numbers or all texts"),
    ],
)
def test_a_person_is_recognised_in_partitions_of_other_types(one, other, message):
    array = pytest.importorskip("dask.array")
    parts = [np.array([name], dtype=object) for name in (one, other)]
    ids = array.concatenate([array.from_array(part, chunks=1) for part in parts])
    with pytest.raises(ValueError, match=message):
        groups_of_partitions((1, 1), ids, None)


def test_large_ids_stay_distinct_for_every_file_type(tmp_path):
    ids = np.array([2**62, 2**62 + 1], np.int64), np.array([2**62 + 2, 2**62], np.uint64)
    for number, who in enumerate(ids):
        table = pyarrow.table({"x": [0.0, 1.0], "y": [0, 1], "who": who})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    found = Groups.of(ParquetRows(tmp_path, "y", groups="who").group_ids, 4)
    assert found.codes.tolist() == [0, 1, 2, 0]
