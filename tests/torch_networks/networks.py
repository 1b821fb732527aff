"""Small networks and rows for the tests."""

from __future__ import annotations

import numpy as np
import torch

from dpglm.data.networks import NetworkRows, RowGradients
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.solvers import D2P2, Plan
from dpglm.torch import plan_network

BUDGET = ApproximateDP(1.0, 1e-5)
SHORT = {"n_steps": 4, "step_size": 0.2, "clip": 0.5}
cross_entropy = torch.nn.functional.cross_entropy
squared = torch.nn.functional.mse_loss


def network(dtype=torch.float64, seed=0, features=4, outputs=3):
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(features, 6), torch.nn.Tanh(), torch.nn.Linear(6, outputs))
    return torch.nn.Sequential(*layers).to(dtype)


def tensors(n=40, dtype=torch.float64, seed=0, features=4, outputs=3):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.normal(size=(n, features))).to(dtype)
    return X, torch.from_numpy(rng.integers(0, outputs, n))


def planned(solver=None, *, module=None, loss=cross_entropy, n_rows=40, **settings) -> Plan:
    module = network() if module is None else module
    solver = D2P2.dp_sgd(normalize=False, **SHORT) if solver is None else solver
    settings = {"budget": BUDGET, "block_size": 16} | settings
    return plan_network(module, loss, solver=solver, n_rows=n_rows, **settings)


def rows_of(plan: Plan, X, y, *, module=None, loss=cross_entropy) -> NetworkRows:
    module = network() if module is None else module
    alone = plan.adjacency is Adjacency.ADD_REMOVE
    return NetworkRows.of(RowGradients(module, loss), X, y, plan.data, alone=alone)


def one_by_one(module, loss, X, y) -> np.ndarray:
    """Gradients by plain autograd, a row after the other, of shape (n, P)."""
    found = []
    for x, target in zip(X, y, strict=True):
        module.zero_grad()
        loss(module(x[None]), target[None]).backward()
        found.append(np.concatenate([p.grad.double().numpy().ravel() for p in module.parameters()]))
    return np.array(found)
