"""Delta from the moments of a privacy loss, as an integral along a vertical line."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from dpglm.privacy.accounting.losses.laws import Array
from dpglm.privacy.accounting.losses.moments import Complex, Moments
from dpglm.privacy.accounting.reduction import Profile

__all__ = ["ContourProfile"]

_UNIT_ROUNDOFF = 2.0**-53
# What folding adds to delta, and what the sum leaves to a bound, both relative to delta.
_LOG_FOLDED = math.log(1e-9)
_LOG_CUT = math.log(1e-5)
_MOST_NODES = 200_000
_BLOCK = 65_536
_SMALLEST, _LARGEST = 1e-12, 1e15
_HUGE = 1e300


class ContourProfile(Profile):
    """Upper bounds from independent losses whose moments are known in closed form.

    Parameters
    ----------
    parts : tuple of Moments
        Not empty.

    Notes
    -----
    Privacy: with ``M(z) = E exp(z loss)`` and any theta > 0 for which M is finite,

    ``delta(e) = 1/(2 pi i) integral of M(z) exp(-z e) / (z (z + 1)) dz`` along Re z = theta,

    because ``(1 - exp(e - x))+`` is the same integral of ``exp(z (x - e)) / (z (z + 1))``. The
    trapezoidal rule with step ``2 pi / W`` gives, by Poisson's summation formula, the sum of
    ``exp(j theta W) delta(e + j W)`` over all integers j. No term is negative, so the rule is
    an upper bound on the term j = 0 for every W and theta; they are chosen so that the others
    add 1e-9 of it, theta near the saddle point. What is cut off is bounded by
    ``Moments.log_bound`` and added, and so is the rounding error of the sum.

    References
    ----------
    Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic
    function", AISTATS 2022. Alghamdi et al., "The saddle-point method in differential
    privacy", ICML 2023.
    """

    def __init__(self, parts: tuple[Moments, ...]) -> None:
        self._parts = parts
        self._limit = min(_LARGEST, *(0.999999 * part.limit for part in parts))

    def delta(self, epsilon: float) -> float:
        return math.exp(min(0.0, self.log_delta(epsilon)))

    def epsilon(self, delta: float) -> float:
        target = math.log(delta)

        def excess(epsilon: float) -> float:
            return self.log_delta(epsilon) - target

        if excess(0.0) <= 0.0:
            return 0.0
        high = self._chernoff(target)
        if excess(high) > 0.0:
            return math.inf
        # Rounding and what is cut off make the bound uneven in its last digits.
        found, step = float(brentq(excess, 0.0, high, rtol=1e-9)), 1e-9
        while excess(found) > 0.0:
            found, step = min(high, found * (1.0 + step)), 2.0 * step
        return found

    def log_delta(self, epsilon: float) -> float:
        """Bound the logarithm of delta."""
        theta = self._saddle_point(epsilon)
        step = 0.01 * min(theta, self._limit - theta)
        around = np.array([theta - step, theta, theta + step])
        left, peak, right = map(float, self._exponents(around, epsilon))
        curvature = max((left + right - 2.0 * peak) / step**2, 0.1 / theta**2)
        about = min(0.0, peak - 0.5 * math.log(2.0 * math.pi * curvature))
        spacing = 2.0 * math.pi / self._period(theta, epsilon, about, curvature)
        count = self._nodes(theta, epsilon, spacing, about)
        total, size, error = 1.0, 1.0, 0.0
        for start in range(1, count + 1, _BLOCK):
            k = np.arange(start, min(start + _BLOCK, count + 1), dtype=np.float64)
            logs, roundings = self._log_terms(np.asarray(theta + 1j * spacing * k), epsilon)
            terms = np.exp(logs - peak)
            moduli = np.abs(terms)
            total += 2.0 * float(terms.real.sum())
            size += 2.0 * float(moduli.sum())
            error += 2.0 * float((moduli * roundings).sum())
        _, first = self._log_terms(np.array([theta], dtype=np.complex128), epsilon)
        error += float(first[0]) + size
        # A sum over nodes rounds by at most the logarithm of their number, times its size.
        bound = total + 32.0 * _UNIT_ROUNDOFF * error
        cut = self._log_cut(theta, epsilon, spacing * count) - peak
        bound = spacing * bound / (2.0 * math.pi) + math.exp(min(cut, 700.0))
        return peak + math.log(bound)

    def _log_terms(self, z: Complex, epsilon: float) -> tuple[Complex, Array]:
        """Logarithms of the integrand, and how many units of roundoff they are off."""
        logs = -epsilon * z - np.log(z) - np.log1p(z)
        roundings = 16.0 + np.abs(epsilon * z)
        for part in self._parts:
            own, own_roundings = part.logarithm(z)
            logs += own
            roundings += own_roundings + np.abs(own)
        return logs, roundings

    def _exponents(self, thetas: Array, epsilon: float) -> Array:
        return self._cumulants(thetas) - thetas * epsilon - np.log(thetas) - np.log1p(thetas)

    def _cumulants(self, thetas: Array) -> Array:
        z = thetas.astype(np.complex128)
        with np.errstate(over="ignore", invalid="ignore"):
            values = sum(part.logarithm(z)[0].real for part in self._parts)
            return np.where(values < _HUGE, values, _HUGE)

    def _saddle_point(self, epsilon: float) -> float:
        return self._least(lambda thetas: self._exponents(thetas, epsilon))[0]

    def _chernoff(self, log_delta: float) -> float:
        """Find an epsilon that is certainly enough."""
        least = self._least(lambda thetas: (self._cumulants(thetas) - log_delta) / thetas)[1]
        return max(0.0, least) * (1.0 + 1e-6)

    def _least(self, function: Callable[[Array], Array]) -> tuple[float, float]:
        """Where a function with one minimum is least, to two per cent, and its value there."""
        # Not the limit itself: there must be room on both sides.
        logs = np.linspace(math.log(_SMALLEST), math.log(0.999 * self._limit), 65)
        for _ in range(3):
            best = int(np.argmin(function(np.exp(logs))))
            logs = np.linspace(logs[max(best - 1, 0)], logs[min(best + 1, logs.size - 1)], 17)
        thetas = np.exp(logs)
        values = function(thetas)
        best = int(np.argmin(values))
        return float(thetas[best]), float(values[best])

    def _period(self, theta: float, epsilon: float, about: float, curvature: float) -> float:
        """Find a W for which the other terms of Poisson's sum are negligible."""
        room = -_LOG_FOLDED - about
        below = room / theta
        halves, doubles = 0.5 ** np.arange(1.0, 6.0), 2.0 ** np.arange(5.0)
        steps = np.append((self._limit - theta) * halves, doubles / math.sqrt(curvature))
        steps = steps[theta + steps < self._limit]
        # delta(e + W) <= M(x) exp(-x (e + W)) for every x, here theta + step.
        logs = self._cumulants(theta + steps) - (theta + steps) * epsilon
        above = float(np.min((room + logs) / steps))
        return max(below, above)

    def _nodes(self, theta: float, epsilon: float, spacing: float, about: float) -> int:
        """Find how many nodes there must be on one side."""

        def is_enough(count: int) -> bool:
            return self._log_cut(theta, epsilon, spacing * count) <= about + _LOG_CUT

        bad, good = 0, 16
        while not is_enough(good) and good < _MOST_NODES:
            bad, good = good, 2 * good
        while good - bad > 1 + bad // 16:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if is_enough(middle) else (middle, good)
        return good

    def _log_cut(self, theta: float, epsilon: float, t: float) -> float:
        """Bound what the nodes beyond t contribute: an integral of at most 1/t^2."""
        bound = sum(part.log_bound(theta, t) for part in self._parts)
        return bound - theta * epsilon - math.log(math.pi * t)
