"""Least squares from released sums: coordinates, shrinkage and intervals by post-processing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import special

from dpglm.data.rows import DataSpec
from dpglm.oracle.linear import N_SHELLS, LinearView, MomentSums, Shells
from dpglm.oracle.moments import constant_column
from dpglm.oracle.targets import TargetSums
from dpglm.privacy.budget import Adjacency
from dpglm.solvers.second_order.likelihood import known_weight
from dpglm.solvers.second_order.newton_raphson_settings import NEGLIGIBLE
from dpglm.solvers.second_order.posterior import (
    FAR,
    Posterior,
    Prior,
    uncorrelated_hessian,
)
from dpglm.solvers.second_order.preconditioner import Basis, Columns
from dpglm.solvers.uncertainty import Covariance, Floats, Uncertainty, eigen, solved

# Chosen by ``python -m experiments.least_squares``.
BY_CHANCE = 0.03
"""Probability of taking noise for a signal; and of targets outside the narrowed range."""
MOST_SQUARES = 3.0
"""Squared length of the longest row in centred coordinates over the mean, were columns even."""
LEVEL = 1.0 / MOST_SQUARES
"""Squared constant coordinate over the cap on the squared length of the others."""
HUGE = 1e50
"""Bound on released values, so that products of a few do not overflow."""
_LEAST_WEIGHT = 0.5


@final
@dataclass(frozen=True, eq=False)
class NoisyValue:
    """A noisy value with the standard deviation of its noise."""

    value: float
    noise: float

    def less(self, shift: float, more_noise: float = 0.0) -> NoisyValue:
        """Subtract a public number, which may have independent noise."""
        return NoisyValue(self.value - shift, math.hypot(self.noise, more_noise))


def with_biased(fair: NoisyValue, others: Sequence[NoisyValue]) -> NoisyValue:
    """Pool an unbiased observation with others that may be biased.

    The square of a bias is estimated by the excess of a difference over the largest that noise
    explains. If the unbiased observation is very noisy, a stricter rule would lose more than it
    gains.
    """
    found = [fair]
    for one in others:
        least = FAR**2 * (fair.noise**2 + one.noise**2)
        bias = math.sqrt(max((one.value - fair.value) ** 2 - least, 0.0))
        found.append(one.less(0.0, bias))
    return pooled(found)


def pooled(observations: Sequence[NoisyValue]) -> NoisyValue:
    """Average by inverse variances."""
    weights = np.array([one.noise for one in observations]) ** -2.0
    values = np.array([one.value for one in observations])
    return NoisyValue(float(weights @ values / weights.sum()), float(weights.sum() ** -0.5))


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """Weight of all rows, mean target, and a range that holds nearly all targets."""

    weight: float
    weight_noise: float
    mean: NoisyValue
    low: float
    high: float


def targets_of(sums: TargetSums, data: DataSpec, adjacency: Adjacency, slack: float) -> Targets:
    """Derive weight, mean and range of the targets from their released sums.

    The range is the shortest run of bins with all but 3 % of the weight, up to noise, extended by
    ``slack`` times half of its length on both sides, within the bounds of the targets.
    """
    weight, in_weight = known_weight(sums.weight, sums.weight_noise, data, adjacency)
    weight = min(max(weight, sums.weight_noise), data.n_rows * data.weight_bound)
    low, high = data.target_low, data.target_high
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    mean = min(max(sums.total / weight, -1.0), 1.0)
    found = NoisyValue(middle + half * mean, (half or 1.0) * sums.total_noise / weight)
    n_bins = len(sums.counts)
    if n_bins:
        first, last = _shortest(sums.counts, sums.count_noise, weight)
        bin_width = (high - low) / n_bins
        more = 0.5 * slack * (last - first)
        ends = low + bin_width * (first - more), low + bin_width * (last + more)
        low, high = max(low, ends[0]), min(high, ends[1])
    return Targets(weight, in_weight, found, low, high)


def _shortest(counts: Floats, noise: float, weight: float) -> tuple[int, int]:
    """Find the ends of the shortest run of bins with nearly all weight."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    for length in range(1, len(counts)):
        masses = below[length:] - below[:-length]
        first = int(np.argmax(masses))
        if masses[first] >= (1.0 - BY_CHANCE) * weight - noise * math.sqrt(length):
            return first, first + length
    return 0, len(counts)


@final
@dataclass(frozen=True, eq=False)
class Coordinates:
    """A basis, the cap on squared norms in it, and the value of its constant coordinate.

    Squared norms exclude the constant coordinate.
    """

    basis: Basis
    cap: float
    level: float  # 0 without an intercept.
    mean_square: float
    most: float  # The largest squared norm of a row.
    columns: tuple[Floats, Floats, float]  # Their means, and variances with the noise in them.
    alike: Floats  # Projection on directions with second moments that exceed their noise.

    def of_rows(self, by: Columns, data: DataSpec) -> Coordinates:
        """Return coordinates of rows, from these of rows with the right bounds."""
        basis, free = by.basis(self.basis, data), slice(data.n_features)
        most = Basis(basis.vectors[:, free], basis.inverse[free]).longest(data) ** 2
        return dataclasses.replace(self, basis=basis, most=most)

    def capped(self, clip: float) -> float:
        """Return another cap, ``clip`` times the mean or the largest possible if that is less."""
        return min(clip * self.mean_square, self.most)


def centered_coordinates(
    moments: Floats, noise_std: float, data: DataSpec, clip: float
) -> Coordinates:
    """Find coordinates with mean 0 and mean square 1, and a last one that is constant.

    Without an intercept mean squares are those about 0. ``moments`` were released by
    ``noisy_second_moments`` with the constant ``constant_column(data)`` and this noise in the
    diagonal. Eigenvalues below the noise's are raised to it; the mean is shrunk (James and Stein)
    for its noise. The cap is ``clip`` times the mean squared norm, or the largest possible if that
    is less.
    """
    d, constant = data.n_features, constant_column(data)
    weight = max(float(moments[-1, -1]), noise_std)
    second, mean = moments[:d, :d], np.zeros(d)
    if data.intercept > 0.0:
        noise = noise_std * constant / (math.sqrt(2.0) * weight)
        mean = james_stein(moments[:d, -1] * (constant / weight), noise)
        length = float(np.linalg.norm(mean))
        mean *= min(1.0, data.row_norm / length) if length > 0.0 else 1.0
        second = second - np.outer(mean, mean) * (weight / constant**2)
    seen, directions = np.linalg.eigh(second)
    typical = constant**2 / weight
    columns = mean, typical * np.diag(second), typical * noise_std
    raised = np.maximum(seen, noise_std * math.sqrt(d))
    lengths = np.sqrt(raised * typical)
    # Coordinates close to columns: some products of columns are known, and their tails differ.
    vectors, inverse = (directions / lengths) @ directions.T, (directions * lengths) @ directions.T
    longest = float(np.linalg.norm(mean @ vectors)) + data.row_norm / float(lengths.min())
    # Rows are shorter along raised directions; noise makes this an upper estimate.
    squares = max(float((np.maximum(seen, 0.0) / raised).sum()), 1.0)
    most = max(longest**2, squares)
    cap = min(clip * squares, most)
    basis, level, end = Basis(vectors, inverse), 0.0, data.intercept
    alike = (directions * (seen == raised)) @ directions.T
    if end > 0.0:
        level = math.sqrt(LEVEL * cap)
        full, back = np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1))
        full[:d, :d], full[-1, :d], full[-1, -1] = vectors, -(mean @ vectors) / end, level / end
        back[:d, :d], back[-1, :d], back[-1, -1] = inverse, mean / level, end / level
        basis, alike = Basis(full, back), np.pad(alike, (0, 1))
    return Coordinates(basis, cap, level, squares, most, columns, alike)


def james_stein(x: Floats, noise: float, chance: float = BY_CHANCE) -> Floats:
    """Shrink a vector to zero if it is no longer than noise is with probability ``chance``."""
    squares = float(x @ x)
    alone = float(special.chdtri(len(x), chance)) * noise**2
    return x * (1.0 - alone / squares if squares > alone else 0.0)


@final
@dataclass(frozen=True, eq=False)
class Slopes:
    """Weighted second moments of the coordinates about their mean, without the level."""

    matrix: Floats  # Positive definite.
    mean: Floats
    weight: float  # The sum of all weights f.
    weight_noise: float
    mean_noise: float  # In each entry of the mean times the weight.

    def level_of(self, sums: MomentSums, view: LinearView, prediction: float) -> NoisyValue:
        """Return the mean target that a score implies, about the mean ``prediction``."""
        shift = float(sums.vector[-1]) / view.level / self.weight
        noise = math.hypot(sums.vector_noise / view.level, shift * self.weight_noise) / self.weight
        return NoisyValue(prediction + shift, noise)

    def beside_level(self, v: Floats, mean: float, level: float) -> Floats:
        """Append to slopes the constant coordinate with this mean prediction, if there is one."""
        return np.append(v, (mean - self.mean @ v) / level) if level > 0.0 else v


def slopes_of(sums: MomentSums, view: LinearView, weight: float) -> Slopes:
    """Separate the level from the other coordinates, and shrink the noise in the rest.

    The matrix is shrunk towards a multiple of the identity, by the share of noise in its squared
    distance from there (Ledoit and Wolf 2004, with the noise known); small eigenvalues are raised
    to half of the noise's.
    """
    if view.level == 0.0:
        tempered = _tempered(sums.matrix, sums.matrix_noise)
        return Slopes(tempered, np.zeros(len(tempered)), weight, 0.0, 0.0)
    noise = sums.matrix_noise / view.level**2
    found = float(sums.matrix[-1, -1]) / view.level**2
    total = min(max(found, _LEAST_WEIGHT * weight), weight)
    in_mean = sums.matrix_noise / (math.sqrt(2.0) * view.level)
    mean = james_stein(sums.matrix[:-1, -1] / (view.level * total), in_mean / total)
    about_mean = sums.matrix[:-1, :-1] - total * np.outer(mean, mean)
    tempered = _tempered(about_mean, sums.matrix_noise)
    return Slopes(tempered, mean, total, min(noise, total), in_mean)


def _tempered(matrix: Floats, noise: float) -> Floats:
    size = len(matrix)
    middle = float(np.trace(matrix)) / size
    distance = float(((matrix - middle * np.eye(size)) ** 2).sum())
    expected = 0.5 * size * (size + 1) * noise**2
    share = min(1.0, expected / distance) if distance > 0.0 else 1.0
    middle = max(middle, noise)
    values, directions = np.linalg.eigh((1.0 - share) * matrix + share * middle * np.eye(size))
    # Without noise the rounding of the eigenvalues is left.
    least = 0.5 * (1.0 - share) * noise * math.sqrt(size)
    least += np.abs(values).max() * size * np.finfo(np.float64).eps
    raised = np.maximum(values, max(least, 1e-300))
    return np.asarray((directions * raised) @ directions.T)


def shrunk_slopes(
    matrix: Floats,
    g: Floats,
    noise: float,
    variance: float,
    weight: float,
    chance: float = BY_CHANCE,
    sampling: float = 1.0,
) -> tuple[Floats, Floats, Floats]:
    """Solve ``S v = g``, with noise in every entry of the right side, by empirical Bayes.

    Returns the solution v of ``(S + ridge) v = g``, its matrix, and g, zero below the noise level.

    With v ~ N(0, omega^2 I) and eigenvalues l of S, v = l g / (l^2 + noise^2 / omega^2). omega^2 is
    estimated by moments from |g|^2 less a value that noise alone exceeds by ``chance``, so v is
    zero if nothing exceeds the noise. The sampling error of g is added to the noise, up to
    ``sampling`` times it: it vanishes with the noise, so the limit is least squares. ``variance``
    is that of the targets, which bounds the explained variance. Several outputs, columns of g,
    share one omega; ``variance`` is then their mean.
    """
    size, outputs = len(g), g.size // len(g)
    values, directions = np.linalg.eigh(matrix)
    threshold = noise**2 + min(sampling * noise**2, variance * weight)
    signal = float(np.vdot(g, g)) - threshold * float(special.chdtri(g.size, chance))
    omega = min(signal / (outputs * float(values @ values)), variance / size)
    if not omega > 0.0:
        return np.zeros(g.shape), matrix, np.zeros(g.shape)
    raised = values + noise**2 / omega / values
    v = (directions / raised) @ (directions.T @ g)
    return v, (directions * raised) @ directions.T, g


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """A fit, and the bound within which its residuals are not clipped."""

    v: Floats  # All coordinates, the constant one last.
    mean: NoisyValue  # Mean prediction, less the view's center; 0 without an intercept.
    variance: float  # Variance of the residuals.
    reach: float


@final
@dataclass(frozen=True, eq=False)
class FirstFit:
    """The normal equations with targets around their mean, and their solution."""

    view: LinearView
    sums: MomentSums
    slopes: Slopes
    variance: float  # Variance of the targets.
    fit: Fit


# A bound that few scores exceed, from noisy counts of scores. Post-processing.

RATIO = 2.0 ** (1.0 / 3.0)
"""Ratio of the norms at the ends of a shell of scores."""
# Deviations of noise that a shell's count must exceed, and more for each shell further out; chosen
# by ``python -m experiments.least_squares``.
_STANDS_OUT, _FURTHER_OUT = 1.5, 0.2


def first_empty(shells: Shells, counts: Floats, noise: float) -> float:
    """Find the least norm such that noise explains all longer shells."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    for k in range(N_SHELLS):
        beyond = np.arange(N_SHELLS - k)
        most = (_STANDS_OUT + _FURTHER_OUT * beyond) * noise * np.sqrt(beyond + 1.0)
        if not (below[k + 1 :] - below[k] > most).any():
            return shells.start(k)
    return shells.start(N_SHELLS)


# Slopes and mean of least squares from scores at successive estimates. Post-processing.

# Largest sampling variance that is added to the noise variance of scores, relative to it.
_MOST_SAMPLING = FAR


@final
@dataclass(frozen=True, eq=False)
class PooledScores:
    """The information in all scores so far.

    A score at v implies slopes ``v + S^-1 score``, S the matrix of the first fit: one Newton step
    from v, exact if S is the curvature. They are averaged by inverse noise variances, without loss;
    each score is taken at their shrunk average so far. An error in S fades as k^-h after k scores,
    h the curvature over S.
    """

    steps: Floats  # Sum of the implied slopes over their noise variance.
    places: Floats  # The same of the points of the scores.
    precision: float  # Sum of inverse variances.
    level: NoisyValue | None  # Mean target, less the view's center.
    matrix: Floats  # Matrix and right side of the equations of the shrunk slopes.
    g: Floats
    fit: Fit

    @classmethod
    def none(cls, first: FirstFit) -> PooledScores:
        """Begin with the fit of the normal equations."""
        zero = np.zeros(len(first.slopes.mean))
        return cls(zero, zero, 0.0, None, first.slopes.matrix, zero, first.fit)

    def and_one(
        self,
        first: FirstFit,
        targets: Targets,
        view: LinearView,
        sums: MomentSums,
        extent: float,
        chance: float,
    ) -> PooledScores:
        """Add a score, and shrink the slopes that all of them imply.

        ``extent`` bounds residuals, in deviations; ``chance`` is the probability of taking noise
        for slopes.
        """
        slopes, d = first.slopes, len(self.steps)
        v, mean, level = view.v[:d], NoisyValue(0.0, 0.0), self.level
        if view.level > 0.0:
            found = slopes.level_of(sums, view, self.fit.mean.value)
            level = found if level is None else pooled((level, found))
            # Noise in the mean prediction from noise in the mean of the rows.
            moved = slopes.mean_noise * float(np.linalg.norm(v)) / slopes.weight
            # PooledScores and targets are clipped if they are far from all others.
            at_first = slopes.level_of(first.sums, first.view, 0.0).less(0.0, moved)
            mean = with_biased(targets.mean.less(view.center, moved), (at_first, level))
        shift = mean.value - self.fit.mean.value
        g = sums.vector[:d] - slopes.weight * shift * slopes.mean
        share = math.hypot(sums.vector_noise, slopes.mean_noise * shift) ** -2
        steps = self.steps + share * (v + np.linalg.solve(slopes.matrix, g))
        precision = self.precision + share
        places = self.places + share * v
        if not np.isfinite(steps).all():
            return self
        v, matrix, g = shrunk_slopes(
            slopes.matrix,
            slopes.matrix @ (steps / precision),
            precision**-0.5,
            first.variance,
            targets.weight,
            chance,
            _MOST_SAMPLING,
        )
        left = max(sums.squares / targets.weight, NEGLIGIBLE * self.fit.variance)
        left = min(max(left, sums.squares_noise / targets.weight), self.fit.variance)
        fit = Fit(
            slopes.beside_level(v, mean.value, view.level),
            mean,
            left,
            min(extent * math.sqrt(left) + 2.0 * mean.noise, first.fit.reach),
        )
        return PooledScores(steps, places, precision, level, matrix, g, fit)

    def noise(self, first: FirstFit) -> Floats:
        """Return the covariance of the noise in the equations ``S v = g`` of the slopes.

        Noise E in S is multiplied by the distance q of the slopes from the points of the scores. It
        has deviation s on its diagonal and ``s / sqrt(2)`` off it, so E q has covariance ``s^2
        (|q|^2 I + q q^T) / 2``.
        """
        q = self.fit.v[: len(self.places)] - self.places / self.precision
        half = 0.5 * first.sums.matrix_noise**2
        even = (self.precision**-0.5) ** 2 + half * float(q @ q)
        return np.asarray(even * np.eye(len(q)) + half * np.outer(q, q))


# Least squares under a weakly informative prior, and its covariance. Post-processing.

# Rounds that compute the residual variance and the estimate from each other.
_ROUNDS = 3
# A variance with relative noise r has 2 / r^2 degrees of freedom (Satterthwaite, Biometrics
# Bulletin 2, 1946), so squared 95 % critical values grow by 1 + (z^2 + 1) r^2 / 4, to first order.
UNSURE = (1.96**2 + 1.0) / 4.0


def intervals(
    view: LinearView,
    sums: MomentSums,
    at: Coordinates,
    prior: Prior,
    weight: float,
    data: DataSpec,
    penalty: Floats,
    kind: Covariance,
    kept: Floats,
) -> Uncertainty:
    """Return the posterior given a score at the fit of a view, and noisy second moments.

    ``penalty`` is the diagonal of the L2 penalty's Hessian, times the number of rows; ``weight``
    the weight of all rows. Under a right model the covariance of scores is a multiple of the
    matrix, and the squared norms of scores give its trace. ``kept`` is the share of noise that is
    left in each entry of the matrix.
    """
    constant, basis = np.zeros(data.n_columns), at.basis
    if view.level > 0.0:
        constant[-1] = view.center / data.intercept
    bend = basis.vectors.T @ (penalty[:, np.newaxis] * basis.vectors)
    hessian = uncorrelated_hessian(sums.matrix, sums.matrix_noise, kept, at.alike)
    shown = prior.shown(hessian.mean + bend, sums.matrix_noise)
    pooled = hessian.mean @ shown @ view.v + sums.vector - basis.vectors.T @ (penalty * constant)
    one, freedom = np.eye(len(pooled)), max(data.n_rows - len(pooled), 1)

    def updated(mean: Floats) -> tuple[Posterior, Floats, float | None]:
        """Return the posterior, the covariance of the score, and the residual variance."""
        if sums.products is None:
            trace = max(float(np.trace(sums.matrix)), sums.matrix_noise)
            step = mean - view.v
            explained = max(float(step @ sums.matrix @ step), 0.0) / weight
            in_variance = sums.squares_noise / trace
            variance = max(sums.squares / trace - explained, in_variance) * data.n_rows / freedom
            spread = variance * hessian.mean
            in_spread = variance * sums.matrix_noise * one + in_variance * hessian.mean
        else:
            variance, (seen, along) = None, eigen(sums.products)
            spread = (along * np.maximum(seen, 0.0)) @ along.T
            in_spread = sums.products_noise * one
        error = spread + sums.vector_noise**2 * one
        error += UNSURE * in_spread @ solved(error, in_spread)
        return prior.updated(hessian, bend, error, pooled, view.v, shown), spread, variance

    found, spread, dispersion = updated(view.v)
    for _ in range(_ROUNDS - 1):
        found, spread, dispersion = updated(found.mean)
    back = basis.vectors @ found.gain
    sampling = back @ spread @ back.T
    return Uncertainty(
        constant + basis.vectors @ found.mean,
        sampling,
        basis.vectors @ found.covariance @ basis.vectors.T - sampling,
        float(freedom),
        kind,
        dispersion=dispersion,
        prior=basis.vectors @ prior.declared @ basis.vectors.T,
    )
