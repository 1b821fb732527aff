"""Likelihoods as Newton steps see them: who has one, its constant model, and its noisy Hessian."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import pack_symmetric, unpack_symmetric
from dpglm.oracle.targets import noisy_squared_slope, noisy_target_means, noisy_target_sizes
from dpglm.privacy.releases import SumRelease
from dpglm.problem import Problem, Squared, Unconstrained
from dpglm.problem.loss import Loss, Target
from dpglm.solvers.parts.algebra import eigen, solved
from dpglm.solvers.parts.defaults import curvature, feasible, is_neutral, n_penalized, slope_unit
from dpglm.solvers.second_order.preconditioner import Basis

# Minimising a released quadratic plus penalty over a constraint: post-processing.

_MOST_STEPS, _TOLERANCE = 20_000, 1e-10


def minimize_quadratic(
    matrix: NDArray[np.float64] | float,
    vector: NDArray[np.float64],
    basis: Basis,
    problem: Problem,
    penalized: int,
    center: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise ``<v, A v> / 2 - <b, v>`` plus the penalty of ``w = center + basis v``; return w.

    A number in place of the matrix A stands for as many times the identity, and is faster.
    Exact where the penalty is quadratic and the constraint does not bind; else by accelerated
    proximal gradient steps with restarts. Post-processing of released values.

    O'Donoghue and Candès, "Adaptive restart for accelerated gradient schemes", Foundations of
    Computational Mathematics 15 (2015), section 3.2.
    """
    strength = problem.regularizer.strong_convexity
    acted_on = basis.vectors[:penalized]
    target = vector - strength * acted_on.T @ center[:penalized]
    if isinstance(matrix, float):
        v = _solved_along(basis.spectrum(penalized), matrix, strength, target)
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
    """Whether penalty and constraint leave the minimiser of a quadratic a linear function of it."""
    penalty = problem.regularizer
    unconstrained = problem.constraint == Unconstrained()
    return penalty.smoothness == penalty.strong_convexity and unconstrained


def _solved_along(
    spectrum: tuple[NDArray[np.float64], NDArray[np.float64]],
    multiple: float,
    strength: float,
    vector: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve ``(multiple I + strength P) v = vector``, given eigenvalues and eigenvectors of P."""
    values, directions = spectrum
    along: NDArray[np.float64] = (directions.T @ vector).T / (multiple + strength * values)
    return np.asarray(directions @ along.T)


_FARTHEST_SCORE, _LEAST_BEND, _LEAST_SHARE = 30.0, 1e-12, 1e-3


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


def constant_model(loss: Loss, mean: float, low: float, high: float) -> tuple[float, float]:
    """Return the score that predicts a mean, and the expected curvature there."""
    link = loss.link
    assert link is not None
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


def steadied(
    matrix: NDArray[np.float64], noise: float, v: NDArray[np.float64], level: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shrink a noisy Hessian towards what it is for elliptical rows; make it positive definite.

    The same for second moments of scores.

    With rows that have one shape in every direction, the Hessian at v is in the span of the
    identity and the products of v and of the intercept's direction ``level``. What is off that
    span keeps the share that the positive-part James-Stein estimator keeps; ``noise`` is the
    standard deviation on the diagonal, which every packed entry has.
    """
    size = len(matrix)
    shapes = [np.eye(size), np.outer(v, v), np.outer(level, level)]
    shapes.append(np.outer(v, level) + np.outer(level, v))
    values, span = pack_symmetric(matrix), np.column_stack([pack_symmetric(a) for a in shapes])
    if not (np.isfinite(values).all() and np.isfinite(span).all()):
        return np.full(matrix.shape, np.nan)
    left, lengths, _ = np.linalg.svd(span / np.linalg.norm(span, axis=0).clip(1e-300), False)
    left = left[:, lengths > _LEAST_SHARE * lengths[0]]
    regular = left @ (left.T @ values)
    rest = values - regular
    expected = noise**2 * (len(values) - left.shape[1])
    kept = max(0.0, 1.0 - expected / max(float(rest @ rest), 1e-300))
    typical = max(float(np.trace(matrix)) / size, noise / math.sqrt(size))
    least = max(kept * noise * math.sqrt(size), _LEAST_SHARE * typical)
    return _raised(unpack_symmetric(regular + kept * rest, size), least)


def at_least(matrix: NDArray[np.float64], least: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise the curvature of a matrix to at least that of another, in every direction.

    Where it has fallen by much on the way of a step, it is larger on the way back.
    """
    values, directions = eigen(least)
    lengths = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    root, inverse = directions * lengths, (directions / lengths).T
    raised = _raised(inverse @ matrix @ inverse.T, 1.0)
    found: NDArray[np.float64] = root @ raised @ root.T
    return found


def _raised(matrix: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Raise the eigenvalues of a symmetric matrix to at least this."""
    values, directions = eigen(matrix)
    raised: NDArray[np.float64] = (directions * np.maximum(values, least)) @ directions.T
    return raised


# What a loss is like at scores that are about normal, as far as released values tell.

# Of the quadrature over scores, and where scores are cut off in it.
_NODES, _FEW, _MANY, _FARTHEST = 40, 20, 80, 30.0
USUAL_ERROR = 0.2
"""Root mean square of what is left of numbers, in units of the largest: a rough guess."""
# Mean of targets that are no counts and above 0, likewise.
_USUAL_PROBABILITY = 0.1


@final
@dataclass(frozen=True)
class NormalScores:
    """Scores of rows, taken as normal; ``w`` predicts targets rightly.

    Parameters
    ----------
    mean, spread : float
        Mean and standard deviation.
    """

    mean: float
    spread: float

    @classmethod
    def expected(cls, loss: Loss, data: DataSpec) -> NormalScores:
        """Return what is expected of scores before a row is seen: a standard deviation of 1.

        About the prediction zero where that is neutral, about one count, or a tenth of the largest
        target, where targets are at least 0.
        """
        if loss.link is None or is_neutral(loss, data):
            return cls(0.0, 1.0)
        return cls(expected_constant(loss, data)[0], 1.0)

    @classmethod
    def of(cls, basis: Basis, w: NDArray[np.float64]) -> NormalScores:
        """Return those of a parameter with one output, in a basis in which rows look alike."""
        v, level = basis.inverse @ w, basis.inverse[:, -1]
        mean = float(level @ v / (level @ level)) * float(np.linalg.norm(level))
        return cls(mean, math.sqrt(max(float(v @ v) - mean**2, 0.0)))

    def clipped(self, loss: Loss, data: DataSpec, reach: float) -> tuple[float, float]:
        """Return the mean curvature of a loss whose slopes are cut at ``reach``, and squared slope.

        What predictions leave of numbers is unknown, and taken as normal.
        """
        errors = USUAL_ERROR * slope_unit(loss, data), _FEW
        nodes = self._at_nodes(loss, data, *errors)
        bend = float(_curvature(loss, nodes, np.array([reach]))[0, 0])
        squares = (
            nodes.shares @ (probability * np.minimum(np.abs(loss.slope(nodes.z, y)), reach) ** 2)
            for y, probability in nodes.sides
        )
        return bend, float(sum(squares))

    def curvature(
        self, loss: Loss, data: DataSpec, reaches: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the mean of a loss's curvature times 1, t and t^2, t the standardised score.

        Slopes are cut at each of ``reaches``, and curvature is zero where they are: shape (3,
        n_reaches). What predictions leave of numbers is taken to be as large as they differ.
        """
        error = min(self.spread, USUAL_ERROR * slope_unit(loss, data))
        return _curvature(loss, self._at_nodes(loss, data, error, _MANY), reaches)

    def _at_nodes(self, loss: Loss, data: DataSpec, error: float, count: int) -> _Nodes:
        """Return the quadrature; ``error`` is the deviation of what is left of numbers."""
        t, shares = normal_nodes()
        z = np.clip(self.mean + self.spread * t, -_FARTHEST, _FARTHEST)
        if loss.target is Target.BINARY and loss.link is not None:
            up = np.asarray(np.clip(loss.link.inverse(z), 0.0, 1.0))
            one: NDArray[np.float64] = np.ones_like(z)
            return _Nodes(t, shares, z, ((one, up), (-one, np.asarray(1.0 - up))))
        means = z if loss.link is None else loss.link.inverse(z)
        means = np.clip(means, *data.target_range(loss.target.bounds))
        errors = [(0.0, 1.0)]
        if isinstance(loss, Squared):
            errors = [(error * one, share) for one, share in zip(*normal_nodes(count), strict=True)]
        sides = ((np.asarray(means + one), np.full_like(z, share)) for one, share in errors)
        return _Nodes(t, shares, z, tuple(sides))


def expected_constant(loss: Loss, data: DataSpec) -> tuple[float, float]:
    """Return score and curvature of a constant, where targets are at least 0, before one is seen.

    That of one count, or of a tenth of the largest target.
    """
    low, high = data.target_range(loss.target.bounds)
    one = loss.dispersion if loss.target is Target.COUNT else None
    mean = min(max(_USUAL_PROBABILITY * high if one is None else one, low), high)
    return constant_model(loss, mean, low, high)


@final
@dataclass(frozen=True, eq=False)
class _Nodes:
    """A quadrature: standardised scores, their shares, scores, and targets with probabilities."""

    t: NDArray[np.float64]
    shares: NDArray[np.float64]
    z: NDArray[np.float64]
    sides: tuple[tuple[NDArray[Any], NDArray[Any]], ...]


def _curvature(loss: Loss, nodes: _Nodes, reaches: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = nodes.shares * np.stack([np.ones_like(nodes.t), nodes.t, nodes.t**2])
    total = np.zeros((3, len(reaches)))
    for y, probability in nodes.sides:
        kept = np.abs(loss.slope(nodes.z, y)) <= reaches[:, np.newaxis]
        total += powers @ (probability * loss.curvature(nodes.z, y) * kept).T
    return total


@functools.cache
def normal_nodes(count: int = _NODES) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and shares of a quadrature over the standard normal distribution."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(count)
    return nodes, shares / shares.sum()


# Where Newton's steps start, and by what they measure slopes, curvature and weights there.

# Standard deviations of noise beyond which targets of a size are there: by chance in one fit of
# five hundred. Where there are none of any size, where they are clipped: a part of the upper bound.
_SURE_OF_SIZE, _USUAL_SIZE = 4.0, 1.0 / 32.0
# Where slopes are cut to find their standard deviation, and which count as large, in units of what
# it is without excess, and of what is found.
_FAR_SLOPE, _LARGE_SLOPE = 6.0, 4.0
# By what curvature, which is that of the mean itself, may exceed what it is at the start.
_GROWTH = 2.0
# Standard deviations by which noise may make weights look smaller than they are.
_SURE = 3.0


@final
@dataclass(frozen=True, eq=False)
class Start:
    """A model to start from, and to shrink to; all of it public or released."""

    w: NDArray[np.float64]
    slope: float  # One that counts as large; the unit of gradients.
    curvature: float  # What second moments of rows of weight 1 are multiplied by.


def needs_mean(loss: Loss, data: DataSpec) -> bool:
    """Whether targets, of at least 0, have a mean that is the neutral model.

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
    """Whether targets are numbers whose spread is to be released, as errors have their unit.

    >>> from dpglm.problem import Huber
    >>> numbers = DataSpec(100, 2, intercept=1.0, target_low=-1.0, target_high=1.0)
    >>> needs_scale(Squared(), numbers), needs_scale(Huber(), numbers)
    (True, False)
    """
    ends = data.target_range(loss.target.bounds)
    is_finite = all(map(math.isfinite, ends)) and ends != (0.0, 0.0)
    return isinstance(loss, Squared) and is_finite and data.intercept > 0.0


def means_of_sizes(
    oracle: Oracle, sizes: SumRelease, targets: SumRelease, loss: Loss
) -> tuple[float, float, float, float]:
    """Release means of targets, whatever their declared bounds are.

    Returns the mean, that without offsets, the sum of weights, and where targets were clipped. That
    is the upper end of the largest size that surely has targets: those beyond are too few for the
    noise that their mean would have. Declared by ``target_size_release``, ``target_mean_release``.
    """
    data = oracle.rows.spec
    low, high = data.target_range(loss.target.bounds)
    high = max(high, -low)
    usual = min(loss.dispersion or _USUAL_SIZE * high, high)
    tops = []
    for counts in noisy_target_sizes(oracle, sizes, high):
        sure = np.flatnonzero(counts > _SURE_OF_SIZE * sizes.noise_std)
        tops.append(max(high * 2.0 ** -float(sure[0]) if sure.size else usual, low))
    low = max(low, -tops[0])
    mean, without_offset, weight = noisy_target_means(oracle, targets, low, *tops)
    return mean, without_offset, weight, tops[0]


def at_private_mean(
    oracle: Oracle,
    sizes: SumRelease,
    targets: SumRelease,
    squared_slopes: SumRelease,
    problem: Problem,
) -> Start:
    """Release about the mean of the targets and the spread of slopes; start at that constant."""
    loss, data = problem.loss, oracle.rows.spec
    low, high = data.target_range(loss.target.bounds)
    mean, without_offset, weight, top = means_of_sizes(oracle, sizes, targets, loss)
    _, bend = constant_model(loss, mean, low, high)
    score, _ = constant_model(loss, without_offset, low, high)
    far = farthest_slope(loss, _FAR_SLOPE, score, bend, top)
    square = noisy_squared_slope(oracle, squared_slopes, score, far, weight)
    w = np.zeros(data.coefficient_shape)
    w[-1] = score / data.intercept
    w = feasible(problem, n_penalized(problem, data), w, 0.0)
    if isinstance(loss, Squared):
        # As if bounds had been declared that are as far apart as usual for such a spread.
        unit = min(math.sqrt(square) / USUAL_ERROR, slope_unit(loss, data))
        return Start(w, unit, curvature(loss, data))
    return _at_mean(w, square, bend, loss)


def farthest_slope(loss: Loss, most: float, score: float, bend: float, top: float) -> float:
    """Return where slopes of a constant model are cut, to find their spread.

    ``most`` times their standard deviation without excess; where the dispersion is not known, at
    the slope of the largest target if that is less.
    """
    usual = most * math.sqrt(bend * (loss.dispersion or 1.0))
    if loss.dispersion is not None:
        return usual
    ends = np.array([-top if loss.target is Target.REAL else 0.0, top])
    slopes = np.abs(loss.without_offset.slope(np.full(2, score), ends))
    return min(usual, float(slopes.max()))


def expected_mean(
    w: NDArray[np.float64], loss: Loss, data: DataSpec, noise_of_square: float
) -> Start:
    """Return what ``at_private_mean`` is expected to find, at ``w``, before a row is seen.

    ``noise_of_square`` is that of the released mean of squares, in units of their bound.
    """
    _, bend = expected_constant(loss, data)
    square = bend * (loss.dispersion or 1.0) * (1.0 + _FAR_SLOPE**2 * min(noise_of_square, 1.0))
    return _at_mean(w, square, bend, loss)


def _at_mean(w: NDArray[np.float64], square: float, bend: float, loss: Loss) -> Start:
    """Measure slopes by their mean square, and curvature by what it is at a constant model."""
    # Where the dispersion is known it is one count, by which small means are far exceeded.
    return Start(w, _LARGE_SLOPE * math.sqrt(square) + (loss.dispersion or 0.0), _GROWTH * bend)


def mean_weight(moments: NDArray[np.float64], noise_std: float, data: DataSpec) -> float:
    """Bound the mean weight of the rows, from second moments of rows scaled to one length.

    Their trace is the sum of the weights. Too small a weight would make steps too long, so it is
    as large as noise lets it be, and at most the declared bound. Where noise does not tell it from
    0, it is that bound: of rows that are all erased gradients are noise, which must not be divided
    by noise.
    """
    noise, total = _SURE * noise_std * math.sqrt(len(moments)), float(np.trace(moments))
    if total <= noise:
        return data.weight_bound
    return min((total + noise) / data.n_rows, data.weight_bound)
