"""Estimates from noisy scores and a noisy Hessian, under a weakly informative prior.

Scores g released at points v and the Hessian H give ``r = mean(H v - g) = H theta + e``. The
covariance V of e includes the sampling of rows, the noise in the scores, and the error E of H,
which adds ``E (theta - mean(v))``. With the prior ``theta ~ N(0, S)`` the posterior is

    mean = S H (H S H + V)^-1 r,    covariance = S - S H (H S H + V)^-1 H S.

The noisy H is not inverted by itself. A direction without information keeps its prior. With much
information the posterior is the maximum likelihood estimate and its covariance.

Privacy: post-processing of released values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from dpglm.solvers.uncertainty import Floats, eigen, solved, without_repulsion

# Shrinkage moves an entry by at most this many standard deviations of its noise, so that a few
# large deviations among many small ones survive: Efron and Morris, "Limiting the risk of Bayes and
# empirical Bayes estimators", JASA 67 (1972). Chosen by ``python -m experiments.adult_coverage``.
_MOST_SHRUNK = 0.5
# Ridge on second moments, and the least mean square of a column, in standard deviations of noise.
RIDGE, LEAST_SQUARE = 1.5, 0.5
# Scales of the usual covariance that the marginal likelihood chooses from, and numbers of rounds
# in which the covariance of the error is refined.
_SCALES, _ROUNDS, _OWN_ROUNDS = (4.0, 1.0, 0.25, 0.06, 0.015), 2, 5
LEAST = 1e-3
"""Least curvature and deviation relative to usual ones, so that noise is not divided by noise."""
FAR = 5.0
"""Standard deviations that noise practically never exceeds, and slopes of counts rarely do."""
# Noise makes the direction of least curvature, so the error of the Hessian along the estimate's own
# way counts twice as much; with eigenvalues moved back, its variance is multiplied by the second
# number. Chosen by ``python -m experiments.coverage``.
_DOUBT, _DOUBT_OF_MOVED = 2.0, 22.0
SCALE_GRID = np.concatenate([[0.0], np.geomspace(0.02, 5.0, 48)])
"""Grid of scales for the marginal likelihood of a term, in units of the usual scale."""
SWEEPS = 4
"""Number of sweeps over the terms."""
# The curvature along a known direction is unusual from this number of deviations of noise on.
_APART = 2.0
_TINY = 1e-300
PRIOR, PRIOR_INTERCEPT = 2.5, 10.0
"""Prior standard deviations of the change in score for one standard deviation of a column, and of
the intercept."""


def prior_deviations(
    variances: Floats, noise: float, bound: float, scales: Floats | None
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return prior standard deviations of coefficients, declared and usual, and hidden columns.

    ``variances`` of columns are estimates with this ``noise``, ``bound`` is the usual bound of
    columns, and ``scales`` are the largest declared deviations. The variance of a hidden column is
    small against the bound and explained by noise, and its prior is unlimited.
    """
    is_small = variances <= min(FAR * noise, bound**2 / FAR)
    seen = np.sqrt(np.where(is_small, noise / FAR, variances))
    # The least deviation of a column that priors count with, relative to its usual bound.
    least = 0.5 if scales is None else LEAST
    declared = PRIOR / np.maximum(seen, least * bound)
    if scales is not None:
        declared = np.minimum(declared, scales)
    usual = np.minimum(PRIOR / np.maximum(seen, bound), declared)
    return declared, usual, is_small & (scales == math.inf)


@final
@dataclass(frozen=True, eq=False)
class NoisyMatrix:
    """Posterior mean of a symmetric matrix, and the variances of its entries.

    The errors of entries on and above the diagonal are independent in the basis ``directions``, by
    default the coordinates.
    """

    mean: Floats
    variances: Floats
    directions: Floats | None = None

    def scaled(self, factor: float) -> NoisyMatrix:
        """Return the matrix times a number."""
        return dataclasses.replace(
            self, mean=factor * self.mean, variances=factor**2 * self.variances
        )

    def _turned(self, matrix: Floats, *, back: bool = False) -> Floats:
        """Return a symmetric matrix in the basis of independent errors, or back from there."""
        if self.directions is None:
            return matrix
        turn = self.directions.T if back else self.directions
        return np.asarray(turn.T @ matrix @ turn)

    def error_of(self, spread: Floats) -> Floats:
        """Return the covariance of ``E x``, E the error and ``spread`` the mean of ``x x^T``.

        In the basis of independent errors ``(E x)_i (E x)_j`` has the mean ``T_ij x_i x_j``, and
        ``sum_k T_ik x_k^2`` where i is j, T the variances.
        """
        spread = self._turned(spread)
        found = self.variances * spread
        np.fill_diagonal(found, self.variances @ np.diag(spread))
        return self._turned(np.asarray(found), back=True)

    def doubted(self, way: Floats) -> float:
        """Return the variance with which errors along the estimate's own way count.

        As curvature is never negative, its estimate cannot exceed the truth by more than itself.
        """
        along = way / max(float(np.linalg.norm(way)), _TINY)
        if self.directions is None:
            variance, factor = float(self.variances.mean()), _DOUBT**2
        else:
            variance = float(along @ self.error_of(np.outer(along, along)) @ along)
            factor = _DOUBT_OF_MOVED
        return min(factor * variance, variance + float(along @ self.mean @ along) ** 2)

    def with_secant(self, way: Floats, change: Floats, noise: float) -> NoisyMatrix:
        """Return the matrix given that ``matrix way`` is ``change``, with this noise variance."""
        error = self.error_of(np.outer(way, way)) + noise * np.eye(len(way))
        both = self._turned(np.outer(solved(error, change - self.mean @ way), way))
        step = both + both.T
        np.fill_diagonal(step, np.diag(both))
        mean = self.mean + self._turned(self.variances * step, back=True)
        return _convex(dataclasses.replace(self, mean=mean))


def _convex(matrix: NoisyMatrix) -> NoisyMatrix:
    """Raise the eigenvalues of the mean to a small positive number."""
    values, directions = eigen(matrix.mean)
    least = LEAST * max(float(values.mean()), _TINY)
    mean = (directions * np.maximum(values, least)) @ directions.T
    return dataclasses.replace(matrix, mean=mean)


def _deviations(size: int, noise: float) -> Floats:
    """Return the standard deviations of the noise in the entries of an unpacked matrix."""
    found = np.full((size, size), noise / math.sqrt(2.0))
    np.fill_diagonal(found, noise)
    return found


def column_moments(moments: Floats, noise: float) -> NoisyMatrix:
    """Return the posterior mean of noisy second moments, the last column being a constant's.

    The product of two columns is shrunk towards the product of their means: as if columns were
    independent, up to deviations in proportion to their variances.
    """
    size, last = len(moments), len(moments) - 1
    total = max(float(moments[last, last]), noise)
    squares = np.maximum(np.diag(moments), LEAST_SQUARE * noise)
    squares[last] = total
    most = np.sqrt(squares * total)
    means = np.clip(moments[last], -most, most)
    means[last] = total
    expected = np.outer(means, means) / total
    spread = np.maximum(squares - means**2 / total, LEAST * squares)
    scale = np.outer(spread, spread) / total
    deviations, rest = _deviations(size, noise), moments - expected
    above = np.triu_indices(last, 1)
    factor, unit, excess = 1e-2, scale[above], (rest**2 - deviations**2)[above]
    for _ in range(20):
        weights = unit / (factor * unit + deviations[above] ** 2) ** 2
        factor = max(float(weights @ excess) / max(float(weights @ unit), _TINY), 0.0)
    kept = np.ones_like(scale)
    kept[:last, :last] = factor * scale[:last, :last]
    kept[:last, :last] /= kept[:last, :last] + deviations[:last, :last] ** 2
    lost, limit = (1.0 - kept) * rest, _MOST_SHRUNK * deviations
    variances = np.where(np.abs(lost) > limit, 1.0, kept) * deviations**2
    mean = moments - np.clip(lost, -limit, limit)
    mean[last], mean[:, last] = means, means
    np.fill_diagonal(mean, squares)
    np.fill_diagonal(variances, noise**2)
    return NoisyMatrix(mean, variances)


def whitened(moments: NoisyMatrix, noise: float) -> tuple[Floats, Floats, NoisyMatrix]:
    """Return coordinates in which second moments are equal as far as they exceed their noise.

    The result is the symmetric matrix of the coordinates' directions, its inverse, and the second
    moments in the coordinates, with their number as the trace.
    """
    values, directions = eigen(moments.mean)
    values = np.maximum(values, 0.0)
    raised = values + RIDGE * noise
    roots = np.sqrt(len(values) / max(float((values / raised).sum()), _TINY) / raised)
    vectors = (directions * roots) @ directions.T
    found, squares = (directions * (roots**2 * values)) @ directions.T, vectors**2
    own = NoisyMatrix(found, squares @ moments.variances @ squares)
    return vectors, (directions / roots) @ directions.T, own


def shrunk_eigenvalues(values: Floats, noise: float) -> tuple[Floats, Floats]:
    """Return eigenvalues for an estimate of a symmetric matrix, given those of a noisy one.

    The result is the weighted mean of two estimates. Positive-part James-Stein shrinkage to the
    mean of the eigenvalues is best if they differ by less than their noise. Otherwise,
    ``without_repulsion``, made increasing, is best. The weights minimise the unbiased estimate of
    the risk: Stein, "Estimation of the mean of a multivariate normal distribution", Annals of
    Statistics 9 (1981).

    The second result is the share of the gap between two eigenvalues that ``without_repulsion``
    leaves. James-Stein would understate it for a few eigenvalues that differ from the rest.
    """
    gaps, degrees = values[:, np.newaxis] - values, 0.5 * (len(values) - 1) * (len(values) + 2)
    around = values - values.mean()
    lost = min(noise**2 * max(degrees - 2.0, 0.0) / max(float(around @ around), _TINY), 1.0)
    even = values - lost * around
    moved = isotonic_regression(without_repulsion(values, noise)).x
    # Divergences: sums of derivatives of entries with respect to those of the noisy matrix.
    of_even = 1.0 + (1.0 - lost) * degrees + 2.0 * lost * (lost < 1.0)
    rises, wide = np.subtract.outer(moved, moved), 0.5 * noise**2
    bends = (rises != 0.0) * (wide - gaps**2) / np.maximum((gaps**2 + wide) ** 2, _TINY)
    slopes = (1.0 - noise**2 * bends.sum(axis=1)) / (rises == 0.0).sum(axis=1)
    left = rises / np.where(gaps == 0.0, 1.0, gaps)
    of_moved = slopes.sum() + 0.5 * left.sum()
    apart = moved - even
    gain = float((values - even) @ apart - noise**2 * (of_moved - of_even))
    weight = min(max(gain / max(float(apart @ apart), _TINY), 0.0), 1.0)
    return even + weight * apart, left


def noisy_hessian(
    seen: Floats, noise: float, kept: Floats | None = None, known: Floats | None = None
) -> NoisyMatrix:
    """Return the posterior mean of a Hessian with symmetric normal noise, positive definite.

    By Tweedie's formula, the posterior covariance is that of the noise times the derivative of the
    mean: between two eigenvectors, the share of the gap that is left. ``kept`` is the share of
    noise that is left in each product of coordinates, by default 1. The orthonormal columns
    of ``known`` are directions that may have another curvature than all others: for elliptical
    rows these are the parameter and the intercept, which a Hessian maps onto each other. If their
    curvature differs from the mean by more than its noise, entries among them stay, and their
    products with others are shrunk by the positive-part James-Stein factor.
    """
    size, shares = len(seen), np.ones(len(seen)) if kept is None else kept.mean(axis=0)
    known = np.empty((size, 0)) if known is None else known
    own = np.einsum("ij,ij->j", known, seen @ known)
    known = known[:, np.abs(own - np.trace(seen) / size) > _APART * noise][:, : size - 1]
    count, usual = known.shape[1], shares.mean()
    others = np.linalg.qr(known, mode="complete")[0][:, count:]
    values, turn = eigen(others.T @ seen @ others)
    others = others @ turn
    found, left_of_gaps = shrunk_eigenvalues(values, noise * math.sqrt(usual))
    across, left = others.T @ seen @ known, np.ones_like(seen)
    left[count:, count:] = left_of_gaps
    expected = 0.5 * noise**2 * across.size * usual
    factor = 1.0 - min(expected / max(float(np.vdot(across, across)), _TINY), 1.0)
    left[count:, :count] = left[:count, count:] = factor
    variances = 0.5 * noise**2 * left
    np.fill_diagonal(variances, noise**2)
    directions = np.hstack([known, others])
    along = directions.T**2 @ shares
    variances *= np.outer(along, along) / usual
    half = others @ (factor * across) @ known.T
    mean = (others * found) @ others.T + half + half.T
    mean += known @ (known.T @ seen @ known) @ known.T
    return _convex(NoisyMatrix(mean, variances, directions))


def uncorrelated_hessian(seen: Floats, noise: float, kept: Floats, alike: Floats) -> NoisyMatrix:
    """Return the posterior mean of weighted second moments of uncorrelated coordinates.

    ``alike`` projects on directions with equal second moments without weights. There, the products
    of two coordinates are near 0. They lose the share of noise in their sum of squares, as far as
    noise is ``kept`` (positive-part James-Stein). Squares keep their noise, because weights reduce
    those of long-tailed columns more than others.
    """
    variances = kept * _deviations(len(seen), noise) ** 2
    usual = float(np.trace(alike @ seen)) / max(float(np.trace(alike)), _TINY)
    products = (kept > 0.0) & ~np.eye(len(seen), dtype=bool)
    rest = products * (alike @ (seen - usual * np.eye(len(seen))) @ alike)
    shares = products * np.outer(np.diag(alike), np.diag(alike))
    lost = min(float((shares * variances).sum()) / max(float((rest**2).sum()), _TINY), 1.0)
    return _convex(NoisyMatrix(seen - lost * rest, (1.0 - lost * shares) * variances))


def whitened_hessian(seen: Floats, noise: float, like: Floats) -> NoisyMatrix:
    """Return the posterior mean of weighted second moments, shrunk towards a multiple of others.

    ``like`` are those without weights, zero for coordinates that keep their noise. The share of
    noise in the squared distance from their multiple is removed (Ledoit and Wolf, "A
    well-conditioned estimator for large-dimensional covariance matrices", Journal of Multivariate
    Analysis 88, 2004, with the noise known); the multiple, a ratio of traces, is noisy, too.
    """
    variances, alike = _deviations(len(seen), noise) ** 2, np.diag(like) > 0.0
    block = np.ix_(alike, alike)
    own, unit = seen[block], like[block] / max(float(np.trace(like)), _TINY)
    rest = own - max(float(np.trace(own)), noise * len(own)) * unit
    lost = min(float(variances[block].sum()) / max(float((rest**2).sum()), _TINY), 1.0)
    mean = seen.copy()
    mean[block] -= lost * rest
    variances[block] *= 1.0 - lost
    variances[block] += (lost * noise * unit) ** 2 * len(own)
    return _convex(NoisyMatrix(mean, variances))


@final
@dataclass(frozen=True, eq=False)
class Posterior:
    """Mean and covariance of the parameter, and the matrix that makes the mean of r."""

    mean: Floats
    covariance: Floats
    gain: Floats

    @classmethod
    def of(cls, prior: Floats, hessian: Floats, error: Floats, pooled: Floats) -> Posterior:
        """Return the posterior given ``pooled = hessian theta + e``, ``e ~ N(0, error)``."""
        through = hessian @ prior
        gain = solved(through @ hessian.T + error, through).T
        # Equal to the prior less ``gain through``, but not negative by rounding.
        kept = np.eye(len(prior)) - gain @ hessian
        covariance = kept @ prior @ kept.T + gain @ error @ gain.T
        return cls(gain @ pooled, covariance, gain)


@final
@dataclass(frozen=True, eq=False)
class Prior:
    """Covariance of the declared prior, and one that parameters usually have up to a scale.

    The latter serves only to estimate the error that the Hessian's error makes. Each hidden column
    has a direction, and the linear map from coordinates to its effect.
    """

    declared: Floats
    usual: Floats
    hidden: tuple[tuple[Floats, Floats], ...] = ()

    def scaled(self, factor: float) -> Prior:
        """Return the prior with covariances times a number."""
        declared, usual = factor * self.declared, factor * self.usual
        return dataclasses.replace(self, declared=declared, usual=usual)

    def shown(self, curvature: Floats, noise: float) -> Floats:
        """Return the map that removes effects of hidden columns with a curvature below its noise.

        Steps along them would divide noise by noise, as their priors are unlimited.
        """
        found = np.eye(len(curvature))
        for way, effect in self.hidden:
            if way @ curvature @ way <= FAR * noise * (way @ way):
                found -= np.outer(way, effect) / (effect @ way)
        return found

    def updated(
        self,
        hessian: NoisyMatrix,
        penalty: Floats,
        error: Floats,
        pooled: Floats,
        center: Floats | None = None,
        shown: Floats | None = None,
    ) -> Posterior:
        """Return the posterior of the parameter given ``pooled``, the vector r.

        ``error`` is its covariance without the error of the Hessian. With ``center``, the mean of
        the points of the scores, the Hessian's error along the estimate's own way from there
        counts as well, judged with the declared prior. The scale of the usual covariance
        maximises the marginal likelihood of r. Effects that ``shown`` and ``pooled``
        leave out keep their prior, and remain at ``center``.
        """
        if shown is not None and center is not None:
            seen = Prior(shown @ self.declared @ shown.T, shown @ self.usual @ shown.T)
            found = seen.updated(hessian, penalty, error, pooled, shown @ center)
            best = found.mean + center - shown @ center
            return Posterior(best, found.covariance + self.declared - seen.declared, found.gain)
        total = hessian.mean + penalty
        best, spread = self._error(hessian, total, error, pooled, center)
        found = Posterior.of(self.declared, total, best, pooled)
        if center is None:
            return found
        for _ in range(_OWN_ROUNDS):
            way = center - found.mean
            of_own = hessian.doubted(way)
            own = best - error + of_own * (found.covariance + np.outer(way, way) - spread)
            values, directions = eigen(own)
            both = error + (directions * np.maximum(values, 0.0)) @ directions.T
            found = Posterior.of(self.declared, total, both, pooled)
        return found

    def _error(
        self,
        hessian: NoisyMatrix,
        total: Floats,
        error: Floats,
        pooled: Floats,
        center: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the error of ``pooled`` at the most likely scale, and the spread behind it."""
        best, spread, most = error, self.usual, -math.inf
        for scale in _SCALES:
            usual, both, own = scale * self.usual, error, self.usual
            for _ in range(_ROUNDS):
                found = Posterior.of(usual, total, both, pooled)
                own = found.covariance
                if center is not None:
                    own = own + np.outer(center - found.mean, center - found.mean)
                both = error + hessian.error_of(own)
            variance = total @ usual @ total + both
            log_determinant = float(np.linalg.slogdet(variance)[1])
            likelihood = -log_determinant - float(pooled @ solved(variance, pooled))
            if likelihood > most:
                best, spread, most = both, own, likelihood
        return best, spread


@final
@dataclass(frozen=True, eq=False)
class ScaleLaw:
    """Posterior distribution of the scale of a term: probabilities of the values of a grid.

    The prior of the scale is half-normal with the standard deviation ``unit``.
    """

    edges: Floats  # Ends of the cells around the values of the grid.
    values: Floats
    weights: Floats
    mode: float

    @classmethod
    def of(cls, likelihoods: Floats, unit: float) -> ScaleLaw:
        """Return the law given the log-likelihood of each scale ``unit * SCALE_GRID``."""
        values = unit * SCALE_GRID
        logs = likelihoods - 0.5 * SCALE_GRID**2
        density = np.exp(logs - logs.max())
        edges = np.concatenate([[0.0], 0.5 * (values[1:] + values[:-1]), values[-1:]])
        weights = density * np.diff(edges)
        return cls(edges, values, weights / weights.sum(), float(values[density.argmax()]))

    @property
    def mean_square(self) -> float:
        """Mean of the squared scale: the prior variance of an effect of unit variance."""
        return float(self.weights @ self.values**2)

    def quantiles(self, levels: Floats) -> Floats:
        """Return the values below which the scale lies with these probabilities."""
        below = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.interp(levels, below, self.edges)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the shortest interval with this probability; it begins at 0 where 0 is likely."""
        first = np.linspace(0.0, 1.0 - level, 101)
        low, high = self.quantiles(first), self.quantiles(first + level)
        best = int((high - low).argmin())
        return float(low[best]), float(high[best])


Profile: TypeAlias = "Callable[[int, Floats], Floats]"
"""Log-likelihood of the scales ``unit * SCALE_GRID`` of a term, given those of all terms."""


def scale_laws(
    profile: Profile, start: Floats, unit: float, sweeps: int = SWEEPS
) -> tuple[ScaleLaw, ...]:
    """Return the law of each term's scale, given the most likely scales of the others."""
    scales, laws = start.copy(), [ScaleLaw.of(np.zeros(len(SCALE_GRID)), unit)] * len(start)
    for _ in range(sweeps if len(start) > 1 else 1):
        before = scales.copy()
        for place in range(len(start)):
            laws[place] = ScaleLaw.of(profile(place, scales), unit)
            scales[place] = laws[place].mode
        if (scales == before).all():
            break
    return tuple(laws)


def term_scales(
    hessian: Floats,
    error: Floats,
    pooled: Floats,
    fixed: Floats,
    roots: Sequence[Floats],
    unit: float = 1.0,
) -> tuple[ScaleLaw, ...]:
    """Return the law of each term's scale tau by the marginal likelihood of released values.

    ``pooled`` is ``r = H theta + e`` with the penalised Hessian H and the covariance V of e
    (``error``: sampling, noise in scores, ``NoisyMatrix.error_of``); ``fixed`` is the prior
    covariance of other effects, and that of a term is ``tau^2 R R^T`` for its root R. The
    half-normal prior of tau, with the deviation ``unit``, keeps noise from raising it.

    Marginally ``r ~ N(0, V + H (fixed + sum tau_k^2 R_k R_k^T) H)``. Let M be this covariance
    without term k, ``M = L L^T`` and ``U = L^-1 H R_k``, with squared singular values ``s_j``.
    Along ``tau_k`` the log-likelihood is ``sum_j (tau^2 q_j^2 / (1 + tau^2 s_j) - log(1 + tau^2
    s_j)) / 2`` up to a constant, ``q = U^T L^-1 r`` in the singular directions.
    """
    through = [hessian @ root for root in roots]
    base = error + hessian @ fixed @ hessian.T

    def profile(place: int, scales: Floats) -> Floats:
        others = base + sum(
            scales[k] ** 2 * one @ one.T for k, one in enumerate(through) if k != place
        )
        weighted = solved(others, through[place]).T
        squares, turned = eigen(weighted @ through[place])
        along = (turned.T @ (weighted @ pooled)) ** 2
        variances = np.square(unit * SCALE_GRID)[:, np.newaxis]
        grown = 1.0 + variances * np.maximum(squares, 0.0)
        return np.asarray(0.5 * (variances * along / grown - np.log(grown)).sum(axis=1))

    return scale_laws(profile, np.full(len(roots), unit), unit)
