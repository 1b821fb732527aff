"""Gradient descent with L2 noise: noise that was declared, exact accounting, defaults."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from dpglm import Ridge
from dpglm.certificate import verify
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import GaussianDP
from dpglm.privacy.events import Pure, Repeated
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.problem import L2, L2Ball, Logistic, Problem, Softmax, Squared
from dpglm.solvers import Constant, NoisyGD, UniformAverage, pure_gd, run
from dpglm.solvers.parts import defaults as shrinkage

BUDGET = ApproximateDP(1.0, 0.0)
DATA = DataSpec(n_rows=10_000, n_features=20, intercept=1.0)


def plan_of(problem=None, budget=BUDGET, data=DATA, adjacency=Adjacency.ZERO_OUT, **settings):
    return pure_gd(**settings).plan(problem or Problem(Logistic()), budget, data, adjacency)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": 0}, "n_steps must be an integer of at least 1, got 0"),
        ({"step_size": 0.0}, "step_size must be a finite number above 0, got 0.0"),
        ({"clip": -1.0}, "clip must be a finite number above 0, got -1.0"),
    ],
    ids=str,
)
def test_settings_are_validated(settings, message):
    with pytest.raises(ValueError, match=message):
        pure_gd(**settings)


def test_budgets_in_another_currency_are_refused():
    with pytest.raises(ValueError, match="budget must be given as"):
        plan_of(budget=GaussianDP(1.0))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 3.3])
def test_steps_share_epsilon_exactly(adjacency, epsilon):
    plan = plan_of(budget=ApproximateDP(epsilon, 0.0), adjacency=adjacency, n_steps=7)
    each = plan.method.noise.epsilon
    assert plan.event == Repeated(Pure(each), 7)
    assert Fraction(epsilon) * (1 - Fraction(1, 10**9)) <= 7 * Fraction(each) <= Fraction(epsilon)
    assert plan.privacy()["delta"] == 0.0
    assert plan.privacy()["epsilon"] <= epsilon


def test_a_delta_above_zero_buys_less_noise_for_many_steps():
    pure, approximate = (
        plan_of(budget=ApproximateDP(1.0, delta), n_steps=100) for delta in (0.0, 1e-5)
    )
    assert approximate.method.noise.epsilon > 2.0 * pure.method.noise.epsilon
    # Advanced composition (Dwork, Rothblum and Vadhan 2010) is an upper bound of the same cost.
    e = approximate.method.noise.epsilon
    bound = math.sqrt(200.0 * math.log(1e5)) * e + 100.0 * e * math.expm1(e)
    accountant = accountant_for(approximate.event, Adjacency.ZERO_OUT)
    spent = accountant.epsilon(approximate.event, Adjacency.ZERO_OUT, 1e-5)
    assert 0.99 < spent <= 1.0 <= bound < 1.6


def noise_over_epsilon(adjacency=Adjacency.ZERO_OUT, **facts):
    plan = plan_of(
        data=dataclasses.replace(DATA, **facts), adjacency=adjacency, n_steps=4, clip=0.5
    )
    (release,) = plan.method.releases
    return release.scale.std * plan.method.noise.epsilon


def test_the_scale_is_the_sensitivity_over_epsilon():
    assert 0.5 < noise_over_epsilon() < 0.5 * (1.0 + 1e-5)
    assert noise_over_epsilon(Adjacency.REPLACE_ONE) == pytest.approx(1.0, rel=1e-5)
    assert noise_over_epsilon(weight_bound=3.0) == pytest.approx(1.5, rel=1e-5)
    assert 0.5 < noise_over_epsilon(Adjacency.ADD_REMOVE) < 0.52


def test_noise_grows_with_steps_and_columns():
    def std(n_steps, n_features):
        data = dataclasses.replace(DATA, n_features=n_features)
        return plan_of(data=data, n_steps=n_steps, clip=0.5).method.noise_std

    assert std(20, 20) == pytest.approx(2.0 * std(10, 20), rel=1e-5)
    # m coefficients with the intercept: a factor sqrt(m + 1).
    assert std(10, 98) == pytest.approx(math.sqrt(100.0 / 22.0) * std(10, 20), rel=1e-5)
    gaussian = [
        NoisyGD(n_steps=10, clip=0.5)
        .plan(
            Problem(Logistic()), ApproximateDP(1.0, 1e-5), dataclasses.replace(DATA, n_features=d)
        )
        .method.noise_std
        for d in (20, 98)
    ]
    assert gaussian[1] == pytest.approx(gaussian[0], rel=1e-5)


def test_default_steps_are_few_and_follow_public_facts():
    def steps(epsilon, n_rows=10_000, n_features=20, adjacency=Adjacency.ZERO_OUT):
        data = dataclasses.replace(DATA, n_rows=n_rows, n_features=n_features)
        return plan_of(budget=ApproximateDP(epsilon, 0.0), data=data, adjacency=adjacency).n_steps

    assert steps(0.01) == 5
    assert steps(0.1) < steps(1.0) < steps(10.0) <= 200
    assert steps(1.0, n_rows=20_000, adjacency=Adjacency.REPLACE_ONE) == steps(1.0)
    assert steps(1.0, n_features=2000) < steps(1.0)
    assert steps(1e5) == 200


def make_data(n=2000, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3)) / math.sqrt(3)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-8 * X @ [1.0, -1.0, 0.5])), 1.0, -1.0)
    if n_outputs > 1:
        y = (y > 0).astype(int) + (X[:, 2] > 0.4)
    data = DataSpec(n, 3, n_outputs=n_outputs, intercept=1.0)
    return prepare_rows(X, y, data), X, y, data


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_without_noise_it_is_projected_gradient_descent(n_outputs):
    rows, _, _, data = make_data(n_outputs=n_outputs)
    loss = Logistic() if n_outputs == 1 else Softmax()
    problem = Problem(loss, L2(0.1), L2Ball(0.5))
    settings = {"n_steps": 6, "step_size": 2.0, "schedule": Constant(), "clip": 0.3}
    plan = plan_of(problem, data=data, output=UniformAverage(), **settings)
    with mock.patch.object(additive, "add_l2_noise", lambda value, *_: value):
        w = run(plan, rows, SeededNoise(0)).w
    expected, iterates = np.zeros(data.coefficient_shape), []
    for _ in range(6):
        g = clipped_gradient_sum(rows, loss, plan.method.clipping, expected) / 2000
        moved = expected - 2.0 * g
        inner = moved[:-1] / 1.2
        inner /= max(1.0, np.linalg.norm(inner) / 0.5)
        expected = np.concatenate([inner, moved[-1:]])
        iterates.append(expected)
    np.testing.assert_allclose(w, np.mean(iterates, axis=0), atol=1e-12)


def gradients(plan, rows, runs):
    """The noise in every released mean gradient."""
    original, seen = additive.add_l2_noise, []

    def listening(value, *args):
        noisy = original(value, *args)
        seen.append((noisy - value) / rows.n_rows)
        return noisy

    with mock.patch.object(additive, "add_l2_noise", listening):
        for seed in range(runs):
            run(plan, rows, SeededNoise(seed))
    return np.array(seen)


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE], ids=str)
def test_noise_in_released_gradients_is_noise_std(adjacency):
    rows, _, _, data = make_data(200)
    plan = plan_of(data=data, adjacency=adjacency, n_steps=50)
    noise = gradients(plan, rows, 60)
    # Squares of 3000 vectors in four dimensions tell three per cent apart.
    found = math.sqrt((noise**2).mean())
    assert found == pytest.approx(plan.method.noise_std, rel=0.04)
    assert found != pytest.approx(0.5 * plan.method.noise_std, rel=0.3)
    # Every step has noise of its own, of mean zero, in every coordinate.
    assert len(np.unique(noise)) == noise.size
    assert (np.abs(noise.mean(axis=0)) < 5.0 * found / math.sqrt(len(noise))).all()


def test_coefficient_noise_is_that_of_the_result():
    data = DataSpec(100, 3)
    # Rows of zeros: nothing but noise moves the parameter.
    rows = prepare_rows(np.zeros((100, 3)), np.ones(100), data)
    plan = plan_of(data=data, n_steps=5, step_size=0.5)
    with mock.patch.object(shrinkage, "shrinkage_factor", return_value=1.0):
        ws = [run(plan, rows, SeededNoise(seed)).w for seed in range(400)]
    assert np.std(ws) == pytest.approx(plan.coefficient_noise, rel=0.1)


def test_the_release_planned_is_the_release_made():
    rows, _, _, data = make_data(200)
    for adjacency in Adjacency:
        plan = plan_of(data=data, adjacency=adjacency, n_steps=3)
        (release,) = plan.method.releases
        with mock.patch.object(additive, "add_l2_noise", side_effect=lambda v, *_: v) as added:
            run(plan, rows, SeededNoise(0))
        assert [call.args[1] for call in added.call_args_list] == [release.scale.std] * 3
        assert release.coordinates == 4


class TestEstimator:
    def test_regression(self):
        _, X, _, _ = make_data()
        y = X @ [0.5, -0.5, 0.2]
        model = Ridge(
            epsilon=5.0,
            delta=0.0,
            target_bounds=(-1.0, 1.0),
            row_norm=1.0,
            solver=pure_gd(),
            random_state=0,
        ).fit(X, y)
        assert model.score(X, y) > 0.3
        assert isinstance(model.solution_.plan.problem.loss, Squared)
        assert verify(model.privacy_).ok
