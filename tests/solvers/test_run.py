"""The one loop: it runs the plan to the letter, on the planned data, or returns nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import gradient_release
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import Composed, Event, Gaussian, PoissonSampled, Repeated, canonical
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Bounded, Curator, Release
from dpglm.problem import Logistic, Problem
from dpglm.solvers import NoisyGD, Outcome, run
from dpglm.solvers.base import Method, Plan, StepInfo

SPEC = DataSpec(n_rows=6, n_features=2)
CLIP = FlatClipping(0.5)


def rows_for(spec=SPEC, n=6):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, spec.n_features)).astype(spec.dtype)
    return prepare_rows(sparse.csr_array(X) if spec.sparse else X, np.ones(n), spec)


@dataclass(frozen=True)
class Scripted(Method[int]):
    """Two steps that release with the given multipliers and sampling rates."""

    script: tuple[tuple[tuple[float, float], ...], ...]
    declared: Event

    problem = Problem(Logistic())
    n_steps = 2
    releases_iterates = True
    gradient_evaluations = 12.0
    releases = ()
    coefficient_noise = 1.0

    @property
    def mechanisms(self) -> Event:
        return self.declared

    @property
    def event(self) -> Event:
        return self.declared

    def init(self, seed: int) -> int:
        return 0

    def step(self, state, oracle):
        for multiplier, rate in self.script[state]:
            noise = GaussianNoise(multiplier)
            declared = gradient_release(SPEC, Adjacency.ZERO_OUT, CLIP, noise, sampling_rate=rate)
            oracle.noisy_gradient(declared, np.zeros(2), CLIP)
        return state + 1, StepInfo(state + 1, 0.1, 1.0)

    def finish(self, state: int) -> Outcome:
        return Outcome(np.zeros(2))


def scripted(script, declared=None):
    declared = Repeated(Gaussian(2.0), 2) if declared is None else declared
    method = Scripted(script, declared)
    return Plan(SPEC, ApproximateDP(5.0, 1e-5), Adjacency.ZERO_OUT, method)


ONCE = ((2.0, 1.0),)


def test_a_method_that_keeps_to_its_plan_passes():
    assert run(scripted((ONCE, ONCE)), rows_for(), SeededNoise(0)).n_steps == 2
    both = Composed((Gaussian(2.0), PoissonSampled(0.5, Gaussian(3.0))))
    run(scripted((ONCE, ((3.0, 0.5),)), both), rows_for(), SeededNoise(0))


@pytest.mark.parametrize(
    "script",
    [
        (ONCE, ONCE + ONCE),
        (ONCE, ()),
        ((), ()),
        (ONCE, ((1.0, 1.0),)),
        (ONCE, ((2.0 * (1 - 1e-15), 1.0),)),
        (ONCE, ((2.0, 0.5),)),
        (ONCE + ONCE, ONCE + ONCE),
    ],
    ids=["twice", "never", "nothing", "less noise", "an ulp less", "sampled", "always twice"],
)
def test_releases_that_were_not_planned_are_refused(script):
    with pytest.raises(PlanMismatchError, match="planned to release"):
        run(scripted(script), rows_for(), SeededNoise(0))


def test_a_noisy_gd_that_declares_less_than_it_does_is_refused():
    plan = NoisyGD(n_steps=3, clip=1.0).plan(Problem(Logistic()), GaussianDP(1.0), SPEC)
    other = NoisyGD(n_steps=4, clip=1.0).plan(Problem(Logistic()), GaussianDP(1.0), SPEC)

    class Liar(type(other.method)):
        mechanisms = plan.method.mechanisms

    liar = Liar(**{one.name: getattr(other.method, one.name) for one in dataclasses.fields(Liar)})
    assert liar.n_steps == 4
    with pytest.raises(PlanMismatchError, match="planned to release"):
        run(dataclasses.replace(plan, method=liar), rows_for(), SeededNoise(0))


@pytest.mark.parametrize(
    "change",
    [
        {"n_features": 3},
        {"row_norm": 2.0},
        {"intercept": 1.0},
        {"dtype": "float32"},
        {"sparse": True},
        {"weight_bound": 2.0},
        {"target_high": 1.0},
        {"n_outputs": 3},
        {"n_rows": 7},
    ],
    ids=str,
)
def test_unplanned_facts_are_refused_before_noise(change, monkeypatch):
    plan = NoisyGD(n_steps=3, clip=1.0).plan(Problem(Logistic()), GaussianDP(1.0), SPEC)
    monkeypatch.setattr(SystemNoise, "words", None)
    with pytest.raises(PlanMismatchError, match="plan is for"):
        run(plan, rows_for(dataclasses.replace(SPEC, **change)), SystemNoise())


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_another_number_of_rows_is_refused_where_it_is_public(adjacency, monkeypatch):
    plan = NoisyGD(n_steps=3, clip=1.0).plan(Problem(Logistic()), GaussianDP(1.0), SPEC, adjacency)
    monkeypatch.setattr(SystemNoise, "words", None)
    for n in (5, 7):
        with pytest.raises(PlanMismatchError, match="n_rows=6"):
            run(plan, rows_for(n=n), SystemNoise())


def test_other_number_of_rows_is_accepted_if_private():
    plan = NoisyGD(n_steps=3, clip=1.0).plan(
        Problem(Logistic()), GaussianDP(1.0), SPEC, Adjacency.ADD_REMOVE
    )
    for n in (1, 5, 7):
        assert run(plan, rows_for(n=n), SeededNoise(0)).w.shape == (2,)


def test_history_and_progress_show_each_step_once():
    plan = NoisyGD(n_steps=4, clip=1.0).plan(Problem(Logistic()), GaussianDP(1.0), SPEC)
    shown: list[StepInfo] = []
    solution = run(plan, rows_for(), SeededNoise(0), shown.append)
    assert tuple(shown) == solution.history
    assert [info.step for info in shown] == [1, 2, 3, 4]
    assert [info.step_size for info in shown] == list(plan.method.step_sizes)
    assert solution.plan is plan
    assert solution.n_steps == 4


def test_a_release_is_recorded_before_its_noise_is_drawn():
    # Pitfall 15: a crash must not give a free look.
    class Failing(NoiseSource):
        name, is_private = "failing", False

        def words(self, count):
            raise OSError("no entropy")

    curator = Curator(Adjacency.ZERO_OUT, Failing())
    declared = Release("sum", GaussianNoise(2.0), Adjacency.ZERO_OUT, 1.0, 2, magnitude=2.0)
    with pytest.raises(OSError, match="entropy"):
        curator.release(declared, Bounded(np.zeros(2), 1.0))
    assert curator.event == canonical(Gaussian(2.0))


def test_a_private_sum_does_not_show_itself():
    total = Bounded(np.array([123.456]), 1.0)
    assert "123" not in repr(total)
    assert "123" not in str(total)


def test_runs_with_system_noise_differ_and_seeded_ones_agree():
    plan = NoisyGD(n_steps=2, clip=1.0, sampling_rate=0.5).plan(
        Problem(Logistic()), ApproximateDP(1.0, 1e-5), SPEC
    )
    rows = rows_for()
    assert not np.array_equal(run(plan, rows, SystemNoise()).w, run(plan, rows, SystemNoise()).w)
    np.testing.assert_array_equal(
        run(plan, rows, SeededNoise(4)).w, run(plan, rows, SeededNoise(4)).w
    )
