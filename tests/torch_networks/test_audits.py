"""Attacks on networks at known neighbours: under the claim, and over it with half the noise."""

from __future__ import annotations

import pytest

from dpglm.audit import audit
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.solvers import D2P2
from experiments.audits import networks
from tests.planted import planted
from tests.slowly import some_quickly

FLAT = {"n_steps": 1, "step_size": 1e-3, "clip": 0.5, "normalize": False}
CASES = some_quickly(
    [
        (D2P2.dp_sgd(**FLAT), Adjacency.REPLACE_ONE),
        (D2P2.dp_sgd(**FLAT), Adjacency.ZERO_OUT),
        (D2P2.dp2_sgd(dimension=2, **FLAT), Adjacency.ZERO_OUT),
        (D2P2.dp_sgd(sampling_rate=0.8, **FLAT), Adjacency.ZERO_OUT),
    ],
    2,
)
NAMES = ["replace_one", "dp_sgd", "projected", "sampled"]


def game(solver, adjacency):
    budget = ApproximateDP(8.0 if solver.sampling_rate == 1.0 else 3.0, 1e-2)
    setup = networks.attacked(solver, adjacency, budget=budget)
    return setup.target, setup.neighbours


@pytest.mark.parametrize(("solver", "adjacency"), CASES, ids=NAMES)
def test_the_claim_is_not_refuted(solver, adjacency):
    plan, neighbours = game(solver, adjacency)
    report = audit(plan, neighbours=neighbours, runs=100, pilot_runs=60, seed=1)
    assert not report.refuted
    assert 0.5 < report.ratio <= 1.0


@pytest.mark.parametrize(("solver", "adjacency"), CASES, ids=NAMES)
def test_half_the_noise_is_caught(solver, adjacency):
    plan, neighbours = game(solver, adjacency)
    # Where the row is often left out, it takes more runs.
    runs = 100 if solver.sampling_rate == 1.0 else 250
    settings = {"runs": runs, "pilot_runs": 60, "seed": 1}
    with planted("half_noise"):
        assert audit(plan, neighbours=neighbours, **settings).refuted


@pytest.mark.parametrize("plant", [networks.unbounded, networks.bounded_as_a_batch])
def test_gradients_that_are_not_bounded_row_by_row_are_caught(plant):
    plan, neighbours = game(D2P2.dp_sgd(**FLAT), Adjacency.ZERO_OUT)
    with plant():
        report = audit(plan, neighbours=neighbours, runs=100, pilot_runs=60, seed=1)
    assert report.refuted
