"""Noisy SGD: NoisyGD on Poisson samples, with a rate that public facts decide."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpglm import LogisticRegression
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.events import Gaussian, PoissonSampled, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import SOLVERS, Constant, InverseSqrt, NoisyGD, NoisySGD, UniformAverage, run

DATA = DataSpec(n_rows=2000, n_features=4)
PROBLEM = Problem(Logistic())
BUDGET = ApproximateDP(1.0, 1e-6)


def test_its_name():
    assert SOLVERS["noisy_sgd"]() == NoisySGD()


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("n_steps", [50, 500])
def test_the_default_rate(epsilon, n_steps):
    budget = ApproximateDP(epsilon, 1e-6)
    method = NoisySGD(n_steps=n_steps).plan(PROBLEM, budget, DATA).method
    rate = 1.1 * math.sqrt(budget.gdp_mu() / n_steps)
    assert method.sampling_rate == pytest.approx(min(1.0, rate))
    assert method.gradient_evaluations == pytest.approx(rate * n_steps * 2000)
    assert method.event == Repeated(
        PoissonSampled(method.sampling_rate, Gaussian(method.noise_multiplier)), n_steps
    )


def test_noise_is_close_to_full_batch_at_small_cost():
    # The claim of its docstring, in its regime: multipliers well above 1.
    for epsilon in (0.1, 1.0):
        budget = ApproximateDP(epsilon, 1e-6)
        sampled = NoisySGD().plan(PROBLEM, budget, DATA).method
        full = NoisyGD(n_steps=500).plan(PROBLEM, budget, DATA).method
        assert sampled.noise_std <= 1.25 * full.noise_std
        assert sampled.gradient_evaluations <= 0.03 * full.gradient_evaluations
    # And where it ends: a tenth of the rate has much more noise.
    rate = sampled.sampling_rate / 10
    rare = NoisySGD(sampling_rate=rate).plan(PROBLEM, budget, DATA).method
    assert rare.noise_std > 2.0 * full.noise_std


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_plan_is_within_budget_and_no_noise_is_wasted(adjacency):
    plan = NoisySGD().plan(PROBLEM, BUDGET, DATA, adjacency)
    assert within_budget(plan.event, adjacency, BUDGET)
    less = plan.method.with_multiplier(0.99 * plan.method.noise_multiplier)
    assert not within_budget(less.event, adjacency, BUDGET)
    # A forgotten event, or a batch twice as large as the accounting thinks, is over budget.
    more = dataclasses.replace(plan.method, sampling_rate=2 * plan.method.sampling_rate)
    assert not within_budget(more.event, adjacency, BUDGET)


def test_it_is_noisy_gd_with_that_rate():
    settings = {
        "n_steps": 30,
        "step_size": 0.7,
        "schedule": InverseSqrt(),
        "clip": 0.4,
        "automatic_clipping": True,
        "momentum": 0.3,
        "sampling_rate": 0.2,
        "output": UniformAverage(),
    }
    one = NoisySGD(**settings).plan(PROBLEM, BUDGET, DATA)
    other = NoisyGD(**settings).plan(PROBLEM, BUDGET, DATA)
    assert one == other
    # Every setting is handed on: none may be missing from the list above.
    assert set(settings) == {field.name for field in dataclasses.fields(NoisySGD)}


def test_batches_are_poisson_samples_of_the_planned_rate():
    # With noise next to nothing, a step's length tells how many of the equal rows were drawn.
    n, rate = 2000, 0.1
    solver = NoisySGD(
        n_steps=300,
        sampling_rate=rate,
        step_size=1e-9,
        schedule=Constant(),
        clip=1.0,
        momentum=0.0,
    )
    data = DataSpec(n_rows=n, n_features=1)
    rows = prepare_rows(np.ones((n, 1)), np.ones(n), data)
    history = run(
        solver.plan(PROBLEM, ApproximateDP(1e5, 1e-2), data), rows, SeededNoise(0)
    ).history
    # Slopes are 1/2 at zero, and the divisor is the expected size.
    sizes = np.array([info.gradient_norm for info in history]) * rate * n / 0.5
    assert sizes.mean() == pytest.approx(rate * n, rel=0.02)
    assert sizes.std() == pytest.approx(math.sqrt(n * rate * (1 - rate)), rel=0.2)


def test_large_budgets_take_the_full_batch():
    method = NoisySGD().plan(PROBLEM, GaussianDP(1e6), DATA).method
    assert method.sampling_rate == 1.0
    assert method.event == Repeated(Gaussian(method.noise_multiplier), 500)


def test_budget_incomparable_with_sampling_is_refused():
    with pytest.raises(ValueError, match="budget"):
        NoisySGD().plan(PROBLEM, GaussianDP(0.5), DATA)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_steps", 0),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.1),
        ("step_size", 0.0),
        ("clip", -1.0),
        ("momentum", 1.0),
    ],
)
def test_settings_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .* got {value!r}"):
        NoisySGD(**{name: value})


def test_an_estimator_takes_its_name():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 2))
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(
        epsilon=2.0, classes=[0, 1], row_norm=1.5, solver="noisy_sgd", random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.9
