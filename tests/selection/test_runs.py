"""Runs: rows stay in their part, stages follow the plan, and choices are useful."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import gradient_release
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.privacy.releases import Curator
from dpglm.privacy.selection.choices import PermuteAndFlip
from dpglm.problem import L2, Logistic, Problem, Savage, Softmax, Squared, Tangent
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.selection.method import partition
from dpglm.solvers import Constant, NoisyGD, Outcome, Solver, run
from dpglm.solvers.base import Method, StepInfo
from dpglm.solvers.parts.defaults import stage_seed
from tests.audit.attack import released_sums

BUDGET = ApproximateDP(1.0, 1e-5)
GD = NoisyGD(n_steps=4, step_size=0.5, clip=0.5)


def make_data(n, dtype="float64", layout="dense", n_outputs=1, scale=4.0, seed=0, d=4):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    signal = scale * rng.normal(size=(d, max(n_outputs, 2)))
    scores = X @ signal + rng.gumbel(size=(n, max(n_outputs, 2)))
    y = scores.argmax(axis=1) if n_outputs > 1 else np.where(scores[:, 0] > scores[:, 1], 1.0, -1.0)
    spec = DataSpec(n, d, n_outputs=n_outputs, intercept=1.0, dtype=dtype, sparse=layout == "csr")
    matrix = X.astype(dtype)
    return prepare_rows(sparse.csr_array(matrix) if layout == "csr" else matrix, y, spec), X, y


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize(
    ("dtype", "layout", "n_outputs"),
    [("float64", "dense", 1), ("float32", "dense", 3), ("float32", "csr", 1)],
)
@pytest.mark.parametrize(
    "solver",
    [
        BestIterate(n_steps=4),
        NormGridSearch(GD, bounds=(1.0, 4.0)),
        ConfidenceBoosting(GD, n_models=3),
        NormGridSearch(ConfidenceBoosting(GD, n_models=2), bounds=(1.0, 4.0)),
        ConfidenceBoosting(BestIterate(n_steps=4), n_models=2),
    ],
    ids=["best", "grid", "boosting", "grid of boosting", "boosting of best"],
)
def test_run_follows_plan(solver, adjacency, dtype, layout, n_outputs):
    rows, _, _ = make_data(60, dtype, layout, n_outputs)
    problem = Problem(Softmax() if n_outputs > 1 else Savage(), L2(0.01))
    plan = solver.plan(problem, BUDGET, rows.spec, adjacency)
    seen: list[StepInfo] = []
    solution = run(plan, rows, SeededNoise(1), seen.append)
    assert solution.w.shape == rows.spec.coefficient_shape
    assert np.isfinite(solution.w).all()
    # Steps are numbered from end to end; a choice does not have a gradient.
    assert [info.step for info in seen] == list(range(1, plan.n_steps + 1))
    assert np.isnan(seen[-1].gradient_norm)
    assert np.isfinite(seen[0].gradient_norm)
    assert solution.history == tuple(seen)
    quantities = [release.quantity for release in plan.method.releases]
    assert len(set(quantities)) == len(quantities)


def test_best_iterate_with_a_private_number_of_rows():
    rows, _, _ = make_data(60)
    plan = BestIterate(n_steps=4).plan(
        Problem(Tangent(), L2(0.1)), BUDGET, rows.spec, Adjacency.ADD_REMOVE
    )
    fewer = rows.take(np.arange(59))
    assert np.isfinite(run(plan, fewer, SeededNoise(0)).w).all()


def test_a_training_sees_the_rows_of_its_part_only():
    rows, X, y = make_data(40)
    plan = ConfidenceBoosting(GD, n_models=2).plan(Problem(Logistic()), BUDGET, rows.spec)
    seed = int(SeededNoise(3).words(1)[0])
    parts = partition(seed, plan.method.part_sizes)

    def sums(changed):
        other = X.copy()
        other[changed] *= -1.0
        with released_sums() as seen:
            run(plan, prepare_rows(other, y, rows.spec), SeededNoise(3))
        return [value for value, _ in seen]

    whole = sums(np.array([], dtype=int))
    assert len(whole) == 2 * GD.n_steps
    for part, own in ((0, slice(0, 4)), (1, slice(4, 8)), (2, slice(0, 0))):
        changed = sums(parts[part])
        differs = [not np.array_equal(a, b) for a, b in zip(whole, changed, strict=True)]
        assert all(differs[own])
        del differs[own]
        assert not any(differs)


def scores_of_choice(plan, rows, seed):
    """Arguments of the last question of a run."""
    release, told = Curator.release, []

    def quiet(self, declared, value):
        if not isinstance(declared.mechanism, PermuteAndFlip):
            return release(self, declared, value)
        told.append(value.value)
        return 0

    # A choice that is not recorded is noticed in the end.
    with mock.patch.object(Curator, "release", quiet), pytest.raises(PlanMismatchError):
        run(plan, rows, SeededNoise(seed))
    (scores,) = told
    return scores


def test_the_choice_sees_the_rows_of_the_last_part_only():
    rows, X, y = make_data(40)
    plan = ConfidenceBoosting(GD, n_models=2).plan(Problem(Logistic()), BUDGET, rows.spec)
    parts = partition(int(SeededNoise(3).words(1)[0]), plan.method.part_sizes)
    whole = scores_of_choice(plan, rows, 3)
    assert whole.shape == (2,)
    # Rows that train change the models, so their sums are scripted away.
    fixed = mock.patch.object(
        additive, "add_gaussian", lambda value, *_: np.arange(value.size, dtype=float)
    )
    with fixed:
        base = scores_of_choice(plan, rows, 3)
        for part, matters in ((0, False), (1, False), (2, True)):
            other = X.copy()
            other[parts[part]] *= -1.0
            changed = scores_of_choice(plan, prepare_rows(other, y, rows.spec), 3)
            assert np.array_equal(base, changed) is not matters


@dataclass(frozen=True)
class Halved(Method[Any]):
    """One gradient of rows that ``prepare`` scales by public randomness."""

    problem: Problem
    data: DataSpec

    n_steps = 1
    gradient_evaluations = 1.0
    coefficient_noise = 1.0

    @property
    def releases(self):
        noise = additive.GaussianNoise(5.0)
        return (gradient_release(self.data, Adjacency.ZERO_OUT, FlatClipping(9.0), noise),)

    def prepare(self, rows, seed):
        return prepare_rows(
            np.full((rows.n_rows, self.data.n_features), seed * 2.0**-65),
            np.ones(rows.n_rows),
            rows.spec,
        )

    def init(self, seed):
        return seed * 2.0**-64

    def step(self, state, oracle):
        zero = np.zeros(self.data.coefficient_shape)
        (declared,) = self.releases
        return oracle.noisy_gradient(declared, zero, FlatClipping(9.0)), StepInfo(1, 1.0)

    def finish(self, state):
        return Outcome(state)


@dataclass(frozen=True)
class Halving(Solver):
    def decide(self, facts):
        return facts.plan(Halved(facts.problem, facts.data))


def test_each_stage_prepares_rows_with_own_public_randomness():
    rows, _, _ = make_data(30)
    plan = ConfidenceBoosting(Halving(), n_models=2).plan(Problem(Logistic()), BUDGET, rows.spec)
    seed = int(SeededNoise(5).words(1)[0])
    with released_sums() as seen:
        run(plan, rows, SeededNoise(5))
    for stage, (value, _) in enumerate(seen):
        # Slopes are -1/2 at zero.
        expected = -0.5 * 12 * stage_seed(seed, stage) * 2.0**-65
        np.testing.assert_allclose(value[:-1], expected)
    assert seen[0][0][0] != seen[1][0][0]


def risk(loss, X, y, w):
    return float(loss.value(X @ w[:-1] + w[-1], y).mean())


def test_grid_search_finds_a_good_norm_bound():
    # A strong signal needs a large bound; where there is none, it is best to stay at zero.
    solver = NormGridSearch(NoisyGD(n_steps=100, step_size=2.0), bounds=(0.5, 4.0, 16.0))

    def fits(data, bounds, seeds):
        one = dataclasses.replace(solver, bounds=bounds)
        plan = one.plan(Problem(Logistic()), BUDGET, data.spec)
        return [run(plan, data, SeededNoise(seed)).w for seed in seeds]

    rows, X, y = make_data(4000, scale=20.0, seed=1)
    found = [risk(Logistic(), X, y, w) for w in fits(rows, (0.5, 4.0, 16.0), range(3))]
    best = risk(Logistic(), X, y, fits(rows, (16.0,), [0])[0])
    next_best = risk(Logistic(), X, y, fits(rows, (4.0,), [0])[0])
    assert next_best - best > 0.05
    assert np.median(found) - best < 0.2 * (next_best - best)
    noise, _, _ = make_data(4000, scale=0.0, seed=1)
    norms = [np.linalg.norm(w[:-1]) for w in fits(noise, (0.5, 4.0, 16.0), range(3))]
    assert np.median(norms) <= 0.5


def test_boosting_chooses_better_than_the_median_model():
    rows, X, y = make_data(6000, seed=2)
    # Steps far too long for the noise: models differ widely.
    solver = ConfidenceBoosting(NoisyGD(n_steps=20, step_size=400.0, schedule=Constant()))
    plan = solver.plan(Problem(Logistic()), BUDGET, rows.spec)
    models: list[np.ndarray] = []
    choose = type(plan.method.choice).choose

    def listening(choice, candidates, oracle, declared):
        models.extend(candidates)
        return choose(choice, candidates, oracle, declared)

    gains = []
    with mock.patch.object(type(plan.method.choice), "choose", listening):
        for seed in range(8):
            models.clear()
            w = run(plan, rows, SeededNoise(seed)).w
            others = sorted(risk(Logistic(), X, y, one) for one in models)
            assert len(others) == 5
            gains.append(others[2] - risk(Logistic(), X, y, w))
    assert np.median(gains) > 0.0
    assert np.mean(gains) > 0.04


@pytest.mark.parametrize("loss", [Savage(), Tangent()], ids=repr)
def test_best_iterate_beats_the_last_where_the_last_is_bad(loss):
    rows, X, y = make_data(4000, seed=3)
    # Steps far above 1 / beta: iterates jump about.
    solver = BestIterate(n_steps=40, step_size=60.0 / loss.smoothness, choice_share=0.3)
    plan = solver.plan(Problem(loss), ApproximateDP(2.0, 1e-5), rows.spec)
    clip, augmented = plan.method.descent.clipping, np.column_stack([X, np.ones(len(X))])

    def norm(w):
        slopes = loss.slope(augmented @ w, y)
        clipped = clip.scale(slopes, np.linalg.norm(augmented, axis=1))
        return float(np.linalg.norm(augmented.T @ clipped) / len(X))

    iterates: list[np.ndarray] = []
    step = type(plan.method.descent).step

    def listening(method, state, oracle):
        new, info = step(method, state, oracle)
        iterates.append(new.w)
        return new, info

    with mock.patch.object(type(plan.method.descent), "step", listening):
        chosen = [norm(run(plan, rows, SeededNoise(seed)).w) for seed in range(4)]
    norms = np.array([norm(w) for w in iterates]).reshape(4, 40)
    assert (chosen <= np.quantile(norms, 0.3, axis=1)).all()


def test_best_iterate_returns_an_iterate_with_its_penalty():
    rows, X, y = make_data(500)
    problem = Problem(Squared(), L2(0.5))
    spec = dataclasses.replace(rows.spec, target_low=-1.0, target_high=1.0)
    rows = prepare_rows(X, y, spec)
    solver = BestIterate(n_steps=300, choice_share=0.5, clip=5.0)
    plan = solver.plan(problem, ApproximateDP(100.0, 1e-2), spec)
    w = run(plan, rows, SeededNoise(0)).w
    augmented = np.column_stack([X, np.ones(len(X))])
    penalty = np.diag([0.5] * 4 + [0.0])
    exact = np.linalg.solve(augmented.T @ augmented / len(X) + penalty, augmented.T @ y / len(X))
    np.testing.assert_allclose(w, exact, atol=0.02)
