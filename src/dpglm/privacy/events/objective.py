"""Exact minimisers of objectives with a random linear term."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from dpglm._words import each, plain_number, times
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events.base import (
    REACH,
    Array,
    LossLaw,
    NoiseEvent,
    Tails,
)

# The tail of the variable of two rows: see ``_plane_law``.
_BEND, _DECAY = math.sqrt(3.0), 4.0
_STEP = math.exp(-1.5) - 2.0 * float(ndtr(-_BEND))
_ROOT_2PI = math.sqrt(2.0 * math.pi)
# exp(36^2 / 2) is a float, with room for its factors.
_LARGEST_TILT = 36.0


@final
@dataclass(frozen=True)
class PerturbedObjective(NoiseEvent):
    """Release of the exact minimiser of a GLM's objective with a random linear term.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the linear term over the sensitivity of the gradient sum (the
        bound L on a row's gradient, or 2 L under replace-one); from 1e-50 to 1e50.
    curvature_ratio : float
        Bound on one row's curvature over the strength of the quadratic penalty on all
        coefficients; from 1e-50 to 1e50.

    Notes
    -----
    Privacy: the release is ``argmin_w sum_i l_i(<w, x_i>) + lambda/2 |w|^2 + <b, w>`` with ``b ~
    N(0, sigma^2 I)``, convex Lipschitz ``l_i``, one output, and no constraint. Other convex terms
    must be twice differentiable and free of private data. An approximate minimiser needs additional
    noise with an event of its own.

    Let D have the row (x, l) and D' not, let ``s = L/sigma``, and let w be drawn under D.
    ``w -> b`` is one to one, with Jacobian ``A + l'' x x^T`` for D and A for D', where
    ``A >= lambda I``; and ``b' = b + l' x``. So ``log p_D(w)/p_D'(w)`` is
    ``log(1 + l'' x^T A^-1 x)``, in ``[0, log(1 + ratio)]``, plus
    ``(|b'|^2 - |b|^2)/(2 sigma^2) = l' <b, x>/sigma^2 + |l' x|^2/(2 sigma^2)``, at most
    ``s |u| + s^2/2`` with ``u = <b, x>/(sigma |x|)`` standard normal. With the data sets
    swapped the first term is at most 0, the second as before. So the loss is at most
    ``c + s^2/2 + s |u|`` with ``c = log(1 + ratio)`` or 0; delta grows with the loss.

    Under replace-one ``b' - b`` lies in the plane of the two rows, with ``|b' - b| <= 2 L``, and
    ``c`` is the same in both orders. The tail of the variable in place of ``|u|`` is then at most
    ``exp(-v^2/2)``, and ``2 Phi(-v)`` for ``v^2 >= 3``: see the page of proofs.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
    JMLR 2011, Section 3.3. Redberg, Koskela and Wang, "Improving the privacy and practicality
    of objective perturbation", NeurIPS 2023, Theorem 3.2, with ``log(1 + ratio)`` in place of
    ``-log(1 - ratio)``.
    """

    curvature_ratio: float

    type_name = "objective_perturbation"

    @property
    def _shift(self) -> float:
        return math.log1p(self.curvature_ratio)

    @property
    def _slope(self) -> float:
        return 1.0 / self.noise_multiplier

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        if adjacency is Adjacency.REPLACE_ONE:
            law = _plane_law(self._shift, self._slope)
            return law, law
        return _line_law(self._shift, self._slope), _line_law(0.0, self._slope)

    def variance(self) -> float:
        return 0.36 * self._slope**2

    def span(self) -> float:
        return 13.0 * self._slope

    def divergence(self, excess: Array, adjacency: Adjacency) -> Array:
        constant, tilt = self._shift + 0.5 * self._slope**2, self._slope * excess
        if adjacency is not Adjacency.REPLACE_ONE:
            moment = math.log(2.0) + 0.5 * tilt**2 + log_ndtr(tilt)
            return np.asarray(constant + moment / excess)
        w = np.minimum(tilt, _LARGEST_TILT)
        parts = (
            _moment(w, 0.0, 1.0),
            -_moment(w, _BEND, 1.0),
            2.0 / _ROOT_2PI * _normal(w, _BEND, 1.0),
            _STEP * math.exp(0.5 * _DECAY * _BEND**2) * _moment(w, _BEND, _DECAY),
        )
        divergence = constant + np.log(np.sum(parts, axis=0)) / excess
        return np.where(tilt <= _LARGEST_TILT, divergence, np.inf)

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        return (
            f"{times(count, 'minimiser')} of an objective with a random linear term, {each(count)} "
            f"Gaussian noise of {noise} times the sensitivity of the gradient, and a "
            f"quadratic penalty of {plain_number(1.0 / self.curvature_ratio)} times one row's "
            "curvature"
        )


def _line_law(shift: float, slope: float) -> LossLaw:
    """Loss ``shift + slope^2/2 + slope |u|`` with standard normal u under P.

    Privacy: Q has the density ``exp(-loss)`` times that of P. Its missing mass has a loss of minus
    infinity and adds nothing to delta.
    """
    least = shift + 0.5 * slope * slope

    def tails(t: Array) -> Tails:
        u = np.maximum((t - least) / slope, 0.0)
        p = np.where(t < least, 1.0, 2.0 * ndtr(-u))
        return p, 2.0 * math.exp(-shift) * ndtr(-u - slope)

    return LossLaw(tails, low=least, high=least + REACH * slope)


def _plane_law(shift: float, slope: float) -> LossLaw:
    """Loss ``shift + slope^2/2 + slope V`` with the V of two rows in one plane.

    Privacy: ``P(V > v)`` is ``exp(-v^2/2)`` up to ``a = sqrt(3)``, then ``2 Phi(-v)`` plus
    ``(exp(-a^2/2) - 2 Phi(-a)) exp(-2 (v^2 - a^2))``. The second term bridges the step at a, so
    that there is a density; it is 1e-17 at v = 5.
    """
    least = shift + 0.5 * slope * slope
    # Exponential factors of the two Gaussian integrals that follow are joined before exp.
    factor, bend = math.exp(-shift), _BEND

    def steep(v: Array, decay: float) -> Array:
        """Integral of ``decay x exp(-decay x^2/2 - slope x - slope^2/2)`` from v on."""
        root = math.sqrt(decay)
        at_v = np.exp(-0.5 * decay * v * v - slope * v - 0.5 * slope * slope)
        normal = ndtr(-(root * v + slope / root)) * math.exp(0.5 * slope**2 * (1.0 / decay - 1.0))
        return np.asarray(at_v - slope * _ROOT_2PI / root * normal)

    def tails(t: Array) -> Tails:
        v = np.maximum((t - least) / slope, 0.0)
        far = np.maximum(v, bend)
        beyond = 2.0 * ndtr(-far) + _STEP * np.exp(0.5 * _DECAY * (bend**2 - far**2))
        p = np.where(v < bend, np.exp(-0.5 * v * v), beyond)
        scale = _STEP * math.exp(0.5 * _DECAY * bend**2)
        beyond = 2.0 * ndtr(-(far + slope)) + scale * steep(far, _DECAY)
        near = steep(np.minimum(v, bend), 1.0) - steep(np.full_like(v, bend), 1.0)
        return p, factor * (beyond + near)

    return LossLaw(tails, low=least, high=least + REACH * slope)


def _normal(w: Array, v: float, decay: float) -> Array:
    """Integral of ``exp(w x - decay x^2/2)`` from v on."""
    front = math.sqrt(0.5 * math.pi / decay) * np.exp(w * v - 0.5 * decay * v * v)
    return np.asarray(front * erfcx((decay * v - w) / math.sqrt(2.0 * decay)))


def _moment(w: Array, v: float, decay: float) -> Array:
    """Integral of ``decay x exp(w x - decay x^2/2)`` from v on."""
    return np.asarray(np.exp(w * v - 0.5 * decay * v * v) + w * _normal(w, v, decay))
