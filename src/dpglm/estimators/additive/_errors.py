"""Errors of additive effects: noise, sampling, and the part of an effect that steps do not reach.

A fit returns ``w = F theta + e``: its steps reach a share F of the true parameter, and e has the
covariance V of noise and sampling. With ``theta ~ N(0, S)``, one variance for each term, the error
``w - theta`` has the covariance ``(I - F) S (I - F)^T + V``. So bands are right on average over
each curve, as in Nychka, "Bayesian confidence intervals for smoothing splines", JASA 83 (1988), and
finite everywhere: an effect without information has the variance of its term. Variances are in
proportion to the mean square of a term's coefficients, with one factor for all, as effects are
estimated to be smaller than they are.

F depends on the curvature of the rows, which is computed from the second moments that the fit
released and from public facts about them: within a term products of levels are zero except on
the diagonal, products of hats are tridiagonal, and the values of each term sum to one.

Privacy: post-processing of released values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.problem import Loss, Target
from dpglm.shapes.shape import cells_of
from dpglm.solvers.second_order.likelihood import normal_nodes
from dpglm.solvers.second_order.newton_noise import Response
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.additive_terms import NumericAxis, Term, as_dense
from dpglm.tables.schema import Schema

# Variance of a term's coefficients over their mean square; chosen on training rows of Adult by
# ``python -m experiments.additive_coverage``.
_PRIOR = 5.0
_ROUNDS, _TINY = 20, 1e-9
# Least spread of scores within values, least share of a value, and the farthest score.
_LEAST_WITHIN, _LEAST_SHARE, _FARTHEST = 0.1, 2e-5, 30.0


def covariance_of_errors(
    solution: Solution, schema: Schema, slopes: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the covariance of the errors of prepared coefficients without the intercept's.

    ``slopes`` maps coefficients to those after the shrinkage of bends. None where the solver does
    not estimate its noise, or after an overflow, as a fit that was paid for must return.
    """
    with np.errstate(all="ignore"):
        try:
            found = _covariance(solution, schema, slopes)
        except np.linalg.LinAlgError:
            return None
    return None if found is None or not np.isfinite(found).all() else found


def _covariance(
    solution: Solution, schema: Schema, slopes: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    size, response = len(solution.w) - 1, solution.response
    kept = slopes[:size, :size]
    if response is None or solution.noise_covariance is None:
        if solution.precision is None:
            return None
        errors = slopes @ np.linalg.pinv(solution.precision, hermitian=True) @ slopes.T
        return np.asarray(errors[:size, :size])
    if not (np.isfinite(response.moments).all() and np.isfinite(solution.w).all()):
        return None
    data, loss, w = solution.plan.data, solution.plan.problem.loss, solution.w[:size]
    terms = schema.additive_encoding.terms
    values = TermValues.of(terms, response, data.row_norm / schema.row_norm)
    weights = values.curvature(w, data.intercept * float(solution.w[-1]), loss)
    products = values.products(weights, data.intercept)
    level = float(values.shares @ weights) / len(terms)
    reached = response.reached(products / level)[:size, :size]
    variances = np.empty(size)
    for one in terms:
        variances[one.features] = _PRIOR * float(np.mean(w[one.features] ** 2)) + _TINY
    information = data.n_rows * data.typical_weight / response.dispersion * products[:size, :size]
    sampling = np.linalg.inv(information + np.diag(1.0 / variances))
    errors = solution.noise_covariance.columns[:size, :size] + reached @ sampling @ reached.T
    missed = np.eye(size) - kept @ reached
    return np.asarray((missed * variances) @ missed.T + kept @ errors @ kept.T)


@final
@dataclass(frozen=True, eq=False)
class TermValues:
    """Rows as shares of the values of terms, with estimated means and mean products.

    Parameters
    ----------
    groups : tuple of slice
        Positions of each term's values.
    features : ndarray of shape (n_values, n_features)
        Prepared features of each value; a row's are the sum over its values.
    shares : ndarray of shape (n_values,)
        Mean share of each value; those of a term sum to 1.
    moments : ndarray of shape (n_values, n_values)
        Mean products of shares, positive semidefinite.
    noise : ndarray of shape (n_values,)
        Standard deviations of the noise in the shares.
    """

    groups: tuple[slice, ...]
    features: NDArray[np.float64]
    shares: NDArray[np.float64]
    moments: NDArray[np.float64]
    noise: NDArray[np.float64]

    @classmethod
    def of(cls, terms: Sequence[Term], response: Response, unit: float) -> TermValues:
        """Estimate them from released moments; prepared features are features times ``unit``."""
        roots = [
            np.eye(len(one.labels)) if one.root is None else as_dense(one.root) * 1.0
            for one in terms
        ]
        ends = np.cumsum([0, *(len(one) for one in roots)])
        groups = tuple(slice(*pair) for pair in itertools.pairwise(ends))
        features = np.zeros((ends[-1], len(response.moments) - 1))
        shares, noise = np.empty(ends[-1]), np.empty(ends[-1])
        moments, bases = np.zeros((ends[-1], ends[-1])), []
        means, known = response.moments[-1, :-1] / unit, {}
        for term, own, root in zip(terms, groups, roots, strict=True):
            features[own, term.features] = unit * root
            if len(term.axes) == 1:
                back = np.linalg.pinv(np.column_stack([root, np.ones(len(root))]))
                shares[own] = _on_simplex(np.append(means[term.features], 1.0) @ back)
                noise[own] = response.noise[1] / unit * np.linalg.norm(back[:-1], axis=0)
                cells = ["" if cell is None else cell for cell in cells_of(term.axes[0])]
                known[term.name] = cells, shares[own], noise[own]
            else:
                # Values of an interaction's sides have the shares of their own terms.
                sides = []
                for axis in term.axes:
                    cells, *of_values = known[axis.name]
                    sides.append(axis.weights(cells).T @ np.transpose(of_values))
                products = sides[0][:, np.newaxis] * sides[1]
                shares[own], noise[own] = products.reshape(-1, 2).T
            moments[own, own] = _within(term, shares[own])
            spread = moments[own, own] - np.outer(shares[own], shares[own])
            values, directions = np.linalg.eigh(root.T @ spread @ root)
            values = np.maximum(values, _TINY)
            bases.append((values, directions, spread @ root @ directions / values))
        deviation = response.noise[0] / unit**2
        for i, (one, own) in enumerate(zip(terms, groups, strict=True)):
            for j, (other, its) in enumerate(zip(terms[:i], groups[:i], strict=True)):
                (squares, turn, back), (its_squares, its_turn, its_back) = bases[i], bases[j]
                expected = np.outer(shares[own] @ roots[i], shares[its] @ roots[j])
                seen = response.moments[one.features, other.features] / unit**2 - expected
                found = _denoised(
                    turn.T @ seen @ its_turn, np.outer(squares, its_squares), deviation
                )
                moments[own, its] = back @ found @ its_back.T
                moments[own, its] += np.outer(shares[own], shares[its])
                moments[its, own] = moments[own, its].T
        return cls(groups, features, shares, _semidefinite(moments, shares), noise)

    def curvature(self, w: NDArray[np.float64], level: float, loss: Loss) -> NDArray[np.float64]:
        """Return the mean curvature of the loss over the rows of each value.

        ``w`` are the coefficients and ``level`` the intercept. Scores of a value's rows are taken
        as normal, with a mean of their own and the same spread for all values of a term.
        """
        effects = self.features @ w
        deviations = (self.moments @ effects - self.shares * (self.shares @ effects)) / np.maximum(
            self.shares, self.noise
        )
        total = float(effects @ (self.moments @ effects)) - float(self.shares @ effects) ** 2
        mean, found = level + float(self.shares @ effects), np.empty(len(self.shares))
        nodes, chances = normal_nodes()
        for own in self.groups:
            between = float(self.shares[own] @ deviations[own] ** 2)
            spread = np.sqrt(max(total - between, _LEAST_WITHIN * total, _TINY))
            scores = mean + deviations[own, np.newaxis] + spread * nodes
            scores = scores.clip(-_FARTHEST, _FARTHEST).ravel()
            targets = np.ones_like(scores)
            if loss.target is not Target.BINARY and loss.link is not None:
                targets = np.asarray(loss.link.inverse(scores))
            found[own] = loss.curvature(scores, targets).reshape(-1, len(nodes)) @ chances
        return found

    def products(self, weights: NDArray[np.float64], intercept: float) -> NDArray[np.float64]:
        """Return mean products of prepared rows, intercept last, weighted by those of values.

        A row of two values counts with the geometric mean of their weights, which keeps the result
        positive semidefinite, and exact within a term.
        """
        roots = np.sqrt(weights)
        full = np.full((len(roots), 1), intercept / len(self.groups))
        columns = roots[:, np.newaxis] * np.hstack([self.features, full])
        return np.asarray(columns.T @ self.moments @ columns)


def _on_simplex(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest shares of at least 0 that sum to 1, and then no less than a little."""
    ordered = np.sort(shares)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1.0, len(shares) + 1.0)
    found = np.maximum(shares - excess[np.flatnonzero(ordered > excess)[-1]], _LEAST_SHARE)
    return np.asarray(found / found.sum())


def _within(term: Term, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return mean products of a term's values: levels exclude each other, and hats overlap.

    Between two knots rows are taken as evenly spread.
    """
    found = np.diag(shares)
    if len(term.axes) == 1 and isinstance(term.axes[0], NumericAxis):
        first = term.axes[0].order[:-1]
        left, right = shares[first], shares[first + 1]
        overlap = left * right / (3.0 * (left + right))
        found[first, first + 1] = found[first + 1, first] = overlap
        found[first, first] -= overlap
        found[first + 1, first + 1] -= overlap
    return found


def _denoised(
    seen: NDArray[np.float64], squares: NDArray[np.float64], deviation: float
) -> NDArray[np.float64]:
    """Return the posterior mean of covariances of two terms, and no correlation beyond 1.

    Their prior variances are in proportion to ``squares``, products of variances. The factor is
    the weighted moment estimate (Paule and Mandel, J. Res. NBS 87, 1982).
    """
    factor, excess = 0.0, seen**2 - deviation**2
    for _ in range(_ROUNDS):
        weights = squares / np.square(factor * squares + deviation**2)
        factor = max(float((weights * excess).sum() / (weights * squares).sum()), 0.0)
    factor = min(factor, 1.0)
    kept = factor * squares / (factor * squares + deviation**2)
    most = np.sqrt(squares)
    return np.asarray(np.clip(kept * seen, -most, most))


def _semidefinite(moments: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return moments without negative eigenvalues of the correlations."""
    roots, expected = np.sqrt(shares), np.outer(shares, shares)
    values, directions = np.linalg.eigh((moments - expected) / np.outer(roots, roots))
    correlations = (directions * np.maximum(values, 0.0)) @ directions.T
    return np.asarray(correlations * np.outer(roots, roots) + expected)
