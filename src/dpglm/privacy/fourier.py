"""An independent numerical accountant: tilted privacy losses, convolved by FFT."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq, minimize_scalar

from dpglm.privacy.accountant import Accountant, own_version
from dpglm.privacy.events import Event, RandomlyRepeated
from dpglm.privacy.loss_laws import Array, LossLaw, gaussian_law
from dpglm.privacy.reduction import (
    Pieces,
    Profile,
    implied_delta,
    implied_epsilon,
    reduce_event,
)
from dpglm.privacy.unit import Adjacency

__all__ = ["FourierAccountant"]

_UNIT_ROUNDOFF = 2.0**-53
_LOG_WINDOW_MASS = math.log(1e-17)
_LOG_NOTHING = -100.0
_SHARP = 1e-6
# Laws of fewer points are transformed term by term.
_FEW = 32
_LARGEST_LOSS = 690.0  # exp of it is still a float


@final
@dataclass(frozen=True)
class FourierAccountant(Accountant):
    """Numerical accounting without dp-accounting, accurate at very small deltas too.

    Parameters
    ----------
    cell_fraction : float, default=0.02
        Width of the grid of privacy losses over their standard deviation in one mechanism, or,
        below 100 mechanisms, over a tenth of that of their sum. A coarser grid is faster; its
        bounds hold too, but are larger.
    most_cells : int, default=100_000
        The grid is made coarser until one mechanism's losses fit into about so many cells.
    even_cells : int, default=800
        So many cells on each side of zero have the grid's width; further out they grow with the
        loss.

    Notes
    -----
    Privacy: the privacy loss of each mechanism is moved to a grid so that each cell keeps
    its mass under both distributions, which can only raise delta, whatever the cells; far from
    zero they grow with the loss. Losses above the grid count as infinite. The
    distributions are multiplied by ``exp(theta loss)`` and renormalised before they are
    convolved, with theta the saddle point at the epsilon in question: the rounding error of the
    FFT, bounded and added to delta, is then relative to delta instead of absolute, so delta of
    1e-18 is as good as 1e-5. A single mechanism is not convolved at all. Both orders of the
    neighbouring data sets are computed and the larger delta is returned.

    References
    ----------
    Koskela, Jalko and Honkela, "Computing tight differential privacy guarantees using FFT",
    AISTATS 2020. Doroshenko et al., "Connect the dots", PETS 2022, Algorithm 1. Alghamdi et
    al., "The saddle-point method in differential privacy", ICML 2023 (the tilt).
    """

    cell_fraction: float = 0.02
    most_cells: int = 100_000
    even_cells: int = 800

    @property
    def name(self) -> str:
        return "fourier"

    @property
    def version(self) -> str:
        return f"{own_version()}, numpy {importlib.metadata.version('numpy')}"

    def _knows(self, basic: Event) -> bool:
        return not isinstance(basic, RandomlyRepeated)

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        pieces = reduce_event(event, adjacency)
        return implied_delta(pieces, lambda: self._profile(pieces), epsilon)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        pieces = reduce_event(event, adjacency)
        return implied_epsilon(pieces, lambda: self._profile(pieces), delta)

    def _profile(self, pieces: Pieces) -> _FourierProfile:
        # Sums of few losses have few cells, and room for smaller ones.
        fraction = self.cell_fraction * min(1.0, 0.1 * math.sqrt(pieces.count))
        width = pieces.cell(fraction, self.most_cells)
        return _FourierProfile(
            [_Direction(one, width) for one in _orders(pieces, width, self.even_cells)]
        )


@dataclass(frozen=True)
class _Lattice:
    """A privacy loss on the grid: ``exp(log_probs[k])`` is the mass at ``losses[k]``.

    The losses are ``points`` times the width of the grid.
    """

    points: NDArray[np.int64]
    losses: Array
    log_probs: Array
    infinite: float
    count: int
    roundings: int


@final
class _FourierProfile(Profile):
    def __init__(self, directions: list[_Direction]) -> None:
        self._directions = directions

    def delta(self, epsilon: float) -> float:
        return max((one.delta(epsilon) for one in self._directions), default=0.0)

    def epsilon(self, delta: float) -> float:
        return max((one.epsilon(delta) for one in self._directions), default=0.0)


@final
class _Direction:
    """Composition of the mechanisms for one order of the two data sets."""

    def __init__(self, lattices: tuple[_Lattice, ...], width: float) -> None:
        self._width = width
        # The widest laws first: they leave the least of the spectrum to the others.
        self._lattices = sorted(lattices, key=lambda one: -one.losses.size)
        self._count = sum(one.count for one in lattices)
        # Rounding in differences of tails moves some of the mass of each cell to its other end.
        self._drift = sum(
            one.roundings * _UNIT_ROUNDOFF * one.losses.size * one.count for one in lattices
        )
        self._latest: _Tilted | None = None
        # Losses that mostly lie above the grid leave too little on it to work with.
        self._hopeless = any(one.infinite > 0.5 for one in self._lattices)
        self._infinite = -math.expm1(
            sum(one.count * math.log1p(-min(one.infinite, 0.5)) for one in self._lattices)
        )

    def delta(self, epsilon: float) -> float:
        if self._hopeless:
            return 1.0
        if epsilon >= self._support()[1]:
            return self._infinite
        # Any tilt gives a bound; that of a nearby epsilon is as good until its error shows.
        if self._latest is None or not self._latest.is_sharp(epsilon):
            self._latest = self._tilted(self._saddle_point(epsilon))
        return self._latest.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        if self._hopeless or delta <= self._infinite:
            return math.inf
        goal = -math.log(delta - self._infinite)

        def below(theta: float) -> bool:
            value, slope, _ = self._cumulant(theta)
            return theta * slope - value < goal

        # The theta at which the Chernoff bound (cumulant + goal) / theta on epsilon is least.
        largest = max(self._support()[1], 0.0)
        tilted = self._tilted(self._last_true(below))
        found = min(tilted.epsilon(delta, largest), largest)
        # Any theta gives a bound; the saddle point near the answer gives the sharpest one.
        for _ in range(3):
            if tilted.is_sharp(found):
                break
            tilted = self._tilted(self._saddle_point(0.999 * found))
            found = min(found, tilted.epsilon(delta, largest))
        return found

    def _saddle_point(self, epsilon: float) -> float:
        return self._last_true(lambda theta: self._cumulant(theta)[1] < epsilon)

    def _cumulant(self, theta: float) -> tuple[float, float, float]:
        """Cumulant generating function of the finite part of the loss, and two derivatives."""
        value = slope = curvature = 0.0
        for one in self._lattices:
            weights, log_mass = _tilt(one, theta)
            mean = _dot(weights, one.losses)
            value += one.count * log_mass
            slope += one.count * mean
            curvature += one.count * _dot(weights, (one.losses - mean) ** 2)
        return value, slope, curvature

    def _last_true(self, below: Callable[[float], bool]) -> float:
        """Largest theta, to a hundredth, at which an increasing function is below its goal."""
        largest = 50.0 / self._width
        good, bad = 0.0, 1.0
        while bad < largest and below(bad):
            good, bad = bad, 4.0 * bad
        while bad - good > 1e-2 * bad and bad > 1e-3:
            middle = 0.5 * (good + bad)
            good, bad = (middle, bad) if below(middle) else (good, middle)
        return good

    def _support(self) -> tuple[float, float]:
        low = sum(one.count * one.losses[0] for one in self._lattices)
        high = sum(one.count * one.losses[-1] for one in self._lattices)
        return float(low), float(high)

    def _window(self, theta: float) -> tuple[float, float]:
        """Interval outside which the tilted sum has mass below the window mass, by Chernoff."""
        value, _, curvature = self._cumulant(theta)
        low, high = self._support()
        if curvature == 0.0:
            return low, high

        def reach(log_s: float, side: float) -> float:
            s = math.exp(log_s)
            return (self._cumulant(theta + side * s)[0] - value - _LOG_WINDOW_MASS) / s

        # Any s bounds the reach; near the best one for a normal law the bound is least.
        guess = 0.5 * math.log(-2.0 * _LOG_WINDOW_MASS / curvature)
        best = [
            float(
                minimize_scalar(
                    reach,
                    bounds=(guess - 3.0, guess + 2.0),
                    args=(side,),
                    method="bounded",
                    options={"xatol": 0.1, "maxiter": 12},
                ).fun
            )
            for side in (-1.0, 1.0)
        ]
        return max(low, -best[0]), min(high, best[1])

    def _tilted(self, theta: float) -> _Tilted:
        margin = 1e-12 + 8.0 * _UNIT_ROUNDOFF * self._count
        if self._count == 1:
            # Nothing to convolve, so no error to be tilted away: the law itself.
            (only,) = self._lattices
            probs, log_mass = _tilt(only, 0.0)
            losses = only.losses + self._drift
            return _Tilted(0.0, log_mass, losses, probs, 0.0, self._infinite, margin)
        low, high = self._window(theta)
        first = math.floor(low / self._width)
        size = next_fast_len(math.ceil(high / self._width) - first + 1, real=True)
        # By FFT; of few points, term by term, 64 units of roundoff are enough.
        stage = 4.0 * _UNIT_ROUNDOFF * max(math.log2(size) + 2.0, 16.0)
        # Most of the spectrum is soon left with nothing; powers are taken of the rest.
        kept = np.arange(size // 2 + 1)
        product = np.ones(kept.size, dtype=np.complex128)
        log_bound, relative = np.zeros(kept.size), np.zeros(kept.size)
        shift = first
        for one in self._lattices:
            weights, _ = _tilt(one, theta)
            single = _transform((one.points - one.points[0]) % size, weights, size, kept)
            # Each entry is off by at most `stage`; so is a power, by the mean value theorem.
            modulus = np.minimum(np.abs(single) + stage, 1.0)
            log_bound += one.count * np.log(modulus)
            relative += one.count * (stage / modulus + 8.0 * _UNIT_ROUNDOFF)
            some = log_bound > _LOG_NOTHING
            kept, log_bound, relative = kept[some], log_bound[some], relative[some]
            product = product[some] * single[some] ** one.count
            shift -= one.count * int(one.points[0])
        bound = np.exp(log_bound)
        error = math.sqrt(2.0 * float(np.sum((bound * relative) ** 2)))
        error += 2.0 * stage * float(np.sum(bound)) + 2.0 * math.exp(_LOG_WINDOW_MASS)
        error += size * math.exp(_LOG_NOTHING)
        spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
        spectrum[kept] = product
        probs = np.maximum(np.roll(irfft(spectrum, size), -(shift % size)), 0.0)
        losses = self._width * (first + np.arange(size, dtype=np.float64))
        return _Tilted(
            theta,
            self._cumulant(theta)[0],
            losses + self._drift,
            probs,
            error,
            self._infinite,
            margin,
        )


@dataclass(frozen=True)
class _Tilted:
    """The composed loss, tilted by theta, and what may be wrong with it."""

    theta: float
    cumulant: float
    losses: Array
    probs: Array
    error: float
    infinite: float
    margin: float

    def is_sharp(self, epsilon: float) -> bool:
        """Whether the error is a small part of delta."""
        return self.error <= _SHARP * self._mass(epsilon)

    def delta(self, epsilon: float) -> float:
        exponent = self.cumulant - self.theta * epsilon
        finite = math.exp(min(700.0, exponent)) * self._mass(epsilon) * (1.0 + self.margin)
        return min(1.0, finite + self.infinite)

    def epsilon(self, delta: float, largest: float) -> float:
        """Bound epsilon; ``inf`` if it would be far above ``largest``."""

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon), 1e-300) / delta)

        if excess(0.0) <= 0.0:
            return 0.0
        bad, good = 0.0, min(1.0, largest + 1.0)
        while excess(good) > 0.0:
            bad, good = good, 2.0 * good
            if bad > largest + 1.0:
                return math.inf
        found, step = float(brentq(excess, bad, good, rtol=1e-9)), 1e-9
        while excess(found) > 0.0:
            found, step = min(good, found * (1.0 + step)), 2.0 * step
        return found

    def _mass(self, epsilon: float) -> float:
        above = int(np.searchsorted(self.losses, epsilon, side="right"))
        gap = epsilon - self.losses[above:]
        return self.error - _dot(self.probs[above:] * np.exp(self.theta * gap), np.expm1(gap))


def _transform(
    points: NDArray[np.int64], weights: Array, size: int, frequencies: NDArray[np.int64]
) -> NDArray[np.complex128]:
    """Return some frequencies of the Fourier transform of weights at points of a circle."""
    if points.size <= _FEW and points.size * frequencies.size <= size:
        angles = (-2.0 * math.pi / size) * (np.outer(frequencies, points) % size)
        return np.asarray(np.exp(1j * angles) @ weights)
    return np.asarray(rfft(np.bincount(points, weights, minlength=size))[frequencies])


def _dot(a: Array, b: Array) -> float:
    # Threads of the linear algebra library cost more here than the product itself.
    return float(np.sum(a * b))


def _tilt(lattice: _Lattice, theta: float) -> tuple[Array, float]:
    """Probabilities times ``exp(theta losses)``, normalised, and the log of their total."""
    exponents = theta * lattice.losses
    exponents += lattice.log_probs
    peak = float(exponents.max())
    exponents -= peak
    weights = np.exp(exponents, out=exponents)
    total = float(weights.sum())
    weights /= total
    return weights, peak + math.log(total)


# Calibration and reports ask about the same pieces several times.
@functools.lru_cache(maxsize=4)
def _orders(pieces: Pieces, width: float, even_cells: int) -> tuple[tuple[_Lattice, ...], ...]:
    """Put the losses on the grid, for each order of the data sets that there is."""
    both = [gaussian_law(pieces.mu)] if pieces.mu > 0.0 else []
    pairs = [piece.laws() for piece in pieces.others]
    if not both and not pairs:
        return ()
    orders = (0, 1) if any(one is not other for one, other in pairs) else (0,)
    laws = ([*both, *(pair[order] for pair in pairs)] for order in orders)
    return tuple(tuple(_on_lattice(law, width, even_cells) for law in one) for one in laws)


def _on_lattice(law: LossLaw, width: float, even_cells: int) -> _Lattice:
    # A law that lies beyond the largest loss still gets one cell; its mass counts as infinite.
    low = min(max(law.low, -_LARGEST_LOSS), _LARGEST_LOSS)
    points = _grid_points(low, max(low, min(law.high, _LARGEST_LOSS)), width, even_cells)
    losses = width * points.astype(np.float64)
    tail_p, tail_q = law.tails(losses)
    mass_p = np.maximum(tail_p[:-1] - tail_p[1:], 0.0)
    mass_q = np.maximum(tail_q[:-1] - tail_q[1:], 0.0)
    # Mass sent to the upper end of each cell so that both totals, P's and Q's, are kept.
    upper = (mass_p - mass_q * np.exp(losses[:-1])) / -np.expm1(-np.diff(losses))
    upper = np.clip(upper, 0.0, mass_p)
    probs = np.zeros(losses.size)
    probs[1:] += upper
    probs[:-1] += mass_p - upper
    probs[0] += max(0.0, 1.0 - float(tail_p[0]))
    with np.errstate(divide="ignore"):
        return _Lattice(points, losses, np.log(probs), float(tail_p[-1]), law.count, law.roundings)


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
