"""Local stochastic gradient descent: one message from each row, in disjoint blocks."""

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
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.budget import GaussianDP
from dpglm.privacy.events import Gaussian, Parallel, canonical
from dpglm.privacy.gdp import mu as largest_mu
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.problem import L2, Logistic, Problem
from dpglm.solvers import Constant, LocalSGD, NoisyGD, UniformAverage, run
from dpglm.solvers.gradient import local_sgd

BUDGET = ApproximateDP(4.0, 1e-5)
DATA = DataSpec(n_rows=10_000, n_features=20, intercept=1.0)
REPLACE_ONE = Adjacency.REPLACE_ONE


def plan_of(problem=None, budget=BUDGET, data=DATA, adjacency=Adjacency.ZERO_OUT, **settings):
    return LocalSGD(**settings).plan(problem or Problem(Logistic()), budget, data, adjacency)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_blocks": 0}, "n_blocks must be an integer of at least 1, got 0"),
        ({"step_size": 0.0}, "step_size must be a finite number above 0, got 0.0"),
        ({"clip": -1.0}, "clip must be a finite number above 0, got -1.0"),
    ],
    ids=str,
)
def test_settings_are_validated(settings, message):
    with pytest.raises(ValueError, match=message):
        LocalSGD(**settings)


def test_impossible_cases_are_refused():
    with pytest.raises(ValueError, match="adjacency must be 'zero_out' or 'replace_one' for Loc"):
        plan_of(adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError, match="delta must be above 0 for Gaussian noise"):
        plan_of(budget=ApproximateDP(1.0, 0.0))
    with pytest.raises(ValueError, match="n_blocks must be 2 to 10000 for 10000 rows"):
        plan_of(n_blocks=1)
    with pytest.raises(ValueError, match="n_blocks must be 2 to 10000 for 10000 rows"):
        plan_of(n_blocks=10_001)


@pytest.mark.parametrize(
    ("n_rows", "n_blocks"), [(1, 1), (3, 3), (200, 200), (10_000, 200), (10**7, 1221)]
)
def test_default_blocks(n_rows, n_blocks):
    method = plan_of(data=dataclasses.replace(DATA, n_rows=n_rows)).method
    sizes = method.block_sizes
    assert len(sizes) == method.n_steps == n_blocks
    assert sum(sizes) == n_rows
    assert 0 <= sizes[0] - sizes[-1] <= 1 <= sizes[-1] <= sizes[0] <= 8192


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, REPLACE_ONE])
@pytest.mark.parametrize("n_blocks", [2, 200])
def test_a_row_pays_for_one_message(adjacency, n_blocks):
    plan = plan_of(adjacency=adjacency, n_blocks=n_blocks)
    sigma = plan.method.noise_multiplier
    assert plan.event == canonical(Parallel((Gaussian(sigma),) * n_blocks))
    assert sigma == pytest.approx(1.0 / largest_mu(4.0, 1e-5), rel=1e-9)
    assert within_budget(plan.event, adjacency, BUDGET)
    assert not within_budget(plan.event, adjacency, ApproximateDP(3.999, 1e-5))
    exact = plan_of(budget=GaussianDP(0.5), adjacency=adjacency, n_blocks=n_blocks)
    assert exact.method.noise_multiplier == pytest.approx(2.0, rel=1e-9)


def test_message_noise_is_independent_of_number_of_rows():
    def noise(n_rows, adjacency=Adjacency.ZERO_OUT):
        data = dataclasses.replace(DATA, n_rows=n_rows)
        (release,) = plan_of(data=data, adjacency=adjacency, clip=0.5).method.releases
        return release.scale.std / release.noise_multiplier

    assert noise(1000) == pytest.approx(0.5, rel=1e-6)
    assert noise(10**6) == pytest.approx(0.5, rel=1e-6)
    # Local privacy in the usual sense: any two rows.
    assert noise(1000, REPLACE_ONE) == pytest.approx(2.0 * noise(1000), rel=1e-5)


def test_local_noise_is_sqrt_n_times_the_central_noise():
    sizes = {"step_size": 0.5, "clip": 0.5, "schedule": Constant()}
    local = plan_of(n_blocks=100, **sizes)
    central = NoisyGD(n_steps=100, momentum=0.0, **sizes).plan(Problem(Logistic()), BUDGET, DATA)
    ratio = local.coefficient_noise / central.coefficient_noise
    assert ratio == pytest.approx(math.sqrt(DATA.n_rows), rel=1e-3)


def make_data(n=600, seed=0, layout="dense", dtype="float64"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3)) / math.sqrt(3)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-8 * X @ [1.0, -1.0, 0.5])), 1.0, -1.0)
    data = DataSpec(n, 3, intercept=1.0, dtype=dtype, sparse=layout == "csr")
    stored = sparse.csr_array(X.astype(dtype)) if layout == "csr" else X.astype(dtype)
    return prepare_rows(stored, y, data), X, y, data


def blocks_asked(plan, rows, seed=0):
    """Numbers of the rows in each block of a run."""
    original, asked = type(rows).part, []

    def listening(self, indices):
        asked.append(indices.copy())
        return original(self, indices)

    with mock.patch.object(type(rows), "part", listening):
        solution = run(plan, rows, SeededNoise(seed))
    return asked, solution


@pytest.mark.parametrize(("layout", "dtype"), [("dense", "float64"), ("csr", "float32")])
def test_every_row_is_used_once(layout, dtype):
    rows, _, _, data = make_data(605, layout=layout, dtype=dtype)
    asked, solution = blocks_asked(plan_of(data=data, n_blocks=10), rows)
    assert [len(block) for block in asked] == [61] * 5 + [60] * 5
    assert sorted(np.concatenate(asked).tolist()) == list(range(605))
    assert len(solution.history) == 10
    # The order is random, and another one in every run.
    assert not np.array_equal(asked[0], np.arange(61))
    other, _ = blocks_asked(plan_of(data=data, n_blocks=10), rows, seed=1)
    assert not np.array_equal(asked[0], other[0])


def test_without_noise_it_is_one_pass_of_gradient_descent():
    rows, _, _, data = make_data()
    problem = Problem(Logistic(), L2(0.1))
    settings = {"n_blocks": 6, "step_size": 2.0, "schedule": Constant(), "clip": 0.3}
    plan = plan_of(problem, data=data, output=UniformAverage(), **settings)
    with mock.patch.object(additive, "add_gaussian", lambda value, *_: value):
        asked, solution = blocks_asked(plan, rows)
    w, iterates = np.zeros(4), []
    for block in asked:
        part: Rows = rows.part(block)
        g = clipped_gradient_sum(part, Logistic(), plan.method.clipping, w) / 100
        w = (w - 2.0 * g) / np.array([1.2, 1.2, 1.2, 1.0])
        iterates.append(w)
    np.testing.assert_allclose(solution.w, np.mean(iterates, axis=0), atol=1e-12)


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, REPLACE_ONE], ids=str)
def test_noise_in_released_gradients_is_that_of_the_messages(adjacency):
    data = DataSpec(90, 3)
    rows = prepare_rows(np.zeros((90, 3)), np.ones(90), data)
    plan = plan_of(data=data, adjacency=adjacency, n_blocks=9, clip=0.5)
    with mock.patch.object(local_sgd, "locally_noised_gradient", side_effect=heard(seen := [])):
        for seed in range(150):
            run(plan, rows, SeededNoise(seed))
    (release,) = plan.method.releases
    expected = release.scale.std / math.sqrt(10)
    sigma = plan.method.noise_multiplier * adjacency.sum_sensitivity(0.5)
    assert expected == pytest.approx(sigma / math.sqrt(10), rel=1e-6)
    # 4050 draws tell five per cent apart.
    assert np.std(seen) == pytest.approx(expected, rel=0.05)
    assert len(np.unique(seen)) == 150 * 9 * 3


def heard(seen):
    from dpglm.oracle.gradients import locally_noised_gradient

    def listening(*args):
        seen.append(locally_noised_gradient(*args))
        return seen[-1]

    return listening


def test_coefficient_noise_is_that_of_the_result():
    data = DataSpec(100, 3)
    rows = prepare_rows(np.zeros((100, 3)), np.ones(100), data)
    plan = plan_of(data=data, n_blocks=5, step_size=0.5)
    ws = [run(plan, rows, SeededNoise(seed)).w for seed in range(300)]
    assert np.std(ws) == pytest.approx(plan.coefficient_noise, rel=0.12)


def test_diagnostics_contain_the_noise_scale():
    rows, _, _, data = make_data(605)
    plan = plan_of(data=data, n_blocks=10)
    history = run(plan, rows, SeededNoise(0)).history
    std = plan.method.releases[0].scale.std
    assert history[0].noise_norm == pytest.approx(2.0 * std / math.sqrt(61))
    assert history[-1].noise_norm == pytest.approx(2.0 * std / math.sqrt(60))


class TestEstimator:
    def fit(self, **settings):
        _, X, y, _ = make_data(4000)
        options = {"epsilon": 8.0, "delta": 1e-5, "classes": [-1.0, 1.0], "row_norm": 1.0}
        options |= {"solver": "local_sgd", "random_state": 0} | settings
        return LogisticRegression(**options).fit(X, y), X, y

    @pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
    def test_certificates_hold_and_models_learn(self, adjacency):
        model, X, y = self.fit(adjacency=adjacency)
        verification = verify(model.privacy_)
        assert verification.ok, verification.summary()
        assert model.score(X, y) > 0.6
        # Two hundred equal parts are one sentence.
        assert "each of parts 1 to 200" in model.privacy_.statement()
        assert len(model.privacy_.statement()) < 5000
