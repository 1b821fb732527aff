"""Post-processing of released curves: monotone projection and shrinkage of bends."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import in_one_line
from dpglm.tables.additive_terms import Term
from dpglm.tables.schema import Schema

Directions: TypeAlias = Mapping[str, int]
"""Direction of the score by column: 1 if it must not fall, -1 if it must not rise."""


def read_directions(monotone: Any, schema: Schema) -> Directions:
    """Check the parameter ``monotone``: ordered columns by name, without interactions."""
    directions: Any = {} if monotone is None else monotone
    known = isinstance(directions, Mapping) and all(
        not isinstance(one, bool) and isinstance(one, numbers.Integral) and one in (-1, 1)
        for one in directions.values()
    )
    if not known:
        raise ValueError(
            "monotone must be a mapping from columns to 1 or -1, such as {'age': 1}, got "
            f"{in_one_line(monotone)}"
        )
    terms = schema.additive_encoding.terms
    curves = {one.name for one in terms if len(one.axes) == 1 and one.axes[0].line is not None}
    paired = {name for term in terms if len(term.axes) > 1 for name in term.columns}
    for name in directions:
        if name not in curves or name in paired:
            raise ValueError(
                "monotone must name numeric or ordered columns that are in no interaction, "
                f"{sorted(curves - paired)}, got {name!r}"
            )
    return {name: int(direction) for name, direction in directions.items()}


def projected(
    coef: NDArray[np.float64], directions: Directions, schema: Schema
) -> NDArray[np.float64]:
    """Return coefficients with each curve projected onto monotone ones by isotonic regression.

    The projection keeps the mean over the knots, which is zero, so the intercept stays. Between
    knots a curve is linear in an increasing function, hence monotone as well.
    """
    from sklearn.isotonic import isotonic_regression

    nearest = np.array(coef, copy=True)
    by_name = {term.name: term for term in schema.additive_encoding.terms}
    for name, direction in directions.items():
        term = by_name[name]
        curve, own = term.axes[0].curve, nearest[..., term.features]
        # The feature of missing values, if any, comes last.
        count = curve.shape[1]
        values = isotonic_regression(curve @ own.ravel()[:count], increasing=direction > 0)
        own[..., :count] = np.linalg.lstsq(curve, values, rcond=None)[0]
    return nearest


# Shrinkage of bends according to their signal-to-noise ratio.

_MOST_ROUNDS, _TOLERANCE, _LEAST, _TINY = 100, 1e-3, 1e-10, 1e-200


def shrunk_bends(
    w: NDArray[np.float64], precision: NDArray[np.float64], schema: Schema
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Shrink nonlinear components of curves, and interactions, towards zero.

    The prior of the nonlinear coefficients of each term is normal with mean zero and a variance per
    term; intercept, slopes and levels have a flat prior. The variances maximise the evidence
    (MacKay, "Bayesian interpolation", Neural Computation 4, 1992, by his fixed point), so
    components below the noise level vanish and clear ones stay. Privacy: post-processing.

    Parameters
    ----------
    w : ndarray of shape (n_features + 1,)
        Coefficients, intercept last.
    precision : ndarray of shape (n_features + 1, n_features + 1)
        Inverse covariance of their errors.
    schema : Schema
        Its ``additive_encoding`` assigns features to terms.

    Returns
    -------
    w : ndarray of shape (n_features + 1,)
        Shrunk coefficients, ``kept @ w``.
    kept : ndarray of shape (n_features + 1, n_features + 1)
        Shares that are kept: the shrinkage with these variances.
    slopes : ndarray of shape (n_features + 1, n_features + 1)
        Their derivatives with respect to ``w``, through the variances as well: they propagate
        noise.
    """
    same = np.eye(len(w))
    unchanged = w, same, same
    blocks = [one for term in schema.additive_encoding.terms if (one := _bends(term, len(w))).size]
    if not blocks:
        return unchanged
    bends = np.hstack(blocks)
    # An orthonormal basis of the coefficients, bends first.
    basis = np.linalg.qr(bends, mode="complete")[0]
    k = bends.shape[1]
    basis[:, :k] = bends
    turned = basis.T @ precision @ basis
    try:
        # The precision of bends with the other coefficients integrated out.
        drag = np.linalg.solve(turned[k:, k:], turned[k:, :k])
        known = turned[:k, :k] - turned[:k, k:] @ drag
        sizes = [one.shape[1] for one in blocks]
        kept, slopes = _posterior(bends.T @ w, 0.5 * (known + known.T), sizes)
    except np.linalg.LinAlgError:
        # Return the released coefficients without shrinkage.
        return unchanged
    back, same_bends = basis[:, :k] - basis[:, k:] @ drag, np.eye(k)
    kept, slopes = (same + back @ (one - same_bends) @ bends.T for one in (kept, slopes))
    shrunk = kept @ w
    is_finite = np.isfinite(shrunk).all() and np.isfinite(slopes).all()
    return (shrunk, kept, slopes) if is_finite else unchanged


def _bends(term: Term, size: int) -> NDArray[np.float64]:
    """Return an orthonormal basis of a term's nonlinear coefficients, of shape (size, bends)."""
    axis, line = term.axes[0], term.axes[0].line
    count = term.features.stop - term.features.start
    directions = np.zeros((count, 0))
    if len(term.axes) > 1:
        directions = np.eye(count)
    elif line is not None and (bends := len(line) - 2):
        line = np.linalg.lstsq(axis.curve, line - line.mean(), rcond=None)[0]
        directions = np.zeros((count, bends))
        directions[: bends + 1] = np.linalg.qr(line[:, np.newaxis], mode="complete")[0][:, 1:]
    placed = np.zeros((size, directions.shape[1]))
    placed[term.features] = directions
    return placed


def _posterior(
    found: NDArray[np.float64], known: NDArray[np.float64], sizes: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the matrix from groups of estimates to their posterior mean, and its derivatives.

    ``known`` is the precision of the estimates ``found``; the prior variances depend on ``found``.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    per_group = np.repeat(np.arange(len(sizes)), sizes)
    variances = np.add.reduceat(found**2, starts) / sizes
    least = _LEAST * max(float(variances.max()), _TINY)
    variances = np.maximum(variances, least)

    def conditional() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        inverse = np.linalg.inv(known + np.diag(1.0 / variances[per_group]))
        covariance = np.asarray(inverse, dtype=np.float64)
        return covariance, covariance @ known, covariance @ (known @ found)

    for _ in range(_MOST_ROUNDS):
        covariance, _, mean = conditional()
        left = np.add.reduceat(np.diag(covariance), starts) / variances
        freedom = np.maximum(sizes - left, _TINY)
        before = variances
        variances = np.maximum(np.add.reduceat(mean**2, starts) / freedom, least)
        if np.max(np.abs(np.log(variances / before))) < _TOLERANCE:
            break
    covariance, shares, mean = conditional()
    moved = _moved_variances(covariance, shares, mean, variances, starts, variances > least)
    by_variance = np.add.reduceat(covariance * (mean / variances[per_group] ** 2), starts, axis=1)
    # At most double the errors: derivatives are meaningless where the fixed point jumps, as when
    # a variance is about to vanish.
    errors = np.linalg.pinv(known, hermitian=True)
    doubled = ((by_variance.T @ known) * by_variance.T).sum(axis=1)
    doubled *= ((moved @ errors) * moved).sum(axis=1)
    moved /= np.sqrt(np.maximum(doubled, 1.0))[:, np.newaxis]
    return shares, shares + by_variance @ moved


def _moved_variances(
    covariance: NDArray[np.float64],
    shares: NDArray[np.float64],
    mean: NDArray[np.float64],
    variances: NDArray[np.float64],
    starts: NDArray[np.intp],
    are_free: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return the derivatives of the fixed-point variances with respect to the estimates."""

    def by_group(values: NDArray[np.float64], axis: int = 0) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(values, starts, axis=axis))

    # A variance is the sum of squares of the group's mean over its effective degrees of freedom.
    left = by_group(np.diag(covariance)) / variances
    freedom = np.maximum(by_group(np.ones(len(mean))) - left, np.finfo(np.float64).eps)
    products = by_group(by_group(covariance**2), axis=1)
    by_mean = by_group(mean[:, np.newaxis] * covariance * mean, axis=1)
    through_mean = 2.0 * by_group(by_mean) / variances**2
    through_freedom = products / np.outer(variances, variances**2) - np.diag(left / variances)
    share = by_group(mean**2) / freedom
    own = (through_mean + share[:, np.newaxis] * through_freedom) / freedom[:, np.newaxis]
    direct = 2.0 * by_group(mean[:, np.newaxis] * shares) / freedom[:, np.newaxis]
    own, direct = (np.where(are_free[:, np.newaxis], one, 0.0) for one in (own, direct))
    return np.asarray(np.linalg.solve(np.eye(len(own)) - own, direct))
