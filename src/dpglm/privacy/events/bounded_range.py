"""Choices by the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from dpglm._words import rounded_up, times
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events.base import Curves, Mechanism, check_positive
from dpglm.privacy.events.losses import Array, LossLaw, Tails, bounded_law

__all__ = ["BoundedRange"]


@final
@dataclass(frozen=True)
class BoundedRange(Mechanism):
    """A choice by the exponential mechanism: log-ratios lie in an interval of length epsilon.

    Parameters
    ----------
    epsilon : float
        Length of the interval under the declared adjacency; from 1e-50 to 1e50. For scores of
        sensitivity D chosen with weights ``exp(-epsilon score / (2 D))`` it is this epsilon.

    Notes
    -----
    Privacy: such a choice is also epsilon-DP, but cheaper than most: it is
    ``epsilon^2 / 8``-zCDP. Under replace-one it is charged like ``Pure``.

    References
    ----------
    Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get
    composition", NeurIPS 2019, Definition 3.1. Dong, Durfee and Rogers, "Optimal differential
    privacy composition for exponential mechanisms", ICML 2020. Cesar and Rogers, "Bounding,
    concentrating, and truncating", ALT 2021, Theorem 3.
    """

    epsilon: float

    is_dominated_loosely: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(self, "epsilon")

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        """Return the loss of the pair that dominates every choice of bounded range.

        Notes
        -----
        Privacy: let the losses lie in ``[t - epsilon, t]``. Under P, ``Q/P = exp(-loss)`` has mean
        1, and delta at e is the mean of its convex function ``(1 - exp(e) Q/P)+``: largest if the
        loss is t, with probability ``(exp(epsilon) - exp(t)) / (exp(epsilon) - 1)``, or
        ``t - epsilon``. The largest delta over t is that of ``t = (e + epsilon) / 2``:
        ``delta(e) = (exp(epsilon/2) - exp(e/2))^2 / (exp(epsilon) - 1)`` for ``|e| <= epsilon``. It
        falls and is convex in exp(e), so there is a pair with exactly this delta, which dominates
        all of them, adaptively composed too. Its tails are ``-exp(-e) delta'(e)`` under Q and
        ``delta(e)`` plus ``exp(e)`` times that under P.

        References
        ----------
        Dong, Durfee and Rogers, "Optimal differential privacy composition for exponential
        mechanisms", ICML 2020 (the two losses). Zhu, Dong and Wang, "Optimal accounting of
        differential privacy via characteristic function", AISTATS 2022, Proposition 9 (a pair for
        each such delta) and Theorem 10 (composition).
        """
        epsilon = self.epsilon

        # Both are divided by exp(epsilon), so that nothing overflows.
        def tails(t: Array) -> Tails:
            inside = np.clip(t, -epsilon, epsilon)
            p = np.expm1(0.5 * (inside - epsilon)) / np.expm1(-epsilon)
            return p, np.exp(-0.5 * (inside + epsilon)) * p

        law = bounded_law(self.epsilon, tails)
        return law, law

    def variance(self) -> float:
        return min(self.epsilon**2 / 3.0, 4.0)

    def span(self) -> float:
        return 2.0 * self.epsilon

    @property
    def pure_epsilon(self) -> Fraction:
        return Fraction(self.epsilon)

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array:
        return np.minimum((1.0 + excess) * self.epsilon**2 / 8.0, self.epsilon)

    def curves(self, adjacency: Adjacency) -> Curves:
        top = self.epsilon

        def delta(epsilon: Array) -> Array:
            inside = np.expm1(0.5 * (np.clip(epsilon, -top, top) - top)) ** 2 / -math.expm1(-top)
            return np.where(epsilon < -top, -np.expm1(np.minimum(epsilon, 0.0)), inside)

        return Curves(delta, delta)

    def words(self, count: int) -> str:
        return (
            f"{times(count, 'random choice')} among candidates, the better ones likelier "
            f"(exponential mechanism, epsilon = {rounded_up(self.epsilon)})"
        )
