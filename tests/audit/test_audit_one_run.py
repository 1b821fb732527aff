"""One run on many canaries: a bound that holds, is of use, and refutes bugs."""

from __future__ import annotations

import pytest

from dpglm.audit import audit_in_one_run
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.problem import Logistic, Problem
from dpglm.solvers import FrankWolfe, NoisyGD
from tests.planted import planted

SOLVER = NoisyGD(n_steps=2, clip=0.25, step_size=1e-3)


def plan_of(solver=SOLVER, epsilon=8.0, adjacency=Adjacency.ZERO_OUT, size=300):
    data = DataSpec(n_rows=size, n_features=size)
    return solver.plan(Problem(Logistic()), ApproximateDP(epsilon, 1e-5), data, adjacency)


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
def test_a_right_claim_is_not_refuted_and_the_bound_is_of_use(adjacency):
    report = audit_in_one_run(plan_of(adjacency=adjacency), random_state=0, seed=0)
    assert not report.refuted
    assert 0.2 <= report.ratio <= 1.0
    assert report.epsilon == pytest.approx(report.ratio * report.claim.epsilon)


def test_a_bug_is_refuted():
    # Of a large epsilon a few hundred coins cannot tell more than that they were all right.
    plan = plan_of(epsilon=1.5)
    assert not audit_in_one_run(plan, random_state=0, seed=0).refuted
    with planted("no_clipping"):
        assert audit_in_one_run(plan, random_state=0, seed=0).refuted


def test_rows_without_all_columns_are_refused():
    with pytest.raises(ValueError, match="Gaussian sums"):
        audit_in_one_run(plan_of(FrankWolfe(n_steps=1, slope_clip=0.25), size=5))
