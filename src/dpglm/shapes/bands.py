"""Bands about shapes: of how much a value, or a whole curve, would differ in another fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from dpglm.tables.additive.terms import as_dense

__all__ = ["half_widths"]

_DRAWS = 20_000
_MOST_JOINT = 200
"""Values up to which their joint law is used; for more, an inequality that holds for any law."""


def half_widths(
    matrix: Any,
    weights: NDArray[np.float64],
    covariance: NDArray[np.float64],
    level: float,
    degrees_of_freedom: float,
    simultaneous: bool,
) -> NDArray[np.float64]:
    """Return half the widths of intervals for ``values - weights @ values``.

    ``values = matrix @ coefficients``, whose errors are normal with ``covariance``, of shape
    (p, p), or (p,) where they are independent. With ``simultaneous`` all intervals hold together
    with probability ``level``; else each does. A curve that is linear between its values lies
    within straight lines between the intervals' ends wherever they hold.
    """
    mean = np.asarray(weights @ matrix)
    if len(weights) > _MOST_JOINT:
        errors: NDArray[np.float64] = np.sqrt(np.maximum(_variances(matrix, mean, covariance), 0.0))
        # Šidák (1967): for normal errors of any correlation; for Student's t as well.
        each = level ** (1.0 / len(errors)) if simultaneous else level
        return errors * _quantile(each, degrees_of_freedom)
    centred = as_dense(matrix) - mean
    is_diagonal = covariance.ndim == 1
    root = centred * np.sqrt(covariance) if is_diagonal else centred @ _root(covariance)
    errors = np.linalg.norm(root, axis=1)
    if not simultaneous:
        return errors * _quantile(level, degrees_of_freedom)
    return errors * _of_the_largest(root, errors, level, degrees_of_freedom)


def _quantile(level: float, degrees_of_freedom: float) -> float:
    return -float(special.stdtrit(degrees_of_freedom, 0.5 * (1.0 - level)))


def _of_the_largest(
    root: NDArray[np.float64],
    errors: NDArray[np.float64],
    level: float,
    degrees_of_freedom: float,
) -> float:
    """Quantile of the largest studentized error, of errors ``root @ z``; simulated."""
    moves = errors > 1e-9 * errors.max(initial=0.0)
    if not moves.any():
        return 0.0
    # The same draws each time: they protect nobody, and a picture must not change by itself.
    random = np.random.default_rng(0)
    z = random.standard_normal((_DRAWS, root.shape[1]))
    largest = np.abs(z @ (root[moves] / errors[moves, np.newaxis]).T).max(axis=1)
    if np.isfinite(degrees_of_freedom):
        largest /= np.sqrt(random.chisquare(degrees_of_freedom, _DRAWS) / degrees_of_freedom)
    return float(np.quantile(largest, level))


def _variances(
    matrix: Any, mean: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    rows = sparse.csr_array(matrix)
    if covariance.ndim == 1:
        own = rows.power(2) @ covariance
        return np.asarray(own - 2.0 * (rows @ (covariance * mean)) + covariance @ mean**2)
    own = np.asarray(rows.multiply(rows @ covariance).sum(axis=1)).ravel()
    return np.asarray(own - 2.0 * (rows @ (covariance @ mean)) + mean @ covariance @ mean)


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a root of a covariance matrix, which rounding may have made slightly indefinite."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
