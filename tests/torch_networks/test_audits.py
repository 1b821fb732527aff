"""Attacks on networks at known neighbours: under the claim, and over it with half the noise."""

from __future__ import annotations

import pytest
import torch

from dpglm.audit import audit
from dpglm.audit.neighbours import Neighbours
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.solvers import D2P2
from tests.slowly import some_quickly
from tests.torch_networks.networks import planned, rows_of, squared

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


def odd(features=2):
    """A network of zero gradients at rows of zeros, which an opposite target turns around."""
    torch.manual_seed(1)
    layers = (torch.nn.Linear(features, 2, bias=False), torch.nn.Tanh())
    return torch.nn.Sequential(*layers, torch.nn.Linear(2, 1, bias=False)).double()


def game(solver, adjacency):
    X = torch.zeros(3, 2, dtype=torch.float64)
    X[0] = torch.tensor([3.0, 1.0])
    y = torch.full((3, 1), 50.0, dtype=torch.float64)
    budget = ApproximateDP(8.0 if solver.sampling_rate == 1.0 else 3.0, 1e-2)
    facts = {"module": odd(), "loss": squared}
    plan = planned(solver, n_rows=3, budget=budget, adjacency=adjacency, block_size=3, **facts)
    other = (X, -y) if adjacency is Adjacency.REPLACE_ONE else (torch.zeros_like(X), y)
    pair = (rows_of(plan, *rows, **facts) for rows in ((X, y), other))
    return plan, [Neighbours("one long gradient", *pair)]


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
    assert audit(plan, neighbours=neighbours, planted_bug="half_noise", **settings).refuted
