"""Covariance of a released parameter, and of the noise in it, from released values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dpglm._codec import Matrix
from dpglm.problem import Problem, Unconstrained
from dpglm.solvers.parts.algebra import eigen, inverted
from dpglm.tables.encoding import LinearUnits


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

    columns: NDArray[np.float64]
    outputs: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))

    @property
    def deviations(self) -> NDArray[np.float64]:
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

    def mapped(self, matrix: NDArray[np.float64]) -> Self:
        """Return the covariance of ``matrix @ coefficients``; the matrix is public, or released."""
        return type(self)(matrix @ self.columns @ matrix.T, self.outputs)

    def in_units(self, units: LinearUnits) -> Self:
        """Return the covariance of coefficients in other units, by their conversion."""
        return type(self)(units.covariance(self.columns), self.outputs)


Covariance: TypeAlias = Literal["model", "robust"]
"""Covariance under a right model, or the sandwich that holds under any model."""


_TINY = float(np.finfo(np.float64).tiny)
# Critical value of 95 % intervals, for noise in curvature; standard deviations of noise above which
# curvature in a single direction counts as measured.
_DOUBT = _SURE = 2.0
# Probability that noise alone gives a combination a component without measurable curvature, and the
# least share of the assumed curvature that is kept.
_BY_CHANCE, _LEAST_LEFT = 1e-3, 1e-3
# Squared relative component that rounding may leave.
_ROUNDING = 1e-12


@final
@dataclass(frozen=True, eq=False)
class Curvature:
    """A lower bound on noisy curvature, and the directions without measurable curvature.

    Parameters
    ----------
    least : ndarray of shape (n_columns, n_columns)
        Curvature that a covariance is computed with.
    hidden : ndarray of shape (n_columns, n_columns)
        Matrix with a positive quadratic form for combinations that have, beyond the effect of
        noise, a component in directions without measurable curvature.
    """

    least: NDArray[np.float64]
    hidden: NDArray[np.float64]

    @classmethod
    def from_noisy(
        cls, stabilized: NDArray[np.float64], seen: NDArray[np.float64], noise: float
    ) -> Curvature:
        """Judge a released Hessian, and the one that an estimate was computed with.

        Parameters
        ----------
        stabilized, seen : ndarray of shape (n_columns, n_columns)
            The Hessian of the estimate, positive definite, and the released one, in coordinates in
            which noise is alike in every direction.
        noise : float
            Standard deviation of the noise in ``<x, seen x>`` for unit x.

        Notes
        -----
        ``Doubt.factors`` uses one quadratic form for each combination, in which directions with
        much curvature outweigh one with little. So directions with little curvature are separated
        first: those below the mean by more than noise explains (its largest eigenvalue is about
        ``noise sqrt(2 n_columns)``). If the estimate assumes more curvature there than ``least``,
        the end of Fieller's interval, it is shrunk towards its start, and the covariance uses
        ``least`` instead.

        Where Fieller's interval is unbounded, the estimate is its start, and so is the component of
        a combination c along that direction q. To first order noise in the Hessian turns q towards
        others ``q_j`` with curvature ``h_j`` by ``noise / sqrt(2) / h_j``, so noise alone gives c a
        component along it with variance ``noise^2 / 2 sum_j <c, q_j>^2 / h_j^2``. A larger
        component is not chance.
        """
        values, directions = eigen(seen)
        beyond_noise = noise * (math.sqrt(2.0 * len(values)) + _DOUBT)
        few = values < values.mean() - beyond_noise
        is_seen = values > _SURE * noise
        assumed = (directions * (stabilized @ directions)).sum(axis=0)
        least = values - (_SURE * noise) ** 2 / np.where(is_seen, values, 1.0)
        least = np.where(is_seen, np.clip(least, _LEAST_LEFT * assumed, assumed), assumed)
        others, own = directions[:, ~few], directions[:, few]
        found = others @ (others.T @ stabilized @ others) @ others.T + (own * least[few]) @ own.T
        hidden = few & ~is_seen
        if not hidden.any():
            return cls(found, np.zeros_like(seen))
        by_noise = 0.5 * noise**2 * float(chdtri(hidden.sum(), _BY_CHANCE))
        gaps = np.maximum(values - values[hidden].max(), _DOUBT * noise)
        others_by_noise = np.maximum(by_noise / gaps**2, _ROUNDING)
        forms = np.where(hidden, 1.0, -others_by_noise)
        return cls(found, (directions * forms) @ directions.T)


@final
@dataclass(frozen=True, eq=False)
class Doubt:
    """Noise in the matrices of a covariance ``H^-1 J H^-1 + ...``.

    For a combination ``c`` of coefficients let ``x = H^-1 c``, and let G be the released Hessian.

    Parameters
    ----------
    assumed, seen, noise : ndarray of shape (n_columns, n_columns)
        Matrices with the quadratic forms ``<x, H x>``, ``<x, G x>`` and the standard deviation of
        the noise in the latter.
    in_variance : ndarray of shape (n_columns, n_columns)
        Matrix with the standard deviation of the noise in ``<x, J x>`` as its form.
    hidden : ndarray of shape (n_columns, n_columns)
        Matrix with a positive form where c has a component without measurable curvature: see
        ``Curvature``.
    """

    assumed: Matrix
    seen: Matrix
    noise: Matrix
    in_variance: Matrix
    hidden: Matrix

    @classmethod
    def of(
        cls,
        curvature: Curvature,
        seen: NDArray[np.float64],
        noise: float,
        in_variance: float,
        vectors: NDArray[np.float64],
    ) -> Doubt:
        """Make it from a Hessian in coordinates v of the parameter ``vectors v``.

        ``noise`` and ``in_variance`` are for the forms of unit x.
        """
        back = vectors @ inverted(curvature.least)
        form = back @ back.T
        return cls(
            back @ curvature.least @ back.T,
            back @ seen @ back.T,
            noise * form,
            in_variance * form,
            vectors @ curvature.hidden @ vectors.T,
        )

    def factors(
        self,
        quadratic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        covariance: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the factors by which standard errors of combinations must be longer.

        Parameters
        ----------
        quadratic : callable
            Returns the quadratic forms of a matrix in the combinations.
        covariance : ndarray of shape (n_columns, n_columns)
            The covariance.

        Returns
        -------
        ndarray of shape (n,)
            At least 1; infinite where the curvature cannot be distinguished from noise.

        Notes
        -----
        Standard errors are inversely proportional to curvature. If the curvature g of one direction
        has noise of standard deviation t, Fieller's interval is longer by ``1 / (1 - (z t / g)^2)``
        than one that takes g as exact, z the critical value, and is unbounded for ``g <= z t``. So
        the curvature may be as small as ``g - (z t)^2 / g``; if the covariance assumes more,
        standard errors grow by the ratio.

        A variance with relative noise r has, to second moments, ``2 / r^2`` degrees of freedom.
        Critical values of Student's t are then ``1 + (z^2 + 1) r^2 / 8`` times the normal ones, to
        first order.

        References
        ----------
        Fieller, "Some problems in interval estimation", JRSS B 16 (1954). Satterthwaite, "An
        approximate distribution of estimates of variance components", Biometrics Bulletin 2 (1946).
        """
        assumed, seen, noise = map(quadratic, (self.assumed, self.seen, self.noise))
        doubt = _DOUBT * noise
        is_seen = seen > doubt
        least = seen - doubt * doubt / np.where(is_seen, seen, 1.0)
        factors = np.maximum(assumed / np.where(is_seen, least, 1.0), 1.0)
        shares = quadratic(self.in_variance) / np.maximum(quadratic(covariance), _TINY)
        factors *= 1.0 + (_DOUBT**2 + 1.0) / 8.0 * shares**2
        is_known = is_seen & (quadratic(self.hidden) <= 0.0)
        return np.where(is_known | (assumed <= 0.0), factors, np.inf)

    def told_apart(
        self, combinations: NDArray[np.float64], covariance: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rotate independent combinations to the principal directions of measured curvature.

        Returns the matrix to multiply them by, without directions that cannot be estimated, and the
        factors of the results.
        """
        surely = self.seen - _DOUBT * self.noise
        assumed, seen = (combinations @ one @ combinations.T for one in (self.assumed, surely))
        back = np.linalg.inv(np.linalg.cholesky(assumed))
        turn = np.linalg.eigh(back @ seen @ back.T)[1].T @ back
        turned = turn @ combinations
        factors = self.factors(
            lambda matrix: np.einsum("ij,ij->i", turned @ matrix, turned), covariance
        )
        seen_at_all = np.isfinite(factors)
        return turn[seen_at_all], factors[seen_at_all]

    def mapped(self, of: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Doubt:
        """Return the same for other coefficients; ``of`` maps matrices as it maps covariances."""
        every = self.assumed, self.seen, self.noise, self.in_variance, self.hidden
        return Doubt(*map(of, every))


@final
@dataclass(frozen=True)
class Binding:
    """Shares of the rows on which the limits of a fit bind, as released.

    Parameters
    ----------
    long : float
        Share of the rows that are downweighted for their length, from 0 to 1.
    lost : float
        Share of the weight that this takes.
    clipped : float
        Share of the rows with a clipped residual.
    noise : tuple of float
        Standard deviations of the noise in the three.
    """

    long: float
    lost: float
    clipped: float
    noise: tuple[float, ...]

    @classmethod
    def of(cls, shares: NDArray[np.float64], noise: NDArray[np.float64]) -> Binding:
        """Make it from the three released shares."""
        long, lost, clipped = np.clip(shares, 0.0, 1.0).tolist()
        return cls(long, lost, clipped, tuple(noise.tolist()))


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
    doubt : Doubt, optional
        Noise in the matrices, which lengthens standard errors.
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

    center: NDArray[np.float64]
    sampling: NDArray[np.float64]
    privacy: NDArray[np.float64]
    degrees_of_freedom: float = math.inf
    kind: Covariance = "model"
    doubt: Doubt | None = None
    dispersion: float | None = None
    binding: Binding | None = None
    prior: NDArray[np.float64] | None = None
    components: tuple[VarianceComponent, ...] = ()

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the estimate, from sampling and noise together."""
        total: NDArray[np.float64] = self.sampling + self.privacy
        return total


def check_normal(problem: Problem) -> None:
    """Refuse penalties and constraints for which estimates are not normally distributed."""
    penalty = problem.regularizer
    if penalty.smoothness != penalty.strong_convexity:
        raise ValueError(
            f"regularizer must be none or L2 for inference, got {penalty!r}: with others "
            "estimates are not normally distributed"
        )
    if problem.constraint != Unconstrained():
        raise ValueError(
            f"constraint must be None for inference, got {problem.constraint!r}: coefficients on "
            "its boundary are not normally distributed"
        )
