"""Every plan for a network can be executed, whatever the rows are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.events import canonical
from dpglm.privacy.noise import SystemNoise
from dpglm.solvers import D2P2, Exponential, LeastSquares, Plan, TailAverage, Transpose, run
from tests.torch_networks.networks import planned, rows_of, squared

HOSTILE = [0.0, -0.0, 1.0, -1e-300, 1e300, 3e38, math.inf, -math.inf, math.nan]


@st.composite
def solvers(draw):
    return D2P2(
        projected=draw(st.booleans()),
        dimension=draw(st.sampled_from([None, 2, 5])),
        lift=draw(st.sampled_from([Transpose(), LeastSquares()])),
        noise_schedule=draw(st.sampled_from([Exponential(1.0), Exponential(0.1)])),
        noise_levels=2,
        normalize=draw(st.booleans()),
        stability=draw(st.sampled_from([1e-12, 0.1, 1e12])),
        clip=draw(st.sampled_from([1e-15, 0.3, 1e15])),
        n_steps=draw(st.integers(1, 3)),
        step_size=draw(st.sampled_from([1e-300, 0.5, 1e300])),
        sampling_rate=draw(st.sampled_from([1e-9, 0.5, 1.0])),
        output=TailAverage(),
    )


@pytest.mark.filterwarnings("ignore:steps overflowed")
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    solver=solvers(),
    adjacency=st.sampled_from(list(Adjacency)),
    epsilon=st.sampled_from([1e-3, 1.0, 30.0]),
    block_size=st.sampled_from([None, 2, 6]),
    inputs=st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=12),
    width=st.sampled_from([0, 3]),
)
def test_plans_can_be_run(solver, adjacency, epsilon, block_size, inputs, width):
    X = torch.tensor(inputs, dtype=torch.float64)[: len(inputs) // 2 * 2].reshape(-1, 2)
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 1, bias=False)
    if width:
        layers = (torch.nn.Linear(2, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
        module = torch.nn.Sequential(*layers)
    module = module.double()
    facts = {"module": module, "loss": squared}
    try:
        plan = planned(
            solver,
            n_rows=len(X),
            adjacency=adjacency,
            budget=ApproximateDP(epsilon, 1e-6),
            block_size=block_size,
            **facts,
        )
    except ValueError as error:
        if "dimension must" not in str(error):
            raise
        return
    assert Plan.from_document(plan.document) == plan
    solution = run(plan, rows_of(plan, X, X[:, :1], **facts), SystemNoise())
    assert np.isfinite(solution.w).all()
    assert canonical(plan.method.mechanisms) == plan.event
