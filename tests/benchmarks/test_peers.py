"""The comparison with other libraries: fits are asked for, scored and written down correctly."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from benchmarks.peers import __main__ as driver
from benchmarks.peers import dpglm_adapter, dpglm_additive_adapter, scikit_learn_adapter
from benchmarks.peers.problems import PROBLEMS, Problem, development, scores, shortened
from benchmarks.peers.protocol import ROOT, Answer, Task, ask
from benchmarks.peers.table import BEGIN, END, Result, load, save, tables, write

KINDS = ["binary", "classes", "regression"]


def tiny(kind, n=3000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    z = X @ [1.0, -1.0, 0.0]
    y = {
        "binary": (z > 0.0).astype(np.int64),
        "classes": np.digitize(z, [-0.4, 0.4]),
        "regression": 5.0 + 2.0 * z,
    }[kind]
    half = n // 2
    task = Task(
        "tiny",
        kind,
        X[:half],
        y[:half],
        row_norm=3.0**0.5,
        n_classes=3 if kind == "classes" else 2,
        target_low=1.0,
        target_high=9.0,
    )
    return Problem("Tiny", task, X[half:], y[half:])


@pytest.fixture(params=KINDS)
def problem(request):
    return tiny(request.param)


class TestScores:
    @pytest.mark.parametrize(
        ("kind", "perfect"),
        [
            ("binary", lambda y: 100.0 * (y - 0.5)),
            ("classes", lambda y: np.eye(3)[y]),
            ("regression", lambda y: y),
        ],
        ids=KINDS,
    )
    def test_best_is_one(self, kind, perfect):
        problem = tiny(kind)
        found = scores(problem, perfect(problem.y_test))
        assert found.pop("log loss", 0.0) < 1e-12
        assert set(found.values()) == {1.0}

    def test_no_information(self):
        binary = tiny("binary")
        assert scores(binary, np.zeros(len(binary.y_test))) == {
            "AUC": 0.5,
            "log loss": pytest.approx(np.log(2.0)),
            "accuracy": pytest.approx(1.0 - binary.y_test.mean()),
        }
        regression = tiny("regression")
        mean = np.full(len(regression.y_test), regression.y_test.mean())
        assert scores(regression, mean)["R²"] == pytest.approx(0.0, abs=1e-12)


class TestProblems:
    @pytest.mark.parametrize("name", ["adult", "california"])
    def test_declared_facts_hold(self, name):
        problem = PROBLEMS[name](Path("nowhere"))
        for X in (problem.task.X, problem.X_test):
            assert np.abs(X).max() <= 1.0
            assert np.linalg.norm(X, axis=1).max() <= problem.task.row_norm * (1.0 + 1e-6)
        if problem.task.kind == "regression":
            assert problem.task.target_low <= problem.task.y.min()
            assert problem.task.y.max() <= problem.task.target_high

    def test_without_its_file_is_skipped_by_the_driver(self):
        with pytest.raises(FileNotFoundError):
            PROBLEMS["adult_fixed"](Path("nowhere"))

    def test_trials_touch_no_test_row(self):
        problem = tiny("binary")
        part = development(problem)
        rows = np.vstack([part.task.X, part.X_test])
        np.testing.assert_array_equal(rows, problem.task.X)
        assert len(part.X_test) == len(rows) // 5
        assert len(shortened(tiny("binary", n=5000)).task.X) == 2000


class TestAdapters:
    def test_dpglm_learns(self, problem):
        for adapter, epsilon in (
            (dpglm_adapter.DPGLM, 5.0),
            (dpglm_adapter.DPGLM_PURE, 100.0),
            (scikit_learn_adapter.SCIKIT_LEARN, np.inf),
        ):
            found = scores(problem, adapter.fit(problem.task, epsilon, 0)(problem.X_test))
            assert found.pop("log loss", 0.0) < 0.3
            assert min(found.values()) > 0.7

    @pytest.mark.parametrize("kind", ["binary", "regression"])
    def test_additive_models_take_tables(self, kind):
        """Columns in their units, and categories as positions, whatever their names are."""
        problem = tiny(kind)
        X = np.column_stack([50.0 * problem.task.X[:, 0], problem.task.X[:, 1] > 0.0])
        columns = {
            "number": {"type": "numeric", "low": -50.0, "high": 50.0},
            "kind": {"type": "categorical", "categories": ["no", "yes"]},
        }
        task = dataclasses.replace(problem.task, X=X, columns=columns)
        predict = dpglm_additive_adapter.DPGLM_ADDITIVE.fit(task, 5.0, 0)
        whole = Problem("Tiny", task, X, problem.task.y)
        assert scores(whole, predict(X))["AUC" if kind == "binary" else "R²"] > 0.7

    @pytest.mark.slow
    def test_run_as_processes_give_the_same(self):
        problem = tiny("binary")
        answer = ask(
            "benchmarks.peers.dpglm_adapter",
            Path(sys.executable),
            problem.task,
            problem.X_test,
            [0.5, 5.0],
            range(2),
        )
        assert answer.predictions.shape == (2, 2, len(problem.y_test))
        assert answer.seconds.shape == (2, 2)
        assert answer.guarantee == dpglm_adapter.DPGLM.guarantee
        here = dpglm_adapter.DPGLM.fit(problem.task, 5.0, 1)(problem.X_test)
        np.testing.assert_allclose(answer.predictions[1, 1], here, rtol=1e-6)

    def test_one_that_fails_stops_the_comparison(self, capfd):
        problem = tiny("binary")
        with pytest.raises(subprocess.CalledProcessError):
            ask("no.such", Path(sys.executable), problem.task, problem.X_test, [1.0], range(1))
        assert "No module named" in capfd.readouterr().err

    @pytest.mark.parametrize("name", ["diffprivlib", "opacus"])
    def test_environments_are_pinned(self, name):
        lines = (ROOT / "benchmarks" / "peers" / f"{name}.txt").read_text().splitlines()
        pins = [Requirement(line) for line in lines if not line.startswith("#")]
        assert name in [pin.name for pin in pins]
        assert all([one.operator for one in pin.specifier] == ["=="] for pin in pins)


def result(library="dpglm", **changes):
    plain = Result(
        problem="tiny",
        title="Tiny",
        n_rows=10,
        n_columns=2,
        n_test=5,
        library=library,
        version=f"{library} 1.0",
        guarantee="(ε, 0)",
        setting="defaults",
        scores={"R²": {"0.1": [0.5, 0.7], "1.0": [-2e5, -4e5]}},
        seconds={"0.1": [1.0, 3.0], "1.0": [2.0, 2.0]},
    )
    return dataclasses.replace(plain, **changes)


class TestTables:
    def test_text_equals_measurements(self):
        without = {"scores": {"R²": {"inf": [0.9]}}, "seconds": {"inf": [0.1]}}
        text = tables([result(), result("other", **without)], (0.1, 1.0, 4.0))
        assert "| library | guarantee | R², ε = 0.1 | R², ε = 1 | R², ε = 4 | fits |" in text
        assert "| dpglm | (ε, 0) | 0.600 ± 0.100 | -3e+05 ± 1e+05 | – | 2 | 2 |" in text
        # Without privacy, one figure holds for every epsilon.
        assert "| other | (ε, 0) | 0.900 | 0.900 | 0.900 | 1 | 0.1 |" in text

    def test_are_put_between_the_marks(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
        write(page, "new")
        assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"

    def test_results_are_read_as_they_were_stored(self, tmp_path):
        path = tmp_path / "store.json"
        assert load(path) == {}
        save(path, [result(), result("other")])
        assert load(path) == {("tiny", "dpglm"): result(), ("tiny", "other"): result("other")}

    def test_page_shows_the_stored_results(self):
        stored = load(driver.STORE)
        # Libraries that compile for long are measured in the slow tests.
        assert {library for _, library in stored} >= set(driver.LIBRARIES) - {"DP-XGBoost"}
        assert tables(stored.values(), driver.EPSILONS) in driver.PAGE.read_text()


class TestDriver:
    def test_scores_every_fit(self):
        problem = tiny("binary")
        n = len(problem.y_test)
        predictions = np.ones((len(driver.EPSILONS), 2, n))
        predictions[1, 0] = problem.y_test - 0.5
        answer = Answer("v", "g", "s", predictions, np.ones((len(driver.EPSILONS), 2)))
        found = driver.scored(problem, "dpglm", answer)
        assert found.scores["AUC"] == {
            "0.1": [0.5, 0.5],
            "0.5": [1.0, 0.5],
            "1.0": [0.5, 0.5],
            "4.0": [0.5, 0.5],
        }
        assert (found.n_rows, found.n_columns, found.n_test) == (1500, 3, n)

    @pytest.mark.parametrize(("option", "kept"), [((), False), (("--quick",), True)])
    def test_measures_one_library_again_and_keeps_the_others(
        self, tmp_path, monkeypatch, option, kept
    ):
        def measure(problem, name, environments, seeds):
            return result(name, setting="again")

        monkeypatch.setattr(driver, "PROBLEMS", {"tiny": lambda splits: tiny("regression")})
        monkeypatch.setattr(driver, "measure", measure)
        monkeypatch.setattr(driver, "STORE", tmp_path / "store.json")
        monkeypatch.setattr(driver, "PAGE", tmp_path / "page.md")
        driver.PAGE.write_text(f"{BEGIN}\n{END}\n")
        before = [result("dpglm"), result("diffprivlib")]
        save(driver.STORE, before)
        monkeypatch.setattr(sys, "argv", ["peers", *option, "--only", "tiny", "dpglm"])
        driver.main()
        after = list(load(driver.STORE).values())
        assert after == before if kept else [result("dpglm", setting="again"), before[1]]
        assert ("again" in driver.PAGE.read_text()) is not kept

    def test_environment_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(SystemExit, match="opacus/bin/python does not exist"):
            driver.LIBRARIES["Opacus"].python(tmp_path)

    def test_help_shows_all_names(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["peers", "--help"])
        with pytest.raises(SystemExit):
            driver.main()
        # Lines may be broken within a name.
        shown = "".join(capsys.readouterr().out.split())
        assert all(name in shown for name in (*driver.PROBLEMS, *driver.LIBRARIES))
