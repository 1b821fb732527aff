"""Networks: their noisy gradients at known neighbours, and bugs that only networks can have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from dpglm.audit import Neighbours
from dpglm.data import networks
from dpglm.data.networks import NetworkRows, RowGradients
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.solvers import D2P2, Plan
from dpglm.torch import plan_network
from experiments.audits.case import (
    ADD_REMOVE,
    BUDGET,
    RELATIONS,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
)
from experiments.audits.solvers import SAMPLED

__all__ = ["BUGS", "CASES"]

N_ROWS, BLOCK_SIZE = 3, 3
RUNS = 0.4
"""Gradients of a network take time."""
FLAT: dict[str, Any] = {"step_size": 1e-3, "clip": 0.5, "normalize": False}
DP_SGD = D2P2.dp_sgd(n_steps=2, **FLAT)
PROJECTED = D2P2(dimension=2, n_steps=2, noise_levels=2, **FLAT)
FEW_RUNS = "Gradients of a network are slow, so there are fewer runs."
FEW_LENGTHS = (
    "A random projection shortens the change in some runs, and a block may contain little of it."
)


def two_layers() -> Any:
    """Make a network with zero gradient at a row of zeros; its sign depends on the target."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = (torch.nn.Linear(2, 2, bias=False), torch.nn.Tanh())
        return torch.nn.Sequential(*layers, torch.nn.Linear(2, 1, bias=False)).double()


def squared(outputs: Any, targets: Any) -> Any:
    """Squared error."""
    return (outputs - targets) ** 2


def attacked(
    solver: D2P2, relation: Adjacency, momentum: float = 0.0, budget: ApproximateDP = BUDGET
) -> Setup:
    """Attack all noisy gradients of a network: the first of three rows has a long one."""
    import torch

    plan = plan_network(
        two_layers(),
        squared,
        budget,
        solver,
        n_rows=N_ROWS,
        adjacency=relation,
        block_size=BLOCK_SIZE,
        momentum=momentum,
    )
    X = torch.zeros(N_ROWS, 2, dtype=torch.float64)
    X[0] = torch.tensor([3.0, 1.0])
    y = torch.full((N_ROWS, 1), 50.0, dtype=torch.float64)
    others = {
        ZERO_OUT: (torch.zeros_like(X), y),
        ADD_REMOVE: (X[1:], y[1:]),
        REPLACE_ONE: (X, -y),
    }
    first, second = (_rows(plan, *each) for each in ((X, y), others[relation]))
    return Setup(plan, (Neighbours("one long gradient", first, second),))


def _rows(plan: Plan, X: Any, y: Any) -> NetworkRows:
    gradients = RowGradients(two_layers(), squared)
    return NetworkRows.of(gradients, X, y, plan.data, alone=not plan.adjacency.n_is_public)


def network_cases(
    solver: D2P2,
    variant: str,
    relations: tuple[Adjacency, ...] = RELATIONS,
    why: str = FEW_RUNS,
    **settings: Any,
) -> list[Case]:
    """Make one case for each relation."""

    def make(relation: Adjacency) -> Callable[[], Setup]:
        return lambda: attacked(solver, relation, **settings)

    return [
        Case("networks", "D2P2Optimizer", make(relation), relation, variant, why, RUNS)
        for relation in relations
    ]


CASES: list[Case] = [
    *network_cases(DP_SGD, "DP-SGD"),
    *network_cases(
        dataclasses.replace(DP_SGD, normalize=True, stability=0.01),
        "momentum, automatic clipping",
        (ZERO_OUT,),
        momentum=0.9,
    ),
    *network_cases(
        dataclasses.replace(DP_SGD, sampling_rate=0.7), "Poisson samples", (ZERO_OUT,), SAMPLED
    ),
    *network_cases(PROJECTED, "projected in blocks, fading noise", (ZERO_OUT,), FEW_LENGTHS),
]


def _planted(
    bug: str, variant: str, listed: str | None = None, relation: Adjacency = ZERO_OUT
) -> Case:
    case = next(one for one in CASES if (one.variant, one.relation) == (variant, relation))
    return dataclasses.replace(case, bug=bug, planted_bug=listed, why="")


def unbounded() -> AbstractContextManager[Any]:
    """Leave gradients as long as they are."""
    return mock.patch.object(networks, "_bounded", lambda gradients, factor, blocks: gradients)


def bounded_as_a_batch() -> AbstractContextManager[Any]:
    """Bound the mean gradient of a batch in place of every row's."""
    one_by_one = networks._bounded

    def together(gradients: Any, factor: Any, blocks: int) -> Any:
        rows = len(gradients)
        return rows * one_by_one(gradients.mean(dim=0, keepdim=True), factor, blocks)

    return mock.patch.object(networks, "_bounded", together)


def under(case: Case, plant: Callable[[], AbstractContextManager[Any]]) -> Case:
    """Attack a case while a bug is planted."""
    sound = case.make
    return dataclasses.replace(case, make=lambda: dataclasses.replace(sound(), under=plant))


BUGS: list[Case] = [
    _planted("half the noise", "DP-SGD", "half_noise"),
    _planted("half the noise", "DP-SGD", "half_noise", REPLACE_ONE),
    _planted("half the noise", "projected in blocks, fading noise", "half_noise"),
    _planted("noise for the wrong relation", "DP-SGD", "wrong_relation", REPLACE_ONE),
    under(_planted("gradients of any length", "DP-SGD"), unbounded),
    under(_planted("gradients bounded as a batch", "DP-SGD"), bounded_as_a_batch),
]
