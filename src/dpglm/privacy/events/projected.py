"""Sums seen from random public directions, with Gaussian noise."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtr

from dpglm._validation import check_integer
from dpglm._words import each, plain_number, times
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events.base import (
    MOST,
    REACH,
    Array,
    LossLaw,
    NoiseEvent,
    Tails,
    sampled_loss,
    sampled_position,
)

# Where the cells of a chi variable begin, and how wide they are relatively and at most.
_LOWEST, _GROWTH, _WIDEST = 0.05, 0.2, 0.4
_BELOW, _BEYOND = 1e-9, 1e-30
_LESS = 1.0 - 1e-7
# Phi of the first is 1 in floating point, Phi of minus the second is below 1e-38.
_CERTAIN, _NEVER = 8.5, 13.0
# Gauss-Legendre on [0, 1].
_PLACES, _SHARES = (0.5 * (part + shift) for part, shift in zip(leggauss(16), (1, 0), strict=True))


@final
@dataclass(frozen=True)
class ProjectedGaussian(NoiseEvent):
    """Release of ``A^T v / sqrt(p)`` plus Gaussian noise, with a public random projection A.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation over the L2 sensitivity D of ``v``; from 1e-50 to 1e50.
    dimension : int
        Number p of columns of A, from 1 to 2^53; its entries are independent standard normal and
        used for this release only.

    Notes
    -----
    Privacy: A is released too, and does not depend on the data. If a row moves v by a vector of
    norm at most D, it moves the projection by a vector with a squared norm of at most ``D^2 chi2_p
    / p`` in distribution. So given A the release is mu-GDP with ``mu^2 = chi2_p / (p
    noise_multiplier^2)``, and without sampling the delta of a composition is the mean of the
    Gaussian delta over the sum of all mu^2. Replacing chi2_p by its mean would not give a bound.
    """

    dimension: int

    def __post_init__(self) -> None:
        super().__post_init__()
        dimension = check_integer("dimension", self.dimension, least=1, most=MOST)
        object.__setattr__(self, "dimension", dimension)

    @property
    def _largest_mu(self) -> float:
        return _farthest(self.dimension) / (math.sqrt(self.dimension) * self.noise_multiplier)

    @property
    def mu_squared_law(self) -> tuple[float, int]:
        return 1.0 / (self.dimension * self.noise_multiplier**2), self.dimension

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        # P and Q are a mu apart as in ``gaussian_law``, mu at random as in ``chi_nodes``.
        nodes = chi_nodes(self.dimension, self.noise_multiplier)

        def tail(t: Array, side: float) -> Array:
            return nodes.mean_tail(t, -0.5 * side)

        largest = float(nodes.mus[-1])
        most = _reach(lambda t: tail(t, 1.0), 0.5 * largest**2 + REACH * largest)
        law = LossLaw(
            tails=lambda t: (tail(t, 1.0) + nodes.beyond, tail(t, -1.0)),
            low=-most,
            high=most,
            roundings=4 + nodes.mus.size,
        )
        return law, law

    def variance(self) -> float:
        sigma = self.noise_multiplier
        return sigma**-2 + 0.5 / (self.dimension * sigma**4)

    def span(self) -> float:
        return 26.0 * self._largest_mu

    def sampled_losses(self, rate: float) -> tuple[LossLaw, LossLaw]:
        """Return the losses of removing and of adding a row that is drawn with this rate."""
        nodes = chi_nodes(self.dimension, self.noise_multiplier)
        loudest = 1.0 / float(nodes.mus[-1])
        quietest = 1.0 / float(nodes.mus[0])

        def position(t: Array) -> Array:
            return sampled_position(t, rate, 1.0) - 0.5

        def removing(t: Array) -> Tails:
            x = position(t)
            absent, drawn = nodes.mean_tail(x, 0.5), nodes.mean_tail(x, -0.5)
            return (1.0 - rate) * absent + rate * drawn + nodes.beyond, absent

        # Losses of adding are those of removing with the sign changed; so are their tails, by the
        # symmetry of the normal law about the middle between its two centres.
        def adding(t: Array) -> Tails:
            x = -position(-t)
            absent, drawn = nodes.mean_tail(x, -0.5), nodes.mean_tail(x, 0.5)
            return absent + nodes.beyond, (1.0 - rate) * absent + rate * drawn

        most = max(
            sampled_loss(1.0 + REACH * loudest, rate, loudest),
            sampled_loss(1.0 + REACH * quietest, rate, quietest),
        )
        most = _reach(lambda t: nodes.mean_tail(position(t), -0.5), most)
        least = sampled_loss(-REACH * loudest, rate, loudest)
        roundings = 4 + nodes.mus.size
        return (
            LossLaw(removing, low=least, high=most, roundings=roundings),
            LossLaw(adding, low=-most, high=-least, roundings=roundings),
        )

    def sampled_span(self) -> float:
        """Return the length of an interval that contains a sampled loss almost surely."""
        return 13.0 * self._largest_mu + 0.5 * self._largest_mu**2

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array:
        used = (1.0 + excess) * excess / (self.dimension * self.noise_multiplier**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = -0.5 * self.dimension * np.log1p(-used) / excess
        return np.where(used < 1.0, divergence, np.inf)

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        return (
            f"{times(count, 'sum')} over all rows, {self.directions(count)}{each(count)} Gaussian "
            f"noise of {noise} times the sensitivity before that"
        )

    def directions(self, count: int) -> str:
        """Say in words how a sum is projected before noise is added."""
        directions = times(self.dimension, "random public direction")
        return f"{'' if count == 1 else 'each '}seen from {directions}, "


@dataclass(frozen=True)
class ChiNodes:
    """A law on few points that dominates that of a Gaussian mechanism's random mu.

    The mus increase; a larger one has the probability ``beyond``, and counts as an infinite loss.
    """

    mus: Array
    weights: Array
    beyond: float

    def mean_tail(self, x: Array, offset: float) -> Array:
        """Return the mean of ``Phi(-x/mu - offset mu)`` at each x, without values below 1e-38."""
        order = np.argsort(x, kind="stable")
        ordered = x[order]
        starts = np.searchsorted(ordered, -self.mus * (_CERTAIN + offset * self.mus))
        ends = np.searchsorted(ordered, self.mus * (_NEVER - offset * self.mus))
        # Weights of the nodes for which Phi is 1 up to and including each place.
        certain = np.bincount(starts, self.weights, minlength=x.size + 1)
        total = np.cumsum(certain[::-1])[::-1][1:]
        for mu, weight, start, end in zip(self.mus, self.weights, starts, ends, strict=True):
            # In place: there are many nodes and few numbers in each of these arrays.
            terms = ordered[start:end] * (-1.0 / mu)
            terms -= offset * mu
            ndtr(terms, out=terms)
            terms *= weight
            total[start:end] += terms
        result = np.empty(x.size)
        result[order] = total
        return result


# Both orders of the data sets, and all rates, ask for the same nodes.
@functools.lru_cache(maxsize=64)
def chi_nodes(dimension: int, noise_multiplier: float) -> ChiNodes:
    """Dominate the law of ``mu = sqrt(chi2_p / p) / noise_multiplier`` by a law on nodes.

    Privacy: on a cell [a, b] the law is replaced by one on a, some y and b with the same mass and
    the same means of ``G_k``, k = 0, 1, 2, with derivative ``x^(-2 k) exp(-x^2 / 8)``. It
    dominates: for every real e its mean of ``delta(e; mu)`` is larger. The derivative of delta by
    mu is ``phi(e/mu - mu/2)``, so with ``v = 1/x^2`` the derivative of ``h = delta(e; .) - c - sum
    c_k G_k`` is ``exp(-x^2/8)`` times ``C exp(-e^2 v/2)`` less a quadratic in v. Choose c and c_k
    so that h is 0 at a and b, and at y with its derivative. Then the derivative is 0 at y, between
    a and y, and between y and b, and nowhere else, because an exponential and a quadratic meet at
    most three times. Below the least such v their difference is positive, because the third
    derivative of the exponential is negative. So h rises to 0 at b, and is at most 0 on the cell:
    its mean over the law is at most 0, which is its mean over the nodes. Poisson sampling maps
    delta linearly for removing and adding a row, so the same nodes dominate there. Mass below the
    cells is rounded up.

    Karlin and Studden, "Tchebycheff systems", 1966, Chapter II (upper principal representations).
    """
    half = 0.5 * dimension
    edges = _edges(dimension)
    low, high, widths = edges[:-1], edges[1:], np.diff(edges)
    unit = 1.0 / (8.0 * dimension * noise_multiplier**2)

    def means(lengths: Array) -> Array:
        """Integrate the derivatives of the three G, with v from 0 to 1, from the lower ends on."""
        steps = lengths[..., np.newaxis] * _PLACES
        bottom, top = (ends[:, np.newaxis, np.newaxis] for ends in (low, high))
        v = ((bottom + steps) ** -2 - top**-2) / (bottom**-2 - top**-2)
        terms = _SHARES * np.exp(-unit * steps * (2.0 * bottom + steps))
        return np.stack([lengths * np.sum(terms * v**k, axis=-1) for k in range(3)])

    # The density over that at the lower end, which cancels.
    steps = widths[:, np.newaxis] * _PLACES
    log_density = (dimension - 1) * np.log1p(steps / low[:, np.newaxis])
    log_density -= 0.5 * steps * (2.0 * low[:, np.newaxis] + steps)
    density = _SHARES * np.exp(log_density - log_density.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    wanted = np.sum(density * means(steps), axis=-1)
    whole = means(widths[:, np.newaxis])[..., 0]
    normal = np.cross(whole.T, wanted.T).T
    with np.errstate(all="ignore"):
        lengths = widths * _root(
            lambda share: np.sum(normal * means((widths * share)[:, np.newaxis])[..., 0], axis=0)
        )
        part = means(lengths[:, np.newaxis])[..., 0]
        scale = part[0] * whole[1] - part[1] * whole[0]
        inner = (wanted[0] * whole[1] - wanted[1] * whole[0]) / scale
        outer = (part[0] * wanted[1] - part[1] * wanted[0]) / scale
        solved = np.abs(inner * part[2] + outer * whole[2] - wanted[2]) <= 1e-10 * wanted[2]
        sound = solved & (inner > 0.0) & (outer > 0.0) & (inner + outer < 1.0)
    # Where delta(0) is 1 within rounding, the upper end serves; elsewhere more of it than enough.
    lower = np.where(sound, _LESS * (1.0 - inner - outer), 0.0)
    inner = np.where(sound, _LESS * inner, 0.0)
    masses = _between(half, edges)
    weights = np.zeros(2 * edges.size - 1)
    weights[0:-1:2] += masses * lower
    weights[1::2] = masses * inner
    weights[2::2] += masses * (1.0 - lower - inner)
    weights[0] += float(gammainc(half, 0.5 * float(edges[0]) ** 2))
    nodes = np.empty(weights.size)
    nodes[::2], nodes[1::2] = edges, np.where(sound, low + lengths, high)
    mus = nodes / (math.sqrt(dimension) * noise_multiplier)
    # Doubled, for the omitted tails.
    return ChiNodes(mus, weights, beyond=2.0 * _BEYOND)


def _edges(dimension: int) -> Array:
    """Return the cells of a chi variable: narrow near 0, and not wider than its spread."""
    least = math.sqrt(2.0 * float(gammaincinv(0.5 * dimension, _BELOW)))
    edges, last = [max(least, _LOWEST)], _farthest(dimension)
    while edges[-1] < last:
        edges.append(edges[-1] + min(_GROWTH * edges[-1], _WIDEST))
    return np.array(edges)


def _root(function: Callable[[Array | float], Array]) -> Array:
    """Find the roots of several functions within (0, 1), by the Illinois method."""
    at_one, at_other = function(0.02), function(0.98)
    one, other = np.full(at_one.shape, 0.02), np.full(at_one.shape, 0.98)
    for _ in range(12):
        new = (one * at_other - other * at_one) / (at_other - at_one)
        new = np.where(np.isfinite(new), new, other)
        at_new = function(new)
        stays = at_new * at_other > 0.0
        one, at_one = np.where(stays, one, other), np.where(stays, 0.5 * at_one, at_other)
        other, at_other = new, at_new
    return other


def _farthest(dimension: int) -> float:
    """Upper quantile of a chi variable."""
    return math.sqrt(2.0 * float(gammainccinv(0.5 * dimension, _BEYOND)))


def _reach(tail: Callable[[Array], Array], most: float) -> float:
    """Find a loss, at most ``most``, that is exceeded with a negligible probability."""
    losses = np.linspace(0.0, most, 257)
    exceeded = np.flatnonzero(tail(losses) > _BEYOND)
    return float(losses[min(int(exceeded[-1]) + 1, 256)])


def _between(shape: float, edges: Array) -> Array:
    """Probabilities of half a squared chi variable between squared edges, tails with all digits."""
    halved = 0.5 * edges**2
    below, above = gammainc(shape, halved), gammaincc(shape, halved)
    return np.asarray(np.where(below[:-1] < 0.5, np.diff(below), -np.diff(above)))
