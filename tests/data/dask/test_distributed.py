"""Rows on the workers of a Dask cluster: sums, lost workers, tasks that run twice."""

import dataclasses
import os
import pickle
import signal
import time
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from scipy import sparse

from dpglm import LogisticRegression
from dpglm.data import partitions
from dpglm.data.collection import Preparation, as_collection
from dpglm.data.partitions import DaskRows, Partial, Workers, rows_on
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.events import Gaussian, Repeated
from dpglm.privacy.noise import NoiseSource, SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import (
    L2,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Problem,
    Softmax,
    Sparsemax,
    Squared,
    Unconstrained,
)
from dpglm.solvers import SOLVERS, run
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.tables.encoding import column_scaling
from tests.slowly import some_quickly

N_ROWS, N_FEATURES, CHUNKS = 1000, 5, (400, 1, 0, 350, 249)
# A function that workers find without importing this module.
AS_THEY_ARE = np.asarray
BUDGET = ApproximateDP(1.0, 1e-5)
CLIPPING = FlatClipping(0.7)
NEED_A_SET = {"accelerated_mirror_descent": L2Ball(1.0), "frank_wolfe": L1Ball(1.0)}


def facts(dtype="float64", **others):
    return DataSpec(
        n_rows=N_ROWS, n_features=N_FEATURES, row_norm=1.5, intercept=1.0, dtype=dtype, **others
    )


def table(dtype="float64"):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_ROWS, N_FEATURES)).astype(dtype)
    return X, rng.choice([-1.0, 1.0], N_ROWS), rng.uniform(0.0, 2.0, N_ROWS)


def on_workers(X, y, spec, weights=None, chunks=CHUNKS):
    columns = [
        None if column is None else da.from_array(column, chunks=(chunks,))
        for column in (y, weights)
    ]
    return as_collection(da.from_array(X, chunks=(chunks, 2)), *columns).prepared(
        Preparation(spec, None, AS_THEY_ARE)
    )


def gradient(rows, w=None, loss=None):
    w = np.linspace(-1.0, 1.0, rows.spec.n_columns) if w is None else w
    return clipped_gradient_sum(rows, loss or Logistic(), CLIPPING, w)


class CountingNoise(NoiseSource):
    """Remembers how many words each draw took."""

    name, is_private = "counting", False

    def __init__(self):
        self.draws = []
        self._source = SeededNoise(7)

    def words(self, count):
        self.draws.append(count)
        return self._source.words(count)


class Relay(Workers):
    """Other workers, with a fault."""

    def __init__(self, workers):
        self.workers = workers

    def start(self, delayed):
        return self.workers.start(delayed)

    def share(self, value):
        return self.workers.share(value)

    def groups(self, handles):
        return self.workers.groups(handles)

    def map(self, function, name, *columns):
        return self.workers.map(function, name, *columns)

    def collect(self, handles):
        return self.workers.collect(handles)


def ask(oracle):
    """Declare the release of a mean gradient and make it."""
    noise = GaussianNoise(2.0)
    declared = gradient_release(oracle.rows.spec, oracle.curator.adjacency, CLIPPING, noise)
    return oracle.noisy_gradient(declared, np.zeros(6), CLIPPING)


def through(relay, rows):
    """The same rows, with their workers behind a relay."""
    relay = relay(rows.workers)
    return DaskRows.of(relay, rows.partitions, rows.facts, rows.spec)


@pytest.fixture
def in_process():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.usefixtures("in_process")
class TestSums:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_are_those_of_one_machine_to_rounding(self, dtype, weighted):
        X, y, weights = table(dtype)
        weights = weights if weighted else None
        spec = facts(dtype, weight_bound=1.5)
        ours = gradient(on_workers(X, y, spec, weights))
        theirs = gradient(prepare_rows(X, y, spec, weights=weights))
        allowed = sum_rounding(spec, Adjacency.ZERO_OUT, CLIPPING.bound * spec.weight_bound)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=allowed)

    def test_matrices(self):
        X, y, _ = table()
        spec = facts(n_outputs=3)
        classes = (y > 0) + (X[:, 0] > 0).astype(int)
        w = np.linspace(-1.0, 1.0, 18).reshape(6, 3)
        ours = gradient(on_workers(X, classes, spec), w, Softmax())
        theirs = gradient(prepare_rows(X, classes, spec), w, Softmax())
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)

    def test_workers_clip_and_scale_columns_and_map_labels(self):
        X, y, _ = table()
        spec, scaling = facts(weight_bound=3.0), column_scaling((-1.0, 2.0), N_FEATURES)

        def doubled(labels):
            return 1.0 + (labels == "yes")

        def signs(labels):
            return np.where(labels == "yes", 1.0, -1.0)

        labels = np.where(y > 0, "yes", "no")
        collection = as_collection(
            da.from_array(X, chunks=(300, -1)), da.from_array(labels, chunks=170)
        )
        ours = collection.prepared(Preparation(spec, scaling, signs, doubled))
        theirs = prepare_rows(X, y, spec, scaling, doubled(labels))
        np.testing.assert_allclose(gradient(ours), gradient(theirs), rtol=1e-12)

    @pytest.mark.parametrize("n_partitions", [1, 2, 7, 8, 9, 64, 65, 130])
    def test_bits_do_not_depend_on_who_adds_partial_sums(self, n_partitions, monkeypatch):
        X, y, _ = table()
        chunks = tuple(np.bincount(np.arange(N_ROWS) % n_partitions))
        rows = on_workers(X, y, facts(), chunks=chunks)
        by_the_driver = gradient(rows)
        monkeypatch.setattr(Workers, "driver_bytes", 0)
        np.testing.assert_array_equal(gradient(rows), by_the_driver)

    def test_are_twice_as_precise_as_their_terms(self):
        # Terms that cancel but for their last bits; a plain sum loses the result altogether.
        terms = np.random.default_rng(1).standard_normal(100) * 10.0 ** np.arange(-2, 18).repeat(5)
        terms = np.concatenate([terms, -terms[::-1] * (1.0 + 1e-13)])
        X = np.arange(200.0)[:, np.newaxis]
        spec = DataSpec(n_rows=200, n_features=1, row_norm=1e6)
        rows = on_workers(X, np.zeros(200), spec, chunks=(1,) * 200)

        def kernel(block):
            return terms[block.features()[:, 0].astype(int)]

        exact = sum(map(Fraction, terms))
        unit = 2.0**-53
        ours = Fraction(float(rows.sum(kernel, shape=(1,))[0]))
        allowed = unit * abs(float(exact)) + (40 * unit) ** 2 * np.abs(terms).sum()
        assert abs(ours - exact) <= Fraction(allowed)
        assert abs(Fraction(float(np.sum(terms))) - exact) > 10 * Fraction(allowed)

    @pytest.mark.parametrize("way", ["take", "part"])
    def test_over_some_rows(self, way):
        X, y, _ = table()
        ours, theirs = on_workers(X, y, facts()), prepare_rows(X, y, facts())
        indices = np.flatnonzero(np.random.default_rng(2).random(N_ROWS) < 0.3)
        ours, theirs = getattr(ours, way)(indices), getattr(theirs, way)(indices)
        assert (ours.n_rows, ours.spec) == (theirs.n_rows, theirs.spec)
        np.testing.assert_allclose(gradient(ours), gradient(theirs), rtol=1e-12)
        again = np.arange(0, len(indices), 7)
        ours, theirs = getattr(ours, way)(again), getattr(theirs, way)(again)
        np.testing.assert_allclose(gradient(ours), gradient(theirs), rtol=1e-12)

    def test_over_no_rows_are_zero(self):
        X, y, _ = table()
        batch = on_workers(X, y, facts()).take(np.array([], dtype=np.intp))
        assert batch.n_rows == 0
        np.testing.assert_array_equal(gradient(batch), np.zeros(6))

    def test_over_clipped_entries(self):
        X, y, _ = table()
        some = np.arange(0, N_ROWS, 3)
        ours = on_workers(X, y, facts()).take(some).clip_entries(0.2)
        theirs = prepare_rows(X, y, facts()).take(some).clip_entries(0.2)
        assert ours.n_rows == len(some)
        np.testing.assert_allclose(gradient(ours), gradient(theirs), rtol=1e-12)

    def test_large_kernels_are_sent_once(self, monkeypatch):
        X, y, _ = table()
        shared = []

        class Watched(Relay):
            def share(self, value):
                shared.append(len(value))
                return super().share(value)

        rows = through(Watched, on_workers(X, y, facts()))
        expected = gradient(rows)
        assert shared == []
        monkeypatch.setattr(partitions, "_MESSAGE_BYTES", 100)
        np.testing.assert_array_equal(gradient(rows), expected)
        assert len(shared) == 1

    def test_data_frames(self):
        pandas = pytest.importorskip("pandas")
        frames = pytest.importorskip("dask.dataframe")
        X, y, _ = table()
        frame = pandas.DataFrame(X, columns=list("abcde")).assign(label=y)
        parts = frames.from_pandas(frame, npartitions=4)
        collection = as_collection(parts[list("abcde")], parts["label"])
        assert (collection.shape, collection.feature_names) == (X.shape, tuple("abcde"))
        rows = collection.prepared(Preparation(facts(), None, AS_THEY_ARE))
        np.testing.assert_allclose(gradient(rows), gradient(prepare_rows(X, y, facts())))


def landed_badly(value):
    """Send a value, and let the arrays of the message arrive at an odd address."""
    buffers, odd = [], []
    message = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    for buffer in buffers:
        room = np.empty(buffer.raw().nbytes + 1, np.uint8)
        room[1:] = buffer.raw()
        odd.append(room[1:])
    return pickle.loads(message, buffers=odd)


@pytest.mark.usefixtures("in_process")
class TestBitsOfPartitions:
    @staticmethod
    def bits(rows):
        slopes = np.random.default_rng(3).standard_normal((20, N_ROWS))
        (block,) = rows.blocks()
        return np.array([block.weighted_sum(some) for some in slopes]).tobytes()

    @staticmethod
    def partition(move):
        """The only one, of rows that satisfy their bounds, so that nothing copies them."""
        X, y, _ = table()
        collection = as_collection(
            da.from_array(X, chunks=-1).map_blocks(move, dtype=X.dtype),
            da.from_array(y, chunks=-1),
        )
        spec = dataclasses.replace(facts(), row_norm=100.0)
        return collection.prepared(Preparation(spec, None, AS_THEY_ARE)).partitions[0]

    def test_do_not_depend_on_where_a_message_is_received(self):
        partition = self.partition(np.asarray)
        assert self.bits(landed_badly(partition).rows) == self.bits(partition.rows)
        # Planted: rows with arrays that stay at their address.
        assert self.bits(landed_badly(partition.rows)) != self.bits(partition.rows)

    def test_do_not_depend_on_where_chunks_are(self):
        still, moved = map(self.partition, (np.asarray, landed_badly))
        assert self.bits(moved.rows) == self.bits(still.rows)


@pytest.mark.usefixtures("in_process")
class TestFits:
    def test_draw_noise_once_and_record_one_event_for_each_sum(self):
        X, y, _ = table()
        ours, theirs = on_workers(X, y, facts()), prepare_rows(X, y, facts())
        noises, events = (CountingNoise(), CountingNoise()), []
        for rows, noise in zip((ours, theirs), noises, strict=True):
            curator = Curator(Adjacency.ZERO_OUT, noise)
            for _ in range(3):
                ask(Oracle(rows, Logistic(), curator))
            events.append(curator.event)
        assert events == [Repeated(Gaussian(2.0), 3)] * 2
        assert noises[0].draws == noises[1].draws
        assert len(noises[0].draws) == 3 * len(set(noises[0].draws))

    @pytest.mark.parametrize("name", some_quickly(sorted(SOLVERS), 2))
    def test_every_solver_equals_one_machine(self, name):
        X, y = (column[:60] for column in table()[:2])
        spec = dataclasses.replace(facts(target_low=-1.0, target_high=1.0), n_rows=60)
        loss = Squared() if name == "sufficient_statistics" else Logistic()
        if name == "prototypes":
            loss, spec, y = Sparsemax(), dataclasses.replace(spec, n_outputs=2), (y > 0) * 1
        penalty = NoPenalty() if name in NEED_A_SET else L2(0.1)
        constraint = NEED_A_SET.get(name, Unconstrained())
        problem = Problem(loss, penalty, constraint, penalize_intercept=True)
        plan = SOLVERS[name]().plan(problem, BUDGET, spec)
        rows = on_workers(X, y, spec, chunks=(25, 35))
        expected = run(plan, prepare_rows(X, y, spec), SeededNoise(3)).w
        np.testing.assert_allclose(run(plan, rows, SeededNoise(3)).w, expected, rtol=1e-7)

    def test_reach_estimators(self):
        X, y, _ = table()
        settings = {"classes": [-1, 1], "row_norm": 2.0, "random_state": 1}
        settings["solver"] = "noisy_gd"
        chunks = (400, 350, 250)
        ours = LogisticRegression(**settings).fit(
            da.from_array(X, chunks=(chunks, -1)), da.from_array(y, chunks=(chunks,))
        )
        theirs = LogisticRegression(**settings).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7)
        assert ours.privacy_.event == theirs.privacy_.event


@pytest.mark.usefixtures("in_process")
class TestOneResultForEachPartition:
    @pytest.mark.parametrize(
        "fault",
        [
            lambda partials: partials[:-1],
            lambda partials: [*partials, partials[0]],
            lambda partials: [partials[0], partials[0], *partials[2:]],
            lambda partials: partials[::-1],
        ],
        ids=["one is missing", "one is there twice", "one stands for another", "other order"],
    )
    def test_otherwise_neither_sum_nor_noise(self, fault):
        class Faulty(Relay):
            def collect(self, handles):
                return fault(super().collect(handles))

        X, y, _ = table()
        noise = CountingNoise()
        curator = Curator(Adjacency.ZERO_OUT, noise)
        rows = through(Faulty, on_workers(X, y, facts()))
        with pytest.raises(RuntimeError, match="5 partitions must answer once each, got"):
            ask(Oracle(rows, Logistic(), curator))
        assert noise.draws == []

    def test_and_tasks_have_names_of_their_own(self):
        X, y, _ = table()
        names = []

        class Watched(Relay):
            def map(self, function, name, *columns):
                names.append(name)
                return super().map(function, name, *columns)

        rows = through(Watched, on_workers(X, y, facts()))
        for each in (rows, rows, rows.take(np.arange(10)), rows.take(np.arange(10))):
            gradient(each)
        assert len(set(names)) == len(names) == 4


@pytest.mark.usefixtures("in_process")
class TestRefusals:
    def test_source_with_other_rows_in_the_second_pass(self):
        X, y, _ = table()
        first, second = on_workers(X, y, facts()), on_workers(X[::-1].copy(), y, facts())
        replaced = (*first.partitions[:3], second.partitions[3], first.partitions[4])
        rows = DaskRows.of(first.workers, replaced, first.facts, first.spec)
        with pytest.raises(RuntimeError, match="other values the second"):
            gradient(rows)

    def test_workers_that_round_differently(self, monkeypatch):
        X, y, _ = table()
        rows = on_workers(X, y, facts())
        strange_facts = dataclasses.replace(rows.partitions[3].facts, arithmetic="a stranger's")
        stranger = dataclasses.replace(rows.partitions[3], facts=strange_facts)
        strange = (*rows.partitions[:3], stranger, rows.partitions[4])
        with pytest.raises(RuntimeError, match=r"round alike, got .*a stranger's"):
            rows_on(rows.workers, strange, rows.spec)
        with pytest.raises(RuntimeError, match=r"round alike, got .*a stranger's"):
            gradient(DaskRows.of(rows.workers, strange, rows.facts, rows.spec))
        monkeypatch.setattr(partitions, "arithmetic", lambda: "a stranger's")
        with pytest.raises(RuntimeError, match=r"round alike, got .*a stranger's"):
            gradient(rows)

    def test_too_many_partitions(self, monkeypatch):
        monkeypatch.setattr(partitions, "MOST_PARTITIONS", 4)
        with pytest.raises(ValueError, match="at most 4 partitions, got 5"):
            on_workers(*table()[:2], facts())

    @pytest.mark.parametrize(
        "use",
        [
            DaskRows.blocks,
            pickle.dumps,
            lambda rows: rows.sum(lambda block: np.full(1, rows.n_rows), shape=(1,)),
        ],
        ids=["on the driver", "pickled", "in what is sent to workers"],
    )
    def test_rows_themselves(self, use):
        rows = on_workers(*table()[:2], facts())
        with pytest.raises(ValueError, match="got one that needs the rows themselves"):
            use(rows)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda X, y, v: (X.map_blocks(lambda x: x / 0 * 0), y, v), "X must be finite"),
            (lambda X, y, v: (X.map_blocks(sparse.csr_array), y, v), "NumPy arrays, got csr_array"),
            (lambda X, y, v: (X, y.compute(), v), "y must be of Dask, as X is, got numpy.ndarray"),
            (lambda X, y, v: (X, None, v), "y must be of Dask"),
            (lambda X, y, v: (X, y[:-1], v), r"inconsistent numbers of samples: \[1000, 999\]"),
            (lambda X, y, v: (X, da.stack([y, y], 1), v), "y should be a 1d array"),
            (lambda X, y, v: (X, y * np.nan, v), "y must be finite"),
            (lambda X, y, v: (X, y, -v), "sample_weight must be finite and at least 0"),
            (lambda X, y, v: (X[:, 0], y, v), "X must have two dimensions"),
            (lambda X, y, v: (X.astype(object), y, v), "real numbers, got 2 of object"),
            (lambda X, y, v: (X[X[:, 0] > 0], y, v), "chunks of known sizes"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
    def test_unpreparable_rows(self, change, match):
        X, y, v = (da.from_array(column, chunks=300) for column in table())
        with pytest.raises(ValueError, match=match):
            as_collection(*change(X, y, v)).prepared(Preparation(facts(), None, AS_THEY_ARE))


PATIENCE = {
    # Workers that are killed are replaced; those that are forked have loaded everything.
    "distributed.worker.multiprocessing-method": "forkserver",
    # However busy the machine is, only those that are killed are lost.
    "distributed.comm.timeouts.connect": "1h",
    "distributed.comm.timeouts.tcp": "1h",
    "distributed.scheduler.worker-ttl": None,
}


@pytest.fixture(scope="module")
def client():
    with dask.config.set(PATIENCE):
        # Workers are forked with all that they need; Dask would import its optional packages.
        get_mp_context().set_forkserver_preload(["dask.distributed", "dpglm.oracle.gradients"])
        cluster = LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs="CRITICAL",
        )
        with cluster, Client(cluster) as client:
            yield client


def reference():
    with dask.config.set(scheduler="synchronous"):
        return on_workers(*table()[:2], facts())


def kill(client, worker):
    """Kill a worker's process and wait until the cluster knows."""
    (pid,) = client.run(os.getpid, workers=[worker]).values()
    os.kill(pid, signal.SIGKILL)
    while worker in client.scheduler_info()["workers"]:
        time.sleep(0.01)


def holders(client, rows):
    """Workers that hold partitions."""
    return sorted({who for some in client.who_has(rows.partitions).values() for who in some})


class TestOnACluster:
    def test_sums_have_the_same_bits_and_rows_stay(self, client, monkeypatch):
        rows, arrived = on_workers(*table()[:2], facts()), []

        class Watched(Relay):
            def collect(self, handles):
                results = super().collect(handles)
                arrived.extend(results)
                return results

        rows = through(Watched, rows)
        np.testing.assert_array_equal(gradient(rows), gradient(reference()))
        monkeypatch.setattr(partitions, "_FAN_IN", 2)
        monkeypatch.setattr(Workers, "driver_bytes", 0)
        monkeypatch.setattr(partitions, "_MESSAGE_BYTES", 0)
        np.testing.assert_array_equal(gradient(rows), gradient(reference()))
        sums = [(where, one) for where, found in arrived for one in found]
        assert {(type(where), type(one)) for where, one in sums} == {(str, Partial)}
        values = [value for _, one in sums for value in one.pair]
        assert {value.shape for value in values} == {(6,)}
        assert len(holders(client, rows)) > 1

    def test_worker_that_dies_within_a_sum_changes_nothing(self, client, tmp_path):
        rows, w = on_workers(*table()[:2], facts()), np.linspace(-1.0, 1.0, 6)
        dead, log = tmp_path / "dead", tmp_path / "log"

        def kernel(block):
            with log.open("a") as file:
                file.write(f"{len(block.norms)}\n")
            if len(block.norms) == 350 and not dead.exists():
                dead.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return block.weighted_sum(block.predict(w))

        result = rows.sum(kernel)
        calls = log.read_text().split()
        assert calls.count("350") == 2
        assert sorted(set(calls)) == ["1", "249", "350", "400"]
        np.testing.assert_array_equal(result, reference().sum(kernel))

    def test_one_task_adds_up_the_partitions_of_a_thread(self, client):
        asked = []

        class Watched(Relay):
            def map(self, function, name, *columns):
                asked.append(len(columns[0]))
                return super().map(function, name, *columns)

        rows = through(Watched, on_workers(*table()[:2], facts(), chunks=(40,) * 25))
        first = gradient(rows)
        # Three workers of one thread, before one is lost and after.
        assert asked.pop() <= 3
        kill(client, holders(client, rows)[0])
        for _ in range(3):
            np.testing.assert_array_equal(gradient(rows), first)
        assert asked.pop() <= 3

    def test_a_task_that_runs_twice_counts_once(self, client, tmp_path):
        log = tmp_path / "log"

        class Twice(Relay):
            def map(self, function, name, *columns):
                handles = super().map(function, name, *columns)
                again = super().map(function, f"{name}-again", *columns)
                named_alike = super().map(function, name, *columns)
                self.collect([*again, *named_alike])
                return handles

        def kernel(block):
            with log.open("a") as file:
                file.write("x")
            return block.weighted_sum(block.norms)

        rows = on_workers(*table()[:2], facts())
        result = through(Twice, rows).sum(kernel)
        assert len(log.read_text()) == 2 * 4
        np.testing.assert_array_equal(result, reference().sum(kernel))

    def test_a_fit_that_loses_a_worker_is_the_same_fit(self, client):
        spec = facts()
        plan = NoisyGD(n_steps=4, sampling_rate=0.5).plan(Problem(Logistic()), BUDGET, spec)
        rows = on_workers(*table()[:2], spec)

        def progress(info):
            if info.step == 2:
                kill(client, holders(client, rows)[0])

        noises = CountingNoise(), CountingNoise()
        ours = run(plan, rows, noises[0], progress)
        theirs = run(plan, reference(), noises[1])
        np.testing.assert_array_equal(ours.w, theirs.w)
        # ``run`` has compared the record with the plan: four releases, no more.
        assert noises[0].draws == noises[1].draws

    def test_changed_source_ends_fit_before_noise(self, client, tmp_path):
        X, y, _ = table()
        path = str(tmp_path / "X.npy")
        np.save(path, X)
        loaded = da.from_delayed(dask.delayed(np.load)(path), X.shape, X.dtype)
        rows = as_collection(loaded, da.from_array(y, chunks=-1)).prepared(
            Preparation(facts(), None, AS_THEY_ARE)
        )
        noise = CountingNoise()
        oracle = Oracle(rows, Logistic(), Curator(Adjacency.ZERO_OUT, noise))
        np.save(path, X[::-1])
        kill(client, *holders(client, rows))
        with pytest.raises(RuntimeError, match="other values the second"):
            ask(oracle)
        assert noise.draws == []
