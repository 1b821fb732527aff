"""Least squares of classes from released moments: its limit, its cost, its edges."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from sklearn import linear_model

from dpglm import RidgeClassifier
from dpglm.certificate.verify import verify
from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.privacy import GaussianDP
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, L2Ball, Problem, Sparsemax, SquaredCodes
from dpglm.solvers import Plan, SufficientStatistics
from dpglm.solvers.run import run

SPEC = DataSpec(400, 3, n_outputs=3, row_norm=2.0, intercept=2.0)
PROBLEM = Problem(SquaredCodes())


def make_data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, (X + 0.3 * rng.normal(size=X.shape)).argmax(axis=1)


@pytest.mark.parametrize("alpha", [0.0, 20.0])
@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("classes", [(0, 1, 2), ("a", "b")])
def test_the_limit_is_scikit_learn_s(alpha, kind, classes):
    X, y = make_data()
    y = np.array(classes)[np.minimum(y, len(classes) - 1)]
    known = linear_model.RidgeClassifier(alpha=alpha).fit(X, y)
    model = RidgeClassifier(
        alpha=alpha,
        epsilon=1e6,
        delta=1e-2,
        row_norm=2.0,
        classes=classes,
        solver=SufficientStatistics(clip=20.0),
        random_state=0,
    ).fit(X.astype(kind), y)
    np.testing.assert_allclose(model.coef_, np.atleast_2d(known.coef_), atol=2e-3)
    np.testing.assert_allclose(model.intercept_, known.intercept_, atol=2e-3)
    np.testing.assert_allclose(model.decision_function(X), known.decision_function(X), atol=1e-2)
    assert (model.predict(X) == known.predict(X)).mean() > 0.99
    assert not hasattr(model, "predict_proba")


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_what_is_spent_is_the_budget(adjacency):
    """Both releases together, from the numbers in the plan alone."""
    plan = SufficientStatistics().plan(PROBLEM, GaussianDP(0.7), SPEC, adjacency)
    factors = (math.sqrt(2.0), 1.5) if adjacency is Adjacency.REPLACE_ONE else (1.0, 1.0)
    spent = 0.0
    for one, factor in zip(plan.method.releases, factors, strict=True):
        assert one.sensitivity >= factor * one.contribution_bound
        spent += (one.sensitivity / one.noise_std) ** 2
    # The grid of the noise takes the rest.
    assert 0.7 * (1.0 - 1e-4) < math.sqrt(spent) <= 0.7


def test_noise_does_not_grow_with_the_number_of_classes():
    plans = [
        SufficientStatistics().plan(
            PROBLEM, GaussianDP(0.7), dataclasses.replace(SPEC, n_outputs=count)
        )
        for count in (3, 100)
    ]
    few, many = (plan.method.releases[-1].noise_std for plan in plans)
    assert many == pytest.approx(few, rel=1e-6)


def test_the_plan_is_read_back_and_the_certificate_verified(tmp_path):
    X, y = make_data()
    model = RidgeClassifier(
        epsilon=1.0, delta=1e-5, row_norm=2.0, classes=range(3), solver="sufficient_statistics"
    ).fit(X, y)
    plan = model.solution_.plan
    assert Plan.from_document(plan.document) == plan
    model.privacy_.to_json(tmp_path / "certificate.json")
    assert verify(type(model.privacy_).from_json(tmp_path / "certificate.json")).ok


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (5, 40), (30, 3)])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_edges_are_defined(adjacency, n, d, intercept):
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, size=(n, d)), np.zeros(n, dtype=int)
    spec = DataSpec(n, d, n_outputs=3, intercept=intercept)
    for mu, problem in ((1e-3, PROBLEM), (1.0, PROBLEM), (1e3, Problem(SquaredCodes(), L2(1e6)))):
        plan = SufficientStatistics().plan(problem, GaussianDP(mu), spec, adjacency)
        solution = run(plan, prepare_rows(X, y, spec), SeededNoise(0))
        assert solution.w.shape == spec.coefficient_shape
        assert np.isfinite(solution.w).all()


def test_sparsemax_has_the_same_upper_bound():
    X, y = make_data()
    found = []
    for loss in (SquaredCodes(), Sparsemax()):
        plan = SufficientStatistics().plan(Problem(loss), GaussianDP(1.0), SPEC)
        found.append(run(plan, prepare_rows(X, y, SPEC), SeededNoise(0)).w)
    np.testing.assert_array_equal(*found)


def test_a_constraint_holds():
    X, y = make_data()
    problem = Problem(SquaredCodes(), constraint=L2Ball(0.1))
    plan = SufficientStatistics().plan(problem, GaussianDP(10.0), SPEC)
    w = run(plan, prepare_rows(X, y, SPEC), SeededNoise(0)).w
    assert problem.constraint.contains(w[:3])


def test_what_it_does_not_do_is_refused_before_data():
    with pytest.raises(ValueError, match="inference must be None"):
        SufficientStatistics(inference="model").plan(PROBLEM, GaussianDP(1.0), SPEC)
