"""Clipping of row gradients: scale factors from gradient norms."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import cast, final

import numpy as np

from dpglm._validation import check_real, finite, namespace
from dpglm.data.rows import Floats
from dpglm.problem.links import over_classes


class Clipping(abc.ABC):
    """A rule that bounds the L2 norm of every row's gradient."""

    bound: float
    """No clipped gradient is longer than this."""

    @abc.abstractmethod
    def factor(self, norms: Floats) -> Floats:
        """Scale factors for gradients of these norms; may overwrite ``norms``."""

    def scale(self, slopes: Floats, row_norms: Floats) -> Floats:
        """Scale slopes so that no slope times its row is longer than ``bound``; in place.

        Parameters
        ----------
        slopes : array of shape (rows,) or (rows, outputs)
            Finite slopes; NumPy's or a tensor.
        row_norms : array of shape (rows,)
            Bounds on the norms of the rows.

        Returns
        -------
        array, shape of slopes

        Notes
        -----
        Privacy: lengths and factors are computed in float64, whatever the types of slopes and
        rows are. A length that overflows there has the factor 0, and a scaled slope that
        overflows in its own type counts as zero.
        """
        factors = self.factor(self._sizes(slopes) * row_norms)
        limits = namespace(slopes).finfo(slopes.dtype)
        # Below the normal range a factor lacks the precision that the bound rests on; NaN comes
        # from a bound that underflowed.
        factors[~(factors >= float(limits.tiny))] = 0.0
        factors[factors > float(limits.max)] = float(limits.max)
        factors = namespace(slopes).asarray(factors, dtype=slopes.dtype)
        slopes *= factors if slopes.ndim == 1 else factors[:, np.newaxis]
        if (factors > 1.0).any():
            slopes = finite(slopes)
        return slopes

    def _sizes(self, slopes: Floats) -> Floats:
        """Return bounds on the L2 norms of slopes, which determine the factors."""
        return _in_float64(_lengths(slopes))


@final
@dataclass(frozen=True)
class FlatClipping(Clipping):
    """Scale a gradient down to ``bound`` if it is longer.

    Parameters
    ----------
    bound : float
        Clipping threshold ``C``, above 0.

    References
    ----------
    Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1. For scalar
    convex GLMs it minimises the loss of Song et al. 2021, Lemma 5.1: see
    ``dpglm.problem.ClippedLoss``.
    """

    bound: float

    def __post_init__(self) -> None:
        check_real("clip", self.bound, above=0.0)

    def factor(self, norms: Floats) -> Floats:
        xp, bound = namespace(norms), float(self.bound)
        xp.maximum(norms, bound, out=norms)
        factors: Floats = xp.divide(bound, norms, out=norms)
        return factors

    def scale(self, slopes: Floats, row_norms: Floats) -> Floats:
        if slopes.ndim > 1:
            return super().scale(slopes, row_norms)
        # The same thing in half as many passes over memory. The quotient is float64: in float32
        # it may be infinite for a slope in float64 that is longer. Rounded to the slopes' own type
        # it is infinite only where every slope of that type is shorter.
        xp = namespace(slopes)
        limits = xp.divide(float(self.bound), _in_float64(row_norms))
        limits = xp.asarray(limits, dtype=slopes.dtype)
        xp.minimum(slopes, limits, out=slopes)
        xp.negative(limits, out=limits)
        clipped: Floats = xp.maximum(slopes, limits, out=slopes)
        return clipped


@final
@dataclass(frozen=True)
class AutomaticClipping(Clipping):
    """Scale every gradient ``g`` to ``bound * g / (|g| + stability)``.

    Parameters
    ----------
    bound : float, default=1.0
        Length that long gradients approach, above 0.
    stability : float, default=0.01
        The constant ``gamma``, in units of ``bound``, above 0.

    References
    ----------
    Bu, Wang, Zha and Karypis, "Automatic clipping", NeurIPS 2023, equation (5).
    """

    bound: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        check_real("clip", self.bound, above=0.0)
        check_real("stability", self.stability, above=0.0)

    def factor(self, norms: Floats) -> Floats:
        norms += float(self.stability * self.bound)
        factors: Floats = namespace(norms).divide(float(self.bound), norms, out=norms)
        return factors


@final
@dataclass(frozen=True)
class BalancedClipping(Clipping):
    """Scale logistic gradients by a factor that is the same for both targets of a row.

    The factor is that of ``FlatClipping`` for the larger of the two gradients. It depends on the
    row and the parameter alone, so the expected gradient at the true parameter of a right model is
    zero. Flat clipping shortens the gradients of unlikely targets only, which biases scores.

    Parameters
    ----------
    bound : float
        Clipping threshold ``C``, above 0.

    References
    ----------
    Mallows' weights: Künsch, Stefanski and Carroll, "Conditionally unbiased bounded-influence
    estimation in general regression models", JASA 84 (1989).
    """

    bound: float

    def __post_init__(self) -> None:
        check_real("clip", self.bound, above=0.0)

    def factor(self, norms: Floats) -> Floats:
        return FlatClipping(self.bound).factor(norms)

    def _sizes(self, slopes: Floats) -> Floats:
        # The slopes of the two targets differ by 1.
        sizes = super()._sizes(slopes)
        larger: Floats = namespace(sizes).maximum(sizes, 1.0 - sizes)
        return larger


def _lengths(slopes: Floats) -> Floats:
    xp = namespace(slopes)
    if slopes.ndim == 1:
        return abs(slopes)
    squares = over_classes((slopes * slopes).T)
    # Covers squares that underflowed.
    squares += slopes.shape[1] * float(xp.finfo(slopes.dtype).tiny)
    return cast("Floats", xp.sqrt(squares))


def _in_float64(values: Floats) -> Floats:
    xp = namespace(values)
    exact: Floats = xp.asarray(values, dtype=xp.float64)
    return exact
