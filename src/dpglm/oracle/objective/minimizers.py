"""Minimisers of strongly convex objectives, with certified distances to the exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpglm.oracle.objective.objectives import Accuracy, Objective

__all__ = ["CertificateError", "attainable", "certified_minimizer", "certify"]

Vector = NDArray[np.float64]

_NEWTON_COLUMNS = 400
_NEWTON_STEPS, _QUASI_NEWTON_STEPS, _MEMORY, _HALVINGS = 60, 1000, 12, 40
_LEAST_ACCELERATED, _MOST_ACCELERATED = 400, 40_000


class CertificateError(RuntimeError):
    """No point could be certified to be near the minimiser; nothing was released."""


@final
@dataclass(frozen=True, eq=False)
class Certified:
    """A point and a bound on its L2 distance to the exact minimiser. Private."""

    w: Vector
    distance: float


def attainable(accuracy: Accuracy, strength: float, norm: float) -> float:
    """Tolerance that ``certified_minimizer`` always reaches.

    ``norm`` bounds every point at which the objective is no larger than at zero. Write rho for the
    gradient's error, e for the prox's, both within twice that norm, M for the smoothness and m for
    the strong convexity. A proximal gradient step s of size 1/M with a gradient that errs by e
    lowers the objective by at least ``M |s|^2 / 2 - e |s|``. While ``M |s| >= 4 rho'``, with
    ``rho' = rho + M e``, that is at least ``M |s|^2 / 4``, and the new excess is at most ``(2.25 M
    |s|)^2 / (2 m)``: the excess falls by the factor ``1 / (1 + m / (10.2 M))``. So the loop ends,
    and its certificate is then at most ``(8 rho' + rho + 3 M e) / m``.
    """
    rho = accuracy.gradient(2.0 * norm) + accuracy.smoothness * accuracy.prox(2.0 * norm)
    return 12.0 * rho / strength


def certify(objective: Objective, w: Vector, gradient: Vector) -> Certified:
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
) -> Vector:
    """Find a point within ``tolerance`` of the exact minimiser. Private.

    ``norm`` bounds every point at which the objective is no larger than at zero. With a finite
    ``radius`` all terms are smooth, ``norm`` is that radius, and beyond it the tolerance is
    ``tolerance |w| / radius``: Lemma 5 of ``docs/proofs/objective-perturbation.md``. For
    tolerances that are at least ``attainable``, ``CertificateError`` would tell of a bug and not
    of the rows.

    Damped Newton steps (one output, few columns), limited-memory quasi-Newton steps (other smooth
    objectives) or accelerated proximal gradient steps come first, as they are fast. Plain proximal
    gradient steps follow where these did not reach the tolerance, from the nearest point so far:
    they do, see ``attainable``.

    Privacy: nothing is released here. The running time depends on the rows.
    """
    zero = np.zeros(objective.rows.spec.coefficient_shape)
    nearest = Certified(zero, math.inf)
    # A search that overflows finds nothing; the next one starts from the nearest point so far.
    with np.errstate(all="ignore"):
        for search in (_quick(objective), _plain_steps):
            start = nearest.w if nearest.distance <= norm else zero
            for found in search(objective, start):
                if found.distance < nearest.distance:
                    nearest = found
                far = max(1.0, float(np.linalg.norm(nearest.w)) / radius)
                if nearest.distance <= tolerance * far:
                    return nearest.w
    raise CertificateError(
        "no minimiser was certified within the tolerance that the plan promised; nothing was "
        "released"
    )


_Search = Callable[[Objective, Vector], Iterator[Certified]]


def _quick(objective: Objective) -> _Search:
    if objective.terms.prox is not None:
        return _accelerated_steps
    spec = objective.rows.spec
    small = spec.n_outputs == 1 and spec.n_columns <= _NEWTON_COLUMNS
    return _newton_steps if small else _quasi_newton_steps


def _newton_steps(objective: Objective, start: Vector) -> Iterator[Certified]:
    w, g = start, objective.gradient(start)
    for _ in range(_NEWTON_STEPS):
        yield certify(objective, w, g)
        try:
            factor = cho_factor(objective.hessian(w), check_finite=False)
        except np.linalg.LinAlgError:
            return
        w, g = _along(objective, w, g, -cho_solve(factor, g, check_finite=False))


def _quasi_newton_steps(objective: Objective, start: Vector) -> Iterator[Certified]:
    """Limited-memory BFGS (Nocedal and Wright 2006, Algorithm 7.4)."""
    w, g = start, objective.gradient(start)
    pairs: list[tuple[Vector, Vector, float]] = []
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


def _along(objective: Objective, w: Vector, g: Vector, direction: Vector) -> tuple[Vector, Vector]:
    """Halve a step until the objective no longer rises steeply at its end."""
    steepness = abs(float(np.vdot(g, direction)))
    for _ in range(_HALVINGS):
        new_w = w + direction
        new_g = objective.gradient(new_w)
        if np.vdot(new_g, direction) <= 0.5 * steepness:
            return new_w, new_g
        direction, steepness = 0.5 * direction, 0.5 * steepness
    return w, g


def _accelerated_steps(objective: Objective, start: Vector) -> Iterator[Certified]:
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


def _plain_steps(objective: Objective, start: Vector) -> Iterator[Certified]:
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
