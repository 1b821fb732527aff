"""Least squares, correlations, components and search from noisy second moments.

All of it is post-processing.

The released matrix is ``M + N``: M the second moments of standardised columns z, and N symmetric
noise with independent entries of known variances T, zero where M is zero by structure. Columns of a
formula are combinations ``L^T z``, and so is the target, ``<l, z>``. At coefficients b the residual
is ``<v, z>`` with ``v = l - L b``, and the score that was released is

    L^T (M + N) v = L^T M v + L^T N v,    Cov(N v)_ij = T_ij v_i v_j,  sum_k T_ik v_k^2 on i = j.

The first part has mean zero and the covariance ``s^2 L^T M L`` at the best coefficients, s^2 the
variance of residuals. So the noise of an estimate is known without a second release.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpglm._validation import Array, check_one_of
from dpglm._words import plain_number
from dpglm.inference.comparisons import WaldTest
from dpglm.inference.inference import Inference
from dpglm.moments.basis import parsed
from dpglm.solvers.composite.moments import ReleasedMoments
from dpglm.solvers.second_order.posterior import Posterior, ScaleLaw, term_scales
from dpglm.solvers.uncertainty import eigen, solved
from dpglm.tables.columns import Column
from dpglm.tables.formula.design import FormulaEncoding

if TYPE_CHECKING:
    from dpglm.moments.model import MomentFit


_ROUNDS = 8
_TINY = 1e-300
# Relative ridge on covariances, against rounding.
_RIDGE = 1e-12
# A residual variance is at least this many standard deviations of its noise.
_LEAST = 1.0


@final
@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """The released second moments, with the variances of their noise."""

    matrix: Array
    variances: Array

    @classmethod
    def of(cls, released: ReleasedMoments, never_together: NDArray[np.bool_]) -> NoisyMoments:
        """Return moments in which entries that structure makes zero are zero, without noise."""
        size = len(released.matrix)
        variances = np.full((size, size), 0.5 * released.noise**2)
        np.fill_diagonal(variances, released.noise**2)
        return cls(
            np.where(never_together, 0.0, released.matrix), np.where(never_together, 0.0, variances)
        )

    @property
    def weight(self) -> float:
        """Weight of all rows."""
        return max(float(self.matrix[-1, -1]), math.sqrt(float(self.variances[-1, -1])), _TINY)

    def noise_of(self, L: Array, v: Array) -> Array:
        """Return the covariance of ``L^T N v``."""
        spread = self.variances * np.outer(v, v)
        np.fill_diagonal(spread, self.variances @ v**2)
        return np.asarray(L.T @ spread @ L)

    def form_noise(self, G: Array) -> float:
        """Return the variance of ``sum_ij G_ij N_ij``, G symmetric."""
        twice = self.variances * G**2
        return float(2.0 * twice.sum() - np.diag(twice).sum())

    def form(self, u: Array, w: Array) -> tuple[float, float]:
        """Return ``u^T (M + N) w`` and the variance of its noise."""
        G = 0.5 * (np.outer(u, w) + np.outer(w, u))
        return float(u @ self.matrix @ w), self.form_noise(G)

    def residual(self, u: Array, given: Array) -> Array:
        """Return u after projection on the columns ``given^T z``."""
        A = given.T @ self.matrix @ given
        A += 1e-9 * max(float(np.trace(A)), _TINY) * np.eye(len(A))
        return np.asarray(u - given @ solved(A, given.T @ self.matrix @ u))


@final
@dataclass(frozen=True, eq=False)
class PenalisedTerm:
    """Columns with the prior covariance ``fixed + tau^2 root root^T``, tau to be estimated."""

    name: str
    places: NDArray[np.intp]
    fixed: Array
    root: Array


@final
@dataclass(frozen=True, eq=False)
class Solved:
    """Coefficients of a linear model, and the variance of the residuals."""

    posterior: Posterior
    sampling: Array
    prior: Array
    variance: float
    scales: Mapping[str, ScaleLaw]  # Prior deviations of penalised terms, by name.


def solve(
    moments: NoisyMoments,
    L: Array,
    target: Array,
    prior: Array,
    terms: Sequence[PenalisedTerm] = (),
    design_effect: float = 1.0,
    instruments: Array | None = None,
) -> Solved:
    """Solve the noisy normal equations with a prior covariance.

    ``design_effect`` multiplies the sampling covariance. With instruments the equations are
    ``L_z^T (M + N) v = 0``, L_z their columns, weighted by the covariance of their error.
    """
    Z = L if instruments is None else instruments
    A, b = Z.T @ moments.matrix @ L, Z.T @ moments.matrix @ target
    values, directions = eigen(Z.T @ moments.matrix @ Z)
    inside = (directions * np.maximum(values, 0.0)) @ directions.T
    v, scales = target, dict[str, ScaleLaw]()
    found, sampling = Posterior(np.zeros(L.shape[1]), prior, prior), inside
    for step in range(_ROUNDS):
        variance = _residual_variance(moments, v)
        sampling = design_effect * variance * inside
        error = sampling + moments.noise_of(Z, v)
        error += _RIDGE * max(float(np.trace(error)), _TINY) * np.eye(len(error))
        if terms and step == _ROUNDS // 2:
            # The scale of each term is the one that the marginal likelihood chooses.
            prior, roots = prior.copy(), []
            for term in terms:
                prior[term.places] = prior[:, term.places] = 0.0
                prior[np.ix_(term.places, term.places)] = term.fixed
                root = np.zeros((len(prior), term.root.shape[1]))
                root[term.places] = term.root
                roots.append(root)
            laws = term_scales(A, error, b, prior, roots)
            for term, law, root in zip(terms, laws, roots, strict=True):
                prior = prior + law.mean_square * root @ root.T
                scales[term.name] = law
        found = _posterior(prior, A, error, b)
        v = target - L @ found.mean
    of_sampling = found.gain @ sampling @ found.gain.T
    return Solved(found, of_sampling, prior, _residual_variance(moments, v), scales)


def _posterior(prior: Array, A: Array, error: Array, b: Array) -> Posterior:
    """Return the posterior given ``b = A beta + e``, A of any shape."""
    gain = solved(A @ prior @ A.T + error, A @ prior).T
    kept = np.eye(len(prior)) - gain @ A
    return Posterior(gain @ b, kept @ prior @ kept.T + gain @ error @ gain.T, gain)


def _residual_variance(moments: NoisyMoments, v: Array) -> float:
    """Return the mean squared residual, at least its noise."""
    seen, noise = moments.form(v, v)
    return max(seen, _LEAST * math.sqrt(noise), _TINY) / moments.weight


@final
@dataclass(frozen=True)
class Correlation:
    """A correlation, or a partial correlation, with an interval.

    Parameters
    ----------
    estimate : float
        In [-1, 1].
    standard_error : float
        From sampling and privacy noise together.
    low, high : float
        Ends of the confidence interval, within [-1, 1].
    level : float
        Confidence level.
    """

    estimate: float
    standard_error: float
    low: float
    high: float
    level: float


def correlation(
    moments: NoisyMoments, u: Array, w: Array, given: Array, level: float
) -> Correlation:
    """Correlate ``<u, z>`` and ``<w, z>`` after projection on the columns ``given^T z``.

    The sampling variance is that of normal columns, ``(1 - r^2)^2 / n``; the noise is that of the
    gradient of r in the matrix, as projections are stationary.
    """
    u, w = moments.residual(u, given), moments.residual(w, given)
    pairs = (u, w), (u, u), (w, w)
    (both, _), (one, in_one), (two, in_two) = (moments.form(*pair) for pair in pairs)
    one = max(one, math.sqrt(in_one), _TINY)
    two = max(two, math.sqrt(in_two), _TINY)
    size = math.sqrt(one * two)
    r = min(max(both / size, -1.0), 1.0)
    G = 0.5 * (np.outer(u, w) + np.outer(w, u)) / size
    G -= 0.5 * r * (np.outer(u, u) / one + np.outer(w, w) / two)
    noise = moments.form_noise(G)
    variance = (1.0 - r * r) ** 2 / moments.weight + noise
    error = math.sqrt(variance)
    # Fisher's scale keeps the interval within [-1, 1].
    inner = min(max(r, -0.999), 0.999)
    reach = special.ndtri(0.5 + 0.5 * level) * error / (1.0 - inner * inner)
    middle = math.atanh(inner)
    return Correlation(r, error, math.tanh(middle - reach), math.tanh(middle + reach), level)


@final
@dataclass(frozen=True)
class PrincipalComponents:
    """Principal components of correlations.

    Parameters
    ----------
    names : tuple of str
        The columns.
    loadings : tuple of tuple of float
        For each component its coefficients of the standardised columns, of length 1.
    shares : tuple of float
        Share of each component in the variance of the standardised columns, decreasing.
    standard_errors : tuple of float
        Standard errors of the shares, from sampling (of normal columns) and privacy noise.
    """

    names: tuple[str, ...]
    loadings: tuple[tuple[float, ...], ...]
    shares: tuple[float, ...]
    standard_errors: tuple[float, ...]

    def __repr__(self) -> str:
        lines = ["share of the variance (standard error): loadings"]
        for share, error, way in zip(self.shares, self.standard_errors, self.loadings, strict=True):
            named = (f"{name} {one:+.3f}" for name, one in zip(self.names, way, strict=True))
            lines.append(f"{share:.4f} ({error:.4f}): {', '.join(named)}")
        return "\n".join(lines)


def components(
    moments: NoisyMoments, L: Array, constant: Array, names: Sequence[str]
) -> PrincipalComponents:
    """Return the components of the correlation matrix of the columns ``L^T z``."""
    means = constant @ moments.matrix @ L / moments.weight
    centered = L - np.outer(constant, means)
    covariance = centered.T @ moments.matrix @ centered / moments.weight
    noises = [math.sqrt(moments.form(one, one)[1]) / moments.weight for one in centered.T]
    scale = np.sqrt(np.maximum(np.diag(covariance), np.maximum(noises, _TINY)))
    values, directions = eigen(covariance / np.outer(scale, scale))
    order = np.argsort(values)[::-1]
    total = float(len(values))
    errors = []
    for place in order:
        way = centered @ (directions[:, place] / scale)
        noise = math.sqrt(moments.form(way, way)[1]) / moments.weight
        errors.append(math.hypot(noise, abs(values[place]) * math.sqrt(2.0 / moments.weight)))
    return PrincipalComponents(
        tuple(names),
        tuple(tuple(directions[:, place].tolist()) for place in order),
        tuple((values[order] / total).tolist()),
        tuple((np.array(errors) / total).tolist()),
    )


_MOST_TERMS = 15


@final
@dataclass(frozen=True)
class Comparison:
    """A model and a larger one.

    Parameters
    ----------
    added : tuple of str
        Coefficients of the larger model that the smaller one lacks.
    test : WaldTest
        Test that they are all zero.
    r_squared : (float, float)
        Shares of explained variance of the smaller and the larger model.
    """

    added: tuple[str, ...]
    test: WaldTest
    r_squared: tuple[float, float]


def compared(smaller: MomentFit, larger: MomentFit) -> Comparison:
    """Compare two models with the same target."""
    names, all_names = smaller.inference_.names, larger.inference_.names
    added = tuple(name for name in all_names if name not in names)
    same = smaller.formula.split("~")[0].strip() == larger.formula.split("~")[0].strip()
    if not same or not added or not set(names) <= set(all_names):
        raise ValueError(
            f"smaller must be a model of the same target with some of the terms of larger, got "
            f"{smaller.formula!r} and {larger.formula!r}"
        )
    return Comparison(
        added, larger.inference_.wald_test(list(added)), (smaller.r_squared, larger.r_squared)
    )


@final
@dataclass(frozen=True)
class Selection:
    """A selected model.

    Parameters
    ----------
    model : MomentFit
        The selected model; its own intervals ignore the selection.
    n_models : int
        Number of models that the search looked at.
    n_possible : int
        Number of models that it could have selected.
    critical_value : float
        Number of standard errors of the joint intervals.
    level : float
        Their confidence level.
    """

    model: MomentFit
    n_models: int
    n_possible: int
    critical_value: float
    level: float

    def conf_int(self) -> Array:
        """Return intervals of the coefficients that hold together, of shape (n, 2)."""
        found: Inference = self.model.inference_
        half = self.critical_value * found.standard_errors
        return np.column_stack([found.params - half, found.params + half])

    def __repr__(self) -> str:
        return (
            f"Selected {self.model.formula}, after {self.n_models} models were looked at. Joint "
            f"{plain_number(100.0 * self.level)} % intervals are "
            f"{plain_number(self.critical_value, 3)} standard errors wide on each side.\n"
            f"{self.model!r}"
        )


def selected(
    formula: str,
    regress: Callable[[str], MomentFit],
    columns: Sequence[Column],
    method: Any,
    level: float,
    weight: float,
) -> Selection:
    """Select terms of a formula; see ``Moments.select``."""
    check_one_of("method", method, ("stepwise", "exhaustive"))
    _, design = parsed(formula, columns)
    names, sizes = _terms(design)
    if len(names) > _MOST_TERMS and method == "exhaustive":
        raise ValueError(
            f"formula must have at most {_MOST_TERMS} terms for method='exhaustive', got "
            f"{len(names)}: use 'stepwise'"
        )
    full = regress(formula).inference_
    criterion = _criterion(full, sizes, math.log(max(weight, math.e)))
    everything = frozenset(range(len(names)))
    if method == "exhaustive":
        subsets = [
            frozenset(one)
            for size in range(1, len(names) + 1)
            for one in itertools.combinations(sorted(everything), size)
        ]
        best, looked = min(subsets, key=criterion), len(subsets)
    else:
        # Remove terms one by one while the criterion falls.
        best, least, looked = everything, criterion(everything), 1
        while len(best) > 1:
            options = {one: criterion(best - {one}) for one in sorted(best)}
            looked += len(options)
            place = min(options, key=lambda one: options[one])
            if options[place] >= least:
                break
            best, least = best - {place}, options[place]
    left = formula.split("~")[0].strip()
    sign = "" if design.has_intercept else "0 + "
    model = regress(f"{left} ~ {sign}{' + '.join(names[k] for k in sorted(best))}")
    # A coefficient of a term is in half of all models, and the intercept in all.
    tests = (2 * len(full.names) - sum(sizes)) * 2.0 ** (len(names) - 1)
    tail = (1.0 - level) / (2.0 * tests)
    return Selection(model, looked, 2 ** len(names) - 1, -float(special.ndtri(tail)), level)


def _terms(design: FormulaEncoding) -> tuple[list[str], list[int]]:
    """Return the terms of a formula as text, and their numbers of columns."""
    columns = {one.name for one in design.columns}
    names = [
        ":".join(f"`{one.name}`" if one.name in columns else one.name for one in term)
        for term in design.slopes
    ]
    sizes = [len(design.fields_of(term)) for term in design.slopes]
    if len(set(names)) < len(names):
        raise ValueError("formula must have main effects for the factors of its products")
    return names, sizes


def _criterion(
    full: Inference, sizes: Sequence[int], cost: float
) -> Callable[[frozenset[int]], float]:
    """Return the criterion ``W + log(n) q`` of a model with some of the terms."""
    ends = np.cumsum([len(full.names) - sum(sizes), *sizes])
    places = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    params, covariance = full.params, full.covariance

    def criterion(kept: frozenset[int]) -> float:
        lost = [one for k, one in enumerate(places) if k not in kept]
        size = sum(len(places[k]) for k in kept)
        if not lost:
            return cost * size
        at = np.concatenate(lost)
        deviations = np.sqrt(np.diag(covariance)[at])
        correlation = covariance[np.ix_(at, at)] / np.outer(deviations, deviations)
        gap = params[at] / deviations
        return float(gap @ np.linalg.lstsq(correlation, gap, rcond=None)[0]) + cost * size

    return criterion
