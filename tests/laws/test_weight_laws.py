"""Weights count as they do without privacy: in every default fit, whatever their bound is."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpglm
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    Binomial,
    ComplementaryLogLog,
    Gamma,
    Huber,
    Logistic,
    NegativeBinomial,
    Poisson,
    Probit,
    Problem,
    SmoothedHinge,
    Squared,
    Target,
    Tweedie,
)
from dpglm.solvers import SOLVERS, run

LOSSES = [
    Binomial(),
    ComplementaryLogLog(),
    Gamma(),
    Huber(0.5),
    Logistic(),
    NegativeBinomial(5.0),
    Poisson(),
    Probit(),
    SmoothedHinge(),
    Squared(),
    Tweedie(1.5),
]
N, MOST = 4000, 200.0


def problem_rows(loss, n=N):
    """Targets of the loss's kind that depend on the weights, too; the spec, and the weights."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.5, 0.5, size=(n, 3))
    w = np.ceil(rng.uniform(0.0, MOST, n))
    z = X @ [1.0, -1.0, 0.5] + 0.4 * (w > MOST / 2) - 0.2
    low, high = 0.0, 1.0
    match loss.target:
        case Target.BINARY:
            y, (low, high) = np.where(z + rng.logistic(size=n) > 0.0, 1.0, -1.0), (-1.0, 1.0)
        case Target.PROPORTION:
            y = rng.binomial(5, 1.0 / (1.0 + np.exp(-z))) / 5.0
        case Target.REAL:
            y, (low, high) = np.clip(0.4 * z + 0.1 * rng.normal(size=n), -1.0, 1.0), (-1.0, 1.0)
        case Target.POSITIVE:
            y, low = np.clip(rng.gamma(3.0, 0.03 * np.exp(z)), 1e-3, 1.0), 1e-3
        case _:
            y = np.minimum(rng.poisson(2.0 * np.exp(z)) / 20.0, 1.0)
    spec = DataSpec(n, 3, intercept=1.0, weight_bound=MOST, target_low=low, target_high=high)
    return X, y, w, spec


def fitted(solver, loss, X, y, w, spec, epsilon, seed=0):
    plan = SOLVERS[solver]().plan(Problem(loss), ApproximateDP(epsilon, 1e-6), spec)
    return run(plan, prepare_rows(X, y, spec, weights=w), SeededNoise(seed)).w


def best(loss, X, y, w, spec):
    """Minimise the weighted loss by Newton's method."""
    A, v = np.column_stack([X, np.full(len(X), spec.intercept)]), np.zeros(4)
    if loss.target in (Target.COUNT, Target.POSITIVE):
        v[-1] = math.log(np.average(y, weights=w))
    for _ in range(100):
        z = A @ v
        hessian = (A * (w * loss.curvature(z, y))[:, None]).T @ A + 1e-9 * np.eye(4)
        v = v - np.linalg.solve(hessian, A.T @ (w * loss.slope(z, y)))
    return v


@pytest.mark.parametrize("solver", ["auto", "newton"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_plenty_of_budget_gives_the_fit_without_privacy(loss, solver):
    X, y, w, spec = problem_rows(loss)
    expected = best(loss, X, y, w, spec)
    found = fitted(solver, loss, X, y, w, spec, 1e5)
    unweighted = best(loss, X, y, np.ones(N), spec)
    assert np.linalg.norm(found - expected) < 0.25 * np.linalg.norm(unweighted - expected)


@pytest.mark.parametrize("solver", ["auto", "newton", "noisy_gd", "calibrated"])
def test_weights_are_rows_that_are_repeated(solver):
    """Where every row has the weight of the bound, which is then nothing but a unit."""
    loss, (X, y, _, spec) = Logistic(), problem_rows(Logistic())
    same = DataSpec(N, 3, intercept=1.0)
    heavy = [fitted(solver, loss, X, y, np.full(N, MOST), spec, 10.0, s) for s in range(5)]
    plain = [fitted(solver, loss, X, y, None, same, 10.0, s) for s in range(5)]
    np.testing.assert_allclose(np.mean(heavy, axis=0), np.mean(plain, axis=0), atol=0.25)


@pytest.mark.parametrize("solver", ["auto", "newton", "noisy_gd", "calibrated"])
def test_tiny_budget_gives_the_neutral_model(solver):
    X, y, w, spec = problem_rows(Logistic(), n=200)
    for seed in range(4):
        found = fitted(solver, Logistic(), X, y, w, spec, 0.05, seed)
        assert np.linalg.norm(X @ found[:3] + found[-1]) < 2.0 * math.sqrt(200)


def test_weighted_classes_and_trials_are_as_without_privacy():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(20, 60, 20_000), rng.uniform(-3, 5, 20_000)])
    p = 1.0 / (1.0 + np.exp(1.8 - X @ [0.02, -0.15]))
    trials = rng.integers(66, 201, 20_000)
    model = dpglm.BinomialRegressor(
        weight_bound=200, feature_bounds={0: (20, 60), 1: (-3, 5)}, epsilon=1, random_state=0
    ).fit(X, rng.binomial(trials, p) / trials, sample_weight=trials)
    np.testing.assert_allclose(model.coef_ * [40, 8], [0.8, -1.2], atol=0.1)
    labels = (rng.uniform(size=20_000) < p).astype(int)
    model = dpglm.LogisticRegression(
        C=np.inf,
        classes=[0, 1],
        class_weight={0: 1, 1: 200},
        feature_bounds={0: (20, 60), 1: (-3, 5)},
        epsilon=10,
        random_state=0,
    ).fit(X, labels)
    np.testing.assert_allclose(model.coef_[0] * [40, 8], [0.8, -1.2], atol=0.4)
