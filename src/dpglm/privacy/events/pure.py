"""Releases that are described by their epsilon alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np
from scipy.special import expit

from dpglm._words import each, plain_number, rounded_up, times
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events.base import Array, LossLaw, MechanismEvent, NoiseEvent, Tails, bounded_law


@final
@dataclass(frozen=True)
class Pure(MechanismEvent):
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

    def words(self, count: int) -> str:
        return (
            f"{times(count, 'release')} (noisy numbers or a noisy choice), {each(count)} an "
            f"epsilon of {rounded_up(self.epsilon)} and a delta of 0 by itself"
        )


# Numbers with independent Laplace noise.


@final
@dataclass(frozen=True)
class Laplace(NoiseEvent):
    """Release of a vector plus independent Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale ``b`` (not its standard deviation) divided by L1 sensitivity; from
        1e-50 to 1e50. Pure differential privacy with epsilon ``1 / noise_multiplier``.
    """

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

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        return (
            f"{times(count, 'number')}, {each(count)} Laplace noise of scale {noise} times the "
            "sensitivity"
        )


# Choices by the exponential mechanism.


@final
@dataclass(frozen=True)
class BoundedRange(MechanismEvent):
    """A choice by the exponential mechanism: log-ratios lie in an interval of length epsilon.

    Parameters
    ----------
    epsilon : float
        Length of the interval under the declared adjacency; from 1e-50 to 1e50. For scores of
        sensitivity D and weights ``exp(-epsilon score / (2 D))`` it is this epsilon.

    Notes
    -----
    Privacy: such a choice is epsilon-DP and also ``epsilon^2 / 8``-zCDP, which composes better than
    most epsilon-DP releases. Under replace-one it is charged like ``Pure``.

    References
    ----------
    Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get
    composition", NeurIPS 2019, Definition 3.1. Dong, Durfee and Rogers, "Optimal differential
    privacy composition for exponential mechanisms", ICML 2020. Cesar and Rogers, "Bounding,
    concentrating, and truncating", ALT 2021, Theorem 3.
    """

    epsilon: float

    is_dominated_loosely: ClassVar[bool] = True

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        """Return the loss of the pair that dominates every choice of bounded range.

        Privacy: let the losses lie in ``[t - epsilon, t]``. Under P, ``Q/P = exp(-loss)`` has mean
        1, and delta at e is the mean of its convex function ``(1 - exp(e) Q/P)+``: largest if the
        loss is t, with probability ``(exp(epsilon) - exp(t)) / (exp(epsilon) - 1)``, or
        ``t - epsilon``. The largest delta over t is that of ``t = (e + epsilon) / 2``:
        ``delta(e) = (exp(epsilon/2) - exp(e/2))^2 / (exp(epsilon) - 1)`` for ``|e| <= epsilon``. It
        falls and is convex in exp(e), so there is a pair with exactly this delta, which dominates
        all of them, adaptively composed too. Its tails are ``-exp(-e) delta'(e)`` under Q and
        ``delta(e)`` plus ``exp(e)`` times that under P.

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

    def words(self, count: int) -> str:
        return (
            f"{times(count, 'random choice')} among candidates, the better ones likelier "
            f"(exponential mechanism, epsilon = {rounded_up(self.epsilon)})"
        )
