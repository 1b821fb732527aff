"""Sums with spherical Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from scipy.special import ndtr

from dpglm._words import each, plain_number, times
from dpglm.privacy.events.base import LARGEST, GaussianMechanism, check_positive
from dpglm.privacy.events.losses import (
    REACH,
    Array,
    LossLaw,
    Tails,
    sampled_loss,
    sampled_position,
)

__all__ = ["Gaussian"]


@final
@dataclass(frozen=True)
class Gaussian(GaussianMechanism):
    """Release of a vector plus spherical Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation divided by L2 sensitivity; from 1e-50 to 1e50.

    Examples
    --------
    >>> Gaussian(2.0).to_dict()
    {'type': 'gaussian', 'noise_multiplier': 2.0}
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_positive(self, "noise_multiplier")

    @property
    def mu(self) -> float:
        return 1.0 / self.noise_multiplier

    def mu_squared(self) -> float:
        return self.noise_multiplier**-2

    def quieter(self, factor: float) -> Gaussian:
        return Gaussian(min(factor * self.noise_multiplier, LARGEST))

    def sampled_losses(self, rate: float) -> tuple[LossLaw, LossLaw]:
        """Return the losses of removing and of adding a row that is drawn with this rate.

        Notes
        -----
        P and Q are ``(1-q) N(0, s^2) + q N(1, s^2)`` and ``N(0, s^2)``. The loss of removing
        grows with x, that of adding falls.
        """
        sigma = self.noise_multiplier

        def removing(t: Array) -> Tails:
            x = sampled_position(t, rate, sigma)
            q = ndtr(-x / sigma)
            return (1.0 - rate) * q + rate * ndtr((1.0 - x) / sigma), q

        def adding(t: Array) -> Tails:
            x = sampled_position(-t, rate, sigma)
            p = ndtr(x / sigma)
            return p, (1.0 - rate) * p + rate * ndtr((x - 1.0) / sigma)

        low = sampled_loss(-REACH * sigma, rate, sigma)
        high = sampled_loss(1.0 + REACH * sigma, rate, sigma)
        return LossLaw(removing, low=low, high=high), LossLaw(adding, low=-high, high=-low)

    def sampled_span(self) -> float:
        """Give the length of the interval that a loss under sampling hardly ever leaves."""
        return 13.0 / self.noise_multiplier + 0.5 / self.noise_multiplier**2

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        return (
            f"{times(count, 'sum')} over all rows, {each(count)} Gaussian noise of {noise} times "
            "what one row can change"
        )
