"""The last-iterate claim against the solver itself: neighbours that reach it, and never pass it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy.budget import GaussianDP
from dpglm.privacy.events import LastIterate
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import L2, Logistic, Problem
from dpglm.solvers import Constant, Last, NoisyGD, run

STEPS, STEP_SIZE, PENALTY, CLIP, RUNS = 8, 2.0, 0.2, 0.05, 1200


def returned(plan, kept):
    """Last iterates of many runs, with and without the first row's contribution."""
    X, y = np.ones((2, 1)), np.ones(2)
    rows = prepare_rows(X, y, plan.data, weights=np.array([float(kept), 1.0]))
    return np.array([run(plan, rows, SeededNoise(2 * i + kept)).w[0] for i in range(RUNS)])


# An attack on the same claim is quick: tests/audit/test_attacks.py.
@pytest.mark.slow
def test_neighbour_distance_equals_event():
    # With slopes clipped at 0.05 (predictions stay far below log 19, where they would fall under
    # it) the gradient is constant, and every step contracts by exactly 1 / (1 + eta m): the worst
    # case of the theorem. Composition of the same steps would claim a third more.
    solver = NoisyGD(
        n_steps=STEPS,
        step_size=STEP_SIZE,
        schedule=Constant(),
        clip=CLIP,
        momentum=0.0,
        output=Last(),
    )
    data = DataSpec(n_rows=2, n_features=1)
    plan = solver.plan(Problem(Logistic(), L2(PENALTY)), GaussianDP(1.0), data)
    event = plan.event
    assert isinstance(event, LastIterate)
    assert math.isclose(event.mu, 1.0, rel_tol=1e-6)
    with_row, without = returned(plan, 1), returned(plan, 0)
    spread = math.sqrt((with_row.var(ddof=1) + without.var(ddof=1)) / 2.0)
    measured = (with_row.mean() - without.mean()) / spread
    error = math.sqrt(2.0 / RUNS)
    assert measured <= 1.0 + 4.0 * error
    assert measured >= 1.0 - 4.0 * error
    # Planted bug: a claim that steps contract twice as fast would be refuted by the same runs.
    bold = LastIterate(event.noise_multiplier, event.contraction**2, STEPS).mu
    assert measured > bold + 4.0 * error
