"""Clipping: how a row's gradient norm becomes the factor by which the row is scaled."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import check_real
from dpglm.data.rows import Floats

__all__ = ["AutomaticClipping", "Clipping", "FlatClipping"]


class Clipping(abc.ABC):
    """A rule that bounds the L2 norm of every row's gradient."""

    bound: float
    """No clipped gradient is longer than this."""

    @abc.abstractmethod
    def factor(self, norms: Floats) -> Floats:
        """Factors by which gradients of these norms are scaled; may overwrite ``norms``."""

    def scale(self, slopes: Floats, row_norms: Floats) -> Floats:
        """Scale slopes so that no slope times its row is longer than ``bound``; in place.

        Parameters
        ----------
        slopes : ndarray of shape (rows,) or (rows, outputs)
            Finite slopes.
        row_norms : ndarray of shape (rows,)
            Bounds on the norms of the rows.

        Returns
        -------
        ndarray, shape of slopes
        """
        factors = self.factor(_lengths(slopes) * row_norms)
        # Below the normal range a factor has lost the precision that the bound counts on.
        factors[factors < np.finfo(factors.dtype).tiny] = 0.0
        slopes *= factors if slopes.ndim == 1 else factors[:, np.newaxis]
        return slopes


@final
@dataclass(frozen=True)
class FlatClipping(Clipping):
    """Scale a gradient down to ``bound`` if it is longer.

    Parameters
    ----------
    bound : float
        Clip norm ``C``, above 0.

    References
    ----------
    Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1. For scalar
    convex GLMs it minimises the loss of Song et al. 2021, Lemma 5.1: see
    ``dpglm.problem.ClippedLoss``.

    Examples
    --------
    >>> FlatClipping(1.0).factor(np.array([0.5, 4.0]))
    array([1.  , 0.25])
    """

    bound: float

    def __post_init__(self) -> None:
        check_real("clip", self.bound, above=0.0)

    def factor(self, norms: Floats) -> Floats:
        bound = norms.dtype.type(self.bound)
        np.maximum(norms, bound, out=norms)
        return np.divide(bound, norms, out=norms)

    def scale(self, slopes: Floats, row_norms: Floats) -> Floats:
        if slopes.ndim > 1:
            return super().scale(slopes, row_norms)
        # The same thing in half as many passes over memory.
        limits = np.divide(slopes.dtype.type(self.bound), row_norms)
        np.minimum(slopes, limits, out=slopes)
        np.negative(limits, out=limits)
        return np.maximum(slopes, limits, out=slopes)


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

    Examples
    --------
    >>> AutomaticClipping(1.0, stability=0.5).factor(np.array([0.5, 1.5]))
    array([1. , 0.5])
    """

    bound: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        check_real("clip", self.bound, above=0.0)
        check_real("stability", self.stability, above=0.0)

    def factor(self, norms: Floats) -> Floats:
        norms += norms.dtype.type(self.stability * self.bound)
        return np.divide(norms.dtype.type(self.bound), norms, out=norms)


def _lengths(slopes: Floats) -> Floats:
    if slopes.ndim == 1:
        return np.abs(slopes)
    squares: Floats = np.einsum("ij,ij->i", slopes, slopes)
    # At least what squares that underflowed may have added.
    squares += slopes.dtype.type(slopes.shape[1]) * np.finfo(slopes.dtype).tiny
    return np.sqrt(squares)
