"""Least squares from released second moments, in a basis that fits the rows."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import (
    moment_release,
    noisy_moments,
    noisy_second_moments,
    second_moment_release,
)
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Composed, Gaussian
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem, Squared
from dpglm.solvers.base import Method, Plan, Solver, StepInfo
from dpglm.solvers.parts.feasible import feasible, n_penalized
from dpglm.solvers.parts.shrinkage import shrunk
from dpglm.solvers.second_order.preconditioner import (
    Basis,
    basis_from_moments,
    check_data,
    constant_column,
    largest_basis_scale,
)
from dpglm.solvers.second_order.quadratic import minimize_quadratic

__all__ = ["SufficientStatistics", "SufficientStatisticsMethod"]

# Chosen on validation parts of the training rows of California housing, Adult and ACS employment;
# docs/solvers/sufficient_statistics.md says what else was seen on the way.
_CLIP_GROWTH, _LEAST_CLIP = 0.05, 0.05


@final
@dataclass(frozen=True)
class SufficientStatistics(Solver):
    """Least squares from noisy second moments, released twice.

    The first release, of second moments of rows scaled to one length, gives a basis in which
    rows look alike in every direction. The second, of ``z z^T`` and ``y z`` for rows z in that
    basis, gives the least squares problem that is solved, with a ridge as strong as its noise.
    Only for the loss ``Squared``.

    Parameters
    ----------
    first_share : float, default=0.2
        Share of the budget (of mu squared) that goes to the first release, in (0, 1).
    clip : float, optional
        Bound on a row's contribution to the second release, above 0, in units of what a row of
        mean squared length contributes to the matrix. By default it grows with the budget.
    ridge : float, default=0.8
        Strength of the ridge, at least 0, in units of the noise's standard deviation times the
        square root of the number of columns. At 1.41 it undoes every negative eigenvalue that
        noise makes.

    Notes
    -----
    Privacy: two Gaussian releases, accounted exactly. Clipping a row's contribution gives that
    row a smaller weight in least squares, which does not bias a model that is right. Shrinkage
    towards the constant model, where what was found is no longer than noise alone would make it,
    is post-processing (``dpglm.solvers.parts.shrinkage``).

    References
    ----------
    Wang, "Revisiting differentially private linear regression", UAI 2018, Algorithm 2 (AdaSSP),
    which releases once, in the columns' own units.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> solver = SufficientStatistics()
    >>> data = DataSpec(10_000, 20, intercept=1.0, target_low=0.0, target_high=1.0)
    >>> plan = solver.plan(Problem(Squared()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.coordinates) for one in plan.method.releases]
    [('normalised second-moment sum', 231), ('clipped moment sum', 252)]
    """

    first_share: float = 0.2
    clip: float | None = None
    ridge: float = 0.8

    def __post_init__(self) -> None:
        check_real("first_share", self.first_share, above=0.0, below=1.0)
        if self.clip is not None:
            check_real("clip", self.clip, above=0.0)
        check_real("ridge", self.ridge, least=0.0)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        if problem.loss != Squared():
            raise ValueError(
                f"loss must be Squared() for the solver SufficientStatistics, got {problem.loss!r}"
            )
        low, high = data.target_low, data.target_high
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                "target_low and target_high must be finite for the solver SufficientStatistics, "
                f"got {low!r} and {high!r}"
            )
        check_data(data, adjacency)
        noise_multiplier = calibrate(
            lambda sigma: Composed(tuple(Gaussian(one) for one in self._split(sigma))),
            budget,
            adjacency,
        )
        first, second = self._split(noise_multiplier)
        # Without an intercept a shift of the target cannot be undone.
        center = 0.5 * low + 0.5 * high if data.intercept > 0.0 else 0.0
        method = SufficientStatisticsMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            clip=data.n_columns * self._relative_clip(second, data, adjacency),
            center=center,
            target_bound=max(high - center, center - low) or 1.0,
            ridge=self.ridge,
            first_noise_multiplier=first,
            noise_multiplier=second,
        )
        # Penalties and constraints that do not fit the parameter fail here, not in the run.
        zero = np.zeros(data.coefficient_shape)
        feasible(problem, n_penalized(problem, data), zero, 1.0)
        return Plan(problem, data, budget, adjacency, method)

    def _split(self, sigma: float) -> tuple[float, float]:
        return sigma / math.sqrt(self.first_share), sigma / math.sqrt(1.0 - self.first_share)

    def _relative_clip(self, multiplier: float, data: DataSpec, adjacency: Adjacency) -> float:
        clip = self.clip
        if clip is None:
            noise = multiplier * adjacency.sum_sensitivity(data.weight_bound)
            clean = data.n_rows / (noise * data.n_columns**1.5)
            clip = max(math.sqrt(_CLIP_GROWTH * clean), _LEAST_CLIP)
        if not SMALLEST <= clip <= LARGEST:
            raise ValueError(f"clip must be {SMALLEST:g} to {LARGEST:g}, got {clip!r}")
        return clip


@final
@dataclass(frozen=True, eq=False)
class SufficientStatisticsState:
    """The number of releases so far, the basis from the first, the parameter from the second."""

    step: int
    basis: Basis | None
    w: NDArray[np.float64]


@final
@dataclass(frozen=True)
class SufficientStatisticsMethod(Method["SufficientStatisticsState"]):
    """Sufficient statistics with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    clip: float  # Bound on a row's contribution to the second release, weight excluded.
    center: float
    target_bound: float  # Bound on what is left of them.
    ridge: float
    first_noise_multiplier: float
    noise_multiplier: float

    algorithm = "sufficient statistics"

    @property
    def n_steps(self) -> int:
        return 2

    @functools.cached_property
    def first(self) -> SumRelease:
        """The release of second moments of normalised rows."""
        noise = GaussianNoise(self.first_noise_multiplier)
        return second_moment_release(self.data, self.adjacency, noise)

    @functools.cached_property
    def second(self) -> SumRelease:
        """The release of the sufficient statistics in the basis."""
        noise = GaussianNoise(self.noise_multiplier)
        return moment_release(self.data, self.adjacency, self.data.n_columns, self.clip, noise)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return self.first, self.second

    @property
    def target_weight(self) -> float:
        """Factor on targets that makes matrix and vector about equally long for long rows."""
        return math.sqrt(self.data.n_columns) / self.target_bound

    @property
    def gradient_evaluations(self) -> float:
        return float(self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        scale = largest_basis_scale(self.data, self.first.noise_std)
        return self._noise_in_basis * scale

    @property
    def _noise_in_basis(self) -> float:
        # Of the vector and of the matrix times coordinates that are no longer than the target.
        noise = self.second.noise_std / self.data.n_rows
        return noise * math.hypot(1.0 / self.target_weight, self.target_bound)

    def noise_in(self, state: SufficientStatisticsState) -> NDArray[np.float64]:
        assert state.basis is not None
        return self._noise_in_basis * state.basis.scales

    def init(self, seed: int) -> SufficientStatisticsState:
        return SufficientStatisticsState(0, None, np.zeros(self.data.n_columns))

    def step(
        self, state: SufficientStatisticsState, oracle: Oracle
    ) -> tuple[SufficientStatisticsState, StepInfo]:
        if state.basis is None:
            moments = noisy_second_moments(oracle, self.first, constant_column(self.data))
            basis = basis_from_moments(moments, self.first.noise_std, self.data)
            return SufficientStatisticsState(1, basis, state.w), StepInfo(1, 0.0)
        matrix, vector = noisy_moments(
            oracle,
            self.second,
            state.basis.vectors,
            clip=self.clip,
            center=self.center,
            target_weight=self.target_weight,
        )
        w = self._solve(matrix, vector, state.basis)
        n_rows, columns = self.data.n_rows, self.data.n_columns
        noise = self.second.noise_std / self.target_weight
        info = StepInfo(
            2, 1.0, float(np.linalg.norm(vector)) / n_rows, noise * math.sqrt(columns) / n_rows
        )
        return SufficientStatisticsState(2, state.basis, w), info

    def _solve(
        self, matrix: NDArray[np.float64], vector: NDArray[np.float64], basis: Basis
    ) -> NDArray[np.float64]:
        """Least squares with a ridge, penalty and constraint, shrunk where it may be all noise."""
        values, directions = np.linalg.eigh(matrix)
        ridge = self.ridge * self.second.noise_std * math.sqrt(len(matrix))
        # Rounding of the eigenvalues is what is left where the ridge is zero.
        least = ridge + np.abs(values).max() * len(matrix) * np.finfo(np.float64).eps
        raised = np.maximum(values, 0.0) + least
        constant = np.zeros(len(matrix))
        if self.data.intercept > 0.0:
            constant[-1] = self.center / self.data.intercept
        penalized = n_penalized(self.problem, self.data)
        w = minimize_quadratic(
            (directions * raised) @ directions.T / self.data.n_rows,
            vector / self.data.n_rows,
            basis,
            self.problem,
            penalized,
            constant,
        )
        start = feasible(self.problem, penalized, constant, 0.0)
        # In coordinates whose squares are losses: noise where rows say little costs little there.
        inverse = np.sqrt(raised)[:, np.newaxis] * (directions.T @ basis.inverse)
        noise = self.second.noise_std / self.target_weight
        noise *= math.sqrt(float(np.mean(1.0 / raised)))
        own_intercept = penalized < self.data.n_columns
        return shrunk(w, start, noise, inverse=inverse, own_intercept=own_intercept)

    def finish(self, state: SufficientStatisticsState) -> NDArray[np.float64]:
        return state.w
