"""Exact accounting of Gaussian releases with public random mu, by a contour integral."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log1p

from dpglm.privacy.accounting.accountant import Accountant, Curve, Reduced
from dpglm.privacy.events import Event, GaussianMechanism, MechanismEvent
from dpglm.privacy.events.base import Array

_UNIT_ROUNDOFF = 2.0**-53
# Relative errors of delta: from folding, and from the truncated part of the sum.
_LOG_FOLDED, _LOG_CUT = math.log(1e-9), math.log(1e-5)
_MOST_NODES = 200_000
_SMALLEST, _LARGEST, _HUGE = 1e-12, 1e15, 1e300
_Complex = NDArray[np.complex128]


@final
class MixtureAccountant(Accountant):
    """Exact accounting of Gaussian mechanisms with a public chi-square mu^2.

    Privacy: given the public randomness losses are Gaussian, so delta is the mean of the Gaussian
    delta over the sum of all mu^2. The result is an upper bound, with a relative error of about
    1e-5.

    >>> from dpglm.privacy import Adjacency
    >>> from dpglm.privacy.events import ProjectedGaussian, Repeated
    >>> steps = Repeated(ProjectedGaussian(20.0, dimension=8), 100)
    >>> round(MixtureAccountant().epsilon(steps, Adjacency.ZERO_OUT, 1e-5), 3)
    2.003
    """

    name = "mixture"

    def _knows(self, basic: Event) -> bool:
        if isinstance(basic, GaussianMechanism):
            return True
        return isinstance(basic, MechanismEvent) and basic.mu_squared_law is not None

    def _profile(self, reduced: Reduced) -> Curve:
        return _MixtureProfile(reduced).delta


@final
class _MixtureProfile:
    """An upper bound on delta from the moments of the loss.

    Privacy: with ``M(z) = E exp(z loss)`` and any theta > 0 for which M is finite,

    ``delta(e) = 1/(2 pi i) integral of M(z) exp(-z e) / (z (z + 1)) dz`` along Re z = theta,

    because ``(1 - exp(e - x))+`` is the same integral of ``exp(z (x - e)) / (z (z + 1))``. By
    Poisson's summation formula, the trapezoidal rule with step ``2 pi / W`` gives the sum of
    ``exp(j theta W) delta(e + j W)`` over all integers j. All terms are nonnegative, so the rule is
    an upper bound on the term j = 0 for every W and theta. They are chosen so that the other terms
    add 1e-9 of it, with theta near the saddle point. Truncation and rounding errors are bounded and
    added.

    Given the sum m of all mu^2, a loss is ``N(m/2, m)``, so ``M(z) = E exp((z + z^2) m / 2)``: each
    chi-square with d degrees is a factor ``(1 - scale (z + z^2))^(-d/2)``. Real and imaginary parts
    of its base grow with |Im z|, so the modulus of M falls.

    Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function",
    AISTATS 2022. Alghamdi et al., "The saddle-point method in differential privacy", ICML 2023.
    """

    def __init__(self, reduced: Reduced) -> None:
        self._mu_squared = reduced.mu**2
        laws = [(one.mu_squared_law, count) for one, count in reduced.others]
        # Scale and degrees of each chi-square.
        self._squares = [(law[0], count * law[1]) for law, count in laws if law is not None]
        # M is finite up to the positive root of scale (x + x^2) = 1.
        largest = max((scale for scale, _ in self._squares), default=0.0)
        limit = 2.0 / (largest + math.sqrt(largest**2 + 4.0 * largest)) if largest else math.inf
        self._limit = min(_LARGEST, 0.999999 * limit)

    def delta(self, epsilon: float) -> float:
        """Bound delta."""
        return math.exp(min(0.0, self._log_delta(epsilon)))

    def _log_delta(self, epsilon: float) -> float:
        """Bound the logarithm of delta."""
        theta, peak = self._least(lambda thetas: self._exponents(thetas, epsilon))
        step = 0.01 * min(theta, self._limit - theta)
        left, peak, right = (
            float(one)
            for one in self._exponents(np.array([theta - step, theta, theta + step]), epsilon)
        )
        curvature = max((left + right - 2.0 * peak) / step**2, 0.1 / theta**2)
        about = min(0.0, peak - 0.5 * math.log(2.0 * math.pi * curvature))
        spacing = 2.0 * math.pi / self._period(theta, epsilon, about, curvature)
        count = self._nodes(theta, epsilon, spacing, about)
        z: _Complex = np.asarray(theta + 1j * spacing * np.arange(count + 1.0))
        logs, roundings = self._log_terms(z, epsilon)
        terms = np.exp(logs - peak)
        moduli = np.abs(terms)
        # The first node counts once, the others for their conjugates too.
        total = 2.0 * float(terms.real.sum()) - float(terms[0].real)
        # A sum over nodes rounds by at most the logarithm of their number, times its size.
        relative = np.expm1(np.minimum(32.0 * _UNIT_ROUNDOFF * (1.0 + roundings), 700.0))
        error = 2.0 * float((moduli * relative).sum())
        cut = math.exp(min(self._log_cut(theta, epsilon, spacing * count) - peak, 700.0))
        return peak + math.log(spacing * (total + error) / (2.0 * math.pi) + cut)

    def _log_terms(self, z: _Complex, epsilon: float) -> tuple[_Complex, Array]:
        """Logarithms of the integrand, and how many units of roundoff they are off."""
        logs = self._log_moment(z) - epsilon * z - np.log(z) - np.log1p(z)
        w = z + z * z
        roundings = 24.0 + np.abs(epsilon * z) + 0.5 * self._mu_squared * np.abs(w)
        # A logarithm of 1 - u is off as u is, which counts the more the closer u is to 1.
        for scale, degrees in self._squares:
            u = scale * w
            roundings += degrees * (np.abs(u) / np.abs(1.0 - u) + np.abs(log1p(-u)))
        return logs, roundings

    def _log_moment(self, z: _Complex) -> _Complex:
        w = z + z * z
        total = 0.5 * self._mu_squared * w
        for scale, degrees in self._squares:
            # NumPy's own loses all digits of a small complex argument.
            total -= 0.5 * degrees * log1p(-scale * w)
        return np.asarray(total)

    def _exponents(self, thetas: Array, epsilon: float) -> Array:
        return self._cumulants(thetas) - thetas * epsilon - np.log(thetas) - np.log1p(thetas)

    def _cumulants(self, thetas: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._log_moment(thetas.astype(np.complex128)).real
        return np.where(values < _HUGE, values, _HUGE)

    def _least(self, function: Callable[[Array], Array]) -> tuple[float, float]:
        """Where a function of theta with one minimum is least, to two per cent, and its value."""
        # Not the limit itself: there must be room on both sides.
        logs = np.linspace(math.log(_SMALLEST), math.log(0.999 * self._limit), 65)
        for _ in range(3):
            best = int(np.argmin(function(np.exp(logs))))
            logs = np.linspace(logs[max(best - 1, 0)], logs[min(best + 1, logs.size - 1)], 17)
        values = function(np.exp(logs))
        best = int(np.argmin(values))
        return math.exp(logs[best]), float(values[best])

    def _period(self, theta: float, epsilon: float, about: float, curvature: float) -> float:
        """Find a W for which the other terms of Poisson's sum are negligible."""
        room = -_LOG_FOLDED - about
        below = room / theta
        halves, doubles = 0.5 ** np.arange(1.0, 6.0), 2.0 ** np.arange(5.0)
        steps = np.append((self._limit - theta) * halves, doubles / math.sqrt(curvature))
        steps = steps[theta + steps < self._limit]
        # delta(e + W) <= M(x) exp(-x (e + W)) for every x, here theta + step.
        logs = self._cumulants(theta + steps) - (theta + steps) * epsilon
        return max(below, float(np.min((room + logs) / steps)))

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
        """Bound the nodes beyond t: the modulus of M falls, the rest is below 1/t^2."""
        modulus = float(self._log_moment(np.array([theta + 1j * t]))[0].real)
        return modulus - theta * epsilon - math.log(math.pi * t)
