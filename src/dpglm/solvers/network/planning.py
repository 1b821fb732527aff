"""Plans for networks, from the settings of D2P2-SGD and public facts."""

from __future__ import annotations

import dataclasses

from dpglm._validation import check_integer
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.solvers.base import Plan
from dpglm.solvers.gradient.d2p2 import D2P2
from dpglm.solvers.network.loss import NetworkLoss
from dpglm.solvers.network.method import NetworkMethod
from dpglm.solvers.parts.planning import calibrated

__all__ = ["network_plan"]


def network_plan(
    loss: NetworkLoss,
    solver: D2P2,
    budget: PrivacyBudget,
    adjacency: Adjacency,
    *,
    n_rows: int,
    n_parameters: int,
    block_size: int | None,
    momentum: float,
) -> Plan:
    """Decide every setting and the noise of a network's training.

    Nothing public says how long gradients of a network are, or how far to go: the settings that
    depend on it must be given.
    """
    if solver.n_steps is None or solver.step_size is None or solver.clip is None:
        raise ValueError(
            "n_steps, step_size and clip must be given for a network, as no public fact decides "
            f"them, got {solver.n_steps!r}, {solver.step_size!r} and {solver.clip!r}"
        )
    if block_size is not None:
        check_integer("block_size", block_size, least=2)
    data = DataSpec(n_rows=n_rows, n_features=n_parameters, row_norm=solver.clip)
    blocks = 1
    if solver.projected and block_size is not None:
        blocks = -(-n_parameters // block_size)
    dimension = solver.dimension_of(-(-n_parameters // blocks))
    if dimension is not None:
        # The shorter blocks.
        solver.lift.noise_growth(n_parameters // blocks, dimension)
    method = NetworkMethod(
        problem=Problem(loss),
        data=data,
        adjacency=adjacency,
        clipping=solver.clipping(solver.clip),
        step_sizes=tuple((solver.step_size * solver.schedule.factors(solver.n_steps)).tolist()),
        noise_factors=solver.noise_factors(solver.n_steps),
        momentum=momentum,
        dimension=dimension,
        blocks=blocks,
        lift=solver.lift,
        sampling_rate=solver.sampling_rate,
        output=solver.output,
        noise_multiplier=1.0,
    )
    return calibrated(
        lambda noise: dataclasses.replace(method, noise_multiplier=noise),
        method.problem,
        budget,
        data,
        adjacency,
    )
