"""Steps and a solver under one budget: shares, order, inverse maps, and refusals."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Song2021, dpsgd_f_theoretical
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, gdp
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.events import BoundedRange, Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, Logistic, Problem, Softmax
from dpglm.solvers import (
    SOLVERS,
    Newton,
    NoisyGD,
    NoisySGD,
    OutputPerturbation,
    Preprocessed,
    dpsgd_f,
    pure_gd,
    run,
)
from dpglm.solvers.parts.defaults import stage_seed
from tests.audit.attack import released_sums
from tests.preprocessing.support import oracle_of

DATA = DataSpec(n_rows=4000, n_features=3, row_norm=5.0, intercept=5.0)
PROBLEM = Problem(Logistic())
BUDGET = ApproximateDP(1.0, 1e-5)
GD = NoisyGD(n_steps=20)


def mu_of(plan):
    return math.sqrt(sum(one.count / one.noise_multiplier**2 for one in plan.method.releases))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_shares_are_of_mu_squared_and_nothing_is_left(adjacency):
    solver = Preprocessed([Center(), Scale()], GD, shares=[0.1, 0.3])
    plan = solver.plan(PROBLEM, BUDGET, DATA, adjacency)
    mu = BUDGET.gdp_mu()
    center, scale, model = plan.method.releases
    assert center.noise_multiplier == pytest.approx(1.0 / (math.sqrt(0.1) * mu))
    assert scale.noise_multiplier == pytest.approx(1.0 / (math.sqrt(0.3) * mu))
    assert math.sqrt(model.count) / model.noise_multiplier == pytest.approx(math.sqrt(0.6) * mu)
    assert mu_of(plan) == pytest.approx(mu, rel=1e-8)
    assert mu_of(plan) <= mu
    assert plan.event.terms


def test_step_rules_may_be_mixed_with_given_shares():
    mu = BUDGET.gdp_mu()
    plans = [
        Preprocessed([Center(), Whiten()], GD, shares=shares).plan(PROBLEM, BUDGET, DATA)
        for shares in (None, [None, None], [Center().share(DATA, mu), Whiten().share(DATA, mu)])
    ]
    noises = [[one.scale.std for one in plan.method.releases] for plan in plans]
    assert noises[0] == noises[1] == pytest.approx(noises[2])


def test_a_budget_in_mu_is_spent_to_the_last_bit():
    plan = Preprocessed([Center()], GD).plan(PROBLEM, GaussianDP(0.5), DATA)
    assert mu_of(plan) == pytest.approx(0.5, rel=1e-8)
    assert within_budget(plan.event, Adjacency.ZERO_OUT, GaussianDP(0.5))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("step", [ClipToQuantile(), ClipToQuantile(unbounded=True)], ids=str)
def test_unspent_share_of_a_choice_goes_to_the_solver(step, epsilon, adjacency):
    budget = ApproximateDP(epsilon, 1e-5)
    plan = Preprocessed([step], GD, shares=[0.3]).plan(PROBLEM, budget, DATA, adjacency)
    assert within_budget(plan.event, adjacency, budget)
    assert 0.99 * epsilon < plan.privacy()["epsilon"] <= epsilon
    model = plan.method.releases[-1]
    left = math.sqrt(model.count) / model.noise_multiplier
    assert left > math.sqrt(0.7) * gdp.mu(epsilon, 1e-5) * 0.9999


@pytest.mark.parametrize(
    ("step", "solver"),
    [
        (Center(), NoisySGD(n_steps=20, sampling_rate=0.1)),
        (Center(), pure_gd(n_steps=5)),
        (ClipToQuantile(), pure_gd(n_steps=5)),
    ],
    ids=["center, sampled", "center, pure", "clip, pure"],
)
def test_solvers_that_are_not_gaussian_get_as_much_as_composes(step, solver):
    plan = Preprocessed([step], solver).plan(PROBLEM, BUDGET, DATA)
    assert within_budget(plan.event, Adjacency.ZERO_OUT, BUDGET)
    # Halving goes on to 1/256 of epsilon.
    assert plan.privacy()["epsilon"] > 0.9


def test_choices_cannot_be_weighed_against_a_budget_in_mu():
    with pytest.raises(ValueError, match="budget must be given as"):
        Preprocessed([ClipToQuantile()], GD).plan(PROBLEM, GaussianDP(0.5), DATA)


def test_steps_that_cost_nothing_leave_everything():
    alone = GD.plan(PROBLEM, BUDGET, dataclasses.replace(DATA, n_features=2))
    plan = Preprocessed([RandomProjection(2)], GD).plan(PROBLEM, BUDGET, DATA)
    (model,) = plan.method.releases
    (expected,) = alone.method.releases
    assert model.noise_multiplier == pytest.approx(expected.noise_multiplier, rel=1e-8)


def test_each_step_sees_the_rows_of_the_one_before():
    steps = [Center(row_norm=2.0), ClipToQuantile(), RandomProjection(2), Scale(row_norm=1.2)]
    plan = Preprocessed(steps, GD).plan(PROBLEM, BUDGET, DATA)
    seen = [(s.data.row_norm, s.data.n_features) for s in plan.method.steps if hasattr(s, "data")]
    assert seen == [(5.0, 3), (2.0, 3), (1.0, 3), (1.0, 2)]
    assert (plan.method.model.data.row_norm, plan.method.model.data.intercept) == (1.2, 1.2)
    assert plan.n_steps == 4 + 20


def test_namesakes_are_told_apart():
    plan = Preprocessed([Center(), Scale(), Center(), Center()], GD).plan(PROBLEM, BUDGET, DATA)
    assert plan.method.names == ("center", "scale", "center 2", "center 3")
    assert [one.quantity for one in plan.method.releases][-2:] == [
        "center 3: row sum",
        "model: clipped gradient sum",
    ]
    assert [one.name for one in plan.method.stages] == [*plan.method.names, "model"]


def make_data(n=4000, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 0.05, 0.3] + [2.0, 0.0, -1.0]
    z = 2.0 * (X[:, 0] - 2.0) + 40.0 * X[:, 1] + 0.5
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    return X, (y > 0).astype(int) if outputs > 1 else y


STEPS = {
    "center": [Center()],
    "center and scale": [Center(), Scale()],
    "center and whiten": [Center(), Whiten()],
    "around medians": [InstanceOptimalCenter(), ClipToQuantile()],
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_coefficients_are_for_the_rows_before_all_steps(name, outputs):
    X, y = make_data(outputs=outputs)
    data = dataclasses.replace(DATA, n_outputs=outputs)
    problem = Problem(Softmax() if outputs > 1 else Logistic(), L2(1e-4))
    solver = Preprocessed(STEPS[name], NoisyGD(n_steps=150, clip=10.0))
    plan = solver.plan(problem, ApproximateDP(1e4, 1e-2), data)
    w = run(plan, prepare_rows(X, y, data), SeededNoise(0)).w
    scores = np.column_stack([X, np.full(len(X), 5.0)]) @ w
    guesses = scores.argmax(axis=1) if outputs > 1 else np.sign(scores)
    assert (guesses == y).mean() > 0.78
    assert w.shape == data.coefficient_shape


def test_columns_of_unequal_size_are_learned_only_if_scaled():
    X, y = make_data()
    accuracy = []
    for solver in (NoisyGD(), Preprocessed([Center(), Scale()])):
        plan = solver.plan(PROBLEM, BUDGET, DATA)
        w = run(plan, prepare_rows(X, y, DATA), SeededNoise(0)).w
        accuracy.append((np.sign(np.column_stack([X, np.full(4000, 5.0)]) @ w) == y).mean())
    assert accuracy[1] > accuracy[0] + 0.02


def test_noise_is_estimated_in_the_coordinates_that_are_returned():
    X, y = make_data()
    # So little is left to the model that maps are the same in every run next to its noise.
    solver = Preprocessed([Center(), Scale()], Newton(), shares=[0.95, 0.0499])
    plan = solver.plan(PROBLEM, ApproximateDP(20.0, 1e-5), DATA)
    rows = prepare_rows(X, y, DATA)
    runs = [run(plan, rows, SeededNoise(seed)) for seed in range(60)]
    found = np.std([one.w for one in runs], axis=0)
    declared = np.median([one.coefficient_noise for one in runs], axis=0)
    assert declared.shape == (4,)
    assert ((0.5 * declared < found) & (found < 2.0 * declared)).all()
    assert plan.coefficient_noise > 0.0


def test_random_bits_of_stages_are_their_own():
    X, y = make_data(n=40)
    data = dataclasses.replace(DATA, n_rows=40)
    steps = [RandomProjection(3), RandomProjection(3)]
    plan = Preprocessed(steps, NoisyGD(n_steps=1)).plan(PROBLEM, BUDGET, data)
    state = plan.method.init(5)
    oracle = oracle_of(prepare_rows(X, y, data))
    for _ in range(2):
        state, info = plan.method.step(state, oracle)
    assert np.abs(state.maps[0].matrix - state.maps[1].matrix).max() > 0.1
    assert len({stage_seed(5, number) for number in range(3)}) == 3
    assert math.isnan(info.gradient_norm)


def test_one_huge_row_shows_in_no_release():
    """Every released sum, stage after stage, on neighbours, with its noise."""
    X, y = make_data(n=300)
    data = dataclasses.replace(DATA, n_rows=300)
    other = X.copy()
    other[17] = [1e30, -1e30, 1e30]
    solver = Preprocessed([Center(), Whiten(), Scale()], NoisyGD(n_steps=3))
    plan = solver.plan(PROBLEM, BUDGET, data, Adjacency.REPLACE_ONE)
    sums = []
    for rows in (X, other):
        with released_sums() as seen:
            run(plan, prepare_rows(rows, y, data), SeededNoise(0))
        sums.append(seen)
    (first, std), (second, _) = sums[0][0], sums[1][0]
    assert np.linalg.norm(first - second) <= std / plan.method.releases[0].noise_multiplier
    for total, std in sums[1]:
        assert np.isfinite(total).all()
        assert np.linalg.norm(total) < 1e4 * std


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Preprocessed([]), "steps must be"),
        (lambda: Preprocessed(["center"]), "steps must be"),
        (lambda: Preprocessed([Center()], "noisy_gd"), "solver must be"),
        (lambda: Preprocessed([Center()], shares=[0.1, 0.1]), "shares must be 1"),
        (lambda: Preprocessed([Center()], shares=[0.0]), "shares must be"),
        (lambda: Preprocessed([Center()], shares=[1.0]), "shares must be"),
        (
            lambda: Preprocessed([Center(), Center()], shares=[0.6, 0.4]).plan(
                PROBLEM, BUDGET, DATA
            ),
            "shares must be below 1 together",
        ),
    ],
)
def test_settings_are_validated(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_double_precision_is_asked_for_where_the_solver_does():
    assert Preprocessed([Center()], OutputPerturbation()).needs_float64(Problem(Logistic()), BUDGET)
    assert not Preprocessed([Center()]).needs_float64(Problem(Logistic()), BUDGET)


def test_the_two_forms_of_dpsgd_f():
    assert SOLVERS["dpsgd_f"]() == dpsgd_f() == Preprocessed([Center()], NoisyGD(), shares=[None])
    theory = dpsgd_f_theoretical(shares=(1 / 3, 1 / 3))
    assert theory.steps == (InstanceOptimalCenter(), ClipToQuantile(quantile=None))
    plan = theory.plan(PROBLEM, BUDGET, DATA)
    model = plan.method.model
    assert isinstance(theory.solver, Song2021)
    # Rows (x - mean, tau) in units of tau, and gradients of slopes up to 1 that fit on them.
    assert (model.data.row_norm, model.data.intercept) == (1.0, 1.0)
    assert model.method.clipping.bound == pytest.approx(math.sqrt(2.0))
    kinds = [type(one.event) for one in plan.method.releases]
    assert kinds == [BoundedRange, BoundedRange, Gaussian, BoundedRange, Gaussian]
    assert dpsgd_f_theoretical(GD).solver is GD
