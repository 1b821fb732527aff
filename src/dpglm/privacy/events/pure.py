"""Releases of which only their epsilon is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from scipy.special import expit

from dpglm._words import each, rounded_up, times
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events.base import Curves, Mechanism, check_positive
from dpglm.privacy.events.losses import Array, LossLaw, bounded_law

__all__ = ["Pure"]


@final
@dataclass(frozen=True)
class Pure(Mechanism):
    """Any release that is epsilon-DP: L2 noise, report-noisy-min, permute-and-flip.

    Parameters
    ----------
    epsilon : float
        Its epsilon under the declared adjacency; from 1e-50 to 1e50.

    Notes
    -----
    Privacy: randomised response with the same epsilon is at least as bad under any
    composition, so it stands for the release. Where a claim under replace-one goes by way of
    the data set with the row zeroed out, each of the two steps is charged the full epsilon,
    which is conservative for noise but right for any release.

    References
    ----------
    Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015,
    Theorem 3.2.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_positive(self, "epsilon")

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        # P and Q are the two answers of randomised response: the loss is plus or minus epsilon.
        p, q = float(expit(self.epsilon)), float(expit(-self.epsilon))
        law = bounded_law(self.epsilon, lambda t: (p, q))
        return law, law

    def variance(self) -> float:
        return (self.epsilon / math.cosh(0.5 * min(self.epsilon, 60.0))) ** 2

    def span(self) -> float:
        return 2.0 * self.epsilon

    @property
    def largest_atom(self) -> float:
        return self.epsilon

    @property
    def pure_epsilon(self) -> Fraction:
        return Fraction(self.epsilon)

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array:
        # log( p exp((a-1) e) + (1-p) exp(-(a-1) e) ) / (a-1) with p = 1/(1 + exp(-e)).
        lower = float(expit(-self.epsilon))
        share = np.log1p(lower * np.expm1(-2.0 * excess * self.epsilon))
        return np.asarray(self.epsilon + share / excess)

    def curves(self, adjacency: Adjacency) -> Curves:
        top = self.epsilon

        def delta(epsilon: Array) -> Array:
            inside = -np.expm1(np.clip(epsilon, -top, top) - top) / (1.0 + math.exp(-top))
            return np.where(epsilon < -top, -np.expm1(np.minimum(epsilon, 0.0)), inside)

        return Curves(delta, delta)

    def words(self, count: int) -> str:
        return (
            f"{times(count, 'release')} (noisy numbers or a noisy choice), {each(count)} an "
            f"epsilon of {rounded_up(self.epsilon)} and a delta of 0 by itself"
        )
