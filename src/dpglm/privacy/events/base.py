"""Base classes of privacy events and mechanisms, and the laws of privacy losses."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from scipy.special import ndtr

from dpglm._codec import encode
from dpglm._validation import Array as Array
from dpglm._validation import check_real
from dpglm._words import each, plain_number, times
from dpglm.privacy.budget import Adjacency

# The distribution of a privacy loss, given by its two tails.

Tails = tuple[Array, Array]
# Losses beyond 13 standard deviations count as infinite: Phi(-13) is about 6e-39.
REACH = 13.0


@dataclass(frozen=True)
class LossLaw:
    """Privacy loss ``log(P/Q)`` of one mechanism.

    ``tails`` returns ``P(loss > t)`` and ``Q(loss > t)`` for an array of t, with an error of at
    most ``roundings`` units of roundoff. A grid may end at ``low``, below which mass is rounded up,
    and at ``high``, above which the loss counts as infinite. With probability ``nothing``, which
    the tails exclude, the loss is exactly 0; the other losses are then positive. ``hidden`` was
    subtracted from ``P(loss > t)``: roundings refer to the tail with it.
    """

    tails: Callable[[Array], Tails]
    low: float
    high: float
    roundings: int = 4
    nothing: float = 0.0
    hidden: float = 0.0


def gaussian_law(mu: float) -> LossLaw:
    """Return the law for P = ``N(mu, 1)`` and Q = ``N(0, 1)``."""
    half = 0.5 * mu * mu
    return LossLaw(
        tails=lambda t: (ndtr((half - t) / mu), ndtr((-half - t) / mu)),
        low=half - REACH * mu,
        high=half + REACH * mu,
    )


def bounded_law(
    top: float, tails: Callable[[Array], tuple[Array | float, Array | float]]
) -> LossLaw:
    """Return the law of a loss in [-top, top], given its tails in between."""

    def within(t: Array) -> Tails:
        p, q = tails(t)
        return (
            np.where(t < -top, 1.0, np.where(t < top, p, 0.0)),
            np.where(t < -top, 1.0, np.where(t < top, q, 0.0)),
        )

    # The grid ends a little above the largest loss, despite rounding.
    return LossLaw(within, low=-top, high=(1.0 + 1e-12) * top)


def sampled_loss(x: float, rate: float, sigma: float) -> float:
    """Return the removal loss at x: ``(1-q) N(0, s^2) + q N(1, s^2)`` over ``N(0, s^2)``."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / sigma**2))


def sampled_position(t: Array, rate: float, sigma: float) -> Array:
    """Return the x with removal loss t; minus infinity if there is none."""
    # log((exp(t) - 1 + q) / q), in a form that is accurate near 0 and one that never overflows.
    near = np.maximum(np.expm1(np.minimum(t, 1.0)) / rate, -1.0)
    far = np.maximum(t, 1.0)
    with np.errstate(divide="ignore"):
        logarithm = np.where(
            t < 1.0, np.log1p(near), far - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-far))
        )
    return np.asarray(sigma**2 * logarithm + 0.5)


SMALLEST, LARGEST, MOST = 1e-50, 1e50, 2**53
"""Range of noise multipliers, epsilons and ratios of events, and the largest count.

Their fourth powers, and products of these with counts, neither overflow nor underflow.
"""
_POSITIVE = frozenset({"noise_multiplier", "epsilon", "curvature_ratio"})


class Event(abc.ABC):
    """A release, described by the parameters that determine its privacy.

    Notes
    -----
    Privacy: a noise multiplier is the noise scale divided by the sensitivity under the declared
    adjacency. An event becomes a claim when an accountant is given the adjacency. Events are
    immutable, compare by value and are hashable.
    """

    @property
    @abc.abstractmethod
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        """The basic events in their simplest form, with their counts (>= 1), unmerged."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for ``event_from_dict``."""
        found: dict[str, Any] = encode(self, Event)
        return found


class BasicEvent(Event):
    """An event that is not a composition."""

    @functools.cached_property
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        return ((self, 1),)

    @abc.abstractmethod
    def words(self, count: int) -> str:
        """Return a sentence on ``count`` such releases."""


class MechanismEvent(BasicEvent):
    """A basic mechanism, with the quantities that accountants, checks and reports need.

    Privacy: two laws of privacy losses, for removing and for adding a row, dominate the mechanism
    under adaptive composition. Renyi divergences, and the hockey-stick curves of
    ``dpglm.privacy.curves``, describe the same laws by independent formulas.
    """

    is_rarely_large: ClassVar[bool] = False
    """Whether rare values may cause most of the variance of a loss."""

    is_dominated_loosely: ClassVar[bool] = False
    """Whether Renyi divergences may be tighter than dominating laws for many runs."""

    def __post_init__(self) -> None:
        for name in vars(self).keys() & _POSITIVE:
            value = check_real(name, getattr(self, name), least=SMALLEST, most=LARGEST)
            object.__setattr__(self, name, value)

    def quieter(self, factor: float) -> MechanismEvent:
        """Return the mechanism for a sensitivity divided by ``factor``, if it has a multiplier."""
        return self

    @abc.abstractmethod
    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        """Return the laws of removing and of adding a row; the same object if they agree."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Return the approximate variance of a loss."""

    @abc.abstractmethod
    def span(self) -> float:
        """Return the length of an interval that contains a loss almost surely."""

    @property
    def largest_atom(self) -> float:
        """The largest atom of a loss; 0 without atoms."""
        return 0.0

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Epsilon of pure differential privacy, or None."""
        return None

    @property
    def plain_mu(self) -> float:
        """The mu of the mechanism without sampling; ``inf`` if it is not mu-GDP."""
        return float("inf")

    @property
    def mu_squared_law(self) -> tuple[float, int] | None:
        """Scale and degrees of a chi-square law of mu^2, by public randomness, or None."""
        return None

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array | None:
        """Bound Renyi divergences for removing and adding a row; None without a bound.

        ``excess`` has the orders minus 1, above 0, of shape (n,).
        """
        return None

    def divergence_of_order(self, order: int, adjacency: Adjacency) -> float | None:
        """Bound the Renyi divergence of an integer order of at least 2; None without a bound."""
        found = self.divergence(np.array([order - 1.0]), adjacency)
        return None if found is None else float(found[0])


@dataclass(frozen=True)
class NoiseEvent(MechanismEvent):
    """A mechanism with noise that has a scale, over the sensitivity, from 1e-50 to 1e50."""

    noise_multiplier: float

    def quieter(self, factor: float) -> Self:
        noise = min(factor * self.noise_multiplier, LARGEST)
        return dataclasses.replace(self, noise_multiplier=noise)


class GaussianMechanism(NoiseEvent):
    """A mechanism that is exactly mu-GDP."""

    @property
    @abc.abstractmethod
    def mu(self) -> float:
        """Parameter of Gaussian differential privacy."""

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        law = gaussian_law(self.mu)
        return law, law

    def variance(self) -> float:
        return self.mu**2

    def span(self) -> float:
        return 26.0 * self.mu

    @property
    def plain_mu(self) -> float:
        return self.mu

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array | None:
        return np.asarray(0.5 * (1.0 + excess) * self.mu**2)


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

    @property
    def mu(self) -> float:
        return 1.0 / self.noise_multiplier

    def sampled_losses(self, rate: float) -> tuple[LossLaw, LossLaw]:
        """Return the losses of removing and of adding a row that is drawn with this rate.

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
        """Return the length of an interval that contains a sampled loss almost surely."""
        return 13.0 / self.noise_multiplier + 0.5 / self.noise_multiplier**2

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        return (
            f"{times(count, 'sum')} over all rows, {each(count)} Gaussian noise of {noise} times "
            "the sensitivity"
        )
