"""D2P2-SGD: gradient descent with fading noise and random projections, and its special cases."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

from dpglm._validation import check_bools, check_integer, check_real
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.clipping import AutomaticClipping, Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.oracle.projection import (
    GaussianMatrix,
    noisy_projected_gradient,
    projected_gradient_release,
)
from dpglm.privacy.noise.additive import GaussianNoise, ProjectedGaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import Facts, FitMethod, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.gradient.noisy_gd_method import Descent, DescentState
from dpglm.solvers.network import NetworkLoss, network_gradient, network_rows
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given
from dpglm.solvers.parts.schedules import (
    MOST_LEVELS,
    Constant,
    InverseSqrt,
    Last,
    LeastSquares,
    Lift,
    Output,
    Schedule,
    Transpose,
    in_levels,
)

_DIMENSION_SHARE, _MOST_DIMENSION = 0.7, 512


@final
@dataclass(frozen=True)
class D2P2(Solver):
    """Normalised gradients, fading noise, and a new random projection for each step.

    Step k releases ``r = A^T g / sqrt(p)`` with noise of standard deviation proportional to
    ``noise_schedule``, and moves by the lifted r. Settings left at None are decided from public
    facts.

    Parameters
    ----------
    projected : bool, default=True
        Whether gradients are projected at all.
    dimension : int, optional
        Columns p of each A, at least 2; it may exceed the number m of coefficients. By default
        seven tenths of m, at least 2 and at most 512.
    lift : Lift, default=Transpose()
        From r back to a gradient.
    noise_schedule : Schedule, default=InverseSqrt()
        Factors on the noise's standard deviation, rounded to at most ``noise_levels`` values.
    noise_levels : int, default=8
        Number of distinct noises, from 2 to 32; accounting takes time for each.
    normalize : bool, default=True
        Scale each row's gradient to ``C g / (|g| + stability C)``; False: clip it at C.
    stability : float, default=0.1
        The constant gamma over C, above 0.
    schedule : Schedule, default=Constant()
        Factors on the step size.
    n_steps, clip, step_size, sampling_rate, output
        As in ``NoisyGD``.

    Notes
    -----
    Privacy: T releases of bounded sums through public matrices, each a ``ProjectedGaussian``,
    Poisson-sampled below rate 1; ``Gaussian`` without projection. The norm of a projected row is
    random and unbounded; the accounting uses its distribution. ``docs/solvers/d2p2.md`` has the
    proof.

    References
    ----------
    "D2P2-SGD: Dynamically differentially private projected stochastic gradient descent",
    Algorithm 1, with Poisson samples in place of batches from a partition, and the gradient
    divided by p once more, so that step sizes mean the same as without projection.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> solver = D2P2.d2p_sgd(n_steps=2, noise_levels=2)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [round(release.noise_multiplier, 2) for release in plan.method.releases]
    [6.46, 4.57]
    """

    projected: bool = True
    dimension: int | None = None
    lift: Lift = field(default_factory=Transpose)
    noise_schedule: Schedule = field(default_factory=InverseSqrt)
    noise_levels: int = 8
    normalize: bool = True
    stability: float = 0.1
    clip: float | None = None
    n_steps: int | None = None
    step_size: float | None = None
    schedule: Schedule = field(default_factory=Constant)
    sampling_rate: float = 1.0
    output: Output = field(default_factory=Last)

    def __post_init__(self) -> None:
        check_bools(self)
        if self.dimension is not None:
            check_integer("dimension", self.dimension, least=2)
        check_real(
            "noise_levels",
            check_integer("noise_levels", self.noise_levels, least=2),
            most=MOST_LEVELS,
        )
        check_real("stability", self.stability, above=0.0)
        check_given(self)

    @classmethod
    def dp_sgd(cls, **settings: Any) -> Self:
        """Make DP-SGD: constant noise, no projection."""
        return cls(projected=False, noise_schedule=Constant(), **settings)

    @classmethod
    def d2p_sgd(cls, **settings: Any) -> Self:
        """Make D2P-SGD: fading noise, no projection."""
        return cls(projected=False, **settings)

    @classmethod
    def dp2_sgd(cls, **settings: Any) -> Self:
        """Make DP2-SGD: constant noise, projection."""
        return cls(noise_schedule=Constant(), **settings)

    @classmethod
    def priv_sgd(cls, **settings: Any) -> Self:
        """Make PrivSGD: constant noise, projection, a least-squares lift."""
        return cls(noise_schedule=Constant(), lift=LeastSquares(), **settings)

    def decide(self, facts: Facts) -> Plan:
        problem, data = facts.problem, facts.data
        clip = defaults.checked_clip(problem.loss, data, self.clip)
        dimension = self.dimension_of(data.n_coefficients)
        n_steps, step_size = defaults.steps(
            problem,
            data,
            mu=facts.mu,
            clip=clip,
            momentum=0.0,
            schedule=self.schedule,
            n_steps=self.n_steps,
            step_size=self.step_size,
        )
        if self.step_size is None and dimension is not None:
            # A projected gradient is longer, in the mean of squares, by this factor.
            step_size /= 1.0 + (data.n_coefficients + 1) / dimension
        return self.planned(facts, clip, n_steps, step_size)

    def planned(
        self,
        facts: Facts,
        clip: float,
        n_steps: int,
        step_size: float,
        *,
        momentum: float = 0.0,
        blocks: int = 1,
    ) -> Plan:
        """Decide the noise of steps that are given, on rows or on a network in blocks."""
        size, lift = facts.data.n_coefficients, self.lift
        dimension = self.dimension_of(-(-size // blocks))
        if dimension is not None:
            # The shorter blocks.
            lift.noise_growth(size // blocks, dimension)
        levels = in_levels(self.noise_schedule.factors(n_steps), self.noise_levels)
        automatic = AutomaticClipping(clip, self.stability)
        method = D2P2Method(
            problem=facts.problem,
            data=facts.data,
            adjacency=facts.adjacency,
            clipping=automatic if self.normalize else FlatClipping(clip),
            step_sizes=tuple((step_size * self.schedule.factors(n_steps)).tolist()),
            noise_factors=tuple(levels.tolist()),
            momentum=momentum,
            dimension=dimension,
            blocks=blocks,
            lift=lift,
            sampling_rate=self.sampling_rate,
            output=self.output,
            noise_multiplier=1.0,
        )
        return facts.calibrated(lambda sigma: dataclasses.replace(method, noise_multiplier=sigma))

    def dimension_of(self, n_coefficients: int) -> int | None:
        """Return the columns of a matrix for this many coefficients; None without projection."""
        if not self.projected:
            return None
        dimension = self.dimension
        if dimension is None:
            dimension = min(max(2, round(_DIMENSION_SHARE * n_coefficients)), _MOST_DIMENSION)
        self.lift.noise_growth(n_coefficients, dimension)
        return dimension


@final
@dataclass(frozen=True)
class D2P2Method(FitMethod[DescentState]):
    """D2P2-SGD or a special case of it, on rows or on a network, with every setting decided.

    The columns of a network's ``data`` are its trainable parameters, and its rows their gradients,
    bounded by ``clipping``: as a whole, or if gradients are projected in each of ``blocks`` blocks
    by ``clipping.bound / sqrt(blocks)``. A step is ``v <- momentum v + g``, ``w <- w - eta v``, as
    in torch's SGD.
    """

    clipping: Clipping
    step_sizes: tuple[float, ...]
    noise_factors: tuple[float, ...]
    dimension: int | None  # Columns of each matrix; None without projection.
    lift: Lift
    sampling_rate: float
    output: Output
    # Noise standard deviation over the sensitivity of a gradient sum, for the factor 1.
    noise_multiplier: float
    momentum: float = 0.0
    blocks: int = 1  # Number of blocks of coefficients, each with matrices of its own.

    def __post_init__(self) -> None:
        check_real("momentum", self.momentum, least=0.0, below=1.0)
        check_integer("blocks", self.blocks, least=1)
        if len(self.noise_factors) != self.n_steps or len(self.levels) > MOST_LEVELS:
            raise ValueError(
                f"noise_factors must be {self.n_steps}, one for each step, and at most "
                f"{MOST_LEVELS} different ones, got {len(self.noise_factors)} and "
                f"{len(self.levels)}"
            )
        blocks = self.data.n_coefficients if self._of_network and self.dimension is not None else 1
        if self.blocks > blocks:
            raise ValueError(
                "blocks must be 1 without a projection of a network, and at most the number of "
                f"parameters, got {self.blocks}"
            )
        data = self.data
        if self._of_network and data != DataSpec(
            data.n_rows, data.n_features, row_norm=data.row_norm
        ):
            raise ValueError(f"data must be n_rows, n_features and row_norm alone, got {data!r}")

    @property
    def _of_network(self) -> bool:
        return isinstance(self.problem.loss, NetworkLoss)

    @property
    def algorithm(self) -> str:
        return f"D2P2-SGD{' on a network' if self._of_network else ''}"

    @property
    def n_steps(self) -> int:
        return len(self.step_sizes)

    @functools.cached_property
    def levels(self) -> tuple[tuple[float, int], ...]:
        """Each noise factor and its number of steps."""
        return tuple(Counter(self.noise_factors).items())

    @functools.cached_property
    def by_level(self) -> Mapping[float, SumRelease]:
        """The release of gradient sums for each noise factor."""
        rows, found = (self.data, self.adjacency, self.clipping), {}
        of_network = " of a network" if self._of_network else ""
        for place, (factor, count) in enumerate(self.levels, 1):
            multiplier, about = self.noise_multiplier * factor, f"gradient sum{of_network} at noise"
            facts: dict[str, Any] = {"count": count, "sampling_rate": self.sampling_rate}
            if self.dimension is None:
                facts["quantity"] = f"clipped {about} level {place}"
                found[factor] = gradient_release(*rows, GaussianNoise(multiplier), **facts)
                continue
            noise = ProjectedGaussianNoise(multiplier, self.blocks * self.dimension)
            facts |= {"quantity": f"projected {about} level {place}", "blocks": self.blocks}
            found[factor] = projected_gradient_release(*rows, noise, **facts)
        return found

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self.by_level.values())

    @property
    def gradient_evaluations(self) -> float:
        return self.n_steps * self.sampling_rate * self.data.n_rows

    def noise_std(self, step: int) -> float:
        """Return the root mean square of the noise in each coordinate of a step's mean gradient."""
        std = self.by_level[self.noise_factors[step]].noise_std
        growth = 1.0
        if self.dimension is not None:
            columns = -(-self.data.n_coefficients // self.blocks)
            growth = self.lift.noise_growth(columns, self.dimension)
        return math.sqrt(growth) * std / (self.sampling_rate * self.data.n_rows)

    @functools.cached_property
    def descent(self) -> Descent:
        """Steps along noisy gradients; those of a network from a displacement of zero."""
        settings = self.problem, self.data, self.step_sizes, self.output, self.momentum
        return Descent(*settings, dampened=False)

    @property
    def coefficient_noise(self) -> float:
        return self.descent.noise_growth([self.noise_std(step) for step in range(self.n_steps)])

    def prepare(self, rows: Rows, seed: int) -> Rows:
        return network_rows(rows) if self._of_network else rows

    def init(self, seed: int) -> DescentState:
        return self.descent.init(seed)

    def step(self, state: DescentState, oracle: Oracle) -> tuple[DescentState, StepInfo]:
        w, seed = state.w, (state.seed, state.step)
        declared = self.by_level[self.noise_factors[state.step]]
        asked = oracle, declared, w, self.clipping
        if self._of_network:
            blocks, dimension = self.blocks, self.dimension
            g = network_gradient(*asked, self.lift, seed, blocks=blocks, dimension=dimension)
        elif self.dimension is None:
            g = oracle.noisy_gradient(declared, w, self.clipping)
        else:
            matrix = GaussianMatrix(w.size, self.dimension, seed)
            r = noisy_projected_gradient(*asked, matrix)
            g = self.lift.gradient(matrix, r).reshape(w.shape)
        return self.descent.step(state, g, self.noise_std(state.step))

    def finish(self, state: DescentState) -> Outcome:
        return Outcome(state.returned)
