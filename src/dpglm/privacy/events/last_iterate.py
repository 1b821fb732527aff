"""Noisy contractive iterations whose results in between stay secret."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import final

from dpglm._validation import check_real
from dpglm._words import plain_number, times
from dpglm.privacy.events.base import LARGEST, GaussianMechanism, check_count, check_positive

__all__ = ["LastIterate"]


@final
@dataclass(frozen=True)
class LastIterate(GaussianMechanism):
    """Noisy contractive iteration of which only the last iterate is released.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation of one step divided by that step's sensitivity (both of the
        mean gradient, or both of the sum); from 1e-50 to 1e50.
    contraction : float
        Lipschitz constant ``c`` of one noiseless step, in [0, 1]. For an ``m``-strongly
        convex and ``M``-smooth objective and step size ``eta <= 2/M`` it is
        ``max(|1 - eta m|, |1 - eta M|)``.
    steps : int
        Number of steps, from 1 to 2^53.

    Notes
    -----
    Privacy: the steps are ``w <- Proj(w - eta (mean gradient + noise))``: full batch, no
    momentum, no averaging, at most one projection or prox after the step. Nothing else
    about the run may be released, least of all an earlier iterate.

    References
    ----------
    Bok, Su and Altschuler, "Shifted interpolation for differential privacy", ICML 2024,
    arXiv 2403.00278, Theorem 4.1.
    """

    noise_multiplier: float
    contraction: float
    steps: int

    def __post_init__(self) -> None:
        check_positive(self, "noise_multiplier")
        contraction = check_real("contraction", self.contraction, least=0.0, most=1.0)
        object.__setattr__(self, "contraction", contraction)
        object.__setattr__(self, "steps", check_count("steps", self.steps, least=1))

    @property
    def mu(self) -> float:
        """The release is mu-GDP with this mu: the smaller of amplification and composition.

        Notes
        -----
        With ``c = exp(-a)``, ``(1-c^t)/(1+c^t) * (1+c)/(1-c) = tanh(t a/2) / tanh(a/2)``,
        which keeps full precision for c near 1 and for any t.

        Examples
        --------
        >>> LastIterate(2.0, contraction=0.0, steps=100).mu
        0.5
        >>> LastIterate(2.0, contraction=1.0, steps=100).mu
        5.0
        """
        composition = float(self.steps)
        if self.contraction == 1.0:
            return math.sqrt(composition) / self.noise_multiplier
        rate = math.inf if self.contraction == 0.0 else -math.log(self.contraction)
        amplified = math.tanh(0.5 * self.steps * rate) / math.tanh(0.5 * rate)
        return math.sqrt(min(composition, amplified)) / self.noise_multiplier

    def mu_squared(self) -> float:
        c = self.contraction
        # (1 - c^t)/(1 + c^t) (1 + c)/(1 - c), the first factor without cancellation for c near 1.
        amplified = math.inf
        if c < 1.0:
            power = -math.expm1(self.steps * math.log(c)) if c > 0.0 else 1.0
            amplified = power / (2.0 - power) * (1.0 + c) / (1.0 - c)
        return min(float(self.steps), amplified) / self.noise_multiplier**2

    def quieter(self, factor: float) -> LastIterate:
        noise = min(factor * self.noise_multiplier, LARGEST)
        return dataclasses.replace(self, noise_multiplier=noise)

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        room = 1.0 - self.contraction
        factor = f"1 - {room:.2g}" if 0.0 < room < 1e-3 else plain_number(self.contraction)
        return (
            f"{'The last iterate' if count == 1 else times(count, 'last iterate')} of {self.steps} "
            f"steps whose results in between stay secret, each step with Gaussian noise of {noise} "
            f"times what one row can change and contracting by a factor of {factor}"
        )
