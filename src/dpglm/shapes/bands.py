"""Bands about shapes: of how much a value, or a whole curve, would differ in another fit."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from dpglm.shapes.terms import ValuedTerm
from dpglm.solvers.uncertainty import Doubt
from dpglm.tables.additive.terms import as_dense

__all__ = ["Errors", "half_widths"]

_DRAWS = 20_000
_MOST_JOINT = 200
"""Values up to which their joint law is used; for more, an inequality that holds for any law."""
_ROUNDING = 1e-9
"""Of the largest error: what rounding may leave of one that is zero."""


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
    doubt : Doubt, optional
        By how much errors are larger as matrices were seen through noise; infinite where noise
        hides whether the rows say anything.
    """

    center: NDArray[np.float64]
    covariance: NDArray[np.float64]
    outputs: NDArray[np.float64]
    of_sampling: bool
    degrees_of_freedom: float = math.inf
    doubt: Doubt | None = None

    def band(
        self,
        term: ValuedTerm,
        weights: NDArray[np.float64],
        level: float,
        simultaneous: bool,
        direction: int,
    ) -> NDArray[np.float64]:
        """Return the ends of a term's band, of shape (n_outputs, ..., 2); infinite where unknown.

        The term's values are about their mean by ``weights``. With a ``direction`` of 1 or -1 both
        ends are projected as its curve is: isotonic regression keeps monotone curves and the order
        of any two, so that whatever monotone curve lay between the ends still does.

        Chernozhukov, Fernández-Val and Galichon, "Improving point and interval estimators of
        monotone functions by rearrangement", Biometrika 96 (2009), section 2.
        """
        square = term.features, term.features
        doubt = None if self.doubt is None else self.doubt.mapped(lambda matrix: matrix[square])
        freedom, own = self.degrees_of_freedom, self.covariance[square]
        half = half_widths(term.matrix, weights, own, level, freedom, simultaneous, doubt)
        values = np.asarray(term.matrix @ self.center[:, term.features].T).T
        values = values - (values @ weights)[:, np.newaxis]
        reach = np.multiply.outer(np.sqrt(self.outputs), half)
        ends = np.stack([values - reach, values + reach], axis=-1)
        if direction:
            rising = term.axes[0].order[::direction]
            for own_values, own_ends in zip(values, ends, strict=True):
                # The lower end from the right, with its sign changed, is an upper end as well.
                for sign, side, order in ((1.0, 1, rising), (-1.0, 0, rising[::-1])):
                    end, of = sign * own_ends[order, side], sign * own_values[order]
                    own_ends[order, side] = sign * _projected(end, of)
        return ends.reshape(len(ends), *term.shape, 2)


def _projected(end: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Project upper ends of a band to those of curves that never fall.

    A value whose end is not known is below the ends to the right of it, which it must not exceed.
    """
    from sklearn.isotonic import isotonic_regression

    below = np.minimum.accumulate(end[::-1])[::-1]
    end = np.where(np.isinf(end), np.maximum(below, values), end)
    known = np.isfinite(end)
    if known.any():
        end[known] = isotonic_regression(end[known])
    return end


def half_widths(
    matrix: Any,
    weights: NDArray[np.float64],
    covariance: NDArray[np.float64],
    level: float,
    degrees_of_freedom: float,
    simultaneous: bool,
    doubt: Doubt | None = None,
) -> NDArray[np.float64]:
    """Return half the widths of intervals for ``values - weights @ values``.

    ``values = matrix @ coefficients``, whose errors are normal with ``covariance``. With
    ``simultaneous`` all intervals hold together with probability ``level``; else each does. A curve
    that is linear between its values lies within straight lines between the intervals' ends
    wherever they hold. With ``doubt`` each is longer by a factor of its own, which may be infinite.
    """
    differences = _Differences(matrix, weights)
    errors = np.sqrt(np.maximum(differences.variances(covariance), 0.0))
    errors[errors <= _ROUNDING * errors.max(initial=0.0)] = 0.0
    moves = errors > 0.0
    if not simultaneous:
        critical = _quantile(level, degrees_of_freedom)
    elif differences.dense is None:
        # Šidák (1967): for normal errors of any correlation; for Student's t as well.
        critical = _quantile(level ** (1.0 / len(errors)), degrees_of_freedom)
    else:
        root = differences.dense[moves] @ _root(covariance) / errors[moves, np.newaxis]
        critical = _of_the_largest(root, level, degrees_of_freedom)
    half = critical * errors
    if doubt is not None:
        half[moves] *= doubt.factors(differences.variances, covariance)[moves]
    return half


def _quantile(level: float, degrees_of_freedom: float) -> float:
    return -float(special.stdtrit(degrees_of_freedom, 0.5 * (1.0 - level)))


def _of_the_largest(root: NDArray[np.float64], level: float, degrees_of_freedom: float) -> float:
    """Quantile of the largest studentized error, of errors ``root @ z``; simulated."""
    if not len(root):
        return 0.0
    # The same draws each time: they protect nobody, and a picture must not change by itself.
    random = np.random.default_rng(0)
    z = random.standard_normal((_DRAWS, root.shape[1]))
    largest = np.abs(z @ root.T).max(axis=1)
    if np.isfinite(degrees_of_freedom):
        largest /= np.sqrt(random.chisquare(degrees_of_freedom, _DRAWS) / degrees_of_freedom)
    return float(np.quantile(largest, level))


@final
@dataclass(frozen=True, eq=False)
class _Differences:
    """Rows of a matrix less their mean by weights."""

    matrix: Any
    weights: NDArray[np.float64]

    @functools.cached_property
    def mean(self) -> NDArray[np.float64]:
        return np.asarray(self.weights @ self.matrix)

    @functools.cached_property
    def dense(self) -> NDArray[np.float64] | None:
        """The differences, where they are few."""
        return as_dense(self.matrix) - self.mean if len(self.weights) <= _MOST_JOINT else None

    def variances(self, covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the quadratic form of each difference."""
        if self.dense is not None:
            return np.asarray(np.einsum("ij,ij->i", self.dense @ covariance, self.dense))
        rows, mean = sparse.csr_array(self.matrix), self.mean
        own = np.asarray(rows.multiply(rows @ covariance).sum(axis=1)).ravel()
        return np.asarray(own - 2.0 * (rows @ (covariance @ mean)) + mean @ covariance @ mean)


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a root of a covariance matrix, which rounding may have made slightly indefinite."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
