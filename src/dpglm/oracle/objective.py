"""Strongly convex objectives over private rows, and bounds on their floating-point errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import Array
from dpglm.data.memory import BLOCK_ROWS, SPARSE_BLOCK_ROWS
from dpglm.data.rows import DataSpec, Rows
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import UNIT, target_size
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise.additive import SecretNoise
from dpglm.privacy.releases import Bounded, Curator, Release, SumMechanism, SumRelease
from dpglm.problem import L2Ball
from dpglm.problem.loss import Loss

Prox = Callable[[Array, float], Array]
"""``prox(w, step)`` of a penalty and a set, relative to a sum over rows."""


@final
@dataclass(frozen=True)
class Accuracy:
    """Bounds on floating-point errors that grow with the norm of the parameter.

    ``n_rows`` (times each row's share), ``block_rows``, ``clip`` (a row's gradient norm),
    ``curvature`` (of a row's clipped loss, row norm included), ``ridge``, ``linear_norm`` and
    ``offset`` (of a row's score) are upper bounds. ``strength`` is the strong convexity of the
    whole objective; a step is no longer than its inverse, even where only the non-smooth penalty
    provides it.

    With u the unit roundoff, each dot product of at most d + 1 terms errs by ``2 (d + 10) u |x|
    |w|`` in L2 norm over the outputs (Higham 2002, section 3.1; a maximum that softmax subtracts
    and a scaled intercept included), which the curvature turns into an error of the gradient; the
    loss's own sums with constants, targets and offsets count like it. A slope then errs by
    ``(64 + 4 K) u`` times the clipped slope plus the target, or 1. Sums within a block and over
    blocks are as in ``oracle.rounding``.
    """

    data: DataSpec
    n_rows: float
    block_rows: int
    clip: float
    curvature: float
    ridge: float
    linear_norm: float
    strength: float = 0.0
    offset: float = 0.0

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the smooth part's gradient, or more: at least ``strength``."""
        own = self.n_rows * self.data.weight_bound * self.curvature + self.ridge
        return max(own, self.strength)

    def gradient(self, norm: float) -> float:
        """Bound the error of the smooth part's gradient at a parameter of this L2 norm."""
        data, total = self.data, self.n_rows * self.data.weight_bound
        target = target_size(data)
        slope = self.clip + data.augmented_row_norm * target
        within = 2 * (self.block_rows + 8) * self.clip
        argument = norm + (1.0 + target + self.offset) / data.augmented_row_norm
        row = self.curvature * 2 * (data.n_columns + 10) * argument
        row += (64 + 4 * data.n_outputs) * slope + within
        rest = 9 * (self.ridge * norm + self.linear_norm + total * self.clip)
        return UNIT * (total * row + rest)

    def prox(self, norm: float) -> float:
        """Bound the error of a prox step, a projection included, that starts at this norm."""
        return 4 * (self.data.n_coefficients + 16) * UNIT * norm


def block_rows(n_rows: int) -> int:
    """Bound the size of a block among ``n_rows`` rows."""
    return min(max(BLOCK_ROWS, SPARSE_BLOCK_ROWS), n_rows)


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """Public terms of an objective, next to the sum of the rows' losses.

    ``ridge`` holds the coefficient of ``w_j^2 / 2``, above 0, for each row of the parameter;
    ``linear``, of the parameter's shape, is private where it is noise; ``prox`` stands for a
    non-smooth penalty and a constraint, of strong convexity ``prox_strength`` in all coefficients.
    """

    ridge: Array
    linear: Array
    prox: Prox | None = None
    prox_strength: float = 0.0

    @property
    def strength(self) -> float:
        """Strong convexity in all coefficients."""
        return float(self.ridge.min()) + self.prox_strength


@final
class Objective:
    """The sum of clipped convex losses, a quadratic, a linear and a proximal term. Private.

    Rows are in float64. Beyond the clip bound a row's loss goes on along its tangent; with more
    than one output the clipping must never bind, because clipped gradients of several outputs need
    not have a potential (Song et al. 2021, Theorem 5.3). ``curvature`` bounds that of any row's
    clipped loss, row norm included; ``share``, in (0, 1], multiplies each row's loss.
    """

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        clipping: FlatClipping,
        curvature: float,
        terms: Terms,
        share: float = 1.0,
    ) -> None:
        self.rows, self.loss, self.clipping, self.terms = rows, loss, clipping, terms
        self._share = share
        self.accuracy = Accuracy(
            data=rows.spec,
            n_rows=rows.n_rows * share,
            block_rows=block_rows(rows.n_rows),
            clip=clipping.bound,
            curvature=curvature,
            ridge=float(terms.ridge.max()),
            linear_norm=float(np.linalg.norm(terms.linear)) * (1.0 + 1e-9),
            strength=terms.strength,
            offset=loss.offset_bound,
        )

    def gradient(self, w: Array) -> Array:
        """Gradient of the smooth part, up to ``accuracy.gradient(|w|)``."""
        g = clipped_gradient_sum(self.rows, self.loss, self.clipping, w)
        return self._share * g + _columns(self.terms.ridge, w) * w + self.terms.linear

    def prox(self, w: Array, step: float) -> Array:
        """Prox of the terms that are not smooth, up to ``accuracy.prox``."""
        return w if self.terms.prox is None else self.terms.prox(w, step)


def _columns(ridge: Array, w: Array) -> Array:
    return ridge if w.ndim == 1 else ridge[:, np.newaxis]


# Minimisers of strongly convex objectives, with certified distances to the exact ones.

_QUASI_NEWTON_STEPS, _MEMORY, _HALVINGS = 1000, 12, 40
_LEAST_ACCELERATED, _MOST_ACCELERATED = 400, 40_000


@final
@dataclass(frozen=True, eq=False)
class Certified:
    """A point and a bound on its L2 distance to the exact minimiser. Private."""

    w: Array
    distance: float


def attainable(accuracy: Accuracy, strength: float, norm: float) -> float:
    """Tolerance that ``certified_minimizer`` always reaches.

    ``norm`` bounds every point where the objective is at most its value at zero. Write rho for the
    gradient's error, e for the prox's, both within twice that norm, M for the smoothness and m for
    the strong convexity. A proximal gradient step s of size 1/M with a gradient that errs by e
    lowers the objective by at least ``M |s|^2 / 2 - e |s|``. While ``M |s| >= 4 rho'``, with
    ``rho' = rho + M e``, that is at least ``M |s|^2 / 4``, and the new excess is at most ``(2.25 M
    |s|)^2 / (2 m)``: the excess falls by the factor ``1 / (1 + m / (10.2 M))``. So the loop ends,
    and its certificate is then at most ``(8 rho' + rho + 3 M e) / m``.
    """
    rho = accuracy.gradient(2.0 * norm) + accuracy.smoothness * accuracy.prox(2.0 * norm)
    return 12.0 * rho / strength


def certify(objective: Objective, w: Array, gradient: Array) -> Certified:
    """Take a proximal gradient step and bound its distance to the minimiser.

    Let ``w+`` be the exact prox step of size 1/M with the computed gradient g, and ``G = M (w -
    w+)``. Optimality of the prox says ``G = g + v`` for a subgradient v of the other terms at
    ``w+``. So the objective has the subgradient ``G + (grad(w+) - grad(w)) + (grad(w) - g)`` at
    ``w+``, of norm at most ``2 |G| + rho``, and m-strong convexity bounds the distance by that
    over m (Nesterov 2004, Theorem 2.1.10). The computed prox may be off by e, which enters ``|G|``
    and the result.
    """
    accuracy, strength = objective.accuracy, objective.terms.strength
    smoothness = accuracy.smoothness
    moved = w - gradient / smoothness
    point = objective.prox(moved, 1.0 / smoothness)
    norm = float(np.linalg.norm(w)) * (1.0 + 1e-9)
    error = accuracy.prox(norm + float(np.linalg.norm(moved)))
    step = float(np.linalg.norm(w - point)) * (1.0 + 1e-9) + error
    subgradient = 2.0 * smoothness * step + accuracy.gradient(norm)
    return Certified(point, subgradient / strength * (1.0 + 1e-9) + error)


def certified_minimizer(
    objective: Objective, tolerance: float, norm: float, radius: float = math.inf
) -> Array:
    """Find a point within ``tolerance`` of the exact minimiser. Private.

    ``norm`` bounds every point where the objective is at most its value at zero. With a finite
    ``radius`` all terms are smooth, ``norm`` is that radius, and beyond it the tolerance is
    ``tolerance |w| / radius``: Lemma 5 of ``docs/proofs/objective-perturbation.md``. For
    tolerances that are at least ``attainable``, ``RuntimeError`` would tell of a bug and not
    of the rows.

    Limited-memory quasi-Newton steps (smooth objectives) or accelerated proximal gradient steps
    come first, as they are fast. Plain proximal gradient steps follow where these did not reach the
    tolerance, from the nearest point so far: they do, see ``attainable``.

    Privacy: nothing is released here. The running time depends on the rows.
    """
    zero = np.zeros(objective.rows.spec.coefficient_shape)
    nearest = Certified(zero, math.inf)
    # A search that overflows finds nothing; the next one starts from the nearest point so far.
    with np.errstate(all="ignore"):
        for search in (_quick_steps, _plain_steps):
            start = nearest.w if nearest.distance <= norm else zero
            for found in search(objective, start):
                if found.distance < nearest.distance:
                    nearest = found
                far = max(1.0, float(np.linalg.norm(nearest.w)) / radius)
                if nearest.distance <= tolerance * far:
                    return nearest.w
    raise RuntimeError(
        "no minimiser was certified within the tolerance that the plan promised; nothing was "
        "released"
    )


def _quick_steps(objective: Objective, start: Array) -> Iterator[Certified]:
    smooth = objective.terms.prox is None
    return (_quasi_newton_steps if smooth else _accelerated_steps)(objective, start)


def _quasi_newton_steps(objective: Objective, start: Array) -> Iterator[Certified]:
    """Limited-memory BFGS (Nocedal and Wright 2006, Algorithm 7.4)."""
    w, g = start, objective.gradient(start)
    pairs: list[tuple[Array, Array, float]] = []
    for _ in range(_QUASI_NEWTON_STEPS):
        yield certify(objective, w, g)
        direction, coefficients = -g, []
        for s, y, product in reversed(pairs):
            coefficients.append(np.vdot(s, direction) / product)
            direction = direction - coefficients[-1] * y
        if pairs:
            direction = direction * (pairs[-1][2] / np.vdot(pairs[-1][1], pairs[-1][1]))
        else:
            direction = direction / objective.accuracy.smoothness
        for (s, y, product), coefficient in zip(pairs, reversed(coefficients), strict=True):
            direction = direction + (coefficient - np.vdot(y, direction) / product) * s
        new_w, new_g = _along(objective, w, g, direction)
        product = float(np.vdot(new_w - w, new_g - g))
        # Strong convexity makes it positive, rounding near the minimiser need not.
        if product > 0.0:
            pairs = [*pairs[-_MEMORY + 1 :], (new_w - w, new_g - g, product)]
        w, g = new_w, new_g


def _along(objective: Objective, w: Array, g: Array, direction: Array) -> tuple[Array, Array]:
    """Halve a step until the objective no longer rises steeply at its end."""
    steepness = abs(float(np.vdot(g, direction)))
    for _ in range(_HALVINGS):
        new_w = w + direction
        new_g = objective.gradient(new_w)
        if np.vdot(new_g, direction) <= 0.5 * steepness:
            return new_w, new_g
        direction, steepness = 0.5 * direction, 0.5 * steepness
    return w, g


def _accelerated_steps(objective: Objective, start: Array) -> Iterator[Certified]:
    """Beck and Teboulle's method, restarted (O'Donoghue and Candès 2015, gradient scheme)."""
    previous, y, t = start, start, 1.0
    smoothness = objective.accuracy.smoothness
    rounds = math.ceil(40.0 * math.sqrt(smoothness / objective.terms.strength))
    for _ in range(min(_LEAST_ACCELERATED + rounds, _MOST_ACCELERATED)):
        found = certify(objective, y, objective.gradient(y))
        yield found
        if np.vdot(y - found.w, found.w - previous) > 0.0:
            t = 1.0
        next_t = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        y = found.w + (t - 1.0) / next_t * (found.w - previous)
        previous, t = found.w, next_t


def _plain_steps(objective: Objective, start: Array) -> Iterator[Certified]:
    accuracy, w = objective.accuracy, start
    condition = accuracy.smoothness / objective.terms.strength
    # The excess can fall by no more than this factor before it is below that of a step of 4 rho.
    first = certify(objective, w, objective.gradient(w))
    least = accuracy.gradient(0.0) / objective.terms.strength
    factor = condition * (1.0 + first.distance / least)
    for _ in range(math.ceil(11.2 * condition * 2.0 * math.log(2.0 + factor))):
        found = certify(objective, w, objective.gradient(w))
        yield found
        w = found.w


# The release of certified minimisers.


def minimizer_release(
    quantity: str,
    adjacency: Adjacency,
    mechanism: SumMechanism,
    *,
    bound: float,
    coordinates: int,
    norm: float,
) -> SumRelease:
    """Declare the release that ``noisy_minimizer`` makes.

    ``bound`` limits how far erasing one row moves the computed minimisers, all columns together,
    twice their tolerance included.
    """
    # Twice the error of the projection.
    rounding = 8 * (coordinates + 16) * UNIT * norm
    return Release(
        quantity, mechanism, adjacency, bound, coordinates, rounding=rounding, magnitude=2.0 * norm
    )


LinearRelease = Release[tuple[int, ...], SecretNoise]
"""The release of a random linear term of a shape."""


def noisy_linear_term(curator: Curator, declared: LinearRelease, shape: tuple[int, ...]) -> Array:
    """Release the random linear term of objective perturbation, which no row enters."""
    return curator.release(declared, Bounded(shape, declared.contribution_bound)).value


def noisy_minimizer(
    curator: Curator,
    declared: SumRelease,
    objectives: list[Objective],
    *,
    tolerance: float,
    bound: float,
    norm: float,
    every_linear_term: bool = False,
) -> Array:
    """Release the projected minimisers of one objective, or of one for each class.

    Each computed minimiser is within ``tolerance`` of the exact one. All columns together are
    projected onto the public ball of radius ``norm``, which contains all exact minimisers (the
    root of their number times the bound for each), so that the projection moves computed ones no
    further apart. ``RuntimeError`` means that a certificate failed and nothing was released.

    With ``every_linear_term`` the terms are smooth, the tolerance holds whatever the linear terms
    are, and the ball need not contain the minimisers: each is projected onto its own ball of
    radius ``r = norm / sqrt(number)`` and certified to ``tolerance max(1, |w| / (2 r))``, since
    beyond ``2 r`` projecting shrinks distances by ``2 r / |w|`` or more. Lemma 5 of
    ``docs/proofs/objective-perturbation.md`` gives the tolerances for which the certificate always
    holds.

    Privacy: ``declared.event``.
    """
    each = norm / math.sqrt(len(objectives))
    if every_linear_term:
        own, far = L2Ball(each), 2.0 * each
        found = [own.project(certified_minimizer(one, tolerance, far, far)) for one in objectives]
    else:
        found = [certified_minimizer(one, tolerance, each) for one in objectives]
    w = found[0] if len(found) == 1 else np.column_stack(found)
    if not every_linear_term:
        w = L2Ball(norm).project(w)
    return curator.release(declared, Bounded(w.astype(np.float64, copy=False), bound))
