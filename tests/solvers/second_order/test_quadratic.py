"""Minimisers of released quadratics: against closed forms and general-purpose optimisers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.problem import (
    L1,
    L2,
    Box,
    ElasticNetPenalty,
    GroupLasso,
    L1Ball,
    L2Ball,
    NoPenalty,
    Problem,
    Simplex,
    Squared,
    Unconstrained,
)
from dpglm.solvers.second_order.likelihood import minimize_quadratic
from dpglm.solvers.second_order.preconditioner import Basis
from tests.slowly import together

D = 5
PENALTIES = [
    NoPenalty(),
    L2(0.3),
    L1(0.2),
    ElasticNetPenalty(0.2, 0.5),
    GroupLasso(0.1, ((0, 1), (2,))),
]
BALLS = [Unconstrained(), L2Ball(0.5), L2Ball(50.0)]
CORNERED = [L1Ball(0.7), Box(-0.2, 0.3)]
# The pairs with a prox that is a prox followed by a projection, as in Problem.
PAIRS = [
    *itertools.product(PENALTIES, BALLS),
    *itertools.product(PENALTIES[:4], CORNERED),
    *itertools.product(PENALTIES[:2], [Simplex()]),
]


def example(outputs=None):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(D, D)))[0] @ np.diag([0.3, 0.5, 1.0, 2.0, 4.0])
    factor = rng.normal(size=(2 * D, D))
    shape = (D,) if outputs is None else (D, outputs)
    basis = Basis(vectors, np.linalg.inv(vectors))
    return factor.T @ factor / D, rng.normal(size=shape), basis, 0.1 * rng.normal(size=shape)


def objective(w, matrix, vector, basis, problem, penalized, center):
    v = basis.inverse @ (w - center)
    value = 0.5 * np.vdot(v, matrix @ v) - np.vdot(vector, v)
    return float(value) + problem.regularizer.value(w[:penalized])


@together("penalized", [D, D - 1])
@together(("penalty", "constraint"), PAIRS, ids=repr)
def test_no_feasible_point_nearby_is_better(penalized, penalty, constraint):
    problem = Problem(Squared(), penalty, constraint)
    arguments = (*example()[:3], problem, penalized, example()[3])
    w = minimize_quadratic(*arguments)
    assert constraint.contains(w[:penalized])
    best = objective(w, *arguments)
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-3, 0.1):
        for _ in range(100):
            other = w + size * rng.normal(size=D)
            other[:penalized] = constraint.project(other[:penalized])
            assert objective(other, *arguments) >= best - 1e-9


@pytest.mark.parametrize("penalty", PENALTIES[:2], ids=repr)
def test_equals_a_general_purpose_optimiser(penalty):
    arguments = (*example()[:3], Problem(Squared(), penalty), D - 1, example()[3])
    found = minimize(objective, np.zeros(D), arguments, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(minimize_quadratic(*arguments), found.x, atol=1e-5)


@together("penalized", [D, D - 1])
@together(("penalty", "constraint"), PAIRS, ids=repr)
def test_number_is_that_many_identities(penalized, penalty, constraint):
    _, vector, basis, center = example()
    arguments = vector, basis, Problem(Squared(), penalty, constraint), penalized, center
    expected = minimize_quadratic(1.7 * np.eye(D), *arguments)
    np.testing.assert_allclose(minimize_quadratic(1.7, *arguments), expected, atol=1e-9)


def test_unpenalised_part_is_kept_under_any_penalty():
    _, vector, basis, _ = example()
    problem = Problem(Squared(), L2(1e20))
    w = minimize_quadratic(1.7, vector, basis, problem, D - 1, np.zeros(D))
    np.testing.assert_allclose(w[:-1], 0.0, atol=1e-9)
    along = basis.inverse[:, -1]
    assert w[-1] == pytest.approx(vector @ along / (1.7 * along @ along))


def test_several_outputs_are_solved_together():
    matrix, vector, basis, center = example(outputs=3)
    problem = Problem(Squared(), L2(0.3))
    together = minimize_quadratic(matrix, vector, basis, problem, D, center)
    for k in range(3):
        alone = minimize_quadratic(matrix, vector[:, k], basis, problem, D, center[:, k])
        np.testing.assert_allclose(together[:, k], alone, atol=1e-12)
