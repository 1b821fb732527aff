"""Least squares from released sums: centred coordinates, shrinkage, noise. All post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpglm.data.spec import DataSpec
from dpglm.oracle.losses import ScoreSums
from dpglm.oracle.moments import MomentSums, View
from dpglm.oracle.targets import N_SHELLS, Shells, TargetSums
from dpglm.solvers.parts.algebra import eigen, inverted
from dpglm.solvers.second_order.preconditioner import Basis, constant_column
from dpglm.solvers.uncertainty import Covariance, Curvature, Doubt, Uncertainty

# Largest mass of targets that the narrowed range may leave out, beside what noise hides.
_LEFT_OUT = 0.02
BY_CHANCE = 0.03
"""How often noise alone may be taken for a signal."""
LEVEL = 1.0 / 3.0
"""Squared constant coordinate over the cap on the squared length of the others."""
MOST_SQUARES = 3.0
"""Squared length of the longest row in centred coordinates over the mean, were columns even."""
HUGE = 1e50
"""Bound on released values, so that products of a few do not overflow."""
_LEAST_WEIGHT = 0.3
# Deviations of a noisy difference that noise never makes.
_NEVER_NOISE = 5.0
# Deviations of a noisy count from the number of rows that are put down to noise.
_NOISE_OF_COUNT = 4.0


@final
@dataclass(frozen=True, eq=False)
class Observation:
    """A noisy value with the standard deviation of its noise."""

    value: float
    noise: float

    def less(self, shift: float, more_noise: float = 0.0) -> Observation:
        """Subtract a public number, itself with independent noise."""
        return Observation(self.value - shift, math.hypot(self.noise, more_noise))


def with_biased(fair: Observation, others: Sequence[Observation]) -> Observation:
    """Pool a fair observation with others that may have a bias.

    The square of a bias is estimated by what a difference has beyond what noise never makes: the
    fair one may be so noisy that to doubt the others for nothing would cost more than it saves.
    """
    found = [fair]
    for one in others:
        in_difference = fair.noise**2 + one.noise**2
        least = _NEVER_NOISE**2 * in_difference
        bias = math.sqrt(max((one.value - fair.value) ** 2 - least, 0.0))
        found.append(one.less(0.0, bias))
    return pooled(found)


def pooled(observations: Sequence[Observation]) -> Observation:
    """Average by inverse variances."""
    weights = np.array([one.noise for one in observations]) ** -2.0
    values = np.array([one.value for one in observations])
    return Observation(float(weights @ values / weights.sum()), float(weights.sum() ** -0.5))


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """Weight of all rows, mean target, and a range that holds nearly all targets."""

    weight: float
    mean: Observation
    low: float
    high: float


def targets_of(sums: TargetSums, data: DataSpec, slack: float) -> Targets:
    """Read weight, mean and range of the targets off their released sums.

    The range is the shortest run of bins that holds all but 2 % and noise of the weight, and
    ``slack`` times half of its length on both sides, within the bounds of the targets.
    """
    nominal = data.n_rows * min(1.0, data.weight_bound)
    weight = sums.weight
    if abs(weight - nominal) <= _NOISE_OF_COUNT * sums.weight_noise:
        weight = nominal
    weight = min(max(weight, sums.weight_noise), data.n_rows * data.weight_bound)
    low, high = data.target_low, data.target_high
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    mean = min(max(sums.total / weight, -1.0), 1.0)
    found = Observation(middle + half * mean, (half or 1.0) * sums.total_noise / weight)
    n_bins = len(sums.counts)
    if n_bins:
        first, last = _shortest(sums.counts, sums.count_noise, weight)
        bin_width = (high - low) / n_bins
        more = 0.5 * slack * (last - first)
        low, high = (
            max(low, low + bin_width * (first - more)),
            min(high, low + bin_width * (last + more)),
        )
    return Targets(weight, found, low, high)


def _shortest(counts: NDArray[np.float64], noise: float, weight: float) -> tuple[int, int]:
    """Find the ends of the shortest run of bins with nearly all weight."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    for length in range(1, len(counts)):
        masses = below[length:] - below[:-length]
        first = int(np.argmax(masses))
        if masses[first] >= (1.0 - _LEFT_OUT) * weight - noise * math.sqrt(length):
            return first, first + length
    return 0, len(counts)


@final
@dataclass(frozen=True, eq=False)
class Coordinates:
    """A basis, the cap on squared lengths in it, and the value of its constant coordinate.

    Squared lengths are without the constant coordinate.
    """

    basis: Basis
    cap: float
    level: float  # 0 without an intercept.
    mean_square: float
    most: float  # What rows can reach.

    def capped(self, clip: float) -> float:
        """Return another cap, ``clip`` times the mean or what rows can reach if that is less."""
        return min(clip * self.mean_square, self.most)


def centered_coordinates(
    moments: NDArray[np.float64], noise_std: float, data: DataSpec, clip: float
) -> Coordinates:
    """Find coordinates with mean 0 and mean square 1, and a last one that is constant.

    Unless there is no intercept: then mean squares are those about 0. ``moments`` were released by
    ``noisy_second_moments`` with the constant ``constant_column(data)`` and this noise in the
    diagonal. Eigenvalues below the noise's are raised to it; the mean is shrunk (James and Stein)
    by what noise there is in it. The cap is ``clip`` times the mean squared length, or what rows
    can reach at all if that is less.
    """
    d, constant = data.n_features, constant_column(data)
    weight = max(float(moments[-1, -1]), noise_std)
    second, mean = moments[:d, :d], np.zeros(d)
    if data.intercept > 0.0:
        noise = noise_std * constant / (math.sqrt(2.0) * weight)
        mean = _james_stein(moments[:d, -1] * (constant / weight), noise)
        length = float(np.linalg.norm(mean))
        mean *= min(1.0, data.row_norm / length) if length > 0.0 else 1.0
        second = second - np.outer(mean, mean) * (weight / constant**2)
    seen, directions = np.linalg.eigh(second)
    typical = constant**2 / weight
    raised = np.maximum(seen, noise_std * math.sqrt(d))
    lengths = np.sqrt(raised * typical)
    vectors, inverse = directions / lengths, (directions * lengths).T
    longest = float(np.linalg.norm(mean @ vectors)) + data.row_norm / float(lengths.min())
    # Rows are shorter along what was raised; noise makes this an upper estimate.
    squares = max(float((np.maximum(seen, 0.0) / raised).sum()), 1.0)
    most = max(longest**2, squares)
    cap = min(clip * squares, most)
    end = data.intercept
    if end == 0.0:
        return Coordinates(Basis(vectors, inverse), cap, 0.0, squares, most)
    level = math.sqrt(LEVEL * cap)
    full, back = np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1))
    full[:d, :d], full[-1, :d], full[-1, -1] = vectors, -(mean @ vectors) / end, level / end
    back[:d, :d], back[-1, :d], back[-1, -1] = inverse, mean / level, end / level
    return Coordinates(Basis(full, back), cap, level, squares, most)


def _james_stein(x: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Shrink to zero what hardly is longer than noise makes it (positive part)."""
    squares = float(x @ x)
    alone = float(special.chdtri(len(x), BY_CHANCE)) * noise**2
    return x * (1.0 - alone / squares if squares > alone else 0.0)


@final
@dataclass(frozen=True, eq=False)
class Slopes:
    """Weighted second moments of the coordinates without the level: about their mean."""

    matrix: NDArray[np.float64]  # Positive definite.
    mean: NDArray[np.float64]
    weight: float  # The sum of all weights f.
    weight_noise: float
    mean_noise: float  # In each entry of the mean times the weight.

    def level_of(self, sums: MomentSums, view: View, prediction: float) -> Observation:
        """Mean target that a score shows, about ``prediction``, the view's mean prediction."""
        shift = float(sums.vector[-1]) / view.level / self.weight
        noise = math.hypot(
            sums.vector_noise / view.level / self.weight, shift * self.weight_noise / self.weight
        )
        return Observation(prediction + shift, noise)

    def beside_level(
        self, v: NDArray[np.float64], mean: float, level: float
    ) -> NDArray[np.float64]:
        """Add to slopes the constant coordinate with which this is the mean prediction, if any."""
        return np.append(v, (mean - self.mean @ v) / level) if level > 0.0 else v


def slopes_of(sums: MomentSums, view: View, weight: float) -> Slopes:
    """Separate the level from the other coordinates, and temper noise in what is left.

    The matrix is shrunk towards a multiple of the identity, to which the basis has brought it as
    far as it could, by the share of noise in its squared distance from there (Ledoit and Wolf 2004,
    with the noise known); small eigenvalues are raised to half of what noise alone makes of them.
    """
    if view.level == 0.0:
        tempered = _tempered(sums.matrix, sums.matrix_noise)
        return Slopes(tempered, np.zeros(len(tempered)), weight, 0.0, 0.0)
    noise = sums.matrix_noise / view.level**2
    found = float(sums.matrix[-1, -1]) / view.level**2
    total = min(max(found, _LEAST_WEIGHT * weight), weight)
    in_mean = sums.matrix_noise / (math.sqrt(2.0) * view.level)
    mean = _james_stein(sums.matrix[:-1, -1] / (view.level * total), in_mean / total)
    about_mean = sums.matrix[:-1, :-1] - total * np.outer(mean, mean)
    tempered = _tempered(about_mean, sums.matrix_noise)
    return Slopes(tempered, mean, total, min(noise, total), in_mean)


def _tempered(matrix: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    size = len(matrix)
    middle = float(np.trace(matrix)) / size
    distance = float(((matrix - middle * np.eye(size)) ** 2).sum())
    expected = 0.5 * size * (size + 1) * noise**2
    share = min(1.0, expected / distance) if distance > 0.0 else 1.0
    middle = max(middle, noise)
    values, directions = np.linalg.eigh((1.0 - share) * matrix + share * middle * np.eye(size))
    # Rounding of the eigenvalues is what is left where there is no noise.
    least = 0.5 * (1.0 - share) * noise * math.sqrt(size)
    least += np.abs(values).max() * size * np.finfo(np.float64).eps
    raised = np.maximum(values, max(least, 1e-300))
    return np.asarray((directions * raised) @ directions.T)


@final
@dataclass(frozen=True, eq=False)
class Estimate:
    """Regularised slopes: the solution of ``(S + ridge) v = g``, the ridge a matrix."""

    v: NDArray[np.float64]
    matrix: NDArray[np.float64]  # S + ridge.
    g: NDArray[np.float64]  # Zero where all may be noise.


def shrunk_slopes(
    matrix: NDArray[np.float64],
    g: NDArray[np.float64],
    noise: float,
    variance: float,
    weight: float,
    chance: float = BY_CHANCE,
    sampling: float = 1.0,
) -> Estimate:
    """Solve ``S v = g``, whose right side has noise in every entry, by empirical Bayes.

    With v ~ N(0, omega^2 I) and eigenvalues l of S, v = l g / (l^2 + noise^2 / omega^2). omega^2 is
    estimated by moments from |g|^2 less what noise alone exceeds by ``chance``, so that v is zero
    where nothing stands out. To noise the sampling error of g is added, up to ``sampling`` times
    as much: it vanishes with the noise, so that least squares is the limit. ``variance`` is that of
    the targets, a bound on what slopes can explain. Several outputs, columns of g, have one omega;
    ``variance`` is then their mean.
    """
    size, outputs = len(g), g.size // len(g)
    values, directions = np.linalg.eigh(matrix)
    threshold = noise**2 + min(sampling * noise**2, variance * weight)
    signal = float(np.vdot(g, g)) - threshold * float(special.chdtri(g.size, chance))
    omega = min(signal / (outputs * float(values @ values)), variance / size)
    if not omega > 0.0:
        return Estimate(np.zeros(g.shape), matrix, np.zeros(g.shape))
    raised = values + noise**2 / omega / values
    v = (directions / raised) @ (directions.T @ g)
    return Estimate(v, (directions * raised) @ directions.T, g)


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """A fit, and how far what it leaves of targets may be from 0 without being clipped."""

    v: NDArray[np.float64]  # All coordinates, the constant one last.
    mean: Observation  # Of the predictions, less the view's center; 0 without an intercept.
    variance: float  # Of what is left.
    reach: float


@final
@dataclass(frozen=True, eq=False)
class FirstFit:
    """The normal equations with targets around their mean, and their solution."""

    view: View
    sums: MomentSums
    slopes: Slopes
    variance: float  # Of the targets.
    fit: Fit


def noise_in_equations(
    vector_noise: float, matrix_noise: float, q: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Covariance of the noise in normal equations, whose matrix was multiplied by q.

    The noise E in a matrix has deviation s on its diagonal and ``s / sqrt(2)`` beside it, so E q
    has covariance ``s^2 (|q|^2 I + q q^T) / 2``.
    """
    half = 0.5 * matrix_noise**2
    even = vector_noise**2 + half * float(q @ q)
    return np.asarray(even * np.eye(len(q)) + half * np.outer(q, q))


# A bound that hardly any score exceeds, from noisy counts of scores. Post-processing.

_RATIO = 2.0 ** (1.0 / 3.0)
# Deviations of noise that a shell's count must exceed, and more so many shells further out.
_STANDS_OUT, _FURTHER_OUT = 1.5, 0.2


def score_shells(at: Coordinates, fit: Fit) -> Shells:
    """Shells of scores, from the root mean square of their lengths on."""
    return Shells(math.sqrt((at.mean_square + at.level**2) * fit.variance), _RATIO)


def first_empty(shells: Shells, counts: NDArray[np.float64], noise: float) -> float:
    """Find the length from which on no run of shells holds more rows than noise may be."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    for k in range(N_SHELLS):
        beyond = np.arange(N_SHELLS - k)
        most = (_STANDS_OUT + _FURTHER_OUT * beyond) * noise * np.sqrt(beyond + 1.0)
        if not (below[k + 1 :] - below[k] > most).any():
            return shells.start(k)
    return shells.start(N_SHELLS)


# Slopes and mean of least squares from scores at one estimate after the other. Post-processing.

# Least variance of what a better fit leaves, over that of what a worse one does.
_LEAST_LEFT = 0.1
# Variance of the scores' sampling that is put to their noise's, over noise's.
_MOST_SAMPLING = 6.0


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """What all scores so far say.

    A score at v shows slopes ``v + S^-1 score``, S the matrix of the first fit: one step from v,
    exact where S is the curvature. They are averaged by the inverse variances of the scores'
    noise, none of which is lost on the way; each score is asked for at their shrunk average so far.
    What S is wrong about fades as k^-h after k scores, h the curvature over S.
    """

    steps: NDArray[np.float64]  # Sum of the slopes that scores show, over noise's variance.
    places: NDArray[np.float64]  # The same of the slopes at which scores were asked for.
    precision: float  # Sum of inverse variances.
    level: Observation | None  # Mean target, less the view's center.
    slopes: Estimate
    fit: Fit

    @classmethod
    def none(cls, first: FirstFit) -> Scores:
        """Begin with the fit of the normal equations."""
        d = len(first.slopes.mean)
        zero = np.zeros(d)
        unknown = Estimate(first.fit.v[:d], first.slopes.matrix, zero)
        return cls(zero, zero, 0.0, None, unknown, first.fit)

    def and_one(
        self,
        first: FirstFit,
        targets: Targets,
        view: View,
        sums: MomentSums,
        extent: float,
        chance: float,
    ) -> Scores:
        """Add a score, and shrink the slopes that all of them show.

        ``extent``: how many deviations residuals may be from 0. ``chance``: how often noise alone
        may be taken for slopes.
        """
        slopes, d = first.slopes, len(self.steps)
        v, mean, level = view.v[:d], Observation(0.0, 0.0), self.level
        if view.level > 0.0:
            found = slopes.level_of(sums, view, self.fit.mean.value)
            level = found if level is None else pooled((level, found))
            # What noise in the mean of the rows makes of means that slopes are taken from.
            moved = slopes.mean_noise * float(np.linalg.norm(v)) / slopes.weight
            # Scores and targets are cut, where that is far from all others.
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
        shrunk = shrunk_slopes(
            slopes.matrix,
            slopes.matrix @ (steps / precision),
            precision**-0.5,
            first.variance,
            targets.weight,
            chance,
            _MOST_SAMPLING,
        )
        left = max(sums.squares / targets.weight, _LEAST_LEFT * self.fit.variance)
        left = min(max(left, sums.squares_noise / targets.weight), self.fit.variance)
        fit = Fit(
            slopes.beside_level(shrunk.v, mean.value, view.level),
            mean,
            left,
            min(extent * math.sqrt(left) + 2.0 * mean.noise, first.fit.reach),
        )
        return Scores(steps, places, precision, level, shrunk, fit)

    def noise(self, first: FirstFit) -> NDArray[np.float64]:
        """Covariance of the noise in the equations ``S v = g`` that the slopes solve.

        Noise E in S is multiplied by how far the slopes are from where scores were asked for.
        """
        q = self.slopes.v - self.places / self.precision
        return noise_in_equations(self.precision**-0.5, first.sums.matrix_noise, q)


# Least squares without shrinkage, and its covariance, from released sums. Post-processing.


def intervals(
    view: View,
    sums: ScoreSums,
    basis: Basis,
    weight: float,
    data: DataSpec,
    penalty: NDArray[np.float64],
    kind: Covariance,
) -> Uncertainty:
    """One Newton step from the fit of a view, and its covariance by the delta method.

    ``penalty`` is the diagonal of the L2 penalty's Hessian, times the number of rows; ``weight``
    the weight of all rows.

    The residual of the noisy equations at the exact solution is ``e - E q``, e the noise in the
    score, E that in the matrix and q the step. Under a right model the covariance of scores is a
    multiple of the matrix, of which the squared lengths of scores tell the trace.
    """
    constant = np.zeros(data.n_columns)
    if view.level > 0.0:
        constant[-1] = view.center / data.intercept
    pull = basis.vectors.T @ (penalty * (constant + basis.vectors @ view.v))
    bend = basis.vectors.T @ (penalty[:, np.newaxis] * basis.vectors)
    values, directions = eigen(sums.matrix + bend)
    size = len(values)
    least = 0.5 * sums.matrix_noise * math.sqrt(size)
    inverse = (directions / np.maximum(values, least)) @ directions.T
    step = inverse @ (sums.vector - pull)
    freedom = max(data.n_rows - size, 1)
    relative, dispersion = 2.0 / freedom, None
    if sums.products is None:
        trace = max(float(np.trace(sums.matrix)), least)
        explained = max(float(step @ sums.matrix @ step), 0.0) / weight
        in_variance = sums.squares_noise / trace
        variance = max(sums.squares / trace - explained, in_variance) * data.n_rows / freedom
        dispersion = variance
        spread, in_spread = variance * sums.matrix, variance * sums.matrix_noise
        relative += (in_variance / variance) ** 2
    else:
        spread, in_spread = sums.products, sums.products_noise
    seen, along = eigen(spread)
    spread = (along * np.maximum(seen, 0.0)) @ along.T
    noise = noise_in_equations(sums.vector_noise, sums.matrix_noise, step)
    matrix, found = (directions * np.maximum(values, least)) @ directions.T, sums.matrix + bend
    curvature = Curvature.seen_through(matrix, found, sums.matrix_noise)
    back = basis.vectors @ inverted(curvature.least)
    sampling, privacy = back @ spread @ back.T, back @ noise @ back.T
    return Uncertainty(
        constant + basis.vectors @ (view.v + step),
        sampling,
        privacy,
        # Those of the estimated variance of errors, on which all standard errors rest.
        max(2.0 / relative, 1.0),
        kind,
        Doubt.of(curvature, found, sums.matrix_noise, in_spread, basis.vectors),
        dispersion,
    )
