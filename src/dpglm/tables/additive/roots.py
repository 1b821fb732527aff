"""How the values of a term are correlated before data: what makes fine detail cost what it does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["independent_levels", "smooth_values", "with_level_apart"]

_LEAST_GAP = 1e-6
"""Between knots, so that the covariance of their values has a root."""


def smooth_values(places: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Return a root of the covariance of a curve's values at increasing ``places`` in [0, 1].

    The curve is an Ornstein-Uhlenbeck process, whose values a distance h apart have correlation
    ``exp(-h / reach)``, less its mean over the places. With a small reach values of neighbouring
    knots are almost independent; with one of 1 the process is nearly Brownian motion, which is a
    sum of hats from coarse to fine whose variance halves from level to level (Levy and
    Ciesielski). Beyond that it is the process of reach 1 with ``1 / reach`` of its variance, and a
    random line with the rest: a straight line in the limit. Shape (count, count - 1); columns add
    up to zero, the longest row has length 1; of two places, the ends, it is the linear encoding.
    """
    if len(places) == 2:
        return np.array([[-1.0], [1.0]])
    gaps = np.maximum(np.diff(places), _LEAST_GAP)
    at = np.concatenate([[0.0], np.cumsum(gaps) / gaps.sum()])
    steps = np.abs(np.subtract.outer(at, at))
    # Subtracting 1 changes nothing once rows and columns are centred, and rounds less.
    covariance = np.expm1(-steps / min(reach, 1.0)) if reach else np.eye(len(at))
    if reach > 1.0:
        covariance = covariance / reach + (1.0 - 1.0 / reach) * np.outer(at, at)
    root = _root(covariance)
    longest: float = np.sqrt((root * root).sum(axis=1).max())
    return root / longest


def independent_levels(count: int) -> NDArray[np.float64]:
    """Return a root of the covariance of independent values of variance 1 less their mean.

    Shape (count, count - 1); every row has squared length ``1 - 1 / count``.
    """
    return _root(np.eye(count))


def with_level_apart(root: NDArray[np.float64], place: int) -> NDArray[np.float64]:
    """Return a root with one more value of variance 1 at a place, independent of the others."""
    rows = np.insert(root, place, 0.0, axis=0)
    apart = np.zeros((len(rows), 1))
    apart[place] = 1.0
    return np.hstack([rows, apart])


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a root of a covariance matrix after its values were centred: without their mean.

    That of Cholesky for all values but the last, which is minus their sum: unlike eigenvectors it
    is the same on every machine.
    """
    count = len(covariance)
    center = np.eye(count) - 1.0 / count
    first = np.linalg.cholesky((center @ covariance @ center)[:-1, :-1])
    return np.vstack([first, -first.sum(axis=0)])
