"""The Johnson-Lindenstrauss method: noisy gradient descent on randomly embedded rows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dpglm._validation import check_count, check_kind
from dpglm.data.maps import (
    Embedding,
    SparseEmbedding,
    Transform,
    embedded_rows,
    embedded_spec,
)
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.problem import L2, Constraint, L2Ball, NoPenalty, Problem, Unconstrained
from dpglm.problem.loss import Loss
from dpglm.solvers.base import (
    Composite,
    Facts,
    FitStage,
    Outcome,
    Plan,
    Solver,
    StepInfo,
)
from dpglm.solvers.composite.preprocessed import MappedState
from dpglm.solvers.gradient.noisy_gd import NoisyGD

_LEAST_DIMENSION, _MOST_DIMENSION = 32, 2048


def balanced_dimension(loss: Loss, constraint: Constraint, data: DataSpec, mu: float) -> int:
    """Choose the number of columns where embedding costs as much as noise; 32 to 2048.

    ``docs/solvers/johnson_lindenstrauss.md`` has the formulas and their reason. ``mu`` is the
    budget as Gaussian DP over the relation's factor and the weight bound. Arora et al. 2022,
    Theorem 2 and Theorem 10 (Appendix B); Theorem 2's k, as printed, changes with the units of the
    rows, and has logarithms that make it hold for all rows at once.
    """
    low, high = data.target_range(loss.target.bounds)
    reach = constraint.norm_bound(data.n_coefficients) * data.row_norm
    curvature = loss.smoothness_on(reach, low, high)
    if math.isfinite(curvature):
        slope, change = loss.slope_bound_on(0.0, low, high), curvature * reach
        share = change / (slope + change) if math.isfinite(slope + change) else 1.0
        wanted = math.cbrt(2.0 * data.n_rows * mu * share) ** 2
    else:
        wanted = math.sqrt(2.0) * data.n_rows * mu
    return round(min(max(wanted, _LEAST_DIMENSION), _MOST_DIMENSION))


@final
@dataclass(frozen=True)
class JohnsonLindenstrauss(Solver):
    """Noisy gradient descent on rows that a random matrix maps to few columns.

    For many more columns than rows, and a good parameter of small norm. Rows become ``Phi x``,
    noisy gradient descent finds ``v``, and ``Phi^T v`` is returned. The intercept is not
    embedded.

    Parameters
    ----------
    dimension : int, optional
        Columns k of the embedded rows, at least 1. By default where embedding costs as much as
        noise; if that is not below the number of columns, the plan is that of
        ``gradient_descent``.
    embedding : Embedding, default=SparseEmbedding()
        Distribution of ``Phi``.
    gradient_descent : Solver, default=NoisyGD()
        Runs on the embedded rows: ``NoisyGD`` or one of the settings in ``dpglm.papers``.

    Notes
    -----
    An ``L2Ball`` of radius B becomes one of radius 2 B for ``v``. The returned ``Phi^T v`` may lie
    outside of the first ball: scaling it down would change its predictions. An ``L2`` penalty is
    one on ``v``.

    Privacy: ``Phi`` is public and independent of rows, and embedded rows are clipped to the row
    norm again, so the run is noisy gradient descent on rows within the declared bounds, with its
    event and no failure probability in delta.

    References
    ----------
    Arora, Bassily, Guzman, Menart and Ullah, "Differentially private generalized linear models
    revisited", NeurIPS 2022, Algorithm 2, Theorem 2 and Appendix B.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=1000, n_features=50_000)
    >>> plan = JohnsonLindenstrauss().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.method.inner.data.n_features
    66
    """

    dimension: int | None = None
    embedding: Embedding = field(default_factory=SparseEmbedding)
    gradient_descent: Solver = field(default_factory=NoisyGD)

    def __post_init__(self) -> None:
        if self.dimension is not None:
            check_count("dimension", self.dimension)
        check_kind("gradient_descent", self.gradient_descent, Solver, "a Solver")

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        embedded_problem = _embedded_problem(problem)
        dimension = self.dimension
        if dimension is None:
            mu = facts.mu
            dimension = balanced_dimension(problem.loss, problem.constraint, data, mu)
            if dimension >= data.n_features:
                return self.gradient_descent.plan(problem, budget, data, adjacency)
        # One more row moves others to other blocks, which only float64 sums allow.
        dtype = data.dtype if adjacency.n_is_public else "float64"
        spec = embedded_spec(data, dimension, dtype)
        inner = self.gradient_descent.plan(embedded_problem, budget, spec, adjacency)
        method = JohnsonLindenstraussMethod(problem, data, inner, self.embedding)
        return facts.plan(method)


def _embedded_problem(problem: Problem) -> Problem:
    penalty, constraint = problem.regularizer, problem.constraint
    if not isinstance(penalty, NoPenalty | L2):
        raise ValueError(
            "regularizer must be NoPenalty or L2, as others mean nothing for embedded "
            f"coefficients, got {penalty!r}"
        )
    if isinstance(constraint, Unconstrained):
        return problem
    if not isinstance(constraint, L2Ball):
        raise ValueError(
            "constraint must be Unconstrained or an L2Ball, as others mean nothing for embedded "
            f"coefficients, got {constraint!r}"
        )
    return dataclasses.replace(problem, constraint=L2Ball(2.0 * constraint.radius))


@final
@dataclass(frozen=True)
class JohnsonLindenstraussMethod(Composite[MappedState]):
    """The Johnson-Lindenstrauss method with every setting decided."""

    problem: Problem
    data: DataSpec
    inner: Plan
    embedding: Embedding

    algorithm = "Johnson-Lindenstrauss method"

    def __post_init__(self) -> None:
        own = self.inner.data
        if own != embedded_spec(self.data, own.n_features, own.dtype):
            raise ValueError(
                f"inner must be for embedded rows of {self.data!r}, got one for {own!r}"
            )
        if self.inner.problem != _embedded_problem(self.problem):
            raise ValueError(f"inner must be for the embedded problem, got {self.inner.problem!r}")

    @property
    def stages(self) -> tuple[FitStage, ...]:
        return (FitStage.of("embedded rows", self.inner),)

    def prepare(self, rows: Rows, seed: int) -> Rows:
        embedded = embedded_rows(rows, self.transform(seed), self.inner.data)
        return self.inner.method.prepare(embedded, seed)

    def init(self, seed: int) -> MappedState:
        return MappedState(seed, model=self.inner.method.init(seed))

    def step(self, state: MappedState, oracle: Oracle) -> tuple[MappedState, StepInfo]:
        inner, info = self.inner.method.step(state.model, oracle)
        return MappedState(state.seed, info.step, model=inner), info

    def finish(self, state: MappedState) -> Outcome:
        v, k = self.inner.method.finish(state.model).w, self.inner.data.n_features
        return Outcome(np.concatenate([self.transform(state.seed) @ v[:k], v[k:]]))

    def transform(self, seed: int) -> Transform:
        """Draw the public matrix of a run."""
        return self.embedding.draw(self.data.n_features, self.inner.data.n_features, seed)
