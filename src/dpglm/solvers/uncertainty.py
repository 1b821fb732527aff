"""Parts of many methods: linear algebra that never raises, feasible steps, covariances."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bools, check_one_of
from dpglm._words import card
from dpglm.problem import Problem, Unconstrained
from dpglm.tables.encoding import LinearUnits

if TYPE_CHECKING:
    from dpglm.data.maps import RowMap
    from dpglm.data.rows import DataSpec
    from dpglm.ledger.entry import LedgerReference
    from dpglm.solvers.base import Plan
    from dpglm.solvers.second_order.newton_noise import Response


Floats: TypeAlias = NDArray[np.float64]
"""An array of double precision."""
_MOST_ERROR = 0.1


def solved(matrix: Floats, vector: Floats) -> Floats:
    """Solve a linear system; the solution is zero along directions within rounding of singular.

    NaN if arithmetic overflowed.
    """
    for solve in (np.linalg.solve, lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0]):
        try:
            return np.asarray(solve(matrix, vector), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
    return np.full(vector.shape, np.nan)


def inverted(matrix: Floats) -> Floats:
    """Return the inverse of a curvature matrix, or NaN if rounding or overflow make it inaccurate.

    A covariance that is computed with it is then unknown, and not too small.
    """
    try:
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full(matrix.shape, np.nan)
    # Invariant to the units of the coefficients.
    units = np.sqrt(np.abs(np.diag(matrix)))
    error = np.abs(matrix @ inverse - np.eye(len(matrix))) * (units / units[:, np.newaxis])
    if not error.max() < _MOST_ERROR:
        return np.full(matrix.shape, np.nan)
    return inverse


def eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Return eigenvalues and eigenvectors of a symmetric matrix, or NaN if it is not finite."""
    try:
        values, directions = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        return np.full(len(matrix), np.nan), np.full(matrix.shape, np.nan)
    return values, directions


def without_repulsion(values: Floats, noise: float) -> Floats:
    """Return the mean of a true matrix along the eigenvectors of a noisy one, as eigenvalues.

    Noise, of the deviation ``noise`` on the diagonal and ``1 / sqrt(2)`` of it elsewhere, drives
    eigenvalues apart: Bun, Allez, Bouchaud and Potters, "Rotational invariant estimator for general
    noisy matrices", IEEE Transactions on Information Theory 62 (2016), for additive noise.
    """
    gaps = values[:, np.newaxis] - values
    apart = gaps / np.maximum(gaps**2 + 0.5 * noise**2, np.finfo(np.float64).tiny)
    return np.asarray(values - noise**2 * apart.sum(axis=1))


def n_penalized(problem: Problem, data: DataSpec) -> int:
    """Return the number of leading rows of the parameter that penalty and constraint act on."""
    return data.n_columns - int(data.intercept > 0.0 and not problem.penalize_intercept)


def frees_intercept(problem: Problem, data: DataSpec) -> bool:
    """Whether penalty and constraint leave out an intercept."""
    return n_penalized(problem, data) < data.n_columns


def feasible(problem: Problem, penalized: int, w: Floats, step: float) -> Floats:
    """Apply the penalty's prox, then the projection, to the rows of ``w`` that they act on."""
    acted_on = problem.constraint.project(problem.regularizer.prox(w[:penalized], step))
    return np.concatenate([acted_on, w[penalized:]])


@final
@dataclass(frozen=True, eq=False)
class NoiseCovariance:
    """Covariance of the privacy noise in coefficients, the same up to a factor in all outputs.

    It describes repeated runs on the same rows, so it leaves out sampling error.

    Parameters
    ----------
    columns : ndarray of shape (n_columns, n_columns)
        Covariance of the coefficients of an output with factor 1, intercept last.
    outputs : ndarray of shape (n_outputs,), default=(1.0,)
        Factor of each output's variances.

    Notes
    -----
    Privacy: computed from released values.

    Examples
    --------
    Two indicators that add up to the intercept's column: only their difference is determined.

    >>> noise = NoiseCovariance(np.array([[4.0, 3.9], [3.9, 4.0]]))
    >>> noise.deviations[:, 0].tolist()
    [2.0, 2.0]
    >>> noise.mapped(np.array([[1.0, -1.0]])).deviations.round(2).tolist()
    [[0.45]]
    """

    columns: Floats
    outputs: Floats = field(default_factory=lambda: np.ones(1))

    @property
    def deviations(self) -> Floats:
        """Standard deviations of the noise, of shape (n_columns, n_outputs)."""
        variances = np.multiply.outer(np.maximum(np.diag(self.columns), 0.0), self.outputs)
        return np.asarray(np.sqrt(variances))

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are finite."""
        return bool(np.isfinite(self.columns).all() and np.isfinite(self.outputs).all())

    def at_most(self, variance: float) -> Self:
        """Return the covariance with at most this variance per direction, for factor 1."""
        values, directions = np.linalg.eigh(0.5 * (self.columns + self.columns.T))
        capped = (directions * np.minimum(values, variance)) @ directions.T
        return type(self)(capped, self.outputs)

    def mapped(self, matrix: Floats) -> Self:
        """Return the covariance of ``matrix @ coefficients``; the matrix is public, or released."""
        return type(self)(matrix @ self.columns @ matrix.T, self.outputs)

    def in_units(self, units: LinearUnits) -> Self:
        """Return the covariance of coefficients in other units, by their conversion."""
        return type(self)(units.covariance(self.columns), self.outputs)


Covariance: TypeAlias = Literal["model", "robust"]
"""Covariance under a right model, or the sandwich that holds under any model."""


@final
@dataclass(frozen=True)
class Binding:
    """Shares of the rows on which the limits of a fit bind, as released.

    ``columns`` has the part of ``long`` that is due to each prepared column: its share in the
    squared norms of these rows, in standard deviations of the columns.
    """

    long: float  # Share of the rows that are downweighted for their length, from 0 to 1.
    lost: float  # Share of the weight that this takes.
    clipped: float  # Share of the rows with a clipped residual.
    noise: tuple[float, float, float, float]  # Standard deviations in the four.
    columns: tuple[float, ...]

    @classmethod
    def of(
        cls,
        met: Floats,
        errors: Floats,
        weight: float,
        in_weight: float,
        *,
        full_weights: bool,
        cuts_slopes: bool = True,
    ) -> Binding:
        """Make it from released counts of limits (``read_limits``) and the sum of all weights.

        Both have noise. Clipped residuals are all but those that are not clipped.
        """
        met[2], errors[2] = weight - met[2], math.hypot(errors[2], in_weight)
        if not cuts_slopes:
            met[2] = errors[2] = 0.0
        if full_weights:
            met[:2] = errors[:2] = 0.0
        shares, noise = met / weight, errors / weight
        long, lost, clipped = np.clip(shares[:3], 0.0, 1.0).tolist()
        in_long, in_lost, in_clipped, in_columns = noise[:4].tolist()
        noises = in_long, in_lost, in_clipped, in_columns
        return cls(long, lost, clipped, noises, tuple(shares[3:].tolist()))


@final
@dataclass(frozen=True)
class VarianceComponent:
    """Standard deviation of the effects of a pooled factor, with its 95 % interval.

    Parameters
    ----------
    start, stop : int
        First column of the factor, and the one after its last.
    scale : float
        Most likely standard deviation, on the scale of the linear score.
    low, high : float
        Ends of the interval.
    """

    start: int
    stop: int
    scale: float
    low: float
    high: float


@final
@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Covariance of a released parameter, in the coordinates of the prepared rows.

    Parameters
    ----------
    center : ndarray of shape (n_columns,)
        The estimate at the centre of intervals; intercept last.
    sampling, privacy : ndarray of shape (n_columns, n_columns)
        Parts of the covariance from sampling of rows, and from noise.
    degrees_of_freedom : float, default=inf
        Degrees of freedom of Student's t distribution for critical values.
    kind : {"model", "robust"}, default="model"
        Whether the sampling part assumes a right model.
    dispersion : float, optional
        Estimated variance of the prepared targets over the loss's variance.
    binding : Binding, optional
        Shares of the rows on which the limits of the fit bind.
    prior : ndarray of shape (n_columns, n_columns), optional
        Covariance of the prior, if there is one.
    components : tuple of VarianceComponent, default=()
        Scales of pooled factors.

    Notes
    -----
    Privacy: computed from released values.
    """

    center: Floats
    sampling: Floats
    privacy: Floats
    degrees_of_freedom: float = math.inf
    kind: Covariance = "model"
    dispersion: float | None = None
    binding: Binding | None = None
    prior: Floats | None = None
    components: tuple[VarianceComponent, ...] = ()

    @property
    def covariance(self) -> Floats:
        """Covariance of the estimate, from sampling and noise together."""
        return self.sampling + self.privacy


def check_normal(problem: Problem) -> None:
    """Refuse penalties and constraints for which estimates are not normally distributed."""
    penalty = problem.regularizer
    if not penalty.is_quadratic:
        raise ValueError(
            f"regularizer must be none or L2 for inference, got {penalty!r}: with others "
            "estimates are not normally distributed"
        )
    if problem.constraint != Unconstrained():
        raise ValueError(
            f"constraint must be None for inference, got {problem.constraint!r}: coefficients on "
            "its boundary are not normally distributed"
        )


@final
@dataclass(frozen=True)
class StepInfo:
    """Diagnostics of one step, all computed from released values, hence public.

    Parameters
    ----------
    step : int
        Number of the step, from 1.
    step_size : float
        Step size.
    gradient_norm : float
        L2 norm of the noisy mean gradient; NaN where the step releases none.
    noise_norm : float
        Expected L2 norm of the noise in it; NaN where the step releases none.
    """

    step: int
    step_size: float
    gradient_norm: float = math.nan
    noise_norm: float = math.nan


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a method, computed from its last state.

    Parameters
    ----------
    w : ndarray of shape ``plan.data.coefficient_shape``
        The parameter, in the coordinates of the prepared rows; intercept last.
    noise_covariance : NoiseCovariance, optional
        Covariance of the noise in ``w``, over runs on the same rows, where it is known.
    chosen : int, optional
        Number of the returned model, where the method chooses one of several.
    maps : tuple of dpglm.preprocessing.RowMap
        Maps of the rows that the method learned, in order.
    uncertainty : Uncertainty, optional
        Covariance of the parameter, where the plan was made for inference.
    precision : ndarray of shape (n_columns, n_columns), optional
        Inverse of a rough covariance of the errors of ``w``, from noise and sampling together.
    known : ndarray of shape (n_columns, n_columns), optional
        Share of a true parameter that steps reach even where noise raised the curvature.
    response : Response, optional
        Share of a true parameter that the steps reach, where it is known.
    products : ndarray of shape (n_columns,), optional
        Mean products of the columns with the constant, up to a factor, where they were released.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    w: Floats
    noise_covariance: NoiseCovariance | None = None
    chosen: int | None = None
    maps: tuple[RowMap, ...] = ()
    uncertainty: Uncertainty | None = None
    precision: Floats | None = None
    known: Floats | None = None
    response: Response | None = None
    products: Floats | None = None


@final
@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a run, and its record.

    Parameters
    ----------
    w : ndarray of shape ``plan.data.coefficient_shape``
        The parameter, in the coordinates of the prepared rows; intercept last.
    plan : Plan
        The plan that was run.
    history : tuple of StepInfo
        Diagnostics of each step; empty if only the last iterate is released.
    noise : str
        Name of the noise source.
    noise_covariance, chosen, maps, uncertainty, precision, known, response, products
        As in ``Outcome``.
    ledger_entry : LedgerReference, optional
        Entry of the ledger that recorded the run before it released anything.
    signal : float, optional
        Norm of the released sums in standard deviations of their noise; None with a checkpoint,
        if only the last iterate is released, or if no noisy sum was released.
    """

    w: Floats
    plan: Plan
    history: tuple[StepInfo, ...]
    noise: str
    noise_covariance: NoiseCovariance | None = None
    chosen: int | None = None
    ledger_entry: LedgerReference | None = None
    maps: tuple[RowMap, ...] = ()
    uncertainty: Uncertainty | None = None
    precision: Floats | None = None
    known: Floats | None = None
    response: Response | None = None
    products: Floats | None = None
    signal: float | None = None

    @property
    def n_steps(self) -> int:
        """Number of steps taken."""
        return self.plan.n_steps

    @property
    def means(self) -> Floats | None:
        """Means of the prepared columns, the constant last, where they were released."""
        row, constant = self.products, self.plan.data.intercept
        if row is None or not (np.isfinite(row).all() and row[-1] > 0.0 and constant > 0.0):
            return None
        return np.asarray(row * (constant / row[-1]))

    @property
    def coefficient_noise(self) -> Floats | None:
        """Standard deviations of the noise in ``w``, of its shape, where they are known."""
        known = self.noise_covariance
        return None if known is None else known.deviations.reshape(self.w.shape)

    def _repr_html_(self) -> str:
        entry = self.ledger_entry
        return card(
            "Result of a private fit",
            [
                ("parameter", f"{self.w.size} numbers, in prepared coordinates"),
                ("steps", self.n_steps),
                ("steps shown in history", len(self.history)),
                ("noise from", self.noise),
                ("ledger", "none" if entry is None else entry.describe()),
            ],
        )


def check_intervals(settings: Any) -> None:
    """Check the settings of a solver for intervals: covariance, prior and weights."""
    if settings.inference is not None:
        check_one_of("inference", settings.inference, ("model", "robust"))
    check_scales(settings.prior_scales)
    check_bools(settings)


def check_scales(scales: tuple[float, ...] | None, n_features: int | None = None) -> None:
    """Refuse prior standard deviations that are not above 0, or not one for each column."""
    for scale in scales or ():
        if not scale > 0.0:
            raise ValueError(f"prior_scales must be above 0, got {scale!r}")
    if scales is not None and n_features not in (None, len(scales)):
        raise ValueError(
            f"prior_scales must have one value for each of the {n_features} columns, got "
            f"{len(scales)}"
        )


def indicators_of(
    declared: tuple[tuple[int, int, float], ...], n_features: int, intercept: float
) -> tuple[tuple[int, int, float], ...]:
    """Return declared ranges of indicators, none without an intercept, or refuse them."""
    ends = [0, *(end for one in declared for end in one[:2]), n_features]
    if ends != sorted(ends) or any(start == stop for start, stop, _ in declared):
        raise ValueError(
            f"indicators must be increasing ranges within the {n_features} columns, got "
            f"{declared!r}"
        )
    return declared if intercept > 0.0 else ()
