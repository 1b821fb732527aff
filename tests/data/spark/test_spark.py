"""Spark data frames as rows: one answer for each partition, lost workers, changed rows."""

import gc
import itertools
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import cloudpickle
import dask.array as da
import numpy as np
import pyarrow as pa
import pytest

import dpglm
from dpglm import ArrowRows, LogisticRegression, SparkRows
from dpglm.data import pyspark as spark
from dpglm.exceptions import RowsChangedError
from dpglm.solvers import NoisyGD
from dpglm.tables.schema import Schema
from tests.data.spark.local import session

N = 300
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")


def table():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, N))
    kind = np.where(b > 0, "u", "v")
    return {"a": a, "b": b, "y": (a > 0).astype(int), "person": np.arange(N) // 2, "kind": kind}


def model(**others):
    facts = {"classes": [0, 1], "row_norm": 2.0, "epsilon": 1.0, "random_state": 0}
    return LogisticRegression(**facts, solver=NoisyGD(n_steps=3), **others)


def answers(*places):
    return [(place, pickle.dumps((place * 10, None))) for place in places]


class TestAnswers:
    def test_are_ordered_by_partition(self):
        assert spark.by_partition(answers(2, 0, 1), 3) == [0, 10, 20]
        assert spark.by_partition(answers(1, 0), None) == [0, 10]

    @pytest.mark.parametrize("places", [(0, 1), (0, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3), ()])
    def test_missing_or_repeated_partitions_are_refused(self, places):
        with pytest.raises(RowsChangedError, match="one answer was expected"):
            spark.by_partition(answers(*places), 3)

    def test_unknown_number_must_be_complete(self):
        with pytest.raises(RowsChangedError, match="got those for"):
            spark.by_partition(answers(0, 2), None)

    def test_with_an_error_raise_it(self):
        failed = (1, pickle.dumps((None, ValueError("row 8"))))
        with pytest.raises(ValueError, match="row 8"):
            spark.by_partition([*answers(0), failed], 2)


class Frame:
    """Stands for Spark: runs the tasks of given partitions in this process.

    Rows are read from the source in each pass unless executors keep them.
    """

    def __init__(self, partitions, monkeypatch, keep=False):
        self.partitions, self.keep, self.passes = partitions, keep, 0
        self.monkeypatch = monkeypatch
        conf = {"spark.io.encryption.enabled": "false" if keep else "true"}
        self.sparkSession = type("Session", (), {"conf": conf})

    def select(self, names):
        return self

    def limit(self, count):
        return self

    def toArrow(self):  # noqa: N802
        return pa.table(table())

    def mapInArrow(self, task, kinds):  # noqa: N802
        return Mapped(self, self.read, task)

    def read(self):
        self.passes += 1
        for columns in self.partitions(self.passes):
            yield iter(pa.table(columns).to_batches(max_chunksize=70))


class Mapped:
    """The answers of tasks, which run when they are asked for; the last attempt counts."""

    attempts = 1

    def __init__(self, frame, partitions, task):
        self.frame, self.partitions, self.task = frame, partitions, cloudpickle.dumps(task)

    def persist(self):
        self.persisted = list(self.read())
        self.read = lambda: map(iter, self.persisted)
        return self

    def unpersist(self):
        del self.read

    def mapInArrow(self, task, kinds):  # noqa: N802
        return Mapped(self.frame, self.read, task)

    def read(self):
        for index, batches in enumerate(self.partitions()):
            context = type("Context", (), {"partitionId": lambda self, i=index: i})
            package = type("Package", (), {"TaskContext": type("T", (), {"get": context})})
            self.frame.monkeypatch.setattr(spark, "require", lambda *_, p=package: p)
            given = list(batches)
            for _ in range(self.attempts):
                found = list(pickle.loads(self.task)(iter(given)))
            yield found

    def collect(self):
        batches = itertools.chain.from_iterable(self.read())
        return [(row["place"], row["answer"]) for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def rows_of(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}")

    def made(partitions, keep=False, **options):
        package = type("Package", (), {"DataFrame": Frame})
        monkeypatch.setattr(spark, "require", lambda *_: package)
        if "schema" not in options:
            options |= {"target": "y", "columns": ["a", "b"]}
        return SparkRows(Frame(partitions, monkeypatch, keep), dtype="float64", **options)

    return made


def cut(*stops, rows=None):
    """Cut the table into partitions, after some rows."""
    every = {name: column if rows is None else column[rows] for name, column in table().items()}
    bounds = [0, *stops, N]
    return [
        {name: column[start:stop] for name, column in every.items()}
        for start, stop in itertools.pairwise(bounds)
    ]


def arrays():
    found = table()
    return np.column_stack([found["a"], found["b"]]), found["y"], found["person"]


def test_rows_in_partitions_give_the_fit_in_memory(rows_of):
    rows = rows_of(lambda _: cut(100, 100, 180))
    fitted = model().fit(rows)
    np.testing.assert_allclose(fitted.coef_, model().fit(*arrays()[:2]).coef_, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        fitted.predict(rows), model().fit(*arrays()[:2]).predict(arrays()[0])
    )


def other_order(number):
    return cut(100, rows=np.r_[1, 0, 2:N]) if number > 3 else cut(100)


CHANGES = {
    "another order": (other_order, "other rows or another order"),
    "other lengths": (lambda number: cut(100 + (number > 3)), "other rows or another order"),
    "a partition more": (lambda number: cut(100, N) if number > 3 else cut(100), "one answer"),
    "a partition less": (lambda number: cut(*[100][: number <= 3]), "one answer"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_partitions_end_the_fit(rows_of, change):
    partitions, said = CHANGES[change]
    with pytest.raises((RuntimeError, RowsChangedError), match=said):
        model().fit(rows_of(partitions))


def test_other_rows_at_a_second_fit_are_refused(rows_of):
    is_changed = []
    rows = rows_of(lambda _: cut(100, rows=np.r_[1, 0, 2:N] if is_changed else None))
    model().fit(rows)
    is_changed.append(True)
    with pytest.raises(RowsChangedError, match="other rows or another order"):
        model().fit(rows)


def folders(path):
    return sorted(path.glob("dpglm-*"))


class TestKeptRows:
    def test_are_read_once_for_fits_and_predictions(self, rows_of):
        rows = rows_of(lambda _: cut(100, 100, 180), keep=True)
        fits = [model().fit(rows) for _ in range(2)]
        fits[0].predict(rows)
        assert rows._source._frame.passes == 1
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
        np.testing.assert_allclose(
            fits[0].coef_, model().fit(*arrays()[:2]).coef_, rtol=0, atol=1e-12
        )

    @pytest.mark.parametrize("place", ["*", "1"])
    def test_that_are_lost_are_read_again(self, rows_of, tmp_path, monkeypatch, place):
        ask, passes = spark.SparkFrame.ask, []

        def lose(self, handles):
            passes.append(handles)
            if len(passes) == 3:
                for path in list(tmp_path.glob(f"dpglm-*/{place}")):
                    path.unlink()
            return ask(self, handles)

        expected = model().fit(rows_of(lambda _: cut(100), keep=True))
        monkeypatch.setattr(spark.SparkFrame, "ask", lose)
        rows = rows_of(lambda _: cut(100), keep=True)
        fitted = model().fit(rows)
        assert rows._source._frame.passes == 2
        np.testing.assert_array_equal(fitted.coef_, expected.coef_)

    def test_of_tasks_that_run_twice_count_once(self, rows_of, monkeypatch):
        expected = model().fit(rows_of(lambda _: cut(100), keep=True))
        monkeypatch.setattr(Mapped, "attempts", 2)
        fitted = model().fit(rows_of(lambda _: cut(100), keep=True))
        np.testing.assert_array_equal(fitted.coef_, expected.coef_)

    def test_that_are_lost_and_changed_end_the_fit(self, rows_of, tmp_path):
        rows = rows_of(lambda n: cut(100, rows=np.r_[1, 0, 2:N] if n > 1 else None), keep=True)
        model().fit(rows)
        for path in tmp_path.glob("dpglm-*/0"):
            path.unlink()
        with pytest.raises(RowsChangedError, match="partition 1 has other rows"):
            model().fit(rows)

    def test_are_removed_after_use(self, rows_of, tmp_path):
        rows = rows_of(lambda _: cut(100), keep=True)
        model().fit(rows)
        assert [oct(one.stat().st_mode)[-3:] for one in folders(tmp_path)] == ["700"] * 2
        gc.collect()
        rows.unpersist()
        assert folders(tmp_path) == []
        model().fit(rows)
        del rows
        gc.collect()
        others = rows_of(lambda _: cut(100), keep=True)
        assert others.shape == (N, 2)
        assert len(folders(tmp_path)) == 1

    def test_are_not_kept_where_spark_encrypts_files(self, rows_of, tmp_path):
        model().fit(rows_of(lambda _: cut(100), keep=False))
        assert folders(tmp_path) == []

    def test_survive_in_one_piece(self, tmp_path):
        arrays = [np.arange(5.0), np.ones((3, 2), "f", order="F"), np.empty((0, 2)), np.arange(3)]
        spark.save(tmp_path / "new" / "0", (arrays, "text"))
        found, text = spark.load(tmp_path / "new" / "0")
        assert text == "text"
        for one, other in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.flags.f_contiguous == other.flags.f_contiguous
            assert not one.size or one.ctypes.data % 64 == 0


SCHEMA = Schema.from_dict(
    {
        "columns": {
            "a": {"type": "numeric", "low": -1, "high": 1},
            "b": {"type": "numeric", "low": -1, "high": 1},
        },
        "target": {"name": "y", "type": "binary", "classes": [0, 1]},
        "provenance": "made up for tests",
    }
)


FACTS = {"epsilon": 1.0, "random_state": 0}
USES = {
    "describe": lambda one: repr(dpglm.describe(one, SCHEMA, **FACTS).columns),
    "moments": lambda one: dpglm.release_moments(one, SCHEMA, **FACTS).correlation("a", "b"),
    "study": lambda one: studied(one).evaluation.auc,
    "study, exploration": lambda one: repr(studied(one).exploration.columns),
    "evaluate": lambda one: evaluated(one).auc,
    "evaluate by a column": lambda one: evaluated(one, by="kind", levels=["u", "v"]).summary(),
}


def studied(one):
    study = dpglm.Study(SCHEMA, epsilon=1.0, delta=1e-5).explore().fit().evaluate()
    return study.run(one, random_state=0)


def evaluated(one, **options):
    fitted = LogisticRegression(
        classes=[0, 1], row_norm=SCHEMA.row_norm, epsilon=1.0, random_state=0
    )
    X = SCHEMA.encode(table())
    return dpglm.evaluate(fitted.fit(X, table()["y"]), one, "y", **options, **FACTS)


class TestOneTable:
    """All that takes a table takes one on Spark, and finds the same."""

    @pytest.mark.filterwarnings("ignore::dpglm.exceptions.SeededNoiseWarning")
    @pytest.mark.parametrize("use", USES)
    def test_gives_the_same_results(self, rows_of, use):
        rows = rows_of(lambda _: cut(100, 100, 180), keep=True, schema=SCHEMA)
        given = ArrowRows(pa.table(table()), schema=SCHEMA, dtype="float64")
        assert str(USES[use](rows)) == str(USES[use](given))

    def test_columns_of_other_rows_are_refused(self, rows_of):
        changes = [None, np.r_[1, 0, 2:N]]
        rows = rows_of(lambda n: cut(100, rows=changes[n > 1]), keep=True, schema=SCHEMA)
        assert rows.shape == (N, 2)
        with pytest.raises(RowsChangedError, match="partition 1 has other rows"):
            rows["y"]

    def test_missing_columns_are_refused(self, rows_of):
        rows = rows_of(lambda _: cut(100), schema=SCHEMA)
        with pytest.raises(ValueError, match="'z'"):
            rows.read_columns(["z"])
        with pytest.raises(ValueError, match="groups must be None for rows on Dask or Spark"):
            dpglm.describe(
                rows, SCHEMA, groups="person", max_rows_per_group=2, n_groups=9, epsilon=1.0
            )


def test_rows_with_wrong_targets_are_only_predicted(rows_of):
    given = cut(100)
    given[1]["y"] = np.array([None, *given[1]["y"][1:].tolist()], dtype=object)
    rows = rows_of(lambda _: given, keep=True)
    fitted = model().fit(*arrays()[:2])
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(arrays()[0]))
    with pytest.raises(ValueError, match=r"'y', row 1: the value is missing|row 1"):
        model().fit(rows)


LIMITS = {"n_groups": N // 2, "max_rows_per_group": 2}


class TestGroups:
    def test_in_one_partition_each_give_the_fit_on_dask(self, rows_of):
        fitted = model(**LIMITS).fit(rows_of(lambda _: cut(100), groups="person"))
        X, y, ids = arrays()
        chunked = [
            da.from_array(one, chunks=((100, N - 100), *one.shape[1:])) for one in (X, y, ids)
        ]
        expected = model(**LIMITS).fit(*chunked[:2], groups=chunked[2])
        np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=0, atol=1e-12)

    def test_in_two_partitions_are_refused(self, rows_of):
        with pytest.raises(ValueError, match="all their rows in one partition"):
            model(**LIMITS).fit(rows_of(lambda _: cut(101), groups="person"))

    def test_that_change_between_passes_are_refused(self, rows_of):
        def partitions(number):
            found = cut(100)
            if number > 2:
                found[1]["person"] = found[1]["person"] - 1
            return found

        with pytest.raises(RowsChangedError, match="other rows or another order"):
            model(**LIMITS).fit(rows_of(partitions, groups="person"))


def test_data_frame_must_be_of_spark():
    pytest.importorskip("pyspark")
    with pytest.raises(ValueError, match="must be a data frame of Spark"):
        SparkRows(table(), "y")


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql", None)
    with pytest.raises(ImportError, match=r"dpglm\[spark\]"):
        SparkRows(table(), "y")


def killing(folder):
    """Return a map of partitions that kills its process once, before it yields rows."""

    def kill(batches):
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 1:
            marker = Path(folder, "killed")
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    return kill


def dying(task, folder):
    """Return a task that kills its process the first time it reads the kept partition 2."""

    def die(recipe, handles, forgotten, batches):
        from pyspark import TaskContext

        marker = Path(folder, "killed in a step")
        if TaskContext.get().partitionId() == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from task(recipe, handles, forgotten, batches)

    return die


@pytest.mark.slow
def test_killed_workers_change_nothing(tmp_path, monkeypatch):
    frame = session().createDataFrame(pa.table(table())).repartition(3).persist()
    killed = frame.mapInArrow(killing(str(tmp_path)), frame.schema)

    def fitted(one):
        return model().fit(SparkRows(one, "y", columns=["a", "b"], dtype="float64")).coef_

    expected = fitted(frame)
    monkeypatch.setattr(spark, "_from_files", dying(spark._from_files, str(tmp_path)))
    found = fitted(killed)
    assert sorted(os.listdir(tmp_path)) == ["killed", "killed in a step"]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, model().fit(*arrays()[:2]).coef_, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_lost_executors_change_nothing(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "tests.data.spark.losing", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after, is_same = done.stdout.split()[-3:]
    assert int(after) > int(before) > 0
    assert is_same == "True"


@pytest.mark.slow
def test_people_are_kept_together_by_repartition():
    frame = session().createDataFrame(pa.table(table()))
    rows = SparkRows(
        frame.repartition("person").persist(), "y", columns=["a", "b"], groups="person"
    )
    model(**LIMITS).fit(rows)
    spread = SparkRows(frame.repartition(3).persist(), "y", columns=["a", "b"], groups="person")
    with pytest.raises(ValueError, match="all their rows in one partition"):
        model(**LIMITS).fit(spread)


@pytest.mark.slow
def test_a_data_frame_by_itself_is_refused():
    with pytest.raises(ValueError, match="SparkRows"):
        model().fit(session().createDataFrame(pa.table(table())))
