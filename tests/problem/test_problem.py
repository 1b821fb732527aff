"""A problem, and which pairs of penalty and set have an exact composed proximal step."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.problem import (
    L1,
    L2,
    Box,
    Constraint,
    ElasticNetPenalty,
    GroupLasso,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Problem,
    Regularizer,
    Simplex,
    Unconstrained,
)

GROUPS = GroupLasso(0.6, ((0, 1),))
EXACT = [
    *[(r, c) for r in (NoPenalty(), L2(0.6)) for c in (L2Ball(0.8), L1Ball(0.8), Simplex())],
    *[(r, L2Ball(0.8)) for r in (L1(0.6), ElasticNetPenalty(0.6, 0.4), GROUPS)],
    *[(r, c) for r in (L1(0.6), ElasticNetPenalty(0.6, 0.4)) for c in (Box(0.3, 1), L1Ball(0.8))],
]


def composed_excess(r: Regularizer, c: Constraint) -> float:
    """How much worse project-after-prox is than the best point of the set, over some w."""
    excess = 0.0
    rng = np.random.default_rng(0)
    for w in rng.normal(size=(8, 2)) * 2:

        def objective(v: np.ndarray, w: np.ndarray = w) -> float:
            inside = c.project(v)
            return float(r.value(inside) + np.sum((inside - w) ** 2) / 2)

        p = c.project(r.prox(w, 1.0))
        starts = [p, c.project(w), np.zeros(2)]
        best = min(minimize(objective, s, method="Nelder-Mead", tol=1e-10).fun for s in starts)
        excess = max(excess, objective(p) - best)
    return excess


@pytest.mark.parametrize(("r", "c"), EXACT, ids=str)
def test_pairs_documented_as_exact_are(r: Regularizer, c: Constraint) -> None:
    assert composed_excess(r, c) < 1e-8


def test_other_pairs_need_not_be_exact() -> None:
    assert composed_excess(GROUPS, Box(0.3, 1)) > 1e-4
    assert composed_excess(L1(0.6), Simplex()) > 1e-4


def test_defaults_and_value_semantics() -> None:
    problem = Problem(Logistic())
    assert problem == Problem(Logistic(), NoPenalty(), Unconstrained())
    assert hash(problem) == hash(Problem(Logistic()))
    with pytest.raises(AttributeError):
        problem.loss = Logistic()  # type: ignore[misc]
