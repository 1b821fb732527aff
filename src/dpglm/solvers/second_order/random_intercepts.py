"""Generalized linear models with random intercepts for factors with many levels."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, linalg, optimize, special

from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import (
    LevelParts,
    LevelScores,
    constant_column,
    fixed_moment_sum,
    level_hessian_sum,
    level_score_sum,
    noisy_fixed_moments,
)
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.problem import Problem
from dpglm.problem.loss import Target
from dpglm.solvers.base import Facts, FitMethod, Outcome, Plan, Solver, StepInfo, present
from dpglm.solvers.second_order import likelihood
from dpglm.solvers.second_order import newton_raphson_settings as settings
from dpglm.solvers.second_order.posterior import (
    FAR,
    PRIOR,
    PRIOR_INTERCEPT,
    RIDGE,
    SCALE_GRID,
    SWEEPS,
    ScaleLaw,
    column_moments,
    scale_laws,
    whitened_hessian,
)
from dpglm.solvers.second_order.structured import (
    Curvature,
    LevelPosterior,
    Structured,
    curvature_of_levels,
)
from dpglm.solvers.uncertainty import (
    Covariance,
    Floats,
    Uncertainty,
    VarianceComponent,
    check_normal,
    eigen,
    solved,
)

# Shares of mu squared, and numbers of scores before and with the last Hessian. Those of
# Newton-Raphson, by ``python -m experiments.levels``.
_SHARES = {
    "targets": settings.SMALL,
    "sizes": settings.SMALL,
    "moments": settings.MEDIUM,
    "first Hessians": settings.MEDIUM,
    "Hessian": settings.LARGE,
    "approach": settings.LARGE,
    "final": 0.5,
}
_APPROACH, _POOLED, _FRESH = settings.POOLED, settings.POOLED, (0, 2)
# The usual scale of the effects of levels, the unit of the prior of these scales, and the numbers
# of nodes of their law.
_USUAL, _UNIT, _NODES = 0.5, 1.0, 9
# Between scales with a computed likelihood; and deviations from chance in the products of
# levels and fixed columns that count as seen, in standard deviations.
_SPACING, _SURE = 4, 2.0
MOST_FIXED = 300
"""Largest number of columns besides those of pooled levels."""
_TINY = 1e-100


@final
@dataclass(frozen=True, eq=False)
class RandomInterceptsState:
    """Released values after some steps."""

    step: int
    w: Floats
    v: Floats | None = None
    scores: LevelScores | None = None
    prior: Floats | None = None  # Covariance of the fixed coordinates.
    moments: Floats | None = None  # Second moments of these.
    ahead: tuple[Floats, Floats] | None = None  # Belief about these, for the points of scores.
    curvature: Curvature | None = None
    visited: tuple[Floats, ...] = ()
    found: tuple[Floats, ...] = ()
    laws: tuple[ScaleLaw, ...] = ()
    covariance: Structured | None = None
    center: Floats | None = None  # Mean of the points of the last scores.


@final
@dataclass(frozen=True)
class RandomInterceptsMethod(FitMethod["RandomInterceptsState"]):
    """Random intercepts with every setting decided."""

    pooled: tuple[tuple[int, int], ...]
    inference: Covariance | None
    prior_scales: tuple[float, ...] | None
    noises: tuple[tuple[str, float], ...]

    algorithm = "random intercepts by marginal likelihood"

    @property
    def n_steps(self) -> int:
        return _APPROACH + _POOLED

    @property
    def _levels(self) -> NDArray[np.intp]:
        return np.concatenate([np.arange(*block) for block in self.pooled])

    @property
    def _fixed(self) -> NDArray[np.intp]:
        return np.setdiff1d(np.arange(self.data.n_features), self._levels)

    @functools.cached_property
    def declared(self) -> Mapping[str, SumRelease]:
        """The releases by name, in the order in which they are asked."""
        data, adjacency, partial = self.data, self.adjacency, functools.partial
        n_fixed, n_levels = len(self._fixed) + 1, len(self._levels)
        scores = partial(level_score_sum(n_fixed + n_levels).release, data, adjacency)
        hessians = partial(level_hessian_sum(n_fixed, n_levels).release, data, adjacency)
        makers = likelihood.target_releases(self.problem, data, adjacency) | {
            "moments": partial(fixed_moment_sum(n_fixed).release, data, adjacency),
            "first Hessians": partial(hessians, count=len(_FRESH)),
            "approach": partial(scores, count=_APPROACH),
            "Hessian": hessians,
            "final": partial(scores, count=_POOLED),
        }
        required = frozenset(_SHARES) - {"sizes", "moments"}
        return likelihood.declare(makers, dict(self.noises), required)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return tuple(self.declared.values())

    @property
    def coefficient_noise(self) -> float:
        # Expected for scores with a standard deviation of 1.
        loss, data = self.problem.loss, self.data
        bend, _ = likelihood.NormalScores.expected(loss, data).clipped(loss, data, math.inf)
        blocks = len(self._fixed) + 1 + len(self.pooled)
        noise = self.declared["final"].noise_std / math.sqrt(_POOLED)
        return noise * math.sqrt(blocks) / (data.n_rows * max(bend, 1e-6))

    def init(self, seed: int) -> RandomInterceptsState:
        return RandomInterceptsState(0, np.zeros(self.data.coefficient_shape))

    def step(
        self, state: RandomInterceptsState, oracle: Oracle
    ) -> tuple[RandomInterceptsState, StepInfo]:
        if state.scores is None:
            state = self._started(oracle)
        scores, v = present(state.scores), present(state.v)
        is_final = state.step >= _APPROACH
        if state.step in (*_FRESH, _APPROACH):
            declared = self.declared["Hessian" if is_final else "first Hessians"]
            parts = scores.mean_hessian(oracle, declared, v)
            curvature = self._cleaned(state, parts)
            state = self._ahead(dataclasses.replace(state, curvature=curvature))
        declared = self.declared["final" if is_final else "approach"]
        g = scores.mean_score(oracle, declared, v)
        noise = scores.clip * declared.noise_std / self.data.n_rows
        state = dataclasses.replace(
            state, visited=(*state.visited, v), found=(*state.found, g), step=state.step + 1
        )
        is_last = state.step == self.n_steps
        state = self._believed(state, noise**2 / len(state.visited), rounds=3 if is_last else 1)
        state = dataclasses.replace(state, w=self._coefficients(scores, present(state.v)))
        return state, StepInfo(state.step, 1.0, float(np.linalg.norm(g)), noise * math.sqrt(len(g)))

    def _coefficients(self, scores: LevelScores, v: Floats) -> Floats:
        """Return the coefficients of prepared columns, the intercept last."""
        w = np.zeros(self.data.n_columns)
        size = scores.n_fixed
        w[[*self._fixed, -1]] = scores.basis @ v[:size]
        w[self._levels] = scores.scales * v[size:]
        return w

    def _started(self, oracle: Oracle) -> RandomInterceptsState:
        """Release the mean of the targets and second moments; start at the constant model."""
        loss, data = self.problem.loss, self.data
        score, bend, weight, _ = likelihood.measured_constant(oracle, self.declared, loss, FAR)
        basis, prior, moments = self._basis(oracle)
        unit = LevelScores(self._fixed, self._levels, basis, np.ones(0), data.intercept, reach=FAR)
        slope, curvature = unit.bounds(loss, np.array([score]))
        dispersion = loss.dispersion or 1.0
        information, large = bend * weight / dispersion, float(slope[0]) / dispersion
        shares, ratio = self._split(information, large, basis.shape[1])
        root = math.sqrt(shares[0] / basis.shape[1])
        basis, prior, moments = root * basis, prior / root**2, root**2 * moments
        scales = np.repeat(np.sqrt(shares[1:]), self._sizes)
        scores = dataclasses.replace(unit, basis=basis, scales=scales)
        grown = max(1.0, settings.NEGLIGIBLE / ratio) ** (settings.GROWTH / 2.0)
        length = math.sqrt(settings.LEAST_SQUARE * shares[0] + 1.0 - shares[0])
        slopes, bends = scores.bounds(loss, np.linspace(-20.0, 20.0, 401))
        clip = float(slope[0]) * length * grown
        most = clip * float((bends / slopes).max())
        square = settings.LEAST_CUT * float(curvature[0]) * grown * length**2
        square = min(square, most * length)
        clip, square = (float(np.clip(one, _TINY, 1.0 / _TINY)) for one in (clip, square))
        scores = dataclasses.replace(scores, clip=clip, square=square)
        v = np.zeros(basis.shape[1] + len(self._levels))
        v[basis.shape[1] - 1] = score / scores.constant
        w = self._coefficients(scores, v)
        return RandomInterceptsState(0, w, v=v, scores=scores, prior=prior, moments=moments)

    def _split(self, information: float, slope: float, n_fixed: int) -> tuple[Floats, float]:
        """Return the shares of a row's squared length, and the largest noise over sampling.

        The first share is that of the fixed coordinates, then follow the factors'. They minimise
        the expected error of the scores, in units of its curvature, for levels of one size; a part
        is divided evenly. ``information`` is the curvature of all rows, ``slope`` a large slope.
        """
        noise = (slope * self.declared["final"].noise_std) ** 2 / _POOLED
        sizes = np.array(self._sizes, dtype=np.float64)
        each = information / sizes

        def divided(logs: Floats) -> Floats:
            even = settings.NEGLIGIBLE
            return np.asarray((1.0 - even) * special.softmax(logs) + even / len(logs))

        def error(logs: Floats) -> float:
            shares = divided(logs)
            of_fixed = noise * n_fixed**2 / shares[0] / information
            known = each**2 / (each + noise / shares[1:])
            return float(of_fixed + (sizes * each / (_USUAL**-2 + known)).sum())

        start = np.zeros(len(sizes) + 1)
        shares = divided(optimize.minimize(error, start, method="Nelder-Mead").x)
        noises = np.concatenate([[noise * n_fixed / information], noise / each])
        return shares, float((noises / shares).max())

    def _basis(self, oracle: Oracle) -> tuple[Floats, Floats, Floats]:
        """Return coordinates of centred, whitened fixed columns and 1; their prior and moments."""
        data, ones, count = self.data, 1.0 / self.data.intercept, len(self._fixed)
        scales = np.full(count, math.inf)
        if self.prior_scales is not None:
            scales = np.array(self.prior_scales)[self._fixed]
        strength = self.problem.regularizer.strong_convexity * data.n_rows
        if count == 0:
            return np.array([[ones]]), np.array([[PRIOR_INTERCEPT**2]]), np.ones((1, 1))
        declared, constant = self.declared["moments"], constant_column(data)
        released = noisy_fixed_moments(oracle, declared, self._fixed, constant)
        found = column_moments(released, declared.noise_std)
        total = float(found.mean[-1, -1])
        unit, means = constant**2 / total, constant * found.mean[-1, :-1] / total
        products = unit * found.mean[:-1, :-1] - np.outer(means, means)
        values, directions = eigen(products)
        seen = np.maximum(values, 0.0)
        values = seen + RIDGE * declared.noise_std * unit
        white = (directions / np.sqrt(values)) @ directions.T
        basis = np.zeros((count + 1, count + 1))
        basis[:count, :count], basis[-1, :-1] = white, -means @ white * ones
        basis[-1, -1] = ones
        declared_variances = np.minimum(PRIOR**2 / np.diag(products).clip(1e-8), scales**2)
        variances = 1.0 / (1.0 / declared_variances + strength)
        back = (directions * np.sqrt(values)) @ directions.T
        prior = linalg.block_diag((back * variances) @ back.T, [[PRIOR_INTERCEPT**2]])
        moments = linalg.block_diag((directions * seen / values) @ directions.T, np.ones((1, 1)))
        return basis, prior, moments

    def _cleaned(self, state: RandomInterceptsState, parts: LevelParts) -> Curvature:
        """Return the posterior mean of the Hessian, given its structure.

        The row of each level in the intercept's column is its diagonal entry in other units, and
        the levels of a factor add up to the intercept. Products of levels and other columns are
        those of independent columns, up to deviations of an estimated size. Different factors
        are taken as independent. The fixed block is shrunk towards the released second moments.
        """
        scores, v, noise = present(state.scores), present(state.v), parts.noise
        size, last, a, scales = scores.n_fixed, scores.n_fixed - 1, scores.constant, scores.scales
        fixed = whitened_hessian(parts.fixed, noise, present(state.moments))
        block = fixed.mean.copy()
        block[last, last] = max(float(block[last, last]), noise)
        total = float(block[last, last]) / a**2
        levels, of_levels = np.empty_like(scales), np.empty_like(scales)
        apart, of_crossed = np.zeros_like(parts.crossed), np.zeros_like(parts.crossed)
        # Two observations of each level's curvature.
        information = np.stack([scales**4 / noise**2, 2.0 * (a * scales) ** 2 / noise**2])
        seen = np.stack([parts.diagonal / scales**2, parts.crossed[:, last] / (a * scales)])
        seen = (information * seen).sum(axis=0) / information.sum(axis=0)
        deviations = 1.0 / np.sqrt(information.sum(axis=0))
        for part in self._parts:
            even, error = total / (part.stop - part.start), float(deviations[part][0])
            levels[part], of_levels[part] = curvature_of_levels(seen[part], error, even)
            factor = total / levels[part].sum()
            levels[part], of_levels[part] = factor * levels[part], factor**2 * of_levels[part]
            shares = levels[part] / total
            scale = scales[part] / a
            for j in range(last):
                rest = parts.crossed[part, j] / scale - block[last, j] * shares
                rest -= rest.sum() * shares
                variances = noise**2 / 2.0 / scale**2
                excess = (shares**2 * (rest**2 - variances)).sum() / (shares**4).sum()
                by_chance = math.sqrt(2.0 * (shares**4 * variances**2).sum()) / (shares**4).sum()
                spread = max(excess, 0.0) * shares**2
                of_crossed[part, j] = scale**2 * spread
                if excess > _SURE * by_chance:
                    kept = spread / (spread + variances)
                    apart[part, j] = scale * kept * rest
                    of_crossed[part, j] = scale**2 * kept * variances
        # Sides: unit vectors of fixed coordinates, the levels of each factor, and deviations.
        count, odd = len(self.pooled), np.flatnonzero(apart.any(axis=0))
        blocks = linalg.block_diag(*((scales * levels)[part, np.newaxis] for part in self._parts))
        sides = linalg.block_diag(np.eye(size), np.hstack([blocks, apart[:, odd]]))
        core = np.zeros((size + count + len(odd),) * 2)
        core[:size, :size] = block
        core[:size, size : size + count] = block[:, [last]] / (a * total)
        core[odd, size + count + np.arange(len(odd))] = 1.0
        core[size:, :size] = core[:size, size:].T
        core[size : size + count, size : size + count] = (1.0 - np.eye(count)) / total
        diagonal = np.concatenate([np.zeros(size), scales**2 * levels])
        # Scores have the variance f^2 h for the curvature f h, with f for rows of usual length.
        m, h = scores.bounds(self.problem.loss, a * v[last] + scales * v[size:])
        f = 1.0 / np.maximum(np.maximum(m / scores.clip, h / scores.square), 1.0)
        dispersion = self.problem.loss.dispersion or 1.0
        usual = dispersion * total * count / (levels / f).sum()
        own = dispersion * np.concatenate([np.zeros(size), f * scales**2 * levels])
        hessian = Structured(diagonal, sides, core)
        sampling = Structured(own, sides, usual * core)
        return Curvature(hessian, sampling, levels, of_levels, of_crossed, fixed.variances)

    @property
    def _sizes(self) -> list[int]:
        """Numbers of levels of the factors."""
        return [stop - start for start, stop in self.pooled]

    @property
    def _parts(self) -> list[slice]:
        """Places of the factors among the levels."""
        ends = np.cumsum([0, *self._sizes]).tolist()
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    def _ahead(self, state: RandomInterceptsState) -> RandomInterceptsState:
        """Return the state without its scores, which become a belief, at most as wide as the prior.

        A way of length s changes a logistic or log link's curvature by exp(s) - 1, relatively.
        """
        prior, size = present(state.prior), present(state.scores).n_fixed
        ahead = np.zeros(size), prior
        if state.visited:
            v, spread = present(state.v)[:size], present(state.covariance).columns(size)[:size]
            way = v - state.visited[0][:size]
            length = math.sqrt(max(float(way @ present(state.moments) @ way), 0.0))
            missed = math.expm1(min(length, FAR)) ** 2
            most = 1.0 / max(float(way @ solved(prior, way)), _TINY)
            ahead = v, spread + min(missed, most) * np.outer(way, way)
        return dataclasses.replace(state, ahead=ahead, visited=(), found=())

    def _believed(
        self, state: RandomInterceptsState, noise: float, rounds: int
    ) -> RandomInterceptsState:
        """Return the state with the posterior given the scores since the last Hessian."""
        scores, hessian = present(state.scores), present(state.curvature).hessian
        size, prior = scores.n_fixed, present(state.prior)
        center = np.mean(state.visited, axis=0)
        origin = np.zeros(len(center))
        if rounds == 1:
            origin[:size], prior = present(state.ahead)
        pooled = hessian.times(center - origin) - np.mean(state.found, axis=0)

        def variances(scales: Floats) -> Floats:
            return np.repeat(np.square(scales), self._sizes) / scores.scales**2

        mean, covariance, posterior = present(state.v), state.covariance, None
        if covariance is None:
            usual = np.concatenate([np.zeros(size), variances(np.full(len(self.pooled), _USUAL))])
            covariance = Structured(usual, np.eye(len(usual), size), np.zeros((size, size)))
        laws = state.laws
        for _ in range(rounds):
            error = self._error(state, covariance, center - mean, noise)
            posterior = LevelPosterior(hessian, error, pooled)
            profile = functools.partial(_profile, posterior, prior, variances)
            start = np.array([law.mode for law in laws] or [_USUAL] * len(self.pooled))
            if not laws or len(state.visited) in (2, _POOLED):
                laws = scale_laws(profile, start, _UNIT, 1 if rounds == 1 else SWEEPS)
            likely = np.sqrt([law.mean_square for law in laws])
            mean, covariance = posterior.at(prior, variances(likely))
            mean = mean + origin
        state = dataclasses.replace(state, laws=laws, center=center)
        if rounds == 1:
            return dataclasses.replace(state, v=mean, covariance=covariance)
        # Over the laws of the scales, by a Latin hypercube of their quantiles.
        middle = (np.arange(_NODES) + 0.5) / _NODES
        order = [(np.arange(_NODES) * (2 * k + 1 + (k > 0)) + k) % _NODES for k in range(len(laws))]
        nodes = np.stack(
            [law.quantiles(middle)[one] for law, one in zip(laws, order, strict=True)], axis=1
        )
        every = [present(posterior).at(prior, variances(node)) for node in nodes]
        means = np.array([one for one, _ in every])
        mean = means.mean(axis=0)
        spread = Structured(0.0 * mean, (means - mean).T, np.eye(_NODES) / _NODES)
        covariance = Structured.mean([one for _, one in every])
        total = Structured.mean([covariance, spread])
        total = Structured(covariance.diagonal, total.sides, 2.0 * total.core)
        return dataclasses.replace(state, v=mean, covariance=total)

    def _error(
        self, state: RandomInterceptsState, covariance: Structured, way: Floats, noise: float
    ) -> Structured:
        """Return the covariance of the error of pooled scores: sampling, noise, and the Hessian's.

        The error E of the Hessian adds ``E (center - theta)``.
        """
        scores, curvature = present(state.scores), present(state.curvature)
        size, a, n_rows = scores.n_fixed, scores.constant, self.data.n_rows
        sampling = curvature.sampling
        first = covariance.columns(size) + np.outer(way, way[:size])
        squares = np.maximum(covariance.entries, 0.0) + way**2
        # Squares of a level and the intercept together, in units of effects.
        both = scores.scales**2 * squares[size:] + a**2 * first[size - 1, size - 1]
        both += 2.0 * a * scores.scales * first[size:, size - 1]
        own = curvature.of_levels * np.maximum(both, 0.0)
        of_levels = own + curvature.of_crossed @ np.diag(first[:size]).clip(0.0)
        # Numbers of rows in two levels of different factors vary as counts.
        effects = curvature.levels * scores.scales**2 * squares[size:]
        of_own = [effects[part].sum() for part in self._parts]
        others = effects.sum() - np.repeat(of_own, self._sizes)
        of_levels = scores.scales**2 * (of_levels + curvature.levels * others / n_rows)
        of_fixed = curvature.of_fixed * first[:size]
        own_fixed = curvature.of_fixed @ np.diag(first[:size])
        np.fill_diagonal(of_fixed, own_fixed + curvature.of_crossed.T @ squares[size:])
        of_fixed[size - 1, size - 1] = a**2 * own.sum()
        core = sampling.core / n_rows
        core[:size, :size] += of_fixed
        diagonal = sampling.diagonal / n_rows + noise
        diagonal[size:] += of_levels
        return Structured(diagonal, sampling.sides, core)

    def finish(self, state: RandomInterceptsState) -> Outcome:
        scores, covariance = present(state.scores), present(state.covariance)
        if self.inference is None:
            return Outcome(state.w)
        size = scores.n_fixed
        order = np.concatenate([self._fixed, [self.data.n_features], self._levels])
        of_prior = np.repeat([law.mean_square for law in state.laws], self._sizes)
        place = np.argsort(order)

        def back(matrix: Floats) -> Floats:
            found = np.empty_like(matrix)
            found[:size] = scores.basis @ matrix[:size]
            found[size:] = scores.scales[:, np.newaxis] * matrix[size:]
            return found[place]

        full = back(back(covariance.dense).T)
        prior = linalg.block_diag(present(state.prior), np.diag(of_prior / scores.scales**2))
        sampling = present(state.curvature).sampling.entries / self.data.n_rows
        noise = scores.clip * self.declared["final"].noise_std / self.data.n_rows
        error = self._error(state, covariance, 0.0 * sampling, noise**2 / _POOLED)
        share = np.sqrt((sampling / error.entries).clip(0.0, 1.0))[place]
        part = share[:, np.newaxis] * full * share
        components = tuple(
            VarianceComponent(start, stop, law.mode, *law.interval())
            for (start, stop), law in zip(self.pooled, state.laws, strict=True)
        )
        found = Uncertainty(state.w, part, full - part, kind=self.inference)
        found = dataclasses.replace(found, prior=back(back(prior).T), components=components)
        row = solved(full, np.eye(len(full))[-1])
        return Outcome(state.w, uncertainty=found, products=row)


def _profile(
    posterior: LevelPosterior,
    prior: Floats,
    variances: Callable[[Floats], Floats],
    place: int,
    scales: Floats,
) -> Floats:
    """Return the log-likelihood of the scales of a factor, given those of all."""
    every = np.arange(len(SCALE_GRID))
    chosen = np.unique([0, *range(1, len(every), _SPACING), len(every) - 1])
    tried = np.repeat(scales[np.newaxis], len(chosen), axis=0)
    tried[:, place] = _UNIT * SCALE_GRID[chosen]
    found = [posterior.likelihood(prior, variances(one)) for one in tried]
    # Smooth in the logarithm of the scale.
    between = interpolate.CubicSpline(chosen[1:], found[1:])(every[1:])
    return np.concatenate([found[:1], between])


@final
@dataclass(frozen=True)
class RandomIntercepts(Solver):
    """Random intercepts with scales by marginal likelihood, and fixed effects.

    Columns of a pooled factor are the indicators of its levels. Their effects have a normal prior
    with mean zero and an unknown scale. All other effects are fixed. For losses of two classes or
    proportions, and for Poisson counts.

    Parameters
    ----------
    pooled : tuple of (int, int)
        First column of each pooled factor, and the one after its last.
    inference : {"model"}, optional
        Also return the covariance of the estimate.
    prior_scales : tuple of float, optional
        Largest prior standard deviation of the coefficient of each prepared column; those of
        pooled levels are not used.

    Notes
    -----
    Different factors are assumed independent: for nested factors, such as classes within schools,
    use a model with only one of them. The effect of a level without information, or without rows,
    has its prior distribution with mean zero.
    ``docs/solvers/random_intercepts.md`` has the algorithm.

    Privacy: Gaussian releases of sums of targets and weights, of second moments of fixed columns,
    of eight scores and of three structured Hessians; accounted exactly.

    References
    ----------
    Breslow and Clayton, "Approximate inference in generalized linear mixed models", JASA 88 (1993).
    Gelman, "Prior distributions for variance parameters in hierarchical models", Bayesian Analysis
    1 (2006).

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=20_000, n_features=52, intercept=1.0)
    >>> solver = RandomIntercepts(pooled=((2, 52),))
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.coordinates, one.count) for one in plan.method.releases]
    [(2, 1), (6, 1), (206, 2), (53, 4), (206, 1), (53, 4)]
    """

    pooled: tuple[tuple[int, int], ...]
    inference: Covariance | None = None
    prior_scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.inference == "robust":
            raise ValueError(
                f"inference must be True or False for pooled factors, got {self.inference!r}: "
                "random intercepts are those of a model"
            )

    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        n_fixed = self._checked(problem, data)
        shares, counts = dict(_SHARES), {"first Hessians": 2, "approach": _APPROACH}
        counts["final"] = _POOLED
        if problem.loss.target is not Target.COUNT:
            del shares["sizes"]
        if n_fixed == 0:
            del shares["moments"]

        def with_noise(scale: float) -> RandomInterceptsMethod:
            noises = likelihood.noises_of(shares, counts, scale)
            return RandomInterceptsMethod(
                problem, data, adjacency, self.pooled, self.inference, self.prior_scales, noises
            )

        return facts.calibrated(with_noise)

    def _checked(self, problem: Problem, data: DataSpec) -> int:
        """Return the number of fixed columns; refuse losses and data that the solver is not for."""
        loss = problem.loss
        known = math.isfinite(loss.target.bounds[1]) or (
            loss.target is Target.COUNT and loss.canonical
        )
        if not known or loss.dispersion is None or loss.offset_bound > 0.0 or data.n_outputs > 1:
            raise ValueError(
                "loss must be a likelihood of two classes, proportions or Poisson counts, without "
                f"exposures, for random intercepts, got {loss!r}: write C(ward) for (1 | ward), or "
                "remove pooled from the schema"
            )
        likelihood.check_likelihood(problem, data)
        check_normal(problem)
        if data.intercept <= 0.0:
            raise ValueError("fit_intercept must be True for pooled factors")
        ends = [0, *(end for block in self.pooled for end in block), data.n_features]
        if not self.pooled or sorted(ends) != ends or any(b - a < 2 for a, b in self.pooled):
            raise ValueError(
                "pooled must be increasing blocks of at least two columns, within the "
                f"{data.n_features} columns, got {self.pooled!r}"
            )
        n_fixed = data.n_features - sum(stop - start for start, stop in self.pooled)
        if n_fixed > MOST_FIXED:
            raise ValueError(
                f"columns must be at most {MOST_FIXED} besides pooled levels, got {n_fixed}: "
                "pool factors with many levels"
            )
        return n_fixed
