"""Least squares from released second moments, refined with residuals."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import check_real
from dpglm.data.rows import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.moments import check_data
from dpglm.oracle.targets import TargetShares
from dpglm.problem import Squared
from dpglm.solvers.base import Facts, Plan, Solver
from dpglm.solvers.second_order.newton_raphson_settings import (
    ENOUGH_FOR_MEAN,
    HARMLESS,
    LARGE,
    MEDIUM,
    MOST_POOLED,
    SMALL,
)
from dpglm.solvers.second_order.sufficient_statistics_method import (
    SufficientStatisticsMethod,
)
from dpglm.solvers.uncertainty import (
    Covariance,
    check_intervals,
    check_normal,
    check_scales,
    feasible,
    indicators_of,
    n_penalized,
)

# Chosen by ``python -m experiments.least_squares``; docs/solvers has its tables.
# Shares of the equations, the counts of scores, and the scores. Intervals need good counts: scores
# that are clipped by a bound that noise made too small do not show in their variance.
_OF_REST = LARGE, SMALL, 1.0 - LARGE - SMALL
_OF_REST_FOR_INTERVALS = LARGE, LARGE, 1.0 - LARGE - LARGE
# Shares of second moments within the declared bounds, counts near means, and second moments.
_OF_MOMENTS = LARGE, LARGE, 1.0 - LARGE - LARGE
_MOST_SIDE = 16
# The mu sqrt(n / d) where noise equals sampling error, for rows of mean squared norm; and the
# bound on scores, and that per mu n / d, while noise exceeds sampling error.
_EVEN, _LEAST_SCORE_CLIP, _SCORE_CLIP_GROWTH = 5.4, 0.25, 0.015


@checked
@final
@dataclass(frozen=True)
class SufficientStatistics(Solver):
    """Least squares from noisy second moments, refined with residuals.

    Slopes are shrunk towards zero according to their noise. Only for the loss ``Squared``.

    Parameters
    ----------
    first_share : float, default=0.15
        Share of the budget (of mu squared) for the second moments of scaled rows, in (0, 1), after
        the targets' share.
    clip : float, optional
        Bound on a row's squared norm in the basis, above 0, in units of the mean. Longer rows have
        a smaller weight in the equations, and scores are clipped to that of such a row with a large
        residual. The default grows with the budget: at least 1 for the equations, and at least 1/4
        for scores. With ``inference`` rows have their full weight as long as this adds little noise
        to their second moments.
    inference : {"model", "robust"}, optional
        Also release the covariance of the estimate, under a right model with equal variances or
        under any model. The estimate is then a posterior mean under a weakly informative prior,
        from one score with second moments.
    prior_scales : tuple of float, optional
        Largest prior standard deviation of the coefficient of each prepared column, in standard
        deviations of the target, above 0, may be infinite; only with ``inference``.
    full_weights : bool, default=False
        Whether no row of the last release is downweighted. The estimate then describes all rows
        equally even if the model is wrong, with more noise.
    indicators : tuple of (int, int, float), default=()
        Columns that are indicators of levels, for intervals, see ``NewtonRaphson``.

    Notes
    -----
    ``docs/solvers/sufficient_statistics.md`` has the releases and the algorithm. With intervals the
    estimate solves the noisy equations under a weakly informative prior (``posterior.py``).

    Privacy: Gaussian releases, accounted exactly. Every row's contribution is bounded for all
    coordinates, means and residuals.

    References
    ----------
    Wang, "Revisiting differentially private linear regression", UAI 2018, Algorithm 2 (AdaSSP),
    which releases once, in the columns' own units. Mallows, "On some topics in robustness", 1975
    (weights that depend on the row only). Polyak and Juditsky, "Acceleration of stochastic
    approximation by averaging", SIAM J. Control Optim. 30 (1992).

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Problem
    >>> solver = SufficientStatistics()
    >>> data = DataSpec(10_000, 20, intercept=1.0, target_low=0.0, target_high=1.0)
    >>> plan = solver.plan(Problem(Squared()), ApproximateDP(1.0, 1e-5), data)
    >>> for one in plan.method.releases:
    ...     print(one.quantity, one.coordinates)
    target sum, weight and counts 258
    normalised second-moment sum 231
    second moments, score and squared residuals 253
    counts of long scores 32
    clipped score and squared residuals 22
    """

    first_share: float = LARGE
    clip: float | None = None
    inference: Covariance | None = None
    prior_scales: tuple[float, ...] | None = None
    full_weights: bool = False
    indicators: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        check_real("first_share", self.first_share, above=0.0, below=1.0)
        if self.clip is not None:
            check_real("clip", self.clip, above=0.0)
        check_intervals(self)

    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        if problem.loss != Squared():
            raise ValueError(
                f"loss must be Squared() for the solver SufficientStatistics, got {problem.loss!r}"
            )
        low, high = data.target_low, data.target_high
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                "target_low and target_high must be finite for the solver SufficientStatistics, "
                f"got {low!r} and {high!r}"
            )
        check_scales(self.prior_scales, data.n_features)
        check_data(data, adjacency)
        mu = facts.mu
        growth = mu * math.sqrt(data.n_rows / data.n_columns)
        clip = score_clip = self._clip(growth)
        # Penalties and constraints that do not fit the parameter raise here and not in the run.
        feasible(problem, n_penalized(problem, data), np.zeros(data.coefficient_shape), 1.0)
        if self.inference is not None:
            check_normal(problem)
        shares, target_shares = self._shares(data.n_rows * mu, data)
        n_scores = MOST_POOLED if len(shares) > 1 and self.inference is None else 1
        if self.clip is None and self.inference is None:
            per_column = data.n_rows * mu / data.n_columns
            score_clip = max(_LEAST_SCORE_CLIP, min(_SCORE_CLIP_GROWTH * per_column, growth))
        counts = (*(1 for _ in shares[1:]), n_scores)

        def with_noise(scale: float) -> SufficientStatisticsMethod:
            method = SufficientStatisticsMethod(
                problem=problem,
                data=data,
                adjacency=adjacency,
                target_shares=target_shares,
                clip=clip,
                score_clip=score_clip,
                slack=max(1.0, (growth / _EVEN**2) ** (1.0 / 3.0)),
                inference=self.inference,
                noise_multipliers=tuple(
                    scale * math.sqrt(count / share)
                    for count, share in zip(counts, shares, strict=True)
                ),
                n_scores=n_scores,
                prior_scales=self.prior_scales,
                full_weights=self.full_weights,
                indicators=indicators_of(self.indicators, data.n_features, data.intercept),
            )
            if self.clip is not None or self.inference is None:
                return method
            # Longer rows count in full as far as noise in their second moments is small.
            longest = max(clip, 0.5 * clip * HARMLESS / method.moment_noise)
            return dataclasses.replace(method, score_clip=min(longest, LARGEST))

        return facts.calibrated(with_noise)

    def _clip(self, growth: float) -> float:
        """Return the bound on squared norms; ``growth`` is sampling over noise, mu sqrt(n / d)."""
        # So slow that noise still vanishes against sampling error.
        by_rule = max(1.0, min((growth / _EVEN) ** 2, growth ** (2.0 / 3.0)))
        clip = self.clip or (by_rule if self.inference is None else 1.0)
        if not SMALLEST <= clip <= LARGEST:
            raise ValueError(f"clip must be {SMALLEST:g} to {LARGEST:g}, got {clip!r}")
        return clip

    def _shares(self, signal: float, data: DataSpec) -> tuple[tuple[float, ...], TargetShares]:
        """Return the shares of the releases, and of the parts of the first; ``signal`` is n mu."""
        targets, counts = 0.5 * MEDIUM, 1.0 - MEDIUM
        if data.intercept > 0.0:
            if signal <= ENOUGH_FOR_MEAN and self.inference is None:
                return (1.0,), TargetShares(1.0 - SMALL, SMALL, 0.0, 0)
            fade = min((ENOUGH_FOR_MEAN / signal) ** 3, 1.0)
            targets = max(MEDIUM, (1.0 - SMALL) * fade)
            counts = max((0.5 - MEDIUM) * (1.0 - fade), MEDIUM)
        side = int(min(max(HARMLESS * signal * math.sqrt(targets * counts), 2.0), _MOST_SIDE))
        first = (1.0 - targets) * self.first_share
        of_rest = _OF_REST if self.inference is None else _OF_REST_FOR_INTERVALS
        last = (one * (1.0 - targets - first) for one in of_rest)
        moments = (1.0,) if self.inference is None else _OF_MOMENTS
        return (targets, *(first * one for one in moments), *last), TargetShares(
            1.0 - counts - MEDIUM, MEDIUM, counts, side
        )
