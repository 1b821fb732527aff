"""DP-SGD, D2P2-SGD and variants, for any PyTorch network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import check_count, check_integer
from dpglm.certificate.certificate import Certificate, PublicFact, certify, model_digest
from dpglm.certificate.execution import size_facts
from dpglm.data import networks
from dpglm.data.rows import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.budget import Adjacency, PrivacyBudget
from dpglm.privacy.events import canonical
from dpglm.privacy.noise import NoiseSource, SystemNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Problem
from dpglm.solvers.base import Facts, Outcome, Plan, StepInfo, finished
from dpglm.solvers.gradient.d2p2 import D2P2
from dpglm.solvers.network import NetworkLoss
from dpglm.solvers.run import record_plan
from dpglm.solvers.uncertainty import Solution

LossFunction = Callable[[Any, Any], Any]


@checked
def plan_network(
    network: Any,
    loss: LossFunction,
    budget: PrivacyBudget,
    solver: D2P2,
    *,
    n_rows: int,
    adjacency: Adjacency | str = Adjacency.ZERO_OUT,
    block_size: int | None = 256,
    momentum: float = 0.0,
) -> Plan:
    """Plan the private training of a network, before there are rows.

    Parameters
    ----------
    n_rows : int
        Public number of rows, or under ``add_remove`` a public stand-in for it, at least 1.
    network, loss, budget, solver, adjacency, block_size, momentum
        As in ``D2P2Optimizer``.

    Returns
    -------
    Plan
        Every release with its noise.

    Raises
    ------
    ValueError
        If a setting is out of range or missing, the network does not treat rows one by one, or
        the budget is too small.

    Notes
    -----
    Privacy: nothing is released or spent; ``plan.event`` is within the budget.
    """
    check_count("n_rows", n_rows)
    adjacency = Adjacency(adjacency)
    n_parameters = networks.RowGradients(network, loss).n_parameters
    # No public fact bounds the gradients of a network or the distance to go.
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
    name = getattr(loss, "__name__", type(loss).__name__)
    facts = Facts(Problem(NetworkLoss(name)), budget, data, adjacency)
    settings = solver.clip, solver.n_steps, solver.step_size
    return solver.planned(facts, *settings, momentum=momentum, blocks=blocks)


@checked
@final
class D2P2Optimizer:
    """Train a PyTorch network on private rows, one planned step at a time.

    Each step draws a batch (each row enters with the sampling rate), bounds each row's gradient,
    sums, perhaps projects, adds noise, divides by the expected size of the batch, and moves the
    network's parameters. Nothing else about the rows leaves this object.

    Parameters
    ----------
    network : torch.nn.Module
        The network to train in place: its float32 or float64 parameters that require gradients.
        A module that learns from batches (batch normalisation in training) is refused.
    loss : callable
        ``loss(network(inputs), targets)`` of a batch of one row, such as
        ``torch.nn.functional.cross_entropy``: a tensor of one number.
    inputs, targets : torch.Tensor of shape (n, ...)
        The private rows, on the network's device.
    budget : PrivacyBudget
        Privacy budget: (epsilon, delta) if gradients are projected or rows sampled.
    solver : D2P2
        Algorithm, such as ``D2P2.dp_sgd(...)``. ``n_steps``, ``step_size`` and ``clip`` must be
        given.
    adjacency : Adjacency or str, default="zero_out"
        The neighbouring relation. Under ``add_remove`` gradients are computed with one row at a
        time, which is slow, and networks may not draw random numbers.
    block_size : int or None, default=256
        Most parameters in a block of projected gradients, at least 2. Each block has a matrix of
        its own and is clipped to ``clip / sqrt(blocks)``. None for one matrix.
    momentum : float, default=0.0
        Momentum of ``torch.optim.SGD``, in [0, 1).
    n_rows : int, optional
        Public stand-in for the number of rows, needed under ``add_remove`` only.
    noise : NoiseSource, optional
        Source of all randomness; the operating system by default.
    ledger : PrivacyLedger, optional
        Ledger that records the plan before the first release.

    Attributes
    ----------
    plan : Plan
        All planned releases.
    history : tuple of StepInfo
        Public diagnostics of the steps taken.

    Raises
    ------
    ValueError
        If a setting, the network or a tensor is invalid, or a row makes the network fail. Nothing
        is released or spent then.

    Notes
    -----
    Privacy: ``plan.event``, under ``plan.adjacency``, however many steps are taken. The network,
    its initial parameters, shapes and types of rows are public. The network is copied:
    changes of the given one between steps are overwritten.

    References
    ----------
    "D2P2-SGD: Dynamically differentially private projected stochastic gradient descent",
    Algorithm 1. Abadi et al., "Deep learning with differential privacy", CCS 2016. Bu, Wang, Zha
    and Karypis, "Automatic clipping", NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.solvers import D2P2
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    >>> X = torch.rand(500, 2)
    >>> y = (X[:, 0] > X[:, 1]).long()
    >>> solver = D2P2.dp_sgd(n_steps=3, step_size=0.5, clip=1.0)
    >>> optimizer = D2P2Optimizer(
    ...     network, torch.nn.functional.cross_entropy, X, y, ApproximateDP(1.0, 1e-5), solver
    ... )
    >>> certificate = optimizer.run()
    >>> certificate.epsilon <= 1.0, len(optimizer.history)
    (True, 3)
    """

    def __init__(
        self,
        network: Any,
        loss: LossFunction,
        inputs: Any,
        targets: Any,
        budget: PrivacyBudget,
        solver: D2P2,
        *,
        adjacency: Adjacency | str = Adjacency.ZERO_OUT,
        block_size: int | None = 256,
        momentum: float = 0.0,
        n_rows: int | None = None,
        noise: NoiseSource | None = None,
        ledger: PrivacyLedger | None = None,
    ) -> None:
        self._network, self._ledger = network, ledger
        self._noise = SystemNoise() if noise is None else noise
        relation = Adjacency(adjacency)
        self._gradients = networks.RowGradients(network, loss)
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            networks.check_tensor(name, tensor, self._gradients.device)
        if relation.n_is_public:
            if n_rows is not None and n_rows != len(inputs):
                raise ValueError(f"n_rows must be that of inputs, {len(inputs)}, got {n_rows!r}")
            n_rows = len(inputs)
        if n_rows is None:
            raise ValueError("n_rows must be given under 'add_remove', which keeps it private")
        self.plan = plan_network(
            network,
            loss,
            budget,
            solver,
            n_rows=n_rows,
            adjacency=relation,
            block_size=block_size,
            momentum=momentum,
        )
        rows = networks.NetworkRows.of(
            self._gradients, inputs, targets, self.plan.data, alone=not relation.n_is_public
        )
        self._curator = Curator(relation, self._noise)
        self._oracle = Oracle(rows, self.plan.problem.loss, self._curator)
        self._state = self.plan.method.init(int(self._noise.words(1)[0]))
        self._begun = 0
        self._entry: LedgerReference | None = None
        self._certificate: Certificate | None = None
        self.history: tuple[StepInfo, ...] = ()

    @property
    def done(self) -> bool:
        """Whether all planned steps have been taken."""
        return len(self.history) == self.plan.n_steps

    def step(self) -> StepInfo:
        """Take the next planned step, and write its parameters into the network.

        Returns
        -------
        StepInfo
            Public diagnostics.

        Raises
        ------
        RuntimeError
            If all steps have been taken, or one was interrupted.
        LedgerError
            If the ledger refuses; nothing is released or spent then.
        PlanMismatchError
            If the releases of the last step differ from the plan.

        Notes
        -----
        Privacy: the first step records the whole plan in the ledger. After the last one the
        network holds the output of the solver: the last iterate, or an average.
        """
        if self.done or self._begun > len(self.history):
            what = "all planned steps were taken" if self.done else "a step was interrupted"
            raise RuntimeError(f"no step is left: {what}. A new optimizer spends its own budget")
        if self._ledger is not None and self._entry is None:
            self._entry = record_plan(self.plan, self._ledger, self._noise)
        self._begun += 1
        # Overflow depends on the rows, and must not end a run that has been charged.
        with np.errstate(all="ignore"):
            self._state, info = self.plan.method.step(self._state, self._oracle)
        self.history = (*self.history, info)
        is_last = len(self.history) == self.plan.n_steps
        outcome = finished(self.plan.method, self._state) if is_last else None
        w = self._state.w if outcome is None else outcome.w
        networks.write_parameters(self._network, self._gradients.start + w)
        if outcome is not None:
            self._certificate = self._certified(outcome)
        return info

    def run(self) -> Certificate:
        """Take all remaining steps, and return the certificate."""
        while not self.done:
            self.step()
        return self.certificate()

    def certificate(self) -> Certificate:
        """Return the certificate of all steps, with ``network_digest`` of the trained network.

        RuntimeError if steps are left to take.
        """
        if self._certificate is None:
            raise RuntimeError(
                f"a certificate needs all {self.plan.n_steps} planned steps; "
                f"{len(self.history)} were taken"
            )
        return self._certificate

    def _certified(self, outcome: Outcome) -> Certificate:
        plan, method = self.plan, self.plan.method
        if self._curator.event != canonical(method.mechanisms):
            raise PlanMismatchError(
                f"planned to release {method.mechanisms}, but released {self._curator.event}"
            )
        solution = Solution(
            **vars(outcome),
            plan=plan,
            history=self.history,
            noise=self._noise.name,
            ledger_entry=self._entry,
        )
        facts = (
            *size_facts(plan.data, plan.adjacency),
            PublicFact("row_norm", plan.data.row_norm, "declared"),
            PublicFact("target_bounds", [-np.inf, np.inf], "declared"),
            PublicFact("network", " ".join(str(self._network).split()), "declared"),
            PublicFact("initial_parameters", model_digest(self._gradients.start, 0.0), "declared"),
        )
        final, name = networks.flat_parameters(self._network), type(self._network).__name__
        return certify(name, solution, self._noise, facts, final, 0.0)


@checked
def network_digest(network: Any) -> str:
    """SHA-256 of a network's trainable parameters, as certificates of networks record it.

    Parameters
    ----------
    network : torch.nn.Module
        With the parameters in the order in which ``network.parameters()`` gives them.
    """
    return model_digest(networks.flat_parameters(network), 0.0)
