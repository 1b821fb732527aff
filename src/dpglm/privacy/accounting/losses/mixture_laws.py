"""Privacy losses of objective perturbation and of releases after a random projection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf, erfc, gammainc, gammaincc, gammainccinv, gammaincinv, gammaln, ndtr

from dpglm.privacy.accounting.losses.laws import (
    REACH,
    Array,
    LossLaw,
    Tails,
    sampled_loss,
    sampled_position,
)

__all__ = [
    "PLANE_BEND",
    "PLANE_DECAY",
    "PLANE_STEP",
    "ChiNodes",
    "chi_nodes",
    "line_law",
    "plane_law",
    "projected_law",
    "sampled_projected_laws",
]

# The tail of the plane's variable: see ``plane_law``.
PLANE_BEND = math.sqrt(3.0)
PLANE_DECAY = 4.0
PLANE_STEP = math.exp(-1.5) - 2.0 * float(ndtr(-PLANE_BEND))

_ROOT_2PI = math.sqrt(2.0 * math.pi)
# Distance of the nodes of a chi variable over its root mean square, and at most.
_SPACING, _WIDEST, _FEWEST_CELLS = 0.03, 0.1, 16
_BELOW, _BEYOND = 1e-9, 1e-30
# Phi of the first is 1 in floating point, Phi of minus the second is below 1e-38.
_CERTAIN, _NEVER = 8.5, 13.0


def line_law(shift: float, slope: float, count: int) -> LossLaw:
    """Loss ``shift + slope^2/2 + slope |u|`` with standard normal u under P.

    Notes
    -----
    Privacy: Q has the density ``exp(-loss)`` times that of P. What is missing from its total
    mass has a loss of minus infinity and adds nothing to delta.
    """
    least = shift + 0.5 * slope * slope

    def tails(t: Array) -> Tails:
        u = np.maximum((t - least) / slope, 0.0)
        p = np.where(t < least, 1.0, 2.0 * ndtr(-u))
        return p, 2.0 * math.exp(-shift) * ndtr(-u - slope)

    return LossLaw(
        tails,
        low=least,
        high=least + REACH * slope,
        count=count,
    )


def plane_law(shift: float, slope: float, count: int) -> LossLaw:
    """Loss ``shift + slope^2/2 + slope V`` with the V of two rows in one plane.

    Notes
    -----
    Privacy: ``P(V > v)`` is ``exp(-v^2/2)`` up to ``a = sqrt(3)``, then ``2 Phi(-v)`` plus
    ``(exp(-a^2/2) - 2 Phi(-a)) exp(-2 (v^2 - a^2))``. The second term bridges the step at a, so
    that there is a density; it is 1e-17 at v = 5.
    """
    least = shift + 0.5 * slope * slope
    # Exponential factors of the two Gaussian integrals that follow are joined before exp.
    factor, bend = math.exp(-shift), PLANE_BEND

    def steep(v: Array, decay: float) -> Array:
        """Integral of ``decay x exp(-decay x^2/2 - slope x - slope^2/2)`` from v on."""
        root = math.sqrt(decay)
        at_v = np.exp(-0.5 * decay * v * v - slope * v - 0.5 * slope * slope)
        normal = ndtr(-(root * v + slope / root)) * math.exp(0.5 * slope**2 * (1.0 / decay - 1.0))
        return np.asarray(at_v - slope * _ROOT_2PI / root * normal)

    def tails(t: Array) -> Tails:
        v = np.maximum((t - least) / slope, 0.0)
        far = np.maximum(v, bend)
        beyond = 2.0 * ndtr(-far) + PLANE_STEP * np.exp(0.5 * PLANE_DECAY * (bend**2 - far**2))
        p = np.where(v < bend, np.exp(-0.5 * v * v), beyond)
        scale = PLANE_STEP * math.exp(0.5 * PLANE_DECAY * bend**2)
        beyond = 2.0 * ndtr(-(far + slope)) + scale * steep(far, PLANE_DECAY)
        near = steep(np.minimum(v, bend), 1.0) - steep(np.full_like(v, bend), 1.0)
        return p, factor * (beyond + near)

    return LossLaw(tails, low=least, high=least + REACH * slope, count=count)


@dataclass(frozen=True)
class ChiNodes:
    """A law on few points that dominates that of a Gaussian mechanism's random mu.

    Parameters
    ----------
    mus : ndarray of shape (k,)
        Increasing, above 0.
    weights : ndarray of shape (k,)
        Their probabilities; with ``beyond`` they add up to 1.
    beyond : float
        Probability of a larger mu, to be counted as an infinite loss.
    """

    mus: Array
    weights: Array
    beyond: float

    def mean_tail(self, x: Array, offset: float) -> Array:
        """Mean of ``Phi(-x/mu - offset mu)``; what is below 1e-38 counts as 0.

        Parameters
        ----------
        x : ndarray of shape (n,)
            Values, infinite ones too.
        offset : float
            Any.
        """
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


def chi_nodes(dimension: int, noise_multiplier: float) -> ChiNodes:
    """Spread the law of ``mu = sqrt(chi2_p / p) / noise_multiplier`` over nodes.

    Parameters
    ----------
    dimension : int
        p, at least 1.
    noise_multiplier : float
        Above 0.

    Returns
    -------
    ChiNodes

    Notes
    -----
    Privacy: a public choice between ``mu_0`` and ``mu_1``, the latter with probability w,
    dominates every mu in between if ``w delta(e; mu_1) + (1 - w) delta(e; mu_0) >= delta(e; mu)``
    for all real e. The derivative of delta by mu is ``phi(e/mu - mu/2)``, and
    ``phi(e/x - x/2)`` over ``phi(x/2)`` grows with x for every e, so e = 0 asks for the largest
    w: ``w = (F(mu) - F(mu_0)) / (F(mu_1) - F(mu_0))`` with ``F(x) = delta(0; x) =
    erf(x / sqrt(8))``. For a random mu in the cell the mean of F serves, and F of the mean of
    mu is more, F being concave. Poisson sampling maps ``delta`` linearly, for both orders, so
    the same nodes dominate there. The lowest cell is rounded up.
    """
    half = 0.5 * dimension
    root = math.sqrt(dimension)
    edges = _edges(dimension)
    first = float(edges[0])
    masses = _between(half, edges)
    mean_chi = math.exp(0.5 * math.log(2.0) + float(gammaln(half + 0.5) - gammaln(half)))
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(masses > 0.0, mean_chi * _between(half + 0.5, edges) / masses, edges[1:])
    means = np.clip(means * (1.0 + 1e-12), edges[:-1], edges[1:])
    unit = 1.0 / (math.sqrt(8.0 * dimension) * noise_multiplier)
    gaps = _erf_gap(unit * edges[:-1], unit * edges[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = _erf_gap(unit * edges[:-1], unit * means) / gaps
    # Where delta(0) is 1 at both ends of a cell, the upper end serves.
    upper = masses * np.where(np.isnan(share), 1.0, np.minimum(share * (1.0 + 1e-9), 1.0))
    weights = np.zeros(edges.size)
    weights[1:] += upper
    weights[:-1] += masses - upper
    weights[0] += float(gammainc(half, 0.5 * first**2))
    # Twice: the second time for what tails leave out.
    return ChiNodes(edges / (root * noise_multiplier), weights, beyond=2.0 * _BEYOND)


def projected_law(dimension: int, noise_multiplier: float, count: int) -> LossLaw:
    """P and Q are a mu apart as in ``gaussian_law``, mu at random as in ``chi_nodes``."""
    nodes = chi_nodes(dimension, noise_multiplier)

    def tail(t: Array, side: float) -> Array:
        return nodes.mean_tail(t, -0.5 * side)

    largest = float(nodes.mus[-1])
    most = _reach(lambda t: tail(t, 1.0), 0.5 * largest**2 + REACH * largest)
    return LossLaw(
        tails=lambda t: (tail(t, 1.0) + nodes.beyond, tail(t, -1.0)),
        low=-most,
        high=most,
        count=count,
        roundings=4 + nodes.mus.size,
    )


def sampled_projected_laws(
    rate: float, dimension: int, noise_multiplier: float, count: int
) -> tuple[LossLaw, LossLaw]:
    """``remove_law`` and ``add_law`` with ``sigma = 1/mu``, mu at random as in ``chi_nodes``."""
    nodes = chi_nodes(dimension, noise_multiplier)
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
        LossLaw(removing, low=least, high=most, count=count, roundings=roundings),
        LossLaw(adding, low=-most, high=-least, count=count, roundings=roundings),
    )


def _edges(dimension: int) -> Array:
    """Where to put the nodes of a chi variable: close together in the bulk, less so beyond."""
    half, root = 0.5 * dimension, math.sqrt(dimension)
    spacing = min(_SPACING * root, _WIDEST)
    first = max(spacing, math.sqrt(2.0 * float(gammaincinv(half, _BELOW))))
    last = math.sqrt(2.0 * float(gammainccinv(half, _BEYOND)))
    bend = min(root + 3.0, last)
    near = max(_FEWEST_CELLS, math.ceil((bend - first) / spacing))
    far = max(_FEWEST_CELLS, math.ceil((last - bend) / (3.0 * spacing)))
    edges = (np.linspace(first, bend, near + 1), np.linspace(bend, last, far + 1)[1:])
    return np.concatenate(edges)


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


def _erf_gap(low: Array, high: Array) -> Array:
    """``erf(high) - erf(low)`` without cancellation near 1."""
    return np.asarray(np.where(low < 0.5, erf(high) - erf(low), erfc(low) - erfc(high)))
