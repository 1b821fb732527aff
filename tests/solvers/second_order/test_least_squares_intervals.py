"""Intervals of least squares: they cover, and wrong ones do not."""

from __future__ import annotations

import dataclasses
import functools
import math
import re

import numpy as np
import pytest
from scipy import stats

import dpglm
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.linear import ScoreShares
from dpglm.privacy import Adjacency, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L1, L2, L2Ball, Problem, Squared
from dpglm.solvers import SufficientStatistics, run
from dpglm.solvers.second_order import least_squares
from dpglm.solvers.second_order import sufficient_statistics as solver_module
from dpglm.solvers.second_order import sufficient_statistics_method as method_module
from dpglm.solvers.second_order.posterior import NoisyMatrix, whitened_hessian
from dpglm.solvers.uncertainty import Uncertainty

N, D = 4000, 4
END = math.sqrt(D)
SPEC = DataSpec(N, D, row_norm=END, intercept=END, target_low=-1.0, target_high=1.0)
SLOPES, MEAN, SIGMA = np.array([0.3, -0.2, 0.1, 0.2]), 0.3, 0.1
BUDGET = GaussianDP(0.3)
RUNS = 120


def make_data(rng, *, uneven=False):
    """Two correlated columns, one rare; errors are wider where the third column is far from 0."""
    X = np.clip(0.4 * rng.normal(size=(N, D)), -1, 1)
    X[:, 1] = np.clip(0.7 * X[:, 0] + 0.5 * X[:, 1], -1, 1)
    X[:, 3] = rng.random(N) < 0.05
    sigma = SIGMA * (0.1 + 4.0 * X[:, 2] ** 2 if uneven else 1.0)
    return X, np.clip(MEAN + X @ SLOPES + sigma * rng.normal(size=N), -1, 1)


@functools.cache
def studied(
    kind, *, adjacency=Adjacency.ZERO_OUT, uneven=False, clip=None, runs=RUNS, budget=BUDGET
):
    """Errors, uncertainties and exact standard errors of many runs on fresh data."""
    rng = np.random.default_rng(0)
    solver = SufficientStatistics(inference=kind, clip=clip)
    plan = solver.plan(Problem(Squared()), budget, SPEC, adjacency)
    truth = np.append(SLOPES, MEAN / END)
    found = []
    for seed in range(runs):
        X, y = make_data(rng, uneven=uneven)
        solution = run(plan, prepare_rows(X, y, SPEC), SeededNoise(seed))
        assert isinstance(solution.uncertainty, Uncertainty)
        np.testing.assert_array_equal(solution.uncertainty.center, solution.w)
        found.append((solution.w - truth, solution.uncertainty))
    return found


def coverage(found, covariance=lambda one: one.covariance):
    """Share of runs with a covering 95 % interval, by coefficient."""
    inside = []
    for error, one in found:
        quantile = stats.t.ppf(0.975, one.degrees_of_freedom)
        inside.append(np.abs(error) <= quantile * np.sqrt(np.diag(covariance(one))))
    return np.mean(inside, axis=0)


@pytest.mark.parametrize(
    ("kind", "adjacency"),
    [
        ("model", Adjacency.ZERO_OUT),
        ("model", Adjacency.ADD_REMOVE),
        ("model", Adjacency.REPLACE_ONE),
        ("robust", Adjacency.ZERO_OUT),
    ],
)
def test_intervals_cover(kind, adjacency):
    found = studied(kind, adjacency=adjacency)
    covered = coverage(found)
    assert 0.93 <= covered.mean() <= 0.98
    assert covered.min() >= 0.89
    assert {one.kind for _, one in found} == {kind}


def test_an_interval_that_forgets_privacy_noise_does_not_cover():
    found = studied("model", budget=GaussianDP(0.25), runs=100)
    assert coverage(found, lambda one: one.sampling).mean() < 0.85
    assert coverage(found, lambda one: one.privacy).mean() < 0.9


def noise_over_claim():
    """Mean squared noise of estimates on the same rows, over the reported variance."""
    plan = SufficientStatistics(inference="model").plan(Problem(Squared()), GaussianDP(1.0), SPEC)
    X, y = make_data(np.random.default_rng(2))
    rows = prepare_rows(X, y, SPEC)
    found = [run(plan, rows, SeededNoise(seed)).uncertainty for seed in range(50)]
    claimed = np.mean([np.diag(one.privacy) for one in found], axis=0)
    return np.var([one.center for one in found], axis=0) / claimed


def test_noise_in_the_matrix_that_is_forgotten_is_found(monkeypatch):
    # Where the equations show nothing the whole of the slopes is one step, which has most of it.
    monkeypatch.setattr(solver_module, "_OF_REST_FOR_INTERVALS", (1e-9, 0.13, 0.87))
    monkeypatch.setitem(method_module._FINAL, "model", ScoreShares(0.05, 0.90, 0.05))
    # Small residuals: their bound, and the noise in scores, is small next to the step.
    monkeypatch.setitem(globals(), "SIGMA", 0.05)
    assert 0.8 < noise_over_claim().mean() < 1.25
    monkeypatch.setattr(NoisyMatrix, "error_of", lambda self, spread: 0.0 * spread)
    assert noise_over_claim().mean() > 1.35


def test_only_the_sandwich_covers_where_errors_are_uneven():
    # With less budget, known privacy noise dominates the error of the model.
    options = {"uneven": True, "budget": GaussianDP(3.0)}
    assert coverage(studied("robust", **options))[2] >= 0.92
    assert coverage(studied("model", **options))[2] < 0.85


def test_interval_of_a_skewed_column_covers(monkeypatch):
    """Planted: squares of coordinates are shrunk like their products."""

    def error(n=5000, runs=120):
        """Return the error of the coefficient of a lognormal column, over the reported one."""
        found = []
        spec = dataclasses.replace(SPEC, n_rows=n, target_low=-2.0, target_high=3.0)
        plan = SufficientStatistics(inference="model").plan(
            Problem(Squared()), GaussianDP(0.08), spec
        )
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            X = rng.uniform(-1, 1, size=(n, D))
            X[:, 3] = 2.0 * np.minimum(np.exp(0.8 * rng.normal(size=n) - 2.5), 1.0) - 1.0
            y = X @ [-0.1, 0.0, 0.1, 1.0] + 0.8 + 0.2 * rng.normal(size=n)
            solution = run(plan, prepare_rows(X, y, spec), SeededNoise(seed))
            reported = math.sqrt(solution.uncertainty.covariance[3, 3])
            found.append((solution.w[3] - 1.0) / reported)
        return np.sqrt(np.mean(np.square(found)))

    assert error() < 1.1
    monkeypatch.setattr(
        least_squares,
        "uncorrelated_hessian",
        lambda seen, noise, *_: whitened_hessian(seen, noise, np.eye(len(seen))),
    )
    assert error() > 1.2


def test_problems_without_normal_estimates_are_refused():
    def plan(problem):
        solver = SufficientStatistics().with_inference("model")
        return solver.plan(problem, BUDGET, SPEC)

    assert plan(Problem(Squared(), L2(1e-3))).method.inference == "model"
    with pytest.raises(ValueError, match="regularizer must be none or L2"):
        plan(Problem(Squared(), L1(0.1)))
    with pytest.raises(ValueError, match="constraint must be None"):
        plan(Problem(Squared(), constraint=L2Ball(1.0)))


def test_releases_for_intervals_are_declared():
    plans = {
        kind: SufficientStatistics(inference=kind).plan(Problem(Squared()), BUDGET, SPEC)
        for kind in (None, "model", "robust")
    }
    assert [one.method.releases[-1].coordinates for one in plans.values()] == [6, 28, 43]
    X, y = make_data(np.random.default_rng(1))
    assert run(plans[None], prepare_rows(X, y, SPEC), SeededNoise(0)).uncertainty is None


def test_summary_states_norm_of_down_weighted_rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(5000, 3))
    y = X @ [1.0, 0.0, -1.0] + rng.normal(size=5000)
    settings = {"feature_bounds": (-1, 1), "target_bounds": (-6, 6), "random_state": 0}
    notes = []
    for kind, epsilon in ((True, 1.0), ("robust", 1.0), ("robust", 4.0)):
        model = dpglm.LinearRegression(epsilon=epsilon, inference=kind, **settings).fit(X, y)
        notes.append(" ".join(str(model.inference_.summary()).split()))
    said = [re.search(r"C = ([\d.]+) times the root mean square", one) for one in notes]
    assert said[0] is None
    # With more budget longer rows count in full.
    assert 1.0 <= float(said[1][1]) < float(said[2][1])
