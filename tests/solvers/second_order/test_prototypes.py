"""Prototypes of classes: their limit, their cost, their edges, many classes in noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpglm import RidgeClassifier
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.counts import class_sums
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Problem, Softmax, Sparsemax
from dpglm.solvers import Prototypes
from dpglm.solvers.run import run

SPEC = DataSpec(400, 3, n_outputs=3, row_norm=2.0, intercept=2.0)
PROBLEM = Problem(Sparsemax())


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("delta", [0.0, 1e-2])
def test_the_limit_is_the_nearest_mean(fit_intercept, delta):
    rng = np.random.default_rng(1)
    means = np.array([[0.5, 0.1, 0.0], [-0.4, 0.4, 0.1], [-0.1, -0.5, -0.1]])
    y = rng.choice(3, size=600, p=[0.6, 0.3, 0.1])
    X = np.clip(means[y] + 0.3 * rng.normal(size=(600, 3)), -1.0, 1.0)
    model = RidgeClassifier(
        epsilon=1e6,
        delta=delta,
        row_norm=2.0,
        classes=range(3),
        fit_intercept=fit_intercept,
        solver="prototypes",
        random_state=0,
    ).fit(X, y)
    assert model.solution_.plan.method.algorithm == "class prototypes"
    found = np.array([X[y == k].mean(axis=0) for k in range(3)])
    if fit_intercept:
        known = ((X[:, None] - found) ** 2).sum(axis=2).argmin(axis=1)
    else:
        # Rows are compared by their products with the means around that of all rows.
        known = (X @ (found - X.mean(axis=0)).T).argmax(axis=1)
    assert (model.predict(X) == known).mean() > 0.99


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_budget_is_spent_for_any_number_of_classes(adjacency):
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    for count in (3, 100):
        data = dataclasses.replace(SPEC, n_outputs=count)
        for budget in (ApproximateDP(0.7, 0.0), GaussianDP(0.7)):
            plan = Prototypes().plan(PROBLEM, budget, data, adjacency)
            (only,) = plan.method.releases
            assert only.sensitivity >= factor * only.contribution_bound
            # The grid of the noise takes the rest.
            assert 0.7 * (1.0 - 1e-4) < only.sensitivity / only.scale.std <= 0.7


def test_only_codes_have_prototypes():
    with pytest.raises(ValueError, match="loss must be"):
        Prototypes().plan(Problem(Softmax()), GaussianDP(1.0), SPEC)


def test_noisy_numbers_of_rows_do_not_decide():
    """A hundred classes of some hundred rows each, with about as much noise in their counts."""
    rng = np.random.default_rng(0)
    y = rng.integers(100, size=12_000)
    X = rng.normal(size=(100, 64))[y] + rng.normal(size=(12_000, 64))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    model = RidgeClassifier(
        epsilon=0.3,
        delta=1e-5,
        row_norm=1.0,
        classes=range(100),
        solver="prototypes",
        random_state=0,
    )
    assert model.fit(X[:10_000], y[:10_000]).score(X[10_000:], y[10_000:]) > 0.75


def test_no_row_contributes_more_than_its_weight():
    """Rows of all lengths up to the norm; the longest ones as much as is declared."""
    directions = np.random.default_rng(2).normal(size=(50, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    X = directions * np.linspace(0.0, 2.0, 50)[:, None]
    spec = dataclasses.replace(SPEC, n_rows=1)
    kernel, longest = class_sums(spec), 0.0
    for row, label in zip(X, np.arange(50) % 3, strict=True):
        rows = prepare_rows(row[None], np.array([label]), spec)
        length = np.linalg.norm(rows.sum(kernel, (12,)))
        assert length <= 1.0
        longest = max(longest, length)
    assert longest > 0.99


def test_edges_are_defined():
    for n, d, intercept in ((1, 1, 0.0), (5, 40, 1.0)):
        spec = DataSpec(n, d, n_outputs=3, intercept=intercept)
        X, y = np.full((n, d), 1.0 / d), np.zeros(n, dtype=int)
        for epsilon in (1e-3, 1.0, 1e3):
            for budget in (ApproximateDP(epsilon, 0.0), GaussianDP(epsilon)):
                plan = Prototypes().plan(PROBLEM, budget, spec)
                w = run(plan, prepare_rows(X, y, spec), SeededNoise(0)).w
                assert w.shape == spec.coefficient_shape
                assert np.isfinite(w).all()
