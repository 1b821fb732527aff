"""An erased row contributes nothing to any release of any solver or step."""

from __future__ import annotations

import functools
from unittest import mock

import numpy as np
import pytest

from dpglm.audit import worst_neighbours
from dpglm.data.groups import GroupedRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, GroupBound
from dpglm.oracle import choices as quantiles
from dpglm.oracle import counts as means
from dpglm.oracle import targets as magnitudes
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem, Target
from dpglm.solvers import NoisyGD, Preprocessed, run
from tests.laws.test_solver_laws import PROBLEMS, SOLVERS
from tests.laws.transcripts import excess, listening

N = 130
MOST_ASKED = 8
CHAINS = {
    "center, scale": [Center(), Scale()],
    "center, whiten": [Center(), Whiten()],
    "center, clip to quantile": [Center(), ClipToQuantile()],
    "scale, instance-optimal center": [Scale(), InstanceOptimalCenter()],
    "instance-optimal center, scale": [InstanceOptimalCenter(), Scale()],
    "center, projection, center, scale": [Center(), RandomProjection(2), Center(), Scale()],
}


def rows_with(problem, spec, row, target):
    """Rows, the last one erased."""
    rng = np.random.default_rng(4)
    X, weights = rng.normal(size=(N, 3)), rng.uniform(0.1, 1.0, N)
    kind = problem.loss.target
    if kind is Target.BINARY:
        y, ends = rng.choice([-1.0, 1.0], N), (-1.0, 1.0)
    elif kind is Target.CLASS:
        y, ends = rng.integers(0, 3, N), (0, 2)
    else:
        y, ends = rng.uniform(0.1, 1.0, N), (0.1, 1.0)
    X[-1], y[-1], weights[-1] = row, ends[target], 0.0
    rows = prepare_rows(X, y, spec, weights=weights)
    return rows if spec.groups is None else GroupedRows(rows, np.array([0, 20, 40, N - 1, N]))


def spec_for(problem, groups=None):
    classes, numeric = problem.loss.target is Target.CLASS, problem.loss.target.is_number
    ends = (0.0, 1.0) if numeric else (-np.inf, np.inf)
    return DataSpec(
        n_rows=N,
        n_features=3,
        n_outputs=3 if classes else 1,
        intercept=1.0,
        target_low=ends[0],
        target_high=ends[1],
        groups=groups,
    )


def shown(solver, problem, groups=None):
    """Largest move of a release by the contents of the erased row; 0 if nothing moves."""
    spec = spec_for(problem, groups)
    plan = solver.plan(problem, ApproximateDP(5.0, 1e-3), spec)
    first = None
    for row, target in (([1e6, -1e6, 1e6], 1), (np.zeros(3), 0)):
        with listening(first, most=MOST_ASKED, missing=N - 1, n=N) as seen:
            run(plan, rows_with(problem, spec, row, target), SeededNoise(1))
        if first is None:
            first = seen
    return excess(first, seen), [
        (one.exact, other.exact) for one, other in zip(first.asked, seen.asked, strict=False)
    ]


@pytest.mark.parametrize("name", SOLVERS)
def test_erased_row_shows_in_no_question_of_a_solver(name):
    case = SOLVERS[name]
    for problem in [one for one in PROBLEMS if case.takes(one)][:2]:
        ratio, asked = shown(case.solver, problem)
        assert ratio <= 1.0
        for one, other in asked:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("chain", "groups"),
    [
        *((chain, None) for chain in CHAINS),
        # Private quantiles refuse groups.
        *((chain, GroupBound(4, 20.0)) for chain in ("center, scale", "center, whiten")),
    ],
)
def test_erased_row_shows_in_no_question_of_a_step(chain, groups):
    solver = Preprocessed(CHAINS[chain], NoisyGD(n_steps=2))
    ratio, asked = shown(solver, Problem(Logistic()), groups)
    assert ratio <= 1.0
    for one, other in asked:
        np.testing.assert_array_equal(one, other)


def farthest(chain):
    """Largest move of a release by the rows of the audit, one erased, over its declared bound."""
    spec = DataSpec(n_rows=12, n_features=3, intercept=1.0)
    solver = Preprocessed(CHAINS[chain], NoisyGD(n_steps=2))
    plan = solver.plan(Problem(Logistic()), ApproximateDP(20.0, 1e-3), spec, Adjacency.ZERO_OUT)
    worst = 0.0
    for pair in worst_neighbours(plan):
        with listening() as first:
            run(plan, pair.first, SeededNoise(1))
        with listening(first) as second:
            run(plan, pair.second, SeededNoise(1))
        worst = max(worst, excess(first, second))
    return worst


@pytest.mark.parametrize("chain", CHAINS)
def test_rows_of_the_audit_move_no_step_by_more_than_declared(chain):
    assert 0.5 < farthest(chain) <= 1.0


# The laws can fail.


@pytest.mark.parametrize(
    ("module", "chain"),
    [
        (means, "scale, instance-optimal center"),
        (magnitudes, "center, scale"),
        (quantiles, "center, clip to quantile"),
    ],
)
def test_steps_that_count_erased_rows_break_the_law(module, chain):
    every = mock.patch.object(module, "counted", lambda block: np.ones_like(block.norms))
    solver = Preprocessed(CHAINS[chain], NoisyGD(n_steps=2))
    asked = functools.partial(shown, solver, Problem(Logistic()))
    assert all(np.array_equal(one, other) for one, other in asked()[1])
    with every:
        assert not all(np.array_equal(one, other) for one, other in asked()[1])
