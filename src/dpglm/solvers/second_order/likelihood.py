"""Parts of Newton steps for likelihoods: conditions, the constant model, and noisy Hessians."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special
from scipy.optimize import brentq

from dpglm.data.rows import SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import pack_symmetric, unpack_symmetric
from dpglm.oracle.targets import (
    SQUARED_SLOPES,
    noisy_squared_slope,
    noisy_target_means,
    noisy_target_sizes,
    target_mean_sum,
    target_size_sum,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import SumRelease
from dpglm.problem import Logistic, Problem, Squared, Unconstrained
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.base import present
from dpglm.solvers.parts.defaults import curvature, is_neutral, slope_unit
from dpglm.solvers.second_order.posterior import FAR, LEAST
from dpglm.solvers.second_order.preconditioner import Basis
from dpglm.solvers.uncertainty import Floats, eigen, feasible, n_penalized, solved

# Minimising a released quadratic plus penalty over a constraint: post-processing.

_MOST_STEPS, _TOLERANCE = 20_000, 1e-10


def minimize_quadratic(
    matrix: Floats | float,
    vector: Floats,
    basis: Basis,
    problem: Problem,
    penalized: int,
    center: Floats,
) -> Floats:
    """Minimise ``<v, A v> / 2 - <b, v>`` plus the penalty of ``w = center + basis v``.

    A number in place of the matrix A is that multiple of the identity, and is faster. Exact if the
    penalty is quadratic and the constraint does not bind; else by accelerated proximal gradient
    steps with restarts. Post-processing of released values.

    O'Donoghue and Candès, "Adaptive restart for accelerated gradient schemes", Foundations of
    Computational Mathematics 15 (2015), section 3.2.
    """
    strength = problem.regularizer.strong_convexity
    acted_on = basis.vectors[:penalized]
    target = vector - strength * acted_on.T @ center[:penalized]
    if isinstance(matrix, float):
        values, directions = basis.spectrum(penalized)
        along: Floats = (directions.T @ target).T / (matrix + strength * values)
        v = np.asarray(directions @ along.T)
    else:
        v = solved(matrix + strength * basis.products(penalized), target)
    w = center + basis.vectors @ v
    if problem.regularizer.smoothness == strength and problem.constraint.contains(
        w[:penalized], 0.0
    ):
        return w
    full = matrix * np.eye(len(v)) if isinstance(matrix, float) else matrix
    hessian = basis.inverse.T @ full @ basis.inverse
    shift = basis.inverse.T @ vector + hessian @ center
    if not np.isfinite(hessian).all():
        # Norms would fail, and a run that was charged must return.
        return np.full_like(w, np.nan)
    step = 1.0 / float(np.linalg.norm(hessian, 2))
    w = feasible(problem, penalized, w, 0.0)
    ahead, momentum = w, 1.0
    for _ in range(_MOST_STEPS):
        new = feasible(problem, penalized, ahead - step * (hessian @ ahead - shift), step)
        moved = new - w
        if float(np.vdot(ahead - new, moved)) > 0.0:
            momentum = 1.0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * moved
        momentum, w = following, new
        if np.linalg.norm(moved) <= _TOLERANCE * np.linalg.norm(w):
            break
    return w


def is_quadratic(problem: Problem) -> bool:
    """Whether the penalized minimizer of a quadratic is linear in its linear term."""
    penalty = problem.regularizer
    unconstrained = problem.constraint == Unconstrained()
    return penalty.smoothness == penalty.strong_convexity and unconstrained


_FARTHEST_SCORE, _LEAST_BEND = 30.0, 1e-12


def check_likelihood(problem: Problem, data: DataSpec) -> None:
    """Refuse losses without a likelihood's curvature, and targets without bounds."""
    loss = problem.loss
    low, high = data.target_range(loss.target.bounds)
    smooth = loss.link is not None and math.isfinite(
        loss.without_offset.smoothness_on(1.0, low, high)
    )
    if data.n_outputs > 1 or not (loss.convex and smooth) or isinstance(loss, Squared):
        raise ValueError(
            "loss must be convex and smooth with a link and one output, and not squared, for the "
            f"solver NewtonRaphson, got {loss!r} with {data.n_outputs} outputs"
        )
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(
            "target_low and target_high must be finite for the solver NewtonRaphson, got "
            f"{low!r} and {high!r}"
        )


def has_likelihood(problem: Problem, data: DataSpec) -> bool:
    """Whether ``check_likelihood`` accepts the problem."""
    try:
        check_likelihood(problem, data)
    except ValueError:
        return False
    return True


def constant_model(loss: Loss, mean: float, low: float, high: float) -> tuple[float, float]:
    """Return the score that predicts a mean, and the expected curvature there."""
    link = present(loss.link)
    binary = loss.target is Target.BINARY
    wanted = 0.5 + 0.5 * mean if binary else mean

    def excess(z: float) -> float:
        return float(link.inverse(np.array([z]))[0]) - wanted

    ends = -_FARTHEST_SCORE, _FARTHEST_SCORE
    values = [excess(end) for end in ends]
    if values[0] >= 0.0:
        score = ends[0]
    elif values[1] <= 0.0:
        score = ends[1]
    else:
        score = float(brentq(excess, *ends))
    z = np.full(2, score)
    if not binary:
        return score, max(float(loss.curvature(z, np.full(2, mean))[0]), _LEAST_BEND)
    bends = loss.curvature(z, np.array([-1.0, 1.0]))
    return score, max(float(bends @ np.array([1.0 - wanted, wanted])), _LEAST_BEND)


def stabilized(matrix: Floats, noise: float, v: Floats, level: Floats) -> Floats:
    """Shrink a noisy Hessian towards its form for elliptical rows, and make it positive definite.

    The same for second moments of scores.

    For elliptical rows the Hessian at v is in the span of the identity and the products of v and of
    the intercept's direction ``level``. The rest is shrunk by the positive-part James-Stein factor;
    ``noise`` is the standard deviation on the diagonal, which every packed entry has.
    """
    size = len(matrix)
    shapes = [np.eye(size), np.outer(v, v), np.outer(level, level)]
    shapes.append(np.outer(v, level) + np.outer(level, v))
    values, span = pack_symmetric(matrix), np.column_stack([pack_symmetric(a) for a in shapes])
    if not (np.isfinite(values).all() and np.isfinite(span).all()):
        return np.full(matrix.shape, np.nan)
    left, lengths, _ = np.linalg.svd(span / np.linalg.norm(span, axis=0).clip(1e-300), False)
    left = left[:, lengths > LEAST * lengths[0]]
    regular = left @ (left.T @ values)
    rest = values - regular
    expected = noise * noise * (len(values) - left.shape[1])
    kept = max(0.0, 1.0 - expected / max(float(rest @ rest), 1e-300))
    typical = max(float(np.trace(matrix)) / size, noise / math.sqrt(size))
    least = max(kept * noise * math.sqrt(size), LEAST * typical)
    return _raised(unpack_symmetric(regular + kept * rest, size), least)


def at_least(matrix: Floats, least: Floats) -> Floats:
    """Raise the curvature of a matrix to at least that of another, in every direction.

    If it falls much on the way of a step, it grows on the way back.
    """
    values, directions = eigen(least)
    lengths = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    root, inverse = directions * lengths, (directions / lengths).T
    raised = _raised(inverse @ matrix @ inverse.T, 1.0)
    return root @ raised @ root.T


def _raised(matrix: Floats, least: float) -> Floats:
    """Raise the eigenvalues of a symmetric matrix to at least this."""
    values, directions = eigen(matrix)
    return (directions * np.maximum(values, least)) @ directions.T


# Averages of a loss over normal scores.

# Numbers of nodes and cells of quadratures, the cells' end in deviations, and the bound on scores.
_NODES, _CELLS, _END, _FARTHEST = 40, 4096, 8.0, 30.0
# Chosen by ``python -m experiments.newton_raphson``.
USUAL_ERROR = 0.2
"""Guess of the root-mean-square residual of real targets, relative to the largest."""
# Guess of the mean of targets above 0 other than counts, relative to the largest; and the clipping
# threshold of targets if no count of them is significant.
_USUAL_PROBABILITY = 0.1


@final
@dataclass(frozen=True)
class NormalScores:
    """Scores of rows, taken as normal, for a ``w`` that predicts targets rightly.

    ``mean`` and ``spread`` are their mean and standard deviation.
    """

    mean: float
    spread: float

    @classmethod
    def expected(cls, loss: Loss, data: DataSpec) -> NormalScores:
        """Return the expected scores before a row is seen: a standard deviation of 1.

        About the prediction zero if that is neutral; about one count, or a tenth of the largest
        target, if targets are at least 0.
        """
        if loss.link is None or is_neutral(loss, data):
            return cls(0.0, 1.0)
        return cls(expected_constant(loss, data)[0], 1.0)

    @classmethod
    def of(cls, basis: Basis, w: Floats) -> NormalScores:
        """Return the scores of a parameter with one output, in a basis in which rows look alike."""
        v, level = basis.inverse @ w, basis.inverse[:, -1]
        mean = float(level @ v / (level @ level)) * float(np.linalg.norm(level))
        return cls(mean, math.sqrt(max(float(v @ v) - mean * mean, 0.0)))

    def clipped(self, loss: Loss, data: DataSpec, reach: float) -> tuple[float, float]:
        """Return mean curvature and squared slope of a loss with slopes clipped at ``reach``.

        Both logistic slopes of a row are scaled by the same factor, as ``BalancedClipping`` does.
        """
        error = USUAL_ERROR * slope_unit(loss, data)
        bends, squares = self._means(loss, data, error, np.array([reach]))
        return float(bends[0, 0]), float(squares[0])

    def curvature(self, loss: Loss, data: DataSpec, reaches: Floats) -> Floats:
        """Return the mean of a loss's curvature times 1, t and t^2, t the standardised score.

        Curvature is zero where slopes are clipped at each of ``reaches``: shape (3, n_reaches).
        That of the logistic loss is scaled as slopes are, since the expected slope is zero.
        Residuals of real targets are taken to be as large as predictions differ.
        """
        error = min(self.spread, USUAL_ERROR * slope_unit(loss, data))
        return self._means(loss, data, error, reaches)[0]

    def _means(
        self, loss: Loss, data: DataSpec, error: float, reaches: Floats
    ) -> tuple[Floats, Floats]:
        """Return mean curvature as ``curvature`` does, and mean squares of clipped slopes.

        A cell counts as far as slopes, linear in it, are not clipped. Residuals of real targets
        have the deviation ``error``, independent of t: they are the scores of a target of 0.
        """
        t = np.linspace(-_END, _END, _CELLS + 1)
        shares, one = np.diff(special.ndtr(t)), np.ones_like(t)
        powers = shares * np.stack([one[1:], _middle(t), _middle(t) ** 2])
        z = np.clip(self.mean + self.spread * t, -_FARTHEST, _FARTHEST)
        means = z if loss.link is None else loss.link.inverse(z)
        sides: tuple[Any, ...] = ((np.clip(means, *data.target_range(loss.target.bounds)), one),)
        if isinstance(loss, Squared):
            powers, z, sides = np.outer([1.0, 0.0, 1.0], shares), error * t, ((0.0 * t, one),)
        elif loss.target is Target.BINARY and loss.link is not None:
            sides = (one, np.clip(means, 0.0, 1.0)), (-one, np.clip(1.0 - means, 0.0, 1.0))
        bends, squares = np.zeros((len(powers), len(reaches))), np.zeros(len(reaches))
        largest = np.max([np.abs(loss.slope(z, y)) for y, _ in sides], axis=0)
        factors = np.minimum(reaches[:, np.newaxis] / np.maximum(largest, SMALLEST), 1.0)
        for y, probability in sides:
            slopes = np.abs(loss.slope(z, y))
            if isinstance(loss.without_offset, Logistic):
                bends += powers @ _middle(factors * probability * loss.curvature(z, y)).T
                squares += _middle(probability * (factors * slopes) ** 2) @ shares
                continue
            low, high = np.minimum(slopes[1:], slopes[:-1]), np.maximum(slopes[1:], slopes[:-1])
            within = (reaches[:, np.newaxis] - low + SMALLEST) / (high - low + SMALLEST)
            bend = _middle(probability * loss.curvature(z, y))
            bends += powers @ (bend * np.clip(within, 0.0, 1.0)).T
            cut = np.minimum(slopes, reaches[:, np.newaxis])
            squares += _middle(probability * cut**2) @ shares
        return bends, squares


def _middle(ends: Floats) -> Floats:
    return 0.5 * (ends[..., 1:] + ends[..., :-1])


@functools.cache
def normal_nodes() -> tuple[Floats, Floats]:
    """Return nodes and shares of a quadrature over the standard normal distribution."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, shares / shares.sum()


def expected_constant(loss: Loss, data: DataSpec) -> tuple[float, float]:
    """Return score and curvature of the expected constant model, for targets of at least 0.

    That of one count, or of a tenth of the largest target.
    """
    low, high = data.target_range(loss.target.bounds)
    one = loss.dispersion if loss.target is Target.COUNT else None
    mean = min(max(_USUAL_PROBABILITY * high if one is None else one, low), high)
    return constant_model(loss, mean, low, high)


# The start of Newton steps, with the units of slopes, curvature and weights.

# A large slope, in released standard deviations, and the largest ratio of curvature to that at the
# start. Chosen by ``python -m experiments.newton_raphson``.
_LARGE_SLOPE, _GROWTH = 4.0, 2.0


@final
@dataclass(frozen=True, eq=False)
class Start:
    """A model to start from, and to shrink towards; public or released."""

    w: Floats
    slope: float  # A large slope; the unit of gradients.
    curvature: float  # Factor on second moments of rows of weight 1.


def target_releases(
    problem: Problem, data: DataSpec, adjacency: Adjacency
) -> dict[str, Callable[[GaussianNoise], SumRelease]]:
    """Return the makers of the releases about targets: their sizes, mean, and squared slopes."""
    has_offset, facts = problem.loss.offset_bound > 0.0, (data, adjacency)
    return {
        "sizes": lambda noise: target_size_sum(has_offset=has_offset).release(*facts, noise),
        "targets": functools.partial(target_mean_sum(has_offset=has_offset).release, *facts),
        "slopes": functools.partial(SQUARED_SLOPES.release, *facts),
    }


def declare(
    makers: Mapping[str, Callable[[GaussianNoise], SumRelease]],
    noises: Mapping[str, float],
    required: frozenset[str],
) -> dict[str, SumRelease]:
    """Declare the releases that have a noise multiplier, in the order of their makers."""
    if not required <= noises.keys() <= makers.keys():
        raise ValueError(
            f"noises must have the keys {sorted(required)}, and others of {list(makers)}, got "
            f"{list(noises)}"
        )
    return {
        name: make(GaussianNoise(noises[name])) for name, make in makers.items() if name in noises
    }


def noises_of(
    shares: Mapping[str, float], counts: Mapping[str, int], scale: float
) -> tuple[tuple[str, float], ...]:
    """Return the noise multiplier of each release, ``scale`` that of one with the whole budget.

    ``shares`` of mu squared, up to a factor, are those of all ``counts`` of a release together.
    """
    total = sum(shares.values())
    return tuple(
        (name, scale * math.sqrt(counts.get(name, 1) * total / share))
        for name, share in shares.items()
    )


def known_weight(
    found: float, noise: float, data: DataSpec, adjacency: Adjacency
) -> tuple[float, float]:
    """Return the sum of weights and its noise; the sum without weights unless noise excludes it."""
    nominal = data.n_rows * min(1.0, data.weight_bound)
    if abs(found - nominal) > FAR * noise:
        return found, noise
    return nominal, 0.0 if adjacency.n_is_public else noise


def needs_mean(loss: Loss, data: DataSpec) -> bool:
    """Whether targets of at least 0 have a mean that is the neutral model.

    >>> from dpglm.problem import Logistic, Poisson
    >>> counts = DataSpec(100, 2, intercept=1.0, target_low=0.0, target_high=1.0)
    >>> needs_mean(Poisson(), counts), needs_mean(Logistic(), DataSpec(100, 2, intercept=1.0))
    (True, False)
    """
    low, high = data.target_range(loss.target.bounds)
    is_size = loss.link is not None and low >= 0.0 and 0.0 < high < math.inf
    is_size = is_size and not isinstance(loss, Squared)
    return is_size and data.intercept > 0.0 and not is_neutral(loss, data)


def needs_scale(loss: Loss, data: DataSpec) -> bool:
    """Whether the spread of real targets is to be released, as the unit of errors.

    >>> from dpglm.problem import Huber
    >>> numbers = DataSpec(100, 2, intercept=1.0, target_low=-1.0, target_high=1.0)
    >>> needs_scale(Squared(), numbers), needs_scale(Huber(), numbers)
    (True, False)
    """
    ends = data.target_range(loss.target.bounds)
    is_finite = all(map(math.isfinite, ends)) and ends != (0.0, 0.0)
    return isinstance(loss, Squared) and is_finite and data.intercept > 0.0


def means_of_sizes(
    oracle: Oracle, releases: Mapping[str, SumRelease], loss: Loss
) -> tuple[float, float, float, float]:
    """Release means of targets, for any declared bounds.

    Returns the mean, that without offsets, the sum of weights, and the clipping threshold of
    targets: the upper end of the largest size with a significant count, as the noise of larger
    thresholds would exceed the effect of the few targets beyond.
    """
    low, high = oracle.rows.spec.target_range(loss.target.bounds)
    high, sizes = max(high, -low), releases["sizes"]
    usual = min(loss.dispersion or _USUAL_PROBABILITY * high, high)
    tops = []
    for counts in noisy_target_sizes(oracle, sizes, high):
        sure = np.flatnonzero(counts > FAR * sizes.noise_std)
        tops.append(max(high * 2.0 ** -float(sure[0]) if sure.size else usual, low))
    low = max(low, -tops[0])
    mean, without_offset, weight = noisy_target_means(oracle, releases["targets"], low, *tops)
    return mean, without_offset, weight, tops[0]


def measured_constant(
    oracle: Oracle, releases: Mapping[str, SumRelease], loss: Loss, most: float
) -> tuple[float, float, float, float | None]:
    """Release the constant model: its score, curvature, weight and mean squared slope, if planned.

    Slopes are clipped at ``most`` times their standard deviation without excess; if the dispersion
    is unknown, at most at the slope of the largest target.
    """
    low, high = oracle.rows.spec.target_range(loss.target.bounds)
    if "sizes" in releases:
        mean, without_offset, weight, top = means_of_sizes(oracle, releases, loss)
    else:
        means = noisy_target_means(oracle, releases["targets"], low, high)
        mean, without_offset, weight, top = *means, high
    # Slopes and curvature are at means that include the offsets.
    _, bend = constant_model(loss, mean, low, high)
    score, _ = constant_model(loss, without_offset, low, high)
    if "slopes" not in releases:
        return score, bend, weight, None
    far = most * math.sqrt(bend * (loss.dispersion or 1.0))
    if loss.dispersion is None:
        ends = np.array([-top if loss.target is Target.REAL else 0.0, top])
        slopes = np.abs(loss.without_offset.slope(np.full(2, score), ends))
        far = min(far, float(slopes.max()))
    square = noisy_squared_slope(oracle, releases["slopes"], score, far, weight)
    return score, bend, weight, square


def at_private_mean(oracle: Oracle, releases: Mapping[str, SumRelease], problem: Problem) -> Start:
    """Release the mean of the targets and the spread of slopes; start at that constant model."""
    loss, data = problem.loss, oracle.rows.spec
    score, bend, _, found = measured_constant(oracle, releases, loss, FAR)
    square = present(found)
    w = np.zeros(data.coefficient_shape)
    w[-1] = score / data.intercept
    w = feasible(problem, n_penalized(problem, data), w, 0.0)
    if isinstance(loss, Squared):
        # As if declared bounds were typical for such a spread.
        unit = min(math.sqrt(square) / USUAL_ERROR, slope_unit(loss, data))
        return Start(w, unit, curvature(loss, data))
    return _at_mean(w, square, bend, loss)


def expected_mean(w: Floats, loss: Loss, data: DataSpec, noise_of_square: float) -> Start:
    """Return the expected ``at_private_mean``, at ``w``, before a row is seen.

    ``noise_of_square`` is that of the released mean of squares, in units of their bound.
    """
    _, bend = expected_constant(loss, data)
    square = bend * (loss.dispersion or 1.0) * (1.0 + FAR**2 * min(noise_of_square, 1.0))
    return _at_mean(w, square, bend, loss)


def _at_mean(w: Floats, square: float, bend: float, loss: Loss) -> Start:
    """Measure slopes by their mean square, and curvature by that of a constant model."""
    # A known dispersion is one count, which exceeds small means by far.
    return Start(w, _LARGE_SLOPE * math.sqrt(square) + (loss.dispersion or 0.0), _GROWTH * bend)


def mean_weight(moments: Floats, noise_std: float, data: DataSpec) -> float:
    """Bound the mean weight of the rows, from second moments of rows scaled to one length.

    Their trace is the sum of the weights. Too small a weight would make steps too long, so it is
    the largest that the noise allows, up to the declared bound. If the trace is below the noise, as
    when all rows are erased, it is that bound: noise must not be divided by noise.
    """
    noise, total = FAR * noise_std * math.sqrt(len(moments)), float(np.trace(moments))
    if total <= noise:
        return data.weight_bound
    return min((total + noise) / data.n_rows, data.weight_bound)
