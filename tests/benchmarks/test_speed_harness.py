"""The comparison of speed: equal work is timed in turn, checked, stored and shown. No timings."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from benchmarks.peers.protocol import ROOT
from benchmarks.peers.table import BEGIN, END
from benchmarks.step_cost import __main__ as driver
from benchmarks.step_cost import dpglm_adapter, scikit_learn_adapter
from benchmarks.step_cost.measure import Measurement, Pace, load, log_loss, measure_steps, save
from benchmarks.step_cost.numpy_adapter import NUMPY
from benchmarks.step_cost.page import bar_table, bars, page_text
from benchmarks.step_cost.paper import MULTIPLIED, STREAMED, Constants
from benchmarks.step_cost.protocol import CLIP, Worker, Workload, make_rows

SCALAR, SOFTMAX = Workload(300, 7), Workload(300, 7, classes=3, dtype="float64")
CSR = Workload(100, 200, density=0.05)


def clipped_sum(workload):
    """Gradients of rows, one by one."""
    rows = make_rows(workload)
    X = rows.X.toarray() if workload.density < 1.0 else rows.X
    total = np.zeros(rows.w.shape)
    for x, y in zip(X.astype(np.float64), rows.y, strict=True):
        z = x @ rows.w
        if workload.classes == 1:
            g = (1.0 / (1.0 + np.exp(-z)) - y) * x
        else:
            p = np.exp(z) / np.exp(z).sum()
            p[y] -= 1.0
            g = np.outer(x, p)
        total += g * min(1.0, CLIP / np.linalg.norm(g))
    return total


@pytest.fixture
def worker():
    started = Worker("benchmarks.step_cost.dpglm_adapter", Path(sys.executable), 1)
    yield started
    started.close()


class TestWork:
    @pytest.mark.parametrize("workload", [SCALAR, SOFTMAX, CSR], ids=["scalar", "softmax", "csr"])
    def test_dpglm_is_timed_on_the_clipped_sum(self, workload):
        with dpglm_adapter.DPGLM.works["dpglm"](workload) as work:
            np.testing.assert_allclose(work(), clipped_sum(workload), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("workload", [SCALAR, SOFTMAX, CSR], ids=["scalar", "softmax", "csr"])
    def test_other_options_act_as_documented(self, workload):
        rows = make_rows(workload)
        with NUMPY.works["two products"](workload) as work:
            z, product = work()
        np.testing.assert_allclose(z, rows.X @ rows.w)
        assert product.shape == rows.w.shape
        with scikit_learn_adapter.SCIKIT_LEARN.works["scikit-learn"](workload) as work:
            assert np.all(np.isfinite(work()))

    def test_most_gradients_are_clipped_but_not_all(self):
        rows = make_rows(Workload(2000, 50))
        slopes = np.abs(1.0 / (1.0 + np.exp(-rows.X @ rows.w)) - rows.y)
        assert 0.5 < np.mean(slopes * rows.norms > CLIP) < 0.95

    def test_sparse_rows_are_as_dense_as_asked(self):
        X = make_rows(CSR).X
        assert X.has_sorted_indices
        assert X.has_canonical_format
        np.testing.assert_array_equal(np.diff(X.indptr), 10)


class TestWorker:
    def test_answers_in_another_process(self, worker):
        version, works, fits = worker.ask("about")
        assert version == dpglm_adapter.DPGLM.version
        assert (works, fits) == (list(dpglm_adapter.DPGLM.works), ["dpglm"])
        total = worker.ask("open", "dpglm", SCALAR)
        np.testing.assert_allclose(total, clipped_sum(SCALAR), rtol=1e-4, atol=1e-5)
        assert worker.ask("call", "dpglm", 2, 0.0) > 0.0
        seconds, peak = worker.ask("watched_call", "dpglm", 0.0)
        assert seconds > 0.0
        assert peak >= 0 if sys.platform.startswith("linux") else peak is None
        worker.ask("close")
        with pytest.raises(RuntimeError, match="KeyError: 'dpglm'"):
            worker.ask("call", "dpglm", 0, 0.0)

    def test_that_ends_is_noticed(self, capfd):
        gone = Worker("no.such", Path(sys.executable), 1)
        with pytest.raises(RuntimeError, match="ended without an answer"):
            gone.receive()
        gone.close()
        assert "No module named" in capfd.readouterr().err


class Fake:
    """A library that follows its instructions."""

    def __init__(self, results):
        self.results, self.log = results, []
        self.pending, self.first = None, 0.5

    def send(self, request, *arguments):
        self.pending = (request, *arguments)

    def receive(self):
        return self.ask(*self.pending)

    def ask(self, request, *arguments):
        self.log.append((request, *arguments))
        if request == "open":
            return self.results[arguments[0]]
        return {"call": 0.25, "watched_call": (self.first, 7)}.get(request)


class TestMeasuring:
    def test_takes_turns(self):
        order = []
        fakes = {}
        for name in ("a", "b"):
            fakes[name] = Fake({name: np.ones(7)})
            fakes[name].log = order
        methods = {"a": "a", "b": "b"}
        found = measure_steps(fakes, "step", SCALAR, methods, Pace(3))
        assert [entry[1] for entry in order if entry[0] == "call"] == ["a", "b"] * 3
        assert [one.method for one in found] == ["a", "b"]
        assert [(one.seconds, one.peak_bytes) for one in found] == [([0.25] * 3, 7)] * 2

    def test_another_sum_stops_the_comparison(self):
        fakes = {"x": Fake({"dpglm": np.ones(7), "other": np.full(7, 1.01)})}
        methods = {"dpglm": "x", "other": "x"}
        with pytest.raises(RuntimeError, match="other computes another sum"):
            measure_steps(fakes, "step", SCALAR, methods, Pace(1))
        assert fakes["x"].log[-1] == ("close",)

    def test_slow_methods_are_called_less_often(self):
        pace = Pace(15, 8.0)
        assert [pace.rounds_for(seconds) for seconds in (0.01, 1.0, 60.0)] == [15, 8, 1]

    def test_very_slow_methods_are_called_only_once_more(self):
        fake = Fake({"a": np.ones(7)})
        fake.first = 60.0
        (found,) = measure_steps({"x": fake}, "step", SCALAR, {"a": "x"}, Pace())
        assert found.seconds == [60.0]
        assert [entry[0] for entry in fake.log] == ["open", "watched_call", "close"]

    def test_log_loss_of_no_information(self):
        y = np.array([0, 1, 1])
        assert log_loss(y, np.zeros(3)) == pytest.approx(np.log(2.0))
        assert log_loss(y, np.full((3, 4), 700.0)) == pytest.approx(np.log(4.0))


def step(workload, method, *seconds):
    return Measurement("step", dataclasses.asdict(workload), method, seconds, 1000)


class TestPage:
    def test_ratios_are_taken_round_by_round(self):
        ratios = step(SCALAR, "a", 2.0, 6.0, 8.0).ratios(step(SCALAR, "b", 1.0, 2.0))
        np.testing.assert_allclose(ratios, [2.25, 2.5, 2.75])

    def test_bars_are_met_or_missed(self):
        first = Workload(200_000, 100)
        found = [
            step(first, "one product", 1.0),
            step(first, "dpglm", 1.9),
            step(first, "Opacus, ghost clipping", 9.0),
            step(SOFTMAX, "two products", 1.0),
            step(SOFTMAX, "dpglm, noise added", 1.3),
        ]
        shown = {bar.name: bar.met for bar in bars(found)}
        assert shown == {
            "clipped gradient over `X @ w`, 200000 x 100, float32": True,
            "Opacus, ghost clipping over dpglm, 200000 x 100, float32": False,
            "private step over its two products, 300 x 7, 3 classes, float64": False,
        }
        assert page_text({"processor": "p", "threads": "2", "python": "3"}, found).count("**no**")

    def test_plan_uses_the_measurement(self):
        draws = dataclasses.replace(step(Workload(1, 1000), "noise", 0.001), part="noise")
        found = [step(STREAMED, "dpglm", 0.5), step(MULTIPLIED, "two products", 2.0), draws]
        constants = Constants.of(found)
        assert constants == Constants(
            scalar_bytes=4 * 20_000 * 2000 / 0.5,
            gemm_flops=4 * 60_000 * 784 * 10 / 2.0,
            draws=1e6,
        )
        assert Constants.of(found[1:]) is None
        machine = {"processor": "p", "threads": "2", "python": "3"}
        # 4e12 bytes on 100 workers, 0.32 GB/s each.
        text = page_text(machine, found)
        assert "| clipped gradient | 4 n d / (W B) | 2.08 min |" in text
        assert "| noise, on the driver | d / G | 1 ms | 1 ms |" in text

    def test_results_are_read_as_they_were_stored(self, tmp_path):
        found = [step(SCALAR, "dpglm", 0.125), step(CSR, "dpglm", 0.5, 0.25)]
        save(tmp_path / "store.json", {"threads": "2"}, found)
        machine, again = load(tmp_path / "store.json")
        assert machine == {"threads": "2"}
        assert [one.ratios(found[0]).tolist() for one in again] == [
            one.ratios(found[0]).tolist() for one in found
        ]

    def test_page_shows_the_stored_results(self):
        _, found = load(driver.STORE)
        assert {one.part for one in found} == {"noise", "step", "n", "d", "K", "fit"}
        assert bar_table(list(bars(found))) in driver.PAGE.read_text()


class TestDriver:
    @pytest.mark.slow
    def test_quick_run_with_installed_libraries(self, tmp_path):
        (tmp_path / "evidence").mkdir()
        page = tmp_path / "evidence" / "speed.md"
        page.write_text(f"{BEGIN}\n{END}\n")
        only = ["NumPy", "dpglm", "scikit-learn"]
        driver.main(["--quick", "--docs", str(tmp_path), "--only", *only])
        _, found = load(tmp_path / "figures" / "speed.json")
        assert {one.part for one in found} == {"noise", "step", "n", "d", "K", "fit"}
        assert {one.method for one in found if one.part == "fit"} >= {"dpglm", "scikit-learn"}
        assert [one.case["columns"] for one in found if one.part == "noise"] == [driver.QUICK.draws]
        text = page.read_text()
        assert all(heading in text for heading in ("### Bars", "### One step", "### Growth"))
        for name in ("steps", "growth"):
            assert (tmp_path / "figures" / f"speed_{name}.svg").stat().st_size > 0

    def test_parts_are_measured_again_and_the_others_kept(self, tmp_path, monkeypatch):
        (tmp_path / "evidence").mkdir()
        (tmp_path / "evidence" / "speed.md").write_text(f"{BEGIN}\n{END}\n")
        (tmp_path / "figures").mkdir()
        store = tmp_path / "figures" / "speed.json"
        before = load(driver.STORE)
        save(store, *before)
        plans = []

        def measure(plan, environments, only):
            plans.append(plan)
            return before[0], [one for one in before[1] if one.part == "K"][:6]

        monkeypatch.setattr(driver, "measure", measure)
        driver.main(["--docs", str(tmp_path), "--parts", "K"])
        assert list(plans[0].growth) == ["K"]
        assert (plans[0].steps, plans[0].problems, plans[0].draws) == ((), (), 0)
        _, after = load(store)
        kept = [len([one for one in found if one.part != "K"]) for found in (before[1], after)]
        assert kept[0] == kept[1]
        assert len([one for one in after if one.part == "K"]) == 6

    def test_environment_of_jax_is_pinned(self):
        lines = (ROOT / "benchmarks" / "peers" / "jax.txt").read_text().splitlines()
        pins = [Requirement(line) for line in lines if not line.startswith("#")]
        assert {"jax", "jaxlib", "jax-privacy"} <= {pin.name for pin in pins}
        assert all([one.operator for one in pin.specifier] == ["=="] for pin in pins)
