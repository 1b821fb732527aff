"""An interrupted run goes on from its file: one outcome for each step, whatever happens."""

import dataclasses
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from dpglm._codec import decode, encode
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger import PrivacyLedger
from dpglm.preprocessing import Center, Scale, Whiten
from dpglm.privacy.budget import ApproximateDP, GaussianDP
from dpglm.privacy.events import canonical
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.problem import L2, Logistic, Problem, Squared
from dpglm.selection import BestIterate
from dpglm.solvers import (
    D2P2,
    AcceleratedMirrorDescent,
    Constant,
    FrankWolfe,
    JohnsonLindenstrauss,
    LocalSGD,
    Newton,
    NoisyGD,
    ObjectivePerturbation,
    Preprocessed,
    SufficientStatistics,
    checkpoint,
    pure_gd,
    run,
)
from dpglm.solvers import (
    checkpoint as checkpoint_file,
)
from dpglm.solvers.gradient.noisy_gd_method import DescentState

N, D = 400, 4
DATA = DataSpec(
    n_rows=N, n_features=D, intercept=1.0, entry_bound=1.0, target_low=-1.0, target_high=1.0
)
BUDGET = ApproximateDP(1.0, 1e-5)

# A parent whose children die one after the other, each at a moment of its own (around a step that
# is heard of, a file that is synced or moved), until one of them has finished; they write down,
# durably, the reports of each step.
KILLING = """
import json, os, signal, sys
sys.path[:0] = json.loads(sys.argv[1])
import numpy as np
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import SystemNoise
from dpglm.problem import Logistic, Problem
from dpglm.preprocessing import Center
from dpglm.solvers import NoisyGD, Preprocessed, run

data = DataSpec(n_rows=400, n_features=4, intercept=1.0)
X = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 4))
rows = prepare_rows(X, np.sign(X[:, 0]), data)

def tick():
    # Die here, without a word, if it is time to.
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def ticking(function):
    def ticked(*args, **options):
        tick()
        result = function(*args, **options)
        tick()
        return result
    return ticked

left = [-1]
os.replace, os.fsync = ticking(os.replace), ticking(os.fsync)

def child(folder, solver, planted):
    plan = eval(solver).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    exec(planted, globals())
    heard = os.open(folder + "/heard", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    def hear(info):
        tick()
        os.write(heard, f"{info.step} {info.gradient_norm!r}\\n".encode())
        tick()
    solution = run(plan, rows, SystemNoise(), hear, checkpoint=folder + "/kept")
    with open(folder + "/done", "w") as file:
        json.dump([info.gradient_norm for info in solution.history], file)

for folder, solver, planted in json.loads(sys.argv[2]):
    # Planning is done once, before any child is killed.
    eval(solver).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    kills = 0
    while True:
        pid = os.fork()
        if pid == 0:
            # At every kind of moment within the first three steps of a process.
            left = [1 + 7 * kills % 26] if kills < 12 else [-1]
            child(folder, solver, planted)
            os._exit(0)
        if os.waitpid(pid, 0)[1] == 0:
            break
        kills += 1
    print(kills)
"""


def rows():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (N, D))
    return prepare_rows(X, np.sign(X[:, 0]), DATA)


def plan_of(solver, loss=None, **budget):
    problem = Problem(Logistic() if loss is None else loss, L2(0.01))
    return solver.plan(problem, budget.get("budget", BUDGET), DATA)


PLAN = plan_of(NoisyGD(n_steps=6))


class InterruptionError(Exception):
    pass


def interrupt_after(step):
    def hear(info):
        if info.step == step:
            raise InterruptionError

    return hear


def interrupted(path, plan=PLAN, after=3, **options):
    with pytest.raises(InterruptionError):
        run(plan, rows(), SystemNoise(), interrupt_after(after), checkpoint=path, **options)


# Planted: the written state is always one step behind.
LATE = """
from dpglm.solvers.checkpoint import RunCheckpoint
save, earlier = RunCheckpoint.save, []
def late(self, progress):
    earlier.append(progress)
    save(self, earlier[-2:][0])
RunCheckpoint.save = late
"""


KILLED = {
    "descent": ("NoisyGD(n_steps=12)", ""),
    "preprocessed": ("Preprocessed([Center()], NoisyGD(n_steps=11))", ""),
    "late": ("NoisyGD(n_steps=12)", LATE),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Run each until one process has not been killed; steps that were heard of, and norms."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    folders = {name: tmp_path_factory.mktemp(name) for name in KILLED}
    jobs = [[str(folders[name]), *job] for name, job in KILLED.items()]
    arguments = [sys.executable, "-c", KILLING, json.dumps(sys.path), json.dumps(jobs)]
    done = subprocess.run(arguments, capture_output=True, check=True, text=True)
    assert all(int(kills) > 0 for kills in done.stdout.split())
    results = {}
    for name, folder in folders.items():
        norms = json.loads((folder / "done").read_text())
        assert len(norms) == 12
        heard = [line.split() for line in (folder / "heard").read_text().splitlines()]
        steps = [int(step) for step, _ in heard]
        # As text: a step that learns a map lacks a gradient, so its norm is NaN.
        kept = [repr(norms[step - 1]) for step in steps]
        results[name] = steps, [norm for _, norm in heard], kept
    return results


@pytest.mark.parametrize("name", ["descent", "preprocessed"])
def test_killed_processes_have_one_outcome_for_each_step(killed, name):
    steps, heard, kept = killed[name]
    assert steps == sorted(set(steps))
    assert heard == kept


def test_a_file_that_is_written_too_late_is_found_out(killed):
    steps, heard, kept = killed["late"]
    assert len(steps) > len(set(steps))
    assert heard != kept


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        (NoisyGD(n_steps=6), None),
        (NoisyGD(n_steps=6, compare=True), None),
        (Newton(n_steps=4), None),
        (pure_gd(n_steps=4), None),
        (FrankWolfe(n_steps=4), None),
        (AcceleratedMirrorDescent(), None),
        (D2P2(n_steps=4), None),
        (JohnsonLindenstrauss(), None),
        (BestIterate(n_steps=4), None),
        (ObjectivePerturbation(), None),
        (SufficientStatistics(), Squared()),
        (Preprocessed([Center()], NoisyGD(n_steps=5)), None),
        (Preprocessed([Center(), Whiten()], Newton(n_steps=3)), None),
        (Preprocessed([Center(), Scale(), Whiten()], NoisyGD(n_steps=1)), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_states_of_all_kinds_are_kept(tmp_path, solver, loss):
    plan = plan_of(solver, loss)
    path = tmp_path / "kept"
    if plan.n_steps > 1:
        interrupted(path, plan, after=plan.n_steps // 2)
    heard = []
    solution = run(plan, rows(), SystemNoise(), heard.append, checkpoint=path)
    assert len(solution.history) == plan.n_steps
    assert [info.step for info in heard] == list(range(plan.n_steps // 2 + 1, plan.n_steps + 1))
    with pytest.warns(UserWarning, match="complete"):
        again = run(plan, rows(), SystemNoise(), heard.append, checkpoint=path)
    np.testing.assert_array_equal(again.w, solution.w)
    # As NaN is not NaN, compare the written text.
    assert repr(again.history) == repr(solution.history)
    assert again.chosen == solution.chosen
    assert len(heard) == plan.n_steps - plan.n_steps // 2


@pytest.mark.parametrize("after", range(1, 6))
def test_mapped_rows_are_made_again(tmp_path, monkeypatch, after):
    # Where noise repeats, so does the model: all that a file lacks can be made again.
    monkeypatch.setattr(SeededNoise, "is_private", True)
    plan = plan_of(Preprocessed([Center(), Whiten()], NoisyGD(n_steps=4)))
    expected = run(plan, rows(), SeededNoise(5))
    path, noise = tmp_path / "kept", SeededNoise(5)
    with pytest.raises(InterruptionError):
        run(plan, rows(), noise, interrupt_after(after), checkpoint=path)
    with np.load(path) as file:
        assert max(file[name].size for name in file.files if name != "header") < N
        assert "Oracle" not in file["header"].tobytes().decode()
    solution = run(plan, rows(), noise, checkpoint=path)
    np.testing.assert_array_equal(solution.w, expected.w)
    np.testing.assert_array_equal(solution.coefficient_noise, expected.coefficient_noise)


def test_releases_of_all_runs_equal_the_plan(tmp_path):
    path = tmp_path / "kept"
    interrupted(path)
    with checkpoint.opened(path, PLAN, SystemNoise()) as kept:
        progress = kept.load()
    assert progress.steps == len(progress.history) == 3
    (release,) = PLAN.method.releases
    assert (progress.event.event, progress.event.count) == (release.event, 3)
    run(PLAN, rows(), SystemNoise(), checkpoint=path)
    with checkpoint.opened(path, PLAN, SystemNoise()) as kept, pytest.warns(match="complete"):
        assert kept.load().event == canonical(PLAN.method.mechanisms)


def test_an_event_that_is_lost_in_the_file_is_found_out(tmp_path):
    path = tmp_path / "kept"
    interrupted(path)
    with checkpoint.opened(path, PLAN, SystemNoise()) as kept:
        progress = kept.load()
        kept.save(dataclasses.replace(progress, event=PLAN.method.releases[0].event))
    with pytest.raises(PlanMismatchError, match="planned to release"):
        run(PLAN, rows(), SystemNoise(), checkpoint=path)


def test_steps_are_reported_after_they_are_on_disk(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    heard = []

    def hear(info):
        with np.load(path) as file:
            assert json.loads(file["header"].tobytes())["steps"] == info.step
        heard.append(info.step)

    replace = os.replace

    def fail_at_the_fifth(source, target):
        if len(heard) == 4:
            raise OSError("the disk is full")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_at_the_fifth)
    with pytest.raises(OSError, match="full"):
        run(PLAN, rows(), SystemNoise(), hear, checkpoint=path)
    assert heard == [1, 2, 3, 4]
    assert sorted(os.listdir(tmp_path)) == [".kept.lock", "kept"]
    monkeypatch.setattr(os, "replace", replace)
    run(PLAN, rows(), SystemNoise(), hear, checkpoint=path)
    assert heard == [1, 2, 3, 4, 5, 6]


def test_a_ledger_pays_once(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=BUDGET)
    path = tmp_path / "kept"
    interrupted(path, ledger=ledger)
    interrupted(path, after=5, ledger=ledger)
    solution = run(PLAN, rows(), SystemNoise(), ledger=ledger, checkpoint=path)
    (entry,) = ledger.contents().entries
    assert solution.ledger_entry.entry == entry.id


def test_another_plan_is_refused(tmp_path):
    path = tmp_path / "kept"
    interrupted(path)
    before = path.read_bytes()
    for other, differs in (
        (plan_of(NoisyGD(n_steps=7)), r"plan\.method\.step_sizes was"),
        (
            plan_of(NoisyGD(n_steps=6), Squared()),
            r'plan\.method\.problem\.loss was "logistic", is "squared"',
        ),
        (
            plan_of(NoisyGD(n_steps=6), budget=ApproximateDP(1.1, 1e-5)),
            r"plan\.budget\.epsilon was 1\.0, is 1\.1",
        ),
        (plan_of(pure_gd(n_steps=6)), r'plan\.method\.noise was "gaussian_noise", is "l2_noise"'),
    ):
        with pytest.raises(PlanMismatchError, match=f"of another fit: .*{differs}"):
            run(other, rows(), SystemNoise(), checkpoint=path)
    data = dataclasses.replace(DATA, row_norm=2.0)
    other = NoisyGD(n_steps=6).plan(PLAN.problem, BUDGET, data)
    longer = prepare_rows(np.zeros((N, D)), np.ones(N), data)
    with pytest.raises(PlanMismatchError, match=r"plan\.data\.row_norm was 1\.0, is 2\.0"):
        run(other, longer, SystemNoise(), checkpoint=path)
    assert path.read_bytes() == before


def test_unkeepable_state_is_refused_before_spending(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=BUDGET)
    path = tmp_path / "kept"
    steady = NoisyGD(n_steps=40, clip=0.3, momentum=0.0, schedule=Constant(), step_size=1.0)
    penalized = Problem(Logistic(), L2(0.5), penalize_intercept=True)
    secret = steady.plan(penalized, GaussianDP(1.0), DATA)
    assert not secret.method.releases_iterates
    holding = (
        "releases about disjoint parts of the rows count once only if one run records all of them"
    )
    wrapped = plan_of(Preprocessed([Center()], LocalSGD(n_blocks=3)))
    for plan, noise, message in (
        (secret, SystemNoise(), "its privacy needs secret iterates"),
        (plan_of(LocalSGD(n_blocks=3)), SystemNoise(), holding),
        (wrapped, SystemNoise(), holding),
        (PLAN, SeededNoise(0), "with reproducible noise"),
    ):
        with pytest.raises(ValueError, match=f"checkpoint must be None.*{message}"):
            run(plan, rows(), noise, ledger=ledger, checkpoint=path)
    with pytest.raises(FileNotFoundError):
        run(PLAN, rows(), SystemNoise(), ledger=ledger, checkpoint=tmp_path / "nowhere" / "kept")
    assert ledger.contents().entries == ()
    assert not path.exists()


def test_a_state_of_unknown_kind_is_refused_both_ways(tmp_path):
    path = tmp_path / "kept"
    with checkpoint.opened(path, PLAN, SystemNoise()) as kept:
        for state in (object(), {"a": 1}, np.array([object()]), [1]):
            with pytest.raises(ValueError, match="its state cannot be written: state must be"):
                kept.save(checkpoint.Progress(1, state))
    with checkpoint_file.states((DescentState,), {}):
        for kind in ("subprocess.Popen", "newton_state", "gaussian"):
            with pytest.raises(ValueError, match=r"type must be one of \['descent_state'\]"):
                decode(Holder, {"inner": {"type": kind, "args": ["true"]}})


def test_states_keep_nan_and_arrays_that_are_shared():
    w, arrays = np.array([math.nan, math.inf]), {}
    state = DescentState(1, w, w, np.zeros(2), np.ones(1), math.nan)
    with checkpoint_file.states((DescentState,), arrays):
        written = json.loads(json.dumps(encode(Holder(state))))
        found = decode(Holder, written).inner
    assert sorted(arrays) == ["array_0", "array_1", "array_2"]
    assert found.w is found.velocity is w
    assert math.isnan(found.share)


@dataclasses.dataclass(frozen=True)
class Holder:
    inner: checkpoint_file.AnyState | None


def test_files_other_than_checkpoints_are_kept(tmp_path):
    path = tmp_path / "kept"
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, header=np.array([object()]))
    for content in (b"", b"text", (tmp_path / "other.npz").read_bytes(), pickled.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"kept is (damaged, or no|not a) checkpoint"):
            run(PLAN, rows(), SystemNoise(), checkpoint=path)
        assert path.read_bytes() == content


def test_two_processes_cannot_go_on_at_once(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "kept"
    with (
        checkpoint.opened(path, PLAN, SystemNoise()),
        pytest.raises(OSError, match="another process is using"),
    ):
        run(PLAN, rows(), SystemNoise(), checkpoint=path)
    run(PLAN, rows(), SystemNoise(), checkpoint=path)
