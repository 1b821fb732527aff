"""What every privacy event is, and what a mechanism says of itself to accountants."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpglm._codec import encode
from dpglm._validation import check_integer, check_real
from dpglm.privacy.adjacency import Adjacency

# The distribution of a privacy loss, given by its two tails.

Array = NDArray[np.float64]
Tails = tuple[Array, Array]
# Standard deviations of noise beyond which losses count as infinite: Phi(-13) is about 6e-39.
REACH = 13.0


@dataclass(frozen=True)
class LossLaw:
    """Privacy loss ``log(P/Q)`` of one mechanism.

    ``tails`` gives ``P(loss > t)`` and ``Q(loss > t)`` for an array of t, right to so many
    ``roundings`` in units of roundoff. A grid may end at ``low``, below which mass is rounded up,
    and at ``high``, above which it counts as an infinite loss. With the probability ``nothing``,
    which the tails leave out, the loss is exactly 0, and the other losses are then above 0.
    ``hidden`` was taken off ``P(loss > t)``: the roundings are of the tail with it.
    """

    tails: Callable[[Array], Tails]
    low: float
    high: float
    roundings: int = 4
    nothing: float = 0.0
    hidden: float = 0.0


@dataclass(frozen=True)
class ChiSquare:
    """Law of ``scale`` times a chi-square variable with so many degrees of freedom."""

    scale: float
    degrees: int


def gaussian_law(mu: float) -> LossLaw:
    """P is ``N(mu, 1)``, Q is ``N(0, 1)``."""
    half = 0.5 * mu * mu
    return LossLaw(
        tails=lambda t: (ndtr((half - t) / mu), ndtr((-half - t) / mu)),
        low=half - REACH * mu,
        high=half + REACH * mu,
    )


def bounded_law(
    top: float, tails: Callable[[Array], tuple[Array | float, Array | float]]
) -> LossLaw:
    """Law of a loss between minus and plus ``top``, given its tails in between."""

    def within(t: Array) -> Tails:
        p, q = tails(t)
        return (
            np.where(t < -top, 1.0, np.where(t < top, p, 0.0)),
            np.where(t < -top, 1.0, np.where(t < top, q, 0.0)),
        )

    # The grid ends a little above the greatest loss, wherever rounding puts its points.
    return LossLaw(within, low=-top, high=(1.0 + 1e-12) * top)


def sampled_loss(x: float, rate: float, sigma: float) -> float:
    """Loss of removing a row at x, of ``(1-q) N(0, s^2) + q N(1, s^2)`` against ``N(0, s^2)``."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / sigma**2))


def sampled_position(t: Array, rate: float, sigma: float) -> Array:
    """Where the loss of removing is t; minus infinity for losses that are never reached."""
    # log((exp(t) - 1 + q) / q), by one form that is accurate near 0 and one that never overflows.
    near = np.maximum(np.expm1(np.minimum(t, 1.0)) / rate, -1.0)
    far = np.maximum(t, 1.0)
    with np.errstate(divide="ignore"):
        logarithm = np.where(
            t < 1.0, np.log1p(near), far - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-far))
        )
    return np.asarray(sigma**2 * logarithm + 0.5)


SMALLEST, LARGEST, MOST = 1e-50, 1e50, 2**53
"""Range of noise multipliers, epsilons and ratios, and the largest count, of every event.

Fourth powers of such numbers, and their products with counts, are neither 0 nor infinite in
floating point: noise without end would cost nothing there, and little noise raise an error.
"""


class Event(abc.ABC):
    """One thing a mechanism releases, described by what its privacy depends on.

    Notes
    -----
    Privacy: noise multipliers are noise scale divided by SENSITIVITY under the declared
    adjacency, so an event by itself is not a claim; an accountant given an event and an
    adjacency makes one. Events are immutable, compare by value and hash.
    """

    @abc.abstractmethod
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        """List the basic events and how often each happens, unmerged.

        Returns
        -------
        tuple of (BasicEvent, int)
            Counts are at least 1.
        """

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``event_from_dict`` gives back an equal event, bit for bit."""
        found: dict[str, Any] = encode(self, Event)
        return found


class BasicEvent(Event):
    """An event that is no composition of others."""

    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        return ((self, 1),)

    def simplified(self) -> BasicEvent:
        """Return an event that costs the same and says no more than needed."""
        return self

    @abc.abstractmethod
    def words(self, count: int) -> str:
        """Say in a sentence what was released so many times."""


@dataclass(frozen=True)
class Curves:
    """Hockey-stick divergences of one mechanism, straight from their definition.

    Parameters
    ----------
    remove, add : callable
        Delta of removing and of adding a row at an array of epsilons, negative ones too.

    Notes
    -----
    Privacy: these are what claims are checked against, so they share no formula with the
    mechanism's ``losses``.
    """

    remove: Callable[[Array], Array]
    add: Callable[[Array], Array]


class Mechanism(BasicEvent):
    """One mechanism, with all that accountants, checks and reports ask of it.

    Notes
    -----
    Privacy: two laws of privacy losses dominate the mechanism under any adaptive composition,
    for the two orders of neighbouring data sets. Everything else follows from them: Renyi
    divergences and hockey-stick curves are the same again, by formulas of their own.
    """

    is_rarely_large: ClassVar[bool] = False
    """Whether most of the variance of a loss may come from values that it hardly ever takes."""

    is_dominated_loosely: ClassVar[bool] = False
    """Whether Renyi divergences of many runs may say more than their dominating laws."""

    def quieter(self, factor: float) -> Mechanism:
        """Return the mechanism for rows that change its result so many times less.

        The mechanism itself where its cost does not come from a noise multiplier.
        """
        return self

    @abc.abstractmethod
    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        """Return the losses of removing and of adding a row; one object if they agree."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Give the size of the variance of one loss."""

    @abc.abstractmethod
    def span(self) -> float:
        """Give the length of the interval that one loss hardly ever leaves."""

    @property
    def largest_atom(self) -> float:
        """The largest loss that has a probability of its own; 0 if there is none."""
        return 0.0

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Epsilon of pure differential privacy, or None if there is none."""
        return None

    @property
    def plain_mu(self) -> float:
        """Without sampling the mechanism is mu-GDP with this mu; ``inf`` if with none."""
        return float("inf")

    @property
    def mu_squared_law(self) -> ChiSquare | None:
        """Law of mu^2, if given what is public the mechanism is mu-GDP; None otherwise."""
        return None

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array | None:
        """Bound Renyi divergences in both orders of the data sets; None if there is no bound.

        Parameters
        ----------
        excess : ndarray of shape (n,)
            Orders minus 1, above 0.
        adjacency : Adjacency
            The relation.
        """
        return None

    def divergence_of_order(self, order: int, adjacency: Adjacency) -> float | None:
        """Bound the Renyi divergence of one integer order, at least 2; None without a bound."""
        found = self.divergence(np.array([order - 1.0]), adjacency)
        return None if found is None else float(found[0])

    @abc.abstractmethod
    def curves(self, adjacency: Adjacency) -> Curves:
        """Return delta as a function of epsilon, for checks."""


class GaussianMechanism(Mechanism):
    """A mechanism that is mu-GDP, and nothing better."""

    @property
    @abc.abstractmethod
    def mu(self) -> float:
        """Parameter of Gaussian differential privacy."""

    @abc.abstractmethod
    def mu_squared(self) -> float:
        """Square of mu by another formula, for checks."""

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

    def curves(self, adjacency: Adjacency) -> Curves:
        mu = self.mu_squared() ** 0.5

        def delta(epsilon: Array) -> Array:
            return gaussian_curve(mu, epsilon)

        return Curves(delta, delta)


def gaussian_curve(mu: float, epsilon: Array) -> Array:
    """Delta of a mu-GDP release, straight from the formula.

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
    Theorem 8.
    """
    upper = ndtr(0.5 * mu - epsilon / mu)
    return np.asarray(upper - np.exp(np.minimum(epsilon, 700.0)) * ndtr(-0.5 * mu - epsilon / mu))


def check_positive(event: Event, name: str) -> None:
    """Check a noise multiplier, an epsilon or a ratio of an event that is being built."""
    value = check_real(name, getattr(event, name), least=SMALLEST, most=LARGEST)
    object.__setattr__(event, name, value)


def check_count(name: str, value: object, *, least: int) -> int:
    """Return a number of steps, dimensions or repetitions, or raise ValueError."""
    count = check_integer(name, value, least=least)
    if count > MOST:
        raise ValueError(f"{name} must be at most {MOST}, got {value!r}")
    return count
