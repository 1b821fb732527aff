"""Numbers with independent Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from dpglm._words import each, plain_number, times
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events.base import LARGEST, Curves, Mechanism, check_positive
from dpglm.privacy.events.losses import Array, LossLaw, Tails, bounded_law

__all__ = ["Laplace"]


@final
@dataclass(frozen=True)
class Laplace(Mechanism):
    """Release of a vector plus independent Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale ``b`` (not its standard deviation) divided by L1 sensitivity; from
        1e-50 to 1e50. Pure differential privacy with epsilon ``1 / noise_multiplier``.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_positive(self, "noise_multiplier")

    def quieter(self, factor: float) -> Laplace:
        return Laplace(min(factor * self.noise_multiplier, LARGEST))

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        top = 1.0 / self.noise_multiplier

        # P is noise of this scale around 0, Q around 1.
        def tails(t: Array) -> Tails:
            p = 1.0 - 0.5 * np.exp(0.5 * np.minimum(t - top, 0.0))
            return p, 0.5 * np.exp(-0.5 * np.maximum(t + top, 0.0))

        law = bounded_law(top, tails)
        return law, law

    def variance(self) -> float:
        return min(self.noise_multiplier**-2, 2.0 / self.noise_multiplier)

    def span(self) -> float:
        return 2.0 / self.noise_multiplier

    @property
    def largest_atom(self) -> float:
        return 1.0 / self.noise_multiplier

    @property
    def pure_epsilon(self) -> Fraction:
        return 1 / Fraction(self.noise_multiplier)

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array:
        # log( a/(2a-1) exp((a-1)/b) + (a-1)/(2a-1) exp(-a/b) ) / (a-1), the first exponent in
        # front.
        twice = 1.0 + 2.0 * excess
        share = np.log1p(excess / twice * np.expm1(-twice / self.noise_multiplier))
        return np.asarray(1.0 / self.noise_multiplier + share / excess)

    def curves(self, adjacency: Adjacency) -> Curves:
        top = 1.0 / self.noise_multiplier

        def delta(epsilon: Array) -> Array:
            inside = -np.expm1(0.5 * (np.clip(epsilon, -top, top) - top))
            return np.where(epsilon < -top, -np.expm1(np.minimum(epsilon, 0.0)), inside)

        return Curves(delta, delta)

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        return (
            f"{times(count, 'number')}, {each(count)} Laplace noise of scale {noise} times what "
            "one row can change"
        )
