"""Privacy losses on a grid, tilted and Fourier transformed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import rfft

from dpglm.privacy.events.losses import Array, LossLaw

__all__ = ["UNIT_ROUNDOFF", "Lattice", "dot", "on_lattice", "tilt", "transform"]

UNIT_ROUNDOFF = 2.0**-53
# Laws of fewer points are transformed term by term.
_FEW = 32
_LARGEST_LOSS = 690.0  # exp of it is still a float


@dataclass(frozen=True)
class Lattice:
    """A privacy loss on the grid: ``exp(log_probs[k])`` is the mass at ``losses[k]``.

    The losses are ``points`` times ``width``. If ``has_nothing`` is true, the first is 0 and
    stands for everything that is accounted for elsewhere.
    """

    width: float
    points: NDArray[np.int64]
    losses: Array
    log_probs: Array
    infinite: float
    count: int
    drift: float
    has_nothing: bool


def on_lattice(law: LossLaw, count: int, width: float, even_cells: int) -> Lattice:
    """Move a law to multiples of the width, each cell keeping its mass under P and under Q."""
    # A law that lies beyond the largest loss still gets one cell; its mass counts as infinite.
    low = min(max(law.low, -_LARGEST_LOSS), _LARGEST_LOSS)
    points = _grid_points(low, max(low, min(law.high, _LARGEST_LOSS)), width, even_cells)
    losses = width * points.astype(np.float64)
    tail_p, tail_q = law.tails(losses)
    mass_p = np.maximum(tail_p[:-1] - tail_p[1:], 0.0)
    mass_q = np.maximum(tail_q[:-1] - tail_q[1:], 0.0)
    gaps = np.diff(losses)
    # Mass sent to the upper end of each cell so that both totals, P's and Q's, are kept.
    upper = (mass_p - mass_q * np.exp(losses[:-1])) / -np.expm1(-gaps)
    upper = np.clip(upper, 0.0, mass_p)
    # Rounding of the tails may send mass to the wrong end: so far do losses move on average.
    rounding = law.roundings * UNIT_ROUNDOFF * (tail_p[:-1] + law.hidden)
    drift = float(np.sum(np.minimum(rounding, mass_p * gaps)))
    probs = np.zeros(losses.size)
    probs[1:] += upper
    probs[:-1] += mass_p - upper
    has_nothing = law.nothing > 0.0
    if has_nothing:
        points, losses = np.append(0, points), np.append(0.0, losses)
        probs = np.append(law.nothing, probs)
    else:
        probs[0] += max(0.0, 1.0 - float(tail_p[0]))
    with np.errstate(divide="ignore"):
        logs = np.log(probs)
    return Lattice(
        width, points, losses, logs, float(tail_p[-1]), count, drift * count, has_nothing
    )


def tilt(lattice: Lattice, theta: float) -> tuple[Array, float]:
    """Probabilities times ``exp(theta losses)``, normalised, and the log of their total."""
    exponents = theta * lattice.losses
    exponents += lattice.log_probs
    peak = float(exponents.max())
    exponents -= peak
    weights = np.exp(exponents, out=exponents)
    total = float(weights.sum())
    weights /= total
    return weights, peak + math.log(total)


def transform(
    points: NDArray[np.int64], weights: Array, size: int, frequencies: NDArray[np.int64]
) -> NDArray[np.complex128]:
    """Return some frequencies of the Fourier transform of weights at points of a circle."""
    points = points % size
    if points.size <= _FEW and points.size * frequencies.size <= size:
        angles = (-2.0 * math.pi / size) * (np.outer(frequencies, points) % size)
        return np.asarray(np.exp(1j * angles) @ weights)
    return np.asarray(rfft(np.bincount(points, weights, minlength=size))[frequencies])


def dot(a: Array, b: Array) -> float:
    """Sum of products; threads of linear algebra cost more here than the product itself."""
    return float(np.sum(a * b))


def _grid_points(low: float, high: float, width: float, even_cells: int) -> NDArray[np.int64]:
    """Multiples of the width around an interval: every one near zero and at the ends."""
    first = math.floor(low / width)
    last = max(math.ceil(high / width), first + 1)
    farthest = max(abs(first), abs(last), even_cells)
    powers = np.arange(math.log(farthest / even_cells) / math.log1p(1.0 / even_cells) + 1.0)
    growing = np.floor(even_cells * (1.0 + 1.0 / even_cells) ** powers).astype(np.int64)
    outward = np.concatenate((np.arange(even_cells), growing))
    points = np.concatenate((-outward, outward, (first, first + 1, last - 1, last)))
    return np.unique(points[(points >= first) & (points <= last)])
