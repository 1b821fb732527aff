"""Covariance of a released parameter, from what was released with it."""

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

# What is known of the noise in released coefficients: how large it is, and how it correlates.


@final
@dataclass(frozen=True, eq=False)
class NoiseCovariance:
    """Covariance of the privacy noise in coefficients, alike up to a factor in all outputs.

    It is what runs on the same rows would show, and leaves out the sampling of rows.

    Parameters
    ----------
    columns : ndarray of shape (n_columns, n_columns)
        That of the coefficients of an output whose factor is 1, intercept last.
    outputs : ndarray of shape (n_outputs,), default=(1.0,)
        For each output what its variances are in units of these.

    Notes
    -----
    Privacy: computed from released values.

    Examples
    --------
    Two indicators whose sum is the intercept's column: only their difference is known.

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
        """Whether no number overflowed."""
        return bool(np.isfinite(self.columns).all() and np.isfinite(self.outputs).all())

    def at_most(self, variance: float) -> Self:
        """Return the same with no more than this variance in any direction, in units of outputs'.

        Parameters
        ----------
        variance : float
            The bound.

        Returns
        -------
        NoiseCovariance
        """
        values, directions = np.linalg.eigh(0.5 * (self.columns + self.columns.T))
        capped = (directions * np.minimum(values, variance)) @ directions.T
        return type(self)(capped, self.outputs)

    def mapped(self, matrix: NDArray[np.float64]) -> Self:
        """Return that of ``matrix @ coefficients``.

        Parameters
        ----------
        matrix : ndarray of shape (n_mapped, n_columns)
            Public, or released.

        Returns
        -------
        NoiseCovariance
        """
        return type(self)(matrix @ self.columns @ matrix.T, self.outputs)

    def in_units(self, units: LinearUnits) -> Self:
        """Return that of coefficients in other units.

        Parameters
        ----------
        units : LinearUnits
            From the units of these.

        Returns
        -------
        NoiseCovariance
        """
        return type(self)(units.covariance(self.columns), self.outputs)


Covariance: TypeAlias = Literal["model", "robust"]
"""The covariance under a right model, or the sandwich that holds under any."""


# By how many standard deviations of its noise curvature may be less than it seems: the critical
# value of 95 % intervals.
_DOUBT = 2.0
_TINY = float(np.finfo(np.float64).tiny)
# By how many it must be above zero in a direction of its own: chance shows the less often what is
# not there, and where it does intervals of these still cover.
_SURE = 2.0
# How likely noise alone gives a combination a part in hidden directions that counts, and the least
# that is left of curvature.
_BY_CHANCE, _LEAST_LEFT = 1e-3, 1e-3
# The square of a part that rounding may leave, relative to the square of all.
_ROUNDING = 1e-12


@final
@dataclass(frozen=True, eq=False)
class Curvature:
    """The least curvature that noise leaves open, and the directions in which it leaves none.

    Parameters
    ----------
    least : ndarray of shape (n_columns, n_columns)
        What a covariance is computed with.
    hidden : ndarray of shape (n_columns, n_columns)
        Its quadratic form is positive in combinations of which a part beyond what noise makes is in
        directions without curvature that is seen.
    """

    least: NDArray[np.float64]
    hidden: NDArray[np.float64]

    @classmethod
    def seen_through(
        cls, steadied: NDArray[np.float64], seen: NDArray[np.float64], noise: float
    ) -> Curvature:
        """Judge a Hessian that was released, and what an estimate was computed with.

        Parameters
        ----------
        steadied, seen : ndarray of shape (n_columns, n_columns)
            The Hessian of the estimate, positive definite, and as it was released, in coordinates
            in which noise is alike in every direction.
        noise : float
            Standard deviation of the noise in ``<x, seen x>`` for x of length 1.

        Notes
        -----
        ``Doubt.factors`` looks at one quadratic form for each combination, in which directions with
        much curvature outweigh one with little. So such directions are told from others first:
        those with less curvature than noise makes of the mean, whose largest eigenvalue is about
        ``noise sqrt(2 n_columns)``. There an estimate that assumes more than ``least`` of Fieller's
        interval is shrunk towards where it came from, and the covariance takes the least instead.

        Where Fieller's interval has no end, the estimate is what it was before the rows were asked,
        and so is the part of a combination c along that direction q. Noise in the Hessian turns q
        towards others ``q_j`` with the curvature ``h_j`` by about ``noise / sqrt(2) / h_j`` (first
        order), so that c has a part along it by noise alone, the variance of which is
        ``noise^2 / 2 sum_j <c, q_j>^2 / h_j^2``. What exceeds it is beyond chance.
        """
        values, directions = eigen(seen)
        beyond_noise = noise * (math.sqrt(2.0 * len(values)) + _DOUBT)
        few = values < values.mean() - beyond_noise
        is_seen = values > _SURE * noise
        assumed = (directions * (steadied @ directions)).sum(axis=0)
        least = values - (_SURE * noise) ** 2 / np.where(is_seen, values, 1.0)
        least = np.where(is_seen, np.clip(least, _LEAST_LEFT * assumed, assumed), assumed)
        others, own = directions[:, ~few], directions[:, few]
        found = others @ (others.T @ steadied @ others) @ others.T + (own * least[few]) @ own.T
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
    """What noise hides of the matrices that a covariance ``H^-1 J H^-1 + ...`` was computed with.

    For a combination ``c`` of coefficients let ``x = H^-1 c``, and G be the Hessian as released.

    Parameters
    ----------
    assumed, seen, noise : ndarray of shape (n_columns, n_columns)
        Matrices whose quadratic forms in c are ``<x, H x>``, ``<x, G x>``, and the standard
        deviation of the noise in the latter.
    in_variance : ndarray of shape (n_columns, n_columns)
        One whose form in c is the standard deviation of the noise in ``<x, J x>``.
    hidden : ndarray of shape (n_columns, n_columns)
        One whose form in c is positive where c has a part in directions of which noise hides the
        curvature: see ``Curvature``.
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
        """Make it of a Hessian in the coordinates v of the parameter ``vectors v``.

        ``noise`` and ``in_variance`` are those of the forms of x of length 1.
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
        """Return by how much standard errors of combinations must be longer.

        Parameters
        ----------
        quadratic : callable
            Returns the quadratic forms of a matrix in the combinations.
        covariance : ndarray of shape (n_columns, n_columns)
            The covariance.

        Returns
        -------
        ndarray of shape (n,)
            At least 1; infinite where noise hides whether there is any curvature.

        Notes
        -----
        Standard errors are inversely proportional to curvature. With the curvature g of one
        direction, seen through noise of the standard deviation t, Fieller's interval is longer by
        the factor ``1 / (1 - (z t / g)^2)`` than one that takes g to be exact, z the critical
        value, and has no end where ``g <= z t``. So curvature may be as small as ``g - (z t)^2 /
        g``; where the covariance assumes more, standard errors grow by the ratio.

        A variance whose noise has the standard deviation r, in units of it, is to second moments
        one with ``2 / r^2`` degrees of freedom. Critical values of Student's t distribution with
        so many are ``1 + (z^2 + 1) r^2 / 8`` times as large as normal ones, to first order.

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
        """Turn independent combinations to where curvature is seen least and most.

        Parameters
        ----------
        combinations : ndarray of shape (q, n_columns)
        covariance : ndarray of shape (n_columns, n_columns)
            The covariance.

        Returns
        -------
        turn : ndarray of shape (at most q, q)
            What to multiply them by; what is not seen is left out.
        factors : ndarray of shape (at most q,)
            Of the results.
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
        """Return the same about other coefficients; ``of`` maps matrices as it does covariances."""
        every = self.assumed, self.seen, self.noise, self.in_variance, self.hidden
        return Doubt(*map(of, every))


@final
@dataclass(frozen=True)
class Binding:
    """On which share of the weight of all rows the limits of a fit bind, as it was released.

    Parameters
    ----------
    long : float
        Share of the rows that are so long that they count less, from 0 to 1.
    lost : float
        Share of the weight that this takes.
    clipped : float
        Share of the rows whose residual is clipped.
    noise : tuple of float
        Standard deviations of the noise in the three.
    """

    long: float
    lost: float
    clipped: float
    noise: tuple[float, ...]

    @classmethod
    def of(cls, shares: NDArray[np.float64], noise: NDArray[np.float64]) -> Binding:
        """Make it of the three, as they were released."""
        long, lost, clipped = np.clip(shares, 0.0, 1.0).tolist()
        return cls(long, lost, clipped, tuple(noise.tolist()))


@final
@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Covariance of a released parameter, in the coordinates of the prepared rows.

    Parameters
    ----------
    center : ndarray of shape (n_columns,)
        The estimate that intervals are about; intercept last.
    sampling, privacy : ndarray of shape (n_columns, n_columns)
        Parts of the covariance that are due to the sampling of rows, and to noise.
    degrees_of_freedom : float, default=inf
        Critical values are those of Student's t distribution with so many.
    kind : {"model", "robust"}, default="model"
        Whether the sampling part assumes that the model is right.
    doubt : Doubt, optional
        By how much standard errors must be longer as matrices were seen through noise.
    dispersion : float, optional
        Of the prepared targets, where it was estimated: their variance over what the loss says.
    binding : Binding, optional
        On how many rows the limits of the fit bind, where that was released.

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

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the estimate: of sampling and noise together."""
        total: NDArray[np.float64] = self.sampling + self.privacy
        return total


def check_normal(problem: Problem) -> None:
    """Refuse penalties and constraints whose minimisers have no normal distribution."""
    penalty = problem.regularizer
    if penalty.smoothness != penalty.strong_convexity:
        raise ValueError(
            f"regularizer must be none or L2 for inference, got {penalty!r}: others set "
            "coefficients to zero, which have no normal distribution then"
        )
    if problem.constraint != Unconstrained():
        raise ValueError(
            f"constraint must be None for inference, got {problem.constraint!r}: coefficients on "
            "its boundary have no normal distribution"
        )
