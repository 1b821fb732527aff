"""An independent numerical accountant: tilted privacy losses, convolved by FFT."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.optimize import minimize_scalar

from dpglm.exceptions import TooCostlyError
from dpglm.privacy.accounting.accountant import Accountant, Curve, Reduced, own_version
from dpglm.privacy.accounting.convolution import (
    LOG_WINDOW_MASS,
    UNIT_ROUNDOFF,
    Lattice,
    LossPart,
    Mixture,
    dot,
    on_lattice,
    split,
    tilt,
)
from dpglm.privacy.events import Event, MechanismEvent
from dpglm.privacy.events.base import LossLaw, gaussian_law

_SHARP = 1e-6
# Times the largest loss, in exponents: beyond, all bounds are infinite, and none is the least.
_STEEPEST = 200.0
# Relative errors of masses, of delta too: of sums over one grid, and of each tilted loss.
_MARGIN, _PER_LOSS = 1e-9, 256.0
# Units of roundoff for each in a tail: arguments of Phi up to 13 are squared in its exponent.
_SINGLE_ROUNDING = 128.0


@final
@dataclass(frozen=True)
class FourierAccountant(Accountant):
    """Numerical accounting without dp-accounting, accurate also at very small deltas.

    Parameters
    ----------
    cell_fraction : float, default=0.02
        Width of the grid of privacy losses over their standard deviation in one mechanism, or,
        below 100 mechanisms, over a tenth of that of their sum. A coarser grid is faster, and
        gives larger bounds.
    most_cells : int, default=100_000
        Approximate maximum number of cells for the losses of one mechanism.
    even_cells : int, default=800
        Number of cells on each side of zero with the grid's width; further out their width grows
        with the loss.

    Notes
    -----
    Privacy: the privacy loss of each mechanism is moved to a grid so that each cell keeps its mass
    under both distributions, which can only increase delta, for any cells. Losses above the grid
    count as infinite. A loss that is rarely large, as under sparse sampling, is split by size, with
    a grid for each size (``split``). The distributions are multiplied by ``exp(theta loss)`` and
    renormalised before convolution, with theta the saddle point at the epsilon in question. The
    rounding error of the FFT, bounded and added to delta, is then relative to delta, so that a
    delta of 1e-18 is as accurate as 1e-5. A single mechanism is not convolved. The larger delta of
    removing and adding a row is returned.

    References
    ----------
    Koskela, Jalko and Honkela, "Computing tight differential privacy guarantees using FFT",
    AISTATS 2020. Doroshenko et al., "Connect the dots", PETS 2022, Algorithm 1. Alghamdi et
    al., "The saddle-point method in differential privacy", ICML 2023 (the tilt).
    """

    cell_fraction: float = 0.02
    most_cells: int = 100_000
    even_cells: int = 800

    name = "fourier"

    @property
    def version(self) -> str:
        return f"{own_version()}, numpy {importlib.metadata.version('numpy')}"

    def _knows(self, basic: Event) -> bool:
        return isinstance(basic, MechanismEvent)

    def _profile(self, reduced: Reduced) -> Curve:
        if reduced.count == 1:
            pairs = [one.losses(reduced.adjacency) for one, _ in reduced.others]
            return functools.partial(
                _delta_of_one, pairs[0] if pairs else (gaussian_law(reduced.mu),)
            )
        # Sums of few losses have few cells, and room for smaller ones.
        fraction = self.cell_fraction * min(1.0, 0.1 * math.sqrt(reduced.count))
        width = reduced.cell(fraction, self.most_cells)
        orders = _orders(reduced, width, fraction, self.even_cells)
        directions = [_Direction(one) for one in orders]
        return lambda epsilon: max((one.delta(epsilon) for one in directions), default=0.0)


def _delta_of_one(laws: tuple[LossLaw, ...], epsilon: float) -> float:
    """Bound delta of one mechanism alone, with nothing rounded to a grid.

    It is ``P(loss > e) - exp(e) Q(loss > e)``; the second term is at most the first.
    """
    found = []
    for law in laws:
        p, q = (float(tail[0]) for tail in law.tails(np.array([epsilon])))
        below = math.exp(min(epsilon + math.log(q), 0.0)) if q > 0.0 else 0.0
        error = _SINGLE_ROUNDING * UNIT_ROUNDOFF * law.roundings * p
        found.append(min(1.0, max(p - below, 0.0) + error))
    return max(found)


@final
class _Direction:
    """Composition of the mechanisms for one order of the two data sets."""

    def __init__(self, lattices: tuple[Lattice, ...]) -> None:
        # The widest laws first: they leave the least of the spectrum to the others.
        self._lattices = sorted(lattices, key=lambda one: -one.losses.size)
        self._widths = sorted({one.width for one in lattices})
        self._count = sum(one.count for one in lattices)
        # Rounding in differences of tails moves some of the mass of each cell to its other end.
        self._drift = sum(one.drift for one in lattices)
        self._latest: _Tilted | None = None
        self._plain: _Tilted | None = None
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
            theta = self._saddle_point(epsilon)
            if self._latest is None or self._latest.theta != theta:
                self._latest = self._tilted(theta)
        if self._latest.is_sharp(epsilon):
            return self._latest.delta(epsilon)
        # The saddle point of rare losses depends on the largest only, which may not matter. Without
        # the law that is not tilted, where its grid would be too large, the bound barely grows.
        if self._plain is None:
            with contextlib.suppress(TooCostlyError):
                self._plain = self._tilted(0.0)
        return min(one.delta(epsilon) for one in (self._latest, self._plain) if one is not None)

    def _cumulant(
        self, theta: float, lattices: Sequence[Lattice] = ()
    ) -> tuple[float, float, float]:
        """Cumulant generating function of the finite part of the loss, and two derivatives."""
        value = slope = curvature = 0.0
        for one in lattices or self._lattices:
            weights, log_mass = tilt(one, theta)
            mean = dot(weights, one.losses)
            value += one.count * log_mass
            slope += one.count * mean
            curvature += one.count * dot(weights, (one.losses - mean) ** 2)
        return value, slope, curvature

    def _saddle_point(self, epsilon: float) -> float:
        """Return the largest tilt, to a hundredth, with a mean loss below epsilon."""
        largest = 50.0 / self._widths[0]

        def below(theta: float) -> bool:
            return self._cumulant(theta)[1] < epsilon

        good, bad = 0.0, 1.0
        while bad < largest and below(bad):
            good, bad = bad, 4.0 * bad
        while bad - good > 1e-2 * bad and bad > 1e-3:
            middle = 0.5 * (good + bad)
            good, bad = (middle, bad) if below(middle) else (good, middle)
        return good

    def _support(self, lattices: Sequence[Lattice] = ()) -> tuple[float, float]:
        some = lattices or self._lattices
        low = sum(one.count * one.losses[0] for one in some)
        high = sum(one.count * one.losses[-1] for one in some)
        return float(low), float(high)

    def _window(self, theta: float, lattices: Sequence[Lattice]) -> tuple[float, float]:
        """Interval outside which the tilted sum has mass below the window mass, by Chernoff."""
        value, _, curvature = self._cumulant(theta, lattices)
        low, high = self._support(lattices)
        if low == high:
            return low, high

        def reach(log_s: float, side: float) -> float:
            s = math.exp(log_s)
            return (self._cumulant(theta + side * s, lattices)[0] - value - LOG_WINDOW_MASS) / s

        # Any s bounds the reach; near the best one for a normal law the bound is least. Rare
        # large losses ask for one that is as small as they are large.
        guess = 0.5 * math.log(-2.0 * LOG_WINDOW_MASS / max(curvature, 1e-300))
        largest = max(max(-one.losses[0], one.losses[-1]) for one in lattices)
        least = min(guess - 3.0, math.log(1.0 / largest))
        most = min(guess + 2.0, math.log(_STEEPEST / largest))
        best = [
            float(
                minimize_scalar(
                    reach,
                    bounds=(least, most),
                    args=(side,),
                    method="bounded",
                    options={"xatol": 0.1, "maxiter": 12},
                ).fun
            )
            for side in (-1.0, 1.0)
        ]
        return max(low, -best[0]), min(high, best[1])

    def _tilted(self, theta: float) -> _Tilted:
        margin = _MARGIN + _PER_LOSS * UNIT_ROUNDOFF * self._count
        total = Mixture.nothing(theta)
        for width in self._widths:
            some = [one for one in self._lattices if one.width == width]
            total = total.plus(some, self._window(theta, some))
        return _Tilted(
            theta,
            self._cumulant(theta)[0],
            tuple(dataclasses.replace(one, losses=one.losses + self._drift) for one in total.parts),
            self._infinite,
            margin,
        )


@dataclass(frozen=True)
class _Tilted:
    """The composed loss, tilted by theta, with error bounds."""

    theta: float
    cumulant: float
    parts: tuple[LossPart, ...]
    infinite: float
    margin: float

    def is_sharp(self, epsilon: float) -> bool:
        """Whether the error is a small part of delta."""
        return self._error(epsilon) <= _SHARP * self._mass(epsilon)

    def delta(self, epsilon: float) -> float:
        exponent = self.cumulant - self.theta * epsilon
        finite = math.exp(min(700.0, exponent)) * self._mass(epsilon) * (1.0 + self.margin)
        return min(1.0, finite + self.infinite)

    def _mass(self, epsilon: float) -> float:
        total = self._error(epsilon)
        for one in self.parts:
            above = int(np.searchsorted(one.losses, epsilon, side="right"))
            gap = epsilon - one.losses[above:]
            total -= dot(one.masses[above:] * np.exp(self.theta * gap), np.expm1(gap))
        return total

    def _error(self, epsilon: float) -> float:
        # Errors below epsilon add nothing to delta.
        return math.fsum(one.error_above(epsilon) for one in self.parts)


# Calibration and reports ask about the same mechanisms several times.
@functools.lru_cache(maxsize=4)
def _orders(
    reduced: Reduced, width: float, fraction: float, even_cells: int
) -> tuple[tuple[Lattice, ...], ...]:
    """Put the losses on grids, for each order of the data sets that there is."""
    both = [on_lattice(gaussian_law(reduced.mu), 1, width, even_cells)] if reduced.mu > 0.0 else []
    pairs = [one.losses(reduced.adjacency) for one, _ in reduced.others]
    if not both and not pairs:
        return ()
    orders = (0, 1) if any(one is not other for one, other in pairs) else (0,)
    found = []
    for order in orders:
        lattices = list(both)
        for pair, (one, count) in zip(pairs, reduced.others, strict=True):
            own = 0.0 if one.is_rarely_large else one.variance()
            rest = max(0.0, reduced.variance / count - one.variance())
            parts = split(pair[order], count, width, fraction, own, rest)
            lattices += [on_lattice(law, count, wide, even_cells) for law, wide in parts]
        found.append(tuple(lattices))
    return tuple(found)
