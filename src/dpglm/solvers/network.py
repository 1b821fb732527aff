"""Training of networks: random projections in blocks, losses, steps and plans."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.clipping import Clipping
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.projection import GaussianMatrix
from dpglm.privacy import Adjacency, PrivacyBudget
from dpglm.problem import Problem
from dpglm.problem.links import FloatArray
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import Facts, Outcome, Plan, StepInfo
from dpglm.solvers.gradient.d2p2 import D2P2
from dpglm.solvers.gradient.noisy_gd_method import Descent, DescentState
from dpglm.solvers.parts.algebra import Floats
from dpglm.solvers.parts.schedules import Lift, NoiseLevels, Output

if TYPE_CHECKING:
    from dpglm.data.torch.networks import NetworkRows


@final
@dataclass(frozen=True)
class BlockMatrices:
    """Independent Gaussian matrices of p columns, one for each of k blocks of the coordinates.

    Blocks are those of ``numpy.array_split``. One matrix is in memory at a time; each is made from
    the seed when needed.

    Privacy: if every row's block has norm at most ``C / sqrt(k)``, the squared norm of a projected
    change is at most ``sum_b (D^2 / k) chi2_p / p = D^2 chi2_kp / (k p)`` in distribution, in any
    direction: as with one matrix of k p columns and a change of norm D. A row that is bounded only
    as a whole could have its norm in one block, with the wider distribution of ``chi2_p / p``.
    """

    blocks: int
    columns: int
    seed: tuple[int, ...]

    def project(self, vector: Floats) -> Floats:
        """Return ``A_b^T v_b / sqrt(p)`` of all blocks in sequence."""
        pieces = np.array_split(vector, self.blocks)
        matrices = self._matrices([piece.size for piece in pieces])
        return np.concatenate([A.project(v) for A, v in zip(matrices, pieces, strict=True)])

    def lift(self, values: Floats, size: int, lift: Lift) -> Floats:
        """Lift each block's values, to ``size`` coordinates together."""
        pieces = np.split(values, self.blocks)
        sizes = [len(part) for part in np.array_split(np.empty(size), self.blocks)]
        matrices = self._matrices(sizes)
        return np.concatenate([lift.gradient(A, r) for A, r in zip(matrices, pieces, strict=True)])

    def _matrices(self, sizes: list[int]) -> Iterator[GaussianMatrix]:
        for block, size in enumerate(sizes):
            yield GaussianMatrix(size, self.columns, (*self.seed, block))


# The loss of a network's rows, as far as a plan states it.


@final
@dataclass(frozen=True)
class NetworkLoss(Loss):
    """A loss that only torch can compute, linearised in the parameters, so that its slope is 1.

    The rows of a network's plan are the gradients of its loss, which ``name`` describes. Convexity
    and smoothness are not claimed.
    """

    name: str

    target = Target.REAL
    link = None
    convex = False
    nonnegative = False

    def _value(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return z.copy()

    def _slope(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.ones_like(z)

    def _curvature(self, z: FloatArray, y: NDArray[Any]) -> FloatArray:
        return np.zeros_like(z)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return 1.0

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return math.inf


# Descent on a network: noisy sums of bounded row gradients, and steps made of them.

_SAMPLE, _MATRICES = 0, 1


@final
@dataclass(frozen=True)
class NetworkMethod(NoiseLevels[DescentState]):
    """DP-SGD, D2P2-SGD or a mixture of them, on a network, with every setting decided.

    The columns of ``data`` are the network's trainable parameters, and its rows their gradients,
    bounded by ``clipping``: as a whole, or if gradients are projected (``dimension`` columns for
    each block) in each of ``blocks`` blocks by ``clipping.bound / sqrt(blocks)``. A step is ``v <-
    momentum v + g``, ``w <- w - eta v``, as in torch's SGD. Noise has ``noise_multiplier`` times a
    step's factor times the sensitivity.
    """

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clipping: Clipping
    step_sizes: tuple[float, ...]
    noise_factors: tuple[float, ...]
    momentum: float
    dimension: int | None
    blocks: int
    lift: Lift
    sampling_rate: float
    output: Output
    noise_multiplier: float

    algorithm = "D2P2-SGD on a network"
    subject = " of a network"

    def __post_init__(self) -> None:
        check_real("momentum", self.momentum, least=0.0, below=1.0)
        check_integer("blocks", self.blocks, least=1)
        if not isinstance(self.problem.loss, NetworkLoss):
            raise ValueError(f"loss must be that of a network, got {self.problem.loss!r}")
        data = self.data
        if data != DataSpec(data.n_rows, data.n_features, row_norm=data.row_norm):
            raise ValueError(f"data must be n_rows, n_features and row_norm alone, got {data!r}")
        if self.blocks > (1 if self.dimension is None else self.data.n_coefficients):
            raise ValueError(
                "blocks must be 1 without a projection, and at most the number of parameters, got "
                f"{self.blocks}"
            )
        self.check_levels()

    @functools.cached_property
    def descent(self) -> Descent:
        """The steps along noisy gradients, from a displacement of zero."""
        settings = self.problem, self.data, self.step_sizes, self.output, self.momentum
        return Descent(*settings, dampened=False)

    @property
    def coefficient_noise(self) -> float:
        return self.descent.noise_growth([self.noise_std(step) for step in range(self.n_steps)])

    def prepare(self, rows: Rows, seed: int) -> Rows:
        from dpglm.data.torch.networks import NetworkRows

        if not isinstance(rows, NetworkRows):
            raise PlanMismatchError(
                f"the plan is for a network's rows, but rows are {type(rows).__name__}"
            )
        return rows

    def init(self, seed: int) -> DescentState:
        return self.descent.init(seed)

    def step(self, state: DescentState, oracle: Oracle) -> tuple[DescentState, StepInfo]:
        return self.descent.step(state, self._gradient(state, oracle), self.noise_std(state.step))

    def _gradient(self, state: DescentState, oracle: Oracle) -> Floats:
        declared = self.by_level[self.noise_factors[state.step]]
        matrices = None
        if self.dimension is not None:
            seed = (state.seed, state.step, _MATRICES)
            matrices = BlockMatrices(self.blocks, self.dimension, seed)

        def kernel(rows: Any) -> Floats:
            network: NetworkRows = rows
            total = network.clipped_gradient_sum(
                state.w,
                self.clipping.factor,
                self.blocks,
                alone=not self.adjacency.n_is_public,
                seed=(state.seed, state.step, _SAMPLE),
            )
            return total if matrices is None else matrices.project(total)

        released = oracle.noisy_mean(declared, kernel, self.clipping.bound)
        if matrices is None:
            return released
        return matrices.lift(released, self.data.n_coefficients, self.lift)

    def finish(self, state: DescentState) -> Outcome:
        return Outcome(state.returned)


# Plans for networks, from the settings of D2P2-SGD and public facts.


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

    No public fact bounds the gradients of a network or the distance to go, so the settings that
    depend on them must be given.
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
    return Facts(method.problem, budget, data, adjacency).calibrated(
        lambda noise: dataclasses.replace(method, noise_multiplier=noise)
    )
