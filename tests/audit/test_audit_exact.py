"""Exact privacy loss in low dimension: the claim to the last digits, and bugs above it."""

from __future__ import annotations

import pytest

from dpglm.audit import exact_audit
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.problem import L1Ball, Logistic, Problem
from dpglm.solvers import FrankWolfe, NoisyGD, pure_gd
from tests.planted import planted

APPROXIMATE, PURE = ApproximateDP(1.0, 1e-5), ApproximateDP(1.0, 0.0)
ONE_STEP = NoisyGD(n_steps=1, clip=0.25)
SAMPLED = NoisyGD(n_steps=1, clip=0.25, sampling_rate=0.3)
PURE_STEP = pure_gd(n_steps=1, clip=0.25)


def plan_of(solver, budget=APPROXIMATE, adjacency=Adjacency.ZERO_OUT, n_features=1):
    problem = Problem(Logistic(), constraint=L1Ball(1e-3))
    return solver.plan(problem, budget, DataSpec(n_rows=3, n_features=n_features), adjacency)


@pytest.mark.parametrize(
    ("solver", "budget", "adjacency", "n_features", "share"),
    [
        (ONE_STEP, APPROXIMATE, Adjacency.ZERO_OUT, 1, 0.999),
        (ONE_STEP, APPROXIMATE, Adjacency.REPLACE_ONE, 1, 0.999),
        (ONE_STEP, APPROXIMATE, Adjacency.ADD_REMOVE, 1, 0.98),
        (ONE_STEP, APPROXIMATE, Adjacency.ZERO_OUT, 2, 0.999),
        (SAMPLED, APPROXIMATE, Adjacency.ZERO_OUT, 1, 0.99),
        # Bounds for replaced rows under sampling are those of groups of two.
        (SAMPLED, APPROXIMATE, Adjacency.REPLACE_ONE, 1, 0.6),
        (PURE_STEP, PURE, Adjacency.ZERO_OUT, 1, 0.999),
        (PURE_STEP, PURE, Adjacency.REPLACE_ONE, 1, 0.999),
        (FrankWolfe(n_steps=1, slope_clip=0.25), APPROXIMATE, Adjacency.ZERO_OUT, 1, 0.5),
    ],
)
def test_the_loss_is_the_claimed_one_and_no_more(solver, budget, adjacency, n_features, share):
    report = exact_audit(plan_of(solver, budget, adjacency, n_features))
    assert not report.refuted
    assert share <= report.ratio <= 1.0


@pytest.mark.parametrize(
    ("solver", "budget"), [(ONE_STEP, APPROXIMATE), (SAMPLED, APPROXIMATE), (PURE_STEP, PURE)]
)
@pytest.mark.parametrize(
    ("bug", "adjacency"),
    [("no_clipping", Adjacency.ZERO_OUT), ("wrong_relation", Adjacency.REPLACE_ONE)],
)
def test_bugs_are_refuted(solver, budget, bug, adjacency):
    plan = plan_of(solver, budget, adjacency)
    with planted(bug):
        report = exact_audit(plan)
    assert report.refuted
    assert report.epsilon > report.claim.epsilon


def test_further_releases_are_refused():
    with pytest.raises(ValueError, match="one thing only"):
        exact_audit(plan_of(NoisyGD(n_steps=2, clip=0.25)))
    with pytest.raises(ValueError, match="at most 2 coordinates"):
        exact_audit(plan_of(ONE_STEP, n_features=3))
