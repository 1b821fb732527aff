"""Private Frank-Wolfe: its path, its defaults, its accounting, its place in estimators."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm import LogisticRegression
from dpglm.certificate import verify
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.choices import entry_bound
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import GaussianDP
from dpglm.privacy.events import BoundedRange, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.selection import choices as mechanisms
from dpglm.problem import (
    L1,
    L2,
    Hinge,
    L1Ball,
    L2Ball,
    Logistic,
    Problem,
    Softmax,
    Squared,
    Unconstrained,
)
from dpglm.solvers import FrankWolfe, run

BUDGET = ApproximateDP(1.0, 1e-5)
NEARLY_FREE = ApproximateDP(1e6, 1e-5)
DATA = DataSpec(n_rows=10_000, n_features=50, row_norm=5.0, intercept=5.0, entry_bound=0.5)


def plan_of(problem=None, budget=BUDGET, data=DATA, adjacency=Adjacency.ZERO_OUT, **settings):
    problem = problem or Problem(Logistic(), constraint=L1Ball(3.0))
    return FrankWolfe(**settings).plan(problem, budget, data, adjacency)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": 0}, "n_steps must be an integer of at least 1, got 0"),
        ({"n_steps": 2.5}, "n_steps must be an integer of at least 1, got 2.5"),
        ({"radius": 0.0}, "radius must be a finite number above 0, got 0.0"),
        ({"radius": math.inf}, "radius must be a finite number above 0, got inf"),
        ({"slope_clip": 0.0}, "slope_clip must be a finite number at least 1e-15"),
        ({"slope_clip": 1e16}, "slope_clip must be a finite number at least 1e-15"),
    ],
    ids=str,
)
def test_settings_are_validated(settings, message):
    with pytest.raises(ValueError, match=message):
        FrankWolfe(**settings)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(Logistic(), L1(0.1)), "regularizer must be NoPenalty or L2"),
        (Problem(Logistic(), constraint=L2Ball(1.0)), "constraint must be an L1Ball or Uncon"),
        (Problem(Logistic(), constraint=L1Ball(1.0)), "radius must be at most the constraint's 1"),
    ],
    ids=["penalty", "constraint", "radius"],
)
def test_problems_that_do_not_fit_are_refused(problem, message):
    with pytest.raises(ValueError, match=message):
        plan_of(problem, radius=2.0)


def test_budgets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="budget must be given as"):
        plan_of(budget=GaussianDP(1.0))
    with pytest.raises(ValueError, match="budget must leave an epsilon of at least"):
        plan_of(budget=ApproximateDP(1e-8, 0.0), n_steps=100)
    float32 = dataclasses.replace(DATA, dtype="float32")
    with pytest.raises(ValueError, match="dtype must be 'float64'"):
        plan_of(data=float32, adjacency=Adjacency.ADD_REMOVE)


def steps_for(signal, delta=1e-5, adjacency=Adjacency.ZERO_OUT, weight_bound=1.0):
    data = dataclasses.replace(DATA, n_rows=signal, weight_bound=weight_bound)
    return plan_of(budget=ApproximateDP(1.0, delta), data=data, adjacency=adjacency).n_steps


def test_the_default_number_of_steps_follows_rows_times_epsilon():
    # 0.35 s^(2/3) from 60 to 600; 0.3 sqrt(s) from 10 where delta is 0.
    assert [steps_for(s) for s in (100, 8000, 27_000, 10**6)] == [60, 140, 315, 600]
    assert [steps_for(s, 0.0) for s in (100, 10_000, 40_000, 10**8)] == [10, 30, 60, 600]
    assert steps_for(16_000, adjacency=Adjacency.REPLACE_ONE) == 140
    assert steps_for(16_000, weight_bound=2.0) == 140


def test_the_default_radius():
    assert plan_of().method.radius == 3.0
    assert plan_of(radius=2.0).method.radius == 2.0
    free = plan_of(Problem(Logistic()), n_steps=100).method
    # 0.44 sqrt(T) slope units over curvature and entry bound.
    assert free.radius == pytest.approx(0.44 * 10.0 * 4.0 / 0.5)
    assert plan_of(Problem(Logistic()), n_steps=100, radius=7.0).method.radius == 7.0
    # The hinge loss is without curvature.
    kinked = plan_of(Problem(Hinge()), n_steps=100).method
    assert kinked.radius == pytest.approx(0.44 * 10.0 / 0.5)


def test_the_default_slope_clip():
    assert plan_of().method.slope_clip == 0.6
    targets = dataclasses.replace(DATA, target_low=-3.0, target_high=1.0)
    assert plan_of(Problem(Squared()), data=targets).method.slope_clip == pytest.approx(1.8)
    several = dataclasses.replace(DATA, n_outputs=3)
    assert plan_of(Problem(Softmax()), data=several).method.slope_clip == pytest.approx(1.0)
    assert plan_of(slope_clip=0.25).method.slope_clip == 0.25


def test_largest_entry_is_that_of_columns_sharing_the_ball():
    def largest(*facts, **options):
        method = plan_of(*facts, **options).method
        return method.releases[0].contribution_bound / method.slope_clip

    problem = Problem(Logistic(), constraint=L1Ball(3.0), penalize_intercept=True)
    assert largest() == 0.5
    assert largest(problem) == 5.0
    undeclared = dataclasses.replace(DATA, entry_bound=math.inf)
    assert largest(data=undeclared) == 5.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_accounting_agrees_with_concentrated_and_pure_dp(delta, adjacency):
    plan = plan_of(budget=ApproximateDP(1.0, delta), adjacency=adjacency, n_steps=40)
    (release,) = plan.method.releases
    epsilon = plan.method.choice_epsilon
    assert plan.event == Repeated(BoundedRange(epsilon), 40)
    assert release.event == BoundedRange(epsilon)
    if delta == 0.0:
        assert epsilon == pytest.approx(1.0 / 40)
    else:
        # (e^2 / 8)-zCDP each (Cesar and Rogers), converted by Bun and Steinke's Proposition 1.3.
        rho = 40 * epsilon**2 / 8.0
        assert 1.0 <= rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)) <= 1.35
    accountant = accountant_for(plan.event, adjacency)
    assert 0.99 <= accountant.epsilon(plan.event, adjacency, delta) <= 1.0


def test_noise_is_doubled_for_replace_one_at_equal_epsilon():
    def sensitivity(adjacency):
        method = plan_of(adjacency=adjacency, n_steps=10).method
        return method.releases[0].scale.std * method.choice_epsilon

    assert sensitivity(Adjacency.REPLACE_ONE) == 2.0 * sensitivity(Adjacency.ZERO_OUT)
    exact = 2.0 * 0.6 * 0.5
    assert exact < sensitivity(Adjacency.ZERO_OUT) < exact * (1.0 + 1e-7)


def make_data(n=400, d=30, seed=0, n_outputs=1, layout="dense", dtype="float64"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    z = 3.0 * X[:, 0] - 2.0 * X[:, 7] + 0.5
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    if n_outputs > 1:
        y = (y > 0).astype(int) + (X[:, 3] > 0.3)
    data = DataSpec(
        n,
        d,
        n_outputs=n_outputs,
        row_norm=math.sqrt(d),
        intercept=2.0,
        entry_bound=0.8,
        dtype=dtype,
        sparse=layout == "csr",
    )
    stored = sparse.csr_array(X.astype(dtype)) if layout == "csr" else X.astype(dtype)
    return prepare_rows(stored, y, data), X, y, data


def frank_wolfe(X, y, data, problem, radius, clip, steps):
    """The algorithm without noise, from its definition; a free intercept has its own vertices."""
    augmented = np.column_stack([np.clip(X, -0.8, 0.8), np.full(len(X), data.intercept)])
    lengths = np.full(data.coefficient_shape, radius)
    covered = np.ones(data.coefficient_shape)
    if not problem.penalize_intercept:
        lengths[-1] *= entry_bound(data) / data.intercept
        covered[-1] = 0.0
    w = np.zeros(data.coefficient_shape)
    for k in range(1, steps + 1):
        slopes = np.clip(problem.loss.slope(augmented @ w, y), -clip, clip)
        penalty = problem.regularizer.strong_convexity * w * covered
        g = (augmented.T @ slopes + len(X) * penalty) * lengths
        best = np.unravel_index(np.abs(g).argmax(), g.shape)
        vertex = np.zeros_like(w)
        vertex[best] = -np.sign(g[best]) * lengths[best]
        w += 2.0 / (k + 1) * (vertex - w)
    return w


@pytest.mark.parametrize("penalize_intercept", [False, True])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_nearly_free_privacy_gives_frank_wolfe(n_outputs, penalize_intercept):
    rows, X, y, data = make_data(n_outputs=n_outputs)
    loss = Logistic() if n_outputs == 1 else Softmax()
    ball = L1Ball(4.0)
    problem = Problem(loss, L2(0.01), ball, penalize_intercept=penalize_intercept)
    plan = plan_of(problem, NEARLY_FREE, data, n_steps=25, slope_clip=0.4)
    w = run(plan, rows, SeededNoise(0)).w
    expected = frank_wolfe(X, y, data, problem, 4.0, 0.4, 25)
    np.testing.assert_allclose(w, expected, atol=1e-12)
    assert np.abs(w[:-1]).sum() <= 4.0 * (1.0 + 1e-12)
    if penalize_intercept:
        assert ball.contains(w)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_backends_agree(layout, dtype):
    reference = make_data()
    rows, _, _, data = make_data(layout=layout, dtype=dtype)
    results = [
        run(plan_of(Problem(Logistic()), NEARLY_FREE, spec, n_steps=20), each, SeededNoise(0)).w
        for each, spec in ((reference[0], reference[3]), (rows, data))
    ]
    np.testing.assert_allclose(results[1], results[0], atol=1e-6)


def test_the_result_is_sparse_and_in_the_ball():
    rows, _, _, data = make_data(d=300)
    solution = run(plan_of(data=data, n_steps=12), rows, SeededNoise(1))
    assert 0 < np.count_nonzero(solution.w) <= 12
    assert np.abs(solution.w[:-1]).sum() <= 3.0 * (1.0 + 1e-12)
    assert [info.step for info in solution.history] == list(range(1, 13))
    assert solution.history[2].step_size == 0.5
    assert math.isnan(solution.history[0].gradient_norm)


def test_more_columns_than_rows_cost_little():
    risks = []
    for d in (30, 3000):
        rows, X, y, data = make_data(n=2000, d=d)
        plan = plan_of(Problem(Logistic(), constraint=L1Ball(5.0)), BUDGET, data, n_steps=15)
        ws = [run(plan, rows, SeededNoise(seed)).w for seed in range(3)]
        z = [X @ w[:-1] + 2.0 * w[-1] for w in ws]
        risks.append(np.mean([np.logaddexp(0.0, -y * each).mean() for each in z]))
    assert risks[0] < risks[1] < np.log(2.0) - 0.02


def test_declarations_follow_plan():
    rows, _, _, data = make_data()
    for adjacency in Adjacency:
        problem = Problem(Logistic(), L2(0.1), L1Ball(3.0))
        plan = plan_of(problem, data=data, adjacency=adjacency, n_steps=5)
        (release,) = plan.method.releases
        with mock.patch.object(
            mechanisms, "exponential_mechanism", side_effect=mechanisms.exponential_mechanism
        ) as drawn:
            run(plan, rows, SeededNoise(0))
        scales = [2.0 / call.args[2] * call.args[1] for call in drawn.call_args_list]
        assert scales == [release.scale.std] * 5


def test_one_row_of_a_million_changes_its_clipped_part():
    _, X, y, data = make_data()
    X[0] = 1e6
    far = prepare_rows(X, y, data)
    X[0] = 1e30
    farther = prepare_rows(X, y, data)
    plan = plan_of(data=data, n_steps=5)
    a, b = (run(plan, each, SeededNoise(3)).w for each in (far, farther))
    np.testing.assert_array_equal(a, b)


class TestEstimator:
    def fit(self, X, y, **settings):
        options = {"epsilon": 2.0, "delta": 1e-5, "classes": [-1.0, 1.0]} | settings
        options = {"solver": "frank_wolfe", "feature_bounds": (-1, 1), "random_state": 0} | options
        return LogisticRegression(**options).fit(X, y)

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"delta": 0.0},
            {"adjacency": "replace_one"},
            {"adjacency": "add_remove", "n_rows": 2000},
            {"constraint": L1Ball(5.0), "penalize_intercept": True},
            {"fit_intercept": False},
            {"feature_bounds": None, "row_norm": 3.0},
        ],
        ids=str,
    )
    def test_certificates_hold_and_models_learn(self, settings):
        _, X, y, _ = make_data(n=2000)
        model = self.fit(X, y, **settings)
        verification = verify(model.privacy_)
        assert verification.ok, verification.summary()
        assert model.score(X, y) > 0.6
        assert model.solution_.plan.data.entry_bound == (
            1.0 if "row_norm" not in settings else math.inf
        )

    def test_sparse_rows(self):
        _, X, y, _ = make_data(n=2000)
        X[np.abs(X) < 0.5] = 0.0
        model = self.fit(sparse.csr_array(X), y)
        assert model.score(sparse.csr_array(X), y) > 0.65
        assert verify(model.privacy_).ok

    def test_the_default_problem_has_no_constraint(self):
        plan = LogisticRegression(
            epsilon=1.0, delta=1e-5, feature_bounds=(-1, 1), solver="frank_wolfe"
        ).plan(n_rows=10_000, n_features=20)
        assert plan.problem.constraint == Unconstrained()
        assert plan.method.algorithm == "Frank-Wolfe"
