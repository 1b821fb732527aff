"""Errors of additive effects: noise, sampling, and the part of an effect that steps do not reach.

A fit returns ``w = F theta + e``: its steps reach a share F of the true parameter, and e has the
covariance V of noise and sampling. With ``theta ~ N(0, S)``, a variance for the bends and one for
the rest of each term, the error ``w - theta`` has the covariance ``(I - F) S (I - F)^T + V``. So
bands are right on average over each curve, as in Nychka, "Bayesian confidence intervals for
smoothing splines", JASA 83 (1988), and finite everywhere: an effect without information has the
variance of its term.

F and V depend on the curvature of the rows, which is computed from the second moments that the fit
released and from public facts about them: within a term products of levels are zero except on
the diagonal, products of hats are tridiagonal, and the values of each term sum to one. Where two
terms nearly coincide, a curvature without this structure damps noise too much. A released Hessian
gives F by its noise alone. S follows from the released coefficients (``_term_variances``).
With the mean of the released scores the error is that of any w given these (``_given_scores``).

Privacy: post-processing of released values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.problem import Loss, Squared, Target
from dpglm.shapes.shape import cells_of, on_simplex
from dpglm.solvers.base import present
from dpglm.solvers.second_order.likelihood import normal_nodes
from dpglm.solvers.second_order.newton_noise import Response
from dpglm.solvers.second_order.newton_raphson_settings import NEGLIGIBLE
from dpglm.solvers.second_order.posterior import (
    PRIOR,
    PRIOR_INTERCEPT,
    SCALE_GRID,
    NoisyMatrix,
    Posterior,
    ScaleLaw,
    scale_laws,
    term_scales,
)
from dpglm.solvers.uncertainty import Floats, Solution, Uncertainty
from dpglm.tables.additive_terms import NumericAxis, Term, as_dense
from dpglm.tables.schema import Schema

_ROUNDS, _REPEATS, _TINY = 20, 3, 1e-9
# Least share of a value, and the farthest score.
_LEAST_SHARE, _FARTHEST = 2e-5, 30.0


def uncertainty_of_effects(
    solution: Solution,
    schema: Schema,
    w: Floats,
    kept: Floats,
    slopes: Floats,
    known: Information | None = None,
) -> Uncertainty:
    """Return the uncertainty of the prepared coefficients w.

    ``kept`` and ``slopes`` are those of ``shrunk_bends``. It is not a number after an overflow, as
    a fit that was charged must return.
    """
    with np.errstate(all="ignore"):
        try:
            if known is not None:
                return _given_scores(solution, schema, w, known)
            return _uncertainty(solution, schema, w, kept, slopes)
        except np.linalg.LinAlgError:
            unknown = np.full_like(slopes, np.nan)
            return Uncertainty(w, unknown, unknown)


@final
@dataclass(frozen=True, eq=False)
class Information:
    """The mean of the scores, ``pooled = design theta + e``, with two parts of the covariance of e.

    Noise N in the curvature, with these ``variances``, adds ``along^T N (theta - point)`` to e.
    """

    design: Floats
    pooled: Floats
    sampling: Floats
    noise: Floats
    along: Floats
    variances: Floats
    point: Floats
    mean: Floats  # Means of the columns, in units of the intercept's.

    def privacy(self, center: Floats, covariance: Floats | float = 0.0) -> Floats:
        """Return the covariance of e by noise for a mean and a covariance of theta."""
        spread = covariance + np.outer(center - self.point, center - self.point)
        error = NoisyMatrix(self.variances, self.variances).error_of(spread)
        return np.asarray(self.noise + self.along.T @ error @ self.along)


def _given_scores(solution: Solution, schema: Schema, w: Floats, known: Information) -> Uncertainty:
    """Return the mean square error of w given the mean of the scores.

    It is the posterior covariance, and the product of ``w - E theta`` with itself. So it holds for
    any estimate. Noise in the curvature counts with the posterior of theta, hence the rounds.
    """
    size, data, dispersion = len(w) - 1, solution.plan.data, present(solution.response).dispersion
    kinds = _groups(schema.additive_encoding.terms, size)
    back = np.vstack([np.eye(size), -known.mean])
    of_level = (PRIOR_INTERCEPT / data.intercept) ** 2
    level = known.sampling + of_level * np.outer(known.design[:, -1], known.design[:, -1])
    reached, center, covariance = known.design @ back, w, np.zeros((size + 1, size + 1))
    variances, privacy, gain = np.eye(size), covariance, back
    for _ in range(_REPEATS):
        privacy = known.privacy(center, covariance)
        errors, unit = level + privacy, PRIOR * math.sqrt(dispersion)
        variances = _marginal_variances(kinds, known.pooled, reached, errors, unit)
        found = Posterior.of(variances, reached, errors, known.pooled)
        center, gain = w + back @ (found.mean - w[:-1]), back @ found.gain
        covariance = back @ found.covariance @ back.T
    covariance += np.outer(center - w, center - w)
    covariance[-1, -1] += dispersion / (data.n_rows * data.typical_weight * data.intercept**2)
    of_noise, prior = gain @ privacy @ gain.T, _with_mean(variances, known.mean, of_level)
    if solution.noise_covariance is not None:
        every = np.append(known.mean, 1.0)
        of_noise[-1, -1] += (added := every @ solution.noise_covariance.columns @ every)
        covariance[-1, -1] += added
    return Uncertainty(w, covariance - of_noise, of_noise, prior=prior)


def _marginal_variances(
    kinds: Sequence[Sequence[Floats]], pooled: Floats, reached: Floats, errors: Floats, unit: float
) -> Floats:
    """Return the prior covariance by marginal likelihood, with a scale in common for each kind."""
    none, roots = np.zeros((reached.shape[1],) * 2), []
    kinds = [one for one in kinds if one]
    common = term_scales(reached, errors, pooled, none, [np.hstack(one) for one in kinds], unit)
    for law, kind in zip(common, kinds, strict=True):
        roots += [math.sqrt(law.mean_square) * root for root in kind]
    laws = term_scales(reached, errors, pooled, none, roots)
    scaled = [math.sqrt(law.mean_square) * one for law, one in zip(laws, roots, strict=True)]
    return np.asarray(np.hstack(scaled) @ np.hstack(scaled).T)


def _uncertainty(
    solution: Solution, schema: Schema, w: Floats, kept: Floats, slopes: Floats
) -> Uncertainty:
    size, data, loss = len(w) - 1, solution.plan.data, solution.plan.problem.loss
    response, noise = solution.response, solution.noise_covariance
    terms, before = schema.additive_encoding.terms, solution.w[:size]
    kinds = _groups(terms, size)
    dispersion = loss.dispersion or 1.0
    of_law: Callable[[Floats], Floats] = np.zeros_like
    if response is None or noise is None:
        of_slopes, level, mean = _of_columns(present(solution.precision))
        reached = np.eye(size)
        if solution.known is not None:
            reached = solution.known[:size] @ np.vstack([np.eye(size), -mean])
        errors = np.asarray(np.linalg.inv(of_slopes))
        columns = np.zeros_like(errors) if noise is None else noise.columns[:size, :size]
        privacy = _with_mean(columns, mean, 0.0)
        sampling = _with_mean(errors, mean, 1.0 / level) - privacy
    else:
        values = TermValues.of(terms, response, data.row_norm / schema.row_norm)
        level = data.intercept * float(solution.w[-1])
        spread, mean, curvature = values.spread(values.curvature(before, level, loss))
        spread, mean = spread / curvature, mean / data.intercept
        dispersion, every = response.dispersion, np.append(mean, 1.0)
        per_row = dispersion / (data.n_rows * data.typical_weight * curvature)
        reached, own, privacy, of_law = response.reached(spread)
        errors = per_row * own + privacy
        privacy = _with_mean(privacy, mean, every @ noise.columns @ every)
        sampling = _with_mean(per_row * own, mean, per_row / data.intercept**2)
    unit = PRIOR * math.sqrt(dispersion)
    if isinstance(loss, Squared) and response is None:
        # The errors of least squares are known well enough for the exact likelihood.
        variances = _marginal_variances(kinds, before, reached, errors, unit)
    else:
        groups = list(itertools.chain(*kinds))
        variances = _term_variances(groups, before, reached, errors, unit)
    bent = kept[:size, :size]
    missed, unsure = np.eye(size) - bent @ reached, bent @ of_law(variances) @ bent.T
    smoothing = _with_mean(missed @ variances @ missed.T + unsure, mean, 0.0)
    prior = _with_mean(variances, mean, (PRIOR_INTERCEPT / data.intercept) ** 2)
    return Uncertainty(
        w, slopes @ sampling @ slopes.T + smoothing, slopes @ privacy @ slopes.T, prior=prior
    )


def bends_of(term: Term, size: int) -> Floats:
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


def _of_columns(precision: Floats) -> tuple[Floats, float, Floats]:
    """Return the precision of columns without the intercept, its own, and the columns' means."""
    level = float(precision[-1, -1])
    mean = precision[-1, :-1] / level
    return precision[:-1, :-1] - level * np.outer(mean, mean), level, mean


def _with_mean(covariance: Floats, mean: Floats, variance: float) -> Floats:
    """Return a covariance with the intercept's, if ``variance`` is that of the mean prediction."""
    back = np.vstack([np.eye(len(mean)), -mean])
    found = back @ covariance @ back.T
    found[-1, -1] += variance
    return np.asarray(found)


def _groups(terms: Sequence[Term], size: int) -> tuple[list[Floats], ...]:
    """Return orthonormal bases of the bends of terms, and of the rest of each, with a variance."""
    bends, rest = [bends_of(term, size) for term in terms], []
    for term, one in zip(terms, bends, strict=True):
        own = np.eye(size)[:, term.features]
        left = np.linalg.svd(own - one @ (one.T @ own), full_matrices=False)[0]
        rest.append(left[:, : own.shape[1] - one.shape[1]])
    return [one for one in bends if one.size], [one for one in rest if one.size]


def _term_variances(
    groups: Sequence[Floats], w: Floats, reached: Floats, errors: Floats, unit: float
) -> Floats:
    """Return the prior covariance: the variance of a group is the posterior mean of it.

    The mean of ``|w_b|^2`` over the coefficients of a group is linear in the variances of all
    groups. The composite likelihood takes these sums of squares as independent, and those of a
    group of k coefficients as scaled chi-squared with k degrees of freedom. So it depends on large
    parts of ``reached`` and ``errors`` alone, which are known better than their inverses: Varin,
    Reid and Firth, "An overview of composite likelihood methods", Statistica Sinica 21 (2011).
    The scale in common is half-normal about ``unit``. Those of groups are half-Cauchy about it, so
    a term that steps do not reach may be large: Gelman, "Prior distributions for variance
    parameters in hierarchical models", Bayesian Analysis 1 (2006).
    """
    basis, counts = np.hstack(groups), np.array([one.shape[1] for one in groups])
    starts = np.cumsum([0, *counts[:-1]])
    w, reached, errors = basis.T @ w, basis.T @ reached @ basis, basis.T @ errors @ basis
    squares, base = np.add.reduceat(w**2, starts), np.add.reduceat(np.diag(errors), starts)
    shares = np.add.reduceat(np.add.reduceat(reached**2, starts), starts, axis=1)

    def likelihood(rest: Floats, share: Floats, unit: float) -> Floats:
        means = np.maximum(rest + np.multiply.outer((unit * SCALE_GRID) ** 2, share), _TINY)
        return np.asarray(-0.5 * (np.log(means) + squares / means) @ counts)

    common = math.sqrt(ScaleLaw.of(likelihood(base, shares.sum(axis=1), unit), unit).mean_square)

    def profile(place: int, scales: Floats) -> Floats:
        others = np.delete(shares, place, axis=1) @ np.delete(scales, place) ** 2
        found = likelihood(base + others, shares[:, place], common)
        # ``ScaleLaw`` multiplies by a half-normal law; this makes it half-Cauchy.
        return np.asarray(found + 0.5 * SCALE_GRID**2 - np.log1p(SCALE_GRID**2))

    laws = scale_laws(profile, np.full(len(groups), common), common)
    found = np.repeat([law.mean_square for law in laws], counts)
    return np.asarray((basis * found) @ basis.T)


@final
@dataclass(frozen=True, eq=False)
class TermValues:
    """Rows as shares of the values of terms, with estimated means and mean products."""

    groups: tuple[slice, ...]  # Positions of each term's values.
    features: Floats  # Prepared features of each value; a row's are the sum over its values.
    shares: Floats  # Those of a term sum to 1.
    moments: Floats  # Mean products of shares, positive semidefinite.
    noise: Floats  # Standard deviations of the noise in the shares.

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
        deviation = response.noise[0] / unit**2
        for term, own, root in zip(terms, groups, roots, strict=True):
            features[own, term.features] = unit * root
            if len(term.axes) == 1:
                back = np.linalg.pinv(np.column_stack([root, np.ones(len(root))]))
                found = on_simplex(np.append(means[term.features], 1.0) @ back) + _LEAST_SHARE
                shares[own] = found / found.sum()
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
            seen = response.moments[term.features, term.features] / unit**2
            moments[own, own] = _within(term, shares[own], seen, deviation)
            spread = moments[own, own] - np.outer(shares[own], shares[own])
            values, directions = np.linalg.eigh(root.T @ spread @ root)
            values = np.maximum(values, _TINY)
            bases.append((values, directions, spread @ root @ directions / values))
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
        expected = np.outer(shares, shares)
        return cls(groups, features, shares, _semidefinite(moments - expected) + expected, noise)

    def curvature(self, w: Floats, level: float, loss: Loss) -> Floats:
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
            spread = np.sqrt(max(total - between, NEGLIGIBLE * total, _TINY))
            scores = mean + deviations[own, np.newaxis] + spread * nodes
            scores = scores.clip(-_FARTHEST, _FARTHEST).ravel()
            targets = np.ones_like(scores)
            if loss.target is not Target.BINARY and loss.link is not None:
                targets = np.asarray(loss.link.inverse(scores))
            found[own] = loss.curvature(scores, targets).reshape(-1, len(nodes)) @ chances
        return found

    def spread(self, weights: Floats) -> tuple[Floats, Floats, float]:
        """Return the weighted covariance of prepared features, their mean, and the mean weight.

        Each value's rows have the weight of the value; a row of two values counts with the
        geometric mean, in products of means as well. The covariance is times the mean weight.
        """
        found = np.maximum(self.moments, 0.0) * np.sqrt(np.outer(weights, weights))
        every = self.shares * weights
        mean_weight = float(every.sum()) / len(self.groups)
        for own in self.groups:
            sums = found[own, own].sum(axis=1)
            every[own] = sums / sums.sum()
            for its in self.groups:
                block = found[own, its]
                block -= np.outer(block.sum(axis=1), block.sum(axis=0)) / block.sum()
        found = _semidefinite(found)
        return self.features.T @ found @ self.features, every @ self.features, mean_weight


def _within(term: Term, shares: Floats, seen: Floats, deviation: float) -> Floats:
    """Return mean products of a term's values: levels exclude each other, and hats overlap.

    ``seen`` are released products of features, with noise. Between two knots rows are evenly
    spread a priori, and the mean product of two hats is uniform up to the smaller share.
    """
    found = np.diag(shares)
    if len(term.axes) == 1 and isinstance(term.axes[0], NumericAxis):
        first = term.axes[0].order[:-1]
        left, right, root = shares[first], shares[first + 1], present(term.axes[0].root)
        most, overlap = np.minimum(left, right), left * right / (3.0 * (left + right))
        steps = np.zeros((len(first), len(shares)))
        steps[first, first], steps[first, first + 1] = 1.0, -1.0
        found -= steps.T @ (overlap[:, np.newaxis] * steps)
        # Noise in symmetric matrices has the precision ``1 / (2 deviation^2)`` in sums of squares.
        along = steps @ root
        excess = most * np.diag(along @ (root.T @ found @ root - seen) @ along.T)
        known = np.outer(most, most) * (along @ along.T) ** 2
        known += 24.0 * deviation**2 * np.eye(len(first))
        change = np.clip(most * np.linalg.solve(known, excess), -overlap, most - overlap)
        found -= steps.T @ (change[:, np.newaxis] * steps)
    return found


def _denoised(seen: Floats, squares: Floats, deviation: float) -> Floats:
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


def _semidefinite(covariance: Floats) -> Floats:
    """Return a covariance without negative eigenvalues of the correlations."""
    roots = np.sqrt(np.maximum(np.diag(covariance), _TINY**2))
    values, directions = np.linalg.eigh(covariance / np.outer(roots, roots))
    correlations = (directions * np.maximum(values, 0.0)) @ directions.T
    return np.asarray(correlations * np.outer(roots, roots))
