"""Bands about shapes: of how much a value, or a whole curve, would differ in another fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from dpglm.shapes.terms import ValuedTerm
from dpglm.tables.additive.terms import as_dense

__all__ = ["Errors", "half_widths"]

_DRAWS = 20_000
_MOST_JOINT = 200
"""Values up to which their joint law is used; for more, an inequality that holds for any law."""


@final
@dataclass(frozen=True, eq=False)
class Errors:
    """What is known of the errors of a model's coefficients: normal, with a covariance.

    Parameters
    ----------
    center : ndarray of shape (n_outputs, n_features)
        The coefficients that have these errors: before curves were made monotone.
    covariance : ndarray of shape (n_features, n_features)
        Of an output whose factor is 1.
    outputs : ndarray of shape (n_outputs,)
        For each output what its variances are in units of these.
    of_sampling : bool
        Whether the sampling of rows counts, and not privacy noise alone.
    degrees_of_freedom : float, default=inf
        Those of Student's t distribution, from which critical values are taken.
    """

    center: NDArray[np.float64]
    covariance: NDArray[np.float64]
    outputs: NDArray[np.float64]
    of_sampling: bool
    degrees_of_freedom: float = math.inf

    def band(
        self,
        term: ValuedTerm,
        weights: NDArray[np.float64],
        level: float,
        simultaneous: bool,
        direction: int,
    ) -> NDArray[np.float64]:
        """Return the ends of a term's band, of shape (n_outputs, ..., 2).

        The term's values are about their mean by ``weights``. With a ``direction`` of 1 or -1 both
        ends are projected as its curve is: isotonic regression keeps monotone curves and the order
        of any two, so that whatever monotone curve lay between the ends still does.

        Chernozhukov, Fernández-Val and Galichon, "Improving point and interval estimators of
        monotone functions by rearrangement", Biometrika 96 (2009), section 2.
        """
        own = self.covariance[term.features, term.features]
        freedom = self.degrees_of_freedom
        half = half_widths(term.matrix, weights, own, level, freedom, simultaneous)
        values = np.asarray(term.matrix @ self.center[:, term.features].T).T
        values = values - (values @ weights)[:, np.newaxis]
        reach = np.multiply.outer(np.sqrt(self.outputs), half)
        ends = np.stack([values - reach, values + reach], axis=-1)
        if direction:
            from sklearn.isotonic import isotonic_regression

            order = term.axes[0].order
            for output, end in np.ndindex(len(ends), 2):
                ends[output, order, end] = isotonic_regression(
                    ends[output, order, end], increasing=direction > 0
                )
        return ends.reshape(len(ends), *term.shape, 2)


def half_widths(
    matrix: Any,
    weights: NDArray[np.float64],
    covariance: NDArray[np.float64],
    level: float,
    degrees_of_freedom: float,
    simultaneous: bool,
) -> NDArray[np.float64]:
    """Return half the widths of intervals for ``values - weights @ values``.

    ``values = matrix @ coefficients``, whose errors are normal with ``covariance``. With
    ``simultaneous`` all intervals hold together with probability ``level``; else each does. A curve
    that is linear between its values lies within straight lines between the intervals' ends
    wherever they hold.
    """
    mean = np.asarray(weights @ matrix)
    if len(weights) > _MOST_JOINT:
        errors: NDArray[np.float64] = np.sqrt(np.maximum(_variances(matrix, mean, covariance), 0.0))
        # Šidák (1967): for normal errors of any correlation; for Student's t as well.
        each = level ** (1.0 / len(errors)) if simultaneous else level
        return errors * _quantile(each, degrees_of_freedom)
    root = (as_dense(matrix) - mean) @ _root(covariance)
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
    own = np.asarray(rows.multiply(rows @ covariance).sum(axis=1)).ravel()
    return np.asarray(own - 2.0 * (rows @ (covariance @ mean)) + mean @ covariance @ mean)


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a root of a covariance matrix, which rounding may have made slightly indefinite."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
