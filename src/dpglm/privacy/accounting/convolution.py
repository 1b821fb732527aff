"""Privacy losses on a grid, tilted and Fourier transformed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from dpglm.exceptions import TooCostlyError
from dpglm.privacy.events.base import Array, LossLaw, Tails

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
    return float(np.add.reduce(a * b))


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


# Splitting a privacy loss that is rarely large into a bounded one and several that are mostly 0.

# Bounds on large losses, their ratio, and probabilities that are neglected.
_RARE, _RATIO, _NEVER = 1e-3, 64.0, 1e-40
_ROUNDING, _RAISED = 3e-3, 1e-4
_POINTS = 600
_FINEST = 0.1


def split(
    law: LossLaw, count: int, width: float, fraction: float, own: float, rest: float
) -> list[tuple[LossLaw, float]]:
    """Split a law by the size of its losses, if the grid is too wide for the small ones.

    ``width`` is that of the grid for everything together; ``fraction`` is the width over the
    standard deviation of a loss that suits a grid; ``own`` is the part of the variance of one loss
    that usual losses certainly contribute; ``rest`` is the variance that other mechanisms add,
    divided by the count. Returns the law itself with that width, or laws whose composition
    dominates it, each with a suitable width.

    Privacy: let S be the outcomes of (P, Q) with a loss of at most t. The outcome determines
    whether it is in S. Let R be the pair in which all of S is a single outcome, of loss ``s =
    log(P(S) / Q(S))``. A draw from R, followed for S by a draw from the conditional laws, is
    equivalent to (P, Q). An additional draw from the conditional laws outside S can only reveal
    more: so ``R`` composed with ``(P(. | S), Q(. | S))`` dominates (P, Q), and so do their
    compositions (Zhu, Dong and Wang, AISTATS 2022, Theorem 10). A conditional loss is the loss
    minus s. Adding s to it and subtracting s from R changes no sum: R then has loss 0 on S, and its
    loss minus s elsewhere. R is split at a larger t in the same way. The cost is a share ``P(not
    S)`` of the variance of small losses.

    Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic
    function", AISTATS 2022, Theorem 10.
    """
    if law.high <= 0.0 or 0.25 * width**2 <= 2.0 * fraction**2 * own:
        return [(law, width)]
    losses, masses = _histogram(law, 1.0)
    below, masses_below = _histogram(law, -1.0)
    squares = masses * losses**2
    # Rounding of tails near 1 must not count for much: beyond, losses lower the sum anyway.
    square_below = float(np.sum(masses_below * np.minimum(below, 100.0 * law.high) ** 2))
    least = min(-law.low, law.high)
    start = int(np.argmax((law.tails(losses)[0] <= _RARE) & (losses >= 0.999 * least)))
    # Raise very low losses with a total probability of at most 1e-4: conditionally on one of them,
    # delta is smaller, so delta grows by at most this factor.
    lower = np.cumsum(masses_below[::-1])[::-1] <= max(_RAISED / count, 1e-14)
    low = max(law.low, -float(below[int(np.argmax(lower))])) if lower.any() else law.low
    high, moved = float(losses[start]), 0.0
    small = square_below + float(np.sum(squares[: start + 1]))
    rounding = float(np.sum(masses * np.minimum(losses * width, 0.25 * width**2)))
    if rounding <= max(2.0 * fraction**2, _ROUNDING) * (small + rest):
        return [(law, width)]
    found = [(_part(law, low, high, moved, 0.0), fraction * math.sqrt(small))]
    while high < law.high:
        p, q = (float(one[0]) for one in law.tails(np.array([high])))
        moved = math.log1p(max(p - q, 0.0) / (1.0 - p))
        low, high = high, min(_RATIO * high, law.high)
        if count * float(law.tails(np.array([high]))[0][0]) < _NEVER:
            high = law.high
        inside = (losses > low) & (losses <= high)
        mass, square = (float(np.sum(each[inside])) for each in (masses, squares))
        size = math.sqrt(square / mass) if mass > 0.0 else low
        # Cells are small compared with a single loss, or with the largest of a sum of many.
        often = min(_FINEST * math.sqrt(count * mass), 1.0)
        fine = fraction * max(_FINEST * low, often * size)
        found.append((_part(law, low, high, moved, 1.0 - p), fine))
    return found


def _part(law: LossLaw, low: float, high: float, moved: float, smaller: float) -> LossLaw:
    """Keep the losses between two, given that none is larger; smaller ones are 0."""
    p_high, q_high = (float(one[0]) for one in law.tails(np.array([high])))
    last = high >= law.high
    if last:
        p_high = q_high = 0.0
    left = 1.0 - p_high

    def tails(t: Array) -> Tails:
        p, q = law.tails(np.maximum(t - moved, low) if smaller else t)
        if not last:
            above = t - moved >= high
            p, q = np.where(above, p_high, p), np.where(above, q_high, q)
        return (p - p_high) / left, (q - q_high) * (math.exp(-moved) / left)

    return LossLaw(
        tails,
        low=low + moved,
        high=high + moved,
        roundings=law.roundings + 2,
        nothing=smaller / left,
        hidden=p_high / left,
    )


def _histogram(law: LossLaw, side: float) -> tuple[Array, Array]:
    """List sizes of losses of one sign, and the mass between each and the one before."""
    farthest = law.high if side > 0.0 else max(-law.low, 1e-300)
    losses = np.append(0.0, np.geomspace(1e-14 * farthest, farthest, _POINTS))
    tail = law.tails(side * losses)[0]
    return losses, np.append(0.0, np.abs(np.diff(tail)))


# Sums of tilted privacy losses on grids of several widths.

LOG_WINDOW_MASS = math.log(1e-17)
"""Logarithm of the mass outside a window."""
_LOG_NOTHING = -100.0
# Error of each FFT level, in units of roundoff.
_PER_LEVEL = 8.0
# Largest number of grid points, at about 100 bytes each.
_MOST_POINTS, _MOST_WORK = 4_000_000, 20_000_000
# Only if this much is left where nothing rare happens is that kept on its own grid.
_USUAL = 1e-3
_Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class LossPart:
    """A measure on evenly spaced, increasing losses, with error bounds.

    ``error`` bounds the Euclidean norm of the errors of all n masses times ``sqrt(n)``, and hence
    their sum; ``beyond`` bounds the mass outside the grid. ``inherited`` bounds the sum of errors
    that come from rare losses; above any loss these are at most ``relative`` times the mass above
    that loss less ``blur``.
    """

    losses: Array
    masses: Array
    error: float
    beyond: float
    inherited: float = 0.0
    relative: float = 0.0
    blur: float = 0.0

    def times(self, factor: float) -> LossPart:
        """Multiply the measure by a number."""
        return dataclasses.replace(
            self,
            masses=factor * self.masses,
            error=factor * self.error,
            beyond=factor * self.beyond,
            inherited=factor * self.inherited,
        )

    def error_above(self, loss: float) -> float:
        """Bound the error of the mass above a loss."""
        if self.losses[-1] <= loss:
            return self.beyond
        first, blurred = np.searchsorted(self.losses, (loss, loss - self.blur), side="right")
        mass = float(np.sum(self.masses[blurred:])) + self.error + self.inherited + self.beyond
        error = self.error * math.sqrt(1.0 - first / self.losses.size)
        return self.beyond + error + min(self.inherited, self.relative * mass)


@final
@dataclass(frozen=True)
class Mixture:
    """Law of a sum of tilted losses, as measures on grids of several widths that add up to it.

    Masses are those of the law times ``exp(theta loss)``, normalised.
    """

    theta: float
    parts: tuple[LossPart, ...]

    @classmethod
    def nothing(cls, theta: float) -> Self:
        """No loss at all."""
        return cls(theta, (LossPart(np.zeros(1), np.ones(1), 0.0, 0.0),))

    def plus(self, lattices: Sequence[Lattice], window: tuple[float, float]) -> Self:
        """Add losses on a grid of one width, wider than those so far.

        Their sum leaves the window with a mass of at most ``exp(LOG_WINDOW_MASS)`` on each side.
        Raises TooCostlyError if the grid would be too large.

        Privacy: where none of the rare losses happens, the sum so far stays as it is. Otherwise
        it is moved to the wider grid, each loss to the ends of its cell so that the mass under
        P and Q is kept: delta can only grow. All bounds on errors are proved in
        ``docs/proofs/rounding-of-convolutions.md``.
        """
        width = lattices[0].width
        first = math.floor((self._low() + window[0]) / width)
        last = math.ceil((self._high() + window[1]) / width) + 1
        points = last - first
        if points > _MOST_POINTS or points * len(lattices) > _MOST_WORK:
            raise TooCostlyError(
                f"privacy losses of {len(lattices)} kinds on a grid of {points:.3g} points are too "
                f"costly to convolve: at most {_MOST_POINTS:.3g} points, {_MOST_WORK:.3g} together"
            )
        size = next_fast_len(last - first + 1, real=True)
        # For few points the sum is term by term, with an error of 128 units of roundoff.
        stage = _PER_LEVEL * UNIT_ROUNDOFF * max(math.log2(size) + 2.0, 16.0)
        rare = _Rare.of(lattices, self.theta, size, stage)
        before, mass = self._moved(width, size)
        if not math.isfinite(mass):
            # Out of the range of floats: delta is 1.
            return type(self)(self.theta, (LossPart(np.zeros(1), np.zeros(1), 0.0, math.inf),))
        spectrum = before[rare.kept] * rare.spectrum
        error = mass * (rare.error + 2.0 * stage * _norm(rare.bound))
        error += mass * size * math.exp(_LOG_NOTHING)
        before_error = math.fsum(one.error + one.inherited for one in self.parts)
        grown = before_error * math.exp(min(self.theta * width, 700.0))
        # Moving never makes tilted mass less.
        least_mass = math.fsum(float(np.sum(one.masses)) for one in self.parts) - before_error
        beyond = math.fsum(one.beyond for one in self.parts) * rare.mass
        beyond += 2.0 * mass * math.exp(LOG_WINDOW_MASS)
        full = np.zeros(size // 2 + 1, dtype=np.complex128)
        full[rare.kept] = spectrum
        masses = np.maximum(np.roll(irfft(full, size), -((first - rare.shift) % size)), 0.0)
        losses = width * (first + np.arange(size, dtype=np.float64))
        as_before = tuple(one.times(rare.usual) for one in self.parts if rare.usual > 0.0)
        found = LossPart(
            losses,
            masses,
            error,
            beyond,
            inherited=grown * rare.mass,
            relative=grown / max(least_mass, 1e-300),
            blur=self._high() - self._low() + 2.0 * width,
        )
        return type(self)(self.theta, (*as_before, found))

    def _low(self) -> float:
        return min(float(one.losses[0]) for one in self.parts)

    def _high(self) -> float:
        return max(float(one.losses[-1]) for one in self.parts)

    def _moved(self, width: float, size: int) -> tuple[_Complex, float]:
        """Fourier transform of the sum so far, on a wider grid, and its mass or 1."""
        moved = np.zeros(size)
        for one in self.parts:
            cells = np.floor(one.losses / width)
            gaps = one.losses - width * cells
            share = np.clip(np.expm1(-gaps) / math.expm1(-width), 0.0, 1.0)
            down = one.masses * (1.0 - share) * np.exp(-self.theta * gaps)
            # Zero mass, and mass on the wider grid, does not move.
            moves = (share > 0.0) & (one.masses > 0.0)
            # By halves, as neither product may underflow before it grows.
            with np.errstate(over="ignore"):
                half = np.exp(np.where(moves, 0.5 * self.theta * (width - gaps), 0.0))
                up = (one.masses * half) * (share * half)
            index = cells.astype(np.int64)
            moved += np.bincount(index % size, down, minlength=size)
            moved += np.bincount((index + 1) % size, up, minlength=size)
        # Tilted masses may add up to more than 1 where losses are moved apart.
        total = float(moved.sum())
        # NaN stays NaN, so that the result is unknown.
        mass = 1.0 if total < 1.0 else total
        return np.asarray(rfft(moved if math.isfinite(mass) else np.zeros(size))), mass


@final
@dataclass(frozen=True)
class _Rare:
    """Fourier transform of a sum of tilted losses, without the part in which all of them are 0.

    ``kept`` are the frequencies with content, ``bound`` bounds the modulus, ``error`` the norm of
    the errors, ``mass`` the mass, and ``usual`` the omitted mass. Losses are those at the circle's
    points plus ``shift``.
    """

    kept: NDArray[np.int64]
    spectrum: _Complex
    bound: Array
    error: float
    mass: float
    usual: float
    shift: int

    @classmethod
    def of(cls, lattices: Sequence[Lattice], theta: float, size: int, stage: float) -> Self:
        weights = [tilt(one, theta)[0] for one in lattices]
        usual = 0.0
        if all(one.has_nothing for one in lattices):
            usual = math.exp(
                sum(
                    one.count * math.log(max(float(own[0]), 1e-300))
                    for one, own in zip(lattices, weights, strict=True)
                )
            )
        if usual > _USUAL:
            return cls._beside_nothing(lattices, weights, size, stage, usual)
        kept = np.arange(size // 2 + 1)
        product = np.ones(kept.size, dtype=np.complex128)
        log_bound, relative = np.zeros(kept.size), np.zeros(kept.size)
        shift = 0
        for one, own in zip(lattices, weights, strict=True):
            single = transform(one.points - one.points[0], own, size, kept)
            # Each entry is off by at most `stage`; so is a power, by the mean value theorem.
            modulus = np.minimum(np.abs(single) + stage, 1.0)
            log_bound += one.count * np.log(modulus)
            relative += one.count * (stage / modulus + 8.0 * UNIT_ROUNDOFF)
            # Most of the spectrum is soon left with nothing; powers are taken of the rest.
            some = log_bound > _LOG_NOTHING
            kept, log_bound, relative = kept[some], log_bound[some], relative[some]
            product = product[some] * single[some] ** one.count
            shift += one.count * int(one.points[0])
        bound = np.exp(log_bound)
        return cls(kept, product, bound, _norm(bound * relative), 1.0, 0.0, shift)

    @classmethod
    def _beside_nothing(
        cls,
        lattices: Sequence[Lattice],
        weights: Sequence[Array],
        size: int,
        stage: float,
        usual: float,
    ) -> Self:
        """Compute the product of ``(z + g)^count`` minus that of all ``z^count``."""
        kept = np.arange(size // 2 + 1)
        exponent = np.zeros(kept.size, dtype=np.complex128)
        error, most = np.zeros(kept.size), 0.0
        together = 0.0
        for one, own in zip(lattices, weights, strict=True):
            z, mass = float(own[0]), float(np.sum(own[1:]))
            ratio = transform(one.points[1:], own[1:], size, kept) / z
            exponent += one.count * _log1p(ratio)
            near = np.maximum(np.abs(1.0 + ratio), 1e-300)
            error += one.count * (stage * mass / z + 8.0 * UNIT_ROUNDOFF * np.abs(ratio)) / near
            least = float(near.min())
            together += one.count * (stage + 8.0 * UNIT_ROUNDOFF) * _norm(np.abs(ratio)) / least
            most += one.count * math.log1p(mass / z)
        # Each factor has modulus at most 1; the exponential is convex.
        steepest = float(np.exp(np.minimum(error, 1.0)).max())
        together = together * steepest if float(error.max()) <= 1.0 else math.inf
        error = error * np.exp(np.minimum(error, 1.0))
        spectrum: _Complex = np.asarray(usual * np.expm1(exponent), dtype=np.complex128)
        rare = min(1.0, usual * math.expm1(min(most, 50.0)))
        whole = min(float(np.max(usual * np.exp(exponent.real))), 1.0)
        error = whole * error + 8.0 * UNIT_ROUNDOFF * np.abs(spectrum)
        norm = whole * together + 8.0 * UNIT_ROUNDOFF * _norm(np.abs(spectrum))
        bound = np.abs(spectrum) + error
        return cls(kept, spectrum, bound, min(norm, _norm(error)), rare, usual, 0)


def _norm(half: Array) -> float:
    """Bound the Euclidean norm of a spectrum, given half of it."""
    return math.sqrt(2.0 * float(np.sum(half**2)))


def _log1p(z: _Complex) -> _Complex:
    """``log(1 + z)`` with all digits where z is small."""
    real = 0.5 * np.log1p(np.maximum(2.0 * z.real + z.real**2 + z.imag**2, -1.0 + 1e-300))
    return np.asarray(real + 1j * np.arctan2(z.imag, 1.0 + z.real))
