"""A direction, then its scale: shares, releases, and scores of the right size."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import log_loss

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing import Center
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, Hinge, L2Ball, Logistic, Problem, Softmax, Squared
from dpglm.solvers import Calibrated, Newton, NoisyGD, NoisySGD, Preprocessed, run
from dpglm.solvers.composite.calibrated import CalibratedMethod
from tests.audit.attack import scripted_releases

DATA = DataSpec(n_rows=8000, n_features=3, row_norm=2.0, intercept=2.0)
PROBLEM, BUDGET = Problem(Logistic()), ApproximateDP(1.0, 1e-5)
FEW, FINISH = NoisyGD(n_steps=3), CalibratedMethod.finish


def rows_and_targets(n=8000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    chances = 1.0 / (1.0 + np.exp(-(X @ [0.8, -0.5, 0.2] + 0.3)))
    return X, np.where(rng.random(n) < chances, 1.0, -1.0), chances


def calibrated(data=DATA, adjacency=Adjacency.ZERO_OUT, budget=BUDGET, problem=PROBLEM, **options):
    return Calibrated(FEW, **options).plan(problem, budget, data, adjacency)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_shares_are_of_mu_squared_and_nothing_is_left(adjacency):
    plan = calibrated(adjacency=adjacency, share=0.2)
    spent = {"direction": 0.0, "scale": 0.0}
    for one in plan.method.releases:
        spent[one.quantity.partition(":")[0]] += one.count / one.noise_multiplier**2
    mu = BUDGET.gdp_mu()
    assert spent["scale"] == pytest.approx(0.2 * mu**2, rel=1e-6)
    assert sum(spent.values()) == pytest.approx(mu**2, rel=1e-6)
    assert within_budget(plan.event, adjacency, BUDGET)


def longest_changes(adjacency, solver=FEW):
    """Yield the move of each sum by the largest row, and the declared bound.

    Against no row, or its opposite, through the same public values.
    """
    data = dataclasses.replace(DATA, n_rows=40)
    plan = Calibrated(solver, share=0.3).plan(PROBLEM, BUDGET, data, adjacency)
    X, y, _ = rows_and_targets(40)
    X[7] = [1e3, -1e3, 1e3]
    other, counts = X.copy(), np.ones(40)
    if adjacency is Adjacency.REPLACE_ONE:
        other[7] *= -1.0
    else:
        counts[7] = 0.0
    sums = []
    for rows, weights in ((X, np.ones(40)), (other, counts)):
        # Large released values: an odd direction, and scores that are cut.
        with scripted_releases(seed=1, size=30.0) as seen:
            run(plan, prepare_rows(rows, y, data, weights=weights), SeededNoise(0))
        sums.append(seen)
    # By their noise, as Hessians come between scores in a run.
    due = {round(math.log(one.noise_std), 6): one for one in plan.method.releases}
    assert len(sums[0]) == sum(one.count for one in plan.method.releases)
    for (one, std), (two, _) in zip(*sums, strict=True):
        release = due[round(math.log(std), 6)]
        yield float(np.linalg.norm(one - two)), std / release.noise_multiplier * (1.0 + 1e-6)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("solver", [FEW, Preprocessed([Center()], FEW)])
def test_no_row_moves_a_sum_by_more_than_its_noise_is_made_for(adjacency, solver):
    assert all(moved <= due for moved, due in longest_changes(adjacency, solver))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("stage", ["direction", "scale"])
def test_rows_that_count_more_than_once_in_a_stage_are_caught(adjacency, stage):
    """Planted: contributions to the sums of one stage, times two or four."""
    # Of one column no two rows have opposite gradients, so half of the bound is not reached.
    times = 4.0 if adjacency is Adjacency.REPLACE_ONE else 2.0
    noisy_sum, seen = Oracle.noisy_sum, []

    def grown(oracle, declared, kernel, *bounds):
        if (oracle.rows.spec.n_features > 1) != (stage == "direction"):
            return noisy_sum(oracle, declared, kernel, *bounds)
        seen.append(declared)
        return noisy_sum(oracle, declared, lambda rows: times * kernel(rows), *bounds)

    with mock.patch.object(Oracle, "noisy_sum", grown):
        assert any(moved > due for moved, due in longest_changes(adjacency))
    assert seen


def test_scores_of_few_steps_get_their_size():
    X, y, chances = rows_and_targets()
    best = log_loss(y, chances)
    losses = []
    for solver in (FEW, Calibrated(FEW)):
        plan = solver.plan(PROBLEM, BUDGET, DATA)
        w = run(plan, prepare_rows(X, y, DATA), SeededNoise(0)).w
        scores = X @ w[:3] + DATA.intercept * w[3]
        losses.append(log_loss(y, 1.0 / (1.0 + np.exp(-scores))))
    assert losses[0] > best + 0.02
    assert losses[1] < best + 0.003


def test_noise_does_not_turn_scores_around():
    X, y, _ = rows_and_targets(500)
    data = dataclasses.replace(DATA, n_rows=500)
    plan, rows, slopes = calibrated(data, share=1e-5), prepare_rows(X, y, data), []
    for seed in range(10):
        with mock.patch.object(
            CalibratedMethod, "finish", autospec=True, side_effect=FINISH
        ) as one:
            w = run(plan, rows, SeededNoise(seed)).w
        direction = one.call_args.args[1].direction.w
        slopes.append(w[0] / direction[0])
        assert np.allclose(w[:3], slopes[-1] * direction[:3])
    assert min(slopes) == pytest.approx(0.1)
    assert max(slopes) <= 1.5


@pytest.mark.parametrize(
    ("problem", "data", "budget"),
    [
        (Problem(Softmax()), dataclasses.replace(DATA, n_outputs=3), BUDGET),
        (Problem(Logistic(), L2(0.1)), DATA, BUDGET),
        (Problem(Logistic(), constraint=L2Ball(1.0)), DATA, BUDGET),
        (PROBLEM, DATA, ApproximateDP(0.01, 1e-5)),
    ],
    ids=["outputs", "penalty", "constraint", "budget"],
)
def test_plan_is_that_of_the_solver_without_a_scale(problem, data, budget):
    plan = calibrated(data, budget=budget, problem=problem)
    assert plan == FEW.plan(problem, budget, data)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Calibrated(Newton()), "solver must be NoisyGD without sampling"),
        (lambda: Calibrated(NoisySGD()), "solver must be NoisyGD without sampling"),
        (lambda: Calibrated(NoisyGD(sampling_rate=0.5)), "solver must be NoisyGD without"),
        (lambda: Calibrated(share=1.0), "share must be"),
        (lambda: calibrated(problem=Problem(Hinge())), "loss must be convex and smooth"),
        (
            lambda: calibrated(
                dataclasses.replace(DATA, target_low=0.0, target_high=1.0),
                problem=Problem(Squared()),
            ),
            "not squared",
        ),
    ],
)
def test_refusals(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("solver", [NoisyGD(compare=True), Preprocessed([Center()], NoisyGD())])
def test_mean_prediction_of_gradient_steps_is_the_mean_outcome(solver, monkeypatch):
    """A rare class with many rare columns: descent alone predicts too few of it."""
    rng = np.random.default_rng(0)
    n, size = 20_000, 400
    columns = np.minimum(rng.zipf(1.3, n) - 1, size - 1)
    X = sparse.csr_array((np.ones(n), columns, np.arange(n + 1)), (n, size))
    z = X @ rng.normal(0.0, 0.6, size) - 3.5
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)
    data = DataSpec(n, size, intercept=1.0)

    def ratio(solver):
        plan = solver.plan(PROBLEM, BUDGET, data)
        found = [run(plan, prepare_rows(X, y, data), SeededNoise(s)).w for s in range(2)]
        means = [(1.0 / (1.0 + np.exp(-(X @ w[:-1] + w[-1])))).mean() for w in found]
        return np.mean(means) / np.mean(y > 0.0)

    assert ratio(Calibrated(solver)) == pytest.approx(1.0, abs=0.15)
    assert abs(ratio(solver) - 1.0) > 0.2


def test_a_limited_slope_keeps_the_mean_prediction(monkeypatch):
    """Scores that are not about zero: another slope alone would shift all predictions."""
    monkeypatch.setattr("dpglm.solvers.composite.calibrated._MOST_SLOPE", 0.5)
    X, y, chances = rows_and_targets()
    X = X + 1.0
    data = dataclasses.replace(DATA, row_norm=4.0)
    plan = Calibrated(NoisyGD()).plan(PROBLEM, ApproximateDP(20.0, 1e-5), data)
    w = run(plan, prepare_rows(X, y, data), SeededNoise(0)).w
    predicted = 1.0 / (1.0 + np.exp(-(X @ w[:-1] + data.intercept * w[-1])))
    assert predicted.mean() == pytest.approx(chances.mean(), abs=0.02)
