"""Progress of work: its messages, receivers and display."""

import io
import re
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm import LogisticRegression, NoisyGD, PrivateGridSearchCV, _calls
from dpglm._calls import (
    ProgressStage,
    in_bars,
    in_lines,
    is_listening,
    listening,
    shown,
    silent,
    stage,
    tenths,
)
from dpglm.audit import audit
from dpglm.data.stream.stored import MappedRows
from dpglm.estimators import _private
from dpglm.estimators.linear import _base
from tests.fits import LAST_ITERATE, fit_classifier, fit_last_iterate, make_rows


@pytest.fixture
def told():
    """Everything that is told in a test."""
    found = []
    with listening(found.append):
        yield found


def mapped(folder, n_rows=400):
    """Rows that are read from a file at each pass."""
    X, y = make_rows()
    path = folder / f"{n_rows}.npy"
    np.save(path, X[:n_rows])
    return MappedRows(np.load(path, mmap_mode="r"), y[:n_rows])


def of(name, told):
    return [one for one in told if one.name == name]


class TestTelling:
    def test_progress_is_reported_only_to_listeners(self):
        assert not is_listening()
        with stage("work", 2) as advance:
            advance(1)

    def test_stages_report_progress_and_nest(self, told):
        with stage("outer", 2) as advance:
            advance(1)
            with stage("inner") as further:
                further(3)
        assert told == [
            ProgressStage("outer", 0, 2, 0),
            ProgressStage("outer", 1, 2, 0),
            ProgressStage("inner", 0, None, 1),
            ProgressStage("inner", 3, None, 1),
            ProgressStage("inner", 3, None, 1, is_over=True),
            ProgressStage("outer", 1, 2, 0, is_over=True),
        ]

    def test_a_stage_that_fails_is_over(self, told):
        with pytest.raises(KeyError), stage("work", 2):
            raise KeyError
        assert told[-1].is_over
        with stage("next", 1):
            pass
        assert told[-1].depth == 0

    def test_progress_errors_do_not_end_a_charged_fit(self):
        seen = []

        def broken(one):
            seen.append(one)
            raise OSError("the terminal is gone")

        with listening(broken), stage("work", 3) as advance:
            advance(1)
            advance(1)
        assert len(seen) == 1

    def test_an_interruption_goes_through(self):
        def interrupting(one):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), listening(interrupting), stage("work", 1):
            pass

    def test_secret_values_are_not_reported(self, told):
        with silent(), stage("a secret number of times", 5):
            pass
        assert told == []
        assert is_listening()

    @given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 900))
    def test_the_same_tenths_are_told_whatever_the_number_of_rows_is(self, sizes, declared):
        """Messages depend neither on their number nor on their chunks."""
        found = []
        with listening(found.append):
            assert list(tenths("pass", sizes, lambda size: size, sum(sizes))) == sizes
        reached = [one.done for one in found if not one.is_over]
        assert reached == list(range(11 if sum(sizes) else 1))
        assert {one.total for one in found} == {10}

    def test_a_pass_that_is_left_early_is_over(self, told):
        for _ in tenths("pass", range(5), lambda _: 1, 5):
            break
        assert told[-1].is_over


class TestWhatTells:
    def test_fit_reports_its_steps(self, told):
        model = fit_classifier()
        steps = of("Private fit", told)
        assert [one.done for one in steps] == [*range(model.n_iter_ + 1), model.n_iter_]
        assert {one.total for one in steps} == {model.n_iter_}
        assert of("Planning", told)

    def test_fit_with_secret_steps_reports_their_number_only(self, told):
        model = fit_last_iterate()
        assert not model.solution_.history
        assert [one.done for one in of("Private fit", told)][:-1] == list(range(41))

    def test_streamed_fit_reports_tenths_of_each_pass(self, told, tmp_path):
        rows = mapped(tmp_path)
        LogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), solver=NoisyGD(n_steps=2)).fit(
            rows
        )
        assert [one.done for one in of("Checking the rows", told)][:-1] == list(range(11))
        passes = of("Pass over the rows", told)
        assert [one.done for one in passes if not one.is_over] == 2 * list(range(11))
        assert {one.depth for one in passes} == {1}

    def test_progress_is_independent_of_private_number_of_rows(self, tmp_path):
        def messages(n_rows):
            rows, found = mapped(tmp_path, n_rows), []
            with listening(found.append):
                LogisticRegression(
                    classes=[0, 1],
                    feature_bounds=(-1, 1),
                    adjacency="add_remove",
                    n_rows=350,
                    solver=NoisyGD(n_steps=2),
                ).fit(rows)
            return found

        assert messages(390) == messages(311)

    def test_search_does_not_report_secret_tries(self, tmp_path):
        model = LogisticRegression(
            classes=[0, 1], feature_bounds=(-1, 1), solver=NoisyGD(n_steps=2)
        )
        found = []
        with listening(found.append):
            PrivateGridSearchCV(model, {"solver": [NoisyGD(n_steps=2)]}, epsilon=8.0).fit(
                mapped(tmp_path)
            )
        assert not of("Pass over the rows", found)
        assert {one.total for one in of("Private fit", found)} == {1}

    def test_audit_reports_its_runs(self, told):
        model = LogisticRegression(epsilon=8.0, row_norm=1.0, solver=NoisyGD(n_steps=1))
        audit(model, runs=20, pilot_runs=10, seed=0)
        runs = [one for one in told if one.name == "Runs of the attack"]
        assert runs[-1].done == runs[-1].total
        assert {one.depth for one in of("Private fit", told)} <= {1}


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def work(listener, clock, seconds):
    """Ten steps of a fixed number of seconds each, with a pass in each."""
    with listening(listener), stage("Private fit", 10) as advance:
        for _ in range(10):
            with stage("Pass over the rows", 2) as further:
                for _ in range(2):
                    clock.now += seconds / 2
                    further(1)
            advance(1)


class TestLines:
    def test_a_line_after_each_quarter_of_the_outermost_stage(self):
        lines = []
        work(in_lines(lines.append), Clock(), 1.0)
        assert lines == [f"Private fit: {done} of 10" for done in (3, 5, 8, 10)]

    def test_a_next_stage_begins_anew(self):
        said = []
        lines = in_lines(said.append)
        for _ in range(2):
            with listening(lines), stage("work", 1) as advance:
                advance(1)
        assert said == ["work: 1 of 1"] * 2

    def test_infinite_value_draws_no_line(self):
        said = []
        with listening(in_lines(said.append)), stage("Planning") as advance:
            advance(1)
        assert said == []


class TestBars:
    def bars(self, clock):
        from rich.console import Console

        rich = pytest.importorskip("rich.progress")
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=100, color_system=None)
        columns = _calls._columns()
        bars = rich.Progress(
            *columns,
            console=console,
            auto_refresh=False,
            transient=True,
            get_time=clock,
            **_calls._SPEED,
        )
        return bars, out

    def test_a_bar_with_the_time_that_is_left(self):
        clock = Clock()
        bars, out = self.bars(clock)
        with bars, listening(in_bars(bars, clock)), stage("Private fit", 10) as advance:
            for _ in range(5):
                clock.now += 60.0
                advance(1)
            bars.refresh()
            text = out.getvalue()
        assert "Private fit" in text
        assert "5/10" in text
        assert "0:05:00" in text

    def test_names_are_only_text(self):
        bars, out = self.bars(Clock())
        with bars, listening(in_bars(bars, Clock())), stage("a [bold]name[/bold]", 2):
            bars.refresh()
        assert "a [bold]name[/bold]" in out.getvalue()

    def test_long_passes_have_a_bar_and_quick_ones_have_none(self):
        for seconds, seen in ((10.0, True), (0.01, False)):
            clock, tasks = Clock(), []
            bars = types.SimpleNamespace(
                add_task=lambda name, tasks=tasks, **_: tasks.append(name) or len(tasks),
                update=lambda task, completed: None,
                remove_task=lambda task: None,
            )
            work(in_bars(bars, clock), clock, seconds)
            assert tasks[0] == "Private fit"
            assert ("  Pass over the rows" in tasks) == seen

    def test_many_quick_steps_are_drawn_a_few_times(self):
        clock, drawn = Clock(), []
        bars = types.SimpleNamespace(
            add_task=lambda name, **_: 0,
            update=lambda task, completed: drawn.append(completed),
            remove_task=lambda task: None,
        )
        with listening(in_bars(bars, clock)), stage("Private fit", 10_000) as advance:
            for _ in range(10_000):
                clock.now += 1e-4
                advance(1)
        assert len(drawn) < 20
        assert drawn[-1] == 10_000


class TestNotebooks:
    @pytest.mark.parametrize("has_widgets", [True, False])
    def test_bars_are_those_of_rich_and_need_ipywidgets(self, monkeypatch, has_widgets):
        pytest.importorskip("rich")
        console = types.SimpleNamespace(is_jupyter=True)
        monkeypatch.setattr(_calls, "_console", lambda: console)
        monkeypatch.setattr(_calls, "_is_installed", lambda name: name == "rich" or has_widgets)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
        assert not _calls.is_watched()
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace())
        assert _calls.is_watched() == has_widgets

    def test_a_log_has_lines_and_no_bars(self, monkeypatch):
        log = io.StringIO()
        monkeypatch.setattr(sys, "stderr", log)
        with shown(), stage("Private fit", 1) as advance:
            advance(1)
        assert log.getvalue() == "Private fit: 1 of 1\n"


class TestVerbose:
    def test_without_a_terminal_a_line_for_each_step(self, capfd):
        model = fit_classifier(verbose=1, solver=NoisyGD(n_steps=5))
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 5
        assert lines[0].startswith("step 1: step size ")
        assert f"{model.solution_.history[4].gradient_norm:.3g}" in lines[4]

    def test_secret_steps_have_counts_only(self, capfd):
        fit_last_iterate(verbose=1)
        lines = capfd.readouterr().err.splitlines()
        assert lines == [f"Private fit: {done} of 40" for done in (10, 20, 30, 40)]

    def test_nothing_without_it(self, capfd):
        fit_classifier(solver=NoisyGD(n_steps=5))
        assert capfd.readouterr() == ("", "")

    def test_callback_is_called_too(self, capfd):
        heard = []
        fit_classifier(verbose=1, callback=heard.append, solver=NoisyGD(n_steps=3))
        assert len(heard) == 3
        assert len(capfd.readouterr().err.splitlines()) == 3

    @pytest.mark.parametrize(("verbose", "n_lines"), [(1, 0), (2, 3)])
    def test_where_somebody_watches_a_bar_and_lines_if_more_is_asked(
        self, monkeypatch, capfd, verbose, n_lines
    ):
        bars = []

        for one in (_base, _private):
            monkeypatch.setattr(one, "is_watched", lambda: True)
        monkeypatch.setattr(_calls, "in_lines", lambda write: bars.append)
        fit_classifier(verbose=verbose, solver=NoisyGD(n_steps=3))
        assert len(of("Private fit", bars)) == 5
        assert len(re.findall("noisy gradient norm", capfd.readouterr().err)) == n_lines

    def test_a_secret_step_s_gradient_is_never_shown(self, monkeypatch, capfd):
        """Planted: were it released, the line would be there."""
        fit_last_iterate(verbose=2)
        assert "gradient" not in capfd.readouterr().err
        monkeypatch.setattr(
            type(fit_last_iterate().solution_.plan.method), "releases_iterates", True
        )
        fit_last_iterate(verbose=2, solver=LAST_ITERATE)
        assert "gradient" in capfd.readouterr().err
