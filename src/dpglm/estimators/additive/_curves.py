"""Post-processing of released curves: monotone projection and shrinkage of bends."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpglm._validation import in_one_line
from dpglm.estimators.additive._errors import Information, TermValues, bends_of
from dpglm.solvers.base import present
from dpglm.solvers.uncertainty import Floats, Solution, solved
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


def projected(coef: Floats, directions: Directions, schema: Schema) -> Floats:
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


def shrunk_bends(w: Floats, precision: Floats, schema: Schema) -> tuple[Floats, Floats, Floats]:
    """Shrink nonlinear components of curves, and interactions, towards zero.

    The prior of the nonlinear coefficients of each term is normal with mean zero and a variance per
    term; intercept, slopes and levels have a flat prior. The variances maximise the evidence
    (MacKay, "Bayesian interpolation", Neural Computation 4, 1992, by his fixed point), so
    components below the noise level vanish and clear ones stay. Privacy: post-processing.

    ``w`` has the intercept last; ``precision`` is the inverse covariance of its errors. The results
    are the shrunk coefficients ``kept @ w``, the matrix ``kept``, and their derivatives with
    respect to ``w``, through the variances as well, which propagate noise.
    """
    same = np.eye(len(w))
    unchanged = w, same, same
    blocks = [
        one for term in schema.additive_encoding.terms if (one := bends_of(term, len(w))).size
    ]
    if not blocks:
        return unchanged
    bends = np.hstack(blocks)
    try:
        moves, known = _marginal(precision, bends)
        kept, slopes = _posterior(bends.T @ w, known, [one.shape[1] for one in blocks])
    except np.linalg.LinAlgError:
        # Return the released coefficients without shrinkage.
        return unchanged
    kept, slopes = (same + moves @ (one - np.eye(len(known))) @ bends.T for one in (kept, slopes))
    shrunk = kept @ w
    is_finite = np.isfinite(shrunk).all() and np.isfinite(slopes).all()
    return (shrunk, kept, slopes) if is_finite else unchanged


def straightened(
    w: Floats, solution: Solution, schema: Schema, information: Information | None
) -> Floats:
    """Average shrunk coefficients with an estimate that does not take unfinished steps for bends.

    With the mean g of the released gradients, at points of mean v, ``r = K v - g = K theta + e``.
    The covariance of e counts noise, sampling, and the noise in the curvature K. Bends have one
    variance for each term, by marginal likelihood; terms with one bend have theirs in common, as
    one bend does not identify a variance. Slopes are about the released ones, with the mean square
    of these as variance, and levels are the released ones. The weight of this estimate is Akaike's
    for models of lines, without the variances: Burnham and Anderson, *Model selection and
    multimodel inference* (2002), section 2.9. A factor keeps the released fit where scores say
    little: the share of variance that they determine, squared, and the least of all slopes and of
    the best determined bend of each term. The square was chosen on development rows by ``python -m
    experiments.additive``. Privacy: post-processing.
    """
    terms, size = schema.additive_encoding.terms, len(w)
    if information is None or present(solution.response).share < 1.0:
        return w
    blocks = [one for term in terms if (one := bends_of(term, size)).size]
    is_free = np.ones(size, dtype=bool)
    for term in terms:
        is_free[term.features] = len(term.axes) > 1 or term.axes[0].line is not None
    blocks.sort(key=lambda one: one.shape[1])
    bends = np.hstack([np.eye(size)[:, -1:], *blocks])[is_free]
    lines, bends = np.linalg.qr(bends, mode="complete")[0][:, bends.shape[1] :], bends[:, 1:]
    if not (bends.size and lines.size):
        return w
    counts = [one.shape[1] for one in blocks]
    single = counts.count(1)
    sizes = [single] * (single > 0) + counts[single:]
    released, found = solution.w[is_free], solution.w.copy()
    try:
        error = information.sampling + information.privacy(solution.w)
        weighted = solved(error, information.design).T
        known, pulled = weighted @ information.design, weighted @ information.pooled
        pulled = (pulled - known[:, ~is_free] @ found[~is_free])[is_free]
        slopes = lines.T @ released
        variance = max(float(np.mean(slopes**2)), _TINY)
        known = known[np.ix_(is_free, is_free)] + lines @ lines.T / variance
        pulled += lines @ slopes / variance
        moves, marginal = _marginal(known, bends)
        # The share of each coefficient that stays unknown if bends vary as slopes do.
        left = np.linalg.inv(np.eye(len(marginal)) + variance * marginal)
        parts = itertools.pairwise(np.cumsum([0, *counts]))
        unknown = max(np.linalg.eigvalsh(left[a:b, a:b])[0] for a, b in parts)
        pulled_bends = moves.T @ pulled
        variances, covariance, _ = _variances(pulled_bends, marginal, bends.T @ released, sizes)
        of_each = np.repeat(variances, sizes)
        roots = np.sqrt(of_each)
        ratio = np.eye(len(marginal)) + roots[:, np.newaxis] * marginal * roots
        # The logarithm of the marginal likelihood with bends, less that without.
        gain = 0.5 * (pulled_bends @ covariance @ pulled_bends - np.linalg.slogdet(ratio)[1])
        covariance = np.linalg.inv(known + (bends / of_each) @ bends.T)
    except np.linalg.LinAlgError:
        return w
    unknown = max(unknown, np.einsum("ij,ij->j", lines, covariance @ lines).max() / variance)
    weight = float(special.expit(len(sizes) - gain)) * max(1.0 - float(unknown), 0.0) ** 2
    found[is_free] = covariance @ pulled
    found = w + weight * (found - w)
    return found if np.isfinite(found).all() else w


def information_of(solution: Solution, schema: Schema) -> Information | None:
    """Return the information in the mean of the released scores, if it is known."""
    response, data = solution.response, solution.plan.data
    if response is None or response.scores is None:
        return None
    (point, gradient, noise), vectors = response.scores, response.basis.vectors
    terms = schema.additive_encoding.terms
    try:
        values = TermValues.of(terms, response, data.row_norm / schema.row_norm)
    except np.linalg.LinAlgError:
        return None
    mean = np.append(values.shares @ values.features, data.intercept)
    moments = np.outer(mean, mean)
    moments[:-1, :-1] = values.features.T @ values.moments @ values.features
    # The noise in released second moments: an upper bound, as the structure of terms reduces it.
    variances = np.full_like(moments, response.noise[0] ** 2) * (1.0 + np.eye(len(moments)))
    variances[-1] = variances[:, -1] = (response.noise[1] * data.intercept) ** 2
    along = response.curvature * vectors
    design, per_row = along.T @ moments, response.dispersion / (data.n_rows * data.typical_weight)
    hessian = design @ vectors
    scores = design, hessian @ point - gradient, per_row * hessian, noise**2 * np.eye(len(hessian))
    return Information(*scores, along, variances, vectors @ point, mean[:-1] / data.intercept)


def _marginal(precision: Floats, bends: Floats) -> tuple[Floats, Floats]:
    """Return how coefficients move with each bend, and the bends' marginal precision."""
    # An orthonormal basis of the coefficients, bends first.
    basis, k = np.linalg.qr(bends, mode="complete")[0], bends.shape[1]
    basis[:, :k] = bends
    turned = basis.T @ precision @ basis
    drag = np.linalg.solve(turned[k:, k:], turned[k:, :k])
    known = turned[:k, :k] - turned[:k, k:] @ drag
    return basis[:, :k] - basis[:, k:] @ drag, 0.5 * (known + known.T)


def _posterior(found: Floats, known: Floats, sizes: list[int]) -> tuple[Floats, Floats]:
    """Return the matrix from groups of estimates to their posterior mean, and its derivatives.

    ``known`` is the precision of the estimates ``found``; the prior variances depend on ``found``.
    """
    starts, pulled = np.cumsum([0, *sizes[:-1]]), known @ found
    variances, covariance, are_free = _variances(pulled, known, found, sizes)
    shares, mean, of_each = covariance @ known, covariance @ pulled, np.repeat(variances, sizes)
    moved = _moved_variances(covariance, shares, mean, variances, starts, are_free)
    by_variance = np.add.reduceat(covariance * (mean / of_each**2), starts, axis=1)
    # At most double the errors: derivatives are meaningless where the fixed point jumps, as when
    # a variance is about to vanish.
    errors = np.linalg.pinv(known, hermitian=True)
    doubled = ((by_variance.T @ known) * by_variance.T).sum(axis=1)
    doubled *= ((moved @ errors) * moved).sum(axis=1)
    moved /= np.sqrt(np.maximum(doubled, 1.0))[:, np.newaxis]
    return shares, shares + by_variance @ moved


def _variances(
    pulled: Floats, known: Floats, start: Floats, sizes: list[int]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return variances of groups, the posterior covariance, and which variances are not 0.

    ``pulled`` is the precision ``known`` times the estimates, and ``start`` is near these.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    variances = np.add.reduceat(start**2, starts) / sizes
    least = _LEAST * max(float(variances.max()), _TINY)
    variances = np.maximum(variances, least)
    for _ in range(_MOST_ROUNDS):
        covariance = np.linalg.inv(known + np.diag(1.0 / np.repeat(variances, sizes)))
        left = np.add.reduceat(np.diag(covariance), starts) / variances
        freedom, before = np.maximum(sizes - left, _TINY), variances
        squares = np.add.reduceat((covariance @ pulled) ** 2, starts)
        variances = np.maximum(squares / freedom, least)
        if np.max(np.abs(np.log(variances / before))) < _TOLERANCE:
            break
    inverse = np.linalg.inv(known + np.diag(1.0 / np.repeat(variances, sizes)))
    return variances, np.asarray(inverse, dtype=np.float64), variances > least


def _moved_variances(
    covariance: Floats,
    shares: Floats,
    mean: Floats,
    variances: Floats,
    starts: NDArray[np.intp],
    are_free: NDArray[np.bool_],
) -> Floats:
    """Return the derivatives of the fixed-point variances with respect to the estimates."""

    def by_group(values: Floats, axis: int = 0) -> Floats:
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
