"""Maximum likelihood by Newton-Raphson with released scores and Hessians."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm._calls import checked
from dpglm._validation import check_integer
from dpglm.oracle.moments import check_data
from dpglm.problem.loss import Target
from dpglm.solvers.base import Facts, Plan, Solver
from dpglm.solvers.second_order import newton_raphson_settings as settings
from dpglm.solvers.second_order.likelihood import check_likelihood, noises_of
from dpglm.solvers.second_order.newton_raphson_method import NewtonRaphsonMethod
from dpglm.solvers.uncertainty import (
    Covariance,
    check_intervals,
    check_normal,
    check_scales,
    indicators_of,
)

# Numbers of gradients with the first matrix and with each Hessian but the last. If Hessians have
# little noise there are more of them, one for each gradient.
_APPROACH = (2, 2, 2)


@checked
@final
@dataclass(frozen=True)
class NewtonRaphson(Solver):
    """Maximum likelihood by Newton steps with released scores and Hessians.

    The last steps pool their scores with the last Hessian, which also determines the covariance.
    For smooth convex losses with one output, but not for squared errors.

    Parameters
    ----------
    n_pooled : int, optional
        Number of pooled scores, at least 1, after five to ten others. By default 4, or 8 for counts
        and other targets without a small bound on slopes, where curvature changes more between
        steps.
    inference : {"model", "robust"}, optional
        Also return the covariance of the estimate, under a right model or under any.
    prior_scales : tuple of float, optional
        Largest prior standard deviation of the coefficient of each prepared column, above 0, may
        be infinite; only with ``inference``.
    full_weights : bool, default=False
        Whether the coordinates are scaled so that no row within the declared bounds is
        downweighted. The estimate then describes all rows equally even if the model is wrong, with
        more noise.
    indicators : tuple of (int, int, float), default=()
        For each factor the column of its first level, the one after its last, and the constant that
        was subtracted from these indicators. Hessians then lose noise that products of indicators
        cannot have. Only with ``inference`` and an intercept.

    Notes
    -----
    As rows or budget grow, the estimate is that of (penalised) maximum likelihood. With intervals
    it is a posterior mean under a weakly informative prior (``posterior.py``).
    ``docs/solvers/newton_raphson.md`` has the algorithm.

    Privacy: Gaussian releases of sums about targets, of second moments, of scores and Hessians,
    accounted exactly. With a covariance, counts of downweighted rows and clipped residuals are
    released in the slack of the last score at no further cost (``RowSum.with_slack``).

    References
    ----------
    Avella-Medina, Bradshaw and Loh, "Differentially private inference via noisy optimization",
    Annals of Statistics 51 (2023), section 4: noisy Newton steps and their sandwich covariance.
    Efron and Morris, "Limiting the risk of Bayes and empirical Bayes estimators", JASA 67 (1972).

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = NewtonRaphson().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.count) for one in plan.method.releases][2:]
    [('score sum', 6), ('Hessian sum', 2), ('Hessian sum', 1), ('score sum', 4)]
    """

    n_pooled: int | None = None
    inference: Covariance | None = None
    prior_scales: tuple[float, ...] | None = None
    full_weights: bool = False
    indicators: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        if self.n_pooled is not None:
            check_integer("n_pooled", self.n_pooled, least=1)
        check_intervals(self)

    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        loss = problem.loss
        check_likelihood(problem, data)
        if self.inference is not None:
            check_normal(problem)
        check_data(data, adjacency)
        check_scales(self.prior_scales, data.n_features)
        indicators = indicators_of(self.indicators, data.n_features, data.intercept)
        mu = facts.mu
        shares = dict(settings.SHARES)
        bounded = math.isfinite(
            loss.slope_bound_on(math.inf, *data.target_range(loss.target.bounds))
        )
        n_pooled = self.n_pooled or settings.MOST_POOLED
        # Few slopes of counts come near their bound.
        cuts_slopes = not bounded or loss.target is Target.COUNT
        if not cuts_slopes:
            del shares["slopes"]
            n_pooled = self.n_pooled or settings.POOLED
        if loss.target in (Target.COUNT, Target.POSITIVE):
            shares["sizes"] = settings.SMALL
        if data.groups is not None and data.groups.rows > 1.0:
            shares["lengths"] = settings.SMALL
        if self.inference == "robust" or (self.inference and loss.dispersion is None):
            shares["score moments"] = settings.LARGE
        counts = {"final": n_pooled}
        if self.inference is not None:
            shares |= settings.shares_of_hessian(data.n_columns)
            # The last of the pooled scores has more numbers.
            shares["last"] = shares["final"] / n_pooled
            counts["final"] -= 1
            shares["final"] *= 1.0 - 1.0 / n_pooled
            if n_pooled == 1:
                del shares["final"]
            shares |= settings.COLUMNS
        n_first_rows = settings.rows_enough(mu, data, adjacency)
        noise = settings.hessian_noise(mu, data, self.inference, n_first_rows)
        n_fresh = min(int(settings.HARMLESS / noise), settings.MOST_POOLED)
        approach = _APPROACH if n_fresh < len(_APPROACH) else (2, *[1] * n_fresh)
        counts |= {"approach": sum(approach), "first Hessians": len(approach) - 1}

        def with_noise(scale: float) -> NewtonRaphsonMethod:
            return NewtonRaphsonMethod(
                problem=problem,
                data=data,
                adjacency=adjacency,
                limits=settings.limits(
                    mu, data, self.inference, n_first_rows, cuts_slopes=cuts_slopes
                ),
                n_pooled=n_pooled,
                first_steps=approach,
                longest_step=settings.longest_step(noise),
                n_first_rows=n_first_rows,
                inference=self.inference,
                noises=noises_of(shares, counts, scale),
                prior_scales=self.prior_scales,
                full_weights=self.full_weights,
                indicators=indicators,
            )

        return facts.calibrated(with_noise)
